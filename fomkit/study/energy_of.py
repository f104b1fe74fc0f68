"""The energy of an estimate: of its step, epoch, run and unit of work, as far as the machine states figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fomkit.energy import (
    Figures,
    Method,
    Spent,
    Work,
    Workload,
    add_work,
    at_most,
    choose_method,
    figures_for,
    price_work,
    spend,
)
from fomkit.hardware import Energy
from fomkit.spans import Span

if TYPE_CHECKING:
    from fomkit.study.estimate import Estimate


_SHARED = {"node": "node's power", "wall": "power at the wall"}


@dataclass(frozen=True)
class EnergyEstimate:
    """Energy [J] of an estimate, of all devices of one run.

    Attributes
    ----------
    method : Method or None
        None where the machine's figures do not reach; ``missing`` then says what is not stated.
    step, epoch, run, unit : Spent or None
        None where it, or its time, is not known.
    most_step_j : float or None
        Upper bound of a chip's step [J], where its limit is stated.
    notes : tuple of str
        What a reader should know of the figures.
    """

    method: Method | None
    missing: tuple[str, ...]
    devices: int
    step: Spent | None = None
    epoch: Spent | None = None
    run: Spent | None = None
    unit: Spent | None = None
    most_step_j: float | None = None
    limit_w: float | None = None
    notes: tuple[str, ...] = ()


def _workload(one: Estimate) -> Workload:
    return Workload(
        model=one.model.name,
        batch=one.sizes.get("batch"),
        precision=one.precision,
        busy_share=one.step_time.device_s.value / one.step.value if one.step.value else 1.0,
        time_measured=one.coverage["measured"] > 1 - 1e-12,
    )


def _epoch_work(one: Estimate, energy: Energy, figures: Figures, step: Work) -> Work:
    """Add the work of an epoch's steps, and of the forward passes that validate."""
    run, level = one.run_time, one.step.level
    parts = [(step, float(run.steps_per_epoch or 0))]
    forward = one.step_time.passes.get("forward")
    if run.validation_s is not None and forward is not None and forward.value > 0:
        rows = one.ops[one.ops["pass_name"].isin(["forward"])]
        parts.append((price_work(rows, energy, figures, level), round(run.validation_s.value / forward.value)))
    return add_work(parts)


def _notes(one: Estimate, energy: Energy, method: Method, step: Spent) -> tuple[str, ...]:
    said = []
    idle, limit = step.terms.get("idle power"), energy.limit_w
    if not method.counts_work and method.power_w.low == method.power_w.high:
        said.append("the power states no spread: the interval is that of the time")
    if idle is not None and all(
        term.low == term.high for name, term in step.terms.items() if name != "idle power"
    ):
        said.append("the figures per flop and byte state no spread: the interval is that of idle power and time")
    mean_w = step.energy_j.value / one.step.value if one.step.value else 0.0
    if limit is not None and method.scope == "chip" and mean_w > limit.value:
        said.append(
            f"a mean power of {mean_w:.3g} W is above the chip's limit of {limit.value:.3g} W: "
            "figures or predicted time cannot both be right"
        )
    if method.scope != "chip":
        said.append(f"each device has an equal share of the {_SHARED[method.scope]}, as if all did the same")
    return tuple(said)


def energy_of_estimate(one: Estimate) -> EnergyEstimate | None:
    """Give the energy of an estimate; None where the machine states nothing of energy.

    The figures count the devices of one run. What the times leave out, the energy leaves out: while the host
    starts up or validates, idle power is counted as far as these times are known.
    """
    energy, level = one.machine.energy, one.step.level
    if energy is None:
        return None
    devices, run = one.model.run.devices_per_run, one.run_time
    figures, said = figures_for(one.ops, energy)
    work = price_work(one.ops, energy, figures, level)
    method, missing = choose_method(energy, _workload(one), work, level)
    most = at_most(energy, one.step)
    limit = energy.limit_w.value if energy.limit_w else None
    if method is None or one.coverage["unpriced"] > 0:
        unpriced = ("some ops have no time",) if one.coverage["unpriced"] > 0 else ()
        return EnergyEstimate(None, (*missing, *unpriced), devices, most_step_j=most, limit_w=limit)

    def spent(time_s: Span | None, done: Work) -> Spent | None:
        return None if time_s is None else spend(method, time_s, done, at_most(energy, time_s)).scaled(devices)

    of_epoch = _epoch_work(one, energy, figures, work)
    of_run = add_work([(of_epoch, float(one.model.run.epochs or 0))])
    whole = spent(run.run_s, of_run)
    step = spend(method, one.step, work, most)
    return EnergyEstimate(
        method, (), devices, step.scaled(devices), spent(run.epoch_s, of_epoch), whole,
        whole and whole.scaled(one.model.unit.runs), most, limit,
        (*_notes(one, energy, method, step), *(said if method.counts_work else ())),
    )  # fmt: skip


def _span(spent: Spent | None) -> dict[str, float] | None:
    if spent is None:
        return None
    return {"value": spent.energy_j.value, "low": spent.energy_j.low, "high": spent.energy_j.high}


def energy_content(one: Estimate) -> dict[str, Any] | None:
    """Put the energy of an estimate in the form of the block ``energy_j``; None where the machine states none."""
    found = energy_of_estimate(one)
    if found is None:
        return None
    method, step = found.method, found.step
    share = step.terms["idle power"].value / step.energy_j.value if step and "idle power" in step.terms else None
    return {
        "step": _span(step),
        "epoch": _span(found.epoch),
        "run": _span(found.run),
        "unit": _span(found.unit),
        "scope": method.scope if method else one.machine.energy and one.machine.energy.scope,
        "basis": method.basis if method else None,
        "method": method.name if method else None,
        "from": method.said if method else None,
        "process_m": method.process_m if method else None,
        "devices": found.devices,
        "idle_share": share,
        "terms_step": {name: {"value": term.value, "low": term.low, "high": term.high}
                       for name, term in step.terms.items()} if step else {},
        "step_at_most": found.most_step_j,
        "limit_w": found.limit_w,
        "missing": list(found.missing),
        "notes": list(found.notes),
    }  # fmt: skip
