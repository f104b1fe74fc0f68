"""Rules of convolutions and matrix products: every spelling becomes one row, a backward call its two gradients."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from fomkit.frontends.lowering import calls
from fomkit.frontends.lowering.calls import INPUT_GRADIENT, WEIGHT_GRADIENT, Array, Call, Dimensions, Rule, Work


def _three(values: Sequence[int], spatial: int, filler: int) -> list[int]:
    """Fill a per-axis list up to depth, height, width; one value stands for all axes."""
    given = list(values) * spatial if len(values) == 1 else list(values)
    return [filler] * (3 - spatial) + given


def _layout(values: Array) -> str:
    spatial = len(values.shape) - 2
    axes = "dhw"[-max(spatial, 2) :]
    channels_last = values.stride[1] == 1 and values.shape[1] > 1 and values.stride[-1] != 1
    return f"n{axes}c" if channels_last else f"nc{axes}"


def conv_dimensions(arguments: Any, values: Array, weight: Array) -> Dimensions:
    """Give the dimensions of a convolution's row; ``arguments`` are those of ``aten::convolution``."""
    spatial, groups = len(weight.shape) - 2, int(arguments["groups"])
    transposed = bool(arguments["transposed"])
    # A transposed convolution's weight is (in, out/groups, …), the direct one's (out, in/groups, …).
    out_channels = weight.shape[1] * groups if transposed else weight.shape[0]
    dimensions: Dimensions = {
        "batch": values.shape[0], "in_channels": values.shape[1], "out_channels": out_channels,
    }  # fmt: skip
    dimensions.update(zip(calls.LENGTHS, _three(values.shape[2:], spatial, 1), strict=True))
    told = {"kernel": weight.shape[2:], "stride": arguments["stride"], "pad": arguments["padding"],
            "dilation": arguments["dilation"]}  # fmt: skip
    for name, given in told.items():
        per_axis = _three(given, spatial, 0 if name == "pad" else 1)
        dimensions.update({f"{name}_{axis}": size for axis, size in zip(calls.AXES, per_axis, strict=True)})
    dimensions |= {"groups": groups, "layout": _layout(values), "transposed": int(transposed)}
    if transposed and any(arguments["output_padding"]):
        added = _three(arguments["output_padding"], spatial, 0)
        dimensions.update({f"output_pad_{axis}": size for axis, size in zip(calls.AXES, added, strict=True)})
    return dimensions


def convolution(call: Call) -> list[Work]:
    """Rule of a forward convolution; its bias is added in the same kernel."""
    values = call.array("input")
    sizes = conv_dimensions(call.arguments, values, call.array("weight"))
    return [Work("conv", sizes, values.dtype, calls.FORWARD)]


def convolution_backward(call: Call) -> list[Work]:
    """Rule of a backward convolution: the gradients that ``output_mask`` asks for, each a work of its own.

    The first layer asks for no input gradient and a frozen layer for no weight gradient. The bias gradient is a
    sum over all positions.
    """
    values, gradient = call.array("input"), call.array("grad_output")
    dimensions = conv_dimensions(call.arguments, values, call.array("weight"))
    to_input, to_weight, to_bias = call.arguments["output_mask"]
    works = []
    if to_input:
        works.append(Work("conv", dimensions, values.dtype, INPUT_GRADIENT))
    if to_weight:
        works.append(Work("conv", dict(dimensions), values.dtype, WEIGHT_GRADIENT))
    if to_bias:
        channels = gradient.shape[1]
        traffic: Dimensions = {"numel": gradient.numel, "row": gradient.numel // max(channels, 1), "inputs": 1}
        traffic |= {"read_byte": gradient.byte, "write_byte": channels * gradient.item_byte}
        works.append(Work("reduction", traffic, gradient.dtype))
    return works


def stored_transposed(factor: Array) -> int:
    """Tell from its strides whether a matrix stands in memory column by column.

    Shapes alone do not say it: the weight gradient reads its left factor transposed. An axis of length 1 decides
    nothing, and a matrix that is neither order is copied before the product, hence row by row.

    >>> stored_transposed(Array((3, 2), (1, 3), "fp32", 4, storage=1))
    1
    """
    (rows, columns), (down, along) = factor.shape[-2:], factor.stride[-2:]
    row_by_row = along == 1 or columns == 1
    return int(not row_by_row and (down == 1 or rows == 1))


def product(left: Array, right: Array) -> Dimensions:
    """Give the dimensions of left·right, factors of two axes or of three with the batch first."""
    b, m, k, n = prod(left.shape[:-2]), left.shape[-2], left.shape[-1], right.shape[-1]
    transposed = {"trans_a": stored_transposed(left), "trans_b": stored_transposed(right)}
    return {"b": b, "m": m, "n": n, "k": k, **transposed}


def gemm_of(left: str, right: str) -> Rule:
    """Make the rule of an op that multiplies the two named arguments.

    What is added to the product (a bias, a running sum) goes with it: libraries do it in the same kernel.
    """

    def rule(call: Call) -> list[Work]:
        first, second = call.array(left), call.array(right)
        return [Work("gemm", product(first, second), first.dtype)]

    return rule


def _column(vector: Array) -> Array:
    (length,), (step,) = vector.shape, vector.stride
    return Array((length, 1), (step, 1), vector.dtype, vector.item_byte, vector.storage, vector.offset)


def _row(vector: Array) -> Array:
    (length,), (step,) = vector.shape, vector.stride
    return Array((1, length), (length, step), vector.dtype, vector.item_byte, vector.storage, vector.offset)


def matrix_vector_of(left: str) -> Rule:
    """Make the rule of a matrix times ``vec``: n = 1."""

    def rule(call: Call) -> list[Work]:
        first = call.array(left)
        return [Work("gemm", product(first, _column(call.array("vec"))), first.dtype)]

    return rule


def dot(call: Call) -> list[Work]:
    """Rule of the inner product of two vectors: m = n = 1."""
    names = list(call.arguments)
    first, second = call.array(names[0]), call.array(names[1])
    return [Work("gemm", product(_row(first), _column(second)), first.dtype)]


def linear(call: Call) -> list[Work]:
    """Rule of x·Wᵀ + bias as one op, which is what it stays under ``inference_mode``."""
    values, weight = call.array("input"), call.array("weight")
    rows, features = prod(values.shape[:-1]), values.shape[-1]
    sizes: Dimensions = {"b": 1, "m": rows, "n": weight.shape[0], "k": features, "trans_a": 0, "trans_b": 1}
    return [Work("gemm", sizes, values.dtype)]


def _contraction(left: list[int], right: list[int], summed: set[int]) -> Dimensions:
    """Give two factors with the same axes, of length 1 where one lacks it, as a batched matrix product."""
    sizes = {"b": 1, "m": 1, "n": 1, "k": 1}
    for axis, (first, second) in enumerate(zip(left, right, strict=True)):
        letter = "k" if axis in summed else "b" if first > 1 and second > 1 else "m" if first > 1 else "n"
        sizes[letter] *= max(first, second)
    return {**sizes, "trans_a": 0, "trans_b": 0}


def trilinear(call: Call) -> list[Work]:
    """Rule of the product of three tensors behind a bilinear layer: the first two, then the third.

    Axes that the third lacks are summed in the first product, the others in the second.
    """
    arrays = [call.array(name) for name in ("i1", "i2", "i3")]
    expanded = [set(call.arguments[f"expand{number}"]) for number in (1, 2, 3)]
    axes = len(arrays[0].shape) + len(expanded[0])
    shapes = []
    for array, added in zip(arrays, expanded, strict=True):
        lengths = iter(array.shape)
        shapes.append([1 if axis in added else next(lengths) for axis in range(axes)])
    summed = set(call.arguments["sumdim"])
    early = summed & expanded[2]
    between = [1 if axis in early else max(shapes[0][axis], shapes[1][axis]) for axis in range(axes)]
    products = (_contraction(shapes[0], shapes[1], early), _contraction(between, shapes[2], summed - early))
    return [Work("gemm", dimensions, arrays[0].dtype) for dimensions in products]
