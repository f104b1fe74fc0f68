"""The utilisation that each timed machine reached, as a smooth surface over features of its ops."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fomkit.predict.gaussian import apart, correlation, covariance, distances
from fomkit.predict.surface_tables import TABLES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]

VARIANCE, NOISE = 0.3, 0.02
"""Of ln(utilisation) over the shapes of one machine: a factor of 1.7, and 14 % that no feature explains."""

DIGITS, WEIGHT_DIGITS = 100.0, 1000.0
"""Features are kept in hundredths of a power of two, weights in thousandths."""


class Surface(NamedTuple):
    """One machine's utilisation of one kind of work.

    Attributes
    ----------
    machine, architecture : str
        As in the machine's profile.
    dtype : str
        Number format of the factors.
    balance : float
        log2 of the machine's flop per byte.
    mean : float
        Mean of ln(utilisation).
    errors : tuple of float
        What the other chips' surfaces say is missed here, in standard deviations: values of equal probability.
    packed : str
        A line per timed op: features in hundredths and the weight of the op in thousandths.
    """

    machine: str
    architecture: str
    dtype: str
    balance: float
    mean: float
    errors: Sequence[float]
    packed: str


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


def pack(features: Matrix, weight: Matrix) -> str:
    """Write rows as whole numbers."""
    table = np.column_stack([features * DIGITS, weight * WEIGHT_DIGITS])
    return " ".join(str(int(value)) for value in np.rint(table).ravel())


def side_by_side(length: Sequence[float], known: Sequence[Surface]) -> Surfaces:
    """Unpack surfaces of one kind of work."""
    tables = [np.array(one.packed.split(), np.float64).reshape(-1, len(length) + 1) for one in known]
    starts = np.cumsum([0, *(len(table) for table in tables[:-1])])
    rows = np.concatenate(tables)
    scaled = rows[:, :-1] / DIGITS / np.array(length)
    weight = rows[:, -1] / WEIGHT_DIGITS
    return Surfaces(np.array(length), tuple(known), scaled, (scaled * scaled).sum(1), weight, starts)


@lru_cache(maxsize=64)
def surfaces(work: str, unheard: tuple[str, ...] = ()) -> Surfaces | None:
    """Give the surfaces of a kind of work, some architectures' and machines' left out; None where none is left."""
    length, found = TABLES.get(work, ((), ()))
    every = (Surface(*parts) for parts in found)
    known = [one for one in every if one.architecture not in unheard and one.machine not in unheard]
    return side_by_side(length, known) if known else None


def heights(found: Surfaces, features: Matrix) -> Matrix:
    """Give ln(utilisation) of queries (q × p) by each surface (surfaces × q)."""
    told = np.empty((len(found.known), len(features)))
    for block, distance in apart(features / found.length, found.scaled, found.squares):
        shared = covariance(distance, VARIANCE)
        shared *= found.weight
        told[:, block] = np.add.reduceat(shared, found.starts, axis=1).T
    return np.asarray(told + np.array([one.mean for one in found.known])[:, None])
