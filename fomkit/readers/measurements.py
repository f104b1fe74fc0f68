"""Measurements of whole models: records of others and tables of CSV in, checked rows out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fomkit.core.errors import FomkitError
from fomkit.core.measurement import Measurement
from fomkit.files.op_csv import format_table, read_numbered_table, table_of_rows
from fomkit.merit.measured_steps import MeasuredRuns
from fomkit.ops.check import check_table
from fomkit.ops.tables import column_names
from fomkit.profiles.locate import locate, profile_names
from fomkit.profiles.machines import load_machine
from fomkit.readers.records import IMPORTERS

if TYPE_CHECKING:
    import pandas as pd


_SPREAD = ("value", "low", "high")
_COUNTS = ("repeats", "batch", "devices")


def _interval_ends(row: Mapping[str, Any], where: str) -> tuple[float, float, bool]:
    """Give the ends of a row's interval and whether it states them."""
    value, low, high = (float(row.get(name, math.nan)) for name in _SPREAD)
    if math.isnan(low) and math.isnan(high):
        return value, value, False
    if math.isnan(low) or math.isnan(high):
        raise FomkitError(where, "states one end of its interval. Give low and high, or neither.")
    if not low <= value <= high:
        ends = f"low {low:g} and high {high:g}"
        raise FomkitError(where, f"value {value:g} is not between {ends}. Check which is which.")
    return low, high, True


def _measurement(row: Mapping[str, Any], where: str) -> Measurement:
    low, high, stated = _interval_ends(row, where)
    cells = {name: row.get(name, math.nan) for name in _COUNTS}
    known: dict[str, Any] = {name: None if math.isnan(one) else int(one) for name, one in cells.items()}
    known |= {name: str(row.get(name, "")).strip() for name in column_names("MEASUREMENTS", "text")}
    return Measurement(where=where, value=row["value"], low=low, high=high, spread_stated=stated, **known)


def read_measurements(path: Path) -> tuple[Measurement, ...]:
    """Read a table of measurements (docs/profiles.md), in the order of its rows."""
    table = read_numbered_table(path, "MEASUREMENTS")
    check_table(table, "MEASUREMENTS", str(path))
    rows: dict[int, dict[str, Any]] = table.to_dict("index")  # type: ignore[assignment]
    return tuple(_measurement(row, f"{path}:{line}") for line, row in rows.items())


def format_measurements(rows: Sequence[Measurement]) -> str:
    """Write rows as a table that `read_measurements` reads back."""
    cells = [{**vars(row), **({} if row.spread_stated else {"low": None, "high": None})} for row in rows]
    return format_table(table_of_rows(cells, "MEASUREMENTS"), "MEASUREMENTS")


@dataclass(frozen=True)
class ImportedMeasurements:
    """A MEASUREMENTS table, and what the reader noticed."""

    table: pd.DataFrame
    said: tuple[str, ...]


def rows_as_table(rows: Sequence[Mapping[str, Any]], where: str) -> pd.DataFrame:
    """Make a MEASUREMENTS table of rows by column; what a row does not have is empty."""
    table = table_of_rows(rows, "MEASUREMENTS")
    check_table(table, "MEASUREMENTS", where)
    return table


def import_measurements(
    path: Path, file_format: str, *, model: str | None = None, machine: str | None = None
) -> ImportedMeasurements:
    """Read a foreign record of measurements.

    `file_format`: a key of `IMPORTERS`; `model`, `machine`: names of the profiles; the file's own words stay in
    the note.
    """
    rows, said = IMPORTERS[file_format].read(path)
    named = [_named(_named(row, "model", model), "machine", machine) for row in rows]
    words = [
        f"{what} is {named[0][what]!r} as the file names it; --{what} says which profile that is"
        for what, given in (("model", model), ("machine", machine))
        if given is None and named
    ]
    return ImportedMeasurements(rows_as_table(named, str(path)), (*said, *words))


def _named(row: Mapping[str, Any], what: str, name: str | None) -> Mapping[str, Any]:
    if name is None or row[what] == name:
        return row
    note = "; ".join(part for part in (row.get("note", ""), f"{what} {row[what]!r} in the file") if part)
    return {**row, what: name, "note": note}


def all_measured() -> tuple[MeasuredRuns, tuple[str, ...]]:
    """Read the tables of measurements that ship or lie beside the user, and say which files are none."""
    rows: list[Measurement] = []
    unread = []
    for name in profile_names("measurements"):
        try:
            rows += read_measurements(locate(name, "measurements"))
        except FomkitError as error:
            unread.append(f"not read, so nothing is held against it: {error}")
    return MeasuredRuns(tuple(rows), load_machine), tuple(unread)
