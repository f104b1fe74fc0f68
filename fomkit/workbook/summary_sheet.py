"""The sheet Summary: the figure of merit, deviations, the answers and the ratios on the first page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fomkit.fom import FigureOfMerit
from fomkit.ledger import Ledger, Values
from fomkit.workbook.assumptions_sheet import AssumptionCells
from fomkit.workbook.cells import Formula, Value, known
from fomkit.workbook.layout import ANSWERS, AS_ISSUED, RATIOS, UNKNOWN, Placed
from fomkit.workbook.mean_formulas import share_formula
from fomkit.workbook.merits import MeritCells, write_merits
from fomkit.workbook.page import Page
from fomkit.workbook.terms import ENDS, RATE, STEP
from fomkit.workbook.timings_sheet import TermCells
from fomkit.workbook.workloads_sheet import WorkloadCells

PER_DAY, PER_SECOND = "units per day", "steps per second"


@dataclass(frozen=True)
class SummaryCells:
    """Where the headlines stand."""

    answers: Placed
    answer_keys: tuple[tuple[str, str], ...]
    ratios: Placed | None
    ratio_keys: tuple[tuple[str, str], ...]
    merits: MeritCells


def _rate(
    key: tuple[str, str], of: str, values: Values, terms: TermCells, workloads: WorkloadCells
) -> list[Value]:
    """Give the rate of a workload on a machine with both ends, from the sheet where it is computed."""
    if of == PER_SECOND:
        step = values.cases[key].step.wall_s.per(1.0)
        cells = [terms.at(*key, STEP, end) for end in ("value", "high", "low")]
        return [Formula(f"1/{cell}", end) for cell, end in zip(cells, step.ends, strict=True)]
    span = values.unit_per_day[key]
    if key in workloads.given_keys:
        cells = [workloads.given_at(*key, column) for column in ("rate", "rate_low", "rate_high")]
        return [Formula(cell, end) for cell, end in zip(cells, span.ends, strict=True)]
    cells = [terms.at(*key, RATE, end) for end in ENDS]
    return [Formula(cell, end) for cell, end in zip(cells, span.ends, strict=True)]


def _state(key: tuple[str, str], terms: TermCells, workloads: WorkloadCells) -> str:
    if key in workloads.given_keys:
        return workloads.given_at(*key, "state")
    return terms.at(*key, RATE if terms.has(*key, RATE) else STEP, "state")


def _weight(number: int, workload: str, merit: FigureOfMerit | None) -> Value:
    if merit is None:
        return UNKNOWN
    first, letters = (
        number - list(merit.weights).index(workload),
        [RATIOS.letter("old"), RATIOS.letter("line_weight")],
    )
    blocks = [f"{letter}${first}:{letter}${first + len(merit.weights) - 1}" for letter in letters]
    formula = share_formula(merit.mean, *blocks, *(f"{letter}{number}" for letter in letters))
    return Formula(formula, merit.weights[workload])


def _ratio_row(
    number: int, key: tuple[str, str], ledger: Ledger, values: Values, terms: TermCells, workloads: WorkloadCells
) -> Iterator[Value]:
    workload, target = key
    old, ratio = (workload, str(ledger.baseline)), values.ratios[key]
    of = PER_DAY if key in values.unit_per_day and old in values.unit_per_day else PER_SECOND
    yield from (workload, target, of)
    cell = {column.key: f"{RATIOS.letter(column.key)}{number}" for column in RATIOS.columns}
    yield Formula(f"{cell['new']}/{cell['old']}", ratio.value)
    below = f"LN({cell['new']}/{cell['new_low']})^2+LN({cell['old_high']}/{cell['old']})^2"
    above = f"LN({cell['new_high']}/{cell['new']})^2+LN({cell['old']}/{cell['old_low']})^2"
    yield Formula(f"{cell['value']}*EXP(-SQRT({below}))", ratio.low)
    yield Formula(f"{cell['value']}*EXP(SQRT({above}))", ratio.high)
    yield _weight(number, workload, values.merits.get(target))
    yield Formula(workloads.at(workload, "weight"), ledger.workload(workload).weight)
    yield ratio.value
    states = [_state(old, terms, workloads), _state(key, terms, workloads)]
    yield Formula(worst_state(states), AS_ISSUED)
    for one in (key, old):
        yield from _rate(one, of, values, terms, workloads)
    yield Formula(f"{cell['value']}-{cell['low']}", ratio.value - ratio.low)
    yield Formula(f"{cell['high']}-{cell['value']}", ratio.high - ratio.value)


def worst_state(states: list[str]) -> str:
    """Write the formula that gives the worst of some states."""
    any_of = {word: ",".join(f'{state}="{word}"' for state in states) for word in ("error", "changed")}
    return f'IF(OR({any_of["error"]}),"error",IF(OR({any_of["changed"]}),"changed","{AS_ISSUED}"))'


def _answer_row(
    key: tuple[str, str], ledger: Ledger, values: Values, terms: TermCells, workloads: WorkloadCells
) -> Iterator[Value]:
    case = next((one for one in ledger.cases if (one.workload, one.machine) == key), None)
    yield from (*key, "given" if case is None else case.precision.partition(":")[0])
    step = None if case is None else values.cases[key].step.wall_s
    for index, end in enumerate(ENDS):
        yield "given" if step is None else Formula(f"1000*{terms.at(*key, STEP, end)}", 1000 * step.ends[index])
    rated = key in values.unit_per_day
    yield from _rate(key, PER_DAY, values, terms, workloads) if rated else [UNKNOWN] * 3
    yield "given" if step is None else 1000 * step.value
    yield known(values.unit_per_day[key].value if rated else None)
    yield Formula(_state(key, terms, workloads), AS_ISSUED)
    unfit = ("does not fit the memory",) if case is not None and case.unfit else ()
    yield "" if case is None else ", ".join((*unfit, *case.excludes))


def _first_lines(page: Page, ledger: Ledger) -> None:
    page.line(ledger.title, "headline")
    against = f", against {ledger.baseline}" if ledger.baseline is not None else ""
    page.line(f"Machines to rate: {', '.join(ledger.targets)}{against}.")
    page.line(
        f"Rates count one {ledger.scope}. Intervals: {ledger.level:.0%}. Every number below is computed here."
    )
    for _, said in ledger.caveats:
        page.line(f"caveat: {said}")
    for machine, said in ledger.deviations:
        page.line(f"deviation on {machine}: {said}")
    for case in ledger.cases:
        for said in case.deviations:
            page.line(f"note: {case.workload} on {case.machine}: {said}")
    for note in ledger.notes:
        page.line(f"note: {note}")
    page.gap()


def write_summary(
    page: Page,
    ledger: Ledger,
    values: Values,
    assumptions: AssumptionCells,
    terms: TermCells,
    workloads: WorkloadCells,
) -> SummaryCells:
    """Write the first page; the figure of merit stands above the ratios that it is made of."""
    _first_lines(page, ledger)
    merits = MeritCells(page.row, ledger, tuple(values.merits))
    page.row += merits.height
    keys = tuple(sorted(values.ratios, key=lambda key: ledger.targets.index(key[1])))
    ratios = None
    if keys:
        first = page.first_row()
        rows = [
            list(_ratio_row(first + index, key, ledger, values, terms, workloads))
            for index, key in enumerate(keys)
        ]
        ratios = page.table(RATIOS, rows)
    after = page.row
    page.row = merits.start
    if ratios is not None:
        write_merits(page, merits, values, assumptions, ratios, keys)
    page.row = after
    pairs = [(one.name, machine.name) for machine in ledger.machines for one in ledger.workloads]
    answer_keys = tuple(key for key in pairs if key in values.cases or key in values.unit_per_day)
    answers = page.table(
        ANSWERS, [list(_answer_row(key, ledger, values, terms, workloads)) for key in answer_keys]
    )
    return SummaryCells(answers, answer_keys, ratios, keys, merits)
