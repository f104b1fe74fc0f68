"""Write the sheets Summary (figures of merit, ratios, answers as formulas) and Checks (identities of cells)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from fomkit.core.interval import (
    ALIKE,
    SAME_CHIP,
    Span,
    correlation_on_chip,
    level_text,
    probability_above,
    share_that_cancels,
)
from fomkit.merit.fom import ACCEPTANCE, MISSED, OF_RATES, REACHED, FigureOfMerit, mean_rate, verdict
from fomkit.workbook.cells import Formula, Page, Value, known
from fomkit.workbook.input_sheets import SHARE, UNIT_OF, MachineCells, state_of_value
from fomkit.workbook.layout import ANSWERS, AS_ISSUED, CHANGED, CHECKS, FACTS, MERITS, RATIOS, UNKNOWN, Placed
from fomkit.workbook.records import SheetModel, case_name
from fomkit.workbook.timings_sheet import DEVICE, ENDS, ON_CHIP, RATE, SHARED, STEP, Sheets

PER_DAY, PER_SECOND = "units per day", "steps per second"
MEANS = ("ratio_of_harmonic_means", "weighted_harmonic", "harmonic", "geometric", "arithmetic")


def mean_formula(name: str, new: str, old: str, weight: str) -> str:
    """Return the formula of a mean of `MEANS` of the ratios of two machines' rates, from blocks of cells.

    >>> mean_formula("harmonic", "B1:B3", "A1:A3", "C1:C3")
    '(ROWS(C1:C3)/SUMPRODUCT(A1:A3/B1:B3))'
    """
    return {
        "ratio_of_harmonic_means": f"(SUMPRODUCT(1/{old})/SUMPRODUCT(1/{new}))",
        "weighted_harmonic": f"(SUMPRODUCT({weight}/{old})/SUMPRODUCT({weight}/{new}))",
        "harmonic": f"(ROWS({weight})/SUMPRODUCT({old}/{new}))",
        "geometric": f"EXP(SUMPRODUCT({weight}*LN({new}/{old}))/SUM({weight}))",
        "arithmetic": f"(SUMPRODUCT({new}/{old})/ROWS({weight}))",
    }[name]


@dataclass(frozen=True)
class _Side:
    """Blocks of one machine's rates: values, bounds, the shares of errors that lines share, or that cancel.

    `linked`: the correlation of the errors on both machines, for each line.
    """

    value: str
    low: str
    high: str
    shared: str
    cancels: str
    linked: str

    def together(self, end: str) -> str:
        """Return the formula of the rates with the common part of their errors applied."""
        return f"({self.value}*({end}/{self.value})^SQRT({self.shared}))"

    def apart(self, end: str, term: str) -> str:
        """Return the formula of the variance of a mean's logarithm by lines' own errors; ``term``: its summand."""
        own = f"(1-{self.shared})*(1-{self.cancels})"
        return f"SUMPRODUCT((({term})*LN({end}/{self.value}))^2*{own})/SUMPRODUCT({term})^2"

    def pulled(self, term: str, part: str = "1") -> str:
        """Return the formula of a mean's width if lines err alike; ``part``: of the width of each line."""
        return f"(SUMPRODUCT(({term})*LN({self.high}/{self.low})*{part})/SUMPRODUCT({term}))"


def _mean_formulas(name: str, new: _Side, old: _Side, weight: str, value: str) -> list[str]:
    """Return the formulas of a mean and its bounds.

    On one machine common parts of the lines' errors add up, the rest adds in quadrature. Errors of two machines
    are independent but for what cancels between boards of one chip (`fomkit.merit.fom`).
    `value`: the cell of the mean itself.
    """
    terms = {"harmonic": f"{old.value}/{new.value}", "arithmetic": f"{new.value}/{old.value}",
             "geometric": f"{weight}*1"}  # fmt: skip
    times = f"{weight}/" if name == "weighted_harmonic" else "1/"
    both = [(side, terms.get(name, f"{times}{side.value}")) for side in (new, old)]
    linked = "*".join(side.pulled(term, f"SQRT({side.linked})") for side, term in both)
    all_shared = "+".join(f"{side.pulled(term)}^2" for side, term in both)
    rest = f"(1-2*{linked}/MAX({all_shared},1E-300))"  # no line may have an error

    def width(new_end: str, old_end: str) -> str:
        ends = (new.together(new_end), old.value), (new.value, old.together(old_end))
        shared = "+".join(f"LN({mean_formula(name, *blocks, weight)}/{value})^2" for blocks in ends)
        apart = (side.apart(end, term) for (side, term), end in zip(both, (new_end, old_end), strict=True))
        return "+".join([f"{rest}*({shared})", *apart])

    below, above = width(new.low, old.high), width(new.high, old.low)
    mean = mean_formula(name, new.value, old.value, weight)
    return [mean, f"{value}*EXP(-SQRT({below}))", f"{value}*EXP(SQRT({above}))"]


FOM, CHANCE, VERDICT = "figure of merit", "chance of reaching the threshold", "verdict on the threshold"
OVER = "times the baseline"
RATES = ("target's harmonic mean rate", "baseline's harmonic mean rate")


def own_rows(ratios: Placed, target: str) -> tuple[int, int]:
    """Return the first row of a target's ratios, and the row after the last, counted from 0."""
    own = [index for index, key in enumerate(ratios.rows) if key[1] == target]
    return own[0], own[-1] + 1


def _figures(
    cells: Placed, merit: FigureOfMerit, block: dict[str, str], weights: Sequence[float]
) -> Iterator[tuple[str, list[str], Iterable[float]]]:
    """Yield each row's name, its formulas for value, low and high, and their values."""
    own, both = ("", "_low", "_high", "_shared"), ("cancels", "linked")
    new, old = (
        _Side(*(block[name] for name in (*(f"{key}{end}" for end in own), *both))) for key in ("new", "old")
    )
    weight, target = block["line_weight"], merit.target.machine
    yield FOM, _mean_formulas(merit.mean, new, old, weight, cells.of((target, FOM), "value")), merit.value.ends
    weighted = merit.mean == "weighted_harmonic"
    formula = f"SUM({weight})/SUMPRODUCT({weight}/{{0}})" if weighted else "HARMEAN({0})"
    for row, blocks, rates in zip(RATES, (new, old), (merit.target, merit.baseline), strict=True):
        ends = zip(*(span.ends for span in rates.unit_per_day.values()), strict=True)
        formulas = [formula.format(one) for one in (blocks.value, blocks.low, blocks.high)]
        yield row, formulas, [mean_rate(merit.mean, one, weights) for one in ends]
    for name, span in merit.others.items():
        yield name, _mean_formulas(name, new, old, weight, cells.of((target, name), "value")), span.ends


def _verdict_rows(cells: Placed, merit: FigureOfMerit, sheets: Sheets) -> Iterator[list[Value]]:
    target, limit, assumptions = merit.target.machine, sheets.sheet_model.threshold, sheets.assumptions
    rows: list[tuple[Value, Value, Value]] = [("", "no threshold", "no threshold")] * 2
    if limit is not None:
        chance = round(probability_above(merit.value, limit), 6)
        mean, low, high = (cells.of((target, FOM), end) for end in ENDS)
        bar, level = (assumptions.of(name, "value") for name in ("threshold", "interval level"))
        spread = f"(IF({bar}>{mean},LN({high}/{mean}),LN({mean}/{low}))/NORMSINV(0.5+{level}/2))"
        share = f"IF({spread}=0,IF({bar}<={mean},1,0),ROUND(1-NORMSDIST(LN({bar}/{mean})/{spread}),6))"
        label, cell = verdict(chance, ACCEPTANCE), cells.of((target, CHANCE), "value")
        reached, missed, neither = ACCEPTANCE
        word = f'IF({cell}>={REACHED},"{reached}",IF({cell}<={MISSED},"{missed}","{neither}"))'
        stated = Formula(bar, limit)
        rows = [(stated, Formula(share, chance), chance), (stated, Formula(word, label), label)]
    for name, (unit, value, was) in zip((CHANCE, VERDICT), rows, strict=True):
        yield [name, target, unit, value, None, None, was, None, None, None]


def _write_merits(page: Page, cells: Placed, sheets: Sheets, ratios: Placed) -> None:
    """Write the figures of merit of all targets."""
    rows = list[list[Value]]()
    for target, merit in sheets.values.merits.items():
        keys, span = (column.key for column in ratios.table.columns), own_rows(ratios, target)
        block = {key: ratios.block(key, *span).rpartition("!")[2] for key in keys}
        changed = f'COUNTIF({block["state"]},"{CHANGED}")'
        works = [sheets.sheet_model.workload(name) for name in merit.weights]
        weights = [one.weight for one in works]
        differ = "; units differ" * (len({one.unit.name for one in works}) > 1)
        for name, formulas, ends in _figures(cells, merit, block, weights):
            unchanged = state_of_value(cells.of((target, name), "value"), cells.of((target, name), "was"))
            label = f"{name} ({merit.mean})" if name == FOM else f"by the mean {name}" if name in MEANS else name
            if name in RATES and merit.mean == "weighted_harmonic":
                label = name.replace("harmonic", "weighted harmonic")
            issued = list(ends)
            shown = [Formula(formula, end) for formula, end in zip(formulas, issued, strict=True)]
            state = Formula(f'IF({changed}>0,"{CHANGED}",{unchanged})', AS_ISSUED)
            unit = f"{'units/day' if name in RATES else OVER}{differ * (name in (*RATES, *OF_RATES))}"
            rows.append([label, target, unit, *shown, *issued, state])
        rows += _verdict_rows(cells, merit, sheets)
    page.table(MERITS, rows)


@dataclass(frozen=True)
class SummaryCells:
    """The places of the headlines."""

    answers: Placed
    ratios: Placed | None
    merits: Placed


def _rate_cells(key: tuple[str, str], unit: str, sheets: Sheets) -> list[Value]:
    """Return the rate of a workload on a machine with both bounds, from the sheet where it is computed."""
    values, terms, table = sheets.values, sheets.terms, sheets.stated(key)
    if unit == PER_SECOND:
        step = values.cases[key].step.wall_s.per(1.0)
        cells = [terms.at(*key, STEP, end) for end in ("value", "high", "low")]
        return [Formula(f"1/{cell}", end) for cell, end in zip(cells, step.ends, strict=True)]
    if table is not None:
        cells = [table.of(key, column) for column in ("rate", "rate_low", "rate_high")]
    else:
        cells = [terms.at(*key, RATE, end) for end in ENDS]
    return [Formula(cell, end) for cell, end in zip(cells, values.unit_per_day[key].ends, strict=True)]


def _shared_cell(key: tuple[str, str], sheets: Sheets) -> Value:
    """Return the share of a rate's error that is common to lines: 1 for a given rate, unless stated otherwise."""
    share = sheets.sheet_model.workload(key[0]).common_shares.get(key[1])
    if share is not None:
        return Formula(sheets.assumptions.of(f"{SHARE}{case_name(*key)}", "value"), share)
    if sheets.stated(key) is not None or not sheets.terms.has(*key, SHARED):
        return 1.0
    return Formula(sheets.terms.at(*key, SHARED), sheets.values.cases[key].step.wall_s.shared)


def _cancels(
    key: tuple[str, str], old: tuple[str, str], spans: Sequence[Span], cell: Mapping[str, str], sheets: Sheets
) -> list[Value]:
    """Return the share of a ratio's variance that cancels between boards of one chip, and their correlation."""
    found = share_that_cancels(*spans)
    if not found:
        return [0.0, 0.0]
    pairs = ([sheets.terms.at(*one, term) for one in (key, old)] for term in ON_CHIP.values())
    linked = f"{SAME_CHIP}*({'+'.join(f'SQRT({one}*{other})' for one, other in pairs)})"
    widths = [f"LN({cell[f'{side}_high']}/{cell[f'{side}_low']})" for side in ("new", "old")]
    share = f"2*{cell['linked']}*{widths[0]}*{widths[1]}/({widths[0]}^2+{widths[1]}^2)"
    alike = f"ABS(LN({cell['new']}/{cell['old']}))<=LN({ALIKE})"
    return [Formula(share, found), Formula(f"IF({alike},{linked},0)", correlation_on_chip(*spans))]


def _state(key: tuple[str, str], sheets: Sheets) -> str:
    terms, table = sheets.terms, sheets.stated(key)
    if table is not None:
        return table.of(key, "state")
    return terms.at(*key, RATE if terms.has(*key, RATE) else STEP, "state")


def _weight(number: int, workload: str, merit: FigureOfMerit | None) -> Value:
    """Return the formula of a line's weight in the mean."""
    if merit is None:
        return UNKNOWN
    first = number - list(merit.weights).index(workload)
    last, letters = first + len(merit.weights) - 1, [RATIOS.letter(key) for key in ("old", "line_weight")]
    old, weight = (f"{one}${first}:{one}${last}" for one in letters)
    own_old, own_weight = (f"{one}{number}" for one in letters)
    formula = {
        "ratio_of_harmonic_means": f"(1/{own_old})/SUMPRODUCT(1/{old})",
        "weighted_harmonic": f"({own_weight}/{own_old})/SUMPRODUCT({weight}/{old})",
        "geometric": f"{own_weight}/SUM({weight})",
    }.get(merit.mean, f"1/ROWS({old})")  # in means without weights all lines have the same
    return Formula(formula, merit.weights[workload])


def _ratio_row(number: int, key: tuple[str, str], sheets: Sheets) -> Iterator[Value]:
    (workload, target), sheet_model, values = key, sheets.sheet_model, sheets.values
    old, ratio = (workload, str(sheet_model.baseline)), values.ratios[key]
    unit = PER_DAY if key in values.unit_per_day and old in values.unit_per_day else PER_SECOND
    yield from (workload, target, unit)
    cell = RATIOS.row(number)
    yield Formula(f"{cell['new']}/{cell['old']}", ratio.value)
    below = f"LN({cell['new']}/{cell['new_low']})^2+LN({cell['old_high']}/{cell['old']})^2"
    above = f"LN({cell['new_high']}/{cell['new']})^2+LN({cell['old']}/{cell['old_low']})^2"
    yield Formula(f"{cell['value']}*EXP(-SQRT((1-{cell['cancels']})*({below})))", ratio.low)
    yield Formula(f"{cell['value']}*EXP(SQRT((1-{cell['cancels']})*({above})))", ratio.high)
    yield _weight(number, workload, values.merits.get(target))
    yield Formula(sheets.workloads.of(workload, "weight"), sheet_model.workload(workload).weight)
    yield ratio.value
    states = [_state(one, sheets) for one in (old, key)]
    any_of = {word: ",".join(f'{state}="{word}"' for state in states) for word in ("error", "changed")}
    worst = f'IF(OR({any_of["error"]}),"error",IF(OR({any_of["changed"]}),"changed","{AS_ISSUED}"))'
    yield Formula(worst, AS_ISSUED)
    for one in (key, old):
        yield from _rate_cells(one, unit, sheets)
    yield Formula(f"{cell['value']}-{cell['low']}", ratio.value - ratio.low)
    yield Formula(f"{cell['high']}-{cell['value']}", ratio.high - ratio.value)
    for one in (key, old):
        yield _shared_cell(one, sheets)
    spans = [values.unit_per_day[one] if unit == PER_DAY else values.cases[one].step.wall_s for one in (key, old)]
    yield from _cancels(key, old, spans, cell, sheets)


def _answer_row(key: tuple[str, str], sheets: Sheets) -> Iterator[Value]:
    values, case = sheets.values, next((one for one in sheets.sheet_model.cases if one.key == key), None)
    yield from (*key, "given" if case is None else case.precision.partition(":")[0])
    step = None if case is None else values.cases[key].step.wall_s
    for index, end in enumerate(ENDS):
        cell = "" if step is None else sheets.terms.at(*key, STEP, end)
        yield "given" if step is None else Formula(f"1000*{cell}", 1000 * step.ends[index])
    rated = key in values.unit_per_day
    yield from _rate_cells(key, PER_DAY, sheets) if rated else [UNKNOWN] * 3
    yield "given" if step is None else 1000 * step.value
    yield known(values.unit_per_day[key].value if rated else None)
    yield Formula(_state(key, sheets), AS_ISSUED)
    behind = case or sheets.sheet_model.workload(key[0]).stated.get(key[1])
    unfit = ("does not fit the memory",) if behind is not None and behind.unfit else ()
    yield "" if behind is None else ", ".join((*unfit, *behind.excludes))


def _first_lines(page: Page, sheet_model: SheetModel) -> None:
    page.line(sheet_model.title, "headline")
    against = f", against {sheet_model.baseline}" if sheet_model.baseline is not None else ""
    page.line(f"Machines to rate: {', '.join(sheet_model.targets)}{against}.")
    level = level_text(sheet_model.level)
    page.line(f"Rates are for one {sheet_model.scope}. Intervals: {level}. All numbers below are computed here.")
    for _, message in sheet_model.caveats:
        page.line(f"caveat: {message}")
    for machine, message in sheet_model.deviations:
        page.line(f"deviation on {machine}: {message}")
    for case in sheet_model.cases:
        for message in case.deviations:
            page.line(f"note: {case.name}: {message}")
    for note in sheet_model.notes:
        page.line(f"note: {note}")
    page.gap()


def write_summary(page: Page, sheets: Sheets) -> SummaryCells:
    """Write the first page; the figure of merit is above the ratios that it is computed from."""
    sheet_model, values = sheets.sheet_model, sheets.values
    _first_lines(page, sheet_model)
    others = (mean for mean in MEANS if mean != sheet_model.mean)
    start, about = page.row, tuple(product(values.merits, (FOM, *RATES, *others, CHANCE, VERDICT)))
    merits = Placed(MERITS, page.first_row(), page.row + 1 + len(about), about)
    page.row += len(about) + 3 if about else 0
    keys = sorted(values.ratios, key=lambda key: sheet_model.targets.index(key[1]))
    ratios = None
    if keys:
        rows = [list(_ratio_row(number, key, sheets)) for number, key in enumerate(keys, page.first_row())]
        ratios = page.table(RATIOS, rows, about=keys)
    after = page.row
    page.row = start
    if ratios is not None:
        _write_merits(page, merits, sheets, ratios)
    page.row = after
    pairs = ((one.name, machine.name) for machine in sheet_model.machines for one in sheet_model.workloads)
    answer_keys = [key for key in pairs if key in values.cases or key in values.unit_per_day]
    rows = [list(_answer_row(key, sheets)) for key in answer_keys]
    return SummaryCells(page.table(ANSWERS, rows, about=answer_keys), ratios, merits)


OK = "ok"
_NEAR = 1e-9
_NEAR_BY = "ABS({found}-{expected})<=0.000000001*(ABS({expected})+ABS({found}))"
_EQUAL = f'IF(ISNUMBER({{found}}),IF({_NEAR_BY},"{OK}","error"),"error")'
"""State of two formulas that must agree."""


class Check(NamedTuple):
    """A check: its name, its subject, two formulas, their common value as issued, and the formula of its state."""

    what: str
    of: str
    found: str
    expected: str
    value: float
    state: str = _EQUAL
    issued: str = OK


def _case_checks(sheets: Sheets) -> Iterator[Check]:
    terms, ops = sheets.terms, sheets.ops
    for case in sheets.sheet_model.cases:
        one, name = sheets.values.cases[case.key], case.name
        block = {end: ops.block(case, end) for end in ("total", "time_source", "low", "high")}
        total, device = f"SUM({block['total']})", one.step.device_s.value
        yield Check("sum of the ops is the device's time", name, total, terms.at(*case.key, DEVICE), device)
        rows = sum(span is not None for span in one.ops)
        shares = f"SUM({sheets.families.block(case, 'share')})" if rows else "1"
        yield Check("shares of the time by kind and source sum to 1", name, shares, "1", 1.0)
        named = f'--({block["time_source"]}<>"{UNKNOWN}")'
        found = f"SUMPRODUCT({named},--ISNUMBER({block['total']}))"
        what = "every op that has a time source has a time"
        yield Check(what, name, found, f"SUMPRODUCT({named})", float(rows))
        found = f"SUMPRODUCT(--({block['low']}>1))+SUMPRODUCT(--ISNUMBER({block['high']}),--({block['high']}<1))"
        yield Check("every interval contains its time", name, found, "0", 0.0)
        step, low, high = (terms.at(*case.key, STEP, end) for end in ENDS)
        inside = f"IF(AND({low}<={step},{step}<={high}),1,0)"
        yield Check("the step is inside its interval", name, inside, "1", 1.0)


def _unit_checks(machines: MachineCells) -> Iterator[Check]:
    units, names = machines.placed.block("unit"), machines.placed.block("fact")
    for name, unit in UNIT_OF.items():
        if rows := sum(row.name == name for row in machines.rows):
            found = f'COUNTIFS({names},"{name}",{units},"{unit}")'
            yield Check(f"the unit of {name} is {unit}", FACTS.sheet, found, str(rows), float(rows))
    stated = sum(row.fact is not None for row in machines.rows)
    found, state = f"COUNT({machines.placed.block('value')})", f'IF({{found}}>={{expected}},"{OK}","error")'
    yield Check("every stated fact is a number, not text", FACTS.sheet, found, str(stated), stated, state)


def _mean_checks(sheets: Sheets, summary: SummaryCells) -> Iterator[Check]:
    mean = sheets.sheet_model.mean
    for target, merit in sheets.values.merits.items():
        if summary.ratios is None:
            continue
        span = own_rows(summary.ratios, target)
        ratio, weight, new, old = (summary.ratios.block(key, *span) for key in ("value", "weight", "new", "old"))
        fom = summary.merits.of((target, FOM), "value")
        yield Check("the weights of the lines sum to 1", target, f"SUM({weight})", "1", 1.0)
        inside = f"IF(AND({fom}>=MIN({ratio})*(1-{_NEAR:.9f}),{fom}<=MAX({ratio})*(1+{_NEAR:.9f})),1,0)"
        yield Check("the figure of merit is between the smallest and the largest ratio", target, inside, "1", 1.0)
        harmonic, arithmetic = (mean_formula(name, new, old, new) for name in ("harmonic", "arithmetic"))
        found = f"IF({harmonic}<={arithmetic}*(1+{_NEAR:.9f}),1,0)"
        yield Check("harmonic ≤ arithmetic mean of the ratios", target, found, "1", 1.0)
        if mean in ("ratio_of_harmonic_means", "weighted_harmonic", "harmonic"):
            what = "the harmonic mean of the ratios by these weights is the figure of merit"
            yield Check(what, target, f"1/SUMPRODUCT({weight}/{ratio})", fom, merit.value.value)


def _issued_checks(sheets: Sheets, summary: SummaryCells) -> Iterator[Check]:
    columns, values, terms = ("value", "was", "state"), sheets.values, sheets.terms
    for case in sheets.sheet_model.cases:
        for term in (STEP, RATE):
            if terms.has(*case.key, term):
                now, was, state = (terms.at(*case.key, term, column) for column in columns)
                one = values.cases[case.key]
                span = one.unit_per_day if term == RATE else one.step.wall_s
                value = span.value if span is not None else 0.0
                yield Check(f"{term} equals Python's, as issued", case.name, now, was, value, state, AS_ISSUED)
    for target, merit in values.merits.items():
        now, was, state = (summary.merits.of((target, FOM), column) for column in columns)
        what, value = "figure of merit equals Python's, as issued", merit.value.value
        yield Check(what, target, now, was, value, state, AS_ISSUED)


def _check_row(number: int, check: Check) -> list[Value]:
    state = check.state.format(**CHECKS.row(number))
    pair = (Formula(check.found, check.value), Formula(check.expected, check.value))
    return [check.what, check.of, *pair, Formula(state, check.issued)]


def write_checks(page: Page, sheets: Sheets, summary: SummaryCells) -> None:
    """Write all checks; the first line counts errors."""
    page.line("Identities always hold. Equality with Python's value is checked only where no input was changed.")
    counted = page.row
    page.row += 2
    checks = [
        *_case_checks(sheets), *_unit_checks(sheets.machines), *_mean_checks(sheets, summary),
        *_issued_checks(sheets, summary),
    ]  # fmt: skip
    placed = page.table(CHECKS, [_check_row(number, one) for number, one in enumerate(checks, page.first_row())])
    after, page.row = page.row, counted
    page.count("errors:", Formula(f'COUNTIF({placed.column("state")},"error")', 0))
    page.row = after
