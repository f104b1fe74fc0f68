"""Convert studies and suites to sheet models: the inputs from which a workbook computes the same results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import isnan
from typing import TYPE_CHECKING, Any

import numpy as np

from fomkit.core.errors import FomkitError
from fomkit.core.interval import DEFAULT_LEVEL, alone_text
from fomkit.core.machine import Device, Machine, Peak
from fomkit.core.measurement import verdict_on
from fomkit.core.model import Unit
from fomkit.core.units import DAY_S, count_text
from fomkit.merit.measured_steps import worst_basis
from fomkit.merit.rated_lines import RatedLine
from fomkit.merit.suites import SuiteResult, deviations_of
from fomkit.ops.groups import row_dicts, shape_label
from fomkit.ops.kinds import KINDS
from fomkit.ops.tables import empty_table
from fomkit.parallel.step import describe_layout
from fomkit.plan.content import BASES_BY_TRUST
from fomkit.plan.coverage import USES, uses_of
from fomkit.plan.estimate import Estimate, check_one_device
from fomkit.plan.options import waits_by_block
from fomkit.prediction.exact import settled_ops
from fomkit.prediction.rates import bounds, rates, starts_within
from fomkit.profiles.evidence import with_fits
from fomkit.profiles.metrics import upper_bounds
from fomkit.workbook.records import (
    Case,
    Given,
    JobTerms,
    OpLine,
    SheetModel,
    WorkloadFacts,
    floor_s,
    op_time,
    own_use,
)

if TYPE_CHECKING:
    from fomkit.verbs.compare import Comparison

_ROUNDING = 1e-12
ROUND = "round "
"""Prefix of a machine's notes about changes that a review found."""


def _used_device(estimates: Sequence[Estimate], machine: Machine) -> Device:
    """Return a device with the rates that were fitted to its timing table, where none are stated."""
    fitted = with_fits(machine)
    peaks = {(peak.dtype, peak.engine): peak for peak in machine.device.peaks}
    bandwidth = machine.device.byte_per_s
    for estimate in estimates:
        rows = settled_ops(estimate.ops, machine)
        for dtype, engine in sorted(set(zip(rows["dtype"], rows["engine"], strict=True))):
            known = rates(fitted, dtype, engine)
            bandwidth = bandwidth or known.byte_per_s
            if known.flop_per_s is not None:
                peaks.setdefault((dtype, engine), Peak(dtype, engine, known.flop_per_s))
    return replace(machine.device, peaks=tuple(peaks.values()), byte_per_s=bandwidth)


def _study_line(row: Mapping[str, Any], bound_s: float, device: Device) -> OpLine:
    time_s, names = float(row["time_s"]), KINDS[str(row["kind"])].columns
    line = OpLine(
        op=str(row["op"]), kind=str(row["kind"]), sizes=shape_label(row), dtype=str(row["dtype"]),
        engine=str(row["engine"]), pass_name=str(row["pass_name"]), count=float(row["count"]),
        launches=float(row["launches"]), flop=float(row["flop"]), byte=float(row["byte"]),
        time_source=str(row["time_source"]), bound=str(row["bound"]), evidence=str(row["evidence"]),
        dimensions=tuple((name, row[name]) for name in names if name in row and row[name] == row[name] != ""),
    )  # fmt: skip
    if isnan(time_s):
        return line
    line = replace(line, low=float(row["low_s"]) / time_s, high=float(row["high_s"]) / time_s)
    if line.time_source == "measured" or not bound_s > 0:
        return replace(line, time_s=time_s)
    launch = device.launch_s
    # Only a roofline time states its launches separately; times of a table include them.
    named = line.time_source == "roofline" and launch is not None and launch.value and not isnan(line.launches)
    launch_s = launch.value if named and launch is not None else 0.0
    start_s = float(starts_within(np.array(time_s), np.array(line.launches * launch_s))) if named else 0.0
    starts = round(start_s / launch_s, 6) if start_s else 0.0
    return replace(line, utilisation=floor_s(line, device) / (time_s - starts * launch_s), starts=starts)


def _merged(lines: Iterable[OpLine], device: Device) -> tuple[OpLine, ...]:
    """Merge equal ops of different modules into one line; sort by time, the longest first."""
    merged: dict[str, OpLine] = {}
    for line in lines:
        key = repr(replace(line, count=0.0))
        known = merged.get(key)
        merged[key] = line if known is None else replace(known, count=known.count + line.count)

    def seconds(line: OpLine) -> float:
        span = op_time(line, device, DEFAULT_LEVEL)
        return 0.0 if span is None else span.value * line.count

    return tuple(sorted(merged.values(), key=seconds, reverse=True))


def case_of(estimate: Estimate, name: str, device: Device) -> Case:
    """Return the case of one estimate: its ops, with equal ops on one line."""
    ops = settled_ops(estimate.ops, estimate.machine)
    bounds_s = bounds(ops, with_fits(estimate.machine)).floor_s
    lines = (_study_line(row, bound_s, device) for row, bound_s in zip(row_dicts(ops), bounds_s, strict=True))
    said_of_machine = verdict_on(estimate.machine, named=False)
    deviations = tuple(message for message in estimate.deviations if message not in said_of_machine)
    precision = f"{estimate.precision}: {estimate.formats.message}"
    return Case(name, estimate.machine.name, _merged(lines, device), precision, estimate.excludes, deviations,
                estimate.fit.message)  # fmt: skip


def workload_of(estimate: Estimate, name: str) -> WorkloadFacts:
    """Return the facts of one run of an estimate's model."""
    model = estimate.model
    # The workbook states the choice of the study, not the profile's default.
    keeps_last = estimate.run_time.partial_step or model.data.last_batch == "keep"
    steps, samples = estimate.run_time.steps_per_epoch, model.data.train_samples
    batch = estimate.sizes.get("batch")
    if steps is not None and samples is not None and batch is not None and samples % batch:
        keeps_last = steps > samples // batch
    data = replace(model.data, last_batch="keep" if keeps_last else "drop")
    made_with = [(key, str(value)) for key, value in model.traced_with.items()]
    if model.parameters_total is not None:
        made_with.append(("parameters", f"{model.parameters_total:,}"))
    job = estimate.job
    run = model.run if job is None else replace(model.run, devices_per_run=job.devices)
    if job is not None:
        made_with.append(("of", f"one of {count_text(job.devices, 'device')}, {describe_layout(job.layout)}"))
    return WorkloadFacts(
        name=name, title=model.title, batch=batch, data=data, run=run, unit=model.unit,
        made_with=tuple(made_with),
    )  # fmt: skip


def _machines(estimates: Sequence[Estimate], machines: Sequence[Machine]) -> dict[str, Machine]:
    """Return the machines without timings, with fitted rates where their estimates use such rates."""
    found = {}
    for machine in machines:
        own = [estimate for estimate in estimates if estimate.machine.name == machine.name]
        without = machine.with_timings(empty_table("TIMINGS"))
        # The formulas start every kernel at the launch cost; steps for which that is not enough have none.
        found[machine.name] = replace(without, device=_used_device(own, machine), host_op_s=None)
    return found


WAITS = "waits for a host that needs more than launches, which the formulas of a workbook do not have"


def _waits(estimate: Estimate) -> bool:
    """Return whether a step waits for a host that needs more than the launch cost, at any end of its interval."""
    step = estimate.step_time
    if estimate.machine.host_op_s is None or step.paced_s is None:
        return False
    return any(
        paced > own * (1 + _ROUNDING) for paced, own in zip(step.paced_s.ends, step.device_s.ends, strict=True)
    )


def uses_at(level: float, machines: Iterable[Machine]) -> dict[str, tuple[float, float]]:
    """Return what use in a step adds to sums of times, as ratios at a level; see `SheetModel.uses`."""
    known = {machine.name: uses_of(machine) for machine in machines}
    named = [(name, use) for name, use in USES.items()]
    named += [(own_use(group, name), use) for name, uses in known.items() if uses is not USES
              for group, use in uses.items()]  # fmt: skip
    return {name: use.whole.widen(1.0, 1.0, 1.0, level) for name, use in named}


def widened_of(machines: Iterable[Machine]) -> tuple[str, ...]:
    """Return the machines whose tables have timings of single kernels, and that have no uses of their own."""
    return tuple(dict.fromkeys(machine.name for machine in machines if uses_of(machine) is USES))


def rounds_of(machines: Sequence[Machine]) -> tuple[tuple[str, str], ...]:
    """Return the changes by reviews that the machines' notes record."""
    return tuple((machine.name, note) for machine in machines for note in machine.notes if note.startswith(ROUND))


def caveats_of(
    excludes: Sequence[str], estimates: Iterable[Estimate], unfit: Iterable[tuple[str, str]],
    little: Sequence[str] = (), alone: Sequence[Mapping[str, Sequence[str]]] = (),
) -> tuple[tuple[str, str], ...]:  # fmt: skip
    """Return the caveats of a workbook: exclusions of the rates, misfits, and little explained measured runs.

    Implausible facts or timings of a machine are listed once. The shares of ``little`` are omitted: a reader of
    the workbook must not learn the times of other machines. `unfit` (machine, what): work that no device holds;
    `alone`: for each target the terms that only it or only the baseline excludes.
    """
    bounds = (("", upper_bounds(excludes)),) if excludes else ()
    sides = (("", text) for text in dict.fromkeys(map(alone_text, alone)) if text)
    listed = ", ".join(little)
    runs = (("", f"the device explains less than half of a measured run of {listed}"),) if listed else ()
    verdicts = dict.fromkeys((one.machine.name, said) for one in estimates for said in verdict_on(one.machine))
    impossible = ((machine, f"this rate is not possible: {message}") for machine, message in unfit)
    return (*bounds, *sides, *impossible, *runs, *verdicts)


def sheet_model_of_comparison(result: Comparison) -> SheetModel:
    """Return the sheet model of several models on targets and a baseline."""
    every = [*result.estimates, *result.baseline]
    # Without gradients, the ops of one device are its whole step, with the collectives among them.
    check_one_device((one for one in every if one.model.traced_with.get("mode") != "infer"), "a workbook")
    for one in every:
        if _waits(one):
            other = " or --fusion compiled" * waits_by_block(one.model)
            what = f"{WAITS}. Write another file, or choose a larger batch{other}."
            raise FomkitError(f"{one.model.name} on {one.machine.name}", what)
        if one.job is not None and one.runs_at_once != one.machine.devices(one.scope) // one.job.devices:
            raise FomkitError(one.model.name, f"groups of {one.job.devices} devices leave devices of a node idle, "
                              "which a workbook cannot compute. Choose a size that divides a node.")  # fmt: skip
    distinct = {one.machine.name: one.machine for one in every}
    machines = _machines(every, list(distinct.values()))
    workloads = {estimate.model.name: workload_of(estimate, estimate.model.name) for estimate in result.estimates}
    excludes = list(dict.fromkeys(term for one in every for term in one.excludes))
    unfit = ((one.machine.name, f"{one.model.name} {one.fit.message}") for one in every if one.fit.message)
    alone = [result.alone(merit.target.machine) for merit in result.merits]
    return SheetModel(
        title="Units of work a day", scope=every[0].scope, level=every[0].step.level,
        machines=tuple(machines.values()), workloads=tuple(workloads.values()),
        cases=tuple(case_of(one, one.model.name, machines[one.machine.name].device) for one in every),
        targets=tuple(dict.fromkeys(estimate.machine.name for estimate in result.estimates)),
        baseline=result.baseline[0].machine.name if result.baseline else None,
        worst_basis=worst_basis(every) if result.merits else "",
        caveats=caveats_of(excludes, every, unfit, result.little_explained, alone),
        notes=tuple(f"not estimated: {error}" for error in result.failures),
        rounds=rounds_of(list(distinct.values())), uses=uses_at(every[0].step.level, distinct.values()),
        widened=widened_of(distinct.values()),
    )  # fmt: skip


def _line_facts(rated: RatedLine) -> WorkloadFacts | None:
    """Return the facts of one run of an estimated line; None where it is not estimated."""
    if rated.alone is None:
        return None
    facts = workload_of(rated.alone, rated.line.name)
    return replace(facts, unit=Unit(rated.line.unit, rated.line.runs))


def _job(rated: RatedLine) -> JobTerms | None:
    """Return the terms of a line's run on many devices; None where it is no such run, or has no rate."""
    one = rated.estimate
    if one is None or one.job is None or rated.unit_per_day is None:
        return None
    step, run, epochs = one.job, one.run_time, one.model.run.epochs
    if run.run_s is None or run.steps_per_epoch is None or epochs is None:
        return None
    parts = step.compute_s.value, step.exposed_s.value, step.bubble_s.value
    steps, span = float(run.steps_per_epoch * epochs), run.run_s
    return JobTerms(
        *parts, _rest(step.wall_s.value, sum(parts)), steps, _rest(span.value, steps * step.wall_s.value),
        span.low / span.value, span.high / span.value, step.devices, one.runs_at_once, rated.basis, rated.party,
        f"{rated.source}: {describe_layout(step.layout)}", rated.excludes or (), rated.unfit,
    )  # fmt: skip


def _rest(whole: float, parts: float) -> float:
    """Return a time minus its parts; a difference within rounding is 0."""
    return 0.0 if abs(whole - parts) <= _ROUNDING * whole else whole - parts


def _suite_line(result: SuiteResult, old: RatedLine, new: RatedLine) -> tuple[WorkloadFacts, dict[str, RatedLine]]:
    """Return a line's facts, and the rated lines whose ops are in the workbook.

    If the baseline was estimated under other conditions, the workbook has only its time, because it has a single
    row of conditions for each line. It also has only the time of a step that waits for its host (`_waits`).
    """
    facts, before = _line_facts(new), _line_facts(old)
    line = new.line
    estimated = {}
    if facts is not None and new.alone is not None and not _waits(new.alone):
        estimated[result.machines[1].name] = new
    if before is not None and facts in (None, before) and old.alone is not None and not _waits(old.alone):
        estimated[result.machines[0].name] = old
    found = facts or before or WorkloadFacts(line.name, unit=Unit(line.unit, line.runs))
    jobs, given = {}, {}
    for machine, rated in zip(result.machines, (old, new), strict=True):
        if machine.name in estimated:
            continue
        if (terms := _job(rated)) is not None:
            jobs[machine.name] = terms
        elif rated.unit_per_day is not None:  # the time of one unit on one device
            time = rated.unit_per_day.per(DAY_S * machine.up_devices(result.suite.scope))
            given[machine.name] = Given(
                time, rated.basis, rated.party, rated.source, rated.excludes or (), rated.unfit
            )
    basis = max(old.basis, new.basis, key=BASES_BY_TRUST.index)
    whole = replace(
        found, given=given, jobs=jobs, weight=line.weight, required=line.required, category=new.category,
        basis=basis, party=new.party,
    )  # fmt: skip
    return whole, estimated


def _caveats(result: SuiteResult) -> tuple[tuple[str, str], ...]:
    """Return the caveats of a suite's figure of merit."""
    sides = list(zip(reversed(result.machines), (result.target, result.baseline), strict=True))
    estimates = [one.alone for _, side in sides for one in side if one.alone]
    unfit = [
        (machine.name, f"{one.line.name} {one.unfit}") for machine, side in sides for one in side if one.unfit
    ]
    little = [one.line for one in result.little_explained]
    found = caveats_of(result.excludes, estimates, unfit, little, [result.alone])
    if result.withheld and result.suite.threshold is not None:
        found += (("", f"threshold {result.suite.threshold:g}: no verdict, because it depends on these lines"),)
    if jobs := ", ".join(one.line.name for one in result.target if _job(one) is not None):
        fixed = "terms (Workloads, Runs on many devices) that peaks, bandwidth and nodes of Machines do not change"
        found += (("", f"{jobs}: stated {fixed}"),)
    late = [one.line.name for _, side in sides for one in side if one.alone is not None and _waits(one.alone)]
    found += tuple(("", f"{line}: a stated time, because it {WAITS}") for line in dict.fromkeys(late))
    return found


def sheet_model_of_suite(result: SuiteResult) -> SheetModel:
    """Return the sheet model of a suite on a target and a baseline."""
    suite, (baseline, target) = result.suite, result.machines
    rates = (one.unit_per_day for one in (*result.target, *result.baseline))
    level = next((rate.level for rate in rates if rate is not None), DEFAULT_LEVEL)
    machines = _machines(result.estimates, [target, baseline])
    lines = [_suite_line(result, old, new) for old, new in zip(result.baseline, result.target, strict=True)]
    cases: list[Case] = [
        case_of(rated.alone, facts.name, machines[name].device)
        for name in (target.name, baseline.name)
        for facts, estimated in lines
        if (rated := estimated.get(name)) is not None and rated.alone is not None
    ]
    counted = result.merit.ratios if result.merit is not None else {}
    bases = [facts.basis for facts, _ in lines if facts.name in counted]
    missing = [f"missing: {one.line.name} on {name}" for one, name in result.missing]
    return SheetModel(
        title=f"Suite {suite.name}, version {suite.version}", scope=suite.scope, level=level, mean=suite.mean,
        machines=tuple(machines.values()), workloads=tuple(facts for facts, _ in lines), cases=tuple(cases),
        targets=(target.name,), baseline=baseline.name, threshold=None if result.withheld else suite.threshold,
        worst_basis=max(bases, key=BASES_BY_TRUST.index) if bases else "",
        deviations=tuple((machine, f"{line}: {what}") for line, machine, what in deviations_of(result)),
        caveats=_caveats(result), notes=(suite.title, *suite.notes, *missing),
        rounds=rounds_of([target, baseline]),
        uses=uses_at(level, [estimate.machine for estimate in result.estimates]),
        widened=widened_of(estimate.machine for estimate in result.estimates),
    )  # fmt: skip
