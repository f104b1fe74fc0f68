"""Choose the step of a running program to capture, which then runs at other batches too.

The chosen step comes after the first one, when every optimizer has stepped once.
"""

from __future__ import annotations

import os
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any
from weakref import WeakSet

import torch
from torch.optim import optimizer as hooks

from fomkit.core.model import DOUBTFUL
from fomkit.frontends.drafting import watch_made, watched
from fomkit.frontends.script.child import WANTED_ROUND, RoundWatch, StopProgram, Watch
from fomkit.frontends.script.loops import RunLength, heads_around, length_by_evaluations, loops_of_program
from fomkit.frontends.script.rounds import Head
from fomkit.frontends.script.torch_batches import OtherBatches, at_other_batches
from fomkit.frontends.script.torch_recorder import LargeModel, OuterCalls, Recording, watch_settings
from fomkit.frontends.script.trainers import Fetched, run_length, watch_loaders
from fomkit.frontends.step import Step
from fomkit.frontends.step_spread import rough_work
from fomkit.frontends.torch.calls import tensors_of, unwrapped
from fomkit.frontends.torch.forms import dense_attention
from fomkit.frontends.torch.order import has_formula
from fomkit.frontends.torch.profile import watch_backward

FURTHER_ROUNDS = 4
"""Most further steps to wait for an undisturbed one: in the middle of an epoch, with a full batch."""
_RECENT = 8
"""Batches that are remembered, to find the one that a step used."""
MOST_BACKWARDS = 1000
"""Backward passes without a step of an optimizer after which none is expected any more."""
MAX_IDLE_STEPS = 50
MAX_IDLE_S = 60.0
"""Steps after which an optimizer that has not stepped is ignored, and time [s] since the first step."""
MOST_EVALUATIONS = 50
MAX_CLOSURE_S = 20.0
"""Calls of a closure in one step of an optimizer, and time [s] of this step, after which each call is a step."""
MAX_STEP_S = 10.0
"""Time [s] of the second step from which on no third one is awaited."""
MAX_EVALUATION_S = 90.0
"""Time [s] since the first evaluation after which a program without a step computes without values."""


@dataclass(frozen=True)
class Capture:
    """A recorded step and its context.

    `place`: number of the step in the program, from 1.
    `steps_by`: steps of each optimizer in it, by class name and order.
    `idle`: optimizers that were made and never stepped.
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


class Program:
    """What stands for the optimizer of a program without one: the program changes its parameters itself.

    `leaves`: the tensors that its backward passes reach, by ``id``. A program that makes new ones in each round
    has another model in each; two or more are wanted, since a single one may be a batch.
    `is_functional`: whether it differentiates by torch.func, so that its models run on tensors that it hands them.
    `title`: what takes the place of an optimizer's name.
    `rounds_at`: the innermost loop around the backward pass; `length`: of the run, by the loops.
    """

    title = "the program"

    def __init__(self) -> None:
        self.leaves: dict[int, torch.Tensor] = {}
        self.is_functional = False
        self.rounds_at, self.length = "", RunLength(None, "")
        self._before: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._are_new = False

    @property
    def param_groups(self) -> list[dict[str, list[torch.Tensor]]]:
        """Return its parameters in the form of an optimizer."""
        return [{"params": list(self.leaves.values())}]

    def reach(self, outputs: Any) -> set[Any]:
        """Note the leaves of the graph behind some outputs and their values before a change; return its nodes."""
        waiting, seen, found = [one.grad_fn for one in tensors_of(outputs)], set[Any](), dict[int, torch.Tensor]()
        while waiting:
            if (node := waiting.pop()) is None or node in seen:
                continue
            seen.add(node)
            waiting += [following for following, _ in node.next_functions]
            if (variable := getattr(node, "variable", None)) is not None:
                leaf = unwrapped(variable)
                found[id(leaf)] = leaf
                self.is_functional |= leaf is not variable
        self._are_new |= len(found) > 1 and bool(self.leaves) and not found.keys() & self.leaves.keys()
        self.leaves = found if self._are_new else {**self.leaves, **found}
        self._before = self._before or [(leaf, unwrapped(leaf.detach().clone())) for leaf in found.values()]
        return seen

    def has_updated(self) -> bool:
        """Return whether a parameter has another value than at the first backward pass of the step."""
        is_over = any(self._are_new or not torch.equal(leaf, before) for leaf, before in self._before)
        if is_over:
            self._before = []
        return is_over


class StepWatch(Watch[Capture]):
    """Watches a program's optimizers and records its steps until one can be captured.

    A step ends where the optimizer steps. With several optimizers, a step is one round of all: from one step of
    the last optimizer to its next one. After the final capture, the program trains on at other batches.

    `on_capture`: called with the final capture, and whether it is complete; then it raises what ends the program.
    """

    def __init__(self, on_capture: Callable[[Capture, bool], None]) -> None:
        super().__init__(on_capture)
        self._backwards = self._evaluations = 0
        self._evaluated_since, self._is_long = 0.0, False
        self._made: WeakSet[Any] = WeakSet()
        self._anew: set[Head] = set()
        self._around: set[Head] = set()
        self._stepped: dict[int, Any] = {}
        self._steps = self._depth = self._passes = 0
        self._ended: list[Any] = []
        self._is_stopped = False
        self._now: Recording | None = None
        self._large = LargeModel(lambda: self.is_over or self.on_limits(self.limits))
        self._calls = OuterCalls(self._large.take_values, self._begins, self._relayed(Recording.model_ends))
        self._recent: deque[Fetched] = deque(maxlen=_RECENT)
        self._process = os.getpid()
        self._remarks: dict[str, None] = {}
        self._works: list[tuple[bool, float]] = []
        self._without = 0
        self._program, self._fills, self._since = Program(), False, 0.0
        self._round_watch = RoundWatch(self._round)

    @property
    def seen(self) -> str:
        """What was seen of a program that never updated anything."""
        return f", with {self._backwards} backward passes" if self._backwards else ""

    @property
    def limits(self) -> str:
        """What the program cannot do if its parameters have no values."""
        return self._large.limits

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Record the code that runs inside the block."""
        with ExitStack() as stack:
            stack.enter_context(watch_made(torch.optim.Optimizer, self._makes))
            stack.enter_context(self._calls.watch())
            stack.enter_context(self._large.watch())
            stack.enter_context(watch_backward(self._backward, self._engine))
            stack.enter_context(watch_loaders(self._relayed(Recording.forget), self._batch, self._quietly))
            stack.enter_context(watch_settings(self._remarks.setdefault))
            stack.enter_context(dense_attention(self._remarks.setdefault))
            stack.enter_context(_skipped_steps(self._skipped))
            stack.callback(hooks.register_optimizer_step_pre_hook(self._before).remove)
            stack.callback(hooks.register_optimizer_step_post_hook(self._after).remove)
            stack.callback(sys.settrace, sys.gettrace())
            try:
                yield
            finally:
                if self._now:
                    self._now.close()

    def _makes(self, optimizer: Any, _line: str) -> None:
        self._made.add(optimizer)
        self._anew |= heads_around(sys._getframe())

    def _relayed(self, note: Callable[..., object]) -> Callable[..., None]:
        """Return a function that passes its arguments to the current recording, if there is one."""

        def tell(*seen: Any) -> None:
            if self._now:
                note(self._now, *seen)

        return tell

    @contextmanager
    def _backward(self, outputs: Any, fills: bool) -> Iterator[None]:
        self._backwards += 1
        if self._backwards > MOST_BACKWARDS and not self._stepped:
            raise StopProgram
        if not self._passes and not self.is_over:
            self._around |= heads_around(sys._getframe())
        if not self._passes and not self._made:
            self._fills |= fills
            fills = fills or not self._fills  # where gradients are only returned, these are those to update by
            with self._quietly():
                self._reach(outputs)
        self._passes += 1
        try:
            with self._now.backward(outputs, fills) if self._now else nullcontext():
                yield
        finally:
            self._passes -= 1

    def _reach(self, outputs: Any) -> None:
        """Prepare for a step of a program without an optimizer: it ends with the round of a loop that updates."""
        frame = sys._getframe()
        nodes = self._program.reach(outputs)
        if self._now:
            self._now.also_train(self._program.leaves, nodes)
        self._program.rounds_at = self._round_watch.around(frame)
        loader = self._recent[-1].loader if self._recent else None
        self._program.length = run_length(frame, loader, self._anew, self._around)

    def _round(self, _head: object) -> None:
        with self._quietly():
            has_updated = not self._made and self._program.has_updated()
        if has_updated:
            what = "no optimizer of PyTorch's: a step is a round that changes parameters, with the loop at"
            self._remarks.setdefault(f"{what} {self._program.rounds_at}")
            self._depth += 1
            self._after(self._program, (), {})

    def _engine(self) -> Any:
        return self._now.watched_engine() if self._now else nullcontext()

    def _begins(self, model: torch.nn.Module) -> None:
        self._ends_late()
        is_first = not self._steps and self._now is None and torch.is_grad_enabled()
        if is_first and not self.is_over and not loops_of_program(sys._getframe()):
            self.wanted, self._now = 1, self._record()  # without a loop, the first step is the only one
        if not torch.is_grad_enabled():
            self._since = self._since if self._without else monotonic()
            self._without += 1
            if not (self._steps or self._large.took) and monotonic() - self._since > MAX_EVALUATION_S:
                self._large.is_slow = True
                for one in self._calls.found.values():
                    self._large.take_values(one)
        if self._now:
            self._now.model_begins(model)

    def _batch(self, batch: Fetched) -> Any:
        others = self.captured.others if self.is_over and self.captured else ""
        if isinstance(others, OtherBatches):
            return others.instead_of(batch)
        self._recent.append(batch)
        if self._now:
            before = {id(one.loader) for one in self._now.batches}  # of an epoch that ended in the step, if any
            self._now.is_clean &= batch.is_full and not (batch.is_first and id(batch.loader) in before)
            self._now.batches.append(batch)
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
        self._made.add(optimizer)
        if self._depth > 1:
            return None
        self._evaluations, self._evaluated_since, is_known = 0, monotonic(), has_formula(optimizer)
        pause = self._relayed(Recording.pause)
        pause(is_known)

        def watched(closure: Any) -> Any:
            def run(*given: Any, **named: Any) -> Any:
                self._evaluates(optimizer)
                if self._now:
                    self._now.closures += 1
                pause(False)
                try:
                    return closure(*given, **named)
                finally:
                    pause(is_known)

            return run if callable(closure) else closure

        return (args[0], *map(watched, args[1:])), {name: watched(value) for name, value in kwargs.items()}

    def _evaluates(self, optimizer: Any) -> None:
        """Begin a call of a closure; end the call before it as a step if one step of the optimizer is too long."""
        self._evaluations += 1
        takes_long = self._evaluations > 2 and monotonic() - self._evaluated_since > MAX_CLOSURE_S
        if self._is_long or takes_long or self._evaluations > MOST_EVALUATIONS:
            what = f"a step of {type(optimizer).__name__} is long, so each call of its closure counts as a step"
            self._remarks.setdefault(what)
            self._is_long, self.wanted = True, WANTED_ROUND
            self._after(optimizer, (), {})
            self._depth += 1

    def _after(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
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

    def _ends(self, optimizer: Any) -> None:
        """End a step, or a part of one if several optimizers make it."""
        is_new = id(optimizer) not in self._stepped
        self._stepped[id(optimizer)] = optimizer
        if is_new and not self.is_over:
            self.rounds, self.captured, self._since = 1, None, monotonic()
            self._works.clear()
            if self._now and self.wanted == 1:
                self.captured = self._take(self._now)
            elif self._now:
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
        groups = (group for made in self._stepped.values() or self._made for group in made.param_groups)
        return [parameter for group in groups for parameter in group["params"]]

    def _idle(self) -> int:
        """Count the optimizers that did not step; one that wraps another, as SAM does, has the other's groups."""
        groups = [made.param_groups for made in self._stepped.values()]
        return sum(all(made.param_groups is not one for one in groups) for made in self._made)

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
        waits = self._idle() and self._steps < MAX_IDLE_STEPS and monotonic() - self._since < MAX_IDLE_S
        is_enough = self.rounds >= WANTED_ROUND or monotonic() - self._since > MAX_STEP_S
        if is_enough and (captured_is_clean or is_late) and not waits:
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
        what = "without gradients between its first steps or before them, to evaluate or to collect samples"
        note = f"{DOUBTFUL}: the program called its models {beside} times {what}; this is not counted"
        notes = [*self._large.notes, *[note] * (beside > WANTED_ROUND)]  # a few are usual, such as a check
        loader = recording.batches[0].loader if recording.batches else None
        is_own = [*self._stepped.values()] == [self._program]
        length = self._program.length
        if not is_own:
            length = run_length(sys._getframe(), loader, self._anew, self._around)
        parameters = self._parameters()
        if is_own and self._program.is_functional:
            owned = Counter(one.shape for model in recording.models.values() for one in model.parameters())
            if Counter(one.shape for one in parameters) <= owned:  # they take the place of the models' own
                parameters = []
        if self.rounds == self.wanted == 1:
            length = RunLength(None, "as no loop is around it", steps=1)
        elif self._is_long:
            repeats = bool(heads_around(sys._getframe()))
            length = length_by_evaluations(length, [*self._stepped.values()][-1], repeats)
        return Capture(
            step, recording, self.rounds, idle=self._idle(),
            steps_by={names[key]: times for key, times in recording.updated_by.items()},
            length=length,
            parameters=parameters, remarks=[*self._remarks, *notes],
        )  # fmt: skip


def _skipped_steps(on_skip: Callable[[], None]) -> AbstractContextManager[None]:
    """Call ``on_skip`` inside the block for each step that loss scaling skips because a gradient overflowed."""

    def may_step(step: Any, scaler: Any, optimizer: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
        if any(float(found) for found in state["found_inf_per_device"].values()):
            on_skip()
        return step(scaler, optimizer, state, *args, **kwargs)

    return watched(torch.amp.GradScaler, _maybe_opt_step=may_step)
