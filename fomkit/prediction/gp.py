"""Gaussian-process regression with one length per feature, in numpy: exact up to `LIMIT` rows, local above.

From `SURFACE_VARIANCE` on: surfaces, the fits of the utilisation of each timed machine over features of its ops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fomkit.core.measurement import Surface, TypicalTables
from fomkit.ops.columns import Flags as Flags
from fomkit.ops.columns import Indices as Indices
from fomkit.ops.columns import Matrix as Matrix
from fomkit.ops.columns import Places as Places
from fomkit.ops.columns import Texts as Texts
from fomkit.ops.columns import concatenate_in_order
from fomkit.ops.columns import nearest_of as nearest_of
from fomkit.ops.columns import nearest_rows as nearest_rows

LIMIT = 500
"""Rows up to which all are used at once; a larger matrix is slow to invert and gains little accuracy."""

NEIGHBOURS = 32
"""Nearest rows used for one query of a larger table. With 200 the errors agree within 2 % (products of 20,000 to
36,000 rows, convolutions), at ten times the cost or more."""

WHOLE = 3000
"""Rows up to which a fit may store the weight of each: then the mean uses all, the variance the nearest rows."""

BLOCK = 384
"""Queries per block; bounds the memory by this many times the rows of the table, and fits a cache."""

LANES = 8
"""Queries are multiplied in multiples of this many: libraries multiply the last few rows of a matrix by other
code, and the last bits of a prediction would depend on which ops are predicted with it."""

STRIP, STRIPS = 16, 16
"""Rows of a strip of a triangular matrix, and the most strips: with more rows a strip gets a multiple of 16.
Strips skip most of the products with zeros of a triangle, and libraries multiply sixteen rows at once."""

NONE, NO_GRID = np.empty(0), np.empty((0, 0), np.intp)


class Hyper(NamedTuple):
    """Lengths of the features (p), variance of the smooth part and variance of the noise."""

    length: Matrix
    variance: float
    noise: float


class Posterior(NamedTuple):
    """The prediction for each query: mean, variance, and the nearest row with its distance in lengths."""

    mean: Matrix
    variance: Matrix
    nearest: Places
    distance: Matrix


class Precomputed(NamedTuple):
    """Rows of a table prepared for queries.

    `scaled` (n, p): features in lengths; `lifted` (p + 2, n): the same as `distance_blocks` requires them.
    `target`, `noise` (n,).
    `strips`: inverse of the lower Cholesky factor of the rows' covariance, times the variance, as strips of rows;
      each is stored transposed and only up to the diagonal, beyond which all are 0. None above `LIMIT` rows.
    `weights` (n,): inverse covariance times target, times the variance; empty where only near rows are used.
    """

    scaled: Matrix
    lifted: Matrix
    target: Matrix
    noise: Matrix
    hyper: Hyper
    strips: tuple[Matrix, ...]
    weights: Matrix


def distances(left: Matrix, right: Matrix, length: Matrix) -> Matrix:
    """Return distances (n × m) between two sets of features, each feature measured in its own length."""
    a, b = left / length, right / length
    apart = np.add.outer((a * a).sum(1), (b * b).sum(1))
    return np.asarray(np.sqrt(np.maximum(np.subtract(apart, 2 * a @ b.T, out=apart), 0.0, out=apart), out=apart))


def correlation(distance: Matrix | float, memory: tuple[Matrix, Matrix] | None = None) -> Matrix:
    """Return the Matérn-3/2 correlation (Rasmussen & Williams, Gaussian Processes for Machine Learning, eq. 4.17).

    It is rough enough for times that jump where a library changes its kernel. `memory`: two work arrays, the
    second of which receives the result.

    >>> float(correlation(0.0)), round(float(correlation(1.0)), 4)
    (1.0, 0.4834)
    """
    # Few passes over the large matrix, all in place.
    scaled, shared = memory or (None, None)
    scaled = np.asarray(np.multiply(distance, -np.sqrt(3.0), out=scaled))
    shared = np.asarray(np.exp(scaled, out=shared))
    np.subtract(1, scaled, out=scaled)
    shared *= scaled
    return shared


def _exact(distance: Matrix, precomputed: Precomputed, memory: tuple[Matrix, Matrix]) -> tuple[Matrix, Matrix]:
    """Predict from all rows; the distances are not overwritten."""
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
    """Predict queries from their nearest rows, all at once; the mean from all rows if these have weights."""
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

    `noise` (n,): variance of each row's target besides the common noise, for example from a coarse clock;
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


def as_columns(columns: Sequence[Matrix]) -> Matrix:
    """Return columns (n,) as a matrix in which each column is contiguous."""
    return np.array(columns).T


def lifted(scaled: Matrix) -> Matrix:
    """Return rows (n, p) as (p + 2, n), such that one matrix product gives squared distances to them."""
    return np.concatenate([-2 * scaled.T, (scaled * scaled).sum(1)[None], np.ones((1, len(scaled)))])


def distance_blocks(query: Matrix, known: Matrix) -> Iterator[tuple[slice, Matrix]]:
    """Yield the distances from queries (q, p) to rows that are `lifted`, for a block of queries at a time.

    Both are in lengths. The next block overwrites the distances. The last query is repeated to whole `LANES`.
    """
    count = -(-len(query) // LANES) * LANES
    points = np.empty((query.shape[1] + 2, count)).T
    points[: len(query), :-2], points[len(query) :, :-2], points[:, -2] = query, query[-1:], 1.0
    np.einsum("ij,ij->i", points[:, :-2], points[:, :-2], out=points[:, -1])
    memory = np.empty((min(BLOCK, count), known.shape[1]))
    for start in range(0, count, BLOCK):
        block = slice(start, start + BLOCK)
        between = memory[: len(points[block])]
        np.matmul(points[block], known, out=between)
        yield block, np.sqrt(np.maximum(between, 0.0, out=between), out=between)


def posterior_blocks(precomputed: Precomputed, query: Matrix) -> Iterator[tuple[Matrix, Matrix, Matrix]]:
    """Predict the target at each query (q, p): yield distances to the rows, mean and variance, block by block.

    The next block overwrites the distances.
    """
    count, left = len(precomputed.target), len(query)
    rows = min(BLOCK, left + LANES) if len(precomputed.weights) else 0
    predict = _exact if precomputed.strips else _local
    memory = np.empty((rows, count)), np.empty((rows, count))
    for _, distance in distance_blocks(query / precomputed.hyper.length, precomputed.lifted):
        mean, variance = predict(distance, precomputed, memory)
        yield distance[:left], mean[:left], np.maximum(variance[:left], precomputed.hyper.noise)
        left -= len(distance)


class Part(NamedTuple):
    """Predictions for some queries, and distances to candidate rows that include their nearest.

    `at`, `mean`, `variance` (q,): positions of the queries, and their predictions.
    `distance` (q, c): to the rows ``rows`` (q, c), which are in order; where this is None, to all rows in order.
    """

    at: Places
    mean: Matrix
    variance: Matrix
    distance: Matrix
    rows: Places | None

    def nearest(self, count: int) -> tuple[Matrix, Places]:
        """Return the distances to the nearest rows, and these rows (q, count)."""
        cells = nearest_rows(self.distance, count)
        if self.rows is not None:
            return self.distance.take(cells), self.rows.take(cells)
        return self.distance.take(cells), cells - self.distance.shape[1] * np.arange(len(cells))[:, None]


OCTAVE, NODES = 48, 16
"""Fewest sizes of an op within a power of two for which a polynomial is used, and its degree."""
STRAIGHT = SMOOTH = 1e-13
"""Largest deviation of features from a line; largest last coefficients of a polynomial, about rounding error."""
FARTHER = 1 + 1e-6
"""Factor on the distance beyond which rows are never among the nearest, not even to seven digits."""
_ORDERS = np.arange(NODES + 1)
_ENDS = np.where(_ORDERS % NODES, 1.0, 0.5)
_SERIES = np.cos(np.pi / NODES * np.outer(_ORDERS, _ORDERS)) * np.outer(_ENDS, _ENDS) * 2 / NODES
_SHARES = (1 - np.cos(np.pi / NODES * _ORDERS)) / 2
"""Matrix from values at Chebyshev extrema to coefficients, and the positions of the extrema between 0 and 1."""


class Queries(NamedTuple):
    """Queries, whose features (q, p) are computed where they are asked for; `straight`: on one line per op."""

    total: int
    look: Callable[[Places], Matrix]
    straight: bool = False

    @classmethod
    def of(cls, features: Matrix) -> Queries:
        """Return queries whose features are known."""
        return cls(len(features), features.__getitem__)

    def at(self, places: Places) -> Matrix:
        """Return the features at some positions (…, p)."""
        found = self.look(places.ravel())
        return found.reshape(*places.shape, found.shape[1])


def _on_lines(precomputed: Precomputed, query: Queries, at: Places, count: int) -> Part:
    """Predict ops at the sizes within a power of two (n, q), by a polynomial along the line of their features.

    Posteriors are computed at `NODES` + 1 points of a line only (Trefethen, Approximation Theory and Approximation
    Practice, ch. 3 and 8). Queries are left out where a polynomial is not `SMOOTH`, because a timed op is close to
    the line, and where a feature leaves the line. Squared distances to two rows differ by a linear function along
    the line: a row that is farther than ``count`` others at both ends is not among the nearest in between.
    """
    ends, first = query.at(at[:, [0, -1]]), query.at(at[0])
    step = (ends[:, 1] - ends[:, 0])[:, None]
    axis = int(np.abs(step[0, 0]).argmax())
    share = (first[:, axis] - ends[0, 0, axis]) / step[0, 0, axis]
    good = np.ones(at.shape, bool)
    if not query.straight:
        off = query.at(at) - ends[:, :1]
        off -= share[:, None] * step
        good &= (np.abs(off, out=off) <= STRAIGHT).all(2)
    points = (ends[:, :1] + _SHARES[:, None] * step).reshape(-1, ends.shape[2])
    exact = [(distance.copy(), *of) for distance, *of in posterior_blocks(precomputed, points)]
    shape = (len(at), len(_SHARES), -1)
    distance, mean, variance = (np.concatenate(column).reshape(shape) for column in zip(*exact, strict=True))
    series = np.stack([mean[..., 0], variance[..., 0]]) @ _SERIES
    smooth = np.abs(series[..., -2:]).max(2) <= SMOOTH * np.stack([np.ones(len(at)), variance[..., 0].min(1)])
    good &= smooth.all(0)[:, None]
    mean, variance = series @ np.cos(_ORDERS[:, None] * np.arccos(1 - 2 * share))
    if not count:
        return Part(at[good], mean[good], variance[good], np.empty((0, 0)), None)
    near = np.argpartition(distance[:, NODES // 2], count - 1, 1)[:, None, :count]
    distance = distance[:, [0, -1]]
    among = (distance <= FARTHER * np.take_along_axis(distance, near, 2).max(2, keepdims=True)).any(1)
    rows = np.argsort(~among, 1, kind="stable")[:, None, : among.sum(1).max()]
    first, last = np.moveaxis(np.take_along_axis(distance, rows, 2) ** 2, 1, 0)[:, :, None]
    square, share = ((step / precomputed.hyper.length) ** 2).sum(2, keepdims=True), share[:, None]
    distance = share * (last - first - (1 - share) * square)
    distance += first
    np.sqrt(np.maximum(distance, 0.0, out=distance), out=distance)
    return Part(at[good], mean[good], variance[good], distance[good], np.broadcast_to(rows, distance.shape)[good])


def line_parts(precomputed: Precomputed, query: Queries, grid: Places, count: int) -> Iterator[Part]:
    """Predict what polynomials can of `posterior_parts`; with a ``count`` of 0, nothing but the mean is wanted."""
    if grid.shape[1] < OCTAVE or not precomputed.strips:
        return
    along = query.at(grid[0])
    along = (along - along[0])[:, np.abs(along[-1] - along[0]).argmax()]
    cuts = np.searchsorted(along, np.arange(np.ceil(along[-1]) + 1)).tolist()
    for start, end in pairwise(cuts) if (np.diff(along) > 0).all() else ():
        if end - start >= OCTAVE:
            yield _on_lines(precomputed, query, grid[:, start:end], count)


def posterior_parts(precomputed: Precomputed, query: Queries, grid: Places, count: int) -> Iterator[Part]:
    """Predict the target at each query, in parts; see `posterior`.

    `grid` (ops, sizes): positions of the queries that may be on one line per op; `count`: of nearest rows that
    each part must contain.
    """
    rest = np.ones(query.total, bool)
    for part in line_parts(precomputed, query, grid, count):
        rest[part.at] = False
        yield part
    places, end = rest.nonzero()[0], 0
    for distance, mean, variance in posterior_blocks(precomputed, query.at(places)):
        start, end = end, end + len(mean)
        yield Part(places[start:end], mean, variance, distance, None)


def posterior(precomputed: Precomputed, query: Matrix) -> Posterior:
    """Predict the target at each query (q, p); the variance is that of a new observation, including its noise."""
    parts = [
        (part.at, part.mean, part.variance, *nearest_of(*part.nearest(1)))
        for part in posterior_parts(precomputed, Queries.of(query), NO_GRID, 1)
    ]
    return Posterior(*concatenate_in_order(parts))


SURFACE_VARIANCE, SURFACE_NOISE = 0.3, 0.02
"""Variances of ln(utilisation) over one machine's shapes: a factor of 1.7, and 14 % that no feature explains."""

FEATURE_DIGITS, WEIGHT_DIGITS = 100.0, 1000.0
"""Features are stored in hundredths of a power of two, weights in thousandths."""


class Line(NamedTuple):
    """Surfaces over a single feature, with precomputed sums over the rows below and above each gap between rows.

    Points at distance u, in lengths over √3, correlate by (1 + u)·exp(−u). So the sum over all rows below a knot
    is, at distance d above it, exp(−d)·((1 + d)·A + B): a query takes two exponentials, not one per row.

    `knots` (k,): distinct positions of all rows, rising.
    `sums` (k + 1, 2, 2, surfaces): A and B of the rows below each gap, relative to the knot before it, and of the
      rows above it, relative to the knot after it.
    """

    knots: Matrix
    sums: Matrix

    def at(self, places: Matrix) -> Matrix:
        """Return the sums of all surfaces at some points (surfaces × q)."""
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
"""Points on a line per block."""


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
    """All machines' surfaces of one kind of work, in one matrix.

    `length` (p,): of the features.
    `lifted` (p + 2, n): features in lengths as `distance_blocks` requires them: the rows of all surfaces in turn.
    `weights` (n, surfaces): the weight of each row times the variance, 0 in the columns of other surfaces.
    `mean` (surfaces, 1).
    `line`: the same for a single feature.
    """

    length: Matrix
    known: tuple[Surface, ...]
    lifted: Matrix
    weights: Matrix
    mean: Matrix
    line: Line | None


def weights_of(features: Matrix, log_utilisation: Matrix, length: Matrix) -> Matrix:
    """Return the weight of each row of one machine in the surface through them all (n).

    Rasmussen & Williams, Gaussian Processes for Machine Learning, eq. 2.25.
    """
    shared = SURFACE_VARIANCE * correlation(distances(features, features, length))
    return np.asarray(np.linalg.solve(shared + SURFACE_NOISE * np.eye(len(features)), log_utilisation))


def surface_rows(features: Matrix, weight: Matrix) -> NDArray[np.int32]:
    """Return rows as the integers of `fomkit.core.measurement.Surface`, the weight first."""
    table = np.column_stack([weight * WEIGHT_DIGITS, features * FEATURE_DIGITS])
    return np.rint(table).astype(np.int32)


def side_by_side(length: Matrix, known: Sequence[Surface]) -> Surfaces:
    """Combine surfaces of one kind of work into one matrix, in lengths."""
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
    """Return the surfaces of a kind of work without excluded architectures and machines; None if none is left."""
    if (found := tables.of.get(work)) is None:
        return None
    known = [one for one in found.known if one.architecture not in excluded and one.machine not in excluded]
    return side_by_side(found.length, known) if known else None


def surface_values(found: Surfaces, features: Matrix) -> Matrix:
    """Return ln(utilisation) of queries (q × p) by each surface (surfaces × q); equal ones are computed once."""
    if found.line is not None:
        places = np.sqrt(3.0) * features[:, 0] / found.length[0]
        return np.asarray(SURFACE_VARIANCE * found.line.at(places) + found.mean)
    whole = np.ascontiguousarray(features).view(np.dtype((np.void, 8 * features.shape[1]))).ravel()
    _, first, number = np.unique(whole, return_index=True, return_inverse=True)
    predicted = np.empty((len(found.known), len(first)))
    for block, distance in distance_blocks(features[first] / found.length, found.lifted):
        predicted[:, block] = (correlation(distance) @ found.weights)[: len(first) - block.start].T
    return np.asarray((predicted + found.mean)[:, number])
