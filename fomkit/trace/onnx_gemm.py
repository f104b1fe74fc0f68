"""Rules of ONNX's matrix products, and the factors of their gradients."""

from __future__ import annotations

from math import prod
from typing import Any

from fomkit.trace.aten_gemm import product
from fomkit.trace.calls import Array, Call, Dimensions, Work
from fomkit.trace.onnx_calls import reshaped, swapped
from fomkit.trace.tf_gemm import einsum as contraction


class NoRule(ValueError):  # noqa: N818 - a verdict, not a fault
    """A spelling of an op has no rule; the message is for the list of unsupported ops."""


def _of_integers(dtype: str) -> str:
    return "int8" if dtype == "uint8" else dtype


def as_matrix(array: Array, *, on_left: bool) -> Array:
    """Give a vector the axis of length 1 that a product adds to it."""
    if len(array.shape) > 1:
        return array
    return reshaped(array, (1, *array.shape) if on_left else (*array.shape, 1))


def flat_rows(array: Array) -> Array:
    """Describe a stack of matrices as one, all rows below each other; it must stand row by row."""
    return reshaped(array, (prod(array.shape[:-1]), array.shape[-1]))


def factors(call: Call) -> tuple[Array, Array]:
    """Give the left and the right factor of Gemm, MatMul and their integer spellings, as they are multiplied."""
    arrays = [one for one in call.arguments.values() if isinstance(one, Array)]
    left, right = as_matrix(arrays[0], on_left=True), as_matrix(_right(call, arrays), on_left=False)
    if call.op == "Gemm":
        left = swapped(left) if call.arguments.get("transA") else left
        right = swapped(right) if call.arguments.get("transB") else right
    if left.shape[-1] != right.shape[-2]:
        raise ValueError(f"{call.op} multiplies {left.shape} and {right.shape}")
    return left, right


def _right(call: Call, arrays: list[Array]) -> Array:
    name = "b" if "b" in call.arguments else "B"
    found = call.arguments.get(name)
    return found if isinstance(found, Array) else arrays[-1]


def is_row_by_row(array: Array) -> bool:
    """Tell whether a tensor stands in memory without gaps, last axis fastest."""
    return array.stride == reshaped(array, array.shape).stride


def multiplied(left: Array, right: Array) -> Dimensions:
    """Give the dimensions of a product; stacks are stretched to each other.

    One right factor for all of a stack is one product, whose rows are all rows of the stack.
    """
    if prod(right.shape[:-2]) == 1 and is_row_by_row(left):
        return product(flat_rows(left), reshape_last(right))
    outer = max(prod(left.shape[:-2]), prod(right.shape[:-2]), _stretched(left, right))
    return {**product(reshape_last(left), reshape_last(right)), "b": outer}


def reshape_last(array: Array) -> Array:
    """Give the last matrix of a stack."""
    return Array(array.shape[-2:], array.stride[-2:], array.dtype, array.item_byte, array.storage)


def _stretched(left: Array, right: Array) -> int:
    longest = max(len(left.shape), len(right.shape)) - 2
    one, other = ([1] * (longest - len(array.shape[:-2])) + list(array.shape[:-2]) for array in (left, right))
    return prod(max(a, b) for a, b in zip(one, other, strict=True))


def matrix_product(call: Call) -> list[Work]:
    """Rule of Gemm, MatMul, MatMulInteger and QLinearMatMul; a bias is added in the same kernel."""
    left, right = factors(call)
    return [Work("gemm", multiplied(left, right), _of_integers(left.dtype))]


def equation_of(call: Call) -> str:
    """Write an Einsum's equation with its result, which it may leave out."""
    equation = str(call.arguments["equation"]).replace(" ", "")
    if "->" in equation:
        return equation
    letters = equation.replace(",", "").replace("...", "")
    kept = "".join(sorted(one for one in set(letters) if letters.count(one) == 1))
    return f"{equation}->{'...' if '...' in equation else ''}{kept}"


def summed_product(equation: str, left: Array, right: Array, result: Array) -> list[Work]:
    """Price one product of two tensors by its equation."""
    return contraction(Call("Einsum", {"inputs": (left, right), "equation": equation}, (result,)))


def einsum(call: Call) -> list[Work]:
    """Rule of Einsum of one or two tensors."""
    given: Any = call.arguments["Inputs"]
    arrays = [given] if isinstance(given, Array) else list(given)
    if len(arrays) > 2:
        raise NoRule(f"Einsum of {len(arrays)} tensors")
    equation = equation_of(call)
    return contraction(Call("Einsum", {"inputs": tuple(arrays), "equation": equation}, call.results))
