"""The utilisation that each timed machine reached, as a smooth surface over features of its ops."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fomkit.predict.gaussian import apart, correlation, covariance, distances

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fomkit.hardware import Surface, UsualTables

    Matrix = NDArray[np.float64]

VARIANCE, NOISE = 0.3, 0.02
"""Of ln(utilisation) over the shapes of one machine: a factor of 1.7, and 14 % that no feature explains."""

DIGITS, WEIGHT_DIGITS = 100.0, 1000.0
"""Features are kept in hundredths of a power of two, weights in thousandths."""


class Surfaces(NamedTuple):
    """All machines' surfaces of one kind of work, side by side.

    Attributes
    ----------
    length : array (p,)
        Of the features.
    known : tuple of Surface
    scaled, squares, weight : array (n, p), array (n,), array (n,)
        Features in lengths, their squared norms and the weights: rows of all surfaces one after the other.
    starts : array
        The first row of each.
    """

    length: Matrix
    known: tuple[Surface, ...]
    scaled: Matrix
    squares: Matrix
    weight: Matrix
    starts: NDArray[np.intp]


def weights_of(features: Matrix, log_utilisation: Matrix, length: Matrix) -> Matrix:
    """Give each row of one machine its weight in the surface through them all (n).

    Rasmussen & Williams, Gaussian Processes for Machine Learning, eq. 2.25.
    """
    shared = VARIANCE * correlation(distances(features, features, length))
    return np.asarray(np.linalg.solve(shared + NOISE * np.eye(len(features)), log_utilisation))


def as_kept(features: Matrix, weight: Matrix) -> NDArray[np.int32]:
    """Give rows as the whole numbers of `fomkit.hardware.Surface`, the weight first."""
    table = np.column_stack([weight * WEIGHT_DIGITS, features * DIGITS])
    return np.rint(table).astype(np.int32)


def side_by_side(length: Matrix, known: Sequence[Surface]) -> Surfaces:
    """Put surfaces of one kind of work side by side, in lengths."""
    starts = np.cumsum([0, *(len(one.rows) for one in known[:-1])])
    rows = np.concatenate([one.rows for one in known]).astype(np.float64)
    scaled = rows[:, 1:] / DIGITS / length
    weight = rows[:, 0] / WEIGHT_DIGITS
    return Surfaces(length, tuple(known), scaled, (scaled * scaled).sum(1), weight, starts)


@lru_cache(maxsize=64)
def surfaces(tables: UsualTables, work: str, unheard: tuple[str, ...] = ()) -> Surfaces | None:
    """Give the surfaces of a kind of work, some architectures' and machines' left out; None where none is left."""
    if (found := tables.of.get(work)) is None:
        return None
    known = [one for one in found.known if one.architecture not in unheard and one.machine not in unheard]
    return side_by_side(found.length, known) if known else None


def heights(found: Surfaces, features: Matrix) -> Matrix:
    """Give ln(utilisation) of queries (q × p) by each surface (surfaces × q)."""
    told = np.empty((len(found.known), len(features)))
    for block, distance in apart(features / found.length, found.scaled, found.squares):
        shared = covariance(distance, VARIANCE)
        shared *= found.weight
        told[:, block] = np.add.reduceat(shared, found.starts, axis=1).T
    return np.asarray(told + np.array([one.mean for one in found.known])[:, None])
