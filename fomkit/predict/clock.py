"""What a table of timings tells about the clock that made it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fomkit.predict.rows import as_rows, numbers

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

ENOUGH = 20
"""Timings of one harness from which its step can be told; fewer could be round by chance."""

STEPS = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8)


def _common_step(seconds: NDArray[np.float64]) -> float:
    if len(seconds) < ENOUGH:
        return 0.0
    for step in STEPS:
        ticks = seconds / step
        if np.abs(ticks - np.round(ticks)).max() < 1e-3:
            return step
    return 0.0


def clock_step(timings: pd.DataFrame) -> NDArray[np.float64]:
    """Find the step [s] to which the times of each harness are cut; 0 where none shows.

    DeepBench cuts to whole microseconds, so the true time lies in [t, t + 1 µs].

    Parameters
    ----------
    timings : DataFrame
        A TIMINGS table; one step per row is returned.
    """
    steps = np.zeros(len(timings))
    time_s, harness = numbers(timings, "time_s"), as_rows(timings).text("harness")
    for number in range(len(harness.words)):
        at = harness.codes == number
        steps[at] = _common_step(time_s[at])
    return steps


def op_seconds(timings: pd.DataFrame) -> NDArray[np.float64]:
    """Give each timing [s] less the fixed cost that its harness adds."""
    return timings["time_s"].to_numpy(np.float64) - numbers(timings, "harness_s", 0.0)


def own_times(timings: pd.DataFrame) -> pd.DataFrame:
    """Add ``_time_s``, what the op itself took, and ``_step_s``, the step of the clock [s]; once is enough."""
    if "_time_s" in timings.columns:
        return timings
    return timings.assign(_time_s=op_seconds(timings), _step_s=clock_step(timings))
