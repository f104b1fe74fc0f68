"""Find how long a running program trains: from its trainer, else its loaders and the loops around its steps.

A trainer is an object of a library that contains the loop. Its figures are read from the object that is training,
found in the frames of the call, so that no library is imported for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary

from torch.utils import data
from torch.utils.data import dataloader

from fomkit.core.model import LastBatch
from fomkit.frontends.drafting import watched
from fomkit.frontends.script.loops import RunLength, run_by_loops


def length_of(values: Any) -> int | None:
    """Return the samples of a dataset, or of several by name; None if there is no length, as for streams."""
    try:
        return sum(map(len, values.values())) if isinstance(values, dict) else len(values)
    except (TypeError, NotImplementedError):
        return None


@dataclass(frozen=True)
class LoaderFacts:
    """Facts about a loader; None where unknown."""

    batch: int | None
    samples: int | None
    last_batch: LastBatch


def loader_facts(loader: Any) -> LoaderFacts:
    """Read batch size, samples per epoch and treatment of the last batch."""
    by_batch = getattr(loader, "batch_sampler", None)
    own = getattr(loader, "batch_size", None)
    batch = own or getattr(by_batch, "batch_size", None) or getattr(loader, "bs", None)  # bs: of fastai's loader
    streams = isinstance(loader.dataset, data.IterableDataset)
    samples = length_of(loader.dataset if streams or own is None else loader.sampler)
    drops = loader.drop_last or bool(getattr(by_batch, "drop_last", False))
    return LoaderFacts(batch if isinstance(batch, int) else None, samples, "drop" if drops else "keep")


@dataclass(frozen=True)
class Fetched:
    """One batch that the program fetched."""

    loader: Any
    values: Any
    is_full: bool


@contextmanager
def watch_loaders(
    on_start: Callable[[], None], on_batch: Callable[[Fetched], Any], quietly: Callable[[], Any]
) -> Iterator[None]:
    """Watch every DataLoader of this process inside the block.

    `on_start`: called before an iteration over a loader begins; `on_batch`: returns the values that the program
    gets of a batch; `quietly`: context in which batches are made: this is the host's work, and no op of the step.
    """
    loaders: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    def started(start: Any, loader: Any) -> Any:
        on_start()
        with quietly():
            return start(loader)

    def made(make: Any, batches: Any, loader: Any) -> None:
        # Also of loaders that keep their iterator, and of fastai's, which iterate over a stand-in.
        loaders[batches] = getattr(loader, "d", loader)
        make(batches, loader)

    def fetched(fetch: Any, batches: Any) -> Any:
        with quietly():
            values = fetch(batches)
            if batches not in loaders:
                return values
            loader = loaders[batches]
            facts = loader_facts(loader)
            full = None if facts.samples is None or not facts.batch else facts.samples // facts.batch
            return on_batch(Fetched(loader, values, full is None or batches._num_yielded <= full))

    batches = dataloader._BaseDataLoaderIter
    with watched(data.DataLoader, __iter__=started), watched(batches, __init__=made, __next__=fetched):
        yield


def _whole_count(value: Any) -> int | None:
    """Return a count that is a whole number; None for endless streams and values that are not set."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return int(value) if value >= 1 and value == int(value) else None


def _stops_early(callbacks: Any) -> list[str]:
    stops = any("EarlyStopping" in type(callback).__name__ for callback in callbacks or ())
    return ["early stopping may end the run before its last epoch"] * stops


def _hugging_face(trainer: Any, _loader: Any) -> RunLength:
    """Read transformers.Trainer: whole epochs, else the number of steps that it computes itself."""
    arguments, remarks = trainer.args, _stops_early(trainer.callback_handler.callbacks)
    by_steps = arguments.max_steps > 0
    epochs = None if by_steps else _whole_count(arguments.num_train_epochs)
    strategy = getattr(arguments.eval_strategy, "value", arguments.eval_strategy)
    validated = {"no": 0, "epoch": length_of(trainer.eval_dataset)}.get(strategy)
    if strategy == "steps":
        remarks.append(f"validates every {arguments.eval_steps} steps, not once an epoch; this is not counted")
    return RunLength(
        epochs, f"{'max_steps' if by_steps else 'num_train_epochs'} of transformers.Trainer",
        steps=None if epochs else _whole_count(trainer.state.max_steps), validation_samples=validated,
        accumulates=_whole_count(arguments.gradient_accumulation_steps), remarks=tuple(remarks),
    )  # fmt: skip


def _lightning(trainer: Any, loader: Any) -> RunLength:
    """Read Lightning's Trainer: its epochs, or its steps if they end the run first."""
    batches, every = _whole_count(trainer.num_training_batches), _whole_count(trainer.accumulate_grad_batches)
    epochs, steps = _whole_count(trainer.max_epochs), _whole_count(trainer.max_steps)
    if epochs and steps:
        by_epochs = epochs * math.ceil(batches / (every or 1)) if batches else math.inf
        epochs, steps = (epochs, None) if by_epochs <= steps else (None, steps)
    validated, remarks = _validated_by_lightning(trainer)
    if getattr(trainer, "max_time", None):
        remarks.append("max_time may end the run before its last epoch")
    return RunLength(
        epochs, f"{'max_epochs' if epochs or not steps else 'max_steps'} of Lightning's Trainer",
        _limited_samples(batches, loader), validated, steps, every, (*remarks, *_stops_early(trainer.callbacks)),
    )  # fmt: skip


def _limited_samples(batches: int | None, loader: Any) -> int | None:
    """Return the samples of an epoch limited to some batches; None if the epoch ends with the loader."""
    batch, whole = (None, None) if loader is None else (loader_facts(loader).batch, length_of(loader))
    return batches * batch if batches and batch and (whole is None or batches < whole) else None


def _validated_by_lightning(trainer: Any) -> tuple[int | None, list[str]]:
    """Return the samples validated after each epoch, and notes on them."""
    if not trainer.enable_validation:
        return 0, []
    if trainer.check_val_every_n_epoch != 1 or trainer.val_check_interval not in (None, 1.0):
        return None, ["validates, but not once an epoch; this is not counted"]
    loaders = trainer.val_dataloaders
    loaders = loaders if isinstance(loaders, list | tuple) else [loaders]
    samples = 0
    for loader, most in zip(loaders, trainer.num_val_batches, strict=False):
        if not isinstance(loader, data.DataLoader) or not math.isfinite(most):
            return None, []
        facts = loader_facts(loader)
        if facts.samples is None or facts.batch is None:
            return None, []
        samples += min(facts.samples, int(most) * facts.batch)
    return samples or None, []


def _ignite(engine: Any, loader: Any) -> RunLength:
    """Read ignite's Engine, whose state holds its epochs or iterations, and the batches of an epoch."""
    state = engine.state
    epochs, steps = _whole_count(state.max_epochs), _whole_count(getattr(state, "max_iters", None))
    return RunLength(
        epochs, f"{'max_epochs' if epochs else 'max_iters'} of ignite's Engine",
        _limited_samples(_whole_count(state.epoch_length), loader), steps=None if epochs else steps,
    )  # fmt: skip


def _composer(trainer: Any, _loader: Any) -> RunLength:
    """Read composer's Trainer, whose duration is a number of epochs, batches or other units."""
    length = trainer.state.max_duration
    count = {length.unit.value: _whole_count(length.value)}
    return RunLength(count.get("ep"), "max_duration of composer's Trainer", steps=count.get("ba"))


def _ultralytics(trainer: Any, _loader: Any) -> RunLength:
    """Read ultralytics' trainers; their first steps accumulate fewer batches than the later ones."""
    validated = length_of(trainer.test_loader.dataset) if trainer.args.val else 0
    return RunLength(
        _whole_count(trainer.epochs), "epochs of ultralytics' trainer", validation_samples=validated,
        accumulates=max(round(trainer.args.nbs / trainer.batch_size), 1),
        remarks=("early stopping may end the run before its last epoch",) * bool(trainer.args.patience),
    )  # fmt: skip


_TRAINERS: Mapping[str, tuple[str, Callable[[Any, Any], RunLength]]] = {
    "transformers": ("Trainer", _hugging_face), "lightning": ("Trainer", _lightning),
    "pytorch_lightning": ("Trainer", _lightning), "composer": ("Trainer", _composer),
    "ignite": ("Engine", _ignite), "ultralytics": ("BaseTrainer", _ultralytics),
}  # fmt: skip
"""By package: its class that trains, and the function that reads it; programs may train by a subclass."""


def _trainer_of(frame: FrameType) -> tuple[Any, Callable[[Any, Any], RunLength]] | None:
    """Return the trainer whose method a frame runs, and the function that reads it."""
    owner = frame.f_locals.get("self")
    for kind in type(owner).__mro__:
        name, reader = _TRAINERS.get(kind.__module__.partition(".")[0], ("", None))
        if reader is not None and kind.__name__ == name:
            return owner, reader
    return None


def run_length(frame: FrameType | None, is_user_file: Callable[[str], bool], loader: Any) -> RunLength:
    """Find how long a program trains: from the running trainer, else from the loops around the data.

    `frame`: the innermost of the program's frames; `is_user_file`: whether a source file is the user's own;
    `loader`: source of the training data; None if there is none.
    """
    outer = frame
    while outer is not None:
        if found := _trainer_of(outer):
            trainer, reader = found
            try:
                return reader(trainer, loader)
            except Exception as error:  # another version of the library may differ
                name = type(trainer).__name__
                return RunLength(None, f"{name} has another form than in known versions ({type(error).__name__})")
        outer = outer.f_back
    return run_by_loops(frame, is_user_file, loader)
