"""Stopwatches: events on a GPU, the process's own time on one CPU thread; and how an op gets cold operands.

Part of the script of a pack, so it imports nothing of fomkit.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any, NamedTuple

CLOCK_READS = 200


class Watch(NamedTuple):
    """Times runs of ops on one device.

    Attributes
    ----------
    measure : function of a function and how often
        Gives the time [s] of so many runs together.
    empty_s : float
        What it reads where nothing runs [s]: the fixed cost of each repeat.
    flush : function
        Puts other bytes into the caches.
    clock : function
        Tells how long the repeats of an op have taken [s]: what times them, where it goes on between them.
    """

    measure: Callable[[Callable[[], Any], int], float]
    empty_s: float
    flush: Callable[[], None]
    clock: Callable[[], float] = time.perf_counter


def by_events(cuda: Any) -> Callable[[Callable[[], Any], int], float]:
    """Make a stopwatch of CUDA events: the device's own clock, which counts no waiting of the host.

    Parameters
    ----------
    cuda : module
        ``torch.cuda``, or what has its ``Event``.
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


def _nothing() -> None:
    pass


def make_watch(device: str, cache_byte: float = 0.0) -> Watch:
    """Make the stopwatch of a device.

    Parameters
    ----------
    device : str
        ``cpu`` or ``cuda``.
    cache_byte : float
        Bytes that go through the caches to make operands cold; 0 leaves them warm.
    """
    import torch

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

    return Watch(measure, median(measure(_nothing, 1) for _ in range(CLOCK_READS)), flush, clock)
