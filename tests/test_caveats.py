"""Caveats of a rate: excluded terms, measured runs, models that no device can hold."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from short_suite import LINES, short_suite
from typer.testing import CliRunner

import fomkit
from fomkit.cli.main import app
from fomkit.core.errors import FomkitError
from fomkit.core.machine import Fact, Machine, Overhead
from fomkit.core.units import format_number
from fomkit.output.screen import Screen
from fomkit.output.suites import format_suite
from fomkit.output.values import format_interval
from fomkit.plan.content import conditions_content
from fomkit.plan.estimate import estimate
from fomkit.plan.options import Options
from fomkit.plan.scaling import ScalingSpec, scale
from fomkit.plan.scenarios import prepare_study
from fomkit.profiles.evidence import with_fits
from fomkit.profiles.machines import load_machine
from fomkit.profiles.models import load_model, save_model
from fomkit.profiles.suites import load_suite
from fomkit.verbs.compare import compare, estimates_content
from fomkit.verbs.suite_content import suite_content
from fomkit.workbook.from_studies import sheet_model_of_comparison
from fomkit.workbook.write import write_workbook

LITTLE = {"P1B1", "P1B2", "P1B3", "NT3", "UNO", "COMBO", "P2B1", "P3B1"}
PRICE = ("--price", "3 USD/h per device, 2018-04-01")
FIRST = """schema: fomkit/suite/1
name: s
version: 1
baseline: p100
scope: device
mean: ratio_of_harmonic_means
lines:
  - {name: TWO, basis: modelled, party: lab, model: p1b3, batch: 100, epochs: 20}
"""


def run(*words: str) -> Any:
    return CliRunner().invoke(app, [*words, *(() if words[0] in ("review", "accept") else ("--quiet",))])


def content_of(*words: str) -> dict[str, Any]:
    done = run(*words, "--json")
    assert done.exception is None or done.exit_code == 1, done.output
    return json.loads(done.stdout)


# --- what rates leave out ----------------------------------------------------------------------------------------


def test_a_fom_says_what_its_rates_leave_out() -> None:
    content = content_of("fom", "candle", "--target", "v100")
    assert content["fom"]["excludes"] == ["input", "start_up", "framework"]  # P3B1 alone has so short a step
    lines = {one["name"]: one for one in content["lines"]}
    assert [name for name, one in lines.items() if "framework" in (one["excludes"] or ())] == ["P3B1"]
    assert lines["P1B3"]["excludes"] == ["input", "start_up"]
    assert lines["P1B3"]["machines"]["v100"]["excludes"] == ["input", "start_up"]
    text = run("fom", "candle", "--target", "v100").output
    assert "units/day are upper bounds; not stated: input, start_up, framework" in text
    given = content_of("fom", "lecture")
    assert given["fom"]["excludes"] == given["lines"][0]["excludes"] == []
    other = content_of("estimate", "resnet50", "--target", "v100", "--baseline", "p100")
    assert other["fom"]["excludes"] == ["input", "validation", "start_up"]


ALONE = "only xeon-6980p excludes host_launch, which favours it"


def test_a_ratio_whose_sides_leave_out_different_terms_says_whose() -> None:
    study = ["gpt2", "xeon-6980p", "h100-sxm"]
    found = fomkit.estimate_all([study[0]], [study[1]], study[2])
    content = found.content
    assert content["models"][1]["ratio"]["excludes_alone"] == {"xeon-6980p": ["host_launch"]}
    assert content["fom"]["excludes_alone"] == {"xeon-6980p": ["host_launch"]}
    headline, *others = found.summary().splitlines()
    assert f"times h100-sxm, but {ALONE}" in headline
    assert f"  {ALONE}" in others
    assert ("", ALONE) in sheet_model_of_comparison(found).caveats
    turned = fomkit.estimate_all([study[0]], [study[2]], study[1])
    assert turned.content["fom"]["excludes_alone"] == {"xeon-6980p": ["host_launch"]}
    same = fomkit.estimate_all([study[0]], ["v100"], study[2])
    assert "which favours it" not in same.summary()
    assert not same.content["fom"]["excludes_alone"]


def test_a_step_that_an_eager_host_may_not_keep_up_with_is_without_its_framework() -> None:
    """A ResNet-50 of batch 1 takes 1 to 3 ms of the device; no eager program starts 463 ops in that time."""
    fast, slow = (fomkit.estimate("resnet50", "h100-sxm", batch=batch) for batch in (1, 1024))
    assert fast.excludes[0] == "framework"
    assert "framework" not in slow.excludes
    said = "an eager PyTorch program usually needs 15 µs to start an op, 7.0 ms a step"
    assert [note[: len(said)] for note in fast.deviations].count(said) == 1
    assert not any("eager" in note for note in slow.deviations)
    machine = load_machine("h100-sxm")
    stated = replace(machine, host_op_s=Fact(15e-6, 9e-6, 35e-6, "assumed", "own loop"))
    with_host = estimate(load_model("resnet50"), stated, Options(batch=1))
    assert "framework" not in with_host.excludes
    assert with_host.step.value == pytest.approx(7.015e-3)
    for model, other in (("resnet50", "tpu-v5e"), ("gpt2", "xeon-6980p")):  # a graph, and a device without a host
        assert "framework" not in fomkit.estimate(model, other, batch=1, precision="bf16").excludes


def test_all_verbs_say_where_a_step_is_without_its_framework(tmp_path: Path) -> None:
    paid = fomkit.cost("resnet50", "b200-sxm").content
    assert paid["excludes"][0] == paid["inference"]["excludes"][0] == "framework"
    rates = {"byte_per_s": "0.9 TB/s,20 TB/s", "flop_per_s/fp32/vector": "15.7 TFLOP/s,300 TFLOP/s"}
    for vary, target, known in (
        ({"batch": [32, 256]}, "b200-sxm", False),
        ({"host_op_s": [5e-6, 51e-6]}, "b200-sxm", True),
        (rates, "v100", False),
        ({"batch": [32, 64]}, "v100", True),
    ):
        assert ("framework" in fomkit.sweep("resnet50", target, vary).content["excludes"]) is not known
    depends = fomkit.sensitivity("resnet50", "b200-sxm").content
    assert "host_op_s" in [one["parameter"] for one in depends["not_varied"]]
    waits = fomkit.machine("b200-sxm").with_(host="40 us")
    with pytest.raises(FomkitError, match=r"a host that needs more than launches, which .* a larger batch\.$"):
        fomkit.write_workbook(fomkit.estimate_all(["resnet50"], [waits]), tmp_path / "one.xlsx")


def test_a_suite_says_whose_terms_its_ratios_lack(tmp_path: Path) -> None:
    words, book = ("fom", short_suite(tmp_path), "--target", "knl-7250"), tmp_path / "book.xlsx"
    content = content_of(*words)
    assert content["fom"]["excludes_alone"] == {"knl-7250": ["host_launch"]}
    assert [one["excludes_alone"] for one in content["lines"]] == [{"knl-7250": ["host_launch"]}] * 2
    said = ALONE.replace("xeon-6980p", "knl-7250")
    assert said in run(*words, "-o", str(book)).output
    cells = [str(row[0].value) for row in openpyxl.load_workbook(book)["Summary"].iter_rows(max_row=12)]
    assert f"caveat: {said}" in cells


def test_one_term_more_makes_a_graph_machine_no_faster_than_it_states() -> None:
    """Every device with a host has a launch term, with a wide interval if it is assumed."""
    for name in ("gaudi-3", "tpu-v5e", "tpu-v5p"):
        machine, gpu = load_machine(name), load_machine("a100-sxm")
        launch = machine.device.launch_s
        assert launch.value == gpu.device.launch_s.value
        assert (launch.low, launch.high) == pytest.approx((0.5e-6, 20e-6))
        assert launch.basis == "assumed"
        assert launch.source
    content = fomkit.estimate_all(["today/llama3-8b-decode"], ["gaudi-3"], "a100-sxm").content
    assert "host_launch" not in content["fom"]["excludes"]
    assert content["fom"]["excludes_alone"] == {}


def test_a_frozen_rate_keeps_what_it_leaves_out(tmp_path: Path) -> None:
    first, second = tmp_path / "s.suite.yaml", tmp_path / "t.suite.yaml"
    first.write_text(FIRST, encoding="utf-8")
    assert run("fom", str(first), "--freeze", str(second)).exit_code == 0
    assert load_suite(second).frozen["TWO"].excludes == ("input", "start_up")
    on = content_of("fom", str(second), "--target", "v100")["lines"][0]["machines"]["p100"]
    assert (on["kind"], on["excludes"]) == ("frozen", ["input", "start_up"])
    # A file that was frozen before does not say it, is still what was frozen, and that is told.
    older = load_suite("candle").frozen["TC1"]
    if older.excludes is None:
        assert "frozen rates of p100 do not state what they exclude" in run("fom", "candle", "-t", "v100").output


# --- what measured runs say --------------------------------------------------------------------------------------


def test_a_line_that_a_measured_run_contradicts_is_named() -> None:
    content = content_of("fom", "candle", "--target", "v100")
    assert set(content["fom"]["little_explained"]) == LITTLE
    lines = {one["name"]: one for one in content["lines"]}
    assert lines["P1B3"]["explained"] == pytest.approx(0.0026, abs=2e-4)  # 15 s of 5,987
    assert "p1b3 on v100: epoch_s measured 1.663 h" in lines["P1B3"]["measured_run"]
    assert lines["TC1"]["explained"] == pytest.approx(0.60, abs=0.1)
    assert lines["P3B2"]["explained"] is None
    assert "explains less than half of a measured run: P1B1" in run("fom", "candle", "--target", "v100").output


@pytest.mark.parametrize(("words", "code", "verdict"), [((), 1, "not given"), (("--allow-excluded",), 0, "met")])
def test_no_verdict_rests_on_it(words: tuple[str, ...], code: int, verdict: str) -> None:
    done = run("fom", "candle", "--target", "v100", "--threshold", "0.5", *words)
    assert done.exit_code == code
    assert "FOM v100 over p100 = " in done.output
    assert f"threshold 0.5000: {verdict}" in done.output
    told = content_of("fom", "candle", "--target", "v100", "--threshold", "0.5", *words)["threshold"]
    assert told["verdict"] == ("meets" if verdict == "met" else verdict)
    assert (told["probability"] is None) == ("why" in told) == (verdict == "not given")


def test_given_times_are_held_against_nothing() -> None:
    done = run("fom", "candle-measured", "--target", "v100", "--threshold", "0.5")
    assert done.exit_code == 0
    assert "threshold 0.5000: met" in done.output


def test_a_model_measured_on_other_machines_only_is_held_against_these(tmp_path: Path) -> None:
    suite = tmp_path / "s.suite.yaml"
    suite.write_text(FIRST.replace("baseline: p100", "baseline: a100-sxm"), encoding="utf-8")
    content = content_of("fom", str(suite), "--target", "h200-sxm", "--threshold", "0.1")
    assert content["fom"]["little_explained"] == ["TWO"]
    assert content["threshold"]["verdict"] == "not given"


def test_the_users_own_table_counts_and_a_stray_file_is_told(tmp_path: Path, monkeypatch) -> None:
    suite = FIRST.replace("model: p1b3, batch: 100", "model: resnet50, batch: 32")
    (tmp_path / "s.suite.yaml").write_text(suite, encoding="utf-8")
    (tmp_path / "measurements").mkdir()
    monkeypatch.chdir(tmp_path)
    words = ("fom", "s.suite.yaml", "--target", "v100", "--threshold", "1.0001")
    assert run(*words).exit_code == 0
    head = "model,machine,quantity,value,batch,precision,devices,scope,basis\n"
    row = "resnet50,v100,sample_per_s,150,32,fp32,1,device,measured\n"
    (tmp_path / "measurements" / "mine.csv").write_text(head + row, encoding="utf-8")
    (tmp_path / "measurements" / "stray.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    done = run(*words)
    assert done.exit_code == 1
    assert "measured run: TWO 42" in done.output
    assert "not read" in done.output
    assert "stray.csv" in done.output


def test_in_python_the_result_carries_it() -> None:
    rated = fomkit.fom("candle", "v100")
    assert {one.line for one in rated.little_explained} == LITTLE
    assert rated.withheld
    assert not fomkit.fom("candle", "v100", allow_excluded=True).withheld


def test_every_fom_carries_what_measured_runs_say_of_it() -> None:
    words = ("estimate", "p1b3", "tc1", "--target", "v100", "--baseline", "p100")
    content = content_of(*words)
    assert content["fom"]["little_explained"] == ["p1b3"]
    assert content["fom"]["explained_shares"]["p1b3"] == pytest.approx(0.0026, abs=2e-4)
    assert content["fom"]["explained_shares"]["tc1"] > 0.5
    assert "p1b3 on v100: epoch_s measured 1.663 h" in content["fom"]["measured_runs"]["p1b3"]
    assert "less than half of a measured run: p1b3 0.2%; the value is of" in run(*words).output
    both = content_of("estimate", "p1b3", *words[3:], "--from", "candle-lecture")
    assert both["from_measurements"]["foms"][0]["little_explained"] == ["p1b3"]
    told = run("estimate", "p1b3", *words[3:], "--from", "candle-lecture").output
    assert told.count("less than half of a measured run: p1b3 0.2%") == 2
    # Without a baseline there is no figure of merit to warn of.
    assert content_of("estimate", "p1b3", "--target", "v100")["fom"] is None


def test_the_workbook_and_python_of_an_estimate_carry_it(tmp_path: Path) -> None:
    both = fomkit.estimate_all(["p1b3"], ["v100"], baseline="p100")
    assert both.little_explained == ("p1b3",)
    assert "less than half of a measured run: p1b3 0.2%" in both.summary()
    said = ("", "the device explains less than half of a measured run of p1b3")
    assert said in sheet_model_of_comparison(both).caveats
    fomkit.write_workbook(both, path := tmp_path / "b.xlsx")
    cells = [cell for sheet in openpyxl.load_workbook(path) for row in sheet.values for cell in row]
    assert any(said[1] in str(cell) for cell in cells)


def test_a_campaign_says_which_phases_measured_runs_contradict() -> None:
    found = content_of("campaign", "candle-example", "--target", "summit")["machines"][0]
    trained = ["search over 1e4 models", "1e6 models x 1e4 data sets"]
    assert found["little_explained"] == trained
    assert [one["name"] for one in found["phases"] if one["explained"] is not None] == trained
    assert "epoch_s measured" in found["phases"][1]["measured_run"]
    told = run("campaign", "candle-example", "--target", "summit").output
    assert "less than half of a measured run: search over 1e4 models 0.2%" in told
    assert "its duration is of the device's work only" in told


def test_an_oversize_step_of_scaling_is_marked_and_ends_with_1() -> None:
    words = ("scaling", "resnet50", "-t", "a100-sxm", "--nodes", "1", "--mode", "weak", "--replica-batch")
    small, large = run(*words, "32"), run(*words, "4096")
    assert (small.exit_code, large.exit_code) == (0, 1)
    assert "†" not in small.output
    assert "memory size †" in large.output
    assert "† resnet50 on a100-sxm, weak scaling, nodes 1: does not fit: a100-sxm has 81,920 MiB" in large.output
    rates = large.output.partition("of the whole system a day")[2].splitlines()
    assert "†" in next(line for line in rates if line.startswith("weak"))
    assert run(*words, "4096", "--allow-oversize").exit_code == 0
    assert content_of(*words, "32")["does_not_fit"] == []


def test_a_sweep_of_which_no_point_fits_ends_with_1() -> None:
    words = ("sweep", "resnet50", "-t", "p100", "--vary")
    assert run(*words, "batch=32,4096").exit_code == 0
    none = run(*words, "batch=4096,8192")
    assert none.exit_code == 1
    assert "no point fits" in none.output
    assert run(*words, "batch=4096,8192", "--allow-oversize").exit_code == 0


def test_a_grid_of_a_model_that_nobody_measured_says_so(tmp_path: Path) -> None:
    save_model(replace(load_model("p1b3"), name="mine"), path := tmp_path / "mine.yaml")
    done = run("compare", str(path), "--grid")
    assert isinstance(done.exception, FomkitError)
    assert "mine: has no measurement in this table" in str(done.exception)
    assert "--target" in str(done.exception)
    assert run("compare", str(path), "--grid", "--target", "v100").exit_code == 0


def test_a_narrow_screen_shows_the_figures_of_a_suite() -> None:
    rated = suite_content(fomkit.fom("candle", "v100"))
    narrow, wide = format_suite(rated, Screen(80)), format_suite(rated, Screen(240))
    table = narrow[narrow.index("\nline ") :].splitlines()
    heads = "line units/day units/day interval ratio interval weight"
    assert table[1].split() == heads.split()
    assert not re.search(r"\S…", "".join(table[1 : len(rated["lines"]) + 3]))  # no digit is cut
    assert max(len(line) for line in table[1 : len(rated["lines"]) + 3]) <= 80
    p1b1 = next(line for line in rated["lines"] if line["name"] == "P1B1")
    shown = next(line for line in table if line.startswith("P1B1")).split()
    assert shown[2] == format_number(p1b1["unit_per_day"]["v100"])
    ratio = p1b1["ratio_interval"]
    assert shown[6:10] == [format_number(ratio["value"]), *format_interval(ratio, None).split()]
    assert shown[10] == f"{p1b1['weight']:.1%}"
    hidden = (
        "not shown at 80 columns: required, class, basis, party, p100 from, v100 from, p100 interval; use a wider"
    )
    assert hidden in " ".join(narrow.split())
    assert "not shown" not in wide


def test_the_lines_that_runs_contradict_are_listed_once() -> None:
    told = run("fom", "candle", "--target", "v100", "--threshold", "0.5").output
    assert told.partition("\nline ")[0].count("P1B3") == 1 + 1  # with its share, and with its weight
    assert "threshold 0.5000: not given, it depends on lines above, where the device explains" in told
    why = content_of("fom", "candle", "--target", "v100", "--threshold", "0.5")["threshold"]["why"]
    assert all(name in why for name in LITTLE)


def test_the_shares_that_claims_ask_for_are_told_apart() -> None:
    from fomkit.merit import measured_steps

    assert measured_steps.COMPARABLE < measured_steps.ENOUGH
    rated = content_of("fom", "candle", "--target", "v100")
    cells = content_of("compare", "nt3", "p2b1", "--target", "v100")["cells"]
    between = [
        one
        for one in cells
        if one["explained"] and measured_steps.COMPARABLE <= one["explained"] < measured_steps.ENOUGH
    ]
    assert between
    # Such a cell's time is compared, and no verdict rests on it: both are said of it in one sentence.
    assert all("a verdict of fom needs 50%" in one["cause"] for one in between if one["claim"] == "absolute")
    assert not any("may be believed" in note for note in rated["notes"])


def test_a_board_that_a_short_name_chose_and_a_table_of_other_formats_are_told() -> None:
    short, whole = (run("estimate", "resnet50", "-t", name).output for name in ("h200", "h200-sxm"))
    assert "note: resnet50 on h200-sxm: 'h200' is taken for h200-sxm, the only board of it here" in short
    assert "is taken for" not in whole
    assert "no row of the table of h200-sxm is used: it has no fp32" in whole
    assert "'h200' is taken for h200-sxm" in run("fom", "candle", "-t", "h200").output
    assert "table is used" not in run("estimate", "resnet50", "-t", "v100").output
    assert "table is used" not in run("estimate", "gpt2", "-t", "h100-sxm", "--precision", "bf16").output


def test_a_wide_interval_names_the_ops_that_make_it_wide() -> None:
    output = run("estimate", "p2b1", "-t", "titan-x").output
    assert (
        "differ by a factor of 11.4: most of it is from conv (backward input), time source extrapolated" in output
    )
    assert "bounds of a step" not in run("estimate", "p1b3", "-t", "titan-x").output


def test_sensitivity_and_solve_of_a_suite_say_it_too(tmp_path: Path) -> None:
    for words in (("sensitivity",), ("solve", "--fom", "2", "--change", "launch_s")):
        content = content_of(words[0], "--suite", short_suite(tmp_path), "--target", "v100", *words[1:])
        assert set(content["little_explained"]) == {*LINES} <= LITTLE
        assert content["excludes"] == ["input", "start_up"]


def test_solve_and_cost_say_whose_terms_a_ratio_lacks(tmp_path: Path) -> None:
    said = ALONE.replace("xeon-6980p", "knl-7250")
    words = ("solve", "--suite", short_suite(tmp_path), "--target", "knl-7250", "--fom", "2")
    content = content_of(*words, "--change", "byte_per_s")
    assert content["excludes_alone"] == {"knl-7250": ["host_launch"]}
    assert said in run(*words, "--change", "byte_per_s").output
    words = ("cost", "p1b3", "-t", "knl-7250", "--baseline", "v100")
    assert content_of(*words)["speedup"]["excludes_alone"] == {"knl-7250": ["host_launch"]}
    assert said in run(*words).output


def test_the_grid_says_what_a_modelled_rate_leaves_out() -> None:
    done = run("compare", "p1b3", "--grid", "-t", "v100")
    flat = " ".join(done.output.split())
    assert "the device explains" in flat
    assert "0.2% of a measured run" in flat
    assert "modelled rates are upper bounds; not stated: input" in flat
    cells = content_of("compare", "p1b3", "tc1", "--grid", "-t", "v100")["cells"]
    modelled = {one["model"]: one for one in cells if one["basis"] == "modelled" and one["mode"] == "train"}
    assert modelled["p1b3"]["explained"] == pytest.approx(0.0024, abs=2e-4)
    assert modelled["tc1"]["explained"] > 0.5
    assert modelled["p1b3"]["excludes"] == ["input"]


def test_a_workbook_and_its_review_keep_it(tmp_path: Path) -> None:
    whole, one = tmp_path / "whole.xlsx", tmp_path / "one.xlsx"
    words = ("fom", short_suite(tmp_path), "--target", "v100", "--threshold", "1.2")
    assert run(*words, "-o", str(whole)).exit_code == 1
    assert run(*words, "-o", str(one), "--for", "v100").exit_code == 1
    for path in (whole, one):
        cells = [str(row[0].value) for row in openpyxl.load_workbook(path)["Summary"].iter_rows(max_row=12)]
        assert "caveat: units/day are upper bounds; not stated: input, start_up" in cells
        assert any("explains less than half of a measured run of P1B1" in cell for cell in cells)
        assert any("no verdict, because" in cell for cell in cells)
    told = content_of("review", str(whole), "--issued", str(whole))["caveats"]
    assert told[0] == "units/day are upper bounds; not stated: input, start_up"
    assert "caveat: units/day are upper bounds" in run("review", str(whole), "--issued", str(whole)).output


def test_a_campaign_of_a_frozen_line_and_an_acceptance_keep_it(tmp_path: Path) -> None:
    first, frozen = tmp_path / "s.suite.yaml", tmp_path / "t.suite.yaml"
    first.write_text(FIRST, encoding="utf-8")
    assert run("fom", str(first), "--freeze", str(frozen)).exit_code == 0
    campaign = tmp_path / "c.campaign.yaml"
    campaign.write_text(
        f"schema: fomkit/campaign/1\nname: c\nphases:\n  - {{name: one, suite: {frozen}, line: TWO, runs: 9, "
        "basis: assumed, source: made up}\n",
        encoding="utf-8",
    )
    (phase,) = content_of("campaign", str(campaign), "-t", "p100", "--scope", "device")["machines"][0]["phases"]
    assert phase["excludes"] == ["input", "start_up"]
    rows = tmp_path / "m.csv"
    head = "model,machine,quantity,value,batch,precision,devices,scope,basis\n"
    rows.write_text(f"{head}p1b3,v100,step_s,0.0018,100,fp32,1,device,measured\n", encoding="utf-8")
    accepted = ("accept", str(first), "--committed", "v100", "--measured", str(rows))
    assert content_of(*accepted)["lines"][0]["excludes"] == ["input", "start_up"]
    assert "modelled commitments are upper bounds; not stated: input, start_up" in run(*accepted).output


# --- what no device holds ----------------------------------------------------------------------------------------


def test_a_step_that_no_device_holds_is_marked_and_ends_with_1() -> None:
    words = ("estimate", "vgg16", "--target", "v100", "--batch", "4096")
    done = run(*words, "--baseline", "p100")
    assert done.exit_code == 1
    line, merit = (
        next(one for one in done.output.splitlines() if key in one) for key in ("vgg16  v100", "FOM v100")
    )
    assert "†" in line
    assert merit.endswith("†")
    assert "† vgg16 on v100: does not fit: v100 has 16,384 MiB" in done.output
    assert "pass --allow-oversize" in done.output
    assert run(*words, "--allow-oversize").exit_code == 0
    content = content_of(*words, "--baseline", "p100")
    assert [one["fits"] for one in content["models"]] == [False, False]
    assert len(content["fom"]["does_not_fit"]) == 2
    fitting = content_of("estimate", "vgg16", "--target", "v100", "--baseline", "p100")
    assert [one["fits"] for one in fitting["models"]] == [True, True]
    assert fitting["fom"]["does_not_fit"] == []


@pytest.mark.parametrize(
    "words",
    [
        ("cost", "vgg16", "-t", "v100", "--batch", "4096", *PRICE),
        ("sensitivity", "vgg16", "-t", "v100", "--batch", "4096"),
        ("solve", "vgg16", "-t", "v100", "--batch", "4096", "--step", "1h"),
    ],
)
def test_so_do_the_other_verbs_that_rate_it(words: tuple[str, ...]) -> None:
    done = run(*words)
    assert done.exit_code == 1, done.output
    assert "† " in done.output
    assert "does not fit: v100 has 16,384 MiB" in done.output
    assert run(*words, "--allow-oversize").exit_code == 0


def test_a_suite_and_a_campaign_name_the_line(tmp_path: Path) -> None:
    suite, campaign = tmp_path / "s.suite.yaml", tmp_path / "c.campaign.yaml"
    suite.write_text(FIRST.replace("model: p1b3, batch: 100", "model: vgg16, batch: 4096"), encoding="utf-8")
    done = run("fom", str(suite), "--target", "v100")
    assert done.exit_code == 1
    assert "TWO on v100 does not fit: v100 has" in done.output
    assert run("fom", str(suite), "--target", "v100", "--allow-oversize").exit_code == 0
    content = content_of("fom", str(suite), "--target", "v100")
    assert content["lines"][0]["machines"]["v100"]["fits"] is False
    assert len(content["fom"]["does_not_fit"]) == 2
    campaign.write_text(
        "schema: fomkit/campaign/1\nname: c\nphases:\n  - {name: one, model: vgg16, batch: 4096, runs: 9, "
        "basis: assumed, source: made up}\n",
        encoding="utf-8",
    )
    words = ("campaign", str(campaign), "-t", "v100", "--scope", "device")
    assert run(*words).exit_code == 1
    assert run(*words, "--allow-oversize").exit_code == 0
    assert content_of(*words)["machines"][0]["phases"][0]["fits"] is False


def test_workbook_and_report_mark_it(tmp_path: Path) -> None:
    made = compare([load_model("vgg16")], [load_machine("v100")], None, Options(batch=4096))
    path = tmp_path / "v.xlsx"
    write_workbook(sheet_model_of_comparison(made), path)
    texts = [
        str(cell) for row in openpyxl.load_workbook(path)["Summary"].iter_rows(values_only=True) for cell in row
    ]
    assert any(text.startswith("caveat: this rate is not possible: vgg16 does not fit") for text in texts)
    assert any(text.startswith("does not fit the memory, ") for text in texts)
    assert "† vgg16 on v100: does not fit" in made._repr_html_()
    from fomkit.verbs.report.words import claim_of

    assert claim_of(made.estimates[0]).bound.startswith("It cannot run: the step does not fit")


def test_what_is_not_known_to_fit_is_not_marked() -> None:
    unordered = replace(load_model("vgg16"), order=None)
    assert estimate(unordered, load_machine("v100"), Options(batch=4096)).fit.fits is None
    assert fomkit.estimate("resnet50", "v100").fit.fits is True


# --- what cannot be priced ---------------------------------------------------------------------------------------


def priced(model: str, folder: Path) -> list[tuple[str, ...]]:
    """List the commands that price a model."""
    suite = folder / "s.suite.yaml"
    suite.write_text(FIRST.replace("model: p1b3, batch: 100, epochs: 20", f"model: {model}"), encoding="utf-8")
    campaign = folder / "c.campaign.yaml"
    campaign.write_text(
        f"schema: fomkit/campaign/1\nname: c\nphases:\n  - {{name: one, model: {model}, runs: 9, basis: assumed, "
        "source: made up}\n",
        encoding="utf-8",
    )
    return [
        ("estimate", model, "-t", "v100"),
        ("explain", model, "-t", "v100"),
        ("advise", model, "-t", "v100"),
        ("cost", model, "-t", "v100", *PRICE),
        ("sweep", model, "-t", "v100", "--vary", "batch=50,100"),
        ("sensitivity", model, "-t", "v100"),
        ("solve", model, "-t", "v100", "--step", "1ms"),
        ("fom", str(suite), "-t", "v100"),
        ("campaign", str(campaign), "-t", "v100", "--scope", "device"),
    ]


def test_a_run_of_several_devices_is_no_run_on_one(tmp_path: Path) -> None:
    eight = replace(load_model("p1b3"), name="eight", run=replace(load_model("p1b3").run, devices_per_run=8))
    path = tmp_path / "eight.yaml"
    save_model(eight, path)
    for words in priced(str(path), tmp_path):
        done = run(*words)
        assert done.exit_code != 0, words
        told = f"{done.output} {done.exception}"
        # These have jobs, but not at a scope that cannot hold them, nor of a batch that does not divide.
        why = {
            **dict.fromkeys(("fom", "campaign"), "a run uses 8 devices, but the scope 'device'"),
            **dict.fromkeys(("estimate", "cost", "explain"), "a batch of 100 does not divide into 8 replicas"),
        }.get(words[0], "its run uses 8 devices (run.devices_per_run)")
        assert why in " ".join(told.split()), words
    two = replace(eight, name="two", run=replace(eight.run, devices_per_run=2))
    for model, scope in ((eight, "node"), (eight, "system"), (two, "system")):
        with pytest.raises(FomkitError, match="fomkit scaling"):
            estimate(model, load_machine("summit"), Options(scope=scope))
    # A layout says how many devices a run takes.
    nodes = ("--nodes", "1", "--node-devices", "2", "--link", "node, 5 us, 25 GB/s, each")
    done = run("sensitivity", str(path), "-t", "v100", *nodes)
    assert done.exit_code == 0, done.output
    layout = scale(eight, replace(load_machine("v100"), node_devices=1), ScalingSpec([1]))
    assert layout.curves[0].points[0].step.devices == 1


def test_a_given_time_of_several_devices_needs_no_price() -> None:
    rated = fomkit.fom("lecture", "a")
    assert rated.merit is not None
    assert rated.merit.value.value == pytest.approx(82.597332, abs=5e-7)


def test_a_model_that_executes_nothing_is_refused_by_name(tmp_path: Path) -> None:
    model = load_model("p1b3")
    empty, idle = (
        replace(model, name=name, ops=ops)
        for name, ops in (("empty", model.ops.iloc[:0]), ("idle", model.ops.assign(count=0.0)))
    )
    machine: Machine = load_machine("v100")
    for one in (empty, idle):
        for price in (
            lambda it: estimate(it, machine, Options()),
            lambda it: prepare_study(it, with_fits(machine), Options()),
        ):
            with pytest.raises(FomkitError, match=one.name):
                price(one)
    path = tmp_path / "none.yaml"
    save_model(replace(model, name="none"), path)
    table = tmp_path / "none.ops.csv"
    table.write_text(table.read_text(encoding="utf-8").splitlines()[0] + "\n", encoding="utf-8")
    for words in priced(str(path), tmp_path):
        done = run(*words)
        assert done.exit_code != 0, words
        assert "none.ops.csv" in f"{done.output} {done.exception}".replace("\n", ""), words


def _conditions(model: str, machine: object, **options: Any) -> dict[str, dict[str, str]]:
    return conditions_content(fomkit.estimate(model, machine, **options))


def test_conditions_follow_from_what_an_estimate_did() -> None:
    titan = fomkit.machine("titan")
    bare, timed = _conditions("p1b3", titan), _conditions("resnet50", "v100", batch=16)
    assert {name: one["is"] for name, one in bare.items()} == {
        "bandwidth": "modelled", "occupancy": "modelled", "sizes": "modelled", "reuse": "not considered",
        "input": "not considered", "versions": "not considered",
    }  # fmt: skip
    assert bare["bandwidth"]["what"].startswith("250.0 GB/s, published; traffic bounds ")
    assert timed["sizes"]["what"] == "each op at batch 16, traced at batch 32"
    assert (timed["reuse"]["is"], timed["versions"]["is"]) == ("modelled", "stated")
    assert "cuDNN 7.6.2.24" in timed["versions"]["what"]
    loading = Overhead("input", "step", Fact(2e-3, 1e-3, 3e-3, "measured", "here"), None)
    fed = _conditions("p1b3", replace(titan, overheads=(loading,)))
    assert fed["input"] == {"is": "stated", "what": "2.000 ms a step"}
    measured = _conditions("p1b3-lecture", "x86-lecture")
    assert measured["bandwidth"]["is"] == "not considered"
    assert measured["reuse"] == {"is": "modelled", "what": "as in the timings used for 100% of the time"}
    assert (
        measured["occupancy"]["what"]
        == "as in the measured rows used for 100% of the time; a run has a device to itself"
    )
    host = fomkit.machine("x86-lecture")
    products = load_model("p1b3-lecture")
    products = replace(products, ops=products.ops[products.ops["kind"] == "gemm"].reset_index(drop=True))
    rated = _conditions(products, replace(host, device=replace(host.device, byte_per_s=titan.device.byte_per_s)))
    assert rated["bandwidth"] == {
        "is": "not considered",
        "what": "the timings used for 100% of the time include it; the stated 250.0 GB/s, published, is not used",
    }
    partly = _conditions("gpt2", "a100-pcie-40gb")["occupancy"]["what"]
    assert partly.startswith("as in the measured rows used for 16% of the time, else each op at its own share of ")


def test_versions_are_those_of_the_kinds_that_a_time_rests_on() -> None:
    """P1B3 consists of products: the table's convolutions and their library do not matter for it."""
    told = {name: _conditions(name, "v100")["versions"]["what"] for name in ("p1b3", "resnet50")}
    assert "cuBLAS CUDA 10.1.243" in told["p1b3"]
    assert "cuBLAS CUDA 10.1.243" in told["resnet50"]
    assert ("cuDNN" in told["p1b3"], "cuDNN" in told["resnet50"]) == (False, True)


def test_conditions_of_a_run_on_several_devices_are_of_its_microbatch_and_its_links() -> None:
    links = ["system, 5 us, 1 GB/s, each", "node, 5 us, 100 GB/s, each"]
    spread = _conditions("resnet50", "a100-sxm", batch=1024, nodes=4, links=links, layout="microbatch=16")
    assert spread["sizes"]["what"] == (
        "each op at batch 16, traced at batch 32, a microbatch on one of 32 devices; a step has 2 for each replica"
    )
    assert "; 70% of a step is work, 30% links; a run has 32 devices to itself" in spread["occupancy"]["what"]
    slow = replace(fomkit.machine("v100"), host_op_s=Fact(1e-3, 1e-3, 1e-3, "assumed", "here"))
    late = fomkit.estimate("resnet50", slow, batch=16)
    worked = late.step_time.device_s.value / late.step.value
    wanted = f"; {worked:.0%} of a step is work, {1 - worked:.0%} launches; a run has a device to itself"
    assert worked < 0.5
    assert conditions_content(late)["occupancy"]["what"].endswith(wanted)


def test_what_is_varied_says_the_conditions_that_the_estimate_says() -> None:
    wanted = _conditions("p1b3", "titan")
    assert fomkit.sensitivity("p1b3", "titan").content["conditions"] == wanted
    assert fomkit.solve("p1b3", "titan", step="1 ms").content["conditions"] == wanted
    assert fomkit.show("p1b3", machine="titan").content["conditions"] == wanted
    assert "conditions" not in fomkit.show("p1b3").content  # no time, nothing that it varies with
    swept = fomkit.sweep("p1b3", "titan", ["byte_per_s=0.1 TB/s,0.2 TB/s", "batch=50,100"])
    told = swept.content["conditions"]
    assert told["bandwidth"]["what"] == "that of each point, as it is varied here"
    assert told["sizes"]["what"] == "each op at the batch of each point"
    assert told.keys() == wanted.keys()
    assert told["input"] == wanted["input"]
    of_suite = fomkit.sensitivity(None, "titan", suite="candle").content["line_conditions"]
    lines = suite_content(fomkit.fom("candle", "titan"))["lines"]
    on = {one["name"]: one["machines"]["titan"] for one in lines}
    assert of_suite == {name: one["conditions"] for name, one in on.items() if "conditions" in one}
    assert of_suite


def test_what_is_spread_over_nodes_says_the_conditions_of_its_step() -> None:
    """A step of 2 nodes with a batch per replica equals an estimate with the same total number of samples."""
    link = ["system, 5 us, 25 GB/s, each"]
    wanted = _conditions("p1b3", "a100-sxm", nodes=2, links=link, batch=100 * 16)
    scaled = fomkit.scaling("p1b3", "a100-sxm", nodes="2..4", links=link).content["conditions"]
    assert scaled == wanted
    assert fomkit.sensitivity("p1b3", "a100-sxm", nodes=2, links=link, batch=1600).content["conditions"] == wanted


def test_each_verb_with_an_estimate_says_its_conditions() -> None:
    wanted = _conditions("p1b3", "titan")
    assert fomkit.explain("p1b3", "titan").content["conditions"] == wanted
    assert fomkit.cost("p1b3", "titan").content["conditions"] == wanted
    assert fomkit.advise("p1b3", "titan").content["conditions"] == wanted
    assert estimates_content(fomkit.estimate_all(["p1b3"], ["titan"]))["models"][0]["conditions"] == wanted
    lines = suite_content(fomkit.fom("candle", "titan"))["lines"]
    estimated = [one["machines"]["titan"] for one in lines if one["machines"]["titan"]["kind"] == "estimated"]
    assert estimated
    phases = fomkit.campaign("candle-example", ["titan"]).content["machines"][0]["phases"]
    inference = fomkit.cost("resnet50", "v100", infer_batch=1).content["inference"]
    modelled = [one for one in phases if "conditions" in one]
    assert modelled
    assert all(one["conditions"].keys() == wanted.keys() for one in (*estimated, *modelled, inference))
