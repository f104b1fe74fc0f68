"""Record a running Keras program: its calls of ``fit``, and its own functions that update weights."""

from __future__ import annotations

import ast
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from itertools import islice
from pathlib import Path
from time import monotonic
from types import FrameType, SimpleNamespace
from typing import Any

import keras
import numpy as np
from keras.src.optimizers.base_optimizer import BaseOptimizer

from fomkit.frontends.drafting import watched
from fomkit.frontends.keras.inputs import ASSIGNS, OwnStep, first_axis
from fomkit.frontends.script import loops
from fomkit.frontends.script.child import WANTED_ROUND, Round, RoundWatch, StopProgram, Watch, round_around
from fomkit.frontends.script.rounds import Head, evaluated_or_none

_NAMES = {"tensorflow": ("TensorFlowTrainer", "TFEpochIterator"), "torch": ("TorchTrainer", "TorchEpochIterator")}
"""Keras's trainers and their iterators by backend."""
FIT, BATCHES = "Model.fit", "train_on_batch"
ONE_STEP = loops.RunLength(None, "as no loop is around it", steps=1)
MAX_STEPS_S = 30.0
"""Time [s] since the first call of a training after which its next step is the last one."""
MOST_OWN = 50
"""Updates in a loop of the program's own after which no other training is expected."""


@dataclass
class Training:
    """One call of ``fit``, or all calls of ``train_on_batch`` on one model.

    `way`: how it trains, in Keras's words.
    `arguments`: of ``fit``, by name, with defaults.
    `iterator`: what ``fit`` made of its data.
    `own`: the program's own step, if it is not a method of the model.
    `loop`: the program's own loop over a dataset around the first step; None if there is none.
    `around`: how often the loops around the first call repeat it, as ``steps``; None if no loop does.
    `lines`: where the program calls it; `began`: the time [s] of its first call.
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
    loop: loops.DataLoop | None = None
    around: loops.RunLength | None = None
    lines: set[int] = field(default_factory=set)
    began: float = field(default_factory=monotonic)
    steps: int = 0
    batch: Any = None
    given: int | None = None

    @property
    def has_function(self) -> bool:
        """Whether its step is a function of TensorFlow, and no round of a loop."""
        return self.own is not None and not self.own.variables

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


class FitWatch(Watch[Capture]):
    """Records a program's training by Keras; `rounds` are the steps of the training seen last."""

    def __init__(self, on_capture: Callable[[Capture], None]) -> None:
        super().__init__(on_capture)
        self._trainings: list[Training] = []
        self._running: list[Training] = []
        self._in_step = False
        self._updates = 0
        self._optimizers: dict[int, Any] = {}
        self._anew: set[Head] = set()
        self._own: dict[Any, Training] = {}
        self._called = set[int]()
        self._sources: dict[int, Any] = {}
        self._changed: set[int] = set()
        self._rounds = RoundWatch(self._ends)
        self._head: Head | None = None
        self._round: Round | None = None
        self._loop: loops.DataLoop | None = None
        self._around: loops.RunLength | None = None
        self._only: FrameType | None = None
        self._given: int | None = None
        self._sequence: list[Training] = []

    @property
    def seen(self) -> str:
        """What was seen of a program that never trained by Keras's own means."""
        return ", though it updates weights in a loop of its own" if self._updates else ""

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Record the code that runs inside the block."""
        trainer = import_module(f"keras.src.backend.{keras.backend.backend()}.trainer")
        name_of_trainer, name_of_iterator = _NAMES[keras.backend.backend()]
        kind = getattr(trainer, name_of_trainer)
        with ExitStack() as stack:
            # With its frames filtered out, Keras's errors would seem to come from this file.
            if keras.config.is_traceback_filtering_enabled():
                keras.config.disable_traceback_filtering()
                stack.callback(keras.config.enable_traceback_filtering)
            stack.enter_context(watched(kind, fit=self._fit, train_on_batch=self._train_on_batch))
            stack.enter_context(watched(kind, make_train_function=self._make_train_function))
            stack.enter_context(watched(trainer, **{name_of_iterator: self._epoch_iterator}))
            stack.enter_context(watched(BaseOptimizer, apply=self._apply, __init__=self._makes))
            if keras.backend.backend() == "tensorflow":
                import tensorflow as tf
                from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function
                from tensorflow.python.ops.resource_variable_ops import ResourceVariable

                stack.enter_context(watched(Function, __call__=self._function))
                stack.callback(sys.settrace, sys.gettrace())
                stack.enter_context(watched(tf.GradientTape, gradient=self._gradient))
                stack.enter_context(watched(keras.Layer, __call__=self._call))
                stack.enter_context(watched(ResourceVariable, **dict.fromkeys(ASSIGNS, self._assign)))
            yield
            if self._only and self._head:
                self._ends(self._head)

    def _makes(self, make: Any, optimizer: Any, *args: Any, **kwargs: Any) -> None:
        self._anew |= loops.heads_around(sys._getframe())
        make(optimizer, *args, **kwargs)

    def _own_frame(self) -> Any:
        return loops.own_frame(self._only or sys._getframe())

    def _begin(self, model: Any, way: str, arguments: Mapping[str, Any]) -> Training:
        frame = self._own_frame()
        file, line = ("", 0) if frame is None else (frame.f_code.co_filename, frame.f_lineno)
        training = Training(model, way, file, line, arguments)
        # A loop that makes an optimizer in each round, as one over folds, trains from the beginning there.
        if frame is not None and loops.heads_around(frame) - self._anew:
            training.around = loops.run_by_loops(frame, None, self._anew)
        self._trainings.append(training)
        return training

    @contextmanager
    def _inside(self, training: Training) -> Iterator[None]:
        self._running.append(training)
        try:
            yield
        finally:
            self._running.pop()

    def _fit(self, run: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
        bound = inspect.signature(run).bind(model, *args, **kwargs)
        bound.apply_defaults()
        with self._inside(self._begin(model, FIT, bound.arguments)):
            return run(model, *args, **kwargs)

    def _train_on_batch(self, run: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
        known = (one for one in self._trainings if one.way == BATCHES and one.model is model)
        training = next(known, None) or self._begin(model, BATCHES, {})
        training.lines.add(getattr(self._own_frame(), "f_lineno", 0))
        with self._inside(training):
            return run(model, *args, **kwargs)

    def _epoch_iterator(self, make: Any, *args: Any, **kwargs: Any) -> Any:
        iterator = make(*args, **kwargs)
        if self._running and self._running[-1].iterator is None:
            self._running[-1].iterator = iterator  # the next one is for validation
        return iterator

    def _make_train_function(self, make: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
        """Replace the iterator of the training by its batches, so that their shapes are seen."""
        make(model, *args, **kwargs)
        run = model.train_function
        if hasattr(run, "is_watched"):
            return run

        def train(iterator: Any) -> Any:
            if self.is_over:
                os._exit(0)  # a program that does not stop
            batches = list(islice(iterator, model.steps_per_execution))
            if not batches:
                raise StopIteration
            self._in_step = True
            try:
                result = run(batches)
            finally:
                self._in_step = False
            self._stepped(batches)
            return result

        train.is_watched = True  # type: ignore[attr-defined]
        model.train_function = train
        return train

    def _apply(self, run: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        self._updates += not self._in_step
        if not hasattr(optimizer, "inner_optimizer"):  # which scales the loss for another
            self._optimizers[id(optimizer)] = optimizer
        if self._updates > MOST_OWN and not self._trainings:
            raise StopProgram  # its steps are no functions, which would show when it is over
        return run(optimizer, *args, **kwargs)

    def _function(self, run: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Record the functions that the program itself calls; one that updates weights when traced is a step."""
        import tensorflow as tf

        if self._in_step or tf.inside_function():
            return run(function, *args, **kwargs)
        if self.is_over:
            os._exit(0)  # a program that does not stop
        before = self._updates
        self._optimizers.clear()
        result = run(function, *args, **kwargs)
        if self._updates > before and id(function) not in self._own:
            own = OwnStep(function, tuple(self._optimizers.values()))
            loop = loops.data_loop(sys._getframe(), lambda one: isinstance(one, tf.data.Dataset))
            begun = self._begin(own.model, function.__name__, {})
            if not loops.heads_around(sys._getframe()):
                begun.around, self.wanted = ONE_STEP, 1
            self._own[id(function)] = self._trainings[-1] = replace(begun, own=own, loop=loop)
        self._called.add(id(function))
        if id(function) in self._own:
            self._own[id(function)].lines.add(getattr(self._own_frame(), "f_lineno", 0))
            self._stepped([(args, kwargs)], self._own[id(function)])
        return result

    def _call(self, run: Any, layer: Any, *args: Any, **kwargs: Any) -> Any:
        self._given = self._given or first_axis((args, kwargs))  # of the first layer that a round calls
        return run(layer, *args, **kwargs)

    def _assign(self, run: Any, variable: Any, *args: Any, **kwargs: Any) -> Any:
        self._changed |= {id(variable)} & self._sources.keys()
        return run(variable, *args, **kwargs)

    def _gradient(self, run: Any, tape: Any, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
        """Record a gradient outside of any function: the round of the loop around it is a step if it updates."""
        import tensorflow as tf

        found = run(tape, target, sources, *args, **kwargs)
        if not (self._in_step or self._running or tf.inside_function()):
            if self.is_over:
                os._exit(0)  # a program that does not stop
            self._begins(tuple(keras.tree.flatten(sources)))
        return found

    def _begins(self, sources: tuple[Any, ...]) -> None:
        """Note the round that a gradient is computed in, once the loop is known whose rounds update."""
        frame = self._own_frame()
        if frame is None:
            return
        is_in_loop = bool(self._rounds.around(frame))
        if not is_in_loop and self._round is None and self._only is None:
            self._only, self.wanted, self._around = frame, 1, ONE_STEP
            self._round = round_around(frame, None)
            self._head = self._round.head if self._round else None
        elif is_in_loop and self._only:
            self._only = self._round = self._head = None
            self.wanted = WANTED_ROUND
        self._sources.update({id(getattr(one, "_value", one)): one for one in sources})
        if self._head and self._round is None:
            self._round = round_around(frame, self._head)
            self._loop = loops.data_loop(frame, lambda one: hasattr(one, "element_spec"))
            heads = [loop.head for loop in loops.loops_of_program(frame)]
            around = heads[: heads.index(self._head) + 1] if self._head in heads else heads  # no loops in a round
            self._around = loops.run_by_loops(frame, None, self._anew, around)

    def _ends(self, head: Head) -> None:
        """End the round of a loop; it is a step if it updated variables by whose gradients it was computed."""
        import tensorflow as tf

        if self.is_over or not self._changed:
            return
        changed, self._changed = frozenset(self._changed), set()
        done, self._round = self._round, None
        if self._head is None:
            self._head = head
            self._optimizers.clear()
        if done is None:
            return
        if head not in self._own:
            function = SimpleNamespace(python_function=done.again, __name__="a round of the loop")
            own = OwnStep(function, tuple(self._optimizers.values()), tuple(self._sources.values()), changed)
            begun = self._begin(own.model, function.__name__, {})
            begun = replace(begun, own=own, loop=self._loop, around=self._around)
            self._own[head] = self._trainings[-1] = begun
        self._own[head].given, self._given = self._given, None
        kinds = (np.ndarray, tf.Tensor)
        held = {name: one for name, one in done.names.items() if isinstance(one, kinds) and len(one.shape)}
        has_batch = first_axis(done.item) is not None
        self._stepped([((done.item, {} if has_batch else held), {})], self._own[head])

    def _round_of_models(self, training: Training) -> tuple[Training, tuple[tuple[Training, int], ...], bool]:
        """Return the training that ends a round of all models, how often each other takes part, and what is open.

        That is the training with the fewest steps; a round ends with each of its steps. Lines of the program that
        have not trained yet may belong to a further model. Of functions, a round runs each once: where one runs
        more often, the others are no part, since the samples of such a round are not known.
        """
        self._sequence.append(training)
        models = [one for one in self._trainings if one.has_function == training.has_function
                  and (one.has_function or one.way == BATCHES)]  # fmt: skip
        last = min(reversed(models), key=lambda one: one.steps)
        at = [place for place, one in enumerate(self._sequence) if one is last]
        if training.own is not None:
            waits = last.steps < WANTED_ROUND or self._calls_more(type(training.own.function))
        else:
            trained = {line for one in models for line in one.lines}
            waits = last.steps < WANTED_ROUND or bool(loops.lines_of_calls(training.file, BATCHES) - trained)
        if len(at) < 2 or len(self._sequence) > MOST_OWN:
            return (last if len(at) > 1 else models[0]), (), waits and len(self._sequence) <= MOST_OWN
        inside = self._sequence[at[-2] + 1 : at[-1]]
        if training.has_function and len(inside) > len({id(one) for one in inside}):
            return max(models, key=lambda one: one.steps), (), waits
        return last, tuple((one, inside.count(one)) for one in models if one is not last and one in inside), waits

    def _calls_more(self, kind: type) -> bool:
        """Return whether the innermost loop around calls a function of this kind that has not run yet."""
        around = loops.loops_of_program(self._own_frame())
        nodes = ast.walk(around[-1].node) if around else ()
        called = (evaluated_or_none(one.func, around[-1].frame) for one in nodes if isinstance(one, ast.Call))
        return any(isinstance(one, kind) and id(one) not in self._called for one in called)

    def _stepped(self, batches: list[Any], training: Training | None = None) -> None:
        if training is None and not self._running:
            return
        training = training or self._running[-1]
        for batch in batches:
            training.step(batch)
        waits, parts = False, tuple[tuple[Training, int], ...]()
        if training.way == BATCHES or training.has_function:
            training, parts, waits = self._round_of_models(training)
        self.rounds = training.steps
        taken = [training, *(one for one, _ in parts)]
        others = [one for one in self._trainings if one.steps and not any(one is other for other in taken)]
        self.captured = Capture(training, others, parts)
        # Steps are traced by shapes: further ones may only show a larger batch.
        if (training.steps >= WANTED_ROUND and not waits) or monotonic() - training.began > MAX_STEPS_S:
            self.is_over = True
            self._on_capture(self.captured)
