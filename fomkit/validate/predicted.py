"""Op graphs predicted on a machine: the times of their kernels, added up per call and per pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fomkit.rollup import USES, Uses, device_time
from fomkit.spans import DEFAULT_LEVEL, Span
from fomkit.study import predict_ops

if TYPE_CHECKING:
    import pandas as pd

    from fomkit.hardware import Machine

PLACE = ["graph", "call", "class", "label"]
"""Columns that say where a kernel belongs."""


def predict_graphs(ops: pd.DataFrame, machine: Machine, level: float = DEFAULT_LEVEL) -> pd.DataFrame:
    """Predict the kernels of op graphs, through the same stages as ``fomkit predict``.

    Parameters
    ----------
    ops : DataFrame
        What `fomkit.validate.graph_tables.ops_of` gives, or some of its rows.
    machine : Machine
    level : float

    Returns
    -------
    DataFrame
        A TIMED table with the places.
    """
    rows = ops.reset_index(drop=True)
    if machine.device.peak("fp32", "matrix") is not None:
        # AMD's libraries run fp32 products on the matrix units; NVIDIA's have none for fp32.
        rows = rows.assign(engine=rows["engine"].mask(rows["kind"] == "gemm", "matrix"))
    timed = predict_ops(rows.drop(columns=PLACE), machine, interval=level).ops
    return timed.assign(**{name: rows[name].to_numpy() for name in PLACE})


def _complete(timed: pd.DataFrame, keys: list[str]) -> pd.Series:
    """Tell which groups have a time in every row."""
    return timed["time_s"].notna().groupby([timed[key] for key in keys], sort=False).all()


def per_call(timed: pd.DataFrame) -> pd.DataFrame:
    """Add up the kernels of each call once, whatever its count; NaN where one has no time.

    Returns
    -------
    DataFrame
        Indexed by graph, call and label: ``time_s, low_s, high_s``.
    """
    keys = ["graph", "call", "label"]
    columns = ["time_s", "low_s", "high_s"]
    return timed.groupby(keys, sort=False)[columns].sum(min_count=1).where(_complete(timed, keys))


def per_pass(
    timed: pd.DataFrame, graph: str, pass_name: str | None, level: float, uses: Uses = USES
) -> Span | None:
    """Add up a pass of one model, or all of it; None where work has no time.

    Parameters
    ----------
    timed : DataFrame
        What `predict_graphs` gives.
    graph : str
    pass_name : str or None
        forward, backward, or None for both.
    level : float
    uses : mapping
        What use in a step adds to the error of single kernels.
    """
    rows = timed[timed["graph"] == graph]
    rows = rows if pass_name is None else rows[rows["pass_name"] == pass_name]
    if not len(rows) or bool(np.isnan(rows["time_s"]).any()):
        return None
    return device_time(rows, level, uses)
