"""Which ops of a TensorFlow graph a step really runs: reachable from its results, through loops and calls.

What a function traced but nobody reads (a cell called to learn its shapes, the gradient of data) is pruned by the
runtime before it runs, inside loops too, so it is not counted here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Operation = Any
Graph = Any
Tensor = Any
"""TensorFlow's own; it has no types."""

LOOPS = ("While", "StatelessWhile")
CALLS = ("PartitionedCall", "StatefulPartitionedCall")


@dataclass(frozen=True)
class Place:
    """Where an op stands: its graph, the op that runs this graph, and that one's own place."""

    graph: Graph
    caller: Operation = None
    outside: Place | None = None

    def enter(self, caller: Operation, attribute: str) -> Place:
        """Go into a function that an op runs."""
        name = caller.get_attr(attribute).name
        at: Place | None = self
        while at is not None:
            found = at.graph._get_function(name)
            if found is not None:
                return Place(found.graph, caller, self)
            at = at.outside
        raise LookupError(f"{caller.type} {caller.name}: its function {name} is not in the graph")

    def source(self, tensor: Tensor) -> tuple[Tensor, Place]:
        """Follow an argument of this function out to what it is called with, as far as that goes."""
        place = self
        while place.outside is not None and tensor.op.type == "Placeholder":
            at = place.arguments.get(tensor.op.name)
            if at is None or at >= len(place.caller.inputs):
                break
            tensor, place = place.caller.inputs[at], place.outside
        return tensor, place

    @property
    def arguments(self) -> Mapping[str, int]:
        """Positions of the function's arguments by the names of their ops."""
        return {tensor.op.name: at for at, tensor in enumerate(self.graph.inputs)}

    @property
    def callers(self) -> tuple[Operation, ...]:
        """The ops that run this graph, innermost first."""
        return () if self.outside is None else (self.caller, *self.outside.callers)


@dataclass
class Reached:
    """What of a graph runs: ops with the places of their results that are read, and the arguments read."""

    ops: dict[Operation, set[int]] = field(default_factory=dict)
    arguments: set[int] = field(default_factory=set)


def live_variables(loop: Operation, wanted: Iterable[int], place: Place) -> set[int]:
    """Find the loop variables that matter: the results wanted, the condition's, and all they are made from."""
    body, condition = place.enter(loop, "body"), place.enter(loop, "cond")
    live = set(wanted) | reach(condition, [0]).arguments
    while True:
        more = live | reach(body, live).arguments
        if more == live:
            return live
        live = more


def _inputs_of(op: Operation, wanted: set[int], place: Place) -> Iterable[Tensor]:
    """Give the tensors that an op needs for some of its results."""
    if op.type in LOOPS:
        return [op.inputs[at] for at in sorted(live_variables(op, wanted, place))]
    if op.type in CALLS:
        return [op.inputs[at] for at in sorted(reach(place.enter(op, "f"), wanted).arguments)]
    return op.inputs  # type: ignore[no-any-return]


def reach(place: Place, wanted: Iterable[int], also: Iterable[Tensor] = ()) -> Reached:
    """Go from some results of a graph, and from all that it does besides, back to everything these need.

    Parameters
    ----------
    place : Place
    wanted : iterable of int
        Positions of results.
    also : iterable of Tensor
        Further tensors of the graph that are needed.
    """
    graph, found = place.graph, Reached()
    arguments = place.arguments
    waiting: list[tuple[Operation, int]] = [
        (graph.outputs[at].op, graph.outputs[at].value_index) for at in wanted if at < len(graph.outputs)
    ]
    waiting += [(op, -1) for op in graph.control_outputs]
    waiting += [(tensor.op, tensor.value_index) for tensor in also]
    while waiting:
        op, at = waiting.pop()
        known = found.ops.get(op)
        if known is not None and at in known:
            continue
        found.ops.setdefault(op, set()).add(at)
        if op.name in arguments:
            found.arguments.add(arguments[op.name])
        if known is not None and op.type not in (*LOOPS, *CALLS):
            continue
        waiting += [(one.op, one.value_index) for one in _inputs_of(op, found.ops[op] - {-1}, place)]
        waiting += [(one, -1) for one in op.control_inputs]
    return found


@dataclass(frozen=True)
class Ran:
    """One op of the step, how often it runs, and where it stands."""

    op: Operation
    count: int
    place: Place


def walk(place: Place, wanted: Iterable[int], count: int = 1, also: Iterable[Tensor] = ()) -> Iterator[Ran]:
    """Give the ops that run, those inside loops and calls with their counts, in the order of the graph.

    A loop whose trips depend on data is given itself, and nothing of what it runs.
    """
    from fomkit.trace.keras_loops import Uncounted, trips

    reached = reach(place, wanted, also)
    for op in place.graph.get_operations():
        if op not in reached.ops:
            continue
        results = reached.ops[op] - {-1}
        if op.type in LOOPS:
            try:
                times = count * trips(op, place)
            except Uncounted:
                yield Ran(op, count, place)
                continue
            yield from walk(place.enter(op, "body"), live_variables(op, results, place), times)
        elif op.type in CALLS:
            yield from walk(place.enter(op, "f"), results, count)
        else:
            yield Ran(op, count, place)


def whole_step(graph: Graph, also: Iterable[Tensor] = ()) -> list[Ran]:
    """List the ops that one call of a traced function runs, and those that some of its tensors need."""
    return list(walk(Place(graph), range(len(graph.outputs)), also=also))


def constants(ran: Sequence[Ran]) -> set[Operation]:
    """Find the ops whose results are the same in each step: shapes and what is worked out from them.

    The runtime folds them once. Random numbers and variables are no constants.
    """
    found: set[Operation] = set()
    for one in ran:
        op = one.op
        is_shape = op.type in ("Const", "Shape", "ShapeN", "Size", "Rank")
        changes = op.op_def.is_stateful or "Random" in op.type or not op.inputs
        if is_shape or (not changes and all(tensor.op in found for tensor in op.inputs)):
            found.add(op)
    return found
