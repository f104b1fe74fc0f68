"""From a running Keras program's training to the draft of a profile: its step as a graph, its data and its run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import keras

from fomkit.core.errors import FomkitError
from fomkit.core.model import Workload
from fomkit.frontends.drafting import Request, SizedStep, make_draft, trace_sizes
from fomkit.frontends.keras.inputs import Prepared, batched, specs
from fomkit.frontends.keras.layers import watch_made_layers
from fomkit.frontends.keras.profile import describe_model, step_tracer
from fomkit.frontends.model_file import explain_exception
from fomkit.frontends.script.child import FrameworkCapture, run_script
from fomkit.frontends.script.keras_steps import (
    FIT,
    Epoch,
    FitWatch,
    Taken,
    Training,
    epoch_of,
    first_axis,
    validation_of,
)
from fomkit.frontends.step import Draft


def _given(batch: Any) -> Any:
    """Leave out the targets and weights that a batch does not have."""
    while isinstance(batch, tuple | list) and len(batch) > 1 and batch[-1] is None:
        batch = batch[:-1]
    return batch


def _prepared(training: Training, batch: int) -> Prepared:
    given = specs(_given(training.batch))
    model = training.model
    return Prepared(model, lambda sizes: batched(given, batch, sizes["batch"]), None, model.optimizer, "train")


def _epochs(training: Training) -> int | None:
    arguments = training.arguments
    return int(arguments["epochs"]) - int(arguments["initial_epoch"] or 0) if training.way == FIT else None


def _further_fits(training: Training) -> list[int]:
    """Find other lines of the same file that call a ``fit``."""
    try:
        tree = ast.parse(Path(training.file).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return []
    found = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    lines = {
        node.lineno
        for node in found
        if isinstance(node.func, ast.Attribute) and node.func.attr == "fit"
        if not node.lineno <= training.line <= (node.end_lineno or 0)
    }
    return sorted(line for line in lines if line > training.line)


def _notes(taken: Taken, batch: int, epoch: Epoch) -> Iterator[str]:
    training = taken.training
    place = f"{training.way} at {training.place}"
    yield f"taken from the running program: {place}, its step {training.steps}"
    yield f"batch {batch:,}, the most samples that a batch had; an epoch {epoch.origin}"
    if training.way == FIT:
        epochs = _epochs(training)
        yield f"{epochs} epoch{'s' * (epochs != 1)}, as fit is asked for"
        yield from _of_fit(training)
    else:
        yield f"samples and epochs are not known: {training.way} is called in a loop of the program's own"
    steps = training.model.steps_per_execution
    if steps > 1:
        yield f"one execution of the program makes {steps} steps (steps_per_execution); one of them is the step"
    if taken.others:
        others = ", ".join(f"{other.way} at {other.place}" for other in taken.others)
        yield f"partial: the program trains elsewhere too, which is left out: {others}"
    if further := _further_fits(training):
        lines = " and ".join(map(str, further))
        yield f"{Path(training.file).name} calls fit at line {lines} too, which is no part of this profile"


def _of_fit(training: Training) -> Iterator[str]:
    arguments = training.arguments
    callbacks = arguments["callbacks"] or ()
    callbacks = callbacks if isinstance(callbacks, list | tuple) else [callbacks]
    if any(isinstance(callback, keras.callbacks.EarlyStopping) for callback in callbacks):
        yield "EarlyStopping may end the run before its last epoch"
    if arguments["validation_freq"] not in (None, 1):
        yield f"validates after some epochs only (validation_freq {arguments['validation_freq']})"


def _traced(training: Training, batch: int, request: dict[str, Any]) -> SizedStep:
    try:
        return trace_sizes(partial(step_tracer(), _prepared(training, batch)), {"batch": batch})
    except Exception as error:  # the program's own step ran, but may not where there are shapes only
        explained = explain_exception(error, request["where"], Path(request["path"]))
        raise FomkitError(
            explained.where,
            f"{explained.what}, where the step is traced by shapes. Values must not decide what a step does: "
            "let it train with run_eagerly=False.",
        ) from error


def draft_script(taken: Taken, request: dict[str, Any], partial_because: str = "") -> Draft:
    """Make the draft.

    `request`: with the ``name`` of the profile, the ``path`` of the program, and ``where`` it stands for people;
    `partial_because`: why the program ended before the wanted step; "" where it did not.
    """
    training, where = taken.training, request["where"]
    model = training.model
    batch = first_axis(training.batch)
    if batch is None:
        raise FomkitError(where, f"{training.way} at {training.place} trains on a batch without a first axis.")
    epoch = (
        Epoch(None, "keep", "of unknown length")
        if training.iterator is None
        else epoch_of(training.iterator, batch)
    )
    validation = validation_of(training.arguments, epoch.samples, batch) if training.way == FIT else None
    workload = Workload(
        model, None, batch_size=batch, train_samples=epoch.samples, validation_samples=validation,
        last_batch=epoch.last_batch, epochs=_epochs(training),
    )  # fmt: skip
    sized = _traced(training, batch, request)
    draft = make_draft(
        workload, Request(request["name"], where, "train", {}), describe_model(model, "train"), sized,
        list(_notes(taken, batch, epoch)),
    )  # fmt: skip
    return replace(draft, notes=[f"partial: {partial_because}", *draft.notes]) if partial_because else draft


def main() -> None:
    """Run one request."""
    with watch_made_layers():
        run_script(FrameworkCapture(FitWatch, draft_script, "Model.fit or train_on_batch"))
