"""The costs stage: from OPS to COSTED."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from fomkit.costs import attention, conv, elementwise, gemm, optimizer, recurrent
from fomkit.costs.formula import PASSES, Formula, Row, Variant, columns_of
from fomkit.costs.methods import least_flop
from fomkit.dtypes import PRODUCT_KINDS, REAL_OF, REAL_PRODUCTS
from fomkit.schema import COSTS, TIMES, check_table

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

_WHERE = "add_costs"

BOTH_PASSES = (("forward",), ("backward",))
FORMULAS: Mapping[str, Formula] = {
    "gemm": Formula(gemm.gemm),
    "sparse_gemm": Formula(gemm.sparse_gemm),
    "conv": Formula(conv.conv, ("pass_name",), tuple((name,) for name in PASSES), conv.PARTS),
    "rnn": Formula(recurrent.rnn, ("cell", "pass_name"), tuple(product(recurrent.GATES, PASSES))),
    "attention": Formula(attention.attention, ("pass_name",), BOTH_PASSES),
    "pointwise": Formula(elementwise.per_element),
    "reduction": Formula(elementwise.per_element),
    "norm": Formula(elementwise.norm, ("pass_name",), BOTH_PASSES),
    "softmax": Formula(elementwise.softmax, ("pass_name",), BOTH_PASSES),
    "pool": Formula(elementwise.per_element),
    "embedding": Formula(elementwise.moved),
    "copy": Formula(elementwise.moved),
    "optimizer": Formula(optimizer.optimizer, ("rule", "impl"), optimizer.VARIANTS),
    "other": Formula(elementwise.per_element),
}
"""The priced kinds. A kind that is not here stays unpriced: NaN, never 0. A collective has no place here: it waits
for links, so device memory and arithmetic set no floor of its time."""

CHOOSERS = tuple(dict.fromkeys(name for formula in FORMULAS.values() for name in formula.chosen_by))
"""The text columns that choose among the formulas of kinds."""


def products_in_one(kind: str, dtype: str) -> float:
    """Count the real products that stand for one of a kind: four where its numbers are complex."""
    return REAL_PRODUCTS if kind in PRODUCT_KINDS and dtype in REAL_OF else 1.0


def _groups(ops: pd.DataFrame) -> Iterator[tuple[str, Variant, NDArray[np.intp]]]:
    """Give the positions of the priced rows of each kind and variant."""
    kinds = ops["kind"].to_numpy(object)
    cells = {name: ops[name].to_numpy(object) for name in CHOOSERS if name in ops.columns}
    for kind in dict.fromkeys(kinds.tolist()):
        if kind not in FORMULAS:
            continue
        formula, rows = FORMULAS[kind], np.flatnonzero(kinds == kind)
        if not formula.chosen_by:
            yield kind, (), rows
        elif all(name in cells for name in formula.chosen_by):
            # A table without such a column is one whose cells are all empty: no formula fits.
            found = list(zip(*(cells[name][rows].tolist() for name in formula.chosen_by), strict=True))
            for variant in dict.fromkeys(found):
                if variant in formula.variants:
                    yield kind, variant, rows[[one == variant for one in found]]


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
    dtypes = ops["dtype"].to_numpy(object)
    for kind, variant, rows in _groups(ops):
        formula = FORMULAS[kind]
        row = Row(columns_of(ops, rows, read), formula.parts)
        for name, values in formula.of(variant, row)._asdict().items():
            columns[name][rows] = values
        flop = columns["flop"][rows]
        least = least_flop(row, variant[-1], flop) if kind == "conv" else flop
        times = np.array([products_in_one(kind, dtype) for dtype in dtypes[rows].tolist()])
        columns["flop"][rows], columns["least_flop"][rows] = flop * times, least * times
    return ops.assign(**columns)
