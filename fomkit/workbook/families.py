"""Ops of one kind and time source err together: their sums, from which the device's interval is made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fomkit.ledger import Case, Ledger, Values
from fomkit.rollup.use import GROUPS, TABLES
from fomkit.workbook.assumptions_sheet import USE, AssumptionCells
from fomkit.workbook.cells import Formula, Value
from fomkit.workbook.layout import FAMILIES, UNKNOWN, Placed
from fomkit.workbook.ops_sheet import OpCells
from fomkit.workbook.page import Page

_TOTALS = ("total", "total_low", "total_high")
_Sums = dict[tuple[str, str], list[float]]


@dataclass(frozen=True)
class FamilyCells:
    """Where the families of each case stand; a case without ops has none."""

    placed: Placed
    starts: dict[tuple[str, str], tuple[int, int]]

    def block(self, case: Case, key: str) -> str:
        """Name the cells of a column that belong to a case."""
        return self.placed.block(key, *self.starts[case.workload, case.machine])

    def has_any(self, case: Case) -> bool:
        """Tell whether a case has an op."""
        first, stop = self.starts[case.workload, case.machine]
        return stop > first


def _sums(case: Case, values: Values) -> _Sums:
    sums: _Sums = {}
    for line, span in zip(case.ops, values.cases[case.workload, case.machine].ops, strict=True):
        # An op without a time has its sum too, of 0: somebody may write one into the workbook.
        row = sums.setdefault((line.kind, line.time_source or UNKNOWN), [0.0] * 6)
        if span is None:
            continue
        ends = [end * line.count for end in (span.value, span.low, span.high)]
        forward = line.phase == "forward"
        for index, end in enumerate(ends):
            row[index] += end
            row[index + 3] += end if forward else 0.0
    return dict(sorted(sums.items()))


def _row(
    number: int,
    case: Case,
    family: tuple[str, str],
    sums: list[float],
    ops: OpCells,
    span: tuple[int, int],
    total: float,
) -> Iterator[Value]:
    yield from (case.workload, case.machine, *family)
    kind, source = (f"{FAMILIES.letter(key)}{number}" for key in ("kind", "time_source"))
    same = f"{ops.block(case, 'kind')},{kind},{ops.block(case, 'time_source')},{source}"
    forward = f'{ops.block(case, "pass_name")},"forward"'
    for index, extra in enumerate(["", f",{forward}"]):
        for end, key in enumerate(_TOTALS):
            yield Formula(f"SUMIFS({ops.block(case, key)},{same}{extra})", sums[3 * index + end])
    letter = FAMILIES.letter("value")
    all_rows = f"{letter}${span[0]}:{letter}${span[1]}"
    share = f'IF(SUM({all_rows})>0,{letter}{number}/SUM({all_rows}),"{UNKNOWN}")'
    yield Formula(share, sums[0] / total if total else UNKNOWN)


def _in_use(
    case: Case, group: str, first: int, sums: _Sums, ends: tuple[float, float], bounds: tuple[str, str]
) -> list[Value] | None:
    """Widen the sum of a group: a row that adds nothing to the value, and its width in quadrature."""
    rows = [index for index, (kind, source) in enumerate(sums) if GROUPS.get(kind) == group and source in TABLES]
    if not rows:
        return None
    row: list[Value] = [case.workload, case.machine, f"use in a step: {group}", "tables"]
    for key, place in (("value", 0), ("forward", 3)):
        letter, total = FAMILIES.letter(key), sum(list(sums.values())[index][place] for index in rows)
        cells = "+".join(f"{letter}{first + index}" for index in rows)
        widths = [
            Formula(f"({cells})*({bound}-1)", total * (end - 1)) for bound, end in zip(bounds, ends, strict=True)
        ]
        row += [0.0, *widths]
    return [*row, 0.0]


def write_families(
    page: Page, ledger: Ledger, values: Values, ops: OpCells, assumptions: AssumptionCells
) -> FamilyCells:
    """Write the sums of every case by kind and time source, and what use in a step adds to their widths."""
    first, rows, starts = page.first_row(), list[list[Value]](), {}
    for case in ledger.cases:
        start, sums = len(rows), _sums(case, values)
        total = sum(one[0] for one in sums.values())
        span = (first + start, first + start + len(sums) - 1)
        for family, one in sums.items():
            rows.append(list(_row(first + len(rows), case, family, one, ops, span, total)))
        for group, ends in ledger.uses.items() if case.machine in ledger.widened else ():
            bounds = (assumptions.at(f"{USE}{group}, low"), assumptions.at(f"{USE}{group}, high"))
            widened = _in_use(case, group, first + start, sums, ends, bounds)
            rows += [widened] if widened is not None else []
        starts[case.workload, case.machine] = (start, len(rows))
    return FamilyCells(page.table(FAMILIES, rows), starts)
