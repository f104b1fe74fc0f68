"""What a cell may hold: numbers, text that stays text, formulas with the value they had when written."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fomkit.errors import printable
from fomkit.workbook.layout import UNKNOWN

MAX_TEXT = 32_767
"""Characters that a cell can hold; spreadsheet programs cut the rest without a word."""
_LIVE = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True)
class Formula:
    """A formula without its leading =, its value in Python, and whether a figure may be written over it."""

    text: str
    value: float | str
    is_input: bool = False


Value = str | float | int | Formula | None
"""Content of a cell; None leaves it empty."""


def known(value: float | None) -> float | str:
    """Give a number as it stands in a cell: what is unknown is a word, never empty and never 0.

    Examples
    --------
    >>> known(None), known(float("nan")), known(2.5)
    ('unknown', 'unknown', 2.5)
    """
    return UNKNOWN if value is None or not math.isfinite(value) else value


def cell_text(text: str) -> str:
    """Make a text fit to stand in a cell: no control characters, and cut visibly where it is too long.

    Examples
    --------
    >>> len(cell_text("x" * 40_000)), cell_text("x" * 40_000)[-28:]
    (32767, 'x … [cut, 40,000 characters]')
    """
    said = printable(text)
    if len(said) <= MAX_TEXT:
        return said
    mark = f" … [cut, {len(said):,} characters]"
    return said[: MAX_TEXT - len(mark)] + mark


def is_live(text: str) -> bool:
    """Tell whether a spreadsheet program would take a typed text for a formula."""
    return text.startswith(_LIVE)
