"""Products in one order of storage, so that m and n of a timing mean what m and n of an op mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fomkit.predict.rows import are

if TYPE_CHECKING:
    import pandas as pd

COLUMN_MAJOR = "column_major"
_PAIRS = (("m", "n"), ("trans_a", "trans_b"))


def row_major(timings: pd.DataFrame) -> pd.DataFrame:
    """Turn products that were timed in column-major order around.

    A column-major (m×k)·(k×n) is the row-major (n×k)·(k×m) of the same memory, and it is the second that
    frameworks ask for: their product of a batch of 16 with 1760×1760 weights is the BLAS product m=1760, n=16.
    Sparse products stay as they are, because which factor is the sparse one is part of the op.

    Parameters
    ----------
    timings : DataFrame
        A TIMINGS table.

    Returns
    -------
    DataFrame
        The same rows; m and n, trans_a and trans_b have changed places where ``layout`` was column_major, which is
        then empty.

    Examples
    --------
    >>> import pandas as pd
    >>> blas = {"kind": "gemm", "layout": "column_major", "trans_a": 1.0, "trans_b": 0.0}
    >>> turned = row_major(pd.DataFrame([{**blas, "m": 1760.0, "n": 16.0}]))
    >>> turned[["m", "n", "trans_a", "trans_b"]].values.tolist()
    [[16.0, 1760.0, 0.0, 1.0]]
    """
    turned = np.asarray((timings["kind"] == "gemm") & are(timings, "layout", COLUMN_MAJOR), bool)
    if not turned.any():
        return timings
    columns = {}
    for one, other in _PAIRS:
        if one in timings.columns and other in timings.columns:
            columns[one] = np.where(turned, timings[other], timings[one])
            columns[other] = np.where(turned, timings[one], timings[other])
    return timings.assign(**columns, layout=timings["layout"].mask(turned, ""))
