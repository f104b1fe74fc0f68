"""What it adds to the error of a time from a table of single kernels that the kernel runs in a step.

A benchmark repeats one kernel on its own operands; in a step the caches hold what the op before left, the clock
follows the mean load, and the library may find its operands at another place. No table of single kernels can tell
how much that is, so ``benchmarks/use_in_steps.py`` tells it from calls inside models on several machines: what
their errors have beyond the tables' own intervals.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fomkit.hardware import Machine

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    Array = NDArray[np.float64]


class Spread(NamedTuple):
    """Standard deviations of ln(time) towards shorter and longer times."""

    faster: float
    slower: float

    def widen(self, value: float, low: float, high: float, level: float) -> tuple[float, float]:
        """Widen an interval by this independent error, each side on its own.

        Examples
        --------
        >>> [round(end, 3) for end in Spread(0.0, 0.1).widen(1.0, 0.9, 1.0, 0.8)]
        [0.9, 1.137]
        """
        z = NormalDist().inv_cdf(0.5 + level / 2)
        below = math.hypot(math.log(value / low), z * self.faster)
        above = math.hypot(math.log(high / value), z * self.slower)
        return value * math.exp(-below), value * math.exp(above)


class Use(NamedTuple):
    """Spread of one call, and of all calls of a group in one pass, whose errors cancel in part."""

    call: Spread
    whole: Spread


Uses = Mapping[str, Use]
GROUPS: Mapping[str, str] = {
    "pointwise": "element", "copy": "element", "optimizer": "element", "embedding": "element",
    "norm": "row", "softmax": "row", "reduction": "row", "pool": "row",
    "gemm": "library", "conv": "library", "rnn": "library", "attention": "library", "sparse_gemm": "library",
}  # fmt: skip
"""Kinds whose errors in use are taken as one: element by element, over rows, products of libraries. Of the last,
only dense products were seen in models. Links are another matter: collectives have no group."""
TABLES = ("measured", "interpolated", "extrapolated", "transferred")
"""Time sources that rest on timings of single kernels; what is usual on public machines is as wide already."""
BENCHMARKS = ("DeepBench", "NeuSight", "aiconfigurator")
"""How harnesses begin that time single kernels. Timings taken inside a step need no widening."""

USES: Uses = {
    "element": Use(Spread(0.000, 0.190), Spread(0.010, 0.103)),
    "library": Use(Spread(0.102, 0.079), Spread(0.033, 0.029)),
    "row": Use(Spread(0.064, 0.184), Spread(0.044, 0.137)),
}
"""Told from 741 calls on four boards (labels of NeuSight; Lee et al., ASPLOS 2025), each board with one weight."""


MEASURED = "fomkit measure"
"""How the harness begins that times ops for a step (`fomkit.measure`), with the framework's own time in them."""
MEASURED_SPREAD = Spread(0.0, 0.056)
"""Beyond the intervals of ops and of fresh pages, told from steps of ten models (`fomkit validate --here`, which
tells it anew for each from the others)."""
_SAME = Use(MEASURED_SPREAD, MEASURED_SPREAD)
MEASURED_USES: Uses = dict.fromkeys(USES, _SAME)


def uses_of(machine: Machine) -> Uses:
    """Give what use in a step adds to times from a machine's tables; nothing where they are of steps already."""
    timings = machine.timings
    if "harness" not in timings.columns or not len(timings):
        return {}
    # A row without a harness is a figure that somebody stated, beside the table that decides.
    harnesses = [str(name) for name in timings["harness"].unique().tolist() if name]
    if harnesses and all(name.startswith(MEASURED) for name in harnesses):
        return MEASURED_USES
    of_benchmarks = harnesses and all(name.startswith((*BENCHMARKS, "nccl")) for name in harnesses)
    return USES if of_benchmarks else {}


def groups_of(timed: pd.DataFrame) -> pd.Series[str]:
    """Name the group of each row; "" where its time does not rest on a table."""
    groups = timed["kind"].astype("str").map(GROUPS).fillna("")
    return groups.where(timed["time_source"].isin(TABLES), "")


def widen_calls(timed: pd.DataFrame, uses: Uses, level: float) -> pd.DataFrame:
    """Widen the interval of each row to what it is worth for one call inside a step.

    Parameters
    ----------
    timed : DataFrame
        A TIMED table.
    uses : mapping
        What `uses_of` gives.
    level : float
        The level of the intervals in ``timed``.
    """
    low, high = timed["low_s"].to_numpy(np.float64, copy=True), timed["high_s"].to_numpy(np.float64, copy=True)
    value = timed["time_s"].to_numpy(np.float64)
    for at, group in enumerate(groups_of(timed)):
        if group in uses and value[at] > 0:
            low[at], high[at] = uses[group].call.widen(value[at], low[at], high[at], level)
    return timed.assign(low_s=low, high_s=high)


def use_widths(
    kinds: Sequence[str], seconds: Array, of_table: NDArray[np.bool_], uses: Uses, level: float
) -> list[tuple[Array, Array]]:
    """Give what use in a step adds to the sum of all ops, below and above [s], group by group.

    Groups know nothing of each other. In one, errors of calls cancel in part: their sum has a spread of its own.

    Parameters
    ----------
    kinds : sequence (n,)
    seconds : array (n, s)
        What n ops take in each of s variants of a step, all executions of an op together; 0 where it is unknown.
    of_table : array (n, s) of bool
        True where the time rests on timings of single kernels (`TABLES`).
    uses : mapping
        What `uses_of` gives.
    level : float
        The level of the intervals.

    Returns
    -------
    list of two arrays (s,)
    """
    groups = [GROUPS.get(kind, "") for kind in kinds]
    widths = []
    for group in dict.fromkeys(group for group in groups if group in uses):
        at = [place for place, other in enumerate(groups) if other == group]
        total = (seconds[at] * of_table[at]).sum(0)
        low, high = uses[group].whole.widen(1.0, 1.0, 1.0, level)
        widths.append((total * (1 - low), total * (high - 1)))
    return widths
