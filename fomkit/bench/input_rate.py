"""Measure the rate of an input pipeline in a separate process, as the overhead ``input`` of a machine profile.

The pipeline is a PyTorch DataLoader, a tf.data.Dataset, or any iterable. Nothing else is computed meanwhile, so
the result is the fastest rate at which the pipeline can be read. `measure_input` measures and writes the profile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, repeat
from math import ceil
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from fomkit.bench.record import base_machine, median_span, read_facts, read_moment, write_machine
from fomkit.core.errors import FomkitError
from fomkit.core.machine import Fact, Machine, Overhead
from fomkit.files.child_process import Program, error_content, error_in, read_request, run_child
from fomkit.frontends.model_file import explain_exception, run_file
from fomkit.harness.torch.cases import CannotTimeError, Summary, summarise
from fomkit.plan.step import INPUT

BLOCK_S = 5e-3
"""Shortest time [s] of one repeat; faster batches are timed in blocks of several."""
LOOK_BATCHES = 25
"""Batches between two checks of whether the rate is known well enough."""
MOST_BATCHES = 200_000


class Loader(NamedTuple):
    """The loader to read.

    `workers`: processes that make batches; 0 if the reader makes them itself or does not state them.
    `ahead`: batches that may be ready before the first is read.
    `batch`: samples of a batch, if the loader states it.
    """

    batches: Iterable[Any]
    what: str
    workers: int = 0
    ahead: int = 0
    batch: int | None = None


class Epoch(NamedTuple):
    """One pass over the data, or the part of it that was read.

    `begun_s`: moment at which the first batch was requested.
    `arrived_s`: moments at which batches arrived.
    `samples`: samples of each batch.
    """

    begun_s: float
    arrived_s: list[float]
    samples: list[int]


def _leaf(batch: Any) -> Any:
    """Return the first array of a batch of nested dictionaries, tuples or lists."""
    while isinstance(batch, Mapping | tuple | list) and len(batch):
        batch = next(iter(batch.values())) if isinstance(batch, Mapping) else batch[0]
    return batch


def samples_of(batch: Any, stated: int | None) -> int:
    """Count the samples of a batch: the first axis of its first array, else what the loader states.

    >>> import numpy
    >>> samples_of({"image": numpy.zeros((4, 3))}, None), samples_of("text", 8)
    (4, 8)
    """
    shape = getattr(_leaf(batch), "shape", None)
    if shape is not None and len(shape):
        return int(shape[0])
    if stated is None:
        raise CannotTimeError(
            f"its batches hold a {type(_leaf(batch)).__name__} first, which does not state a number of samples. "
            "Give arrays whose first axis counts the samples"
        )
    return int(stated)


def _torch_loader(loader: Any) -> Loader:
    import torch

    ahead = (loader.prefetch_factor or 0) * loader.num_workers
    return Loader(loader, f"DataLoader of torch {torch.__version__}", loader.num_workers, ahead, loader.batch_size)


def _as_loader(loader: Any) -> Loader:
    home = type(loader).__module__.partition(".")[0]
    if home == "tensorflow":
        import tensorflow

        return Loader(loader, f"tf.data of TensorFlow {tensorflow.__version__}", 0, 2)
    if home == "torch" and hasattr(loader, "num_workers"):
        return _torch_loader(loader)
    return Loader(loader, type(loader).__name__, 0, 0, getattr(loader, "batch_size", None))


def _of_dataset(dataset: Any, batch: int, workers: int) -> Loader:
    if type(dataset).__module__.partition(".")[0] == "tensorflow":
        if workers:
            raise CannotTimeError("tf.data has no worker processes. Leave --workers out; it is num_parallel_calls")
        return _as_loader(dataset.batch(batch))
    from torch.utils.data import DataLoader

    return _torch_loader(DataLoader(dataset, batch_size=batch, num_workers=workers))


def loader_of(module: ModuleType, workers: int | None, batch: int | None) -> Loader:
    """Return a file's ``loader``, else one of its ``dataset`` or ``inputs`` with the given or the file's batch."""
    given = vars(module)
    if "loader" in given:
        if workers is not None or batch is not None:
            raise CannotTimeError("its loader has its own workers and batch. Leave --workers and --batch out")
        loader = given["loader"]
        made = isinstance(loader, type) or not hasattr(loader, "__iter__")
        loader = loader() if callable(loader) and made else loader
        if not hasattr(loader, "__iter__"):
            raise CannotTimeError(f"its loader is of type {type(loader).__name__}, which yields no batches")
        return _as_loader(loader)
    size = batch or given.get("batch_size")
    name = next((name for name in ("dataset", "inputs") if name in given), None)
    if name is None:
        raise CannotTimeError("has no 'loader', 'dataset' or 'inputs'. Add a loader, which yields batches")
    if not isinstance(size, int) or size < 1:
        what = "a dataset" if name == "dataset" else name
        raise CannotTimeError(f"has {what} and no batch_size. Add one, or give --batch")
    if name == "dataset":
        return _of_dataset(given["dataset"], size, workers or 0)
    if workers is not None or not callable(given["inputs"]):
        raise CannotTimeError(
            "has inputs only: without a worker process, a function that returns a batch was expected"
        )
    return Loader(map(given["inputs"], repeat(size)), "inputs(batch) of the file, which reads no data", 0, 0, size)


def blocks_of(epochs: Sequence[Epoch], ahead: int, workers: int) -> list[tuple[float, float]]:
    """Return, for each block of batches, the time [s] per batch and the samples per batch.

    Workers deliver their batches in turn, so that several arrive at once: a block has equally many of each worker.
    Left out are batches that were ready when an epoch began (at most half the epoch), incomplete blocks at the end
    of an epoch, and blocks with a batch of another size than most.

    >>> blocks_of([Epoch(0.0, [1.0, 1.1, 1.2, 1.3, 1.4], [8] * 5)], 1, 0)[:1]
    [(0.1, 8.0)]
    """
    read = [epoch.arrived_s for epoch in epochs if epoch.arrived_s]
    count = sum(len(arrived_s) - 1 for arrived_s in read)
    if not count:
        return []
    gap_s, turn = sum(arrived_s[-1] - arrived_s[0] for arrived_s in read) / count, max(1, workers)
    size = turn * max(1, ceil(BLOCK_S / max(gap_s * turn, 1e-12)))
    size = min(size, max(1, max(len(epoch.arrived_s) for epoch in epochs) // 4))
    # Only batches of the most frequent size count, or all if that size is not the majority.
    sizes = [many for epoch in epochs for many in epoch.samples]
    often = max(set(sizes), key=sizes.count)
    common = {often} if sizes.count(often) > len(sizes) / 2 else set(sizes)
    found = []
    for epoch in epochs:
        first = min(ahead, len(epoch.arrived_s) // 2)
        for start in range(first, len(epoch.arrived_s) - size, size):
            span = epoch.arrived_s[start + size] - epoch.arrived_s[start]
            if set(epoch.samples[start + 1 : start + size + 1]) <= common:
                counted = sum(epoch.samples[start + 1 : start + size + 1])
                found.append((round(span / size, 12), counted / size))
    return found


def read_loader(
    loader: Loader, limit_s: float, enough: Callable[[list[tuple[float, float]]], bool]
) -> list[Epoch]:
    """Read batches until the rate is known or the time is up; start a new epoch when they end."""
    begun = time.perf_counter()
    epochs: list[Epoch] = []
    read = 0
    while read < MOST_BATCHES:
        epoch = Epoch(time.perf_counter(), [], [])
        epochs.append(epoch)
        for batch in islice(iter(loader.batches), MOST_BATCHES - read):
            epoch.arrived_s.append(time.perf_counter())
            epoch.samples.append(samples_of(batch, loader.batch))
            read += 1
            if read == 1:
                begun = time.perf_counter()  # the start of workers has its own limit
            if time.perf_counter() - begun > limit_s:
                return epochs
            if read % LOOK_BATCHES == 0 and enough(blocks_of(epochs, loader.ahead, loader.workers)):
                return epochs
        if not epoch.arrived_s:
            again = "a second time. Use a loader that can be read again" if read else ". Add data"
            raise CannotTimeError(f"its loader yields no batch{' ' if read else ''}{again}")
    return epochs


LIMITS_S: Mapping[str, float] = {"quick": 20.0, "default": 60.0, "full": 300.0}
"""Time limit [s] for reading batches, by plan."""
TARGET = 0.02
START_S = 120.0
"""Time limit [s] for the file before its first batch."""
INPUT_FILE = Program(
    "fomkit.bench.input_rate",
    slow="Its first batch comes too late, or one batch takes minutes; reduce its work before that.",
    large="Use smaller batches or fewer workers.",
    gone="Remove that from the file.",
    environment={"TF_CPP_MIN_LOG_LEVEL": "3"},
)


@dataclass(frozen=True)
class InputSpec:
    """The options of a measurement: the file, the profile, and for a dataset workers and batch."""

    file: Path
    output: Path
    plan: str = "default"
    workers: int | None = None
    batch: int | None = None
    add: bool = False
    name: str = ""


@dataclass(frozen=True)
class InputMeasured:
    """The rate of an input pipeline.

    `what`: description of the loader that was read.
    `batch`: samples of a batch, the mean over blocks.
    `times`: time [s] of a batch, for each block.
    `starts_s`: time [s] to the first batch, for each epoch; the first is the cold start.
    """

    what: str
    batch: float
    times: tuple[float, ...]
    starts_s: tuple[float, ...]
    machine: Machine
    files: tuple[Path, ...] = ()

    @property
    def per_batch(self) -> Summary:
        """Summary of the times of all blocks."""
        return summarise(self.times)

    @property
    def fact(self) -> Fact:
        """Time [s] of one batch with the 80 % interval of its median; the range of fewer than 6 counts as 95 %."""
        median, low, high = (float(f"{one:.4g}") for one in median_span(self.times).ends)
        return Fact(median, low, high, "measured", f"measured here: {self.what}")

    def lines(self) -> list[str]:
        """Return the result as sentences."""
        fact, batch = self.fact, self.batch
        start, *again = self.starts_s
        messages = [
            f"{batch / fact.value:,.4g} samples/s ({batch / fact.high:,.4g} to {batch / fact.low:,.4g}), "
            f"{fact.value * 1e3:.4g} ms a batch of {batch:.4g}: {self.what}",
            f"cold start, to the first batch: {start:.3g} s, not in the rate",
        ]
        if again:
            messages.append(f"start of {len(again)} later epochs: {sorted(again)[len(again) // 2]:.3g} s (median)")
        if self.per_batch.low_s is None:
            messages.append(f"{self.per_batch.repeats} repeats only: the interval is their range")
        return messages


class ReadBatches(NamedTuple):
    """Readings of an input pipeline: times [s] and samples of a batch by block; ``starts_s`` of each epoch."""

    what: str
    workers: int
    times: list[float]
    samples: list[float]
    batches: int
    starts_s: list[float]


def _read_in_child(spec: InputSpec) -> ReadBatches:
    limit_s, memory = LIMITS_S[spec.plan], read_facts().memory_byte
    request = {
        "path": str(spec.file.resolve()), "where": str(spec.file), "workers": spec.workers,
        "batch": spec.batch, "limit_s": limit_s, "target": TARGET,
    }  # fmt: skip
    result = run_child(request, str(spec.file), limit_s + START_S, memory or float("inf"), INPUT_FILE)
    if "errors" in result:
        raise error_in(result)
    return ReadBatches(**result["read"])


def measure_input(spec: InputSpec) -> InputMeasured:
    """Read a file's input pipeline and write its time per batch as the overhead ``input`` of each step."""
    if not spec.file.is_file():
        raise FomkitError(str(spec.file), "is not a file. Give a Python file with a 'loader'.")
    facts = read_facts()
    machine = base_machine(spec.output, spec.name, facts.model or "measured input", add=spec.add)
    before, read = read_moment().load, _read_in_child(spec)
    batch = sum(read.samples) / len(read.samples)
    workers = f", {read.workers} workers" if read.workers else ""
    what = f"{spec.file.name}, {read.what}{workers}, batch {batch:.4g}, {read.batches:,} batches read"
    found = InputMeasured(what, batch, tuple(read.times), tuple(read.starts_s), machine)
    others = [overhead for overhead in machine.overheads if (overhead.name, overhead.per) != (INPUT, "step")]
    notes = [f"input pipeline: {line}" for line in found.lines()]
    if before is not None:
        notes.append(f"input pipeline: load before it was read {before:.2f} (/proc/loadavg)")
    kept = tuple(note for note in machine.notes if not note.startswith("input pipeline: "))
    machine = replace(machine, overheads=(*others, Overhead(INPUT, "step", found.fact, None)), notes=kept)
    return replace(found, machine=machine, files=tuple(write_machine(machine, spec.output, notes)))


ENOUGH_BLOCKS = 30
"""Fewest blocks whose interval of the median may end a measurement early."""


def read_batches(path: Path, request: Mapping[str, Any]) -> ReadBatches:
    """Read a file's input pipeline up to the requested time or precision."""
    loader = loader_of(run_file(path), request["workers"], request["batch"])

    def enough(blocks: list[tuple[float, float]]) -> bool:
        times = [time_s for time_s, _ in blocks]
        return len(times) >= ENOUGH_BLOCKS and summarise(times).width <= request["target"]

    epochs = read_loader(loader, request["limit_s"], enough)
    blocks = blocks_of(epochs, loader.ahead, loader.workers)
    if len(blocks) < 2:
        count = sum(len(epoch.arrived_s) for epoch in epochs)
        raise CannotTimeError(f"yielded {count} batches, too few to measure a rate. Use more data, or try --full")
    times, samples = zip(*blocks, strict=True)
    starts_s = [epoch.arrived_s[0] - epoch.begun_s for epoch in epochs if epoch.arrived_s]
    batches = sum(len(epoch.arrived_s) for epoch in epochs)
    return ReadBatches(loader.what, loader.workers, list(times), list(samples), batches, starts_s)


def main() -> None:
    """Answer one request."""
    request, answer = read_request()
    path = Path(request["path"])
    try:
        result: dict[str, object] = {"read": read_batches(path, request)._asdict()}
    except CannotTimeError as reason:
        result = error_content(FomkitError(request["where"], f"{reason}."))
    except BaseException as error:  # the file may raise anything, SystemExit too; the parent reports it
        result = error_content(explain_exception(error, request["where"], path))
    answer.write(result)
