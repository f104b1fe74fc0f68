"""The plain step timed again and again, and between its halves the profiled one."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fomkit.trace.stopwatch import Sample

WARM_UP = 3
"""Steps before the first timed one; the first of them makes the optimizer's state."""
LEAST, MOST = 6, 50
"""Repeats of the plain step; fewer than six have no interval of their median."""
LEAST_PROFILED, MOST_PROFILED = 3, 10
PLAIN_S, PROFILED_S = 15.0, 10.0
"""Time [s] that repeats may take together, unless they are the least."""


@dataclass(frozen=True)
class Timed:
    """Samples of the plain step, of the profiled one where it was asked for, and the last result.

    ``moments`` are begin and end [s] of each half of the plain steps, by the clock that all processes share.
    """

    plain: list[Sample]
    profiled: list[Sample]
    last: Any
    moments: list[tuple[float, float]]


def _repeats(once_s: float, time_s: float, least: int, most: int) -> int:
    return min(most, max(least, int(time_s / max(once_s, 1e-9))))


def time_steps(
    step: Callable[[], Any],
    watch: Callable[[Callable[[], Any]], Sample],
    profiled: Callable[[int], list[Sample]] | None,
    check_first: Callable[[Any], None],
) -> Timed:
    """Time a step.

    Parameters
    ----------
    step : function
        Runs a step and gives its result.
    watch : function
        Times a step.
    profiled : function of the repeats, optional
        Times profiled steps; they run between two halves of the plain ones, so that a machine that slows down does
        so for both.
    check_first : function of the first step's result
        Raises where it is of no use.
    """
    check_first(step())
    for _ in range(WARM_UP - 2):
        step()
    once = watch(step)["wall"]
    repeats = _repeats(once, PLAIN_S, LEAST, MOST)
    plain, moments = list[Sample](), list[tuple[float, float]]()

    def time_half(many: int) -> None:
        begun = time.monotonic()
        plain.extend([watch(step) for _ in range(many)])
        moments.append((begun, time.monotonic()))

    time_half(repeats - repeats // 2)
    samples = []
    if profiled is not None:
        samples = profiled(_repeats(once, PROFILED_S, LEAST_PROFILED, MOST_PROFILED))
        step()
    time_half(repeats // 2)
    return Timed(plain, samples, step(), moments)


def trace_path(folder: str) -> Path:
    """Name the file of the profiler's trace."""
    return Path(folder) / "trace.json"
