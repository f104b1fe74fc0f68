"""Other machines' timings of a family: what they say of ops of which a machine has few timings itself.

A Gaussian process over all machines that timed a family is conditioned on a machine's own rows (`condition`): what
one machine shows of an op holds for similar ops on the others. With convolutions that others timed, the median
error of left-out rows is 7 % instead of 13 (four fifths of a machine's own rows known).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fomkit.core.machine import Machine
from fomkit.core.measurement import chip_words
from fomkit.prediction import gp
from fomkit.prediction.families import FamilyName
from fomkit.prediction.gp import Flags, Indices, Matrix, Places
from fomkit.prediction.rates import rates

START_S = 8e-6
"""Cost of a call [s] to which the coefficient of calls is relative, as the others are to a stated rate."""
PRIOR = 10.0
"""Weight of the typical coefficients as a prior for the calibrated roofline of one machine."""
SHARES = 2.0 ** np.arange(-12, 5)
"""Candidates for a machine's own variance, as a share of the typical one; its own rows select one."""
LACKING = 0.15
"""Share of others' timed ops that a table must lack for the others to be used. For shapes that no machine timed
the table's own process is as good: left-out weight gradients are off by 10.6 % with it, by 12.0 with all."""
OWN_WIDTH = 3.0
"""Prior standard deviation of the logarithm of the share (`SHARES`)."""
BATCH_FEATURES = (0, 7)
"""Features of a convolution that depend on its batch; shapes with equal other features are one group."""
ALIKE = 1e-6
"""Difference of features below which two ops are the same."""


class Process(NamedTuple):
    """One Gaussian process over all machines that timed a family: cov = ρ(machine, other)·k(x, x') + offsets.

    `length` (p,): of the features.
    `level`, `offset` (4,): variances shared by all machines, by a vendor, an architecture and a chip; of the
      smooth part and of a constant.
    `scale`, `own` (machines,): factor on a machine's smooth part, and its own variance besides the levels'.
    `own_offset`, `noise`: variance of one machine's constant, and of what no feature explains.
    `usual` (q,): typical coefficients of the roofline, relative to `START_S` and the stated rates.
    `log_mean` (machines, s): ln of each machine's calibrated roofline [s].
    """

    length: Matrix
    level: Matrix
    offset: Matrix
    scale: Matrix
    own: Matrix
    own_offset: float
    noise: float
    usual: Matrix
    log_mean: Matrix


class Others(NamedTuple):
    """Other machines' timings of one family, for the prediction of a machine.

    `features` (s, p), `log_s` (machines, s): their ops, and ln(time) where a machine timed one, else NaN.
    `fold` (s,): round in which an op is left out; `processes`: fitted without each round, the last to all rounds.
    `alike` (4, machines), `among` (4, machines, machines): which machines share a level with this machine, and
      with each other.
    `unit` (q,): cost of the terms of its roofline at the stated rates [s]; None where one is not stated.
    """

    features: Matrix
    log_s: Matrix
    fold: Indices
    processes: Sequence[Process]
    alike: Flags
    among: Flags
    unit: Matrix | None

    def tell_more(self, features: Matrix) -> bool:
        """Return whether another machine is of the vendor and a table of these rows lacks `LACKING` of all ops."""
        own = np.abs(self.features[:, None] - features[None]).max(2).min(1) < ALIKE
        return bool(self.alike[1].any() and (~own).mean() >= LACKING)

    def with_length(self, at: int, length: Matrix) -> Others:
        """Return the same with other lengths in one of the processes."""
        processes = list(self.processes)
        processes[at] = processes[at]._replace(length=length)
        return self._replace(processes=processes)

    def groups(self, features: Matrix) -> Places:
        """Return for each row the first known op of its shape group, -1 where there is none."""
        conv = features.shape[1] > max(BATCH_FEATURES) + 1
        columns = np.delete(np.arange(features.shape[1]), BATCH_FEATURES) if conv else np.array([0])
        same = np.abs(features[:, None, columns] - self.features[None, :, columns]).max(2) < ALIKE
        return np.where(same.any(1), same.argmax(1), -1)


class Conditioned(NamedTuple):
    """The posterior of one machine, expressed as a process of that machine alone.

    Its mean is the same. The noise of each op is such that the variance there equals the posterior variance from
    all rows: another machine's timing of an op is less informative than this machine's would be.

    `elsewhere` (e, p): ops that only others timed.
    `target`, `noise` (n + e,): of own rows, then of these.
    """

    offset: float
    hyper: gp.Hyper
    elsewhere: Matrix
    target: Matrix
    noise: Matrix


def levels_of(architectures: Sequence[str], others: Sequence[str]) -> Flags:
    """Return which machines share a level (4, m, others): all, the vendor, the architecture, the chip.

    >>> levels_of(["NVIDIA Pascal GP100"], ["NVIDIA Pascal GP102", "AMD GCN5 Vega10"])[:, 0].astype(int).tolist()
    [[1, 1], [1, 0], [1, 0], [0, 0]]
    """
    words = [[chip_words(one) for one in names] for names in (architectures, others)]
    return np.array(
        [[[len(a) >= count and a[:count] == b[:count] for b in words[1]] for a in words[0]] for count in range(4)]
    )


def unit_of(machine: Machine, name: FamilyName) -> Matrix | None:
    """Return the cost of call, flop, byte, and flop twice more at a machine's rates [s]; None if unknown."""
    known = rates(machine, name.dtype, name.engine)
    if known.flop_per_s is None or known.byte_per_s is None:
        return None
    work, traffic = 1 / known.flop_per_s.value, 1 / known.byte_per_s.value
    return np.array([START_S, work, traffic, work, work])


def as_others(stored: Mapping[str, Any], machine: Machine, name: FamilyName) -> Others | None:
    """Read other machines' timings of a family, without this machine and the one that it is a board of."""
    kept = [at for at, one in enumerate(stored["machines"]) if one not in (machine.name, machine.device_of)]
    if not kept:
        return None
    architectures = [stored["architectures"][at] for at in kept]
    log_s = np.array(stored["log_s"], np.float64)[kept]
    unit = unit_of(machine, name)
    common = 2 * (~np.isnan(log_s)).sum(0) >= len(kept)
    terms = np.array(stored["terms"])[common]

    def process(one: Mapping[str, Any]) -> Process:
        columns = (np.array(one[name]) for name in ("length", "level", "offset", "scale", "own"))
        length, level, offset, scale, own = columns
        log_mean = np.log(np.array(one["mean"])[kept] @ terms.T)
        return Process(length, level, offset, scale[kept], own[kept], one["own_offset"], one["noise"],
                       np.array(one["usual"]), log_mean)  # fmt: skip

    return Others(
        np.array(stored["features"])[common], log_s[:, common], np.array(stored["fold"])[common],
        tuple(map(process, stored["processes"])), levels_of([machine.device.architecture], architectures)[:, 0],
        levels_of(architectures, architectures), None if unit is None else unit[: terms.shape[1]],
    )  # fmt: skip


def _site_noise(among: Matrix, variance: Matrix) -> Matrix:
    """Return the noise of each row for which these variances are left at the rows.

    `among` (n, n): prior covariance; `variance` (n,): the posterior variances.
    """
    from scipy.linalg.lapack import dpotrf, dpotri

    left = np.minimum(variance, 0.999 * np.diag(among))
    precision, diagonal = 1 / left, np.arange(len(among))
    for _ in range(30):
        noise, inner = 1 / precision, among.copy()
        inner[diagonal, diagonal] += noise
        # The posterior covariance A − A·(A + N)⁻¹·A has the diagonal of N − N·(A + N)⁻¹·N.
        inner, _ = dpotri(dpotrf(inner.T, overwrite_a=True)[0], overwrite_c=True)
        now = noise - noise * inner[diagonal, diagonal] * noise
        precision = np.clip(precision + 0.7 * (1 / left - 1 / np.maximum(now, 1e-9)), 1e-3, 1e6)
    return np.asarray(1 / precision)


def _own_share(covariance: Callable[[float], Matrix], error: Matrix, usual: float) -> float:
    """Return the most probable variance of a machine's own, by its rows; ``usual`` is the typical one."""
    found = []
    for share in SHARES:
        lower = np.linalg.cholesky(covariance(usual * share))
        half = np.linalg.solve(lower, error)
        found.append(0.5 * half @ half + np.log(np.diag(lower)).sum() + 0.5 * (np.log(share) / OWN_WIDTH) ** 2)
    return float(usual * SHARES[int(np.argmin(found))])


class _Covariances(NamedTuple):
    """Covariances of the machines of a process, and with the predicted machine: of smooth parts and constants.

    `smooth`, `constant` (machines, machines): covariance among them; `to_smooth`, `to_constant` (machines,): with
      this machine.
    `scale`: factor on this machine's smooth part.
    """

    smooth: Matrix
    constant: Matrix
    to_smooth: Matrix
    to_constant: Matrix
    scale: float


def _covariances_of(process: Process, others: Others) -> _Covariances:
    by_level = partial(np.tensordot, axes=1)
    smooth = by_level(process.level, others.among) + np.diag(process.own)
    smooth = smooth * np.outer(process.scale, process.scale)
    constant = by_level(process.offset, others.among) + process.own_offset * np.eye(len(smooth))
    # The scale of this machine is unknown; the weighted mean of similar machines is the likeliest.
    scale = float(np.average(process.scale, weights=4.0 ** others.alike.sum(0)))
    to_smooth = scale * by_level(process.level, others.alike) * process.scale
    return _Covariances(smooth, constant, to_smooth, by_level(process.offset, others.alike), scale)


def condition(
    others: Others, at: int, hidden: Flags, features: Matrix, target: Matrix, noise: Matrix
) -> Conditioned:
    """Condition a process on all machines' rows and on a machine's own.

    `at`: which of the processes; `hidden` (s,): ops of others to ignore; `features` (n, p), `target`, `noise`
    (n,): own rows, ln(time / mean), and variance besides the common noise.
    """
    from scipy.linalg import solve_triangular

    process, known = others.processes[at], ~np.isnan(others.log_s) & ~hidden
    kin, count = _covariances_of(process, others), len(features)

    def correlation(these: Matrix, those: Matrix) -> Matrix:
        return gp.correlation(gp.distances(these, those, process.length))

    # Shapes are those of the own rows, then those that only others timed.
    twin = np.abs(features[:, None] - others.features[None]).max(2) < ALIKE
    elsewhere = known.any(0) & ~twin.any(0)
    shapes = np.concatenate([features, others.features[elsewhere]])

    # First the timings of others (t): their covariance is L·Lᵀ; `whitened` is L⁻¹ times theirs with each shape.
    machine, op = np.nonzero(known)
    smooth = correlation(others.features, others.features)
    pair, ops = np.ix_(machine, machine), np.ix_(op, op)
    among = kin.smooth[pair] * smooth[ops] + kin.constant[pair]
    among[np.diag_indices(len(op))] += process.noise
    lower = np.linalg.cholesky(among)
    toward = correlation(shapes, others.features)
    whitened = solve_triangular(
        lower, (kin.to_smooth[machine] * toward[:, op] + kin.to_constant[machine]).T, lower=True
    )
    their_error = solve_triangular(lower, (others.log_s - process.log_mean)[known], lower=True)

    # Then the own rows, by their conditional distribution given the others.
    each, whitened_own = correlation(shapes, shapes), whitened[:, :count]
    level = kin.scale**2 * float(process.level.sum())
    constant = float(process.offset.sum() + process.own_offset)
    rest = np.diag(process.noise + noise) - whitened_own.T @ whitened_own + constant
    error = target - whitened_own.T @ their_error
    usual = float(np.exp(np.log(process.own).mean()))
    own = _own_share(lambda share: (level + share) * each[:count, :count] + rest, error, usual)
    variance = level + own
    inverse = np.linalg.inv(variance * each[:count, :count] + rest)
    pull = inverse @ error

    # The result as a process of this machine alone: the weight of each timing of others, and of each shape.
    weights = solve_triangular(lower, their_error - whitened_own @ pull, trans=1, lower=True)
    by_op = np.bincount(op, kin.to_smooth[machine] * weights, len(others.features))
    weight = np.concatenate([variance * pull + twin @ by_op, by_op[elsewhere]])
    cross = variance * each[:, :count] + constant - whitened.T @ whitened_own
    left = variance + constant - (whitened * whitened).sum(0) - np.einsum("ij,jk,ik->i", cross, inverse, cross)
    sites = _site_noise(variance * each, np.maximum(left, 1e-6))
    mean = (each * variance + np.diag(sites)) @ weight / variance
    moved = float(kin.to_constant[machine] @ weights + constant * pull.sum())
    hyper = gp.Hyper(process.length, variance, process.noise)
    return Conditioned(moved, hyper, shapes[count:], mean, sites)
