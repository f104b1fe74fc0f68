"""Make the draft of a profile from a recorded step of a running program: its batch, its epochs, its notes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from fomkit.core.model import DOUBTFUL
from fomkit.frontends.drafting import traced_with
from fomkit.frontends.layers import count_layers, split_layers
from fomkit.frontends.lowering.calls import TracedOp
from fomkit.frontends.script.child import FrameworkCapture, run_script
from fomkit.frontends.script.run_length import RunLength
from fomkit.frontends.script.torch_processes import class_name, one_process, parallel_notes
from fomkit.frontends.script.torch_recorder import Fetched, LoaderFacts, loader_facts, shapes_in
from fomkit.frontends.script.torch_steps import Capture, StepWatch, named_by_batch
from fomkit.frontends.sizes import NoExpression
from fomkit.frontends.step import Draft, count_rows
from fomkit.frontends.step_spread import difference_notes, doubt_of_axis

_NO_LOADER = LoaderFacts(None, None, "drop")


def _samples_in(batch: Fetched) -> int | None:
    stated = loader_facts(batch.loader).batch
    if stated and batch.is_full:
        return stated
    shapes = shapes_in(batch.values)
    return shapes[0][0] if shapes else stated


def _batch(capture: Capture) -> tuple[int | None, str]:
    """Return the samples of the step, and how they are known."""
    if capture.seen.batches:
        loader = capture.seen.batches[0].loader
        parts = [_samples_in(batch) for batch in capture.seen.batches if batch.loader is loader]
        if all(parts):
            times = f"{len(parts)} batches" if len(parts) > 1 else "one batch"
            return sum(part or 0 for part in parts), f"{times} of the DataLoader"
    if not capture.seen.called_with:
        return None, ""
    each = capture.seen.backwards if _accumulates(capture) else 1
    times = f"{each} times " if each > 1 else ""
    origin = "the first axis of the model's input, as no DataLoader states it"
    return each * capture.seen.called_with[0][0], f"{times}{origin}"


def _axis_note(capture: Capture) -> str:
    """Return a note if the axis of samples is open: tensors of the batch begin with different lengths."""
    shapes = capture.seen.called_with
    if capture.seen.batches:
        first = capture.seen.batches[0]
        shapes = [] if loader_facts(first.loader).batch and first.is_full else shapes_in(first.values)
    return doubt_of_axis(shapes)


def _accumulates(capture: Capture) -> bool:
    # A closure runs all passes of its step, or only the last one, as Lightning's does.
    return len(capture.steps_by) == 1 and capture.seen.backwards > max(capture.seen.closures, 1)


def _ops_by_batch(capture: Capture, batch: int | None) -> tuple[list[TracedOp], str]:
    """Return the ops with the batch as a name, and the text that follows the number of samples in a note."""
    others, ops = capture.others, capture.step.ops
    if isinstance(others, str):
        return ops, others and f": {others}"
    if batch is None:
        return ops, ""
    try:
        named = named_by_batch(ops, others, batch)
    except NoExpression as reason:
        return ops, f": {reason}"
    times = batch // others.samples
    return named, f"batches of {', '.join(map(str, others.found))}" + (
        f"; one step is {times} batches, so give a multiple of {times}" if times > 1 else ""
    )


def _run_notes(capture: Capture, batch: int | None, source: str, ops: list[TracedOp], why: str) -> Iterator[str]:
    yield f"taken from the running program: its step {capture.place}, with real data on {_devices(capture)}"
    if batch is None:
        yield "the batch is unknown: no DataLoader states it, and no tensor was passed to a model"
    elif ops is capture.step.ops:
        yield f"the sizes hold for batch {batch} only ({source}){why}"
    else:
        yield f"batch {batch} ({source}); other sizes by the program's own steps at {why}"
    if batch is not None and (doubt := _axis_note(capture)):
        yield doubt
    yield from parallel_notes(capture.seen.models.values())
    yield from difference_notes(capture.works, capture.place)
    yield from _length_notes(capture)
    if _accumulates(capture):
        yield f"gradient accumulation: {capture.seen.backwards} backward passes to one step of the optimizer"
    if (times := capture.seen.closures) > 1:
        yield f"the optimizer called its closure {times} times; in another step it may be more or less"
    if len(capture.steps_by) > 1:
        steps = ", ".join(f"{name} steps {times} times" for name, times in capture.steps_by.items())
        yield f"one step is one round of {len(capture.steps_by)} optimizers: {steps.replace(' 1 times', ' once')}"
    if capture.idle:
        yield f"{capture.idle} more optimizers were made and took no step; they are left out"
    loaders = {id(batch.loader) for batch in capture.seen.batches}
    if len(loaders) > 1:
        yield f"{len(loaders)} DataLoaders feed a step; batch and samples are those of the first"
    if not capture.seen.is_clean:
        yield (
            "partial: every step came with the end of an epoch, an evaluation or an incomplete batch; what ran "
            "before the training step is left out"
        )


def _length_notes(capture: Capture) -> Iterator[str]:
    length = capture.length
    if length.steps:
        yield f"{length.steps:,} steps of the optimizer, {length.origin}"
    elif length.epochs is None:
        yield f"the number of epochs is unknown: {length.origin}"
    else:
        yield f"{length.epochs} epoch{'s' * (length.epochs > 1)}, {length.origin}"
    if length.accumulates and len(capture.steps_by) == 1 and length.accumulates != capture.seen.backwards:
        yield (
            f"{DOUBTFUL}: the step has {capture.seen.backwards} backward passes, and its trainer is set to "
            f"{length.accumulates}"
        )
    yield from length.remarks


def _in_epochs(length: RunLength, facts: LoaderFacts, batch: int | None) -> tuple[RunLength, list[str]]:
    """Return the length of a run in epochs, with a note if its steps end in the middle of one."""
    samples = facts.samples if length.train_samples is None else length.train_samples
    if length.steps is None or batch is None:
        return replace(length, train_samples=samples), []
    each = -(-samples // batch) if samples and facts.last_batch == "keep" else (samples or 0) // batch
    if each and not length.steps % each:
        return replace(length, epochs=length.steps // each, train_samples=samples), []
    whole = length.steps * batch
    validated = length.validation_samples
    if validated:
        validated = validated * (length.steps // each) if each else None
    note = f"the length of the run is given in steps: they count as one epoch of {whole:,} samples"
    return replace(length, epochs=1, train_samples=whole, validation_samples=validated), [note]


def _trained_tensors(capture: Capture) -> list[torch.Tensor]:
    owned = [parameter for model in capture.seen.models.values() for parameter in model.parameters()]
    return list({id(parameter): parameter for parameter in (*owned, *capture.parameters)}.values())


def _devices(capture: Capture) -> str:
    return " and ".join(sorted({parameter.device.type for parameter in _trained_tensors(capture)})) or "cpu"


def draft_script(capture: Capture, request: dict[str, Any], partial: str = "") -> Draft:
    """Make the draft of the requested ``name``; ``partial`` says why the program ended before the wanted step."""
    batch, read_from = _batch(capture)
    named, why = _ops_by_batch(capture, batch)
    ops, layers = split_layers(named)
    rows, parts = count_rows(ops)
    facts = loader_facts(capture.seen.batches[0].loader) if capture.seen.batches else _NO_LOADER
    length, by_steps = _in_epochs(capture.length, facts, batch)
    parameters = _trained_tensors(capture)
    notes = [*_run_notes(capture, batch, read_from, named, why), *by_steps, *capture.remarks, *capture.step.notes]
    models = " and ".join(map(class_name, capture.seen.models.values())) or "Program"
    return Draft(
        request["name"], f"{models}, training step", rows, parts, count_layers(layers),
        sizes={} if batch is None else {"batch": batch},
        traced_with=traced_with("torch", torch.__version__, _devices(capture), "train"),
        parameters_total=sum(parameter.numel() for parameter in parameters),
        parameters_trainable=sum(parameter.numel() for parameter in parameters if parameter.requires_grad),
        train_samples=length.train_samples, validation_samples=length.validation_samples,
        last_batch=facts.last_batch, epochs=length.epochs, optimizer=capture.step.optimizer,
        unsupported=capture.step.listed_unsupported, bounded=sorted(capture.step.bounded),
        notes=[*[f"partial: {partial}"] * bool(partial), capture.step.shares, *capture.step.of_bounds, *notes],
    )  # fmt: skip


def main() -> None:
    """Run one request of the parent process."""
    run_script(FrameworkCapture(StepWatch, draft_script, "a torch.optim optimizer", one_process))
