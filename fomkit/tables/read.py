"""CSV text into tables with declared columns: numbers or expressions in dimension cells, text as it stands."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from fomkit.errors import FomkitError, nearest_names
from fomkit.schema import LINE, PLAIN_TABLES, SIZED, column_names
from fomkit.tables.cells import parse_number, rearm, shown
from fomkit.tables.text import read_rows

if TYPE_CHECKING:
    import pandas as pd

_SLIP = 0.84
"""Likeness from which the name of an unknown column is taken for a slip."""
_UNITS = {"ms": 1e3, "msec": 1e3, "us": 1e6, "usec": 1e6, "ns": 1e9, "min": 1 / 60}


def _unit_hint(name: str, known: Collection[str]) -> str:
    """Say how to turn a time in another unit into the table's own column; "" where it is none."""
    stem, _, unit = name.lower().rpartition("_")
    if unit not in _UNITS or f"{stem}_s" not in known:
        return ""
    factor = _UNITS[unit]
    verb = f"Divide by {factor:,.0f}" if factor > 1 else f"Multiply by {1 / factor:,.0f}"
    return f"Times are in seconds here. {verb} and name it '{stem}_s'."


def _slip(name: str, header: list[str], known: Collection[str]) -> bool:
    """Tell whether an unknown column is a known one spelled wrongly."""
    close = get_close_matches(name.lower(), known, n=1, cutoff=_SLIP)
    return bool(close) and close[0] not in header


def _check_header(
    path: Path, header: list[str], known: Collection[str], table: str, keep: Collection[str] | None
) -> None:
    where, met = f"{path}:1", set[str]()
    for place, name in enumerate(header, start=1):
        if not name:
            raise FomkitError(where, f"column {place} has no name. Name it, or delete it.")
        if name in met:
            raise FomkitError(where, f"the column {shown(name)} stands twice in the header. Keep one of them.")
        met.add(name)
        if name in known or (keep is not None and name in keep):
            continue
        advice = _unit_hint(name, known)
        if not advice and (keep is None or _slip(name, header, known)):
            advice = nearest_names(name, known) if len(name) <= 100 else "See docs/profiles.md."
        if advice:
            own = "Rename or delete it." if keep is None else f"Or keep it as one of yours with --keep '{name}'."
            kind = "OPS" if table == "TIMED" else table
            raise FomkitError(where, f"the column {shown(name)} is not a column of {kind}. {advice} {own}")


def _dtype(cells: list[float | str], number: bool) -> str:
    return "float64" if number and not any(isinstance(cell, str) for cell in cells) else "object"


def _numbers(
    path: Path, lines: Sequence[int], name: str, column: Sequence[str], *, expressions: bool
) -> list[float | str]:
    """Read the cells of a number column; sizes repeat, so each distinct text is read once."""
    known: dict[str, float | str] = {}
    for text in dict.fromkeys(column):
        try:
            known[text] = parse_number(rearm(text), "", name, expressions=expressions)
        except FomkitError as error:
            raise FomkitError(f"{path}:{lines[column.index(text)]}", error.what) from None
    return [known[text] for text in column]


def read_numbered_table(
    path: Path, table: str, extra: Collection[str] = (), keep: Collection[str] | None = None
) -> pd.DataFrame:
    """Read a CSV file, packed by gzip or not, with the columns of a table.

    Parameters
    ----------
    path : Path
    table : str
        A key of ``schema.TABLES``. All but ``schema.PLAIN_TABLES`` may hold expressions in their dimensions.
    extra : collection of str
        Number columns allowed beyond the table's own.
    keep : collection of str, optional
        Without it unknown columns are refused. With it they are kept as text, cell by cell as they stand, unless
        their name looks like a slip of a known one that it does not list.

    Returns
    -------
    DataFrame
        Indexed by the line of the file. Number columns are float64 with NaN where empty, or objects where an
        expression occurs; text is never NaN.

    Raises
    ------
    FomkitError
        With the line of the first mistake in the first column that has one.
    """
    import pandas as pd

    rows = read_rows(path)
    _, cells = next(rows, (1, []))
    if not cells:
        raise FomkitError(str(path), f"is empty. Expected a header with columns of {table}.")
    header, numbers = [name.strip() for name in cells], {*column_names(table, "number"), *extra}
    known = {*column_names(table), *extra}
    _check_header(path, header, known, table, keep)
    symbolic = set(SIZED) if table not in PLAIN_TABLES else set[str]()
    lines, body = [], []
    for line, row in rows:
        lines.append(line)
        body.append(row)
    if not lines:
        raise FomkitError(str(path), f"has a header and no rows. Expected at least one row of {table}.")
    index = pd.Index(lines, dtype="int64", name=LINE)
    columns = {}
    for name, column in zip(header, zip(*body, strict=True), strict=True):
        values: list[float | str] = list(column)
        if name in numbers:
            values = _numbers(path, lines, name, column, expressions=name in symbolic)
        elif name in known:
            values = [*map(rearm, column)]
        columns[name] = pd.Series(values, index, dtype=_dtype(values, name in numbers))
    return pd.DataFrame(columns)


def read_table(path: Path, table: str, extra: Collection[str] = ()) -> pd.DataFrame:
    """Read a CSV file as `read_numbered_table` does, with rows counted from 0."""
    return read_numbered_table(path, table, extra).reset_index(drop=True)
