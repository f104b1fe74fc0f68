"""Make inputs and targets of a Keras model at any named sizes, with values, and prepare its workload.

`OwnStep`: a step that is no method of a model, but a program's own code.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from math import prod
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np

from fomkit.core.errors import FomkitError
from fomkit.core.model import Workload
from fomkit.frontends.drafting import replaced, watched
from fomkit.frontends.sizes import NO_BATCH, MakeInputs, Sizes, call_inputs, chosen_sizes, named_sizes


def specs(values: Any, where: str = "profile") -> Any:
    """Return the shapes and number formats of tensors, in their lists and dicts, or of a dataset's batch."""

    def spec(leaf: Any) -> Any:
        if not hasattr(leaf, "dtype"):
            raise FomkitError(
                where, f"'inputs' holds a value of type {type(leaf).__name__}. Arrays or tensors were expected. "
                       "For example: inputs = lambda batch: np.zeros((batch, 784), 'float32')")  # fmt: skip
        is_double = isinstance(leaf, np.ndarray) and leaf.dtype == np.float64
        dtype = keras.config.floatx() if is_double else keras.backend.standardize_dtype(leaf.dtype)
        return keras.KerasTensor(tuple(leaf.shape), dtype)

    return keras.tree.map_structure(spec, getattr(values, "element_spec", values))


def split_inputs(model: Any, values: Any) -> tuple[Any, ...]:
    """Split a batch as ``fit`` does: inputs of the model, targets of the loss, and weights of samples if any."""
    if not isinstance(values, tuple | list) or len(values) < 2:
        return (values[0] if isinstance(values, tuple) and values else values), None
    if isinstance(values[0], tuple | list | Mapping):
        return tuple(values[:3])
    taken = len(model.inputs) if getattr(model, "inputs", None) else len(values) - 1
    x, y = list(values[:taken]), list(values[taken:])
    if taken == 1 and len(y) == 2 and len(getattr(model, "outputs", None) or ()) == 1:
        return x[0], *y
    return (x[0] if taken == 1 else x), (None if not y else y[0] if len(y) == 1 else y)


def _output_specs(model: Any, x: Any) -> Any:
    """Return the specifications of a model's output; a layer may state less of its shape than the graph knows."""
    stated = model.compute_output_spec(x)
    if keras.backend.backend() != "tensorflow" or all(None not in one.shape for one in keras.tree.flatten(stated)):
        return stated
    import tensorflow as tf

    with exact_shapes():
        traced = tf.function(model, autograph=False).get_concrete_function(tensor_specs(x))
    made = traced.structured_outputs
    return keras.tree.map_structure(lambda one: keras.KerasTensor(one.shape, one.dtype.name), made)


def tensor_specs(values: Any) -> Any:
    """Return specifications as TensorFlow's."""
    import tensorflow as tf

    return keras.tree.map_structure(lambda one: tf.TensorSpec(one.shape, one.dtype), values)


def _targets(model: Any, x: Any) -> Any:
    """Make targets that suit the compiled losses: class numbers for sparse ones, else the shape of the output."""
    loss = model._compile_loss._user_loss if model._compile_loss is not None else None
    if loss is None:
        return None
    outputs = _output_specs(model, x)
    flat = keras.tree.flatten(outputs)
    given = keras.tree.flatten(loss) if isinstance(loss, list | tuple | Mapping) else [loss] * len(flat)
    names = (getattr(one, "name", None) or getattr(one, "__name__", None) or one or "" for one in given)
    pairs = ((output, "sparse" in str(name).lower()) for output, name in zip(flat, names, strict=False))
    known = ((one.shape[:-1], "int32") if sparse else (one.shape, one.dtype) for one, sparse in pairs)
    return keras.tree.pack_sequence_as(outputs, [keras.KerasTensor(*one) for one in known])


def _own_inputs(model: Any, where: str) -> Any:
    """Return the symbolic inputs that a model was built from."""
    try:
        symbols = model._inputs_struct if hasattr(model, "_inputs_struct") else model.inputs
    except AttributeError:
        symbols = None
    if symbols is None:
        raise FomkitError(
            where, "'inputs' is missing, which a model without keras.Input needs. For example: "
                   "inputs = lambda batch: np.zeros((batch, 784), 'float32'). A program that trains by itself is "
                   "profiled with --script.")  # fmt: skip
    for symbol in keras.tree.flatten(symbols):
        if None in symbol.shape[1:]:
            raise FomkitError(
                where, f"the input {symbol.name!r} has the shape {symbol.shape}, in which more than the batch is "
                       "open. Give the rest: inputs = lambda batch, seq=9: np.zeros((batch, seq))")  # fmt: skip
    if isinstance(symbols, list | tuple) and len(symbols) == 1:
        return symbols[0]
    return symbols


def batched(values: Any, given: int | None, batch: int) -> Any:
    """Return specifications for another batch: each first axis that is open or equals the given batch changes."""

    def at(spec: Any) -> Any:
        same = len(spec.shape) and spec.shape[0] in (None, given)
        return keras.KerasTensor((batch, *spec.shape[1:]), spec.dtype) if same else spec

    return keras.tree.map_structure(at, values)


def has_own_train_step(model: Any) -> bool:
    """Return whether a model made without ``keras.Input`` overrides Keras's training step."""
    return type(model).train_step is not keras.Model.train_step and not getattr(model, "inputs", None)


def inputs_and_sizes(
    workload: Workload, wanted: Sizes, where: str, *, whole: bool = False
) -> tuple[MakeInputs, dict[str, int]]:
    """Return inputs and targets as a function of the named sizes, and the sizes to trace at, the batch first.

    They are packed as ``fit`` does for a training step; with ``whole``, a tuple of several is the batch itself.
    """
    model, given, make = workload.model, workload.inputs, None
    if callable(given) and not hasattr(given, "shape"):
        make, sizes = given, named_sizes(given, where)
        own = workload.batch_size or sizes.get("batch")
    else:
        values, sizes = specs(_own_inputs(model, where) if given is None else given, where), {}
        first = keras.tree.flatten(values)[0].shape
        own = workload.batch_size or (first[0] if len(first) else 1)
        fixed = first[0] if len(first) else None
    batch = wanted.get("batch") or own
    if batch is None:
        raise FomkitError(where, NO_BATCH)

    def at(at_sizes: Sizes) -> Any:
        found = specs(call_inputs(make, at_sizes), where) if make else batched(values, fixed, at_sizes["batch"])
        if whole and isinstance(found, tuple) and len(found) > 1:
            return found
        x, y, *weights = split_inputs(model, found)
        y = _targets(model, x) if y is None and model.compiled else y
        return keras.utils.pack_x_y_sample_weight(x, y, *weights)

    return at, chosen_sizes({"batch": batch} | sizes | {"batch": batch}, wanted, where)


_MADE_UP = "inputs are made up: numbers between 0 and 1"
_WHOLE = "whole numbers are 0 and 1 in turn, so lookups read two rows only"


def _made_up(spec: Any) -> Any:
    import tensorflow as tf

    shape, dtype = spec.shape.as_list(), spec.dtype
    if dtype.is_floating:
        return tf.cast(tf.random.Generator.from_seed(0).uniform(shape), dtype)
    if dtype == tf.string:
        return tf.fill(shape, "")
    return tf.cast(tf.reshape(tf.range(prod(shape)) % 2, shape), dtype)


def step_values(workload: Workload, specs: Any, sizes: Sizes) -> tuple[Any, list[str]]:
    """Return values for a step's inputs and targets, and a note of those that are made up."""
    import tensorflow as tf

    made = workload.inputs
    if callable(made) and not hasattr(made, "shape"):
        made = call_inputs(made, sizes)
    # The arrays of the user's file, in the order of the specifications.
    given = [] if made is None else tf.nest.flatten(split_inputs(workload.model, made))
    values: list[Any] = []
    notes: list[str] = []
    for place, spec in enumerate(tf.nest.flatten(specs)):
        leaf = given[place] if place < len(given) else None
        if spec is None:
            values.append(None)
        elif isinstance(leaf, np.ndarray | tf.Tensor) and leaf.shape == spec.shape:
            values.append(tf.cast(tf.convert_to_tensor(leaf), spec.dtype))
        else:
            values.append(_made_up(spec))
            notes.append(_MADE_UP if spec.dtype.is_floating else f"{_MADE_UP}; {_WHOLE}")
    return tf.nest.pack_sequence_as(specs, values), sorted(set(notes))[-1:]


Values = Any
"""Tensors, or specifications of tensors, in tuples, lists and dicts."""


@dataclass(frozen=True)
class Prepared:
    """A workload ready to be traced.

    `inputs`: returns one batch of a training step as ``keras.KerasTensor``: the model's inputs, mostly with the
      loss's targets and the samples' weights.
    `loss` (output, inputs): without a loss the model's own training step runs.
    `step`: a program's own step, on tensors; None for the model's.
    """

    model: Any
    inputs: Callable[[Sizes], Values]
    loss: Callable[[Any, Any], Any] | None
    optimizer: Any
    mode: str
    step: Callable[[Values], Any] | None = None

    @property
    def has_own_step(self) -> bool:
        """Whether a training step of the program or of the model runs."""
        return self.loss is None and (self.step is not None or bool(self.model.compiled))


def split_values(data: Values) -> tuple[Values, Values]:
    """Return the model's inputs and the arguments of the loss: the inputs and, if there are any, the targets."""
    x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
    return x, x if y is None else (x, y)


@dataclass
class ApplyArgs:
    """Gradients and variables that the optimizer got while the step was traced."""

    gradients: list[Any] = field(default_factory=list)
    variables: list[Any] = field(default_factory=list)


def exact_shapes() -> AbstractContextManager[None]:
    """Let functions of the model be traced again for the shapes at hand, inside the block.

    TensorFlow would reuse a trace of the same function for an open batch, in which no shape is known.
    """
    from tensorflow.core.function.polymorphism.type_dispatch import TypeDispatchTable

    return watched(TypeDispatchTable, dispatch=lambda _, table, asked: asked if asked in table.targets else None)


@contextmanager
def sums_at_once() -> Iterator[None]:
    """Add all gradients of a tensor by one op inside the block.

    TensorFlow adds some of them early if they exceed 128 MiB together, so the ops would change with the batch.
    """
    from tensorflow.python import pywrap_tfe
    from tensorflow.python.eager import backprop

    own = backprop._default_vspace
    pywrap_tfe.TFE_Py_RegisterVSpace(own._replace(num_elements_fn=lambda _: 0))
    try:
        yield
    finally:
        pywrap_tfe.TFE_Py_RegisterVSpace(own)


def watch_update(optimizer: Any, seen: ApplyArgs, *, run: bool) -> AbstractContextManager[None]:
    """Record the optimizer's arguments inside the block; its own ops are traced only if ``run``."""

    def applied(apply: Any, grads: Any, trainable_variables: Any = None) -> Any:
        grads = list(grads)
        variables = list(optimizer._trainable_variables if trainable_variables is None else trainable_variables)
        for gradient, variable in zip(grads, variables, strict=True):
            if gradient is not None:
                seen.gradients.append(gradient)
                seen.variables.append(variable)
        return apply(grads, variables) if run else None

    return nullcontext() if optimizer is None else watched(optimizer, apply=applied)


def first_axis(values: Any) -> int | None:
    """Return the number of samples in some tensors."""
    for leaf in keras.tree.flatten(values):
        shape = getattr(leaf, "shape", None)
        if shape is not None and len(shape):
            return None if shape[0] is None else int(shape[0])
    return None


ASSIGNS = ("assign", "assign_sub", "assign_add", "scatter_sub", "scatter_update")
"""Methods of a TensorFlow variable that change it."""


def _numbers_of_symbols(note: Callable[[str], object]) -> AbstractContextManager[None]:
    """Let the code of an eager step read values of a graph's tensors, for its log: each number is 1."""
    from tensorflow.python.framework.ops import SymbolicTensor

    def is_false(_: Any) -> bool:
        note("a truth value that a step reads from a result is False, so what it would decide is left out")
        return False

    one = {"__float__": float, "__int__": int, "__format__": "{:{}}".format, "numpy": lambda value: value}
    numbers = {
        name: lambda tensor, *how, read=read: read(np.ones(tensor.shape, "float32")[()], *how)
        for name, read in one.items()
    }
    return replaced(SymbolicTensor, __bool__=is_false, **numbers)


class Program:
    """What stands for the model of a program that has none of Keras's: the variables that it trains."""

    steps_per_execution = 1
    _layers: tuple[Any, ...] = ()

    def __init__(self, variables: Iterable[Any]) -> None:
        self.weights = [SimpleNamespace(path=one.name, shape=one.shape) for one in variables]
        self.trainable_variables = self.weights

    def _flatten_layers(self) -> tuple[Any, ...]:
        return ()


def joined(*models: Any) -> Any:
    """Return one model that has the weights of several."""
    together = type(" and ".join(type(one).__name__ for one in models), (keras.Model,), {})()
    together.parts = models
    return together


@dataclass(frozen=True)
class OwnStep:
    """A TensorFlow function that a program calls in its own loop and that updates weights, by some optimizers.

    `function`: with the plain function as its ``python_function``.
    `variables`: those that it differentiates by, if it is a round of the program's own code; `changed`: the
    ids of those that it changes. What fails once all are, such as a log of values, is no part of the step.
    `remarks`: notes on it, made when it is traced.
    """

    function: Any
    optimizers: tuple[Any, ...]
    variables: tuple[Any, ...] = ()
    changed: frozenset[int] = frozenset()
    remarks: dict[str, None] = field(default_factory=dict)

    @property
    def optimizer(self) -> Any:
        """The optimizer that updates last, which is priced by its rule; the others are counted op by op."""
        return self.optimizers[-1] if self.optimizers else None

    def tensors(self, arguments: Any) -> list[Any]:
        """Return the tensors and arrays among its arguments."""
        return [leaf for leaf in keras.tree.flatten(arguments) if hasattr(leaf, "shape")]

    def on(self, arguments: Any, samples: int) -> Callable[[Any], Any]:
        """Return the function as a step on tensors alone; its other arguments are those of one call.

        `samples`: in this call; if it has no tensor, a number equal to them is the batch, and changes with it.
        """
        leaves = keras.tree.flatten(arguments)
        has_tensors = any(hasattr(leaf, "shape") for leaf in leaves)

        def step(data: Any) -> Any:
            if has_tensors:
                tensors = iter(data)
                given = [next(tensors) if hasattr(leaf, "shape") else leaf for leaf in leaves]
            else:
                given = [first_axis(data) if type(leaf) is int and leaf == samples else leaf for leaf in leaves]
            args, kwargs = keras.tree.pack_sequence_as(arguments, given)
            return self._round(args, kwargs) if self.variables else self.function.python_function(*args, **kwargs)

        return step

    def _round(self, args: Any, kwargs: Any) -> Any:
        """Run a round of the program's own code, until it ends or fails after it changed all variables."""
        import tensorflow as tf
        from tensorflow.python.ops.resource_variable_ops import ResourceVariable

        changed = set[int]()

        def with_data(make: Any, *args: Any, **kwargs: Any) -> Any:
            with tf.init_scope():  # a tensor made of data is none of the graph's constants
                return make(*args, **kwargs)

        def assigned(run: Any, variable: Any, *args: Any, **kwargs: Any) -> Any:
            changed.add(id(variable))
            return run(variable, *args, **kwargs)

        def applied(run: Any, grads: Any, variables: Any) -> Any:
            changed.update(id(getattr(one, "_value", one)) for one in variables)
            return run(grads, variables)

        with ExitStack() as stack:
            stack.enter_context(_numbers_of_symbols(self.remarks.setdefault))
            stack.enter_context(watched(tf, constant=with_data))
            stack.enter_context(watched(ResourceVariable, **dict.fromkeys(ASSIGNS, assigned)))
            if "apply" in vars(self.optimizer or self):  # the tracer's, which prices the update by its rule
                stack.enter_context(watched(self.optimizer, apply=applied))
            try:
                return self.function.python_function(*args, **kwargs)
            except Exception as error:
                if not self.changed or self.changed - changed:
                    raise
                reads = f"what follows the update reads values ({type(error).__name__}), and is left out"
                self.remarks.setdefault(reads)
                return None

    @property
    def model(self) -> Any:
        """The smallest model that has all weights the optimizers update, else those of each; None for none."""
        models = [one for one in gc.get_objects() if issubclass(type(one), keras.Model)]

        def smallest(*optimizers: Any) -> Any:
            updated = {id(one) for optimizer in optimizers for one in optimizer._trainable_variables}
            updated = updated or {id(one) for one in self.variables}
            whole = [one for one in models if updated <= {id(weight) for weight in one.trainable_variables}]
            return min(whole, key=lambda one: len(one.weights), default=None)

        found = smallest(*self.optimizers)
        parts = [] if found is not None else [smallest(one) for one in self.optimizers]
        if len(parts) < 2 or None in parts:
            return Program(self.variables) if found is None and self.variables else found
        return joined(*parts)
