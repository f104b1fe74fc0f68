"""Precision of a DeepBench section: what the first rows of its sheet say, by section where they differ."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from fomkit.errors import FomkitError
from fomkit.tables.xlsx import Sheet
from fomkit.timings.deepbench_words import plain, words


@dataclass(frozen=True)
class Precision:
    """Number format of the factors, the arithmetic unit, and the number format of the sums."""

    dtype: str
    engine: str
    accumulate_dtype: str


SINGLE = Precision("fp32", "vector", "fp32")
# No workbook tells of 8-bit products on a matrix engine: Pascal multiplies four bytes at a time in its vector
# lanes (dp4a), and so does gemmlowp on ARM.
_BYTES = Precision("int8", "vector", "int32")
PRECISIONS: Mapping[str, Precision] = {
    "float": SINGLE,
    "single precision": SINGLE,
    # The tensor core; no workbook calls it so.
    "16 bit inputs, 16 bit multiplication, 32 bit addition": Precision("fp16", "matrix", "fp32"),
    # "Pseudo fp16": stored in 16 bits, calculated at the rate of fp32.
    "16 bit inputs, 32 bit multiplication, 32 bit addition": Precision("fp16", "vector", "fp32"),
    "int8 multiplication, 32 bit accumulation": _BYTES,
    "int8 inputs 32 bit math": _BYTES,
}
"""What stands in column B of the first rows, and what it means; compared by its words alone."""

SCOPES: Mapping[str, str] = {
    "gemm": "gemm", "conv": "conv", "convolution": "conv", "rnn": "rnn", "sparse ops": "sparse_gemm",
    "sparse gemm": "sparse_gemm",
}  # fmt: skip
"""Words that limit a precision to some sections, and the kind they mean."""

_KNOWN = {words(text): precision for text, precision in PRECISIONS.items()}
_REMARK = re.compile(r"(?P<scope>[a-z ]+) results are (still )?in (?P<text>[^,]+)")


def _stated(sheet: Sheet, first: int) -> dict[str, str]:
    """Collect the precision of each kind, and under "" that of all the others, from the rows before ``first``."""
    texts: dict[str, str] = {}
    for number in range(1, first):
        scope, colon, rest = plain(sheet.cell(number, 2)).partition(":")
        kinds = [SCOPES.get(words(word), "") for word in scope.split(",")]
        if colon and all(kinds):
            texts |= dict.fromkeys(kinds, rest.strip())
        elif scope:
            texts.setdefault("", scope + colon + rest)
    # A remark right of the statement takes a section out of it: "Convolution results are still in float, …".
    for row in sheet.rows[: first - 1]:
        for found in filter(None, (_REMARK.match(plain(value)) for value in row[2:])):
            if found["scope"] in SCOPES:
                texts[SCOPES[found["scope"]]] = found["text"].strip()
    return texts


def find_precision(sheet: Sheet, first: int, scope: str, where: str) -> Precision:
    """Find the precision of a section among the lines above the first one (rows before ``first``).

    Parameters
    ----------
    scope : str
        A value of `SCOPES`.

    Raises
    ------
    FomkitError
        When there is none for it, or its text is not known.
    """
    texts = _stated(sheet, first)
    text = texts.get(scope, texts.get("", ""))
    if words(text) not in _KNOWN:
        said = f"states the precision {text!r}, which is not known" if text else f"states no precision for {scope}"
        listed = "; ".join(PRECISIONS)
        raise FomkitError(where, f"{said}. One of these was expected in column B of the first rows: {listed}.")
    return _KNOWN[words(text)]
