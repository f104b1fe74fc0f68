"""Who runs an op of the graph: the name scopes that Keras opens, as layers, rows found at the call, updates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.tensorflow import core

from fomkit.trace.calls import TracedOp

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


@dataclass
class Scopes:
    """The scopes of one traced step by the names that the graph gives them.

    Attributes
    ----------
    paths : mapping
        Path of each layer by its ``id``.
    """

    paths: Mapping[int, str]
    known: dict[str, Scope] = field(default_factory=dict)
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

    @contextmanager
    def row(self, row: TracedOp) -> Iterator[None]:
        """Run a block as a row of its own, unless it lies in one already."""
        owner = self.running[-1].owner or RowOwner(row)
        scope = Scope(self.running[-1].path, owner)
        with tf.name_scope(row.kind):
            self.add(scope)
            self.running.append(scope)
            try:
                yield
            finally:
                self.running.pop()


def layer_paths(model: Any) -> dict[int, str]:
    """Give the path of each layer inside a model, by its ``id``: names joined by dots, the model's left out."""
    paths = {id(model): ""}
    waiting = [model]
    while waiting:
        layer = waiting.pop()
        for inner in getattr(layer, "_layers", ()):
            if id(inner) not in paths:
                above = paths[id(layer)]
                paths[id(inner)] = f"{above}.{inner.name}" if above else inner.name
                waiting.append(inner)
    return paths


@contextmanager
def watch_scopes(scopes: Scopes, row_of: Callable[[Any, Any, Any, str], TracedOp | None]) -> Iterator[None]:
    """Follow the scopes that Keras opens inside the block.

    Parameters
    ----------
    scopes : Scopes
    row_of : function of a layer, its arguments, named arguments and path
        Gives the row of a layer that is one.
    """
    enter, call = core.name_scope.__enter__, keras.Layer.__call__

    def entered(self: Any) -> Any:
        result = enter(self)
        if self._pop_on_exit and not tf.executing_eagerly():
            if isinstance(self.caller, keras.optimizers.Optimizer):
                scopes.add(Scope("", is_update=True))
            elif isinstance(self.caller, keras.Layer):
                # The layer's own call has begun already, and knows whether it is a row.
                scopes.add(scopes.running[-1])
        return result

    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        above = scopes.running[-1]
        path = scopes.paths.get(id(self), getattr(self, "name", ""))
        row = row_of(self, args, kwargs, path) if above.owner is None else None
        owner = above.owner if row is None else RowOwner(row)
        scope = Scope(path, owner)
        scopes.running.append(scope)
        try:
            return call(self, *args, **kwargs)
        finally:
            scopes.running.pop()

    with ExitStack() as stack:
        for owner, name, replacement, before in (
            (core.name_scope, "__enter__", entered, enter),
            (keras.Layer, "__call__", called, call),
        ):
            setattr(owner, name, replacement)
            stack.callback(setattr, owner, name, before)
        yield
