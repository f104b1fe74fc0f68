"""The sheet Ops: each op's work, the rates that bound it, and its time as a formula or as an input."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isnan

from fomkit.hardware import Machine
from fomkit.ledger import Case, Ledger, OpLine, Values
from fomkit.spans import Span
from fomkit.tables.cells import format_number
from fomkit.workbook.cells import Formula, Value, known
from fomkit.workbook.layout import AS_ISSUED, OP_KEYS, OPS, UNKNOWN, Placed
from fomkit.workbook.machines_sheet import MachineCells, state_of_inputs
from fomkit.workbook.page import Page

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


def _row(
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


def write_ops(page: Page, ledger: Ledger, values: Values, machines: MachineCells) -> OpCells:
    """Write the ops of every case, the longest first as issued."""
    page.line(
        "One row for all equal ops of a step. The time of a predicted op follows peak, bandwidth and launch cost."
    )
    page.gap()
    first, rows, starts = page.first_row(), list[list[Value]](), {}
    for case in ledger.cases:
        machine, spans = ledger.machine(case.machine), values.cases[case.workload, case.machine].ops
        start = len(rows)
        for line, span in zip(case.ops, spans, strict=True):
            rows.append(list(_row(first + len(rows), case, line, span, machine, machines)))
        starts[case.workload, case.machine] = (start, len(rows))
    own = {
        index
        for (_, machine), (start, stop) in starts.items()
        if machine not in ledger.targets
        for index in range(start, stop)
    }
    return OpCells(page.table(OPS, rows, conditions=own), starts)
