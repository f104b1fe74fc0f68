"""The sheet Timings: the sums over ops, and every term from them to units a day."""

from __future__ import annotations

from dataclasses import dataclass

from fomkit.ledger import Ledger, Values
from fomkit.workbook.assumptions_sheet import AssumptionCells
from fomkit.workbook.families import FamilyCells, write_families
from fomkit.workbook.layout import TERMS, Placed
from fomkit.workbook.machines_sheet import MachineCells
from fomkit.workbook.ops_sheet import OpCells
from fomkit.workbook.page import Page
from fomkit.workbook.terms import Sources, TermRows, add_case
from fomkit.workbook.workloads_sheet import WorkloadCells


@dataclass(frozen=True)
class TermCells:
    """Where the terms stand."""

    placed: Placed
    families: FamilyCells
    places: dict[tuple[str, str, str], int]

    def at(self, workload: str, machine: str, term: str, key: str = "value") -> str:
        """Name a cell of a term."""
        return self.placed.at(key, self.places[workload, machine, term])

    def has(self, workload: str, machine: str, term: str) -> bool:
        """Tell whether a workload on a machine has a term."""
        return (workload, machine, term) in self.places


def write_timings(
    page: Page,
    ledger: Ledger,
    values: Values,
    sheets: tuple[AssumptionCells, MachineCells, WorkloadCells, OpCells],
) -> TermCells:
    """Write the roll-up of every case."""
    page.line("All of this is computed. Inputs stand in Workloads, Machines and Ops.")
    page.gap()
    assumptions, machines, workloads, ops = sheets
    families = write_families(page, ledger, values, ops, assumptions)
    rows = TermRows(page.first_row())
    source = Sources(ledger, machines, workloads, ops, families)
    for case in ledger.cases:
        add_case(rows, source, case, values.cases[case.workload, case.machine])
    return TermCells(page.table(TERMS, rows.rows), families, rows.places)
