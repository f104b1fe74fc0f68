"""Thinning draws rows by their sizes alone: the same ones every time, in any order, and fairly."""

from __future__ import annotations

import doctest
import importlib.util
from pathlib import Path

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "modern_machines.py"
spec = importlib.util.spec_from_file_location("modern_machines", SCRIPT)
script = importlib.util.module_from_spec(spec)
spec.loader.exec_module(script)
draw, thin_timings, whole_loads = script.draw, script.thin_timings, script.whole_loads


def test_the_examples_hold():
    found = doctest.testmod(script)
    assert found.attempted
    assert not found.failed


def products(sizes: list[tuple[int, int]], dtype: str = "bf16") -> pd.DataFrame:
    frame = pd.DataFrame(sizes, columns=["m", "n"], dtype="float64")
    fixed = {"kind": "gemm", "dtype": dtype, "engine": "matrix", "pass_name": "", "op": "", "note": ""}
    return frame.assign(b=1.0, k=64.0, time_s=1e-3, **fixed)


GRID = [(2**m, 2**n) for m in range(8) for n in range(8)]


@given(st.permutations(range(64)), st.integers(1, 64))
def test_the_same_rows_are_drawn_in_any_order(order, count):
    table = products([GRID[at] for at in order])
    thinned = thin_timings(table, {"gemm": count})
    assert len(thinned) == count
    assert thinned.index.is_monotonic_increasing
    pd.testing.assert_frame_equal(thinned, table.loc[thinned.index])
    reference = thin_timings(products(GRID), {"gemm": count})
    assert set(zip(thinned["m"], thinned["n"], strict=True)) == set(
        zip(reference["m"], reference["n"], strict=True)
    )


def test_more_rows_only_add():
    few, more = (set(draw(np.array(GRID, float), count).tolist()) for count in (10, 30))
    assert few < more


def test_equal_sizes_stay_together():
    thinned = thin_timings(products([size for size in GRID for _ in range(3)]), {"gemm": 10})
    assert set(thinned.groupby(["m", "n"]).size()) == {3}
    assert len(thinned) == 12


def test_parts_are_thinned_apart_and_other_kinds_stay():
    other = products(GRID).assign(kind="collective", collective="all_reduce", message_byte=1.0, ranks=2.0)
    table = pd.concat([products(GRID), products(GRID, "fp8"), other], ignore_index=True)
    counts = thin_timings(table, {"gemm": 10}).groupby(["kind", "dtype"]).size()
    assert counts.to_dict() == {("gemm", "bf16"): 10, ("gemm", "fp8"): 10, ("collective", "bf16"): 64}


def test_the_draw_is_fair():
    """A tenth of each half of a grid, within four standard deviations."""
    sizes = np.array([(m, n) for m in range(1, 101) for n in range(1, 101)], float)
    drawn = sizes[draw(sizes, 1000)]
    for column in (0, 1):
        for low in (0, 50):
            count = ((drawn[:, column] > low) & (drawn[:, column] <= low + 50)).sum()
            assert abs(count - 500) < 4 * np.sqrt(1000 * 0.25)
        assert abs((drawn[:, column] % 2 == 0).sum() - 500) < 4 * np.sqrt(1000 * 0.25)


def test_rows_kept_apart_are_drawn_for_themselves():
    """A tenth of all rows would contain few of the eight; as a separate part all are kept."""
    table = products([(8 * at, 64) for at in range(1, 9)] + [(8 * at + 1, 64) for at in range(1, 57)])
    apart = whole_loads(table)
    assert apart.sum() == 8
    thinned = thin_timings(table, {"gemm": 8}, apart)
    assert (len(thinned), int(whole_loads(thinned).sum())) == (16, 8)
    assert whole_loads(thin_timings(table, {"gemm": 8})).sum() < 8
