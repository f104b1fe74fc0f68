"""Rules of matrix products: every spelling becomes b products of (m×k)·(k×n)."""

from __future__ import annotations

from math import prod

from fomkit.trace.calls import Array, Call, Dimensions, Rule, Work


def stored_transposed(factor: Array) -> int:
    """Tell from its strides whether a matrix stands in memory column by column.

    Shapes alone do not say it: the weight gradient reads its left factor transposed. An axis of length 1 decides
    nothing, and a matrix that is neither order is copied before the product, hence row by row.

    Examples
    --------
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


def matrix_vector_of(left: str, right: str) -> Rule:
    """Make the rule of a matrix times a vector: n = 1."""

    def rule(call: Call) -> list[Work]:
        first = call.array(left)
        return [Work("gemm", product(first, _column(call.array(right))), first.dtype)]

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
    dimensions = {"b": 1, "m": rows, "n": weight.shape[0], "k": features, "trans_a": 0, "trans_b": 1}
    return [Work("gemm", dict(dimensions), values.dtype)]


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
