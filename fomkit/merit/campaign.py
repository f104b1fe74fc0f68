"""A campaign on a machine: rate, days, money and energy of each phase; and claimed speed-ups (`combine`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span, multiply_independent
from fomkit.core.job import Phase, Suite, Workflow
from fomkit.core.machine import EnergyScope, Machine, Price, Scope
from fomkit.core.model import Data
from fomkit.core.units import DAY_S
from fomkit.merit import measured_steps, rated_lines
from fomkit.merit.measured_steps import Explained, MeasuredRuns
from fomkit.merit.one_off_costs import inference_of
from fomkit.plan.energy import energy_of_estimate
from fomkit.plan.estimate import Estimate, estimate
from fomkit.plan.memory_of import UNKNOWN_FIT, Fit
from fomkit.plan.options import Options, choose_scope


def paid_units(price: Price, machine: Machine, scope: Scope) -> int:
    """Count the paid units while runs fill a scope: a node is paid whole, even for a run on one of its devices.

    Raises FomkitError when the price is per system and the scope is narrower: the price of a part is unknown.
    """
    if price.per == "device":
        return machine.devices(scope)
    if price.per == "node":
        return machine.devices(scope) // machine.devices("node") if scope == "system" else 1
    if scope != "system":
        raise FomkitError(
            "price", f"is per system, but the scope is {scope!r}. Add '--scope system', or price a node."
        )
    return 1


def money(price: Price, time_s: Span, units: float = 1.0) -> Span:
    """Return the cost of a time [s] on `units` paid units, in the currency of the price.

    Price and time are independent; where the price has no spread, the interval is that of the time.

    The DAWNBench entry of ResNet-152: 243.9995 h at 4.56 USD/h.

    >>> from fomkit.core.machine import Fact
    >>> rate = 4.56 / 3600
    >>> price = Price(Fact.exact(rate, "published", "DAWNBench"), "USD", "node", "2018-04-01")
    >>> round(money(price, Span.exact(243.9995 * 3600)).value, 2)
    1112.64
    """
    return multiply_independent(price.per_s.span(time_s.level).scaled(units), time_s)


def money_of_run(price: Price, machine: Machine, scope: Scope, at_once: int, run_s: Span) -> Span:
    """Return the cost of one run while ``at_once`` of them fill a scope; down time of a system is paid too."""
    return money(price, run_s, paid_units(price, machine, scope) / (at_once * machine.up_share(scope)))


LoadSuite = Callable[[str], Suite]
FEW = "fewer runs than fit at once: it takes as long as one run, and the rest of the machine is idle"


@dataclass(frozen=True)
class PhaseCost:
    """One phase on a machine; figures are None where unknown, and ``missing`` states why.

    `per_day`: runs of the phase that the machine completes a day.
    `money`: for the whole scope during these days.
    `energy_j`: of all runs, within ``energy_scope``; `energy_at_most_j`: by the power limit of the chips [J].
    `deviations`: how the estimate differs from the phase as stated, and other notes on it.
    `fit`: whether its step fits in a device's memory.
    `explained`: the share of a measured run of its work that the device explains; None without a measured run.
    `estimate`: the estimate of the phase, where there is one.
    """

    phase: Phase
    per_day: Span | None
    days: Span | None
    deviations: tuple[str, ...] = ()
    run_s: Span | None = None
    money: Span | None = None
    energy_j: Span | None = None
    energy_scope: EnergyScope | None = None
    energy_at_most_j: float | None = None
    basis: str = "modelled"
    excludes: tuple[str, ...] = ()
    fit: Fit = UNKNOWN_FIT
    missing: str = ""
    energy_missing: tuple[str, ...] = ()
    explained: Explained | None = None
    estimate: Estimate | None = None


@dataclass(frozen=True)
class CampaignCost:
    """A workflow on a machine."""

    workflow: Workflow
    machine: Machine
    options: Options
    price: Price | None
    phases: tuple[PhaseCost, ...]

    @property
    def unfit(self) -> tuple[str, ...]:
        """The phases whose step fits in no device, each with its machine and the reason."""
        return tuple(
            f"{phase.phase.name} on {self.machine.name} {phase.fit.message}"
            for phase in self.phases
            if phase.fit.message
        )

    @property
    def little_explained(self) -> tuple[Explained, ...]:
        """The phases with days whose measured runs the device explains less than half."""
        held = [phase.explained for phase in self.phases if phase.days is not None and phase.explained is not None]
        return measured_steps.little_explained(held, [one.line for one in held])


def _days(phase: Phase, per_day: Span, run_s: Span, notes: tuple[str, ...] = ()) -> tuple[Span, tuple[str, ...]]:
    """Return the days of a phase at its rate, but at least the time of one run, and the notes on them."""
    at_rate, one_run = per_day.per(phase.runs), run_s.scaled(1 / DAY_S)
    if at_rate.value >= one_run.value:
        return at_rate, notes
    return one_run, (*notes, FEW)


def _line_cost(
    phase: Phase,
    machine: Machine,
    options: Options,
    load: rated_lines.Load,
    suites: LoadSuite,
    measured: MeasuredRuns,
) -> PhaseCost:
    suite = suites(phase.suite)
    line = next((line for line in suite.lines if line.name == phase.line), None)
    if line is None:
        names = ", ".join(line.name for line in suite.lines)
        raise FomkitError(phase.name, f"{phase.line!r} is not a line of suite {suite.name!r}. Its lines: {names}.")
    if suite.scope != options.scope:
        raise FomkitError(
            phase.name,
            f"suite {suite.name!r} gives rates of the scope {suite.scope!r}, not of {options.scope!r}. "
            f"Give --scope {suite.scope}.",
        )
    rated = rated_lines.LineRating(suite, machine, options, load).rate(line)
    if rated.unit_per_day is None:
        return PhaseCost(phase, None, None, missing=rated.missing)
    held = [
        replace(line, line=phase.name)
        for line in measured_steps.explained_lines([machine], [[rated]], measured, load)
    ]
    explained = next(iter(held), None)
    behind = rated.estimate
    unit_s = rated.unit_per_day.per(DAY_S * machine.up_devices(suite.scope))
    if behind is not None and behind.job is not None and behind.run_time.run_s is not None:
        unit_s = behind.run_time.run_s.scaled(line.runs)
    no_energy = (f"the line is {rated.kind}, and its energy is not stated",)
    found = PhaseCost(phase, rated.unit_per_day, *_days(phase, rated.unit_per_day, unit_s, rated.deviations),
                      basis=rated.basis, excludes=rated.excludes or (), fit=rated.fit, explained=explained,
                      energy_missing=no_energy if behind is None else ())  # fmt: skip
    return _with_energy(found, behind, line.runs) if behind else found


def _with_energy(found: PhaseCost, estimated: Estimate, runs: float = 1.0) -> PhaseCost:
    """Add the energy of all runs, and the notes of their estimate."""
    spent = energy_of_estimate(estimated)
    most_run_j, times = spent.most_run_j if spent else None, runs * found.phase.runs
    found = replace(
        found, run_s=estimated.run_time.run_s, excludes=estimated.excludes, fit=estimated.fit, estimate=estimated,
        deviations=(*found.deviations, *estimated.deviations),
        energy_at_most_j=None if most_run_j is None else most_run_j * times,
    )  # fmt: skip
    if spent is None or spent.method is None or spent.run is None:
        missing = spent.missing if spent else (f"{estimated.machine.name} states no energy",)
        return replace(found, energy_missing=missing)
    return replace(found, energy_j=spent.run.energy_j.scaled(times), energy_scope=spent.method.scope)


def _model(
    phase: Phase, name: str, machine: Machine, options: Options, load: rated_lines.Load, measured: MeasuredRuns
) -> PhaseCost:
    model = load(name)
    fixed = rated_lines.fixed_conditions(phase.conditions, model)
    chosen = replace(options, batch=fixed.batch, sizes=fixed.sizes, precision=fixed.precision)
    try:
        chosen_model = rated_lines.under_conditions(model, fixed)
        if phase.mode == "infer" and phase.job is None:
            one = inference_of(estimate(chosen_model, machine, chosen), phase.conditions.samples)
        elif phase.mode == "infer" and model.traced_with.get("mode") != "infer":
            do = "Profile the model with --mode infer, prefill or decode, or leave nodes and layout out."
            raise FomkitError(
                model.name, f"is a training, whose forward pass is predicted on one device alone. {do}"
            )
        else:
            if phase.mode == "infer":  # a run is one pass over its samples
                data, run = Data(phase.conditions.samples, 0, "keep"), replace(chosen_model.run, epochs=1)
                chosen_model = replace(chosen_model, data=data, run=run)
            one = rated_lines.time_work(chosen_model, machine, chosen, phase.job)
    except FomkitError as error:
        return PhaseCost(phase, None, None, missing=str(error))
    if one.unit_per_day is None:
        return PhaseCost(phase, None, None, missing=rated_lines.NO_RUN.format(name))
    per_day, run_s = one.unit_per_day.scaled(one.model.unit.runs), one.run_time.run_s or one.step
    # Measured rates and epochs are of training, so they do not apply to a phase of inference.
    runs = measured if phase.mode != "infer" else measured_steps.NOTHING_MEASURED
    held = next(iter(measured_steps.explained_models([one], chosen, runs, phase.name)), None)
    return _with_energy(PhaseCost(phase, per_day, *_days(phase, per_day, run_s), explained=held), one)


def run_campaign(
    workflow: Workflow,
    machine: Machine,
    options: Options,
    price: Price | None,
    load: rated_lines.Load,
    suites: LoadSuite,
    measured: MeasuredRuns = measured_steps.NOTHING_MEASURED,
) -> CampaignCost:
    """Compute a campaign, phase by phase, each on the whole scope.

    `options`: its scope is the system by default; batches and sizes are those of the phases; `price`: None is the
    machine's own; `load`, `suites`: return the model profile, or the suite, of a name; `measured`: runs to compare
    with modelled phases.
    """
    scope = choose_scope([machine], options.scope or "system")
    options, price, found = replace(options, scope=scope), price or machine.price, []
    for phase in workflow.phases:
        one = (
            _line_cost(phase, machine, options, load, suites, measured)
            if phase.model is None
            else _model(phase, phase.model, machine, options, load, measured)
        )
        if price is not None and one.days is not None:
            units = paid_units(price, machine, scope)
            one = replace(one, money=money(price, one.days.scaled(DAY_S), units))
        found.append(one)
    return CampaignCost(workflow, machine, options, price, tuple(found))


LEAST, MOST, MANY = 1e-6, 1e6, 20
"""Smallest and largest accepted speed-up, and how many are accepted; their product stays finite."""


@dataclass(frozen=True)
class Combined:
    """Claimed speed-ups and the modelled speed-up of all together.

    `claimed`: the factor of each change on its own, by the name of the change.
    `modelled`: the speed-up of all together, by the model.
    """

    claimed: Mapping[str, float]
    modelled: Span

    @property
    def naive(self) -> float:
        """Product of the factors, as if no change reduced the gain of another."""
        return math.prod(self.claimed.values())


def combine(claimed: Mapping[str, float], modelled: Span) -> Combined:
    """Combine claimed speed-ups with the modelled one.

    DAWNBench's five (Coleman et al. 2017): hardware, software, learning rate, statistics, inference.

    >>> five = {"a": 1.25, "b": 3.1, "c": 3, "d": 29, "e": 3}
    >>> round(combine(five, Span(12.0, 9.0, 15.0)).naive, 6)
    1011.375
    """
    for name, factor in claimed.items():
        if not LEAST <= factor <= MOST:
            raise FomkitError(
                name, f"is a speed-up of {factor:g}. Give a factor of {LEAST:g} to {MOST:g}; '+80 %' is 1.8."
            )
    if len(claimed) > MANY:
        raise FomkitError("speed-ups", f"{len(claimed)} are claimed. Give {MANY} or fewer.")
    return Combined(dict(claimed), modelled)
