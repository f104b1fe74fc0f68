"""Which step of a running Keras program is taken: of the first fit or train_on_batch that makes enough of them."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import wraps
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import keras
from keras.src.optimizers.base_optimizer import BaseOptimizer

from fomkit.trace.keras_script_data import first_axis
from fomkit.trace.script_child import WANTED_ROUND

_NAMES = {
    "tensorflow": ("TensorFlowTrainer", "TFEpochIterator"),
    "torch": ("TorchTrainer", "TorchEpochIterator"),
}
"""Keras's trainers and their iterators by backend."""
FIT, BATCHES = "Model.fit", "train_on_batch"


@dataclass
class Training:
    """One call of ``fit``, or all of ``train_on_batch`` on one model.

    Attributes
    ----------
    way : str
        How it trains, in Keras's words.
    file, line : str and int
        Where the program calls it.
    arguments : mapping
        Of ``fit``, by name, defaults too.
    iterator : EpochIterator
        What ``fit`` made of its data.
    steps : int
        Those seen.
    batch : object
        The fullest batch seen, as a training step takes it.
    """

    model: Any
    way: str
    file: str
    line: int
    arguments: Mapping[str, Any] = field(default_factory=dict)
    iterator: Any = None
    steps: int = 0
    batch: Any = None

    @property
    def place(self) -> str:
        """Where it is called, for people."""
        return f"{Path(self.file).name}:{self.line}"

    def step(self, batch: Any) -> None:
        """Note a step on a batch."""
        self.steps += 1
        if self.batch is None or (first_axis(batch) or 0) >= (first_axis(self.batch) or 0):
            self.batch = batch


@dataclass(frozen=True)
class Taken:
    """A training whose step is taken, and the others that were seen before it."""

    training: Training
    others: list[Training]


class FitWatch:
    """Follows a program's training by Keras until a step can be taken.

    Parameters
    ----------
    is_user_file : function of a path
        Tells the user's own source from libraries'.
    on_taken : function of Taken
        Called once; it may raise what ends the program.

    Attributes
    ----------
    rounds : int
        Steps of the training seen last.
    taken : Taken or None
        The best so far.
    is_over : bool
        Whether a step was taken for good.
    """

    def __init__(self, is_user_file: Callable[[str], bool], on_taken: Callable[[Taken], None]) -> None:
        self.rounds = 0
        self.taken: Taken | None = None
        self.is_over = False
        self._is_user_file, self._on_taken = is_user_file, on_taken
        self._trainings: list[Training] = []
        self._running: list[Training] = []
        self._in_step = False
        self._updates = 0

    @property
    def seen(self) -> str:
        """Say what was seen of a program that never trained by Keras's own means."""
        return ", though it updates weights in a loop of its own" if self._updates else ""

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Follow what runs inside the block."""
        trainer = import_module(f"keras.src.backend.{keras.backend.backend()}.trainer")
        name_of_trainer, name_of_iterator = _NAMES[keras.backend.backend()]
        kind = getattr(trainer, name_of_trainer)
        with ExitStack() as stack:
            # Without its own frames, Keras's errors would seem to come from here.
            if keras.config.is_traceback_filtering_enabled():
                keras.config.disable_traceback_filtering()
                stack.callback(keras.config.enable_traceback_filtering)
            for owner, name, watched in (
                (kind, "fit", self._fit),
                (kind, "train_on_batch", self._train_on_batch),
                (kind, "make_train_function", self._make_train_function),
                (trainer, name_of_iterator, self._epoch_iterator),
                (BaseOptimizer, "apply", self._apply),
            ):
                before = getattr(owner, name)
                setattr(owner, name, watched(before))
                stack.callback(setattr, owner, name, before)
            yield

    def _begin(self, model: Any, way: str, arguments: Mapping[str, Any]) -> Training:
        frame: Any = sys._getframe()
        while frame is not None and not self._is_user_file(frame.f_code.co_filename):
            frame = frame.f_back
        file, line = ("", 0) if frame is None else (frame.f_code.co_filename, frame.f_lineno)
        training = Training(model, way, file, line, arguments)
        self._trainings.append(training)
        return training

    def _fit(self, run: Any) -> Any:
        signature = inspect.signature(run)

        @wraps(run)
        def fit(model: Any, *args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(model, *args, **kwargs)
            bound.apply_defaults()
            self._running.append(self._begin(model, FIT, bound.arguments))
            try:
                return run(model, *args, **kwargs)
            finally:
                self._running.pop()

        return fit

    def _train_on_batch(self, run: Any) -> Any:
        @wraps(run)
        def train_on_batch(model: Any, *args: Any, **kwargs: Any) -> Any:
            known = [one for one in self._trainings if one.way == BATCHES and one.model is model]
            self._running.append(known[0] if known else self._begin(model, BATCHES, {}))
            try:
                return run(model, *args, **kwargs)
            finally:
                self._running.pop()

        return train_on_batch

    def _epoch_iterator(self, make: Any) -> Any:
        def made(*args: Any, **kwargs: Any) -> Any:
            iterator = make(*args, **kwargs)
            if self._running and self._running[-1].iterator is None:
                self._running[-1].iterator = iterator  # the next one is for validation
            return iterator

        return made

    def _make_train_function(self, make: Any) -> Any:
        @wraps(make)
        def made(model: Any, *args: Any, **kwargs: Any) -> Any:
            make(model, *args, **kwargs)
            if not hasattr(model.train_function, "is_watched"):
                model.train_function = self._watched(model, model.train_function)
            return model.train_function

        return made

    def _watched(self, model: Any, run: Any) -> Any:
        """Take the batches out of a program's data, so that their shapes are seen, and train on them."""

        def train(iterator: Any) -> Any:
            if self.is_over:
                os._exit(0)  # a program that would not be stopped
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
        return train

    def _apply(self, run: Any) -> Any:
        @wraps(run)
        def apply(*args: Any, **kwargs: Any) -> Any:
            self._updates += not self._in_step
            return run(*args, **kwargs)

        return apply

    def _stepped(self, batches: list[Any]) -> None:
        if not self._running:
            return
        training = self._running[-1]
        for batch in batches:
            training.step(batch)
        self.rounds = training.steps
        self.taken = Taken(training, [one for one in self._trainings if one is not training and one.steps])
        if training.steps >= WANTED_ROUND:
            self.is_over = True
            self._on_taken(self.taken)
