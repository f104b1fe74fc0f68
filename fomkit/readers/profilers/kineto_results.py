"""Compute the shapes of results, which a trace lacks, from the arguments, op by op."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import Any

from fomkit.frontends.lowering import aten, calls
from fomkit.frontends.lowering.aten import PRODUCTS, RULES, adaptive_pool, batch_norm, group_norm, layer_norm
from fomkit.frontends.lowering.calls import Array, Call, Rule, arrays_in, copy, generate, pointwise, reduction
from fomkit.readers.profilers.kineto_nesting import CallError, make_array

Made = list[Array]
_RESULT = 1_000_000
"""Storage of a first result; arguments count from 0."""
_SCALAR_TYPES = ("uint8", "int8", "int16", "int32", "int64", "fp16", "fp32", "fp64", "", "complex64", "complex128",
                 "bool", "", "", "", "bf16")  # fmt: skip
"""PyTorch's number formats by their number (c10/core/ScalarType.h)."""
_BOOL_NAMES = """eq ne lt le gt ge isnan isinf isfinite isposinf isneginf logical_and logical_or logical_not
    logical_xor signbit isin"""
_BOOL = frozenset(_BOOL_NAMES.split())
_AVERAGED_NAMES = """mse_loss smooth_l1_loss huber_loss soft_margin_loss binary_cross_entropy
    binary_cross_entropy_with_logits multi_margin_loss multilabel_margin_loss_forward"""
_AVERAGED = frozenset(_AVERAGED_NAMES.split())


def _new(shape: Sequence[int], dtype: str, place: int = 0) -> Array:
    if any(type(size) is not int or size < 0 for size in shape):
        raise CallError("the size of its result is not in the trace")
    return make_array(shape, dtype, _RESULT + place)


def _like(array: Array, place: int = 0, dtype: str = "") -> Array:
    return _new(array.shape, dtype or array.dtype, place)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _stated_dtype(call: Call, default: str) -> str:
    number = call.arguments.get("dtype")
    if type(number) is int and 0 <= number < len(_SCALAR_TYPES):
        return _SCALAR_TYPES[number] or default
    return default


def broadcast(shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Return the shape to which several shapes broadcast.

    >>> broadcast([(4, 1, 3), (5, 1)])
    (4, 5, 3)
    """
    axes = max((len(shape) for shape in shapes), default=0)
    wide = [(1,) * (axes - len(shape)) + tuple(shape) for shape in shapes]
    return tuple(0 if 0 in sizes else max(sizes) for sizes in zip(*wide, strict=True))


def _pointwise(call: Call, name: str) -> Made:
    arrays = list(arrays_in(call.arguments.values()))
    shape = broadcast([array.shape for array in arrays])
    dtype = "bool" if name in _BOOL else call.dtype
    first = replace(_new(shape, dtype), stride=_same_order(arrays, shape))
    return [first, _like(first, 1, "bool")] if name in ("native_dropout", "_fused_dropout") else [first]


def _same_order(arrays: Sequence[Array], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of the first argument of full size without gaps, else those of a packed tensor."""
    fitting = (one.stride for one in arrays if one.shape == shape and one.byte == one.numel * one.item_byte)
    return next(fitting, calls.packed_strides(shape))


def _reduced(call: Call, name: str) -> Made:
    values = next(arrays_in(call.arguments.values()))
    if name in _AVERAGED or "reduction" in call.arguments:
        averaged = call.arguments.get("reduction", 1) != 0
        return [_new(() if averaged else values.shape, call.dtype)]
    dims, rank = _list(call.arguments.get("dim")), len(values.shape)
    axes = {axis % max(rank, 1) for axis in dims if type(axis) is int} or set(range(rank))
    kept = bool(call.arguments.get("keepdim"))
    shape = [1 if axis in axes else size for axis, size in enumerate(values.shape) if kept or axis not in axes]
    dtype = "int64" if name.startswith("arg") or name == "count_nonzero" else values.dtype
    dtype = "bool" if name in ("any", "all") else _stated_dtype(call, dtype)
    first = _new(shape, dtype)
    if name in ("max", "min", "median") and dims:
        return [first, _like(first, 1, "int64")]
    return [first, _like(first, 1)] if name in ("std_mean", "var_mean", "aminmax") else [first]


def _normed(call: Call, name: str) -> Made:
    """Return a norm's result with its statistics, or the gradients of values, weight and bias."""
    values = call.array("input")
    rule = RULES[name]
    if "backward" in name:
        mask = _list(call.arguments.get("output_mask")) or [True] * 3
        weight = call.arguments.get("weight")
        channels = _like(weight, 1) if isinstance(weight, Array) else _new((values.shape[1],), values.dtype, 1)
        return [
            _like(values) if place == 0 else replace(channels, storage=_RESULT + place)
            for place in range(3)
            if place < len(mask) and mask[place]
        ]
    if rule is layer_norm:
        outer = len(values.shape) - len(_list(call.arguments["normalized_shape"]))
        statistics: Sequence[int] = values.shape[:outer]
    elif rule is group_norm:
        statistics = (int(call.arguments["N"]), int(call.arguments["group"]))
    else:
        statistics = values.shape[1:2]
    if name == "_fused_rms_norm":
        return [_like(values), _new(statistics, "fp32", 1)]
    dtype = "fp32" if values.dtype in ("fp16", "bf16") else values.dtype
    if rule is batch_norm and call.arguments.get("training") is False:
        return [_like(values)]
    return [_like(values), _new(statistics, dtype, 1), _new(statistics, dtype, 2)]


def _pooled_result(call: Call, name: str) -> Made:
    values = call.array("self")
    if "backward" in name:
        return [_like(values)]
    spatial = 3 if "3d" in name else 2

    def each(key: str, default: int) -> list[int]:
        given = _list(call.arguments.get(key)) or [default]
        return [int(one) for one in (given * spatial if len(given) == 1 else given)]

    if RULES[name] is adaptive_pool:
        sizes = [int(one) for one in each("output_size", 1)]
    else:
        kernel = each("kernel_size", 1)
        strides = each("stride", 0) if _list(call.arguments.get("stride")) else kernel
        up = ceil if call.arguments.get("ceil_mode") else int
        sizes = [
            up((size + 2 * pad - dilation * (window - 1) - 1) / stride) + 1
            for size, window, stride, pad, dilation in zip(
                values.shape[-spatial:], kernel, strides, each("padding", 0), each("dilation", 1), strict=True
            )
        ]
    first = _new((*values.shape[:-spatial], *sizes), values.dtype)
    return [first, _like(first, 1, "int64")] if "max" in name else [first]


def _generated(call: Call, name: str) -> Made:
    size = call.arguments.get("size")
    if isinstance(size, list):
        return [_new(size, _stated_dtype(call, "fp32"))]
    values = next(arrays_in(call.arguments.values()), None)
    if values is not None and (name.endswith("_like") or "self" in call.arguments):
        return [_like(values, 0, _stated_dtype(call, values.dtype))]
    if name == "arange" and isinstance(end := call.arguments.get("end"), int):
        start, step = call.arguments.get("start") or 0, call.arguments.get("step") or 1
        return [_new((max(ceil((end - start) / step), 0),), _stated_dtype(call, "int64"))]
    if name == "scalar_tensor":
        return [_new((), _stated_dtype(call, "fp32"))]
    raise CallError("the size of its result is not in the trace")


def _joined(call: Call, name: str) -> Made:
    arrays = [one for one in arrays_in(call.arguments.values()) if one.shape != (0,)]
    if not arrays:
        return []
    axes = len(arrays[0].shape) + (name == "stack")
    axis = int(call.arguments.get("dim") or 0) % max(axes, 1)
    shape = list(arrays[0].shape)
    if name == "stack":
        shape.insert(axis, len(arrays))
    elif shape:
        shape[axis] = sum(array.shape[axis] for array in arrays)
    return [_new(shape, arrays[0].dtype)]


def _copied(call: Call, name: str) -> Made:
    values = next(arrays_in(call.arguments.values()))
    if name in ("cat", "stack"):
        return _joined(call, name)
    if "backward" in name:
        sizes = call.arguments.get("input_sizes")
        target = call.arguments.get("self")
        if not isinstance(sizes, list) and isinstance(target, Array):
            return [_like(target)]
        return [_new(_list(sizes), values.dtype)] if sizes else []
    if name == "constant_pad_nd":
        pads = _list(call.arguments.get("pad"))
        shape = list(values.shape)
        for place in range(len(pads) // 2):
            shape[-1 - place] += pads[2 * place] + pads[2 * place + 1]
        return [_new(shape, values.dtype)]
    if name in ("clone", "_to_copy", "copy", "flip", "roll", "tril", "triu", "lift_fresh_copy"):
        same = _like(values, 0, _stated_dtype(call, values.dtype))
        return [replace(same, stride=_same_order([values], values.shape))]
    if name == "repeat":
        times = [int(one) for one in _list(call.arguments.get("repeats"))]
        wide = (1,) * (len(times) - len(values.shape)) + values.shape
        return [_new([one * size for one, size in zip(times, wide, strict=True)], values.dtype)]
    raise CallError("the size of its result is not worked out")


def _gathered(call: Call, name: str) -> Made:
    if name == "embedding":
        return [_new((*call.array("indices").shape, call.array("weight").shape[-1]), call.array("weight").dtype)]
    values = call.array("self")
    if name == "index_select":
        shape = list(values.shape)
        shape[int(call.arguments["dim"])] = call.array("index").numel
        return [_new(shape, values.dtype)]
    if name in ("gather", "take"):
        return [_new(call.array("index").shape, values.dtype)]
    indices = call.arguments["indices"]
    picked = broadcast([index.shape for index in indices])
    return [_new((*picked, *values.shape[len(indices) :]), values.dtype)]


def _looked_up_back(call: Call, name: str) -> Made:
    gradient = call.array("grad_output" if "grad_output" in call.arguments else "grad")
    rows = call.arguments.get("num_weights")
    if type(rows) is not int:
        raise CallError(f"the number of rows of the table of {name} is not in the trace")
    return [_new((rows, gradient.shape[-1]), gradient.dtype)]


def _summed_bags(call: Call, _name: str) -> Made:
    bags, table = call.array("offsets").numel, call.array("weight")
    return [_new((bags, table.shape[-1]), table.dtype)]


def _upsampled(call: Call, name: str) -> Made:
    sizes = _list(call.arguments.get("input_size" if "backward" in name else "output_size"))
    values = next(arrays_in(call.arguments.values()))
    if not sizes:
        raise CallError("the size of its result is not in the trace")
    whole = sizes if "backward" in name else [*values.shape[: len(values.shape) - len(sizes)], *sizes]
    return [_new(whole, values.dtype)]


def _picked(call: Call, _name: str) -> Made:
    averaged = call.arguments.get("reduction", 1) != 0
    dtype = call.array("self").dtype
    return [_new(() if averaged else call.array("target").shape, dtype), _new((), dtype, 1)]


def _like_first(call: Call, name: str) -> Made:
    first = _like(next(arrays_in(call.arguments.values())))
    return [first, _like(first, 1, "int64")] if name in ("sort", "cummax", "cummin") else [first]


_BY_RULE: Mapping[Rule, Callable[[Call, str], Made]] = {
    pointwise: _pointwise, reduction: _reduced, batch_norm: _normed, layer_norm: _normed, group_norm: _normed,
    aten.window_pool: _pooled_result, adaptive_pool: _pooled_result, generate: _generated, copy: _copied,
    aten.embedding_backward: _looked_up_back, aten.embedding_bag: _summed_bags,
    aten.picked_loss: _picked,
    aten.picked_loss_backward: lambda call, _name: [_like(call.array("self"))],
}  # fmt: skip
_GATHERED = "embedding index _unsafe_index index_select gather take"
_LIKE_FIRST = """_softmax _log_softmax _safe_softmax _softmax_backward_data _log_softmax_backward_data sort cumsum
    cumprod cummax cummin logcumsumexp index_put _unsafe_index_put index_add index_copy index_fill
    scatter scatter_add scatter_reduce masked_scatter"""
_BY_NAME: Mapping[str, Callable[[Call, str], Made]] = {
    **dict.fromkeys(_GATHERED.split(), _gathered),
    **dict.fromkeys(_LIKE_FIRST.split(), _like_first),
    **{name: _upsampled for name in RULES if name.startswith(("upsample", "_upsample"))},
}


def with_results(call: Call, rule: Rule) -> Call:
    """Add the results to a call, unless it has some (written in place) or its rule does not use them."""
    name = call.op.partition("::")[2]
    if call.results or rule in PRODUCTS.values():
        return call
    make = _BY_NAME.get(name) or _BY_RULE.get(rule)
    if make is None:
        raise CallError("the size of its result is not worked out")
    try:
        return replace(call, results=tuple(make(call, name)))
    except (KeyError, IndexError, StopIteration, TypeError, ValueError, ZeroDivisionError) as error:
        if isinstance(error, CallError):
            raise
        raise CallError("its arguments do not fit the op") from error
