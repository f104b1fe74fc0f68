"""The line of the user's code behind each op of a graph, or the line that made its layer.

A model of Keras's own classes is called by Keras alone: none of the user's lines runs when its graph is made.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import keras

from fomkit.trace.calls import FORWARD
from fomkit.trace.keras_graph import Operation, Ran
from fomkit.trace.keras_scopes import BACKWARD_SCOPE, Scope
from fomkit.trace.user_code import CodeLines

_MADE: dict[int, str] = {}
"""Line that made each layer, by its ``id``."""


@contextmanager
def watch_made_layers() -> Iterator[None]:
    """Note where the layers are made that are made inside the block."""
    make, code = keras.Layer.__init__, CodeLines()

    def made(layer: Any, *args: Any, **kwargs: Any) -> None:
        make(layer, *args, **kwargs)
        _MADE[id(layer)] = code.of(sys._getframe(1))

    keras.Layer.__init__ = made
    try:
        yield
    finally:
        keras.Layer.__init__ = make


class GraphLines:
    """Finds the lines of a graph's ops; of a gradient, that of the op it is of.

    Parameters
    ----------
    paths : mapping
        Path of each layer by its ``id``.
    """

    def __init__(self, paths: Mapping[int, str]) -> None:
        self._code = CodeLines()
        self._made = {path: _MADE[layer] for layer, path in paths.items() if layer in _MADE}
        self._of_names: dict[tuple[int, str], str] = {}

    def find(self, ran: Ran, scope: Scope, pass_name: str) -> dict[str, int]:
        """Give the line of an op with its executions, as `TracedOp.lines`; none where nobody knows."""
        graph, name = id(ran.place.graph), ran.op.name
        if pass_name == FORWARD:
            line = self._code.of_stack(_stack(ran.op)) or self._of_layer(scope.path)
            self._of_names[graph, name] = line
            # A gradient may be named after the scope only: …/dense/ReluGrad for …/dense/Relu.
            self._of_names.setdefault((graph, name.rpartition("/")[0]), line)
        else:
            line = self._of_forward(graph, name.removeprefix(BACKWARD_SCOPE)) or self._of_layer(scope.path)
        return {line: ran.count} if line else {}

    def _of_forward(self, graph: int, name: str) -> str:
        while name and (graph, name) not in self._of_names:
            name = name.rpartition("/")[0]
        return self._of_names.get((graph, name), "")

    def _of_layer(self, path: str) -> str:
        while path and not self._made.get(path):
            path = path.rpartition(".")[0]
        return self._made.get(path, "") if path else ""  # the model itself has the loss in it too


def _stack(op: Operation) -> Iterator[tuple[str, int, str]]:
    for frame in reversed(op.traceback):
        yield frame.filename, frame.lineno, frame.name
