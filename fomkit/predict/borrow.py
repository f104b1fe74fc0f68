"""Estimator: the machine's table has a few ops of the kind, and other machines have timed many.

Libraries of one maker choose their algorithms by the same shapes, so the ratio of two machines' times is smoother
than either. With 20 rows of a DeepBench sheet known, convolutions of the forward pass are off by 8 % in the middle
instead of 14.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fomkit.hardware import Machine
from fomkit.predict import interpolate
from fomkit.predict.estimates import Timed
from fomkit.predict.families import FamilyName, families, look_at, servable, training_rows
from fomkit.predict.gaussian import Hyper, correlation, distances, posterior

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]

KINDS = ("conv",)
"""Kinds of which few rows are told by other machines; DeepBench's products are predicted as well by themselves."""
FEWEST, MOST = 8, 40
"""Timed ops from which other machines can be compared with this one, and beyond which it needs none of them."""
STEADY = 0.35
"""Standard deviation of ln(ratio) from which others' tables tell nothing: DeepBench's devices of one maker follow
each other within 0.05 to 0.3, its processor follows none of them (0.25 to 0.7) and is better told by itself."""
POWER = 4.0
"""How fast a lender's share falls with the variance of ln(this machine's time / its own)."""
NOISE = 0.1
"""Share of the ratio's variance that no size explains."""


class _Lender(NamedTuple):
    """A machine, its fit of the family that serves, and what that learnt from."""

    machine: str
    fit: interpolate.Fit
    training: pd.DataFrame


def _lenders(machine: Machine, name: FamilyName) -> list[_Lender]:
    """Find tables of the same number format, engine and pass that have more than a few ops."""
    found = []
    for lender in machine.lenders:
        stored = lender.fits.get(str(name))
        if isinstance(stored, Mapping):
            training = training_rows(lender.timings, name)
            if len(training) > MOST:
                found.append(_Lender(lender.name, interpolate.as_fit(stored), training))
    return found


def _variance(log_ratio: Matrix) -> Matrix:
    """Give the variance around the median along the last axis; one odd op counts as a factor of e at most."""
    apart = np.abs(log_ratio - np.median(log_ratio, -1, keepdims=True))
    return np.asarray((np.minimum(apart, 1.0) ** 2).mean(-1) + 1e-4, np.float64)


def _shares(log_ratio: Matrix) -> Matrix:
    """Give each lender's share by how steadily it follows.

    Parameters
    ----------
    log_ratio : array (lenders, n)
    """
    variance = _variance(log_ratio)
    share = (variance.min() / variance) ** POWER
    return np.asarray(share / share.sum())


def _hyper(features: Matrix, target: Matrix) -> Hyper:
    """Give a process that no fit has to find: twenty rows tell its variance, not the length of each feature."""
    varying = max(int((np.ptp(features, axis=0) > 0).sum()), 1)
    variance = float(_variance(target))
    return Hyper(np.full(features.shape[1], 2 * np.sqrt(varying)), variance, NOISE * variance)


def _typical_error(features: Matrix, target: Matrix, noise: Matrix, hyper: Hyper, interval: float) -> float:
    """Give the factor on the process's deviation that holds this share of its own left-out rows.

    Left out one by one (Rasmussen & Williams, Gaussian Processes for Machine Learning, eq. 5.10–5.12).
    """
    smooth = hyper.variance * correlation(distances(features, features, hyper.length))
    inverse = np.linalg.inv(smooth + np.diag(hyper.noise + noise))
    errors = np.abs(inverse @ target) / np.sqrt(np.diag(inverse))
    return float(np.quantile(errors, min(interval * (1 + 1 / len(target)), 1.0)))


def _log_times(lenders: list[_Lender], rows: pd.DataFrame, kind: str) -> tuple[Matrix, Matrix]:
    """Give ln(time) on each lender (lenders × n), and its variance less what repeating the op would show too."""
    found = [interpolate.believe(one.fit, one.training, rows, kind) for one in lenders]
    variance = [there.variance - one.fit.hyper.noise for one, (_, there) in zip(lenders, found, strict=True)]
    return np.array([log_s for log_s, _ in found]), np.maximum(variance, 0.0)


def _answers(
    rows: pd.DataFrame, training: pd.DataFrame, lenders: list[_Lender], name: FamilyName, interval: float
) -> Iterator[tuple[int, Timed]]:
    known_s = np.log(training["_time_s"].to_numpy(np.float64))
    theirs, _ = _log_times(lenders, training, name.kind)
    share = _shares(known_s - theirs)
    ratio = known_s - share @ theirs
    if _variance(ratio) > STEADY**2:
        return
    usual = float(np.median(ratio))
    known, asked = (look_at(table, name.kind, len(training)) for table in (training, rows))
    noise = interpolate.row_noise(training)
    hyper = _hyper(known, ratio - usual)
    correction = posterior(known, ratio - usual, noise, asked, hyper)
    there, unsure = _log_times(lenders, rows, name.kind)
    log_s = share @ there + usual + correction.mean
    # What the lenders do not know of an op that they never timed comes on top of how well they are followed.
    own = _typical_error(known, ratio - usual, noise, hyper, interval) * np.sqrt(correction.variance)
    width = np.hypot(own, NormalDist().inv_cdf(0.5 + interval / 2) * np.sqrt(share @ unsure))
    first = lenders[int(share.argmax())].machine
    evidence = f"as {len(lenders)} other tables, mostly {first}, follow {len(training)} own timings"
    for index, value, apart in zip(rows.index.tolist(), log_s.tolist(), width.tolist(), strict=True):
        middle, low, high = np.exp([value, value - apart, value + apart]).tolist()
        yield index, Timed(middle, low, high, "transferred", "measured", evidence)


def estimate(rows: pd.DataFrame, machine: Machine, interval: float) -> dict[int, Timed]:
    """Predict rows of a small family from the tables of the machine's lenders and its own few timings.

    time = geometric mean of the lenders' predictions, the steadiest weighing most, times a ratio: the usual one of
    the machine's own timings, corrected by a Gaussian process in the sizes.

    Parameters
    ----------
    rows : DataFrame
        COSTED rows.
    machine : Machine
        Without lenders, or costs of its timings (flop and byte), nothing is borrowed.
    interval : float
        Share of intervals that should contain the truth, taken from own timings left out one by one.

    Returns
    -------
    dict
        Rows of `KINDS` of which the table has `FEWEST` to `MOST` distinct ops, and lenders that follow have more.
    """
    times: dict[int, Timed] = {}
    if not machine.lenders or not {"flop", "byte"} <= set(machine.timings.columns):
        return times
    from threadpoolctl import threadpool_limits

    # Matrices of a few dozen rows: threads would wait for each other.
    with threadpool_limits(limits=1):
        for name, at in families(rows):
            chosen = rows.iloc[at]
            chosen = chosen[servable(chosen, name.kind)]
            if name.kind not in KINDS or not len(chosen):
                continue
            training = training_rows(machine.timings, name)
            lenders = _lenders(machine, name) if FEWEST <= len(training) <= MOST else []
            if lenders:
                times.update(_answers(chosen, training, lenders, name, interval))
    return times
