"""The sheet Ops: each op's work, the rates that bound it, and its time as a formula or as an input.

The sheet Workloads: what one run of each workload is, and the times that were given instead of estimated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isnan

from fomkit.core.interval import Span
from fomkit.core.machine import Machine
from fomkit.core.units import DAY_S
from fomkit.files.csv import format_number
from fomkit.workbook.cells import Formula, Page, Value, known
from fomkit.workbook.input_sheets import MachineCells, state_of_inputs
from fomkit.workbook.layout import AS_ISSUED, CHANGED, GIVEN, OP_KEYS, OPS, RUN_KEYS, UNKNOWN, WORKLOADS, Placed
from fomkit.workbook.records import Case, OpLine, SheetModel, Values, WorkloadFacts

HOUR_S = 3600


@dataclass(frozen=True)
class WorkloadCells:
    """Where the workloads and the given times stand."""

    placed: Placed
    names: tuple[str, ...]
    given: Placed | None
    given_keys: tuple[tuple[str, str], ...]

    def at(self, workload: str, key: str) -> str:
        """Name a cell of a workload."""
        return self.placed.at(key, self.names.index(workload))

    def given_at(self, workload: str, machine: str, key: str) -> str:
        """Name a cell of a given time."""
        if self.given is None:
            raise KeyError(workload)
        return self.given.at(key, self.given_keys.index((workload, machine)))


def run_values(facts: WorkloadFacts) -> tuple[Value, ...]:
    """Give the conditions of a run in the order of their columns."""
    data, run = facts.data, facts.run
    numbers = (facts.batch, data.train_samples, data.validation_samples)
    return (
        *(known(number) for number in numbers),
        data.last_batch,
        known(run.epochs),
        facts.unit.runs,
        run.devices_per_run,
        facts.weight,
    )


def _steps(samples: str, number: int) -> str:
    batch, last = (f"{WORKLOADS.letter(key)}{number}" for key in ("batch", "last_batch"))
    partial = f'IF(AND({last}="keep",MOD({samples},{batch})>0),1,0)'
    return f'IF(AND(ISNUMBER({samples}),ISNUMBER({batch})),QUOTIENT({samples},{batch})+{partial},"unknown")'


def _steps_value(samples: int | None, facts: WorkloadFacts) -> float | str:
    if samples is None or facts.batch is None:
        return known(None)
    full, rest = divmod(samples, facts.batch)
    return full + (facts.data.last_batch == "keep" and rest > 0)


def _workload_row(number: int, facts: WorkloadFacts) -> Iterator[Value]:
    values = run_values(facts)
    yield from (facts.name, facts.title, facts.unit.name, *values)
    yield from ("yes" if facts.required else "no", facts.category, facts.basis, facts.party)
    for key, samples in (("train", facts.data.train_samples), ("validation", facts.data.validation_samples)):
        yield Formula(_steps(f"{WORKLOADS.letter(key)}{number}", number), _steps_value(samples, facts))
    yield from values
    pairs = [(f"{WORKLOADS.letter(key)}{number}", f"{WORKLOADS.letter(f'was_{key}')}{number}") for key in RUN_KEYS]
    yield Formula(state_of_inputs(pairs), AS_ISSUED)


def devices_formula(sheet_model: SheetModel, machine: str, machines: MachineCells) -> str:
    """Write the number of devices at the scope of the sheet model."""
    per_node, nodes = machines.si(machine, "devices per node"), machines.si(machine, "nodes")
    return {"device": "1", "node": per_node, "system": f"{per_node}*{nodes}"}[sheet_model.scope]


def up_share_formula(sheet_model: SheetModel, machine: str, machines: MachineCells) -> str:
    """Write the factor by which a system that is down at times does less; "" at other scopes."""
    return f"*{machines.si(machine, 'availability')}" if sheet_model.scope == "system" else ""


def _given_row(
    number: int, key: tuple[str, str], sheet_model: SheetModel, values: Values, machines: MachineCells
) -> Iterator[Value]:
    one, machine = sheet_model.workload(key[0]), key[1]
    facts, given, rate = sheet_model.machine(machine), one.given[machine].unit_s, values.unit_per_day[key]
    hours, *ends = (float(f"{end / HOUR_S:.15g}") for end in (given.value, given.low, given.high))
    at_once = facts.devices(sheet_model.scope) * (facts.availability if sheet_model.scope == "system" else 1.0)
    cell = {column.key: f"{GIVEN.letter(column.key)}{number}" for column in GIVEN.columns}
    yield from (*key, hours)
    for end in ends:
        yield Formula(cell["hours"], hours, is_input=True) if end == hours else end
    yield from (one.given[machine].basis, one.given[machine].party, one.given[machine].source)
    count = devices_formula(sheet_model, machine, machines) + up_share_formula(sheet_model, machine, machines)
    yield Formula(count, at_once)
    for divisor, rated in zip(("hours", "high", "low"), (rate.value, rate.low, rate.high), strict=True):
        yield Formula(f"{DAY_S:.0f}*{cell['at_once']}/({cell[divisor]}*{HOUR_S})", rated)
    yield from (hours, *ends, rate.value)
    pairs = [(cell["hours"], cell["was"]), (cell["low"], cell["was_low"]), (cell["high"], cell["was_high"])]
    same = ",".join(f"{now}={was}" for now, was in pairs)
    changed = f'COUNTIF({machines.states(machine)},"{CHANGED}")'
    yield Formula(f'IF(AND({same},{changed}=0),"{AS_ISSUED}","{CHANGED}")', AS_ISSUED)


def write_workloads(page: Page, sheet_model: SheetModel, values: Values, machines: MachineCells) -> WorkloadCells:
    """Write the workloads and, where there are any, the given times."""
    page.line("What one run of each workload is. Grey cells are set: a change of one is a deviation, and said so.")
    page.gap()
    first = page.first_row()
    rows = [list(_workload_row(first + index, one)) for index, one in enumerate(sheet_model.workloads)]
    placed = page.table(WORKLOADS, rows)
    keys = tuple((workload.name, machine) for workload in sheet_model.workloads for machine in workload.given)
    given = None
    if keys:
        first = page.first_row()
        given = page.table(
            GIVEN,
            [
                list(_given_row(first + index, key, sheet_model, values, machines))
                for index, key in enumerate(keys)
            ],
            conditions={index for index, (_, machine) in enumerate(keys) if machine not in sheet_model.targets},
        )
    return WorkloadCells(placed, tuple(workload.name for workload in sheet_model.workloads), given, keys)


PREDICTED = "floor / utilisation"
PREDICTED_STARTS = "floor / utilisation + starts · launch cost"
MEASURED = "an input: measured, does not move with peak or bandwidth"
STATED = "an input: no floor is known, does not move with peak or bandwidth"
UNPRICED = "unknown: nobody knows a time, left out of all sums"


@dataclass(frozen=True)
class OpCells:
    """Where the ops of each case stand."""

    placed: Placed
    starts: dict[tuple[str, str], tuple[int, int]]

    def block(self, case: Case, key: str) -> str:
        """Name the cells of a column that belong to a case."""
        return self.placed.block(key, *self.starts[case.workload, case.machine])


def _basis(line: OpLine) -> str:
    return "measured" if line.time_source == "measured" else "modelled" if line.time_source else ""


def dimensions_text(line: OpLine) -> str:
    """Write the dimensions of an op as words that a program reads back."""
    return " ".join(
        f"{name}={size if isinstance(size, str) else format_number(float(size))}" for name, size in line.dimensions
    )


def how_made(line: OpLine) -> str:
    """Say how the time of an op is made."""
    if line.utilisation is not None:
        return PREDICTED_STARTS if line.starts else PREDICTED
    if line.time_s is None:
        return UNPRICED
    return MEASURED if line.time_source == "measured" else STATED


def _time(line: OpLine, machine: Machine, number: int, span: Span | None) -> Value:
    if line.utilisation is None:
        return known(line.time_s)
    cell = {column.key: f"{OPS.letter(column.key)}{number}" for column in OPS.columns}
    terms = []
    if machine.device.peak(line.dtype, line.engine) is not None and not isnan(line.flop):
        terms.append(f"{cell['flop']}/{cell['peak']}")
    if machine.device.byte_per_s is not None and not isnan(line.byte):
        terms.append(f"{cell['byte']}/{cell['bandwidth']}")
    floor = f"MAX({','.join(terms)})" if len(terms) > 1 else terms[0]
    starts = f"+{cell['starts']}*{cell['launch']}" if line.starts and machine.device.launch_s is not None else ""
    return Formula(f"{floor}/{cell['utilisation']}{starts}", span.value if span else UNKNOWN)


def _rates(line: OpLine, machine: Machine, machines: MachineCells) -> Iterator[Value]:
    name, device = machine.name, machine.device
    peak = device.peak(line.dtype, line.engine)
    yield UNKNOWN if peak is None else Formula(machines.si(name, "peak", line.dtype, line.engine), peak.rate.value)
    for fact, value in (("memory bandwidth", device.byte_per_s), ("launch cost", device.launch_s)):
        yield Formula(machines.si(name, fact), known(None if value is None else value.value))


def _totals(number: int, count: float, span: Span | None, launches: float) -> Iterator[Value]:
    cell = {column.key: f"{OPS.letter(column.key)}{number}" for column in OPS.columns}
    ends = (None, None, None) if span is None else (span.value, span.low, span.high)
    # Ends of an op without a time are empty; who writes a time may leave them so.
    low, high = (cell[key] if span else f"IF(ISNUMBER({cell[key]}),{cell[key]},1)" for key in ("low", "high"))
    for end, factor in zip(ends, ("", f"*{low}", f"*{high}"), strict=True):
        formula = f'IF(ISNUMBER({cell["time"]}),{cell["time"]}*{cell["count"]}{factor},"{UNKNOWN}")'
        yield Formula(formula, known(None if end is None else end * count))
    starts = f'IF(ISNUMBER({cell["launches"]}),{cell["launches"]}*{cell["count"]},"{UNKNOWN}")'
    yield Formula(starts, known(launches * count))


def _inputs(line: OpLine) -> list[Value]:
    numbers = [known(one) for one in (line.count, line.launches, line.flop, line.byte)]
    priced = line.time_s is not None or line.utilisation is not None
    return [
        *numbers,
        "" if line.utilisation is None else line.utilisation,
        line.starts or "",
        "" if line.utilisation is not None else known(line.time_s),
        line.low if priced else "",
        line.high if priced else "",
    ]


def _op_row(
    number: int, case: Case, line: OpLine, span: Span | None, machine: Machine, machines: MachineCells
) -> Iterator[Value]:
    yield from (
        case.workload,
        case.machine,
        line.op,
        line.sizes,
        dimensions_text(line),
        line.kind,
        line.dtype,
        line.engine,
        line.pass_name,
    )
    inputs = _inputs(line)
    shown = [None if one == "" else one for one in inputs]
    yield from shown[:4]
    yield from _rates(line, machine, machines)
    yield from shown[4:6]
    yield _time(line, machine, number, span)
    yield from shown[7:]
    yield from _totals(number, line.count, span, line.launches)
    yield from (line.time_source or UNKNOWN, line.bound or UNKNOWN, how_made(line))
    yield from (_basis(line), machine.party, line.evidence)
    yield from shown
    keys = [key for key, one in zip(OP_KEYS, inputs, strict=True) if one != ""]
    pairs = [(f"{OPS.letter(key)}{number}", f"{OPS.letter(f'was_{key}')}{number}") for key in keys]
    yield Formula(state_of_inputs(pairs), AS_ISSUED)


def write_ops(page: Page, sheet_model: SheetModel, values: Values, machines: MachineCells) -> OpCells:
    """Write the ops of every case, the longest first as issued."""
    page.line(
        "One row for all equal ops of a step. The time of a predicted op follows peak, bandwidth and launch cost."
    )
    page.gap()
    first, rows, starts = page.first_row(), list[list[Value]](), {}
    for case in sheet_model.cases:
        machine, spans = sheet_model.machine(case.machine), values.cases[case.workload, case.machine].ops
        start = len(rows)
        for line, span in zip(case.ops, spans, strict=True):
            rows.append(list(_op_row(first + len(rows), case, line, span, machine, machines)))
        starts[case.workload, case.machine] = (start, len(rows))
    own = {
        index
        for (_, machine), (start, stop) in starts.items()
        if machine not in sheet_model.targets
        for index in range(start, stop)
    }
    return OpCells(page.table(OPS, rows, conditions=own), starts)
