"""Predict times from the machine's own table: a calibrated roofline, corrected by a Gaussian process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from fomkit.core.errors import FomkitError
from fomkit.core.interval import DEFAULT_LEVEL, op_half_width
from fomkit.core.machine import Machine
from fomkit.ops.columns import Words, cached, concatenate_in_order, rounded, significant
from fomkit.ops.groups import describe_sizes
from fomkit.ops.kinds import KINDS
from fomkit.prediction import beside_facts, gp, monotone
from fomkit.prediction.estimators import Answers, Rows, Table, as_rows, join_answers, numbers, places_of
from fomkit.prediction.exact import between_timings, op_flags
from fomkit.prediction.families import (
    VIEWS,
    families,
    fitted,
    look_at,
    servable,
    training_key,
    training_rows,
    warm_part,
    with_tiles,
)
from fomkit.prediction.gp import Flags, Matrix, Places
from fomkit.prediction.monotone import Falls, Surroundings, never_falling, no_longer_than_parts
from fomkit.prediction.tiles import FACTS, Chip, Form, tile_seconds, tiled

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

    from fomkit.prediction.families import FamilyName

LEVELS = np.array(
    (0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.5, 0.75, 0.8, 0.85, 0.9, 0.95, 0.975, 0.99, 0.995)
)
"""Probabilities at which a fit stores the quantiles of its cross-validation errors."""
NONE = gp.NONE
OF_OTHERS = ("left_out_spread", "elsewhere", "row_noise")  # stored for fits that use other machines' tables


class Fit(NamedTuple):
    """The parameters of one family.

    `mean` (q,): coefficients of the terms, in seconds per unit of the term.
    `residual` (n,): ln(time / mean) of the training rows, in their order.
    `quantiles`: of cross-validation errors in standard deviations, at `LEVELS`.
    `errors`: ln(predicted / measured time) of the `cross_validated_rows`, predicted without their group.
    `spread`: the process's standard deviation of each of these; empty where no other machine is used.
    `elsewhere` (e, p): features of ops that only others timed; their ``residual`` follows that of the own rows.
    `row_noise` (n + e,): variance of each of all these rows; empty where it is the clock's alone.
    `form`: of many ops on a chip that states its processors (`View.waves`) its facts (`tiles.FACTS`), then for
      products the constants of the `Form` that replaces the mean (12,); else empty.
    `ops`: names and inputs of ops that have a feature of their own (`exact.often_named`).
    `weights` (n,): `gp.Precomputed.weights` of more than `gp.LIMIT` rows; empty where only near rows are used.
    """

    mean: Matrix
    hyper: gp.Hyper
    residual: Matrix
    quantiles: Matrix
    errors: Matrix
    spread: Matrix = NONE
    elsewhere: Matrix = NONE
    row_noise: Matrix = NONE
    form: Matrix = NONE
    ops: tuple[tuple[str, float], ...] = ()
    weights: Matrix = NONE


def as_fit(stored: Mapping[str, Any]) -> Fit:
    """Read a fit from the lists and numbers in which it is stored."""
    hyper = gp.Hyper(np.array(stored["length"]), float(stored["variance"]), float(stored["noise"]))
    names = ("residual", "left_out_quantiles", "left_out_log_error")
    residual, quantiles, errors = (np.array(stored[name], np.float64) for name in names)
    spread, elsewhere, noise = (np.array(stored.get(name, ()), np.float64) for name in OF_OTHERS)
    ops = tuple((str(name), float(inputs)) for name, inputs in stored.get("ops", ()))
    form, weights = (np.array(stored.get(name, ()), np.float64) for name in ("form", "weights"))
    return Fit(np.array(stored["mean"]), hyper, residual, quantiles, errors, spread, elsewhere, noise, form, ops,
               weights)  # fmt: skip


def cross_validated_rows(count: int) -> Places:
    """Return the training rows that are left out to score a fit: all up to `LIMIT`, every k-th of more."""
    return np.arange(0, count, -(-count // gp.LIMIT))


def row_noise(training: Rows) -> Matrix:
    """Return the variance of ln(time) from the clock step, uniform within one step."""
    return np.asarray((training.number("_step_s") / training.number("_time_s")) ** 2 / 12, np.float64)


class Family(NamedTuple):
    """A fit with its training rows, prepared for queries.

    `alike`: the sizes that are the same in all timed ops; `differs`: finds ops in which one of them differs.
    `describe`: writes the sizes of a timed op, by its position.
    `falls`: finds pairs of timed products of which the larger is faster.
    `rungs`: cache of predictions of products by device, excluded machines and interval, with the device itself.
    """

    fit: Fit
    training: pd.DataFrame
    rows: Rows
    fitted: gp.Precomputed
    alike: frozenset[str]
    differs: Callable[[Rows], Flags]
    describe: Callable[[int], str]
    falls: Callable[[], Falls]
    rungs: dict[tuple[Any, ...], tuple[Any, dict[tuple[Any, ...], Any]]]


def _constant_sizes(training: pd.DataFrame, kind: str) -> dict[str, float]:
    sizes = {
        name: training[name].to_numpy()
        for name in KINDS[kind].dimensions
        if name in training.columns and training[name].dtype.kind == "f"
    }
    return {name: float(known[0]) for name, known in sizes.items() if len(known) and (known == known[0]).all()}


def features_of(fit: Fit, rows: Table, kind: str, row_count: int) -> Matrix:
    """Return the features of rows for this fit of ``row_count`` training rows."""
    return _seen(fit, look_at(rows, kind, row_count), as_rows(rows), kind)


def _seen(fit: Fit, features: Matrix, rows: Rows, kind: str) -> Matrix:
    waves, more = VIEWS[kind].waves, op_flags(rows, fit.ops)
    if waves and len(fit.form):
        more.append(waves(rows, fit.form[0]))
    return np.column_stack([features, *more]) if more else features


def log_mean(fit: Fit, rows: Table, terms: Matrix) -> Matrix:
    """Return ln(time) of COSTED rows by the mean (terms or form), before the correction by the process."""
    if not len(fit.form) > FACTS:
        return np.asarray(np.log(np.einsum("ij,j->i", terms, fit.mean)), np.float64)
    chip, form = Chip(*fit.form[:FACTS].tolist()), Form(*fit.form[FACTS:].tolist())
    return np.asarray(np.log(tile_seconds(form, tiled(rows, chip), chip)), np.float64)


def ready(fit: Fit, training: pd.DataFrame, kind: str, rows: Rows | None = None) -> Family:
    """Prepare a fit for queries; ``rows``: those of ``training``, if their columns have been read."""
    rows = as_rows(training) if rows is None else rows
    known = features_of(fit, rows, kind, len(training))
    names = [name for name in ("kind", *KINDS[kind].dimensions) if name in training.columns]

    @cache
    def cells() -> dict[str, list[Any]]:
        return {name: training[name].tolist() for name in names}

    @cache
    def describe(place: int) -> str:
        return describe_sizes({name: column[place] for name, column in cells().items()})

    @cache
    def falls() -> Falls:
        return _timed_falls(rows)

    noise = row_noise(rows)
    if len(fit.row_noise):
        known = np.concatenate([known, fit.elsewhere.reshape(-1, known.shape[1])])
        noise = fit.row_noise - fit.hyper.noise
    precomputed = gp.precompute(known, fit.residual, noise, fit.hyper, fit.weights)
    alike = _constant_sizes(training, kind)
    differs = partial(_differs, alike=alike)
    return Family(fit, training, rows, precomputed, frozenset(alike), differs, describe, falls, {})


def _timed_falls(timed: Rows) -> Falls:
    """Find the pairs in which timings of products fall, along each growing side."""
    log_s = np.log(timed.number("_time_s"))
    found: list[tuple[Places, Places, Places]] = []
    for axis in map(monotone.SIDES.index, monotone.GROWING):
        along = np.full(len(timed), axis)
        line, size = monotone.lines(timed, along)[1], monotone.sizes_along(timed, along)
        order = np.lexsort((size, line))
        first, second = order[:-1], order[1:]
        falls = (line[first] == line[second]) & (size[first] < size[second]) & (log_s[second] < log_s[first])
        found.append((first[falls], second[falls], along[: int(falls.sum())]))
    first, second, axes = (np.concatenate(column) for column in zip(*found, strict=True))
    start, end = (np.log(monotone.sizes_along(timed.take(places), axes)) for places in (first, second))
    return Falls(first, second, axes, start, end, log_s[second] - log_s[first])


def correction_of(fitted: gp.Precomputed, query: gp.Queries, grid: Places = gp.NO_GRID) -> Matrix:
    """Return the mean of a process at each query, without its variance, which takes most of the time of both."""
    if not len(fitted.weights):
        return gp.posterior(fitted, query.at(np.arange(query.total))).mean
    found, rest = np.empty(query.total), np.ones(query.total, bool)
    for part in gp.line_parts(fitted, query, grid, 0):
        found[part.at], rest[part.at] = part.mean, False
    alone = query.at(np.flatnonzero(rest)) / fitted.hyper.length
    means = [gp.correlation(apart) @ fitted.weights for _, apart in gp.distance_blocks(alone, fitted.lifted)]
    found[rest] = np.concatenate([*means, gp.NONE])[: len(alone)]
    return found


def predict_log_time(family: Family, rows: Rows, kind: str) -> Matrix:
    """Predict ln(time) of rows."""
    log_s = log_mean(family.fit, rows, VIEWS[kind].terms(rows))
    log_s += correction_of(family.fitted, _queries(family, rows, kind))
    return between_timings(family.rows, family.training, rows, kind, log_s)


def _queries(family: Family, rows: Rows, kind: str) -> gp.Queries:
    """Return `features_of` rows as queries; only those of some are computed where all are on lines."""
    look = partial(features_of, family.fit, kind=kind, row_count=len(family.training))
    if VIEWS[kind].straight and rows.many >= gp.OCTAVE and not rows.varies(KINDS[kind].dimensions):
        return gp.Queries(len(rows), lambda at: look(rows.take(at)), straight=True)
    return gp.Queries.of(look(rows))


def _in_parts(
    rows: Rows, kind: str, log_s: Matrix, far: Matrix, mean: Matrix, family: Family, warm: Matrix | float
) -> tuple[Matrix, Matrix]:
    """Do `no_longer_than_parts` for rows of one fit; `mean`: their `log_mean`."""

    def means() -> tuple[Matrix, Matrix]:
        half = rows.assign(**{name: numbers(rows, name) / 2 for name in ("batch", "flop", "byte")})
        whole_s, half_s = np.exp(mean), np.exp(log_mean(family.fit, half, VIEWS[kind].terms(half)))
        return 2 * half_s - whole_s, 2 * (whole_s - half_s)

    def correct(parts: Rows, grid: Places) -> Matrix:
        return correction_of(family.fitted, _queries(family, parts, kind), grid)

    return no_longer_than_parts(rows, log_s, far, KINDS[kind].dimensions, means, correct, warm)


def ends_of(fit: Fit, spread: Matrix, interval: float) -> tuple[Matrix, Matrix]:
    """Return the distances of an interval's bounds from ln(time), below and above, for ops of this deviation.

    Beyond `DEFAULT_LEVEL` they grow as those of all ops do. The outermost quantiles of a table are one or two of
    its errors: of twenty rows the largest covers 95 % at best, and one outlier in a hundred is no tail.
    """
    level = min(interval, DEFAULT_LEVEL)
    farther = op_half_width(interval) / op_half_width(level)
    below, above = np.interp([0.5 - level / 2, 0.5 + level / 2], LEVELS, fit.quantiles).tolist()
    return min(below, 0.0) * farther * spread, max(above, 0.0) * farther * spread


def _differs(rows: Rows, alike: Mapping[str, float]) -> Flags:
    """Return which rows differ in a size that all timed ops share, such as groups: its effect is a guess."""
    found = np.zeros(len(rows), bool)
    for name, value in alike.items():
        found |= rows.number(name) != value
    return found


def _corrected(
    rows: Rows, query: gp.Queries, family: Family
) -> tuple[gp.Posterior, tuple[Places, Matrix], Matrix | None]:
    """Return the posterior of rows, their nearest own timings with distances, and `errors_nearby`."""
    fit, places = family.fit, cross_validated_rows(len(family.training))
    sizes = np.abs(fit.errors / fit.spread if len(fit.spread) else fit.errors)
    every, scored = len(places) == len(family.fitted.target), len(sizes) >= beside_facts.ENOUGH
    count, grid, parts = beside_facts.ERRORS if every and scored else 1, rows.grid() if every else gp.NO_GRID, []
    for part in gp.posterior_parts(family.fitted, query, grid, count):
        distance, near = part.nearest(count)
        to_scored, nearest = part.distance if every else part.distance[:, places], gp.nearest_of(distance, near)
        own, usual = (to_scored.argmin(1), to_scored.min(1)) if len(fit.elsewhere) else nearest, nearest[1]
        if scored and every:
            usual = beside_facts.typical_error(distance, sizes.take(near), float(sizes.mean()))
        elif scored:
            usual = beside_facts.errors_nearby(to_scored, sizes)
        parts.append((part.at, part.mean, part.variance, *nearest, *own, usual))
    *found, own_nearest, own_distance, typical = concatenate_in_order(parts)
    return gp.Posterior._make(found), (own_nearest, own_distance), typical if scored else None


def _answers(
    rows: Rows, kind: str, terms: Matrix, query: gp.Queries, family: Family, interval: float,
    warm: Matrix | float = 0.0,
) -> Answers:  # fmt: skip
    """Predict rows by a fit; ``query``: their features (`features_of`); ``warm``: `rates.warm_part`."""
    fit, count = family.fit, len(family.training)
    found, (nearest, apart), typical = _corrected(rows, query, family)
    spread, anywhere = (
        beside_facts.deviation_of(found, typical, share_of_own=bool(len(fit.spread))),
        found.distance,
    )
    mean = log_mean(fit, rows, terms)
    log_s = between_timings(family.rows, family.training, rows, kind, mean + found.mean)
    unlike = np.maximum(1 - gp.correlation(anywhere) / beside_facts.MIN_CORRELATION, 0.0)
    log_s, as_part = _in_parts(rows, kind, log_s, unlike, mean, family, warm)
    far = rows.once(family.differs, family.alike) | (gp.correlation(apart) < beside_facts.MIN_CORRELATION)
    by_other = far & (anywhere < apart) & (gp.correlation(anywhere) >= beside_facts.MIN_CORRELATION)

    def evidence(place: int) -> str:
        other = f"; another machine has a timing at distance {anywhere[place]:.2g}"
        words = f"{monotone.as_at(as_part[place])}{other if anywhere[place] < apart[place] else ''}"
        return f"nearest of {count}: {family.describe(int(nearest[place]))}, distance {apart[place]:.2g}{words}"

    low, high = ends_of(fit, spread, interval)
    source = Words(far.astype(np.intp) + by_other, ("interpolated", "extrapolated", "transferred"))
    return Answers(rows.index, np.exp([log_s, log_s + low, log_s + high]), source, "measured", evidence)


def _products(rows: Rows, family: Family, machine: Machine, interval: float) -> Answers:
    """Predict products by a fit, far from timed ones by typical values, without falls that no timing shows."""

    def mean(query: Rows) -> Matrix:
        return log_mean(family.fit, query, VIEWS["gemm"].terms(query))

    def predict(query: Rows) -> Answers:
        features = features_of(family.fit, query, "gemm", len(family.training))
        found = _answers(query, "gemm", VIEWS["gemm"].terms(query), gp.Queries.of(features), family, interval)
        found = beside_facts.with_vectors(query, features, found, family, machine, interval)
        found = beside_facts.with_facts(query, found, family, machine, interval)
        return beside_facts.with_growth(query, found, family, interval, predict, mean)

    def near(query: Rows, places: Places) -> Flags:
        scaled = look_at(query, "gemm", len(family.training)) / family.fit.hyper.length
        apart = np.sqrt(((scaled - family.fitted.scaled[places]) ** 2).sum(1))
        return np.asarray(gp.correlation(apart) >= beside_facts.MIN_CORRELATION)

    def trust(query: Rows) -> Matrix:
        hyper = family.fit.hyper
        scaled = look_at(query, "gemm", len(family.training)) / hyper.length
        near = [distance.min(1) for _, distance in gp.distance_blocks(scaled, family.fitted.lifted)]
        alike = gp.correlation(np.concatenate([*near, gp.NONE])[: len(scaled)])
        return np.asarray(1 / (1 - alike**2 + hyper.noise / hyper.variance), np.float64)

    # A large table shows what partly filled tiles cost; few of its pairs differ in one size alone.
    if len(family.training) > gp.LIMIT:
        return predict(rows)
    if len(family.rungs) > beside_facts.ERRORS:
        family.rungs.clear()
    query = (id(machine.device), machine.excluded, interval)
    _, found = family.rungs.setdefault(query, (machine.device, {}))
    return never_falling(rows, Surroundings(family.rows, family.falls(), predict, trust, near, found))


def _family(machine: Machine, name: FamilyName, stored: Mapping[str, Any]) -> Family:
    fit = as_fit(stored)
    training = training_rows(machine.timings, name)
    if stored["rows_sha256"] != training_key(training, name.kind):
        raise FomkitError(
            machine.name,
            f"its fit of {name} was made from {len(fit.residual)} ops, not from the {len(training)} ops of its "
            "timings. Fit the timings again.",
        )
    seen, lengths = features_of(fit, as_rows(training), name.kind, len(training)).shape[1], fit.hyper.length
    if seen != len(lengths):
        what = f"its fit of {name} has {len(lengths)} lengths, but an op has {seen} features. Fit them again."
        raise FomkitError(machine.name, what)
    return ready(fit, training, name.kind)


def family_of(machine: Machine, name: FamilyName) -> Family | None:
    """Return a machine's fit of a family, prepared once for all queries; None where there is no such fit."""
    stored = machine.fits.get(str(name))
    if not isinstance(stored, Mapping):
        return None
    return cached(machine.timings, stored, str(name), partial(_family, machine, name, stored))


def _served(rows: Rows, machine: Machine, interval: float) -> Iterator[Answers]:
    """Yield the predictions of each fit for its rows; features are computed once per kind."""
    of_kinds: dict[str, list[tuple[FamilyName, Places]]] = {}
    for name, at in families(rows):
        if str(name) in machine.fits:
            of_kinds.setdefault(name.kind, []).append((name, at))
    for kind, found in of_kinds.items():
        chosen = rows.take(np.concatenate([at for _, at in found]))
        view, end = VIEWS[kind], 0
        terms = view.terms(chosen)
        good = servable(chosen, kind) & np.isfinite(terms).all(1)
        lazily = kind == "gemm" or (view.straight and rows.many >= gp.OCTAVE)
        features = view.features(chosen) if good.any() and not lazily else terms
        for name, at in found:
            start, end = end, end + len(at)
            own = start + good[start:end].nonzero()[0]
            family = family_of(machine, name) if len(own) else None
            if family is None:
                continue
            own = own[fitted(chosen.take(own), family.training, kind)] if view.exact else own
            if len(own):
                served = chosen.take(own)
                if kind == "gemm":
                    yield beside_facts.with_repeats(_products(served, family, machine, interval), family, interval)
                    continue
                if lazily:
                    query = _queries(family, served, kind)
                else:
                    tiled = with_tiles(features[own], served, kind, len(family.training))
                    query = gp.Queries.of(_seen(family.fit, tiled, served, kind))
                warm = warm_part(served, machine.device)
                answers = _answers(served, kind, terms[own], query, family, interval, warm)
                yield beside_facts.with_repeats(answers, family, interval)


@cache
def _threads() -> ThreadpoolController | None:
    """Return the controller of libraries that start threads (takes milliseconds); None where there are none."""
    if all(os.environ.get(f"{library}_NUM_THREADS") == "1" for library in ("OMP", "OPENBLAS", "MKL")):
        return None
    from threadpoolctl import ThreadpoolController

    found = ThreadpoolController()
    return found if any(library["num_threads"] > 1 for library in found.info()) else None


def one_thread() -> AbstractContextManager[object]:
    """Limit libraries to one thread."""
    threads = _threads()
    limited: AbstractContextManager[object] = nullcontext() if threads is None else threads.limit(limits=1)
    return limited


def estimate(rows: Table, machine: Machine, interval: float) -> Answers:
    """Predict rows from the machine's fits, which `fomkit.prediction.calibration.fit_timings` computes.

    The time is t0 + a·flop + b·byte, fitted per family of kind, number format, engine and pass, times the
    exponential of a Gaussian process in the log sizes. Far from every timed op it approaches the calibrated
    roofline, with the full spread of the process.

    An `Estimator` for the rows of fitted families; ``time_source`` is interpolated where the correlation with the
    nearest timed op is at least `MIN_CORRELATION`, transferred where only an op of another machine is that near,
    else extrapolated. Intervals come from the errors of shape groups that were left out.
    """
    rows = as_rows(rows)
    # Matrices have a few hundred rows: on a busy machine threads wait for each other, a hundred times as long.
    with one_thread():
        found = join_answers(list(_served(rows, machine, interval)))
        times, unsure = rounded(found.times)
        if rows.many >= gp.OCTAVE and unsure.any():  # the last bits of a polynomial may round differently
            again = rows.take(places_of(found.index[unsure.any(0)], rows.index))
            few = join_answers(list(_served(again, machine, interval)))
            times[:, places_of(few.index, found.index)] = significant(few.times)
    return found.timed(times)
