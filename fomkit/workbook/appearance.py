"""How a returned workbook shows itself: sheets, names, what is hidden, number formats, comments, calculation."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from openpyxl.utils import range_boundaries

from fomkit.tables.xlsx import Content, cell_name
from fomkit.tables.xlsx_colours import is_legible
from fomkit.tables.xlsx_marks import SheetMarks
from fomkit.workbook.changes import Finding
from fomkit.workbook.layout import letters
from fomkit.workbook.read import Book, Cells
from fomkit.workbook.read_cells import plain_formula, same_formula

_ANYWHERE = re.compile(r"\[\$-[^\]]*\]|\\")
"""Marks of language and of plain letters, which programs add to a number format and leave out."""
_SMALLEST = 4.0
"""Height of letters below which nobody reads them [points]."""
_SHOWS = re.compile(r"[0#?@]|general", re.IGNORECASE)
"""What a number format that shows anything of a cell holds."""
_SHOWN = 300
"""Letters of a comment that are shown."""


def plain_form(form: str) -> str:
    r"""Write a number format without what programs write differently.

    Examples
    --------
    >>> plain_form(r"[$-409]0.00\ %"), plain_form("GENERAL")
    ('0.00 %', 'general')
    """
    return _ANYWHERE.sub("", form).lower()


def _sheets(issued: Book, returned: Book) -> Iterator[Finding]:
    for title, now in returned.marks.sheets.items():
        was = issued.marks.sheets.get(title)
        if was is None:
            yield Finding(title, "label", f"this sheet was not issued ({now.state}). It is left out.")
            continue
        if now.state not in (was.state, "visible"):
            yield Finding(title, "hidden", f"the sheet is {now.state}, {was.state} was issued. Show it.")
        yield from _hidden(issued, title, was, now)
        for place in sorted(now.comments.keys() - was.comments.keys()):
            said = now.comments[place][:_SHOWN]
            yield Finding(f"{title}!{place}", "label", f"a comment: {said!r}. Figures count only in cells.")
        if now.shapes > was.shapes:
            yield Finding(title, "label", f"{now.shapes - was.shapes} text boxes or pictures were added.")


def _hidden(issued: Book, title: str, was: SheetMarks, now: SheetMarks) -> Iterator[Finding]:
    filled = issued.sheets[title]
    rows, columns = {row for row, _ in filled}, {column for _, column in filled}
    for what, hidden in (
        ("row", [str(row) for row in sorted((now.hidden_rows - was.hidden_rows) & rows)]),
        ("column", [letters(one) for one in sorted((now.hidden_columns - was.hidden_columns) & columns)]),
    ):
        if hidden:
            many = f"{what}s are" if len(hidden) > 1 else f"{what} is"
            yield Finding(title, "hidden", f"{', '.join(hidden)}: the {many} hidden, and stood open when issued.")


def _names(issued: Book, returned: Book) -> Iterator[Finding]:
    was, now = issued.marks.names, returned.marks.names
    for name, cell in was.items():
        if not same_formula(cell, now.get(name, "")):
            said = f"the defined name pointed to {cell}, and points to {now.get(name) or 'nothing'} now."
            yield Finding(name, "label", said)
    for name in now.keys() - was.keys():
        yield Finding(name, "label", f"the defined name was not issued; it points to {now[name]}.")


def _forms(issued: Book, returned: Book) -> Iterator[Finding]:
    """Tell of number formats of figures, cells that changed alike in one finding."""
    alike: dict[tuple[str, str, str], list[str]] = {}
    for sheet, cells in issued.sheets.items():
        there = returned.sheets[sheet]
        for place, was in cells.items():
            now = there.get(place)
            if now is None or isinstance(now.value, str | bool) or plain_form(now.form) == plain_form(was.form):
                continue
            alike.setdefault((sheet, was.form, now.form), []).append(cell_name(*place))
    for (sheet, old, new), places in alike.items():
        more = f" (and {len(places) - 1} more cells)" if len(places) > 1 else ""
        said = f"the number format {old} was issued, {new} is found{more}. Look at the cells themselves."
        yield Finding(f"{sheet}!{places[0]}", "format", said)


def _lost(cell: Content, ink: str = "", ground: str = "") -> str:
    """Say why nobody can read a cell; "" where one can."""
    colours = (ink or cell.ink, ground or cell.ground)
    if not is_legible(*colours):
        return f"its text has the colour {colours[0]} on {colours[1]}"
    return f"its letters are {cell.size:g} points high" if cell.size < _SMALLEST else ""


def _unreadable(issued: Book, returned: Book) -> Iterator[Finding]:
    """Tell of texts that are lost on their ground, or too small, and were not when issued."""
    for sheet, cells in returned.sheets.items():
        was = issued.sheets.get(sheet, {})
        for place, cell in sorted(cells.items()):
            why = _lost(cell)
            if why and not (place in was and _lost(was[place])):
                yield Finding(f"{sheet}!{cell_name(*place)}", "hidden", f"cannot be read: {why}.")


def _conditions(issued: Book, returned: Book) -> Iterator[Finding]:
    """Tell of conditional formats that make a text unreadable."""
    for sheet, marks in returned.marks.sheets.items():
        known = issued.marks.sheets[sheet].conditions if sheet in issued.marks.sheets else ()
        looks = {(one.ink, one.ground, one.form) for one in known}
        for one in marks.conditions:
            if (one.ink, one.ground, one.form) in looks:
                continue
            cells = [cell for area in one.area.split() for cell in _cells_in(returned.sheets[sheet], area)]
            why = next(filter(None, (_lost(cell, one.ink, one.ground) for cell in cells or [Content(None)])), "")
            if one.form and not _SHOWS.search(one.form):
                why = f"its number format, {one.form}, shows nothing"
            if why:
                said = f"a conditional format makes cells unreadable: {why}."
                yield Finding(f"{sheet}!{one.area.partition(' ')[0].partition(':')[0]}", "hidden", said)


def _cells_in(cells: Cells, area: str) -> Iterator[Content]:
    """Walk over the filled cells of an area."""
    try:
        left, top, right, bottom = range_boundaries(area)
    except (TypeError, ValueError):
        return
    for (row, column), cell in cells.items():
        if (top or 1) <= row <= (bottom or row) and (left or 1) <= column <= (right or column):
            yield cell


def _charts(issued: Book, returned: Book) -> Iterator[Finding]:
    """Tell of charts that read other cells than those issued."""
    for sheet, now in returned.marks.sheets.items():
        if sheet not in issued.marks.sheets:
            continue
        was, are = (
            Counter({(part, plain_formula(cells)): count for (part, cells), count in marks.series.items()})
            for marks in (issued.marks.sheets[sheet], now)
        )
        gone, new = (", ".join(sorted({cells for _, cells in one})) for one in (was - are, are - was))
        if new:
            yield Finding(
                sheet, "chart", f"a chart reads {new}; {gone or 'nothing more'} was issued. Look at cells."
            )
        elif gone:
            yield Finding(sheet, "chart", f"no chart reads {gone} now, and one did when issued.")


def appearance(issued: Book, returned: Book) -> Iterator[Finding]:
    """Walk over what would make a reader see something else than the cells hold."""
    yield from _sheets(issued, returned)
    yield from _names(issued, returned)
    yield from _forms(issued, returned)
    yield from _unreadable(issued, returned)
    yield from _conditions(issued, returned)
    yield from _charts(issued, returned)
    said = returned.marks.calculation
    if said and said != issued.marks.calculation:
        advice = "the values that it shows may not follow from its inputs. All is computed anew here."
        yield Finding(str(returned.path), "calculation", f"calculation is set to {said}: {advice}")
