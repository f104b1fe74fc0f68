"""What others wrote of measured models, by format, as a table of measurements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fomkit.measurements.benchmarker import read_benchmarker, recognise_benchmarker
from fomkit.measurements.dawnbench import read_dawnbench, recognise_dawnbench
from fomkit.measurements.mllog import read_mllog, recognise_mllog
from fomkit.schema import check_table, column_names

if TYPE_CHECKING:
    import pandas as pd

Rows = tuple[Sequence[Mapping[str, Any]], Sequence[str]]
"""Rows by column, None where empty, and what is to be said of them."""


@dataclass(frozen=True)
class Importer:
    """One format: what it is, whether a file has it, and how to read it."""

    title: str
    recognise: Callable[[Path], bool]
    read: Callable[[Path], Rows]


@dataclass(frozen=True)
class ImportedMeasurements:
    """A MEASUREMENTS table, and what the reader noticed."""

    table: pd.DataFrame
    said: tuple[str, ...]


IMPORTERS: Mapping[str, Importer] = {
    "benchmarker": Importer("record of the modular benchmarker (.json)", recognise_benchmarker, read_benchmarker),
    "dawnbench": Importer("DAWNBench entry (.json, its .tsv beside it)", recognise_dawnbench, read_dawnbench),
    "mllog": Importer("MLPerf training log (lines :::MLLOG)", recognise_mllog, read_mllog),
}


def rows_as_table(rows: Sequence[Mapping[str, Any]], where: str) -> pd.DataFrame:
    """Make a MEASUREMENTS table of rows by column; what a row does not have is empty.

    Raises
    ------
    FomkitError
        When a cell cannot be what it is.
    """
    import pandas as pd

    numbers = set(column_names("MEASUREMENTS", "number"))
    columns = {
        name: pd.Series(
            [row.get(name) if name in numbers else row.get(name, "") for row in rows],
            dtype="float64" if name in numbers else "object",
        )
        for name in column_names("MEASUREMENTS")
    }
    table = pd.DataFrame(columns)
    check_table(table, "MEASUREMENTS", where)
    return table


def import_measurements(
    path: Path, file_format: str, *, model: str | None = None, machine: str | None = None
) -> ImportedMeasurements:
    """Read a foreign record of measurements.

    Parameters
    ----------
    path : Path
    file_format : str
        A key of `IMPORTERS`.
    model, machine : str, optional
        Names of the profiles; the file's own words stay in the note.

    Raises
    ------
    FomkitError
        When the file is broken or holds no measurement, as the readers say.
    """
    rows, said = IMPORTERS[file_format].read(path)
    named = [_named(_named(row, "model", model), "machine", machine) for row in rows]
    table = rows_as_table(named, str(path))
    words = [
        f"{what} is {row[what]!r} as the file names it; --{what} says which profile that is"
        for row in named[:1]
        for what, given in (("model", model), ("machine", machine))
        if given is None
    ]
    return ImportedMeasurements(table, (*said, *words))


def _named(row: Mapping[str, Any], what: str, name: str | None) -> Mapping[str, Any]:
    if name is None or row[what] == name:
        return row
    note = "; ".join(part for part in (row.get("note", ""), f"{what} {row[what]!r} in the file") if part)
    return {**row, what: name, "note": note}
