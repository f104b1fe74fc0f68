"""Strangers' CSV files of timings: the columns that a reader needs, checked, and TIMINGS made of them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fomkit.errors import FomkitError
from fomkit.schema import HUGE, LINE, TIMINGS, check_table
from fomkit.tables.cells import parse_number
from fomkit.tables.text import read_rows

if TYPE_CHECKING:
    import pandas as pd

Cell = str | float


def _chosen_rows(
    header: list[str], rows: Iterator[tuple[int, list[str]]], chosen: Mapping[str, str]
) -> Iterator[tuple[int, list[str]]]:
    places = [(header.index(name), value) for name, value in chosen.items()]
    for line, cells in rows:
        if all(cells[place] == value for place, value in places):
            yield line, cells


def _number(cell: str, where: str, name: str) -> Cell:
    """Read a number that no product of a few such overflows."""
    value = parse_number(cell, where, name)
    if isinstance(value, float) and abs(value) > HUGE:
        raise FomkitError(where, f"{name} is {value:g}. Expected a number of at most {HUGE:g}.")
    return value


def read_columns(
    path: Path,
    texts: Collection[str],
    numbers: Collection[str],
    *,
    optional: Collection[str] = (),
    chosen: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """Read some columns of a CSV file, packed by gzip or not, whatever else it has.

    Parameters
    ----------
    path : Path
    texts, numbers : collection of str
        Columns of text and of numbers.
    optional : collection of str
        Those of them that may be absent; they are then left out.
    chosen : mapping, optional
        Column to the value that the rows to be read have in it.

    Returns
    -------
    DataFrame
        Indexed by the line of the file; text as it stands, numbers as float64 with NaN where empty.

    Raises
    ------
    FomkitError
        When a column is missing, a cell is no number, or no row is left, with file and line.
    """
    import pandas as pd

    rows = read_rows(path)
    _, header = next(rows, (1, []))
    missing = [name for name in (*texts, *numbers) if name not in header and name not in optional]
    if missing:
        raise FomkitError(f"{path}:1", f"lacks the column {missing[0]!r}. Check that the file is whole.")
    read = [name for name in (*texts, *numbers) if name in header]
    places = [header.index(name) for name in read]
    lines: list[int] = []
    columns: dict[str, list[Cell]] = {name: [] for name in read}
    for line, cells in _chosen_rows(header, rows, chosen or {}):
        lines.append(line)
        for name, place in zip(read, places, strict=True):
            cell = cells[place]
            columns[name].append(_number(cell, f"{path}:{line}", name) if name in numbers else cell)
    if not lines:
        raise FomkitError(str(path), "has no row of what was asked for. Check the file.")
    index = pd.Index(lines, dtype="int64", name=LINE)
    kinds = {name: "float64" if name in numbers else "object" for name in read}
    return pd.DataFrame({name: pd.Series(columns[name], index, dtype=kinds[name]) for name in read})


def check_present(rows: pd.DataFrame, path: Path, columns: Collection[str], least: float = 0.0) -> None:
    """Raise unless every cell of these number columns holds more than ``least``."""
    for name in columns:
        wrong = ~(rows[name] > least)
        if wrong.any():
            at = int(wrong.to_numpy().argmax())
            line, value = rows.index[at], float(rows[name].to_numpy()[at])
            said = "empty" if math.isnan(value) else f"{value:g}"
            raise FomkitError(f"{path}:{line}", f"{name} is {said}. Expected a number above {least:g}.")


def make_timings(columns: Mapping[str, object], index: pd.Index, path: Path) -> pd.DataFrame:
    """Make a TIMINGS table with every column of the schema, in file order, and check it.

    Parameters
    ----------
    columns : mapping
        Column of TIMINGS to a value or one value per row; the others are empty.
    index : Index
        Lines of the file, which become ``source_row``.
    path : Path
        Its name becomes ``source_file``.
    """
    import pandas as pd

    given: dict[str, object] = {"source_file": path.name, "source_row": index.to_numpy("float64"), **columns}
    table: dict[str, pd.Series] = {}
    for column in TIMINGS:
        number = column.dtype == "number"
        empty: Cell = math.nan if number else ""
        table[column.name] = pd.Series(
            given.get(column.name, empty), index, dtype="float64" if number else "object"
        )
    timings = pd.DataFrame(table)
    check_table(timings, "TIMINGS", str(path))
    return timings.reset_index(drop=True)
