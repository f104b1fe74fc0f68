"""The sheet Summary: the figure of merit, deviations, the answers and the ratios on the first page.

The sheet Checks: identities that hold whatever was changed, and equality with Python where nothing was.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fomkit.merit.fom import FigureOfMerit
from fomkit.workbook.cells import Formula, Page, Value, known
from fomkit.workbook.formulas import DEVICE, ENDS, RATE, STEP, TermCells
from fomkit.workbook.input_sheets import UNIT_OF, AssumptionCells, MachineCells
from fomkit.workbook.layout import ANSWERS, AS_ISSUED, CHECKS, FACTS, RATIOS, UNKNOWN, Placed
from fomkit.workbook.merits import FOM, MeritCells, mean_formula, share_formula, write_merits
from fomkit.workbook.op_sheets import OpCells, WorkloadCells
from fomkit.workbook.records import SheetModel, Values

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
    number: int,
    key: tuple[str, str],
    sheet_model: SheetModel,
    values: Values,
    terms: TermCells,
    workloads: WorkloadCells,
) -> Iterator[Value]:
    workload, target = key
    old, ratio = (workload, str(sheet_model.baseline)), values.ratios[key]
    of = PER_DAY if key in values.unit_per_day and old in values.unit_per_day else PER_SECOND
    yield from (workload, target, of)
    cell = {column.key: f"{RATIOS.letter(column.key)}{number}" for column in RATIOS.columns}
    yield Formula(f"{cell['new']}/{cell['old']}", ratio.value)
    below = f"LN({cell['new']}/{cell['new_low']})^2+LN({cell['old_high']}/{cell['old']})^2"
    above = f"LN({cell['new_high']}/{cell['new']})^2+LN({cell['old']}/{cell['old_low']})^2"
    yield Formula(f"{cell['value']}*EXP(-SQRT({below}))", ratio.low)
    yield Formula(f"{cell['value']}*EXP(SQRT({above}))", ratio.high)
    yield _weight(number, workload, values.merits.get(target))
    yield Formula(workloads.at(workload, "weight"), sheet_model.workload(workload).weight)
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
    key: tuple[str, str], sheet_model: SheetModel, values: Values, terms: TermCells, workloads: WorkloadCells
) -> Iterator[Value]:
    case = next((one for one in sheet_model.cases if (one.workload, one.machine) == key), None)
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


def _first_lines(page: Page, sheet_model: SheetModel) -> None:
    page.line(sheet_model.title, "headline")
    against = f", against {sheet_model.baseline}" if sheet_model.baseline is not None else ""
    page.line(f"Machines to rate: {', '.join(sheet_model.targets)}{against}.")
    level = f"{sheet_model.level:.0%}"
    page.line(f"Rates count one {sheet_model.scope}. Intervals: {level}. Every number below is computed here.")
    for _, message in sheet_model.caveats:
        page.line(f"caveat: {message}")
    for machine, message in sheet_model.deviations:
        page.line(f"deviation on {machine}: {message}")
    for case in sheet_model.cases:
        for message in case.deviations:
            page.line(f"note: {case.workload} on {case.machine}: {message}")
    for note in sheet_model.notes:
        page.line(f"note: {note}")
    page.gap()


def write_summary(
    page: Page,
    sheet_model: SheetModel,
    values: Values,
    assumptions: AssumptionCells,
    terms: TermCells,
    workloads: WorkloadCells,
) -> SummaryCells:
    """Write the first page; the figure of merit stands above the ratios that it is made of."""
    _first_lines(page, sheet_model)
    merits = MeritCells(page.row, sheet_model, tuple(values.merits))
    page.row += merits.height
    keys = tuple(sorted(values.ratios, key=lambda key: sheet_model.targets.index(key[1])))
    ratios = None
    if keys:
        first = page.first_row()
        rows = [
            list(_ratio_row(first + index, key, sheet_model, values, terms, workloads))
            for index, key in enumerate(keys)
        ]
        ratios = page.table(RATIOS, rows)
    after = page.row
    page.row = merits.start
    if ratios is not None:
        write_merits(page, merits, values, assumptions, ratios, keys)
    page.row = after
    pairs = [
        (workload.name, machine.name) for machine in sheet_model.machines for workload in sheet_model.workloads
    ]
    answer_keys = tuple(key for key in pairs if key in values.cases or key in values.unit_per_day)
    answers = page.table(
        ANSWERS, [list(_answer_row(key, sheet_model, values, terms, workloads)) for key in answer_keys]
    )
    return SummaryCells(answers, answer_keys, ratios, keys, merits)


OK = "ok"
_NEAR = 1e-9


def _equal(number: int, what: str, of: str, found: str, expected: str, value: float) -> list[Value]:
    """Make the row of two formulas that must agree."""
    left, right = (f"{CHECKS.letter(key)}{number}" for key in ("found", "expected"))
    near = f"ABS({left}-{right})<=0.000000001*(ABS({right})+ABS({left}))"
    state = f'IF(ISNUMBER({left}),IF({near},"{OK}","error"),"error")'
    return [what, of, Formula(found, value), Formula(expected, value), Formula(state, OK)]


def _case_checks(
    number: int, sheet_model: SheetModel, values: Values, terms: TermCells, ops: OpCells
) -> Iterator[list[Value]]:
    for case in sheet_model.cases:
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
    sheet_model: SheetModel, values: Values, terms: TermCells, summary: SummaryCells
) -> Iterator[list[Value]]:
    for case in sheet_model.cases:
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
    sheet_model: SheetModel,
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
    rows = list(_case_checks(first, sheet_model, values, terms, ops)) if sheet_model.cases else []
    rows += _unit_checks(first + len(rows), machines)
    rows += _mean_checks(first + len(rows), values, summary, sheet_model.mean)
    rows += _issued_checks(sheet_model, values, terms, summary)
    placed = page.table(CHECKS, rows)
    after, page.row = page.row, counted
    block = f"{state}{placed.first}:{state}{placed.last}"
    page.count("errors:", Formula(f'COUNTIF({block},"error")', 0))
    page.row = after
