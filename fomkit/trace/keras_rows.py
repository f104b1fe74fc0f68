"""Layers and functions of Keras that are one row each: LSTM, GRU, SimpleRNN and scaled-dot-product attention."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import keras
from keras.src.backend import nn as functions
from keras.src.layers.attention.grouped_query_attention import GroupedQueryAttention

from fomkit.trace.calls import BACKWARD, FORWARD, WEIGHT_GRADIENT, Dimensions, TracedOp
from fomkit.trace.keras_calls import dtype_name
from fomkit.trace.keras_layers import Told

MakeRow = Callable[[str], TracedOp]
"""Makes a row of the path that it stands at."""

_CELLS: Mapping[type, str] = {
    keras.layers.LSTM: "lstm",
    keras.layers.GRU: "gru",
    keras.layers.SimpleRNN: "vanilla",
}


def row_of_layer(layer: Any, args: Any, kwargs: Any, path: str) -> TracedOp | None:
    """Describe the forward call of a layer that is a row of its own; None for any other."""
    cell = _CELLS.get(type(layer))
    values = args[0] if args else kwargs.get("sequences", kwargs.get("inputs"))
    if cell is not None and hasattr(values, "shape"):
        batch, steps, features = values.shape
        dimensions: Dimensions = {"cell": cell, "batch": batch, "steps": steps, "input_size": features}
        dimensions |= {"hidden_size": layer.units, "layers": 1, "directions": 1}
        return TracedOp(type(layer).__name__, "rnn", dimensions, dtype_name(layer.compute_dtype), FORWARD, path)
    if type(layer) is keras.layers.Attention and layer.score_mode == "dot" and isinstance(values, list | tuple):
        query, value, *key = [one[:, :, None, :] for one in values]
        causal = bool(kwargs.get("use_causal_mask", False))
        return attention_row(path, query, key[0] if key else value, value, causal)
    return None


def attention_row(path: str, query: Any, key: Any, value: Any, causal: bool) -> TracedOp:
    """Describe one scaled-dot-product attention of tensors (batch, length, heads, width).

    Where values are wider or narrower than keys, head_dim is the mean of both, which keeps the flop right.
    """
    batch, q_len, heads, width = query.shape
    both = width + value.shape[3]
    dimensions: Dimensions = {"batch": batch, "heads": heads, "kv_heads": key.shape[2], "q_len": q_len}
    dimensions |= {"kv_len": key.shape[1], "head_dim": both / 2 if both % 2 else both // 2, "causal": int(causal)}
    dtype = dtype_name(keras.backend.standardize_dtype(query.dtype))
    return TracedOp("dot_product_attention", "attention", dimensions, dtype, FORWARD, path)


@contextmanager
def watch_attention(around: Callable[[MakeRow, Any], Told]) -> Iterator[None]:
    """Find attention at its call inside the block: in Keras's own layers, and where a model calls the function.

    Parameters
    ----------
    around : function of what makes the row of a path, and of the factors
        Gives the context to run the attention in.
    """

    def watched(given: Any, first: int) -> Any:
        def attend(*args: Any, **kwargs: Any) -> Any:
            named = dict(zip(("query", "key", "value"), args[first:], strict=False)) | kwargs
            query, key, value = (named[name] for name in ("query", "key", "value"))
            if len(query.shape) != 4:
                return given(*args, **kwargs)
            causal = bool(kwargs.get("is_causal") or kwargs.get("use_causal_mask"))
            with around(lambda path: attention_row(path, query, key, value, causal), (query, key, value)) as gave:
                output = given(*args, **kwargs)
                gave(output)
                return output

        return attend

    with ExitStack() as stack:
        for owner, name, first in (
            (functions, "dot_product_attention", 0),
            (keras.layers.MultiHeadAttention, "_compute_attention", 1),
            (GroupedQueryAttention, "_compute_attention", 1),
        ):
            before = getattr(owner, name)
            setattr(owner, name, watched(before, first))
            stack.callback(setattr, owner, name, before)
        yield


def products_flop(parts: list[TracedOp], *, of_weights: bool) -> float:
    """Add up the matrix products of one gradient, or of a forward pass."""
    return sum(
        2.0 * float(one.dimensions["m"]) * float(one.dimensions["n"]) * float(one.dimensions["k"]) * int(one.count)
        for one in parts
        if one.kind == "gemm" and (one.pass_name == WEIGHT_GRADIENT) == of_weights
    )


def settle_input_gradient(forward: TracedOp, backward: TracedOp) -> None:
    """Tell whether a recurrent layer gives its input a gradient: the product of it is there or is not."""
    if forward.kind == "rnn" and backward.pass_name == BACKWARD:
        whole = products_flop(forward.parts, of_weights=False)
        backward.input_gradient = products_flop(backward.parts, of_weights=False) >= whole
