"""Times on a machine that nobody built: what is known of the one it changes, at the same utilisation."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fomkit.predict.estimates import Answers
from fomkit.predict.kept import kept
from fomkit.predict.rates import bounds
from fomkit.predict.rows import Rows, numbers, places_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fomkit.hardware import Device, Machine

    Array = NDArray[np.float64]

ROOFLINE = "roofline"
"""The time source that names the cost of launches apart; a table's times hold them unseparated."""
FROM_TABLE = ("measured", "interpolated", "extrapolated")
"""Time sources that become transferred: nobody timed anything on the changed machine."""


def original(machine: Machine) -> Machine:
    """Give the machine that timings and utilisations are of; its table is the same object in every call."""
    return kept(machine.timings, machine, "as built", machine.as_built)


def stated(machine: Machine) -> Machine:
    """Give the changed machine with the timings that were stated for it."""
    rows = kept(machine.timings, None, "stated", lambda: machine.timings[machine.stated_rows()])
    return replace(machine, timings=rows)


def launch_ratio(device: Device, origin: Device) -> float:
    """Give the launch cost as a share of the origin's; 1 where either is unknown."""
    new, old = device.launch_s, origin.launch_s
    return new.value / old.value if new is not None and old is not None and old.value > 0 else 1.0


def factor(
    time_s: Array, starts_s: Array, floor_s: Array, changed_floor_s: Array, launches: Array | float
) -> Array:
    """Give the time on the changed machine as a share of the original's.

    Launches that a time names apart scale with the launch cost. The rest is the kernel, whose utilisation
    floor / time is kept, so it scales with the floor. Where a floor is unknown the kernel stays. All arguments
    broadcast. Workbooks compute the same (`fomkit.ledger.op_times`).

    Parameters
    ----------
    time_s : array
        On the original machine.
    starts_s : array
        Cost of the op's launches there, 0 where the time does not name it apart.
    floor_s, changed_floor_s : array
        On both machines.
    launches : array or float
        Launch cost as a share of the original's.

    Examples
    --------
    >>> ones = np.ones(1)
    >>> factor(10 * ones, 2 * ones, 4 * ones, 2 * ones, 1.0).round(9).tolist()  # 2 + 8 / 2 of 10
    [0.6]
    """
    fixed_s = np.where(starts_s < time_s, starts_s, 0.0)
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
    rows = rows.take(places_of(answers.index, rows.index))
    before, after = bounds(rows, built), bounds(rows, machine)
    launch = built.device.launch_s
    launches_s = np.nan_to_num(numbers(rows, "launches")) * (launch.value if launch is not None else 0.0)
    starts_s = np.where(answers.time_source == ROOFLINE, launches_s, 0.0)
    changed_launch = launch_ratio(machine.device, built.device)
    share = factor(answers.time_s, starts_s, before.floor_s, after.floor_s, changed_launch)
    sources = np.array(["transferred" if name in FROM_TABLE else name for name in answers.time_source], object)
    launched = launches_s * changed_launch > after.floor_s
    names = np.where(np.isnan(after.floor_s), answers.bound, np.where(launched, "launch", after.names))

    def evidence(place: int) -> str:
        return f"{share[place]:.3g} × that on {built.name} as built, same utilisation ({answers.evidence(place)})"

    times = np.stack([answers.time_s, answers.low_s, answers.high_s]) * share
    return Answers(answers.index, times, sources, names, evidence)
