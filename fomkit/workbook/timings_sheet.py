"""Write the sheet Timings: sums of ops by kind and time source, and all terms from ops to units a day."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import sqrt

from fomkit.core.interval import Span
from fomkit.core.units import DAY_S
from fomkit.plan.coverage import ON_ONE_CHIP, OTHER_MAKER, group_of
from fomkit.plan.coverage import STEP as WHOLE
from fomkit.plan.options import overhead_span
from fomkit.plan.step import INPUT, common_of
from fomkit.workbook.cells import Formula, Page, Value, known
from fomkit.workbook.input_sheets import USE, MachineCells, state_of_value
from fomkit.workbook.layout import AS_ISSUED, CHANGED, FAMILIES, TERMS, UNKNOWN, Placed
from fomkit.workbook.op_sheets import CaseCells, devices_formula, own_squares
from fomkit.workbook.records import Case, CaseValues, SheetModel, Values

_Sums = dict[tuple[str, str], list[float]]


def _ends_of_family(family: tuple[str, str], sums: Sequence[float]) -> list[float]:
    """Return value and bounds of a family of ops, and the half-widths that are common to its ops [s]."""
    value, low, high, own_low, own_high = sums
    common, sides = common_of(*family), (value - low, high - value)
    below, above = (
        sqrt(common * side**2 + (1 - common) * own) for side, own in zip(sides, (own_low, own_high), strict=True)
    )
    return [value, value - below, value + above, *(sqrt(common) * side for side in sides)]


def _family_sums(case: Case, values: Values) -> _Sums:
    sums: dict[tuple[str, str], list[float]] = {}
    spans = values.cases[case.key].ops
    for line, span, squares in zip(case.ops, spans, own_squares(case, spans), strict=True):
        # An op without a time also gets a family, with sum 0, because a time may be written into the workbook.
        row = sums.setdefault((line.kind, line.time_source or UNKNOWN), [0.0] * 10)
        ends = () if span is None else (*(end * line.count for end in span.ends), *squares)
        for index, end in enumerate(ends):
            row[index] += end
            row[index + 5] += end if line.phase == "forward" else 0.0
    parts = slice(5), slice(5, 10)
    return {
        family: [end for part in parts for end in _ends_of_family(family, row[part])]
        for family, row in sorted(sums.items())
    }


def _family_row(
    number: int, case: Case, family: tuple[str, str], sums: _Sums, ops: CaseCells, first: int
) -> Iterator[Value]:
    yield from (*case.key, *family)
    cell, letter, share = FAMILIES.row(number), FAMILIES.letter("value"), common_of(*family)
    same = f"{ops.block(case, 'kind')},{cell['kind']},{ops.block(case, 'time_source')},{cell['time_source']}"
    places = (("", "value"), (f',{ops.block(case, "pass_name")},"forward"', "forward"))

    def total(key: str, extra: str = "") -> str:
        return f"SUMIFS({ops.block(case, key)},{same}{extra})"

    for (extra, column), ends in zip(places, (sums[family][:3], sums[family][5:8]), strict=True):
        yield Formula(total("total", extra), ends[0])
        for sign, key, end in zip("-+", ("low", "high"), ends[1:], strict=True):
            common, own = f"({cell[column]}-{total(f'total_{key}', extra)})^2", total(f"own_{key}", extra)
            width = f"SQRT({share:g}*{common}+{1 - share:g}*{own})"
            yield Formula(f"{cell[column]}{sign}{width}", end)
    all_rows = f"SUM({letter}${first}:{letter}${first + len(sums) - 1})"
    part = f'IF({all_rows}>0,{cell["value"]}/{all_rows},"{UNKNOWN}")'
    whole = sum(one[0] for one in sums.values())
    yield Formula(part, sums[family][0] / whole if whole else UNKNOWN)
    for key, side in zip(("low", "high"), sums[family][3:5], strict=True):
        yield Formula(f"SQRT({share:g})*ABS({cell['value']}-{total(f'total_{key}')})", side)


def _use_row(
    case: Case, group: str, first: int, sums: _Sums, ends: tuple[float, float], bounds: tuple[str, ...]
) -> list[Value] | None:
    """Return a row that widens the interval of a group's sum: its value is 0, and its width adds in quadrature.

    The whole is widened if the time of any op rests on a table, in the step or in its forward pass alone.
    """
    names = [group_of(*family) for family in sums]
    timed = [
        at for at, name in enumerate(names) if name == group or (group == WHOLE and name not in ("", OTHER_MAKER))
    ]
    if not timed:
        return None
    row: list[Value] = [*case.key, f"use in a step: {group}", "facts" if group == OTHER_MAKER else "tables"]
    shared: list[Value] = [0.0, 0.0]  # errors of use are a line's own, those of a library are common to its lines
    for key, place in (("value", 0), ("forward", 5)):
        letter, times = FAMILIES.letter(key), [one[place] for one in sums.values()]
        of_tables = "+".join(f"{letter}{first + index}" for index in timed)
        cells, total = f"({of_tables})", sum(times[index] for index in timed)
        if group == WHOLE:
            every = f"SUM({letter}{first}:{letter}{first + len(sums) - 1})"
            cells, total = f"IF({of_tables}>0,{every},0)", sum(times) if total > 0 else 0.0
        widths = [(f"{cells}*({bound}-1)", total * (end - 1)) for bound, end in zip(bounds, ends, strict=True)]
        row += [0.0, *(Formula(*width) for width in widths)]
        if group == OTHER_MAKER and key == "value":
            shared = [Formula(f"ABS({text})", abs(width)) for text, width in widths]
    return [*row, 0.0, *shared]


def write_families(
    page: Page, sheet_model: SheetModel, values: Values, ops: CaseCells, assumptions: Placed
) -> CaseCells:
    """Write the sums of every case by kind and time source, and what use in a step adds to their intervals."""
    first, rows, starts = page.first_row(), list[list[Value]](), {}
    for case in sheet_model.cases:
        start, sums = len(rows), _family_sums(case, values)
        for family in sums:
            rows.append(list(_family_row(first + len(rows), case, family, sums, ops, first + start)))
        for group, (name, ends) in sheet_model.uses_on(case.machine).items():
            bounds = (assumptions.of(f"{USE}{name}, {end}", "value") for end in ("low", "high"))
            widened = _use_row(case, group, first + start, sums, ends, tuple(bounds))
            rows += [widened] if widened is not None else []
        starts[case.key] = (start, len(rows))
    return CaseCells(page.table(FAMILIES, rows), starts)


ENDS = ("value", "low", "high")
CHANGED_INPUTS, DEVICE, SHARED, STEP, EPOCH, RUN, RATE = (
    "changed inputs", "device", "share of the error's variance that lines share", "step", "epoch", "run",
    "units of work",
)  # fmt: skip
ON_CHIP = {name: f"share of the error's variance by {name} of its chip" for name in ON_ONE_CHIP}
"""Names of the terms that say which errors boards of one chip have in common."""
Triple = Sequence[str]
"""Formulas or cells of a value, its low and its high bound."""


@dataclass
class TermCells:
    """The rows of the table of terms, filled one by one, and the row of each term."""

    first: int
    rows: list[list[Value]] = field(default_factory=list)
    places: dict[tuple[str, str, str], int] = field(default_factory=dict)

    def at(self, workload: str, machine: str, term: str, key: str = "value") -> str:
        """Return a cell of a term, in the form used on other sheets."""
        return f"{TERMS.sheet}!${TERMS.letter(key)}${self.places[workload, machine, term]}"

    def has(self, workload: str, machine: str, term: str) -> bool:
        """Return whether a workload on a machine has a term."""
        return (workload, machine, term) in self.places

    def add(
        self, case: Case, term: str, unit: str, span: Span | float | None, formulas: Triple, how: str
    ) -> Triple:
        """Append a term and return its cells: value, low and high."""
        number = self.first + len(self.rows)
        self.places[*case.key, term] = number
        ends = span.ends if isinstance(span, Span) else (known(span),) * 3
        cell, changed = TERMS.row(number), TERMS.row(self.places[*case.key, CHANGED_INPUTS])["value"]
        now, was = cell["value"], cell["was"]
        state = f'IF(ISNUMBER({now}),{state_of_value(now, was)},IF({now}={was},"{UNKNOWN}","error"))'
        self.rows.append([
            *case.key, term, unit,
            *(Formula(formula, end) for formula, end in zip(formulas, ends, strict=True)),
            *ends,
            Formula(f'IF({changed}>0,"{CHANGED}",{state})', UNKNOWN if ends[0] == UNKNOWN else AS_ISSUED),
            how,
        ])  # fmt: skip
        return [cell[key] for key in ENDS]


@dataclass(frozen=True)
class Sheets:
    """A sheet model, its results, and the places of the cells that later sheets refer to."""

    sheet_model: SheetModel
    values: Values
    assumptions: Placed
    machines: MachineCells
    workloads: Placed
    given: Placed
    jobs: Placed
    ops: CaseCells
    families: CaseCells
    terms: TermCells

    def stated(self, key: tuple[str, str]) -> Placed | None:
        """Return the table that rates a workload on a machine without its ops, if there is one."""
        return next((table for table in (self.given, self.jobs) if key in table.rows), None)


def _triple(*parts: Triple | str, join: str = "*") -> Triple:
    """Join cells separately for value, low and high; a text is used in all three."""
    return [join.join(part if isinstance(part, str) else part[end] for part in parts) for end in range(3)]


def _quadrature(sheets: Sheets, case: Case, prefix: str) -> Triple:
    """Return the sum of families with independent errors; each side of the interval is computed separately."""
    if not sheets.families.has_any(case):
        return _triple("0")
    keys = ENDS if not prefix else (prefix, f"{prefix}_low", f"{prefix}_high")
    value, low, high = (sheets.families.block(case, key) for key in keys)
    total = f"SUM({value})"
    return total, f"{total}-SQRT(SUMXMY2({value},{low}))", f"{total}+SQRT(SUMXMY2({high},{value}))"


def _overheads(sheets: Sheets, case: Case, per: str, of: Triple, base: Span) -> dict[str, Triple]:
    """Add a machine's overheads per step, epoch or run: times, or shares of the time that they are added to."""
    cells: dict[str, Triple] = {}
    triple: Triple
    for overhead in sheets.sheet_model.machine(case.machine).overheads:
        if overhead.per != per:
            continue
        if overhead.time_s is not None:
            triple = [sheets.machines.si(case.machine, "overhead", overhead.name, per, end) for end in ENDS]
        else:
            triple = _triple(of, sheets.machines.si(case.machine, "overhead share", overhead.name, per))
        span, term = overhead_span(overhead, base), f"overhead per {per}: {overhead.name}"
        cells[overhead.name] = sheets.terms.add(case, term, "s", span, triple, "Machines")
    return cells


def _step_terms(sheets: Sheets, case: Case, values: CaseValues) -> tuple[Triple, Triple | None]:
    step = values.step
    forward = None
    if "forward" in step.passes:
        span, formulas = step.passes["forward"], _quadrature(sheets, case, "forward")
        forward = sheets.terms.add(case, "forward pass", "s", span, formulas, "part of the device's time")
    how = "ops one after the other; errors common to a kind and source add, others add in quadrature"
    device = sheets.terms.add(case, DEVICE, "s", step.device_s, _quadrature(sheets, case, ""), how)
    if sheets.families.has_any(case):
        sides = (sheets.families.block(case, f"shared_{end}") for end in ("low", "high"))
        together = "+".join(f"SQRT(SUMSQ({side}))" for side in sides)
        width = f"({device[2]}-{device[1]})"
        sheets.terms.add(
            case, SHARED, "1", step.device_s.shared, _triple(f"IF({width}>0,(({together})/{width})^2,1)"),
            "squared common errors of kinds and sources, divided by all squared errors",
        )  # fmt: skip
    alike = step.device_s.common if case.machine in sheets.sheet_model.chips else ()
    for (name, share), term in zip(alike, ON_ONE_CHIP, strict=False):
        value, low, high, source = (sheets.families.block(case, key) for key in (*ENDS, "time_source"))
        some = "+".join(f'({source}="{word}")' for word in ON_ONE_CHIP[term])
        sides = (f"SQRT(SUMPRODUCT(({some})*({value}-{end})^2))" for end in (low, high))
        own = f"IF({device[2]}>{device[1]},(({'+'.join(sides)})/({device[2]}-{device[1]}))^2,0)"
        sheets.terms.add(case, ON_CHIP[term], "1", share, _triple(own), f"squared errors by {name}")
    starts = sheets.ops.block(case, "step_starts")
    costs = [sheets.machines.si(case.machine, "launch cost", end=end) for end in ENDS]
    launch = [f'IF(ISNUMBER({cost}),{cost}*SUM({starts}),"{UNKNOWN}")' for cost in costs]
    host = sheets.terms.add(case, "host launch", "s", step.host_launch_s, launch, "kernel starts · launch cost")
    stated = _overheads(sheets, case, "step", device, step.device_s)
    candidates = [device, host, *([stated.pop(INPUT)] if INPUT in stated else [])]
    longest = [f"MAX({one})" for one in _triple(*candidates, join=",")]
    how = "the longest of device, host launch and input, plus overheads"
    wall = _triple(longest, *stated.values(), join="+")
    return sheets.terms.add(case, STEP, "s", step.wall_s, wall, how), forward


def _epoch(sheets: Sheets, case: Case, values: CaseValues, step: Triple, forward: Triple | None) -> Triple | None:
    run, at = values.run, sheets.workloads.of
    if run.epoch_s is None or run.training_s is None:
        return None
    steps = at(case.workload, "steps")
    how = "step · steps per epoch"
    training = sheets.terms.add(case, "training of an epoch", "s", run.training_s, _triple(step, steps), how)
    terms = [training]
    if run.validation_s is not None and forward is not None:
        formulas = _triple(forward, at(case.workload, "validation_steps"))
        how = "forward pass · validation steps"
        terms.append(sheets.terms.add(case, "validation of an epoch", "s", run.validation_s, formulas, how))
    terms += _overheads(sheets, case, "epoch", training, run.training_s).values()
    return sheets.terms.add(case, EPOCH, "s", run.epoch_s, _triple(*terms, join="+"), "sum of the terms above")


def _run_terms(sheets: Sheets, case: Case, values: CaseValues, epoch: Triple) -> None:
    run, at, sheet_model = values.run, sheets.workloads.of, sheets.sheet_model
    workload = sheet_model.workload(case.workload)
    if run.run_s is None or run.epoch_s is None or workload.run.epochs is None:
        return
    trained_s = run.epoch_s.scaled(workload.run.epochs)
    formulas = _triple(epoch, at(case.workload, "epochs"))
    trained = sheets.terms.add(case, "all epochs", "s", trained_s, formulas, "epoch · epochs")
    extra = _overheads(sheets, case, "run", trained, trained_s).values()
    total = sheets.terms.add(
        case, RUN, "s", run.run_s, _triple(trained, *extra, join="+"), "all epochs and overheads"
    )
    devices, share = devices_formula(sheet_model, case.machine, sheets.machines)
    at_once = f"QUOTIENT({devices},{at(case.workload, 'devices')})"
    how = f"devices of one {sheet_model.scope} / devices per run"
    count = sheets.terms.add(case, "runs at once", "1", float(values.runs_at_once), _triple(at_once), how)
    runs, (value, low, high) = at(case.workload, "runs"), total
    rates = [f"{DAY_S:.0f}*{count[0]}{share}/({end}*{runs})" for end in (value, high, low)]
    how = "seconds of a day · runs at once / (run · runs per unit)"
    sheets.terms.add(case, RATE, "1/day", values.unit_per_day, rates, how)


def write_timings(
    page: Page, sheet_model: SheetModel, values: Values, assumptions: Placed, machines: MachineCells,
    workloads: tuple[Placed, Placed, Placed], ops: CaseCells,
) -> Sheets:  # fmt: skip
    """Write the roll-up of every case."""
    page.intro("Everything here is computed. Inputs are in Workloads, Machines and Ops.")
    families = write_families(page, sheet_model, values, ops, assumptions)
    terms = TermCells(page.first_row())
    sheets = Sheets(sheet_model, values, assumptions, machines, *workloads, ops, families, terms)
    for case in sheet_model.cases:
        of_case = values.cases[case.key]
        counts = [
            f'COUNTIF({ops.block(case, "state")},"{CHANGED}")',
            f'COUNTIF({machines.states(case.machine)},"{CHANGED}")',
            f'IF({sheets.workloads.of(case.workload, "state")}="{CHANGED}",1,0)',
        ]
        terms.add(case, CHANGED_INPUTS, "1", 0.0, _triple("+".join(counts)), "of its ops, machine and workload")
        step, forward = _step_terms(sheets, case, of_case)
        epoch = _epoch(sheets, case, of_case, step, forward)
        if epoch is not None:
            _run_terms(sheets, case, of_case, epoch)
    page.table(TERMS, terms.rows)
    return sheets
