"""Times on a machine that nobody built: what is known of the one it changes, at the same utilisation."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from fomkit.predict.estimates import Answers
from fomkit.predict.rates import bounds
from fomkit.predict.rows import Rows, numbers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fomkit.hardware import Device, Machine

    Array = NDArray[np.float64]

FROM_TABLE = ("measured", "interpolated", "extrapolated")
"""Time sources that become transferred: nobody timed anything on the changed machine."""


def original(machine: Machine) -> Machine:
    """Give the machine that timings and utilisations are of."""
    return machine if machine.origin is None else replace(machine, device=machine.origin, origin=None)


def launch_ratio(device: Device, origin: Device) -> float:
    """Give the launch cost as a share of the origin's; 1 where either is unknown."""
    new, old = device.launch_s, origin.launch_s
    return new.value / old.value if new is not None and old is not None and old.value > 0 else 1.0


def factor(
    time_s: Array, starts_s: Array, floor_s: Array, changed_floor_s: Array, launches: Array | float
) -> Array:
    """Give the time on the changed machine as a share of the original's.

    What a time has above its floor is first taken for launches, up to what they cost; they scale with the launch
    cost. The rest is the kernel, whose utilisation floor / time is kept, so it scales with the floor. Where a
    floor is unknown the kernel stays. All arguments broadcast.

    Parameters
    ----------
    time_s : array
        On the original machine.
    starts_s : array
        Cost of the op's launches there, 0 where it is unknown.
    floor_s, changed_floor_s : array
        On both machines.
    launches : array or float
        Launch cost as a share of the original's.

    Examples
    --------
    >>> ones = np.ones(1)
    >>> factor(10 * ones, 2 * ones, 4 * ones, 2 * ones, 1.0).tolist()  # 2 + 8 / 2 of 10
    [0.6]
    """
    fixed_s = np.minimum(starts_s, np.maximum(time_s - floor_s, 0.0))
    fixed_share = np.nan_to_num(fixed_s / time_s)
    ratio = changed_floor_s / floor_s
    return np.asarray(fixed_share * launches + (1 - fixed_share) * np.where(np.isnan(ratio), 1.0, ratio))


def carry_over(rows: Rows, answers: Answers, machine: Machine) -> Answers:
    """Carry what is known of the original machine over to the changed one.

    Parameters
    ----------
    rows : DataFrame
        COSTED rows.
    answers : Answers
        Their times on the original machine.
    machine : Machine
        The changed one.
    """
    built = original(machine)
    rows = rows.take(pd.Index(rows.index).get_indexer(pd.Index(answers.index)))
    before, after = bounds(rows, built), bounds(rows, machine)
    launch = built.device.launch_s
    starts = np.nan_to_num(numbers(rows, "launches"))
    starts_s = starts * (launch.value if launch is not None else 0.0)
    changed_launch = launch_ratio(machine.device, built.device)
    share = factor(answers.time_s, starts_s, before.floor_s, after.floor_s, changed_launch)
    sources = np.array(["transferred" if name in FROM_TABLE else name for name in answers.time_source], object)
    launched = starts_s * changed_launch > after.floor_s
    names = np.where(np.isnan(after.floor_s), answers.bound, np.where(launched, "launch", after.names))

    def evidence(place: int) -> str:
        return f"{share[place]:.3g} × that on {built.name} as built, same utilisation ({answers.evidence(place)})"

    times = np.stack([answers.time_s, answers.low_s, answers.high_s]) * share
    return Answers(answers.index, times, sources, names, evidence)
