"""Gaussian-process regression with one length per feature, in numpy: exact up to `LIMIT` rows, local above.

The utilisation that each timed machine reached, as a smooth surface over features of its ops.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fomkit.core.measurement import Surface, TypicalTables
from fomkit.ops.columns import FEW as FEW
from fomkit.ops.columns import Flags as Flags
from fomkit.ops.columns import Indices as Indices
from fomkit.ops.columns import Matrix as Matrix
from fomkit.ops.columns import Places as Places
from fomkit.ops.columns import Texts as Texts

LIMIT = 500
"""Rows up to which all are used at once; a larger matrix is slow to invert and gains little."""

NEIGHBOURS = 32
"""Nearest rows used for one query of a larger table. With 200 the errors are the same within a fiftieth (products
of 20,000 to 36,000 rows, convolutions), at ten times the cost or more."""

WHOLE = 3000
"""Rows up to which a fit may keep the weight of each: then all tell the mean, and near ones how sure it is."""

BLOCK = 384
"""Queries that are answered at once; bounds the memory by so many rows of the table, and a cache holds them."""

STRIP, STRIPS = 16, 16
"""Rows of a strip of a triangular matrix, and most strips, else rows are several times as many: strips leave out
most of the products of which a triangle needs none, and libraries multiply sixteen rows at once."""

DIGITS = 10
"""Significant digits of what matrices of timings say: more than clocks give, fewer than a sum's order touches."""
NONE = np.empty(0)


def significant(values: Matrix) -> Matrix:
    """Round to `DIGITS` significant digits; 0 and NaN stay.

    How a product of matrices is summed depends on how many rows are asked for at once, and so do the last few bits
    of what is made of it. Without them an op takes the same in a sweep, alone, and on a cluster's workers.

    >>> significant(np.array([1 / 3, 2e-6 / 3, 0.0])).tolist()
    [0.3333333333, 6.666666667e-07, 0.0]
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = 10.0 ** (DIGITS - 1 - np.floor(np.log10(values)))
        rounded = np.round(values * scale) / scale
    return np.where(np.isfinite(rounded), rounded, values)


def alike(columns: Sequence[NDArray[Any]]) -> tuple[Places, Places]:
    """Give the first of the rows that agree in all columns, and for each row the number of its first.

    >>> first, number = alike([np.array([2.0, 2.0, 1.0, 2.0]), np.array([0, 1, 0, 0])])
    >>> first.tolist(), number.tolist()
    ([0, 1, 2], [0, 1, 2, 0])
    """
    if len(columns[0]) > FEW:
        numbers_of = np.zeros(len(columns[0]), np.intp)
        for column in columns:
            own = pd.factorize(column, use_na_sentinel=False)[0]
            numbers_of = pd.factorize(numbers_of * (own.max() + 1) + own)[0]
    else:
        table = np.ascontiguousarray(np.array(columns, np.float64).T)
        table[np.isnan(table)] = np.nan  # of all kinds of NaN one
        table += 0.0  # and no 0 below 0
        cells, known = table.view(np.dtype((np.void, table.itemsize * table.shape[1]))), dict[Any, int]()
        numbers_of = np.array([known.setdefault(cell, len(known)) for cell in cells.ravel().tolist()], np.intp)
    # Numbers are given by first appearance.
    before = np.concatenate(([-1], np.maximum.accumulate(numbers_of)[:-1]))
    return np.flatnonzero(numbers_of > before), numbers_of


class Hyper(NamedTuple):
    """Lengths of the features (p), variance of the smooth part and variance of the noise."""

    length: Matrix
    variance: float
    noise: float


class Posterior(NamedTuple):
    """What is predicted of each query: mean, variance, and the nearest row with its distance in lengths."""

    mean: Matrix
    variance: Matrix
    nearest: Places
    distance: Matrix


class Precomputed(NamedTuple):
    """Rows of a table made ready for queries.

    `scaled` (n, p): features in lengths; `lifted` (p + 2, n): the same as `apart` takes them.
    `target`, `noise` (n,).
    `strips`: inverse of the lower Cholesky factor of the rows' covariance, times the variance, in strips of rows:
      each as its columns up to the diagonal, beyond which all are 0, times its rows; none above `LIMIT` rows.
    `weights` (n,): the covariance's inverse times the target, times the variance; empty where only near rows tell.
    """

    scaled: Matrix
    lifted: Matrix
    target: Matrix
    noise: Matrix
    hyper: Hyper
    strips: tuple[Matrix, ...]
    weights: Matrix


def distances(left: Matrix, right: Matrix, length: Matrix) -> Matrix:
    """Distances (n × m) between two sets of features, each feature measured in its own length."""
    a, b = left / length, right / length
    squares = (a * a).sum(1)[:, None] + (b * b).sum(1)[None, :] - 2 * a @ b.T
    return np.asarray(np.sqrt(np.maximum(squares, 0.0)))


def correlation(distance: Matrix | float, memory: tuple[Matrix, Matrix] | None = None) -> Matrix:
    """Matérn-3/2 correlation (Rasmussen & Williams, Gaussian Processes for Machine Learning, eq. 4.17).

    Rough enough for times that jump where a library changes its kernel. `memory`: two matrices to work in, of
    which the second becomes the answer.

    >>> float(correlation(0.0)), round(float(correlation(1.0)), 4)
    (1.0, 0.4834)
    """
    # In as few passes over a large matrix as there may be.
    scaled, shared = memory or (None, None)
    scaled = np.asarray(np.multiply(distance, -np.sqrt(3.0), out=scaled))
    shared = np.asarray(np.exp(scaled, out=shared))
    np.subtract(1, scaled, out=scaled)
    shared *= scaled
    return shared


def _exact(distance: Matrix, precomputed: Precomputed, memory: tuple[Matrix, Matrix]) -> tuple[Matrix, Matrix]:
    """Predict from all rows; the distances stay as they are."""
    half, shared = (one[: len(distance)] for one in memory)
    correlation(distance, (half, shared))
    hyper, start = precomputed.hyper, 0
    for strip in precomputed.strips:
        known, rows = strip.shape
        np.matmul(shared[:, :known], strip, out=half[:, start : start + rows])
        start += rows
    explained = np.einsum("ij,ij->i", half, half)
    return shared @ precomputed.weights, np.asarray(hyper.variance + hyper.noise - explained)


def _local(distance: Matrix, precomputed: Precomputed, memory: tuple[Matrix, Matrix]) -> tuple[Matrix, Matrix]:
    """Predict each query from its nearest rows, all queries at once; the mean from all where they have weights."""
    hyper = precomputed.hyper
    near = np.argpartition(distance, NEIGHBOURS, 1)[:, :NEIGHBOURS]
    scaled = precomputed.scaled[near]
    squares = (scaled * scaled).sum(2)
    between = squares[:, :, None] + squares[:, None, :] - 2 * scaled @ scaled.transpose(0, 2, 1)
    among = hyper.variance * correlation(np.sqrt(np.maximum(between, 0.0)))
    diagonal = np.arange(NEIGHBOURS)
    among[:, diagonal, diagonal] = hyper.variance + hyper.noise + precomputed.noise[near]
    shared = hyper.variance * correlation(np.take_along_axis(distance, near, 1))
    solved = np.linalg.solve(among, np.stack([precomputed.target[near], shared], 2))
    explained = (shared[:, :, None] * solved).sum(1)
    if len(precomputed.weights):
        first, second = (one[: len(distance)] for one in memory)
        explained[:, 0] = correlation(distance, (first, second)) @ precomputed.weights
    return explained[:, 0], hyper.variance + hyper.noise - explained[:, 1]


def precompute(
    features: Matrix, target: Matrix, noise: Matrix, hyper: Hyper, weights: Matrix = NONE
) -> Precomputed:
    """Prepare the rows of a table for queries.

    `noise` (n,): variance that each row's target has besides the common noise, for example from a coarse clock;
    `weights`: those of more than `LIMIT` rows, if they are known.
    """
    scaled = features / hyper.length
    if len(features) > LIMIT:
        return Precomputed(scaled, lifted(scaled), target, noise, hyper, (), weights)
    between = distances(features, features, hyper.length)
    lower = np.linalg.cholesky(hyper.variance * correlation(between) + np.diag(hyper.noise + noise))
    half = np.linalg.inv(lower)
    weights = hyper.variance * (half.T @ (half @ target))
    cuts = [*range(0, len(target), STRIP * -(-len(target) // (STRIP * STRIPS))), len(target)]
    strips = tuple(np.ascontiguousarray(hyper.variance * half[start:end, :end].T) for start, end in pairwise(cuts))
    return Precomputed(scaled, lifted(scaled), target, noise, hyper, strips, weights)


def beside(columns: Sequence[Matrix]) -> Matrix:
    """Put columns (n,) beside each other, each in one piece of memory."""
    return np.array(columns).T


def lifted(scaled: Matrix) -> Matrix:
    """Give rows (n, p) such that squares of distances to them are one product of matrices (p + 2, n)."""
    return np.concatenate([-2 * scaled.T, (scaled * scaled).sum(1)[None], np.ones((1, len(scaled)))])


def apart(query: Matrix, known: Matrix) -> Iterator[tuple[slice, Matrix]]:
    """Give the distances from queries (q, p) to rows that are `lifted`, a block of queries at a time.

    Both are in lengths. The next block overwrites the distances.
    """
    points = np.empty((query.shape[1] + 2, len(query))).T
    points[:, :-2], points[:, -2] = query, 1.0
    np.einsum("ij,ij->i", query, query, out=points[:, -1])
    memory = np.empty((min(BLOCK, len(query)), known.shape[1]))
    for start in range(0, len(query), BLOCK):
        block = slice(start, start + BLOCK)
        between = memory[: len(points[block])]
        np.matmul(points[block], known, out=between)
        yield block, np.sqrt(np.maximum(between, 0.0, out=between), out=between)


def nearest_rows(distance: Matrix, count: int) -> Places:
    """Give the cells of the rows of least distance of each query (q, count), in the order of the rows.

    Of several that are alike to seven digits the first: more hang on the order of sums, and a table of round sizes
    has many rows as far from an op as another.
    """
    if count == 1:
        own = np.arange(0, distance.size, distance.shape[1])
        return np.asarray(distance.astype(np.float32).argmin(1) + own)[:, None]
    with np.errstate(over="ignore"):
        short = distance.astype(np.float32)
    # The bits of numbers from 0 on are in the order of the numbers. A partition of them is several times as fast
    # as one of places.
    bits = short.view(np.int32)
    last = np.partition(bits, count - 1, 1)[:, count - 1, None]
    near = bits <= last
    if np.count_nonzero(near) != count * len(near):
        tied = np.flatnonzero(near.sum(1) != count)
        less, equal = bits[tied] < last[tied], bits[tied] == last[tied]
        near[tied] = less | (equal & (np.cumsum(equal, 1) <= count - less.sum(1, keepdims=True)))
    return np.flatnonzero(near).reshape(-1, count)


def nearest_of(distance: Matrix, cells: Places) -> tuple[Places, Matrix]:
    """Give the nearest of the rows in these cells (`nearest_rows`), and how far it is (q)."""
    cell = cells[np.arange(len(cells)), distance.take(cells).astype(np.float32).argmin(1)]
    return cell - np.arange(0, distance.size, distance.shape[1]), distance.take(cell)


def posterior_blocks(precomputed: Precomputed, query: Matrix) -> Iterator[tuple[Matrix, Matrix, Matrix]]:
    """Predict the target at each query (q, p): give distances to the rows, mean and variance, block by block.

    The next block overwrites the distances.
    """
    count = len(precomputed.target)
    rows = min(BLOCK, len(query)) if len(precomputed.weights) else 0
    tell = _exact if precomputed.strips else _local
    memory = np.empty((rows, count)), np.empty((rows, count))
    for _, distance in apart(query / precomputed.hyper.length, precomputed.lifted):
        mean, variance = tell(distance, precomputed, memory)
        yield distance, mean, np.maximum(variance, precomputed.hyper.noise)


def posterior(precomputed: Precomputed, query: Matrix) -> Posterior:
    """Predict the target at each query (q, p); the variance is that of a new observation, its noise included."""
    return joined(
        [
            Posterior(mean, variance, *nearest_of(distance, nearest_rows(distance, 1)))
            for distance, mean, variance in posterior_blocks(precomputed, query)
        ]
    )


def joined(parts: Sequence[Posterior]) -> Posterior:
    """Put what is predicted of some queries after each other."""
    if len(parts) == 1:
        return parts[0]
    empty = Posterior(np.empty(0), np.empty(0), np.empty(0, np.intp), np.empty(0))
    return Posterior(*(np.concatenate(columns) for columns in zip(*(parts or [empty]), strict=True)))


SURFACE_VARIANCE, SURFACE_NOISE = 0.3, 0.02
"""Of ln(utilisation) over the shapes of one machine: a factor of 1.7, and 14 % that no feature explains."""

FEATURE_DIGITS, WEIGHT_DIGITS = 100.0, 1000.0
"""Features are kept in hundredths of a power of two, weights in thousandths."""


class Line(NamedTuple):
    """Surfaces over a single feature: what lies below a place and what lies above it, each as two numbers.

    The correlation of two places u apart, in lengths over √3, is (1 + u)·exp(−u). So the sum over all rows below a
    knot is, d above it, exp(−d)·((1 + d)·A + B), and whatever is asked for takes two exponentials, not one a row.

    `knots` (k,): places of all rows, rising.
    `sums` (k + 1, 2, 2, surfaces): A and B of the rows below each gap between knots, by the knot before it, and of
      those above it, by the knot after it.
    """

    knots: Matrix
    sums: Matrix

    def at(self, places: Matrix) -> Matrix:
        """Give the sums of all surfaces at some places (surfaces × q)."""
        found = np.empty((self.sums.shape[3], len(places)))
        for start in range(0, len(places), LINE_BLOCK):
            here = places[start : start + LINE_BLOCK]
            gap, last = np.searchsorted(self.knots, here, "right"), len(self.knots) - 1
            total, sums = np.zeros((len(here), len(found))), self.sums[gap]
            for side, knot in enumerate((np.maximum(gap - 1, 0), np.minimum(gap, last))):
                off = np.abs(here - self.knots[knot])[:, None]
                total += np.exp(-off) * ((1 + off) * sums[:, side, 0] + sums[:, side, 1])
            found[:, start : start + LINE_BLOCK] = total.T
        return found


LINE_BLOCK = 2048
"""Places on a line that are looked at at once."""


def line_of(scaled: Matrix, weight: Matrix, starts: Places) -> Line:
    """Prepare rows of surfaces over one feature, in lengths (n), for queries."""
    places = np.sqrt(3.0) * scaled
    knots = np.unique(places)
    off = np.abs(knots[:, None] - places)
    both = np.exp(-off) * weight
    both = np.stack([both, both * off], 1)
    is_below = (places <= knots[:, None])[:, None]
    none = np.zeros((1, 2, len(starts)))
    below = np.add.reduceat(np.where(is_below, both, 0.0), starts, 2)
    above = np.add.reduceat(np.where(is_below & (off > 0)[:, None], 0.0, both), starts, 2)
    return Line(knots, np.stack([np.concatenate([none, below]), np.concatenate([above, none])], 1))


class Surfaces(NamedTuple):
    """All machines' surfaces of one kind of work, side by side.

    `length` (p,): of the features.
    `lifted` (p + 2, n): features in lengths as `apart` takes them: rows of all surfaces one after the other.
    `weights` (n, surfaces): the weight of each row times the variance, 0 in the columns of other surfaces.
    `mean` (surfaces, 1).
    `line`: the same where there is one feature.
    """

    length: Matrix
    known: tuple[Surface, ...]
    lifted: Matrix
    weights: Matrix
    mean: Matrix
    line: Line | None


def weights_of(features: Matrix, log_utilisation: Matrix, length: Matrix) -> Matrix:
    """Give each row of one machine its weight in the surface through them all (n).

    Rasmussen & Williams, Gaussian Processes for Machine Learning, eq. 2.25.
    """
    shared = SURFACE_VARIANCE * correlation(distances(features, features, length))
    return np.asarray(np.linalg.solve(shared + SURFACE_NOISE * np.eye(len(features)), log_utilisation))


def surface_rows(features: Matrix, weight: Matrix) -> NDArray[np.int32]:
    """Give rows as the whole numbers of `fomkit.core.machine.Surface`, the weight first."""
    table = np.column_stack([weight * WEIGHT_DIGITS, features * FEATURE_DIGITS])
    return np.rint(table).astype(np.int32)


def side_by_side(length: Matrix, known: Sequence[Surface]) -> Surfaces:
    """Put surfaces of one kind of work side by side, in lengths."""
    counts = [len(one.rows) for one in known]
    rows = np.concatenate([one.rows for one in known]).astype(np.float64)
    scaled = rows[:, 1:] / FEATURE_DIGITS / length
    weight = rows[:, 0] / WEIGHT_DIGITS
    line = line_of(scaled[:, 0], weight, np.cumsum([0, *counts[:-1]])) if len(length) == 1 else None
    own = np.repeat(SURFACE_VARIANCE * np.eye(len(known)), counts, 0)
    mean = np.array([one.mean for one in known])[:, None]
    return Surfaces(length, tuple(known), lifted(scaled), weight[:, None] * own, mean, line)


@lru_cache(maxsize=64)
def surfaces(tables: TypicalTables, work: str, excluded: tuple[str, ...] = ()) -> Surfaces | None:
    """Give the surfaces of a kind of work, some architectures' and machines' left out; None where none is left."""
    if (found := tables.of.get(work)) is None:
        return None
    known = [one for one in found.known if one.architecture not in excluded and one.machine not in excluded]
    return side_by_side(found.length, known) if known else None


def heights(found: Surfaces, features: Matrix) -> Matrix:
    """Give ln(utilisation) of queries (q × p) by each surface (surfaces × q)."""
    if found.line is not None:
        places = np.sqrt(3.0) * features[:, 0] / found.length[0]
        return np.asarray(SURFACE_VARIANCE * found.line.at(places) + found.mean)
    predicted = np.empty((len(found.known), len(features)))
    for block, distance in apart(features / found.length, found.lifted):
        predicted[:, block] = (correlation(distance) @ found.weights).T
    return np.asarray(predicted + found.mean)
