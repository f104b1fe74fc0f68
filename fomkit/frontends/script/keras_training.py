"""What is known of a training in Keras: its model, its own step, the batches that were seen."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np

from fomkit.frontends.drafting import replaced, watched
from fomkit.frontends.script.loops import DataLoop, RunLength


def first_axis(values: Any) -> int | None:
    """Return the number of samples in some tensors."""
    for leaf in keras.tree.flatten(values):
        shape = getattr(leaf, "shape", None)
        if shape is not None and len(shape):
            return None if shape[0] is None else int(shape[0])
    return None


ASSIGNS = ("assign", "assign_sub", "assign_add", "scatter_sub", "scatter_update")
ONE_STEP = RunLength(None, "as no loop is around it", steps=1)


@contextmanager
def _numbers_of_symbols(note: Callable[[str], object]) -> Iterator[None]:
    """Let the code of an eager step read values of a graph's tensors, for its log: each number is 1."""
    from tensorflow.python.framework.ops import SymbolicTensor

    def is_false(_: Any) -> bool:
        note("a truth value that a step reads from a result is False, so what it would decide is left out")
        return False

    SymbolicTensor.__bool__ = is_false
    one = {"__float__": float, "__int__": int, "__format__": "{:{}}".format, "numpy": lambda value: value}
    for name, read in one.items():
        setattr(
            SymbolicTensor, name, lambda tensor, *how, read=read: read(np.ones(tensor.shape, "float32")[()], *how)
        )
    try:
        yield
    finally:
        for name in (*one, "__bool__"):
            delattr(SymbolicTensor, name)


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

    def on(self, arguments: Any) -> Callable[[Any], Any]:
        """Return the function as a step on tensors alone; its other arguments are those of one call."""
        leaves = keras.tree.flatten(arguments)

        def step(data: Any) -> Any:
            tensors = iter(data)
            given = [next(tensors) if hasattr(leaf, "shape") else leaf for leaf in leaves]
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
                stack.enter_context(replaced(self.optimizer, apply=partial(applied, self.optimizer.apply)))
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
        models = [one for one in gc.get_objects() if isinstance(one, keras.Model)]

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


@dataclass
class Training:
    """One call of ``fit``, or all calls of ``train_on_batch`` on one model.

    `way`: how it trains, in Keras's words.
    `file`, `line`: where the program calls it.
    `arguments`: of ``fit``, by name, with defaults.
    `iterator`: what ``fit`` made of its data.
    `own`: the program's own step, if it is not a method of the model.
    `loop`: the program's own loop over a dataset around the first step; None if there is none.
    `around`: how often the loops around the first call repeat it, as ``steps``; None if no loop does.
    `lines`: where the program calls it; `began`: the time [s] of its first call.
    `steps`: number of steps seen.
    `batch`: the largest batch seen, as a training step receives it; for an own step its arguments.
    `given`: samples that a round of the program's own code passed to its first layer.
    """

    model: Any
    way: str
    file: str
    line: int
    arguments: Mapping[str, Any] = field(default_factory=dict)
    iterator: Any = None
    own: OwnStep | None = None
    loop: DataLoop | None = None
    around: RunLength | None = None
    lines: set[int] = field(default_factory=set)
    began: float = field(default_factory=monotonic)
    steps: int = 0
    batch: Any = None
    given: int | None = None

    @property
    def place(self) -> str:
        """File and line of the call, for messages."""
        return f"{Path(self.file).name}:{self.line}"

    def step(self, batch: Any) -> None:
        """Count a step on a batch."""
        self.steps += 1
        if self.batch is None or (first_axis(batch) or 0) >= (first_axis(self.batch) or 0):
            self.batch = batch


@dataclass(frozen=True)
class Capture:
    """A training whose step is captured, and the others seen before it.

    `parts`: the trainings of other models that take part in a round of the program, as a judge beside a generator,
    and how often each does.
    """

    training: Training
    others: list[Training]
    parts: tuple[tuple[Training, int], ...] = ()
