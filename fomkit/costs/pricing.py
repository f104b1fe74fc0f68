"""The costs stage: from OPS to COSTED."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from fomkit.costs.formula import VARIANT_COLUMNS, CompiledCost
from fomkit.dtypes import ITEM_BYTE
from fomkit.schema import COSTS, TIMES, check_table

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

_WHERE = "add_costs"
DEFAULTS: Mapping[str, float] = dict.fromkeys(("transposed", "output_pad_d", "output_pad_h", "output_pad_w"), 0.0)


def _groups(ops: pd.DataFrame) -> Iterator[tuple[CompiledCost, NDArray[np.intp]]]:
    from fomkit.costs.compiled import COMPILED

    names = {"kind", *(name for columns in VARIANT_COLUMNS.values() for name in columns)} & set(ops.columns)
    cells = {name: ops[name].to_numpy(object) for name in names}
    present = set(ops["kind"].unique())
    for kind, variants in COMPILED.items():
        if kind not in present:
            continue
        rows = np.flatnonzero(cells["kind"] == kind)
        for variant, cost in variants.items():
            match = np.ones(len(rows), bool)
            for column, value in zip(VARIANT_COLUMNS.get(kind, ()), variant, strict=True):
                match &= cells[column][rows] == value
            if match.any():
                yield cost, rows[match]


class _Columns:
    """The columns of one group of rows by name, read when a formula asks for them."""

    def __init__(self, ops: pd.DataFrame, rows: NDArray[np.intp], read: dict[str, NDArray[np.float64]]) -> None:
        self._ops, self._rows, self._read = ops, rows, read

    def __getattr__(self, column: str) -> NDArray[np.float64]:
        # Python asks this once for each column, and finds it as an attribute from then on.
        values = self.__dict__[column] = self._column(column)
        return values

    def _column(self, column: str) -> NDArray[np.float64]:
        if column == "item_byte":
            return np.array([ITEM_BYTE[name] for name in self._ops["dtype"].to_numpy()[self._rows]])
        default = DEFAULTS.get(column, np.nan)
        if column not in self._ops.columns:
            return np.asarray(default, np.float64)
        if column not in self._read:
            values: NDArray[np.float64] = self._ops[column].to_numpy(np.float64)
            self._read[column] = np.where(np.isnan(values), np.float64(default), values)
        return self._read[column][self._rows]


def add_costs(ops: pd.DataFrame, *, checked: bool = False) -> pd.DataFrame:
    """Add what one execution of each op costs.

    Parameters
    ----------
    ops : DataFrame
        An OPS table, or a TIMINGS table, which has no ``count``; every dimension is a number (float64).
    checked : bool
        True where the caller has checked the table, or made it.

    Returns
    -------
    DataFrame
        The same rows and index with the columns flop [flop], byte [byte] and launches; NaN where the kind, the
        pass, the optimizer rule or the dtype has no formula, which means unpriced.

    Raises
    ------
    ManyFomkitError
        When a column or a dimension is missing.

    Examples
    --------
    >>> import pandas as pd
    >>> op = {"op": "mm", "kind": "gemm", "dtype": "fp32", "engine": "vector", "pass_name": "forward"}
    >>> ops = pd.DataFrame([{**op, "count": 1.0, "b": 1.0, "m": 2.0, "n": 3.0, "k": 5.0}])
    >>> add_costs(ops)[["flop", "byte", "launches"]].iloc[0].tolist()
    [60.0, 124.0, 1.0]
    """
    if not checked:
        table = "OPS" if "count" in ops.columns else "TIMINGS"
        later = (*COSTS, *TIMES) if table == "OPS" else COSTS
        check_table(ops.drop(columns=[column.name for column in later], errors="ignore"), table, _WHERE)
    columns = {column.name: np.full(len(ops), np.nan) for column in COSTS}
    read: dict[str, NDArray[np.float64]] = {}
    for cost, rows in _groups(ops):
        cells = _Columns(ops, rows, read)
        for name, values in columns.items():
            values[rows] = getattr(cost, name)(cells)
    return ops.assign(**columns)
