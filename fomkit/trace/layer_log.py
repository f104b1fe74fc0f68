"""The layers of a forward pass, from what a tracer tells: calls of layers, and ops that run between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from fomkit.trace.calls import FORWARD, Array, Call, Dimensions, TracedOp
from fomkit.trace.layer_table import LAYER


class Owner(Protocol):
    """One execution of something that is a row of its own."""

    @property
    def row(self) -> TracedOp:
        """The row."""


class Place(Protocol):
    """Who runs an op: the module's path and the row that it lies in, if any."""

    @property
    def path(self) -> str:
        """The path."""

    @property
    def owner(self) -> Owner | None:
        """The row."""


@dataclass(frozen=True)
class Weight:
    """One learned tensor: what it is known by, its elements and bytes, and whether it is added to the output."""

    key: int
    numel: int
    byte: int
    is_bias: bool = False


@dataclass(eq=False, slots=True)
class LayerCall:
    """One call of a layer: what it owns, what it made, and how many later layers read that."""

    layer: str
    module: str
    op: str = ""
    owner: Owner | None = None
    acts: str = "never"
    parameters: int = 0
    parameter_byte: int = 0
    bias: int = 0
    outputs: tuple[Array, ...] = ()
    readers: int = 0
    in_place: bool = False
    sources: list[LayerCall] = field(default_factory=list)
    read: set[int] = field(default_factory=set)

    def row(self) -> TracedOp:
        """Give the layer as a row that is named and counted like an op."""
        sizes: Dimensions = {
            "op": self.op,
            "acts": self.acts,
            "parameters": self.parameters,
            "parameter_byte": self.parameter_byte,
            "bias": self.bias,
            "output_numel": sum(array.numel for array in self.outputs),
            "output_byte": sum(array.byte for array in self.outputs),
            "readers": self.readers,
            "in_place": int(self.in_place),
        }
        return TracedOp(self.layer, LAYER, sizes, "", FORWARD, self.module)


class LayerLog:
    """Collects the layers of one forward pass; the recorder tells it each op that has work.

    What runs while the model itself is not running, such as checkpointed layers in the backward pass, is no part.

    Parameters
    ----------
    function_word : function of an op's name
        Names the type of a function by its op.
    once : bool
        Whether only the first call of the model counts, of several in one step.
    """

    def __init__(self, function_word: Callable[[str], str], *, once: bool = False) -> None:
        self._function_word = function_word
        self._once = once
        self.forget()

    def forget(self) -> None:
        """Begin anew, while the model is not running."""
        self.calls: list[LayerCall] = []
        self._running: list[LayerCall] = []
        self._makers: dict[int, LayerCall] = {}
        self._counted: set[int] = set()
        self._open = 0
        self._is_again = False

    def begin(self, given: tuple[Array, ...]) -> None:
        """Begin the model's own call, with what it is given."""
        self._is_again = self._once and bool(self.calls) and not self._open
        if self._is_again:
            return
        self._open += 1
        call = LayerCall("input", "", acts="input")
        self._made(call, given)
        self.calls.append(call)

    def end(self) -> None:
        """End it."""
        self._open -= not self._is_again

    def _own(self, call: LayerCall, weights: Iterable[Weight]) -> None:
        """Give a layer those weights that nobody has yet."""
        for weight in weights:
            if weight.key not in self._counted:
                self._counted.add(weight.key)
                call.parameters += weight.numel
                call.parameter_byte += weight.byte
                call.bias += weight.numel * weight.is_bias

    def enter(self, path: str, given: tuple[Array, ...]) -> None:
        """Begin a call of a layer."""
        if not self._open:
            return
        call = LayerCall("", path)
        self._reads(call, given)
        self._running.append(call)
        self.calls.append(call)

    def leave(
        self, word: str, weights: Iterable[Weight], made: tuple[Array, ...], *, is_dropout: bool = False
    ) -> None:
        """End it; a layer that only hands its input on reads and makes nothing.

        Its type and weights are told here only: a lazy layer becomes what it is in its first call.
        """
        if not self._open:
            return
        call = self._running.pop()
        call.layer = word
        self._own(call, weights)
        if is_dropout and call.acts == "always":
            call.acts = "training"
        if call.acts == "never":
            call.outputs = made
        else:
            self._made(call, made)

    def note_op(self, op: Call, scope: Place) -> None:
        """Note an op that has work: part of the running layer, or a function of its own."""
        if not self._open:
            return
        if self._running:
            self._running[-1].acts = "always"
            return
        call = self.calls[-1] if self.calls else None
        if call is None or scope.owner is None or call.owner is not scope.owner:
            name = op.op if scope.owner is None else scope.owner.row.op
            word = self._function_word(name)
            acts = "training" if word == "dropout" else "always"
            call = LayerCall(word, scope.path, name, scope.owner, acts)
            self.calls.append(call)
        self._reads(call, op.read)
        # Masks, indices and statistics that come with the first result are no output.
        self._made(call, op.results[:1])

    def _reads(self, call: LayerCall, arrays: Iterable[Array]) -> None:
        for storage in {array.storage for array in arrays} - call.read:
            call.read.add(storage)
            maker = self._makers.get(storage)
            if maker is not None and maker is not call:
                call.sources.append(maker)

    def _made(self, call: LayerCall, arrays: tuple[Array, ...]) -> None:
        for source in call.sources:
            source.readers += 1
        call.sources = []
        call.outputs = arrays
        call.in_place = any(array.storage in call.read for array in arrays)
        self._makers.update((array.storage, call) for array in arrays)

    def rows(self, owners: Iterable[tuple[str, str, Iterable[Weight]]]) -> list[TracedOp]:
        """Give the layers in order of their calls, then those of ``owners`` with weights that no call has.

        Parameters
        ----------
        owners : iterable of (type, path, weights)
            All modules of the model.
        """
        idle = []
        for word, path, weights in owners:
            call = LayerCall(word, path)
            self._own(call, weights)
            if call.parameters:
                idle.append(call)
        return [call.row() for call in (*self.calls, *idle)]
