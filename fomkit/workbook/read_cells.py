"""Cells of a returned workbook: numbers, words, and formulas whatever program saved them."""

from __future__ import annotations

import math
import re

from fomkit.errors import FomkitError
from fomkit.tables.xlsx import Content
from fomkit.workbook.layout import UNKNOWN, Column, Table

FOLLOWS = "follows the value"
"""Entry of an end that is the value itself."""
_WORDS = ("last_batch", "basis", "party", "source", "evidence")
_COMMA = re.compile(r"\s*[+-]?\d{1,3}(?:[.\s']?\d{3})*,\d+\s*|\s*[+-]?\d+,\d+\s*")
_WITH_UNIT = re.compile(r"\s*[+-]?[\d.,]+(?:[eE][+-]?\d+)?\s*([A-Za-zµ%][\w/%]*)\s*")


def is_number_column(table: Table, column: Column) -> bool:
    """Tell whether a column of inputs or conditions holds numbers; choices hold either."""
    return column.role in ("input", "condition") and column.key not in _WORDS and table.title != "Assumptions"


def plain_formula(text: str) -> str:
    """Write a formula without what programs write differently.

    Examples
    --------
    >>> plain_formula("=$'Machines'.E5 * 2") == plain_formula("=Machines!$E$5*2")
    True

    Texts inside a formula and its comparisons stay what they are:

    >>> plain_formula('=IF(A1<=2,"ok")') == plain_formula('=IF(A1<2,"ok")')
    False
    """
    pieces = text.lstrip().removeprefix("=").split('"')
    outside = [re.sub(r"[\s$']", "", piece).upper() for piece in pieces[::2]]
    if not any("!" in piece for piece in outside):
        outside = [piece.replace(".", "!") for piece in outside]
    pieces[::2] = outside
    return '"'.join(pieces)


def same_formula(one: str, other: str) -> bool:
    """Tell whether two formulas are the same but for how programs write them."""
    return plain_formula(one) == plain_formula(other)


def read_text(cell: Content) -> str | float | None:
    """Give a word as it stands; numbers in a cell for words stay numbers."""
    value = cell.value
    if isinstance(value, bool) or value is None:
        return None if value is None else str(value)
    return float(value) if isinstance(value, int | float) else str(value)


def read_number(where: str, cell: Content) -> float | None:
    """Give a number; None where the cell is empty or says that it is unknown.

    Raises
    ------
    FomkitError
        When the cell holds anything else, with what to write instead.
    """
    value = cell.value
    if value is None and cell.formula:
        raise FomkitError(where, f"the formula {cell.formula!r} has no saved value. Write a number.")
    if value is None or value == UNKNOWN:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    shown = repr(value)[:80]
    if isinstance(value, str) and _COMMA.fullmatch(value):
        raise FomkitError(where, f"{shown} has a decimal comma and is text. Write a number, for example 3.35.")
    if isinstance(value, str) and (found := _WITH_UNIT.fullmatch(value)):
        raise FomkitError(
            where, f"{shown} has the unit {found[1]!r}. Write the number only, in the unit beside it."
        )
    raise FomkitError(where, f"{shown} is no number. Write a number, or the word unknown.")
