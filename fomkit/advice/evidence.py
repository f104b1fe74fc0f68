"""The ops that a finding is about: which rows, what they take before and after, and what their times rest on."""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan, nan
from typing import TYPE_CHECKING, Any

import numpy as np

from fomkit.advice.case import Case
from fomkit.predict.estimates import Record, records
from fomkit.predict.nearest import nearest_timings
from fomkit.study.evidence import distinct_ops, neighbour_content
from fomkit.views import identities
from fomkit.views.shapes import shape_label

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

TOP = 3
"""Ops of a finding that are listed."""


def seconds_of(ops: pd.DataFrame) -> NDArray[np.float64]:
    """Give what each row takes in a step [s]."""
    return (ops["time_s"] * ops["count"]).to_numpy(np.float64)


def _label(row: Record) -> str:
    """Write kind and sizes; of ops on elements only how many, for their bytes follow."""
    if row["kind"] == "optimizer" or isnan(float(row.get("numel", nan))):
        return shape_label(row)
    count = row["numel"]
    return f"{row['kind']} of {count:,.0f} element{'s' if count != 1 else ''}"


def _sum(seconds: pd.Series[float]) -> float | None:
    """Add up; None where a term is unknown."""
    total = float(seconds.sum(skipna=False))
    return None if isnan(total) else total


def is_slower(one: Mapping[str, Any]) -> bool:
    """Tell whether an op takes longer in the changed step than now."""
    return one["after_s"] is not None and bool(one["after_s"] > one["step_time_s"])


def evidence(
    case: Case, rows: pd.Series[bool], after_s: NDArray[np.float64] | None = None
) -> tuple[dict[str, Any], ...]:
    """Describe some rows, equal ones as one: those that change most, else the longest.

    Parameters
    ----------
    case : Case
    rows : Series of bool
        Rows of the case's ops that the finding is about.
    after_s : array, optional
        What each row of the case's ops takes in the changed step [s].

    Returns
    -------
    tuple of dict
        Ops that take longer in the changed step stand last.
        ``rows`` are positions in the table of ops, from 0; times are of one step.
    """
    ops = case.ops if after_s is None else case.ops.assign(after_s=after_s)
    ops = ops[rows & ops["seconds"].notna()]
    if not len(ops):
        return ()
    groups = identities(ops)
    size = ops["seconds"] if after_s is None else (ops["seconds"] - ops["after_s"]).abs()
    sums = size.groupby(groups).sum().sort_values(ascending=False, kind="stable")
    found = []
    for name in sums.index[:TOP]:
        own = ops[groups == name]
        _, row = next(iter(records(distinct_ops(own))))
        near = nearest_timings(own.iloc[:1].reset_index(drop=True), case.fitted).get(0, [])
        found.append(
            {
                "rows": own.index.tolist(),
                "op": str(row["op"]),
                "sizes": _label(row),
                "pass_name": str(row["pass_name"]),
                "dtype": str(row["dtype"]),
                "engine": str(row["engine"]),
                "executions": float(own["count"].sum()),
                "step_time_s": float(own["seconds"].sum()),
                "floor_s": _sum(own["floor_s"] * own["count"]),
                "after_s": None if after_s is None else _sum(own["after_s"]),
                "time_source": str(row["time_source"]),
                "bound": str(row["bound"]),
                "evidence": str(row["evidence"]),
                "nearest": [neighbour_content(one) for one in near[:1]],
            }
        )
    return tuple(sorted(found, key=is_slower))
