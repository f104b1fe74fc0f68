"""Fewer timings of the same spread: large tables thinned for shipping.

The rows left out are measurements that no fit has seen, and judge it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from fomkit.schema import KIND_DIMENSIONS, TIMINGS

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

PARTS = ("kind", "dtype", "engine", "pass_name", "op", "note", "collective", "layout", "cell")
"""Rows that share these texts are thinned together."""
_NUMBERS = frozenset(column.name for column in TIMINGS if column.dtype == "number")


def spread_out(points: NDArray[np.float64], count: int) -> NDArray[np.intp]:
    """Choose points that cover a cloud evenly, its corners too.

    The first is nearest to the middle (the median); each other one is the farthest from all before it, the first
    of several. No choice has less than half the largest gap (Gonzalez, Theoretical Computer Science 38, 1985).

    Parameters
    ----------
    points : array (n, p)
    count : int
        At least 1; all points where there are not more.

    Returns
    -------
    array
        Positions, rising.

    Examples
    --------
    >>> spread_out(np.array([[0.0], [1.0], [2.0], [3.0], [8.0]]), 3).tolist()
    [0, 2, 4]
    """
    if count >= len(points):
        return np.arange(len(points))
    gap = ((points - np.median(points, axis=0)) ** 2).sum(1)
    chosen = [int(gap.argmin())]
    gap = np.full(len(points), np.inf)
    while len(chosen) < count:
        np.minimum(gap, ((points - points[chosen[-1]]) ** 2).sum(1), out=gap)
        chosen.append(int(gap.argmax()))
    return np.sort(np.array(chosen))


def thin_timings(timings: pd.DataFrame, most: Mapping[str, int]) -> pd.DataFrame:
    """Keep at most so many timings of a part, spread out evenly over the logarithms of their sizes.

    Parameters
    ----------
    timings : DataFrame
        A TIMINGS table.
    most : mapping
        Kind of op to the largest number of rows that a part (`PARTS`) of it keeps; other kinds stay whole.

    Returns
    -------
    DataFrame
        Some of the rows, with their index and in their order. The same table always gives the same rows.
    """
    kept: list[NDArray[np.intp]] = []
    parts = [name for name in PARTS if name in timings.columns]
    for key, at in timings.groupby(parts, dropna=False, sort=False).indices.items():
        positions = np.asarray(at, np.intp)
        kind = str(key[0]) if isinstance(key, tuple) else str(key)
        sizes = [name for name in KIND_DIMENSIONS[kind] if name in _NUMBERS]
        if kind in most and sizes:
            points = np.log2(timings[sizes].to_numpy(np.float64)[positions] + 1.0)
            positions = positions[spread_out(points, most[kind])]
        kept.append(positions)
    return timings.iloc[np.sort(np.concatenate(kept))]
