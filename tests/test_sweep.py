"""Sweeps: points, fronts, figures besides times, files written while points are computed, refusals."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from typer.testing import CliRunner

import fomkit
from fomkit.cli.main import app, main
from fomkit.core.errors import FomkitError
from fomkit.core.job import Layout
from fomkit.core.machine import Fact, Link, Price
from fomkit.files.write import whole_file
from fomkit.output import files
from fomkit.output.files import write_blocks
from fomkit.plan.estimate import estimate
from fomkit.plan.memory_of import step_memory
from fomkit.plan.options import Options, change_machine
from fomkit.plan.scaling import ScalingSpec, scale, with_user_links
from fomkit.whatif import sweep as sweep_room
from fomkit.whatif import sweep_figures
from fomkit.whatif import sweep_result as cluster
from fomkit.whatif.subjects import OnNodes
from fomkit.whatif.sweep import make_sweep, with_own_link
from fomkit.whatif.sweep_axes import Kind, Plan, make_axis, make_plan
from fomkit.whatif.sweep_result import Tally, pareto_front, run_sweep

WHOLE, NUMBER, RATE = Kind(whole=True), Kind(), Kind("byte_per_s")


def plan_of(way: str = "grid", points: int | None = None, seed: int = 0) -> Plan:
    axes = [
        make_axis("byte_per_s", "1 GB/s..8 GB/s:4:log", RATE),
        make_axis("batch", "3..9", WHOLE),
        make_axis("x", "1,5,2.5", NUMBER),
    ]
    return make_plan(axes, way, points, seed)


# values


@pytest.mark.parametrize(
    ("model", "vary", "words"),
    [
        ("llama3-8b-decode", {}, "without Python in between, as in compiled steps and in inference"),
        ("llama3-8b-decode", {"nodes": [1]}, "without Python in between, as in compiled steps and in inference"),
        ("llama3-8b", {"nodes": [1]}, "from graphs, as its layout says"),
    ],
)
def test_a_host_that_no_step_waits_for_is_not_varied(model: str, vary: dict[str, list[int]], words: str) -> None:
    layout = Layout(launch="graphs") if model == "llama3-8b" else None
    with pytest.raises(
        FomkitError, match=rf"--vary host_op_s: host_op_s has no effect: .* {words}\. Leave it out"
    ):
        make_sweep(
            fomkit.model(model), fomkit.machine("h100-sxm"), {"host_op_s": "5 us,50 us", **vary}, layout=layout
        )
    if not vary:
        with pytest.raises(FomkitError, match="scenarios: host_op_s has no effect"):
            fomkit.scenarios(model, "h100-sxm", pd.DataFrame({"host_op_s": [5e-6]}))


def test_values_are_listed_or_a_range_with_units() -> None:
    assert make_axis("byte_per_s", "1 GB/s, 2 TB/s", RATE).values == (1e9, 2e12)
    assert make_axis("byte_per_s", ["1 GB/s", "2 TB/s"], RATE) == make_axis("byte_per_s", "1 GB/s, 2 TB/s", RATE)
    assert make_axis("launch_s", "1 us..9 us:3", Kind("time_s")).grid() == pytest.approx([1e-6, 5e-6, 9e-6])
    powers = make_axis("byte_per_s", "1 GB/s..8 GB/s:4:log", RATE).grid()
    assert powers == pytest.approx([1e9, 2e9, 4e9, 8e9], rel=1e-15)
    assert (powers[0], powers[-1]) == (1e9, 8e9)
    assert make_axis("batch", "2..5", WHOLE).grid().tolist() == [2, 3, 4, 5]
    # Steps that round to the same whole number are one.
    whole = make_axis("batch", "1..4:7", WHOLE)
    assert (whole.grid().tolist(), whole.count) == ([1, 2, 3, 4], 4)
    assert make_axis("batch", np.array([4, 8]), WHOLE).values == (4.0, 8.0)
    assert make_axis("price_per_h", 2.5, NUMBER).values == (2.5,)


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        (RATE, "5..9", "which has no unit"),
        (RATE, "9 GB/s..5 GB/s:2", "is not ascending"),
        (RATE, "5 GB/s..9 GB/s:x", "'x' is not a number of steps"),
        (RATE, "5 GB/s..9 GB/s:1", "does not include both bounds"),
        (RATE, "0 GB/s..9 GB/s:4:log", "has no logarithm"),
        (RATE, "5 GB/s:8", "has steps but no range"),
        (RATE, "5 GB/s,5 GB/s", "has a value twice"),
        (RATE, [], "has no value"),
        (RATE, [True], "is True. Give text with units, or numbers in SI units"),
        (WHOLE, "2.5", "Expected a whole number of 1 or more"),
        (WHOLE, "0", "Expected a whole number of 1 or more"),
        (WHOLE, [8, None], "is None"),
        (NUMBER, "nan", "Expected a finite number of 0 or more"),
        (NUMBER, "-1", "Expected a finite number of 0 or more"),
        (NUMBER, "much", "'much'"),
    ],
)
def test_what_is_no_value_is_refused(kind, text, said) -> None:
    with pytest.raises(FomkitError, match=r"^--vary name: ") as caught:
        make_axis("name", text, kind)
    assert said in str(caught.value)


# points


def test_a_grid_has_every_combination_once_with_sizes_slowest() -> None:
    plan = plan_of()
    table = plan.table(0, plan.points)
    assert len(table) == plan.points == 4 * 7 * 3
    assert not table.duplicated().any()
    assert list(table.columns) == ["batch", "byte_per_s", "x"]
    assert table["batch"].is_monotonic_increasing


@given(st.sampled_from(["grid", "random", "sobol"]), st.data())
def test_a_stretch_of_points_is_the_same_whatever_is_asked_for(way, data) -> None:
    plan = plan_of(way, None if way == "grid" else 84, seed=5)
    start = data.draw(st.integers(0, 83))
    stop = data.draw(st.integers(start + 1, 84))
    pd.testing.assert_frame_equal(plan.table(start, stop), plan.table(0, 84).iloc[start:stop], check_exact=True)


@pytest.mark.parametrize("way", ["random", "sobol"])
def test_drawn_points_lie_in_the_ranges_and_come_back_with_the_seed(way) -> None:
    axes = [
        make_axis("byte_per_s", "1 GB/s..8 GB/s", RATE),
        make_axis("a", "3..9", WHOLE),
        make_axis("b", "1..1000:log", WHOLE),
        make_axis("x", "1,5,2.5", NUMBER),
    ]
    table = make_plan(axes, way, 1024, 3).table(0, 1024)
    assert table["byte_per_s"].between(1e9, 8e9).all()
    assert set(table["a"]) == set(range(3, 10))
    assert table["b"].between(1, 1000).all()
    assert (table["b"] == table["b"].round()).all()
    assert (table["b"] < 32).mean() == pytest.approx(0.5, abs=0.06)  # even ratios
    assert set(table["x"]) == {1, 5, 2.5}
    pd.testing.assert_frame_equal(make_plan(axes, way, 1024, 3).table(0, 1024), table, check_exact=True)
    assert not make_plan(axes, way, 1024, 4).table(0, 1024).equals(table)


def test_sobol_points_are_scipys_and_spread_better_than_random_ones() -> None:
    from scipy.stats import qmc

    axes = [make_axis(name, "0..1", NUMBER) for name in "ab"]
    table = make_plan(axes, "sobol", 300, 7).table(0, 300)
    own = qmc.Sobol(2, scramble=True, seed=np.random.default_rng(7)).random(512)[:300]
    np.testing.assert_array_equal(table.to_numpy(), own)
    drawn = make_plan(axes, "random", 256, 7).table(0, 256)
    assert qmc.discrepancy(table[:256]) < 0.2 * qmc.discrepancy(drawn)


@pytest.mark.parametrize(
    ("axes", "way", "points", "said"),
    [
        ([], "grid", None, "varies nothing"),
        (
            [("a", "1..1000000000")],
            "grid",
            None,
            r"1,000,000,000 points \(1,000,000,000 a\).*sobol --points 100000",
        ),
        ([("a", "1..1000"), ("b", "1..1000"), ("c", "1..1000")], "grid", None, "asks for 1,000,000,000 points"),
        ([("a", "1,2")], "sobol", 10**9, "asks for 1,000,000,000 points; at most 10,000,000 are possible"),
        ([("a", "1,2")], "random", 0, "--points: is 0"),
        ([("a", "1,2")], "grid", 5, "for --way random or sobol"),
        ([("a", "1,2"), ("a", "3")], "grid", None, "is given twice"),
        ([("a", "1,2")], "halton", None, "Give grid, random or sobol"),
    ],
)
def test_what_is_no_plan_is_refused_at_once(axes, way, points, said) -> None:
    begun = time.monotonic()
    with pytest.raises(FomkitError, match=said):
        make_plan([make_axis(name, text, WHOLE) for name, text in axes], way, points)
    assert time.monotonic() - begun < 1


def test_a_continuous_range_has_no_grid() -> None:
    with pytest.raises(FomkitError, match="a range without steps, which a grid cannot take"):
        make_plan([make_axis("a", "1..2", NUMBER)])


# fronts


def brute_front(values: np.ndarray) -> list[bool]:
    def beaten(one: np.ndarray) -> bool:
        return any((other <= one).all() and (other < one).any() for other in values)

    return [not np.isnan(one).any() and not beaten(one) for one in values]


def few_numbers(width: int) -> st.SearchStrategy[np.ndarray]:
    """Numbers with many ties, some unknown."""
    cells = st.one_of(st.integers(-4, 4).map(float), st.just(np.nan))
    shape = st.tuples(st.integers(0, 40), st.just(width))
    return arrays.arrays(np.float64, shape, elements=cells)


@given(st.integers(1, 4).flatmap(few_numbers))
def test_the_front_is_that_of_comparing_all_with_all(values) -> None:
    assert pareto_front(values).tolist() == brute_front(values)


@pytest.mark.parametrize("width", [2, 3, 4])
def test_fronts_of_many_points_over_several_blocks(width) -> None:
    values = np.random.default_rng(width).normal(size=(1500, width))
    values = np.concatenate([values, values[:50]])
    assert pareto_front(values).tolist() == brute_front(values)


def test_two_objectives_of_a_million_points_take_n_log_n() -> None:
    values = np.random.default_rng(0).normal(size=(1_000_000, 2))
    begun = time.process_time()
    front = values[pareto_front(values)]
    assert time.process_time() - begun < 10  # all with all would take hours
    assert len(front) < 100
    assert (np.diff(front[np.argsort(front[:, 0])][:, 1]) < 0).all()


@given(few_numbers(2), few_numbers(2))
def test_a_front_of_fronts_is_the_front(first, second) -> None:
    both = np.concatenate([first, second])
    parts = np.concatenate([first[pareto_front(first)], second[pareto_front(second)]])
    assert sorted(map(tuple, both[pareto_front(both)])) == sorted(map(tuple, parts[pareto_front(parts)]))


# what a sweep says


def test_points_are_estimates_with_cost_energy_and_memory() -> None:
    model, machine = fomkit.model("p1b3"), fomkit.machine("v100")
    vary = {"batch": "50,200", "byte_per_s": "0.5 TB/s,1 TB/s", "price_per_h": "2.5 USD/h", "power_w": "250 W"}
    swept = run_sweep(make_sweep(model, machine, vary))
    assert len(swept.table) == 4
    for row in swept.table.to_dict("records"):
        one = estimate(
            model, change_machine(machine, {"byte_per_s": row["byte_per_s"]}), Options(int(row["batch"]))
        )
        days = one.run_time.run_s.value / 86400
        assert row["unit_per_day"] == pytest.approx(1 / days, rel=1e-9)
        assert row["cost"] == pytest.approx(2.5 * 24 * days, rel=1e-9)
        assert row["cost_low"] == pytest.approx(2.5 * 24 / one.unit_per_day.high, rel=1e-9)
        assert row["energy_j"] == pytest.approx(250 * 86400 * days, rel=1e-9)
        assert row["peak_byte"] == step_memory(model, {"batch": int(row["batch"])}).peak_byte
        assert row["fits"] is True
        assert row["basis"] == "modelled"
    content = swept.content
    assert [one["column"] for one in content["objectives"]] == ["unit_per_day", "cost", "energy_j", "peak_byte"]
    assert content["absent"] == {}
    assert content["ranges"]["cost"]["most"] == swept.table["cost"].max()
    fastest = swept.table.loc[swept.table["unit_per_day"].idxmax()]
    assert swept.best.equals(fastest.astype(object)) or swept.best["unit_per_day"] == fastest["unit_per_day"]
    leanest = next(one["point"] for one in content["best"] if one["objective"] == "memory")
    assert leanest["peak_byte"] == swept.table["peak_byte"].min()
    assert {"batch": 50.0, "byte_per_s": 1e12}.items() <= leanest.items()
    json.dumps(content, allow_nan=False)


def test_the_front_keeps_what_is_faster_or_leaner() -> None:
    swept = fomkit.sweep("p1b3", "v100", {"batch": "50,100,200", "byte_per_s": "0.5 TB/s..2 TB/s:3"})
    # A larger batch is faster for a unit and takes more memory; less bandwidth is never better.
    assert swept.front["batch"].tolist() == [200, 100, 50]
    assert set(swept.front["byte_per_s"]) == {2e12}


def test_what_is_not_known_is_left_out_and_said() -> None:
    model = fomkit.model("p1b3")
    bare = replace(model, order=None, run=replace(model.run, epochs=None))
    swept = run_sweep(make_sweep(bare, fomkit.machine("titan"), {"batch": [50, 100], "price_per_h": "2 USD/h"}))
    assert not {"unit_per_day", "energy_j", "peak_byte", "fits"} & set(swept.table.columns)
    assert not swept.table.isna().to_numpy().any()
    assert "does not define a run" in swept.content["absent"]["unit_per_day"]
    assert "power_w" in swept.content["absent"]["energy_j"]
    assert "no op order" in swept.content["absent"]["peak_byte"]
    # Then cost is that of a sample.
    row = swept.table.iloc[0]
    assert swept.content["per"] == "sample"
    assert row["cost"] == pytest.approx(2 / 3600 / row["sample_per_s"])
    said = swept.summary()
    assert "without units/day" in said
    assert "without energy: the machine states only the power limit of a chip" in said


def test_the_best_batch_says_what_part_of_the_samples_it_leaves_out() -> None:
    swept = fomkit.sweep("p1b1", "v100", {"batch": [1350, 1351]})
    assert swept.best["batch"] == 1351
    left = "50% of an epoch's samples do not fill a batch and are dropped: a run has that much less work"
    assert swept.content["notes"] == [f"a best point, with 1,351 samples in a step: {left}"]
    machine = with_user_links(fomkit.machine("a100-sxm"), [Link("system", 5e-6, 25e9, "each", "example")])
    for of_a_step in ({"replica_batch": [85]}, {"batch": [1360]}):
        on_nodes = fomkit.sweep("p1b1", machine, {"nodes": [2], **of_a_step})
        assert f"a best point, with 1,360 samples in a step: {left}" in on_nodes.content["notes"]
    assert fomkit.sweep("p1b1", "v100", {"batch": [675, 1350]}).content["notes"] == []


def test_many_sizes_are_not_followed_and_that_is_said(monkeypatch) -> None:
    monkeypatch.setattr(sweep_figures, "MOST_FOLLOWED", 2)
    swept = fomkit.sweep("p1b3", "v100", {"batch": "1..3"})
    assert "3 sizes would each be followed" in swept.content["absent"]["peak_byte"]
    assert "peak_byte" not in swept.table
    assert swept.table["fits"].tolist() == [True] * 3  # by the largest batch that fits


def test_with_many_sizes_the_largest_batch_tells_who_fits() -> None:
    swept = fomkit.sweep("resnet50", "v100", {"batch": "16..700"})
    model, capacity = fomkit.model("resnet50"), fomkit.machine("v100").device.capacity_byte.value
    best = int(swept.best["batch"])
    assert step_memory(model, {"batch": best}).peak_byte <= capacity
    assert swept.content["too_large"] == 700 - swept.table.loc[swept.table["fits"], "batch"].max()
    over = int(swept.table.loc[~swept.table["fits"], "batch"].min())
    assert step_memory(model, {"batch": over}).peak_byte > capacity
    assert swept.content["not_checked"] == 0
    assert isinstance(swept.content["best"][0]["point"]["batch"], int)


def test_whether_points_fit_is_said_where_nobody_knows() -> None:
    model = replace(fomkit.model("p1b3"), order=None)
    swept = run_sweep(make_sweep(model, fomkit.machine("v100"), {"batch": "50,100"}))
    assert swept.content["not_checked"] == 2
    assert "whether points fit was not checked, because the profile has no op order" in swept.summary()
    assert ", if that fits" in swept.summary()
    # Where one size can be followed and another cannot, the first is judged.
    some = make_sweep(fomkit.model("p1b3"), fomkit.machine("v100"), {"batch": "50,100"})
    peaks = {(50,): some.memory.peaks[50.0,], (100,): float("nan")}
    swept = run_sweep(replace(some, memory=some.memory._replace(peaks=peaks, unchecked="a reason")))
    assert swept.table["fits"].isna().tolist() == [False, True]
    assert swept.content["not_checked"] == 1
    assert "whether 1 of the points fit was not checked, because a reason" in swept.summary()


@pytest.mark.parametrize(("per", "spread"), [("device", 1.0), ("node", 1.0), ("node", 1.2)])
def test_money_is_that_of_cost_at_the_machines_price(per, spread) -> None:
    from fomkit.verbs.cost import Declared, cost

    rate = 8.0 / 3600
    price = Price(Fact(rate, rate / spread, rate * spread, "published", "list"), "USD", per, "2024-01-01")
    machine = replace(fomkit.machine("a100-sxm"), price=price)
    swept = fomkit.sweep("p1b3", machine, {"batch": [100, 200]})
    for row in swept.table.to_dict("records"):
        one = cost(fomkit.model("p1b3"), machine, Options(int(row["batch"])), Declared())
        runs = one.estimate.model.unit.runs
        assert row["cost"] == pytest.approx(one.run_money.value * runs, rel=1e-9)
        assert row["cost_low"] == pytest.approx(one.run_money.low * runs, rel=1e-9)
        assert row["cost_high"] == pytest.approx(one.run_money.high * runs, rel=1e-9)
        assert list(swept.content["excludes"]) == list(one.estimate.excludes)
    assert swept.content["price"] == {"currency": "USD", "per": per, "date": "2024-01-01", "source": "list"}
    said = swept.summary()
    assert "price: of 2024-01-01, in USD per" in said
    unstated = ", ".join(swept.content["excludes"])
    assert f"rates are upper bounds; not stated: {unstated}; times and costs are lower bounds" in said


def test_a_price_of_the_whole_system_is_no_price_of_a_device() -> None:
    rate = 8.0 / 3600
    price = Price(Fact(rate, rate, rate, "published", "list"), "USD", "system", "2024-01-01")
    swept = fomkit.sweep("p1b3", replace(fomkit.machine("a100-sxm"), price=price), {"batch": [100]})
    assert "cost" not in swept.table
    assert "is per system" in swept.content["absent"]["cost"]


def test_a_point_that_does_not_fit_is_never_best() -> None:
    model, machine = fomkit.model("p1b3"), fomkit.machine("v100")
    peaks = [step_memory(model, {"batch": batch}).peak_byte for batch in (50, 200)]
    between = sum(peaks) / 2
    small = replace(
        machine, device=replace(machine.device, capacity_byte=Fact(between, between, between, "assumed", ""))
    )
    swept = run_sweep(make_sweep(model, small, {"batch": [50, 200]}))
    assert swept.table["fits"].tolist() == [True, False]
    assert swept.content["too_large"] == 1
    assert swept.best["batch"] == 50
    none = run_sweep(make_sweep(model, small, {"batch": [200, 300]}))
    assert none.content["best"][0]["point"] is None
    assert "no point fits the device's memory" in none.summary()


def test_nodes_and_links_are_those_of_scaling() -> None:
    model, machine = fomkit.model("p1b3"), fomkit.machine("a100-sxm")
    vary = {
        "nodes": "1,4",
        "link_byte_per_s": "12.5 GB/s,25 GB/s",
        "link_alpha_s": "5 us",
        "price_per_h": "2 USD/h",
    }
    swept = run_sweep(make_sweep(model, machine, vary))
    assert len(swept.table) == 4
    for row in swept.table.to_dict("records"):
        wired = with_own_link(machine, "", {"link_alpha_s": 5e-6, "link_byte_per_s": row["link_byte_per_s"]})
        one = scale(model, wired, ScalingSpec([int(row["nodes"])], modes=("weak",))).curves[0].points[0].step
        assert row["step_s"] == one.wall_s.value
        assert row["step_s_high"] == one.wall_s.high
        assert row["peak_byte"] == one.memory_byte
        devices = row["nodes"] * machine.node_devices
        assert row["cost"] == pytest.approx(2 * devices * 24 / row["unit_per_day"])
    # More bandwidth never slows a job down, and on one node the link between nodes says nothing.
    by_rate = swept.table.pivot_table(index="nodes", columns="link_byte_per_s", values="step_s")
    assert by_rate.loc[1].nunique() == 1
    assert by_rate.loc[4, 25e9] < by_rate.loc[4, 12.5e9]
    bare = with_user_links(replace(machine, links=()), ())
    with pytest.raises(FomkitError, match=r"so its rate and latency are both needed\. Add --vary link_alpha_s"):
        make_sweep(model, bare, {"nodes": "1", "link_byte_per_s": "1 GB/s"})


def test_a_link_is_changed_as_a_study_changes_it() -> None:
    model, machine = fomkit.model("p1b3"), fomkit.machine("a100-sxm")
    small = Link("system", 5e-6, 10e9, "each", "made up", most_byte=1e4, range_byte_per_s=(8e9, 11e9))
    large = replace(small, least_byte=1e4, most_byte=None, byte_per_s=20e9, range_byte_per_s=(15e9, 21e9))
    wired = with_user_links(machine, [small, large])
    row = run_sweep(make_sweep(model, wired, {"nodes": "4", "link_byte_per_s": "40 GB/s"})).table.iloc[0]
    figures = OnNodes(model, wired, Options(), Layout(), 4).figures_at({"link_byte_per_s": 40e9})
    names = ("step_s", "step_s_low", "step_s_high")
    assert [row[name] for name in names] == pytest.approx(list(figures["step_s"].ends), rel=1e-12)


def test_a_random_sweep_is_the_same_in_other_stretches(monkeypatch) -> None:
    from fomkit.whatif import sweep as module

    one_sweep = make_sweep(fomkit.model("p1b3"), fomkit.machine("titan"), {"byte_per_s": "0.1 TB/s..4 TB/s"},
                       way="random", points=50, seed=9)  # fmt: skip
    whole = run_sweep(one_sweep)
    monkeypatch.setattr(module, "CHUNK", 7)
    parts = run_sweep(one_sweep)
    pd.testing.assert_frame_equal(whole.table, parts.table, rtol=1e-12)
    pd.testing.assert_frame_equal(whole.front, parts.front, rtol=1e-12)
    assert len(one_sweep.stretches()) == 8


@pytest.mark.parametrize(
    ("vary", "said"),
    [
        ({"bach": "1,2"}, "p1b3 on v100: 'bach' is not a parameter of it. The nearest names are 'batch'"),
        ({"flop_per_s/fp32/vectr": "1 TFLOP/s"}, "The nearest names are 'flop_per_s/fp32/vector'"),
        ({"launch_s": "0 us,5 us"}, "launch_s is 0. Give a finite number above 0"),
        ({"byte_per_s": "0 GB/s"}, "byte_per_s is 0. Give a finite number above 0"),
        ({"batch": "1..2000000:3"}, "is more than the 800,121 samples of an epoch"),
        ({"link_alpha_s": "5 us"}, "but no nodes are given"),
        ({"nodes": "1..600000"}, "600,000 points with nodes, which are computed one by one"),
        ({"nodes": "1,2"}, "states no link of tier 'node'"),
    ],
)
def test_what_cannot_be_swept_is_refused_before_the_work(vary, said) -> None:
    with pytest.raises(FomkitError) as caught:
        fomkit.sweep("p1b3", "v100", vary)
    assert said in str(caught.value)


def test_a_size_is_given_once() -> None:
    with pytest.raises(FomkitError, match="batch: is both varied and given as one value"):
        fomkit.sweep("p1b3", "v100", {"batch": [8, 16]}, batch=4)
    with pytest.raises(FomkitError, match="vary batch: is not NAME=VALUES"):
        fomkit.sweep("p1b3", "v100", ["batch"])
    assert fomkit.sweep("p1b3", "v100", "batch=8").table["batch"].tolist() == [8]


# files


def blocks_of(count: int) -> Iterator[pd.DataFrame]:
    random = np.random.default_rng(1)
    for place in range(count):
        values = {"flop_per_s/fp32/vector": random.random(5), "=x": random.random(5) * 1e13}
        yield pd.DataFrame({**values, "fits": [True, False] * 2 + [True], "basis": "modelled"}).set_index(
            pd.RangeIndex(place * 5, place * 5 + 5)
        )


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_points_read_back_exactly(tmp_path, ending) -> None:
    path = tmp_path / f"points{ending}"
    with whole_file(path) as stream:
        write_blocks(blocks_of(3), stream, ending)
    expected = pd.concat(blocks_of(3), ignore_index=True)
    if ending == ".csv":
        with path.open(newline="") as stream:
            rows = list(csv.DictReader(stream))
        found = pd.DataFrame(rows).astype(dict.fromkeys(["flop_per_s/fp32/vector", "'=x"], float))
        found["fits"] = found["fits"] == "True"
        expected = expected.rename(columns={"=x": "'=x"})  # a spreadsheet program would run it
    else:
        found = pd.read_parquet(path)
    pd.testing.assert_frame_equal(found, expected, check_exact=True, check_dtype=False)
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


class FullDisk(io.RawIOBase):
    """A file on a disk that is full after some bytes."""

    def __init__(self, stream: io.BufferedIOBase, room: int) -> None:
        self.stream, self.room = stream, room

    def writable(self) -> bool:
        return True

    def write(self, data) -> int:
        self.room -= len(data)
        if self.room < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self.stream.write(data)


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
@pytest.mark.parametrize("room", [0, 300])
def test_a_full_disk_leaves_the_old_file(tmp_path, ending, room) -> None:
    path = tmp_path / f"points{ending}"
    path.write_text("old")
    with pytest.raises(FomkitError, match=r"points\.\w+: cannot be written \(No space left on device\)"), \
            whole_file(path) as stream:  # fmt: skip
        write_blocks(blocks_of(3), FullDisk(stream, room), ending)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
@pytest.mark.parametrize("stop", [KeyboardInterrupt, FomkitError("point", "cannot be estimated.")])
def test_what_ends_a_sweep_leaves_no_half_file(tmp_path, ending, stop) -> None:
    def blocks() -> Iterator[pd.DataFrame]:
        yield from blocks_of(2)
        raise stop

    path = tmp_path / f"points{ending}"
    with pytest.raises(type(stop) if isinstance(stop, FomkitError) else stop), whole_file(path) as stream:
        write_blocks(blocks(), stream, ending)
    assert list(tmp_path.iterdir()) == []


KILLED = ["sweep", "p1b3", "-t", "titan", "--way", "random", "--points", "7000", "--vary",
          "byte_per_s=0.1 TB/s..4 TB/s", "--vary", "batch=50..60"]  # fmt: skip
# Seven stretches, as 100,000 points are by themselves; the fourth never ends, so that the kill comes before it.
IN_STRETCHES = """
import sys, time
from fomkit.cli.main import main
from fomkit.whatif import sweep
sweep.CHUNK = 1_000
stretch = sweep.Sweep.stretch
sweep.Sweep.stretch = lambda self, start, stop: time.sleep(600) if start >= 3_000 else stretch(self, start, stop)
main()
"""


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_a_killed_sweep_leaves_the_old_file_and_goes_on(tmp_path, ending, monkeypatch) -> None:
    path, kept = tmp_path / f"points{ending}", tmp_path / f"points{ending}.stretches"
    path.write_text("old")
    process = subprocess.Popen(
        [sys.executable, "-c", IN_STRETCHES, *KILLED, "-o", str(path), "--force"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        end = time.monotonic() + 60
        while not (kept / f"000001{ending}").exists():
            assert time.monotonic() < end
            assert process.poll() is None
            time.sleep(0.01)
    finally:
        process.kill()
        process.communicate(timeout=60)
    assert path.read_text() == "old"
    there = len(list(kept.glob(f"0*{ending}")))
    assert 2 <= there < 7
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sweep_room, "CHUNK", 1_000)
    path.unlink()
    anew = CliRunner().invoke(app, [*KILLED, "-o", path.name])
    assert "has the first points of an interrupted sweep. Continue it with --resume, or start" in str(
        anew.exception
    )
    assert len(list(kept.glob(f"0*{ending}"))) == there
    other = CliRunner().invoke(app, [*KILLED, "--seed", "1", "-o", path.name, "--resume"])
    assert "other points, another model or another machine" in str(other.exception)
    worked_out = []
    stretch = sweep_room.Sweep.stretch
    monkeypatch.setattr(
        sweep_room.Sweep, "stretch", lambda self, *ends: worked_out.append(ends) or stretch(self, *ends)
    )
    done = CliRunner().invoke(app, [*KILLED, "-o", path.name, "--resume", "--json"])
    assert done.exit_code == 0, done.output
    assert len(worked_out) == 7 - there
    assert list(tmp_path.iterdir()) == [path]
    whole = CliRunner().invoke(app, [*KILLED, "-o", f"whole{ending}", "--json"])
    assert Path(f"whole{ending}").read_bytes() == path.read_bytes()
    assert json.loads(whole.stdout) == json.loads(done.stdout)


@pytest.mark.parametrize(
    "spoiled",
    [b"", b"batch\n", b"\xff\xfe", b"launch_s,batch\n1,2\n"],
    ids=["empty", "short", "no text", "other columns"],
)
def test_a_stretch_that_somebody_changed_is_refused(tmp_path, monkeypatch, spoiled) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["sweep", "p1b3", "-t", "titan", "--vary", "batch=8,16", "-o", "a.csv"]
    with monkeypatch.context() as patch:
        patch.setattr(files.KeptStretches, "write", lambda _: None)
        assert CliRunner().invoke(app, words).exit_code == 0
    whole = Path("a.csv.stretches/000000.csv").read_bytes()
    for content in (spoiled, whole + whole.splitlines(keepends=True)[-1], whole.replace(b"8", b"eight")):
        Path("a.csv.stretches/000000.csv").write_bytes(content)
        with pytest.raises(FomkitError, match=r"000000\.csv: is not what the sweep wrote"):
            CliRunner().invoke(app, [*words, "--resume"], catch_exceptions=False)
    Path("a.csv.stretches/000000.csv").write_bytes(whole)
    assert CliRunner().invoke(app, [*words, "--resume"]).exit_code == 0
    assert Path("a.csv").read_bytes() == whole


def test_there_is_nothing_to_go_on_with(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["sweep", "p1b3", "-t", "titan", "--vary", "batch=8,16", "--resume"]
    for more, why in (([], r"--resume: continues a file of points. Name it: -o points\.csv"),
                      (["-o", "a.csv"], "--resume: finds no interrupted sweep beside a.csv")):  # fmt: skip
        with pytest.raises(FomkitError, match=why):
            CliRunner().invoke(app, [*words, *more], catch_exceptions=False)
    Path("a.csv.stretches").mkdir()
    Path("a.csv.stretches", "mine.txt").write_text("mine")
    with pytest.raises(FomkitError, match="exists and is not the folder of a sweep"):
        CliRunner().invoke(app, [*words[:-1], "-o", "a.csv"], catch_exceptions=False)
    assert Path("a.csv.stretches", "mine.txt").read_text() == "mine"


# the command


def test_the_command_writes_tables_and_tells_the_best(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["sweep", "p1b3", "-t", "v100", "--vary", "batch=50..60", "--vary", "launch_s=1 us..9 us",
             "--way", "sobol", "--points", "64", "--seed", "3"]  # fmt: skip
    tables = {}
    for name in ("points.csv", "points.parquet", "points.json"):
        done = CliRunner().invoke(app, [*words, "-o", name])
        assert done.exit_code == 0, done.output
        assert "64 points (sobol, seed 3)" in done.stdout
        assert "best units/day: " in done.stdout
        if name != "points.json":
            tables[name] = getattr(pd, f"read_{Path(name).suffix[1:]}")(name)
    assert json.loads(Path("points.json").read_text())["schema"] == "fomkit/sweep/1"
    direct = fomkit.sweep(
        "p1b3", "v100", {"batch": "50..60", "launch_s": "1 us..9 us"}, way="sobol", points=64, seed=3
    )
    for table in tables.values():
        pd.testing.assert_frame_equal(table, direct.table.reset_index(drop=True), check_dtype=False, rtol=1e-14)
    told = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert told == json.loads(json.dumps(direct.content))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--vary", "batch"], "--vary batch: is not NAME=VALUES"),
        (["--vary", "batch=1", "--vary", "batch=2"], "batch is given twice"),
        (["--vary", "batch=1..1000000000"], "asks for 1,000,000,000 points"),
        (["--vary", "batch=8", "-o", "points.xlsx"], "Use .csv, .parquet or .json"),
        (["--vary", "batch=8", "-o", "/nowhere/points.csv"], "there is no folder /nowhere"),
        (["--vary", "batch=8", "--layout", "zero=1"], "is for runs on nodes, but no nodes are varied"),
        (["--vary", "batch=8", "--scheduler", "nonsense://x"], "nonsense://x: is not a scheduler address"),
        (
            ["--vary", "batch=8", "--scheduler", "foo"],
            "is not a scheduler address. Write, for example, tcp://",
        ),
        (["--vary", "price_per_h=2.5"], "'2.5', which has no currency, and the machine states no price"),
        (["--vary", "price_per_h=2 USD/h,3 EUR/h"], "is in EUR and USD. Write all in one currency"),
        (["--vary", "batch=8", "--scheduler", "tcp://127.0.0.1:9"], "no scheduler answers there"),
    ],
)
def test_mistakes_are_one_message_and_exit_code_2(arguments, said, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cluster, "CONNECT_S", 0.5)
    monkeypatch.setattr(sys, "argv", ["fomkit", "sweep", "p1b3", "-t", "v100", *arguments])
    begun = time.monotonic()
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    assert ended.value.code == 2
    assert said in err
    assert "Traceback" not in err
    assert len(err.strip().splitlines()) == 1
    assert out == ""
    assert time.monotonic() - begun < 20
    assert list(tmp_path.iterdir()) == []


def test_dask_and_pyarrow_are_imported_where_they_are_used_only(root) -> None:
    code = (
        "import sys\nsys.argv += ['sweep', 'p1b3', '-t', 'titan', '--vary', 'batch=8,16']\n"
        "from fomkit.cli.main import app\ntry: app()\nexcept SystemExit: pass\nprint(*sorted(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert not {"dask", "distributed", "pyarrow.parquet", "scipy"} & set(done.stdout.splitlines()[-1].split())


def test_what_is_not_installed_is_said(monkeypatch) -> None:
    for module in (cluster, files):
        monkeypatch.setattr(module, "find_spec", lambda _: None)
    with pytest.raises(FomkitError, match=r'needs PyArrow.*pip install "pyarrow>='):
        files.check_ending("points.parquet", ".parquet")
    files.check_ending("points.csv", ".csv")
    with pytest.raises(FomkitError, match=r'needs Dask.*pip install "dask\[distributed\]>='):
        fomkit.sweep("p1b3", "titan", {"batch": 8}, scheduler="tcp://127.0.0.1:8786")


MEMORY = """
import resource, sys
from pathlib import Path
import fomkit
from fomkit.files.write import whole_file
from fomkit.output.files import write_blocks
from fomkit.whatif.sweep import make_sweep
from fomkit.whatif.sweep_result import Tally
vary = {"byte_per_s": "0.1 TB/s..4 TB/s", "flop_per_s/fp32/vector": "1 TFLOP/s..20 TFLOP/s"}
vary["price_per_h"] = "1 USD/h..3 USD/h"
def added(blocks, tally):
    for block in blocks:
        tally.add(block)
        yield block
for points in (10_000, 100_000):
    asked = make_sweep(fomkit.model("p1b3"), fomkit.machine("titan"), vary, way="random", points=points)
    tally = Tally(asked)
    with whole_file(Path(sys.argv[1])) as stream:
        write_blocks(added(asked.blocks(), tally), stream, Path(sys.argv[1]).suffix)
    assert tally.seen == points
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


@pytest.mark.parametrize(
    ("machine", "why"),
    [
        ("gh200-96gb", "no power: add"),
        ("a10", "states only the power limit of a chip, which is not a mean; give a mean power"),
        ("45-nm", "of single ops, which a sweep does not store; use fomkit estimate"),
        ("metered", "each mean power of the machine is of one workload; give a mean power"),
    ],
)
def test_why_points_have_no_energy_is_what_the_machine_states(machine: str, why: str) -> None:
    from fomkit.core.machine import AveragePower, Energy, FlopEnergy

    def figure(value: float) -> Fact:
        return Fact(value, value, value, "stated", "a test")

    stated = {
        "45-nm": Energy("chip", byte_j=figure(1e-11), per_flop=(FlopEnergy("fp32", "", figure(1e-12)),)),
        "metered": Energy("chip", average=(AveragePower("p1b3", figure(100.0), "chip"),)),
    }
    target = fomkit.machine("v100" if machine in stated else machine)
    target = replace(target, energy=stated[machine]) if machine in stated else target
    assert why in make_sweep(fomkit.model("p1b3"), target, {"batch": "50,100"}).absent["energy_j"]


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
@pytest.mark.slow
def test_ten_times_the_points_take_no_more_memory(tmp_path, ending) -> None:
    command = [sys.executable, "-c", MEMORY, str(tmp_path / f"points{ending}")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    fewer, more = map(float, done.stdout.split())
    # The columns of the further points alone are 12 MB, and a table of them is made from parts: twice that.
    assert more - fewer < 10e6


def test_a_tally_counts_and_keeps_the_first_of_equals() -> None:
    one_sweep = make_sweep(fomkit.model("p1b3"), fomkit.machine("titan"), {"launch_s": "1 us,2 us"})
    tally = Tally(one_sweep)
    block = one_sweep.stretch(0, 2)
    same = block.assign(**{one.column: block[one.column].iloc[0] for one in one_sweep.objectives})
    tally.add(same)
    tally.add(same)
    assert tally.seen == 4
    assert tally.front.index.tolist() == [0]
