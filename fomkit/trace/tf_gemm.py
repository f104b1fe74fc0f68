"""Rules of TensorFlow's matrix products: every spelling becomes b products of (m×k)·(k×n)."""

from __future__ import annotations

from math import prod

from fomkit.trace.calls import Array, Call, Dimensions, Work
from fomkit.trace.traffic import copy


def _flag(call: Call, *names: str) -> int:
    return int(any(bool(call.arguments.get(name)) for name in names))


def matrix_product(call: Call) -> list[Work]:
    """Rule of MatMul and BatchMatMul; their switches say which factor is stored transposed.

    A right factor without a batch of its own is one matrix for all: the batch then stands in the rows.
    """
    names = ("a", "b") if "a" in call.arguments else ("x", "y")
    left, right = (call.array(name) for name in names)
    trans_a = _flag(call, "transpose_a", "adj_x")
    trans_b = _flag(call, "transpose_b", "adj_y")
    rows, inner = left.shape[-2:] if not trans_a else left.shape[:-3:-1]
    columns = right.shape[-2] if trans_b else right.shape[-1]
    outer = prod(call.results[0].shape[:-2])
    if not trans_a and prod(right.shape[:-2]) == 1:
        rows, outer = rows * outer, 1
    dimensions: Dimensions = {
        "b": outer,
        "m": rows,
        "n": columns,
        "k": inner,
        "trans_a": trans_a,
        "trans_b": trans_b,
    }
    return [Work("gemm", dimensions, left.dtype)]


def _letters(equation: str, arrays: list[Array], result: Array) -> tuple[list[str], str]:
    """Give the letters of each factor and of the result; an ellipsis becomes capital letters."""
    given, _, out = equation.replace(" ", "").partition("->")
    factors = given.split(",")
    spare = "ZYXWVUTSRQPONM"
    shapes = zip([*factors, out], [*arrays, result], strict=True)
    written = [
        text.replace("...", spare[: len(array.shape) - len(text.replace("...", ""))][::-1])
        for text, array in shapes
    ]
    return written[:-1], written[-1]


def einsum(call: Call) -> list[Work]:
    """Rule of a sum over products of two tensors, by the letters of its equation; of one tensor it is a copy.

    Letters of both factors and the result make b, those that only the left one shares with the result m, the right
    one's n, and summed ones k.
    """
    arrays = [one for one in call.arguments["inputs"] if isinstance(one, Array)]
    if len(arrays) != 2:
        return copy(call)
    (left, right), out = _letters(str(call.arguments["equation"]), arrays, call.results[0])
    size = dict(zip(left + right, (*arrays[0].shape, *arrays[1].shape), strict=True))
    groups = {"b": "", "m": "", "n": "", "k": ""}
    for letter in dict.fromkeys(left + right):
        kept, both = letter in out, letter in left and letter in right
        groups["b" if both and kept else "k" if not kept else "m" if letter in left else "n"] += letter
    dimensions: Dimensions = {name: prod(size[one] for one in letters) for name, letters in groups.items()}
    dimensions |= {
        "trans_a": _before(left, groups["k"], groups["m"]),
        "trans_b": _before(right, groups["n"], groups["k"]),
    }
    return [Work("gemm", dimensions, arrays[0].dtype)]


def _before(letters: str, first: str, then: str) -> int:
    """Tell whether the last axis of one group stands before the last of another, as in a transposed factor."""
    if not first or not then:
        return 0
    return int(max(map(letters.find, first)) < max(map(letters.find, then)))
