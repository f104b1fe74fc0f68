"""Number formats: how many bytes an element takes and which framework spellings mean it."""

from __future__ import annotations

from typing import Literal

from fomkit.errors import FomkitError, nearest_names

ITEM_BYTE: dict[str, float] = {
    "complex128": 16.0,
    "complex64": 8.0,
    "fp64": 8.0,
    "fp32": 4.0,
    "tf32": 4.0,
    "fp16": 2.0,
    "bf16": 2.0,
    "fp8": 1.0,
    "int64": 8.0,
    "int32": 4.0,
    "int16": 2.0,
    "int8": 1.0,
    "uint8": 1.0,
    "bool": 1.0,
}
"""Storage of one element [byte]; tf32 is stored as fp32 and only multiplied in fewer bits."""

ENGINES = ("vector", "matrix")
"""The two kinds of arithmetic unit: general (SIMT, SIMD) and matrix (tensor core, AMX, systolic array)."""


REAL_OF: dict[str, str] = {"complex64": "fp32", "complex128": "fp64"}
"""The number format of the two parts of a complex number, whose arithmetic unit does the work."""
REAL_PRODUCTS = 4.0
"""Real products in a complex one, (a + bi)(c + di) = (ac - bd) + (ad + bc)i: with the sums 8 flop instead of 2."""


def item_byte(dtype: str) -> float:
    """Give the storage of one element [byte].

    Raises
    ------
    FomkitError
        When the dtype is not known.

    Examples
    --------
    >>> item_byte("bf16")
    2.0
    """
    if dtype not in ITEM_BYTE:
        raise FomkitError("dtype", f"{dtype!r} is not a known number format. {nearest_names(dtype, ITEM_BYTE)}")
    return ITEM_BYTE[dtype]


Precision = Literal["fp32", "tf32", "mixed", "bf16", "fp8"]
"""What a step may be asked to run in; `fomkit.precision` says what each means."""

MATRIX_KINDS = ("gemm", "conv", "rnn", "attention")
"""Kinds of a step that run on a matrix engine where there is one for their number format."""
SAME_WIDTH: dict[str, str] = {"fp16": "bf16", "bf16": "fp16"}
"""Formats that matrix engines multiply alike: as many bits, sums in fp32; makers state one rate for both."""
PRODUCT_KINDS = ("sparse_gemm", *MATRIX_KINDS)
"""Kinds that multiply and add up, so that a complex number format makes four of each product."""
_MATRIX_DTYPES = ("fp16", "bf16", "fp8", "int8")


def usual_engine(kind: str, dtype: str) -> str:
    """Name the arithmetic unit that the frameworks use by default.

    Half-width formats go to the matrix units; fp32 does not, because TF32 products must be asked for.

    Examples
    --------
    >>> usual_engine("gemm", "fp16"), usual_engine("gemm", "fp32"), usual_engine("norm", "fp16")
    ('matrix', 'vector', 'vector')
    """
    return "matrix" if kind in MATRIX_KINDS and dtype in _MATRIX_DTYPES else "vector"
