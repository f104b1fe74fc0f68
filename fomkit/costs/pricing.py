"""The costs stage: from OPS to COSTED."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from fomkit.costs.columns import Columns
from fomkit.costs.formula import VARIANT_COLUMNS, CompiledCost, Variant
from fomkit.costs.methods import least_flop
from fomkit.dtypes import PRODUCT_KINDS, REAL_OF, REAL_PRODUCTS
from fomkit.schema import COSTS, TIMES, check_table

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

_WHERE = "add_costs"


def _groups(ops: pd.DataFrame) -> Iterator[tuple[str, Variant, CompiledCost, NDArray[np.intp]]]:
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
                # A table without the column is one whose cells are all empty: no formula fits.
                match &= cells[column][rows] == value if column in cells else False
            if match.any():
                yield kind, variant, cost, rows[match]


def _real_products(kind: str, ops: pd.DataFrame, rows: NDArray[np.intp]) -> NDArray[np.float64]:
    """Give the real products that stand for one of each row: four where its numbers are complex."""
    if kind not in PRODUCT_KINDS:
        return np.ones(len(rows))
    return np.where(ops["dtype"].isin(list(REAL_OF)).to_numpy()[rows], REAL_PRODUCTS, 1.0)


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
        The same rows and index with the columns flop [flop], byte [byte], launches and least_flop [flop]; NaN
        where the kind, the pass, the optimizer rule or the dtype has no formula, which means unpriced. A product
        of complex numbers is four real ones.

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
    for kind, variant, cost, rows in _groups(ops):
        cells = Columns(ops, rows, read)
        for name in cost._fields:
            columns[name][rows] = getattr(cost, name)(cells)
        flop = columns["flop"][rows]
        least = least_flop(cells, variant[-1], flop) if kind == "conv" else flop
        times = _real_products(kind, ops, rows)
        columns["flop"][rows], columns["least_flop"][rows] = flop * times, least * times
    return ops.assign(**columns)
