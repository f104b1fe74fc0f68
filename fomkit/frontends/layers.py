"""Layers of a forward pass as rows of LAYERS, the temporary memory of optimizer updates, and graph nodes.

`LayerLog` collects the layer calls of a pass, `count_layers` makes the table; `COPIES` and `per_tensor_peak_byte`
are the memory of an update.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from fomkit.frontends.lowering.calls import BACKWARD, FORWARD, Array, Call, Dimensions, TracedOp, add_counts

if TYPE_CHECKING:
    from fomkit.frontends.step import Row

LAYER = "layer"
"""Kind of the rows that are layers; they are handled like ops until their sizes have names."""

_OWNED = ("parameters", "parameter_byte", "bias")


def split_layers(rows: Sequence[TracedOp]) -> tuple[list[TracedOp], list[TracedOp]]:
    """Separate ops and layers."""
    return [row for row in rows if row.kind != LAYER], [row for row in rows if row.kind == LAYER]


def count_layers(layers: Iterable[TracedOp]) -> list[Row]:
    """Count equal calls; return rows of the LAYERS table in order of first execution.

    A module's parameters are numbers and belong to its first call; later calls add 0. ``count`` is 0 if it was
    never called.
    """
    counted: dict[object, Row] = {}
    for layer in layers:
        sizes = {name: size for name, size in layer.dimensions.items() if name not in _OWNED}
        owned = {name: float(layer.dimensions[name]) for name in _OWNED}
        key = (layer.op, layer.module, tuple(sizes.items()))
        called = layer.dimensions["acts"] != "never" or layer.dimensions["output_numel"] != 0
        if key not in counted:
            counted[key] = {"layer": layer.op, "module": layer.module, "count": 0, **owned, **sizes}
        else:
            counted[key].update({name: counted[key][name] + amount for name, amount in owned.items()})
        if called:
            counted[key]["count"] = add_counts(counted[key]["count"], layer.count)
    return list(counted.values())


@dataclass(eq=False, slots=True)
class RowOwner:
    """One execution of something that is a row of its own, with the row of each pass."""

    row: TracedOp
    backward: TracedOp | None = None

    def in_pass(self, pass_name: str) -> TracedOp:
        """Return the row of a pass; that of the backward pass is made when it is first asked for."""
        if pass_name == FORWARD:
            return self.row
        self.backward = self.backward or replace(self.row, pass_name=BACKWARD, parts=[], lines={})
        return self.backward


@dataclass(eq=False, slots=True)
class Scope:
    """What runs an op: the path of a module, function or layer, and the row that contains it, if any.

    `runs_again`: True for a call that the backward pass repeats, as checkpointing does.
    `on_host`: True for a layer that reads text.
    """

    path: str
    owner: RowOwner | None = None
    is_update: bool = False
    runs_again: bool = False
    on_host: bool = False


@dataclass(frozen=True)
class Weight:
    """One learned tensor: its key, its elements and bytes, and whether it is added to the output."""

    key: int
    numel: int
    byte: int
    is_bias: bool = False


@dataclass(eq=False, slots=True)
class LayerCall:
    """One call of a layer: its parameters, its outputs, and the number of later layers that read them."""

    layer: str
    module: str
    op: str = ""
    owner: RowOwner | None = None
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
        """Return the layer as a row that is named and counted like an op."""
        sizes: Dimensions = {
            "op": self.op, "acts": self.acts, "parameters": self.parameters, "parameter_byte": self.parameter_byte,
            "bias": self.bias, "output_numel": sum(array.numel for array in self.outputs),
            "output_byte": sum(array.byte for array in self.outputs), "readers": self.readers,
            "in_place": int(self.in_place),
        }  # fmt: skip
        return TracedOp(self.layer, LAYER, sizes, "", FORWARD, self.module)


class LayerLog:
    """Collects the layers of one forward pass; the recorder reports each op that has work.

    Ops outside the model's own run, such as checkpointed layers in the backward pass, are ignored.

    `function_word`: returns the type of a function by its op.
    `once`: whether only the first of several calls of the model in one step counts.
    """

    def __init__(self, function_word: Callable[[str], str], *, once: bool = False) -> None:
        self._function_word = function_word
        self._once = once
        self.forget()

    def forget(self) -> None:
        """Start again; only while the model is not running."""
        self.calls: list[LayerCall] = []
        self._running: list[LayerCall] = []
        self._makers: dict[int, LayerCall] = {}
        self._counted: set[int] = set()
        self._open = 0
        self._is_again = False

    def begin(self, given: tuple[Array, ...]) -> None:
        """Begin the model's own call with the arrays it is called with."""
        self._is_again = self._once and bool(self.calls) and not self._open
        if self._is_again:
            return
        self._open += 1
        call = LayerCall("input", "", acts="input")
        self._note_outputs(call, given)
        self.calls.append(call)

    def end(self) -> None:
        """End the model's own call."""
        self._open -= not self._is_again

    def _assign_weights(self, call: LayerCall, weights: Iterable[Weight]) -> None:
        """Assign to a layer those weights that no layer has yet."""
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
        self._note_inputs(call, given)
        self._running.append(call)
        self.calls.append(call)

    def leave(
        self, word: str, weights: Iterable[Weight], made: tuple[Array, ...], *, is_dropout: bool = False
    ) -> None:
        """End a call of a layer; a layer that only returns its input reads and makes nothing.

        Type and weights are passed here only, because a lazy layer gets its type in its first call.
        """
        if not self._open:
            return
        call = self._running.pop()
        call.layer = word
        self._assign_weights(call, weights)
        if is_dropout and call.acts == "always":
            call.acts = "training"
        if call.acts == "never":
            call.outputs = made
        else:
            self._note_outputs(call, made)

    def note_op(self, op: Call, scope: Scope) -> None:
        """Note an op that has work: a part of the running layer, or a function of its own."""
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
        self._note_inputs(call, op.read)
        # Masks, indices and statistics that accompany the first result are not counted as output.
        self._note_outputs(call, op.results[:1])

    def _note_inputs(self, call: LayerCall, arrays: Iterable[Array]) -> None:
        for storage in {array.storage for array in arrays} - call.read:
            call.read.add(storage)
            maker = self._makers.get(storage)
            if maker is not None and maker is not call:
                call.sources.append(maker)

    def _note_outputs(self, call: LayerCall, arrays: tuple[Array, ...]) -> None:
        for source in call.sources:
            source.readers += 1
        call.sources = []
        call.outputs = arrays
        call.in_place = any(array.storage in call.read for array in arrays)
        self._makers.update((array.storage, call) for array in arrays)

    def rows(self, owners: Iterable[tuple[str, str, Iterable[Weight]]]) -> list[TracedOp]:
        """Return the layers in order of their calls, then modules (type, path, weights) that no call has."""
        idle = []
        for word, path, weights in owners:
            call = LayerCall(word, path)
            self._assign_weights(call, weights)
            if call.parameters:
                idle.append(call)
        return [call.row() for call in (*self.calls, *idle)]


class Copies(NamedTuple):
    """Temporary tensors of a parameter's size that exist at once during an unfused update.

    `listed`, `listed_decayed`: of all parameters, in an update by lists, without and with decay added to
      gradients.
    `single`, `held`: in an update tensor by tensor, of one parameter, and of the one before, which is still held.
    """

    listed: int
    listed_decayed: int
    single: int
    held: int


_ADAM = Copies(1, 1, 2, 1)
_RMSPROP = Copies(1, 2, 1, 1)
COPIES: Mapping[str, Copies] = {
    "sgd": Copies(0, 1, 0, 0), "momentum": Copies(0, 1, 0, 0), "nesterov": Copies(0, 1, 1, 0),
    **dict.fromkeys(("adam", "adam_amsgrad", "adamw", "adamw_amsgrad"), _ADAM),
    **dict.fromkeys(("rmsprop", "rmsprop_momentum", "rmsprop_centered", "rmsprop_centered_momentum"), _RMSPROP),
    "adamax": Copies(1, 1, 1, 0), "nadam": Copies(1, 2, 2, 1), "radam": Copies(1, 1, 2, 0),
    "adagrad": Copies(2, 2, 1, 1), "adadelta": Copies(2, 3, 2, 1),
}  # fmt: skip
"""As torch 2.13 makes them; a test runs every rule and compares."""


def sgd_rule(options: Mapping[str, Any]) -> str:
    """Return the rule of a gradient descent from its options."""
    return "sgd" if not options.get("momentum") else "nesterov" if options.get("nesterov") else "momentum"


def rmsprop_rule(options: Mapping[str, Any]) -> str:
    """Return the rule of an RMSprop from its options."""
    return "_".join(["rmsprop", *(name for name in ("centered", "momentum") if options.get(name))])


def per_tensor_peak_byte(copies: Copies, sizes: Sequence[float], more: int = 0) -> float:
    """Return the most memory [byte] that an update tensor by tensor allocates at once.

    `sizes`: bytes of each parameter in order; `more`: further copies of the current parameter, such as its
    gradient with weight decay added.

    >>> per_tensor_peak_byte(COPIES["adam"], [400.0, 100.0])
    800.0
    """
    before = [0, *sizes]
    return max((copies.single + more) * own + copies.held * last for own, last in zip(sizes, before, strict=False))


@dataclass(frozen=True)
class GraphNode:
    """One node of the graph of a step.

    `count`: how often it runs in a step.
    `rows`: rows of the op table that it is or that contain it; its time is divided equally. Empty without work.
    `product`: the product or convolution that it may be fused with, as a bias or an activation; "" for others.
    """

    op: str
    pass_name: str
    count: int
    rows: list[int] = field(default_factory=list)
    product: str = ""


Nodes = dict[str, GraphNode]
"""Nodes by the name that a profiler has for them, `fomkit.readers.profilers.xplane_times.plain_name`."""
