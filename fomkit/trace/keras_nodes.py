"""Nodes of a Keras step's graph, and the rows of the op table that each belongs to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fomkit.trace.calls import FORWARD, UPDATE, TracedOp
from fomkit.trace.explore_sizes import SizedStep
from fomkit.trace.graph_nodes import GraphNode, Nodes
from fomkit.trace.keras_graph import LOOPS, Operation, Ran
from fomkit.trace.keras_ops import Placed
from fomkit.trace.keras_optimizers import rule_of, update_rows
from fomkit.trace.keras_prepared import Prepared
from fomkit.trace.keras_step import WholeStep
from fomkit.trace.op_table import row_places
from fomkit.trace.order_table import places_of
from fomkit.trace.rnn_passes import split_gradients

_PRODUCTS = ("MatMul", "Conv2D", "Conv3D", "DepthwiseConv2dNative")
_FUSED = ("BiasAdd", "Add", "AddV2", "Relu", "Relu6", "Elu", "LeakyRelu", "Tanh", "Sigmoid", "FusedBatchNormV3")
_LONGEST = 3
"""Most ops that TensorFlow's remapper puts behind a product."""


def node_name(ran: Ran) -> str:
    """Name a node as profilers do: the loops and calls around it before its own name."""
    name = str(ran.op.name)
    for caller in ran.place.callers:
        name = f"{caller.name}/{'body/' if caller.type in LOOPS else ''}{name}"
    return name


def _products(placed: Iterable[Placed]) -> dict[Operation, str]:
    """Find what may run inside a product's kernel, and that product's name."""
    found: dict[Operation, str] = {}
    for one in placed:
        op, name = one.ran.op, node_name(one.ran)
        if op.type not in _PRODUCTS or one.pass_name != FORWARD:
            continue
        for _ in range(_LONGEST):
            followers = [after for after in op.outputs[0].consumers() if after.type in _FUSED]
            if len(followers) != 1:
                break
            op = followers[0]
            found[op] = name
    return found


class _Places:
    """The row of the op table that a traced op became."""

    def __init__(self, sized: SizedStep) -> None:
        rows = row_places(sized.ops)
        places = places_of(sized.step.ops, sized.ops)
        self._of: Mapping[object, int] = {
            (op.identity, tuple(op.dimensions.items())): rows[place]
            for op, place in zip(reversed(sized.step.ops), reversed(places), strict=True)
        }

    def of(self, ops: Iterable[TracedOp]) -> list[int]:
        found = (self._of.get((op.identity, tuple(op.dimensions.items()))) for op in ops)
        return [place for place in found if place is not None]


def nodes_of_step(prepared: Prepared, step: WholeStep, sized: SizedStep) -> Nodes:
    """Tell of each node of a whole step which rows it belongs to.

    Parameters
    ----------
    prepared : Prepared
    step : WholeStep
        At the sizes of ``sized``.
    sized : SizedStep
        What the op table was made of.
    """
    places, products = _Places(sized), _products(step.walked.placed)
    by_rule = bool(prepared.optimizer) and bool(rule_of(prepared.optimizer))
    updates = places.of(update_rows(prepared.optimizer, step.seen.variables)) if by_rule else []
    nodes: Nodes = {}
    for one in step.walked.placed:
        if one.pass_name == UPDATE and by_rule:
            rows = updates
        elif one.owner is not None:
            owner = one.owner.row if one.pass_name == FORWARD else one.owner.backward or one.owner.row
            rows = places.of(split_gradients(owner))
        else:
            rows = places.of(one.rows)
        nodes[node_name(one.ran)] = GraphNode(
            str(one.ran.op.type), one.pass_name, one.ran.count, rows, products.get(one.ran.op, "")
        )
    return nodes
