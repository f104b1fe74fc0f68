"""Cells for input that move nothing in their workbook: found by its formulas, shown grey, with the reason."""

from __future__ import annotations

from collections.abc import Mapping

from fomkit.ledger import Ledger
from fomkit.workbook.dependence import Place, behind_headlines
from fomkit.workbook.layout import FACTS
from fomkit.workbook.machine_facts import FactRow
from fomkit.workbook.machines_sheet import MachineCells
from fomkit.workbook.page import Page

_NOTHING = "Moves nothing here: "
_OF_OPS = ("peak", "memory bandwidth")
_COUNTS = {"devices per node": ("node", "system"), "nodes": ("system",), "availability": ("system",)}
"""The scopes at which each count is part of a rate."""


def why_nothing(row: FactRow, ledger: Ledger) -> str:
    """Say why no headline of a ledger's workbook hangs on a fact.

    Examples
    --------
    >>> why_nothing(FactRow("a", "memory capacity", "", "", None), Ledger("", "device", (), (), (), ()))
    'no time follows from the size of the memory'
    """
    cases = [case for case in ledger.cases if case.machine == row.machine]
    if row.name == "memory capacity":
        return "no time follows from the size of the memory"
    if row.name in _COUNTS and ledger.scope not in _COUNTS[row.name]:
        return f"rates count one {ledger.scope}"
    if not cases:
        return "the times of all lines are given (sheet Workloads) and do not follow from it"
    if row.name == "peak":
        return f"no op's time follows from {row.what} on the {row.where} engine"
    if row.name in ("memory bandwidth", "launch cost"):
        return "no op's time follows from it (sheet Ops, how the time is made)"
    return "no line says how often it happens"


def why_ends_nothing(row: FactRow) -> str:
    """Say why no headline hangs on the ends of a fact whose value moves one."""
    if row.name in _OF_OPS:
        return "each op has ends of its own (sheet Ops); these keep their ratio to the value"
    return "only the value counts; its ends keep their ratio to it"


def _reasons(ledger: Ledger, machines: MachineCells, moving: frozenset[Place]) -> Mapping[tuple[int, str], str]:
    """Give the note of each idle figure of the facts, by row and column."""
    notes: dict[tuple[int, str], str] = {}
    for index, row in enumerate(machines.rows):
        number = machines.placed.first + index
        is_moving = (FACTS.sheet, number, FACTS.position("value")) in moving
        why = why_ends_nothing(row) if is_moving else why_nothing(row, ledger)
        notes |= {(number, key): f"{_NOTHING}{why}." for key in ("value", "low", "high")}
    return notes


def mark_idle(pages: Mapping[str, Page], ledger: Ledger, machines: MachineCells) -> None:
    """Make grey every cell for input on which no headline hangs; words go with the figures of their row."""
    formulas: dict[Place, str] = {}
    for name, page in pages.items():
        for address in page.cached:
            cell = page.sheet[address]
            formulas[name, cell.row, cell.column] = str(cell.value)
    moving = behind_headlines(formulas)
    notes = _reasons(ledger, machines, moving)
    for name, page in pages.items():
        rows = {row for row, position, _ in page.inputs if (name, row, position) in moving}
        for row, position, column in page.inputs:
            is_word = column.form == "General"
            if (row in rows) if is_word else (name, row, position) in moving:
                continue
            page.idle(row, position, column, notes.get((row, column.key), "") if name == FACTS.sheet else "")
