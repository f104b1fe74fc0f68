"""From ops to units a day for each workload and machine, term by term, as formulas.

Ops of one kind and time source err together: their sums, from which the device's interval is made.

The sheet Timings: the sums over ops, and every term from them to units a day.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from fomkit.core.interval import Span
from fomkit.core.units import DAY_S
from fomkit.plan.coverage import GROUPS, TABLES
from fomkit.plan.step import INPUT, overhead_span
from fomkit.workbook.cells import Formula, Page, Value, known
from fomkit.workbook.input_sheets import USE, AssumptionCells, MachineCells
from fomkit.workbook.layout import AS_ISSUED, CHANGED, FAMILIES, TERMS, UNKNOWN, Placed
from fomkit.workbook.op_sheets import OpCells, WorkloadCells, devices_formula, up_share_formula
from fomkit.workbook.records import Case, CaseValues, SheetModel, Values

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
    page: Page, sheet_model: SheetModel, values: Values, ops: OpCells, assumptions: AssumptionCells
) -> FamilyCells:
    """Write the sums of every case by kind and time source, and what use in a step adds to their widths."""
    first, rows, starts = page.first_row(), list[list[Value]](), {}
    for case in sheet_model.cases:
        start, sums = len(rows), _sums(case, values)
        total = sum(one[0] for one in sums.values())
        span = (first + start, first + start + len(sums) - 1)
        for family, one in sums.items():
            rows.append(list(_row(first + len(rows), case, family, one, ops, span, total)))
        for group, ends in sheet_model.uses.items() if case.machine in sheet_model.widened else ():
            bounds = (assumptions.at(f"{USE}{group}, low"), assumptions.at(f"{USE}{group}, high"))
            widened = _in_use(case, group, first + start, sums, ends, bounds)
            rows += [widened] if widened is not None else []
        starts[case.workload, case.machine] = (start, len(rows))
    return FamilyCells(page.table(FAMILIES, rows), starts)


ENDS = ("value", "low", "high")
CHANGED_INPUTS, DEVICE, STEP, EPOCH, RUN, RATE = (
    "changed inputs", "device", "step", "epoch", "run", "units of work",
)  # fmt: skip
Triple = tuple[str, str, str]


@dataclass(frozen=True)
class Sources:
    """Where the sheets that the terms draw on have their cells."""

    sheet_model: SheetModel
    machines: MachineCells
    workloads: WorkloadCells
    ops: OpCells
    families: FamilyCells


@dataclass
class TermRows:
    """The rows of the table of terms as they grow, and where each term stands."""

    first: int
    rows: list[list[Value]] = field(default_factory=list)
    places: dict[tuple[str, str, str], int] = field(default_factory=dict)

    def add(
        self, case: Case, term: str, unit: str, span: Span | float | None, formulas: Triple, how: str
    ) -> Triple:
        """Append a term and name its cells: value, low and high."""
        number = self.first + len(self.rows)
        self.places[case.workload, case.machine, term] = len(self.rows)
        ends = _ends(span)
        cells = [f"{TERMS.letter(key)}{number}" for key in ENDS]
        changed = self.places[case.workload, case.machine, CHANGED_INPUTS] + self.first
        state = _state(cells[0], f"{TERMS.letter('was')}{number}", f"{TERMS.letter('value')}{changed}")
        self.rows.append([
            case.workload, case.machine, term, unit,
            *(Formula(formula, end) for formula, end in zip(formulas, ends, strict=True)),
            *ends,
            Formula(state, UNKNOWN if ends[0] == UNKNOWN else AS_ISSUED),
            how,
        ])  # fmt: skip
        return cells[0], cells[1], cells[2]


def _ends(span: Span | float | None) -> list[float | str]:
    if isinstance(span, Span):
        return [span.value, span.low, span.high]
    return [known(span)] * 3


def _state(now: str, was: str, changed: str) -> str:
    unchanged_state = f'IF(ABS({now}-{was})<=0.000000001*ABS({was}),"{AS_ISSUED}","error")'
    return f'IF({changed}>0,"{CHANGED}",IF(ISNUMBER({now}),{unchanged_state},IF({now}={was},"{UNKNOWN}","error")))'


def same(formula: str) -> Triple:
    """Give a formula for the value and both ends, which are equal."""
    return formula, formula, formula


def each(*parts: Triple | str, join: str = "*") -> Triple:
    """Join cells, end by end; a text stands in all three."""
    joined = [join.join(part if isinstance(part, str) else part[end] for part in parts) for end in range(3)]
    return joined[0], joined[1], joined[2]


def _quadrature(source: Sources, case: Case, prefix: str) -> Triple:
    """Write the sum of families that err independently; each side of the interval on its own."""
    if not source.families.has_any(case):
        return same("0")
    keys = ENDS if not prefix else (prefix, f"{prefix}_low", f"{prefix}_high")
    value, low, high = (source.families.block(case, key) for key in keys)
    total = f"SUM({value})"
    return total, f"{total}-SQRT(SUMXMY2({value},{low}))", f"{total}+SQRT(SUMXMY2({high},{value}))"


def _overheads(rows: TermRows, source: Sources, case: Case, per: str, of: Triple, base: Span) -> dict[str, Triple]:
    """Add the overheads of a machine per step, epoch or run; they are times, or shares of what they add to."""
    cells: dict[str, Triple] = {}
    for overhead in source.sheet_model.machine(case.machine).overheads:
        if overhead.per != per:
            continue
        if overhead.time_s is not None:
            formulas = tuple(source.machines.si(case.machine, "overhead", overhead.name, per, end) for end in ENDS)
            triple = (formulas[0], formulas[1], formulas[2])
        else:
            triple = each(of, source.machines.si(case.machine, "overhead share", overhead.name, per))
        span = overhead_span(overhead, base)
        cells[overhead.name] = rows.add(
            case, f"overhead per {per}: {overhead.name}", "s", span, triple, "Machines"
        )
    return cells


def _step(rows: TermRows, source: Sources, case: Case, values: CaseValues) -> tuple[Triple, Triple | None]:
    step = values.step
    forward = None
    if "forward" in step.passes:
        formulas = _quadrature(source, case, "forward")
        forward = rows.add(
            case, "forward pass", "s", step.passes["forward"], formulas, "part of the device's time"
        )
    how = "ops one after the other; errors common within a kind and source, else in quadrature"
    device = rows.add(case, DEVICE, "s", step.device_s, _quadrature(source, case, ""), how)
    starts = source.ops.block(case, "step_starts")
    costs = [source.machines.si(case.machine, "launch cost", end=end) for end in ENDS]
    launch = [f'IF(ISNUMBER({cost}),{cost}*SUM({starts}),"{UNKNOWN}")' for cost in costs]
    formulas = (launch[0], launch[1], launch[2])
    host = rows.add(case, "host launch", "s", step.host_launch_s, formulas, "kernel starts · launch cost")
    stated = _overheads(rows, source, case, "step", device, step.device_s)
    beside = [device, host, *([stated.pop(INPUT)] if INPUT in stated else [])]
    longest = each(*beside, join=",")
    extra = list(stated.values())
    walls = [f"MAX({longest[end]})" + "".join(f"+{one[end]}" for one in extra) for end in range(3)]
    how = "the longest of device, host launch and input, plus overheads"
    return rows.add(case, STEP, "s", step.wall_s, (walls[0], walls[1], walls[2]), how), forward


def _epoch(
    rows: TermRows, source: Sources, case: Case, values: CaseValues, step: Triple, forward: Triple | None
) -> Triple | None:
    run, at = values.run, source.workloads.at
    if run.epoch_s is None or run.training_s is None:
        return None
    steps = at(case.workload, "steps")
    training = rows.add(
        case, "training of an epoch", "s", run.training_s, each(step, steps), "step · steps per epoch"
    )
    terms = [training]
    if run.validation_s is not None and forward is not None:
        formulas = each(forward, at(case.workload, "validation_steps"))
        how = "forward pass · validation steps"
        terms.append(rows.add(case, "validation of an epoch", "s", run.validation_s, formulas, how))
    terms += _overheads(rows, source, case, "epoch", training, run.training_s).values()
    return rows.add(case, EPOCH, "s", run.epoch_s, each(*terms, join="+"), "sum of the terms above")


def _run(rows: TermRows, source: Sources, case: Case, values: CaseValues, epoch: Triple) -> None:
    run, at, sheet_model = values.run, source.workloads.at, source.sheet_model
    workload = sheet_model.workload(case.workload)
    if run.run_s is None or run.epoch_s is None or workload.run.epochs is None:
        return
    trained_s = run.epoch_s.scaled(workload.run.epochs)
    formulas = each(epoch, at(case.workload, "epochs"))
    trained = rows.add(case, "all epochs", "s", trained_s, formulas, "epoch · epochs")
    extra = _overheads(rows, source, case, "run", trained, trained_s).values()
    total = rows.add(case, RUN, "s", run.run_s, each(trained, *extra, join="+"), "all epochs and overheads")
    devices = devices_formula(sheet_model, case.machine, source.machines)
    at_once = f"QUOTIENT({devices},{at(case.workload, 'devices')})"
    how = f"devices of one {sheet_model.scope} / devices per run"
    count = rows.add(case, "runs at once", "1", float(values.runs_at_once), same(at_once), how)
    share = up_share_formula(sheet_model, case.machine, source.machines)
    seconds = f"({{}}*{at(case.workload, 'runs')})"
    rates = [f"{DAY_S:.0f}*{count[0]}{share}/{seconds.format(end)}" for end in (total[0], total[2], total[1])]
    how = "seconds of a day · runs at once / (run · runs per unit)"
    rows.add(case, RATE, "1/day", values.unit_per_day, (rates[0], rates[1], rates[2]), how)


def add_case(rows: TermRows, source: Sources, case: Case, values: CaseValues) -> None:
    """Add every term of one workload on one machine."""
    rows.places[case.workload, case.machine, CHANGED_INPUTS] = len(rows.rows)
    counts = [
        f'COUNTIF({source.ops.block(case, "state")},"{CHANGED}")',
        f'COUNTIF({source.machines.states(case.machine)},"{CHANGED}")',
        f'IF({source.workloads.at(case.workload, "state")}="{CHANGED}",1,0)',
    ]
    rows.add(case, CHANGED_INPUTS, "1", 0.0, same("+".join(counts)), "of its ops, machine and workload")
    step, forward = _step(rows, source, case, values)
    epoch = _epoch(rows, source, case, values, step, forward)
    if epoch is not None:
        _run(rows, source, case, values, epoch)


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
    sheet_model: SheetModel,
    values: Values,
    sheets: tuple[AssumptionCells, MachineCells, WorkloadCells, OpCells],
) -> TermCells:
    """Write the roll-up of every case."""
    page.line("All of this is computed. Inputs stand in Workloads, Machines and Ops.")
    page.gap()
    assumptions, machines, workloads, ops = sheets
    families = write_families(page, sheet_model, values, ops, assumptions)
    rows = TermRows(page.first_row())
    source = Sources(sheet_model, machines, workloads, ops, families)
    for case in sheet_model.cases:
        add_case(rows, source, case, values.cases[case.workload, case.machine])
    return TermCells(page.table(TERMS, rows.rows), families, rows.places)
