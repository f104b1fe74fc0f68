"""The sheet Machines: every fact with its unit, interval, basis and source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fomkit.ledger import Ledger
from fomkit.workbook.cells import Formula, Value, known
from fomkit.workbook.layout import AS_ISSUED, CHANGED, FACTS, Placed
from fomkit.workbook.machine_facts import UNIT_OF, FactRow, fact_rows, from_unit, si_formula, to_unit
from fomkit.workbook.page import Page

ENDS = ("value", "low", "high")


@dataclass(frozen=True)
class MachineCells:
    """Where the facts stand."""

    placed: Placed
    rows: tuple[FactRow, ...]

    def find(self, machine: str, name: str, what: str = "", where: str = "") -> int | None:
        """Give the 0-based row of a fact; None where it has none."""
        keys = [row.key for row in self.rows]
        key = (machine, name, what, where)
        return keys.index(key) if key in keys else None

    def si(self, machine: str, name: str, what: str = "", where: str = "", end: str = "value") -> str:
        """Name the cell of a fact in SI units."""
        index = self.find(machine, name, what, where)
        key = "si" if end == "value" else f"si_{end}"
        return self.placed.at(key, index or 0)

    def states(self, machine: str) -> str:
        """Name the cells that tell which facts of a machine were changed."""
        own = [index for index, row in enumerate(self.rows) if row.machine == machine]
        return self.placed.block("state", own[0], own[-1] + 1)


def state_of_inputs(pairs: list[tuple[str, str]]) -> str:
    """Write the formula that compares inputs with what was issued."""
    same = ",".join(f"{now}={was}" for now, was in pairs)
    return f'IF(AND({same}),"{AS_ISSUED}","{CHANGED}")'


def _row(number: int, row: FactRow, party: str) -> Iterator[Value]:
    yield from (row.machine, row.name, row.what, row.where)
    fact = row.fact
    shown = [None] * 3 if fact is None else [to_unit(row.name, end) for end in (fact.value, fact.low, fact.high)]
    value, low, high = (known(one) for one in shown)
    yield from (value, UNIT_OF[row.name])
    # Where nobody stated a spread the ends follow the value, until somebody writes a number over them.
    follow = f"{FACTS.letter('value')}{number}"
    for written in (low, high):
        yield Formula(follow, value, is_input=True) if fact is not None and written == value else written
    yield from ("", party, "nobody stated it") if fact is None else (fact.basis, party, fact.source)
    for key, end in zip(ENDS, shown, strict=True):
        si = known(None if end is None else from_unit(row.name, end))
        yield Formula(si_formula(row.name, f"{FACTS.letter(key)}{number}"), si)
    yield from (value, low, high)
    pairs = [
        (f"{FACTS.letter(key)}{number}", f"{FACTS.letter(was)}{number}")
        for key, was in zip(ENDS, ("was", "was_low", "was_high"), strict=True)
    ]
    yield Formula(state_of_inputs(pairs), AS_ISSUED)


def write_machines(page: Page, ledger: Ledger) -> MachineCells:
    """Write the facts of all machines."""
    page.line(
        "Facts of the machines: change the yellow cells, in the unit that stands beside them. "
        "Rows of the machine to compare with are grey. "
        "What is grey on white moves nothing here; a note in the cell says why."
    )
    page.gap()
    rows = tuple(row for machine in ledger.machines for row in fact_rows(machine))
    parties = {machine.name: machine.party for machine in ledger.machines}
    first = page.first_row()
    cells = [list(_row(first + index, row, parties[row.machine])) for index, row in enumerate(rows)]
    own = {index for index, row in enumerate(rows) if row.machine not in ledger.targets}
    return MachineCells(page.table(FACTS, cells, conditions=own), rows)
