"""Estimator `measured`: what counts as the same op, and how sure its time is."""

from __future__ import annotations

import numpy as np
import pytest
from costs.op_tables import conv, gemm, table, traffic
from predict.machines import machine, timings

from fomkit.ops.pricing import add_costs
from fomkit.prediction import exact
from fomkit.prediction.rates import clock_step

GEMM = {"kind": "gemm", "dtype": "fp32", "engine": "vector", "b": 1, "m": 4, "n": 5, "k": 6}


def look_up(row, *timed, interval=0.8):
    return exact.estimate(add_costs(table(row)), machine(table=timings(*timed)), interval).get(0)


@pytest.mark.parametrize(
    ("row", "timed", "found"),
    [
        ({}, {}, True),
        ({"trans_a": 1.0}, {}, True),
        ({}, {"trans_a": 1}, True),
        ({"trans_a": 1.0}, {"trans_a": 1}, True),
        ({"trans_a": 0.0}, {"trans_a": 1}, False),
        ({"pass_name": "backward"}, {"pass_name": "forward"}, True),
        ({"k": 7.0}, {}, False),
        ({"b": 2.0}, {}, False),
        ({"dtype": "fp16"}, {}, False),
        ({"engine": "matrix"}, {}, False),
        ({"op": "aten::mm"}, {"op": "aten::mm"}, True),
        ({"op": "aten::mm"}, {"op": "aten::bmm"}, False),
    ],
)
def test_a_product_is_the_same_when_sizes_formats_and_known_storage_agree(row, timed, found):
    answer = look_up({**gemm(4, 5, 6), **row}, {**GEMM, "time_s": 1e-5, **timed})
    assert (answer is not None) == found


def test_the_pass_counts_for_convolutions_only_where_stated():
    row = conv(2, (3, 4), 8, 3)
    same = {**row, "time_s": 1e-5}
    assert look_up(row, same) is not None
    assert look_up(row, {**same, "pass_name": "backward_input"}) is None
    assert look_up({**row, "transposed": 0.0, "layout": "nhwc"}, {**same, "layout": "nchw"}) is None


def test_a_timing_that_names_the_op_goes_first():
    row = traffic("pointwise", 100.0, op="aten::gelu")
    general = {**row, "op": "", "time_s": 1e-5}
    assert look_up(row, general, {**row, "time_s": 3e-5}, general).time_s == 3e-5


def test_a_timing_without_a_name_does_not_speak_for_an_op_that_the_table_names_elsewhere():
    row, other = traffic("pointwise", 100.0, op="aten::gelu"), traffic("pointwise", 200.0, op="aten::gelu")
    general = {**row, "op": "", "time_s": 1e-5}
    assert look_up(row, general).time_s == 1e-5
    assert look_up(row, general, {**other, "time_s": 3e-5}) is None
    assert look_up({**row, "op": "aten::add"}, general, {**other, "time_s": 3e-5}).time_s == 1e-5
    # What a product takes does not hang on what somebody calls it.
    named = {**GEMM, "m": 8, "op": "fc1", "time_s": 3e-5}
    assert look_up({**gemm(4, 5, 6), "op": "fc1"}, {**GEMM, "time_s": 1e-5}, named).time_s == 1e-5


def test_duplicates_give_their_median_verbatim():
    timed = [{**GEMM, "time_s": time_s} for time_s in (3e-5, 1e-5, 2e-5)]
    answer = look_up(gemm(4, 5, 6), *timed)
    assert answer.time_s == 2e-5
    assert answer.evidence == "in the table, median of 3"
    assert answer.low_s < 2e-5 < answer.high_s


def test_the_source_of_a_timing_is_told():
    source = {"source_file": "x.xlsx", "source_sheet": "FP32", "source_row": 7, "harness_s": 4e-6}
    answer = look_up(gemm(4, 5, 6), {**GEMM, "time_s": 1e-5, **source})
    assert answer.time_s == pytest.approx(6e-6)
    assert answer.evidence == "x.xlsx FP32 row 7, less 4.000 µs of harness overhead"


def test_quartiles_make_the_interval():
    timed = {**GEMM, "time_s": 1e-5, "p25_s": 0.9e-5, "p75_s": 1.2e-5}
    answer = look_up(gemm(4, 5, 6), timed, interval=0.5)
    assert (answer.low_s, answer.high_s) == pytest.approx((0.9e-5, 1.2e-5))


def test_a_lone_timing_is_known_to_the_step_of_its_clock():
    others = [{**GEMM, "m": 100 + at, "time_s": (17 + at) * 1e-6, "harness": "h"} for at in range(30)]
    answer = look_up(gemm(100, 5, 6), *others)
    assert (answer.low_s, answer.high_s) == pytest.approx((17e-6, 18e-6))


def test_the_step_of_a_clock_shows_in_enough_timings(v100):
    assert set(clock_step(v100.timings)) == {1e-6}
    assert clock_step(timings({**GEMM, "time_s": 0.001})) == 0
    fine = [{**GEMM, "time_s": value} for value in np.random.default_rng(0).random(40)]
    assert (clock_step(timings(*fine)) == 0).all()
    for places in range(3, 9):  # a log with so many decimals of a second
        cut = [{**GEMM, "time_s": round(ticks * 10.0**-places, places)} for ticks in range(101, 141)]
        assert clock_step(timings(*cut)) == pytest.approx(10.0**-places)
    short = [{**GEMM, "time_s": ticks * 1.07e-13} for ticks in range(101, 141)]  # no clock of 1 ms shows them as 0
    assert (clock_step(timings(*short)) == 0).all()


def test_twenty_timings_of_one_harness_show_a_step_and_fewer_none():
    whole = [{**GEMM, "time_s": ticks * 1e-6, "harness": "whole"} for ticks in range(101, 121)]
    few = [{**one, "harness": "few"} for one in whole[1:]]
    assert clock_step(timings(*whole, *few)) == pytest.approx([1e-6] * 20 + [0.0] * 19)


def test_of_timings_by_two_clocks_the_coarser_step_counts():
    """One harness prints whole microseconds, the other prints more digits."""
    others = [{**GEMM, "m": 100 + at, "time_s": (16 + at) * 1e-6, "harness": "h"} for at in range(30)]
    answer = look_up(gemm(101, 5, 6), *others, {**GEMM, "m": 101, "time_s": 17.3e-6, "harness": "fine"})
    assert answer.high_s == pytest.approx(answer.time_s**2 / answer.low_s + 1e-6)


def test_the_interval_holds_every_hit():
    """A row without a storage order matches timings with and without transposition; all must be inside."""
    quick, slow = {**GEMM, "time_s": 379e-6, "trans_a": 0}, {**GEMM, "time_s": 404e-6, "trans_a": 1}
    answer = look_up(gemm(4, 5, 6), quick, slow)
    assert answer.low_s <= 379e-6 < answer.time_s < 404e-6 <= answer.high_s


def test_a_figure_that_nobody_measured_is_assumed_and_gives_way_to_a_measured_one():
    stated = {**GEMM, "time_s": 1e-5, "basis": "simulated", "party": "vendor"}
    alone = look_up(gemm(4, 5, 6), stated)
    assert (alone.time_s, alone.time_source) == (1e-5, "assumed")
    assert alone.evidence.startswith("stated, not measured (simulated, vendor): ")
    for basis in ("", "measured"):
        both = look_up(gemm(4, 5, 6), stated, {**GEMM, "time_s": 3e-5, "basis": basis})
        assert (both.time_s, both.time_source) == (3e-5, "measured")
