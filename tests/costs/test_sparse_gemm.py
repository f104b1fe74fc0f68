"""Costs of sparse products, and why a collective has none."""

from __future__ import annotations

import pytest
from costs.op_tables import BASE, gemm, table
from hypothesis import given
from hypothesis import strategies as st

from fomkit.ops.pricing import add_costs


def sparse(m: float, n: float, k: float, density: float, **more: object) -> dict[str, object]:
    return {**gemm(m, n, k), "kind": "sparse_gemm", "density": density, **more}


def test_a_case_by_hand() -> None:
    """DeepBench's 7680×2560 weights with 5 % non-zeros and four columns."""
    costed = add_costs(table(sparse(7680, 4, 2560, 0.05))).iloc[0]
    stored = 983_040
    assert costed["flop"] == 2 * stored * 4
    assert costed["byte"] == stored * (4 + 4) + 7681 * 4 + 4 * (2560 * 4 + 7680 * 4)
    assert costed["launches"] == 1


@given(st.floats(0.001, 1), st.integers(1, 4096), st.integers(1, 4096), st.integers(1, 4096))
def test_work_grows_with_density_up_to_the_dense_product(density: float, m: int, n: int, k: int) -> None:
    rows = add_costs(table(sparse(m, n, k, density), sparse(m, n, k, 1.0), gemm(m, n, k)))
    assert rows["flop"].iloc[0] == pytest.approx(density * rows["flop"].iloc[2])
    assert rows["flop"].iloc[1] == rows["flop"].iloc[2]
    # Indices make a full "sparse" matrix larger than a dense one.
    assert rows["byte"].iloc[1] > rows["byte"].iloc[2]
    assert rows["byte"].iloc[0] <= rows["byte"].iloc[1]


def test_bytes_of_bytes_keep_their_wide_indices() -> None:
    rows = add_costs(table(sparse(64, 1, 100, 0.5), sparse(64, 1, 100, 0.5, dtype="int8")))
    stored = 3200
    assert rows["byte"].iloc[0] - rows["byte"].iloc[1] == 3 * (stored + 100 + 64)


def test_a_collective_is_unpriced_because_no_memory_bounds_it() -> None:
    reduce = {"kind": "collective", "collective": "all_reduce", "message_byte": 4e5, "ranks": 8.0, "link": "node"}
    costed = add_costs(table({**BASE, **reduce}))
    assert costed[["flop", "byte", "launches"]].isna().all(axis=None)
