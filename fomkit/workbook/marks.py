"""What a sheet shows of itself while somebody types: states in colour, warnings of figures that cannot be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fomkit.workbook.layout import AS_ISSUED, CHANGED, Placed

if TYPE_CHECKING:
    from openpyxl.worksheet.worksheet import Worksheet

_COLOURS = {AS_ISSUED: "C6EFCE", "ok": "C6EFCE", "meets": "C6EFCE", CHANGED: "FFD08A", "error": "FF9A9A"}


def _block(placed: Placed, key: str) -> str:
    letter = placed.table.letter(key)
    return f"{letter}{placed.first}:{letter}{placed.last}"


def mark_table(sheet: Worksheet, placed: Placed) -> None:
    """Colour the states of a table, and watch over its figures for input."""
    from openpyxl.formatting.rule import Rule
    from openpyxl.styles import PatternFill
    from openpyxl.styles.differential import DifferentialStyle
    from openpyxl.worksheet.datavalidation import DataValidation

    if placed.last < placed.first:
        return
    for column in placed.table.columns:
        if column.role == "state":
            for word, colour in _COLOURS.items():
                fill = PatternFill("solid", bgColor=colour)
                rule = Rule("cellIs", operator="equal", formula=[f'"{word}"'], dxf=DifferentialStyle(fill=fill))
                sheet.conditional_formatting.add(_block(placed, column.key), rule)
        elif column.role == "input" and column.form != "General":
            watch = DataValidation(type="decimal", operator="greaterThan", formula1="0", errorStyle="warning")
            watch.error = "A figure above 0 was expected, in the unit of the sheet; or the word unknown."
            watch.errorTitle = "Not a figure"
            sheet.add_data_validation(watch)
            watch.add(_block(placed, column.key))
