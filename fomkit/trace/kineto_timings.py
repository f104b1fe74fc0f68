"""A profiler's trace as timings of a machine: each distinct call with the times of its executions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from fomkit.trace.kineto_rows import Row

if TYPE_CHECKING:
    import pandas as pd

_NEVER = ("other", "input", "optimizer")
_PASS_FREE = ("gemm", "collective")
_ANY_OP = ("gemm", "conv", "rnn", "attention", "collective")
"""Kinds whose timing holds whatever the framework calls the op."""


def _identity(row: Row) -> dict[str, Any]:
    op = row.op
    dtype, engine = op.dtype, op.engine
    if op.kind in ("gemm", "conv") and dtype == "fp32" and row.unit:
        dtype, engine = ("tf32" if row.unit == "tf32" else dtype), "matrix"
    return {
        "kind": op.kind,
        "dtype": dtype,
        "engine": engine,
        "pass_name": "" if op.kind in _PASS_FREE else op.pass_name,
        "op": "" if op.kind in _ANY_OP else op.op,
        **op.dimensions,
    }


def _why_not(row: Row) -> str:
    if row.op.kind in _NEVER:
        return "no dimensions that a timing could stand for"
    if not row.alone:
        return "one time for several works"
    return "" if any(time > 0 for time in row.times) else "no time"


def trace_timings(rows: Iterable[Row]) -> tuple[pd.DataFrame, Mapping[tuple[str, str], int]]:
    """Make one timing of each distinct call.

    Parameters
    ----------
    rows : iterable of Row

    Returns
    -------
    timings : DataFrame
        Columns of TIMINGS that the trace decides: median and quartiles of the executions' times [s].
    left_out : mapping
        Kind and reason to the number of rows that became no timing.
    """
    import numpy as np
    import pandas as pd

    known: dict[tuple[tuple[str, Any], ...], dict[str, Any]] = {}
    times: dict[tuple[tuple[str, Any], ...], list[float]] = {}
    left_out: dict[tuple[str, str], int] = {}
    for row in rows:
        if why := _why_not(row):
            left_out[row.op.kind, why] = left_out.get((row.op.kind, why), 0) + 1
            continue
        identity = _identity(row)
        key = tuple(sorted(identity.items()))
        known.setdefault(key, identity)
        times.setdefault(key, []).extend(time for time in row.times if time > 0 and not math.isnan(time))
    found = []
    for key, identity in known.items():
        low, middle, high = np.quantile(times[key], (0.25, 0.5, 0.75)).tolist()
        repeats = float(len(times[key]))
        found.append({**identity, "time_s": middle, "p25_s": low, "p75_s": high, "repeats": repeats})
    return pd.DataFrame(found), left_out
