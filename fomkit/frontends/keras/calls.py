"""Find the ops of a TensorFlow graph that a step really runs, through loops and calls, with arguments by name.

Ops that a function traced but whose results are not read (a cell called to learn its shapes, the gradient of data)
are pruned by the runtime before it runs, inside loops too, so they are not counted here. `walk` returns the ops
that run, `describe_call` makes a framework-free `Call`, `trips` counts the trips of a loop.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from fomkit.frontends.lowering.calls import Array, Call, format_name, packed_strides
from fomkit.frontends.lowering.tf import PRODUCTS

Operation = Any
Graph = Any
Tensor = Any
"""TensorFlow's own; it has no types."""

LOOPS = ("While", "StatelessWhile")
CALLS = ("PartitionedCall", "StatefulPartitionedCall")
BRANCHES = ("If", "StatelessIf", "Case", "StatelessCase")
CONTROL = frozenset([*LOOPS, *CALLS, *BRANCHES])
"""Ops that run functions of the graph."""


def _graph_of(function: Any, inside: Graph, given: Sequence[Tensor]) -> Graph:
    """Return the graph of a function; build it once if only its definition exists, as in TensorFlow's losses.

    If the function only calls another one with its own first arguments, as a loop's body in these losses does,
    return the other function's graph.
    """
    if not hasattr(function, "graph"):
        from tensorflow.python.framework.function_def_to_graph import function_def_to_graph

        shapes, definition = [tensor.shape for tensor in given], deepcopy(function.definition)
        for attributes in definition.arg_attr.values():
            attributes.attr.pop("_output_shapes", None)  # these may be unknown, and would take precedence
        with inside.as_default():
            made = function_def_to_graph(definition, input_shapes=shapes, include_library_functions=True)
        calls = [op for op in made.get_operations() if op.type not in ("Placeholder", "Identity")]
        inner = made._get_function(calls[0].type) if len(calls) == 1 else None
        handed = zip(calls[0].inputs, made.inputs, strict=False) if inner is not None else ()
        is_wrapper = inner is not None and all(one.name == other.name for one, other in handed)
        function.graph = _graph_of(inner, made, calls[0].inputs) if is_wrapper else made
    return function.graph


def _handed(caller: Operation) -> Sequence[Tensor]:
    """Return the tensors that an op hands to the function that it runs; a branch keeps its condition."""
    return caller.inputs[1:] if caller.type in BRANCHES else caller.inputs  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Place:
    """The place of an op: its graph, the op that runs this graph, and that op's place."""

    graph: Graph
    caller: Operation = None
    outside: Place | None = None

    def enter(self, caller: Operation, attribute: str) -> Place:
        """Return the place inside a function that an op runs."""
        return self._place_in(caller, caller.get_attr(attribute).name)

    def sides(self, branch: Operation) -> list[Place]:
        """Return the places inside the functions between which an op chooses."""
        if branch.type.endswith("Case"):
            names = [one.name for one in branch.get_attr("branches")]
        else:
            names = [branch.get_attr(name).name for name in ("then_branch", "else_branch")]
        return [self._place_in(branch, name) for name in names]

    def _place_in(self, caller: Operation, name: str) -> Place:
        at: Place | None = self
        while at is not None:
            found = at.graph._get_function(name)
            if found is not None:
                return Place(_graph_of(found, at.graph, _handed(caller)), caller, self)
            at = at.outside
        raise LookupError(f"{caller.type} {caller.name}: its function {name} is not in the graph")

    def source(self, tensor: Tensor) -> tuple[Tensor, Place]:
        """Follow an argument of this function outwards to the tensor that it is called with, if possible."""
        place = self
        while place.outside is not None and tensor.op.type == "Placeholder":
            at = place.arguments.get(tensor.op.name)
            given = _handed(place.caller)
            if at is None or at >= len(given):
                break
            tensor, place = given[at], place.outside
        return tensor, place

    @property
    def arguments(self) -> Mapping[str, int]:
        """Positions of the function's arguments by the names of their ops."""
        return {tensor.op.name: at for at, tensor in enumerate(self.graph.inputs)}

    @property
    def calls(self) -> tuple[tuple[Operation, Place], ...]:
        """The ops that run this graph, innermost first, each with its place."""
        return () if self.outside is None else ((self.caller, self.outside), *self.outside.calls)

    @property
    def callers(self) -> tuple[Operation, ...]:
        """The ops that run this graph, innermost first."""
        return tuple(caller for caller, _ in self.calls)


@dataclass
class Reached:
    """The part of a graph that runs: ops with the indices of their results read, and the arguments read."""

    ops: dict[Operation, set[int]] = field(default_factory=dict)
    arguments: set[int] = field(default_factory=set)


def live_variables(loop: Operation, wanted: Iterable[int], place: Place) -> set[int]:
    """Return the loop variables in use: the results wanted, the condition's, and all that these depend on."""
    body, condition = place.enter(loop, "body"), place.enter(loop, "cond")
    live = set(wanted) | reach(condition, [0]).arguments
    while True:
        more = live | reach(body, live).arguments
        if more == live:
            return live
        live = more


def _inputs_of(op: Operation, wanted: set[int], place: Place) -> Iterable[Tensor]:
    """Return the tensors that an op needs for some of its results."""
    if op.type in LOOPS:
        return [op.inputs[at] for at in sorted(live_variables(op, wanted, place))]
    if op.type in CALLS:
        return [op.inputs[at] for at in sorted(reach(place.enter(op, "f"), wanted).arguments)]
    return op.inputs  # type: ignore[no-any-return]


def reach(place: Place, wanted: Iterable[int], also: Iterable[Tensor] = ()) -> Reached:
    """Follow wanted results (positions) of a graph, and its side effects, back to everything that they need."""
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
        if known is not None and op.type not in CONTROL:
            continue
        waiting += [(one.op, one.value_index) for one in _inputs_of(op, found.ops[op] - {-1}, place)]
        waiting += [(one, -1) for one in op.control_inputs]
    return found


@dataclass(frozen=True)
class Ran:
    """One op of the step, its count (below 1 if not every step runs it), and its place."""

    op: Operation
    count: float
    place: Place

    @property
    def times(self) -> int:
        """Its count as a whole number, for lists of ops."""
        return max(round(self.count), 1)


def walk(place: Place, wanted: Iterable[int], count: float = 1, also: Iterable[Tensor] = ()) -> Iterator[Ran]:
    """Yield the ops that run, those inside loops and calls with their counts, in the order of the graph.

    For a loop whose trips depend on data, the loop itself is returned, without the ops inside. Of a branch that
    depends on data the longest side counts, see `longest_side`; of one that counts steps, each side its share.
    """
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
        elif op.type in BRANCHES:
            if every := steps_between(op, place):
                often, rarely = reversed(place.sides(op))
                yield from walk(rarely, results, count / every)
                yield from walk(often, results, count * (every - 1) / every)
            else:
                yield from walk(longest_side(op, results, place), results, count)
        else:
            yield Ran(op, count, place)


_SIDES = "_fomkit_sides"
"""Attribute of a graph with the sides that were chosen, by their conditions."""


def _multiplies(op: Operation) -> bool:
    return op.type in PRODUCTS or "Conv" in op.type


def _work_of(side: Place, wanted: Iterable[int]) -> tuple[float, float]:
    """Return how many products or convolutions, and how many ops, a side runs."""
    ran = list(walk(side, wanted))
    products = sum(one.count for one in ran if _multiplies(one.op))
    return products, sum(one.count for one in ran)


def longest_side(branch: Operation, wanted: Iterable[int], place: Place) -> Place:
    """Return the side of a branch that runs the most products for some of its results, or else the most ops.

    All branches of a graph with the same condition take the same side, as in a step: a gradient that of its op.
    """
    condition, sides = branch.inputs[0], place.sides(branch)
    if not hasattr(place.graph, _SIDES):
        setattr(place.graph, _SIDES, {})
    chosen: dict[tuple[str, bool, int], int] = getattr(place.graph, _SIDES)
    key = condition.name, branch.type.endswith("Case"), len(sides)
    if key not in chosen:
        chosen[key] = max(range(len(sides)), key=lambda at: _work_of(sides[at], wanted))
    return sides[chosen[key]]


def steps_between(branch: Operation, place: Place) -> int:
    """Return n if a branch takes its first side in one of n steps, as where gradients accumulate; else 0.

    Such a branch compares a remainder by n with a number; the dividend is taken for a counter of steps.
    """
    compared = _through(branch.inputs[0]).op
    remainders = [one.op for one in map(_through, compared.inputs) if one.op.type == "FloorMod"]
    if compared.type != "Equal" or len(remainders) != 1 or branch.type.endswith("Case"):
        return 0
    every = _bound_value(remainders[0].inputs[1], place)
    return int(every) if every is not None and every > 1 else 0


def constants(ran: Sequence[Ran]) -> set[Operation]:
    """Return the ops whose results are the same in each step: shapes and results computed from them.

    The runtime computes them once. Random numbers and variables are not constants.
    """
    found: set[Operation] = set()
    for one in ran:
        op = one.op
        is_shape = op.type in ("Const", "Shape", "ShapeN", "Size", "Rank")
        changes = op.op_def.is_stateful or "Random" in op.type or not op.inputs
        if is_shape or (not changes and all(tensor.op in found for tensor in op.inputs)):
            found.add(op)
    return found


_OTHERS = ("resource", "variant", "string")
"""Formats of tensors that hold no numbers: handles, lists and texts."""

_ALIASES = frozenset(
    ["EnsureShape", "ExpandDims", "Identity", "IdentityN", "PreventGradient", "Reshape", "Squeeze", "StopGradient"]
)
"""Ops whose result shares the memory of their input."""

_STATISTICS = 2
"""Index of the last meaningful result of a fused normalisation: values, mean and variance."""


class ShapeUnknown(Exception):  # noqa: N818 - a verdict, not a fault
    """A tensor's shape depends on data."""


def dtype_name(dtype: Any) -> str:
    """Return fomkit's name of a number format."""
    return format_name(str(getattr(dtype, "name", dtype)), getattr(dtype, "size", 0))


def _is_known(tensor: Tensor) -> bool:
    return tensor.shape.rank is not None and None not in tensor.shape.as_list()


def is_scratch(tensor: Tensor) -> bool:
    """Return whether a tensor is what a fused op keeps for its own gradient, whose size depends on the device."""
    return str(tensor.op.type).startswith("FusedBatchNorm") and int(tensor.value_index) > _STATISTICS


def _shape(tensor: Tensor, place: Place) -> tuple[int, ...]:
    """Return a shape: the tensor's own, that of a function's argument, or the shape it is reshaped to next."""
    source, _ = place.source(tensor)
    reshaped = (op.outputs[0] for op in tensor.consumers() if op.type == "Reshape")
    for one in (tensor, source, *reshaped):
        if _is_known(one):
            return tuple(one.shape.as_list())
    raise ShapeUnknown(f"{tensor.op.type}: the shape of {tensor.name} depends on data")


def origin_of(tensor: Tensor) -> Tensor:
    """Return the tensor whose memory a tensor shares."""
    while tensor.op.type in _ALIASES:
        tensor = tensor.op.inputs[tensor.value_index if tensor.op.type == "IdentityN" else 0]
    return tensor


def as_array(tensor: Tensor, place: Place) -> Array | None:
    """Describe a tensor, stored row by row; None if it holds no numbers."""
    if tensor.dtype.name in _OTHERS:
        return None
    shape = _shape(tensor, place)
    origin = origin_of(tensor)
    number = id(origin.op) + origin.value_index
    return Array(shape, packed_strides(shape), dtype_name(tensor.dtype), tensor.dtype.size, number)


def _inputs(op: Operation, arrays: Sequence[Array | None]) -> dict[str, Any]:
    """Return the arguments by name; a variable number of inputs becomes a tuple."""
    found: dict[str, Any] = {}
    at = 0
    for argument in op.op_def.input_arg:
        if argument.number_attr or argument.type_list_attr:
            stated = op.get_attr(argument.number_attr or argument.type_list_attr)
            many = stated if argument.number_attr else len(stated)
            found[argument.name] = tuple(arrays[at : at + many])
            at += many
        else:
            found[argument.name] = arrays[at]
            at += 1
    return found


def describe_call(ran: Ran, folded: Container[Operation], *, in_backward: bool, of_transposed: bool) -> Call:
    """Describe an op of a graph without the framework.

    `folded`: ops whose results are computed once; inputs from them of unknown length, such as lists of axes, are
    ignored and cost nothing, unless they are factors; `of_transposed`: whether the op is a gradient of a
    transposed convolution. Raises ShapeUnknown if a shape depends on data.
    """
    op, place = ran.op, ran.place
    may_fold = () if _multiplies(op) else folded
    ignored = [not _is_known(tensor) and (tensor.op in may_fold or is_scratch(tensor)) for tensor in op.inputs]
    given = zip(op.inputs, ignored, strict=True)
    arguments = _inputs(op, [None if is_ignored else as_array(tensor, place) for tensor, is_ignored in given])
    for attribute in op.op_def.attr:
        if attribute.type in ("bool", "int", "string", "list(int)", "float"):
            value = op.get_attr(attribute.name)
            arguments[attribute.name] = value.decode() if isinstance(value, bytes) else value
    arguments |= {"in_backward": in_backward, "of_transposed": of_transposed}
    made = [tensor for tensor in op.outputs if _is_known(tensor) or not is_scratch(tensor)]
    results = [array for tensor in made if (array := as_array(tensor, place)) is not None]
    return Call(op.type, arguments, tuple(results))


class Uncounted(Exception):  # noqa: N818 - a verdict, not a fault
    """The trips of a loop depend on data."""


def _constant(tensor: Tensor) -> float | None:
    """Compute a number from constants; return None if it depends on anything else."""
    import tensorflow as tf

    value = tf.get_static_value(tensor)
    if value is None:
        graph = tf.compat.v1.graph_util.extract_sub_graph(tensor.graph.as_graph_def(), [tensor.op.name])
        if any(node.op in ("Placeholder", "ReadVariableOp", *LOOPS) for node in graph.node):
            return None
        with tf.Graph().as_default() as alone:
            (again,) = tf.graph_util.import_graph_def(graph, return_elements=[tensor.name], name="")
            with tf.compat.v1.Session(graph=alone) as session:
                value = session.run(again)
    return float(value) if getattr(value, "size", 1) == 1 else None


def _bound_value(tensor: Tensor, place: Place) -> float | None:
    """Return the number at which a loop starts or ends; it may be another loop's counter after its last trip."""
    tensor, place = place.source(tensor)
    while tensor.op.type == "Identity":
        tensor, place = place.source(tensor.op.inputs[0])
    if tensor.op.type in LOOPS:
        loop, at = tensor.op, tensor.value_index
        start, step = _bound_value(loop.inputs[at], place), _step_of_variable(place.enter(loop, "body"), at)
        return None if start is None or step is None else start + step * trips(loop, place)
    if tensor.op.type in CALLS:
        inner = place.enter(tensor.op, "f")
        return _bound_value(inner.graph.outputs[tensor.value_index], inner)
    return _constant(tensor)


def _through(tensor: Tensor) -> Tensor:
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return tensor


def _step_of_variable(body: Place, at: int) -> float | None:
    """Return by how much a trip changes a loop variable; None if not by a constant."""
    made = _through(body.graph.outputs[at])
    arguments = body.arguments
    if arguments.get(made.op.name) == at:
        return 0.0
    if made.op.type not in ("AddV2", "Add", "Sub"):
        return None
    first, second = map(_through, made.op.inputs)
    if arguments.get(first.op.name) != at:
        return None
    by_variable = arguments.get(second.op.name)
    changes = by_variable is not None and _step_of_variable(body, by_variable) != 0
    by = None if changes else _bound_value(second, body)
    return by if by is None or made.op.type != "Sub" else -by


def _comparisons(tensor: Tensor) -> list[Operation]:
    op: Any = _through(tensor).op
    if op.type == "LogicalAnd":
        return [comparison for tensor in op.inputs for comparison in _comparisons(tensor)]
    return [op]


def trips(loop: Operation, place: Place) -> int:
    """Count the trips of a loop; raise Uncounted if they depend on data."""
    condition, body = place.enter(loop, "cond"), place.enter(loop, "body")
    found = []
    for op in _comparisons(condition.graph.outputs[0]):
        up = {"Less": 1, "LessEqual": 1, "Greater": -1, "GreaterEqual": -1}.get(op.type, 0)
        counter = condition.arguments.get(_through(op.inputs[0]).op.name) if up else None
        step = None if counter is None else _step_of_variable(body, counter)
        if counter is None or not step or step * up < 0:
            continue
        start, bound = _bound_value(loop.inputs[counter], place), _bound_value(op.inputs[1], condition)
        if start is not None and bound is not None:
            last = bound + up * op.type.endswith("Equal")
            found.append(max(-int(-(last - start) // step), 0))
    if not found:
        raise Uncounted(f"the number of iterations of the loop {loop.name} depends on data")
    return min(found)
