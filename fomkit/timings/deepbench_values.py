"""How the cells of a DeepBench workbook are read: each function gives None where a cell holds something else."""

from __future__ import annotations

import math

DENSITY_DIGITS = 9


def whole(value: object) -> float | None:
    """Read a whole number of 0 or more; None when the cell holds something else.

    Examples
    --------
    >>> whole(1760), whole(78.5), whole("N/A*")
    (1760.0, None, None)
    """
    number = as_number(value)
    return number if number is not None and number >= 0 and number.is_integer() else None


def size(value: object) -> float | None:
    """Read a whole number of 1 or more; None when the cell holds something else."""
    number = whole(value)
    return number if number else None


def transpose(value: object) -> float | None:
    """Read the N or T of a factor as 0 or 1; None when the cell holds something else."""
    return {"N": 0.0, "T": 1.0}.get(value) if isinstance(value, str) else None


def as_number(value: object) -> float | None:
    """Read a finite number; None when the cell holds something else, a truth value included."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def amount(value: object) -> float | None:
    """Read a number of 0 or more; None when the cell holds something else."""
    number = as_number(value)
    return number if number is not None and number >= 0 else None


def density(value: object) -> float | None:
    """Read the printed share of zeros as the share of non-zeros; None when the cell holds something else.

    Examples
    --------
    >>> density(0.95), density(95), density(1), density("high")
    (0.05, None, None, None)
    """
    share = as_number(value)
    return round(1 - share, DENSITY_DIGITS) if share is not None and 0 <= share < 1 else None


def text(value: object) -> str | None:
    """Read a word or more; None when the cell holds something else."""
    return " ".join(value.split()) or None if isinstance(value, str) else None
