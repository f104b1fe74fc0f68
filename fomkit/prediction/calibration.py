"""Fit a machine's timings: compute the parameters that `interpolate` and `rates` evaluate.

The module requires scipy and is imported on demand: predictions on a machine with shipped fits do without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs
from scipy.optimize import OptimizeResult, minimize
from threadpoolctl import threadpool_limits

from fomkit.core.errors import FomkitError
from fomkit.core.interval import DEFAULT_LEVEL
from fomkit.prediction import interpolate
from fomkit.prediction.beside_facts import ENOUGH, deviation
from fomkit.prediction.donors import PRIOR, Others, condition, shape_folds
from fomkit.prediction.estimators import Rows, as_rows
from fomkit.prediction.exact import often_named, row_major
from fomkit.prediction.families import VIEWS, FamilyName, families, look_at, training_key, training_rows
from fomkit.prediction.gp import LIMIT, WHOLE, Hyper, Indices, Matrix, Places, correlation, distances, posterior
from fomkit.prediction.interpolate import Fit
from fomkit.prediction.tiles import FACTS, Chip, fit_form, tiled

FEWEST = 8
"""Distinct ops from which a family is fitted; fewer cannot separate a fixed cost, two rates and a spread."""

FOLDS = 10
"""Most rounds of cross-validation."""

LENGTH_WIDTH = 0.5
"""Standard deviation of the logarithm of a machine's lengths around those of the process of all machines."""

HUBER = 0.3
"""Log error beyond which a row pulls the calibrated roofline with constant force."""

FORM_ROWS = 2000
"""Most products to which a form's eight constants are fitted: of more, every k-th."""


class CrossValidation(NamedTuple):
    """Rows predicted without their shape group.

    `log_error` (n,): ln(predicted time / measured time).
    `spread` (n,): standard deviation of ln(time) by `deviation`, from the errors of the other rounds.
    `fold` (n,): round in which the row was left out.
    `fits`: by round, the fit of all other rows.
    `own` (n,): the process's own standard deviation.
    """

    log_error: Matrix
    spread: Matrix
    fold: Indices
    fits: Mapping[int, Fit]
    own: Matrix


def fit_mean(terms: Matrix, seconds: Matrix, usual: Matrix | None = None) -> Matrix:
    """Fit non-negative coefficients of the terms to times, by their log errors and robust to outliers.

    Each coefficient has a weak log-normal prior: the cost of a start at a tenth of the median time per start,
    every other term at the best rate in the table. It only determines coefficients that the table leaves open. A
    term that is 0 in every row gets 0. Coefficients ``usual`` (q,) of other machines replace this prior.

    `terms` (n, q); `seconds` (n,). Returns an array (q,): in seconds per unit of the term.
    """
    met = np.asarray((terms > 0).any(0), np.bool_)
    every, terms = np.zeros(terms.shape[1]), terms[:, met]
    logs = np.log(seconds)
    share = np.where(terms > 0, seconds[:, None] / np.where(terms > 0, terms, 1.0), np.inf)
    start = np.log(share.min(0))
    start[0] = np.log(0.1 * np.median(seconds / terms[:, 0]))
    weight = 0.001
    if usual is not None:
        start, weight = np.log(usual[met]), PRIOR

    def loss(logged: Matrix) -> tuple[float, Matrix]:
        parts = terms * np.exp(logged)
        total = parts.sum(1)
        error = np.log(total) - logs
        size = np.abs(error)
        value = np.where(size < HUBER, error**2 / 2, HUBER * (size - HUBER / 2)).sum()
        slope = np.clip(error, -HUBER, HUBER)
        prior = logged - start
        return float(value + weight * prior @ prior), (parts / total[:, None]).T @ slope + 2 * weight * prior

    found = minimize(loss, start, jac=True, method="L-BFGS-B")
    every[met] = np.exp(found.x)
    return every


def _likelihood(
    features: Matrix, target: Matrix, noise: Matrix, hyper: Hyper, memory: Matrix | None = None
) -> tuple[float, Matrix]:
    """Return −ln p(target) and its gradient by the logarithms of lengths, variance and noise.

    `memory` (4, n, n): work arrays. Each search evaluates this some hundred times, and new pages take as long to
    come from the system as their contents take to compute.
    """
    scaled, count = features / hyper.length, len(target)
    squares, diagonal = (scaled * scaled).sum(1), np.arange(count)
    distance, decay, smooth, covariance = np.empty((4, count, count)) if memory is None else memory
    np.matmul(-2 * scaled, scaled.T, out=distance)
    distance += squares[:, None]
    distance += squares
    np.sqrt(np.multiply(np.maximum(distance, 0.0, out=distance), 3, out=distance), out=distance)
    np.exp(np.negative(distance, out=decay), out=decay)
    decay *= hyper.variance
    np.multiply(decay, np.add(distance, 1, out=distance), out=smooth)  # times variance; the gradient needs parts
    covariance[:] = smooth
    covariance[diagonal, diagonal] += hyper.noise + noise
    upper, failed = dpotrf(covariance.T, overwrite_a=True)
    if failed:
        raise np.linalg.LinAlgError("the covariance of the rows is not positive definite")
    log_root = np.log(upper[diagonal, diagonal]).sum()
    weights, _ = dpotrs(upper, target)
    half, _ = dpotri(upper, overwrite_c=True)  # one triangle of the inverse; the rest is 0
    half[diagonal, diagonal] *= 0.5
    half = half.T  # `half` plus its transpose is the inverse
    # Each derivative is half the sum of the kernel's times (inverse − weights·weightsᵀ), a matrix never built.
    by_noise = hyper.noise * (np.trace(half) - 0.5 * weights @ weights)
    by_variance = np.vdot(half, smooth) - 0.5 * weights @ (smooth @ weights)
    # The derivative of the Matérn-3/2 kernel by ln(length) is 3·variance·exp(−√3·d)·(difference / length)².
    half *= decay
    points = np.column_stack([np.ones(count), scaled])
    pulled = half @ points + half.T @ points - weights[:, None] * (decay @ (weights[:, None] * points))
    by_length = 3 * (scaled * (scaled * pulled[:, :1] - pulled[:, 1:])).sum(0)
    return float(0.5 * target @ weights + log_root), np.array([*by_length, by_variance, by_noise])


STUCK = 1.0
"""Loss [ln] above that of a process for nearly the same rows from which the search is repeated there."""


def fit_hyper(
    features: Matrix, target: Matrix, noise: Matrix, usual: Matrix | None = None, beside: Sequence[Hyper] = ()
) -> Hyper:
    """Find the most probable lengths, variance and noise of a Gaussian process.

    A search may end where everything is explained as noise. So if the likeliest of the processes ``beside``, of
    nearly the same rows, is likelier than the result, the search is repeated from there.

    Priors are log-normal: lengths around twice the root of the number of features that vary (factor e), variance
    around that of the target (factor e^√2), noise around a hundredth of the target's variance (factor e²).
    """
    count = features.shape[1]
    spread = float(target.std()) + 1e-3
    varying = max(int((np.ptp(features, axis=0) > 0).sum()), 1)
    lengths = np.full(count, np.log(2 * np.sqrt(varying))) if usual is None else np.log(usual)
    start = np.array([*lengths, 2 * np.log(spread), 2 * np.log(0.1 * spread)])
    width = np.array([1.0 if usual is None else LENGTH_WIDTH] * count + [np.sqrt(2.0), 2.0])
    bounds = [(-2.5, 5.0)] * count + [(-8.0, 3.0), (np.log(1e-5), 1.0)]
    memory = np.empty((4, len(target), len(target)))

    def loss(logged: Matrix) -> tuple[float, Matrix]:
        values = np.exp(logged)
        hyper = Hyper(values[:count], float(values[count]), float(values[-1]))
        value, slope = _likelihood(features, target, noise, hyper, memory)
        prior = (logged - start) / width
        return value + 0.5 * prior @ prior, slope + prior / width

    def search(logged: Matrix) -> OptimizeResult:
        inside = np.clip(logged, *np.array(bounds).T)
        return minimize(loss, inside, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 60})

    found = search(start)
    # A round without one of the named ops (`often_named`) has fewer features.
    tried = [np.log([*one.length, one.variance, one.noise]) for one in beside if len(one.length) == count]
    values_beside = [loss(logged)[0] for logged in tried]
    if tried and min(values_beside) < found.fun - STUCK:
        found = search(tried[int(np.argmin(values_beside))])
    values = np.exp(found.x)
    return Hyper(values[:count], float(values[count]), float(values[-1]))


REWEIGHED = 5
"""Rounds in which rows are weighted by their errors; more change the error of left-out rows by 0.02 points."""

ODD, ROUNDS = 2.5, 3
"""Residual in standard deviations beyond which a timing is an outlier of its family, and rounds of this test."""


def _oddity(features: Matrix, target: Matrix, noise: Matrix, hyper: Hyper) -> Matrix:
    """Return the extra variance that puts each outlier `ODD` deviations from the prediction of all others (n).

    Libraries run single shapes up to five times as long as neighbouring ones; such shapes do not predict others.
    """
    shared, odd = hyper.variance * correlation(distances(features, features, hyper.length)), np.zeros(len(target))
    for _ in range(ROUNDS):
        inverse = np.linalg.inv(shared + np.diag(hyper.noise + noise + odd))
        left = 1 / np.diag(inverse)
        odd = np.maximum((inverse @ target * left / ODD) ** 2 - (left - odd), 0.0)
    return np.asarray(odd, np.float64)


def _weights_in_mean(features: Matrix, target: Matrix, noise: Matrix, hyper: Hyper, rounds: int) -> Matrix:
    """Return each row's weight in the mean over all (`Fit.weights`); none unless `LIMIT` < rows ≤ `WHOLE`.

    `rounds`: from the second on, errors have Student's distribution with one degree of freedom, so that a row for
    which a library chose a slow kernel hardly counts for others (docs/adr/0076).
    """
    if not LIMIT < len(target) <= WHOLE:
        return interpolate.NONE
    shared = hyper.variance * correlation(distances(features, features, hyper.length))
    weights = usual = each = hyper.noise + noise
    covariance = np.empty_like(shared, order="F")  # as the library wants it, which would copy it otherwise
    for _ in range(rounds):
        covariance[:] = shared
        covariance.flat[:: len(target) + 1] += each
        weights = cho_solve(cho_factor(covariance, overwrite_a=True), target)
        each = (usual + (each * weights) ** 2) / 2  # each row's error is its variance times its weight
    return _in_seven_digits(hyper.variance * weights)


def _no_errors(rows: Rows) -> tuple[Matrix, Matrix]:
    """Return the quantiles and errors of a fit before cross-validation: zeros."""
    return np.zeros(len(interpolate.LEVELS)), np.zeros(len(interpolate.cross_validated_rows(len(rows))))


def _fit_beside(rows: Rows, kind: str, others: Others, left_out: int = -1) -> Fit:
    """Fit the rows of a family with the process of other machines, for one round; -1: for all rows."""
    seconds, terms, process = rows.number("_time_s"), VIEWS[kind].terms(rows), others.processes[left_out]
    mean = fit_mean(terms, seconds, None if others.unit is None else process.usual * others.unit)
    target, noise = np.log(seconds / (terms @ mean)), interpolate.row_noise(rows)
    features = look_at(rows, kind, len(rows))
    if len(rows) >= ENOUGH:
        length = fit_hyper(features, target - np.median(target), noise, process.length).length
        others = others.with_length(left_out, length)
    found = condition(others, left_out, others.fold == left_out, features, target, noise)
    return Fit(mean * np.exp(found.offset), found.hyper, found.target, *_no_errors(rows), np.empty(0),
               found.elsewhere, found.noise)  # fmt: skip


def _fit_alone(rows: Rows, kind: str, chip: Chip | None, beside: Sequence[Hyper] = ()) -> Fit:
    """Fit the rows of a family by themselves; `beside`: processes of nearly the same rows."""
    view = VIEWS[kind]
    seconds, terms = rows.number("_time_s"), view.terms(rows)
    fit = Fit(fit_mean(terms, seconds), Hyper(np.empty(0), 0.0, 0.0), np.empty(0), *_no_errors(rows),
              ops=often_named(rows, FEWEST) if view.any_op else ())  # fmt: skip
    if chip is not None and len(rows) > LIMIT and view.waves is not None:
        some = np.arange(0, len(rows), -(-len(rows) // FORM_ROWS))
        form = fit_form(tiled(rows.take(some), chip), chip, seconds[some]) if view.tiles else ()
        fit = fit._replace(form=np.array([*chip[:FACTS], *form]))
    residual = np.log(seconds) - interpolate.log_mean(fit, rows, terms)
    # Above the limit every k-th row: lengths need no more.
    part = np.arange(0, len(rows), -(-len(rows) // LIMIT))
    features, noise = interpolate.features_of(fit, rows, kind, len(rows)), interpolate.row_noise(rows)
    searched = [[*one.length, one.variance, one.noise] for one in beside if len(one.length) == features.shape[1]]
    if searched and len(rows) > LIMIT:  # a few slow rows make a search take jumps for noise; rounds search others
        *lengths, variance, own = _in_seven_digits(np.median(searched, 0)).tolist()
        hyper = Hyper(np.array(lengths), variance, own)
    else:
        hyper = fit_hyper(features[part], residual[part], noise[part], beside=beside)
    # An outlier among products in tiles is one for products of similar sizes too, so these keep their weight.
    if view.waves is None and len(rows) <= LIMIT and (odd := _oddity(features, residual, noise, hyper)).any():
        hyper = fit_hyper(features, residual, noise + odd, beside=beside)
        return fit._replace(hyper=hyper, residual=residual, row_noise=hyper.noise + noise + odd)
    # Slow convolutions are of a few sizes that take long on other rows too, so there all rows count.
    weights = _weights_in_mean(features, residual, noise, hyper, REWEIGHED if view.waves or not view.tiles else 1)
    return fit._replace(hyper=hyper, residual=residual, weights=weights)


def predict_folds(
    rows: pd.DataFrame, kind: str, fold: Indices, query: Places, others: Others | None = None,
    chip: Chip | None = None, known_fits: Mapping[int, Fit] = MappingProxyType({}),
) -> CrossValidation:  # fmt: skip
    """Predict some rows from rows of other folds only, with all parameters fitted without their own.

    `rows`: training rows with their costs; `fold` (n,): round in which a row is left out; `query` (m,): positions
    of the rows to predict; `others`: other machines' timings, from which the same ops are left out; `chip`: for
    products in tiles; `known_fits`: by round, fits to use.
    """
    rounds, whole = fold[query], as_rows(rows)  # the columns of `whole` are read once for all rounds
    tried = whole.take(query)
    log_s, apart = np.empty(len(query)), np.empty((len(query), len(query)))
    parts, fits = [], {}
    for number in np.unique(rounds).tolist():
        out = rounds == number
        known = whole.take(fold != number)
        fit = known_fits.get(number) or (
            _fit_alone(known, kind, chip) if others is None else _fit_beside(known, kind, others, number)
        )
        fits[number] = fit
        family = interpolate.ready(fit, rows[fold != number].reset_index(drop=True), kind, known)
        log_s[out] = interpolate.predict_log_time(family, tried.take(out), kind)
        features = interpolate.features_of(fit, tried, kind, len(known))
        apart[out] = distances(features[out], features, fit.hyper.length)
        parts.append((out, posterior(family.fitted, features[out])))
    # Errors of the same round do not count: they are of the same shape group, and a query is of another.
    apart[rounds[:, None] == rounds[None, :]] = np.inf
    log_error = log_s - np.log(tried.number("_time_s"))
    spread, own = np.empty((2, len(query)))
    for out, correction in parts:
        own[out] = np.sqrt(correction.variance * np.maximum(correction.distance, 1.0))
    for out, correction in parts:
        near = (log_error, own) if others is not None else (log_error,)
        spread[out] = deviation(correction, apart[out], *near)
    return CrossValidation(log_error, spread, rounds, fits, own)


def cross_validate(
    rows: pd.DataFrame, kind: str, folds: int = FOLDS, others: Others | None = None, chip: Chip | None = None
) -> CrossValidation:
    """Predict the `cross_validated_rows` of a family, each without its shape group, in at most ``folds`` rounds.

    For tables with row weights the mean uses all rows if that errs less than the nearest rows alone: far rows show
    the trend, but some are of other kernels. The other rounds choose between both, so that no error affects its
    own choice; ``fits`` are those that all rounds choose.
    """
    fold, query = shape_folds(rows, kind, folds, others), interpolate.cross_validated_rows(len(rows))
    found = predict_folds(rows, kind, fold, query, others, chip)
    if not LIMIT < len(rows) <= WHOLE:
        return found
    near = {number: fit._replace(weights=interpolate.NONE) for number, fit in found.fits.items()}
    both = found, predict_folds(rows, kind, fold, query, others, chip, near)
    wrong = np.abs([one.log_error for one in both])
    better = np.array([np.median(wrong[:, found.fold != number], 1).argmin() for number in found.fold])
    chosen = (np.choose(better, [getattr(one, name) for one in both]) for name in ("log_error", "spread", "own"))
    log_error, spread, own = chosen
    return CrossValidation(log_error, spread, found.fold, both[int(np.median(wrong, 1).argmin())].fits, own)


def _quantiles(errors: Matrix) -> Matrix:
    """Return the quantiles of standardised errors at `LEVELS`, widened by (n + 1) / n for the finite sample."""
    outward = np.clip(0.5 + (interpolate.LEVELS - 0.5) * (len(errors) + 1) / len(errors), 0, 1)
    return np.asarray(np.quantile(errors, outward), np.float64)


def hit_rate(found: CrossValidation, interval: float = DEFAULT_LEVEL) -> float:
    """Return the share of rows whose time is in the interval that the errors of the other rounds alone predict."""
    errors = -found.log_error / found.spread
    hits = np.empty(len(errors), bool)
    for number in np.unique(found.fold):
        out = found.fold == number
        quantiles = _quantiles(errors[~out])
        below, above = np.interp([0.5 - interval / 2, 0.5 + interval / 2], interpolate.LEVELS, quantiles).tolist()
        hits[out] = (min(below, 0.0) <= errors[out]) & (errors[out] <= max(above, 0.0))
    return float(hits.mean())


def _in_seven_digits(values: Matrix) -> Matrix:
    """Round to the seven digits that files keep, so that tables of thousands of rows stay small."""
    return np.array([float(f"{one:.7g}") for one in values.ravel().tolist()]).reshape(values.shape)


def written(fit: Fit, rows: pd.DataFrame, kind: str) -> dict[str, object]:
    """Return a fit of one family as it is stored with its table."""
    columns = (fit.spread, fit.elsewhere, fit.row_noise)
    shared = {
        name: _in_seven_digits(column).tolist()
        for name, column in zip(interpolate.OF_OTHERS, columns, strict=True)
    }
    return {
        "rows_sha256": training_key(rows, kind),
        "mean": fit.mean.tolist(),
        "length": fit.hyper.length.tolist(),
        "variance": fit.hyper.variance,
        "noise": fit.hyper.noise,
        "residual": _in_seven_digits(fit.residual).tolist(),
        "left_out_quantiles": fit.quantiles.tolist(),
        "left_out_log_error": fit.errors.tolist(),
        **({} if not len(fit.row_noise) else shared),
        **({} if not len(fit.form) else {"form": fit.form.tolist()}),
        **({} if not fit.ops else {"ops": [list(one) for one in fit.ops]}),
        **({} if not len(fit.weights) else {"weights": fit.weights.tolist()}),
    }


def _fit_family(rows: pd.DataFrame, kind: str, others: Others | None, chip: Chip | None) -> dict[str, Any]:
    # A large table shows how sizes fill tiles, which the small ones of other machines do not.
    others = others if others and len(rows) <= LIMIT and others.tell_more(look_at(rows, kind, 1)) else None
    found = cross_validate(rows, kind, others=others, chip=chip)
    errors, spread = found.log_error.round(6), found.own if others else interpolate.NONE
    whole, hypers = as_rows(rows), [one.hyper for one in found.fits.values()]
    fit = _fit_alone(whole, kind, chip, hypers) if others is None else _fit_beside(whole, kind, others)
    if not any(len(one.weights) for one in found.fits.values()):
        fit = fit._replace(weights=interpolate.NONE)
    fit = fit._replace(quantiles=_quantiles(-found.log_error / found.spread), errors=errors, spread=spread)
    wrong = np.abs(np.exp(found.log_error) - 1)
    return {
        **written(fit, rows, kind),
        "left_out_hit_rate": hit_rate(found),
        "left_out_median_error": float(np.median(wrong)),
        "left_out_mean_error": float(wrong.mean()),
    }


def _rates(tables: Mapping[FamilyName, pd.DataFrame]) -> dict[str, Any]:
    """Return the best rates that any op sustained: flop/s per number format and engine, and byte/s.

    Only products count if there are any: convolutions exceed their arithmetic by fast algorithms.
    """
    kinds = ("gemm",) if any(name.kind == "gemm" for name in tables) else ("conv",)
    flop_per_s, byte_per_s = dict[str, float](), list[float]()
    for name, rows in tables.items():
        if name.kind in kinds:
            key, flop = f"{name.dtype}/{name.engine}", float((rows["flop"] / rows["_time_s"]).max())
            flop_per_s[key] = max(flop, flop_per_s.get(key, flop))
            byte_per_s.append(float((rows["byte"] / rows["_time_s"]).max()))
    return {"flop_per_s": flop_per_s, "byte_per_s": max(byte_per_s, default=None)}


def fit_timings(
    timings: pd.DataFrame, others: Mapping[str, Others] | None = None, chips: Mapping[str, Chip] | None = None,
    known: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:  # fmt: skip
    """Fit every family of a timing table that has enough rows.

    `timings`: a TIMINGS table with the columns flop and byte that the costs stage adds; `others`: by family, the
    timings of other machines; `chips`: by number format and engine, for products in tiles (`tiles.chips_of`);
    `known`: earlier fits with the same ``others`` and ``chips``, reused where the rows are the same. Returns
    parameters by family name, and ``rates``, as plain lists and numbers for JSON. The same input always returns
    the same fits. Raises FomkitError if flop or byte is missing.
    """
    if not {"flop", "byte"} <= set(timings.columns):
        raise FomkitError("fit_timings", "the timings have no columns flop and byte. Call add_costs first.")
    timings = row_major(timings)
    tables: dict[FamilyName, pd.DataFrame] = {}
    for name, _ in families(timings):
        rows = training_rows(timings, name)
        if len(rows) >= FEWEST and np.isfinite(VIEWS[name.kind].terms(as_rows(rows))).all():
            tables[name] = rows
    # Matrices have a few hundred rows: threads of the linear algebra would wait for each other, 15 times as long.
    with threadpool_limits(limits=1):
        fits: dict[str, Any] = {
            str(name): known[str(name)]
            if known.get(str(name), {}).get("rows_sha256") == training_key(rows, name.kind)
            else _fit_family(
                rows, name.kind, (others or {}).get(str(name)), (chips or {}).get(f"{name.dtype}/{name.engine}")
            )
            for name, rows in tables.items()
        }
    return {**fits, "rates": _rates(tables)} if tables else {}
