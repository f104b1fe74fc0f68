"""Gaussian-process regression with one length per feature, in numpy: exact up to `LIMIT` rows, local above.

The utilisation that each timed machine reached, as a smooth surface over features of its ops.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fomkit.core.measurement import Surface, TypicalTables
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

NONE, NO_GRID = np.empty(0), np.empty((0, 0), np.intp)


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


def nearest_of(distance: Matrix, rows: Places) -> tuple[Places, Matrix]:
    """Give the nearest of some rows of each query (q, count), by their distances, and how far it is (q)."""
    cell = np.arange(len(rows)), distance.astype(np.float32).argmin(1)
    return rows[cell], distance[cell]


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


class Part(NamedTuple):
    """What is predicted of some queries, and the distances from them to rows among which their nearest are.

    `at`, `mean`, `variance` (q,): places of the queries, and what is predicted of them.
    `distance` (q, c): to ``rows`` (q, c), which rise; where these are None, to all rows in order.
    """

    at: Places
    mean: Matrix
    variance: Matrix
    distance: Matrix
    rows: Places | None

    def nearest(self, count: int) -> tuple[Matrix, Places]:
        """Give the distances to the nearest rows, and these rows (q, count)."""
        cells = nearest_rows(self.distance, count)
        if self.rows is not None:
            return self.distance.take(cells), self.rows.take(cells)
        return self.distance.take(cells), cells - self.distance.shape[1] * np.arange(len(cells))[:, None]


OCTAVE, NODES = 48, 16
"""Sizes of an op within a power of two from which it is told by a polynomial, and the degree of that."""
STRAIGHT = SMOOTH = 1e-13
"""How far features may lie off a line; the most of a polynomial's last coefficients, as much as sums round to."""
FARTHER = 1 + 1e-6
"""How much farther rows are that are never among the nearest, not even by seven digits."""
_ORDERS = np.arange(NODES + 1)
_ENDS = np.where(_ORDERS % NODES, 1.0, 0.5)
_SERIES = np.cos(np.pi / NODES * np.outer(_ORDERS, _ORDERS)) * np.outer(_ENDS, _ENDS) * 2 / NODES
_SHARES = (1 - np.cos(np.pi / NODES * _ORDERS)) / 2
"""Coefficients of Chebyshev's polynomials by the values at their extrema, and where these lie between 0 and 1."""


def _on_lines(precomputed: Precomputed, query: Matrix, at: Places, count: int) -> Part:
    """Predict ops at the sizes of a power of two (n, q, p), each by a polynomial along the line on which it lies.

    All rows are asked at `NODES` + 1 places of a line alone (Trefethen, Approximation Theory and Approximation
    Practice, ch. 3 and 8). Where a timed op lies beside the line, so that no polynomial is `SMOOTH`, and where a
    feature leaves the line, nothing is said. Squares of distances from a line to two rows differ by what is linear
    along it: a row that is farther at both ends than ``count`` others is not among the nearest in between.
    """
    ends = query[:, [0, -1]]
    step = (ends[:, 1] - ends[:, 0])[:, None]
    axis = int(np.abs(step[0, 0]).argmax())
    share = (query[0, :, axis] - ends[0, 0, axis]) / step[0, 0, axis]
    off = query - ends[:, :1]
    off -= share[:, None] * step
    straight = (np.abs(off, out=off) <= STRAIGHT).all(2)
    asked = (ends[:, :1] + _SHARES[:, None] * step).reshape(-1, query.shape[2])
    told = [(apart.copy(), *of) for apart, *of in posterior_blocks(precomputed, asked)]
    shape = (len(query), len(_SHARES), -1)
    apart, mean, variance = (np.concatenate(column).reshape(shape) for column in zip(*told, strict=True))
    series = np.stack([mean[..., 0], variance[..., 0]]) @ _SERIES
    smooth = np.abs(series[..., -2:]).max(2) <= SMOOTH * np.stack([np.ones(len(query)), variance[..., 0].min(1)])
    good = straight & smooth.all(0)[:, None]
    mean, variance = series @ np.cos(_ORDERS[:, None] * np.arccos(1 - 2 * share))
    near = np.argpartition(apart[:, NODES // 2], count - 1, 1)[:, None, :count]
    apart = apart[:, [0, -1]]
    among = (apart <= FARTHER * np.take_along_axis(apart, near, 2).max(2, keepdims=True)).any(1)
    rows = np.argsort(~among, 1, kind="stable")[:, None, : among.sum(1).max()]
    first, last = np.moveaxis(np.take_along_axis(apart, rows, 2) ** 2, 1, 0)[:, :, None]
    square, share = ((step / precomputed.hyper.length) ** 2).sum(2, keepdims=True), share[:, None]
    apart = np.sqrt(np.maximum(first + share * (last - first - (1 - share) * square), 0.0))
    return Part(at[good], mean[good], variance[good], apart[good], np.broadcast_to(rows, apart.shape)[good])


def posterior_parts(precomputed: Precomputed, query: Matrix, grid: Places, count: int) -> Iterator[Part]:
    """Predict the target at each query (q, p), a part of them at a time; see `posterior`.

    `grid` (ops, sizes): places of queries that may lie on a line for each op; `count`: of rows whose nearest are
    asked for.
    """
    rest = np.ones(len(query), bool)
    if grid.shape[1] >= OCTAVE and precomputed.strips:
        along = query[grid[0]] - query[grid[0, 0]]
        along = along[:, np.abs(along[-1]).argmax()]
        cuts = np.searchsorted(along, np.arange(np.ceil(along[-1]) + 1)).tolist()
        for start, end in pairwise(cuts) if (np.diff(along) > 0).all() else ():
            if end - start >= OCTAVE:
                at = grid[:, start:end]
                part = _on_lines(precomputed, query[at], at, count)
                rest[part.at] = False
                yield part
    places, end = rest.nonzero()[0], 0
    for distance, mean, variance in posterior_blocks(precomputed, query if rest.all() else query[places]):
        start, end = end, end + len(mean)
        yield Part(places[start:end], mean, variance, distance, None)


def posterior(precomputed: Precomputed, query: Matrix) -> Posterior:
    """Predict the target at each query (q, p); the variance is that of a new observation, its noise included."""
    parts = [
        (part.at, part.mean, part.variance, *nearest_of(*part.nearest(1)))
        for part in posterior_parts(precomputed, query, NO_GRID, 1)
    ]
    return Posterior(*in_order(parts))


def in_order(parts: Sequence[tuple[NDArray[Any], ...]]) -> list[NDArray[Any]]:
    """Put columns of parts, of which the first are places, after each other by these; these are left out."""
    if len(parts) == 1:
        return list(parts[0][1:])
    at, *columns = (np.concatenate(column) for column in zip(*parts, strict=True))
    found = [np.empty_like(column) for column in columns]
    for one, column in zip(found, columns, strict=True):
        one[at] = column
    return found


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
