"""Thinning keeps the spread of a table, and the same rows every time."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fomkit.timings.thinning import spread_out, thin_timings


def products(sizes: list[tuple[int, int]], dtype: str = "bf16") -> pd.DataFrame:
    frame = pd.DataFrame(sizes, columns=["m", "n"], dtype="float64")
    fixed = {"kind": "gemm", "dtype": dtype, "engine": "matrix", "pass_name": "", "op": "", "note": ""}
    return frame.assign(b=1.0, k=64.0, time_s=1e-3, **fixed)


GRID = [(2**m, 2**n) for m in range(8) for n in range(8)]


def test_the_corners_of_a_grid_are_kept():
    kept = thin_timings(products(GRID), {"gemm": 9})
    assert len(kept) == 9
    assert {(1, 1), (1, 128), (128, 1), (128, 128)} <= set(zip(kept["m"], kept["n"], strict=True))


@given(st.permutations(range(64)), st.integers(1, 64))
def test_rows_are_a_subset_in_their_order(order, count):
    table = products([GRID[at] for at in order])
    kept = thin_timings(table, {"gemm": count})
    assert len(kept) == count
    assert kept.index.is_monotonic_increasing
    pd.testing.assert_frame_equal(kept, table.loc[kept.index])
    pd.testing.assert_frame_equal(kept, thin_timings(table, {"gemm": count}))


def test_parts_are_thinned_apart_and_other_kinds_stay():
    other = products(GRID).assign(kind="collective", collective="all_reduce", message_byte=1.0, ranks=2.0)
    table = pd.concat([products(GRID), products(GRID, "fp8"), other], ignore_index=True)
    counts = thin_timings(table, {"gemm": 10}).groupby(["kind", "dtype"]).size()
    assert counts.to_dict() == {("gemm", "bf16"): 10, ("gemm", "fp8"): 10, ("collective", "bf16"): 64}


@pytest.mark.parametrize("count", [2, 5, 20])
def test_the_largest_gap_is_below_twice_the_smallest_distance_kept(count):
    """What makes the choice no worse than twice the best: every point lies nearer than any two kept ones."""
    points = np.random.default_rng(0).normal(size=(200, 3))
    kept = points[spread_out(points, count)]
    apart = np.linalg.norm(points[:, None] - kept[None], axis=2)
    between = np.linalg.norm(kept[:, None] - kept[None], axis=2)[np.triu_indices(count, 1)]
    assert apart.min(axis=1).max() <= between.min() + 1e-12
