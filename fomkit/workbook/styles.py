"""How cells look: colour by role, so that inputs are seen at a glance."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from openpyxl import Workbook
    from openpyxl.styles import NamedStyle

LEGEND = {
    "input": "blue on yellow: for you to change",
    "idle": "grey on white: moves nothing in this workbook; the note in the cell says why",
    "condition": "blue on grey: set by the suite or the workload; a change is a deviation",
    "formula": "black: computed in this workbook",
    "issued": "grey italic: the value when the workbook was issued, computed in Python",
    "state": "green: as issued or ok; orange: changed; red: error",
}
_FILLS = {"input": "FFF9D9", "condition": "ECEFF4", "header": "1F3864", "state": "F3F6F3"}
_COLOURS = {
    "input": "0000C8",
    "condition": "0000C8",
    "idle": "7F7F7F",
    "issued": "7F7F7F",
    "header": "FFFFFF",
    "title": "1F3864",
}


def style_name(role: str, form: str = "General") -> str:
    """Name the style of a role with a number format."""
    return role if form == "General" else f"{role} {form}"


def _style(role: str, form: str) -> NamedStyle:
    from openpyxl.styles import Alignment, Border, Font, NamedStyle, PatternFill, Side

    style = NamedStyle(style_name(role, form))
    size = {"title": 13, "headline": 16}.get(role, 10)
    bold = role in ("header", "title", "headline")
    style.font = Font("Calibri", size, bold=bold, italic=role == "issued", color=_COLOURS.get(role, "000000"))
    if role in _FILLS:
        style.fill = PatternFill("solid", fgColor=_FILLS[role])
    if role == "header":
        style.alignment = Alignment(wrap_text=True, vertical="center")
    if role == "prose":
        style.alignment = Alignment(wrap_text=True, vertical="top")
    if role == "input":
        edge = Side("hair", color="A0A0A0")
        style.border = Border(edge, edge, edge, edge)
    style.number_format = form
    return style


def add_styles(book: Workbook, pairs: set[tuple[str, str]]) -> None:
    """Register a style for each role and number format."""
    for role, form in sorted(
        pairs | {(role, "General") for role in ("text", "prose", "header", "title", "headline")}
    ):
        book.add_named_style(_style(role, form))
