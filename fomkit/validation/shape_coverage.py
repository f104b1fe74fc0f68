"""Compute how much of the space of shapes a machine's timings cover, and how well shapes in it are predicted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypedDict

import numpy as np
import pandas as pd

from fomkit.core.interval import DEFAULT_LEVEL
from fomkit.core.machine import Machine
from fomkit.ops.kinds import KINDS, PASS_FREE_KINDS
from fomkit.ops.tables import COSTS, DIMENSIONS
from fomkit.plan.content import as_content
from fomkit.prediction import interpolate
from fomkit.prediction.families import FamilyName, families, training_rows
from fomkit.prediction.gp import distances

Ends = tuple[float, float]
_NUMBERS = frozenset(column.name for column in DIMENSIONS if column.dtype == "number")
_BLOCK = 500


class CrossValidationErrors(TypedDict):
    """Errors of ops predicted without their shape group; no row is scored on a fit that included it.

    `median`, `mean`: absolute error, relative to the truth.
    `hit_rate`: share of 80 % intervals that contain the truth.
    """

    ops: int
    median: float
    mean: float
    hit_rate: float


class ShapeCoverage(TypedDict):
    """Coverage by the timed ops of one family.

    `sizes`: least and largest value of each dimension.
    `flop`, `byte`, `time_s` (float, float): least and largest work [flop], traffic [byte] and time [s] of an op;
      None if no cost is known.
    `spacing` (float, float): median and ninth decile of the distance to the nearest other timed op, in lengths of
      the fit: one length is the distance at which two ops' errors correlate by a half. None without a fit.
    `errors`: None without a fit.
    `reference`, `near`: number of distinct reference ops of this kind and pass, and of those within interpolation
      distance.
    `near_flop_share`: share of the reference ops' arithmetic in near ops; None if they have none.
    `outside`: number of reference ops with a size below the least or above the largest timed one, by dimension.
      The fit may still count them as near: the length of a dimension that never varied is only assumed.
    """

    kind: str
    dtype: str
    engine: str
    pass_name: str
    part: str
    ops: int
    sizes: Mapping[str, Ends]
    flop: Ends | None
    byte: Ends | None
    time_s: Ends
    spacing: Ends | None
    errors: CrossValidationErrors | None
    reference: int
    near: int
    near_flop_share: float | None
    outside: Mapping[str, int]


def _ends(values: pd.Series) -> Ends | None:
    known = values.dropna()
    return (float(known.min()), float(known.max())) if len(known) else None


def _spacing(rows: pd.DataFrame, fit: interpolate.Fit, kind: str) -> Ends | None:
    if len(rows) < 2:
        return None
    features = interpolate.features_of(fit, rows, kind, len(rows))
    nearest = np.empty(len(rows))
    for start in range(0, len(rows), _BLOCK):
        part = slice(start, start + _BLOCK)
        apart = distances(features[part], features, fit.hyper.length)
        apart[np.arange(len(apart)), np.arange(start, start + len(apart))] = np.inf
        nearest[part] = apart.min(1)
    return float(np.median(nearest)), float(np.quantile(nearest, 0.9))


def cross_validation_errors(fits: list[Mapping[str, Any]]) -> CrossValidationErrors | None:
    """Combine the cross-validation errors stored in fits; None if a fit has none.

    >>> found = cross_validation_errors([{"left_out_log_error": [0.0, 0.1, -0.1], "left_out_hit_rate": 1.0}])
    >>> found["ops"], round(found["median"], 6), round(found["mean"], 6), found["hit_rate"]
    (3, 0.095163, 0.066778, 1.0)
    """
    if not fits or not all("left_out_log_error" in fit and "left_out_hit_rate" in fit for fit in fits):
        return None
    logs = [np.asarray(fit["left_out_log_error"], np.float64) for fit in fits]
    wrong = np.abs(np.expm1(np.concatenate(logs)))
    hits = sum(len(log) * float(fit["left_out_hit_rate"]) for log, fit in zip(logs, fits, strict=True))
    median, mean = float(np.median(wrong)), float(wrong.mean())
    return {"ops": len(wrong), "median": median, "mean": mean, "hit_rate": hits / len(wrong)}


def _reference_ops(name: FamilyName, reference: pd.DataFrame) -> pd.DataFrame:
    """Return the distinct reference ops of a family's kind and pass, in its format, with their arithmetic."""
    rows = reference[reference["kind"] == name.kind]
    if name.kind not in PASS_FREE_KINDS:
        rows = rows[rows["pass_name"] == name.pass_name]
    keys = [key for key in KINDS[name.kind].dimensions if key in rows.columns]
    distinct = rows[~rows.duplicated(subset=keys)]
    work = (rows["flop"] * rows["count"]).groupby([rows[key] for key in keys], dropna=False, sort=False).sum()
    distinct = distinct.assign(dtype=name.dtype, engine=name.engine, _work=work.to_numpy())
    return distinct.reset_index(drop=True)


def _outside(wanted: pd.DataFrame, sizes: Mapping[str, Ends]) -> dict[str, int]:
    counts = {
        column: int(((wanted[column] < low) | (wanted[column] > high)).sum())
        for column, (low, high) in sizes.items()
        if column in wanted.columns
    }
    return {column: count for column, count in counts.items() if count}


def _interpolated_share(wanted: pd.DataFrame, machine: Machine) -> tuple[int, float | None]:
    if not len(wanted):
        return 0, None
    times = interpolate.estimate(wanted, machine, DEFAULT_LEVEL)
    near = times.index[times.time_source == "interpolated"]
    total = float(wanted["_work"].sum())
    return len(near), float(wanted["_work"][near].sum()) / total if total > 0 else None


def coverage_by_family(machine: Machine, costed: pd.DataFrame, reference: pd.DataFrame) -> Iterator[ShapeCoverage]:
    """Yield the coverage of every family of a machine's row-major timings, for ops that users query."""
    work = [column.name for column in COSTS if column.name in costed.columns]
    for name, _ in families(costed):
        rows = training_rows(costed, name)
        if not len(rows):
            continue
        stored = machine.fits.get(str(name))
        fit = interpolate.as_fit(stored) if isinstance(stored, Mapping) else None
        wanted = _reference_ops(name, reference)
        near, near_flop_share = _interpolated_share(wanted, machine) if fit is not None else (0, None)
        costs = {column: _ends(rows[column]) for column in work}
        sizes = {
            column: ends
            for column in KINDS[name.kind].dimensions
            if column in _NUMBERS and (ends := _ends(rows[column])) is not None
        }
        errors = cross_validation_errors([stored]) if isinstance(stored, Mapping) else None
        yield as_content(
            ShapeCoverage, name, ops=len(rows), sizes=sizes, flop=costs.get("flop"), byte=costs.get("byte"),
            time_s=(float(rows["_time_s"].min()), float(rows["_time_s"].max())), errors=errors, near=near,
            spacing=None if fit is None else _spacing(rows, fit, name.kind), reference=len(wanted),
            near_flop_share=near_flop_share, outside=_outside(wanted, sizes),
        )  # fmt: skip
