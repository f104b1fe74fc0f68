"""Make the draft of a profile from a step traced at several sizes; used by the child process of every tracer.

`trace_sizes` traces the step and expresses its sizes by names, `make_draft` counts what was traced, and
`run_file_request` runs a request from the parent process.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, fields
from functools import wraps
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any

from fomkit.core.errors import FomkitError
from fomkit.core.model import BATCH, Workload
from fomkit.files.child_process import error_content, read_request
from fomkit.frontends.layers import count_layers, split_layers
from fomkit.frontends.lowering.calls import UPDATE, TracedOp
from fomkit.frontends.model_file import CodeLines, explain_exception
from fomkit.frontends.sizes import NoExpression, OtherOps, Sizes, name_sizes
from fomkit.frontends.step import Draft, Route, Step, count_rows, name_order, order_rows, row_places

Trace = Callable[[Sizes], Step]


@contextmanager
def replaced(owner: Any, **others: Any) -> Iterator[None]:
    """Replace attributes inside the block; at its end, the owner has again its own, or those that it inherits."""
    before = {name: own for name, own in vars(owner).items() if name in others}
    for name, other in others.items():
        setattr(owner, name, other)
    try:
        yield
    finally:
        for name in others:
            if name in before:
                setattr(owner, name, before[name])
            else:
                delattr(owner, name)


def watched(owner: Any, **others: Callable[..., Any]) -> AbstractContextManager[None]:
    """Replace functions inside the block; each replacement gets the original as its first argument."""

    def handed(own: Callable[..., Any], other: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(own)
        def called(*args: Any, **kwargs: Any) -> Any:
            return other(own, *args, **kwargs)

        return called

    return replaced(owner, **{name: handed(getattr(owner, name), other) for name, other in others.items()})


@contextmanager
def no_collection() -> Iterator[None]:
    """Disable garbage collection, which would free tensors at times that depend on earlier runs."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def watch_made(kind: Any, note: Callable[[Any, str], object]) -> AbstractContextManager[None]:
    """Call ``note`` for each object of a class made inside the block, with the user's line that makes it."""
    make, code = kind.__init__, CodeLines()

    # Keras inspects a constructor's signature, and would not see the arguments of one made by `watched`.
    def made(one: Any, *args: Any, **kwargs: Any) -> None:
        make(one, *args, **kwargs)
        note(one, code.of(sys._getframe(1)))

    return replaced(kind, __init__=made)


class Refused(NoExpression):
    """The code does not run at some sizes."""


def _attempts(name: str, value: int) -> Iterator[tuple[int, ...]]:
    """Yield groups of four values to trace a size at, of which two may do; later groups are for code that fails.

    A batch grows. Any other size shrinks first, since tables of positions end at its value. Odd values reveal
    rounding; where the code refuses them, halves and quarters may work.
    """
    if name == BATCH or value < 8:
        yield 2 * value, 3 * value, 5 * value, 7 * value
        return
    yield value - 1, value // 2 + 1, value // 3 + 2, 2 * value // 3 + 1
    yield value // 2, value // 4, 3 * value // 4, value // 8
    yield 2 * value, 3 * value, 4 * value, 5 * value


@dataclass
class _Exploration:
    """State of the search: steps by point, the points whose steps fit together, and why sizes stay fixed.

    `until`: time of `monotonic` after which no point is begun: steps that run with data may take minutes.
    """

    trace: Trace
    sizes: Sizes
    ops: list[TracedOp]
    until: float
    traced: dict[tuple[int, ...], Step | Exception] = field(default_factory=dict)
    points: list[Sizes] = field(default_factory=list)
    values: dict[str, tuple[int, ...]] = field(default_factory=dict)
    fixed: dict[str, str] = field(default_factory=dict)

    def at(self, sizes: Sizes) -> Step:
        """Return the step at a point, traced once; raise Refused, each time, if it failed or there is no time."""
        point = tuple(sizes.values())
        if point not in self.traced:
            if monotonic() > self.until:
                raise Refused("the steps so far took too long to try others within the time limit")
            try:
                self.traced[point] = self.trace(sizes)
            except Exception as error:  # the user's code may raise anything at sizes it was not written for
                self.traced[point] = error
        found = self.traced[point]
        if isinstance(found, Exception):
            changed = ", ".join(f"{name} {sizes[name]}" for name in sizes if sizes[name] != self.sizes[name])
            message = str(found).strip().split("\n")[0]
            raise Refused(f"at {changed} the step raises {type(found).__name__}: {message:.200}") from found
        return found

    def add(self, name: str) -> None:
        """Name one more size, or note why it stays fixed."""
        for values in _attempts(name, self.sizes[name]):
            try:
                self._name(name, values[:2])
                return
            except Refused as reason:
                self._keep_fixed(name, reason)
                continue
            except NoExpression as reason:
                self._keep_fixed(name, reason)
                if isinstance(reason, OtherOps):
                    return
            with suppress(NoExpression):  # two more points can resolve longer sums
                self._name(name, values)
            return

    def _keep_fixed(self, name: str, reason: NoExpression) -> None:
        self.fixed[name] = f"the sizes hold for {name} {self.sizes[name]} only: {reason}"

    def _name(self, name: str, values: tuple[int, ...]) -> None:
        points = list(self.points)
        for place, value in enumerate(values):  # sizes already named change too, so that products of sizes show
            others = {other: known[(place + 1) % len(known)] for other, known in self.values.items()}
            points.append({**self.sizes, **others, name: value})
        first = [self.at(point).ops for point in points[:2]]
        if not self.values and len({*map(len, first)}) > 1:  # a step at a larger size may be dear
            try:
                name_sizes(first, points[:2], [name])
            except NoExpression as reason:
                if isinstance(reason, OtherOps):
                    raise
        self.ops = name_sizes([self.at(point).ops for point in points], points, [*self.values, name])
        self.values[name], self.points = (self.sizes[name], *values), points
        self.fixed.pop(name, None)

    def order(self) -> tuple[list[TracedOp], list[str]]:
        """Return the order with as many sizes named as possible, and the names of sizes held at their value."""
        names = list(self.values)
        for most in range(len(names), 0, -1):
            some = names[:most]
            held = {name: self.sizes[name] for name in names[most:]}
            points = [point for point in self.points if held.items() <= point.items()]
            with suppress(NoExpression):
                return name_order([self.at(point).order for point in points], points, some), names[most:]
        return self.at(self.sizes).order, names


@dataclass(frozen=True)
class SizedStep:
    """A step whose sizes have names.

    `ops`, `order`: its ops and lines, with sizes as names.
    `fixed`, `notes`: why sizes have to stay fixed; further notes.
    """

    step: Step
    sizes: Sizes
    ops: list[TracedOp]
    order: list[TracedOp]
    fixed: list[str]
    notes: list[str]


def _with_names(
    trace: Trace, sizes: Sizes, traced: dict[tuple[int, ...], Step | Exception], until: float
) -> _Exploration:
    """Name as many sizes as possible, starting from the step at ``sizes``, which may be in ``traced``."""
    exploration = _Exploration(trace, sizes, [], until, traced, [sizes])
    exploration.ops = exploration.at(sizes).ops
    for name in sizes:
        exploration.add(name)
    return exploration


def _explore(trace: Trace, sizes: Sizes, step: Step, until: float) -> SizedStep:
    exploration, from_two = _with_names(trace, sizes, {tuple(sizes.values()): step}, until), []
    if sizes.get(BATCH) == 1 and BATCH in exploration.fixed:
        # A batch of 1 is often a special case: no copy to reorder it, no sum over it.
        with suppress(NoExpression):
            several = _with_names(trace, {**sizes, BATCH: 2}, exploration.traced, until)
            if BATCH not in several.fixed:
                reason = exploration.fixed[BATCH].partition(": ")[2]
                from_two = [f"batch 1 has the ops of larger batches here, though its own differ: {reason}"]
                exploration, step = several, several.at(several.sizes)
    order, held = exploration.order()
    notes = [f"the order of the ops, and so the memory, holds at one {' and '.join(held)} only"] if held else []
    return SizedStep(step, sizes, exploration.ops, order, list(exploration.fixed.values()), [*notes, *from_two])


def trace_sizes(trace: Trace, sizes: Sizes, most_s: float = inf) -> SizedStep:
    """Trace a step and express its sizes by names, the batch first; note why a size has to stay fixed.

    `most_s`: after that time no step at other sizes is begun [s].
    """
    until = monotonic() + most_s
    step = trace(sizes)
    found = _explore(trace, sizes, step, until)
    if not (found.fixed or found.notes):
        return found
    # The first step may have filled caches or lazy layers, which later steps do not repeat.
    again = trace(sizes)
    if again.ops == step.ops and again.order == step.order:
        return found
    return _explore(trace, sizes, again, until)


@dataclass(frozen=True)
class Request:
    """A request for a trace.

    `where`: the user's file, "" in a notebook.
    `sizes`: requested values of named sizes; the workload's own where absent.
    `route`: how tensors are made without data, `Route`.
    `nodes`: whether the nodes of a graph are returned, too.
    `most_s`: time after which no step at other sizes is begun [s].
    """

    name: str
    where: str
    mode: str
    sizes: Sizes
    route: Route = "meta"
    nodes: bool = False
    most_s: float = inf


@dataclass(frozen=True)
class Traced:
    """What a draft states of the model itself: its class, what traced it, and its parameters."""

    kind: str
    traced_with: Mapping[str, str]
    parameters_total: int
    parameters_trainable: int


SUMMED = "no loss is given: the sum of the output's first tensor is taken as the loss"
"""Note on a training step without a loss; the loss is then listed as missing."""


def traced_with(framework: str, version: object, device: str, mode: str) -> dict[str, str]:
    """Return what traced a model, for the profile's head."""
    return {"framework": framework, "version": str(version), "device": device, "mode": mode}


def make_draft(
    workload: Workload, request: Request, model: Traced, sized: SizedStep, notes: Sequence[str]
) -> Draft:
    """Make the draft of a traced step; ``notes`` are those from before the step ran."""
    step = sized.step
    ops, layers = split_layers(sized.ops)
    unused_batch = _unused_batch_notes(ops, sized.sizes, request, sized.fixed)
    rows, parts = count_rows(ops)
    infer = request.mode == "infer"
    missing = ["loss"] * (SUMMED in (*notes, *step.notes))
    missing += [UPDATE] * (not infer and all(op.pass_name != UPDATE for op in ops))
    order = order_rows(sized.order, step.ops, sized.ops, row_places(sized.ops)) if sized.order else None
    title = f"{model.kind}, {'inference' if infer else 'training step'}"
    return Draft(
        request.name, title, rows, parts, count_layers(layers),
        sizes=dict(sized.sizes), traced_with=dict(model.traced_with), parameters_total=model.parameters_total,
        parameters_trainable=model.parameters_trainable,
        # An inference step is no part of a training run, so it has no samples and epochs.
        train_samples=None if infer else workload.train_samples,
        validation_samples=None if infer else workload.validation_samples,
        last_batch=workload.last_batch, epochs=None if infer else workload.epochs, optimizer=step.optimizer,
        unsupported=step.listed_unsupported, bounded=sorted(step.bounded), order=order,
        missing=missing,
        notes=[step.shares, *step.of_bounds, *notes, *unused_batch, *step.notes, *sized.fixed, *sized.notes,
               *workload.notes],
    )  # fmt: skip


def _unused_batch_notes(
    ops: Sequence[TracedOp], sizes: Sizes, request: Request, fixed: Sequence[str]
) -> list[str]:
    """Return a note if no op depends on the batch; raise FomkitError if a batch was requested."""
    if fixed or any("batch" in str(value) for op in ops for value in op.dimensions.values()):
        return []
    if "batch" in request.sizes:  # the same work would count for another number of samples
        raise FomkitError(
            request.where or "profile",
            f"no op depends on the batch, so {request.sizes['batch']} samples cannot be profiled. Let "
            "inputs(batch) use its batch.",
        )
    samples = f"{sizes['batch']} sample{'s' * (sizes['batch'] > 1)}"
    return [f"no op depends on the batch: the work is assumed to be that of {samples}"]


def run_file_request(
    profile: Callable[..., Mapping[str, object]], is_final: Callable[[BaseException], bool] = lambda _: True
) -> None:
    """Run one request, then end the process at once, whatever threads and exit handlers the file left behind.

    `profile`: called with the path, the request, and the message's further entries by name; returns the answer:
    the draft and whatever else was requested. `is_final`: whether an error stays whatever way tensors are made.
    """
    message, answer = read_request()
    path = Path(message.pop("path"))
    sys.argv = [str(path)]
    request = Request(**{one.name: message.pop(one.name) for one in fields(Request) if one.name in message})
    try:
        result = profile(path, request, **message)
    except BaseException as error:  # the file may raise anything, even SystemExit; the parent process reports it
        result = {**error_content(explain_exception(error, request.where, path)), "final": is_final(error)}
    answer.write(result)
    os._exit(0)
