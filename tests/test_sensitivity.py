"""Sensitivity of a result: elasticities that follow from theory, swings, what to measure, and the tornado."""

from __future__ import annotations

import json
import math
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from json_figures import sorted_out
from typer.testing import CliRunner
from what_if_cases import THIN, WIDE, fact, made_machine, made_model, relu

import fomkit
from fomkit.cli.main import app
from fomkit.core.errors import FomkitError, install_hint
from fomkit.core.interval import Span
from fomkit.core.job import Layout
from fomkit.core.machine import Machine, Overhead
from fomkit.core.model import ModelProfile
from fomkit.output.pages import chart_file
from fomkit.plan.estimate import estimate
from fomkit.plan.evidence import explain_ops
from fomkit.plan.options import Options, change_machine
from fomkit.plan.scaling import with_user_links
from fomkit.profiles.declared import parse_link
from fomkit.profiles.machines import load_machine
from fomkit.profiles.models import load_model, save_model
from fomkit.profiles.suites import load_suite
from fomkit.whatif.cases import OneModel, figures_of
from fomkit.whatif.sensitivity import STEP, Sensitivity, effect_of
from fomkit.whatif.subjects import OfSuite, OnNodes, subject_of_model

PEAK = "flop_per_s/fp32/vector"
INPUT = "overhead/step/input"


def slopes(found: Sensitivity, figure: str = "unit_per_day") -> dict[str, float]:
    return {one.parameter.name: one.elasticity[figure] for one in found.effects}


def why_not_varied(found: Sensitivity) -> dict[str, str]:
    return dict(found.not_varied)


# --- by hand


def test_a_step_that_waits_for_memory_hangs_on_bandwidth_alone() -> None:
    found = fomkit.sensitivity(made_model(THIN), made_machine())
    assert slopes(found)["byte_per_s"] == pytest.approx(1.0, abs=1e-9)
    assert slopes(found)["epochs"] == pytest.approx(-1.0, abs=1e-9)
    assert slopes(found)["train_samples"] == pytest.approx(-1.0, abs=1e-9)
    assert slopes(found, "step_s")["byte_per_s"] == pytest.approx(-1.0, abs=1e-9)
    assert why_not_varied(found)[PEAK] == "no figure depends on it"
    assert "does not state it" in why_not_varied(found)["launch_s"]
    assert why_not_varied(found)["batch"] == "the ops of the profile are fixed at it"


def test_a_step_that_waits_for_arithmetic_hangs_on_the_peak_alone() -> None:
    found = fomkit.sensitivity(made_model(WIDE), made_machine())
    assert slopes(found)[PEAK] == pytest.approx(1.0, abs=1e-9)
    assert why_not_varied(found)["byte_per_s"] == "no figure depends on it"


def test_ten_percent_more_bandwidth_is_ten_percent_more_a_day() -> None:
    found = fomkit.sensitivity(made_model(THIN), made_machine())
    (one,) = (one for one in found.effects if one.parameter.name == "byte_per_s")
    now = found.figures["unit_per_day"].value
    assert (one.low, one.high) == (0.9e12, pytest.approx(1.1e12))
    assert one.at_low is not None
    assert one.at_high is not None
    assert one.at_low.value == pytest.approx(0.9 * now)
    assert one.at_high.value == pytest.approx(1.1 * now)
    assert one.swing == pytest.approx(0.2)
    assert one.smooth
    assert one.at_half_step == pytest.approx(1.0)


def test_a_step_between_two_limits_is_a_kink() -> None:
    """The times at peak and at bandwidth are equal: less of either costs time, more of one alone gains none."""
    ops = estimate(made_model(THIN), made_machine(), Options()).ops
    flop, byte = ops["flop"].iloc[0], ops["byte"].iloc[0]
    found = fomkit.sensitivity(made_model(THIN), made_machine(peak=1e12 * flop / byte))
    for name in (PEAK, "byte_per_s"):
        (one,) = (one for one in found.effects if one.parameter.name == name)
        assert one.below == pytest.approx(1.0, abs=1e-6)
        assert one.above == pytest.approx(0.0, abs=1e-6)
        assert one.elasticity["unit_per_day"] == pytest.approx(0.5, abs=1e-6)
        assert not one.smooth
    assert "* not smooth in byte_per_s: +1.000 below" in found.summary()


def test_a_figure_that_turns_has_no_one_slope() -> None:
    (one, *_) = fomkit.sensitivity(made_model(THIN), made_machine()).effects
    turned = replace(one, below=0.5, above=-0.3, smooth=False)
    assert turned.kink
    assert not replace(turned, above=0.0).kink
    assert not replace(turned, above=None).kink
    found = replace(fomkit.sensitivity(made_model(THIN), made_machine()), effects=(turned,))
    assert "kink *" in found.summary()
    assert found.content["parameters"][0]["kink"] is True


def test_data_that_are_late_bind_and_nothing_else_does() -> None:
    late = Overhead("input", "step", fact(1.0, 0.5, 2.0), None)
    found = fomkit.sensitivity(made_model(THIN), made_machine(overheads=(late,)))
    assert slopes(found)[INPUT] == pytest.approx(-1.0, abs=1e-9)
    assert why_not_varied(found)["byte_per_s"] == "no figure depends on it"
    (one,) = (one for one in found.effects if one.parameter.name == INPUT)
    assert one.parameter.has_interval
    assert (one.low, one.high) == (0.5, 2.0)
    assert one.swing == pytest.approx(2.0 - 0.5)


def test_the_swing_is_over_the_interval_that_the_source_states() -> None:
    found = fomkit.sensitivity("resnet50", "v100")
    rows = found.bars().set_index("parameter")
    assert rows.loc["launch_s", ["low", "high", "varied"]].tolist() == [3e-6, 1e-5, "its interval"]
    assert rows.loc["byte_per_s", ["low", "high", "varied"]].tolist() == [810e9, pytest.approx(990e9), "±10%"]
    assert list(rows["of"]) == sorted(rows["of"])  # the machine leads, then what the work is
    for _, group in rows.groupby("of"):
        assert list(group["swing"]) == sorted(group["swing"], reverse=True)
    assert "units/day are upper bounds; not stated: input, validation, start_up" in found.summary()
    again = estimate(
        load_model("resnet50"), change_machine(load_machine("v100"), {"launch_s": 1e-5}), Options()
    ).unit_per_day
    assert again is not None
    assert rows.loc["launch_s", "at_high"] == pytest.approx(again.value, rel=1e-9)


def test_a_launch_cost_of_nothing_has_no_logarithm() -> None:
    found = fomkit.sensitivity(made_model(THIN), made_machine(launch=fact(0.0)))
    assert why_not_varied(found)["launch_s"] == "it is 0, which has no logarithm"


def test_whole_numbers_move_to_their_neighbours() -> None:
    found = fomkit.sensitivity("gpt2", "a100-sxm", batch=1)
    (one,) = (one for one in found.effects if one.parameter.name == "batch")
    assert (one.low, one.high) == (1.0, 2.0)
    assert one.below is None
    two = fomkit.estimate("gpt2", "a100-sxm", batch=2).unit_per_day
    assert two is not None
    expected = math.log(two.value / found.figures["unit_per_day"].value) / math.log(2)
    assert one.elasticity["unit_per_day"] == pytest.approx(expected, rel=1e-9)


# --- theory

sizes = st.integers(1, 12).map(lambda power: 2.0**power)
products = st.builds(lambda m, n, k: {**THIN, "m": m, "n": n, "k": k}, sizes, sizes, sizes)
elements = st.integers(1, 10_000_000).map(lambda numel: relu(float(numel)))


@settings(max_examples=12)
@given(st.lists(st.one_of(products, elements), min_size=1, max_size=5), st.floats(1e-7, 1e-4))
def test_elasticities_of_a_step_add_up(ops: list[dict[str, object]], launch_s: float) -> None:
    """Doubling every rate and halving the launch cost halves the time, so the slopes of ln(step) sum to -1.

    Not where the step just begins to wait for its host: there each slope is a mean over another part of the bend.
    """
    machine, model = made_machine(launch=fact(launch_s, launch_s / 2, launch_s * 2)), made_model(*ops)
    terms = fomkit.estimate(model, machine).step_time
    assert terms.host_launch_s is not None
    assume(abs(math.log(terms.host_launch_s.value / terms.device_s.value)) > 2 * STEP)
    found = slopes(fomkit.sensitivity(model, machine), "step_s")
    total = found.get("byte_per_s", 0.0) + found.get(PEAK, 0.0) - found.get("launch_s", 0.0)
    assert total == pytest.approx(-1.0, abs=STEP**2)


@settings(max_examples=12)
@given(st.lists(st.one_of(products, elements), min_size=1, max_size=4), st.floats(0.1, 10.0))
def test_all_rates_times_a_factor_divide_the_device_time(ops: list[dict[str, object]], times: float) -> None:
    subject = OneModel(made_model(*ops), made_machine(launch=fact(5e-6)), Options())
    faster = {"byte_per_s": 1e12 * times, PEAK: 1e13 * times, "launch_s": 5e-6 / times}
    before, after = subject.figures_at({}), subject.figures_at(faster)
    assert after["step_s"].value == pytest.approx(before["step_s"].value / times, rel=1e-9)


@pytest.mark.parametrize(("model", "machine"), [("resnet50", "v100"), ("p1b3", "titan"), ("gpt2", "a100-sxm")])
def test_elasticities_of_shipped_models_add_up(model: str, machine: str) -> None:
    found = slopes(fomkit.sensitivity(model, machine), "step_s")
    rates = sum(slope for name, slope in found.items() if name == "byte_per_s" or name.startswith("flop_per_s"))
    assert rates - found["launch_s"] == pytest.approx(-1.0, abs=1e-4)


def test_points_together_are_points_alone() -> None:
    subject = OneModel(load_model("vgg16"), load_machine("v100"), Options())
    points = [{"byte_per_s": 5e11}, {"byte_per_s": 2e12}, {"batch": 7.0}, {"launch_s": 1e-6, PEAK: 3e13},
              {"epochs": 3.0}]  # fmt: skip
    for point, found in zip(points, subject.at(points), strict=True):
        again = subject.figures_at(point)
        assert not isinstance(found, FomkitError)
        for name, span in again.items():
            assert [found[name].value, found[name].low, found[name].high] == pytest.approx(
                [span.value, span.low, span.high], rel=1e-9
            )


def test_a_point_that_cannot_be_says_why() -> None:
    subject = OneModel(load_model("p1b3"), load_machine("v100"), Options())
    good, bad = subject.at([{"batch": 50.0}, {"batch": 1e6}])
    assert not isinstance(good, FomkitError)
    assert isinstance(bad, FomkitError)
    assert "more than the 800,121 samples" in bad.what


# --- what to measure


def test_what_an_op_would_shrink_is_what_explain_says() -> None:
    model, machine = load_model("resnet50"), load_machine("v100")
    told = explain_ops(estimate(model, machine, Options()), 5)["measurements"]
    found = [one for one in fomkit.sensitivity(model, machine).to_measure["measurements"] if one["kind"] == "op"]
    for ours, theirs in zip(found, told, strict=False):
        assert (ours["what"], ours["shrinks"], ours["step_s"]) == (
            theirs["sizes"], theirs["shrinks"], theirs["step_s"]
        )  # fmt: skip
    command = "fomkit measure --for resnet50 --batch 32 --device cuda -o here.yaml"
    assert found[0]["command"] == command
    text = fomkit.sensitivity(model, machine).summary()
    assert text.count(command) == 1
    assert f"\nthe others: {command}\n" in text


def test_a_profile_that_was_given_by_its_path_is_measured_by_its_path(tmp_path: Path) -> None:
    save_model(replace(load_model("p1b3"), name="mine"), path := tmp_path / "my own.yaml")
    found = fomkit.sensitivity(path, "v100").to_measure["measurements"]
    command = next(one["command"] for one in found if one["kind"] == "op")
    _, _, flag, given, *_ = shlex.split(command)
    assert (flag, load_model(given).name) == ("--for", "mine")


def test_a_known_launch_cost_is_an_estimate_without_its_spread() -> None:
    launch = fact(5e-6, 1e-6, 2e-5)
    model, machine = made_model(relu(10.0, count=1000.0)), made_machine(launch=launch)
    found = {one["what"]: one for one in fomkit.sensitivity(model, machine).to_measure["measurements"]}
    exact = replace(launch, low=launch.value, high=launch.value)
    then = estimate(model, replace(machine, device=replace(machine.device, launch_s=exact)), Options()).step
    now = estimate(model, machine, Options()).step
    one = found["launch_s"]
    assert one["step_s"] == {"value": then.value, "low": then.low, "high": then.high}
    assert one["shrinks"] == pytest.approx(1 - (then.high - then.low) / (now.high - now.low))
    assert one["shrinks"] > 0.3
    assert found["a whole step"]["shrinks"] == 1.0


def test_measurements_are_ranked_and_facts_without_spread_named_apart() -> None:
    found = fomkit.sensitivity("p1b3", "titan").to_measure
    shares = [one["shrinks"] for one in found["measurements"]]
    assert shares == sorted(shares, reverse=True)
    assert min(shares) >= 0
    assert found["no_spread_stated"] == ["byte_per_s", PEAK]


# --- suites and nodes


@pytest.fixture(scope="module")
def of_suite(tmp_path_factory: pytest.TempPathFactory) -> OfSuite:
    path = tmp_path_factory.mktemp("suite") / "s.suite.yaml"
    path.write_text(
        "schema: fomkit/suite/1\nname: s\nversion: 1\nbaseline: p100\nscope: device\n"
        "mean: ratio_of_harmonic_means\nlines:\n"
        "  - {name: TWO, basis: modelled, party: lab, model: p1b3, batch: 100, epochs: 20}\n"
        "  - {name: GIVEN, basis: committed, party: vendor, given: {v100: 5 h, p100: 9 h}}\n"
    )
    return OfSuite(load_suite(path), load_machine("p100"), load_machine("v100"), Options(), load_model)


def test_lines_of_a_suite_quickly_are_lines_rated(of_suite: OfSuite) -> None:
    for point in ({}, {"byte_per_s": 2e12}, {"launch_s": 1e-6, PEAK: 3e13}, {"GIVEN.precision_gain": 2.0}):
        (quick,), whole = of_suite.at([point]), of_suite.figures_at(point)
        assert not isinstance(quick, FomkitError)
        ends = [[one["fom"].value, one["fom"].low, one["fom"].high] for one in (quick, whole)]
        assert ends[0] == pytest.approx(ends[1], rel=1e-9)


def test_a_fom_hangs_on_the_estimated_lines_only(of_suite: OfSuite) -> None:
    from fomkit.whatif.sensitivity import sensitivity

    found = sensitivity(of_suite)
    assert found.figure == "fom"
    assert found.title["lines_that_stay"] == ["GIVEN"]
    names = slopes(found, "fom")
    assert {"TWO.batch", "TWO.epochs", "TWO.samples", "byte_per_s", PEAK, "launch_s"} <= set(names)
    # The FOM is a ratio of sums of times: the share of the time that TWO takes on the target is its slope.
    result = of_suite.result
    times = [1 / one.unit_per_day.value for one in result.target if one.unit_per_day is not None]
    near = fomkit.sensitivity("p1b3", "v100").effects
    slope = next(one.elasticity["unit_per_day"] for one in near if one.parameter.name == PEAK)
    assert names[PEAK] == pytest.approx(slope * times[0] / sum(times), rel=1e-3)
    kinds = {one["what"] for one in found.to_measure["measurements"]}
    assert {"TWO on p100", "TWO on v100"} <= kinds
    assert "lines without an estimate on v100, which rates do not affect: GIVEN" in found.summary()
    # A given time is a part of the target's sum as it stands; its stated gains move it as a whole.
    for gain in ("utilisation_gain", "precision_gain"):
        assert names[f"GIVEN.{gain}"] == pytest.approx(times[1] / sum(times), rel=1e-3)


def on_nodes(nodes: int = 2) -> OnNodes:
    machine = with_user_links(load_machine("a100-sxm"), [parse_link("system, 5 us, 25 GB/s, each")])
    return OnNodes(load_model("p1b3"), machine, Options(), Layout(), nodes)


def test_a_training_on_nodes_hangs_on_its_links() -> None:
    from fomkit.whatif.sensitivity import sensitivity

    found = sensitivity(on_nodes())
    assert "2 nodes, batch 1,600 (100 for each replica), fp32: units/day" in found.summary()
    same = fomkit.estimate("p1b3", on_nodes().machine, nodes=2, batch=int(found.content["samples_per_step"]))
    assert found.content["figures"]["step_s"]["value"] == pytest.approx(same.step.value, rel=1e-12)
    names = slopes(found)
    assert 0 < names["link_byte_per_s"] < 1
    assert -1 < names["link_alpha_s"] < 0
    assert 0 < names["nodes"] <= 1
    # Timed collectives inside the node keep their share of its link's rate.
    assert 0 < names["node_link_byte_per_s"] < 1
    assert {one["what"] for one in found.to_measure["measurements"]} == {
        "a step on one device", "the collectives between the devices"
    }  # fmt: skip


# --- the tornado, the page and the files


def test_a_tornado_has_a_bar_for_each_end() -> None:
    found = fomkit.sensitivity(made_model(THIN), made_machine())
    chart = json.loads(found.chart().to_json())
    bars = [row for rows in chart["datasets"].values() for row in rows if "end" in row]
    assert len(bars) == 2 * len(found.effects)
    assert {bar["end"] for bar in bars} == {"the lower value", "the higher value"}
    assert {"#0072B2", "#E69F00"} <= set(json.dumps(chart).replace('"', " ").split())


def test_hostile_names_stay_text_in_a_page() -> None:
    hostile = "</script><script>alert(1)</script>"
    found = fomkit.sensitivity(replace(made_model(THIN), name=hostile), made_machine(name=hostile))
    page = chart_file(found.chart(), ".html")
    assert isinstance(page, str)
    assert hostile not in page
    assert "alert(1)" in page
    assert 'src="http' not in page


def run(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, [*words, "--quiet"])
    return (2, str(done.exception)) if isinstance(done.exception, FomkitError) else (done.exit_code, done.output)


@pytest.mark.parametrize("words", ["p1b3 --target v100", "p1b3 -t v100 --scope device --batch 64 --interval 0.5"])
def test_every_figure_of_the_json_is_a_metric(words: str) -> None:
    code, text = run("sensitivity", *words.split(), "--json")
    assert code == 0
    content = json.loads(text)
    assert content["schema"] == "fomkit/sensitivity/1"
    assert not sorted_out(content, "sensitivity")[1]


@pytest.mark.parametrize("ending", [".html", ".png", ".svg", ".csv", ".json"])
def test_files(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"out{ending}"
    assert run("sensitivity", "p1b3-lecture", "-t", "x86-lecture", "-o", str(path))[0] == 0
    start = {".png": b"\x89PNG", ".csv": b"parameter,of,unit,setting", ".json": b"{", ".svg": b"<svg",
             ".html": b"<!DOCTYPE html>"}[ending]  # fmt: skip
    assert path.read_bytes().strip().startswith(start)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--target v100", "MODEL: is missing. Give a model, or --suite."),
        ("p1b3 --suite candle --target v100", "MODEL: and --suite exclude each other. Give one of them."),
        ("p1b3 --target v100 --baseline p100", "--baseline: is the baseline of a suite's FOM"),
        ("p1b3 --target v100 --layout zero=1", "--layout: is for runs on nodes. Add --nodes."),
        ("--suite candle --target v100 --nodes 2", "exclude each other"),
        ("--suite candle --target v100 --batch 2", "fixes batch, sizes, precision and scope"),
        ("p1b3 --target v100 -o x.pdf", "x.pdf: has an ending that sensitivity cannot write"),
        ("p1b3 --target nowhere", "nowhere"),
        ("p1b3 --target v100 --nodes 2 --batch 1600", "states no link of tier 'system'"),
        ("p1b3 --target v100 --nodes 2", "--batch: 100 samples of a whole step do not divide into 16 replicas"),
        ("p1b3 --target v100 --nodes 2 --batch 16 --replica-batch 1", "--batch: and --replica-batch exclude"),
        ("p1b3 --target v100 --replica-batch 1", "--replica-batch: is for runs on nodes. Add --nodes."),
    ],
)
def test_what_cannot_be_asked(words: str, message: str) -> None:
    code, text = run("sensitivity", *words.split())
    assert code == 2
    assert message in text


def test_without_the_plotting_libraries_a_picture_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    code, text = run("sensitivity", "p1b3", "--target", "v100", "-o", "x.png")
    assert code == 2
    assert install_hint("report") in text


def test_no_parameter_is_a_message() -> None:
    nothing = made_model(THIN, data=replace(made_model(THIN).data, train_samples=None))
    bare: Machine = load_machine("x86-lecture")
    model: ModelProfile = replace(load_model("p1b3-lecture"), data=nothing.data)
    with pytest.raises(FomkitError, match="no parameter changes a figure"):
        fomkit.sensitivity(model, bare)


def test_figures_without_a_run_are_those_of_a_step() -> None:
    model = made_model(THIN, data=replace(made_model(THIN).data, train_samples=None))
    found = fomkit.sensitivity(model, made_machine())
    assert found.figure == "sample_per_s"
    assert set(figures_of(fomkit.estimate(model, made_machine()))) == {"sample_per_s", "step_s"}
    assert isinstance(found.figures["sample_per_s"], Span)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"suite": "lecture", "nodes": 4, "layout": "zero=1"}, "suite: and `nodes`, `layout` exclude each other"),
        ({"model": "p1b3-lecture", "baseline": "titan"}, "baseline: is the baseline of a suite's FOM"),
        ({}, "model: is missing. Give a model, or `suite`."),
    ],
)
def test_options_of_something_else_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(FomkitError, match=message):
        fomkit.sensitivity(**{"model": None, "machine": "x86-lecture", **options})


def test_more_nodes_than_a_system_has_complete_no_run() -> None:
    """The rate has no slope there, and the time of a step does not replace it."""
    of_one = subject_of_model(
        load_model("llama3-8b-decode"), replace(load_machine("h100-sxm"), system_nodes=1), Options(), 1, Layout()
    )
    more = next(one for one in of_one.parameters() if one.name == "nodes")
    assert "unit_per_day" not in of_one.figures_at({"nodes": 2})
    assert effect_of(of_one, more, of_one.figures_at({}), "unit_per_day") is None
