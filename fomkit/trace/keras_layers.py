"""Layers of a Keras model: their paths, types and weights, and where each call begins and ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from math import prod
from typing import Any

import keras

from fomkit.dtypes import item_byte
from fomkit.trace.calls import Array
from fomkit.trace.keras_calls import dtype_name
from fomkit.trace.layer_log import LayerLog, Weight

_WORDS: Mapping[str, str] = {
    "Conv": "conv", "DepthwiseConv": "conv", "SeparableConv": "conv", "ConvTranspose": "transposed_conv",
    "Dense": "linear", "EinsumDense": "linear", "Embedding": "embedding", "ReLU": "relu", "LeakyReLU": "LeakyReLU",
    "Softmax": "softmax", "BatchNormalization": "batch_norm", "LayerNormalization": "layer_norm",
    "GroupNormalization": "group_norm", "MaxPooling": "pool", "AveragePooling": "pool",
    "GlobalMaxPooling": "pool", "GlobalAveragePooling": "pool", "Dropout": "dropout", "SpatialDropout": "dropout",
    "Flatten": "flatten", "LSTM": "lstm", "GRU": "gru", "SimpleRNN": "rnn", "MultiHeadAttention": "attention",
    "GroupedQueryAttention": "attention", "Attention": "attention", "Concatenate": "concat", "Add": "add",
}  # fmt: skip
"""Types of layers by Keras's name, axes left out; an activation goes by its function, others by their own name."""


def layer_word(layer: Any) -> str:
    """Name the type of a layer."""
    name = type(layer).__name__
    if isinstance(layer, keras.layers.Activation):
        return str(getattr(layer.activation, "__name__", name))
    for axes in ("1D", "2D", "3D"):
        name = name.replace(axes, "")
    return _WORDS.get(name, type(layer).__name__)


def is_layer(layer: Any) -> bool:
    """Tell whether it is counted as one: nothing inside, or one of Keras's own with parts, and no model."""
    if isinstance(layer, keras.Model):
        return False
    inside = any(True for _ in layer._flatten_layers(include_self=False, recursive=False))
    return not inside or type(layer).__module__.startswith("keras.")


def is_dropout(layer: Any) -> bool:
    """Tell whether it changes its input in training only."""
    return layer_word(layer) == "dropout"


def weights_of(layer: Any, *, inside: bool) -> Iterator[Weight]:
    """Give the learned tensors of a layer, with or without those of layers in it; running statistics are none."""
    bias = getattr(layer, "bias", None)
    for one in layer._flatten_layers() if inside else [layer]:
        for variable in one._trainable_variables:
            numel = prod(variable.shape)
            yield Weight(id(variable), numel, int(numel * item_byte(dtype_name(variable.dtype))), variable is bias)


def layer_paths(model: Any) -> dict[int, str]:
    """Give the path of each layer inside a model, by its ``id``: names joined by dots, the model's left out."""
    paths = {id(model): ""}
    waiting = [model]
    while waiting:
        layer = waiting.pop()
        for inner in getattr(layer, "_layers", ()):
            if id(inner) not in paths:
                above = paths[id(layer)]
                paths[id(inner)] = f"{above}.{inner.name}" if above else inner.name
                waiting.append(inner)
    return paths


def owners_of(model: Any) -> Iterator[tuple[str, str, Iterator[Weight]]]:
    """Give type, path and own weights of every layer."""
    paths = layer_paths(model)
    for layer in model._flatten_layers():
        yield layer_word(layer), paths.get(id(layer), layer.name), weights_of(layer, inside=False)


class LayerCalls:
    """Tells a log which calls of layers are counted; those inside a counted one are its own affair.

    Of a layer that the program itself calls, its model, the first call in a step counts.
    """

    def __init__(self, log: LayerLog) -> None:
        self.log = log
        self._seen: set[int] = set()
        self._running: list[str] = []

    def begin(self, layer: Any, path: str, given: tuple[Array, ...]) -> None:
        """Begin a call."""
        above = self._running[-1] if self._running else ""
        if not above:
            found = "again" if id(layer) in self._seen else "model"
            self._seen.add(id(layer))
            if found == "model":
                self.log.begin(given)
        elif above not in ("model", "part"):
            found = "inside"
        elif is_layer(layer):
            found = "layer"
            self.log.enter(path, given)
        else:
            found = "part"
        self._running.append(found)

    def end(self, layer: Any, made: tuple[Array, ...]) -> None:
        """End it."""
        found = self._running.pop()
        if found == "model":
            self.log.end()
        elif found == "layer":
            weights = weights_of(layer, inside=True)
            self.log.leave(layer_word(layer), weights, made, is_dropout=is_dropout(layer))


Told = AbstractContextManager[Callable[[Any], None]]
"""A context whose value is called with the result of what runs in it."""


@contextmanager
def watch_calls(
    around: Callable[[Any, Any, Any], AbstractContextManager[Callable[[Any], None]]],
) -> Iterator[None]:
    """Run every call of a layer inside a context of one's own, inside the block.

    Parameters
    ----------
    around : function of the layer, its arguments and named arguments
        Gives the context.
    """
    call = keras.Layer.__call__

    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        with around(self, args, kwargs) as gave:
            output = call(self, *args, **kwargs)
            gave(output)
            return output

    keras.Layer.__call__ = called
    try:
        yield
    finally:
        keras.Layer.__call__ = call
