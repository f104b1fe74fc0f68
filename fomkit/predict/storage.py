"""Products in one order of storage, so that m and n of a timing mean what m and n of an op mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from fomkit.predict.rows import Rows, Table, are, words_of
from fomkit.schema import PRODUCT_LAYOUTS

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

COLUMN_MAJOR = PRODUCT_LAYOUTS[1]
_PAIRS = (("m", "n"), ("trans_a", "trans_b"))


@overload
def row_major(table: pd.DataFrame) -> pd.DataFrame: ...


@overload
def row_major(table: Rows) -> Rows: ...


def row_major(table: Table) -> Table:
    """Turn products in column-major order around: timings and the ops that are asked alike.

    A column-major (m×k)·(k×n) is the row-major (n×k)·(k×m) of the same memory, and it is the second that
    frameworks ask for: their product of a batch of 16 with 1760×1760 weights is the BLAS product m=1760, n=16.
    Sparse products stay as they are, because which factor is the sparse one is part of the op.

    Parameters
    ----------
    table : DataFrame or Rows
        A table of timings or of ops.

    Returns
    -------
    DataFrame or Rows
        The same rows; m and n, trans_a and trans_b have changed places where ``layout`` was column_major. The
        layout of products is empty then.

    Examples
    --------
    >>> import pandas as pd
    >>> blas = {"kind": "gemm", "layout": "column_major", "trans_a": 1.0, "trans_b": 0.0}
    >>> turned = row_major(pd.DataFrame([{**blas, "m": 1760.0, "n": 16.0}]))
    >>> turned[["m", "n", "trans_a", "trans_b"]].values.tolist()
    [[16.0, 1760.0, 0.0, 1.0]]
    """
    said = are(table, "kind", "gemm") & are(table, "layout", *PRODUCT_LAYOUTS)
    if not said.any():
        return table
    turned = said & are(table, "layout", COLUMN_MAJOR)
    if isinstance(table, Rows):
        layout = table.text("layout")
        cleared = words_of(np.where(said, len(layout.words), layout.codes), (*layout.words, ""))
        return table.assign(**_turned(table.number, _present(table.has), turned), layout=cleared)
    # The cells of a table that no one has sized yet are expressions.
    columns = _turned(lambda name: table.get(name, np.nan), _present(table.columns.__contains__), turned)
    return table.assign(**columns, layout=table["layout"].mask(said, ""))


def _present(has: Callable[[str], bool]) -> list[tuple[str, str]]:
    return [pair for pair in _PAIRS if any(map(has, pair))]


def _turned(
    column: Callable[[str], Any], pairs: list[tuple[str, str]], turned: NDArray[np.bool_]
) -> dict[str, Any]:
    both = [*pairs, *((other, one) for one, other in pairs)]
    return {one: np.where(turned, column(other), column(one)) for one, other in both}
