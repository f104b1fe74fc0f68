"""From measured rows to the step of an estimate, and the share of measured runs that the device's work explains.

`read_row` and `measured_step` convert rows to a step; `explained_lines` and `explained_models` compute the shares,
which `merit_content` adds to the block ``fom`` of estimate and fom.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import NamedTuple, NotRequired, TypedDict

from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span
from fomkit.core.machine import Machine
from fomkit.core.measurement import MEASURED_LEVEL, Measurement
from fomkit.core.model import ModelProfile
from fomkit.core.units import count_text, format_number, format_quantity
from fomkit.merit.fom import FigureOfMerit
from fomkit.merit.rated_lines import Load, RatedLine, fixed_conditions, under_conditions
from fomkit.plan.content import MaybeEnds, as_content, stated_content
from fomkit.plan.estimate import Estimate, estimate
from fomkit.plan.options import Options


@dataclass(frozen=True)
class Reading:
    """One row on an estimate's model and machine, and how it was used.

    `step`: the step that follows from it [s]; None where the row was set aside.
    `message`: how the step was derived, or why the row was set aside.
    `holds`: terms outside the step that the figure includes and that cannot be separated.
    """

    row: Measurement
    step: Span | None
    message: str
    holds: frozenset[str] = frozenset()


@dataclass(frozen=True)
class MeasuredStep:
    """The step from all rows on one model and one machine: the median, with the widest interval.

    `step`: its interval runs from the lowest low to the highest high, at the level of the table.
    `spread_stated`: whether every row used states its interval.
    `holds`: terms outside the step that every row used includes unseparated.
    """

    step: Span
    spread_stated: bool
    holds: frozenset[str]


def other_condition(conditions: Sequence[tuple[str, object, object]], whose: str) -> str:
    """Say which stated condition of a row is not the wanted one, the third of each; "" where all are."""
    for name, stated, wanted in conditions:
        if stated in (None, ""):
            return f"its {name} is not stated; {whose} is {wanted}"
        if stated != wanted:
            return f"its {name} is {stated}, {whose} is {wanted}"
    return ""


def mismatch(row: Measurement, estimated: Estimate) -> str:
    """Return the reason why a row is no measured time of this estimate; "" where it is one."""
    if row.quantity == "energy_j":
        return "energy_j is not a time"
    if row.basis != "measured":
        return f"its basis is {row.basis}, not measured"
    devices = estimated.model.run.devices_per_run if estimated.job is None else estimated.job.devices
    conditions: list[tuple[str, object, object]] = [
        ("batch", row.batch, estimated.sizes.get("batch")),
        ("precision", row.precision, estimated.precision),
        ("scope", row.scope, estimated.scope),
        ("devices", row.devices, devices),
    ]
    if reason := other_condition(conditions, "the estimate's"):
        return reason
    if changed := [name for name in estimated.model.resized(estimated.sizes) if name != "batch"]:
        return f"it does not state {', '.join(changed)}, and the estimate differs from the profile there"
    if row.quantity == "latency_s" and set(estimated.step_time.passes) != {"forward"}:
        return "latency_s is of a forward pass, but the profile's step has more passes"
    return ""


def quantity_of(estimated: Estimate, quantity: str) -> Span | None:
    """Return an estimate's value of a measured quantity, in its unit; None where the profile lacks a fact."""
    known = {
        "step_s": estimated.step, "latency_s": estimated.step, "epoch_s": estimated.run_time.epoch_s,
        "run_s": estimated.run_time.run_s, "sample_per_s": estimated.sample_per_s,
    }  # fmt: skip
    return known[quantity]


def explained_share(quantity: str, projected: Span | None, measured: float) -> float | None:
    """Return the projected time as a share of the measured one; None where it is unknown."""
    if projected is None:
        return None
    share = projected.value / measured
    return 1 / share if quantity == "sample_per_s" else share


def _read_many_steps(row: Measurement, estimated: Estimate) -> Reading:
    """Divide an epoch or a run by its steps, if it includes no other priced term than validation.

    Validation is forward passes of the same model; it counts as the steps that take as long in the estimate.
    """
    steps, epochs, of_run = estimated.run_time.steps_per_epoch, estimated.model.run.epochs, row.quantity == "run_s"
    if steps is None or (of_run and epochs is None):
        return Reading(row, None, f"the profile does not state how many steps {row.quantity} has")
    run_time = estimated.run_time
    terms = {"epoch overheads": run_time.epoch_extra_s, "start_up": run_time.startup_s if of_run else None}
    if others := [name for name, span in terms.items() if span is not None and span.value > 0]:
        return Reading(row, None, f"{row.quantity} includes {', '.join(others)} besides steps; measure step_s")
    validation = estimated.run_time.validation_s
    extra = validation.value / estimated.step.value if validation is not None else 0.0
    count = (steps + extra) * (epochs if of_run and epochs is not None else 1)
    steps_text = count_text(steps, "step")
    steps_text = f"{count_text(epochs or 0, 'epoch')} of {steps_text}" if of_run else steps_text
    held = {"validation", "start_up"} if of_run else {"validation"}
    holds = frozenset(held.intersection(estimated.run_time.excludes))
    if extra:
        samples = estimated.model.data.validation_samples
        steps_text += (
            f", each with a validation of {samples:,} samples"
            if of_run
            else f" and {samples:,} samples of validation"
        )
        steps_text += f" that take as long as {extra:,.4g} steps by the prediction"
    held_text = f", including the unknown time of {' and '.join(sorted(holds))}" if holds else ""
    return Reading(
        row, row.span.scaled(1 / count), f"{row.quantity} of the profile's {steps_text}{held_text}", holds
    )


def read_row(row: Measurement, estimated: Estimate) -> Reading:
    """Return the step that a row on this model and machine measures, or the reason why it measures none."""
    if reason := mismatch(row, estimated):
        return Reading(row, None, reason)
    if row.quantity in ("epoch_s", "run_s"):
        return _read_many_steps(row, estimated)
    if row.quantity == "sample_per_s":
        return Reading(row, row.span.per(float(estimated.sizes["batch"])), f"a batch of {row.batch} per step")
    return Reading(row, row.span, "unchanged")


def median_of(figures: Sequence[Span]) -> Span:
    """Return the median of measured figures with the widest interval, at the level of their table."""
    low, high = min(one.low for one in figures), max(one.high for one in figures)
    return Span(median(one.value for one in figures), low, high, MEASURED_LEVEL)


@dataclass(frozen=True)
class MeasuredEstimate:
    """An estimate and its measurements.

    `readings`: all rows about its model and machine, including those set aside.
    `measured`: None where there is no row, or every row was set aside.
    """

    predicted: Estimate
    readings: tuple[Reading, ...]
    measured: MeasuredStep | None


def measured_of(estimated: Estimate, rows: Sequence[Measurement]) -> MeasuredEstimate:
    """Read the rows about an estimate's model and machine."""
    pair = estimated.model.name, estimated.machine.name
    readings = tuple(read_row(row, estimated) for row in rows if (row.model, row.machine) == pair)
    return MeasuredEstimate(estimated, readings, measured_step(readings))


def measured_step(readings: Sequence[Reading]) -> MeasuredStep | None:
    """Combine the rows that were not set aside; None where there are none."""
    used = [(reading, reading.step) for reading in readings if reading.step is not None]
    if not used:
        return None
    return MeasuredStep(
        median_of([step for _, step in used]),
        all(reading.row.spread_stated for reading, _ in used),
        frozenset.intersection(*(reading.holds for reading, _ in used)),
    )


ENOUGH = 0.5
"""Share of a measured time from which on a verdict may rest on the device's work: it is then the larger part."""
COMPARABLE = 1 / 3
"""Share from which on a projected time may be compared with the measured one (`fomkit compare`). It is less than
``ENOUGH``, because the comparison decides nothing, and a projection may be too short by its own error as well."""


@dataclass(frozen=True)
class Explained:
    """The measured run of a line with the smallest explained share.

    `line`: of a suite, else the model.
    `share`: the projected time over the measured one.
    `message`: the same in figures, with the source.
    """

    line: str
    machine: str
    share: float
    message: str


class MeasuredRuns(NamedTuple):
    """Measured runs, and a function that returns the machine of a name on which they ran."""

    rows: Sequence[Measurement]
    machine: Callable[[str], Machine]


NOTHING_MEASURED = MeasuredRuns((), dict[str, Machine]().__getitem__)


def _explained(line: str, row: Measurement, estimated: Estimate) -> Explained | None:
    """Compare a row with the estimate of its model on its machine; None where it does not measure that."""
    if mismatch(row, replace(estimated, scope="device")):
        return None
    projected = quantity_of(estimated, row.quantity)
    share = explained_share(row.quantity, projected, row.value)
    if share is None or projected is None:
        return None
    took, takes = (
        f"{format_number(figure)} samples/s"
        if row.quantity == "sample_per_s"
        else format_quantity(figure, "time_s")
        for figure in (row.value, projected.value)
    )
    message = (
        f"{row.model} on {row.machine}: {row.quantity} measured {took}, predicted for the device {takes}: "
        f"{share:.1%} of the time ({row.source or 'no source stated'})"
    )
    return Explained(line, row.machine, share, message)


@dataclass(frozen=True)
class _Case:
    """A line's model under the line's conditions, with an estimate for each machine, made on demand."""

    line: str
    model: ModelProfile
    options: Options
    known: dict[str, Estimate | None]

    def on(self, name: str, load: Callable[[str], Machine]) -> Estimate | None:
        """Estimate the model on a machine; None where it cannot be estimated."""
        if name not in self.known:
            try:
                self.known[name] = estimate(self.model, load(name), self.options)
            except FomkitError:
                self.known[name] = None
        return self.known[name]

    def explained_by(self, rows: Sequence[Measurement], load: Callable[[str], Machine]) -> Iterator[Explained]:
        """Yield the explained share of each row that measures the model."""
        for row in rows:
            one = self.on(row.machine, load)
            found = None if one is None else _explained(self.line, row, one)
            if found is not None:
                yield found


def _case(machines: Sequence[Machine], rated: Sequence[RatedLine], load: Load) -> _Case | None:
    """Return the case of a line that is modelled on at least one machine; None for other lines."""
    line = rated[0].line
    if line.model is None or not any(one.is_modelled for one in rated):
        return None
    known: dict[str, Estimate | None] = {
        machine.name: one.alone for machine, one in zip(machines, rated, strict=True) if one.alone is not None
    }
    model = load(line.model)
    fixed = fixed_conditions(line.conditions, model)
    options = Options(batch=fixed.batch, sizes=fixed.sizes, precision=fixed.precision)
    return _Case(line.name, under_conditions(model, fixed), options, known)


def _least_explained(case: _Case, own: Mapping[str, Machine], measured: MeasuredRuns) -> Iterator[Explained]:
    """Yield the measured run with the smallest explained share; nothing where there is no measured run."""

    def machine_of(name: str) -> Machine:
        return own[name] if name in own else measured.machine(name)

    about = [row for row in measured.rows if row.model == case.model.name]
    here = [row for row in about if row.machine in own]
    explained = [*case.explained_by(here, machine_of)] or [*case.explained_by(about, machine_of)]
    if explained:
        yield min(explained, key=lambda one: one.share)


def explained_lines(
    machines: Sequence[Machine], sides: Sequence[Sequence[RatedLine]], measured: MeasuredRuns, load: Load
) -> tuple[Explained, ...]:
    """Return for each modelled line the measured run of which the device's work explains the smallest share.

    Runs on these machines count; without such runs, those on other machines do.
    """
    own = {machine.name: machine for machine in machines}
    cases = [_case(machines, rated, load) for rated in zip(*sides, strict=True)] if measured.rows else []
    return tuple(one for case in cases if case is not None for one in _least_explained(case, own, measured))


def explained_models(
    estimates: Sequence[Estimate], options: Options, measured: MeasuredRuns, line: str = ""
) -> tuple[Explained, ...]:
    """Return the same for each model that is estimated, or for a single one as a line; see `explained_lines`."""
    estimates = [estimated for estimated in estimates if estimated.job is None]  # the rows are of one device
    own = {estimated.machine.name: estimated.machine for estimated in estimates}
    models = {estimated.model.name: estimated.model for estimated in estimates}
    cases = [
        _Case(
            line or name,
            model,
            replace(options, scope=None),
            {estimated.machine.name: estimated for estimated in estimates if estimated.model.name == name},
        )
        for name, model in models.items()
    ]
    return tuple(one for case in cases for one in _least_explained(case, own, measured))


def little_explained(found: Sequence[Explained], names: Container[str]) -> tuple[Explained, ...]:
    """Keep the lines of the given names of which the device explains less than half."""
    return tuple(one for one in found if one.share < ENOUGH and one.line in names)


Merit = TypedDict("Merit", {
    "value": float, "low": float | None, "high": float | None, "mean": str, "scope": str, "baseline": str,
    "target": str, "weights": dict[str, float], "worst_basis": str, "excludes": list[str],
    "excludes_alone": Mapping[str, list[str]],
    "does_not_fit": list[str], "little_explained": list[str], "explained_shares": dict[str, float],
    "measured_runs": dict[str, str], "other_means": dict[str, float], "ratios": dict[str, MaybeEnds],
    "rates": dict[str, float], "unit_per_day": dict[str, dict[str, MaybeEnds]],
    "value_with_rates_cut_to_whole_units": float | None, "errors_cancel": NotRequired[dict[str, float]],
})  # fmt: skip

NO_TERMS: Mapping[str, list[str]] = {}
"""No excluded terms, where both sides of a ratio leave out the same."""


def merit_content(
    merit: FigureOfMerit,
    worst_basis: str,
    excludes: Sequence[str] = (),
    unfit: Sequence[str] = (),
    explained: Sequence[Explained] = (),
    alone: Mapping[str, list[str]] = NO_TERMS,
) -> Merit:
    """Return the ``fom`` block of a figure of merit.

    `excludes`: terms that its rates leave out because they are not stated; `unfit`: its work that fits in no
    device, each with the reason; `explained`: the explained shares of its lines with a measured run; `alone`: the
    terms that only one side of a ratio leaves out, by machine.
    """
    held = [one for one in explained if one.line in merit.ratios]
    return as_content(
        Merit, stated_content(merit.value), merit, scope=merit.target.scope, baseline=merit.baseline.machine,
        target=merit.target.machine, worst_basis=worst_basis, excludes=excludes, excludes_alone=alone,
        does_not_fit=unfit, little_explained=[one.line for one in little_explained(held, merit.ratios)],
        explained_shares={one.line: one.share for one in held}, rates=merit.mean_rates,
        measured_runs={one.line: one.message for one in held},
        unit_per_day={"baseline": merit.baseline.unit_per_day, "target": merit.target.unit_per_day},
        value_with_rates_cut_to_whole_units=merit.with_whole_rates,
    )  # fmt: skip


def worst_basis(estimates: Sequence[Estimate]) -> str:
    """Return the weakest basis of some estimates: measured only where every op has a measured time."""
    return "measured" if all(estimate.basis == "measured" for estimate in estimates) else "modelled"
