"""A campaign on a machine: each phase's rate, days, money, energy, and their sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from fomkit.errors import FomkitError
from fomkit.fom.money import money, paid_units
from fomkit.hardware import EnergyScope, Machine, Price
from fomkit.quantities import DAY_S
from fomkit.spans import Span
from fomkit.study.conditions import fixed_conditions, under_conditions
from fomkit.study.energy_of import energy_of_estimate
from fomkit.study.estimate import Estimate, estimate
from fomkit.study.explained import (
    NOTHING_MEASURED,
    Explained,
    MeasuredRuns,
    explained_lines,
    explained_models,
    little_explained,
)
from fomkit.study.inference import inference_of
from fomkit.study.memory_of import UNKNOWN_FIT, Fit
from fomkit.study.options import Options, choose_scope
from fomkit.study.rated_lines import LineRating, Load, up_devices
from fomkit.suite import Phase, Suite, Workflow

LoadSuite = Callable[[str], Suite]
FEW = "fewer runs than fit side by side: it lasts as long as one of them, and the rest of the machine waits"


@dataclass(frozen=True)
class PhaseCost:
    """One phase on a machine; None where it is not known, and ``missing`` says why.

    Attributes
    ----------
    per_day : Span or None
        Runs of the phase that the machine ends a day.
    days : Span or None
    money : Span or None
        For the whole scope during these days.
    energy_j : Span or None
        Of all runs, within ``energy_scope``.
    said : tuple of str
        What was done differently from what is usual.
    fit : Fit
        Whether a device's memory holds its step.
    explained : Explained or None
        How much of a measured run of its work the device's work explains; None where nobody measured one.
    """

    phase: Phase
    per_day: Span | None
    days: Span | None
    said: tuple[str, ...] = ()
    run_s: Span | None = None
    money: Span | None = None
    energy_j: Span | None = None
    energy_scope: EnergyScope | None = None
    basis: str = "modelled"
    excludes: tuple[str, ...] = ()
    fit: Fit = UNKNOWN_FIT
    missing: str = ""
    energy_missing: tuple[str, ...] = ()
    explained: Explained | None = None


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
        """The phases whose step no device holds, each with its machine and why."""
        return tuple(
            f"{one.phase.name} on {self.machine.name} {one.fit.said}" for one in self.phases if one.fit.said
        )

    @property
    def little_explained(self) -> tuple[Explained, ...]:
        """Those of its phases with days whose measured runs the device explains less than half."""
        held = [one.explained for one in self.phases if one.days is not None and one.explained is not None]
        return little_explained(held, [one.line for one in held])


def _days(phase: Phase, per_day: Span, run_s: Span, said: tuple[str, ...] = ()) -> tuple[Span, tuple[str, ...]]:
    """Give the days of a phase at its rate, but no less than one of its runs, and what is said of them."""
    at_rate, one_run = per_day.per(phase.runs), run_s.scaled(1 / DAY_S)
    if at_rate.value >= one_run.value:
        return at_rate, said
    return one_run, (*said, FEW)


def _line(
    phase: Phase,
    machine: Machine,
    options: Options,
    load: Load,
    suites: LoadSuite,
    measured: MeasuredRuns,
) -> PhaseCost:
    suite = suites(phase.suite)
    line = next((one for one in suite.lines if one.name == phase.line), None)
    if line is None:
        names = ", ".join(one.name for one in suite.lines)
        raise FomkitError(phase.name, f"{phase.line!r} is no line of suite {suite.name!r}. Its lines: {names}.")
    if suite.scope != options.scope:
        raise FomkitError(
            phase.name,
            f"suite {suite.name!r} rates the scope {suite.scope!r}, not {options.scope!r}. Use its scope.",
        )
    rated = LineRating(suite, machine, options, load).rate(line)
    if rated.unit_per_day is None:
        return PhaseCost(phase, None, None, missing=rated.missing)
    unit_s = rated.unit_per_day.per(DAY_S * up_devices(machine, suite))
    nobody = (f"the line is {rated.kind}, and nobody says what energy it takes",)
    energy_missing = nobody if rated.estimate is None else ()
    held = [replace(one, line=phase.name) for one in explained_lines([machine], [[rated]], measured, load)]
    found = PhaseCost(phase, rated.unit_per_day, *_days(phase, rated.unit_per_day, unit_s, rated.deviations),
                      basis=rated.basis, excludes=rated.excludes or (), energy_missing=energy_missing,
                      explained=next(iter(held), None))  # fmt: skip
    return _with_energy(found, rated.estimate, line.runs) if rated.estimate else found


def _with_energy(found: PhaseCost, one: Estimate, runs: float = 1.0) -> PhaseCost:
    """Add the energy of all runs, and what is said of their estimate."""
    spent = energy_of_estimate(one)
    said = (*found.said, *one.deviations)
    found = replace(found, run_s=one.run_time.run_s, excludes=one.excludes, fit=one.fit, said=said)
    if spent is None or spent.method is None or spent.run is None:
        missing = spent.missing if spent else (f"{one.machine.name} states nothing of energy",)
        return replace(found, energy_missing=missing)
    return replace(
        found, energy_j=spent.run.energy_j.scaled(runs * found.phase.runs), energy_scope=spent.method.scope
    )


def _model(
    phase: Phase,
    name: str,
    machine: Machine,
    options: Options,
    load: Load,
    measured: MeasuredRuns,
) -> PhaseCost:
    model = load(name)
    fixed = fixed_conditions(phase.conditions, model)
    chosen = replace(options, batch=fixed.batch, sizes=fixed.sizes, precision=fixed.precision)
    try:
        one = estimate(under_conditions(model, fixed), machine, chosen)
        if phase.mode == "infer":
            one = inference_of(one, phase.conditions.samples)
    except FomkitError as error:
        return PhaseCost(phase, None, None, missing=str(error))
    if one.unit_per_day is None:
        return PhaseCost(
            phase, None, None, missing=f"{name} does not say what a run is: no train_samples or epochs"
        )
    per_day, run_s = one.unit_per_day.scaled(one.model.unit.runs), one.run_time.run_s or one.step
    # Measured rates and epochs are of training: they say nothing of a phase of inference.
    runs = measured if phase.mode != "infer" else NOTHING_MEASURED
    held = next(iter(explained_models([one], chosen, runs, phase.name)), None)
    return _with_energy(PhaseCost(phase, per_day, *_days(phase, per_day, run_s), explained=held), one)


def run_campaign(
    workflow: Workflow,
    machine: Machine,
    options: Options,
    price: Price | None,
    load: Load,
    suites: LoadSuite,
    measured: MeasuredRuns = NOTHING_MEASURED,
) -> CampaignCost:
    """Work out a campaign, phase by phase, each on the whole scope.

    Parameters
    ----------
    workflow : Workflow
    machine : Machine
    options : Options
        Its scope is the system unless it says another; batches and sizes are those of the phases.
    price : Price or None
        None takes the machine's own.
    load, suites : function
        Give the model profile, the suite, of a name.
    measured : MeasuredRuns
        Runs that were measured, to hold the modelled phases against.

    Raises
    ------
    FomkitError
        When the machine does not state the scope, or a phase names no line.
    """
    scope = choose_scope([machine], options.scope or "system")
    options, price, found = replace(options, scope=scope), price or machine.price, []
    for phase in workflow.phases:
        one = (
            _line(phase, machine, options, load, suites, measured)
            if phase.model is None
            else _model(phase, phase.model, machine, options, load, measured)
        )
        if price is not None and one.days is not None:
            units = paid_units(price, machine, scope)
            one = replace(one, money=money(price, one.days.scaled(DAY_S), units))
        found.append(one)
    return CampaignCost(workflow, machine, options, price, tuple(found))
