"""Where a running program's batches come from: each DataLoader that gives one, and what it says of an epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from torch.utils import data
from torch.utils.data import dataloader

from fomkit.trace.torch_rows import replaced
from fomkit.workload import LastBatch


def _length(values: Any) -> int | None:
    try:
        return len(values)
    except (TypeError, NotImplementedError):  # a stream does not know
        return None


@dataclass(frozen=True)
class LoaderFacts:
    """What a loader says of itself; None where it does not."""

    batch: int | None
    samples: int | None
    last_batch: LastBatch

    @property
    def full_batches(self) -> int | None:
        """Batches of an epoch that hold as many samples as asked for."""
        return None if self.samples is None or not self.batch else self.samples // self.batch


def loader_facts(loader: Any) -> LoaderFacts:
    """Read batch size, samples per epoch and what becomes of the last batch."""
    by_batch = getattr(loader, "batch_sampler", None)
    batch = loader.batch_size or getattr(by_batch, "batch_size", None)
    streams = isinstance(loader.dataset, data.IterableDataset)
    samples = _length(loader.dataset if streams or loader.batch_size is None else loader.sampler)
    drops = loader.drop_last or bool(getattr(by_batch, "drop_last", False))
    return LoaderFacts(batch if isinstance(batch, int) else None, samples, "drop" if drops else "keep")


@dataclass(frozen=True)
class Fetched:
    """One batch that the program took."""

    loader: Any
    values: Any
    is_full: bool


@contextmanager
def watch_loaders(
    on_start: Callable[[], None], on_batch: Callable[[Fetched], None], quietly: Callable[[], Any]
) -> Iterator[None]:
    """Follow every DataLoader of this process inside the block.

    Parameters
    ----------
    on_start : function
        Called before a loader is gone through anew.
    on_batch : function of a batch
    quietly : function that gives a context
        In which batches are made: that is the host's work, and no op of the step.
    """
    loaders: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
    start, fetch = data.DataLoader.__iter__, dataloader._BaseDataLoaderIter.__next__

    def started(self: Any) -> Any:
        on_start()
        with quietly():
            batches = start(self)
        loaders[batches] = self
        return batches

    def fetched(self: Any) -> Any:
        with quietly():
            values = fetch(self)
        if self in loaders:
            loader = loaders[self]
            full = loader_facts(loader).full_batches
            on_batch(Fetched(loader, values, full is None or self._num_yielded <= full))
        return values

    with (
        replaced(data.DataLoader, "__iter__", started),
        replaced(dataloader._BaseDataLoaderIter, "__next__", fetched),
    ):
        yield
