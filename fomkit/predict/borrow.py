"""Estimator: the machine's table has a few ops of the kind, and other machines have timed many.

Libraries of one maker choose their algorithms by the same shapes, so the ratio of two machines' times is smoother
than either. With 20 rows of a DeepBench sheet known, convolutions of the forward pass are off by 8 % in the middle
instead of 14.
"""

from __future__ import annotations

from functools import partial
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fomkit.hardware import Machine
from fomkit.predict import interpolate
from fomkit.predict.estimates import Answers, as_answers, join_answers
from fomkit.predict.families import FamilyName, families, look_at, servable, training_rows
from fomkit.predict.gaussian import Hyper, Learnt, ask, correlation, distances, join_posteriors, learn
from fomkit.predict.kept import kept
from fomkit.predict.rows import Rows, Table, as_rows

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
    """A machine and its fit of the family that serves, with what that learnt from."""

    machine: str
    family: interpolate.Family


def _own(machine: Machine, name: FamilyName) -> pd.DataFrame:
    """Give the distinct ops of a family in a machine's own table."""
    make = partial(training_rows, machine.timings, name)
    return kept(machine.timings, None, f"distinct ops of {name}", make)


def _lenders(machine: Machine, name: FamilyName) -> list[_Lender]:
    """Find tables of the same number format, engine and pass that have more than a few ops."""
    families_of = ((lender.name, interpolate.family_of(lender, name)) for lender in machine.lenders)
    return [_Lender(lender, one) for lender, one in families_of if one is not None and len(one.training) > MOST]


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


def _log_times(lenders: list[_Lender], rows: Table, kind: str) -> tuple[Matrix, Matrix]:
    """Give ln(time) on each lender (lenders × n), and its variance less what repeating the op would show too."""
    found = [interpolate.believe(one.family, rows, kind) for one in lenders]
    variance = [
        there.variance - one.family.fit.hyper.noise for one, (_, there) in zip(lenders, found, strict=True)
    ]
    return np.array([log_s for log_s, _ in found]), np.maximum(variance, 0.0)


class _Followed(NamedTuple):
    """How a table of a few rows follows its lenders, ready for queries.

    Attributes
    ----------
    lenders : list of _Lender
    share : array (lenders,)
    usual : float
        Median of ln(own time / the lenders').
    ratio : Learnt
        What the ratio adds to that, by the sizes.
    features : array (n, p)
        Of the own timings.
    """

    lenders: list[_Lender]
    share: Matrix
    usual: float
    ratio: Learnt
    features: Matrix


def _follow(training: pd.DataFrame, lenders: list[_Lender], kind: str) -> _Followed | None:
    """Compare a table with its lenders'; None where it does not follow them."""
    known_s = np.log(training["_time_s"].to_numpy(np.float64))
    theirs, _ = _log_times(lenders, training, kind)
    share = _shares(known_s - theirs)
    ratio = known_s - share @ theirs
    if _variance(ratio) > STEADY**2:
        return None
    usual = float(np.median(ratio))
    known = look_at(training, kind, len(training))
    learnt = learn(known, ratio - usual, interpolate.row_noise(training), _hyper(known, ratio - usual))
    return _Followed(lenders, share, usual, learnt, known)


def _answers(rows: Rows, training: pd.DataFrame, followed: _Followed, kind: str, interval: float) -> Answers:
    lenders, share, usual, learnt, known = followed
    asked = look_at(rows, kind, len(training))
    correction = join_posteriors([part for _, _, part in ask(learnt, asked)])
    there, unsure = _log_times(lenders, rows, kind)
    log_s = share @ there + usual + correction.mean
    # What the lenders do not know of an op that they never timed comes on top of how well they are followed.
    factor = _typical_error(known, learnt.target, learnt.noise, learnt.hyper, interval)
    own = factor * np.sqrt(correction.variance)
    width = np.hypot(own, NormalDist().inv_cdf(0.5 + interval / 2) * np.sqrt(share @ unsure))
    first = lenders[int(share.argmax())].machine
    evidence = f"as {len(lenders)} other tables, mostly {first}, follow {len(training)} own timings"
    return Answers(
        rows.index,
        np.exp([log_s, log_s - width, log_s + width]),
        np.full(len(rows), "transferred", object),
        np.full(len(rows), "measured", object),
        lambda _: evidence,
    )


def estimate(rows: Table, machine: Machine, interval: float) -> Answers:
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
    Answers
        Rows of `KINDS` of which the table has `FEWEST` to `MOST` distinct ops, and lenders that follow have more.
    """
    if not machine.lenders or not {"flop", "byte"} <= set(machine.timings.columns):
        return as_answers({})
    rows, found = as_rows(rows), []
    # Matrices of a few dozen rows: threads would wait for each other.
    with interpolate.threads().limit(limits=1):
        for name, at in families(rows):
            if name.kind not in KINDS:
                continue
            chosen = rows.take(at)
            chosen = chosen.take(servable(chosen, name.kind))
            training = _own(machine, name)
            if not len(chosen) or not FEWEST <= len(training) <= MOST:
                continue
            lenders = _lenders(machine, name)
            make = partial(_follow, training, lenders, name.kind)
            followed = kept(machine.timings, machine.lenders, f"lenders of {name}", make) if lenders else None
            if followed is not None:
                found.append(_answers(chosen, training, followed, name.kind, interval))
    return join_answers(found)
