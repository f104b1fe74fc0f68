"""Foreign timings: read and check columns, make TIMINGS of them, and count what happened to each row."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from fomkit.core.errors import FomkitError
from fomkit.core.machine import Link
from fomkit.files.csv import parse_number, read_header, read_rows
from fomkit.files.op_csv import read_numbered_table
from fomkit.ops.check import check_quartiles, check_table, fill_dimensions
from fomkit.ops.tables import HUGE, LINE, TIMINGS

Cell = str | float


def read_columns(
    path: Path,
    texts: Collection[str],
    numbers: Collection[str],
    *,
    optional: Collection[str] = (),
    chosen: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """Read some columns of a CSV file, gzipped or not; other columns are ignored.

    `texts`, `numbers`: columns of text and of numbers; `optional`: those that may be absent from file and result;
    `chosen`: value that a column must have in the rows to read. Returns a DataFrame indexed by the line of the
    file; text as it is, numbers as float64 with NaN where empty.
    """
    rows = read_rows(path)
    _, header = next(rows, (1, []))
    missing = [name for name in (*texts, *numbers) if name not in header and name not in optional]
    if missing:
        raise FomkitError(f"{path}:1", f"lacks the column {missing[0]!r}. Check that the file is whole.")
    read = [name for name in (*texts, *numbers) if name in header]
    places = [header.index(name) for name in read]
    lines: list[int] = []
    columns: dict[str, list[Cell]] = {name: [] for name in read}
    # The same sizes occur in thousands of rows: each text is parsed once.
    known: list[dict[str, Cell] | None] = [{} if name in numbers else None for name in read]
    wanted = [(header.index(name), value) for name, value in (chosen or {}).items()]
    for line, cells in rows:
        if any(cells[place] != value for place, value in wanted):
            continue
        lines.append(line)
        for name, place, values in zip(read, places, known, strict=True):
            cell = cells[place]
            if values is None:
                columns[name].append(cell)
                continue
            if cell not in values:
                value = values[cell] = parse_number(cell, f"{path}:{line}", name)
                if isinstance(value, float) and abs(value) > HUGE:  # a product of a few would overflow
                    what = f"{name} is {value:g}. Expected a number of at most {HUGE:g}."
                    raise FomkitError(f"{path}:{line}", what)
            columns[name].append(values[cell])
    if not lines:
        raise FomkitError(str(path), "has no row of the requested kind. Check the file.")
    index = pd.Index(lines, dtype="int64", name=LINE)
    kinds = {name: "float64" if name in numbers else "object" for name in read}
    return pd.DataFrame({name: pd.Series(columns[name], index, dtype=kinds[name]) for name in read})


def check_present(rows: pd.DataFrame, path: Path, columns: Collection[str]) -> None:
    """Raise unless every cell of these number columns is above 0."""
    for name in columns:
        wrong = ~(rows[name] > 0)
        if wrong.any():
            at = int(wrong.to_numpy().argmax())
            line, value = rows.index[at], float(rows[name].to_numpy()[at])
            value_text = "empty" if math.isnan(value) else f"{value:g}"
            raise FomkitError(f"{path}:{line}", f"{name} is {value_text}. Expected a number above 0.")


def make_timings(columns: Mapping[str, object], index: pd.Index, path: Path) -> pd.DataFrame:
    """Make a TIMINGS table with every column of the schema, in file order, and check it.

    `columns`: column of TIMINGS to a value or one value per row; the others are empty; `index`: lines of the file,
    which become ``source_row``; `path`: its name becomes ``source_file``.
    """
    given: dict[str, object] = {"source_file": path.name, "source_row": index.to_numpy("float64"), **columns}
    table: dict[str, pd.Series] = {}
    for column in TIMINGS:
        if column.dtype == "number":
            table[column.name] = pd.Series(given.get(column.name, math.nan), index, dtype="float64")
        else:
            table[column.name] = pd.Series(given.get(column.name, ""), index, dtype="object").fillna("")
    timings = pd.DataFrame(table)
    check_table(timings, "TIMINGS", str(path))
    return timings.reset_index(drop=True)


@dataclass(frozen=True)
class SectionCount:
    """What happened to the rows of one section of one sheet, for one pass.

    `sheet`, `section`, `pass_name`: ``pass_name`` is "" for ops that have no pass, and for skipped sections.
    `imported`: timings in the table.
    `without_time`: rows that list an op without a time for this pass.
    `below_resolution`: rows whose time is printed as 0, below the timer's resolution, so the time is unknown.
    `corrected`: imported timings whose printed figure was corrected; their ``note`` says how.
    `skipped`: rows of a section that this reader does not cover; no figure of them was read.
    `kind`: the kind of op, of which a section may have several; "" if unknown.
    """

    sheet: str
    section: str
    pass_name: str = ""
    imported: int = 0
    without_time: int = 0
    below_resolution: int = 0
    corrected: int = 0
    skipped: int = 0
    reason: str = ""
    kind: str = ""


@dataclass(frozen=True)
class ImportedTimings:
    """The timings of one file.

    `timings`: a TIMINGS table with every column of `fomkit.ops.tables.TIMINGS`, in file order.
    `device`: the device as the file names it; "" when it does not.
    `specs`: facts in the file about the measured system, as printed.
    `counts`: one entry per sheet, section and pass.
    `notes`: facts without a column that hold for all timings of this source.
    `remarks`: what the reader noticed in this file: unknown columns, headers that it had to guess.
    `links`: connections whose start-up time and rate follow from the timings.
    """

    timings: pd.DataFrame
    device: str
    specs: Mapping[str, str] = field(default_factory=dict)
    counts: tuple[SectionCount, ...] = ()
    notes: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()


def recognise_timings_table(path: Path) -> bool:
    """Return whether a file is text whose header names the columns of a timing, with a time in any unit."""
    header = read_header(path)
    return "kind" in header and any(name.lower().partition("_")[0] == "time" for name in header)


def counts_of(table: pd.DataFrame, section: str = "table") -> tuple[SectionCount, ...]:
    """Count the timings of each kind and pass."""
    passes = table["pass_name"] if "pass_name" in table.columns else [""] * len(table)
    rows = Counter(zip(table["kind"], passes, strict=True))
    return tuple(
        SectionCount("-", section, pass_name, imported=count, kind=kind)
        for (kind, pass_name), count in rows.items()
    )


def read_timings_table(path: Path) -> ImportedTimings:
    """Read a CSV file, gzipped or not, with the columns of TIMINGS.

    `path`: with ``kind, dtype, engine, time_s`` and the dimensions of the kinds; times in seconds. Rows without a
    source get this file's name and line as ``source_file`` and ``source_row``.
    """
    return timings_of_table(read_numbered_table(path, "TIMINGS"), path)


def timings_of_table(
    table: pd.DataFrame, path: Path, *, device: str = "", notes: tuple[str, ...] = ()
) -> ImportedTimings:
    """Make timings from a table with their columns, numbered by the lines of a file."""
    messages: tuple[str, ...] = ()
    if "kind" in table.columns:
        table, messages = fill_dimensions(table)
    check_table(table, "TIMINGS", str(path))
    check_quartiles(table, str(path))
    # Rows without a source are of this file and line.
    name = table.get("source_file", pd.Series("", table.index)).fillna("")
    row = table.get("source_row", pd.Series(float("nan"), table.index))
    here, lines = name == "", pd.Series(table.index, table.index, dtype="float64")
    table = table.assign(source_file=name.mask(here, path.name), source_row=row.mask(here, lines))
    table = table.reset_index(drop=True)
    return ImportedTimings(table, device=device, counts=counts_of(table), notes=(*notes, *messages))
