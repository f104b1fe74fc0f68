"""The sheet Checks: identities that hold whatever was changed, and equality with Python where nothing was."""

from __future__ import annotations

from collections.abc import Iterator

from fomkit.ledger import Ledger, Values
from fomkit.workbook.cells import Formula, Value
from fomkit.workbook.layout import AS_ISSUED, CHECKS, FACTS, UNKNOWN
from fomkit.workbook.machine_facts import UNIT_OF
from fomkit.workbook.machines_sheet import MachineCells
from fomkit.workbook.mean_formulas import mean_formula
from fomkit.workbook.merits import FOM
from fomkit.workbook.ops_sheet import OpCells
from fomkit.workbook.page import Page
from fomkit.workbook.summary_sheet import SummaryCells
from fomkit.workbook.terms import DEVICE, RATE, STEP
from fomkit.workbook.timings_sheet import TermCells

OK = "ok"
_NEAR = 1e-9


def _equal(number: int, what: str, of: str, found: str, expected: str, value: float) -> list[Value]:
    """Make the row of two formulas that must agree."""
    left, right = (f"{CHECKS.letter(key)}{number}" for key in ("found", "expected"))
    near = f"ABS({left}-{right})<=0.000000001*(ABS({right})+ABS({left}))"
    state = f'IF(ISNUMBER({left}),IF({near},"{OK}","error"),"error")'
    return [what, of, Formula(found, value), Formula(expected, value), Formula(state, OK)]


def _case_checks(
    number: int, ledger: Ledger, values: Values, terms: TermCells, ops: OpCells
) -> Iterator[list[Value]]:
    for case in ledger.cases:
        key, of = (case.workload, case.machine), f"{case.workload} on {case.machine}"
        one = values.cases[key]
        device = one.step.device_s.value
        total = f"SUM({ops.block(case, 'total')})"
        yield _equal(number, "sum of the ops is the device's time", of, total, terms.at(*key, DEVICE), device)
        number += 1
        rows = sum(span is not None for span in one.ops)
        shares = f"SUM({terms.families.block(case, 'share')})" if rows else "1"
        yield _equal(number, "shares of the time by kind and source sum to 1", of, shares, "1", 1.0)
        number += 1
        named = f'--({ops.block(case, "time_source")}<>"{UNKNOWN}")'
        found = f"SUMPRODUCT({named},--ISNUMBER({ops.block(case, 'total')}))"
        yield _equal(
            number, "every op that has a time source has a time", of, found, f"SUMPRODUCT({named})", float(rows)
        )
        number += 1
        block = {end: ops.block(case, end) for end in ("low", "high")}
        found = f"SUMPRODUCT(--({block['low']}>1))+SUMPRODUCT(--ISNUMBER({block['high']}),--({block['high']}<1))"
        yield _equal(number, "no interval lies beside its time", of, found, "0", 0.0)
        number += 1
        step = [terms.at(*key, STEP, end) for end in ("value", "low", "high")]
        found = f"IF(AND({step[1]}<={step[0]},{step[0]}<={step[2]}),1,0)"
        yield _equal(number, "the step lies inside its interval", of, found, "1", 1.0)
        number += 1


def _unit_checks(number: int, machines: MachineCells) -> Iterator[list[Value]]:
    units = machines.placed.block("unit")
    names = machines.placed.block("fact")
    for name, unit in UNIT_OF.items():
        rows = sum(row.name == name for row in machines.rows)
        if rows:
            found = f'COUNTIFS({names},"{name}",{units},"{unit}")'
            yield _equal(number, f"every {name} is in {unit}", FACTS.sheet, found, str(rows), float(rows))
            number += 1
    stated = sum(row.fact is not None for row in machines.rows)
    found = f"COUNT({machines.placed.block('value')})"
    what = "every stated fact is a number, not text"
    state = f'IF({CHECKS.letter("found")}{number}>={CHECKS.letter("expected")}{number},"{OK}","error")'
    yield [what, FACTS.sheet, Formula(found, stated), Formula(str(stated), stated), Formula(state, OK)]


def _mean_checks(number: int, values: Values, summary: SummaryCells, mean: str) -> Iterator[list[Value]]:
    for target, merit in values.merits.items():
        own = [index for index, key in enumerate(summary.ratio_keys) if key[1] == target]
        if summary.ratios is None or not own:
            continue
        span = (own[0], own[-1] + 1)
        ratio, weight = (summary.ratios.block(key, *span) for key in ("value", "weight"))
        fom = summary.merits.at(target, FOM)
        yield _equal(number, "the weights of the lines sum to 1", target, f"SUM({weight})", "1", 1.0)
        number += 1
        inside = f"IF(AND({fom}>=MIN({ratio})*(1-{_NEAR:.9f}),{fom}<=MAX({ratio})*(1+{_NEAR:.9f})),1,0)"
        yield _equal(number, "the figure of merit lies among the ratios", target, inside, "1", 1.0)
        number += 1
        block = {key: summary.ratios.block(key, *span) for key in ("new", "old", "line_weight")}
        means = [mean_formula(name, block["new"], block["old"], "1") for name in ("harmonic", "arithmetic")]
        found = f"IF({means[0]}<={means[1]}*(1+{_NEAR:.9f}),1,0)"
        yield _equal(number, "harmonic ≤ arithmetic mean of the ratios", target, found, "1", 1.0)
        number += 1
        if mean in ("ratio_of_harmonic_means", "weighted_harmonic", "harmonic"):
            what = "the harmonic mean of the ratios by these weights is the figure of merit"
            yield _equal(number, what, target, f"1/SUMPRODUCT({weight}/{ratio})", fom, merit.value.value)
            number += 1


def _issued_checks(
    ledger: Ledger, values: Values, terms: TermCells, summary: SummaryCells
) -> Iterator[list[Value]]:
    for case in ledger.cases:
        key, of = (case.workload, case.machine), f"{case.workload} on {case.machine}"
        for term in (STEP, RATE):
            if terms.has(*key, term):
                cells = [terms.at(*key, term, column) for column in ("value", "was", "state")]
                span = values.cases[key].unit_per_day if term == RATE else values.cases[key].step.wall_s
                value = span.value if span is not None else 0.0
                yield [
                    f"{term} equals Python's, as issued",
                    of,
                    *_pair(cells, value),
                    Formula(cells[2], AS_ISSUED),
                ]
    for target, merit in values.merits.items():
        cells = [summary.merits.at(target, FOM, column) for column in ("value", "was", "state")]
        what, pair = "figure of merit equals Python's, as issued", _pair(cells, merit.value.value)
        yield [what, target, *pair, Formula(cells[2], AS_ISSUED)]


def _pair(cells: list[str], value: float) -> list[Value]:
    return [Formula(cells[0], value), Formula(cells[1], value)]


def write_checks(
    page: Page,
    ledger: Ledger,
    values: Values,
    machines: MachineCells,
    ops: OpCells,
    terms: TermCells,
    summary: SummaryCells,
) -> None:
    """Write all checks; errors are counted in the first line."""
    state = CHECKS.letter("state")
    page.line("Identities hold always. Equality with Python's value is judged only where no input was changed.")
    counted = page.row
    page.row += 2
    first = page.first_row()
    rows = list(_case_checks(first, ledger, values, terms, ops)) if ledger.cases else []
    rows += _unit_checks(first + len(rows), machines)
    rows += _mean_checks(first + len(rows), values, summary, ledger.mean)
    rows += _issued_checks(ledger, values, terms, summary)
    placed = page.table(CHECKS, rows)
    after, page.row = page.row, counted
    block = f"{state}{placed.first}:{state}{placed.last}"
    page.count("errors:", Formula(f'COUNTIF({block},"error")', 0))
    page.row = after
