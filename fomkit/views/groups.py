"""Groups of the rows of an op table and their sums; work without a figure is counted apart and never adds 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from fomkit.schema import DIMENSIONS
from fomkit.views.shapes import shape_label

Grouping = Literal["kind", "op", "shape", "module", "pass"]
GROUPINGS: Mapping[Grouping, str] = {
    "kind": "kind of work",
    "op": "the framework's name of the op",
    "shape": "kind and sizes",
    "module": "module that ran the op",
    "pass": "forward, backward (both gradients) and update",
}
"""What rows may be grouped by, and what that means."""

MEASURES = ("flop", "byte", "time_s")
_IDENTITY = ("op", "kind", "dtype", "engine", "pass_name", *(column.name for column in DIMENSIONS))


def _shapes(ops: pd.DataFrame) -> list[str]:
    formats = ops["dtype"].astype("str") + " " + ops["engine"].astype("str")
    usual = formats.mode()
    labels = [shape_label({str(name): cell for name, cell in row.items()}) for row in ops.to_dict("records")]
    # Most ops of a step share one format, which need not stand in every label.
    return [
        label if form == usual.iloc[0] else f"{label}, {form}" for label, form in zip(labels, formats, strict=True)
    ]


def group_labels(ops: pd.DataFrame, by: Grouping) -> pd.Series[str]:
    """Name the group of each row.

    Parameters
    ----------
    ops : DataFrame
        An OPS table whose dimensions are numbers.
    by : str
        A key of `GROUPINGS`.
    """
    if by == "shape":
        return pd.Series(_shapes(ops), ops.index, dtype="str")
    column = {"pass": "pass_name"}.get(by, by)
    if column not in ops.columns:
        return pd.Series("", ops.index, dtype="str")
    return ops[column].astype("str").fillna("")


@dataclass(frozen=True)
class Sums:
    """The work of some ops in one step.

    Attributes
    ----------
    count : float
        Executions.
    distinct : int
        Ops that differ in name, sizes, number format, engine or pass.
    flop, byte, time_s : float
        Sums over executions [flop, byte, s] of what is known; NaN where nothing is.
    flop_missing, byte_missing, time_missing : float
        Executions without a figure.
    intensity : float
        Arithmetic intensity [flop/byte] of the ops of which both are known.
    """

    count: float
    distinct: int
    flop: float
    byte: float
    time_s: float
    flop_missing: float
    byte_missing: float
    time_missing: float
    intensity: float


def _intensity(flop: pd.Series, byte: pd.Series) -> float:
    both = flop.notna() & byte.notna()
    moved = float(byte[both].sum())
    return float(flop[both].sum()) / moved if moved > 0 else np.nan


def identities(ops: pd.DataFrame) -> pd.Series[int]:
    """Give each distinct op a number; ops differ in name, sizes, number format, engine or pass."""
    keys = [ops[name] for name in _IDENTITY if name in ops.columns]
    return ops.groupby(keys, dropna=False, sort=False).ngroup()


def add_up(ops: pd.DataFrame, distinct: pd.Series[int] | None = None) -> Sums:
    """Add up some rows of an op table.

    Parameters
    ----------
    ops : DataFrame
        With count, flop, byte, and time_s where there are times.
    distinct : Series, optional
        `identities` of a table that has these rows, worked out once for many groups of it.

    Examples
    --------
    >>> rows = pd.DataFrame({"op": ["mm", "?"], "count": [2.0, 3.0], "flop": [8.0, None], "byte": [4.0, 1.0]})
    >>> found = add_up(rows)
    >>> found.count, found.flop, found.flop_missing, found.byte, found.intensity
    (5.0, 16.0, 3.0, 11.0, 2.0)
    """
    count = ops["count"]
    totals: dict[str, float] = {}
    missing: dict[str, float] = {}
    for measure in MEASURES:
        known = ops[measure].notna() if measure in ops.columns else pd.Series(data=False, index=ops.index)
        values = (ops[measure] * count)[known] if measure in ops.columns else pd.Series(dtype="float64")
        totals[measure] = float(values.sum()) if known.any() else np.nan
        missing[measure] = float(count[~known].sum())
    numbers = identities(ops) if distinct is None else distinct.loc[ops.index]
    return Sums(
        count=float(count.sum()),
        distinct=int(numbers.nunique()),
        flop=totals["flop"],
        byte=totals["byte"],
        time_s=totals["time_s"],
        flop_missing=missing["flop"],
        byte_missing=missing["byte"],
        time_missing=missing["time_s"],
        intensity=_intensity(ops["flop"] * count, ops["byte"] * count),
    )
