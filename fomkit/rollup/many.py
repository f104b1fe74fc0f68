"""Device times of many variants of one step at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fomkit.rollup.use import TABLES, Uses, use_widths

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    Array = NDArray[np.float64]


class Ops(NamedTuple):
    """What n ops take in each of s variants of a step.

    Attributes
    ----------
    kinds : sequence (n,)
    seconds : array (3, n, s)
        Value and ends of all executions of an op [s]; 0 where it has no time, which is left out.
    sources : array (n, s) or (n, 1)
        Number of the time source.
    of_table : array (n, s) or (n, 1) of bool
        True where the time rests on timings of single kernels.
    """

    kinds: Sequence[str]
    seconds: Array
    sources: NDArray[np.integer[Any]]
    of_table: NDArray[np.bool_]

    def chosen(self, which: NDArray[np.bool_]) -> Ops:
        """Give some of the ops."""
        kinds = [kind for kind, wanted in zip(self.kinds, which.tolist(), strict=True) if wanted]
        return Ops(kinds, self.seconds[:, which], self.sources[which], self.of_table[which])

    def use_widths(self, uses: Uses, level: float) -> list[tuple[Array, Array]]:
        """Give what use in a step adds below and above [s]; see `fomkit.rollup.use.use_widths`."""
        return use_widths(self.kinds, self.seconds[0], self.of_table, uses, level)


def ops_of(timed: pd.DataFrame) -> Ops:
    """Read the ops of a TIMED table as one variant."""
    times = np.stack([timed[name].to_numpy(np.float64) for name in ("time_s", "low_s", "high_s")])
    words = timed["time_source"].tolist()
    numbers = {word: number for number, word in enumerate(dict.fromkeys(words))}
    sources = np.array([numbers[word] for word in words], np.intp)[:, None]
    of_table = np.array([word in TABLES for word in words], bool)[:, None]
    seconds = np.nan_to_num(times * timed["count"].to_numpy(np.float64))[:, :, None]
    return Ops(timed["kind"].tolist(), seconds, sources, of_table)


def device_times(ops: Ops, uses: Uses, level: float) -> Array:
    """Add up the ops of each variant, which a device runs one after the other.

    Errors of ops of one kind and time source are taken as common, because one estimator made them all: value and
    ends add. Between families they are independent (`fomkit.spans.add_independent`), and so is what use in a step
    adds.

    Parameters
    ----------
    ops : Ops
    uses : mapping
        What use in a step adds to the error of single kernels (`fomkit.rollup.use`).
    level : float
        The level of the intervals.

    Returns
    -------
    array (3, s)
        Value and ends [s].
    """
    value, below, above = np.zeros((3, ops.seconds.shape[2]))
    words = np.array(ops.kinds, object)
    for kind in dict.fromkeys(ops.kinds):
        at = np.flatnonzero(words == kind)
        for source in np.flatnonzero(np.bincount(ops.sources[at].ravel())):
            own = ops.sources[at] == source
            family = ops.seconds[:, at] if own.all() else ops.seconds[:, at] * own
            total, low, high = family.sum(1)
            value += total
            below += (total - low) ** 2
            above += (high - total) ** 2
    for less, more in ops.use_widths(uses, level):
        below += less**2
        above += more**2
    return np.stack([value, value - np.sqrt(below), value + np.sqrt(above)])
