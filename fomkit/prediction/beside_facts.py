"""Correct a fit's predictions of products far from every timed one by predictions from facts.

`with_vectors` treats thin products, `with_facts` all others: facts, corrected by the table's own rows, weigh more
with the distance to timed products, and in small tables with the fit's cross-validation errors. `with_growth`
scales products larger than all timed ones from the largest. `errors_nearby` estimates the size of a fit's errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
import pandas as pd

from fomkit.core.interval import op_half_width
from fomkit.core.machine import Machine
from fomkit.ops.columns import cached
from fomkit.ops.pricing import add_costs
from fomkit.prediction import gp, prior
from fomkit.prediction.estimators import Answers, Rows, numbers
from fomkit.prediction.families import aligned, log_product
from fomkit.prediction.gp import Matrix, Places
from fomkit.prediction.monotone import SIDES, resized
from fomkit.prediction.rates import bounds
from fomkit.prediction.tiles import mix, thinness
from fomkit.prediction.typical import SHORTEST_S

ERRORS = 8
"""Cross-validation errors from which the spread of a prediction is estimated: those of the nearest scored ops."""

MIN_CORRELATION = 0.5
"""Least correlation with the nearest timed op at which a prediction counts as interpolated."""

FAR, LITTLE = 20.0, 0.01
"""Lengths beyond which nothing correlates, and the share below which no second prediction is computed."""

KNOWN_OCTAVES = 0.5
"""Distance to a timed product, in powers of two in m, n or k, up to which only the fit counts; from twice as far
only the corrected typical value of other machines does. With `gp.LIMIT` rows or fewer both are twice as far."""
CORRECTED_OCTAVES = 4.0
"""Distance to a timed product from which errors of left-out rows tell nothing about those of corrected facts."""
FEW, ALONE, BETWEEN = 120, 0.1, 0.2
"""Timed products up to which a fit is mixed with the facts everywhere (DeepBench's tables of a few hundred are as
good alone, among their sizes); standard deviations of ln(time) between neighbouring products, and machines."""


def errors_nearby(distance: Matrix, errors: Matrix) -> Matrix:
    """Return the typical size of the cross-validation errors near each query (`typical_error`).

    `distance` (q, n): from queries to scored ops in lengths; infinite where an op must not count for a query;
    `errors` (n,).
    """
    sizes, count = np.abs(errors), distance.shape[1]
    cells = gp.nearest_rows(distance, min(ERRORS, count))
    # `cells` are flat indices over all queries.
    return typical_error(distance.take(cells), sizes.take(cells % count), float(sizes.mean()))


def typical_error(distance: Matrix, sizes: Matrix, usual: float) -> Matrix:
    """Return the weighted mean of error sizes (q, `ERRORS`) by distance; the nearest weigh most.

    A tenth of ``usual``, the mean of all sizes, is added: eight small errors may be chance.
    """
    # 0.1: two ops closer than a tenth of a length are nearly the same.
    off = distance + 0.1
    weight = 1 / (off * off * off)
    return np.asarray(np.einsum("ij,ij->i", weight, sizes) / weight.sum(1) + 0.1 * usual + 1e-6)


ENOUGH = 5 * ERRORS
"""Fewest scored ops for which the eight nearest count as a neighbourhood."""


def deviation(correction: gp.Posterior, apart: Matrix, errors: Matrix, spread: Matrix = gp.NONE) -> Matrix:
    """Return the standard deviation of ln(time), up to the factors in `Fit.quantiles`.

    It is a weighted geometric mean of the process's own deviation and `errors_nearby`, which has two thirds of the
    weight: the process assumes the same roughness everywhere, the errors do not. Beyond one length from the
    nearest timed op the weight of the errors falls with distance and the process's variance grows with it, like a
    random walk's, because the table has no information there.

    `correction`: of q queries; `apart` (q, n): distances in lengths from the queries to the scored ops; `errors`
    (n,): cross-validation errors of the scored ops, not used if fewer than `ENOUGH`; `spread` (n,): the process's
    own deviation of these, given where ops that other machines timed are known much better than others: errors
    nearby then count in units of this deviation.
    """
    if len(errors) < ENOUGH:
        return deviation_of(correction, None, share_of_own=False)
    relative = errors / spread if len(spread) else errors
    return deviation_of(correction, errors_nearby(apart, relative), share_of_own=bool(len(spread)))


def deviation_of(correction: gp.Posterior, typical: Matrix | None, *, share_of_own: bool) -> Matrix:
    """Do the same as `deviation`, from the typical size of the errors nearby, if it is known."""
    beyond = np.maximum(correction.distance, 1.0)
    own = np.sqrt(correction.variance * beyond)
    if typical is None:
        return np.asarray(own)
    share = 2 / 3 / beyond
    return np.asarray(typical**share * (own if share_of_own else own ** (1 - share)))


def with_repeats(found: Answers, family: Known, interval: float) -> Answers:
    """Widen predictions by the spread of a table's repeats of one op around their median (`training_rows`).

    The fit and its cross-validation errors are of medians. An interval is for one timing, whatever is repeated.
    """
    spread = op_half_width(interval) * float(family.rows.number("_repeat")[0])
    if not spread > 0:
        return found
    apart = np.hypot(np.log(found.times / found.times[0]), [[0.0], [spread], [spread]])
    return found.timed(found.times[0] * np.exp(apart * np.array([[0.0], [-1.0], [1.0]])))


class Known(Protocol):
    """A fitted table: its rows, also as a DataFrame, and the fit (`fomkit.prediction.interpolate.Family`)."""

    @property
    def rows(self) -> Rows:
        """Timed products."""

    @property
    def training(self) -> pd.DataFrame:
        """The same as a DataFrame, with ``_time_s``."""

    @property
    def fitted(self) -> gp.Precomputed:
        """The Gaussian process."""

    @property
    def fit(self) -> Any:
        """The parameters, with mean and cross-validation errors."""


def _distance_share(rows: Rows, features: Matrix, family: Known) -> Matrix:
    """Return how far thin products are from timed ones (n): 1 far from all, 0 near one.

    For a product with one row or column only such timed products count: it runs by another kernel.
    """
    known, query = thinness(family.rows), thinness(rows)
    scaled = features / family.fit.hyper.length
    apart, length = np.full(len(rows), np.inf), np.ones(scaled.shape[1])
    for alike, timed in ((query == 1, known == 1), (query < 1, known >= 0)):
        if alike.any() and timed.any():
            apart[alike] = gp.distances(scaled[alike], family.fitted.scaled[timed], length).min(1)
    near = gp.correlation(np.minimum(apart, FAR)) / MIN_CORRELATION
    return np.asarray(query * np.maximum(1 - near, 0.0), np.float64)


def with_vectors(
    rows: Rows, query: Matrix, found: Answers, family: Known, machine: Machine, interval: float
) -> Answers:
    """Mix thin products far from every timed one with the typical bandwidth that such products reach elsewhere."""
    share, thin = np.zeros(len(rows)), thinness(rows)
    at = np.flatnonzero(thin > 0)
    if len(at):
        # Small matrices are left out: their time is mostly a start, which the machine's own table shows better.
        at = at[(thin[at] == 1) | (bounds(rows.take(at), machine).floor_s > SHORTEST_S)]
    if len(at):
        share[at] = _distance_share(rows.take(at), query[at], family)
    at = np.flatnonzero(share > LITTLE)
    from_rates = prior.estimate(rows.take(at), machine, interval) if len(at) else None
    if from_rates is None or not len(from_rates):
        return found
    at = at[np.isin(rows.index[at], from_rates.index)]
    # Products of several rows run by the kernels of large ones, whose start the table knows. Without a stated
    # launch cost the table alone knows any start.
    of_table = (thin[at] < 1) | (machine.device.launch_s is None)
    start_s = np.where(of_table, _start_s(family), 0.0)
    # The start is as uncertain as the time that it replaces.
    raised = np.maximum(start_s / from_rates.times[0], 1.0)
    elsewhere = np.log(from_rates.times * raised)
    times = np.exp(mix(np.log(found.times[:, at]), elsewhere, share[at], interval))
    mostly = np.flatnonzero(share[at] > 0.5)
    source, bound = (
        one.replaced(at[mostly], other.taken(mostly))
        for one, other in ((found.source, from_rates.source), (found.limit, from_rates.limit))
    )

    def evidence(number: int, place: int) -> str:
        words = f"{share[place]:.0%} of the weight as matrix-vector products: {from_rates.evidence(number)}"
        words += ", at least the start that its table shows" * bool(raised[number] > 1)
        return f"{words}; {found.evidence(place)}"

    return found.changed(at, times, evidence, source, bound)


def _octaves(rows: Rows, known: Rows) -> Iterator[Matrix]:
    """Yield distances between products and timed ones (q, n), in powers of two, independent of a fit's lengths.

    The size that differs most counts. Different alignment adds one. A batched product is at the largest distance
    from a single one, because it runs by another kernel. A block of products at a time fits a cache.
    """
    both = rows, known
    sizes = [[np.log2(numbers(one, name)) for one in both] for name in ("m", "n", "k")]
    alignments = [[aligned(one, name) for one in both] for name in ("n", "k")]
    batched, timed_so = (numbers(one, "b") > 1 for one in both)
    for start in range(0, max(len(rows), 1), gp.BLOCK):
        block = slice(start, start + gp.BLOCK)
        apart = np.abs(sizes[0][0][block, None] - sizes[0][1])
        between = np.empty_like(apart)
        for own, timed in sizes[1:]:
            np.abs(np.subtract(own[block, None], timed, out=between), out=between)
            np.maximum(apart, between, out=apart)
        for own, timed in alignments:
            apart += np.abs(np.subtract(own[block, None], timed, out=between), out=between)
        if timed_so.any() and not timed_so.all():
            apart += FAR * (batched[block, None] != timed_so)
        yield apart


def _outside(rows: Rows, known: Rows) -> Matrix:
    """Return how far products are outside all timed ones (q), in powers of two, by rows and by arithmetic.

    An alignment that no timed product lacks adds two: without it a product is outside at any size.
    """
    found = np.zeros(len(rows))
    for names in ("m", "mnk"):
        own, timed = (log_product(one, *names) for one in (rows, known))
        np.maximum(found, np.maximum(own - timed.max(), timed.min() - own), out=found)
    for name in ("n", "k"):
        found += 2.0 * np.maximum(aligned(known, name).min() - aligned(rows, name), 0.0)
    return found


def _above_facts(family: Known, places: Places, machine: Machine, interval: float) -> Matrix:
    """Return ln(measured time / time predicted from facts) of timed products, NaN where it is not known.

    For all rows (n); it is computed at ``places`` and cached.
    """
    key = f"above facts {machine.excluded}"
    above = cached(family.training, machine.device, key, lambda: np.full(len(family.training), np.nan))
    lacking = places[np.isnan(above[places])]
    if lacking.size:
        lacking = np.unique(lacking)
        rows = add_costs(family.training.iloc[lacking].reset_index(drop=True), checked=True)
        found = prior.estimate(rows, machine, interval)
        time_s = rows["_time_s"].to_numpy(np.float64)[found.index]
        above[lacking[found.index]] = np.log(time_s / found.time_s)
    return above


def _nearest(blocks: Iterable[Matrix]) -> tuple[Places, Matrix]:
    """Return the positions of the `ERRORS` nearest timed products of each product, and their distances (q, n)."""
    found = []
    for apart in blocks:
        cells = gp.nearest_rows(apart, min(ERRORS, count := apart.shape[1]))
        found.append((cells % count, apart.take(cells)))
    places, near = (np.concatenate(column) for column in zip(*found, strict=True))
    return places, near


def _offsets(near: Matrix, places: Places, above: Matrix, noise: Matrix) -> Matrix:
    """Return the mean of ``above`` over the nearest timed products, ``places`` (q, n), shrunk towards 0 (q)."""
    weight = 1 / ((near + 0.5) ** 2 * noise[places])
    known, count = above[places], places.shape[1]
    ordered = np.sort(known, 1)
    centre = (ordered[:, (count - 1) // 2, None] + ordered[:, count // 2, None]) / 2  # the median
    known = np.clip(known, centre - ALONE, centre + ALONE)  # one outlier has little predictive value
    total = weight.sum(1)
    found = (weight * known).sum(1) / total
    few = ALONE**2 + (weight * (above[places] - found[:, None]) ** 2).sum(1) / total
    # The prior is that the offset from other machines is 0: few rows that disagree move it little. In tables of
    # more than `FEW` products, far rows move it little too.
    far = ALONE * (weight * np.minimum(near, FAR)).sum(1) / total if len(above) > FEW else 0.0
    return np.asarray(found / (1 + (few * (weight**2).sum(1) / total**2 + far**2) / BETWEEN**2))


def _start_s(family: Known) -> float:
    """Return the cost of a start that a table shows [s], 0 without a product that is mostly start."""
    start_s = float(family.fit.mean[0])
    return start_s if 2 * start_s >= family.rows.number("_time_s").min() else 0.0


def _start_noise(family: Known, machine: Machine) -> Matrix:
    """Return the variance of ln(time) of timed products due to launch and harness cost, up to a factor."""
    launch = machine.device.launch_s
    printed_s, own_s = (family.rows.number(name) for name in ("time_s", "_time_s"))
    start_s = (printed_s - own_s) / 4 + (launch.value if launch is not None else 0.0)
    return np.asarray(ALONE**2 + (start_s / own_s) ** 2)


class _LeftOut(NamedTuple):
    """Mean squared errors [ln²] of left-out rows, by their fit and by corrected facts.

    `apart`: mean squared difference of both predictions.
    """

    by_fit: float
    by_facts: float
    apart: float

    @property
    def share(self) -> float:
        """The weight of corrected facts against the fit."""
        return self.by_fit / max(self.by_fit + self.by_facts, 1e-12)

    def average(self, fit: Matrix, facts: Matrix, share: Matrix, interval: float) -> Matrix:
        """Average both predictions of some ops, as logarithms of value, low and high (3, q).

        The interval is wider where both disagree (`mix`), and narrower because their errors cancel in part: by how
        much in the mean follows from the left-out rows.
        """
        value, low, high = mix(fit, facts, share, interval)
        usual, apart = (1 - share) * self.by_fit + share * self.by_facts, share * (1 - share) * self.apart
        cancels = np.sqrt(np.maximum(usual - apart, 0.0) / np.maximum(usual + apart, 1e-12))
        return np.stack([value, value + cancels * (low - value), value + cancels * (high - value)])


def _left_out_errors(family: Known, above: Matrix, noise: Matrix) -> _LeftOut:
    """Return the errors of a fit of few rows and of corrected facts, on left-out rows."""
    apart = np.concatenate([*_octaves(family.rows, family.rows)]) + np.diag(np.full(len(above), FAR * FAR))
    places, near = _nearest([apart])
    by_facts, by_fit = _offsets(near, places, above, noise) - above, family.fit.errors
    return _LeftOut(*(ALONE**2 * float((one**2 / noise).mean()) for one in (by_fit, by_facts, by_fit - by_facts)))


def with_facts(rows: Rows, found: Answers, family: Known, machine: Machine, interval: float) -> Answers:
    """Mix products outside the timed sizes, or all if few are timed, with corrected predictions from facts.

    A Gaussian process with long lengths is as certain beyond the range of its sizes as inside.
    """
    count, thin = len(family.rows), thinness(rows)
    few, by_range = count <= FEW, FEW < count <= gp.LIMIT
    # `with_vectors` treats thin products already, unless all are far; in a short table few products are near.
    known = np.where(thin > 0, 8.0, 2.0 if count <= gp.LIMIT else 1.0) * KNOWN_OCTAVES
    away = (_outside(rows, family.rows) if by_range
            else np.concatenate([apart.min(1) for apart in _octaves(rows, family.rows)]))  # fmt: skip
    share = np.clip(away / known - 1, 0.0, 1.0)
    if not few and not (share > LITTLE).any():
        return found
    noise, missed, above = _start_noise(family, machine), None, np.empty(0)
    if few and not np.isnan(above := _above_facts(family, np.arange(count), machine, interval)).any():
        missed = _left_out_errors(family, above, noise)
        share = missed.share + (1 - missed.share) * share
    at = np.flatnonzero((share > LITTLE) & (thin < 1))
    nearest, near = _nearest(_octaves(rows.take(at), family.rows))
    if not few:  # one call for all timed products of a table takes less than one for each batch
        above = _above_facts(family, np.arange(count) if by_range else nearest, machine, interval)
    here = prior.estimate(rows.take(at), machine, interval)
    offset = np.exp(_offsets(near, nearest, above, noise))
    if len(here) < len(at) or not np.isfinite(offset).all():
        return found
    elsewhere = np.log(here.times)
    if missed is not None:  # near timed products their errors count, far away those of facts for any machine
        away, near_by = np.minimum(away[at] / CORRECTED_OCTAVES, 1.0), missed.by_facts
        variance = (1 - away) * op_half_width(interval) ** 2 * near_by + away * (elsewhere - elsewhere[0]) ** 2
        elsewhere = elsewhere[0] + np.array([[0.0], [-1.0], [1.0]]) * np.sqrt(variance)
    start_s = max(_start_s(family), 1e-12)
    elsewhere = np.maximum(elsewhere + np.log(offset), np.log(start_s))
    average = missed.average if missed else mix
    times = np.exp(average(np.log(found.times[:, at]), elsewhere, share[at], interval))

    def evidence(number: int, place: int) -> str:
        more = f"{share[place]:.0%} of the weight: {offset[number]:.2g} × {here.evidence(number)}"
        return f"{found.evidence(place)}; {more}"

    return found.changed(at, times, evidence)


def with_growth(
    rows: Rows,
    found: Answers,
    family: Known,
    interval: float,
    table: Callable[[Rows], Answers],
    mean: Callable[[Rows], Matrix],
) -> Answers:
    """Mix products with a side beyond every timed one with those of the largest timed side, times mean growth.

    The table's offset at its largest products holds for larger ones, which take more waves of the same tiles:
    neither facts nor the process, which returns to its mean, predict it better. With products of more than 4,096
    rows left out, those of an H100 in fp8 are off by 8.2 % (mean) instead of 11.2, of an L40S in bf16 by 9.2
    (median) instead of 10.9; those of 32,768 rows are biased by 2 and 6 % instead of 14 and 19. From twice the
    largest timed side on only this prediction counts. Only for tables of more than `gp.LIMIT` rows.

    `found`: predictions of the products; `table`: predicts others; `mean`: ln of the time by the fit's mean.
    """
    if len(family.training) <= gp.LIMIT:
        return found
    sizes = {name: numbers(rows, name) for name in SIDES[1:]}
    most = {name: numbers(family.rows, name).max() for name in sizes}
    octaves = np.stack([np.log2(np.maximum(size / most[name], 1.0)) for name, size in sizes.items()])
    share = np.minimum(octaves.max(0), 1.0)
    at = np.flatnonzero((share > LITTLE) & (thinness(rows) < 1))
    if not len(at):
        return found
    larger = edge = rows.take(at)
    for name, size in sizes.items():
        edge = resized(edge, np.full(len(at), SIDES.index(name)), np.minimum(size[at], most[name]))
    known, growth = table(edge), mean(larger) - mean(edge)
    wider = op_half_width(interval) * ALONE * octaves.sum(0)[at]
    ends = np.log(known.times)
    ends = (
        ends[0]
        + growth
        + np.stack([0 * wider, *(side * np.hypot(wider, ends[at] - ends[0]) for at, side in ((1, -1), (2, 1)))])
    )
    times = np.exp(mix(np.log(found.times[:, at]), ends, share[at], interval))

    def evidence(number: int, place: int) -> str:
        words = (
            f"{share[place]:.0%} of the weight: {np.exp(growth[number]):.3g} × products of the largest timed sides"
        )
        return f"{words}, {known.evidence(number)}"

    return found.changed(at, times, evidence)
