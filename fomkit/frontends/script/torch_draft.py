"""A running program of PyTorch, alone and on the CPU, and the draft of its step: batch, epochs, what to know.

A program that is started once for each device is run as the only process. It says which device is its own, and
does not ask whether there is one. So what it moves to CUDA stays, and what processes agree on goes over gloo; what
the devices send each other a layout prices, not the step of one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.distributed import fsdp
from torch.nn.parallel import DistributedDataParallel
from torch.overrides import TorchFunctionMode

from fomkit.core.model import DOUBTFUL, OF_ONE
from fomkit.frontends.drafting import replaced, traced_with, watched
from fomkit.frontends.layers import count_layers, split_layers
from fomkit.frontends.lowering.calls import TracedOp
from fomkit.frontends.script.child import FrameworkCapture, run_script
from fomkit.frontends.script.run_length import RunLength
from fomkit.frontends.script.torch_recorder import Fetched, LoaderFacts, loader_facts, shapes_in
from fomkit.frontends.script.torch_steps import StepWatch, Taken, named_by_batch
from fomkit.frontends.sizes import NoExpression
from fomkit.frontends.step import Draft, count_rows
from fomkit.frontends.step_spread import difference_notes, doubt_of_axis

_ALONE = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1",
          "MASTER_PORT": "0"}  # fmt: skip
_ASKS = re.compile(r"\b(?:LOCAL_RANK|WORLD_SIZE|init_process_group|init_device_mesh)\b")
"""What a program's text has where it expects to be started as one of several processes."""


class Whole(torch.nn.Module):
    """Stands for FullyShardedDataParallel, which only accelerators run: one process holds all parameters."""

    def __init__(self, module: torch.nn.Module, *_args: Any, **_kwargs: Any) -> None:
        super().__init__()
        self.module = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run what it wraps."""
        return self.module(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        """Give its own attribute, else that of what it wraps."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)

    def __getitem__(self, place: Any) -> Any:
        """Give a part of what it wraps."""
        whole: Any = self.module
        return whole[place]

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
        """Clip the gradients, all of which are here."""
        return torch.nn.utils.clip_grad_norm_(self.parameters(), max_norm, norm_type)


_CPU = torch.device("cpu")


def _on_cpu(place: Any) -> Any:
    """Give the CPU for a CUDA device, whether by name, as a device or by its number; else what was given."""
    is_number = isinstance(place, int) and not isinstance(place, bool)
    is_named = isinstance(place, str) and place.startswith("cuda")
    is_device = isinstance(place, torch.device) and place.type == "cuda"
    return _CPU if is_number or is_named or is_device else place


class StayOnCpu(TorchFunctionMode):
    """Makes on the CPU, and leaves there, what a program makes on CUDA or moves to it."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run a call with the CPU for its device."""
        if func is torch.Tensor.cuda:
            return args[0]
        named = dict(kwargs or {})
        if "device" in named:
            named["device"] = _on_cpu(named["device"])
        if func is torch.Tensor.to:
            args = (args[0], *map(_on_cpu, args[1:]))
        return func(*args, **named)


@contextmanager
def without_cuda() -> Iterator[None]:
    """Let a program take its CUDA device for granted inside the block, where there is none."""

    def moved(move: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
        named = {name: _on_cpu(one) if name == "device" else one for name, one in kwargs.items()}
        return move(module, *map(_on_cpu, args), **named)

    def wrapped(wrap: Any, whole: Any, module: torch.nn.Module, *_devices: Any, **kwargs: Any) -> None:
        devices = ("device_ids", "output_device")
        wrap(whole, module, **{name: one for name, one in kwargs.items() if name not in devices})

    with ExitStack() as stack:
        # PyTorch's compiler wants each of its functions to be an object of its own.
        stack.enter_context(replaced(torch.cuda, set_device=lambda *_: None, synchronize=lambda *_: None))
        stack.enter_context(replaced(torch.cuda, current_device=lambda: 0, device_count=lambda: 1))
        stack.enter_context(watched(DistributedDataParallel, __init__=wrapped))
        stack.enter_context(watched(torch.nn.Module, to=moved))
        stack.enter_context(StayOnCpu())
        yield


@contextmanager
def one_process(path: Path) -> Iterator[None]:
    """Let a program that is started once for each device run as the only one, as ``torchrun`` with one would."""
    asks = bool(_ASKS.search(path.read_text(encoding="utf-8", errors="replace")))
    if asks:
        os.environ.update(_ALONE)
    if not torch.distributed.is_available():
        yield
        return

    def alone(begin: Any, *_args: Any, **kwargs: Any) -> Any:
        os.environ.update(_ALONE)
        kept = {name: value for name, value in kwargs.items() if name == "timeout"}
        return begin("gloo", **kept)  # there is no accelerator here, whatever it asked for

    with ExitStack() as stack:
        stack.enter_context(watched(torch.distributed, init_process_group=alone))
        stack.enter_context(replaced(fsdp, FullyShardedDataParallel=Whole))
        if asks and not torch.cuda.is_available():
            stack.enter_context(without_cuda())
        yield


def parallel_notes(models: Iterable[torch.nn.Module]) -> list[str]:
    """Say how a program's devices share the training, and what to ask for to have it on many."""
    parts = [part for model in models for part in model.modules()]
    ways: dict[str, tuple[str, Any]] = {
        "copies of the model (DistributedDataParallel)": ("--nodes N", torch.nn.parallel.DistributedDataParallel),
        "its parameters (FSDP)": ("--nodes N --layout zero=3", (Whole, getattr(fsdp, "FSDPModule", Whole))),
    }
    return [
        f"{OF_ONE} of processes that share {what}: {words} of an estimate gives it on many devices, with the "
        "batch of them all"
        for what, (words, kind) in ways.items()
        if any(isinstance(part, kind) for part in parts)
    ]


_NO_LOADER = LoaderFacts(None, None, "drop")


def _samples_in(batch: Fetched) -> int | None:
    stated = loader_facts(batch.loader).batch
    if stated and batch.is_full:
        return stated
    shapes = shapes_in(batch.values)
    return shapes[0][0] if shapes else stated


def _batch(taken: Taken) -> tuple[int | None, str]:
    """Find the samples of the step, and say where that was read."""
    if taken.seen.batches:
        loader = taken.seen.batches[0].loader
        parts = [_samples_in(batch) for batch in taken.seen.batches if batch.loader is loader]
        if all(parts):
            times = f"{len(parts)} batches" if len(parts) > 1 else "one batch"
            return sum(part or 0 for part in parts), f"{times} of the DataLoader"
    if not taken.seen.called_with:
        return None, ""
    each = taken.seen.backwards if _accumulates(taken) else 1
    times = f"{each} times " if each > 1 else ""
    origin = "the first axis of what the model is called with, as no DataLoader gives it"
    return each * taken.seen.called_with[0][0], f"{times}{origin}"


def _doubt(taken: Taken) -> str:
    """Say where the axis of samples is open: tensors that the batch was read from begin with different lengths."""
    shapes = taken.seen.called_with
    if taken.seen.batches:
        first = taken.seen.batches[0]
        shapes = [] if loader_facts(first.loader).batch and first.is_full else shapes_in(first.values)
    return doubt_of_axis(shapes)


def _accumulates(taken: Taken) -> bool:
    # A closure runs all passes of its step, or only the last one, as Lightning's does.
    return len(taken.steps_by) == 1 and taken.seen.backwards > max(taken.seen.closures, 1)


def _ops_by_batch(taken: Taken, batch: int | None) -> tuple[list[TracedOp], str]:
    """Give the ops with the batch as a name, and what is to be said of it after the number of samples."""
    others, ops = taken.others, taken.step.ops
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


def _run_notes(taken: Taken, batch: int | None, read_from: str, ops: list[TracedOp], why: str) -> Iterator[str]:
    yield f"taken from the running program: its step {taken.place}, with real data on {_devices(taken)}"
    if batch is None:
        yield "the batch is not known: no DataLoader gave one, and no tensor went into a model"
    elif ops is taken.step.ops:
        yield f"the sizes hold for batch {batch} only ({read_from}){why}"
    else:
        yield f"batch {batch} ({read_from}); other sizes by the program's own steps at {why}"
    if batch is not None and (doubt := _doubt(taken)):
        yield doubt
    yield from parallel_notes(taken.seen.models.values())
    yield from difference_notes(taken.works, taken.place)
    yield from _length_notes(taken)
    if _accumulates(taken):
        yield f"gradient accumulation: {taken.seen.backwards} backward passes to one step of the optimizer"
    if (times := taken.seen.closures) > 1:
        yield f"the optimizer called its closure {times} times; in another step it may be more or less"
    if len(taken.steps_by) > 1:
        steps = ", ".join(f"{name} steps {times} times" for name, times in taken.steps_by.items())
        yield f"one step is one round of {len(taken.steps_by)} optimizers: {steps.replace(' 1 times', ' once')}"
    if taken.idle:
        yield f"{taken.idle} more optimizers were made and took no step; they are left out"
    loaders = {id(batch.loader) for batch in taken.seen.batches}
    if len(loaders) > 1:
        yield f"{len(loaders)} DataLoaders feed a step; batch and samples are those of the first"
    if not taken.seen.is_clean:
        yield (
            "partial: no step stood alone, each had the end of an epoch, an evaluation or a batch that is not "
            "full; what ran before the training step is left out"
        )


def _length_notes(taken: Taken) -> Iterator[str]:
    length = taken.length
    if length.steps:
        yield f"{length.steps:,} steps of the optimizer, {length.origin}"
    elif length.epochs is None:
        yield f"the number of epochs is not known: {length.origin}"
    else:
        yield f"{length.epochs} epoch{'s' * (length.epochs > 1)}, {length.origin}"
    if length.accumulates and len(taken.steps_by) == 1 and length.accumulates != taken.seen.backwards:
        yield (
            f"{DOUBTFUL}: the step that was taken has {taken.seen.backwards} backward passes, and its trainer was "
            f"told {length.accumulates}"
        )
    yield from length.remarks


def _in_epochs(length: RunLength, facts: LoaderFacts, batch: int | None) -> tuple[RunLength, list[str]]:
    """Give the length of a run in epochs, with a note where its steps end in the middle of one."""
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
    note = f"the run ends by its steps: they count as one epoch of {whole:,} samples"
    return replace(length, epochs=1, train_samples=whole, validation_samples=validated), [note]


def _trained_tensors(taken: Taken) -> list[torch.Tensor]:
    owned = [parameter for model in taken.seen.models.values() for parameter in model.parameters()]
    return list({id(parameter): parameter for parameter in (*owned, *taken.parameters)}.values())


def _devices(taken: Taken) -> str:
    return " and ".join(sorted({parameter.device.type for parameter in _trained_tensors(taken)})) or "cpu"


def draft_script(taken: Taken, request: dict[str, Any], partial: str = "") -> Draft:
    """Make the draft of the requested ``name``; ``partial`` says why the program ended before the wanted step."""
    batch, read_from = _batch(taken)
    named, why = _ops_by_batch(taken, batch)
    ops, layers = split_layers(named)
    rows, parts = count_rows(ops)
    facts = loader_facts(taken.seen.batches[0].loader) if taken.seen.batches else _NO_LOADER
    length, by_steps = _in_epochs(taken.length, facts, batch)
    parameters = _trained_tensors(taken)
    notes = [*_run_notes(taken, batch, read_from, named, why), *by_steps, *taken.remarks, *taken.step.notes]
    models = " and ".join(type(model).__name__ for model in taken.seen.models.values()) or "Program"
    return Draft(
        request["name"], f"{models}, training step", rows, parts, count_layers(layers),
        sizes={} if batch is None else {"batch": batch},
        traced_with=traced_with("torch", torch.__version__, _devices(taken), "train"),
        parameters_total=sum(parameter.numel() for parameter in parameters),
        parameters_trainable=sum(parameter.numel() for parameter in parameters if parameter.requires_grad),
        train_samples=length.train_samples, validation_samples=length.validation_samples,
        last_batch=facts.last_batch, epochs=length.epochs, optimizer=taken.step.optimizer,
        unsupported=taken.step.listed_unsupported, bounded=sorted(taken.step.bounded),
        notes=[*([f"partial: {partial}"] if partial else []), taken.step.shares, *taken.step.of_bounds, *notes],
    )  # fmt: skip


def main() -> None:
    """Run one request."""
    run_script(FrameworkCapture(StepWatch, draft_script, "a torch.optim optimizer", one_process))
