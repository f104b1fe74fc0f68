"""Who runs an op of the graph: the name scopes that Keras opens, as layers, rows found at the call, updates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.tensorflow import core

from fomkit.trace.calls import TracedOp
from fomkit.trace.keras_layers import watch_calls

BACKWARD_SCOPE = "gradient_tape/"
"""What TensorFlow writes before the names of gradients; the name of the op they are of follows."""


@dataclass(eq=False)
class RowOwner:
    """One call that is a row of its own, with the row of each pass."""

    row: TracedOp
    backward: TracedOp | None = None


@dataclass(frozen=True, eq=False)
class Scope:
    """One call of a layer, an attention, or the optimizer: the layer's path, and the row it lies in, if any."""

    path: str
    owner: RowOwner | None = None
    is_update: bool = False


@dataclass(frozen=True)
class LayerMoment:
    """The begin or end of a layer's call: its values, and how many ops its graph had by then."""

    layer: Any
    path: str
    values: Any
    is_end: bool
    graph: Any
    position: int


@dataclass
class Scopes:
    """The scopes of one traced step by the names that the graph gives them.

    Attributes
    ----------
    paths : mapping
        Path of each layer by its ``id``.
    calls : list of LayerMoment
        Calls of layers in the order that they ran.
    """

    paths: Mapping[int, str]
    known: dict[str, Scope] = field(default_factory=dict)
    calls: list[LayerMoment] = field(default_factory=list)
    running: list[Scope] = field(default_factory=lambda: [Scope("loss")])

    def add(self, scope: Scope) -> None:
        """Note the scope that was just opened under the name that the graph has for it."""
        name = tf.get_current_name_scope()
        self.known.setdefault(name, scope)

    def find(self, name: str) -> Scope | None:
        """Find the innermost scope that the name of an op lies in."""
        name = name.removeprefix(BACKWARD_SCOPE)
        while name:
            found = self.known.get(name)
            if found is not None:
                return found
            name = name.rpartition("/")[0]
        return None

    def note(self, layer: Any, path: str, values: Any, *, is_end: bool) -> None:
        """Note that a call of a layer begins or ends, and where in the graph."""
        graph = tf.compat.v1.get_default_graph()
        self.calls.append(LayerMoment(layer, path, values, is_end, graph, len(graph.get_operations())))

    @contextmanager
    def row(self, make: Callable[[str], TracedOp], _factors: Any) -> Iterator[Callable[[Any], None]]:
        """Run a block as a row of its own, unless it lies in one already."""
        path = self.running[-1].path
        owner = self.running[-1].owner or RowOwner(make(path))
        scope = Scope(path, owner)
        with tf.name_scope(owner.row.kind):
            self.add(scope)
            self.running.append(scope)
            try:
                yield lambda _: None
            finally:
                self.running.pop()


@contextmanager
def watch_scopes(scopes: Scopes, row_of: Callable[[Any, Any, Any, str], TracedOp | None]) -> Iterator[None]:
    """Follow the scopes that Keras opens inside the block.

    Parameters
    ----------
    scopes : Scopes
    row_of : function of a layer, its arguments, named arguments and path
        Gives the row of a layer that is one.
    """
    enter: Any = core.name_scope.__enter__

    def entered(self: Any) -> Any:
        result = enter(self)
        if self._pop_on_exit and not tf.executing_eagerly():
            if isinstance(self.caller, keras.optimizers.Optimizer):
                scopes.add(Scope("", is_update=True))
            elif isinstance(self.caller, keras.Layer):
                # The layer's own call has begun already, and knows whether it is a row.
                scopes.add(scopes.running[-1])
        return result

    @contextmanager
    def around(layer: Any, args: Any, kwargs: Any) -> Iterator[Callable[[Any], None]]:
        above = scopes.running[-1]
        path = scopes.paths.get(id(layer), getattr(layer, "name", ""))
        row = row_of(layer, args, kwargs, path) if above.owner is None else None
        scopes.running.append(Scope(path, above.owner if row is None else RowOwner(row)))
        scopes.note(layer, path, (args, kwargs), is_end=False)
        try:
            yield lambda output: scopes.note(layer, path, output, is_end=True)
        finally:
            scopes.running.pop()

    core.name_scope.__enter__ = entered
    try:
        with watch_calls(around):
            yield
    finally:
        core.name_scope.__enter__ = enter
