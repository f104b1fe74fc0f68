"""Thin products: those of a matrix and a vector, or of a matrix and a few vectors."""

from __future__ import annotations

from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from fomkit.predict.rows import Table, numbers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]

THIN = 8.0
"""Rows or columns from which a product is none of a matrix and a vector: the fewest of DeepBench's training list.
Its inference list has 1, 2 and 4 as well, on two boards of one chip: they read their matrix at 0.60 to 0.74 of the
bandwidth, and with 16 columns at 0.19 to 0.34."""


def thinness(rows: Table) -> Matrix:
    """Give how thin products are: 1 with one row or column, 0 from `THIN`, by powers of two in between (n).

    Libraries run a product with one row or column by a kernel of its own, which reads the matrix once and waits
    for memory. A few rows more lie between it and the tiles of large products; where depends on library and chip.

    Examples
    --------
    >>> import pandas as pd
    >>> thinness(pd.DataFrame({"m": [1.0, 4.0, 16.0], "n": [512.0, 512.0, 512.0]})).round(3).tolist()
    [1.0, 0.333, 0.0]
    """
    least = np.minimum(numbers(rows, "m", THIN), numbers(rows, "n", THIN))
    return np.asarray(np.clip(1 - np.log2(np.maximum(least, 1.0)) / np.log2(THIN), 0.0, 1.0), np.float64)


def mix(first: Matrix, second: Matrix, share: Matrix, interval: float) -> Matrix:
    """Mix what two estimators say of some ops, by their logarithms; where they disagree the interval is wider.

    Parameters
    ----------
    first, second : array (3, q)
        Logarithms of value, low and high.
    share : array (q,)
        Of the second.
    interval : float
        Share of intervals that should contain the truth.

    Returns
    -------
    array (3, q)

    Examples
    --------
    >>> same = np.array([[1.0], [0.5], [2.0]])
    >>> mix(same, same, np.array([0.5]), 0.8).ravel().tolist()
    [1.0, 0.5, 2.0]
    """
    apart = NormalDist().inv_cdf(0.5 + interval / 2) * (second[0] - first[0])
    between = share * (1 - share) * apart**2
    value = (1 - share) * first[0] + share * second[0]
    below, above = (
        np.sqrt((1 - share) * (first[at] - first[0]) ** 2 + share * (second[at] - second[0]) ** 2 + between)
        for at in (1, 2)
    )
    return np.stack([value, value - below, value + above])
