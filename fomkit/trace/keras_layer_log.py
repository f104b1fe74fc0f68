"""The layers of a TensorFlow graph's forward pass: calls of layers, put between the ops that the graph runs."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import tensorflow as tf

from fomkit.trace.calls import Array, Call, TracedOp
from fomkit.trace.keras_calls import ShapeUnknown, as_array
from fomkit.trace.keras_graph import Graph, Place, Ran
from fomkit.trace.keras_layers import LayerCalls, owners_of
from fomkit.trace.keras_scopes import Scope, Scopes
from fomkit.trace.layer_log import LayerLog

_WORDS: Mapping[str, str] = {
    **dict.fromkeys(("Add", "AddV2", "AddN"), "add"), **dict.fromkeys(("Concat", "ConcatV2"), "concat"),
    "Mul": "mul", "Relu": "relu", "Softmax": "softmax", "dot_product_attention": "attention",
}  # fmt: skip
"""Types of functions by their op; any other goes by the op's name."""


class GraphLayers:
    """Collects the layers while the ops of a graph are gone through in order.

    Parameters
    ----------
    scopes : Scopes
        With the calls of layers.
    graph : FuncGraph
        Of the whole step; calls inside its functions are no layers of their own.
    """

    def __init__(self, scopes: Scopes, graph: Graph) -> None:
        self._place = Place(graph)
        self._log = LayerLog(lambda op: _WORDS.get(op, op))
        self._calls = LayerCalls(self._log)
        self._waiting = [one for one in scopes.calls if one.graph is graph]
        self._waiting.reverse()
        self._positions = {op: place for place, op in enumerate(graph.get_operations())}

    def _arrays(self, values: Any) -> tuple[Array, ...]:
        found: dict[Array, None] = {}
        for leaf in tf.nest.flatten(values):
            if isinstance(leaf, tf.Tensor) and getattr(leaf, "graph", None) is self._place.graph:
                with suppress(ShapeUnknown):
                    array = as_array(leaf, self._place)
                    found |= {} if array is None else {array: None}
        return tuple(found)

    def _go_to(self, position: float) -> None:
        while self._waiting and self._waiting[-1].position <= position:
            one = self._waiting.pop()
            arrays = self._arrays(one.values)
            if one.is_end:
                self._calls.end(one.layer, arrays)
            else:
                self._calls.begin(one.layer, one.path, arrays)

    def note(self, ran: Ran, call: Call, scope: Scope) -> None:
        """Note an op of the forward pass that has work."""
        outermost = (ran.op, *ran.place.callers)[-1]
        self._go_to(self._positions[outermost])
        self._log.note_op(call, scope)

    def rows(self, model: Any) -> list[TracedOp]:
        """Give the layers in the order of their calls, then those whose weights no call has."""
        self._go_to(float("inf"))
        return self._log.rows(owners_of(model))
