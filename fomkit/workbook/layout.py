"""The sheets, tables and columns of a workbook (``layout.csv``), used by both its writer and its reader."""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from openpyxl.utils import get_column_letter

Role = Literal["input", "condition", "text", "formula", "issued", "state", "idle"]
"""input: for the vendor to change. condition: set by the suite. issued: Python's value when it was written. idle:
an input cell on which no headline of its workbook depends (the role of single cells, not of a column)."""

SHEETS = (
    "Read me", "Summary", "Workloads", "Machines", "Ops", "Timings", "Assumptions", "Checks", "Provenance",
    "History",
)  # fmt: skip
UNKNOWN = "unknown"
_WORDS = ("last_batch", "basis", "party", "source", "evidence")
"""Columns of inputs and conditions that hold no numbers."""
AS_ISSUED = "as issued"
CHANGED = "changed"


@dataclass(frozen=True)
class Column:
    """A column of a table: its key in code, its header with the unit, role, width and number format."""

    key: str
    header: str
    role: Role = "text"
    width: float = 12.0
    form: str = "General"


@dataclass(frozen=True)
class Table:
    """A table: a title in column A, a row of headers below it, then its rows up to the first empty one."""

    sheet: str
    title: str
    columns: tuple[Column, ...]

    def is_number(self, column: Column) -> bool:
        """Return whether a column of inputs or conditions holds numbers; choices hold numbers or words."""
        return column.role in ("input", "condition") and column.key not in _WORDS and self.title != "Assumptions"

    def letter(self, key: str) -> str:
        """Return the letter of a key's column."""
        return get_column_letter(self.position(key))

    def row(self, number: int) -> dict[str, str]:
        """Return the cells of a row by the keys of their columns, in the form used on the same sheet."""
        return {
            column.key: f"{get_column_letter(place)}{number}" for place, column in enumerate(self.columns, start=1)
        }

    def position(self, key: str) -> int:
        """Return the 1-based position of a key's column."""
        return next(index for index, column in enumerate(self.columns, start=1) if column.key == key)


@dataclass(frozen=True)
class Placed:
    """A table with its position: the numbers of its first and last row, and what each row is about."""

    table: Table
    first: int
    last: int
    rows: tuple[Any, ...] = ()

    def at(self, key: str, index: int) -> str:
        """Return a cell by its 0-based row, in the form used on other sheets."""
        return f"{self.table.sheet}!${self.table.letter(key)}${self.first + index}"

    def of(self, row: Any, key: str) -> str:
        """Return a cell by what its row is about, in the form used on other sheets."""
        return self.at(key, self.rows.index(row))

    def column(self, key: str) -> str:
        """Return the cells of a column, in the form used on the same sheet."""
        letter = self.table.letter(key)
        return f"{letter}{self.first}:{letter}{self.last}"

    def block(self, key: str, start: int = 0, stop: int | None = None) -> str:
        """Return the cells of a column from row ``start`` to before ``stop``, in the form used on other sheets."""
        letter = self.table.letter(key)
        last = self.last if stop is None else self.first + stop - 1
        return f"{self.table.sheet}!${letter}${self.first + start}:${letter}${last}"


def _read_tables() -> dict[str, Table]:
    """Read the tables by title, from the table of their columns."""
    found: dict[str, Table] = {}
    rows: Any = csv.DictReader(Path(__file__).with_name("layout.csv").read_text(encoding="utf-8").splitlines())
    for row in rows:
        table = found.setdefault(row["table"], Table(row["sheet"], row["table"], ()))
        column = Column(row["key"], row["header"], row["role"], float(row["width"]), row["form"])
        found[table.title] = replace(table, columns=(*table.columns, column))
    return found


_TABLES = _read_tables()
FACTS = _TABLES["Facts"]
WORKLOADS = _TABLES["Workloads"]
GIVEN = _TABLES["Given times"]
JOBS = _TABLES["Runs on many devices"]
OPS = _TABLES["Ops"]
FAMILIES = _TABLES["Time by kind and source"]
TERMS = _TABLES["From ops to units a day"]
RATIOS = _TABLES["Ratios"]
MERITS = _TABLES["Figure of merit"]
ANSWERS = _TABLES["Answers"]
PARETO = _TABLES["Longest ops"]
ASSUMPTIONS = _TABLES["Assumptions"]
CHECKS = _TABLES["Checks"]
PROVENANCE = _TABLES["Provenance"]
HISTORY = _TABLES["Rounds"]
RUN_KEYS, JOB_KEYS, OP_KEYS = (
    tuple(column.key.removeprefix("was_") for column in table.columns if column.role == "issued")
    for table in (WORKLOADS, JOBS, OPS)
)
"""Keys of columns whose issued value is also in the sheet: of a run, of a run on many devices, of an op."""
INPUT_TABLES = (FACTS, WORKLOADS, GIVEN, JOBS, OPS, ASSUMPTIONS)
"""Tables from which a reader builds the sheet model."""
