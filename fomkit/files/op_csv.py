"""Read and write CSV tables of ops and timings, with the columns that `fomkit.ops.tables` declares.

Cells of dimensions are numbers or expressions. Numbers read back exactly, and text stays text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from fomkit.core.errors import FomkitError, nearest_names
from fomkit.files.csv import escape_cell, escape_foreign, number_cell, parse_number, read_rows, shown, unescape
from fomkit.ops.tables import LINE, PLAIN_TABLES, SIZED, TITLES, column_names, table_of_columns

if TYPE_CHECKING:
    import pandas as pd

_SLIP = 0.84
"""Similarity to a known column from which an unknown column is considered a misspelling."""
_UNITS = {"ms": 1e3, "msec": 1e3, "us": 1e6, "usec": 1e6, "ns": 1e9, "min": 1 / 60}


def _in_seconds(header: Sequence[str], known: set[str]) -> dict[str, tuple[str, float]]:
    """Return columns of times in other units, such as time_us: the known column, and its units in a second."""
    found: dict[str, tuple[str, float]] = {}
    for name in header:
        stem, _, unit = name.lower().rpartition("_")
        column = f"{stem}_s"
        taken = {*header, *(other for other, _ in found.values())}
        if unit in _UNITS and name not in known and column in known - taken:
            found[name] = (column, _UNITS[unit])
    return found


def _check_header(
    path: Path, header: list[str], known: Collection[str], table: str, keep: Collection[str] | None
) -> None:
    where, met = f"{path}:1", set[str]()
    for place, name in enumerate(header, start=1):
        if not name:
            raise FomkitError(where, f"column {place} has no name. Name it, or delete it.")
        if name in met:
            raise FomkitError(where, f"the column {shown(name)} is given twice in the header. Keep one.")
        met.add(name)
        if name in known or (keep is not None and name in keep):
            continue
        meant = get_close_matches(name.lower(), known, n=1, cutoff=_SLIP)
        if keep is None or (meant and meant[0] not in header):
            advice = nearest_names(name, known) if len(name) <= 100 else "See docs/profiles.md."
            own = "Rename or delete it." if keep is None else f"Or keep it as your own with --keep '{name}'."
            wrong = f"the column {shown(name)} is not a column of a table of {TITLES[table]}"
            raise FomkitError(where, f"{wrong}. {advice} {own}")


def _number_cells(
    path: Path, lines: Sequence[int], name: str, column: Sequence[str], *, expressions: bool
) -> list[float | str]:
    """Parse the cells of a number column; values repeat, so each distinct text is parsed once."""
    known: dict[str, float | str] = {}
    for text in dict.fromkeys(column):
        try:
            known[text] = parse_number(unescape(text), "", name, expressions=expressions)
        except FomkitError as error:
            raise FomkitError(f"{path}:{lines[column.index(text)]}", error.what) from None
    return [known[text] for text in column]


def read_numbered_table(
    path: Path, table: str, extra: Collection[str] = (), keep: Collection[str] | None = None
) -> pd.DataFrame:
    """Read a CSV file, packed by gzip or not, with the columns of a table.

    `table`: a key of `fomkit.ops.tables.TABLES`. All but `PLAIN_TABLES` may have expressions in their dimensions.
    Times in another unit, such as a column time_us, are converted to seconds, unless it is listed in `keep`.
    `extra`: number columns allowed beyond the table's own. `keep`: None refuses unknown columns. Otherwise they
    are kept as text, unchanged, unless a name not listed in `keep` looks like a misspelling of a known column.
    Returns a DataFrame indexed by the line of the file. Number columns are float64 with NaN where empty, or
    objects where an expression occurs; text is never NaN.
    """
    import pandas as pd

    rows = read_rows(path)
    _, cells = next(rows, (1, []))
    if not cells:
        raise FomkitError(str(path), f"is empty. A table of {TITLES[table]} was expected, with a header.")
    header, numbers = [name.strip() for name in cells], {*column_names(table, "number"), *extra}
    known = {*column_names(table), *extra}
    in_seconds = _in_seconds([name for name in header if name not in (keep or ())], known)
    _check_header(path, header, {*known, *in_seconds}, table, keep)
    symbolic = set(SIZED) if table not in PLAIN_TABLES else set[str]()
    lines, body = [], []
    for line, row in rows:
        lines.append(line)
        body.append(row)
    if not lines:
        raise FomkitError(
            str(path), f"has a header and no rows. At least one row of {TITLES[table]} was expected."
        )
    columns = dict[str, list[float | str]]()
    for name, column in zip(header, zip(*body, strict=True), strict=True):
        values: list[float | str] = list(column)
        own, units = in_seconds.get(name, (name, 0.0))
        if own in numbers:
            values = _number_cells(path, lines, name, column, expressions=own in symbolic)
            values = [float(cell) / units for cell in values] if units else values
        elif name in known:
            values = [*map(unescape, column)]
        columns[own] = values
    found = table_of_columns(columns, numbers, len(lines))
    return found.set_axis(pd.Index(lines, dtype="int64", name=LINE))


def read_table(path: Path, table: str, extra: Collection[str] = ()) -> pd.DataFrame:
    """Read a CSV file as `read_numbered_table` does, with rows numbered from 0."""
    return read_numbered_table(path, table, extra).reset_index(drop=True)


_SPECIAL = re.compile(r'[,"\r\n]')


def format_rows(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    r"""Write cells (text already escaped) as CSV.

    The csv module does not quote a lone carriage return, which readers take for the end of a row.

    >>> format_rows(["op", "m"], [["a\rb", "1"], ["c,d", "2"]])
    'op,m\n"a\rb",1\n"c,d",2\n'
    """

    def quoted(cell: str) -> str:
        return '"' + cell.replace('"', '""') + '"' if _SPECIAL.search(cell) else cell

    lines = (",".join(map(quoted, row)) or '""' for row in chain([header], rows))
    return "".join(f"{line}\n" for line in lines)


def _cell_text(one: object) -> str:
    if isinstance(one, str):
        return escape_cell(one)
    return number_cell(one if type(one) is float else float(str(one)))


def format_table(data: pd.DataFrame, table: str, extra: tuple[str, ...] = ()) -> str:
    """Return a table as CSV text: columns in schema order without empty ones, numbers that read back exactly.

    An empty column that a kind of the table needs stays: the link of collectives whose tier is not known.
    Text that a spreadsheet program would run as a formula gets a leading apostrophe, which `read_table` removes.
    """
    order = [name for name in (*extra, *column_names(table)) if name in data.columns]
    from fomkit.ops.kinds import KINDS  # loads numpy, which the help text does not need

    kinds = data["kind"].dropna().unique() if "kind" in data.columns else ()
    needed = {name for kind in kinds if kind in KINDS for name in KINDS[kind].dimensions}
    used = [name for name in order if name in needed or (data[name].notna().any() and (data[name] != "").any())]
    return format_rows(used, ([*map(_cell_text, row)] for row in data[used].itertuples(index=False, name=None)))


def format_as_given(data: pd.DataFrame, table: str) -> str:
    """Return every column of a table as CSV in its own order; columns unknown to ``table`` keep their text.

    A kept text gets an apostrophe only where a spreadsheet program would run it as a formula.
    """

    def foreign(value: object) -> str:
        return number_cell(value) if isinstance(value, float) else escape_foreign(str(value))

    known = set(column_names(table))
    writers = [_cell_text if name in known else foreign for name in data.columns]
    header = [escape_foreign(str(name)) for name in data.columns]
    rows = data.itertuples(index=False, name=None)
    return format_rows(header, ([write(value) for write, value in zip(writers, row, strict=True)] for row in rows))
