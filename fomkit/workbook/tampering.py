"""Find changes outside the inputs of a returned workbook: labels, constants, formulas, and its appearance."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from openpyxl.utils import get_column_letter, range_boundaries

from fomkit.files.xlsx import Content, cell_name, is_legible
from fomkit.files.xlsx_marks import SheetMarks
from fomkit.workbook.changes import Finding, row_name, same_entry
from fomkit.workbook.layout import Column
from fomkit.workbook.read import EMPTY, FOLLOWS, Book, Cells, Entry, Rows, plain_formula, read_text, same_formula

_KIND_OF_TEXT = {"unit": "unit"} | dict.fromkeys(("dtype", "engine", "what", "where"), "precision")
_NEAR = 1e-6
"""Relative difference below which values of the same formula by different programs are equal."""


def _text_findings(rows: Rows, returned: Book) -> Iterator[Finding]:
    texts: list[Column] = [column for column in rows.table.columns if column.role == "text"]
    for index, (was, now) in enumerate(zip(rows.entries, returned.rows(rows.table), strict=True)):
        for column in texts:
            if not same_entry(was.get(column.key), now.get(column.key)):
                kind = _KIND_OF_TEXT.get(column.key, "label")
                message = f"{row_name(rows.table, was)}: {column.header} was {was.get(column.key)!r}, is "
                advice = "It has no effect; ask the vendor." if kind == "precision" else "It has no effect."
                where = f"{rows.table.sheet}!{rows.cell(index, column.key)}"
                yield Finding(where, kind, f"{message}{now.get(column.key)!r}. {advice}")


def _checked_columns(issued: Book, sheet: str) -> dict[tuple[int, int], tuple[Column, bool, Entry]]:
    """Return the cells of inputs, conditions and texts: column, whether it is for numbers, and the entry."""
    return {
        (rows.first + index, place): (column, rows.table.is_number(column), row.get(column.key))
        for rows in issued.tables.values()
        if rows.table.sheet == sheet
        for index, row in enumerate(rows.entries)
        for place, column in enumerate(rows.table.columns, start=1)
        if column.role in ("input", "condition", "text")
    }


def _read_plain(cell: Content) -> Entry:
    value = read_text(cell)
    return value.replace("\r\n", "\n") if isinstance(value, str) else value


def _is_shown(old: Content, new: Content) -> bool:
    """Return whether a formula shows its issued value; True where a program saved no value."""
    was, now = _read_plain(old), _read_plain(new)
    if was is None or now is None:
        return True
    if isinstance(was, float) and isinstance(now, float):
        return abs(was - now) <= _NEAR * max(abs(was), abs(now), _NEAR)
    return was == now


def _formula_finding(old: Content, new: Content, *, is_unchanged: bool) -> tuple[str, str] | None:
    if not (new.formula and same_formula(old.formula, new.formula)):
        found = new.formula or ("nothing" if new.value is None else repr(new.value))
        message = f"the formula {old.formula} was issued, {found} is found"
        return "formula", f"{message}. It is ignored; all results are recomputed."
    if is_unchanged and not _is_shown(old, new):
        message = f"shows {new.value!r}, and no changed input explains it; {old.value!r} was issued"
        return "calculation", f"{message}. All results are recomputed."
    return None


def _constant_finding(old: Content, new: Content) -> tuple[str, str] | None:
    was, now = _read_plain(old), _read_plain(new)
    if same_entry(was, now):
        return None
    if was is None:
        return "label", f"nothing was issued here, and {now!r} is found. It has no effect."
    return "label", f"was {was!r}, is {'empty' if now is None else repr(now)}. It has no effect."


def tampering(issued: Book, returned: Book, *, is_unchanged: bool) -> Iterator[Finding]:
    """Yield findings about labels, constants and formulas that differ from the issued ones."""
    for rows in issued.tables.values():
        yield from _text_findings(rows, returned)
    for sheet, cells in issued.sheets.items():
        there, columns = returned.sheets[sheet], _checked_columns(issued, sheet)
        for place in sorted(cells.keys() | there.keys()):
            old, new = cells.get(place, EMPTY), there.get(place, EMPTY)
            column, is_number, entry = columns.get(place, (None, True, None))
            found = None
            if old.formula:
                found = None if entry == FOLLOWS else _formula_finding(old, new, is_unchanged=is_unchanged)
            elif new.formula:
                message = f"a formula, {new.formula}, is in a cell for {'a figure' if is_number else 'text'}"
                found = ("formula", f"{message}. Its saved value is used.")
            elif column is None:
                found = _constant_finding(old, new)
            if found is not None:
                yield Finding(f"{sheet}!{cell_name(*place)}", *found)


_ANYWHERE = re.compile(r"\[\$-[^\]]*\]|\\")
"""Marks of language and of literal characters, which programs add to or remove from a number format."""
_SMALLEST = 4.0
"""Font size below which text is unreadable [points]."""
_SHOWS = re.compile(r"[0#?@]|general", re.IGNORECASE)
"""Matches a number format that shows a cell's value."""
_SHOWN = 300
"""Largest number of a comment's characters that are shown."""


def plain_form(form: str) -> str:
    r"""Return a number format in a form that is independent of the program that wrote it.

    >>> plain_form(r"[$-409]0.00\ %"), plain_form("GENERAL")
    ('0.00 %', 'general')
    """
    return _ANYWHERE.sub("", form).lower()


def _sheets(issued: Book, returned: Book) -> Iterator[Finding]:
    for title, now in returned.marks.sheets.items():
        was = issued.marks.sheets.get(title)
        if was is None:
            yield Finding(title, "label", f"this sheet was not issued ({now.state}). It is ignored.")
            continue
        if now.state not in (was.state, "visible"):
            yield Finding(title, "hidden", f"the sheet is {now.state}, {was.state} was issued. Unhide it.")
        yield from _hidden(issued, title, was, now)
        for place in sorted(now.comments):
            message = now.comments[place]
            if message.split() != was.comments.get(place, "").split():
                text = f"a comment: {message[:_SHOWN]!r}. Figures count only in cells."
                yield Finding(f"{title}!{place}", "label", text)
        if now.shapes > was.shapes:
            yield Finding(title, "label", f"{now.shapes - was.shapes} text boxes or pictures were added.")


def _hidden(issued: Book, title: str, was: SheetMarks, now: SheetMarks) -> Iterator[Finding]:
    filled = issued.sheets[title]
    rows, columns = {row for row, _ in filled}, {column for _, column in filled}
    for what, hidden in (
        ("row", [str(row) for row in sorted((now.hidden_rows - was.hidden_rows) & rows)]),
        (
            "column",
            [get_column_letter(column) for column in sorted((now.hidden_columns - was.hidden_columns) & columns)],
        ),
    ):
        if hidden:
            many = f"{what}s are" if len(hidden) > 1 else f"{what} is"
            yield Finding(title, "hidden", f"{', '.join(hidden)}: the {many} hidden, but visible when issued.")


def _name_findings(issued: Book, returned: Book) -> Iterator[Finding]:
    was, now = issued.marks.names, returned.marks.names
    for name, cell in was.items():
        if not same_formula(cell, now.get(name, "")):
            message = f"the defined name pointed to {cell}, and points to {now.get(name) or 'nothing'} now."
            yield Finding(name, "label", message)
    for name in now.keys() - was.keys():
        yield Finding(name, "label", f"the defined name was not issued; it points to {now[name]}.")


def _number_formats(issued: Book, returned: Book) -> Iterator[Finding]:
    """Yield findings about number formats of figures; cells with the same change share one."""
    similar: dict[tuple[str, str, str], list[str]] = {}
    for sheet, cells in issued.sheets.items():
        there = returned.sheets[sheet]
        for place, was in cells.items():
            now = there.get(place)
            if now is None or isinstance(now.value, str | bool) or plain_form(now.form) == plain_form(was.form):
                continue
            similar.setdefault((sheet, was.form, now.form), []).append(cell_name(*place))
    for (sheet, old, new), places in similar.items():
        more = f" (and {len(places) - 1} more cells)" if len(places) > 1 else ""
        message = f"the number format {old} was issued, {new} is found{more}. Check the cells."
        yield Finding(f"{sheet}!{places[0]}", "format", message)


def _unreadable_reason(cell: Content, ink: str = "", ground: str = "") -> str:
    """Return why a cell is unreadable; "" where it is readable."""
    colours = (ink or cell.ink, ground or cell.ground)
    if not is_legible(*colours):
        return f"its text has the colour {colours[0]} on {colours[1]}"
    return f"its font size is {cell.size:g} points" if cell.size < _SMALLEST else ""


def _unreadable(issued: Book, returned: Book) -> Iterator[Finding]:
    """Yield findings about texts that became illegible on their background, or too small."""
    for sheet, cells in returned.sheets.items():
        was = issued.sheets.get(sheet, {})
        for place, cell in sorted(cells.items()):
            why = _unreadable_reason(cell)
            if why and not (place in was and _unreadable_reason(was[place])):
                yield Finding(f"{sheet}!{cell_name(*place)}", "hidden", f"cannot be read: {why}.")


def _conditional_formats(issued: Book, returned: Book) -> Iterator[Finding]:
    """Yield findings about conditional formats that make text unreadable."""
    for sheet, marks in returned.marks.sheets.items():
        known = issued.marks.sheets[sheet].conditions if sheet in issued.marks.sheets else ()
        looks = {(one.ink, one.ground, one.form) for one in known}
        for condition in marks.conditions:
            if (condition.ink, condition.ground, condition.form) in looks:
                continue
            cells = [cell for area in condition.area.split() for cell in _cells_in(returned.sheets[sheet], area)]
            lost = (_unreadable_reason(cell, condition.ink, condition.ground) for cell in cells or [EMPTY])
            why = next(filter(None, lost), "")
            if condition.form and not _SHOWS.search(condition.form):
                why = f"its number format, {condition.form}, shows nothing"
            if why:
                message = f"a conditional format makes cells unreadable: {why}."
                yield Finding(f"{sheet}!{condition.area.partition(' ')[0].partition(':')[0]}", "hidden", message)


def _cells_in(cells: Cells, area: str) -> Iterator[Content]:
    """Yield the filled cells of an area."""
    try:
        left, top, right, bottom = range_boundaries(area)
    except (TypeError, ValueError):
        return
    for (row, column), cell in cells.items():
        if (top or 1) <= row <= (bottom or row) and (left or 1) <= column <= (right or column):
            yield cell


def _charts(issued: Book, returned: Book) -> Iterator[Finding]:
    """Yield findings about charts that read other cells than those issued."""
    for sheet, now in returned.marks.sheets.items():
        if sheet not in issued.marks.sheets:
            continue
        before, after = (
            Counter({(part, plain_formula(cells)): count for (part, cells), count in marks.series.items()})
            for marks in (issued.marks.sheets[sheet], now)
        )
        gone, new = (", ".join(sorted({cells for _, cells in one})) for one in (before - after, after - before))
        if new:
            message = f"a chart reads {new}; {gone or 'nothing more'} was issued. Check the cells."
            yield Finding(sheet, "chart", message)
        elif gone:
            yield Finding(sheet, "chart", f"no chart reads {gone} now, but one did when issued.")


def appearance(issued: Book, returned: Book) -> Iterator[Finding]:
    """Yield findings about everything that makes the workbook show something other than its cells hold."""
    for found in (_sheets, _name_findings, _number_formats, _unreadable, _conditional_formats, _charts):
        yield from found(issued, returned)
    message = returned.marks.calculation
    if message and message != issued.marks.calculation:
        advice = "the values that it shows may differ from its inputs. All results are recomputed."
        yield Finding(str(returned.path), "calculation", f"calculation is set to {message}: {advice}")
