"""Estimators `stand_in`: products in a storage order that the table lacks, and data moved as timed ops move it."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist

import pytest
from costs.op_tables import attention, conv, gemm, table, traffic
from predict.machines import device, fact, machine, timings

from fomkit.ops.families.costs import NORM_FLOP, SOFTMAX_FLOP
from fomkit.ops.pricing import add_costs
from fomkit.plan.evidence import nearest_timings
from fomkit.prediction.cascade import add_times
from fomkit.prediction.transfer import (
    ADDRESS,
    BROAD,
    BROAD_ORDER_SPREAD,
    COPIED_SPREAD,
    FEWEST,
    FORMAT_SPREAD,
    FORWARD_FLOP,
    ORDER_SPREAD,
    _classes,
)

ROUND = device(bandwidth=fact(1e12), fp32_vector=1e13)


def products(count, **order):
    return [{**gemm(64.0 * at, 64.0, 64.0), **order, "op": "", "time_s": 1e-5 * at} for at in range(1, count + 1)]


def asked(**order):
    return add_costs(table({**gemm(128.0, 64.0, 64.0), **order}))


@pytest.mark.parametrize(("trans_a", "trans_b"), [(0.0, 1.0), (1.0, 0.0), (1.0, 1.0)])
def test_a_product_in_an_unknown_storage_order_takes_the_time_of_the_known_one_with_a_wider_interval(
    trans_a, trans_b
):
    known = machine(ROUND, timings(*products(FEWEST, trans_a=trans_a, trans_b=trans_b)))
    orders = {"trans_a": trans_a, "trans_b": trans_b}, {"trans_a": 0.0, "trans_b": 0.0}
    same, other = (add_times(asked(**order), known).iloc[0] for order in orders)
    assert (same["time_source"], other["time_source"]) == ("measured", "transferred")
    assert other["time_s"] == same["time_s"]
    spread = NormalDist().inv_cdf(0.9) * ORDER_SPREAD
    assert math.log(other["high_s"] / other["time_s"]) == pytest.approx(spread)
    assert math.log(other["time_s"] / other["low_s"]) == pytest.approx(spread)
    said = f"timed with trans_a {trans_a:g}, trans_b {trans_b:g}; its own storage order is not in the table"
    assert said in other["evidence"]


@pytest.mark.parametrize(("n", "spread"), [(BROAD, BROAD_ORDER_SPREAD), (BROAD - 1, ORDER_SPREAD)])
def test_the_storage_order_of_a_broad_product_matters_less(n: float, spread: float) -> None:
    rows = [{**row, "n": n} for row in products(FEWEST, trans_a=0.0, trans_b=1.0)]
    known = machine(ROUND, timings(*rows))
    asked_rows = add_costs(table({**gemm(BROAD, n, 64.0), "trans_a": 0.0, "trans_b": 0.0}))
    found = add_times(asked_rows, known).iloc[0]
    same = add_times(add_costs(table({**gemm(BROAD, n, 64.0), "trans_a": 0.0, "trans_b": 1.0})), known).iloc[0]
    added = math.log(found["high_s"] / found["time_s"]) ** 2 - math.log(same["high_s"] / same["time_s"]) ** 2
    assert found["time_source"] == "transferred"
    assert math.sqrt(added) == pytest.approx(NormalDist().inv_cdf(0.9) * spread)


def test_products_of_two_matrices_and_more_are_batched():
    rows = [{**gemm(64.0, 64.0, 64.0), "b": b} for b in (1.0, 2.0, 3.0)]
    assert _classes(table(*rows)).cells().tolist() == [
        "fp32/vector/single",
        "fp32/vector/batched",
        "fp32/vector/batched",
    ]


def test_an_order_that_the_table_has_or_does_not_state_is_not_replaced():
    both = machine(
        ROUND, timings(*products(FEWEST, trans_a=0.0, trans_b=1.0), *products(FEWEST, trans_a=0.0, trans_b=0.0))
    )
    few = machine(ROUND, timings(*products(FEWEST - 1, trans_a=0.0, trans_b=1.0)))
    open_order = machine(ROUND, timings(*products(FEWEST)))
    own = [{**row, "n": 32.0} for row in products(FEWEST, trans_a=0.0, trans_b=0.0)]
    enough = machine(ROUND, timings(*products(FEWEST + 1, trans_a=0.0, trans_b=1.0), *own))
    sources = [
        add_times(asked(trans_a=0.0, trans_b=0.0), known)["time_source"].iloc[0]
        for known in (both, few, open_order, enough)
    ]
    assert sources == ["measured", "roofline", "measured", "roofline"]


def test_a_gradient_of_an_element_wise_op_moves_data_as_the_forward_op_of_this_traffic():
    op = traffic("pointwise", 1e6)
    known = machine(ROUND, timings({**op, "op": "aten::relu", "pass_name": "forward", "time_s": 1e-5}))
    rows = add_costs(
        table(
            {**op, "op": "aten::tanh_backward", "pass_name": "backward"},
            {**op, "kind": "copy", "op": "aten::clone"},
        )
    )
    timed = add_times(rows, known)
    assert timed["time_source"].tolist() == ["transferred", "roofline"]
    assert timed["time_s"].iloc[0] == 1e-5
    assert timed["low_s"].iloc[0] < 1e-5 < timed["high_s"].iloc[0]
    assert "as an element-wise op of this traffic (measured" in timed["evidence"].iloc[0]


def test_a_copy_on_a_gpu_takes_longer_than_an_element_wise_op_by_what_its_addresses_show_beside_the_traffic():
    op = traffic("pointwise", 1e6)
    known = timings({**op, "op": "aten::relu", "pass_name": "forward", "time_s": 1e-5})
    rows = add_costs(
        table(
            {**op, "kind": "copy", "op": "aten::clone"},
            {**op, "kind": "copy", "op": "aten::zeros", "read_byte": 0.0, "write_byte": 12e6},
        )
    )
    boards = [replace(ROUND, units=fact(80.0), peaks=device(fp32_vector=rate).peaks) for rate in (1e13, 4e13)]
    timed, faster = (add_times(rows, machine(board, known)) for board in boards)
    assert timed["time_source"].tolist() == ["transferred", "roofline"]
    assert timed["time_s"].iloc[0] == pytest.approx(math.hypot(1e-5, 1e6 * 2 * ADDRESS / 1e13))
    assert 1e-5 < faster["time_s"].iloc[0] < 1.05e-5
    wide = math.log(timed["high_s"].iloc[0] / timed["time_s"].iloc[0])
    assert wide == pytest.approx(NormalDist().inv_cdf(0.9) * COPIED_SPREAD)
    assert "1.41 × an element-wise op (measured" in timed["evidence"].iloc[0]


def test_a_gradient_over_rows_takes_what_its_forward_pass_takes_per_byte():
    forward = traffic("norm", 1e6, row=100.0, read_byte=4e6, write_byte=4e6)
    known = machine(
        ROUND,
        timings({**forward, "op": "aten::native_layer_norm", "pass_name": "forward", "time_s": 3e-5}),
    )
    gradient = {**forward, "op": "aten::native_layer_norm_backward", "pass_name": "backward", "read_byte": 16e6}
    softmax = {**gradient, "kind": "softmax", "op": "aten::_softmax_backward_data"}
    timed = add_times(add_costs(table(gradient, softmax)), known)
    assert timed["time_source"].tolist() == ["transferred", "roofline"]
    assert timed["time_s"].iloc[0] == pytest.approx(2.5 * 3e-5)
    assert timed["low_s"].iloc[0] < 2.5 * 3e-5 < timed["high_s"].iloc[0]
    assert "as its forward pass of this traffic (measured" in timed["evidence"].iloc[0]


HALVES = device(bandwidth=fact(1e12), fp16_matrix=1e14, bf16_matrix=1e14)
BF16 = {"dtype": "bf16", "engine": "matrix"}


@pytest.mark.parametrize("op", [gemm(512, 512, 512), conv(8, (64, 64), 28, 3), attention(4, 12, 1024, 64)])
@pytest.mark.parametrize(("timed", "asked"), [("bf16", "fp16"), ("fp16", "bf16")])
def test_a_matrix_engine_takes_as_long_in_either_16_bit_format(op, timed, asked):
    known = machine(HALVES, timings({**op, **BF16, "dtype": timed, "op": "", "time_s": 1e-4}))
    rows = add_costs(table({**op, **BF16, "dtype": timed}, {**op, **BF16, "dtype": asked}))
    same, other = (one for _, one in add_times(rows, known).iterrows())
    assert (same["time_source"], other["time_source"]) == ("measured", "transferred")
    assert other["time_s"] == same["time_s"]
    spread = math.hypot(NormalDist().inv_cdf(0.9) * FORMAT_SPREAD, math.log(same["high_s"] / same["time_s"]))
    assert math.log(other["high_s"] / other["time_s"]) == pytest.approx(spread)
    assert other["evidence"].startswith(f"as timed in {timed} (measured, ")


def test_the_own_format_comes_first():
    op = gemm(512, 512, 512, **BF16)
    known = machine(HALVES, timings({**op, "time_s": 1e-4}, {**op, "dtype": "fp16", "time_s": 2e-4}))
    timed = add_times(add_costs(table(op, {**op, "dtype": "fp16"})), known)
    assert timed["time_source"].tolist() == ["measured"] * 2
    assert timed["time_s"].tolist() == [1e-4, 2e-4]


@pytest.mark.parametrize(
    "peaks",
    [
        {"fp16_matrix": 1e14},
        {"fp16_matrix": 1e14, "bf16_vector": 1e14},
    ],
)
def test_a_format_whose_rate_on_the_engine_nobody_stated_is_not_shared(peaks):
    op = gemm(512, 512, 512, **BF16, op="")
    known = machine(device(bandwidth=fact(1e12), **peaks), timings({**op, "time_s": 1e-4}))
    assert add_times(add_costs(table({**op, "dtype": "fp16"})), known)["time_source"].tolist() == ["roofline"]


def test_sums_in_another_format_are_another_op():
    op = gemm(512, 512, 512, **BF16, op="")
    narrow = {**op, "dtype": "fp16", "accumulate_dtype": "fp16"}
    peaks = tuple(
        replace(peak, accumulate_dtype=sums) for peak, sums in zip(HALVES.peaks, ("fp16", "fp32"), strict=True)
    )
    for of, row in ((HALVES, narrow), (replace(HALVES, peaks=peaks), {**narrow, "accumulate_dtype": ""})):
        known = machine(of, timings({**row, "time_s": 1e-4}))
        assert add_times(add_costs(table(op)), known)["time_source"].tolist() == ["roofline"]


def test_formats_of_other_rates_are_scaled_by_their_floors_with_a_wider_interval():
    op = gemm(4096, 4096, 4096, **BF16, op="")
    slow = device(bandwidth=fact(1e12), fp16_matrix=1e14, bf16_matrix=5e13)
    known = machine(slow, timings({**op, "time_s": 4e-3}))
    timed = add_times(add_costs(table({**op, "dtype": "fp16"})), known).iloc[0]
    assert timed["time_s"] == pytest.approx(2e-3)
    assert timed["high_s"] >= 4e-3
    assert timed["evidence"].startswith("0.5 × as timed in bf16")


@pytest.mark.parametrize(("time_s", "share"), [(1e-5, 0.2), (1e-4, 0.55), (1e-3, 0.9), (1e-2, 1.0)])
def test_experts_in_fp8_move_half_the_bytes_and_long_ones_take_half_the_time(time_s, share):
    """One token uses one expert: 3 matrices of 4096 × 1024, bound by their reading in either format."""
    sizes = {"b": 8.0, "m": 1.0, "n": 1024.0, "k": 4096.0, "experts": 8.0, "top_k": 1.0}
    op = {**gemm(1, 1, 1, **BF16), **sizes, "kind": "experts", "op": "", "pass_name": "forward"}
    board = device(bandwidth=fact(1e12), bf16_matrix=1e14, fp8_matrix=2e14)
    known = machine(board, timings({**op, "time_s": time_s}))
    timed = add_times(add_costs(table({**op, "dtype": "fp8"})), known).iloc[0]
    assert timed["time_source"] == "transferred"
    assert timed["time_s"] == pytest.approx(time_s * 0.5**share)
    assert timed["low_s"] < 0.5 * time_s * 1.001
    assert timed["high_s"] > time_s * 0.999


def test_packed_weights_take_less_time_where_their_reading_decides():
    """Two rows with 4096 × 4096 weights are bound by reading them; 4096 rows are bound by compute."""
    thin, wide = (gemm(m, 4096, 4096, **BF16, op="") for m in (2, 4096))
    board = device(bandwidth=fact(1e12), bf16_matrix=1e14)
    known = machine(board, timings({**thin, "time_s": 1e-4}, {**wide, "time_s": 2e-3}))
    rows = add_costs(table(*({**one, "weight_share": share} for one in (thin, wide) for share in (1.0, 0.25))))
    timed = add_times(rows, known)
    assert timed["time_source"].tolist() == ["measured", "transferred", "measured", "transferred"]
    byte = [2 * (2 * 4096 * 2 + share * 4096**2) for share in (1.0, 0.25)]
    assert timed["byte"].tolist()[:2] == byte
    ratio = (byte[1] / byte[0]) ** 0.55
    assert timed["time_s"].tolist() == pytest.approx([1e-4, 1e-4 * ratio, 2e-3, 2e-3])
    assert timed["low_s"].iloc[1] < 1e-4 * byte[1] / byte[0]
    assert timed["high_s"].iloc[1] > 1e-4
    assert "0.47 × with unpacked weights (measured" in timed["evidence"].iloc[1]


def test_the_nearest_timings_are_those_of_the_format_that_was_timed():
    op = gemm(512, 512, 512, **BF16, op="")
    known = machine(HALVES, timings({**op, "time_s": 1e-4}))
    timed = add_times(add_costs(table({**op, "dtype": "fp16"})), known)
    ((near,),) = nearest_timings(timed, known).values()
    assert (near.timing["dtype"], near.time_s, near.distance) == ("bf16", 1e-4, 0.0)


def test_both_passes_are_priced_as_costs_counts_them():
    flop = {"norm": NORM_FLOP, "softmax": SOFTMAX_FLOP}
    assert {kind: one["forward"] / one["backward"] for kind, one in flop.items()} == FORWARD_FLOP
