"""The layers of a forward pass: module calls without modules inside, and functions that run between them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from fomkit.trace.calls import Array, TracedOp
from fomkit.trace.layer_log import LayerLog, Weight
from fomkit.trace.torch_calls import as_array

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


def is_layer(module: torch.nn.Module) -> bool:
    """Tell whether a module is a layer: nothing inside, or one of PyTorch's with parameters of its own."""
    if not any(True for _ in module.children()):
        return True
    own = any(True for _ in module.parameters(recurse=False))
    return own and type(module).__module__.startswith("torch.nn.")


def arrays_of(values: Any) -> tuple[Array, ...]:
    """Describe the tensors among values; one that is there twice, such as an LSTM's last state, is one."""
    tensors = [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]
    return tuple(dict.fromkeys(as_array(tensor) for tensor in tensors))


def _weights(module: torch.nn.Module, *, inside: bool) -> Iterator[Weight]:
    bias = getattr(module, "bias", None)
    for one in module.parameters(recurse=inside):
        yield Weight(id(one), one.numel(), one.numel() * one.element_size(), one is bias)


def layer_rows(log: LayerLog, model: torch.nn.Module) -> list[TracedOp]:
    """Give the layers that were seen, and the modules whose parameters none of them has."""
    named = model.named_modules()
    return log.rows((module_word(module), path, _weights(module, inside=False)) for path, module in named)


def _watch_layer(module: torch.nn.Module, path: str, log: LayerLog) -> Iterator[Any]:
    def before(_module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        log.enter(path, arrays_of((args, kwargs)))

    def after(module: torch.nn.Module, _args: Any, output: Any) -> None:
        is_dropout = isinstance(module, torch.nn.modules.dropout._DropoutNd)
        weights = _weights(module, inside=True)
        log.leave(module_word(module), weights, arrays_of(output), is_dropout=is_dropout)

    # Before the hook that gives recurrent layers their first states, which are the layer's own.
    yield module.register_forward_pre_hook(before, prepend=True, with_kwargs=True)
    yield module.register_forward_hook(after)


@contextmanager
def watch_layers(model: torch.nn.Module, *, once: bool = False) -> Iterator[LayerLog]:
    """Follow the layers of a model's forward pass, or of the first one of several, inside the block."""
    log = LayerLog(function_word, once=once)

    def begin(_module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        log.begin(arrays_of((args, kwargs)))

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
