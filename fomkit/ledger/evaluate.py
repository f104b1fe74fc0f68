"""A ledger evaluated by the stages that make an estimate: roll up, rate, compare."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pandas as pd

from fomkit.fom import FigureOfMerit, Rates, figure_of_merit, unit_per_day
from fomkit.fom.per_day import runs_at_once, runs_per_day
from fomkit.ledger.op_times import op_time
from fomkit.ledger.records import Case, Ledger, WorkloadFacts
from fomkit.ledger.values import CaseValues, Values
from fomkit.rollup import Spread, Use, Uses, check_work, coverage, roll_up_run, roll_up_step
from fomkit.spans import Span, divide_independent
from fomkit.workload import ModelProfile

_UNKNOWN = Span(math.nan, math.nan, math.nan)


def as_model(workload: WorkloadFacts) -> ModelProfile:
    """Give a workload as a model without ops, for the stages that ask for its data and its run."""
    nothing = pd.DataFrame()
    sizes = {} if workload.batch is None else {"batch": workload.batch}
    return ModelProfile(
        workload.name,
        workload.title,
        nothing,
        nothing,
        sizes,
        {},
        data=workload.data,
        run=workload.run,
        unit=workload.unit,
    )


def timed_table(case: Case, times: tuple[Span | None, ...]) -> pd.DataFrame:
    """Give the ops of a case as the columns of a TIMED table that the roll-up reads."""
    rows = [
        (
            one.kind,
            one.pass_name,
            one.count,
            one.launches,
            *(span or _UNKNOWN).ends,
            one.time_source if span else "",
            one.bound,
        )
        for one, span in zip(case.ops, times, strict=True)
    ]
    names = [
        "kind", "pass_name", "count", "launches", "time_s", "low_s", "high_s", "time_source", "bound"
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=names)


def _case(case: Case, ledger: Ledger) -> CaseValues:
    machine, workload = ledger.machine(case.machine), ledger.workload(case.workload)
    model = as_model(workload)
    times = tuple(op_time(one, machine.device, ledger.level) for one in case.ops)
    timed = timed_table(case, times)
    check_work(timed, f"{case.workload} on {case.machine}")
    step = roll_up_step(timed, machine, ledger.level, uses_in(ledger, case.machine))
    run = roll_up_run(model, machine, step, workload.batch, workload.data.last_batch)
    at_once = runs_at_once(model, machine, ledger.scope)
    rate = run.run_s and runs_per_day(model, machine, run.run_s, ledger.scope, at_once)
    return CaseValues(times, step, run, at_once, rate, coverage(timed))


def uses_in(ledger: Ledger, machine: str) -> Uses:
    """Give what use in a step adds to the errors of a machine's single kernels."""
    if machine not in ledger.widened:
        return {}
    z = NormalDist().inv_cdf(0.5 + ledger.level / 2)
    spreads = {name: Spread(-math.log(low) / z, math.log(high) / z) for name, (low, high) in ledger.uses.items()}
    return {name: Use(spread, spread) for name, spread in spreads.items()}


def _given(workload: WorkloadFacts, machine: str, ledger: Ledger) -> Span:
    facts = ledger.machine(machine)
    up_share = facts.availability if ledger.scope == "system" else 1.0
    return unit_per_day(workload.given[machine].unit_s, facts.devices(ledger.scope) * up_share)


def _merit(ledger: Ledger, target: str, units: dict[tuple[str, str], Span]) -> FigureOfMerit | None:
    """Compare the lines rated on both machines; None where there is none, or a required one is not."""
    if ledger.baseline is None:
        return None
    both = [one for one in ledger.workloads if {(one.name, target), (one.name, ledger.baseline)} <= units.keys()]
    if not both or any(one.required and one not in both for one in ledger.workloads):
        return None
    old, new = (
        Rates(machine, ledger.scope, {one.name: units[one.name, machine] for one in both})
        for machine in (ledger.baseline, target)
    )
    return figure_of_merit(old, new, ledger.mean, {one.name: one.weight for one in both})


def evaluate(ledger: Ledger) -> Values:
    """Compute everything that the formulas of a ledger's workbook compute.

    Raises
    ------
    FomkitError
        When an epoch has not one full batch, a run takes several devices, or a step executes nothing.
    """
    with np.errstate(all="ignore"):  # anything may be typed into a workbook; what cannot be is a finding
        cases = {(one.workload, one.machine): _case(one, ledger) for one in ledger.cases}
    units = {key: values.unit_per_day for key, values in cases.items() if values.unit_per_day is not None}
    units |= {
        (one.name, machine): _given(one, machine, ledger) for one in ledger.workloads for machine in one.given
    }
    ratios = {}
    for target in ledger.targets if ledger.baseline is not None else ():
        for one in ledger.workloads:
            ours, theirs = (one.name, target), (one.name, str(ledger.baseline))
            if ours in units and theirs in units:
                ratios[ours] = divide_independent(units[ours], units[theirs])
            elif ours in cases and theirs in cases:
                ratios[ours] = divide_independent(cases[theirs].step.wall_s, cases[ours].step.wall_s)
    merits = {target: _merit(ledger, target, units) for target in ledger.targets}
    return Values(cases, units, ratios, {name: merit for name, merit in merits.items() if merit is not None})
