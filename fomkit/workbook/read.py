"""A workbook read back: its tables by their headers, each cell checked, nothing taken from computed cells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from fomkit.errors import FomkitError, ManyFomkitError
from fomkit.tables.xlsx import Content, read_contents
from fomkit.tables.xlsx_marks import Marks, read_marks
from fomkit.workbook.dependence import Place, behind_headlines
from fomkit.workbook.layout import ASSUMPTIONS, INPUT_TABLES, OPS, SHEETS, Column, Table, letters
from fomkit.workbook.read_cells import FOLLOWS, is_number_column, read_number, read_text, same_formula

Cells = Mapping[tuple[int, int], Content]
Entry = float | str | None
_EMPTY = Content(None)
_OPTIONAL = ("Given times",)
"""Tables that a workbook may lack."""
LEADERS = {"Facts": "value", "Given times": "hours"}
"""The column that both ends of a row may follow, by table."""


@dataclass(frozen=True)
class Rows:
    """The rows of a table: what each says, by the keys of its columns, and the number of the first.

    A number that is unknown or computed is None; an end that follows its value is `FOLLOWS`.
    """

    table: Table
    first: int
    entries: tuple[Mapping[str, Entry], ...]

    def cell(self, index: int, key: str) -> str:
        """Name a cell, without its sheet."""
        return f"{self.table.letter(key)}{self.first + index}"

    def place(self, index: int, key: str) -> Place:
        """Give a cell's sheet, row and column."""
        return self.table.sheet, self.first + index, self.table.position(key)


@dataclass(frozen=True)
class Book:
    """A workbook's inputs by the title of their table, its cells and marks, and what is wrong with inputs."""

    path: Path
    tables: Mapping[str, Rows]
    sheets: Mapping[str, Cells]
    marks: Marks
    errors: tuple[FomkitError, ...] = ()

    def check(self) -> None:
        """Raise when cells for numbers hold something else.

        Raises
        ------
        ManyFomkitError
            With sheet and cell of each.
        """
        if self.errors:
            raise ManyFomkitError(self.errors)

    @property
    def targets(self) -> frozenset[Entry]:
        """The machines to rate; every other machine is the lab's own."""
        return frozenset(row.get("value") for row in self.rows(ASSUMPTIONS) if row.get("name") == "target")

    @cached_property
    def moving(self) -> frozenset[Place]:
        """Give every cell that a headline hangs on."""
        return behind_headlines({
            (sheet, *place): cell.formula
            for sheet, cells in self.sheets.items()
            for place, cell in cells.items()
            if cell.formula
        })  # fmt: skip

    def rows(self, table: Table) -> tuple[Mapping[str, Entry], ...]:
        """Give the rows of a table; none where the workbook lacks it."""
        found = self.tables.get(table.title)
        return found.entries if found is not None else ()

    def with_entry(self, title: str, index: int, key: str, value: Entry) -> Book:
        """Give the book with one entry changed."""
        rows = self.tables[title]
        entries = list(rows.entries)
        entries[index] = {**entries[index], key: value}
        return replace(self, tables={**self.tables, title: replace(rows, entries=tuple(entries))})


def _place(path: Path, table: Table, cells: Cells) -> int | None:
    """Find the row of a table's headers, and check that every one stands where it was put."""
    title = next((row for (row, column), cell in cells.items() if column == 1 and cell.value == table.title), None)
    if title is None:
        if table.title in _OPTIONAL:
            return None
        raise FomkitError(
            f"{path}, sheet {table.sheet}", f"the table {table.title!r} is missing. Send all sheets."
        )
    for position, column in enumerate(table.columns, start=1):
        found = cells.get((title + 1, position), _EMPTY).value
        if found != column.header:
            raise FomkitError(
                f"{path}, sheet {table.sheet}, cell {letters(position)}{title + 1}",
                f"the header {column.header!r} was expected, {found!r} is found. Leave columns in their places.",
            )
    return title + 2


def _entry(where: str, table: Table, column: Column, number: int, cells: Cells) -> Entry:
    cell = cells.get((number, table.position(column.key)), _EMPTY)
    if not is_number_column(table, column):
        return read_text(cell)
    if cell.formula and table is OPS and column.key == "time":
        return None
    leader = LEADERS.get(table.title)
    if leader and column.key in ("low", "high") and same_formula(cell.formula, f"={table.letter(leader)}{number}"):
        return FOLLOWS
    return read_number(where, cell)


def _rows(path: Path, table: Table, cells: Cells, errors: list[FomkitError]) -> Rows | None:
    first = _place(path, table, cells)
    if first is None:
        return None
    entries, number = [], first
    while cells.get((number, 1), _EMPTY).value is not None:
        entry: dict[str, Entry] = {}
        for position, column in enumerate(table.columns, start=1):
            if column.role not in ("input", "condition", "text"):
                continue
            where = f"{path}, sheet {table.sheet}, cell {letters(position)}{number}"
            try:
                entry[column.key] = _entry(where, table, column, number, cells)
            except FomkitError as error:
                errors.append(error)
        entries.append(entry)
        number += 1
    return Rows(table, first, tuple(entries))


def _tables(path: Path, sheets: Mapping[str, Cells], errors: list[FomkitError]) -> Iterator[tuple[str, Rows]]:
    for table in INPUT_TABLES:
        rows = _rows(path, table, sheets[table.sheet], errors)
        if rows is not None:
            yield table.title, rows


def read_book(path: Path) -> Book:
    """Read a workbook that fomkit wrote, whoever saved it since.

    Raises
    ------
    FomkitError
        When it is no workbook, holds macros or links, lacks a sheet or a table, or has shifted columns; what
        single cells hold is for `Book.check`.
    """
    sheets = read_contents(path)
    missing = [name for name in SHEETS if name not in sheets]
    if missing:
        raise FomkitError(
            str(path),
            f"the sheet {missing[0]!r} is missing. Send a workbook that fomkit wrote, with all its sheets.",
        )
    errors: list[FomkitError] = []
    tables = dict(_tables(path, sheets, errors))
    return Book(path, tables, sheets, read_marks(path), tuple(errors))
