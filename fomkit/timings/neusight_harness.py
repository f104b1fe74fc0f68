"""The fixed cost in NeuSight's kernel timings, told from the timings themselves.

Each timing is what passes between two events around one call on an idle device: time = max(F, H + kernel), where
H is the host's work before the kernel starts and F all of its work up to the second event. Short kernels hide in
F: their time is the same whatever their size. Long ones show H: for an element-wise op, time = H + byte / rate
fits its long timings within 0.1 to 0.6 %. So

- F of an op is the median over its `SMALLEST` ops of least work, if these agree;
- H of an element-wise op is fitted where time exceeds `LONG`·F;
- H of any other op lies between its F less the device's F − H (if all its further host work comes before the
  kernel) and its F times the device's H / F (if the work is shared out as in element-wise ops): the middle is
  taken. The ends are 15 µs apart for the V100's ``linear``; with the first, one product would beat the clock;
- an op without an F of its own takes the H of `LIKE`, else the least H found;
- a timing below `TOLD`·F is below the harness's resolution: nothing can be said of its kernel.

H holds the start of the kernel too, 1 to 2 µs that a kernel waiting in a queue has as well: nothing that grows
with its bytes tells it from the host's work, so it is taken off with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]

SMALLEST = 20
AGREE = 1.35
"""Largest ratio of the 90 % to the 10 % quantile at which the smallest timings of an op are one and the same."""
LONG = 2.0
ENOUGH = 30
"""Long timings from which a cost and a rate can be told apart."""
TOLD = 1.2
HUBER = 0.02
"""Relative error from which a timing pulls with constant force."""
ROUNDS = 20
LIKE: Mapping[str, str] = {"conv": "linear"}
"""Both are modules that call a library; no convolution of the tables is short enough to show its own cost."""


class Harness(NamedTuple):
    """Costs of a device by op [s].

    Attributes
    ----------
    floor_s : mapping
        Op to the time of its shortest kernels, where they agree.
    cost_s : mapping
        Op to the fixed cost in its long timings; absent where nothing tells.
    fitted : tuple of str
        The ops whose cost was fitted.
    """

    floor_s: Mapping[str, float]
    cost_s: Mapping[str, float]
    fitted: tuple[str, ...]


def floor_seconds(seconds: Vector, work: Vector) -> float:
    """Find the time that the smallest ops share [s]; NaN where they do not.

    Examples
    --------
    >>> work = np.arange(1.0, 101.0)
    >>> round(floor_seconds(np.maximum(30e-6, work * 1e-6), work) * 1e6, 1)
    30.0
    """
    smallest = seconds[np.argsort(work, kind="stable")[:SMALLEST]]
    if len(smallest) < SMALLEST:
        return float("nan")
    low, middle, high = np.quantile(smallest, [0.1, 0.5, 0.9])
    return float(middle) if high < AGREE * low else float("nan")


def intercept(seconds: Vector, byte: Vector) -> float:
    """Fit time = H + byte / rate by relative error, robust to outliers, and give H [s].

    Least squares with weights renewed by Huber's rule.

    Examples
    --------
    >>> byte = np.linspace(1e7, 1e9, 50)
    >>> round(intercept(15e-6 + byte / 900e9, byte) * 1e6, 3)
    15.0
    """
    terms = np.column_stack([np.ones_like(byte), byte / byte.max()])
    weights, cost = 1 / seconds, 0.0
    for _ in range(ROUNDS):
        cost, slope = np.linalg.lstsq(terms * weights[:, None], seconds * weights, rcond=None)[0].tolist()
        error = np.abs(terms @ np.array([cost, slope]) / seconds - 1)
        weights = np.sqrt(HUBER / np.maximum(error, HUBER)) / seconds
    return cost


def find_harness(rows: pd.DataFrame, elementwise: NDArray[np.bool_]) -> Harness:
    """Tell floors and fixed costs of a device's ops.

    Parameters
    ----------
    rows : DataFrame
        ``op``, ``seconds``, ``work`` (anything that grows with the kernel's time) and ``byte``.
    elementwise : array of bool
        Rows whose kernel moves its bytes and does nothing else.
    """
    floors = {
        str(op): floor_seconds(group["seconds"].to_numpy(), group["work"].to_numpy())
        for op, group in rows.groupby("op")
    }
    floors = {op: floor for op, floor in floors.items() if np.isfinite(floor)}
    fitted: dict[str, float] = {}
    for op, group in rows[elementwise].groupby("op"):
        long = group[group["seconds"] > LONG * floors.get(str(op), np.inf)]
        if len(long) >= ENOUGH:
            cost = intercept(long["seconds"].to_numpy(), long["byte"].to_numpy())
            if 0 < cost < floors[str(op)]:
                fitted[str(op)] = cost
    if not fitted:
        return Harness(floors, {}, ())
    hidden = float(np.median([floors[op] - cost for op, cost in fitted.items()]))
    share = float(np.median([cost / floors[op] for op, cost in fitted.items()]))
    costs = {op: (floor - hidden + share * floor) / 2 for op, floor in floors.items() if floor > hidden} | fitted
    least = min(fitted.values())
    for op in rows["op"].unique():
        costs.setdefault(str(op), costs.get(LIKE.get(str(op), ""), least))
    return Harness(floors, costs, tuple(fitted))
