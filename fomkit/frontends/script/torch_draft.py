"""Run a training program as the only process, on the CPU, and make the draft of a profile from its recorded step.

A program that expects one process per device names its device without checking that there is one. So tensors that
it moves to CUDA stay on the CPU, and its communication between processes uses gloo. The parallel layout prices
what devices send each other, not the step of one process. A library's trainer that is configured for accelerators,
many devices or shared parameters gets one CPU instead. The draft has the step's batch, epochs and notes.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch.distributed import fsdp
from torch.nn.parallel import DistributedDataParallel
from torch.overrides import TorchFunctionMode

from fomkit.core.model import DOUBTFUL, OF_ONE
from fomkit.frontends.drafting import replaced, traced_with, watched
from fomkit.frontends.layers import count_layers, split_layers
from fomkit.frontends.lowering.calls import UPDATE, TracedOp
from fomkit.frontends.model_file import is_user_file, nodes_of
from fomkit.frontends.script.child import FrameworkCapture, horovod_notes, run_script, training_here
from fomkit.frontends.script.loops import RunLength
from fomkit.frontends.script.rounds import called_name
from fomkit.frontends.script.torch_batches import named_by_batch
from fomkit.frontends.script.torch_recorder import shapes_in
from fomkit.frontends.script.torch_steps import Capture, StepWatch
from fomkit.frontends.script.trainers import SHARED, Engine, Fetched, LoaderFacts, TrainersHere, loader_facts
from fomkit.frontends.sizes import NoExpression
from fomkit.frontends.step import Draft, count_rows
from fomkit.frontends.step_spread import difference_notes, doubt_of_axis

_NO_LOADER = LoaderFacts(None, None, "drop")
_ALONE = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1",
          "MASTER_PORT": "0"}  # fmt: skip
_ASKS = re.compile(r"\b(?:LOCAL_RANK|WORLD_SIZE|init_process_group|init_device_mesh)\b")
"""Words in the text of a program that expects to be started as one of several processes."""


class Whole(torch.nn.Module):
    """Replaces FullyShardedDataParallel, which only accelerators run: one process holds all parameters."""

    def __init__(self, module: torch.nn.Module, *_args: Any, **_kwargs: Any) -> None:
        super().__init__()
        self.module = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the wrapped module."""
        return self.module(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        """Return its own attribute, else that of the wrapped module."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)

    def __getitem__(self, place: Any) -> Any:
        """Return a part of the wrapped module."""
        whole: Any = self.module
        return whole[place]

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
        """Clip the gradients, all of which are in this process."""
        return torch.nn.utils.clip_grad_norm_(self.parameters(), max_norm, norm_type)


_CPU = torch.device("cpu")


def _on_cpu(place: Any) -> Any:
    """Return the CPU for a CUDA device, by name, as a device or by number; return anything else unchanged."""
    is_number = isinstance(place, int) and not isinstance(place, bool)
    is_named = isinstance(place, str) and place.startswith("cuda")
    is_device = isinstance(place, torch.device) and place.type == "cuda"
    return _CPU if is_number or is_named or is_device else place


def _cpu_type(kind: Any) -> Any:
    """Return the CPU's type of tensors for one of CUDA by name."""
    return kind.replace("torch.cuda.", "torch.") if isinstance(kind, str) else kind


class Absent:
    """Stands for a stream, an event or another object of a CUDA device that does not exist: it does nothing."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        pass

    def __enter__(self) -> Absent:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        """Return a method that measures no time; Python's own protocols are not answered."""
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_args, **_kwargs: 0.0


_FACTS = SimpleNamespace(name="no CUDA device", total_memory=0, major=8, minor=0, multi_processor_count=1)
_ANSWERS: Mapping[str, Any] = {
    "get_device_name": _FACTS.name, "get_device_properties": _FACTS, "get_device_capability": (8, 0),
    "mem_get_info": (0, 0), "current_device": 0, "current_stream": Absent(), "default_stream": Absent(),
    **dict.fromkeys(("set_device", "synchronize", "reset_peak_memory_stats", "ipc_collect", "init")),
}  # fmt: skip
"""What functions of ``torch.cuda`` return that ask for a device or control one."""
_TYPES = tuple(f"{name}Tensor" for name in "Float Double Half Long Int Short Byte Bool".split())  # noqa: SIM905


def _answer(value: Any) -> Callable[..., Any]:
    return lambda *_args, **_kwargs: value


def _ends_program(statements: Sequence[ast.stmt]) -> bool:
    call = getattr(statements[-1], "value", None) if statements else None
    exits = isinstance(call, ast.Call) and called_name(call) in ("exit", "_exit", "quit")
    return exits or (bool(statements) and isinstance(statements[-1], ast.Raise))


@cache
def _is_demanded(file: str, line: int) -> bool:
    """Return whether the test at a line of the program ends it: an assertion, or a condition around an exit."""
    nodes = nodes_of(file) if is_user_file(file) else []
    tests = (one for one in nodes if isinstance(one, ast.Assert | ast.If))
    around = [one for one in tests if one.test.lineno <= line <= (one.test.end_lineno or 0)]
    return any(
        isinstance(one, ast.Assert) or _ends_program(one.body) or _ends_program(one.orelse) for one in around
    )


def _if_demanded(found: Callable[[], int]) -> int:
    """Return what is found, or 1 where the program would end without a device: it runs here without one."""
    caller = sys._getframe(2)
    return found() or type(found())(_is_demanded(caller.f_code.co_filename, caller.f_lineno))


class StayOnCpu(TorchFunctionMode):
    """Keeps on the CPU what a program creates on CUDA or moves to it."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run a call with the CPU as its device."""
        if func in (torch.Tensor.cuda, torch.Tensor.pin_memory):
            return args[0]
        named = dict(kwargs or {})
        if "device" in named:
            named["device"] = _on_cpu(named["device"])
        if func is torch.Tensor.to:
            args = (args[0], *map(_on_cpu, args[1:]))
        if func is torch.Tensor.type:
            args = (args[0], *map(_cpu_type, args[1:]))
        return func(*args, **named)


@contextmanager
def without_cuda() -> Iterator[None]:
    """Let a program without an accelerator use CUDA devices by name inside the block."""

    def moved(move: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
        named = {name: _on_cpu(one) if name == "device" else one for name, one in kwargs.items()}
        return move(module, *map(_on_cpu, args), **named)

    def wrapped(wrap: Any, whole: Any, module: torch.nn.Module, *_devices: Any, **kwargs: Any) -> None:
        devices = ("device_ids", "output_device")
        wrap(whole, module, **{name: one for name, one in kwargs.items() if name not in devices})

    with ExitStack() as stack:
        # PyTorch's compiler requires each of its functions to be a separate object.
        answers = {name: _answer(value) for name, value in _ANSWERS.items()}
        types = {name: getattr(torch, name) for name in _TYPES}
        stack.enter_context(replaced(torch.cuda, Event=Absent, Stream=Absent, device=Absent, **answers, **types))
        nothing = {name: _answer(None) for name in ("range_push", "range_pop", "mark")}
        stack.enter_context(replaced(torch.cuda.nvtx, **nothing))
        stack.enter_context(watched(torch.cuda, is_available=_if_demanded, device_count=_if_demanded))
        stack.enter_context(watched(torch, set_default_tensor_type=lambda choose, kind: choose(_cpu_type(kind))))
        stack.enter_context(watched(torch, set_default_device=lambda choose, place: choose(_on_cpu(place))))
        stack.enter_context(watched(DistributedDataParallel, __init__=wrapped))
        stack.enter_context(watched(torch.nn.Module, to=moved))
        stack.enter_context(StayOnCpu())
        yield


@contextmanager
def one_process(path: Path) -> Iterator[None]:
    """Let a program that expects one process per device run as the only one, as under ``torchrun`` with one."""
    asks = bool(_ASKS.search(path.read_text(encoding="utf-8", errors="replace")))
    if asks or "WORLD_SIZE" in os.environ:
        os.environ.update(_ALONE)
    sys.meta_path.insert(0, TrainersHere())
    if not torch.distributed.is_available():
        with nullcontext() if torch.cuda.is_available() else without_cuda():
            yield
        return

    def alone(begin: Any, *_args: Any, **kwargs: Any) -> Any:
        os.environ.update(_ALONE)
        kept = {name: value for name, value in kwargs.items() if name == "timeout"}
        return begin("gloo", **kept)  # there is no accelerator here, whatever backend was requested

    def here(_spawn: Any, run: Any, args: Sequence[Any] = (), *_more: Any, **_named: Any) -> None:
        run(0, *args)

    with ExitStack() as stack:
        stack.enter_context(watched(torch.distributed, init_process_group=alone))
        stack.enter_context(watched(torch.distributed, new_group=lambda make, *_ranks, **_named: make()))
        stack.enter_context(watched(torch.multiprocessing, spawn=here))
        stack.enter_context(training_here())
        stack.enter_context(replaced(fsdp, FullyShardedDataParallel=Whole))
        if not torch.cuda.is_available():
            stack.enter_context(without_cuda())
        if asks and not torch.cuda.is_available():
            stack.enter_context(replaced(torch.cuda, current_device=lambda: 0, device_count=lambda: 1))
        yield


_SHARDED: Any = getattr(fsdp, "FSDPModule", Whole)


def class_name(model: torch.nn.Module) -> str:
    """Return the class name of a program's model, without wrappers for many devices.

    >>> class_name(Whole(torch.nn.Linear(2, 3)))
    'Linear'
    """
    while isinstance(model, Whole | DistributedDataParallel | Engine):
        model = model.module
    # FSDP gives a model that is sharded in place a new class, derived from the model's own.
    return next(kind.__name__ for kind in type(model).__mro__ if not issubclass(kind, _SHARDED))


def parallel_notes(models: Iterable[torch.nn.Module]) -> list[str]:
    """Return notes on how a program's devices share the training, and on options to estimate many devices."""
    parts = [part for model in models for part in model.modules()]
    names = dict.fromkeys(["FSDP"] * any(isinstance(part, Whole | _SHARDED) for part in parts) + SHARED)
    copied = any(isinstance(part, DistributedDataParallel) for part in parts)
    alone = not (torch.distributed.is_available() and torch.distributed.is_initialized())
    ways = {
        "share copies of the model (DistributedDataParallel)": "--nodes N" if copied else "",
        f"share its parameters ({', '.join(names)})": "--nodes N --layout zero=3" if names else "",
        "communicate by calls of their own, which are not counted": (
            "" if alone or copied or names else "--nodes N, which sums the gradients of copies,"
        ),
    }
    return [
        f"{OF_ONE} of processes that {what}: to estimate many devices, use {words} with the batch of them all"
        for what, words in ways.items()
        if words
    ]


def _samples_in(batch: Fetched) -> int | None:
    stated = loader_facts(batch.loader).batch
    if stated and batch.is_full:
        return stated
    shapes = shapes_in(batch.values)
    return shapes[0][0] if shapes else stated


def _passes_of_usual_step(capture: Capture) -> int:
    """Return how often the passes of the recorded step run in a usual one: a trainer may begin with fewer."""
    ran, wanted = len(capture.seen.batches) or capture.seen.backwards, capture.length.accumulates or 0
    return max(wanted // ran, 1) if ran and wanted % ran == 0 and len(capture.steps_by) == 1 else 1


def _batch(capture: Capture) -> tuple[int | None, str]:
    """Return the samples of the step, and how they are known."""
    if capture.seen.batches:
        loader = capture.seen.batches[0].loader
        parts = [_samples_in(batch) for batch in capture.seen.batches if batch.loader is loader]
        parts *= _passes_of_usual_step(capture)
        if all(parts):
            times = f"{len(parts)} batches" if len(parts) > 1 else "one batch"
            return sum(part or 0 for part in parts), f"{times} of the DataLoader"
    if not capture.seen.called_with:
        return None, ""
    each = capture.seen.backwards if _accumulates(capture) else 1
    times = f"{each} times " if each > 1 else ""
    origin = "the first axis of the model's input, as no DataLoader states it"
    return each * capture.seen.called_with[0][0], f"{times}{origin}"


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
    shapes, first = capture.seen.called_with, next(iter(capture.seen.batches), None)
    if first is not None:
        shapes = [] if loader_facts(first.loader).batch and first.is_full else shapes_in(first.values)
    if batch is not None and (doubt := doubt_of_axis(shapes)):
        yield doubt
    yield from parallel_notes(capture.seen.models.values()) or horovod_notes()
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
        yield f"{length.steps:,} step{'s' * (length.steps > 1)} of the optimizer, {length.origin}"
    elif length.epochs is None:
        yield f"the number of epochs is unknown: {length.origin}"
    else:
        yield f"{length.epochs} epoch{'s' * (length.epochs > 1)}, {length.origin}"
    if (times := _passes_of_usual_step(capture)) > 1:
        yield (
            f"the trainer is set to {length.accumulates} batches a step, and its first steps have fewer: the "
            f"passes of the recorded step count {times} times, without the sums of their gradients"
        )
    elif length.accumulates and len(capture.steps_by) == 1 and length.accumulates != capture.seen.backwards:
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
    if each and length.epochs and length.epochs * each <= length.steps:  # the limit is never met
        return replace(length, train_samples=samples, steps=None), []
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
    ops = [op for op in ops for _ in range(1 if op.pass_name == UPDATE else _passes_of_usual_step(capture))]
    rows, parts = count_rows(ops)
    facts = loader_facts(capture.seen.batches[0].loader) if capture.seen.batches else _NO_LOADER
    length, by_steps = _in_epochs(capture.length, facts, batch)
    if not length.steps:
        capture = replace(capture, length=replace(capture.length, steps=None))
    parameters = _trained_tensors(capture)
    # While one of two optimizers steps, a program may freeze what the other one updates.
    trained = [one for one in parameters if one.requires_grad or id(one) in capture.seen.updated]
    notes = [*_run_notes(capture, batch, read_from, named, why), *by_steps, *capture.remarks, *capture.step.notes]
    models = " and ".join(map(class_name, capture.seen.models.values())) or "Program"
    return Draft(
        request["name"], f"{models}, training step", rows, parts, count_layers(layers),
        sizes={} if batch is None else {"batch": batch},
        traced_with=traced_with("torch", torch.__version__, _devices(capture), "train"),
        parameters_total=sum(parameter.numel() for parameter in parameters),
        parameters_trainable=sum(parameter.numel() for parameter in trained),
        train_samples=length.train_samples, validation_samples=length.validation_samples,
        last_batch=facts.last_batch, epochs=length.epochs, optimizer=capture.step.optimizer,
        unsupported=capture.step.listed_unsupported, bounded=sorted(capture.step.bounded),
        notes=[*[f"partial: {partial}"] * bool(partial), capture.step.shares, *capture.step.of_bounds, *notes],
    )  # fmt: skip


def main() -> None:
    """Run one request of the parent process."""
    trains = "a torch.optim optimizer, or in a loop that changes its parameters itself,"
    run_script(FrameworkCapture(StepWatch, draft_script, trains, one_process))
