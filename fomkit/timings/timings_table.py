"""Tables of timings that already have fomkit's columns: a vendor's or a simulator's CSV file."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from fomkit.schema import check_table
from fomkit.tables import fill_dimensions, read_numbered_table
from fomkit.tables.text import read_header
from fomkit.timings.imported import ImportedTimings, SectionCount

if TYPE_CHECKING:
    import pandas as pd

_TIME_COLUMNS = ("time_s", "time_ms", "time_us", "time_ns", "time")


def recognise_timings_table(path: Path) -> bool:
    """Tell whether a file is text whose first line names the columns of a timing.

    A time in another unit counts too, so that the reader can say what to do about it.
    """
    header = read_header(path)
    return "kind" in header and any(name in header for name in _TIME_COLUMNS)


def _with_source(table: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Name this file and line as the source of rows that name none."""
    import pandas as pd

    name = table.get("source_file", pd.Series("", table.index)).fillna("")
    row = table.get("source_row", pd.Series(float("nan"), table.index))
    here = name == ""
    lines = pd.Series(table.index, table.index, dtype="float64")
    return table.assign(source_file=name.mask(here, path.name), source_row=row.mask(here, lines))


def _counts(table: pd.DataFrame) -> tuple[SectionCount, ...]:
    passes = table["pass_name"] if "pass_name" in table.columns else [""] * len(table)
    rows = Counter(zip(table["kind"], passes, strict=True))
    return tuple(
        SectionCount("-", "table", pass_name, imported=count, kind=kind)
        for (kind, pass_name), count in rows.items()
    )


def read_timings_table(path: Path) -> ImportedTimings:
    """Read a CSV file, packed by gzip or not, with the columns of TIMINGS.

    Parameters
    ----------
    path : Path
        With ``kind, dtype, engine, time_s`` and the dimensions of the kinds; times in seconds.

    Returns
    -------
    ImportedTimings
        With this file's name and line as ``source_file`` and ``source_row`` where the table names no source.

    Raises
    ------
    FomkitError
        With file and line, when a column, a dimension or a value is missing or cannot be.
    """
    return timings_of_table(read_numbered_table(path, "TIMINGS"), path)


def timings_of_table(
    table: pd.DataFrame, path: Path, *, device: str = "", notes: tuple[str, ...] = ()
) -> ImportedTimings:
    """Make timings of a table with their columns, numbered by the lines of a file.

    Raises
    ------
    FomkitError
        With file and line, when a column, a dimension or a value is missing or cannot be.
    """
    said: tuple[str, ...] = ()
    if "kind" in table.columns:
        table, said = fill_dimensions(table)
    check_table(table, "TIMINGS", str(path))
    table = _with_source(table, path).reset_index(drop=True)
    return ImportedTimings(table, device=device, counts=_counts(table), notes=(*notes, *said))
