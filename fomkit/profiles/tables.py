"""CSV tables in and out: declared columns only, numbers or expressions in dimension cells, no live text."""

from __future__ import annotations

import csv
import io
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING

from fomkit.errors import FomkitError
from fomkit.profiles.write import write_whole
from fomkit.schema import DIMENSIONS, TABLES, column_names

if TYPE_CHECKING:
    import pandas as pd

MAX_BYTE = 64_000_000
_LIVE = re.compile(r"'*[=+\-@\t\r]")
_EXPRESSION = re.compile(r"[0-9A-Za-z_+\-*/() ]{1,200}")
_SIZED = {column.name for column in DIMENSIONS if column.dtype == "number"}


def _cell(text: str, symbolic: bool, where: str, column: str) -> float | str:
    if text == "":
        return math.nan
    try:
        value = float(text)
    except ValueError:
        if symbolic and _EXPRESSION.fullmatch(text):
            return text
        expected = "a number or an expression in named sizes" if symbolic else "a number"
        raise FomkitError(where, f"{column} is {text!r}. Expected {expected}.") from None
    if not math.isfinite(value):
        raise FomkitError(where, f"{column} is {text!r}. Leave the cell empty where the value is unknown.")
    return value


def _rows(path: Path) -> list[list[str]]:
    try:
        if path.stat().st_size > MAX_BYTE:
            raise FomkitError(str(path), f"is larger than {MAX_BYTE:,} bytes.")
        with path.open(encoding="utf-8-sig", newline="") as stream:
            return [row for row in csv.reader(stream, strict=True) if row]
    except OSError as error:
        raise FomkitError(str(path), f"cannot be read ({error.strerror}). Check the path.") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise FomkitError(str(path), f"is not a CSV table in UTF-8 ({error}).") from error


def read_table(path: Path, table: str, extra: tuple[str, ...] = ()) -> pd.DataFrame:
    """Read a CSV file with the columns of a table.

    Parameters
    ----------
    path : Path
    table : str
        A key of ``schema.TABLES``. An OPS table may hold expressions in its dimensions.
    extra : tuple of str
        Number columns allowed beyond the table's own.

    Returns
    -------
    DataFrame
        Number columns are float64 with NaN where empty, or objects where an expression occurs; text is never NaN.

    Raises
    ------
    FomkitError
        With the line of the first mistake.
    """
    import pandas as pd

    rows = _rows(path)
    if not rows:
        raise FomkitError(str(path), f"is empty. Expected a header with columns of {table}.")
    header, numbers = rows[0], {*column_names(table, "number"), *extra}
    known = {*column_names(table), *extra}
    for name in header:
        if name not in known or header.count(name) > 1:
            reason = "stands twice in the header" if name in known else f"is not a column of {table}"
            raise FomkitError(f"{path}:1", f"the column {name!r} {reason}. See docs/profiles.md.")
    columns: dict[str, list[float | str]] = {name: [] for name in header}
    for line, row in enumerate(rows[1:], start=2):
        where = f"{path}:{line}"
        if len(row) != len(header):
            raise FomkitError(where, f"has {len(row)} cells where the header has {len(header)}.")
        for name, text in zip(header, row, strict=True):
            value: float | str = text[1:] if text[:1] == "'" and _LIVE.match(text) else text
            if name in numbers:
                value = _cell(text, table == "OPS" and name in _SIZED, where, name)
            columns[name].append(value)
    return pd.DataFrame(
        {name: pd.Series(cells, dtype=_dtype(cells, name in numbers)) for name, cells in columns.items()}
    )


def _dtype(cells: list[float | str], number: bool) -> str:
    return "float64" if number and not any(isinstance(cell, str) for cell in cells) else "object"


def _text(value: object) -> str:
    if isinstance(value, str):
        return f"'{value}" if _LIVE.match(value) else value
    number = float(str(value))
    if math.isnan(number):
        return ""
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)


def format_table(data: pd.DataFrame, table: str, extra: tuple[str, ...] = ()) -> str:
    """Write a table as CSV text: columns in schema order, empty ones left out, numbers that read back exactly.

    Text that a spreadsheet program would run as a formula gets a leading apostrophe, which `read_table` removes.
    """
    order = [name for name in (*extra, *column_names(table)) if name in data.columns]
    used = [name for name in order if data[name].notna().any() and (data[name].astype(str) != "").any()]
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(used)
    for row in data[used].itertuples(index=False, name=None):
        writer.writerow([_text(value) for value in row])
    return stream.getvalue()


def write_table(data: pd.DataFrame, path: Path, table: str, extra: tuple[str, ...] = ()) -> None:
    """Write a table to a CSV file, whole or not at all."""
    write_whole(path, format_table(data, table, extra))


def empty_table(table: str) -> pd.DataFrame:
    """Make a table without rows."""
    import pandas as pd

    return pd.DataFrame(
        {
            column.name: pd.Series(dtype="float64" if column.dtype == "number" else "object")
            for column in TABLES[table]
        }
    )
