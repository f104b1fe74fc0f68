"""How much of the space of shapes a machine's timings cover, and how well shapes in it are predicted."""

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
    """How ops whose shape group was left out were predicted; no row was scored on a fit that had seen it.

    `median`, `mean`: absolute error, as a share of the truth.
    `hit_rate`: share of 80 % intervals that hold the truth.
    """

    ops: int
    median: float
    mean: float
    hit_rate: float


class ShapeCoverage(TypedDict):
    """What the timed ops of one family cover.

    `ops`: distinct timed ops.
    `sizes`: least and largest value of each dimension.
    `flop`, `byte`, `time_s` (float, float): least and largest work [flop], traffic [byte] and time [s] of an op;
      None where no cost is known.
    `spacing` (float, float): median and ninth decile of the distance to the nearest other timed op, in lengths of
      the fit: one length is the distance at which two ops' errors correlate by a half. None without a fit.
    `errors`: none without a fit.
    `reference`, `near`: distinct reference ops of this kind and pass, and those of them within interpolation
      distance.
    `near_flop_share`: share of the reference ops' arithmetic that these are; None where there is none.
    `outside`: reference ops with a size below the least or above the largest timed one, by dimension. The fit may
      count them as near all the same: where a dimension never varied, its length is only assumed.
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
    features = interpolate.see(fit, rows, kind, len(rows))
    nearest = np.empty(len(rows))
    for start in range(0, len(rows), _BLOCK):
        part = slice(start, start + _BLOCK)
        apart = distances(features[part], features, fit.hyper.length)
        apart[np.arange(len(apart)), np.arange(start, start + len(apart))] = np.inf
        nearest[part] = apart.min(1)
    return float(np.median(nearest)), float(np.quantile(nearest, 0.9))


def cross_validation_errors(fits: list[Mapping[str, Any]]) -> CrossValidationErrors | None:
    """Join the left-out errors that fits keep; None where one keeps none.

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
    """Give the reference ops that a family could serve, in its number format, each once with its arithmetic."""
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
    """Describe every family of a machine's timings.

    `machine`: with fits; its timings row-major (`fomkit.prediction.exact.row_major`); `costed`: the same
    timings with flop and byte; `reference`: a COSTED table of ops that people ask for.
    """
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
