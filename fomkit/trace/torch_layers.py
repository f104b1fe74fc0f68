"""The layers of a forward pass: module calls without modules inside, and functions that run between them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from fomkit.trace.calls import FORWARD, Array, Call, Dimensions, TracedOp
from fomkit.trace.layer_table import LAYER
from fomkit.trace.torch_calls import as_array
from fomkit.trace.torch_scopes import RowScope, Scope

WORDS: Mapping[str, str] = {
    "Conv": "conv", "ConvTranspose": "transposed_conv", "Linear": "linear", "Embedding": "embedding",
    "ReLU": "relu", "GELU": "gelu", "Softmax": "softmax", "LocalResponseNorm": "lrn", "BatchNorm": "batch_norm",
    "LayerNorm": "layer_norm", "GroupNorm": "group_norm", "MaxPool": "pool", "AvgPool": "pool",
    "AdaptiveMaxPool": "pool", "AdaptiveAvgPool": "pool", "Dropout": "dropout", "Flatten": "flatten",
    "LSTM": "lstm", "GRU": "gru", "RNN": "rnn", "MultiheadAttention": "attention",
    "aten::cat": "concat", "aten::native_dropout": "dropout", "aten::_softmax": "softmax",
    "aten::scaled_dot_product_attention": "attention",
}  # fmt: skip
"""Types of layers by the framework's name, axes left out; any other goes by its own name."""

_NAMED_AXES = re.compile(r"[123]d$")


def module_word(module: torch.nn.Module) -> str:
    """Name the type of a module."""
    name = type(module).__name__
    return WORDS.get(_NAMED_AXES.sub("", name), name)


def function_word(op: str) -> str:
    """Name the type of a function by its op; the in-place spelling is the same type."""
    return WORDS.get(op, op.partition("::")[2].rstrip("_") or op)


@dataclass(eq=False, slots=True)
class LayerCall:
    """One call of a layer: what it owns, what it made, and how many later layers read that."""

    layer: str
    module: str
    op: str = ""
    owner: RowScope | None = None
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


def is_layer(module: torch.nn.Module) -> bool:
    """Tell whether a module is a layer: nothing inside, or one of PyTorch's with parameters of its own."""
    if not any(True for _ in module.children()):
        return True
    own = any(True for _ in module.parameters(recurse=False))
    return own and type(module).__module__.startswith("torch.nn.")


class LayerLog:
    """Collects the layers of one forward pass; the recorder tells it each op that has work.

    What runs while the model itself is not running, such as checkpointed layers in the backward pass, is no part.

    Parameters
    ----------
    once : bool
        Whether only the first call of the model counts, of several in one step.
    """

    def __init__(self, *, once: bool = False) -> None:
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

    def _arrays(self, values: Any) -> tuple[Array, ...]:
        tensors = [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]
        # A result that is returned twice, such as an LSTM's last state, is one.
        return tuple(dict.fromkeys(as_array(tensor) for tensor in tensors))

    def begin(self, values: Any) -> None:
        """Begin the model's own call, with what it is given."""
        self._is_again = self._once and bool(self.calls) and not self._open
        if self._is_again:
            return
        self._open += 1
        call = LayerCall("input", "", acts="input")
        self._made(call, self._arrays(values))
        self.calls.append(call)

    def end(self) -> None:
        """End it."""
        self._open -= not self._is_again

    def own(self, call: LayerCall, module: torch.nn.Module, *, inside: bool) -> None:
        """Give a layer the parameters of its module that nobody has yet."""
        for parameter in module.parameters(recurse=inside):
            if id(parameter) not in self._counted:
                self._counted.add(id(parameter))
                call.parameters += parameter.numel()
                call.parameter_byte += parameter.numel() * parameter.element_size()
                call.bias += parameter.numel() if parameter is getattr(module, "bias", None) else 0

    def enter(self, path: str, inputs: Any) -> None:
        """Begin a call of a layer."""
        if not self._open:
            return
        call = LayerCall("", path)
        self._reads(call, self._arrays(inputs))
        self._running.append(call)
        self.calls.append(call)

    def leave(self, module: torch.nn.Module, output: Any) -> None:
        """End it; a layer that only hands its input on reads and makes nothing."""
        if not self._open:
            return
        call = self._running.pop()
        # Only now: a lazy module becomes what it is in its first call.
        call.layer = module_word(module)
        self.own(call, module, inside=True)
        if isinstance(module, torch.nn.modules.dropout._DropoutNd) and call.acts == "always":
            call.acts = "training"
        if call.acts == "never":
            call.outputs = self._arrays(output)
        else:
            self._made(call, self._arrays(output))

    def note_op(self, op: Call, scope: Scope) -> None:
        """Note an op that has work: part of the running layer, or a function of its own."""
        if not self._open:
            return
        if self._running:
            self._running[-1].acts = "always"
            return
        call = self.calls[-1] if self.calls else None
        if call is None or scope.owner is None or call.owner is not scope.owner:
            name = op.op if scope.owner is None else scope.owner.row.op
            acts = "training" if name == "aten::native_dropout" else "always"
            call = LayerCall(function_word(name), scope.path, name, scope.owner, acts)
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

    def rows(self, model: torch.nn.Module) -> list[TracedOp]:
        """Give the layers in order of their calls, then modules whose parameters no call has used as its own."""
        idle = []
        for path, module in model.named_modules():
            call = LayerCall(module_word(module), path)
            self.own(call, module, inside=False)
            if call.parameters:
                idle.append(call)
        return [call.row() for call in (*self.calls, *idle)]


def _watch_layer(module: torch.nn.Module, path: str, log: LayerLog) -> Iterator[Any]:
    def before(_module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        log.enter(path, (args, kwargs))

    def after(module: torch.nn.Module, _args: Any, output: Any) -> None:
        log.leave(module, output)

    # Before the hook that gives recurrent layers their first states, which are the layer's own.
    yield module.register_forward_pre_hook(before, prepend=True, with_kwargs=True)
    yield module.register_forward_hook(after)


@contextmanager
def watch_layers(model: torch.nn.Module, *, once: bool = False) -> Iterator[LayerLog]:
    """Follow the layers of a model's forward pass, or of the first one of several, inside the block."""
    log = LayerLog(once=once)

    def begin(_module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        log.begin((args, kwargs))

    def end(_module: torch.nn.Module, _args: Any, _output: Any) -> None:
        log.end()

    with ExitStack() as handles:
        for path, module in model.named_modules():
            if is_layer(module) and not isinstance(module, torch.jit.ScriptModule):
                for handle in _watch_layer(module, path, log):
                    handles.callback(handle.remove)
        handles.callback(model.register_forward_pre_hook(begin, prepend=True, with_kwargs=True).remove)
        handles.callback(model.register_forward_hook(end).remove)
        yield log
