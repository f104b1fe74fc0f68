"""What the timing of a single op needs: the op as a case to run and to check, a stopwatch, and statistics.

Stopwatches are events on a GPU, or the process's own time on one CPU thread; they also see to it that an op finds
cold operands. Repeats of one timing give the median, how well it is known, and the outliers.

With the other files of `fomkit.workbook.vendor.PARTS` this is the script of a vendor's pack. It runs where there
is nothing but Python and PyTorch, so it imports nothing of fomkit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from math import comb
from statistics import median, quantiles
from typing import Any, NamedTuple


class Later:
    """A package that is imported when the first of its names is asked for: tables are checked without it."""

    def __init__(self, package: str) -> None:
        self._package = package

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # which tools ask of everything
            raise AttributeError(name)
        found = getattr(import_module(self._package), name)
        setattr(self, name, found)  # so that what is timed looks it up as fast as in the package
        return found


torch: Any = Later("torch")
Cells = Mapping[str, str]
CHECKED_ROWS = 64
"""Rows of a product that are computed again; all would take longer than the timing."""
TOLERANCES = {
    "fp64": 1e-9, "fp32": 1e-4, "tf32": 1e-2, "fp16": 1e-2, "bf16": 5e-2, "int64": 0.0, "int32": 0.0, "bool": 0.0,
}  # fmt: skip
"""Largest error beside the largest true value, by number format; grows with the length of sums only slowly."""

FORMATS: Mapping[str, tuple[str, int]] = {
    "fp64": ("float64", 8), "fp32": ("float32", 4), "tf32": ("float32", 4), "fp16": ("float16", 2),
    "bf16": ("bfloat16", 2), "int64": ("int64", 8), "int32": ("int32", 4), "bool": ("bool", 1),
}  # fmt: skip
"""Number formats that are made, with PyTorch's name and the bytes of one number."""


class Case(NamedTuple):
    """One op: ``run`` does it once and gives its result, ``check`` gives the error of a result.

    ``besides`` is what ``run`` does besides the op, where the framework cannot do it alone: its time is taken off.
    Only ``share`` of the time is the op's, where the framework does two ops as one.
    """

    run: Callable[[], Any]
    check: Callable[[Any], float]
    besides: Callable[[], Any] | None = None
    share: float = 1.0


class CannotTimeError(Exception):
    """Why an op is not timed here."""


def size_of(cells: Cells, name: str, default: int | None = None) -> int:
    """Read a whole number; an empty cell is the default, where there is one."""
    text = cells.get(name, "")
    if not text and default is not None:
        return default
    return int(float(text))


def item_byte(cells: Cells) -> int:
    """Give the bytes of one number of a row's format."""
    if cells["dtype"] not in FORMATS:
        raise CannotTimeError(f"numbers of format {cells['dtype']} are not made here")
    return FORMATS[cells["dtype"]][1]


def torch_dtype(cells: Cells) -> Any:
    """Give the framework's number format of a row."""
    item_byte(cells)
    return getattr(torch, FORMATS[cells["dtype"]][0])


def error_of(found: Any, truth: Any) -> float:
    """Give the largest error of a result, as a share of the largest true value."""
    scale = truth.abs().max().item()
    return float((found.double() - truth).abs().max().item() / (scale or 1.0))


def made(shape: Sequence[int], cells: Cells, device: str) -> Any:
    """Make a tensor of random values in the row's number format."""
    dtype = torch_dtype(cells)
    if dtype.is_floating_point:
        return torch.randn(tuple(shape), device=device, dtype=dtype)
    return torch.randint(0, 2, tuple(shape), device=device).to(dtype)


def exact(value: Any) -> Any:
    """Give a tensor of floating-point numbers in double precision, anything else as it is."""
    return value.double() if getattr(value, "is_floating_point", bool)() else value


def first_of(result: Any) -> Any:
    """Give the first tensor of a result that may be several."""
    return result[0] if isinstance(result, tuple | list) else result


def same_in_double(run: Callable[..., Any], operands: Sequence[Any], *, in_place: bool = False) -> Case:
    """Make a case of a function and its operands, checked by the same function in double precision.

    What runs in place is held against what its operands were before.
    """
    before = [operand.clone() if in_place and hasattr(operand, "clone") else operand for operand in operands]

    def check(result: Any) -> float:
        return error_of(first_of(result), first_of(run(*(exact(operand) for operand in before))).double())

    return Case(lambda: run(*operands), check)


MISSED = 0.025
"""Chance that the true median lies below its interval, and that it lies above."""
MEDIAN_LEVEL = 1 - 2 * MISSED
"""Share of intervals of medians that hold the median, at least."""
FENCE = 1.5
"""Quartile distances beyond the quartiles from which a repeat is an outlier (Tukey, 1977)."""


class Summary(NamedTuple):
    """Repeats of one timing [s].

    `low_s`, `high_s`: the 95 % interval of the median; None where there are too few repeats for one.
    `outliers`: repeats beyond Tukey's fences. They are kept: the median does not care, and a reader may.
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
        """Half the interval of the median, as a share of the median; infinite where there is none."""
        if self.low_s is None or self.high_s is None:
            return float("inf")
        return (self.high_s - self.low_s) / 2 / self.median_s


def order_statistics(repeats: int) -> tuple[int, int] | None:
    """Give which of the sorted repeats bound the 95 % interval of the median, counted from 1.

    Of n repeats, Binomial(n, 1/2) lie below the true median, whatever the distribution.

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

    `measure`: gives the time [s] of so many runs together.
    `empty_s`: what it reads where nothing runs [s]: the fixed cost of each repeat.
    `flush`: puts other bytes into the caches.
    `clock`: tells how long the repeats of an op have taken [s]: what times them, where it goes on between them.
    """

    measure: Callable[[Callable[[], Any], int], float]
    empty_s: float
    flush: Callable[[], None]
    clock: Callable[[], float] = time.perf_counter


def by_events(cuda: Any) -> Callable[[Callable[[], Any], int], float]:
    """Make a stopwatch of CUDA events: the device's own clock, which counts no waiting of the host.

    `cuda`: ``torch.cuda``, or what has its ``Event``.
    """

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
    """Make a stopwatch of a clock that gives seconds."""

    def measure(run: Callable[[], Any], times: int) -> float:
        start = clock()
        for _ in range(times):
            run()
        return clock() - start

    return measure


def make_watch(device: str, cache_byte: float = 0.0) -> Watch:
    """Make the stopwatch of a device.

    `device`: ``cpu`` or ``cuda``; `cache_byte`: bytes that go through the caches to make operands cold; 0 leaves
    them warm.
    """
    clock = time.perf_counter
    if device == "cuda":
        measure = by_events(torch.cuda)
    else:
        # Two threads take twice the process time of what they wait for, so only one is timed by it.
        clock = time.process_time if torch.get_num_threads() == 1 else clock
        measure = by_clock(clock)
    buffer = torch.zeros(int(cache_byte // 4), device=device) if cache_byte else None

    def flush() -> None:
        if buffer is not None:
            buffer.add_(1.0)

    return Watch(measure, median(measure(lambda: None, 1) for _ in range(CLOCK_READS)), flush, clock)
