"""Groups of the rows of an op table and their sums; work without a figure is counted apart and never adds 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd

from fomkit.schema import DIMENSIONS
from fomkit.views.places import scope_labels
from fomkit.views.shapes import shape_label

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

Grouping = Literal["kind", "op", "shape", "module", "pass", "scope", "code"]
GROUPINGS: Mapping[Grouping, str] = {
    "kind": "kind of work",
    "op": "the framework's name of the op",
    "shape": "kind and sizes",
    "module": "module that ran the op",
    "pass": "forward, backward (both gradients) and update",
    "scope": "module that ran the op, and the op in it",
    "code": "file, function and line of the user's code",
}
"""What rows may be grouped by, and what that means."""

MEASURES = ("flop", "byte", "time_s", "traced_time_s")
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
        An OPS table whose dimensions are numbers; for ``code`` one that was split by line
        (`fomkit.views.places.split_by_line`).
    by : str
        A key of `GROUPINGS`.
    """
    if by == "shape":
        return pd.Series(_shapes(ops), ops.index, dtype="str")
    if by == "scope":
        return pd.Series(scope_labels(ops), ops.index, dtype="str")
    column = {"pass": "pass_name", "code": "code_line"}.get(by, by)
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
    flop, byte, time_s, traced_s : float
        Sums over executions [flop, byte, s, s] of what is known; NaN where nothing is.
    flop_missing, byte_missing, time_missing, traced_missing : float
        Executions without a figure.
    intensity : float
        Arithmetic intensity [flop/byte] of the ops of which both are known.
    """

    count: float
    distinct: int
    flop: float
    byte: float
    time_s: float
    traced_s: float
    flop_missing: float
    byte_missing: float
    time_missing: float
    traced_missing: float
    intensity: float


def _intensity(flop: Array, byte: Array) -> float:
    both = ~(np.isnan(flop) | np.isnan(byte))
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
    count = ops["count"].to_numpy(np.float64)
    totals: dict[str, float] = {}
    missing: dict[str, float] = {}
    amounts = {name: ops[name].to_numpy(np.float64) * count for name in MEASURES if name in ops.columns}
    for measure in MEASURES:
        values = amounts.get(measure, np.full(len(ops), np.nan))
        unknown = np.isnan(values)
        totals[measure] = np.nan if unknown.all() else float(values[~unknown].sum())
        missing[measure] = float(count[unknown].sum())
    numbers = identities(ops) if distinct is None else distinct.loc[ops.index]
    return Sums(
        count=float(count.sum()),
        distinct=int(numbers.nunique()),
        flop=totals["flop"],
        byte=totals["byte"],
        time_s=totals["time_s"],
        traced_s=totals["traced_time_s"],
        flop_missing=missing["flop"],
        byte_missing=missing["byte"],
        time_missing=missing["time_s"],
        traced_missing=missing["traced_time_s"],
        intensity=_intensity(amounts["flop"], amounts["byte"]),
    )
