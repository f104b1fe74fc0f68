"""Fit the Gaussian processes that transfer small tables of one family between machines, and store them.

``python benchmarks/shared_processes.py`` reads the timings in ``machine_profiles`` and writes
``machine_profiles/shared_processes.json``: for each family with few ops on at least two shipped machines, the ops
with their times, and eleven processes (`fomkit.prediction.donors.Process`). Ten are each fitted without a tenth of
the shape groups, so that left-out ops can be predicted by a process that saw them on no machine; one is fitted to
all. Parameters maximise the marginal likelihood under weak log-normal priors.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.linalg.lapack import dpotrf, dpotri
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits

from fomkit.ops.pricing import add_costs
from fomkit.prediction.beside_facts import ENOUGH
from fomkit.prediction.calibration import FOLDS, fit_mean
from fomkit.prediction.donors import levels_of, unit_of
from fomkit.prediction.exact import row_major
from fomkit.prediction.families import VIEWS, FamilyName, families, look_at, training_rows
from fomkit.prediction.gp import LIMIT, Matrix, Places
from fomkit.profiles.evidence import PROCESSES, without_implausible
from fomkit.profiles.machines import load_machine

SHIPPED = Path(__file__).parent.parent / "machine_profiles"
LEFT_OUT_BY = {"conv": VIEWS["conv"].groups, "rnn": ("hidden_size",)}
KINDS = ("conv", "rnn")
"""Kinds with few timed ops per machine, which are similar on all machines."""
STEPS = 25


class Tables(NamedTuple):
    """All machines' rows of a family: op and machine of each row, ln(time), and the ops."""

    machines: list[str]
    architectures: list[str]
    unit: Matrix
    features: Matrix
    terms: Matrix
    fold: Places
    machine: Places
    op: Places
    log_s: Matrix


def collect() -> dict[FamilyName, Tables]:
    """Return the tables of the small families that at least two machines timed."""
    found: dict[FamilyName, list[tuple[Any, pd.DataFrame]]] = {}
    for path in sorted(SHIPPED.glob("*.yaml")):
        machine = load_machine(path)
        if machine.device_of or not machine.timings["kind"].isin(KINDS).any():
            continue
        machine = without_implausible(machine)
        costed = add_costs(row_major(machine.timings[machine.timings["kind"].isin(KINDS)].reset_index(drop=True)))
        for name, _ in families(costed):
            rows = training_rows(costed, name)
            if ENOUGH <= len(rows) <= LIMIT and unit_of(machine, name) is not None:
                found.setdefault(name, []).append((machine, rows))
    return {name: tables(name, known) for name, known in found.items() if len(known) > 1}


def tables(name: FamilyName, known: list[tuple[Any, pd.DataFrame]]) -> Tables:
    """Combine the machines' rows of a family."""
    rows = pd.concat([rows.assign(_machine=at) for at, (_, rows) in enumerate(known)], ignore_index=True)
    features = look_at(rows, name.kind, 1)
    _, first, op = np.unique(features.round(6), axis=0, return_index=True, return_inverse=True)
    ops = rows.iloc[first].reset_index(drop=True)
    columns = [column for column in LEFT_OUT_BY[name.kind] if column in ops.columns]
    fold = ops.groupby(columns, dropna=False, sort=True).ngroup().to_numpy() % FOLDS
    return Tables(
        [machine.name for machine, _ in known],
        [machine.device.architecture for machine, _ in known],
        np.array([unit_of(machine, name) for machine, _ in known])[:, : VIEWS[name.kind].terms(ops).shape[1]],
        features[first], VIEWS[name.kind].terms(ops), fold,
        rows["_machine"].to_numpy(), op.ravel(), np.log(rows["_time_s"].to_numpy(np.float64)),
    )  # fmt: skip


def likelihood(values: Matrix, known: Tables, rows: Places, target: Matrix, among: Matrix) -> tuple[float, Matrix]:
    """Return −ln p of the rows and its gradient with respect to the log parameters, in the order of `starts`."""
    features, machine = known.features[known.op[rows]], known.machine[rows]
    size, count = features.shape[1], len(known.machines)
    length, level, offset, scale, own, (own_offset, noise) = np.split(
        np.exp(values), np.cumsum([size, 4, 4, count, count])
    )
    apart = features / length
    squares = (apart * apart).sum(1)
    distance = np.sqrt(3 * np.maximum(squares[:, None] + squares - 2 * apart @ apart.T, 0.0))
    decay = np.exp(-distance)
    shared, both = decay * (1 + distance), np.outer(scale, scale)
    between = (np.tensordot(level, among, 1) + np.diag(own)) * both
    constant = np.tensordot(offset, among, 1) + own_offset * np.eye(count)
    pairs = np.ix_(machine, machine)
    covariance = between[pairs] * shared + constant[pairs] + noise * np.eye(len(rows))
    lower, failed = dpotrf(covariance, lower=1)
    if failed:
        return 1e10, np.zeros_like(values)
    inverse, _ = dpotri(lower, lower=1)
    inverse = np.tril(inverse) + np.tril(inverse, -1).T
    weights = inverse @ target
    pull = inverse - np.outer(weights, weights)
    slope = 3 * pull * between[pairs] * decay
    by_length = (apart**2 * slope.sum(1)[:, None] - apart * (slope @ apart)).sum(0)
    of = np.zeros((len(rows), count))
    of[np.arange(len(rows)), machine] = 1
    smooth, plain = of.T @ (pull * shared) @ of, of.T @ pull @ of
    gradient = [
        by_length,
        0.5 * level * (among * smooth * both).sum((1, 2)),
        0.5 * offset * (among * plain).sum((1, 2)),
        (smooth * between).sum(1),
        0.5 * own * np.diag(smooth * both),
        [0.5 * own_offset * np.trace(plain), 0.5 * noise * np.trace(pull)],
    ]
    return float(0.5 * target @ weights + np.log(np.diag(lower)).sum()), np.concatenate(gradient)


def starts(features: Matrix, variance: float, count: int) -> tuple[Matrix, Matrix]:
    """Return the initial log parameters, which are their prior's mean, and the prior's standard deviation."""
    size, varying = features.shape[1], int((np.ptp(features, axis=0) > 0).sum())
    mean = (np.log(2 * np.sqrt(varying)), np.log(variance / 4), np.log(variance / 40), 0.0, np.log(variance / 4))
    ends = (np.log(variance / 10), np.log(variance / 50))
    counts = (size, 4, 4, count, count, 2)
    parts = [np.full(many, value) for many, value in zip(counts, mean, strict=False)]
    widths = [np.full(many, width) for many, width in zip(counts, (0.25, 2.0, 2.0, 0.5, 1.5, 2.0), strict=True)]
    return np.concatenate([*parts, ends]), np.concatenate(widths)


def process(known: Tables, left_out: int) -> dict[str, Any]:
    """Fit the process to all rows except those of one fold."""
    rows = np.flatnonzero(known.fold[known.op] != left_out)
    seconds, units = np.exp(known.log_s), known.terms[known.op] * known.unit[known.machine]
    usual = np.maximum(fit_mean(units[rows], seconds[rows]), 0.02)
    mean = np.empty_like(known.unit)
    for at in range(len(mean)):
        own = rows[known.machine[rows] == at]
        mean[at] = fit_mean(known.terms[known.op[own]], seconds[own], usual * known.unit[at])
    fitted_s = (known.terms[known.op] * mean[known.machine]).sum(1)
    target = (known.log_s - np.log(fitted_s))[rows]
    among = levels_of(known.architectures, known.architectures)
    start, width = starts(known.features, float(target.var()), len(mean))

    def loss(values: Matrix) -> tuple[float, Matrix]:
        value, slope = likelihood(values, known, rows, target, among)
        prior = (values - start) / width
        return value + 0.5 * prior @ prior, slope + prior / width

    found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": STEPS})
    size, count = known.features.shape[1], len(mean)
    length, level, offset, scale, own, (own_offset, noise) = np.split(
        np.exp(found.x), np.cumsum([size, 4, 4, count, count])
    )
    columns = {"length": length, "level": level, "offset": offset, "scale": scale, "own": own, "usual": usual}
    rounded = {name: [float(f"{value:.6g}") for value in column] for name, column in columns.items()}
    means = [[float(f"{value:.8g}") for value in row] for row in mean]
    return {**rounded, "own_offset": float(f"{own_offset:.6g}"), "noise": float(f"{noise:.6g}"), "mean": means}


def written(known: Tables) -> dict[str, Any]:
    """Return a family as it is stored."""
    log_s = np.full((len(known.machines), len(known.features)), np.nan)
    log_s[known.machine, known.op] = known.log_s
    return {
        "machines": known.machines,
        "architectures": known.architectures,
        "features": known.features.round(8).tolist(),
        "terms": known.terms.tolist(),
        "fold": known.fold.tolist(),
        "log_s": [[None if np.isnan(value) else float(f"{value:.9g}") for value in row] for row in log_s],
        "processes": [process(known, fold) for fold in (*range(FOLDS), FOLDS)],
    }


if __name__ == "__main__":
    with threadpool_limits(limits=1):
        content = {str(name): written(known) for name, known in collect().items()}
    path = Path(sys.argv[1]) if sys.argv[1:] else SHIPPED / PROCESSES
    path.write_text(json.dumps(content, separators=(",", ":"), sort_keys=True, allow_nan=False) + "\n", "utf-8")
    print(f"{path}: {len(content)} families")
