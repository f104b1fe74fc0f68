"""Tables of measurements of whole models: strangers' CSV in, checked records out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fomkit.errors import FomkitError
from fomkit.measurement import Measurement
from fomkit.schema import check_table, column_names
from fomkit.tables import format_table, read_numbered_table

_SPREAD = ("value", "low", "high")
_COUNTS = ("repeats", "batch", "devices")


def _spread(row: Mapping[str, Any], where: str) -> tuple[float, float, bool]:
    """Give the ends of a row's interval and whether it states them."""
    value, low, high = (float(row.get(name, math.nan)) for name in _SPREAD)
    if math.isnan(low) and math.isnan(high):
        return value, value, False
    if math.isnan(low) or math.isnan(high):
        raise FomkitError(where, "states one end of its interval. Give low and high, or neither.")
    if not low <= value <= high:
        raise FomkitError(
            where, f"value {value:g} is not between low {low:g} and high {high:g}. Check which is which."
        )
    return low, high, True


def _count(cell: float) -> int | None:
    return None if math.isnan(cell) else int(cell)


def _measurement(row: Mapping[str, Any], where: str) -> Measurement:
    low, high, stated = _spread(row, where)
    texts = {name: str(row.get(name, "")).strip() for name in column_names("MEASUREMENTS", "text")}
    known: dict[str, Any] = {**texts, **{name: _count(row.get(name, math.nan)) for name in _COUNTS}}
    return Measurement(where=where, value=row["value"], low=low, high=high, spread_stated=stated, **known)


def read_measurements(path: Path) -> tuple[Measurement, ...]:
    """Read a table of measurements (docs/profiles.md), in the order of its rows.

    Raises
    ------
    FomkitError
        With the line of a column, a word or a number that cannot be, and of an interval that misses its value.
    """
    table = read_numbered_table(path, "MEASUREMENTS")
    check_table(table, "MEASUREMENTS", str(path))
    lines, rows = table.index.tolist(), table.to_dict("records")
    return tuple(
        _measurement({str(name): cell for name, cell in row.items()}, f"{path}:{line}")
        for line, row in zip(lines, rows, strict=True)
    )


def format_measurements(rows: Sequence[Measurement]) -> str:
    """Write rows as a table that `read_measurements` reads back."""
    import pandas as pd

    numbers = column_names("MEASUREMENTS", "number")
    columns: dict[str, Any] = {}
    for name in column_names("MEASUREMENTS"):
        cells = [getattr(row, name) if _is_stated(row, name) else None for row in rows]
        columns[name] = pd.Series(cells, dtype="float64" if name in numbers else "object")
    return format_table(pd.DataFrame(columns), "MEASUREMENTS")


def _is_stated(row: Measurement, name: str) -> bool:
    return row.spread_stated or name not in ("low", "high")
