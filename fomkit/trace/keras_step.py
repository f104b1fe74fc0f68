"""One training step or inference of a Keras model, traced to a graph and walked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from fomkit.trace.calls import TracedOp
from fomkit.trace.keras_gradients import tensors_of
from fomkit.trace.keras_graph import whole_step
from fomkit.trace.keras_ops import Walked, trace_ops
from fomkit.trace.keras_optimizers import IMPL, rule_of, update_rows
from fomkit.trace.keras_rows import row_of_layer, watch_attention
from fomkit.trace.keras_scopes import Scopes, layer_paths, watch_scopes
from fomkit.trace.step import Step
from fomkit.trace.symbolic import Sizes

Values = Any
"""Tensors, or specifications of tensors, in tuples, lists and dicts."""


@dataclass(frozen=True)
class Prepared:
    """A workload ready to be traced.

    Attributes
    ----------
    inputs : function of the named sizes
        Gives what the model takes and what the loss compares with; the latter may be None.
    loss : function of (output, inputs), optional
        Without one the model's own training step runs.
    """

    model: Any
    inputs: Callable[[Sizes], tuple[Values, Values]]
    loss: Callable[[Any, Any], Any] | None
    optimizer: Any
    mode: str


@dataclass
class _Update:
    """What the optimizer was handed while the step was traced."""

    gradients: list[Any] = field(default_factory=list)
    variables: list[Any] = field(default_factory=list)


@contextmanager
def _watch_update(optimizer: Any, *, run: bool) -> Iterator[_Update]:
    """Note what the optimizer is handed inside the block; its own ops are traced only where ``run`` says so."""
    seen = _Update()
    if optimizer is None:
        yield seen
        return
    apply = optimizer.apply

    def watched(grads: Any, trainable_variables: Any = None) -> Any:
        grads = list(grads)
        variables = list(optimizer._trainable_variables if trainable_variables is None else trainable_variables)
        for gradient, variable in zip(grads, variables, strict=True):
            if gradient is not None:
                seen.gradients.append(gradient)
                seen.variables.append(variable)
        return apply(grads, variables) if run else None

    optimizer.apply = watched
    try:
        yield seen
    finally:
        del optimizer.apply


def _own_step(prepared: Prepared, seen: _Update) -> Callable[[Values, Values], Any]:
    """Make the step of a model that is not compiled: its loss is a function of the output and the inputs."""
    model = prepared.model

    def step(x: Values, y: Values) -> Any:
        with tf.GradientTape() as tape:
            output = model(x, training=True)
            given = x if y is None else (x, y)
            loss = prepared.loss(output, given) if prepared.loss else _plain_loss(output)
            loss = tf.add_n([tf.cast(loss, tf.float32), *model.losses]) if model.losses else loss
        variables = model.trainable_variables
        gradients = tape.gradient(loss, variables)
        if prepared.optimizer is None:
            seen.gradients += [one for one in gradients if one is not None]
            return loss
        prepared.optimizer.apply(gradients, variables)
        return loss

    return step


def _plain_loss(output: Any) -> Any:
    return tf.reduce_sum(tf.nest.flatten(output)[0])


def _function(prepared: Prepared, seen: _Update) -> Callable[[Values, Values], Any]:
    if prepared.mode == "infer":
        return lambda x, _y: prepared.model(x, training=False)
    if prepared.loss is None and prepared.model.compiled:
        return lambda x, y: prepared.model.train_step((x,) if y is None else (x, y))
    return _own_step(prepared, seen)


def trace_step(prepared: Prepared, sizes: Sizes) -> Step:
    """Trace one step at the given sizes.

    Raises
    ------
    Exception
        Whatever the user's code or the framework raises.
    """
    x, y = prepared.inputs(sizes)
    scopes = Scopes(layer_paths(prepared.model))
    plain = bool(prepared.optimizer) and bool(rule_of(prepared.optimizer))
    with (
        _watch_update(prepared.optimizer, run=not plain) as seen,
        watch_scopes(scopes, row_of_layer),
        watch_attention(scopes),
    ):
        traced = tf.function(_function(prepared, seen), jit_compile=False, autograph=False)
        graph = traced.get_concrete_function(x, y).graph
    ran = whole_step(graph, tensors_of(seen.gradients))
    walked = trace_ops(ran, graph, scopes, seen.gradients)
    return _step(prepared, walked, seen, plain)


def _step(prepared: Prepared, walked: Walked, seen: _Update, plain: bool) -> Step:
    ops, states, notes = list(walked.ops), Counter(walked.states), list(walked.notes)
    optimizer: dict[str, str] = {}
    if prepared.mode == "train" and prepared.optimizer is None:
        notes.append("no optimizer is given: the update is not counted")
    elif prepared.mode == "train" and plain:
        rows: list[TracedOp] = update_rows(prepared.optimizer, seen.variables)
        ops, optimizer = ops + rows, {"rule": rule_of(prepared.optimizer), "impl": IMPL}
        states["priced"] += len(rows)
        if any(isinstance(one, tf.IndexedSlices) for one in seen.gradients):
            notes.append("optimizer: sparse gradients are priced as if every row of their tables were updated")
    elif prepared.mode == "train":
        name = type(prepared.optimizer).__name__
        notes.append(f"optimizer: {name} does more than a rule with a formula; its ops are counted one by one")
    return Step(ops, states, Counter(walked.unsupported), optimizer, notes)
