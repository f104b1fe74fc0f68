"""How often a loop of a TensorFlow graph runs: a counter, its step and its bound, where these are constants."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from fomkit.trace.keras_graph import LOOPS, Operation, Place, Tensor


class Uncounted(Exception):  # noqa: N818 - a verdict, not a fault
    """The trips of a loop depend on data."""


def _constant(tensor: Tensor) -> float | None:
    """Work out a number from constants; None where it depends on anything else."""
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


def _value(tensor: Tensor, place: Place) -> float | None:
    """Work out a number that a loop starts from or ends at; another loop's counter after its last trip."""
    tensor, place = place.source(tensor)
    while tensor.op.type == "Identity":
        tensor, place = place.source(tensor.op.inputs[0])
    if tensor.op.type in LOOPS:
        loop, at = tensor.op, tensor.value_index
        start, step = _value(loop.inputs[at], place), _step(place.enter(loop, "body"), at)
        return None if start is None or step is None else start + step * trips(loop, place)
    return _constant(tensor)


def _through(tensor: Tensor) -> Tensor:
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return tensor


def _step(body: Place, at: int) -> float | None:
    """Tell by how much a trip changes a loop variable; None where not by a constant."""
    made = _through(body.graph.outputs[at])
    arguments = body.arguments
    if arguments.get(made.op.name) == at:
        return 0.0
    if made.op.type not in ("AddV2", "Add", "Sub"):
        return None
    first, second = map(_through, made.op.inputs)
    if arguments.get(first.op.name) != at:
        return None
    by = _constant(second)
    return by if by is None or made.op.type != "Sub" else -by


def _comparisons(tensor: Tensor) -> list[Operation]:
    op: Any = _through(tensor).op
    if op.type == "LogicalAnd":
        return [one for tensor in op.inputs for one in _comparisons(tensor)]
    return [op]


def trips(loop: Operation, place: Place) -> int:
    """Count the trips of a loop.

    Raises
    ------
    Uncounted
        When no counter with a constant bound ends it.
    """
    condition, body = place.enter(loop, "cond"), place.enter(loop, "body")
    found = []
    for op in _comparisons(condition.graph.outputs[0]):
        counter = (
            condition.arguments.get(_through(op.inputs[0]).op.name) if op.type in ("Less", "LessEqual") else None
        )
        step = None if counter is None else _step(body, counter)
        if counter is None or not step or step < 0:
            continue
        start, bound = _value(loop.inputs[counter], place), _value(op.inputs[1], condition)
        if start is not None and bound is not None:
            last = bound + (op.type == "LessEqual")
            found.append(max(-int(-(last - start) // step), 0))
    if not found:
        raise Uncounted(f"the trips of the loop {loop.name} depend on data")
    return min(found)
