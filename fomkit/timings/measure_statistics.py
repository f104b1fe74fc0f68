"""What repeats of one timing tell: the median, how well it is known, and what lies outside.

Part of the script of a pack, so it imports nothing of fomkit.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from statistics import median, quantiles
from typing import NamedTuple

MISSED = 0.025
"""Chance that the true median lies below its interval, and that it lies above."""
MEDIAN_LEVEL = 1 - 2 * MISSED
"""Share of intervals of medians that hold the median, at least."""
FENCE = 1.5
"""Quartile distances beyond the quartiles from which a repeat is an outlier (Tukey, 1977)."""


class Summary(NamedTuple):
    """Repeats of one timing [s].

    Attributes
    ----------
    low_s, high_s : float or None
        The 95 % interval of the median; None where there are too few repeats for one.
    outliers : int
        Repeats beyond Tukey's fences. They are kept: the median does not care, and a reader may.
    """

    median_s: float
    p25_s: float
    p75_s: float
    low_s: float | None
    high_s: float | None
    repeats: int
    outliers: int
    longest_s: float

    @property
    def width(self) -> float:
        """Half the interval of the median, as a share of the median; infinite where there is none."""
        if self.low_s is None or self.high_s is None:
            return float("inf")
        return (self.high_s - self.low_s) / 2 / self.median_s


def order_statistics(repeats: int) -> tuple[int, int] | None:
    """Give which of the sorted repeats bound the 95 % interval of the median, counted from 1.

    Of n repeats, Binomial(n, 1/2) lie below the true median, whatever the distribution.

    Examples
    --------
    >>> order_statistics(30), order_statistics(6), order_statistics(5)
    ((10, 21), (1, 6), None)
    """
    below, rank = 0.0, 0
    while below + comb(repeats, rank) / 2**repeats <= MISSED:
        below += comb(repeats, rank) / 2**repeats
        rank += 1
    return (rank, repeats + 1 - rank) if rank else None


def summarise(times: Sequence[float]) -> Summary:
    """Summarise two or more repeats [s]."""
    ordered, ranks = sorted(times), order_statistics(len(times))
    first, _, third = quantiles(ordered, n=4, method="inclusive")
    fence = FENCE * (third - first)
    return Summary(
        median_s=median(ordered),
        p25_s=first,
        p75_s=third,
        low_s=ordered[ranks[0] - 1] if ranks else None,
        high_s=ordered[ranks[1] - 1] if ranks else None,
        repeats=len(ordered),
        outliers=sum(not first - fence <= one <= third + fence for one in ordered),
        longest_s=ordered[-1],
    )
