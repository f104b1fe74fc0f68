"""Sums use the mean of an op if a table's rows determine its error distribution and outliers are independent."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd
import pytest
from predict.machines import loaded

import fomkit
from fomkit.core.interval import half_width
from fomkit.ops.check import fill_defaults
from fomkit.ops.columns import one_word
from fomkit.ops.pricing import add_costs
from fomkit.plan.estimate import estimate
from fomkit.plan.op_tables import predict_ops
from fomkit.plan.options import Options
from fomkit.prediction.cascade import add_times, as_added
from fomkit.prediction.estimators import means
from fomkit.profiles.evidence import with_fits
from fomkit.validation.deepbench_folds import sheet_cases
from fomkit.validation.scores import score

_titan = cache(lambda: with_fits(loaded("titan-x")))
CONVS = pd.DataFrame({"kind": "conv", "dtype": "fp32", "pass_name": "forward", "batch": [8.0, 24.0], "groups": 1.0,
                      "in_channels": [96.0, 48.0], "out_channels": [80.0, 160.0], "height": 28.0, "width": 28.0,
                      "kernel_h": 3.0, "kernel_w": 3.0, "stride_h": 1.0, "stride_w": 1.0, "pad_h": 1.0,
                      "pad_w": 1.0})  # fmt: skip
PRODUCTS = pd.DataFrame({"kind": "gemm", "dtype": "fp32", "m": [4096.0, 1000.0], "n": 1000.0, "k": 700.0})


def mean_of(rows: pd.DataFrame, level: float) -> np.ndarray:
    return means(rows[["time_s", "low_s", "high_s"]].to_numpy().T, half_width(level))


@pytest.mark.parametrize("level", [0.8, 0.95])
def test_convolutions_by_a_table_count_as_their_means(level: float) -> None:
    costed = add_costs(fill_defaults(CONVS, "")[0])
    alone, added = (add_times(costed, _titan(), interval=level, in_sums=one) for one in (False, True))
    assert alone["time_source"].eq("interpolated").all()
    at_usual = add_times(costed, _titan())
    assert added["time_s"].tolist() == pytest.approx(mean_of(at_usual, 0.8).tolist(), rel=1e-9)
    assert (added["time_s"] > 1.001 * alone["time_s"]).all()  # one op alone is told by its middle
    if level == 0.8:
        assert added[["low_s", "high_s"]].equals(alone[["low_s", "high_s"]])


def test_a_total_of_rows_is_that_of_their_means() -> None:
    found = predict_ops(CONVS, _titan())
    total = found.content["time_s"]
    assert total is not None
    assert total["value"] == pytest.approx(mean_of(found.ops, 0.8).sum(), rel=1e-9)


@pytest.mark.parametrize("ops", [PRODUCTS, CONVS.assign(pass_name="backward_input")])
def test_products_and_what_facts_tell_count_as_their_middles(ops: pd.DataFrame) -> None:
    machine = _titan() if ops is PRODUCTS else with_fits(loaded("titan"))
    found = predict_ops(ops, machine)
    assert set(found.ops["time_source"]) <= {"interpolated", "extrapolated", "roofline"}
    total = found.content["time_s"]
    assert total is not None
    assert total["value"] == pytest.approx(found.ops["time_s"].sum(), rel=1e-9)


def test_ops_of_a_step_are_means_so_that_they_add_up() -> None:
    found = estimate(fomkit.model("alexnet"), _titan(), Options())
    ops = found.ops[found.ops["time_s"].notna()]
    assert found.step_time.device_s.value == pytest.approx((ops["time_s"] * ops["count"]).sum(), rel=1e-9)
    convs = ops[(ops["kind"] == "conv") & (ops["time_source"] == "interpolated")]
    names = [name for name in (*CONVS, "depth", "engine") if name in convs.columns]
    alone = predict_ops(convs[names].reset_index(drop=True), _titan()).ops
    assert len(convs)
    assert convs["time_s"].tolist() == pytest.approx(mean_of(alone, 0.8).tolist(), rel=1e-6)


def test_a_sum_of_skew_times_lies_at_the_sum_of_means() -> None:
    """Eighty ops, drawn from log-normal distributions around their predictions."""
    generator, spread = np.random.default_rng(0), np.linspace(0.05, 0.6, 80)
    value = np.exp(generator.normal(0, 1, 80))
    drawn = np.median((value * np.exp(spread * generator.normal(size=(4000, 80)))).sum(1))
    times = value * np.exp(np.array([0 * spread, -spread, spread]) * half_width(0.8))
    kinds, source = one_word("conv", 80), one_word("interpolated", 80)
    assert as_added(kinds, source, times, 0.8)[0].sum() == pytest.approx(drawn, rel=0.01)
    assert value.sum() < 0.95 * drawn


def test_a_low_level_leaves_an_interval_around_the_mean_and_80_percent_is_as_it_was() -> None:
    kinds, source, before = one_word("conv", 1), one_word("interpolated", 1), 0.0
    for level in (1e-9, 0.01, 0.5, 0.8, 0.95):
        reach = 0.5 * half_width(level)
        times = np.exp([[0.0], [-reach], [reach]])
        value, low, high = as_added(kinds, source, times, level)[:, 0]
        assert value == pytest.approx(np.exp(0.125), rel=1e-6)
        assert low <= value <= high
        assert high - low > before
        before = high - low
        if level == 1e-9:
            assert (low, high) == pytest.approx((value, value))
        if level >= 0.8:
            assert [low, high] == times[1:, 0].tolist()


@pytest.mark.parametrize(
    ("kind", "source"), [("conv", "interpolated"), ("conv", "extrapolated"), ("gemm", "interpolated")]
)
def test_a_score_adds_up_what_a_step_does(kind: str, source: str) -> None:
    rows, times = pd.DataFrame({"kind": [kind] * 4, "_time_s": 1.1}), np.full((3, 4), [[1.0], [0.5], [2.0]])
    line = score(sheet_cases(rows, times, one_word(source, 4), 0.8), "c", "op", "m", kind)
    wider = np.exp(0.5 * (np.log(2) / half_width(0.8)) ** 2)
    counted = wider if (kind, source) == ("conv", "interpolated") else 1.0
    assert line.total == pytest.approx(counted / 1.1 - 1)
    assert line.bias == pytest.approx(1 / 1.1 - 1)
