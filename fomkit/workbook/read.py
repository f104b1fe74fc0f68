"""Read a workbook back: tables are found by their headers, each cell is checked, and computed cells are ignored.

The cells on which the headlines depend are found by following the references in formulas. `mark_idle` greys out
the other input cells, with the reason.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from openpyxl.utils import column_index_from_string

from fomkit.core.errors import FomkitError, ManyFomkitError
from fomkit.files.xlsx import MAX_COLUMNS, MAX_ROWS, Content, read_contents
from fomkit.files.xlsx_marks import Marks, read_marks
from fomkit.workbook.cells import Page
from fomkit.workbook.input_sheets import FactRow, MachineCells
from fomkit.workbook.layout import ASSUMPTIONS, CHANGED, FACTS, INPUT_TABLES, OPS, SHEETS, UNKNOWN, Column, Table
from fomkit.workbook.records import SheetModel

FOLLOWS = "follows the value"
"""Entry of a bound that equals the value by a formula."""
_COMMA = re.compile(r"\s*[+-]?\d{1,3}(?:[.\s']?\d{3})*,\d+\s*|\s*[+-]?\d+,\d+\s*")
_WITH_UNIT = re.compile(r"\s*[+-]?[\d.,]+(?:[eE][+-]?\d+)?\s*([A-Za-zµ%][\w/%]*)\s*")


def plain_formula(text: str) -> str:
    """Return a formula in a form that is independent of the program that wrote it.

    >>> plain_formula("=$'Machines'.E5 * 2") == plain_formula("=Machines!$E$5*2")
    True

    Texts inside a formula and its comparisons stay what they are:

    >>> plain_formula('=IF(A1<=2,"ok")') == plain_formula('=IF(A1<2,"ok")')
    False
    """
    pieces = text.lstrip().removeprefix("=").split('"')
    outside = [re.sub(r"[\s$']", "", piece).upper() for piece in pieces[::2]]
    if not any("!" in piece for piece in outside):
        outside = [piece.replace(".", "!") for piece in outside]
    pieces[::2] = outside
    return '"'.join(pieces)


def same_formula(one: str, other: str) -> bool:
    """Return whether two formulas are equal, up to differences between programs."""
    return plain_formula(one) == plain_formula(other)


def read_text(cell: Content) -> str | float | None:
    """Return a cell's text; a number in a text cell stays a number."""
    value = cell.value
    if value is None:
        return None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def read_number(where: str, cell: Content) -> float | None:
    """Return a number; None where the cell is empty or holds the word unknown."""
    value = cell.value
    if value is None and cell.formula:
        raise FomkitError(where, f"the formula {cell.formula!r} has no saved value. Write a number.")
    if value is None or value == UNKNOWN:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    shown = repr(value)[:80]
    if isinstance(value, str) and _COMMA.fullmatch(value):
        raise FomkitError(where, f"{shown} has a decimal comma and is text. Write a number, for example 3.35.")
    if isinstance(value, str) and (found := _WITH_UNIT.fullmatch(value)):
        message = f"{shown} has the unit {found[1]!r}. Write the number only, in the unit beside it."
        raise FomkitError(where, message)
    raise FomkitError(where, f"{shown} is no number. Write a number, or the word unknown.")


Place = tuple[str, int, int]
"""Sheet, row and column; row and column are counted from 1."""
_TEXT = re.compile(r'"[^"]*"')
_REFERENCE = re.compile(
    r"(?:'([^']+)'!|([A-Za-z_]\w*)!)?\$?([A-Z]{1,3})\$?(\d+)(?::\$?([A-Z]{1,3})\$?(\d+))?(?![\w(])"
)
HEADLINES = "Summary"


def precedents(formula: str, sheet: str) -> Iterator[Place]:
    """Yield the cells that a formula refers to; a reference without a sheet is to ``sheet``.

    >>> list(precedents('=IF(A1="B2",Ops!$C$3:$C$4,0)', "Summary"))
    [('Summary', 1, 1), ('Ops', 3, 3), ('Ops', 4, 3)]
    """
    for quoted, plain, left, top, right, bottom in _REFERENCE.findall(_TEXT.sub("", formula)):
        there, last = quoted or plain or sheet, min(int(bottom or top), MAX_ROWS)
        first, right = column_index_from_string(left), column_index_from_string(right or left)
        for row in range(int(top), last + 1):
            for column in range(first, min(right, MAX_COLUMNS) + 1):
                yield there, row, column


def _is_state(place: Place, formulas: Mapping[Place, str]) -> bool:
    """Return whether a cell states that something was changed, or shows such a cell."""
    text = formulas[place]
    if _REFERENCE.fullmatch(text.removeprefix("=")):
        text = formulas.get(next(precedents(text, place[0]), place), "")
    return f'"{CHANGED}"' in text


def cells_affecting_headlines(formulas: Mapping[Place, str]) -> frozenset[Place]:
    """Return every cell on which a value of Summary depends, through any number of formulas.

    Cells that state whether something was changed are no headlines: they depend on every input, including those
    that affect nothing.
    """
    waiting = [place for place in formulas if place[0] == HEADLINES and not _is_state(place, formulas)]
    seen, blocks = set(waiting), set[tuple[str, str]]()
    while waiting:
        sheet, row, column = waiting.pop()
        text = formulas.get((sheet, row, column))
        if text is None or (sheet, text) in blocks:
            continue
        blocks.add((sheet, text))
        for place in precedents(text, sheet):
            if place not in seen:
                seen.add(place)
                waiting.append(place)
    return frozenset(seen)


Cells = Mapping[tuple[int, int], Content]
Entry = float | str | None
EMPTY = Content(None)
_OPTIONAL = ("Given times", "Runs on many devices")
"""Tables that a workbook may lack."""
LEADERS = {"Facts": "value", "Given times": "hours"}
"""Column of the value that both bounds of a row may follow, by table."""


@dataclass(frozen=True)
class Rows:
    """The rows of a table: their entries by the keys of the columns, and the number of the first row.

    A number that is unknown or computed is None; a bound that follows its value is `FOLLOWS`.
    """

    table: Table
    first: int
    entries: tuple[Mapping[str, Entry], ...]

    def cell(self, index: int, key: str) -> str:
        """Return the address of a cell, without its sheet."""
        return f"{self.table.letter(key)}{self.first + index}"

    def place(self, index: int, key: str) -> Place:
        """Return a cell's sheet, row and column."""
        return self.table.sheet, self.first + index, self.table.position(key)


@dataclass(frozen=True)
class Book:
    """A workbook's inputs by the title of their table, its cells and marks, and errors in the inputs."""

    path: Path
    tables: Mapping[str, Rows]
    sheets: Mapping[str, Cells]
    marks: Marks
    errors: tuple[FomkitError, ...] = ()

    def check(self) -> None:
        """Raise ManyFomkitError with sheet and cell of each number cell that holds something else."""
        if self.errors:
            raise ManyFomkitError(self.errors)

    @property
    def targets(self) -> frozenset[Entry]:
        """The machines to rate; all other machines are the lab's."""
        return frozenset(row.get("value") for row in self.rows(ASSUMPTIONS) if row.get("name") == "target")

    @cached_property
    def moving(self) -> frozenset[Place]:
        """Every cell on which a headline depends."""
        return cells_affecting_headlines({
            (sheet, *place): cell.formula
            for sheet, cells in self.sheets.items()
            for place, cell in cells.items()
            if cell.formula
        })  # fmt: skip

    def rows(self, table: Table) -> tuple[Mapping[str, Entry], ...]:
        """Return the rows of a table; none where the workbook lacks it."""
        found = self.tables.get(table.title)
        return found.entries if found is not None else ()

    def with_entry(self, title: str, index: int, key: str, value: Entry) -> Book:
        """Return the book with one entry changed."""
        rows = self.tables[title]
        entries = list(rows.entries)
        entries[index] = {**entries[index], key: value}
        return replace(self, tables={**self.tables, title: replace(rows, entries=tuple(entries))})


def _place(path: Path, table: Table, cells: Cells) -> int | None:
    """Find the first data row of a table, and check that every header is in its place."""
    title = next((row for (row, column), cell in cells.items() if column == 1 and cell.value == table.title), None)
    if title is None:
        if table.title in _OPTIONAL:
            return None
        message = f"the table {table.title!r} is missing. Send all sheets."
        raise FomkitError(f"{path}, sheet {table.sheet}", message)
    for position, column in enumerate(table.columns, start=1):
        found = cells.get((title + 1, position), EMPTY).value
        if found != column.header:
            where = f"{path}, sheet {table.sheet}, cell {table.row(title + 1)[column.key]}"
            message = f"the header {column.header!r} was expected, {found!r} is found"
            raise FomkitError(where, f"{message}. Leave columns in their places.")
    return title + 2


def _read_entry(where: str, table: Table, column: Column, number: int, cells: Cells) -> Entry:
    cell = cells.get((number, table.position(column.key)), EMPTY)
    if not table.is_number(column):
        return read_text(cell)
    if cell.formula and table is OPS and column.key == "time":
        return None
    leader = LEADERS.get(table.title)
    if leader and column.key in ("low", "high") and same_formula(cell.formula, f"={table.letter(leader)}{number}"):
        return FOLLOWS
    return read_number(where, cell)


def _table_rows(path: Path, table: Table, cells: Cells, errors: list[FomkitError]) -> Rows | None:
    first = _place(path, table, cells)
    if first is None:
        return None
    entries, number = [], first
    while cells.get((number, 1), EMPTY).value is not None:
        entry: dict[str, Entry] = {}
        names = table.row(number)
        for column in table.columns:
            if column.role not in ("input", "condition", "text"):
                continue
            where = f"{path}, sheet {table.sheet}, cell {names[column.key]}"
            try:
                entry[column.key] = _read_entry(where, table, column, number, cells)
            except FomkitError as error:
                errors.append(error)
        entries.append(entry)
        number += 1
    return Rows(table, first, tuple(entries))


def read_book(path: Path) -> Book:
    """Read a workbook that fomkit wrote, whatever program saved it since."""
    sheets = read_contents(path)
    if missing := [name for name in SHEETS if name not in sheets]:
        message = f"the sheet {missing[0]!r} is missing. Send a workbook that fomkit wrote, with all its sheets."
        raise FomkitError(str(path), message)
    errors: list[FomkitError] = []
    found = {table.title: _table_rows(path, table, sheets[table.sheet], errors) for table in INPUT_TABLES}
    tables = {title: rows for title, rows in found.items() if rows is not None}
    return Book(path, tables, sheets, read_marks(path), tuple(errors))


_COUNTS = {"devices per node": ("node", "system"), "nodes": ("system",), "availability": ("system",)}
"""Scopes at which each count affects a rate."""


def _idle_reason(row: FactRow, sheet_model: SheetModel) -> str:
    """Return why no headline of a sheet model's workbook depends on a fact.

    >>> _idle_reason(FactRow("a", "memory capacity", "", "", None), SheetModel("", "device", (), (), (), ()))
    'no time depends on the size of the memory'
    """
    cases = [case for case in sheet_model.cases if case.machine == row.machine]
    if row.name == "memory capacity":
        return "no time depends on the size of the memory"
    if row.name in _COUNTS and sheet_model.scope not in _COUNTS[row.name]:
        return f"rates are for one {sheet_model.scope}"
    if not cases:
        return "the times of all lines are given (sheet Workloads) and do not depend on it"
    if row.name == "peak":
        return f"no op's time depends on {row.what} on the {row.where} engine"
    if row.name in ("memory bandwidth", "launch cost"):
        return "no op's time depends on it (sheet Ops, how the time is made)"
    return "no line states how often it occurs"


def _reasons(
    sheet_model: SheetModel, machines: MachineCells, moving: frozenset[Place]
) -> Mapping[tuple[int, str], str]:
    """Return the note of each idle figure of the facts, by row and column."""
    notes: dict[tuple[int, str], str] = {}
    for number, row in enumerate(machines.rows, start=machines.placed.first):
        why = _idle_reason(row, sheet_model)
        if (FACTS.sheet, number, FACTS.position("value")) in moving:
            why = "only the value counts; its bounds keep their ratio to it"
            if row.name in ("peak", "memory bandwidth"):
                why = "each op has its own bounds (sheet Ops); these keep their ratio to the value"
        notes |= {(number, key): f"No effect here: {why}." for key in ("value", "low", "high")}
    return notes


def mark_idle(pages: Mapping[str, Page], sheet_model: SheetModel, machines: MachineCells) -> None:
    """Mark every input cell on which no headline depends; a text cell only if none depends on its whole row."""
    cells = [(name, page.sheet[address]) for name, page in pages.items() for address in page.cached]
    moving = cells_affecting_headlines({(name, cell.row, cell.column): str(cell.value) for name, cell in cells})
    notes = _reasons(sheet_model, machines, moving)
    for name, page in pages.items():
        rows = {row for row, position, _ in page.inputs if (name, row, position) in moving}
        for row, position, column in page.inputs:
            is_word = column.form == "General"
            if (row in rows) if is_word else (name, row, position) in moving:
                continue
            page.idle(row, position, column, notes.get((row, column.key), "") if name == FACTS.sheet else "")
