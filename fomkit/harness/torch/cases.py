"""Basis for timing a single op: the op as a case to run and check, a stopwatch, and statistics of repeats.

Stopwatches use events on a GPU, and process time on one CPU thread; they also flush the caches to make operands
cold. `summarise` returns the median of repeats, its interval, and the outliers.

With the other files of `fomkit.workbook.vendor.PARTS` this is the script of a vendor's pack. It runs with only
Python and PyTorch installed, so it imports nothing of fomkit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from math import comb
from statistics import median, quantiles
from typing import Any, NamedTuple


class Later:
    """A package imported on first access to one of its names, so that tables can be checked without it."""

    def __init__(self, package: str) -> None:
        self._package = package

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # tools query these names on every object
            raise AttributeError(name)
        found = getattr(import_module(self._package), name)
        setattr(self, name, found)  # so that timed code finds the name as fast as in the package
        return found


torch: Any = Later("torch")
Cells = Mapping[str, str]
CHECKED_ROWS = 64
"""Rows of a product that are recomputed for the check; all would take longer than the timing."""
TOLERANCES = {
    "fp64": 1e-9, "fp32": 1e-4, "tf32": 1e-2, "fp16": 1e-2, "bf16": 5e-2, "int64": 0.0, "int32": 0.0, "bool": 0.0,
}  # fmt: skip
"""Largest accepted error relative to the largest true value, by number format; it grows only slowly with the
length of sums."""

FORMATS: Mapping[str, tuple[str, int]] = {
    "fp64": ("float64", 8), "fp32": ("float32", 4), "tf32": ("float32", 4), "fp16": ("float16", 2),
    "bf16": ("bfloat16", 2), "int64": ("int64", 8), "int32": ("int32", 4), "bool": ("bool", 1),
}  # fmt: skip
"""Supported number formats, with PyTorch's name and the bytes of one number."""


class Case(NamedTuple):
    """One op: ``run`` executes it once and returns its result, ``check`` returns the error of a result.

    ``besides`` is other work that ``run`` includes because the framework cannot run the op alone; its time is
    subtracted. ``share`` is the op's share of the time, if the framework runs two ops as one.
    """

    run: Callable[[], Any]
    check: Callable[[Any], float]
    besides: Callable[[], Any] | None = None
    share: float = 1.0


class CannotTimeError(Exception):
    """An op is not timed here; the message is the reason."""


def size_of(cells: Cells, name: str, default: int | None = None) -> int:
    """Read a whole number; an empty cell means the default, if there is one."""
    text = cells.get(name, "")
    if not text and default is not None:
        return default
    return int(float(text))


def item_byte(cells: Cells) -> int:
    """Return the bytes of one number in a row's format."""
    if cells["dtype"] not in FORMATS:
        raise CannotTimeError(f"the number format {cells['dtype']} is not timed here")
    return FORMATS[cells["dtype"]][1]


def torch_dtype(cells: Cells) -> Any:
    """Return PyTorch's number format for a row."""
    item_byte(cells)
    return getattr(torch, FORMATS[cells["dtype"]][0])


def error_of(found: Any, truth: Any) -> float:
    """Return the largest error of a result, relative to the largest true value."""
    scale = truth.abs().max().item()
    return float((found.double() - truth).abs().max().item() / (scale or 1.0))


def made(shape: Sequence[int], cells: Cells, device: str) -> Any:
    """Make a tensor of random values in the row's number format."""
    dtype = torch_dtype(cells)
    if dtype.is_floating_point:
        return torch.randn(tuple(shape), device=device, dtype=dtype)
    return torch.randint(0, 2, tuple(shape), device=device).to(dtype)


def exact(value: Any) -> Any:
    """Return a floating-point tensor in double precision, anything else unchanged."""
    return value.double() if getattr(value, "is_floating_point", bool)() else value


def first_of(result: Any) -> Any:
    """Return the first tensor of a result that may be several."""
    return result[0] if isinstance(result, tuple | list) else result


def same_in_double(run: Callable[..., Any], operands: Sequence[Any], *, in_place: bool = False) -> Case:
    """Make a case of a function and its operands, checked by the same function in double precision.

    With ``in_place`` the check uses copies of the operands made before the run.
    """
    before = [operand.clone() if in_place and hasattr(operand, "clone") else operand for operand in operands]

    def check(result: Any) -> float:
        return error_of(first_of(result), first_of(run(*(exact(operand) for operand in before))).double())

    return Case(lambda: run(*operands), check)


MISSED = 0.025
"""Probability that the true median is below its interval, and that it is above."""
MEDIAN_LEVEL = 1 - 2 * MISSED
"""Least probability that the interval of a median contains the true median."""
FENCE = 1.5
"""Distance from the quartiles, in interquartile ranges, beyond which a repeat is an outlier (Tukey, 1977)."""


class Summary(NamedTuple):
    """Repeats of one timing [s].

    `low_s`, `high_s`: the 95 % interval of the median; None with too few repeats.
    `outliers`: number of repeats beyond Tukey's fences. They are kept, because the median is robust to them.
    """

    median_s: float
    p25_s: float
    p75_s: float
    low_s: float | None
    high_s: float | None
    repeats: int
    outliers: int
    longest_s: float

    @property
    def width(self) -> float:
        """Half the interval of the median, relative to the median; infinite if there is no interval."""
        if self.low_s is None or self.high_s is None:
            return float("inf")
        return (self.high_s - self.low_s) / 2 / self.median_s


def order_statistics(repeats: int) -> tuple[int, int] | None:
    """Return the ranks, from 1, of the sorted repeats that bound the 95 % interval of the median.

    The number of repeats below the true median is Binomial(n, 1/2) for n repeats of any distribution.

    Examples
    --------
    >>> order_statistics(30), order_statistics(6), order_statistics(5)
    ((10, 21), (1, 6), None)
    """
    below, rank = 0.0, 0
    while below + comb(repeats, rank) / 2**repeats <= MISSED:
        below += comb(repeats, rank) / 2**repeats
        rank += 1
    return (rank, repeats + 1 - rank) if rank else None


def summarise(times: Sequence[float]) -> Summary:
    """Summarise two or more repeats [s]."""
    ordered, ranks = sorted(times), order_statistics(len(times))
    first, _, third = quantiles(ordered, n=4, method="inclusive")
    fence = FENCE * (third - first)
    return Summary(
        median_s=median(ordered),
        p25_s=first,
        p75_s=third,
        low_s=ordered[ranks[0] - 1] if ranks else None,
        high_s=ordered[ranks[1] - 1] if ranks else None,
        repeats=len(ordered),
        outliers=sum(not first - fence <= one <= third + fence for one in ordered),
        longest_s=ordered[-1],
    )


CLOCK_READS = 200


class Watch(NamedTuple):
    """Times runs of ops on one device.

    `measure`: returns the total time [s] of a number of runs.
    `empty_s`: its reading [s] without any work: the fixed cost of each repeat.
    `flush`: replaces the contents of the caches.
    `clock`: clock [s] of the total duration of repeats: the timing clock on a CPU, wall time on a GPU.
    """

    measure: Callable[[Callable[[], Any], int], float]
    empty_s: float
    flush: Callable[[], None]
    clock: Callable[[], float] = time.perf_counter


def by_events(cuda: Any) -> Callable[[Callable[[], Any], int], float]:
    """Make a stopwatch of CUDA events: the device's own clock, which does not count waiting of the host."""

    def measure(run: Callable[[], Any], times: int) -> float:
        start, end = (cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(times):
            run()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3

    return measure


def by_clock(clock: Callable[[], float]) -> Callable[[Callable[[], Any], int], float]:
    """Make a stopwatch of a clock that returns seconds."""

    def measure(run: Callable[[], Any], times: int) -> float:
        start = clock()
        for _ in range(times):
            run()
        return clock() - start

    return measure


def processor_clock(threads: int) -> Callable[[], float]:
    """Return the clock that times ops on a CPU: process time on one thread, else wall time.

    Process time adds up over threads, also while they wait. On Windows it advances by 16 ms, longer than most ops.
    """
    is_coarse = time.get_clock_info("process_time").implementation == "GetProcessTimes()"
    return time.process_time if threads == 1 and not is_coarse else time.perf_counter


def make_watch(device: str, cache_byte: float = 0.0) -> Watch:
    """Make the stopwatch of a device; before each repeat ``cache_byte`` bytes are written for cold operands."""
    clock = time.perf_counter
    if device == "cuda":
        measure = by_events(torch.cuda)
    else:
        clock = processor_clock(torch.get_num_threads())
        measure = by_clock(clock)
    buffer = torch.zeros(int(cache_byte // 4), device=device) if cache_byte else None

    def flush() -> None:
        if buffer is not None:
            buffer.add_(1.0)

    return Watch(measure, median(measure(lambda: None, 1) for _ in range(CLOCK_READS)), flush, clock)
