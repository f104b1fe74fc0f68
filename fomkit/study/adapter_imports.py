"""Files that an adapter of somebody else reads: chosen by their content, made profiles by the rules of CSV files.

Not imported with the room, as `fomkit.study.imports`.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from fomkit.adapters.installed import Installed, ask_adapter, find_adapters, read_by, read_head
from fomkit.errors import FomkitError, printable
from fomkit.schema import LINE, SIZED, column_names
from fomkit.timings import ImportedTimings
from fomkit.timings.timings_table import timings_of_table

if TYPE_CHECKING:
    import pandas as pd


def choose_adapter(
    path: Path, product: str | None, file_format: str | None, taken: Collection[str], refusal: FomkitError
) -> tuple[str, str]:
    """Choose the adapter of a file that is of no format of fomkit's own.

    Parameters
    ----------
    path : Path
    product, file_format : str or None
        What the user asked for.
    taken : collection of str
        Names of fomkit's own formats.
    refusal : FomkitError
        What to say where no adapter fits.

    Returns
    -------
    file_format, product : str

    Raises
    ------
    FomkitError
        ``refusal`` with a sentence for each adapter that is broken, or that several adapters fit.
    """
    found = find_adapters(taken)
    broken = list(found.broken)
    fitting = {name: one for name, one in found.working.items() if product in (None, one.product)}
    if file_format is not None:
        fitting = {name: one for name, one in fitting.items() if name == file_format}
    else:
        try:
            head = read_head(path)
        except (OSError, ValueError):
            raise refusal from None
        answers = {name: ask_adapter(one, head, path) for name, one in fitting.items()}
        broken += [answer for answer in answers.values() if isinstance(answer, str)]
        fitting = {name: one for name, one in fitting.items() if answers[name] is True}
    if len(fitting) > 1:
        listed = "; ".join(f"{name}: {one.label}" for name, one in fitting.items())
        raise FomkitError(str(path), f"fits more than one adapter: {listed}. Name one with --format.")
    if not fitting:
        if file_format is not None and file_format in found.working:
            makes = found.working[file_format].product
            raise FomkitError(
                f"--as {product}", f"the format {file_format!r} makes a {makes}. Leave one of them out."
            )
        said = [f"Installed as well: {', '.join(found.working)}."] if found.working else []
        said += [f"Left out: {one}." for one in broken]
        raise FomkitError(refusal.where, " ".join([refusal.what, *said])) from refusal
    return next((name, one.product) for name, one in fitting.items())


def _adapter(file_format: str, taken: Collection[str]) -> Installed:
    return find_adapters(taken).working[file_format]


def _as_read(one: Installed, table: pd.DataFrame, schema: str) -> pd.DataFrame:
    """Give a stranger's rows the types of the schema: numbers, expressions in named sizes, text.

    Raises
    ------
    FomkitError
        With the adapter's name, when a column is none of the schema or a number is none.
    """
    import pandas as pd

    if unknown := [str(name) for name in table.columns if name not in column_names(schema)]:
        raise FomkitError(one.label, f"gave the column {unknown[0]!r}, which {schema} does not have.")
    if table.columns.has_duplicates or table.empty:
        raise FomkitError(one.label, "gave a table without rows, or with a column twice.")
    numbers, index = column_names(schema, "number"), pd.RangeIndex(1, len(table) + 1, name=LINE)
    columns = {}
    for name in table.columns:
        column = table[name].set_axis(index)
        if name not in numbers:
            columns[name] = column.astype(object).where(column.notna(), "")
            continue
        values = pd.to_numeric(column, errors="coerce")
        wrong = column[values.isna() & column.notna()]
        if len(wrong) and (schema == "TIMINGS" or name not in SIZED):
            raise FomkitError(one.label, f"gave {name} = {wrong.iloc[0]!r} in row {wrong.index[0]}, no number.")
        columns[name] = column.astype(object).where(values.isna(), values) if len(wrong) else values.astype(float)
    return pd.DataFrame(columns)


def ops_by_adapter(path: Path, file_format: str, taken: Collection[str]) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Read a table of ops, and what the adapter said of it.

    Raises
    ------
    FomkitError
        When the adapter fails or gives something else.
    """
    one = _adapter(file_format, taken)
    read = read_by(one, path)
    said = (f"read by {one.label}", *map(printable, map(str, read.notes)))
    return _as_read(one, read.rows, "OPS"), said


def timings_by_adapter(path: Path, file_format: str, taken: Collection[str]) -> ImportedTimings:
    """Read timings.

    Raises
    ------
    FomkitError
        When the adapter fails or gives something else.
    """
    one = _adapter(file_format, taken)
    read = read_by(one, path)
    said = (f"Read by {one.label}.", *map(printable, map(str, read.notes)))
    rows = _as_read(one, read.rows, "TIMINGS")
    return timings_of_table(rows, path, device=printable(str(read.device)), notes=said)
