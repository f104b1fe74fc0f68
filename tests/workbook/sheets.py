"""Find cells of a workbook by the values of other cells in their row."""

from __future__ import annotations

from typing import Any

from openpyxl import Workbook
from openpyxl.cell.cell import Cell

from fomkit.workbook.layout import Table


def find(book: Workbook, table: Table, key: str, **known: str) -> Cell:
    """Return the cell of a column in the first row of a table whose other columns have these values."""
    sheet: Any = book[table.sheet]
    start = next(row for row in range(1, sheet.max_row + 1) if sheet.cell(row, 1).value == table.title)
    for row in range(start + 2, sheet.max_row + 1):
        if all(sheet.cell(row, table.position(name)).value == value for name, value in known.items()):
            cell: Cell = sheet.cell(row, table.position(key))
            return cell
    raise AssertionError(f"no row of {table.title} has {known}")
