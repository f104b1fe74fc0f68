"""Trace the step of a Keras workload to a graph, walk it, add its update and nodes, and draft its profile.

The workload comes from a user's file, in a child process, or was made in this process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module
from math import prod
from pathlib import Path
from typing import Any

import keras

from fomkit.core.errors import FomkitError, ManyFomkitError
from fomkit.core.model import ModelProfile, Workload
from fomkit.frontends import drafting, model_file
from fomkit.frontends.drafting import SUMMED, Request, SizedStep, Traced, make_draft, run_file_request, watched
from fomkit.frontends.keras.calls import LOOPS, Operation, Place, Ran, dtype_name, walk
from fomkit.frontends.keras.inputs import (
    ApplyArgs,
    Prepared,
    Values,
    exact_shapes,
    has_own_train_step,
    inputs_and_sizes,
    split_values,
    sums_at_once,
    tensor_specs,
    watch_update,
)
from fomkit.frontends.keras.layers import GraphLayers, Scopes, layer_paths, watch_made_layers, watch_scopes
from fomkit.frontends.keras.ops import Placed, Walked, row_of_layer, tensors_of, trace_ops, watch_attention
from fomkit.frontends.keras.order import order_of_graph
from fomkit.frontends.layers import GraphNode, Nodes, rmsprop_rule, sgd_rule
from fomkit.frontends.lowering.calls import FORWARD, UPDATE, TracedOp, split_gradients, update_rows
from fomkit.frontends.sizes import Sizes
from fomkit.frontends.step import Draft, Step, Update, places_of, row_places

RULES: Mapping[type, Callable[[Any], str]] = {
    keras.optimizers.SGD: lambda optimizer: sgd_rule(vars(optimizer)),
    keras.optimizers.Adam: lambda optimizer: "adam_amsgrad" if optimizer.amsgrad else "adam",
    keras.optimizers.AdamW: lambda optimizer: "adamw_amsgrad" if optimizer.amsgrad else "adamw",
    keras.optimizers.Adamax: lambda _: "adamax", keras.optimizers.Nadam: lambda _: "nadam",
    keras.optimizers.RMSprop: lambda optimizer: rmsprop_rule(vars(optimizer)),
    keras.optimizers.Adagrad: lambda _: "adagrad", keras.optimizers.Adadelta: lambda _: "adadelta",
}  # fmt: skip
"""Optimizers with a cost formula, by exact class."""

_MORE = ("clipnorm", "clipvalue", "global_clipnorm", "use_ema", "loss_scale_factor", "gradient_accumulation_steps")


def scales_loss(optimizer: Any) -> bool:
    """Return whether gradients are checked for overflow and rescaled before the rule."""
    return type(optimizer) is keras.optimizers.LossScaleOptimizer


def rule_of(optimizer: Any) -> str:
    """Return an optimizer's rule (under loss scaling, the inner one's); "" if it does more or has no formula."""
    if scales_loss(optimizer):
        return rule_of(optimizer.inner_optimizer)
    kind = type(optimizer)
    if kind.__module__.startswith("keras.src.backend."):  # a subclass of its own by which Keras replaces it
        kind = next((one for one in kind.__mro__ if one in RULES), kind)
    found = RULES.get(kind)
    decays = optimizer.weight_decay and not isinstance(optimizer, keras.optimizers.AdamW)
    if found is None or decays or any(getattr(optimizer, name, None) for name in _MORE):
        return ""
    return found(optimizer)


def implementation() -> str:
    """Return how Keras updates variables: on PyTorch by lists, otherwise one by one."""
    return "foreach" if keras.backend.backend() == "torch" else "per_tensor"


_SCALED = "loss scaling: the check of the gradients for overflow and their unscaling are not counted"


def update_of(prepared: Prepared, updated: Sequence[Any], *, by_ops: bool) -> Update:
    """Describe the update of a step; with ``by_ops``, an update without a rule is counted by its ops."""
    optimizer = prepared.optimizer
    if prepared.mode == "infer":
        return Update()
    if prepared.has_own_step and not updated:
        return Update(notes=["the updates that the training step calls itself are counted op by op"])
    if optimizer is None:
        return Update(notes=["no optimizer is given: the update is not counted"])
    if rule := rule_of(optimizer):
        notes = [_SCALED] if scales_loss(optimizer) else []
        return Update(_update_rows(optimizer, updated), "", notes, {"rule": rule, "impl": implementation()})
    name = type(optimizer).__name__
    if by_ops:
        notes = [f"optimizer: {name} does more than a formula here covers; its ops are counted one by one"]
        if (each := getattr(optimizer, "gradient_accumulation_steps", None) or 1) > 1:
            notes.append(
                f"gradient accumulation: the update runs after each {each} batches; a step has its share of it"
            )
        return Update(notes=notes)
    return Update(unsupported=f"the update by {name}, which does more than a formula here covers")


def _update_rows(optimizer: Any, updated: Sequence[Any]) -> list[TracedOp]:
    """Describe one update of the variables that got a gradient."""
    sizes = ((dtype_name(variable.dtype), prod(variable.shape)) for variable in updated)
    return update_rows(f"{type(optimizer).__name__}.apply", rule_of(optimizer), implementation(), sizes)


def _own_step(prepared: Prepared, seen: ApplyArgs) -> Callable[[Values], Any]:
    """Make the step of a model that is not compiled; its loss is a function of the output and the inputs."""
    import tensorflow as tf

    model = prepared.model

    def step(data: Values) -> Any:
        x, given = split_values(data)
        with tf.GradientTape() as tape:
            output = model(x, training=True)
            loss = prepared.loss(output, given) if prepared.loss else tf.reduce_sum(tf.nest.flatten(output)[0])
            loss = tf.add_n([tf.cast(loss, tf.float32), *model.losses]) if model.losses else loss
        variables = model.trainable_variables
        gradients = tape.gradient(loss, variables)
        if prepared.optimizer is None:
            seen.gradients += [gradient for gradient in gradients if gradient is not None]
            return loss
        prepared.optimizer.apply(gradients, variables)
        return loss

    return step


def _function(prepared: Prepared, seen: ApplyArgs) -> Callable[[Values], Any]:
    if prepared.mode == "infer":
        return lambda data: prepared.model(split_values(data)[0], training=False)
    if prepared.step is not None:
        return prepared.step
    if prepared.has_own_step:
        return prepared.model.train_step  # type: ignore[no-any-return]
    return _own_step(prepared, seen)


@dataclass(frozen=True)
class WholeStep:
    """A step as a function of its data, its walked ops, the optimizer's arguments, and its layers."""

    function: Any
    walked: Walked
    seen: ApplyArgs
    layers: list[TracedOp]


def specs_of(prepared: Prepared, sizes: Sizes) -> Values:
    """Return the arguments of a step as TensorFlow specifications."""
    return tensor_specs(prepared.inputs(sizes))


def whole_step_of(prepared: Prepared, sizes: Sizes, *, update: bool = True) -> WholeStep:
    """Trace one step to a graph and walk it; with ``update``, the graph includes the optimizer's own ops."""
    import tensorflow as tf

    scopes, seen = Scopes(layer_paths(prepared.model)), ApplyArgs()
    step = _function(prepared, seen)

    def run(data: Values) -> Any:
        # A function that makes variables is traced twice; the last graph counts.
        seen.gradients.clear()
        seen.variables.clear()
        with exact_shapes():  # of the functions inside; the trace of this one is looked up again
            return step(data)

    with (
        watch_update(prepared.optimizer, seen, run=update),
        watch_scopes(scopes, row_of_layer),
        watch_attention(scopes.row),
    ):
        traced = tf.function(run, jit_compile=False, autograph=False)
        function = traced.get_concrete_function(specs_of(prepared, sizes))
    graph = function.graph
    ran = list(walk(Place(graph), range(len(graph.outputs)), also=tensors_of(seen.gradients)))
    layers = GraphLayers(scopes, graph)
    walked = trace_ops(ran, graph, scopes, seen.gradients, layers)
    return WholeStep(function, walked, seen, layers.rows(prepared.model))


@drafting.no_collection()
@sums_at_once()
def trace_step(prepared: Prepared, sizes: Sizes) -> Step:
    """Trace one step at the given sizes."""
    import tensorflow as tf

    plain = bool(prepared.optimizer) and bool(rule_of(prepared.optimizer))
    whole = whole_step_of(prepared, sizes, update=not plain)
    walked = whole.walked
    step = Step(list(walked.ops), walked.states, walked.unsupported, {}, walked.notes, bounded=walked.bounded)
    step.add_update(update_of(prepared, whole.seen.variables, by_ops=True))
    if step.optimizer and any(isinstance(gradient, tf.IndexedSlices) for gradient in whole.seen.gradients):
        step.notes.append("optimizer: sparse gradients are priced as if every row of their tables were updated")
    graph, seen = whole.function.graph, whole.seen
    rule = rule_of(prepared.optimizer) if plain and seen.variables else ""
    step.order.extend(
        order_of_graph(walked.placed, graph, step.ops, prepared.model, seen.gradients, rule, seen.variables)
    )
    step.ops.extend(whole.layers)
    return step


_PRODUCTS = ("MatMul", "Conv2D", "Conv3D", "DepthwiseConv2dNative")
_FUSED = ("BiasAdd", "Add", "AddV2", "Relu", "Relu6", "Elu", "LeakyRelu", "Tanh", "Sigmoid", "FusedBatchNormV3")
_LONGEST = 3
"""Most ops that TensorFlow's remapper fuses into a product."""


def node_name(ran: Ran) -> str:
    """Return a node's name as profilers write it: the loops and calls around it before its own name."""
    name = str(ran.op.name)
    for caller in ran.place.callers:
        name = f"{caller.name}/{'body/' if caller.type in LOOPS else ''}{name}"
    return name


def _product_of_op(placed: Iterable[Placed]) -> dict[Operation, str]:
    """Return the ops that may run inside a product's kernel, with the product's name."""
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


def nodes_of_step(prepared: Prepared, step: WholeStep, sized: SizedStep) -> Nodes:
    """Return each node of a whole step, at the sizes of ``sized``, with the rows that it belongs to."""
    rows_of, at = row_places(sized.ops), places_of(sized.step.ops, sized.ops)
    known = {op.key: rows_of[place] for op, place in zip(reversed(sized.step.ops), reversed(at), strict=True)}

    def places(ops: Iterable[TracedOp]) -> list[int]:
        return [known[op.key] for op in ops if op.key in known]

    products = _product_of_op(step.walked.placed)
    by_rule = bool(prepared.optimizer) and bool(rule_of(prepared.optimizer))
    updates = places(_update_rows(prepared.optimizer, step.seen.variables)) if by_rule else []
    nodes: Nodes = {}
    for one in step.walked.placed:
        if one.pass_name == UPDATE and by_rule:
            rows = updates
        elif one.owner is not None:
            owner = one.owner.row if one.pass_name == FORWARD else one.owner.backward or one.owner.row
            rows = places(split_gradients(owner))
        else:
            rows = places(one.rows)
        nodes[node_name(one.ran)] = GraphNode(
            str(one.ran.op.type), one.pass_name, one.ran.times, rows, products.get(one.ran.op, "")
        )
    return nodes


def _compile(workload: Workload, notes: list[str]) -> Any:
    """Return the step's own loss, or None if the model's training step has one.

    A loss by Keras's name or class compiles the model; a function of (output, inputs) is called directly.
    """
    model, loss = workload.model, workload.loss
    if isinstance(loss, str | keras.losses.Loss):
        model.compile(optimizer=workload.optimizer, loss=loss)
        return None
    if loss is None and not model.compiled:
        notes.append(SUMMED)
    return loss


def _prepare(workload: Workload, request: Request) -> tuple[Prepared, dict[str, int], list[str]]:
    notes: list[str] = []
    where = request.where or "profile"
    model = workload.model
    loss = _compile(workload, notes) if request.mode == "train" else None
    whole = request.mode == "train" and loss is None and model.compiled and has_own_train_step(model)
    inputs, sizes = inputs_and_sizes(workload, request.sizes, where, whole=whole)
    optimizer = workload.optimizer or (model.optimizer if model.compiled else None)
    prepared = Prepared(model, inputs, loss, optimizer, request.mode)
    if not (model.built and model.weights):  # `build` of a subclass may leave its layers without weights
        if whole and keras.backend.backend() == "tensorflow":  # it may have no call of its own
            whole_step_of(prepared, sizes, update=False)
        else:
            model(split_values(inputs(sizes))[0])
    if request.mode == "train":
        if not model.trainable_variables:
            raise FomkitError(
                where, "the model has no trainable weight, so there is no backward pass. Leave some trainable, or "
                       "profile with --mode infer.")  # fmt: skip
        if optimizer is not None and not rule_of(optimizer) and not optimizer.built:
            optimizer.build(model.trainable_variables)
    return prepared, sizes, notes


@dataclass(frozen=True)
class TracedWorkload:
    """A workload, its step at several sizes, and the draft made of it."""

    workload: Workload
    prepared: Prepared
    sized: SizedStep
    draft: Draft


def trace_workload(workload: Workload, request: Request) -> TracedWorkload:
    """Trace a workload at several sizes and make its draft."""
    prepared, sizes, notes = _prepare(workload, request)
    sized = drafting.trace_sizes(partial(step_tracer(), prepared), sizes)
    model = describe_model(workload.model, request.mode)
    return TracedWorkload(workload, prepared, sized, make_draft(workload, request, model, sized, notes))


def step_tracer() -> Callable[[Prepared, Sizes], Step]:
    """Return the function that traces a step on the current backend."""
    if keras.backend.backend() != "torch":
        return trace_step
    trace: Callable[[Prepared, Sizes], Step] = import_module("fomkit.frontends.keras.torch_step").trace_step
    return trace


def describe_model(model: Any, mode: str) -> Traced:
    """Return the model's class, what traced it, and its parameters."""
    framework = keras.backend.backend()
    device = "fake" if framework == "torch" else "graph"
    return Traced(
        type(model).__name__, drafting.traced_with(framework, sys.modules[framework].__version__, device, mode),
        sum(prod(weight.shape) for weight in model.weights if "seed_generator" not in weight.path),
        sum(prod(variable.shape) for variable in model.trainable_variables),
    )  # fmt: skip


def check_workload(workload: Workload, where: str) -> None:
    """Raise unless a workload has a Keras model and valid counts; inputs may be the model's own."""
    errors = model_file.count_errors(workload, where)
    if keras.backend.backend() not in model_file.BACKENDS:
        errors.append(model_file.other_backend(where, keras.backend.backend()))
    example = "keras.Sequential([keras.Input((784,)), keras.layers.Dense(10)])"
    errors += model_file.model_errors(workload, where, keras.Model, "keras.Model", example)
    errors += model_file.loss_errors(workload, where)
    if workload.optimizer is not None and not isinstance(workload.optimizer, keras.optimizers.Optimizer):
        errors.append(
            FomkitError(where, f"the optimizer is a {type(workload.optimizer).__name__}. A keras.optimizers "
                               "optimizer was expected, for example: optimizer = keras.optimizers.SGD(0.1)")
        )  # fmt: skip
    if errors:
        raise ManyFomkitError(errors)


def _profile_file(path: Path, request: Request) -> Mapping[str, object]:
    on_tensorflow = keras.backend.backend() == "tensorflow"
    with weights_without_data() if on_tensorflow else nullcontext(), watch_made_layers():
        traced = trace_workload(
            model_file.take_workload(model_file.run_file(path), request.where, check_workload), request
        )
        if not request.nodes:
            return {"draft": asdict(traced.draft)}
        step = whole_step_of(traced.prepared, traced.sized.sizes)
        nodes = nodes_of_step(traced.prepared, step, traced.sized)
        return {"draft": asdict(traced.draft), "nodes": {name: asdict(node) for name, node in nodes.items()}}


def main() -> None:
    """Run one request of the parent process."""
    run_file_request(_profile_file)


_WHERE = "profile"


def profile_here(workload: Workload, name: str, mode: str, sizes: Sizes) -> ModelProfile:
    """Trace a workload in this process; weights keep their values, since tracing changes none."""
    check_workload(workload, _WHERE)
    try:
        return trace_workload(workload, Request(name, _WHERE, mode, sizes)).draft.profile()
    except FomkitError:
        raise
    except Exception as error:  # the user's model may raise anything
        raise model_file.explain_exception(error, _WHERE) from error


LARGE_NUMEL = 100_000
"""Weights of this many elements or more are allocated but never written, so they take no physical memory."""


def weights_without_data() -> AbstractContextManager[None]:
    """Leave large weights unwritten inside the block, so that they take no memory and no time."""
    import tensorflow as tf
    from keras.src.backend.tensorflow import core

    def initialize(before: Any, weight: Any, initializer: Any) -> None:
        dtype = tf.as_dtype(weight._dtype)
        if dtype.is_floating and prod(weight._shape) >= LARGE_NUMEL:
            weight._initialize(lambda: tf.raw_ops.Empty(shape=weight._shape, dtype=dtype, init=False))
        else:
            before(weight, initializer)

    return watched(core.Variable, _initialize_with_initializer=initialize)
