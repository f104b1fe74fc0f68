"""One order for the rows of a table, so that no number hangs on how somebody sorted a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fomkit.schema.columns import TABLES

if TYPE_CHECKING:
    import pandas as pd


def in_order(timings: pd.DataFrame) -> pd.DataFrame:
    """Sort timings by all their columns, those of the schema in its order; other columns ride along.

    A sum of floats hangs on the order of its terms, and so do rules that take the first of equals or every tenth
    row. Rows that agree in every column are one another's equals, so any order of a table gives the same result.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = pd.DataFrame({"kind": ["gemm", "conv", "gemm"], "m": [2.0, float("nan"), 1.0]})
    >>> in_order(rows)["m"].tolist()
    [nan, 1.0, 2.0]
    """
    import numpy as np
    import pandas as pd

    keys = []
    for column in TABLES["TIMINGS"]:
        if column.name not in timings.columns:
            continue
        if column.dtype == "number":
            keys.append(timings[column.name].to_numpy(np.float64))
        else:
            codes, words = pd.factorize(timings[column.name].fillna("").astype("str").to_numpy(object), sort=True)
            if len(words) > 1:
                keys.append(codes)
    order = np.lexsort(keys[::-1]) if keys else np.arange(len(timings))
    if np.array_equal(order, np.arange(len(timings))):
        return timings
    return timings.take(order).reset_index(drop=True)
