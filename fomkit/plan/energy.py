"""The energy of ops, a step and a run, from a measured power, or from idle power and the energy of the work.

`choose_method` selects the method; without stated figures the energy is unknown, never assumed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from fomkit.core.interval import Span, add_common, add_independent, multiply_independent
from fomkit.core.machine import TIMED_OPS, Energy, EnergyScope, Fact
from fomkit.core.units import agree, by_key

if TYPE_CHECKING:
    import pandas as pd

    from fomkit.parallel.step import ParallelStep
    from fomkit.plan.estimate import Estimate

NEGLIGIBLE = 1e-3
"""Share of a step's flop below which a format without a figure uses the largest figure, with a note."""
Figures = Mapping[tuple[str, str], Fact]
"""Energy of a flop [J] by number format and engine."""


@dataclass(frozen=True)
class Work:
    """Energy of some ops besides idle power.

    `terms`: energy [J] of the flop of each number format and engine, and of the bytes, by name.
    `missing`: messages on work without an energy; if there are any, the terms are incomplete.
    """

    terms: Mapping[str, Span]
    missing: tuple[str, ...] = ()


def _flop_sums(costed: pd.DataFrame) -> dict[tuple[str, str], float]:
    """Add up the flop of each number format and engine that has any."""
    flop = costed["flop"].to_numpy(float) * costed["count"].to_numpy(float)
    pairs = zip(costed["dtype"].tolist(), costed["engine"].tolist(), strict=True)
    amounts = by_key((pair, amount) for pair, amount in zip(pairs, flop.tolist(), strict=True) if amount > 0)
    return {pair: math.fsum(parts) for pair, parts in amounts.items()}


def figures_for(costed: pd.DataFrame, energy: Energy) -> tuple[Figures, tuple[str, ...]]:
    """Select the energy of a flop for each number format and engine of a step.

    Returns the figures, without formats that have no figure and more than a negligible share of the flop, and
    notes on formats that use another format's figure.
    """
    sums = _flop_sums(costed)
    whole = math.fsum(sums.values())
    dearest = max((one.joule for one in energy.per_flop), key=lambda fact: fact.value, default=None)
    figures, messages = dict[tuple[str, str], Fact](), []
    for (dtype, engine), amount in sums.items():
        fact = energy.flop_j(dtype, engine)
        if fact is None and dearest is not None and amount < NEGLIGIBLE * whole:
            messages.append(
                f"{amount / whole:.1g} of the flop, {dtype} on the {engine} engine, use the highest stated figure"
            )
            fact = dearest
        if fact is not None:
            figures[dtype, engine] = fact
    return figures, tuple(messages)


def price_work(costed: pd.DataFrame, energy: Energy, figures: Figures, level: float) -> Work:
    """Price the flop and bytes of a step's ops, those of one execution times ``count``.

    The error of one figure is common to all ops that it prices, so a term is a sum times that figure.
    """
    byte = costed["byte"].to_numpy(float) * costed["count"].to_numpy(float)
    missing, terms = [], dict[str, Span]()
    if unknown := int((costed["flop"].isna() | costed["byte"].isna()).sum()):
        missing.append(
            f"{unknown:,} {agree(unknown, 'row of ops has/rows of ops have')} no count of flop or bytes"
        )
    for (dtype, engine), amount in _flop_sums(costed).items():
        if (dtype, engine) in figures:
            terms[f"flop {dtype} {engine}"] = figures[dtype, engine].span(level).scaled(amount)
        else:
            missing.append(f"the energy of a flop in {dtype} on the {engine} engine is not stated")
    traffic = math.fsum(one for one in byte.tolist() if not math.isnan(one))
    if traffic and energy.byte_j is not None:
        terms["byte"] = energy.byte_j.span(level).scaled(traffic)
    elif traffic:
        missing.append("the energy of a byte of memory traffic is not stated")
    return Work(terms, tuple(missing))


def add_work(parts: Sequence[tuple[Work, float]]) -> Work:
    """Add the work of several passes, each times its number; the error of one figure is common to all of them.

    >>> step = Work({"byte": Span(2.0, 1.0, 3.0)})
    >>> add_work([(step, 3), (step, 2)]).terms["byte"]
    Span(value=10.0, low=5.0, high=15.0, level=0.8)
    """
    names = dict.fromkeys(name for work, _ in parts for name in work.terms)
    terms = {
        name: add_common(work.terms[name].scaled(times) for work, times in parts if name in work.terms)
        for name in names
    }
    return Work(terms, tuple(dict.fromkeys(message for work, _ in parts for message in work.missing)))


MethodName = Literal["average_power", "power_of_ops", "per_work"]
Basis = Literal["measured", "modelled"]
FULL = 1 - 1e-9


@dataclass(frozen=True)
class Workload:
    """The work that runs: the conditions under which a power must have been measured to apply.

    `busy_share`: share of the step's time in which the device computes; in the rest it waits.
    """

    model: str
    batch: int | None
    precision: str
    busy_share: float = 1.0
    time_measured: bool = False


@dataclass(frozen=True)
class Method:
    """A method to compute energy: a power over the time of the work, and optionally the energy of the work itself.

    `power_w`: for one device [W]: the mean power of the work, or idle power where the work is priced separately.
    `counts_work`: whether flop and bytes are priced besides ``power_w``.
    `basis`: measured only where power and time both are.
    """

    name: MethodName
    power_w: Span
    scope: EnergyScope
    basis: Basis
    message: str
    process_m: float | None = None
    counts_work: bool = False


def _average(energy: Energy, workload: Workload, level: float) -> Method | None:
    """Return the method of a power measured for this workload; of several, the one that states most conditions."""
    fitting = [
        one for one in energy.average
        if one.workload == workload.model and one.batch in (None, workload.batch)
        and one.precision in ("", workload.precision)
    ]  # fmt: skip
    if not fitting:
        return None
    one = sorted(fitting, key=lambda power: (power.batch is not None) + bool(power.precision))[-1]
    measured = one.power_w.basis == "measured" and workload.time_measured
    power = one.power_w.span(level).scaled(1 / (one.devices or 1))
    message = f"power of {one.workload}, {one.power_w.basis}: {one.power_w.source}"
    return Method("average_power", power, one.scope, "measured" if measured else "modelled", message)


def _of_ops(energy: Energy, workload: Workload, level: float) -> Method | None:
    """Return the method of the power of ops timed alone while the device computes, idle power in the rest."""
    one = next((one for one in energy.average if one.workload == TIMED_OPS), None)
    busy = workload.busy_share
    if one is None or (energy.idle_w is None and busy < FULL) or (energy.idle_w and energy.scope != one.scope):
        return None
    parts = [one.power_w.span(level).scaled(busy / (one.devices or 1))]
    if energy.idle_w is not None and busy < FULL:
        parts.append(energy.idle_w.span(level).scaled((1 - busy) / (energy.devices or 1)))
    message = f"power of timed ops over {busy:.0%} of the step, idle power over the rest: {one.power_w.source}"
    return Method("power_of_ops", add_independent(parts), one.scope, "modelled", message)


NO_FIGURES = "neither idle power nor energy per flop or byte is stated"


def choose_method(
    energy: Energy, workload: Workload, work: Work, level: float
) -> tuple[Method | None, tuple[str, ...]]:
    """Select the method for the energy of a workload: its own measured power, that of timed ops, or its work.

    Returns the method and no messages, or None and messages on what is not stated.
    """
    for method in (_average(energy, workload, level), _of_ops(energy, workload, level)):
        if method is not None:
            return method, ()
    missing = list(work.missing)
    if energy.idle_w is None:
        nothing = energy.byte_j is None and not energy.per_flop
        return None, (NO_FIGURES,) if nothing else ("the idle power is not stated", *missing)
    if missing:
        return None, tuple(missing)
    idle = energy.idle_w.span(level).scaled(1 / (energy.devices or 1))
    message = f"idle power: {energy.idle_w.source}"
    return Method("per_work", idle, energy.scope, "modelled", message, energy.process_m, counts_work=True), ()


@dataclass(frozen=True)
class Spent:
    """Energy [J] of one device over a time, and its terms."""

    energy_j: Span
    terms: Mapping[str, Span]

    def scaled(self, factor: float) -> Spent:
        """Multiply by a number of equal runs or devices."""
        terms = {name: term.scaled(factor) for name, term in self.terms.items()}
        return Spent(self.energy_j.scaled(factor), terms)


def at_most(energy: Energy, time_s: Span | None, chips: int = 1) -> float | None:
    """Return the most energy [J] of chips in a time; None where their power limit or the time is unknown."""
    return None if energy.limit_w is None or time_s is None else chips * energy.limit_w.value * time_s.high


def spend(method: Method, time_s: Span, work: Work, most_j: float | None = None) -> Spent:
    """Add up the energy of one device.

    `time_s`: the whole time [s], including waiting; `work`: the work done in it; priced only where the method
    counts work; `most_j`: upper bound [J] of a chip's energy: it cuts the interval, but not the value.

    >>> method = Method("per_work", Span.exact(40.0), "chip", "modelled", "", counts_work=True)
    >>> spend(method, Span.exact(2.0), Work({"byte": Span(20.0, 10.0, 30.0)})).energy_j
    Span(value=100.0, low=90.0, high=110.0, level=0.8)
    """
    # Times are never below 0; a time of 0 has no logarithm, so it is multiplied directly.
    lasting = (
        multiply_independent(method.power_w, time_s) if time_s.low > 0 else method.power_w.scaled(time_s.value)
    )
    terms = {"idle power" if method.counts_work else "power": lasting}
    if method.counts_work:
        terms |= work.terms
    found = add_independent(terms.values())  # their errors are independent
    if most_j is not None and method.scope == "chip":
        found = Span(found.value, found.low, max(found.value, min(found.high, most_j)), found.level)
    return Spent(found, terms)


def add_energy(timed: pd.DataFrame, energy: Energy, method: Method, figures: Figures) -> pd.DataFrame:
    """Add the energy of one execution of each op: ``work_j`` besides idle power and ``energy_j`` in all.

    `timed`: a TIMED table; `method`: as chosen for the step (`choose_method`); `figures`: energy of a flop [J]
    (`figures_for`). Returns a DataFrame: the same rows with two more columns [J]; NaN where a count, a time or a
    figure is unknown. The energy of the time in which the device waits is in the step only.
    """
    flop = timed["flop"].to_numpy(np.float64)
    work = np.zeros(len(timed))
    if method.counts_work:
        facts = [figures.get(pair) for pair in zip(timed["dtype"], timed["engine"], strict=True)]
        each = np.array([np.nan if fact is None else fact.value for fact in facts], np.float64)
        byte = timed["byte"].to_numpy(np.float64)
        per_byte = np.nan if energy.byte_j is None else energy.byte_j.value
        # Zero flop take zero energy, even without a figure.
        work = np.where(flop == 0, 0.0, flop * each) + np.where(byte == 0, 0.0, byte * per_byte)
    return timed.assign(work_j=work, energy_j=work + method.power_w.value * timed["time_s"].to_numpy(np.float64))


_SHARED = {"node": "node's power", "wall": "power at the wall"}


@dataclass(frozen=True)
class EnergyEstimate:
    """Energy [J] of an estimate, of all devices of one run.

    `method`: None where the machine's figures are not sufficient; ``missing`` then lists what is not stated.
    `step`, `epoch`, `run`, `unit`: None where the energy or the time is unknown.
    `most_step_j`, `most_run_j`: upper bounds of all chips [J], where their limit and the time are stated.
    `notes`: remarks on the figures for the reader.
    """

    method: Method | None
    missing: tuple[str, ...]
    devices: int
    step: Spent | None = None
    epoch: Spent | None = None
    run: Spent | None = None
    unit: Spent | None = None
    most_step_j: float | None = None
    most_run_j: float | None = None
    limit_w: float | None = None
    notes: tuple[str, ...] = ()


def _workload(estimate: Estimate) -> Workload:
    """Return the work of one device: without a layout its step, else its microbatch and all of its waits."""
    measured, job = estimate.basis == "measured", estimate.job
    batch, busy_s = estimate.sizes.get("batch"), estimate.step_time.device_s
    if job is not None:
        batch, busy_s = job.samples // job.replicas // job.microbatches, job.compute_s
    busy = busy_s.value / estimate.step.value if estimate.step.value else 1.0
    return Workload(estimate.model.name, batch, estimate.precision, min(busy, 1.0), measured)


def _epoch_work(estimate: Estimate, energy: Energy, figures: Figures, step: Work) -> Work:
    """Add the work of an epoch's steps, and of the forward passes of validation."""
    run, level = estimate.run_time, estimate.step.level
    parts = [] if run.steps_per_epoch is None else [(step, float(run.steps_per_epoch))]
    forward = estimate.step_time.passes.get("forward")
    if run.validation_s is not None and forward is not None and forward.value > 0:
        rows = estimate.ops[estimate.ops["pass_name"].isin(["forward"])]
        parts.append((price_work(rows, energy, figures, level), round(run.validation_s.value / forward.value)))
    return add_work(parts)


def _notes(estimate: Estimate, energy: Energy, method: Method, step: Spent) -> tuple[str, ...]:
    messages = []
    idle, limit = step.terms.get("idle power"), energy.limit_w
    if not method.counts_work and method.power_w.low == method.power_w.high:
        messages.append("the power has no stated interval: the interval is that of the time")
    if idle is not None and all(
        term.low == term.high for name, term in step.terms.items() if name != "idle power"
    ):
        messages.append(
            "the figures per flop and byte have no stated interval: the interval is that of idle power and time"
        )
    mean_w = step.energy_j.value / estimate.step.value
    if limit is not None and method.scope == "chip" and mean_w > limit.value:
        messages.append(
            f"a mean power of {mean_w:.3g} W is above the chip's limit of {limit.value:.3g} W: the stated power "
            "or the predicted time is wrong"
        )
    if method.scope != "chip":
        messages.append(f"each device has an equal share of the {_SHARED[method.scope]}, assuming equal work")
    return tuple(messages)


NO_WORK = "the energy of flop and bytes is priced on one device only, and no mean power of 'timed ops' is stated"
NO_LINKS = "without the energy of links and switches"


class Chosen(NamedTuple):
    """The method for the energy of a device, or what is missing, and its work in a step and an epoch."""

    method: Method | None
    missing: tuple[str, ...]
    step: Work = Work({})
    epoch: Work = Work({})
    notes: tuple[str, ...] = ()


def _method_of_step(estimate: Estimate, energy: Energy) -> Chosen:
    """Choose for a step on one device."""
    figures, filled = figures_for(estimate.ops, energy)
    work = price_work(estimate.ops, energy, figures, estimate.step.level)
    method, missing = choose_method(energy, _workload(estimate), work, estimate.step.level)
    notes = filled if method is not None and method.counts_work else ()
    return Chosen(method, missing, work, _epoch_work(estimate, energy, figures, work), notes)


def _method_of_job(estimate: Estimate, energy: Energy, job: ParallelStep) -> Chosen:
    """Choose for a device of a run on several; a power measured for a model applies to its copies, no parts."""
    level, workload = estimate.step.level, _workload(estimate)
    known = _average(energy, workload, level) if job.layout.model_devices == 1 else None
    method = known or _of_ops(energy, workload, level)
    if method is not None:
        return Chosen(replace(method, basis="modelled"), (), notes=() if job.devices == 1 else (NO_LINKS,))
    return Chosen(None, (NO_WORK,) if energy.idle_w else choose_method(energy, workload, Work({}), level)[1])


def energy_of_estimate(estimate: Estimate) -> EnergyEstimate | None:
    """Return the energy of an estimate; None where the machine states no energy.

    The figures are for the devices of one run. The energy leaves out what the times leave out. During start-up and
    validation idle power is counted as far as these times are known.
    """
    energy, job, run = estimate.machine.energy, estimate.job, estimate.run_time
    if energy is None:
        return None
    devices = estimate.model.run.devices_per_run if job is None else job.devices
    limit = energy.limit_w.value if energy.limit_w else None
    chosen = _method_of_step(estimate, energy) if job is None else _method_of_job(estimate, energy, job)
    unpriced = ("some ops have no time",) if estimate.coverage["unpriced"] > 0 else ()
    times = (None, None) if unpriced else (estimate.step, run.run_s)  # a lower bound of the time bounds no energy
    step_j, run_j = (at_most(energy, time_s, devices) for time_s in times)
    method = chosen.method
    if method is None or unpriced:
        return EnergyEstimate(None, (*chosen.missing, *unpriced), devices, most_step_j=step_j, most_run_j=run_j,
                              limit_w=limit)  # fmt: skip

    def spent(time_s: Span | None, done: Work) -> Spent | None:
        return None if time_s is None else spend(method, time_s, done, at_most(energy, time_s)).scaled(devices)

    of_run = add_work([(chosen.epoch, float(estimate.model.run.epochs or 0))])
    whole = spent(run.run_s, of_run)
    step = spend(method, estimate.step, chosen.step, at_most(energy, estimate.step))
    return EnergyEstimate(
        method, (), devices, step.scaled(devices), spent(run.epoch_s, chosen.epoch), whole,
        whole and whole.scaled(estimate.model.unit.runs), step_j, run_j, limit,
        (*_notes(estimate, energy, method, step), *chosen.notes),
    )  # fmt: skip
