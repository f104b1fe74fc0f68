"""Write the sheets Workloads (conditions of a run, given times, jobs) and Ops (work and time of each op)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import isnan
from typing import Any

from fomkit.core.interval import Span
from fomkit.core.machine import Machine
from fomkit.core.units import DAY_S
from fomkit.files.csv import number_cell
from fomkit.workbook.cells import Formula, Page, Value, known
from fomkit.workbook.input_sheets import MachineCells, state_of_inputs
from fomkit.workbook.layout import (
    AS_ISSUED,
    CHANGED,
    GIVEN,
    JOB_KEYS,
    JOBS,
    OP_KEYS,
    OPS,
    RUN_KEYS,
    UNKNOWN,
    WORKLOADS,
    Placed,
    Table,
)  # fmt: skip
from fomkit.workbook.records import Case, OpLine, SheetModel, Values, WorkloadFacts

HOUR_S = 3600


def _steps_formula(cell: Mapping[str, str], key: str, samples: int | None, facts: WorkloadFacts) -> Formula:
    """Return the steps of an epoch, or of its validation, from the column of its samples."""
    count, batch = cell[key], cell["batch"]
    partial = f'IF(AND({cell["last_batch"]}="keep",MOD({count},{batch})>0),1,0)'
    formula = f'IF(AND(ISNUMBER({count}),ISNUMBER({batch})),QUOTIENT({count},{batch})+{partial},"unknown")'
    if samples is None or facts.batch is None:
        return Formula(formula, UNKNOWN)
    full, rest = divmod(samples, facts.batch)
    return Formula(formula, full + (facts.data.last_batch == "keep" and rest > 0))


def _workload_row(number: int, facts: WorkloadFacts) -> Iterator[Value]:
    cell, data, run = WORKLOADS.row(number), facts.data, facts.run
    samples = map(known, (facts.batch, data.train_samples, data.validation_samples))
    # In the order of `RUN_KEYS`.
    values = (*samples, data.last_batch, known(run.epochs), facts.unit.runs, run.devices_per_run, facts.weight)
    yield from (facts.name, facts.title, facts.unit.name, *values)
    yield from ("yes" if facts.required else "no", facts.category, facts.basis, facts.party)
    yield _steps_formula(cell, "train", data.train_samples, facts)
    yield _steps_formula(cell, "validation", data.validation_samples, facts)
    yield from values
    yield Formula(state_of_inputs((cell[key], cell[f"was_{key}"]) for key in RUN_KEYS), AS_ISSUED)


def devices_formula(sheet_model: SheetModel, machine: str, machines: MachineCells) -> tuple[str, str]:
    """Return the formula of the number of devices at the sheet model's scope, and the factor of availability."""
    per_node, nodes = machines.si(machine, "devices per node"), machines.si(machine, "nodes")
    if sheet_model.scope == "system":
        return f"{per_node}*{nodes}", f"*{machines.si(machine, 'availability')}"
    return per_node if sheet_model.scope == "node" else "1", ""


def _given_row(
    number: int, key: tuple[str, str], sheet_model: SheetModel, values: Values, machines: MachineCells
) -> Iterator[Value]:
    one, machine = sheet_model.workload(key[0]), key[1]
    facts, given, rate = sheet_model.machine(machine), one.given[machine].unit_s, values.unit_per_day[key]
    hours, *ends = (float(f"{end / HOUR_S:.15g}") for end in given.ends)
    at_once = facts.up_devices(sheet_model.scope)
    cell = GIVEN.row(number)
    yield from (*key, hours)
    for end in ends:
        yield Formula(cell["hours"], hours, is_input=True) if end == hours else end
    yield from (one.given[machine].basis, one.given[machine].party, one.given[machine].source)
    yield Formula("".join(devices_formula(sheet_model, machine, machines)), at_once)
    for divisor, rated in zip(("hours", "high", "low"), rate.ends, strict=True):
        yield Formula(f"{DAY_S:.0f}*{cell['at_once']}/({cell[divisor]}*{HOUR_S})", rated)
    yield from (hours, *ends, rate.value)
    pairs = [(cell[now], cell[was]) for now, was in (("hours", "was"), ("low", "was_low"), ("high", "was_high"))]
    changed = f'COUNTIF({machines.states(machine)},"{CHANGED}")'
    yield Formula(state_of_inputs([*pairs, (changed, "0")]), AS_ISSUED)


def _job_row(
    number: int, key: tuple[str, str], sheet_model: SheetModel, values: Values, machines: MachineCells,
    workloads: Placed,
) -> Iterator[Value]:  # fmt: skip
    """Write the terms of a run on many devices: a step is their sum, a run is its steps plus the rest."""
    one, cell = sheet_model.workload(key[0]).jobs[key[1]], JOBS.row(number)
    # In the order of `JOB_KEYS`.
    terms = (one.calculation_s, one.exposed_s, one.bubble_s, one.other_s, one.rest_s, one.low, one.high)
    inputs = (one.devices, one.at_once, one.steps, *terms)
    yield from (*key, *inputs, one.basis, one.party, one.source)
    parts = "+".join(cell[name] for name in ("calculation", "exposed", "bubble", "beside"))
    yield Formula(parts, one.step_s)
    yield Formula(f"({cell['step']}*{cell['steps']}+{cell['rest']})/{HOUR_S}", one.run_s(0.8).value / HOUR_S)
    up, runs = devices_formula(sheet_model, key[1], machines)[1], workloads.of(key[0], "runs")
    for end, rated in zip(("", f"*{cell['high']}", f"*{cell['low']}"), values.unit_per_day[key].ends, strict=True):
        taken = f"{cell['run']}*{HOUR_S}*{runs}{end}"
        yield Formula(f"{DAY_S:.0f}*{cell['at_once']}{up}/({taken})", rated)
    yield from inputs
    pairs = [(cell[key], cell[f"was_{key}"]) for key in JOB_KEYS]
    changed = f'COUNTIF({machines.states(key[1])},"{CHANGED}")'
    facts = f'IF({workloads.of(key[0], "state")}="{CHANGED}",1,0)'
    yield Formula(state_of_inputs([*pairs, (changed, "0"), (facts, "0")]), AS_ISSUED)


def write_workloads(
    page: Page, sheet_model: SheetModel, values: Values, machines: MachineCells
) -> tuple[Placed, Placed, Placed]:
    """Write the workloads, and given times and jobs where there are any; return the three tables' places."""
    page.intro("Definition of a run of each workload. Grey cells are fixed: a change is reported as a deviation.")
    rows = [list(_workload_row(number, one)) for number, one in enumerate(sheet_model.workloads, page.first_row())]
    placed = page.table(WORKLOADS, rows, about=[workload.name for workload in sheet_model.workloads])

    def stated(table: Table, keys: list[tuple[str, str]], row: Callable[..., Iterator[Value]]) -> Placed:
        if not keys:
            return Placed(table, 0, 0)
        numbered = enumerate(keys, page.first_row())
        rows = [list(row(number, key, sheet_model, values, machines)) for number, key in numbered]
        own = {index for index, (_, machine) in enumerate(keys) if machine not in sheet_model.targets}
        return page.table(table, rows, conditions=own, about=keys)

    lines = sheet_model.workloads
    given = stated(GIVEN, [(one.name, machine) for one in lines for machine in one.given], _given_row)
    job_row = partial(_job_row, workloads=placed)
    return placed, given, stated(JOBS, [(one.name, machine) for one in lines for machine in one.jobs], job_row)


@dataclass(frozen=True)
class CaseCells:
    """A table with the rows of each case: its first row and the row after its last."""

    placed: Placed
    starts: dict[tuple[str, str], tuple[int, int]]

    def block(self, case: Case, key: str) -> str:
        """Return the cells of a column that belong to a case."""
        return self.placed.block(key, *self.starts[case.key])

    def has_any(self, case: Case) -> bool:
        """Return whether a case has a row."""
        first, stop = self.starts[case.key]
        return stop > first


def _how_made(line: OpLine) -> str:
    if line.utilisation is not None:
        return f"floor / utilisation{' + starts · launch cost' if line.starts else ''}"
    if line.time_s is None:
        return "unknown: no time, excluded from all sums"
    why = "measured" if line.time_source == "measured" else "floor unknown"
    return f"an input: {why}, does not change with peak or bandwidth"


def _time_cell(line: OpLine, machine: Machine, number: int, span: Span | None) -> Value:
    if line.utilisation is None:
        return known(line.time_s)
    cell = OPS.row(number)
    terms = []
    if machine.device.peak(line.dtype, line.engine) is not None and not isnan(line.flop):
        terms.append(f"{cell['flop']}/{cell['peak']}")
    if machine.device.byte_per_s is not None and not isnan(line.byte):
        terms.append(f"{cell['byte']}/{cell['bandwidth']}")
    floor = f"MAX({','.join(terms)})" if len(terms) > 1 else terms[0]
    starts = f"+{cell['starts']}*{cell['launch']}" if line.starts and machine.device.launch_s is not None else ""
    return Formula(f"{floor}/{cell['utilisation']}{starts}", span.value if span else UNKNOWN)


_SAME_OP = ("kind", "pass_name", "time_source", "time")
"""Columns that are equal for rows of the same op, as in `fomkit.plan.step.same_ops`."""
_SIDES = (("own_low", "total", "total_low"), ("own_high", "total_high", "total"))


def _own_errors(
    number: int, rows: tuple[int, int], span: Span | None, squares: Sequence[float]
) -> Iterator[Value]:
    """Write the distance of an op's bounds from its value, times that of all rows of the case with the same op.

    The sum over rows is then the sum of the squares of each op.
    """
    cell, (first, last) = OPS.row(number), rows

    def block(key: str) -> str:
        letter = OPS.letter(key)
        return f"${letter}${first}:${letter}${last}"

    where = ",".join(f"{block(key)},{cell[key]}" for key in _SAME_OP)
    for (_, more, less), square in zip(_SIDES, squares, strict=True):
        together = f"(SUMIFS({block(more)},{where})-SUMIFS({block(less)},{where}))"
        formula = f'IF(ISNUMBER({cell["total"]}),({cell[more]}-{cell[less]})*{together},"{UNKNOWN}")'
        yield Formula(formula, UNKNOWN if span is None else square)


def own_squares(case: Case, spans: Sequence[Span | None]) -> list[tuple[float, float]]:
    """Return the values of `_own_errors` for each op [s²/step²], below and above; 0 for an op without a time."""
    sides, keys, sums = list[tuple[float, float]](), list[tuple[str, str, str, str]](), dict[Any, list[float]]()
    for line, span in zip(case.ops, spans, strict=True):
        value, low, high = (0.0, 0.0, 0.0) if span is None else span.ends
        sides.append(((value - low) * line.count, (high - value) * line.count))
        keys.append((line.kind, line.pass_name, line.time_source, f"{value:.12g}"))
        of_op = sums.setdefault(keys[-1], [0.0, 0.0])
        of_op[:] = [known + side for known, side in zip(of_op, sides[-1], strict=True)]
    return [(below * sums[key][0], above * sums[key][1]) for (below, above), key in zip(sides, keys, strict=True)]


def _inputs(line: OpLine) -> list[Value]:
    """Return the figures of an op in the order of `OP_KEYS`; None leaves a cell empty."""
    ends = (None, None) if line.time_s is None and line.utilisation is None else (line.low, line.high)
    time = None if line.utilisation is not None else known(line.time_s)
    work = (known(one) for one in (line.count, line.launches, line.flop, line.byte))
    return [*work, line.utilisation, line.starts or None, time, *ends]


def _op_row(
    number: int, case: Case, at: int, span: Span | None, squares: tuple[float, float], machine: Machine,
    machines: MachineCells,
) -> Iterator[Value]:  # fmt: skip
    """Yield the cells of an op; ``squares``: those of its own errors, below and above, as issued."""
    line, first = case.ops[at], number - at
    sizes = ((name, size if isinstance(size, str) else number_cell(float(size))) for name, size in line.dimensions)
    yield from (*case.key, line.op, line.sizes, " ".join(f"{name}={size}" for name, size in sizes))
    yield from (line.kind, line.dtype, line.engine, line.pass_name)
    inputs = _inputs(line)
    yield from inputs[:4]
    name, device = machine.name, machine.device
    peak = device.peak(line.dtype, line.engine)
    yield UNKNOWN if peak is None else Formula(machines.si(name, "peak", line.dtype, line.engine), peak.rate.value)
    for fact, value in (("memory bandwidth", device.byte_per_s), ("launch cost", device.launch_s)):
        yield Formula(machines.si(name, fact), known(None if value is None else value.value))
    yield from inputs[4:6]
    yield _time_cell(line, machine, number, span)
    yield from inputs[7:]
    cell, ends = OPS.row(number), (None, None, None) if span is None else span.ends
    # Bounds of an op without a time are empty, and may stay empty when a time is written.
    low, high = (cell[key] if span else f"IF(ISNUMBER({cell[key]}),{cell[key]},1)" for key in ("low", "high"))
    for end, factor in zip(ends, ("", f"*{low}", f"*{high}"), strict=True):
        formula = f'IF(ISNUMBER({cell["time"]}),{cell["time"]}*{cell["count"]}{factor},"{UNKNOWN}")'
        yield Formula(formula, known(None if end is None else end * line.count))
    yield from _own_errors(number, (first, first + len(case.ops) - 1), span, squares)
    starts = f'IF(ISNUMBER({cell["launches"]}),{cell["launches"]}*{cell["count"]},"{UNKNOWN}")'
    yield Formula(starts, known(line.launches * line.count))
    yield from (line.time_source or UNKNOWN, line.bound or UNKNOWN, _how_made(line))
    yield "measured" if line.time_source == "measured" else "modelled" if line.time_source else ""
    yield from (machine.party, line.evidence, *inputs)
    filled = [key for key, one in zip(OP_KEYS, inputs, strict=True) if one is not None]
    yield Formula(state_of_inputs((cell[key], cell[f"was_{key}"]) for key in filled), AS_ISSUED)


def write_ops(page: Page, sheet_model: SheetModel, values: Values, machines: MachineCells) -> CaseCells:
    """Write the ops of every case, the longest first as issued."""
    page.intro(
        "One row for all equal ops of a step. The time of a predicted op follows peak, bandwidth and launch cost."
    )
    first, rows, starts = page.first_row(), list[list[Value]](), {}
    for case in sheet_model.cases:
        machine, spans = sheet_model.machine(case.machine), values.cases[case.key].ops
        start = len(rows)
        for at, (span, squares) in enumerate(zip(spans, own_squares(case, spans), strict=True)):
            rows.append(list(_op_row(first + len(rows), case, at, span, squares, machine, machines)))
        starts[case.key] = (start, len(rows))
    foreign = [rows for (_, machine), rows in starts.items() if machine not in sheet_model.targets]
    own = {index for start, stop in foreign for index in range(start, stop)}
    return CaseCells(page.table(OPS, rows, conditions=own), starts)
