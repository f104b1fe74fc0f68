"""One training step or inference of a Keras model, traced to a graph and walked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from fomkit.trace.calls import TracedOp
from fomkit.trace.keras_gradients import tensors_of
from fomkit.trace.keras_graph import whole_step
from fomkit.trace.keras_layer_log import GraphLayers
from fomkit.trace.keras_layers import layer_paths
from fomkit.trace.keras_ops import Walked, trace_ops
from fomkit.trace.keras_optimizers import implementation, notes_on, rule_of, update_rows
from fomkit.trace.keras_prepared import Prepared, Update, Values, parted, watch_update
from fomkit.trace.keras_rows import row_of_layer, watch_attention
from fomkit.trace.keras_scopes import Scopes, watch_scopes
from fomkit.trace.step import Step
from fomkit.trace.symbolic import Sizes


def _own_step(prepared: Prepared, seen: Update) -> Callable[[Values], Any]:
    """Make the step of a model that is not compiled: its loss is a function of the output and the inputs."""
    model = prepared.model

    def step(data: Values) -> Any:
        x, given = parted(data)
        with tf.GradientTape() as tape:
            output = model(x, training=True)
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


def _function(prepared: Prepared, seen: Update) -> Callable[[Values], Any]:
    if prepared.mode == "infer":
        return lambda data: prepared.model(parted(data)[0], training=False)
    if prepared.has_own_step:
        return prepared.model.train_step  # type: ignore[no-any-return]
    return _own_step(prepared, seen)


def _seen_anew(step: Callable[[Values], Any], seen: Update) -> Callable[[Values], Any]:
    """Forget what earlier traces saw: one that makes variables is traced twice, and the last graph counts."""

    def traced(data: Values) -> Any:
        seen.gradients.clear()
        seen.variables.clear()
        return step(data)

    return traced


@dataclass(frozen=True)
class WholeStep:
    """A step as a function of its data, what its ops came to, what the optimizer was handed, and its layers."""

    function: Any
    walked: Walked
    seen: Update
    layers: list[TracedOp]


def specs_of(prepared: Prepared, sizes: Sizes) -> Values:
    """Give what a step takes, as TensorFlow specifies it."""
    return keras.tree.map_structure(lambda one: tf.TensorSpec(one.shape, one.dtype), prepared.inputs(sizes))


def whole_step_of(prepared: Prepared, sizes: Sizes, *, update: bool = True) -> WholeStep:
    """Trace one step to a graph and walk it.

    Parameters
    ----------
    prepared : Prepared
    sizes : mapping
    update : bool
        Whether the optimizer's own ops are in it, as it runs.
    """
    scopes = Scopes(layer_paths(prepared.model))
    with (
        watch_update(prepared.optimizer, run=update) as seen,
        watch_scopes(scopes, row_of_layer),
        watch_attention(scopes.row),
    ):
        traced = tf.function(_seen_anew(_function(prepared, seen), seen), jit_compile=False, autograph=False)
        function = traced.get_concrete_function(specs_of(prepared, sizes))
    graph = function.graph
    ran = whole_step(graph, tensors_of(seen.gradients))
    layers = GraphLayers(scopes, graph)
    walked = trace_ops(ran, graph, scopes, seen.gradients, layers)
    return WholeStep(function, walked, seen, layers.rows(prepared.model))


def trace_step(prepared: Prepared, sizes: Sizes) -> Step:
    """Trace one step at the given sizes.

    Raises
    ------
    Exception
        Whatever the user's code or the framework raises.
    """
    plain = bool(prepared.optimizer) and bool(rule_of(prepared.optimizer))
    step = whole_step_of(prepared, sizes, update=not plain)
    return _step(prepared, step.walked, step.seen, step.layers)


def _step(prepared: Prepared, walked: Walked, seen: Update, layers: list[TracedOp]) -> Step:
    ops, states, notes = list(walked.ops), Counter(walked.states), list(walked.notes)
    optimizer: dict[str, str] = {}
    if prepared.mode == "train" and prepared.optimizer is None:
        notes.append("no optimizer is given: the update is not counted")
    elif prepared.mode == "train" and rule_of(prepared.optimizer):
        rows: list[TracedOp] = update_rows(prepared.optimizer, seen.variables)
        ops, optimizer = ops + rows, {"rule": rule_of(prepared.optimizer), "impl": implementation()}
        states["priced"] += len(rows)
        notes += notes_on(prepared.optimizer)
        if any(isinstance(one, tf.IndexedSlices) for one in seen.gradients):
            notes.append("optimizer: sparse gradients are priced as if every row of their tables were updated")
    elif prepared.mode == "train":
        name = type(prepared.optimizer).__name__
        notes.append(f"optimizer: {name} does more than a rule with a formula; its ops are counted one by one")
    return Step(ops + layers, states, Counter(walked.unsupported), optimizer, notes)
