"""What every estimator takes and gives back, and how it reads a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from fomkit.hardware import Machine
from fomkit.schema import KIND_DIMENSIONS

if TYPE_CHECKING:
    from numpy.typing import NDArray

Record = Mapping[str, Any]
"""One row of a table: column to value."""

PRODUCTS = ("gemm", "sparse_gemm")
PASS_FREE = (*PRODUCTS, "collective")
"""Kinds whose time depends on the sizes alone, whatever pass they run in."""


class Timed(NamedTuple):
    """What an estimator says of one op: the columns of `fomkit.schema.TIMES`."""

    time_s: float
    low_s: float
    high_s: float
    time_source: str
    bound: str
    evidence: str


Estimator = Callable[[pd.DataFrame, Machine, float], dict[int, Timed]]
"""From COSTED rows, a machine and the level of the intervals to the rows it can price, by their index."""


def records(rows: pd.DataFrame) -> Iterator[tuple[int, Record]]:
    """Walk over the rows of a table with an integer index."""
    for index, record in zip(rows.index.tolist(), rows.to_dict("records"), strict=True):
        yield index, {str(name): value for name, value in record.items()}


def numbers(rows: pd.DataFrame, column: str, default: float = np.nan) -> NDArray[np.float64]:
    """Give a number column as float64, with ``default`` where it is empty or absent."""
    if column not in rows.columns:
        return np.full(len(rows), np.float64(default))
    values: NDArray[np.float64] = rows[column].to_numpy(np.float64)
    return np.where(np.isnan(values), np.float64(default), values)


def texts(rows: pd.DataFrame, column: str) -> pd.Series[str]:
    """Give a text column with "" where it is empty or absent."""
    if column not in rows.columns:
        return pd.Series("", rows.index, dtype="str")
    return rows[column].astype("str").fillna("")


def describe_sizes(row: Record) -> str:
    """Write the sizes of an op, leaving out the axes it does not have.

    Examples
    --------
    >>> describe_sizes({"kind": "gemm", "b": 1.0, "m": 100.0, "n": 1000.0, "k": 29532.0})
    'b 1, m 100, n 1000, k 29532'
    """
    sizes = {name: row[name] for name in KIND_DIMENSIONS[str(row["kind"])] if name in row}
    flat = sizes.get("depth") == 1 and sizes.get("kernel_d") == 1
    return ", ".join(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in sizes.items()
        if not (flat and (name == "depth" or name.endswith("_d"))) and not name.startswith("dilation")
    )
