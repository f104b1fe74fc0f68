"""Steps to epochs, epochs to a run: validation, start-up and the partial last batch are terms of their own."""

from __future__ import annotations

from dataclasses import dataclass

from fomkit.errors import FomkitError
from fomkit.hardware import Machine
from fomkit.rollup.overheads import overheads
from fomkit.rollup.step import StepTime
from fomkit.spans import Span, add_common
from fomkit.workload import ModelProfile


@dataclass(frozen=True)
class RunTime:
    """The time of one epoch and of one run; None where the profile does not say what a run is.

    Attributes
    ----------
    steps_per_epoch : int or None
        Full steps of one epoch.
    partial_step : bool
        True when the last, smaller batch is kept; it is priced as a full step, which is an upper bound.
    training_s, validation_s, epoch_extra_s, epoch_s : Span or None
        Terms of one epoch and their sum [s].
    startup_s, run_s : Span or None
        Overheads once a run, and the whole run [s].
    excludes : tuple of str
        Terms left out because nobody stated them.
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


def steps_per_epoch(samples: int, batch: int, last_batch: str) -> tuple[int, bool]:
    """Count the steps of an epoch and say whether the last is a partial one.

    Examples
    --------
    >>> steps_per_epoch(800_121, 100, "drop"), steps_per_epoch(800_121, 100, "keep")
    ((8001, False), (8002, True))
    """
    full, rest = divmod(samples, batch)
    partial = last_batch == "keep" and rest > 0
    return full + partial, partial


def _stated(machine: Machine, per: str, of: Span) -> Span | None:
    spans = list(overheads(machine, per, of).values())
    return add_common(spans) if spans else None


def _validation(model: ModelProfile, step: StepTime, batch: int, last_batch: str) -> Span | None:
    """Price validation as the forward pass of its batches; None when the number of samples is unknown."""
    samples = model.data.validation_samples
    forward = step.passes.get("forward")
    if samples is None or forward is None:
        return None
    return forward.scaled(steps_per_epoch(samples, batch, last_batch)[0])


def roll_up_run(
    model: ModelProfile, machine: Machine, step: StepTime, batch: int | None, last_batch: str
) -> RunTime:
    """Roll a step up to an epoch and a run.

    Parameters
    ----------
    model : ModelProfile
        For its samples and epochs.
    machine : Machine
        For its overheads per epoch and per run.
    step : StepTime
    batch : int or None
        Samples in one step.
    last_batch : str
        ``drop`` leaves a partial last batch out, ``keep`` counts it as a full step.

    Raises
    ------
    FomkitError
        When an epoch has not one full batch.
    """
    samples, epochs = model.data.train_samples, model.run.epochs
    if samples is None or batch is None:
        return RunTime(None, False, None, None, None, None, None, None, step.excludes)
    steps, partial = steps_per_epoch(samples, batch, last_batch)
    if not steps:
        raise FomkitError(
            model.name,
            f"a batch of {batch:,} is more than the {samples:,} samples of an epoch. Give a smaller --batch.",
        )
    training = step.wall_s.scaled(steps)
    validation = _validation(model, step, batch, last_batch)
    extra = _stated(machine, "epoch", training)
    epoch = add_common([span for span in (training, validation, extra) if span is not None])
    trained = epoch.scaled(epochs) if epochs is not None else None
    startup = _stated(machine, "run", trained) if trained is not None else None
    run = add_common([trained, *([startup] if startup else [])]) if trained is not None else None
    unknown = [name for name, span in (("validation", validation), ("start_up", startup)) if span is None]
    return RunTime(steps, partial, training, validation, extra, epoch, startup, run, (*step.excludes, *unknown))
