"""Products far from everything that a table timed: what its fit says there, drawn towards the facts.

How far depends on how much the fit missed of the nearest rows when these were left out (`typical_error`), and the
table's own rows correct the facts first. Products larger than all timed ones start from the largest that the table
knows and grow as facts say (`with_growth`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import pandas as pd

from fomkit.core.interval import op_half_width
from fomkit.core.machine import Machine
from fomkit.ops.pricing import add_costs
from fomkit.prediction import gp, prior
from fomkit.prediction.estimates import Answers, Rows, cached, numbers
from fomkit.prediction.families import aligned
from fomkit.prediction.gp import Matrix, Places
from fomkit.prediction.monotone import SIDES, resized
from fomkit.prediction.rates import bounds
from fomkit.prediction.tiles import mix, thinness
from fomkit.prediction.typical import SHORTEST_S

ERRORS = 8
"""Left-out errors from which the spread of a prediction is taken: those of the nearest scored ops."""

MIN_CORRELATION = 0.5
"""Correlation with the nearest timed op from which a prediction counts as interpolated, not extrapolated."""

FAR, LITTLE = 20.0, 0.01
"""Lengths from which nothing correlates any more, and the share that is not worth a second estimate."""

KNOWN_OCTAVES = 0.5
"""Powers of two in m, n or k to which a timed product tells of another by its own fit alone; from twice as many
on, what others reach does, corrected by timed products."""
FEW, ALONE, BETWEEN = 120, 0.1, 0.2
"""Timed products up to which a fit is mixed with that everywhere (DeepBench's tables of a few hundred are as good
by themselves); spreads of ln(time) between products beside each other, and between machines."""


def errors_nearby(distance: Matrix, errors: Matrix) -> Matrix:
    """Give the typical size of the left-out errors near each query (`typical_error`).

    `distance` (q, n): from queries to scored ops in lengths; infinite where an op must not speak for a query;
    `errors` (n,).
    """
    sizes, count = np.abs(errors), distance.shape[1]
    cells = gp.nearest_rows(distance, min(ERRORS, count))
    # Cells count on from one query to the next.
    return typical_error(distance.take(cells), sizes.take(cells % count), float(sizes.mean()))


def typical_error(distance: Matrix, sizes: Matrix, usual: float) -> Matrix:
    """Give the typical size of left-out errors (q, `ERRORS`) at these distances, the nearest weighing most.

    A tenth of the ``usual`` size of all is added: eight small errors may be chance.
    """
    # A distance below a tenth of a length says no more: both ops are nearly the same.
    off = distance + 0.1
    weight = 1 / (off * off * off)
    return np.asarray(np.einsum("ij,ij->i", weight, sizes) / weight.sum(1) + 0.1 * usual + 1e-6)


class Known(Protocol):
    """What is asked of a fitted table: its rows, as a table too, and the fit (`fomkit.prediction.interpolate`)."""

    @property
    def rows(self) -> Rows:
        """Timed products."""

    @property
    def training(self) -> pd.DataFrame:
        """The same as a table, with ``_time_s``."""

    @property
    def fitted(self) -> gp.Precomputed:
        """What the process knows of them."""

    @property
    def fit(self) -> Any:
        """Mean, and left-out errors."""


def _untimed(rows: Rows, features: Matrix, family: Known) -> Matrix:
    """Give how little the table says of thin products (n): 1 far from every timed product, 0 among them.

    Of a product with one row or column only such products speak: it runs by another kernel.
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
    """Draw thin products far from every timed one to what such products reach of the bandwidth elsewhere."""
    share, thin = np.zeros(len(rows)), thinness(rows)
    at = np.flatnonzero(thin > 0)
    if len(at):
        # Of what is read at once nothing streams: a start is all there is, and the table knows its own.
        at = at[(thin[at] == 1) | (bounds(rows.take(at), machine).floor_s > SHORTEST_S)]
    if len(at):
        share[at] = _untimed(rows.take(at), query[at], family)
    at = np.flatnonzero(share > LITTLE)
    from_rates = prior.estimate(rows.take(at), machine, interval) if len(at) else None
    if from_rates is None or not len(from_rates):
        return found
    at = at[np.isin(rows.index[at], from_rates.index)]
    # Several rows run by the kernels of large products, of which the table knows what a start costs.
    start_s = np.where(thin[at] < 1, family.fit.mean[0], 0.0)
    times = found.times.copy()
    elsewhere = np.log(np.maximum(from_rates.times, start_s))
    times[:, at] = np.exp(mix(np.log(times[:, at]), elsewhere, share[at], interval))
    mostly = np.flatnonzero(share[at] > 0.5)
    source, bound = (
        one.replaced(at[mostly], other.taken(mostly))
        for one, other in ((found.source, from_rates.source), (found.limit, from_rates.limit))
    )
    places = {int(place): number for number, place in enumerate(at.tolist())}

    def evidence(place: int) -> str:
        if place not in places:
            return found.evidence(place)
        words = f"as products of a matrix and a vector by {share[place]:.0%}: {from_rates.evidence(places[place])}"
        return f"{words}; {found.evidence(place)}"

    return Answers(rows.index, times, source, bound, evidence)


def _octaves(rows: Rows, known: Rows) -> Matrix:
    """Give how far products lie from timed ones (q, n), in powers of two, whatever lengths a fit has found.

    The size that differs most counts; another alignment is one more, a batch beside a single product is as far as
    can be, for it runs by another kernel.
    """
    apart = np.zeros((len(rows), len(known)))
    for name in ("m", "n", "k"):
        own, timed = (np.log2(numbers(one, name)) for one in (rows, known))
        np.maximum(apart, np.abs(own[:, None] - timed), out=apart)
    for name in ("n", "k"):
        apart += np.abs(aligned(rows, name)[:, None] - aligned(known, name))
    batched, timed_so = (numbers(one, "b") > 1 for one in (rows, known))
    if timed_so.any() and not timed_so.all():
        apart += FAR * (batched[:, None] != timed_so)
    return apart


def _above_facts(family: Known, places: Places, machine: Machine, interval: float) -> Matrix:
    """Give ln(time of timed products / what machines like this one usually take), NaN where it is not known.

    Of all rows (n); those at ``places`` are looked up, and kept for the next time.
    """
    key = f"above facts {machine.excluded}"
    above = cached(family.training, machine.device, key, lambda: np.full(len(family.training), np.nan))
    lacking = np.unique(places)
    lacking = lacking[np.isnan(above[lacking])]
    if len(lacking):
        rows = add_costs(family.training.iloc[lacking].reset_index(drop=True), checked=True)
        found = prior.estimate(rows, machine, interval)
        time_s = rows["_time_s"].to_numpy(np.float64)[found.index]
        above[lacking[found.index]] = np.log(time_s / found.time_s)
    return above


def _offsets(apart: Matrix, above: Matrix, noise: Matrix) -> Matrix:
    """Give what the `ERRORS` nearest timed products take above the usual, the nearest weighing most (q)."""
    places = np.argsort(apart, axis=1, kind="stable")[:, :ERRORS]
    near = np.take_along_axis(apart, places, 1)
    weight = 1 / ((near + 0.5) ** 2 * noise[places])
    known = above[places]
    centre = np.median(known, 1, keepdims=True)
    known = np.clip(known, centre - ALONE, centre + ALONE)  # one odd product says little of another
    total = weight.sum(1)
    found = (weight * known).sum(1) / total
    few = ALONE**2 + (weight * (above[places] - found[:, None]) ** 2).sum(1) / total
    # What a machine has in common with others is the prior: few rows that disagree move it little, and of a large
    # table, which has told near ones apart from far ones, far rows as well.
    far = ALONE * (weight * np.minimum(near, FAR)).sum(1) / total if len(above) > FEW else 0.0
    return np.asarray(found / (1 + (few * (weight**2).sum(1) / total**2 + far**2) / BETWEEN**2))


def _start_noise(family: Known, machine: Machine) -> Matrix:
    """Give the variance of ln(time) of timed products from what a start and the harness cost, up to a factor."""
    launch = machine.device.launch_s
    printed_s, own_s = (family.training[name].to_numpy(np.float64) for name in ("time_s", "_time_s"))
    start_s = (printed_s - own_s) / 4 + (launch.value if launch is not None else 0.0)
    return np.asarray(ALONE**2 + (start_s / own_s) ** 2)


class _LeftOut(NamedTuple):
    """Mean squares of what rows left out were missed by [ln²], by their fit and by corrected facts.

    `apart`: of how far these two lay apart.
    """

    by_fit: float
    by_facts: float
    apart: float

    @property
    def share(self) -> float:
        """Of corrected facts beside the fit."""
        return self.by_fit / max(self.by_fit + self.by_facts, 1e-12)

    def average(self, fit: Matrix, facts: Matrix, share: Matrix, interval: float) -> Matrix:
        """Average what both say of some ops, as logarithms of value, low and high (3, q).

        Where the two lie apart an op is less sure (`mix`), and their errors cancel in part: rows left out tell how
        far off such averages are in the mean.
        """
        value, low, high = mix(fit, facts, share, interval)
        usual, apart = (1 - share) * self.by_fit + share * self.by_facts, share * (1 - share) * self.apart
        cancels = np.sqrt(np.maximum(usual - apart, 0.0) / np.maximum(usual + apart, 1e-12))
        return np.stack([value, value + cancels * (low - value), value + cancels * (high - value)])


def _missed_by_both(family: Known, above: Matrix, noise: Matrix) -> _LeftOut:
    """Tell how far off a fit of a few rows and corrected facts are, from rows left out."""
    apart = _octaves(family.rows, family.rows) + np.diag(np.full(len(above), FAR * FAR))
    by_facts, by_fit = _offsets(apart, above, noise) - above, family.fit.errors
    return _LeftOut(*(ALONE**2 * float((one**2 / noise).mean()) for one in (by_fit, by_facts, by_fit - by_facts)))


def with_facts(rows: Rows, found: Answers, family: Known, machine: Machine, interval: float) -> Answers:
    """Draw products outside the timed sizes, and all where a few are timed, to facts that timed ones correct.

    A process that was fitted to a range of sizes is as sure beyond it as inside where its lengths came out long.
    """
    if FEW < len(family.training) <= gp.LIMIT:
        return found
    apart = _octaves(rows, family.rows)
    few, thin = apart.shape[1] <= FEW, thinness(rows)
    # `with_vectors` tells thin products apart already, unless all are far off; of few rows none is near.
    known = np.where(thin > 0, 8.0, 2.0 if few else 1.0) * KNOWN_OCTAVES
    share = np.clip(apart.min(1) / known - 1, 0.0, 1.0)
    if not few and not (share > LITTLE).any():
        return found
    at = np.flatnonzero((share > LITTLE) & (thin < 1))
    near = np.argsort(apart[at], axis=1, kind="stable")[:, :ERRORS]
    above = _above_facts(family, np.arange(apart.shape[1]) if few else near, machine, interval)
    noise, missed = _start_noise(family, machine), None
    if few and not np.isnan(above).any():
        missed = _missed_by_both(family, above, noise)
        share = missed.share + (1 - missed.share) * share
        at = np.flatnonzero((share > LITTLE) & (thin < 1))
    here = prior.estimate(rows.take(at), machine, interval)
    offset = np.exp(_offsets(apart[at], above, noise))
    if len(here) < len(at) or not np.isfinite(offset).all():
        return found
    times = found.times.copy()
    elsewhere = np.log(here.times)
    if missed is not None:  # what machines have in common is in the correction
        side = op_half_width(interval) * np.sqrt(missed.by_facts)
        elsewhere = elsewhere[0] + side * np.array([[0.0], [-1.0], [1.0]])
    start_s = max(float(family.fit.mean[0]), 1e-12)  # the table knows what a start costs
    elsewhere = np.maximum(elsewhere + np.log(offset), np.log(start_s))
    own = np.log(times[:, at])
    both = (
        missed.average(own, elsewhere, share[at], interval) if missed else mix(own, elsewhere, share[at], interval)
    )
    times[:, at] = np.exp(both)
    places = dict(zip(at.tolist(), range(len(at)), strict=True))

    def evidence(place: int) -> str:
        words = found.evidence(place)
        if place not in places:
            return words
        number = places[place]
        return f"{words}; by {share[place]:.0%} {offset[number]:.2g} × {here.evidence(number)}"

    return Answers(found.index, times, found.source, found.limit, evidence)


def with_growth(
    rows: Rows,
    found: Answers,
    family: Known,
    interval: float,
    table: Callable[[Rows], Answers],
    mean: Callable[[Rows], Matrix],
) -> Answers:
    """Draw products with a side beyond every timed one to that of the largest side, times the growth of the mean.

    What a table tells of its largest products it tells of larger ones, which take more waves of the same tiles:
    neither facts nor the process, which forgets, know it better. With products of more than 4,096 rows left out
    those of an H100 in fp8 are off by 8.2 % in the mean instead of 11.2, of an L40S in bf16 by 9.2 in the middle
    instead of 10.9; those of 32,768 rows lie 2 and 6 % to one side instead of 14 and 19. All of that counts where
    a side is twice as large as every timed one. For tables that a process alone does not fit.

    `found`: what is known of the products; `table`: tells it of others; `mean`: ln of the time by the fit's mean.
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
    times, ends = found.times.copy(), np.log(known.times)
    ends = (
        ends[0]
        + growth
        + np.stack([0 * wider, *(side * np.hypot(wider, ends[at] - ends[0]) for at, side in ((1, -1), (2, 1)))])
    )
    times[:, at] = np.exp(mix(np.log(times[:, at]), ends, share[at], interval))
    places = {int(place): number for number, place in enumerate(at.tolist())}

    def evidence(place: int) -> str:
        if place not in places:
            return found.evidence(place)
        number = places[place]
        words = (
            f"by {share[place]:.0%} {np.exp(growth[number]):.3g} × what products of the largest timed sides take"
        )
        return f"{words}, {known.evidence(number)}"

    return Answers(found.index, times, found.source, found.limit, evidence)
