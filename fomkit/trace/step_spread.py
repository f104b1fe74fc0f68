"""How the steps of one trace differ: which first step is cold, the time of ops in each, and what notes say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

import numpy as np
from numpy.typing import NDArray

from fomkit.quantities import format_quantity

COLD = 1.5
"""A first step of more than so many times the median of the others' is cold: it loads, plans and allocates."""
LEAST_STEPS = 3
"""Fewest steps of which a first one can be told to be cold; of two nobody knows which is the usual one."""
_RULE = f"a first step of more than {COLD} times the median of two or more others is not taken"


def is_cold(step_s: Sequence[float]) -> bool:
    """Tell whether the first of some steps, by the times of their ops, is far off the others.

    Examples
    --------
    >>> is_cold([552e-6, 104e-6, 45e-6]), is_cold([110e-6, 104e-6, 100e-6]), is_cold([552e-6, 104e-6])
    (True, False, False)
    """
    return len(step_s) >= LEAST_STEPS and step_s[0] > COLD * median(step_s[1:])


def step_sums(times: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Give the time [s] of equal executions in each step; what has no time counts nothing.

    Parameters
    ----------
    times : array (steps * count,)
        Of all executions, step by step.
    count : int
        Executions in a step. Where they do not fill whole steps, the mean stands for one step.
    """
    known = np.nan_to_num(np.asarray(times, dtype=np.float64))
    if count and len(known) and len(known) % count == 0:
        return np.asarray(known.reshape(-1, count).sum(axis=1))
    return np.array([known.mean() * count if len(known) else 0.0])


def _time(time_s: float) -> str:
    return format_quantity(time_s, "time_s", 3)


def say_cold(name: str, cold_s: float, step_s: Sequence[float]) -> str:
    """Name the first step that was left out, and the rule."""
    return (
        f"{name} was left out as a cold start: its ops took {_time(cold_s)}, those of the others "
        f"{_time(median(step_s))} ({_RULE})"
    )


def say_spread(timer: str, step_s: Sequence[float]) -> Iterator[str]:
    """Tell what traced times are, and how far the steps that they are of differ.

    Parameters
    ----------
    timer : str
        What was timed.
    step_s : sequence of float
        Time of all ops of each step that was taken [s].
    """
    if len(step_s) < 2:
        yield f"traced_time_s: mean time of {timer} in the one step, under the profiler; no spread is known"
        return
    yield (
        f"traced_time_s: median over {len(step_s)} steps of the mean time of {timer} in a step, under the profiler"
    )
    yield (
        f"ops of a step took {_time(median(step_s))} (median; {_time(min(step_s))} to {_time(max(step_s))} over "
        f"{len(step_s)} steps)"
    )


def say_sum(sum_s: float, step_s: Sequence[float]) -> Iterator[str]:
    """Tell what an op table's times add up to, where that need not be the time of a step."""
    if len(step_s) > 1:
        yield f"count × traced_time_s adds up to {_time(sum_s)}: medians of ops need not add up to that of steps"
