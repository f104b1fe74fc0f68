"""The smallest change that reaches a target: by hand, with a probability, joint changes, unreachable targets."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from json_figures import sorted_out
from typer.testing import CliRunner
from what_if_cases import THIN, WIDE, fact, made_machine, made_model, relu

import fomkit
from fomkit.cli.main import app
from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span, probability_above, reached_with
from fomkit.core.job import Layout
from fomkit.core.machine import Overhead
from fomkit.plan.estimate import estimate
from fomkit.plan.options import Options, change_machine
from fomkit.plan.scaling import with_user_links
from fomkit.profiles.declared import parse_link
from fomkit.profiles.machines import load_machine
from fomkit.profiles.models import load_model
from fomkit.whatif.cases import OneModel, make_goal
from fomkit.whatif.solve import Solution, solve
from fomkit.whatif.solve_one import MOST, Change, search
from fomkit.whatif.subjects import OnNodes

PEAK = "flop_per_s/fp32/vector"
NOW = fomkit.estimate(made_model(THIN), made_machine()).unit_per_day
BOUND = 20 * 1.002
"""Times that the thin product's 4.008 MB take longer at 1 TB/s than its 2 Mflop at 10 TFLOP/s."""


def only(found: Solution, name: str) -> Change:
    (one,) = (one for one in found.changes if one.parameter.name == name)
    return one


def times(factor: float, **more: object) -> Solution:
    """Solve for a multiple of the units per day of the thin product."""
    assert NOW is not None
    return fomkit.solve(made_model(THIN), made_machine(), unit_per_day=factor * NOW.value, **more)  # type: ignore[arg-type]


# --- one parameter, by hand


def test_twice_the_rate_needs_twice_the_bandwidth() -> None:
    found = times(2.0)
    one = only(found, "byte_per_s")
    assert one.reached
    assert one.value == pytest.approx(2e12, rel=1e-8)
    assert one.factor == pytest.approx(2.0, rel=1e-8)
    assert one.probability == pytest.approx(0.5, abs=1e-6)
    assert only(found, "epochs").value == 5
    assert only(found, "train_samples").value == 5000
    assert found.reached
    assert not found.already


def test_a_peak_that_nothing_waits_for_cannot_help() -> None:
    one = only(times(2.0), PEAK)
    assert not one.reached
    assert one.why == "units/day does not depend on it"


def test_bandwidth_helps_until_arithmetic_takes_as_long() -> None:
    assert only(times(0.999 * BOUND), "byte_per_s").factor == pytest.approx(0.999 * BOUND, rel=1e-8)
    one = only(times(1.001 * BOUND), "byte_per_s")
    assert not one.reached
    assert one.factor == MOST
    assert NOW is not None
    assert one.figure.value == pytest.approx(BOUND * NOW.value, rel=1e-6)
    assert one.why == "even at its best, 1000 times, steps wait for compute"


def test_a_step_of_at_most() -> None:
    step = fomkit.estimate(made_model(THIN), made_machine()).step
    found = fomkit.solve(made_model(THIN), made_machine(), step=step.value / 4)
    assert only(found, "byte_per_s").factor == pytest.approx(4.0, rel=1e-8)
    assert only(found, "epochs").why == "step does not depend on it"


def test_what_is_reached_needs_no_change() -> None:
    found = times(0.5)
    assert found.already
    assert found.reached
    assert found.changes == ()
    assert "already reached without a change" in found.summary()


def test_the_data_are_what_must_be_faster() -> None:
    late = Overhead("input", "step", fact(1.0), None)
    machine = made_machine(overheads=(late,))
    now = fomkit.estimate(made_model(WIDE), machine).unit_per_day
    assert now is not None
    found = fomkit.solve(made_model(WIDE), machine, unit_per_day=3 * now.value)
    one = only(found, "overhead/step/input")
    assert one.value == pytest.approx(1 / 3, rel=1e-8)
    assert not only(found, PEAK).reached


def test_a_batch_that_leaves_samples_out_is_no_gain_unsaid() -> None:
    batch, epochs = (
        fomkit.solve("p1b1", "v100", unit_per_day=3000.0, change=[one]).content["assumed"]
        for one in ("batch", "epochs")
    )
    assert any("drops some" in text for text in batch)
    assert not any("drops some" in text for text in epochs)


def test_a_smaller_change_stands_before_a_larger() -> None:
    found = times(1.5)
    sizes = [max(one.factor, 1 / one.factor) for one in found.changes if one.reached]
    assert sizes == sorted(sizes)
    assert [one.reached for one in found.changes] == sorted((one.reached for one in found.changes), reverse=True)


def test_the_answer_is_estimated_again() -> None:
    one = only(fomkit.solve("resnet50", "v100", step=0.07, change=[PEAK]), PEAK)
    changed = change_machine(load_machine("v100"), {PEAK: one.value})
    assert estimate(load_model("resnet50"), changed, Options()).step == one.figure
    assert one.figure.value == pytest.approx(0.07, rel=1e-8)
    assert one.figure.value <= 0.07 * (1 + 1e-15)


# --- whole numbers of which more may help or hinder


def test_a_batch_between_doublings_is_found() -> None:
    """The rate of resnet50 rises and falls with the batch: 326 is the nearest that gives 0.298 a day."""
    found = fomkit.solve("resnet50", "v100", unit_per_day=0.298, change=["batch"])
    one = only(found, "batch")
    assert one.reached
    assert not one.proved
    assert one.figure.value >= 0.298
    subject = OneModel(load_model("resnet50"), load_machine("v100"), Options())
    nearer = subject.at([{"batch": float(batch)} for batch in range(300, int(one.value))])
    assert all(not isinstance(at, FomkitError) and at["unit_per_day"].value < 0.298 for at in nearer)
    assert "does not fit: v100 has" in one.unfit
    assert "does not fit" in found.summary()
    assert found.content["changes"][0]["does_not_fit"] == one.unfit
    assert "units/day are upper bounds; not stated: input, validation, start_up" in found.summary()


def bumps(values: Sequence[float]) -> list[float | None]:
    """Return 0 (sufficient) at 37 and 400, less elsewhere, and None (no estimate) above 600."""
    return [None if value > 600 else 0.0 if value in (37, 400) else -abs(value - 400) for value in values]


def test_the_nearest_that_reaches_is_the_answer() -> None:
    assert search(bumps, 10.0, 1, 1000.0, 512).reached == 37
    assert search(bumps, 390.0, 1, 1000.0, 512).reached == 400


def test_what_lies_between_values_apart_is_looked_at() -> None:
    found = search(bumps, 50.0, 1, 1000.0, 40)
    assert found.reached in (37, 400)
    none = search(lambda values: [-1.0 for _ in values], 4.0, 1, 10.0, 512)
    assert none.reached is None
    assert sorted([*none.known, 4.0]) == [float(value) for value in range(1, 41)]


def test_nodes_change_by_those_of_a_copy() -> None:
    machine = with_user_links(load_machine("a100-sxm"), [parse_link("system, 5 us, 25 GB/s, each")])
    layout = Layout(tensor=8, pipeline=2, sequence=True)
    subject = OnNodes(load_model("gpt-22b"), machine, Options(), layout, 2)
    (nodes,) = (one for one in subject.parameters() if one.name == "nodes")
    step = 16 // (machine.node_devices or 0)
    assert step == 2
    assert nodes.grain == step
    now = subject.figures_at({})["sample_per_s"].value
    (more,) = subject.at([{"nodes": 4.0}])
    assert not isinstance(more, FomkitError)
    assert more["sample_per_s"].value > now


# --- probability


@settings(max_examples=50)
@given(st.floats(0.01, 0.99), st.floats(1.0, 100.0), st.floats(1.01, 3.0), st.floats(1.01, 3.0))
def test_what_is_reached_with_a_probability_is_reached_with_it(
    probability: float, value: float, below: float, above: float
) -> None:
    span = Span(value, value / below, value * above)
    assert probability_above(span, reached_with(span, probability)) == pytest.approx(probability, abs=1e-9)


@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9, 0.99])
def test_a_change_reaches_the_target_with_the_probability_asked_for(probability: float) -> None:
    found = times(3.0, probability=probability, change=["byte_per_s"])
    one = found.changes[0]
    assert one.reached
    assert one.probability == pytest.approx(probability, abs=1e-6)
    assert one.probability >= probability - 1e-12


def test_more_certainty_takes_more() -> None:
    factors = [times(3.0, probability=share, change=["byte_per_s"]).changes[0].factor for share in (0.2, 0.5, 0.9)]
    assert factors[0] < factors[1] < factors[2]
    assert factors[1] == pytest.approx(3.0, rel=1e-8)
    assert NOW is not None
    assert factors[2] == pytest.approx(3.0 * NOW.value / reached_with(NOW, 0.9), rel=1e-6)


def test_a_target_may_be_out_of_reach_for_its_probability_alone() -> None:
    assert only(times(15.0, probability=0.5), "byte_per_s").reached
    assert not only(times(15.0, probability=0.99), "byte_per_s").reached


# --- together


def test_a_corner_is_found_exactly() -> None:
    """Thirty times as fast needs thirty times the bandwidth and 30 / 20.04 times the peak, and no other mix."""
    found = times(30.0, frontier=["byte_per_s", "flop_per_s"])
    assert found.frontier is not None
    (one,) = found.frontier.points
    assert one.factors["byte_per_s"] == pytest.approx(30.0, rel=1e-5)
    assert one.factors[PEAK] == pytest.approx(30 / BOUND, rel=1e-5)
    assert one.total == pytest.approx(math.log(30) + math.log(30 / BOUND), rel=1e-5)
    assert found.changes == ()
    assert found.reached


def test_two_ops_in_a_row_trade_bandwidth_for_peak() -> None:
    """Two ops with equal times, each bound by one rate: x = y = 2 is the smallest change that halves the time."""
    once = estimate(made_model(THIN, WIDE), made_machine(), Options()).ops["time_s"]
    thin = {**THIN, "count": once.iloc[1] / once.iloc[0]}
    model, machine = made_model(thin, WIDE), made_machine()
    step = fomkit.estimate(model, machine).step.value
    found = fomkit.solve(model, machine, step=step / 2, frontier=["byte_per_s", PEAK])
    assert found.frontier is not None
    least, *others = found.frontier.points
    assert least.total == pytest.approx(2 * math.log(2), rel=1e-5)
    assert least.factors["byte_per_s"] == pytest.approx(2.0, rel=0.01)
    assert len(others) > 4
    for one in (least, *others):
        x, y = one.factors["byte_per_s"], one.factors[PEAK]
        assert 1 / x + 1 / y == pytest.approx(1.0, rel=1e-6)
        assert one.probability == pytest.approx(0.5, abs=1e-6)
    needs = [(one.factors["byte_per_s"], one.factors[PEAK]) for one in (least, *others)]
    assert not any(a[0] <= b[0] and a[1] <= b[1] for a in needs for b in needs if a is not b)


def test_no_combination_may_be_enough() -> None:
    found = times(1e6, frontier=["byte_per_s", PEAK])
    assert found.frontier is not None
    assert found.frontier.points == ()
    assert found.frontier.why == "even if all are 1000 times as good, steps wait for memory"
    assert not found.reached
    assert "cannot reach it" in found.summary()


def on_nodes() -> OnNodes:
    machine = with_user_links(load_machine("a100-sxm"), [parse_link("system, 5 us, 25 GB/s, each")])
    return OnNodes(load_model("p1b3"), machine, Options(), Layout(), 2)


def test_nodes_and_links() -> None:
    subject = on_nodes()
    now = subject.figures_at({})["unit_per_day"].value
    found = solve(subject, make_goal(unit_per_day=1.3 * now), ["nodes", "link_byte_per_s"])
    nodes = only(found, "nodes")
    assert nodes.reached
    assert nodes.value == 3
    (fewer,) = subject.at([{"nodes": nodes.value - 1}])
    assert not isinstance(fewer, FomkitError)
    assert fewer["unit_per_day"].value < 1.3 * now
    border = solve(subject, make_goal(unit_per_day=1.3 * now), (), ["nodes", "link_byte_per_s"]).frontier
    assert border is not None
    assert len(border.points) >= 1
    assert all(one.values["nodes"] == round(one.values["nodes"]) for one in border.points)


# --- the command


def run(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, [*words, "--quiet"])
    return (2, str(done.exception)) if isinstance(done.exception, FomkitError) else (done.exit_code, done.output)


@pytest.mark.parametrize(
    "words",
    [
        "p1b3-lecture --target x86-lecture --units-per-day 5 --probability 0.9",
        "p1b3 -t v100 --units-per-day 1",
    ],
)
def test_every_figure_of_the_json_is_a_metric(words: str) -> None:
    """Cases with a measurement and with the target already reached; test_metrics.py has the others."""
    code, text = run("solve", *words.split(), "--json")
    assert code == 0
    content = json.loads(text)
    assert content["schema"] == "fomkit/solve/1"
    assert not sorted_out(content, "solve")[1]


def test_out_of_reach_is_an_answer() -> None:
    code, text = run("solve", "p1b3", "--target", "v100", "--step", "1 ns", "--json")
    assert code == 0
    content = json.loads(text)
    assert content["reached"] is False
    assert all(one["reached"] is False and one["why"] for one in content["changes"])
    assert all(one["needed"] is None and one["factor"] is None for one in content["changes"])


def test_a_suite(tmp_path: Path) -> None:
    path = tmp_path / "s.suite.yaml"
    path.write_text(
        "schema: fomkit/suite/1\nname: s\nversion: 1\nbaseline: p100\nscope: device\n"
        "mean: ratio_of_harmonic_means\nlines:\n"
        "  - {name: TWO, basis: modelled, party: lab, model: p1b3, batch: 100, epochs: 20}\n"
    )
    code, text = run("solve", "--suite", str(path), "--target", "v100", "--fom", "3", "--json")
    assert code == 0
    content = json.loads(text)
    assert {one["of"] for one in content["changes"]} == {"machine"}
    code, text = run("solve", "--suite", str(path), "--target", "v100", "--fom", "3", "--change", "TWO.epochs")
    assert code == 0
    assert "TWO.epochs" in text


def test_the_lectures_fifty_times_on_summit_by_utilisation_by_precision_and_by_nodes() -> None:
    content = json.loads(run("solve", "--suite", "kpp", "--target", "summit", "--fom", "50", "--json")[1])
    needed = {one["parameter"]: one["needed"] for one in content["changes"] if one["reached"]}
    factor = 50 * 18_688 / (13.8 * 27_648)
    assert needed["CANDLE.utilisation_gain"] == pytest.approx(factor, rel=1e-9)
    assert needed["CANDLE.precision_gain"] == pytest.approx(factor, rel=1e-9)
    assert needed["nodes"] == math.ceil(4608 * factor)
    words = ["--fom", "50", "--frontier", "CANDLE.utilisation_gain,CANDLE.precision_gain", "--json"]
    points = json.loads(run("solve", "--suite", "kpp", "--target", "summit", *words)[1])["frontier"]["points"]
    assert len(points) > 5
    assert all(math.prod(point["factors"].values()) == pytest.approx(factor, rel=1e-6) for point in points)


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "changes.csv"
    assert run("solve", "p1b3-lecture", "-t", "x86-lecture", "--units-per-day", "5", "-o", str(path))[0] == 0
    assert path.read_text().startswith("parameter,of,unit,setting,reached,needed")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "goal: none is given. Give one of --units-per-day, --step, --fom (--fom needs --suite)."),
        ("--units-per-day 5 --step 1ms", "--units-per-day and --step are given"),
        ("--units-per-day 0", "--units-per-day: is 0.0. Give a finite number above 0"),
        ("--units-per-day -5", "--units-per-day: is -5.0"),
        ("--units-per-day nan", "--units-per-day: is nan"),
        ("--step 20", "has no unit"),
        ("--step 0s", "--step: is 0.0"),
        ("--fom 5", "--fom: needs a suite. Give --suite in place of MODEL, or use --units-per-day or --step."),
        ("--units-per-day 1e9 --probability 1", "--probability: is 1.0. Give a number between 0 and 1"),
        ("--units-per-day 1e9 --probability 0", "--probability: is 0.0"),
        (
            "--units-per-day 1e9 --change byte_per_sec",
            "byte_per_sec: is not a parameter here. The nearest name is",
        ),
        (
            "--units-per-day 1e9 --change nodes",
            "change nodes: is not a parameter here. It is one with --scope system.",
        ),
        (
            "--units-per-day 1e9 --change host_op_s",
            "change host_op_s: is not a parameter here. It is one where the machine states its host.",
        ),
        ("--units-per-day 1e9 --frontier byte_per_s", "needs at least two parameters"),
        ("--units-per-day 1e9 --frontier byte_per_s,batch", "cannot include batch"),
        ("--units-per-day 1e9 --frontier byte_per_s,byte_per_s", "is given twice"),
        ("--units-per-day 1e9 -o x.html", "has an ending that solve cannot write"),
        ("--units-per-day 1e9 --change byte_per_s -o /nowhere/x.csv", "cannot be written"),
    ],
)
def test_what_cannot_be_asked(words: str, message: str) -> None:
    code, text = run("solve", "p1b3", "--target", "v100", *words.split())
    assert code == 2
    assert message in text


def test_the_goal_of_a_model_without_a_run_is_its_step() -> None:
    from dataclasses import replace

    model = made_model(relu(1e6), data=replace(made_model(THIN).data, train_samples=None))
    with pytest.raises(FomkitError, match="does not define a run"):
        fomkit.solve(model, made_machine(), unit_per_day=5.0)
    assert fomkit.solve(model, made_machine(), step=1e-9).changes


@pytest.mark.parametrize("value", [True, "5", math.inf, [5]])
def test_a_goal_is_a_number(value: object) -> None:
    with pytest.raises(FomkitError, match="Give a finite number above 0"):
        make_goal(unit_per_day=value)  # type: ignore[arg-type]
