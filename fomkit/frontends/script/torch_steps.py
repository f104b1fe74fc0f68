"""Which step of a running program is taken: later than the first, after every optimizer has had its turn.

How many epochs it has is read from the user's source, where a loop says so.
"""

from __future__ import annotations

import ast
import operator
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any
from weakref import WeakSet

import torch
from torch.optim import optimizer as hooks

from fomkit.frontends.detect import source_tree
from fomkit.frontends.drafting import replaced, watch_made
from fomkit.frontends.script import torch_recorder
from fomkit.frontends.script.child import WANTED_ROUND
from fomkit.frontends.script.torch_recorder import Fetched, OuterCalls, Recording, watch_loaders
from fomkit.frontends.step import Step
from fomkit.frontends.step_spread import rough_work
from fomkit.frontends.torch.step import watch_backward

_ARITHMETIC: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
}  # fmt: skip
_WRAPPERS = frozenset({"enumerate", "tqdm", "islice", "iter", "zip", "reversed", "progress_bar", "track"})
"""Calls that hand on, one by one, what their first argument gives."""
_RANGES = frozenset({"range", "trange"})


class Unknown(Exception):  # noqa: N818 - a verdict, not a fault
    """The source does not say."""


@dataclass(frozen=True)
class Epochs:
    """How many epochs a run has: None where no loop says it, and where that was read or why it is not known."""

    count: int | None
    origin: str


@dataclass(frozen=True)
class _Loop:
    node: ast.For | ast.While
    frame: FrameType

    @property
    def place(self) -> str:
        return f"{Path(self.frame.f_code.co_filename).name}:{self.node.lineno}"


@cache
def _loops_of_file(path: str) -> tuple[ast.For | ast.While, ...]:
    tree = source_tree(Path(path))
    return tuple(node for node in (ast.walk(tree) if tree else ()) if isinstance(node, ast.For | ast.While))


def _loops_around(frame: FrameType) -> list[_Loop]:
    """Give the loops of a frame's own function whose body runs now, the outermost first."""
    line, code = frame.f_lineno, frame.f_code
    if line is None:
        return []
    own = (node for node in _loops_of_file(code.co_filename) if code.co_firstlineno <= node.lineno)
    found = [node for node in own if node.body[0].lineno <= line <= (node.body[-1].end_lineno or 0)]
    return [_Loop(node, frame) for node in sorted(found, key=lambda node: node.lineno)]


def _value(node: ast.expr, frame: FrameType) -> Any:
    """Look a plain expression up in a frame: names, attributes, items and arithmetic; nothing is called."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        for names in (frame.f_locals, frame.f_globals):
            if node.id in names:
                return names[node.id]
    if isinstance(node, ast.Attribute):
        return getattr(_value(node.value, frame), node.attr)
    if isinstance(node, ast.Subscript):
        return _value(node.value, frame)[_value(node.slice, frame)]
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        return _ARITHMETIC[type(node.op)](_value(node.left, frame), _value(node.right, frame))
    if isinstance(node, ast.Call) and _called(node) == "int" and len(node.args) == 1:
        return int(_value(node.args[0], frame))
    raise Unknown


def _known(node: ast.expr, frame: FrameType) -> Any:
    try:
        return _value(node, frame)
    except Exception:  # whatever the user's objects raise when they are looked at
        return None


def _is_over(node: ast.expr, frame: FrameType, loader: Any) -> bool:
    """Tell whether an expression is a loader, or a progress bar around it."""
    value = _known(node, frame)
    return value is loader or getattr(value, "__dict__", {}).get("iterable") is loader


def _called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def _unwrapped(node: ast.expr) -> Iterator[ast.expr]:
    """Give what a loop goes over: the expression, and where it is only wrapped, what is inside."""
    yield node
    if isinstance(node, ast.Call) and _called(node) in _WRAPPERS:
        for argument in node.args:
            yield from _unwrapped(argument)


def _rounds(loop: _Loop) -> int | None:
    """Give how often a ``for … in range(…)`` runs."""
    if not isinstance(loop.node, ast.For):
        return None
    for node in _unwrapped(loop.node.iter):
        if isinstance(node, ast.Call) and _called(node) in _RANGES and 1 <= len(node.args) <= 3:
            bounds = [_known(argument, loop.frame) for argument in node.args]
            return len(range(*bounds)) if all(type(bound) is int for bound in bounds) else None
    return None


def epochs_around(frame: FrameType | None, is_user_file: Callable[[str], bool], loader: Any) -> Epochs:
    """Find the epochs: the rounds of the ``range`` loop right outside of the loop over the training data.

    `frame`: the innermost of the program's frames; `is_user_file`: tells the user's own source from libraries';
    `loader`: what the training data comes from; None where there is none.
    """
    if loader is None:
        return Epochs(None, "no loop over a DataLoader was found")
    loops: list[_Loop] = []
    while frame is not None:
        if is_user_file(frame.f_code.co_filename):
            loops = _loops_around(frame) + loops
        frame = frame.f_back
    for place, loop in enumerate(loops):
        over = _unwrapped(loop.node.iter) if isinstance(loop.node, ast.For) else ()
        if any(_is_over(node, loop.frame, loader) for node in over):
            return _outside(loops[:place], loop)
    return Epochs(None, "the loop over the DataLoader is not one that can be read")


def _outside(loops: list[_Loop], data: _Loop) -> Epochs:
    if not loops:
        return Epochs(None, f"no loop stands around the one over the data at {data.place}")
    rounds = _rounds(loops[-1])
    if rounds is None:
        return Epochs(None, f"the loop at {loops[-1].place} is no range of a known length")
    return Epochs(rounds or None, f"from the loop at {loops[-1].place}")


FURTHER_ROUNDS = 4
"""Steps that are waited for one that stands alone: in the middle of an epoch, with a full batch."""
PATIENCE = 50
"""Steps of optimizers after which one that never took any is left out."""


@dataclass(frozen=True)
class Taken:
    """A recorded step and what was seen around it.

    `seen`: what the program did in it.
    `place`: which step of the program it is, from 1.
    `steps_by`: how often each optimizer stepped in it, by class name and order.
    `idle`: optimizers that were made and never stepped.
    `remarks`: on the program as a whole.
    `works`: rough work of each recorded step that is like this one, this one among them (`step_spread`).
    """

    step: Step
    seen: Recording
    place: int
    steps_by: Mapping[str, int]
    idle: int
    epochs: Epochs
    parameters: list[torch.Tensor]
    remarks: list[str]
    works: tuple[float, ...] = ()


class StepWatch:
    """Follows a program's optimizers and records its steps until one can be taken.

    A step ends where the optimizer steps. Of several optimizers, one round of all is a step: from one step of the
    optimizer that came last to its next one.

    `is_user_file`: tells the user's own source from libraries'.
    `on_taken`: called once; it may raise what ends the program.

    `rounds`, `backwards`: steps and backward passes that were seen.
    `taken`: the best step so far.
    `is_over`: whether a step was taken for good.
    """

    def __init__(self, is_user_file: Callable[[str], bool], on_taken: Callable[[Taken], None]) -> None:
        self.rounds = self.backwards = 0
        self.taken: Taken | None = None
        self._is_user_file, self._on_taken = is_user_file, on_taken
        self._made: WeakSet[Any] = WeakSet()
        self._stepped: dict[int, torch.optim.Optimizer] = {}
        self._steps = self._depth = 0
        self.is_over = False
        self._now: Recording | None = None
        self._calls = OuterCalls(self._model_begins)
        self._process = os.getpid()
        self._remarks: dict[str, None] = {}
        self._works: list[tuple[bool, float]] = []

    @property
    def seen(self) -> str:
        """Say what was seen of a program that never updated anything."""
        return f", with {self.backwards} backward passes" if self.backwards else ""

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Follow what runs inside the block."""
        with ExitStack() as stack:
            stack.enter_context(watch_made(torch.optim.Optimizer, lambda one, _: self._made.add(one)))
            stack.enter_context(self._calls.watch())
            stack.enter_context(watch_backward(self._backward, self._engine))
            stack.enter_context(watch_loaders(self._loader_starts, self._batch, self._quietly))
            stack.enter_context(torch_recorder.watch_autocast(self._note))
            stack.enter_context(torch_recorder.watch_compile(self._remarks.setdefault))
            stack.enter_context(_skipped_steps(self._skipped))
            stack.callback(hooks.register_optimizer_step_pre_hook(self._before).remove)
            stack.callback(hooks.register_optimizer_step_post_hook(self._after).remove)
            try:
                yield
            finally:
                if self._now:
                    self._now.close()

    @contextmanager
    def _backward(self, outputs: Any, fills: bool) -> Iterator[None]:
        self.backwards += 1
        with self._now.backward(outputs, fills) if self._now else nullcontext():
            yield

    def _engine(self) -> Any:
        return self._now.watched_engine() if self._now else nullcontext()

    def _model_begins(self, model: torch.nn.Module, args: Any) -> None:
        if self._now:
            self._now.model_begins(model, args)

    def _loader_starts(self) -> None:
        if self._now:
            self._now.forget()

    def _batch(self, batch: Fetched) -> None:
        if self._now:
            self._now.batches.append(batch)
            self._now.is_clean &= batch.is_full

    @contextmanager
    def _quietly(self) -> Iterator[None]:
        now = self._now
        before = now.pause(True) if now else False
        try:
            yield
        finally:
            if now:
                now.pause(before)

    def _note(self, text: str) -> None:
        if self._now:
            self._now.note(text)

    def _skipped(self) -> None:
        """Record anew where loss scaling leaves a step out."""
        if self._now:
            self._now.close()
            self._now = self._record()

    def _before(self, _optimizer: Any, args: Any, kwargs: Any) -> Any:
        self._depth += 1
        if self._depth > 1 or self._now is None:
            return None
        now = self._now
        now.pause(True)

        def watched(closure: Any) -> Any:
            def run(*given: Any, **named: Any) -> Any:
                now.closures += 1
                now.pause(False)
                try:
                    return closure(*given, **named)
                finally:
                    now.pause(True)

            return run if callable(closure) else closure

        return (args[0], *map(watched, args[1:])), {name: watched(value) for name, value in kwargs.items()}

    def _after(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        self._depth -= 1
        if self._depth or os.getpid() != self._process:
            return
        if self.is_over:
            os._exit(0)  # a program that would not be stopped
        self._steps += 1
        if self._now:
            self._now.pause(False)
            self._now.update(optimizer)
        is_new = id(optimizer) not in self._stepped
        self._stepped[id(optimizer)] = optimizer
        if is_new:
            self.rounds, self.taken = 1, None
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
        found = self._take(self._now)
        self._works.append((found.seen.is_clean, rough_work(found.step.ops)))
        if self.taken is None or found.seen.is_clean or not self.taken.seen.is_clean:
            self.taken = found
        taken_is_clean = self.taken.seen.is_clean
        is_late = self.rounds >= WANTED_ROUND + FURTHER_ROUNDS
        waits = self._idle() and self._steps < PATIENCE
        if self.rounds >= WANTED_ROUND and (taken_is_clean or is_late) and not waits:
            self._now, self.is_over = None, True
            works = tuple(work for is_clean, work in self._works if is_clean == taken_is_clean)
            self.taken = replace(self.taken, works=works)
            self._on_taken(self.taken)

    def _take(self, recording: Recording) -> Taken:
        stepped = enumerate(self._stepped.items(), start=1)
        names = {key: f"{type(made).__name__} {place}" for place, (key, made) in stepped}
        step = recording.close()
        loader = recording.batches[0].loader if recording.batches else None
        return Taken(
            step, recording, self.rounds, idle=self._idle(),
            steps_by={names[key]: times for key, times in recording.updated_by.items()},
            epochs=epochs_around(sys._getframe(), self._is_user_file, loader),
            parameters=self._parameters(), remarks=list(self._remarks),
        )  # fmt: skip


@contextmanager
def _skipped_steps(on_skip: Callable[[], None]) -> Iterator[None]:
    """Tell of steps that loss scaling leaves out, because a gradient overflowed, inside the block."""
    kind: Any = torch.amp.GradScaler
    step = kind._maybe_opt_step

    def watched(self: Any, optimizer: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
        if any(float(found) for found in state["found_inf_per_device"].values()):
            on_skip()
        return step(self, optimizer, state, *args, **kwargs)

    with replaced(kind, _maybe_opt_step=watched):
        yield
