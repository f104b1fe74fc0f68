"""Find how long a running program trains: from its trainer, else its loaders and the loops around its steps.

A trainer is an object of a library that contains the loop. Its figures are read from the object that is training,
found in the frames of the call, so that no library is imported for it.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary

from torch.utils import data
from torch.utils.data import dataloader

from fomkit.core.model import LastBatch
from fomkit.frontends.drafting import watched
from fomkit.frontends.model_file import source_tree

_ARITHMETIC: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
}  # fmt: skip
_WRAPPERS = frozenset({"enumerate", "tqdm", "islice", "iter", "zip", "reversed", "progress_bar", "track"})
"""Calls that yield the items of their first argument one by one."""
_RANGES = frozenset({"range", "trange"})
_INSIDE = ("iterable", "base_dataloader", "_dataloader")
"""Attributes by which progress bars, and loaders of accelerate and Lightning Fabric, hold their source."""


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
    batch = loader.batch_size or getattr(by_batch, "batch_size", None)
    streams = isinstance(loader.dataset, data.IterableDataset)
    samples = length_of(loader.dataset if streams or loader.batch_size is None else loader.sampler)
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
            batches = start(loader)
        loaders[batches] = loader
        return batches

    def fetched(fetch: Any, batches: Any) -> Any:
        with quietly():
            values = fetch(batches)
            if batches not in loaders:
                return values
            loader = loaders[batches]
            facts = loader_facts(loader)
            full = None if facts.samples is None or not facts.batch else facts.samples // facts.batch
            return on_batch(Fetched(loader, values, full is None or batches._num_yielded <= full))

    with watched(data.DataLoader, __iter__=started), watched(dataloader._BaseDataLoaderIter, __next__=fetched):
        yield


class Unknown(Exception):  # noqa: N818 - a verdict, not a fault
    """The source does not determine the value."""


@dataclass(frozen=True)
class RunLength:
    """How long a program trains; None where it is unknown.

    `epochs`, `origin`: their number, and how it is known or why it is not.
    `train_samples`, `validation_samples`: of one epoch, if a trainer states them; otherwise the loader's are used.
    `steps`: of the optimizer in the whole run, if the run is limited by steps, not by epochs.
    `accumulates`: backward passes per step of the optimizer, as set in the trainer.
    `remarks`: further notes from the trainer.
    """

    epochs: int | None
    origin: str
    train_samples: int | None = None
    validation_samples: int | None = None
    steps: int | None = None
    accumulates: int | None = None
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Loop:
    node: ast.For | ast.While
    frame: FrameType

    @property
    def place(self) -> str:
        return f"{Path(self.frame.f_code.co_filename).name}:{self.node.lineno}"


@cache
def _loops_of_file(path: str) -> tuple[ast.For | ast.While, ...]:
    tree = source_tree(Path(path))
    return tuple(node for node in (ast.walk(tree) if tree else ()) if isinstance(node, ast.For | ast.While))


def _loops_around(frame: FrameType) -> list[_Loop]:
    """Return the loops of a frame's own function whose body runs now, the outermost first."""
    line, code = frame.f_lineno, frame.f_code
    if line is None:
        return []
    own = (node for node in _loops_of_file(code.co_filename) if code.co_firstlineno <= node.lineno)
    found = [node for node in own if node.body[0].lineno <= line <= (node.body[-1].end_lineno or 0)]
    return [_Loop(node, frame) for node in sorted(found, key=lambda node: node.lineno)]


def _evaluated(node: ast.expr, frame: FrameType) -> Any:
    """Evaluate a plain expression in a frame: names, attributes, items and arithmetic; only ``int`` is called."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        for names in (frame.f_locals, frame.f_globals):
            if node.id in names:
                return names[node.id]
    if isinstance(node, ast.Attribute):
        return getattr(_evaluated(node.value, frame), node.attr)
    if isinstance(node, ast.Subscript):
        return _evaluated(node.value, frame)[_evaluated(node.slice, frame)]
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        return _ARITHMETIC[type(node.op)](_evaluated(node.left, frame), _evaluated(node.right, frame))
    if isinstance(node, ast.Call) and _called_name(node) == "int" and len(node.args) == 1:
        return int(_evaluated(node.args[0], frame))
    raise Unknown


def _evaluated_or_none(node: ast.expr, frame: FrameType) -> Any:
    try:
        return _evaluated(node, frame)
    except Exception:  # the user's objects may raise anything
        return None


def _is_loader(node: ast.expr, frame: FrameType, loader: Any) -> bool:
    """Return whether an expression is the loader, or an object that wraps it, or makes a loader of its class."""
    if isinstance(node, ast.Call) and _evaluated_or_none(node.func, frame) is type(loader):
        return True
    value = _evaluated_or_none(node, frame)
    return value is loader or any(getattr(value, "__dict__", {}).get(name) is loader for name in _INSIDE)


def _called_name(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def _unwrapped(node: ast.expr) -> Iterator[ast.expr]:
    """Yield the expression that a loop iterates over, then, if it is a known wrapper, what is inside."""
    yield node
    if isinstance(node, ast.Call) and _called_name(node) in _WRAPPERS:
        for argument in node.args:
            yield from _unwrapped(argument)


def _rounds(loop: _Loop) -> int | None:
    """Return the number of rounds of a ``for … in range(…)``."""
    if not isinstance(loop.node, ast.For):
        return None
    for node in _unwrapped(loop.node.iter):
        if isinstance(node, ast.Call) and _called_name(node) in _RANGES and 1 <= len(node.args) <= 3:
            bounds = [_evaluated_or_none(argument, loop.frame) for argument in node.args]
            return len(range(*bounds)) if all(type(bound) is int for bound in bounds) else None
    return None


def _by_loops(frame: FrameType | None, is_user_file: Callable[[str], bool], loader: Any) -> RunLength:
    """Find the epochs: the rounds of the ``range`` loop directly outside the loop over the training data.

    `frame`: the innermost of the program's frames; `is_user_file`: whether a source file is the user's own;
    `loader`: source of the training data; None if there is none.
    """
    if loader is None:
        return RunLength(None, "no loop over a DataLoader was found")
    loops: list[_Loop] = []
    while frame is not None:
        if is_user_file(frame.f_code.co_filename):
            loops = _loops_around(frame) + loops
        frame = frame.f_back
    for place, loop in enumerate(loops):
        iterated = _unwrapped(loop.node.iter) if isinstance(loop.node, ast.For) else ()
        if any(_is_loader(node, loop.frame, loader) for node in iterated):
            return _epochs_outside(loops[:place], loop)
    return RunLength(None, "the loop over the DataLoader cannot be analysed")


def _epochs_outside(loops: list[_Loop], data: _Loop) -> RunLength:
    if not loops:
        return RunLength(None, f"no loop encloses the loop over the data at {data.place}")
    rounds = _rounds(loops[-1])
    if rounds is None:
        return RunLength(None, f"the loop at {loops[-1].place} is not over a range of known length")
    return RunLength(rounds or None, f"from the loop at {loops[-1].place}")


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


_TRAINERS: Mapping[str, Callable[[Any, Any], RunLength]] = {
    "transformers": _hugging_face, "lightning": _lightning, "pytorch_lightning": _lightning,
}  # fmt: skip
"""By the package that defines the class ``Trainer``; programs may train by a subclass of it."""


def _trainer_of(frame: FrameType) -> tuple[Any, Callable[[Any, Any], RunLength]] | None:
    """Return the trainer whose method a frame runs, and the function that reads it."""
    owner = frame.f_locals.get("self")
    for kind in type(owner).__mro__:
        reader = _TRAINERS.get(kind.__module__.partition(".")[0])
        if reader is not None and kind.__name__ == "Trainer":
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
    return _by_loops(frame, is_user_file, loader)
