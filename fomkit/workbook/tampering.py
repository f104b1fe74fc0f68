"""Cells of a returned workbook that should have stayed: labels, constants, formulas, and cells that were empty."""

from __future__ import annotations

from collections.abc import Iterator

from fomkit.tables.xlsx import Content, cell_name
from fomkit.workbook.changes import Finding, row_name, same_entry
from fomkit.workbook.layout import Column
from fomkit.workbook.read import Book, Entry, Rows
from fomkit.workbook.read_cells import FOLLOWS, is_number_column, read_text, same_formula

_KIND_OF_TEXT = {
    "unit": "unit",
    "dtype": "precision",
    "engine": "precision",
    "what": "precision",
    "where": "precision",
}
_NEAR = 1e-6
"""Values of the same formula by different programs differ by less, relative to the value."""
Place = tuple[int, int]
_EMPTY = Content(None)


def _text_findings(rows: Rows, returned: Book) -> Iterator[Finding]:
    texts: list[Column] = [column for column in rows.table.columns if column.role == "text"]
    for index, (was, now) in enumerate(zip(rows.entries, returned.rows(rows.table), strict=True)):
        for column in texts:
            if not same_entry(was.get(column.key), now.get(column.key)):
                kind = _KIND_OF_TEXT.get(column.key, "label")
                said = f"{row_name(rows.table, was)}: {column.header} was {was.get(column.key)!r}, is "
                advice = "It has no effect; ask anew." if kind == "precision" else "It has no effect."
                where = f"{rows.table.sheet}!{rows.cell(index, column.key)}"
                yield Finding(where, kind, f"{said}{now.get(column.key)!r}. {advice}")


def _columns(issued: Book, sheet: str) -> dict[Place, tuple[Column, bool, Entry]]:
    """Give the cells of inputs, conditions and texts: their column, whether it is for numbers, and their entry."""
    return {
        (rows.first + index, rows.table.position(column.key)): (
            column,
            is_number_column(rows.table, column),
            row.get(column.key),
        )
        for rows in issued.tables.values()
        if rows.table.sheet == sheet
        for index, row in enumerate(rows.entries)
        for column in rows.table.columns
        if column.role in ("input", "condition", "text")
    }


def _plain(cell: Content) -> Entry:
    value = read_text(cell)
    return value.replace("\r\n", "\n") if isinstance(value, str) else value


def _is_shown(old: Content, new: Content) -> bool:
    """Tell whether a formula shows what it was issued with; True where a program saved no value."""
    was, now = _plain(old), _plain(new)
    if was is None or now is None:
        return True
    if isinstance(was, float) and isinstance(now, float):
        return abs(was - now) <= _NEAR * max(abs(was), abs(now), _NEAR)
    return was == now


def _formula_finding(old: Content, new: Content, *, is_unchanged: bool) -> tuple[str, str] | None:
    if not (new.formula and same_formula(old.formula, new.formula)):
        found = new.formula or ("nothing" if new.value is None else repr(new.value))
        said = (
            f"the formula {old.formula} was issued, {found} is found. It is left out here, where all is computed"
        )
        return "formula", f"{said} anew."
    if is_unchanged and not _is_shown(old, new):
        said = f"shows {new.value!r}, and no input was changed that would make it so; {old.value!r} was issued"
        return "calculation", f"{said}. All is computed anew here."
    return None


def _constant_finding(old: Content, new: Content) -> tuple[str, str] | None:
    was, now = _plain(old), _plain(new)
    if same_entry(was, now):
        return None
    if was is None:
        return "label", f"nothing was issued here, and {now!r} is found. It has no effect."
    return "label", f"was {was!r}, is {'empty' if now is None else repr(now)}. It has no effect."


def tampering(issued: Book, returned: Book, *, is_unchanged: bool) -> Iterator[Finding]:
    """Walk over labels, constants and formulas that are not as they were issued.

    Parameters
    ----------
    is_unchanged : bool
        Whether all inputs are as issued, so that formulas must show what they showed.
    """
    for rows in issued.tables.values():
        yield from _text_findings(rows, returned)
    for sheet, cells in issued.sheets.items():
        there, columns = returned.sheets[sheet], _columns(issued, sheet)
        for place in sorted(cells.keys() | there.keys()):
            old, new = cells.get(place, _EMPTY), there.get(place, _EMPTY)
            column, is_number, entry = columns.get(place, (None, True, None))
            found = None
            if old.formula:
                found = None if entry == FOLLOWS else _formula_finding(old, new, is_unchanged=is_unchanged)
            elif new.formula:
                kind = "a figure" if is_number else "words"
                found = (
                    "formula",
                    f"a formula, {new.formula}, stands in a cell for {kind}. Its saved value is taken.",
                )
            elif column is None:
                found = _constant_finding(old, new)
            if found is not None:
                yield Finding(f"{sheet}!{cell_name(*place)}", *found)
