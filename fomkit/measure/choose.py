"""Which op to time next: the one that makes the predictions surer, for the time that it takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fomkit.costs import add_costs
from fomkit.measure.ops import Wanted, as_table
from fomkit.predict import add_times
from fomkit.study.fits import own_fits

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fomkit.hardware import Machine

    Array = NDArray[np.float64]

OVERHEAD_S = 0.05
"""Time [s] that an op takes besides its repeats: to be made, checked and made warm."""
EXECUTIONS = 4
"""Executions of an op besides its repeats: one to check, one to compare, two to warm up."""
UNKNOWN_RATIO = 100.0
"""Ratio of the ends of an interval that is taken where nothing is predicted."""


class Outlook(NamedTuple):
    """What is expected of ops (n) before they are timed.

    Attributes
    ----------
    time_s, low_s, high_s : array (n,)
        Predicted time of one execution; NaN where nothing is known.
    byte : array (n,)
        Memory traffic of one execution; its operands take no more.
    """

    time_s: Array
    low_s: Array
    high_s: Array
    byte: Array


def look_ahead(ops: Sequence[Wanted], machine: Machine) -> Outlook:
    """Predict ops on a machine as far as it is known."""
    if not ops:
        return Outlook(*np.empty((4, 0)))
    costed = add_costs(as_table([one.cells for one in ops]))
    timed = add_times(costed, own_fits(machine))
    return Outlook(*(timed[name].to_numpy(np.float64) for name in ("time_s", "low_s", "high_s", "byte")))


def cost_s(time_s: Array, limit_s: float, most: int, flush_s: float) -> Array:
    """Give the time [s] that the repeats of ops are expected to take, with warm and with cold caches."""
    repeats = np.clip(limit_s / (time_s + flush_s), 6, most)
    return OVERHEAD_S + (EXECUTIONS + 6) * time_s + repeats * (time_s + flush_s)


def gains(ops: Sequence[Wanted], outlook: Outlook) -> Array:
    """Give what is won by timing each op: the width of its interval, by its weight.

    For ops of models that is the share of a step that their intervals span. Ops of the design have no step: their
    widths count as ratios; an op of a model
    of which nothing is known counts as the whole step. What a timing tells of ops near it is left out, nobody
    knows that beforehand.
    """
    known = ~np.isnan(outlook.time_s)
    width = np.where(known, outlook.high_s - outlook.low_s, 0.0)
    ratio = np.log(np.where(known, outlook.high_s / outlook.low_s, UNKNOWN_RATIO))
    weight = np.array([one.weight for one in ops])
    of_model = np.array([bool(one.models) for one in ops], bool)
    return np.where(of_model, np.where(known, weight * width, 1.0), weight * ratio)


def best_first(gain: Array, cost: Array) -> list[int]:
    """Order ops by what they win per second, best first; equals in the order given."""
    return [int(place) for place in np.argsort(-gain / cost, kind="stable")]
