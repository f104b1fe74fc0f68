"""What somebody changed in a workbook: inputs, cell by cell, and everything that should have stayed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from fomkit.errors import FomkitError
from fomkit.tables.xlsx import cell_name
from fomkit.workbook.layout import ASSUMPTIONS, FACTS, GIVEN, INPUT_TABLES, OPS, WORKLOADS, Column, Table
from fomkit.workbook.read import LEADERS, Book, Entry, Rows
from fomkit.workbook.read_cells import FOLLOWS, is_number_column, same_formula

IDENTITY = {
    FACTS.title: ("machine", "fact"),
    WORKLOADS.title: ("workload",),
    GIVEN.title: ("workload", "machine"),
    OPS.title: ("workload", "machine", "op", "sizes", "pass_name"),
    ASSUMPTIONS.title: ("name",),
}
"""The columns by which a row is known; a row where they differ was moved."""
_KIND_OF_TEXT = {
    "unit": "unit",
    "dtype": "precision",
    "engine": "precision",
    "what": "precision",
    "where": "precision",
}
_NEAR = 1e-12


@dataclass(frozen=True)
class Change:
    """One input that is not as it was issued.

    Attributes
    ----------
    title : str
        Of its table.
    index, key : int, str
        Its row and column there.
    where : str
        Sheet and cell.
    what, unit : str
        The row's name and the column; the unit where it stands beside the figure.
    basis, party, source : str
        What the returned workbook says of the row.
    is_ground : bool
        True for words that came with a figure of the same row; alone they are a change of their own.
    """

    title: str
    index: int
    key: str
    where: str
    what: str
    unit: str
    old: Entry
    new: Entry
    is_number: bool
    is_condition: bool
    basis: str
    party: str
    source: str
    is_ground: bool = False


@dataclass(frozen=True)
class Finding:
    """Something to talk about: where, of which kind, and what."""

    where: str
    kind: str
    said: str


def _same(old: Entry, new: Entry) -> bool:
    if isinstance(old, float) and isinstance(new, float):
        return abs(old - new) <= _NEAR * max(abs(old), abs(new))
    return old == new or {old, new} == {None, ""}


def row_name(table: Table, row: Mapping[str, Entry]) -> str:
    """Name a row by what it is about."""
    keys = (*IDENTITY[table.title], *(("what", "where") if table is FACTS else ()))
    return " ".join(str(row[key]) for key in keys if row.get(key) not in (None, ""))


def _check_places(issued: Book, returned: Book, table: Table) -> None:
    old, new = issued.rows(table), returned.rows(table)
    first = issued.tables[table.title].first if table.title in issued.tables else 0
    for index, (was, now) in enumerate(zip(old, new, strict=False)):
        for key in IDENTITY[table.title]:
            if was.get(key) != now.get(key):
                raise FomkitError(
                    f"{returned.path}, sheet {table.sheet}, cell {table.letter(key)}{first + index}",
                    f"{now.get(key)!r} stands where {was.get(key)!r} was issued. Leave rows in their places.",
                )
    if len(old) != len(new):
        raise FomkitError(
            f"{returned.path}, sheet {table.sheet}",
            f"the table {table.title!r} has {len(new)} rows, {len(old)} were issued. Leave rows in their places.",
        )


Row = Mapping[str, Entry]


def _entry_changes(rows: Rows, index: int, was: Row, now: Row) -> Iterator[Change]:
    table = rows.table
    for column in table.columns:
        if column.role not in ("input", "condition") or _same(was.get(column.key), now.get(column.key)):
            continue
        if table is OPS and column.key == "time" and was.get("utilisation") is not None:
            continue  # a figure over a formula, which `tampering` tells
        leader = LEADERS.get(table.title, "")
        if was.get(column.key) == FOLLOWS and _same(now.get(column.key), now.get(leader)):
            continue
        yield Change(
            title=table.title,
            index=index,
            key=column.key,
            where=f"{table.sheet}!{rows.cell(index, column.key)}",
            what=row_name(table, now) + ("" if column.key == leader else f", {column.header}"),
            unit=str(now.get("unit") or "") if table is FACTS and is_number_column(table, column) else "",
            old=was.get(column.key),
            new=now.get(column.key),
            is_number=is_number_column(table, column),
            is_condition=column.role == "condition",
            basis=str(now.get("basis") or ""),
            party=str(now.get("party") or ""),
            source=str(now.get("source") or now.get("evidence") or ""),
        )


def changes(issued: Book, returned: Book) -> Iterator[Change]:
    """Walk over the inputs and conditions that were changed.

    Raises
    ------
    FomkitError
        When rows were moved, added or deleted, with sheet and cell.
    """
    for table in INPUT_TABLES:
        _check_places(issued, returned, table)
        if table.title not in issued.tables:
            continue
        rows = issued.tables[table.title]
        for index, (was, now) in enumerate(zip(rows.entries, returned.rows(table), strict=True)):
            found = list(_entry_changes(rows, index, was, now))
            figures = any(one.is_number for one in found)
            yield from (replace(one, is_ground=figures and not one.is_number) for one in found)


def _text_findings(rows: Rows, returned: Book) -> Iterator[Finding]:
    texts: list[Column] = [column for column in rows.table.columns if column.role == "text"]
    for index, (was, now) in enumerate(zip(rows.entries, returned.rows(rows.table), strict=True)):
        for column in texts:
            if not _same(was.get(column.key), now.get(column.key)):
                kind = _KIND_OF_TEXT.get(column.key, "label")
                said = f"{row_name(rows.table, was)}: {column.header} was {was.get(column.key)!r}, is "
                advice = "It has no effect; ask anew." if kind == "precision" else "It has no effect."
                where = f"{rows.table.sheet}!{rows.cell(index, column.key)}"
                yield Finding(where, kind, f"{said}{now.get(column.key)!r}. {advice}")


def tampering(issued: Book, returned: Book) -> Iterator[Finding]:
    """Walk over labels and formulas that are not as they were issued."""
    for rows in issued.tables.values():
        yield from _text_findings(rows, returned)
    for sheet, cells in issued.sheets.items():
        there = returned.sheets[sheet]
        inputs = _input_places(issued, sheet)
        for place, cell in cells.items():
            now = there.get(place)
            found = "" if now is None else now.formula or repr(now.value)
            if cell.formula and place not in inputs and not (now and same_formula(cell.formula, now.formula)):
                said = f"the formula {cell.formula} was issued, {found or 'nothing'} is found. It is left out here"
                yield Finding(f"{sheet}!{cell_name(*place)}", "formula", f"{said}, where all is computed anew.")
            elif not cell.formula and now is not None and now.formula:
                said = f"a formula, {now.formula}, stands in a cell for a figure. Its saved value is taken."
                yield Finding(f"{sheet}!{cell_name(*place)}", "formula", said)


def _input_places(issued: Book, sheet: str) -> set[tuple[int, int]]:
    """Give the cells whose formula a person may replace by a figure: ends that follow their value."""
    return {
        (rows.first + index, rows.table.position(key))
        for rows in issued.tables.values()
        if rows.table.sheet == sheet
        for index, row in enumerate(rows.entries)
        for key, entry in row.items()
        if entry == FOLLOWS
    }
