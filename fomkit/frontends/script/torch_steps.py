"""Choose the step of a running program to capture, and run the same step at other batches.

The chosen step comes after the first one, when every optimizer has stepped once. For other batches, the loader's
batch is cut or repeated and the program's own code runs, so that sizes can be expressed by the batch.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakSet

import torch
from torch.optim import optimizer as hooks

from fomkit.core.model import DOUBTFUL
from fomkit.frontends.drafting import watch_made, watched
from fomkit.frontends.lowering.calls import TracedOp
from fomkit.frontends.script import torch_recorder
from fomkit.frontends.script.child import WANTED_ROUND, StopProgram
from fomkit.frontends.script.loops import RunLength
from fomkit.frontends.script.torch_recorder import LargeModel, OuterCalls, Recording, shapes_in
from fomkit.frontends.script.trainers import Fetched, loader_facts, run_length, watch_loaders
from fomkit.frontends.sizes import NoExpression, name_sizes
from fomkit.frontends.step import Step
from fomkit.frontends.step_spread import rough_work
from fomkit.frontends.torch.order import has_formula
from fomkit.frontends.torch.profile import watch_backward

_TRIES = 5
"""Most steps to wait for a usable one at another batch: trainers prefetch batches, and epochs end."""


def other_batches(batch: int) -> tuple[int, ...]:
    """Return the batches to train at besides the program's own; for large batches, smaller and so cheaper ones.

    A batch of 1 is often a special case, so it is expressed from three others. To an even batch the others are
    even too, since some programs take samples in pairs.

    >>> other_batches(32), other_batches(9), other_batches(4), other_batches(1)
    ((18, 12), (6, 5), (8, 12), (2, 3, 5))
    """
    if batch == 1:
        return 2, 3, 5
    if batch < 8:
        return 2 * batch, 3 * batch
    return (batch // 2 + 2, batch // 3 + 2) if batch % 2 else (batch // 4 * 2 + 2, batch // 6 * 2 + 2)


def with_samples(values: Any, before: int, now: int) -> Any:
    """Return a batch with another number of samples: values of length ``before`` are cut or repeated.

    Lists of texts or numbers are changed like tensors; other values stay as they are.
    """
    if isinstance(values, torch.Tensor):
        is_batched = values.dim() and values.shape[0] == before
        return values[torch.arange(now, device=values.device) % before] if is_batched else values
    if isinstance(values, Mapping):
        changed: Any = copy(values)
        for name, value in values.items():
            changed[name] = with_samples(value, before, now)
        return changed
    if not isinstance(values, list | tuple):
        return values
    if len(values) == before and all(isinstance(value, str | bytes | int | float) for value in values):
        parts = [values[place % before] for place in range(now)]
    else:
        parts = [with_samples(value, before, now) for value in values]
    return type(values)(*parts) if hasattr(values, "_fields") else type(values)(parts)


@dataclass
class OtherBatches:
    """Makes a program train at other batches, and keeps the ops of its steps there.

    `given`: the batch of the recorded step, whose samples are used again.
    `samples`: in this batch, which may be one of several of the step.
    `lengths`: first axes of the arguments of models, call by call.
    `found`: the ops at each other batch, so far.
    """

    given: Fetched
    samples: int
    lengths: list[int]
    found: dict[int, list[TracedOp]] = field(default_factory=dict)
    _tries: int = 0
    _last: list[int] = field(default_factory=list)

    @property
    def _wanted(self) -> int | None:
        return next((one for one in other_batches(self.samples) if one not in self.found), None)

    def instead_of(self, batch: Fetched) -> Any:
        """Return the values that the program gets for a batch; batches of other loaders stay as they are."""
        if batch.loader is not self.given.loader or self._wanted is None:
            return batch.values
        return with_samples(self.given.values, self.samples, self._wanted)

    def ends(self, seen: Recording, ops: list[TracedOp]) -> bool:
        """Record a step; return whether no further step is wanted.

        A recording begins with the rest of the step before, so both steps must have the wanted batch.
        """
        wanted, before = self._wanted, self._last
        self._last = seen.called_lengths
        if wanted is not None and seen.is_clean and before == self._last == self._scaled(wanted):
            self.found[wanted], self._tries = ops, 0
        else:
            self._tries += 1
        return self._wanted is None or self._tries >= _TRIES

    def _scaled(self, wanted: int) -> list[int]:
        return [one if one % self.samples else one // self.samples * wanted for one in self.lengths]


def at_other_batches(seen: Recording, recent: Sequence[Fetched]) -> OtherBatches | str:
    """Prepare to train at other batches than that of a recorded step, or return why this is impossible.

    `recent`: the batches fetched last; trainers fetch batches ahead of the step that uses them.
    """
    if len({id(batch.loader) for batch in seen.batches}) != 1:
        return "the batch comes from several DataLoaders" if seen.batches else ""
    loader = seen.batches[0].loader
    own = [batch for batch in reversed(recent) if batch.loader is loader and batch.is_full]
    used = [batch for batch in own if {*seen.called_with} <= {*shapes_in(batch.values)}]
    shapes = shapes_in(own[0].values) if own else []
    if not shapes or not seen.called_lengths:
        return "no tensor of the batch was passed to a model"
    samples = shapes[0][0]
    if samples != (loader_facts(loader).batch or samples) or seen.called_lengths[0] % samples:
        return "its first axis is not that of the samples"
    return OtherBatches((used or own)[0], samples, seen.called_lengths)


def named_by_batch(ops: list[TracedOp], others: OtherBatches, batch: int) -> list[TracedOp]:
    """Write the sizes of a step as expressions in the batch.

    `ops`: those of the recorded step; `batch`: samples of the whole step, a multiple of those of each batch.
    Raises NoExpression when the step differs at other batches, or was not seen there.
    """
    if len(others.found) < len(other_batches(others.samples)):
        raise NoExpression("the program took no step of its own at another batch")
    times = batch // others.samples
    name = "batch" if times == 1 else f"((batch + {times - 1})//{times})"  # never 0
    steps = {others.samples: ops, **others.found}

    def named() -> list[TracedOp]:
        return name_sizes(list(steps.values()), [{name: size} for size in steps], [name])

    if others.samples == 1:
        with suppress(NoExpression):
            return named()
        del steps[1]  # a batch of 1 is left out: its ops often differ
    return named()


FURTHER_ROUNDS = 4
"""Most further steps to wait for an undisturbed one: in the middle of an epoch, with a full batch."""
_RECENT = 8
"""Batches that are remembered, to find the one that a step used."""
MOST_BACKWARDS = 1000
"""Backward passes without a step of an optimizer after which none is expected any more."""
MAX_IDLE_STEPS = 50
"""Steps after which an optimizer that has not stepped is ignored."""


@dataclass(frozen=True)
class Capture:
    """A recorded step and its context.

    `seen`: what the program did in it.
    `place`: number of the step in the program, from 1.
    `steps_by`: steps of each optimizer in it, by class name and order.
    `idle`: optimizers that were made and never stepped.
    `remarks`: on the program as a whole.
    `works`: rough work of all recorded steps of the same kind, this one included (`step_spread`).
    `others`: the step at other batches, or why there is none.
    """

    step: Step
    seen: Recording
    place: int
    steps_by: Mapping[str, int]
    idle: int
    length: RunLength
    parameters: list[torch.Tensor]
    remarks: list[str]
    works: tuple[float, ...] = ()
    others: OtherBatches | str = ""


class StepWatch:
    """Watches a program's optimizers and records its steps until one can be captured.

    A step ends where the optimizer steps. With several optimizers, a step is one round of all: from one step of
    the last optimizer to its next one. After the final capture, the program trains on at other batches.

    `is_user_file`: whether a source file is the user's own, not a library's.
    `on_capture`: called with the final capture, and whether it is complete; then it raises what ends the program.

    `rounds`, `backwards`: steps and backward passes seen.
    `limits`: what the program cannot do if its parameters have no values.
    `captured`: the best step so far.
    `is_over`: whether the final step was captured.
    """

    def __init__(self, is_user_file: Callable[[str], bool], on_capture: Callable[[Capture, bool], None]) -> None:
        self.rounds = self.backwards = 0
        self.captured: Capture | None = None
        self._is_user_file, self._on_capture = is_user_file, on_capture
        self._made: WeakSet[Any] = WeakSet()
        self._stepped: dict[int, torch.optim.Optimizer] = {}
        self._steps = self._depth = self._passes = 0
        self._ended: list[torch.optim.Optimizer] = []
        self.is_over = self._is_stopped = False
        self._now: Recording | None = None
        self.on_limits: Callable[[str], object] = lambda _: None
        self._large = LargeModel(lambda: self.is_over or self.on_limits(self.limits))
        self._calls = OuterCalls(self._large.take_values, self._begins, self._relayed(Recording.model_ends))
        self._recent: deque[Fetched] = deque(maxlen=_RECENT)
        self._process = os.getpid()
        self._remarks: dict[str, None] = {}
        self._works: list[tuple[bool, float]] = []
        self._without = 0

    @property
    def seen(self) -> str:
        """What was seen of a program that never updated anything."""
        return f", with {self.backwards} backward passes" if self.backwards else ""

    @property
    def limits(self) -> str:
        """What the program cannot do if its parameters have no values."""
        return self._large.limits

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Record the code that runs inside the block."""
        with ExitStack() as stack:
            stack.enter_context(watch_made(torch.optim.Optimizer, lambda one, _: self._made.add(one)))
            stack.enter_context(self._calls.watch())
            stack.enter_context(self._large.watch())
            stack.enter_context(watch_backward(self._backward, self._engine))
            stack.enter_context(watch_loaders(self._relayed(Recording.forget), self._batch, self._quietly))
            stack.enter_context(torch_recorder.watch_autocast(self._remarks.setdefault))
            stack.enter_context(torch_recorder.watch_compile(self._remarks.setdefault))
            stack.enter_context(_skipped_steps(self._skipped))
            stack.callback(hooks.register_optimizer_step_pre_hook(self._before).remove)
            stack.callback(hooks.register_optimizer_step_post_hook(self._after).remove)
            try:
                yield
            finally:
                if self._now:
                    self._now.close()

    def _relayed(self, note: Callable[..., None]) -> Callable[..., None]:
        """Return a function that passes its arguments to the current recording, if there is one."""

        def tell(*seen: Any) -> None:
            if self._now:
                note(self._now, *seen)

        return tell

    @contextmanager
    def _backward(self, outputs: Any, fills: bool) -> Iterator[None]:
        self.backwards += 1
        if self.backwards > MOST_BACKWARDS and not self._stepped:
            raise StopProgram
        self._passes += 1
        try:
            with self._now.backward(outputs, fills) if self._now else nullcontext():
                yield
        finally:
            self._passes -= 1

    def _engine(self) -> Any:
        return self._now.watched_engine() if self._now else nullcontext()

    def _begins(self, model: torch.nn.Module) -> None:
        self._ends_late()
        self._without += not torch.is_grad_enabled()
        if self._now:
            self._now.model_begins(model)

    def _batch(self, batch: Fetched) -> Any:
        others = self.captured.others if self.is_over and self.captured else ""
        if isinstance(others, OtherBatches):
            return others.instead_of(batch)
        self._recent.append(batch)
        if self._now:
            self._now.batches.append(batch)
            self._now.is_clean &= batch.is_full
        return batch.values

    @contextmanager
    def _quietly(self) -> Iterator[None]:
        self._ends_late()
        now = self._now
        before = now.pause(True) if now else False
        try:
            yield
        finally:
            if now:
                now.pause(before)

    def _skipped(self) -> None:
        """Start a new recording where loss scaling skips a step."""
        if self._now:
            self._now.close()
            self._now = self._record()

    def _before(self, optimizer: Any, args: Any, kwargs: Any) -> Any:
        self._depth += 1
        if self._depth > 1 or self._now is None:
            return None
        now, is_known = self._now, has_formula(optimizer)
        now.pause(is_known)

        def watched(closure: Any) -> Any:
            def run(*given: Any, **named: Any) -> Any:
                now.closures += 1
                now.pause(False)
                try:
                    return closure(*given, **named)
                finally:
                    now.pause(is_known)

            return run if callable(closure) else closure

        return (args[0], *map(watched, args[1:])), {name: watched(value) for name, value in kwargs.items()}

    def _after(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        self._depth -= 1
        if self._depth or os.getpid() != self._process:
            return
        if self._is_stopped:
            os._exit(0)  # a program that does not stop
        self._steps += 1
        if self._now:
            self._now.pause(False)
            self._now.update(optimizer)
        if self._passes:
            self._ended.append(optimizer)
        else:
            self._ends(optimizer)

    def _ends_late(self) -> None:
        """End the steps that hooks of gradients made, since no recording can end inside a backward pass."""
        while self._ended:
            self._ends(self._ended.pop(0))

    def _ends(self, optimizer: torch.optim.Optimizer) -> None:
        """End a step, or a part of one if several optimizers make it."""
        is_new = id(optimizer) not in self._stepped
        self._stepped[id(optimizer)] = optimizer
        if is_new and not self.is_over:
            self.rounds, self.captured = 1, None
            self._works.clear()
            if self._now:
                self._now.close()
        elif optimizer is list(self._stepped.values())[-1]:
            self.rounds += 1
            self._round_ends()
        else:
            return
        self._now = self._record()

    def _record(self) -> Recording:
        return Recording(self._calls.models(), self._parameters())

    def _parameters(self) -> list[torch.Tensor]:
        groups = (group for made in self._stepped.values() for group in made.param_groups)
        return [parameter for group in groups for parameter in group["params"]]

    def _idle(self) -> int:
        return sum(id(made) not in self._stepped for made in self._made)

    def _round_ends(self) -> None:
        if self._now is None:
            return
        if self.is_over:
            self._other_ends(self._now)
            return
        found = self._take(self._now)
        self._works.append((found.seen.is_clean, rough_work(found.step.ops)))
        if self.captured is None or found.seen.is_clean or not self.captured.seen.is_clean:
            others = at_other_batches(found.seen, self._recent) if found.seen.is_clean else ""
            self.captured = replace(found, others=others)
        captured_is_clean = self.captured.seen.is_clean
        is_late = self.rounds >= WANTED_ROUND + FURTHER_ROUNDS
        waits = self._idle() and self._steps < MAX_IDLE_STEPS
        if self.rounds >= WANTED_ROUND and (captured_is_clean or is_late) and not waits:
            works = tuple(work for is_clean, work in self._works if is_clean == captured_is_clean)
            self.captured = replace(self.captured, works=works)
            self.is_over, self._is_stopped = True, isinstance(self.captured.others, str)
            self._now = None
            self._on_capture(self.captured, self._is_stopped)

    def _other_ends(self, recording: Recording) -> None:
        """End a step at another batch. The answer is left already, so the program may fail here."""
        self._now, ops = None, recording.close().ops
        others = self.captured.others if self.captured else ""
        if self.captured and not isinstance(others, str) and others.ends(recording, ops):
            self._is_stopped = True
            self._on_capture(self.captured, True)

    def _take(self, recording: Recording) -> Capture:
        stepped = enumerate(self._stepped.items(), start=1)
        names = {key: f"{type(made).__name__} {place}" for place, (key, made) in stepped}
        step = recording.close()
        beside = self._without - recording.without * self.rounds
        loader = recording.batches[0].loader if recording.batches else None
        return Capture(
            step, recording, self.rounds, idle=self._idle(),
            steps_by={names[key]: times for key, times in recording.updated_by.items()},
            length=run_length(sys._getframe(), self._is_user_file, loader),
            parameters=self._parameters(), remarks=[*self._remarks, *self._large.notes, *_beside(beside)],
        )  # fmt: skip


def _beside(calls: int) -> list[str]:
    """Return a note on calls of models without gradients beside the steps; a few are usual, such as a check."""
    what = "without gradients between its first steps or before them, to evaluate or to collect samples"
    note = f"{DOUBTFUL}: the program called its models {calls} times {what}; this is not counted"
    return [note] * (calls > WANTED_ROUND)


def _skipped_steps(on_skip: Callable[[], None]) -> AbstractContextManager[None]:
    """Call ``on_skip`` inside the block for each step that loss scaling skips because a gradient overflowed."""

    def may_step(step: Any, scaler: Any, optimizer: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
        if any(float(found) for found in state["found_inf_per_device"].values()):
            on_skip()
        return step(scaler, optimizer, state, *args, **kwargs)

    return watched(torch.amp.GradScaler, _maybe_opt_step=may_step)
