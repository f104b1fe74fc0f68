"""Tables into CSV text: numbers that read back exactly, text that stays text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from fomkit.schema import TABLES, column_names
from fomkit.tables.cells import disarm, disarm_stranger, format_number

if TYPE_CHECKING:
    import pandas as pd

_SPECIAL = re.compile(r'[,"\r\n]')


def _quoted(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"' if _SPECIAL.search(cell) else cell


def format_rows(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    r"""Write cells, of which text was disarmed, as CSV.

    The csv module leaves a lone carriage return without quotes, and readers take it for the end of a row.

    Examples
    --------
    >>> format_rows(["op", "m"], [["a\rb", "1"], ["c,d", "2"]])
    'op,m\n"a\rb",1\n"c,d",2\n'
    """
    lines = (",".join(map(_quoted, row)) or '""' for row in chain([header], rows))
    return "".join(f"{line}\n" for line in lines)


def _cell(value: object) -> str:
    return disarm(value) if isinstance(value, str) else format_number(float(str(value)))


def format_table(data: pd.DataFrame, table: str, extra: tuple[str, ...] = ()) -> str:
    """Write a table as CSV text: columns in schema order, empty ones left out, numbers that read back exactly.

    Text that a spreadsheet program would run as a formula gets a leading apostrophe, which `read_table` removes.
    """
    order = [name for name in (*extra, *column_names(table)) if name in data.columns]
    used = [name for name in order if data[name].notna().any() and (data[name].astype(str) != "").any()]
    rows = data[used].itertuples(index=False, name=None)
    return format_rows(used, ([_cell(value) for value in row] for row in rows))


def format_as_given(data: pd.DataFrame, table: str) -> str:
    """Write every column of a table in its own order; columns unknown to ``table`` keep their text.

    Where a spreadsheet program would run a kept text as a formula, and only there, it gets an apostrophe.
    """
    known = set(column_names(table))
    writers = [_cell if name in known else _kept for name in data.columns]
    header = [disarm_stranger(str(name)) for name in data.columns]
    rows = data.itertuples(index=False, name=None)
    return format_rows(header, ([write(value) for write, value in zip(writers, row, strict=True)] for row in rows))


def _kept(value: object) -> str:
    if isinstance(value, float):
        return format_number(value)
    return disarm_stranger(str(value))


def empty_table(table: str) -> pd.DataFrame:
    """Make a table without rows."""
    import pandas as pd

    return pd.DataFrame(
        {
            column.name: pd.Series(dtype="float64" if column.dtype == "number" else "object")
            for column in TABLES[table]
        }
    )
