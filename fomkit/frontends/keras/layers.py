"""Layers of a Keras model: begin and end of each call, the ops of the graph that it runs, and its line of code.

Keras alone calls a model made of its own classes: no line of the user's runs while the graph is made. The line
that made the layer is used instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from math import prod
from typing import Any

import keras

from fomkit.core.units import item_byte
from fomkit.frontends.drafting import watch_made, watched
from fomkit.frontends.keras.calls import Graph, Place, Ran, ShapeUnknown, as_array, dtype_name
from fomkit.frontends.layers import LayerLog, RowOwner, Scope, Weight
from fomkit.frontends.lowering.calls import FORWARD, Array, Call, TracedOp
from fomkit.frontends.model_file import CodeLines

_LAYER_WORDS: Mapping[str, str] = {
    "Conv": "conv", "DepthwiseConv": "conv", "SeparableConv": "conv", "ConvTranspose": "transposed_conv",
    "Dense": "linear", "EinsumDense": "linear", "Embedding": "embedding", "ReLU": "relu", "LeakyReLU": "LeakyReLU",
    "Softmax": "softmax", "BatchNormalization": "batch_norm", "LayerNormalization": "layer_norm",
    "GroupNormalization": "group_norm", "MaxPooling": "pool", "AveragePooling": "pool",
    "GlobalMaxPooling": "pool", "GlobalAveragePooling": "pool", "Dropout": "dropout", "SpatialDropout": "dropout",
    "Flatten": "flatten", "LSTM": "lstm", "GRU": "gru", "SimpleRNN": "rnn", "MultiHeadAttention": "attention",
    "GroupedQueryAttention": "attention", "Attention": "attention", "Concatenate": "concat", "Add": "add",
}  # fmt: skip
"""Types of layers by Keras's name, without axes; an activation goes by its function, others by their own name."""


def layer_word(layer: Any) -> str:
    """Return the type of a layer."""
    name = type(layer).__name__
    if isinstance(layer, keras.layers.Activation):
        return str(getattr(layer.activation, "__name__", name))
    for axes in ("1D", "2D", "3D"):
        name = name.replace(axes, "")
    return _LAYER_WORDS.get(name, type(layer).__name__)


def is_layer(layer: Any) -> bool:
    """Return whether a layer counts: no layers inside, or one of Keras's own with layers inside; never a model."""
    if isinstance(layer, keras.Model):
        return False
    inside = any(True for _ in layer._flatten_layers(include_self=False, recursive=False))
    return not inside or type(layer).__module__.startswith("keras.")


def weights_of(layer: Any, *, inside: bool) -> Iterator[Weight]:
    """Yield the trainable tensors of a layer, with or without those of layers inside it."""
    bias = getattr(layer, "bias", None)
    for one in layer._flatten_layers() if inside else [layer]:
        for variable in one._trainable_variables:
            numel = prod(variable.shape)
            yield Weight(id(variable), numel, int(numel * item_byte(dtype_name(variable.dtype))), variable is bias)


def layer_paths(model: Any) -> dict[int, str]:
    """Return the path of each layer inside a model, by its ``id``: names joined by dots, without the model's."""
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


def placed_layers(model: Any) -> Iterator[tuple[Any, str]]:
    """Return every layer with its path."""
    paths = layer_paths(model)
    return ((layer, paths.get(id(layer), layer.name)) for layer in model._flatten_layers())


def owners_of(model: Any) -> Iterator[tuple[str, str, Iterator[Weight]]]:
    """Yield type, path and own weights of every layer."""
    for layer, path in placed_layers(model):
        yield layer_word(layer), path, weights_of(layer, inside=False)


class LayerCalls:
    """Reports to a log the calls of layers that count; calls inside a counted call do not.

    For a layer that the program itself calls, its model, only the first call in a step counts.
    """

    def __init__(self, log: LayerLog) -> None:
        self.log = log
        self._seen: set[int] = set()
        self._running: list[str] = []

    def begin(self, layer: Any, path: str, given: tuple[Array, ...]) -> None:
        """Begin a call."""
        above = self._running[-1] if self._running else ""
        if not above:
            found = "again" if id(layer) in self._seen else "model"
            self._seen.add(id(layer))
            if found == "model":
                self.log.begin(given)
        elif above not in ("model", "part"):
            found = "inside"
        elif is_layer(layer):
            found = "layer"
            self.log.enter(path, given)
        else:
            found = "part"
        self._running.append(found)

    def end(self, layer: Any, made: tuple[Array, ...]) -> None:
        """End a call."""
        found = self._running.pop()
        if found == "model":
            self.log.end()
        elif found == "layer":
            word = layer_word(layer)
            self.log.leave(word, weights_of(layer, inside=True), made, is_dropout=word == "dropout")


OpWatch = AbstractContextManager[Callable[[Any], None]]
"""A context whose value is called with the result of the code inside."""


def watch_calls(around: Callable[[Any, Any, Any], OpWatch]) -> AbstractContextManager[None]:
    """Run every call of a layer in the context that ``around`` makes."""

    def called(call: Any, layer: Any, *args: Any, **kwargs: Any) -> Any:
        with around(layer, args, kwargs) as report:
            output = call(layer, *args, **kwargs)
            report(output)
            return output

    return watched(keras.Layer, __call__=called)


BACKWARD_SCOPE = "gradient_tape/"
"""Prefix of TensorFlow's names of gradients; the name of the differentiated op follows."""


def scopes_around(name: str, mark: str = "/") -> Iterator[str]:
    """Yield a name and the names of its enclosing scopes, from the inside out.

    >>> list(scopes_around("model/dense/MatMul"))
    ['model/dense/MatMul', 'model/dense', 'model']
    """
    while name:
        yield name
        name = name.rpartition(mark)[0]


@dataclass(frozen=True)
class LayerMoment:
    """The begin or end of a layer's call: its values, and the number of ops in its graph at that time."""

    layer: Any
    path: str
    values: Any
    is_end: bool
    graph: Any
    position: int


@dataclass
class Scopes:
    """The scopes of one traced step by the names that the graph gives them.

    `paths`: path of each layer by its ``id``.
    `calls`: calls of layers in the order in which they ran.
    """

    paths: Mapping[int, str]
    known: dict[str, Scope] = field(default_factory=dict)
    calls: list[LayerMoment] = field(default_factory=list)
    running: list[Scope] = field(default_factory=lambda: [Scope("loss")])

    def add(self, scope: Scope) -> None:
        """Register the scope that was just opened under its name in the graph."""
        import tensorflow as tf

        self.known.setdefault(tf.get_current_name_scope(), scope)

    def find(self, name: str) -> Scope | None:
        """Return the innermost scope that encloses the name of an op."""
        around = scopes_around(name.removeprefix(BACKWARD_SCOPE))
        return next((self.known[one] for one in around if one in self.known), None)

    def note(self, layer: Any, path: str, values: Any, *, is_end: bool) -> None:
        """Record that a call of a layer begins or ends, and where in the graph."""
        import tensorflow as tf

        graph = tf.compat.v1.get_default_graph()
        self.calls.append(LayerMoment(layer, path, values, is_end, graph, len(graph.get_operations())))

    @contextmanager
    def row(self, make: Callable[[str], TracedOp], _factors: Any) -> Iterator[Callable[[Any], None]]:
        """Run a block as a row of its own, unless it is inside one already."""
        import tensorflow as tf

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


def _shaped(layer: Any, args: Any, output: Any) -> Any:
    """Return a layer's output, in whose shape the graph learns what the layer states and its ops do not show."""
    with suppress(Exception):  # a layer may not state it, or not for these arguments
        if not output.shape.is_fully_defined():
            output.set_shape(layer.compute_output_shape(args[0].shape))
    return output


@contextmanager
def watch_scopes(scopes: Scopes, row_of: Callable[[Any, Any, Any, str], TracedOp | None]) -> Iterator[None]:
    """Record the scopes that Keras opens inside the block; ``row_of`` returns the row of a layer that has one."""
    import tensorflow as tf
    from keras.src.backend.tensorflow import core

    def entered(enter: Any, scope: Any) -> Any:
        result = enter(scope)
        if scope._pop_on_exit and not tf.executing_eagerly():
            if isinstance(scope.caller, keras.optimizers.Optimizer):
                scopes.add(Scope("", is_update=True))
            elif isinstance(scope.caller, keras.Layer):
                # The layer's call has begun already, and its scope has the row if there is one.
                scopes.add(scopes.running[-1])
        return result

    @contextmanager
    def around(layer: Any, args: Any, kwargs: Any) -> Iterator[Callable[[Any], None]]:
        above = scopes.running[-1]
        path = scopes.paths.get(id(layer), getattr(layer, "name", ""))
        row = row_of(layer, args, kwargs, path) if above.owner is None else None
        reads_text = any(getattr(leaf, "dtype", None) == tf.string for leaf in tf.nest.flatten((args, kwargs)))
        on_host = above.on_host or (reads_text and is_layer(layer))
        scopes.running.append(Scope(path, above.owner if row is None else RowOwner(row), on_host=on_host))
        scopes.note(layer, path, (args, kwargs), is_end=False)
        try:
            yield lambda output: scopes.note(layer, path, _shaped(layer, args, output), is_end=True)
        finally:
            scopes.running.pop()

    with watched(core.name_scope, __enter__=entered), watch_calls(around):
        yield


_LOG_WORDS: Mapping[str, str] = {
    **dict.fromkeys(("Add", "AddV2", "AddN"), "add"), **dict.fromkeys(("Concat", "ConcatV2"), "concat"),
    "Mul": "mul", "Relu": "relu", "Softmax": "softmax", "dot_product_attention": "attention",
}  # fmt: skip
"""Types of functions by their op; any other function goes by the op's name."""


class GraphLayers:
    """Collects the layers while the ops of a graph are visited in order.

    `scopes`: with the calls of layers.
    `graph`: of the whole step; calls inside its functions are no layers of their own.
    """

    def __init__(self, scopes: Scopes, graph: Graph) -> None:
        self._place = Place(graph)
        self._log = LayerLog(lambda op: _LOG_WORDS.get(op, op))
        self._calls = LayerCalls(self._log)
        self._waiting = [call for call in scopes.calls if call.graph is graph]
        self._waiting.reverse()
        self._positions = {op: place for place, op in enumerate(graph.get_operations())}

    def _arrays(self, values: Any) -> tuple[Array, ...]:
        import tensorflow as tf

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
        """Add an op of the forward pass that has work."""
        outermost = (ran.op, *ran.place.callers)[-1]
        self._go_to(self._positions[outermost])
        self._log.note_op(call, scope)

    def rows(self, model: Any) -> list[TracedOp]:
        """Return the layers in the order of their calls, then those whose weights belong to no call."""
        self._go_to(float("inf"))
        return self._log.rows(owners_of(model))


_MADE: dict[int, str] = {}
"""Line that made each layer, by its ``id``."""


def watch_made_layers() -> AbstractContextManager[None]:
    """Record the line of code that makes each layer inside the block."""
    return watch_made(keras.Layer, lambda layer, line: _MADE.update({id(layer): line}))


class GraphLines:
    """Finds the lines of a graph's ops (a gradient has its op's); `paths`: path of each layer by ``id``."""

    def __init__(self, paths: Mapping[int, str]) -> None:
        self._code = CodeLines()
        self._made = {path: _MADE[layer] for layer, path in paths.items() if layer in _MADE}
        self._of_names: dict[tuple[int, str], str] = {}

    def find(self, ran: Ran, scope: Scope, pass_name: str) -> dict[str, int]:
        """Return the line of an op with its executions, as `TracedOp.lines`; empty if the line is unknown."""
        graph, name = id(ran.place.graph), ran.op.name
        if pass_name == FORWARD:
            stack = ((frame.filename, frame.lineno, frame.name) for frame in reversed(ran.op.traceback or ()))
            line = self._code.of_stack(stack) or self._line_of_layer(scope.path)
            self._of_names[graph, name] = line
            # A gradient may be named after the scope only: …/dense/ReluGrad for …/dense/Relu.
            self._of_names.setdefault((graph, name.rpartition("/")[0]), line)
        else:
            around = scopes_around(name.removeprefix(BACKWARD_SCOPE))
            line = next((self._of_names[graph, one] for one in around if (graph, one) in self._of_names), "")
            line = line or self._line_of_layer(scope.path)
        return {line: ran.times} if line else {}

    def _line_of_layer(self, path: str) -> str:
        # The model itself is left out, since it contains the loss too.
        return next((line for one in scopes_around(path, ".") if (line := self._made.get(one, ""))), "")
