"""A table of some sizes, asked for others: its intervals hold there too, on tables that ship."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fomkit
from fomkit.ops.pricing import add_costs
from fomkit.prediction.exact import row_major
from fomkit.validation.deepbench_folds import fit_and_predict


def chosen(rows: pd.DataFrame, sizes: str) -> pd.Series:
    """Return which products have these sizes."""
    if sizes == "powers of two":
        return (np.log2(rows[["m", "n", "k"]]) % 1 == 0).all(axis=1)
    return rows["flop"].rank(pct=True) >= 0.6


def products(name: str) -> pd.DataFrame:
    """Return the single products in fp32 of a shipped table, each once."""
    timings = row_major(fomkit.machine(name).timings)
    timings = timings[(timings["kind"] == "gemm") & (timings["dtype"] == "fp32") & (timings["b"] == 1)]
    costed = add_costs(timings.drop_duplicates(["m", "n", "k"]).reset_index(drop=True))
    return costed.assign(_time_s=costed["time_s"] - costed["harness_s"].fillna(0.0), _step_s=0.0)


@pytest.mark.parametrize(
    ("sizes", "count"), [("large", 40), ("powers of two", 60), ("large", 150), ("powers of two", 150)]
)
def test_intervals_hold_for_products_of_other_sizes_than_the_timed_ones(sizes: str, count: int) -> None:
    """The T4's products, without tables of like chips. Where all are large, none shows what a start costs."""
    rows = products("t4")
    rows = rows.iloc[np.random.default_rng(1).permutation(len(rows))]
    timed = rows[chosen(rows, sizes)].head(count)
    others = rows.drop(index=timed.index).head(150).reset_index(drop=True)
    found = fit_and_predict(timed, others, fomkit.machine("t4"))
    hits = np.mean((found.low <= found.truth) & (found.truth <= found.high))
    assert 0.7 < hits < 0.92
    assert abs(np.log(found.value / found.truth).mean()) < 0.15
