"""Gaussian-process regression with one length per feature, in numpy: exact up to `LIMIT` rows, local above."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]

LIMIT = 500
"""Rows up to which all are used at once; a larger matrix is slow to invert and gains little."""

NEIGHBOURS = 32
"""Nearest rows used for one query of a larger table. With 200 the errors are the same within a fiftieth (products
of 20,000 to 36,000 rows, convolutions), at ten times the cost or more."""

BLOCK = 256
"""Queries of a larger table that are answered at once; bounds the memory by so many rows of the table."""


class Hyper(NamedTuple):
    """Lengths of the features (p), variance of the smooth part and variance of the noise."""

    length: Matrix
    variance: float
    noise: float


class Posterior(NamedTuple):
    """What is believed of each query: mean, variance, and the nearest row with its distance in lengths."""

    mean: Matrix
    variance: Matrix
    nearest: NDArray[np.intp]
    distance: Matrix


def distances(left: Matrix, right: Matrix, length: Matrix) -> Matrix:
    """Distances (n × m) between two sets of features, each feature measured in its own length."""
    a, b = left / length, right / length
    squares = (a * a).sum(1)[:, None] + (b * b).sum(1)[None, :] - 2 * a @ b.T
    return np.asarray(np.sqrt(np.maximum(squares, 0.0)))


def correlation(distance: Matrix | float) -> Matrix:
    """Matérn-3/2 correlation (Rasmussen & Williams, Gaussian Processes for Machine Learning, eq. 4.17).

    Rough enough for times that jump where a library changes its kernel.

    Examples
    --------
    >>> float(correlation(0.0)), round(float(correlation(1.0)), 4)
    (1.0, 0.4834)
    """
    scaled = np.sqrt(3.0) * np.asarray(distance, np.float64)
    return np.asarray((1 + scaled) * np.exp(-scaled))


def _exact(
    distance: Matrix, between: Matrix, target: Matrix, noise: Matrix, hyper: Hyper
) -> tuple[Matrix, Matrix]:
    lower = np.linalg.cholesky(hyper.variance * correlation(between) + np.diag(hyper.noise + noise))
    half = np.linalg.solve(lower, hyper.variance * correlation(distance).T)
    mean = half.T @ np.linalg.solve(lower, target)
    return np.asarray(mean), np.asarray(hyper.variance + hyper.noise - (half * half).sum(0))


def _local(
    distance: Matrix, features: Matrix, target: Matrix, noise: Matrix, hyper: Hyper
) -> tuple[Matrix, Matrix]:
    """Predict each query from its nearest rows alone, all queries at once."""
    near = np.argpartition(distance, NEIGHBOURS, 1)[:, :NEIGHBOURS]
    scaled = features[near] / hyper.length
    squares = (scaled * scaled).sum(2)
    between = squares[:, :, None] + squares[:, None, :] - 2 * scaled @ scaled.transpose(0, 2, 1)
    covariance = hyper.variance * correlation(np.sqrt(np.maximum(between, 0.0)))
    diagonal = np.arange(NEIGHBOURS)
    covariance[:, diagonal, diagonal] = hyper.variance + hyper.noise + noise[near]
    shared = hyper.variance * correlation(np.take_along_axis(distance, near, 1))
    solved = np.linalg.solve(covariance, np.stack([target[near], shared], 2))
    explained = (shared[:, :, None] * solved).sum(1)
    return explained[:, 0], hyper.variance + hyper.noise - explained[:, 1]


def posterior(features: Matrix, target: Matrix, noise: Matrix, query: Matrix, hyper: Hyper) -> Posterior:
    """Predict the target at each query from the rows of a table.

    Parameters
    ----------
    features : array (n, p)
    target : array (n,)
    noise : array (n,)
        Variance that each row's target has besides the common noise, for example from a coarse clock.
    query : array (q, p)
    hyper : Hyper

    Returns
    -------
    Posterior
        The variance is that of a new observation: the common noise is in it.
    """
    if len(features) <= LIMIT:
        distance = distances(query, features, hyper.length)
        between = distances(features, features, hyper.length)
        mean, variance = _exact(distance, between, target, noise, hyper)
        nearest = distance.argmin(1)
        apart = distance[np.arange(len(query)), nearest]
    else:
        mean, variance, apart = np.empty((3, len(query)))
        nearest = np.empty(len(query), np.intp)
        for start in range(0, len(query), BLOCK):
            block = slice(start, start + BLOCK)
            distance = distances(query[block], features, hyper.length)
            mean[block], variance[block] = _local(distance, features, target, noise, hyper)
            nearest[block], apart[block] = distance.argmin(1), distance.min(1)
    return Posterior(mean, np.maximum(variance, hyper.noise), nearest, apart)
