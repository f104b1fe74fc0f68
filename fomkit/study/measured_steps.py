"""From rows of measurements to the measured step of one estimate: which rows are meant, and the step of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from fomkit.measurement import Measurement
from fomkit.spans import Span
from fomkit.study.estimate import Estimate

MEASURED_LEVEL = 0.8
"""Level of the intervals of a table of measurements, as of all files."""
_MEASURED = "measured"


@dataclass(frozen=True)
class Reading:
    """One row about an estimate's model and machine, and what became of it.

    Attributes
    ----------
    step : Span or None
        The step it gives [s]; None where it was set aside.
    said : str
        How the step was made of it, or why it was set aside.
    holds : frozenset of str
        Terms outside the step that the figure holds unseparated.
    """

    row: Measurement
    step: Span | None
    said: str
    holds: frozenset[str] = frozenset()


@dataclass(frozen=True)
class MeasuredStep:
    """The step that the rows about one model on one machine give together: the median, with the ends of all.

    Attributes
    ----------
    step : Span
        Its interval runs from the lowest low to the highest high, at the level of the table.
    spread_stated : bool
        Whether every row used states its interval.
    holds : frozenset of str
        Terms outside the step that every row used holds unseparated.
    """

    step: Span
    spread_stated: bool
    holds: frozenset[str]


def mismatch(row: Measurement, one: Estimate) -> str:
    """Say why a row is no measurement of this estimate; "" where it is one."""
    if row.basis != _MEASURED:
        return f"its basis is {row.basis}, not measured"
    conditions: list[tuple[str, object, object]] = [
        ("batch", row.batch, one.sizes.get("batch")),
        ("precision", row.precision, one.precision),
        ("scope", row.scope, one.scope),
        ("devices", row.devices, one.model.run.devices_per_run),
    ]
    for name, stated, asked in conditions:
        if stated in (None, ""):
            return f"its {name} is not stated; the estimate's is {asked}"
        if stated != asked:
            return f"its {name} is {stated}, the estimate's is {asked}"
    changed = [name for name, size in one.sizes.items() if name != "batch" and size != one.model.sizes.get(name)]
    if changed:
        return f"it does not say {', '.join(changed)}, and the estimate's is not the profile's"
    return ""


def quantity_of(one: Estimate, quantity: str) -> Span | None:
    """Give what an estimate says of a measured quantity, in its unit; None where the profile lacks something."""
    if quantity == "sample_per_s":
        batch = one.sizes.get("batch")
        return one.step.per(float(batch)) if batch else None
    known = {
        "step_s": one.step,
        "latency_s": one.step,
        "epoch_s": one.run_time.epoch_s,
        "run_s": one.run_time.run_s,
    }
    return known[quantity]


def explained_share(quantity: str, projected: Span | None, measured: float) -> float | None:
    """Give the projected time as a share of the measured one; None where it is unknown."""
    if projected is None:
        return None
    share = projected.value / measured
    return 1 / share if quantity == "sample_per_s" else share


def _besides_steps(one: Estimate, run: bool) -> list[str]:
    """Name the priced terms of an epoch or a run that do not scale with its steps."""
    terms = {"epoch overheads": one.run_time.epoch_extra_s}
    if run:
        terms["start_up"] = one.run_time.startup_s
    return [name for name, span in terms.items() if span is not None and span.value > 0]


def _of_many_steps(row: Measurement, one: Estimate) -> Reading:
    """Divide an epoch or a run by its steps, where it is made of nothing else that is priced but validation.

    Validation is forward passes of the same model: as long as so many steps as the estimate says.
    """
    steps, epochs, of_run = one.run_time.steps_per_epoch, one.model.run.epochs, row.quantity == "run_s"
    if steps is None or (of_run and epochs is None):
        return Reading(row, None, f"the profile does not say how many steps {row.quantity} has")
    if others := _besides_steps(one, of_run):
        return Reading(row, None, f"{row.quantity} holds {', '.join(others)} besides steps; measure step_s")
    validation = one.run_time.validation_s
    extra = validation.value / one.step.value if validation is not None else 0.0
    count = (steps + extra) * (epochs if of_run and epochs is not None else 1)
    of = f"{epochs} epochs of {steps:,} steps" if of_run else f"{steps:,} steps"
    held = {"validation", "start_up"} if of_run else {"validation"}
    holds = frozenset(held.intersection(one.run_time.excludes))
    if extra:
        samples = one.model.data.validation_samples
        of += (
            f", each with a validation of {samples:,} samples"
            if of_run
            else f" and {samples:,} samples of validation"
        )
        of += f" that take as long as {extra:,.4g} steps by the prediction"
    whatever = f", with whatever {' and '.join(sorted(holds))} took" if holds else ""
    span = Span(row.value, row.low, row.high, MEASURED_LEVEL).scaled(1 / count)
    return Reading(row, span, f"{row.quantity} of the profile's {of}{whatever}", holds)


def read_row(row: Measurement, one: Estimate) -> Reading:
    """Give the step that a row about this model and machine is a measurement of, or why it is none."""
    if row.quantity == "energy_j":
        return Reading(row, None, "energy_j is no time")
    if reason := mismatch(row, one):
        return Reading(row, None, reason)
    figure = Span(row.value, row.low, row.high, MEASURED_LEVEL)
    if row.quantity in ("epoch_s", "run_s"):
        return _of_many_steps(row, one)
    if row.quantity == "sample_per_s":
        return Reading(row, figure.per(float(row.batch or 0)), f"a batch of {row.batch} per step")
    if row.quantity == "latency_s" and set(one.step_time.passes) != {"forward"}:
        return Reading(row, None, "latency_s is of a forward pass, and the profile's step has more passes")
    return Reading(row, figure, "as it stands")


def measured_step(readings: Sequence[Reading]) -> MeasuredStep | None:
    """Put the rows that were not set aside together; None where there is none."""
    used = [(reading, reading.step) for reading in readings if reading.step is not None]
    if not used:
        return None
    steps = [step for _, step in used]
    span = Span(
        median(step.value for step in steps),
        min(step.low for step in steps),
        max(step.high for step in steps),
        MEASURED_LEVEL,
    )
    return MeasuredStep(
        span,
        all(reading.row.spread_stated for reading, _ in used),
        frozenset.intersection(*(reading.holds for reading, _ in used)),
    )
