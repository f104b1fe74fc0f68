"""Rows of a machine's table predicted from rows of other groups only, everything fitted anew without them.

Two ways: `crossed` fits once per fold and takes each row's interval from the errors of the other folds, as
`fomkit.predict.fit` does when it judges itself; `nested` lets the product fit and judge the other folds alone, and
asks it for the row like a user would. The second is what a user gets, and takes eleven times as long. Values are
the same; the errors that make an interval are of fits that had seen the row in the quick way, and not in the slow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from threadpoolctl import threadpool_limits

from fomkit.predict import interpolate
from fomkit.predict.fit import fit_timings, leave_out
from fomkit.spans import DEFAULT_LEVEL
from fomkit.validate.scores import Cases, make_cases

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from fomkit.hardware import Machine


def _parts(fold: NDArray[np.int64]) -> Iterator[NDArray[np.bool_]]:
    for number in np.unique(fold):
        yield fold == number


def crossed(rows: pd.DataFrame, kind: str, fold: NDArray[np.int64], level: float = DEFAULT_LEVEL) -> Cases:
    """Predict each row from the other folds, with an interval from the errors that the other folds had.

    Parameters
    ----------
    rows : DataFrame
        Training rows of one family with their costs, numbered from 0.
    kind : str
    fold : array (n,)
    level : float
    """
    truth = rows["_time_s"].to_numpy(np.float64)
    with threadpool_limits(limits=1):
        found = leave_out(rows, kind, fold, np.arange(len(rows)))
    log_s, spread = found.log_error + np.log(truth), found.spread
    errors = -found.log_error / spread
    ends = np.empty((2, len(rows)))
    for out in _parts(fold):
        # The quantiles of n errors lie inside those of all: n + 1 instead of n, as in fomkit.predict.fit.
        outward = 0.5 + np.array([-level, level]) / 2 * (1 + 1 / (~out).sum())
        ends[:, out] = np.quantile(errors[~out], np.clip(outward, 0, 1))[:, None]
    low, high = np.minimum(ends[0], 0.0) * spread, np.maximum(ends[1], 0.0) * spread
    return make_cases(truth, np.exp(log_s), np.exp(log_s + low), np.exp(log_s + high), fold=fold)


def ask(known: pd.DataFrame, asked: pd.DataFrame, machine: Machine, level: float = DEFAULT_LEVEL) -> Cases:
    """Fit some rows as the product does, and ask it for others.

    Parameters
    ----------
    known, asked : DataFrame
        Training rows of one family with their costs.
    machine : Machine
        Whose facts hold.
    level : float
    """
    knowing = replace(machine, timings=known.reset_index(drop=True), fits=fit_timings(known))
    rows = asked.reset_index(drop=True)
    times = interpolate.estimate(rows, knowing, level)
    found = [times[index] for index in range(len(rows))]
    names = ("time_s", "low_s", "high_s")
    ends = (np.array([getattr(one, name) for one in found]) for name in names)
    return make_cases(rows["_time_s"].to_numpy(np.float64), *ends)


def nested(rows: pd.DataFrame, fold: NDArray[np.int64], machine: Machine, level: float = DEFAULT_LEVEL) -> Cases:
    """Predict each row as the product would that knows the other folds only."""
    truth = rows["_time_s"].to_numpy(np.float64)
    filled = make_cases(truth, *np.full((3, len(rows)), np.nan), fold=fold)
    for out in _parts(fold):
        found = ask(rows[~out], rows[out], machine, level)
        for name in ("value", "low", "high"):
            getattr(filled, name)[out] = getattr(found, name)
    return filled
