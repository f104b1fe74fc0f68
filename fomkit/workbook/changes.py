"""What somebody changed in a workbook: inputs, cell by cell, and everything that should have stayed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from fomkit.core.errors import FomkitError
from fomkit.workbook.layout import ASSUMPTIONS, FACTS, GIVEN, INPUT_TABLES, OPS, WORKLOADS, Table
from fomkit.workbook.read import FOLLOWS, LEADERS, Book, Entry, Place, Rows, is_number_column

IDENTITY = {
    FACTS.title: ("machine", "fact"),
    WORKLOADS.title: ("workload",),
    GIVEN.title: ("workload", "machine"),
    OPS.title: ("workload", "machine", "op", "sizes", "pass_name"),
    ASSUMPTIONS.title: ("name",),
}
"""The columns by which a row is known; a row where they differ was moved."""
_NEAR = 1e-12
_COUNT = "1"
"""The unit of plain counts, which nobody reads aloud."""


@dataclass(frozen=True)
class Change:
    """One input that is not as it was issued.

    `title`: of its table.
    `index`, `key`: its row and column there.
    `where`: sheet and cell.
    `what`, `unit`: the row's name and the column; the unit where it stands beside the figure.
    `basis`, `party`, `source`: what the returned workbook says of the row.
    `is_ground`: true for words that came with a figure of the same row; alone they are a change of their own.
    `is_ignored`: true for choices of the whole workbook and rows of machines that are no targets: nothing is
      computed with them.
    `is_idle`: true where no headline of the issued workbook hangs on the cell: it is kept, and moves nothing.
    `machine`, `was_basis`, `was_party`: the row's machine; its basis and party as issued.
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
    is_ignored: bool = False
    is_idle: bool = False
    machine: str = ""
    was_basis: str = ""
    was_party: str = ""


@dataclass(frozen=True)
class Finding:
    """Something to talk about: where, of which kind, and what."""

    where: str
    kind: str
    message: str


def same_entry(old: Entry, new: Entry) -> bool:
    """Tell whether two entries are the same; an empty text and no text are."""
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


def _unit(table: Table, row: Row) -> str:
    unit = str(row.get("unit") or "") if table is FACTS else ""
    return "" if unit == _COUNT else unit


def _entry_changes(
    rows: Rows, index: int, was: Row, now: Row, targets: frozenset[Entry], moving: frozenset[Place]
) -> Iterator[Change]:
    table = rows.table
    is_foreign = "machine" in was and was["machine"] not in targets
    for column in table.columns:
        if column.role not in ("input", "condition") or same_entry(was.get(column.key), now.get(column.key)):
            continue
        if table is OPS and column.key == "time" and was.get("utilisation") is not None:
            continue  # a figure over a formula, which `tampering` tells
        leader = LEADERS.get(table.title, "")
        if was.get(column.key) == FOLLOWS and same_entry(now.get(column.key), now.get(leader)):
            continue
        yield Change(
            title=table.title,
            index=index,
            key=column.key,
            where=f"{table.sheet}!{rows.cell(index, column.key)}",
            what=row_name(table, now) + ("" if column.key == leader else f", {column.header}"),
            unit=_unit(table, now) if is_number_column(table, column) else "",
            old=was.get(column.key),
            new=now.get(column.key),
            is_number=is_number_column(table, column),
            is_condition=is_foreign or column.role == "condition",
            basis=str(now.get("basis") or ""),
            party=str(now.get("party") or ""),
            source=str(now.get("source") or now.get("evidence") or ""),
            is_ignored=is_foreign or table is ASSUMPTIONS,
            is_idle=is_number_column(table, column)
            and bool(moving)
            and rows.place(index, column.key) not in moving,
            machine=str(was.get("machine") or ""),
            was_basis=str(was.get("basis") or ""),
            was_party=str(was.get("party") or ""),
        )


def follow_ends(issued: Book, changed: Book) -> Book:
    """Let ends that are as issued, and that nobody was asked to change, keep their ratio to a changed value."""
    moving, rows = issued.moving, issued.tables[FACTS.title]
    for index, (was, now) in enumerate(zip(rows.entries, changed.rows(FACTS), strict=True)):
        old, new = was.get("value"), now.get("value")
        if not (isinstance(old, float) and isinstance(new, float)) or same_entry(old, new) or not old:
            continue
        for key in ("low", "high"):
            end = was.get(key)
            if not isinstance(end, float) or not same_entry(end, now.get(key)):
                continue
            if rows.place(index, key) not in moving:
                changed = changed.with_entry(FACTS.title, index, key, end * new / old)
    return changed


def changes(issued: Book, returned: Book) -> Iterator[Change]:
    """Walk over the inputs and conditions that were changed.

    Raises FomkitError when rows were moved, added or deleted, with sheet and cell.
    """
    moving = issued.moving
    for table in INPUT_TABLES:
        _check_places(issued, returned, table)
        if table.title not in issued.tables:
            continue
        rows = issued.tables[table.title]
        for index, (was, now) in enumerate(zip(rows.entries, returned.rows(table), strict=True)):
            found = list(_entry_changes(rows, index, was, now, issued.targets, moving))
            figures = any(one.is_number for one in found)
            yield from (replace(one, is_ground=figures and not one.is_number) for one in found)
