"""Single cells of CSV files: strict numbers, and text that no spreadsheet program runs as a formula."""

from __future__ import annotations

import math
import re

from fomkit.errors import FomkitError

_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)
_EXPRESSION = re.compile(r"(?=.*([A-Za-z_]|\d\s*[-+*/]))[0-9A-Za-z_+\-*/() ]{1,200}")
_NO_NUMBER = ("nan", "inf", "infinity", "na", "n/a", "none", "null")
_LIVE = ("=", "+", "-", "@", "\t", "\r")
_HIDDEN = re.compile(r"'*[=+\-@\t\r]")
SHOWN = 60
"""Characters of a cell that a message quotes."""


def shown(text: str) -> str:
    """Quote a cell in a message, cut where it is long."""
    return repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}…")


def is_number(text: str) -> bool:
    """Tell whether text is a plain decimal number."""
    return _NUMBER.fullmatch(text) is not None


def parse_number(text: str, where: str, column: str, *, expressions: bool = False) -> float | str:
    """Read a number cell; an empty one is NaN.

    Parameters
    ----------
    text, where, column : str
        The cell, its file and line, and its column.
    expressions : bool
        Whether the cell may be an expression in named sizes, which is given back as text.

    Raises
    ------
    FomkitError
        When it is neither.

    Examples
    --------
    >>> parse_number("1.5e3", "ops.csv:2", "m"), parse_number("2*batch", "ops.csv:2", "m", expressions=True)
    (1500.0, '2*batch')
    """
    if not text.strip():
        return math.nan
    if is_number(text):
        if math.isinf(value := float(text)):
            raise FomkitError(where, f"{column} is {shown(text)}, which is too large a number.")
        return value
    if expressions and _EXPRESSION.fullmatch(text) and text.strip(" +-").lower() not in _NO_NUMBER:
        return text
    expected = "a number or an expression in named sizes" if expressions else "a number"
    hint = "Leave the cell empty where the value is unknown."
    if re.fullmatch(r"\s*[+-]?\d[\d.,'\s]*", text, re.ASCII):
        hint = "Write a decimal point and nothing between the thousands, for example 1234.5."
    raise FomkitError(where, f"{column} is {shown(text)}. Expected {expected}. {hint}")


def disarm(text: str) -> str:
    """Put an apostrophe before text that a spreadsheet program would run as a formula; `rearm` takes it away.

    Examples
    --------
    >>> disarm("=1+1"), disarm("'=1"), disarm("addmm")
    ("'=1+1", "''=1", 'addmm')
    """
    return f"'{text}" if _HIDDEN.match(text) else text


def rearm(text: str) -> str:
    """Undo `disarm`."""
    return text[1:] if text[:1] == "'" and _HIDDEN.match(text) else text


def disarm_stranger(text: str) -> str:
    """Disarm a cell that is not ours: numbers and what is harmless already stay as they are.

    Examples
    --------
    >>> disarm_stranger("-5.2"), disarm_stranger("-x"), disarm_stranger("'-x")
    ('-5.2', "'-x", "'-x")
    """
    return f"'{text}" if text[:1] in _LIVE and not is_number(text) else text


def format_number(value: float) -> str:
    """Write a number that reads back exactly; NaN is an empty cell."""
    if math.isnan(value):
        return ""
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
