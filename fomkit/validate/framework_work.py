"""One kernel of the framework as a row of OPS: products, element-wise work, norms, copies; all of it fp32."""

from __future__ import annotations

from math import prod

from fomkit.dtypes import ITEM_BYTE
from fomkit.validate.graph_rows import Shape

Work = dict[str, str | float]
"""Columns of an OPS row but for its pass and count."""

ITEM = ITEM_BYTE["fp32"]
MASK_BYTE = 1.0
"""A mask of a dropout or a condition is a byte per element."""
CACHE_BYTE = 2.0**25
"""Bytes between two uses of one operand from which no cache of the labelled devices still holds it (32 MiB)."""


def product(
    op: str, b: float, m: float, n: float, k: float, *, trans_a: float = 0.0, trans_b: float = 0.0
) -> Work:
    """Give b products (m×k)·(k×n)."""
    return {
        "op": op, "kind": "gemm", "b": float(b), "m": float(m), "n": float(n), "k": float(k),
        "trans_a": trans_a, "trans_b": trans_b,
    }  # fmt: skip


def traffic(op: str, kind: str, numel: float, row: float, read: float, written: float, inputs: float) -> Work:
    """Give work that is decided by what it reads and writes, both counted in elements of 4 bytes."""
    return {
        "op": op, "kind": kind, "numel": float(numel), "row": float(row), "inputs": float(inputs),
        "read_byte": ITEM * read, "write_byte": ITEM * written,
    }  # fmt: skip


def elementwise(op: str, output: Shape, tensors: float) -> Work:
    """Give an op that reads so many tensors of its output's size."""
    numel = prod(output)
    return traffic(op, "pointwise", numel, output[-1], tensors * numel, numel, tensors)


def copy(op: str, shape: Shape) -> Work:
    """Give a copy into new memory."""
    return traffic(op, "copy", prod(shape), shape[-1], prod(shape), prod(shape), 1)


def operand_reads(operand: Shape, output: Shape) -> float:
    """Count the elements that an op reads of an operand which is repeated over its output.

    It is read once if it is still in the cache when its turn comes again, else each time. Between two turns the
    block behind the innermost repeated axis passes: read, written, and the operand itself.

    Examples
    --------
    >>> operand_reads((16, 1, 1, 512), (16, 16, 512, 512))
    8192.0
    >>> operand_reads((2, 1, 2048, 2048), (2, 32, 2048, 2048)) == 2 * 32 * 2048 * 2048
    True
    """
    padded = (1,) * (len(output) - len(operand)) + operand
    repeated = [axis for axis, (one, whole) in enumerate(zip(padded, output, strict=True)) if one == 1 < whole]
    if not repeated or prod(operand) == 1:
        return float(prod(operand))
    block = prod(output[repeated[-1] + 1 :])
    times = prod(output[axis] for axis in repeated) if 3 * ITEM * block > CACHE_BYTE else 1
    return float(prod(operand) * times)
