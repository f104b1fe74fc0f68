"""Thin products: a matrix and a vector, or a few, are read once from memory; wide ones are no evidence."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from costs.op_tables import gemm, table
from predict.machines import loaded

from fomkit.ops.pricing import add_costs
from fomkit.prediction.cascade import add_times
from fomkit.prediction.tiles import mix, thinness

TABLES_FROM_EIGHT = ("titan-x", "m40", "p100", "v100")
"""DeepBench's training list has no product of fewer than 8 rows or columns."""


def timed(name: str, *shapes: tuple[int, int, int], bare: bool = False):
    machine = loaded(name)
    if bare:
        machine = replace(machine, timings=machine.timings.iloc[:0], fits={})
    costed = add_costs(table(*(gemm(*shape) for shape in shapes)))
    return machine, add_times(costed, machine)


@pytest.mark.parametrize("name", TABLES_FROM_EIGHT)
@pytest.mark.parametrize("bare", [False, True], ids=["table", "facts"])
def test_a_matrix_and_a_vector_stream_at_half_of_the_bandwidth_or_more(name: str, bare: bool) -> None:
    machine, found = timed(name, (1, 4096, 4096), (1, 4096, 9216), (4096, 1, 4096), (1, 8192, 8192), bare=bare)
    reached = found["byte"] / found["time_s"] / machine.device.byte_per_s.value
    assert reached.between(0.5, 0.95).all(), reached.tolist()
    assert found["bound"].eq("memory").all()
    assert found["evidence"].str.contains("matvec").all()


def test_an_untimed_vector_is_called_roofline_and_a_timed_one_stays_with_its_table() -> None:
    assert timed("titan-x", (1, 4096, 4096))[1]["time_source"].tolist() == ["roofline"]
    # The A100's table has products of one row: they speak for themselves.
    costed = add_costs(table({**gemm(1, 6144, 3000), "dtype": "bf16", "engine": "matrix", "trans_b": 1.0}))
    found = add_times(costed, loaded("a100-sxm"))
    assert found["time_source"].tolist() == ["interpolated"]


def test_a_few_rows_lie_between_a_vector_and_the_timed_ones_with_a_wider_interval() -> None:
    _, found = timed("titan-x", *((rows, 4096, 4096) for rows in (1, 2, 4, 8, 16)))
    assert found["time_s"].is_monotonic_increasing
    wide = np.log(found["high_s"] / found["low_s"])
    assert wide[1:3].min() > wide[4]


def test_a_few_rows_take_no_less_than_the_start_that_their_table_knows() -> None:
    """They use the kernels of large products, which start in 64 µs here; a vector's kernel starts faster."""
    machine, found = timed("titan-x", (1, 1000, 1000), (2, 1000, 1000))
    start_s = machine.fits["gemm/fp32/vector"]["mean"][0]
    assert start_s == pytest.approx(63.5e-6, rel=1e-3)
    assert found["time_s"].iloc[0] < start_s < found["time_s"].iloc[1]


def test_products_from_eight_rows_are_what_their_table_says() -> None:
    _, found = timed("titan-x", (8, 4096, 4096), (64, 4096, 4096))
    assert not found["evidence"].str.contains("matvec").any()


def test_a_mixture_is_wider_where_its_parts_disagree() -> None:
    first, second = np.log([[1.0], [0.8], [1.25]]), np.log([[2.0], [1.6], [2.5]])
    value, low, high = np.exp(mix(first, second, np.array([0.5]), 0.8))[:, 0]
    assert value == pytest.approx(2**0.5)
    assert high / low > 1.25 / 0.8
    assert mix(first, second, np.array([0.0]), 0.8) == pytest.approx(first)
    assert mix(first, second, np.array([1.0]), 0.8) == pytest.approx(second)


def test_thinness_counts_the_smaller_side() -> None:
    rows = table(gemm(1, 64, 64), gemm(64, 1, 64), gemm(2, 64, 1), gemm(8, 64, 64), gemm(64, 64, 1))
    assert thinness(rows).round(3).tolist() == [1.0, 1.0, 0.667, 0.0, 0.0]


def test_without_a_stated_launch_cost_a_vector_starts_as_its_table_does() -> None:
    """By facts alone a small one took 0.1 µs on the KNL, and a product of two rows 17."""
    ops = timed("knl-7250", (1, 256, 64), (2, 256, 64))[1]
    assert (ops["low_s"] < 0.9 * ops["time_s"]).all()
    assert (ops["high_s"] > 1.1 * ops["time_s"]).all()
    found = ops["time_s"]
    assert found.iloc[0] == pytest.approx(found.iloc[1], rel=0.05)
