"""From steps to epochs, from epochs to a run or to a target, and the units of work a day of a machine."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span, add_common, at_level, multiply_independent
from fomkit.core.machine import Fact, Machine, Scope
from fomkit.core.model import OF_SIZES, EpochsToTarget, ModelProfile, Unit
from fomkit.core.units import DAY_S, STATED, format_quantity
from fomkit.plan.options import overheads
from fomkit.plan.step import Started, StepTime, with_waits

LEFT_OUT_NOTABLE = 0.01
"""Share of an epoch's left-out samples above which a note reports them."""

EAGER_OP_S = Fact(
    15e-6, 9e-6, 35e-6, "assumed",
    "thin networks on a core of an EPYC, PyTorch 2.13: 5 to 12 µs an op (autocast: 6 to 17), and a launch of 5 µs",
)  # fmt: skip
"""Usual host time to start one op of a traced PyTorch program, with its launch [s] (``benchmarks/host_time.py``).

A graph of TensorFlow needs 3.5 µs there, less than a launch. Modules alone took 25 to 50 µs (NeuSight's table)."""
FRAMEWORK = "framework"
"""Name of the excluded term that is the framework's work to start ops, besides their launch."""


def eager_step(step: StepTime, started: Started, model: ModelProfile, machine: Machine) -> StepTime:
    """Return the step with `FRAMEWORK` among its excluded terms, where the framework usually takes nearly as long.

    Only traced PyTorch programs on machines that state neither their host nor a measured launch: what a rule made
    has a default, and a graph needs no Python.
    """
    made, launch, known = model.traced_with, machine.device.launch_s, machine.host_op_s is not None
    if known or made.get("framework") != "torch" or made.get("device") == OF_SIZES:
        return step
    if launch is None or launch.basis == "measured" or launch.low <= 1e-6:  # no graph starts ops faster
        return step
    host, _ = with_waits(started, replace(machine, host_op_s=EAGER_OP_S), step.device_s)
    late = host is not None and host.value > 0.9 * step.wall_s.value  # at all levels alike
    return replace(step, excludes=(FRAMEWORK, *step.excludes), framework_s=host) if late else step


def eager_text(step: StepTime) -> str:
    """Say how long an eager program may take to start the ops of a step, where that is excluded; else ""."""
    host = step.framework_s
    if host is None:
        return ""
    times = (EAGER_OP_S.value, host.value, host.low, host.high)
    each, whole, low, high = (format_quantity(time_s, "time_s", 2) for time_s in times)
    return (
        f"an eager PyTorch program usually needs {each} to start an op, {whole} a step ({low} to {high}), which "
        "is not in the step"
    )


def eager_notes(step: StepTime) -> list[str]:
    """Return `eager_text` with what to do, if there is any."""
    said = eager_text(step)
    return [f"{said}. State `host` of the machine, or replay the step from a graph"] * bool(said)


@dataclass(frozen=True)
class RunTime:
    """The time of one epoch and of one run; None where the profile does not define a run.

    `steps_per_epoch`: full steps of one epoch.
    `partial_step`: true if the last, smaller batch is kept; it is priced as a full step, an upper bound.
    `training_s`, `validation_s`, `epoch_extra_s`, `epoch_s`: terms of one epoch and their sum [s].
    `startup_s`, `run_s`: overheads once a run, and the whole run [s].
    `excludes`: terms left out because they are not stated.
    `left_out`: share of an epoch's samples that are in no step, because they fill no batch.
    """

    steps_per_epoch: int | None
    partial_step: bool
    training_s: Span | None
    validation_s: Span | None
    epoch_extra_s: Span | None
    epoch_s: Span | None
    startup_s: Span | None
    run_s: Span | None
    excludes: tuple[str, ...]
    left_out: float = 0.0


def unit_per_day(unit_s: Span, runs_at_once: float) -> Span:
    """Convert the time of one unit of work [s], of which some are in progress at once, to units per day.

    >>> unit_per_day(Span.exact(60 * 3600.0), 18_688).value
    7475.2
    """
    return unit_s.per(DAY_S * runs_at_once)


def steps_per_epoch(samples: int, batch: int, last_batch: str) -> tuple[int, bool]:
    """Count the steps of an epoch and return whether the last is a partial one; `batch` may be an array.

    >>> steps_per_epoch(800_121, 100, "drop"), steps_per_epoch(800_121, 100, "keep")
    ((8001, False), (8002, True))
    """
    full, rest = divmod(samples, batch)
    partial = (rest > 0) & (last_batch == "keep")
    return full + partial, partial


def _stated_overheads(machine: Machine, per: str, of: Span) -> Span | None:
    spans = list(overheads(machine, per, of).values())
    return add_common(spans) if spans else None


def _validation(model: ModelProfile, step: StepTime, batch: int, last_batch: str) -> Span | None:
    """Price validation as the forward pass of its batches; None when its samples or that pass are unknown."""
    samples = model.data.validation_samples
    forward = step.passes.get("forward")
    if samples == 0 and forward is None:
        return Span.exact(0.0, step.wall_s.level)
    if samples is None or forward is None:
        return None
    return forward.scaled(steps_per_epoch(samples, batch, last_batch)[0])


def left_out_share(samples: int, steps: int, batch: int) -> float:
    """Return the share of an epoch's samples that are in none of its steps; `steps` and `batch` may be arrays.

    >>> float(left_out_share(2700, 1, 2025))
    0.25
    """
    return cast(float, np.maximum(samples - steps * batch, 0) / samples)


def left_out_note(share: float) -> str:
    """Return a note that a run uses fewer samples than its model states; "" for a share too small to matter."""
    if share <= LEFT_OUT_NOTABLE:
        return ""
    return f"{share:.0%} of an epoch's samples do not fill a batch and are dropped: a run has that much less work"


def run_notes(model: ModelProfile, run: RunTime, sizes: Mapping[str, int]) -> list[str]:
    """Return notes on the simplifications made for a run; ``sizes``: those that the user chose."""
    if run.run_s is None:
        return []
    changed = [name for name in model.resized(sizes) if name != "batch"]
    resized_note = f"a run has the same number of samples at any {', '.join(changed)}, although their sizes differ"
    partial = "the partial last batch is priced as a full step"
    return [
        *[resized_note] * bool(changed),
        *[partial] * bool(run.partial_step),
        *filter(None, [left_out_note(run.left_out)]),
    ]


def check_unit(unit: str) -> None:
    """Raise where the stated name of what a run makes is no name."""
    if unit and not (unit.strip() and unit.isprintable()):
        raise FomkitError("unit", f"is {unit!r}. State what one run produces, for example 'trained model'.")


def stated_run(model: ModelProfile, epochs: int | None, samples: int | None, unit: str) -> ModelProfile:
    """Return a model profile with the facts of its run that it does not state itself, and a note on them.

    `epochs`, `samples`: of a run, and of an epoch; `unit`: what one run makes; None or "" leaves each as it is.
    Raises FomkitError when the profile states another value: its measured runs and its suites refer to that value.
    """
    check_unit(unit)
    known = {"epochs": model.run.epochs, "samples": model.data.train_samples,
             "unit": None if model.unit == Unit() else model.unit.name}  # fmt: skip
    requested = {"epochs": epochs, "samples": samples, "unit": unit or None}
    for name, given in requested.items():
        if known[name] is not None and given not in (None, known[name]):
            other = "To change it, edit a line of a suite, or a copy of the profile"
            what = f"is {given!r}, but {model.name} states {known[name]!r}. Leave `{name}` out. {other}."
            raise FomkitError(name, what)
    new = {name: given for name, given in requested.items() if given is not None and known[name] is None}
    if not new:
        return model
    counts = {name: count for name, count in (("epochs", epochs), ("train_samples", samples)) if count}
    note = f"{STATED}: {', '.join(f'{name} {given!r}' for name, given in new.items())}"
    changed = replace(model.with_run(counts), notes=(*model.notes, note))
    return replace(changed, unit=Unit(unit)) if "unit" in new else changed


def lacking_for_run(model: ModelProfile) -> list[str]:
    """Return the names of the figures that a profile lacks for a run."""
    facts = {"train_samples": model.data.train_samples, "epochs": model.run.epochs}
    return [name for name, value in facts.items() if value is None]


def no_run(model: ModelProfile) -> str:
    """Return a message on what a profile lacks for a run; "" where it lacks nothing."""
    lacking = " and ".join(lacking_for_run(model))
    return f"{model.name} does not state {lacking}" if lacking else ""


def roll_up_run(
    model: ModelProfile, machine: Machine, step: StepTime, batch: int | None, last_batch: str
) -> RunTime:
    """Roll a step up to an epoch and a run; ``keep`` counts a partial last batch; ``batch`` may be an array."""
    samples, epochs = model.data.train_samples, model.run.epochs
    if samples is None or batch is None:
        return RunTime(None, False, None, None, None, None, None, None, step.excludes)
    steps, partial = steps_per_epoch(samples, batch, last_batch)
    if not np.all(steps):
        raise FomkitError(
            model.name,
            f"a batch of {np.max(batch):,.0f} is more than the {samples:,} samples of an epoch. Give a smaller "
            "--batch.",
        )
    training = step.wall_s.scaled(steps)
    validation = _validation(model, step, batch, last_batch)
    extra = _stated_overheads(machine, "epoch", training)
    epoch = add_common([span for span in (training, validation, extra) if span is not None])
    trained = epoch.scaled(epochs) if epochs is not None else None
    startup = _stated_overheads(machine, "run", trained) if trained is not None else None
    run = add_common([trained, *([startup] if startup else [])]) if trained is not None else None
    unknown = [name for name, span in (("validation", validation), ("start_up", startup)) if span is None]
    excludes = (*step.excludes, *unknown, *model.excludes)
    left_out = left_out_share(samples, steps, batch)
    return RunTime(steps, partial, training, validation, extra, epoch, startup, run, excludes, left_out)


def epochs_at(curve: EpochsToTarget, batch: int, level: float) -> Span:
    """Return the epochs to the target at a batch: measured there, or interpolated between two measured batches.

    Between two batches, the logarithms of the epochs and of their bounds are linear in that of the batch.

    Raises FomkitError when the curve does not cover the batch: the epochs at other batches are unknown.

    >>> curve = EpochsToTarget({64: Span.exact(10.0), 256: Span.exact(40.0)}, "accuracy", 0.9, "example")
    >>> round(epochs_at(curve, 128, 0.8).value, 9)
    20.0
    """
    known = sorted(curve.epochs)
    if not known[0] <= batch <= known[-1]:
        covers = f"batch {known[0]:,} only" if len(known) == 1 else f"batches {known[0]:,} to {known[-1]:,}"
        raise FomkitError(
            curve.where,
            f"covers {covers}, but the batch is {batch:,}. Epochs are not extrapolated: measure them at this "
            "batch and add the row, or choose a batch that it covers.",
        )
    if batch in curve.epochs:
        return at_level(curve.epochs[batch], level)
    above = next(place for place, one in enumerate(known) if one > batch)
    first, last = known[above - 1], known[above]
    share = math.log(batch / first) / math.log(last / first)
    left, right = (at_level(curve.epochs[one], level) for one in (first, last))
    value, low, high = (
        math.exp((1 - share) * math.log(start) + share * math.log(end))
        for start, end in zip(left.ends, right.ends, strict=True)
    )
    return Span(value, low, high, level)


def time_to_target(curve: EpochsToTarget, batch: int, epoch_s: Span, machine: Machine) -> tuple[Span, Span]:
    """Return the epochs to a target, and their time [s] including the machine's overheads of a run.

    Errors of the epochs and of their time are independent.
    """
    epochs = epochs_at(curve, batch, epoch_s.level)
    trained = multiply_independent(epochs, epoch_s)
    return epochs, add_common([trained, *overheads(machine, "run", trained).values()])


def runs_at_once(model: ModelProfile, machine: Machine, scope: Scope) -> int:
    """Count the runs that the devices of a scope have in progress at the same time, one on each device."""
    needed = model.run.devices_per_run
    if needed > 1:
        raise FomkitError(
            f"{model.name} on {machine.name}",
            f"its run uses {needed} devices (run.devices_per_run), but this result is for one device without "
            "communication. Use 'fomkit estimate', 'fomkit cost' or 'fomkit scaling', or set "
            "run.devices_per_run to 1.",
        )
    return machine.devices(scope)


def runs_per_day(model: ModelProfile, machine: Machine, run_s: Span, scope: Scope, at_once: float) -> Span:
    """Return the units of work per day of a machine that has ``at_once`` runs of ``run_s`` [s] in progress."""
    return unit_per_day(run_s.scaled(model.unit.runs), at_once * machine.up_share(scope))


def rate_per_day(model: ModelProfile, machine: Machine, run: RunTime, scope: Scope, at_once: int) -> Span | None:
    """Return the units of work a day at a scope; None where the profile defines no run, or the run takes 0 s."""
    if run.run_s is None or run.run_s.value == 0:
        return None
    return runs_per_day(model, machine, run.run_s, scope, at_once)
