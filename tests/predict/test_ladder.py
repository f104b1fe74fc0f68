"""The predict stage: its laws, the order of the ladder, engines, reasons and what stays unpriced."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from costs.op_tables import attention, gemm, optimizer, table, tables, traffic
from hypothesis import given, settings
from predict.machines import as_answers, device, fact, machine, timings

from fomkit.core.errors import FomkitError, ManyFomkitError
from fomkit.core.machine import Device, Peak
from fomkit.ops.check import check_table
from fomkit.ops.pricing import add_costs
from fomkit.ops.tables import BOUNDS, TIME_SOURCES, TIMES
from fomkit.plan.options import check_options
from fomkit.prediction import prior
from fomkit.prediction.cascade import add_times
from fomkit.prediction.estimators import Timed, as_rows
from fomkit.prediction.exact import row_major, settle_engines
from fomkit.profiles.machines import load_machine

NAMES = [column.name for column in TIMES]
ROUND = device(fact(5e-6), fact(1e12), fp32_vector=1e13)


def timed_gemm(m, n, k, time_s, **more):
    return {
        "kind": "gemm",
        "dtype": "fp32",
        "engine": "vector",
        "b": 1,
        "m": m,
        "n": n,
        "k": k,
        "time_s": time_s,
    } | more


@given(tables)
@settings(max_examples=25, deadline=None)
def test_the_stage_obeys_the_laws(ops):
    costed = add_costs(pd.concat([ops, ops]))
    before = costed.copy(deep=True)
    known = machine(ROUND, timings(timed_gemm(1, 1, 1, 1e-6)))
    timed = add_times(costed, known)
    pd.testing.assert_frame_equal(costed, before)
    assert timed.index.equals(costed.index)
    assert list(timed.columns) == [*costed.columns, *NAMES]
    pd.testing.assert_frame_equal(timed[costed.columns], costed)
    pd.testing.assert_frame_equal(add_times(timed, known), timed)
    check_table(timed, "TIMED", "test")
    half = len(ops)
    pd.testing.assert_frame_equal(timed.iloc[:half][NAMES], timed.iloc[half:][NAMES])


@given(tables)
@settings(max_examples=25, deadline=None)
def test_a_row_has_a_whole_answer_or_none(ops):
    timed = add_times(add_costs(ops), machine(ROUND))
    priced = timed["time_s"].notna()
    assert (priced == timed["flop"].notna()).all()
    answers = timed[priced]
    assert (answers["low_s"] <= answers["time_s"]).all()
    assert (answers["time_s"] <= answers["high_s"]).all()
    assert (answers["low_s"] > 0).all()
    assert answers["time_source"].isin(TIME_SOURCES).all()
    assert answers["bound"].isin(BOUNDS).all()
    assert (answers["evidence"] != "").all()
    unpriced = timed[~priced]
    assert unpriced[["low_s", "high_s"]].isna().all(axis=None)
    assert (unpriced[["time_source", "bound", "evidence"]] == "").all(axis=None)


def test_a_machine_of_which_nothing_is_known_prices_nothing():
    timed = add_times(add_costs(table(gemm(8, 8, 8), traffic("copy", 8.0), attention(1, 1, 8, 8))), machine())
    assert timed["time_s"].isna().all()
    assert (timed["time_source"] == "").all()


def test_a_blas_timing_is_the_frameworks_product_turned_around(v100):
    printed = v100.timings.iloc[0]
    assert (printed["layout"], printed["m"], printed["n"]) == ("column_major", 1760, 16)
    as_torch, as_printed = gemm(16, 1760, 1760, trans_a=0, trans_b=0), gemm(1760, 16, 1760, trans_a=0, trans_b=0)
    timed = add_times(add_costs(table(as_torch, as_printed)), v100)
    assert timed["time_source"].iloc[0] == "measured"
    assert timed["time_s"].iloc[0] == printed["time_s"]
    assert timed["time_source"].iloc[1] != "measured"


def test_the_better_evidence_wins(v100):
    first = row_major(v100.timings).iloc[0]
    sizes = (first["m"], first["n"], first["k"])
    rows = [
        gemm(*sizes, trans_a=first["trans_a"], trans_b=first["trans_b"]),
        gemm(*sizes[:2], sizes[2] + 40),
        gemm(3e5, 3e5, 4),
        traffic("pointwise", 1e6),
    ]
    timed = add_times(add_costs(table(*rows)), v100)
    assert timed["time_source"].tolist() == ["measured", "interpolated", "extrapolated", "roofline"]
    assert timed.at[0, "time_s"] == first["time_s"]
    assert timed.at[1, "evidence"].startswith("nearest of 160: b 1, m ")


def test_without_fits_nothing_is_interpolated(v100):
    from dataclasses import replace

    timed = add_times(add_costs(table(gemm(1000, 100, 1000))), replace(v100, fits={}))
    assert timed.at[0, "time_source"] == "roofline"


@pytest.mark.parametrize("change", ["fewer rows", "the same rows at other times"])
def test_fits_of_other_timings_are_refused(v100, change):
    from dataclasses import replace

    fewer, slower = v100.timings.iloc[10:], v100.timings.assign(time_s=2 * v100.timings["time_s"])
    other = replace(v100, timings=fewer if change == "fewer rows" else slower)
    said = (
        "its fit of gemm/fp32/vector was made from 160 ops, not from the 1[56]0 ops of its timings. Fit the "
        "timings again"
    )
    with pytest.raises(FomkitError, match=said):
        add_times(add_costs(table(gemm(1001, 100, 1000))), other)


def test_a_row_runs_on_the_engine_that_the_machine_has(p100):
    rows = [
        gemm(1024, 700, 512, dtype="fp16", engine="matrix"),
        gemm(1024, 700, 512, dtype="tf32", engine="matrix"),
    ]
    timed = add_times(add_costs(table(*rows)), p100)
    assert timed["time_s"].notna().all()
    assert timed.at[0, "evidence"].startswith(
        "no peak or timing for fp16 on the matrix engine; using fp16 on vector; "
    )
    assert timed.at[1, "evidence"].startswith(
        "no peak or timing for tf32 on the matrix engine; using fp32 on vector; "
    )
    assert timed["engine"].tolist() == ["matrix", "matrix"]


def test_products_in_fp32_run_on_a_matrix_engine_that_multiplies_them():
    """AMD's libraries do so. What somebody timed on the vector unit remains there, and NVIDIA's engines cannot."""
    from dataclasses import replace

    asked, mi100 = table(gemm(1024, 700, 512)), load_machine("mi100")
    settled, notes = settle_engines(asked, mi100)
    assert settled["engine"].tolist() == ["matrix"]
    assert notes == {0: "libraries multiply fp32 on a matrix engine that can; using fp32 on matrix"}
    own = replace(mi100, timings=timings(timed_gemm(1000, 1000, 1000, 1e-4)))
    for one in (own, load_machine("rtx-3090")):
        settled, notes = settle_engines(asked, one)
        assert (settled["engine"].tolist(), notes) == (["vector"], {})


def test_a_time_below_the_floor_says_why():
    known = machine(ROUND, timings(timed_gemm(1000, 1000, 1000, 1.9e-4), timed_gemm(2000, 1000, 1000, 2e-4)))
    timed = add_times(add_costs(table(gemm(1000, 1000, 1000), gemm(2000, 1000, 1000))), known)
    assert timed.at[0, "bound"] == "compute"
    assert timed.at[0, "evidence"].endswith("95% of the compute floor: boost clocks")
    # No clock doubles: what its reason cannot give is not explained away.
    assert timed.at[1, "evidence"].endswith(
        "50% of the compute floor: no known reason explains this much (boost clocks: up to 1.1 times)"
    )


@pytest.mark.parametrize(
    ("share", "least", "said"),
    [
        (0.5, 1 / 1.2 / prior.BOOST, "; raised to the compute floor minus 10%; 76% of the compute floor: "),
        (1.1, 0.9, ""),  # what only its low end is below needs no reason
    ],
)
def test_no_product_is_faster_than_the_highest_rate_with_boost_clocks(share, least, said):
    rows, floor_s = add_costs(table(gemm(1024, 1024, 1024))), 2 * 1024**3 / 1e13
    known = machine(Device(peaks=(Peak("fp32", "vector", fact(1e13, 0.8e13, 1.2e13)),), byte_per_s=fact(1e12)))
    low, high = (floor_s * times for times in (0.9 * min(share, 1.0), 1.3))
    times = as_answers({0: Timed(floor_s * share, low, high, "interpolated", "", "from a table")})
    found = prior.name_bounds(as_rows(rows), times, known)
    assert found.time_s == pytest.approx([floor_s * max(share, 1 / 1.2 / prior.BOOST)])
    assert found.times[1] == pytest.approx([floor_s * least])
    assert found.evidence(0).startswith(f"from a table{said}")
    assert said or found.evidence(0) == "from a table"


@pytest.mark.parametrize(("k", "kept"), [(8192, True), (11000, False)])
def test_a_matrix_may_lie_in_a_cache_of_256_mib_and_in_no_larger_one(k, kept):
    """8192 × 8192 numbers are 256 MiB; 1.3 times as many must all come from memory, at its bandwidth."""
    rows, floor_s = add_costs(table(gemm(8192, 1, k))), 4 * (8192 * k + 8192 + k) / 1e12
    known = machine(Device(peaks=(Peak("fp32", "vector", fact(1e13)),), byte_per_s=fact(1e12)))
    times = as_answers(
        {0: Timed(*(floor_s * half for half in (0.5, 0.4, 0.6)), "interpolated", "", "from a table")}
    )
    found = prior.name_bounds(as_rows(rows), times, known)
    assert found.time_s == pytest.approx([floor_s * (0.5 if kept else 1 / prior.REACHED)])
    said = "50% of the memory floor: caches" if kept else "raised to the memory floor divided by 95%"
    assert found.evidence(0).startswith(f"from a table; {said}")


@pytest.mark.parametrize(("caches", "share"), [(0.99, 0.2), (1.15, 0.5), (1.3, 1.0), (4.0, 1.0)])
def test_a_cache_ends_gradually(caches: float, share: float) -> None:
    """Traffic of 1.3 caches takes what memory needs, that of one cache nothing, and half between them half."""
    rows, floor_s = add_costs(table(gemm(8192, 1, 8192))), 4 * (8192 * 8192 + 2 * 8192) / 1e12
    held = fact(floor_s * 1e12 / caches)
    known = machine(Device(peaks=(Peak("fp32", "vector", fact(1e13)),), byte_per_s=fact(1e12), cache_byte=held))
    times = as_answers({0: Timed(*(floor_s * part for part in (0.2, 0.1, 0.3)), "interpolated", "", "a table")})
    value, low, high = prior.name_bounds(as_rows(rows), times, known).times[:, 0] / floor_s
    raised = share if share == 0.2 else share / prior.REACHED
    assert (value, low) == pytest.approx((raised, 0.1 if share == 0.2 else share))
    assert high == pytest.approx(1.5 * raised)  # as far above as before


def test_a_machine_that_nobody_timed_reaches_no_more_of_its_bandwidth_than_others() -> None:
    rows, floor_s = add_costs(table(gemm(11000, 1, 11000))), 4 * (11000 * 11000 + 2 * 11000) / 1e12
    known = machine(Device(peaks=(Peak("fp32", "vector", fact(1e13)),), byte_per_s=fact(1e12)))
    times = as_answers({0: Timed(*(floor_s * half for half in (0.9, 0.7, 0.95)), "roofline", "", "as others")})
    found = prior.name_bounds(as_rows(rows), times, known)
    assert found.times[:, 0] / floor_s == pytest.approx([1 / prior.REACHED, 1.0, 0.95 / 0.9 / prior.REACHED])
    assert found.evidence(0) == "as others; raised to the memory floor divided by 95%"


@pytest.mark.parametrize(
    ("source", "units", "time_s", "times"),
    [
        ("extrapolated", 80, 0.2e-6, (2e-6, 1.2e-6, 4e-6)),
        ("transferred", 80, 0.2e-6, (2e-6, 1.2e-6, 4e-6)),
        ("extrapolated", 80, 2.1e-6, (2.1e-6, 1.05e-6, 4.2e-6)),  # what is longer than a start stays, ends and all
        ("interpolated", 80, 0.2e-6, (0.2e-6, 0.1e-6, 0.4e-6)),  # as short ones were timed
        ("extrapolated", None, 0.2e-6, (0.2e-6, 0.1e-6, 0.4e-6)),  # no kernels start there
    ],
)
def test_what_longer_kernels_tell_of_a_short_one_is_a_start_at_least(source, units, time_s, times) -> None:
    rows = add_costs(table(traffic("pointwise", 100.0)))
    known = machine(Device(byte_per_s=fact(1e12), launch_s=fact(5e-6, 3e-6, 1e-5), units=units and fact(units)))
    told = as_answers({0: Timed(time_s, time_s / 2, time_s * 2, source, "", "from a table")})
    found = prior.name_bounds(as_rows(rows), told, known)
    assert found.times[:, 0] == pytest.approx(times)
    assert ("; raised to the launch time of a kernel" in found.evidence(0)) is (times[0] != time_s)


@pytest.mark.parametrize(("causal", "times"), [(0.0, 1.0), (1.0, 0.5)])
def test_attention_by_its_arithmetic_takes_no_less_than_what_no_mask_skips(causal: float, times: float) -> None:
    rows = add_costs(table({**attention(8, 32, 4096, 128), "causal": causal}))
    floor_s = rows.at[0, "flop"] / 1e13
    known = machine(Device(peaks=(Peak("fp32", "vector", fact(1e13)),), byte_per_s=fact(1e12)))
    short = as_answers({0: Timed(*(floor_s * part for part in (0.3, 0.2, 0.4)), "roofline", "", "as others")})
    assert prior.name_bounds(as_rows(rows), short, known).times[:, 0] / floor_s == pytest.approx(
        [times / prior.BOOST, times / prior.BOOST, 4 / 3 * times / prior.BOOST]
    )


def test_bounds_of_table_times_are_named_by_the_facts_and_else_not(x86):
    known = machine(ROUND, timings(timed_gemm(8, 8, 8, 9e-6), timed_gemm(4096, 1, 4096, 1e-4)))
    timed = add_times(add_costs(table(gemm(8, 8, 8), gemm(4096, 1, 4096))), known)
    assert timed["bound"].tolist() == ["launch", "memory"]
    row = table(gemm(100, 1000, 29532, trans_a=0.0, trans_b=0.0))
    assert add_times(add_costs(row), x86).at[0, "bound"] == "measured"


def test_a_row_is_the_sum_of_its_parts_where_nothing_times_it():
    ops = add_costs(table(gemm(8, 8, 8), attention(2, 4, 64, 16), traffic("copy", 1e6)))
    parts = add_costs(table(gemm(64, 64, 16, b=8, count=2.0), traffic("softmax", 3e4)))
    timed = add_times(ops, machine(ROUND), parts=parts.assign(of=1))
    alone = add_times(parts, machine(ROUND))
    expected = alone[["time_s", "low_s", "high_s"]].mul(alone["count"], axis=0).sum()
    assert timed.loc[1, ["time_s", "low_s", "high_s"]].tolist() == pytest.approx(expected.tolist())
    assert timed.at[1, "time_source"] == "roofline"
    assert timed.at[1, "evidence"].startswith("sum of 3 parts; longest part op: ")


def test_a_row_of_one_part_takes_what_that_takes():
    part = add_costs(table(gemm(64, 64, 16, b=8, count=3.0)))
    timed = add_times(add_costs(table(attention(2, 4, 64, 16))), machine(ROUND), parts=part.assign(of=0))
    assert timed.at[0, "time_s"] == pytest.approx(3 * add_times(part, machine(ROUND)).at[0, "time_s"])


def test_a_part_without_a_time_leaves_the_row_to_the_next_rung():
    ops = add_costs(table(attention(2, 4, 64, 16)))
    parts = add_costs(table(gemm(64, 64, 16, b=8), traffic("input", 3e4))).assign(of=0)
    timed = add_times(ops, machine(ROUND), parts=parts)
    assert not timed.at[0, "evidence"].startswith("sum of")
    assert timed["time_s"].notna().all()


def test_intervals_widen_with_their_level(v100):
    costed = add_costs(table(gemm(1000, 100, 1000), traffic("norm", 1e6), optimizer("adam", "fused", 1e7, 10)))
    narrow, wide = (add_times(costed, v100, interval=level) for level in (0.5, 0.95))
    assert (narrow["time_s"] == wide["time_s"]).all()
    assert (wide["low_s"] < narrow["low_s"]).all()
    assert (wide["high_s"] > narrow["high_s"]).all()


@pytest.mark.parametrize("interval", [0.0, 1.0, 80.0])
def test_an_impossible_interval_is_refused(interval):
    with pytest.raises(FomkitError, match="Give a share between 0 and 1"):
        add_times(add_costs(table(gemm(8, 8, 8))), machine(), interval=interval)
    with pytest.raises(FomkitError, match=r"Give a share from 0\.01 to 0\.999"):
        check_options(interval=interval)


def test_a_table_without_costs_is_refused():
    with pytest.raises(ManyFomkitError, match="'flop' is missing"):
        add_times(table(gemm(8, 8, 8)), machine())


def test_an_empty_table_passes():
    empty = add_costs(table(gemm(8, 8, 8))).iloc[:0]
    assert list(add_times(empty, machine(ROUND)).columns) == [*empty.columns, *NAMES]


def test_predicting_needs_no_scipy():
    code = (
        "import sys, fomkit.prediction.cascade; sys.exit(any(name in sys.modules for name in ('scipy', 'sympy')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_lecture_pass_is_measured_throughout(root, x86):
    from fomkit.ops.resize import resize_ops
    from fomkit.profiles.models import load_model

    model = load_model(root / "model_profiles" / "p1b3-lecture.yaml")
    timed = add_times(add_costs(resize_ops(model.ops, model.sizes, "test")), x86)
    assert set(timed["time_source"]) == {"measured"}
    assert (timed["time_s"] * timed["count"]).sum() == pytest.approx(0.2872917, abs=1e-9)
    assert np.isclose((timed["time_s"] * timed["count"])[timed["kind"] == "gemm"].sum(), 0.115528, rtol=1e-3)
