"""A sheet that is filled from top to bottom, table by table."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from fomkit.workbook.cells import Formula, Value, cell_text, is_live
from fomkit.workbook.layout import Column, Placed, Table, letters
from fomkit.workbook.marks import mark_table
from fomkit.workbook.styles import style_name

if TYPE_CHECKING:
    from openpyxl.worksheet.worksheet import Worksheet

_HEADER_HEIGHT = 40
"""Room for three lines of a header [points]."""
_NOTE_HEIGHT, _NOTE_WIDTH = 70, 320
"""Size of a note in a cell [pixels]."""
_LINE_HEIGHT, _LINE_LETTERS = 14, 100
"""Height of a line of prose [points] and the letters that it holds at the least."""
_FOLDED = ("Workloads", "Ops")
"""Tables of which the copies of inputs are folded away."""
Cached = dict[str, float | str]
"""Value of each formula cell of a sheet, by its address."""


def _role(value: Value, column: Column, *, is_condition: bool) -> str:
    if column.role != "input":
        return column.role
    if isinstance(value, Formula) and not value.is_input:
        return "formula"
    return "condition" if is_condition else "input"


class Page:
    """One sheet on which tables are put below each other.

    Parameters
    ----------
    sheet : Worksheet
        An empty one.

    Attributes
    ----------
    cached : dict
        The value of every formula that was written.
    inputs : list of (row, position, Column)
        Every cell that was written for somebody to change.
    """

    def __init__(self, sheet: Worksheet) -> None:
        self.sheet = sheet
        self.cached: Cached = {}
        self.inputs: list[tuple[int, int, Column]] = []
        self.row = 1

    def line(self, text: str, style: str = "text") -> None:
        """Write one line of text."""
        self._put(self.row, 1, text, style_name(style))
        if style == "prose":
            self.sheet.row_dimensions[self.row].height = _LINE_HEIGHT * math.ceil(len(text) / _LINE_LETTERS)
        self.row += 1

    def count(self, label: str, value: Formula) -> None:
        """Write one line of a label and a computed figure."""
        self._put(self.row, 1, label, style_name("title"))
        self._put(self.row, 2, value, style_name("title"))
        self.row += 1

    def gap(self) -> None:
        """Leave a row empty."""
        self.row += 1

    def idle(self, row: int, position: int, column: Column, why: str) -> None:
        """Show that a cell for input moves nothing, and say why in a note."""
        from openpyxl.comments import Comment

        cell = self.sheet.cell(row, position)
        cell.style = style_name("idle", column.form)
        if why:
            cell.comment = Comment(why, "fomkit", _NOTE_HEIGHT, _NOTE_WIDTH)

    def first_row(self) -> int:
        """Give the number of the first row of the next table."""
        return self.row + 2

    def table(
        self, table: Table, rows: Sequence[Sequence[Value]], title: str = "", conditions: Collection[int] = ()
    ) -> Placed:
        """Write a table; its rows have one value for each column, those numbered in ``conditions`` no inputs."""
        self._put(self.row, 1, title or table.title, style_name("title"))
        for position, column in enumerate(table.columns, start=1):
            self._put(self.row + 1, position, column.header, style_name("header"))
            self._widen(position, column, table.title in _FOLDED)
        self.sheet.row_dimensions[self.row + 1].height = _HEADER_HEIGHT
        first = self.first_row()
        for index, row in enumerate(rows):
            for position, (value, column) in enumerate(zip(row, table.columns, strict=True), start=1):
                role = _role(value, column, is_condition=index in conditions)
                if role == "input" and value is not None:
                    self.inputs.append((first + index, position, column))
                self._put(first + index, position, value, style_name(role, column.form))
        self.row = first + len(rows) + 1
        placed = Placed(table, first, first + len(rows) - 1)
        mark_table(self.sheet, placed)
        return placed

    def _widen(self, position: int, column: Column, folded: bool) -> None:
        dimension = self.sheet.column_dimensions[letters(position)]
        dimension.width = max(column.width, dimension.width if dimension.customWidth else 0)
        if folded and (column.role == "issued" or column.key == "dimensions"):
            dimension.outlineLevel, dimension.hidden = 1, True

    def _put(self, row: int, position: int, value: Value, style: str) -> None:
        if value is None:
            return
        cell = self.sheet.cell(row, position)
        cell.style = style
        if isinstance(value, Formula):
            cell.value = f"={value.text}"
            self.cached[cell.coordinate] = value.value
        elif isinstance(value, str):
            text = cell_text(value)
            cell.value = text
            cell.data_type = "s"
            if is_live(text):
                cell.quotePrefix = True
        else:
            cell.value = value
