"""The inputs of a workbook (`SheetModel`), and `evaluate`, which computes in Python what its formulas compute."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from fomkit.core.interval import DEFAULT_LEVEL, Span, divide, half_width
from fomkit.core.machine import Device, Machine, Scope
from fomkit.core.model import Data, ModelProfile, Run, Unit
from fomkit.merit.fom import MEAN, FigureOfMerit, Rates, figure_of_merit
from fomkit.plan.coverage import USES, Spread, Use, check_work, chip_of, coverage
from fomkit.plan.run import RunTime, roll_up_run, runs_at_once, runs_per_day, unit_per_day
from fomkit.plan.step import StepTime, roll_up_step


@dataclass(frozen=True)
class Given:
    """The time of one unit of work on one device set: a stated time, or one computed elsewhere.

    `excludes`, `unfit`: for a computed time, as in `Case`.
    """

    unit_s: Span
    basis: str
    party: str
    source: str = ""
    excludes: tuple[str, ...] = ()
    unfit: str = ""


@dataclass(frozen=True)
class JobTerms:
    """A run on many devices as the terms of its step, each computed elsewhere and stated here with its source.

    `calculation_s`, `exposed_s`, `bubble_s`, `other_s`: time of a step for calculation, and for waiting for
      links, for other stages, and for input or overheads [s].
    `steps`: of a run; `rest_s`: other time of a run: validation, overheads of epochs, start-up [s].
    `low`, `high`: bounds of the interval of a run as ratios to its time.
    `devices`: of one run; `at_once`: runs in progress at a time in the scope.
    `excludes`, `unfit`: as in `Case`.
    """

    calculation_s: float
    exposed_s: float
    bubble_s: float
    other_s: float
    steps: float
    rest_s: float
    low: float
    high: float
    devices: float
    at_once: float
    basis: str
    party: str
    source: str = ""
    excludes: tuple[str, ...] = ()
    unfit: str = ""

    @property
    def step_s(self) -> float:
        """Time of a step [s]."""
        return self.calculation_s + self.exposed_s + self.bubble_s + self.other_s

    def run_s(self, level: float) -> Span:
        """Return the time of a run [s]."""
        value = self.step_s * self.steps + self.rest_s
        return Span(value, value * self.low, value * self.high, level)


@dataclass(frozen=True)
class OpLine:
    """One op of a workload on a machine, or all ops equal to it.

    Its time is either ``max(flop / peak, byte / bandwidth) / utilisation + starts · launch cost``, which follows
    the machine's facts, or ``time_s``, which does not. With neither, the op is unpriced.

    `sizes`: kind and dimensions as text.
    `dtype`, `engine`: those of the peak that bounds it.
    `launches`: kernels that the host starts for one execution; NaN is unknown.
    `flop`, `byte`: work of one execution [flop, byte]; NaN is unknown.
    `utilisation`: floor over kernel time; None where the time is an input.
    `starts`: kernel starts that its time includes besides the kernel itself.
    `time_s`: time of one execution as an input [s].
    `low`, `high`: bounds of the interval as ratios to the time.
    `dimensions` (name, size): those of the op table that the kind has.
    """

    op: str
    kind: str
    sizes: str
    dtype: str
    engine: str
    pass_name: str
    count: float
    launches: float
    flop: float
    byte: float
    time_source: str
    bound: str
    evidence: str
    utilisation: float | None = None
    starts: float = 0.0
    time_s: float | None = None
    low: float = 1.0
    high: float = 1.0
    dimensions: tuple[tuple[str, float | str], ...] = ()

    @property
    def phase(self) -> str:
        """forward, backward or update."""
        return self.pass_name.partition("_")[0]


@dataclass(frozen=True)
class WorkloadFacts:
    """A line of work: the definition of one run and one unit, and times that were given for it.

    `given`: stated times by machine; empty where it is estimated.
    `jobs`: terms of runs on many devices, by machine.
    `category`, `basis`, `party`: as in a suite; "" elsewhere.
    `made_with` (what, text): how its model was traced, and its number of parameters.
    """

    name: str
    title: str = ""
    batch: int | None = None
    data: Data = field(default_factory=Data)
    run: Run = field(default_factory=Run)
    unit: Unit = field(default_factory=Unit)
    given: Mapping[str, Given] = field(default_factory=dict)
    jobs: Mapping[str, JobTerms] = field(default_factory=dict)
    weight: float = 1.0
    required: bool = True
    category: str = ""
    basis: str = ""
    party: str = ""
    made_with: tuple[tuple[str, str], ...] = ()

    @property
    def stated(self) -> dict[str, Given | JobTerms]:
        """The given times and jobs that rate it without its ops, by machine."""
        return {**self.given, **self.jobs}

    @property
    def common_shares(self) -> dict[str, float]:
        """By machine, the share of a given time's error variance that is common to lines, where it is not 1."""
        shares = {machine: one.unit_s.shared for machine, one in self.given.items()}
        return {machine: share for machine, share in shares.items() if share != 1}


@dataclass(frozen=True)
class Case:
    """One workload on one machine: its ops, and notes on its estimate.

    `precision`: name and meaning of the number formats.
    `excludes`, `deviations`: terms that the estimate excludes, and deviations from the request.
    `unfit`: message that no device holds its step; "" where one does or it is unknown.
    """

    workload: str
    machine: str
    ops: tuple[OpLine, ...]
    precision: str = ""
    excludes: tuple[str, ...] = ()
    deviations: tuple[str, ...] = ()
    unfit: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """Its workload and machine."""
        return self.workload, self.machine

    @property
    def name(self) -> str:
        """Its workload and machine as text."""
        return case_name(self.workload, self.machine)


@dataclass(frozen=True)
class SheetModel:
    """All inputs of a workbook.

    `machines`: facts only, without timing tables; the baseline is last.
    `cases`: workloads that are estimated op by op; a workload with given times or jobs has none.
    `targets`: machines to rate; the defined names refer to the first one.
    `worst_basis`: the weakest basis behind a figure of merit; "" where there is none.
    `deviations` (machine, text): deviations from what the lines fix.
    `caveats` (machine, text): what must be read with the headline: exclusions of rates, steps that no device
      holds, findings of measured runs; "" for the machine where a caveat concerns no single one.
    `uses`: what use in a step adds to the sum of a group of ops, as bounds of its interval relative to the sum.
      The key is the group's name for machines in ``widened``, else "GROUP on MACHINE" (`own_use`).
    `widened`: machines whose times rest on a table of single kernels, and that have no uses of their own.
    `rounds` (machine, text): earlier changes of the figures, the oldest first.
    """

    title: str
    scope: Scope
    machines: tuple[Machine, ...]
    workloads: tuple[WorkloadFacts, ...]
    cases: tuple[Case, ...]
    targets: tuple[str, ...]
    baseline: str | None = None
    level: float = DEFAULT_LEVEL
    mean: str = MEAN
    threshold: float | None = None
    worst_basis: str = ""
    deviations: tuple[tuple[str, str], ...] = ()
    caveats: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    rounds: tuple[tuple[str, str], ...] = ()
    uses: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    widened: tuple[str, ...] = ()

    def machine(self, name: str) -> Machine:
        """Find a machine by name."""
        return next(machine for machine in self.machines if machine.name == name)

    @property
    def chips(self) -> dict[str, str]:
        """The chip of each machine of which another machine has the same: their ratio's errors partly cancel."""
        of = {machine.name: chip_of(machine) for machine in self.machines}
        return {name: chip for name, chip in of.items() if chip and [*of.values()].count(chip) > 1}

    def workload(self, name: str) -> WorkloadFacts:
        """Find a workload by name."""
        return next(workload for workload in self.workloads if workload.name == name)

    def uses_on(self, machine: str) -> dict[str, tuple[str, tuple[float, float]]]:
        """Return, by group, the key in `uses` that applies to a machine, and its bounds."""
        ours = {name: name.partition(" on ") for name in self.uses}  # no group contains " on "
        found = {group: (name, self.uses[name]) for name, (group, _, of) in ours.items() if of == machine}
        if found or machine not in self.widened:
            return found
        return {name: (name, ends) for name, ends in self.uses.items() if name in SHARED_USES}


SHARED_USES = tuple(USES)


def case_name(workload: str, machine: str) -> str:
    """Name a workload on a machine as no other two are named.

    >>> case_name("TC1", "v100"), case_name("TC1 on pairs", "v100")
    ('TC1 on v100', "'TC1 on pairs' on 'v100'")
    """
    quoted = " on " in f"{workload}{machine}"
    return f"{workload!r} on {machine!r}" if quoted else f"{workload} on {machine}"


def own_use(group: str, machine: str) -> str:
    """Return the key in `SheetModel.uses` of a group of ops on one machine alone."""
    return f"{group} on {machine}"


def _seconds_at(work: float, rate: float) -> float:
    # A rate or a utilisation of 0 may be typed into a workbook.
    return work / rate if rate else math.inf


def floor_s(line: OpLine, device: Device) -> float:
    """Return the longer of arithmetic and traffic at the machine's rates [s]; NaN where neither is known.

    >>> from fomkit.core.machine import Fact
    >>> line = OpLine("mm", "gemm", "", "fp32", "vector", "forward", 1, 1, 2e9, 3e6, "roofline", "", "")
    >>> floor_s(line, Device(byte_per_s=Fact(1e9, 1e9, 1e9, "assumed", "")))
    0.003
    """
    terms: list[float] = []
    peak = device.peak(line.dtype, line.engine)
    if peak is not None and not math.isnan(line.flop):
        terms.append(_seconds_at(line.flop, peak.rate.value))
    if device.byte_per_s is not None and not math.isnan(line.byte):
        terms.append(_seconds_at(line.byte, device.byte_per_s.value))
    return max(terms) if terms else math.nan


def op_time(line: OpLine, device: Device, level: float) -> Span | None:
    """Return the time of one execution [s]; None where it is unknown."""
    if line.utilisation is not None:
        start_s = device.launch_s.value if device.launch_s is not None else 0.0
        value = _seconds_at(floor_s(line, device), line.utilisation) + line.starts * start_s
    elif line.time_s is not None:
        value = line.time_s
    else:
        return None
    return Span(value, value * line.low, value * line.high, level)


@dataclass(frozen=True)
class CaseValues:
    """The results of one workload on one machine.

    `ops`: time of one execution of each op [s].
    `step`, `run`: the roll-up, term by term.
    `unit_per_day`: None where the workload does not define a run.
    `coverage`: share of the device's time by time source; sums to 1.
    """

    ops: tuple[Span | None, ...]
    step: StepTime
    run: RunTime
    runs_at_once: int
    unit_per_day: Span | None
    coverage: Mapping[str, float]


@dataclass(frozen=True)
class Values:
    """All results of a sheet model.

    `unit_per_day`: units of work per day by workload and machine, including given ones.
    `ratios`: target over baseline by workload and target, of units per day, else of steps per second.
    `merits`: by target; empty without a baseline or without runs.
    """

    cases: Mapping[tuple[str, str], CaseValues]
    unit_per_day: Mapping[tuple[str, str], Span]
    ratios: Mapping[tuple[str, str], Span]
    merits: Mapping[str, FigureOfMerit]


_UNKNOWN = Span(math.nan, math.nan, math.nan)


def as_model(workload: WorkloadFacts) -> ModelProfile:
    """Return a workload as a model without ops, for functions that need its data and its run."""
    nothing = pd.DataFrame()
    sizes = {} if workload.batch is None else {"batch": workload.batch}
    return ModelProfile(
        workload.name, workload.title, nothing, nothing, sizes, {}, data=workload.data, run=workload.run,
        unit=workload.unit,
    )  # fmt: skip


def _case(case: Case, sheet_model: SheetModel) -> CaseValues:
    machine, workload = sheet_model.machine(case.machine), sheet_model.workload(case.workload)
    model = as_model(workload)
    times = tuple(op_time(one, machine.device, sheet_model.level) for one in case.ops)
    # The columns of a TIMED table that the roll-up reads.
    rows = [
        (one.kind, one.pass_name, one.count, one.launches, *(span or _UNKNOWN).ends,
         one.time_source if span else "", one.bound, one.dtype)
        for one, span in zip(case.ops, times, strict=True)
    ]  # fmt: skip
    names = ["kind", "pass_name", "count", "launches", "time_s", "low_s", "high_s", "time_source", "bound",
             "dtype"]  # fmt: skip
    timed = pd.DataFrame(rows, columns=names)
    check_work(timed, case.name)
    # What use in a step adds to the errors of the machine's ops.
    z, ratios = half_width(sheet_model.level), sheet_model.uses_on(case.machine).items()
    adds = {group: Spread(-math.log(low) / z, math.log(high) / z) for group, (_, (low, high)) in ratios}
    uses = {group: Use(both, both) for group, both in adds.items()}
    step = roll_up_step(timed, machine, sheet_model.level, uses, case.workload)
    run = roll_up_run(model, machine, step, workload.batch, workload.data.last_batch)
    # Without gradients, the ops of one device of a group are its whole step, and the group fits in the scope.
    trains = {one.pass_name for one in case.ops} != {"forward"}
    grouped = machine.devices(sheet_model.scope) // workload.run.devices_per_run
    at_once = grouped if grouped and not trains else runs_at_once(model, machine, sheet_model.scope)
    rate = run.run_s and runs_per_day(model, machine, run.run_s, sheet_model.scope, at_once)
    return CaseValues(times, step, run, at_once, rate, coverage(timed))


def _rate_of(workload: WorkloadFacts, machine: str, sheet_model: SheetModel) -> Span:
    """Rate a workload whose time is given, or follows from the terms of a job."""
    facts, scope = sheet_model.machine(machine), sheet_model.scope
    if machine in workload.given:
        unit_s = replace(workload.given[machine].unit_s, common=())  # no cell states which chip a given time is of
        return unit_per_day(unit_s, facts.up_devices(scope))
    one = workload.jobs[machine]
    return unit_per_day(
        one.run_s(sheet_model.level).scaled(workload.unit.runs), one.at_once * facts.up_share(scope)
    )


def _target_merit(
    sheet_model: SheetModel, target: str, units: dict[tuple[str, str], Span]
) -> FigureOfMerit | None:
    """Return the figure of merit of lines rated on both machines; None without any, or without a required one."""
    if sheet_model.baseline is None:
        return None
    sides, lines = (sheet_model.baseline, target), sheet_model.workloads
    both = [one for one in lines if all((one.name, machine) in units for machine in sides)]
    if not both or any(one.required and one not in both for one in lines):
        return None
    rates = ({one.name: units[one.name, machine] for one in both} for machine in sides)
    old, new = (Rates(machine, sheet_model.scope, of) for machine, of in zip(sides, rates, strict=True))
    return figure_of_merit(old, new, sheet_model.mean, {one.name: one.weight for one in both})


def evaluate(sheet_model: SheetModel) -> Values:
    """Compute everything that the formulas of a sheet model's workbook compute."""
    with np.errstate(all="ignore"):  # any number may be typed into a workbook; invalid ones become findings
        cases = {one.key: _case(one, sheet_model) for one in sheet_model.cases}
    units = {key: values.unit_per_day for key, values in cases.items() if values.unit_per_day is not None}
    units |= {
        (workload.name, machine): _rate_of(workload, machine, sheet_model)
        for workload in sheet_model.workloads
        for machine in workload.stated
    }
    ratios = {}
    for target in sheet_model.targets if sheet_model.baseline is not None else ():
        for workload in sheet_model.workloads:
            ours, theirs = (workload.name, target), (workload.name, str(sheet_model.baseline))
            if ours in units and theirs in units:
                ratios[ours] = divide(units[ours], units[theirs])
            elif ours in cases and theirs in cases:
                ratios[ours] = divide(cases[theirs].step.wall_s, cases[ours].step.wall_s)
    merits = {target: _target_merit(sheet_model, target, units) for target in sheet_model.targets}
    return Values(cases, units, ratios, {name: merit for name, merit in merits.items() if merit is not None})
