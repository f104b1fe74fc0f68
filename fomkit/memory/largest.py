"""The largest number for which something still fits."""

from __future__ import annotations

from collections.abc import Callable

MOST = 2**24
"""A batch beyond which nobody asks [samples]."""


def largest_that_fits(fits: Callable[[int], bool], most: int = MOST) -> int:
    """Find by bisection the largest whole number that fits, if all smaller ones do.

    Returns
    -------
    int
        0 where not even 1 fits, ``most`` where that does.

    Examples
    --------
    >>> largest_that_fits(lambda batch: batch * 3 <= 100)
    33
    """
    low, high = 0, 1
    while high < most and fits(high):
        low, high = high, min(2 * high, most)
    if high == most and fits(most):
        return most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
