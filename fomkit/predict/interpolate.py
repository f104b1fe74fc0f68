"""Estimator: a calibrated roofline, corrected by what similar ops of the machine's table did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fomkit.errors import FomkitError
from fomkit.hardware import Machine
from fomkit.predict.estimates import Timed, describe_sizes, records
from fomkit.predict.families import VIEWS, FamilyName, families, learnt, look_at, servable, training_rows
from fomkit.predict.gaussian import LIMIT, Hyper, Posterior, correlation, distances, posterior
from fomkit.schema import KIND_DIMENSIONS

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]

LEVELS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.5, 0.75, 0.8, 0.85, 0.9, 0.95, 0.975, 0.99, 0.995)
"""Probabilities at which a fit stores the quantiles of its left-out errors."""

ERRORS = 8
"""Left-out errors from which the spread of a prediction is taken: those of the nearest judged ops."""

ENOUGH = 5 * ERRORS
"""Judged ops from which eight are a neighbourhood."""

NEAR = 0.5
"""Correlation with the nearest timed op from which a prediction counts as interpolated, not extrapolated."""


class Fit(NamedTuple):
    """The parameters of one family.

    Attributes
    ----------
    mean : array (q,)
        Coefficients of the terms, in seconds per unit of the term.
    hyper : Hyper
    residual : array (n,)
        ln(time / mean) of the training rows, in their order.
    quantiles : array
        Of left-out errors in standard deviations, at `LEVELS`.
    errors : array
        ln(predicted / measured time) of the training rows that `judged` names, predicted without their group.
    """

    mean: Matrix
    hyper: Hyper
    residual: Matrix
    quantiles: Matrix
    errors: Matrix


def as_fit(stored: Mapping[str, Any]) -> Fit:
    """Read a fit from the lists and numbers in which it is stored."""
    hyper = Hyper(np.array(stored["length"]), float(stored["variance"]), float(stored["noise"]))
    names = ("residual", "left_out_quantiles", "left_out_log_error")
    residual, quantiles, errors = (np.array(stored[name], np.float64) for name in names)
    return Fit(np.array(stored["mean"]), hyper, residual, quantiles, errors)


def judged(count: int) -> NDArray[np.intp]:
    """Name the training rows that are left out to judge a fit: all up to `LIMIT`, an even part of more."""
    return np.arange(0, count, -(-count // LIMIT))


def row_noise(training: pd.DataFrame) -> Matrix:
    """Variance of ln(time) from the step of the clock, uniform within one step."""
    return np.asarray((training["_step_s"] / training["_time_s"]) ** 2 / 12, np.float64)


def believe(fit: Fit, training: pd.DataFrame, rows: pd.DataFrame, kind: str) -> tuple[Matrix, Posterior]:
    """Predict ln(time) of rows, and give the correction that is part of it with its variance."""
    view = VIEWS[kind]
    known, asked = (look_at(table, kind, len(training)) for table in (training, rows))
    correction = posterior(known, fit.residual, row_noise(training), asked, fit.hyper)
    return np.log(view.terms(rows) @ fit.mean) + correction.mean, correction


def _apart(fit: Fit, training: pd.DataFrame, rows: pd.DataFrame, kind: str) -> Matrix:
    """Distances in lengths from rows to the judged rows of the table."""
    tables = (rows, training.iloc[judged(len(training))])
    asked, known = (look_at(table, kind, len(training)) for table in tables)
    return distances(asked, known, fit.hyper.length)


def errors_nearby(distance: Matrix, errors: Matrix) -> Matrix:
    """Give the typical size of the left-out errors near each query, the nearest weighing most.

    A tenth of the mean error of all is added: eight small errors may be chance.

    Parameters
    ----------
    distance : array (q, n)
        From queries to judged ops in lengths; infinite where an op must not speak for a query.
    errors : array (n,)
    """
    near = np.argsort(distance, 1, kind="stable")[:, :ERRORS]
    # A distance below a tenth of a length says no more: both ops are nearly the same.
    weight = (np.take_along_axis(distance, near, 1) + 0.1) ** -3.0
    typical = (weight * np.abs(errors[near])).sum(1) / weight.sum(1)
    return np.asarray(typical + 0.1 * np.abs(errors).mean() + 1e-6)


def deviation(correction: Posterior, apart: Matrix, errors: Matrix) -> Matrix:
    """Give the standard deviation of ln(time), up to the factors that `Fit.quantiles` hold.

    A geometric mean of the process's own deviation and, with two thirds, of `errors_nearby`: the process thinks
    every region as rough as all of the table, the errors know better. Beyond one length from the nearest timed op
    they count for less with the distance, and the process's variance grows with it, as a random walk's does,
    because nothing in the table says how the machine behaves out there.

    Parameters
    ----------
    correction : Posterior
        Of q queries.
    apart : array (q, n)
        Distances in lengths from the queries to the judged ops.
    errors : array (n,)
        Left-out errors of the judged ops; of fewer than `ENOUGH` nothing is told by place.
    """
    beyond = np.maximum(correction.distance, 1.0)
    own = np.sqrt(correction.variance * beyond)
    if len(errors) < ENOUGH:
        return np.asarray(own)
    share = 2 / 3 / beyond
    return np.asarray(errors_nearby(apart, errors) ** share * own ** (1 - share))


def _strange(rows: pd.DataFrame, training: pd.DataFrame, kind: str) -> NDArray[np.bool_]:
    """Tell which rows differ in a size that all timed ops share, such as groups: its effect is a guess."""
    found = np.zeros(len(rows), bool)
    for name in KIND_DIMENSIONS[kind]:
        if name in training.columns and training[name].dtype.kind == "f":
            known = training[name].to_numpy()
            if (known == known[0]).all():
                found |= rows[name].to_numpy(np.float64) != known[0]
    return found


def _answers(rows: pd.DataFrame, fit: Fit, training: pd.DataFrame, interval: float) -> Iterator[tuple[int, Timed]]:
    kind = str(rows["kind"].iloc[0])
    log_s, correction = believe(fit, training, rows, kind)
    spread = deviation(correction, _apart(fit, training, rows, kind), fit.errors)
    below, above = np.interp([0.5 - interval / 2, 0.5 + interval / 2], LEVELS, fit.quantiles).tolist()
    sizes = [name for name in ("kind", *KIND_DIMENSIONS[kind]) if name in training.columns]
    nearest = dict(records(training[sizes].iloc[np.unique(correction.nearest)]))
    strange = _strange(rows, training, kind)
    for at, index in enumerate(rows.index.tolist()):
        distance = float(correction.distance[at])
        yield (
            index,
            Timed(
                time_s=float(np.exp(log_s[at])),
                low_s=float(np.exp(log_s[at] + min(below, 0.0) * spread[at])),
                high_s=float(np.exp(log_s[at] + max(above, 0.0) * spread[at])),
                time_source="extrapolated" if strange[at] or correlation(distance) < NEAR else "interpolated",
                bound="measured",
                evidence=f"nearest of {len(training)}: {describe_sizes(nearest[int(correction.nearest[at])])}, "
                f"distance {distance:.2g}",
            ),
        )


def _training(machine: Machine, name: FamilyName, fit: Fit) -> pd.DataFrame:
    training = training_rows(machine.timings, name)
    if len(training) != len(fit.residual):
        raise FomkitError(
            machine.name,
            f"its fit of {name} is of {len(fit.residual)} ops, the timings have {len(training)}. Fit them anew.",
        )
    return training


def _served(rows: pd.DataFrame, machine: Machine) -> Iterator[tuple[pd.DataFrame, Fit, pd.DataFrame]]:
    """Give the rows that each fit may serve, the fit, and what it learnt from."""
    for name, at in families(rows):
        stored = machine.fits.get(str(name))
        chosen = rows.iloc[at]
        priced = np.isfinite(VIEWS[name.kind].terms(chosen)).all(1)
        chosen = chosen[servable(chosen, name.kind) & priced]
        if isinstance(stored, Mapping) and len(chosen):
            fit = as_fit(stored)
            training = _training(machine, name, fit)
            chosen = chosen[learnt(chosen, training, name.kind)]
            if len(chosen):
                yield chosen, fit, training


def estimate(rows: pd.DataFrame, machine: Machine, interval: float) -> dict[int, Timed]:
    """Predict rows from the machine's fits, which `fomkit.predict.fit.fit_timings` makes.

    The time is t0 + a·flop + b·byte, fitted per family of kind, number format, engine and pass, times the
    exponential of a Gaussian process in the log sizes. Far from every timed op the process falls back to the
    calibrated roofline with its full spread.

    Parameters
    ----------
    rows : DataFrame
        COSTED rows.
    machine : Machine
        Without fits, or with none for a row's family, the row stays unknown.
    interval : float
        Share of intervals that should contain the truth; the quantiles were taken over left-out shape groups.

    Returns
    -------
    dict
        The rows of fitted families; ``time_source`` is interpolated where the nearest timed op correlates by
        `NEAR` or more, else extrapolated.

    Raises
    ------
    FomkitError
        When the fits do not belong to the timings.
    """
    from threadpoolctl import threadpool_limits

    times: dict[int, Timed] = {}
    # Matrices of a few hundred rows: on a busy machine threads wait for each other a hundred times as long.
    with threadpool_limits(limits=1):
        for chosen, fit, training in _served(rows, machine):
            times.update(_answers(chosen, fit, training, interval))
    return times
