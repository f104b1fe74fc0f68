"""What a step's interval would be if some of its ops were timed exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from fomkit.hardware import Machine
from fomkit.rollup.many import ops_of
from fomkit.rollup.step import device_time, step_terms
from fomkit.rollup.use import uses_of
from fomkit.spans import Span

if TYPE_CHECKING:
    from numpy.typing import NDArray


def _sides(timed: pd.DataFrame) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Give what each row adds below and above its family's value [s], and the number of its family."""
    times = timed[["time_s", "low_s", "high_s"]].to_numpy(np.float64) * timed[["count"]].to_numpy(np.float64)
    sides = np.column_stack([times[:, 0] - times[:, 1], times[:, 2] - times[:, 0]])
    family = np.asarray(timed.groupby(["kind", "time_source"], sort=False).ngroup(), np.intp)
    return np.nan_to_num(sides), family


def steps_if_timed(timed: pd.DataFrame, groups: pd.Series[int], machine: Machine, level: float) -> dict[int, Span]:
    """Give the wall time of the step if the ops of one group took exactly what is predicted, group by group.

    A timed op leaves its family, the ops of one kind and time source, whose errors are taken as common; what it
    added to the ends of that family goes, and the families add up as in `device_time`. How its use in the step
    differs from a timing of it alone stays unknown. That a timing also tells of similar ops, and that it may
    differ from the prediction, is left out: nobody knows either beforehand.

    Parameters
    ----------
    timed : DataFrame
        A TIMED table.
    groups : Series
        A number for each row; rows of one number are timed by one measurement.
    machine : Machine
        For the terms beside the device.
    level : float
        The level of the intervals in ``timed``.

    Returns
    -------
    dict
        The step's wall time [s] by group.
    """
    known = timed["time_s"].notna().to_numpy()
    rows, numbers = timed[known], groups[known].to_numpy()
    whole = device_time(timed, level)
    in_use = np.reshape(ops_of(rows).use_widths(uses_of(machine), level), (-1, 2))
    sides, family = _sides(rows)
    widths = np.zeros((int(family.max(initial=-1)) + 1, 2))
    np.add.at(widths, family, sides)
    steps = {}
    for number in np.unique(numbers).tolist():
        at = numbers == number
        left = widths.copy()
        np.subtract.at(left, family[at], sides[at])
        below, above = np.hypot.reduce(np.vstack([np.maximum(left, 0.0), in_use])).tolist()
        device_s = Span(whole.value, whole.value - below, whole.value + above, level)
        steps[int(number)] = step_terms(timed, machine, device_s).wall(device_s)
    return steps
