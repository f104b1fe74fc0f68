"""What cannot be bettered in one thing without losing in another: the front of Pareto."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Mask = NDArray[np.bool_]

BLOCK = 512
"""Points that are compared at once; bounds the memory."""


def _front_of_two(values: Array) -> Mask:
    """Sort by the first, then walk with the least second so far: n log n."""
    order = np.lexsort((values[:, 1], values[:, 0]))
    first, second = values[order].T
    starts = np.flatnonzero(np.r_[True, first[1:] != first[:-1]])
    least = second[starts]  # of each group of equal firsts
    before = np.r_[np.inf, np.minimum.accumulate(least)[:-1]]
    group = np.cumsum(np.r_[True, first[1:] != first[:-1]]) - 1
    found = np.zeros(len(values), bool)
    found[order] = (least < before)[group] & (second == least[group])
    return found


def _dominated(values: Array, by: Array) -> Mask:
    """Tell which of distinct ``values`` another of ``by`` is nowhere worse than."""
    found = np.zeros(len(values), bool)
    for start in range(0, len(by), BLOCK):
        others = by[start : start + BLOCK]
        nowhere_worse = (others[:, None, :] <= values[None, :, :]).all(2)
        differs = (others[:, None, :] != values[None, :, :]).any(2)
        found |= (nowhere_worse & differs).any(0)
    return found


def _front_of_many(values: Array) -> Mask:
    """Go through distinct points by the sum of their ranks: whoever dominates one came before it."""
    ranks = sum(np.unique(column, return_inverse=True)[1] for column in values.T)
    order = np.argsort(ranks, kind="stable")
    kept = np.empty(0, np.intp)
    for start in range(0, len(order), BLOCK):
        own = order[start : start + BLOCK]
        own = own[~_dominated(values[own], values[kept])]
        own = own[~_dominated(values[own], values[own])]
        kept = np.r_[kept, own]
    found = np.zeros(len(values), bool)
    found[kept] = True
    return found


def pareto_front(values: Array) -> Mask:
    """Tell which points no other is at least as good as in everything and better in something.

    Parameters
    ----------
    values : array (n, k)
        Lower is better in each of k ≥ 1 objectives. A point with NaN is never on the front and beats nobody;
        equal points are on it together.

    Returns
    -------
    array (n,) of bool

    Notes
    -----
    One objective takes n steps, two n log n; more go by blocks, at most n times the size of the front.

    Examples
    --------
    >>> pareto_front(np.array([[1.0, 4.0], [2.0, 2.0], [3.0, 3.0], [4.0, 1.0]])).tolist()
    [True, True, False, True]
    """
    found = np.zeros(len(values), bool)
    known = np.flatnonzero(~np.isnan(values).any(1))
    if not len(known):
        return found
    own = values[known]
    if own.shape[1] == 1:
        found[known] = own[:, 0] == own[:, 0].min()
    elif own.shape[1] == 2:
        found[known] = _front_of_two(own)
    else:
        distinct, place = np.unique(own, axis=0, return_inverse=True)
        found[known] = _front_of_many(distinct)[place.ravel()]
    return found
