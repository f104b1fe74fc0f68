"""Write tables to a sheet from top to bottom: values and formulas of cells, their styles, and input checks."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

from openpyxl import Workbook
from openpyxl.comments import Comment
from openpyxl.formatting.rule import Rule
from openpyxl.styles import Alignment, Border, Font, NamedStyle, PatternFill, Side, differential
from openpyxl.styles.numbers import NumberFormat
from openpyxl.utils import get_column_letter
from openpyxl.worksheet.datavalidation import DataValidation
from openpyxl.worksheet.worksheet import Worksheet

from fomkit.core.errors import printable
from fomkit.files.csv import FORMULA_STARTS
from fomkit.workbook.layout import (
    ANSWERS,
    AS_ISSUED,
    CHANGED,
    GIVEN,
    MERITS,
    RATIOS,
    UNKNOWN,
    Column,
    Placed,
    Table,
)

MAX_TEXT = 32_767
"""Largest number of characters in a cell; spreadsheet programs cut longer texts silently."""


@dataclass(frozen=True)
class Formula:
    """A formula without its leading =, its value in Python, and whether a number may be written over it."""

    text: str
    value: float | str
    is_input: bool = False


Value = str | float | int | Formula | None
"""Content of a cell; None leaves it empty."""


def known(value: float | None) -> float | str:
    """Return a number as a cell's value: an unknown number is a word, never empty and never 0.

    >>> known(None), known(float("nan")), known(2.5)
    ('unknown', 'unknown', 2.5)
    """
    return UNKNOWN if value is None or not math.isfinite(value) else value


def cell_text(text: str) -> str:
    """Return a text that a cell can hold: without control characters, and visibly cut if it is too long.

    >>> len(cell_text("x" * 40_000)), cell_text("x" * 40_000)[-28:]
    (32767, 'x … [cut, 40,000 characters]')
    """
    shown = printable(text)
    if len(shown) <= MAX_TEXT:
        return shown
    mark = f" … [cut, {len(shown):,} characters]"
    return shown[: MAX_TEXT - len(mark)] + mark


LEGEND = {
    "input": "blue on yellow: for you to change",
    "idle": "grey on white: no effect in this workbook; the note in the cell says why",
    "condition": "blue on grey: set by the suite or the workload; a change is a deviation",
    "formula": "black: computed in this workbook",
    "issued": "grey italic: the value when the workbook was issued, computed by Python",
    "state": "green: as issued or ok; orange: changed; red: error",
}
_FILLS = {"input": "FFF9D9", "condition": "ECEFF4", "header": "1F3864", "state": "F3F6F3"}
_ROLE_COLOURS = {
    "input": "0000C8", "condition": "0000C8", "idle": "7F7F7F", "issued": "7F7F7F", "header": "FFFFFF",
    "title": "1F3864",
}  # fmt: skip


def style_name(role: str, form: str = "General") -> str:
    """Return the name of the style of a role with a number format."""
    return role if form == "General" else f"{role} {form}"


def add_styles(book: Workbook, pairs: set[tuple[str, str]]) -> None:
    """Register a style for each role and number format."""
    plain = {(role, "General") for role in ("text", "prose", "header", "title", "headline")}
    for role, form in sorted(pairs | plain):
        style = NamedStyle(style_name(role, form))
        size = {"title": 13, "headline": 16}.get(role, 10)
        bold = role in ("header", "title", "headline")
        style.font = Font(
            "Calibri", size, bold=bold, italic=role == "issued", color=_ROLE_COLOURS.get(role, "000000")
        )
        if role in _FILLS:
            style.fill = PatternFill("solid", fgColor=_FILLS[role])
        if role in ("header", "prose"):
            style.alignment = Alignment(wrap_text=True, vertical="center" if role == "header" else "top")
        if role == "input":
            edge = Side("hair", color="A0A0A0")
            style.border = Border(edge, edge, edge, edge)
        style.number_format = form
        book.add_named_style(style)


_STATE_COLOURS = {AS_ISSUED: "C6EFCE", "ok": "C6EFCE", "met": "C6EFCE", CHANGED: "FFD08A", "error": "FF9A9A"}

_NO_SPREAD = NumberFormat(numFmtId=200, formatCode='"none stated"')
"""Number format of the bounds of an interval that was not stated; no other format has this number."""


def _mark_no_spread(sheet: Worksheet, placed: Placed) -> None:
    """Show words for equal bounds of an interval: the time was given without a spread."""
    for column in placed.table.columns:
        if column.key.endswith("low"):
            pair = column.key, f"{column.key.removesuffix('low')}high"
            low, high = (f"${placed.table.letter(key)}{placed.first}" for key in pair)
            dxf = differential.DifferentialStyle(numFmt=_NO_SPREAD)
            for key in pair:
                rule = Rule("expression", formula=[f"AND(ISNUMBER({low}),{low}={high})"], dxf=dxf)
                sheet.conditional_formatting.add(placed.column(key), rule)


def mark_table(sheet: Worksheet, placed: Placed) -> None:
    """Colour the states of a table, mark missing spreads, and add checks of the input cells."""
    if placed.last < placed.first:
        return
    if placed.table in (GIVEN, MERITS, RATIOS, ANSWERS):
        _mark_no_spread(sheet, placed)
    for column in placed.table.columns:
        if column.role == "state":
            for word, colour in _STATE_COLOURS.items():
                fill = PatternFill("solid", bgColor=colour)
                dxf = differential.DifferentialStyle(fill=fill)
                rule = Rule("cellIs", operator="equal", formula=[f'"{word}"'], dxf=dxf)
                sheet.conditional_formatting.add(placed.column(column.key), rule)
        elif column.role == "input" and column.form != "General":
            watch = DataValidation(type="decimal", operator="greaterThan", formula1="0", errorStyle="warning")
            watch.error = "Expected a figure above 0, in the unit of the sheet, or the word unknown."
            watch.errorTitle = "Not a figure"
            sheet.add_data_validation(watch)
            watch.add(placed.column(column.key))


_HEADER_HEIGHT, _HEADER_LINE = 40, 13
"""Height of a header of three lines, and of one more line [points]."""
_NOTE_HEIGHT, _NOTE_WIDTH = 70, 320
"""Size of a note in a cell [pixels]."""
_LINE_HEIGHT, _LINE_LETTERS = 14, 100
"""Height of a line of prose [points], and the smallest number of characters that it holds."""
_FOLDED = ("Workloads", "Ops")
"""Tables whose columns with issued inputs are folded away."""


def _role(value: Value, column: Column, *, is_condition: bool) -> str:
    if column.role != "input":
        return column.role
    if isinstance(value, Formula) and not value.is_input:
        return "formula"
    return "condition" if is_condition else "input"


class Page:
    """One sheet on which tables are written below each other.

    `cached`: the value of every formula that was written, by its address.
    `inputs` (row, position, Column): every input cell that was written.
    """

    def __init__(self, sheet: Worksheet) -> None:
        self.sheet = sheet
        self.cached: dict[str, float | str] = {}
        self.inputs: list[tuple[int, int, Column]] = []
        self.row = 1

    def line(self, text: str, style: str = "text") -> None:
        """Write one line of text."""
        self._put(self.row, 1, text, style)
        if style == "prose":
            self.sheet.row_dimensions[self.row].height = _LINE_HEIGHT * math.ceil(len(text) / _LINE_LETTERS)
        self.row += 1

    def count(self, label: str, value: Formula) -> None:
        """Write one line with a label and a computed figure."""
        self._put(self.row, 1, label, "title")
        self._put(self.row, 2, value, "title")
        self.row += 1

    def gap(self) -> None:
        """Leave a row empty."""
        self.row += 1

    def intro(self, text: str) -> None:
        """Write what the sheet is about, above its tables."""
        self.line(text)
        self.gap()

    def idle(self, row: int, position: int, column: Column, why: str) -> None:
        """Mark an input cell that affects no headline, and write the reason in a note."""
        cell = self.sheet.cell(row, position)
        cell.style = style_name("idle", column.form)
        if why:
            self.note(row, position, why)

    def note(self, row: int, position: int, text: str) -> None:
        """Attach a note to a cell."""
        self.sheet.cell(row, position).comment = Comment(text, "fomkit", _NOTE_HEIGHT, _NOTE_WIDTH)

    def first_row(self) -> int:
        """Return the number of the first data row of the next table."""
        return self.row + 2

    def _header_height(self, table: Table) -> float:
        """Return the height [points] that shows the headers whole; bold letters need a tenth more width."""
        widths = (
            self.sheet.column_dimensions[get_column_letter(at)].width for at in range(1, 1 + len(table.columns))
        )
        heads = zip(table.columns, widths, strict=True)
        lines = max(len(wrap(column.header, max(1, int(0.9 * width)))) for column, width in heads)
        return max(_HEADER_HEIGHT, _HEADER_LINE * lines)

    def table(
        self, table: Table, rows: Sequence[Sequence[Value]], title: str = "", conditions: Collection[int] = (),
        about: Sequence[Any] = (),
    ) -> Placed:  # fmt: skip
        """Write a table; rows have one value for each column; inputs in rows of ``conditions`` are conditions.

        `about`: what each row is about, by which its cells are found later.
        """
        self._put(self.row, 1, title or table.title, "title")
        for position, column in enumerate(table.columns, start=1):
            self._put(self.row + 1, position, column.header, "header")
            dimension = self.sheet.column_dimensions[get_column_letter(position)]
            dimension.width = max(column.width, dimension.width if dimension.customWidth else 0)
            if table.title in _FOLDED and (column.role == "issued" or column.key == "dimensions"):
                dimension.outlineLevel, dimension.hidden = 1, True
        self.sheet.row_dimensions[self.row + 1].height = self._header_height(table)
        first = self.first_row()
        for index, row in enumerate(rows):
            for position, (value, column) in enumerate(zip(row, table.columns, strict=True), start=1):
                role = _role(value, column, is_condition=index in conditions)
                if role == "input" and value is not None:
                    self.inputs.append((first + index, position, column))
                self._put(first + index, position, value, style_name(role, column.form))
        self.row = first + len(rows) + 1
        placed = Placed(table, first, first + len(rows) - 1, tuple(about))
        mark_table(self.sheet, placed)
        return placed

    def _put(self, row: int, position: int, value: Value, style: str) -> None:
        if value is None:
            return
        cell = self.sheet.cell(row, position)
        cell.style = style
        if isinstance(value, Formula):
            cell.value = f"={value.text}"
            self.cached[cell.coordinate] = value.value
        elif isinstance(value, str):
            cell.value = text = cell_text(value)
            cell.data_type = "s"
            if text.startswith(FORMULA_STARTS):
                cell.quotePrefix = True
        else:
            cell.value = value
