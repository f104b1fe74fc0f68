"""Make the draft of a profile from a Keras program whose training was recorded; find its samples and epochs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter
from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter
from keras.src.trainers.data_adapters.tf_dataset_adapter import TFDatasetAdapter
from keras.src.trainers.data_adapters.torch_data_loader_adapter import TorchDataLoaderAdapter

from fomkit.core.errors import FomkitError
from fomkit.core.model import DOUBTFUL, LastBatch, Workload
from fomkit.frontends.drafting import Request, SizedStep, make_draft, trace_sizes
from fomkit.frontends.keras.inputs import Prepared, batched, first_axis, joined, specs
from fomkit.frontends.keras.layers import watch_made_layers
from fomkit.frontends.keras.profile import describe_model, step_tracer
from fomkit.frontends.layers import split_layers
from fomkit.frontends.model_file import explain_exception
from fomkit.frontends.script.child import FrameworkCapture, horovod_notes, run_script
from fomkit.frontends.script.keras_watch import BATCHES, FIT, Capture, FitWatch, Training
from fomkit.frontends.script.loops import lines_of_calls
from fomkit.frontends.sizes import Sizes
from fomkit.frontends.step import Draft, Step


class Epoch(NamedTuple):
    """Samples of one epoch (None if unknown), what happens to the last batch, and how this is known."""

    samples: int | None
    last_batch: LastBatch
    origin: str


def _cardinality(dataset: Any) -> int | None:
    found = dataset.cardinality()
    return int(found) if int(found) >= 0 else None


def _batching(dataset: Any) -> Any:
    """Return the dataset that puts samples into batches; None if there is none."""
    while dataset is not None and not hasattr(dataset, "_drop_remainder"):
        dataset = getattr(dataset, "_input_dataset", None)
    return dataset


def _unbatched(dataset: Any, batch: int) -> Epoch | None:
    """Count the samples put into batches of this size; None if the batches were changed further."""
    at = _batching(dataset)
    if at is None or _cardinality(at) != _cardinality(dataset):
        return None
    samples, size = _cardinality(at._input_dataset), int(at._batch_size)
    if samples is None or size != batch:
        return None
    last: LastBatch = "drop" if bool(at._drop_remainder) else "keep"
    return Epoch(samples, last, "has the samples of the dataset that is batched")


def _dataset_epoch(dataset: Any, batch: int) -> Epoch:
    exact = _unbatched(dataset, batch)
    if exact is not None:
        return exact
    batches = _cardinality(dataset)
    if batches is None:
        return Epoch(None, "keep", "of unknown length, as the dataset does not state how many batches it has")
    return Epoch(batches * batch, "drop", f"has {batches:,} batches of the dataset, assumed to be full")


def epoch_of(iterator: Any, batch: int) -> Epoch:
    """Return an epoch of training from the iterator that ``fit`` made of its data."""
    adapter, steps = iterator.data_adapter, iterator.steps_per_epoch
    if steps:
        return Epoch(steps * batch, "drop", f"has {steps:,} steps (steps_per_epoch)")
    if isinstance(adapter, ArrayDataAdapter):
        return Epoch(adapter._num_samples, "keep", "has the samples of the arrays passed to fit")
    if isinstance(adapter, TFDatasetAdapter) and callable(adapter._dataset.cardinality):
        return _dataset_epoch(adapter._dataset, batch)
    if isinstance(adapter, TorchDataLoaderAdapter):
        from fomkit.frontends.script.trainers import loader_facts

        facts = loader_facts(adapter._dataloader)
        return Epoch(facts.samples, facts.last_batch, "as the DataLoader states")
    if adapter.num_batches:
        kind = type(adapter.py_dataset if isinstance(adapter, PyDatasetAdapter) else adapter).__name__
        batches = int(adapter.num_batches)
        return Epoch(batches * batch, "drop", f"has {batches:,} batches of the {kind}, assumed to be full")
    unknown = "of unknown length, as a generator does not state it; pass steps_per_epoch to fit"
    return Epoch(None, "keep", unknown)


def validation_of(arguments: Mapping[str, Any], train_samples: int | None, batch: int) -> int | None:
    """Count the samples that ``fit`` validates with after an epoch; None if unknown."""
    given, share = arguments.get("validation_data"), arguments.get("validation_split")
    if given is None:
        total = first_axis(arguments.get("x")) if share else None
        return total - (train_samples or 0) if total is not None else None if share else 0
    size = arguments.get("validation_batch_size") or arguments.get("batch_size") or batch
    if arguments.get("validation_steps"):
        return int(arguments["validation_steps"]) * int(size)
    if callable(getattr(given, "cardinality", None)):
        # Validation batches may have any size.
        at, own = _batching(given), first_axis(given.element_spec) or batch
        exact = None if at is None else _unbatched(given, int(at._batch_size))
        return (exact or _dataset_epoch(given, own)).samples
    if isinstance(given, keras.utils.PyDataset):
        return given.num_batches * batch if given.num_batches else None
    return first_axis(given) if isinstance(given, tuple | list) else None


def _epochs(training: Training) -> int | None:
    arguments = training.arguments
    if training.loop is not None:
        return None if training.loop.length.steps else training.loop.length.epochs
    if training.way != FIT:
        return 1 if _steps(training) else None  # all its steps
    times = 1 if training.around is None else training.around.steps
    return times and times * (int(arguments["epochs"]) - int(arguments["initial_epoch"] or 0))


def _steps(training: Training) -> int | None:
    """Return how often loops make a step; None if unknown, if several lines do, or for ``fit`` and datasets."""
    is_counted = training.way != FIT and training.loop is None and len(training.lines) < 2
    return training.around.steps if is_counted and training.around else None


def _run_notes(capture: Capture, batch: int, epoch: Epoch) -> Iterator[str]:
    training = capture.training
    place = f"{training.way} at {training.place}"
    yield f"taken from the running program: {place}, its step {training.steps}"
    yield f"batch {batch:,}, the largest that was seen; an epoch {epoch.origin}"
    epochs = _epochs(training)
    around = training.around
    if training.way == FIT:
        passed = f"{epochs} epoch{'s' * (epochs != 1)}, as passed to fit" if epochs else "the epochs are unknown"
        if around is not None:
            passed += (
                f", times {around.origin}" if epochs else ": how often the loops around fit repeat it is not known"
            )
            yield from around.remarks
        yield passed
        yield from _fit_notes(training.arguments)
    elif around is not None and (steps := _steps(training)):
        yield f"the run is one epoch of {steps:,} step{'s' * (steps > 1)}: {around.origin}"
        yield from around.remarks
    elif training.loop is not None:
        rounds = "an unknown number of epochs" if epochs is None else f"{epochs} epoch{'s' * (epochs != 1)}"
        yield f"{rounds}, {training.loop.length.origin}"
        yield from training.loop.length.remarks
    else:
        yield f"samples and epochs are unknown: {training.way} is called in a loop of the program's own"
    yield from (*horovod_notes(), *(training.own.remarks if training.own else ()))
    if training.own is not None and len(training.own.optimizers) > 1:
        count = len(training.own.optimizers)
        yield f"one step updates by {count} optimizers; all but the last are counted op by op"
    if (steps := training.model.steps_per_execution) > 1:
        yield f"one execution of the program makes {steps} steps (steps_per_execution); one of them is the step"
    if capture.parts:
        named = ((one.way if one.has_function else times, one.place) for one, times in capture.parts)
        parts = ", ".join(f"{what} at {place}" for what, place in named)
        yield f"one step is a round of {len(capture.parts) + 1} models: beside that above, {parts}"
    for one in (training, *(part for part, _ in capture.parts)):
        if one.way == BATCHES and not one.model.trainable_weights:
            yield (
                f"{DOUBTFUL}: {one.way} at {one.place} updates nothing, since its model has no trainable weight "
                "then: Keras 3 reads `trainable` in the first step, not in compile. Set it to True before that"
            )
    if capture.others:
        others = ", ".join(f"{other.way} at {other.place}" for other in capture.others)
        yield f"partial: the program trains elsewhere too, which is left out: {others}"
    further = sorted(line for line in lines_of_calls(training.file, "fit") if line > training.line)
    if training.own is None and further:
        lines = " and ".join(map(str, further))
        yield f"{Path(training.file).name} calls fit at line {lines} too, which is not part of this profile"


def _fit_notes(arguments: Mapping[str, Any]) -> Iterator[str]:
    callbacks = arguments["callbacks"] or ()
    callbacks = callbacks if isinstance(callbacks, list | tuple) else [callbacks]
    if any(isinstance(callback, keras.callbacks.EarlyStopping) for callback in callbacks):
        yield "EarlyStopping may end the run before its last epoch"
    if arguments["validation_freq"] not in (None, 1):
        yield f"validates after some epochs only (validation_freq {arguments['validation_freq']})"


def _samples(training: Training) -> int | None:
    """Return the samples in a batch of a training; None if no tensor states them."""
    return first_axis(training.batch if training.own is None else training.own.tensors(training.batch))


def _prepared(training: Training, batch: int) -> Prepared:
    """Prepare a step; of the samples of a whole round, ``batch``, this training takes its share."""
    own, model, parts = training.own, training.model, training.batch
    ours = _samples(training) or batch
    while own is None and isinstance(parts, tuple | list) and len(parts) > 1 and parts[-1] is None:
        parts = parts[:-1]  # targets and weights that a batch does not have
    # A function without tensors may take the batch as a number: a stand-in says how many samples are wanted.
    given = specs(parts if own is None else own.tensors(parts) or [np.zeros(ours, "float32")])
    optimizer, step = (model.optimizer, None) if own is None else (own.optimizer, own.on(training.batch, ours))

    def inputs(sizes: Sizes) -> Any:
        return batched(given, ours, max(sizes["batch"] * ours // batch, 1))

    return Prepared(model, inputs, None, optimizer, "train", step)


def _together(steps: Sequence[tuple[Step, int]]) -> Step:
    """Return the step that consists of several, each as often as stated; the order of their ops is not known."""
    (first, _), *_ = steps
    whole = Step([], Counter(), Counter(), first.optimizer, [], bounded=Counter())
    for step, times in steps:
        ops, layers = split_layers(step.ops)
        whole.ops.extend([*ops * times, *layers])
        whole.notes.extend(note for note in step.notes if note not in whole.notes)
        for sums, counts in ((whole.states, step.states), (whole.unsupported, step.unsupported),
                             (whole.bounded, step.bounded)):  # fmt: skip
            sums.update({name: count * times for name, count in counts.items()})
    return whole


def _traced(capture: Capture, batch: int, request: dict[str, Any]) -> SizedStep:
    prepared = [(_prepared(one, batch), times) for one, times in ((capture.training, 1), *capture.parts)]
    trace = step_tracer()

    def whole(sizes: Sizes) -> Step:
        return _together([(trace(one, sizes), times) for one, times in prepared])

    try:
        return trace_sizes(whole if capture.parts else partial(trace, prepared[0][0]), {"batch": batch})
    except Exception as error:  # the program's step ran, but may fail where only shapes are known
        explained = explain_exception(error, request["where"], Path(request["path"]))
        raise FomkitError(
            explained.where,
            f"{explained.what}, where the step is traced by shapes. Values must not decide what a step does: "
            "let it train with run_eagerly=False, or without branches on tensors in a step of its own.",
        ) from error


def draft_script(capture: Capture, request: dict[str, Any], partial_because: str = "") -> Draft:
    """Make the draft.

    `request`: with the ``name`` of the profile, the ``path`` of the program, and ``where``, its name in messages;
    `partial_because`: why the program ended before the wanted step; "" if it did not.
    """
    training, where = capture.training, request["where"]
    model = training.model
    together = [training, *(one for one, _ in capture.parts)]
    if capture.parts:
        models = [one.model for one in together]
        model = None if None in models else joined(*models)
    batch = next(filter(None, map(_samples, together)), training.given)
    if model is None:
        raise FomkitError(
            f"{where}:{training.line}",
            f"{training.way} updates weights that no single keras.Model has. Let one model hold them all, or give "
            "the model as a model file.",
        )
    if batch is None:
        what = f"{training.way} at {training.place} trains on a batch without a first axis"
        raise FomkitError(where, f"{what}. Let it take one batch as an argument.")
    unknown = Epoch(None, "keep", "of unknown length")
    if steps := _steps(training):
        unknown = Epoch(steps * batch, "drop", "has all samples of the run")
    epoch = unknown if training.iterator is None else epoch_of(training.iterator, batch)
    epoch = epoch if training.loop is None else _dataset_epoch(training.loop.data, batch)
    validation = validation_of(training.arguments, epoch.samples, batch) if training.way == FIT else None
    workload = Workload(
        model, None, batch_size=batch, train_samples=epoch.samples, validation_samples=validation,
        last_batch=epoch.last_batch, epochs=_epochs(training),
    )  # fmt: skip
    sized = _traced(capture, batch, request)
    draft = make_draft(
        workload, Request(request["name"], where, "train", {}), describe_model(model, "train"), sized,
        list(_run_notes(capture, batch, epoch)),
    )  # fmt: skip
    return replace(draft, notes=[f"partial: {partial_because}", *draft.notes]) if partial_because else draft


def main() -> None:
    """Run one request of the parent process."""
    with watch_made_layers():
        trains = "Model.fit, train_on_batch, a step under @tf.function or a loop with a GradientTape"
        run_script(FrameworkCapture(FitWatch, draft_script, trains))
