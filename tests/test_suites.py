"""Suites: frozen baselines, deviations from what a line fixes, missing lines, verdicts, campaigns and chains."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from json_figures import sorted_out
from openpyxl import load_workbook
from typer.testing import CliRunner

import fomkit
from fomkit.cli.main import app
from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span
from fomkit.core.job import Conditions
from fomkit.merit.calibrated import rest_of, target_step
from fomkit.merit.fom import MEANS, implied_weights, take_mean
from fomkit.merit.rated_lines import deviations
from fomkit.merit.suites import given_machines, run_suite
from fomkit.output.files import to_csv
from fomkit.output.suites import format_suite
from fomkit.plan.options import Options
from fomkit.profiles.machines import load_machine
from fomkit.profiles.models import load_model
from fomkit.profiles.suites import freeze_text, load_suite
from fomkit.verbs.suite_content import suite_content

HEAD = (
    "schema: fomkit/suite/1\nname: s\nversion: 1\nbaseline: p100\nscope: device\nmean: ratio_of_harmonic_means\n"
)
GIVEN = "  - {name: ONE, basis: measured, party: lab, given: {p100: 10 h, v100: 5 h}}\n"
SPREAD = GIVEN.replace("v100: 5 h", "v100: {time: 5 h, low: 4 h, high: 6 h}")
P1B3 = "  - {name: TWO, basis: modelled, party: lab, model: p1b3, batch: 100, epochs: 20}\n"


def written(folder: Path, *lines: str, end: str = "", head: str = HEAD) -> Path:
    path = folder / "s.suite.yaml"
    path.write_text(f"{head}lines:\n{''.join(lines)}{end}", encoding="utf-8")
    return path


def result_of(path: Path, target: str = "v100", **proposals: Conditions) -> dict[str, Any]:
    suite = load_suite(path)
    machines = load_machine(suite.baseline), load_machine(target)
    return suite_content(run_suite(suite, *machines, Options(), load_model, proposals))


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["fom", *arguments])


def test_a_line_of_a_model_needs_no_more_than_its_model(tmp_path: Path) -> None:
    short, whole = "  - {model: p1b3}\n", "  - {name: p1b3, basis: modelled, party: lab, model: p1b3}\n"
    assert load_suite(written(tmp_path, short)).lines == load_suite(written(tmp_path, whole)).lines


def test_what_a_suite_lacks_is_asked_for_with_the_words_it_may_have(tmp_path: Path) -> None:
    lacking = HEAD.replace("scope: device\nmean: ratio_of_harmonic_means\n", "")
    with pytest.raises(FomkitError) as told:
        load_suite(written(tmp_path, P1B3, "  - {given: {p100: 10 h}}\n", head=lacking))
    assert "scope is missing. Add it: device or node or system." in str(told.value)
    assert "lines[1] has given times. Add to it name; basis: measured or simulated or " in str(told.value)
    with pytest.raises(FomkitError, match="has no work"):
        load_suite(written(tmp_path, P1B3, "  - {batch: 3}\n"))
    assert "mean is missing. Add it: ratio_of_harmonic_means or " in str(told.value)


# --- means -------------------------------------------------------------------------------------------------------

rates = st.lists(st.floats(1e-3, 1e6), min_size=2, max_size=5)


@given(rates, st.floats(0.1, 1e4))
def test_equal_speed_ups_give_that_speed_up_by_every_mean(old: list[float], speed_up: float) -> None:
    new = [rate * speed_up for rate in old]
    weights = [index + 1.0 for index in range(len(old))]
    for name in MEANS:
        assert take_mean(name, new, old, weights) == pytest.approx(speed_up, rel=1e-9)
        assert sum(implied_weights(name, old, weights)) == pytest.approx(1)


@given(rates, st.floats(1.0, 10.0), st.sampled_from(["geometric", "arithmetic", "harmonic"]))
def test_a_line_equal_to_the_mean_changes_nothing(old: list[float], base: float, name: str) -> None:
    new = [rate * (base + index) for index, rate in enumerate(old)]
    mean = take_mean(name, new, old)
    assert take_mean(name, [*new, mean], [*old, 1.0]) == pytest.approx(mean, rel=1e-9)


def test_weighted_harmonic_is_the_ratio_of_two_sustained_rates() -> None:
    hours, new_hours, weights = [1.0, 2.0], [0.25, 1.0], [3.0, 1.0]
    p_tot = [1 / sum(w * t for w, t in zip(weights, times, strict=True)) for times in (hours, new_hours)]
    mean = take_mean("weighted_harmonic", [1 / t for t in new_hours], [1 / t for t in hours], weights)
    assert mean == pytest.approx(p_tot[1] / p_tot[0])


# --- given lines, campaigns, the chain ---------------------------------------------------------------------------


def test_the_lecture_is_frozen_and_a_million_models_take_days() -> None:
    content = result_of(Path("lecture"), "a")
    assert content["fom"]["value"] == pytest.approx(82.597332, abs=5e-7)
    assert content["frozen"]
    assert content["threshold"] == {"threshold": 50, "probability": None, "verdict": "meets"}
    days = content["campaigns"][0]["days"]
    assert (round(days["titan"], 2), round(days["a"], 3)) == (133.78, 1.773)


def test_given_times_without_a_spread_have_no_ends_in_json_csv_and_text(tmp_path: Path) -> None:
    content = result_of(Path("lecture"), "a")
    ends = [
        *content["fom"]["ratios"].values(),
        *content["fom"]["unit_per_day"]["target"].values(),
        *(line["ratio_interval"] for line in content["lines"]),
        *(rated["unit_per_day"] for line in content["lines"] for rated in line["machines"].values()),
        content["fom"],
    ]
    assert {(end["low"], end["high"]) for end in ends} == {(None, None)}
    assert all(end["value"] > 0 for end in ends)
    header, *rows = [line.split(",") for line in to_csv(content["lines"]).splitlines()]
    assert {row[header.index("ratio_interval.low")] for row in rows} == {""}
    # A spread on one side is the ratio's.
    one_sided = result_of(written(tmp_path, SPREAD))["lines"][0]
    assert one_sided["machines"]["p100"]["unit_per_day"]["low"] is None
    assert one_sided["ratio_interval"]["low"] < one_sided["ratio"] < one_sided["ratio_interval"]["high"]


def test_a_lines_own_notes_are_told_once_for_all_that_share_them(tmp_path: Path) -> None:
    short = P1B3.replace("epochs: 20}", "epochs: 20, samples: 150}")
    content = result_of(written(tmp_path, short, short.replace("TWO", "THREE")))
    left = "33% of an epoch's samples do not fill a batch and are dropped: a run has that much less work"
    assert content["lines"][0]["machines"]["v100"]["notes"] == [left]
    assert f"note: TWO, THREE on p100, v100: {left}\n" in format_suite(content)
    assert result_of(written(tmp_path, P1B3))["lines"][0]["machines"]["v100"]["notes"] == []


def test_a_missing_line_adds_no_empty_columns_to_a_table(tmp_path: Path) -> None:
    optional = "  - {name: GONE, basis: measured, party: lab, required: false, given: {p100: 10 h}}\n"
    for lines in ([optional, P1B3], [P1B3, optional]):
        header = to_csv(result_of(written(tmp_path, *lines))["lines"]).splitlines()[0].split(",")
        assert "ratio_interval.low" in header
        assert not {"ratio_interval", "machines.v100.unit_per_day"} & set(header)
        assert header.index("ratio_interval.low") < header.index("machines.v100.unit_per_day.value")


def test_machines_are_given_where_every_given_line_times_them(tmp_path: Path) -> None:
    other = "  - {name: SECOND, basis: measured, party: lab, given: {titan-x: 2 h, p100: 3 h}}\n"
    assert given_machines(load_suite(written(tmp_path, GIVEN, P1B3))) == ["p100", "v100"]
    assert given_machines(load_suite(written(tmp_path, GIVEN, P1B3, other))) == ["p100"]
    assert given_machines(load_suite(written(tmp_path, P1B3))) == []


def test_the_chain_multiplies_ratio_devices_and_gain(tmp_path: Path, root: Path) -> None:
    content = result_of(Path("kpp"), "summit")
    assert content["fom"]["value"] == pytest.approx(13.8 * 27_648 / 18_688, rel=1e-12)
    assert "multiples of a reference's" in format_suite(content)
    text = (root / "model_profiles" / "kpp.suite.yaml").read_text(encoding="utf-8")
    gained = tmp_path / "kpp.suite.yaml"
    gained.write_text(text.replace("utilisation_gain: 1,", "utilisation_gain: 1.25,"), encoding="utf-8")
    assert result_of(gained, "summit")["fom"]["value"] == pytest.approx(1.25 * 13.8 * 27_648 / 18_688, rel=1e-12)


def test_several_targets_stand_side_by_side_as_each_alone(tmp_path: Path) -> None:
    newest = SPREAD.replace("6 h}", "6 h}, a100-sxm: {time: 2 h, low: 1 h, high: 3 h}")
    path = str(written(tmp_path, newest, P1B3))
    alone = {name: json.loads(run(path, "-t", name, "--json").stdout) for name in ("v100", "a100-sxm")}
    both = json.loads(run(path, "-t", "v100", "-t", "a100-sxm", "--json").stdout)
    assert (both["schema"], both["baseline"], both["targets"]) == ("fomkit/foms/1", "p100", [*alone])
    assert both["results"] == [*alone.values()]
    shown = run(path, "-t", "v100", "-t", "a100-sxm", "--threshold", "1.9", "--allow-excluded").stdout
    for name, one in alone.items():
        assert re.search(rf"{name} +{one['fom']['value']:.3f} +\d", shown)
    assert "P(FOM ≥ 1.900)" in shown
    assert re.search(r"ONE +2\.000 +1\.67 … 2\.50 +5\.000 +3\.33 … 10", shown)
    rated = fomkit.fom(path, [fomkit.machine("v100"), "a100-sxm"])
    assert rated.table["target"].tolist() == ["v100", "v100", "a100-sxm", "a100-sxm"]
    assert fomkit.fom(path, ["v100"]).content == alone["v100"]
    assert (len(rated), rated["V100"].content) == (2, alone["v100"])
    assert ([*rated], "V100" in rated, "p100" in rated) == (["v100", "a100-sxm"], True, False)
    with pytest.raises(FomkitError, match=r"p100: is the baseline\. Results are of v100, a100-sxm"):
        rated["p100"]
    with pytest.raises(FomkitError, match=r"v10: was not rated\. The nearest name is 'v100'"):
        rated["v10"]
    # Every row has the same columns, whatever the machines are called.
    lines = alone["v100"]["lines"]
    assert rated.table["unit_per_day.target"].tolist()[:2] == [line["unit_per_day"]["v100"] for line in lines]
    assert rated.table["fom.low"].tolist()[0] == alone["v100"]["fom"]["low"]


def test_a_target_that_cannot_be_rated_does_not_stop_the_others(tmp_path: Path) -> None:
    path = written(tmp_path, P1B3, head=HEAD.replace("scope: device", "scope: node").replace("p100", "h200-sxm"))
    done = run(str(path), "-t", "a100-sxm", "-t", "p100", "-t", "h100-sxm")
    assert done.exit_code == 1
    assert "p100 is not rated: its profile does not state the scope 'node'" in " ".join(done.stdout.split())
    rated = fomkit.fom(path, ["a100-sxm", "p100"])
    assert [*rated.content["refused"]] == ["p100"]
    assert rated.content["targets"] == ["a100-sxm"]
    with pytest.raises(FomkitError, match="p100: its profile does not state the scope 'node'"):
        rated["p100"]
    assert rated.table["refused"].notna().tolist() == [False, True]
    with pytest.raises(
        FomkitError, match=r"(?s)p100: its profile does not state .*k80: its profile does not state"
    ):
        fomkit.fom(path, ["p100", "k80"])


def test_a_node_that_was_timed_far_below_its_links_is_noted(tmp_path: Path) -> None:
    line = "  - {model: p1b3, nodes: 1, batch: 800, epochs: 20}\n"
    path = written(tmp_path, line, head=HEAD.replace("scope: device", "scope: node").replace("p100", "a100-sxm"))
    done = run(str(path), "-t", "l40s", "-t", "h100-sxm")
    note = "p1b3 on l40s: collectives of 8 devices of l40s were timed in one server, and take 18 times as long"
    assert note in " ".join(done.stdout.split())


def test_a_step_that_fits_in_no_device_is_marked_among_several_targets_too() -> None:
    done = run("today", "-t", "l40s", "-t", "h100-sxm")
    assert done.exit_code == 1
    assert re.search(r"^l40s +\S+ †", done.stdout, re.MULTILINE)
    assert re.search(r"^h100-sxm +2\.\d+ +2", done.stdout, re.MULTILINE)
    assert re.search(r"0\.\d+ † .* 2\.\d+", done.stdout, re.MULTILINE)


def test_no_target_and_a_workbook_of_several_are_refused_in_python(tmp_path: Path) -> None:
    with pytest.raises(FomkitError, match="target: is an empty list"):
        fomkit.fom("lecture", [])
    both = fomkit.fom(written(tmp_path, P1B3), ["v100", "a100-sxm"])
    with pytest.raises(FomkitError, match="has several targets, and a workbook rates one"):
        fomkit.write_workbook(both, tmp_path / "b.xlsx")


def test_measured_steps_and_campaigns_of_several_targets_are_shown(tmp_path: Path) -> None:
    end = "campaigns:\n  - {name: all, line: ONE, units: 10}\n"
    newest = GIVEN.replace("v100: 5 h", "v100: 5 h, a100-sxm: 2 h")
    shown = run(str(written(tmp_path, newest, P1B3, end=end)), "-t", "v100", "-t", "a100-sxm").stdout
    assert "campaign all: 10 units of ONE; days: p100 4.1667, v100 2.0833, a100-sxm 0.83333" in shown
    both = run("candle", "-t", "v100", "-t", "a100-sxm", "--from", "candle-lecture", "--allow-excluded").stdout
    assert re.search(r"v100 +1\.\d+ +1\.11 … 2\.66 +1\.096 +0\.678 … 2\.32", both)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-t", "v100", "-t", "v100"), "--target: names v100 twice. Give each machine once."),
        (("-t", "v100", "-t", "p100"), "p100: is the baseline and the target"),
        (("-t", "v100", "-t", "a100-sxm", "-o", "b.xlsx"), "b.xlsx: is a workbook, which rates one machine"),
        (("-t", "v100", "-t", "a100-sxm", "--freeze", "n.suite.yaml"), "Leave --target out"),
    ],
)
def test_targets_that_cannot_stand_side_by_side(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    done = run(str(written(tmp_path, P1B3)), *arguments)
    assert isinstance(done.exception, FomkitError)
    assert said in str(done.exception)


def test_one_of_several_targets_without_a_figure_of_merit_is_named(tmp_path: Path) -> None:
    done = run(str(written(tmp_path, GIVEN, P1B3)), "-t", "v100", "-t", "a100-sxm")
    assert done.exit_code == 1
    assert "no FOM of a100-sxm over p100; incomplete: ONE" in done.stdout
    assert re.search(r"ONE +2 +missing", done.stdout)


def test_stated_spreads_give_an_interval_and_a_probability(tmp_path: Path) -> None:
    path = written(tmp_path, SPREAD, end="threshold: 2.1\n")
    content = result_of(path)
    assert content["fom"]["low"] == pytest.approx(10 / 6)
    assert content["fom"]["high"] == pytest.approx(2.5)
    # ln(2.1/2) over ln(2.5/2) of a side that holds 40 %: z = 1.2816 · 0.2187.
    assert content["threshold"]["verdict"] == "ambiguous"
    assert content["threshold"]["probability"] == pytest.approx(0.3896, abs=5e-4)
    assert "ambiguous, P(FOM ≥ 2.100) = 39%" in format_suite(content)
    # Nothing is certain because an interval is far away.
    low = written(tmp_path, SPREAD, end="threshold: 1.01\n")
    assert "met, P(FOM ≥ 1.010) > 99%" in format_suite(result_of(low))


@pytest.mark.parametrize(("threshold", "verdict"), [(1.6, "meets"), (2.6, "does not meet")])
def test_verdicts_at_the_ends(tmp_path: Path, threshold: float, verdict: str) -> None:
    assert result_of(written(tmp_path, SPREAD, end=f"threshold: {threshold}\n"))["threshold"]["verdict"] == verdict


# --- what a line fixes -------------------------------------------------------------------------------------------


def test_a_change_is_told_and_makes_the_line_optimized(tmp_path: Path) -> None:
    path = written(tmp_path, GIVEN, P1B3)
    before = result_of(path)
    after = result_of(path, TWO=Conditions(batch=256))
    assert before["deviations"] == []
    assert after["deviations"] == [
        {"line": "TWO", "machine": "v100", "deviation": "batch 100 → 256 (quality not shown)"}
    ]
    (_, two) = after["lines"]
    assert (two["class"], two["machines"]["p100"]["class"]) == ("optimized", "baseline")
    assert two["unit_per_day"]["v100"] > before["lines"][1]["unit_per_day"]["v100"]
    assert two["unit_per_day"]["p100"] == before["lines"][1]["unit_per_day"]["p100"]
    first = format_suite(after).splitlines()[:4]
    assert any(
        "deviation: TWO on v100: batch 100 → 256 (quality not shown); class optimized" in one for one in first
    )


def test_fewer_epochs_take_less_and_are_told() -> None:
    assert deviations(Conditions(epochs=20), Conditions(epochs=10, quality="R2 0.9")) == (
        "epochs 20 → 10 (quality: R2 0.9)",
    )
    assert deviations(Conditions(), Conditions(batch=3)) == ()
    assert deviations(Conditions(batch=3), Conditions(precision="mixed", quality="x")) == (
        "precision as the framework does → mixed (quality: x)",
    )


def test_conditions_beside_a_given_time_are_compared_too(tmp_path: Path) -> None:
    line = (
        "  - {name: ONE, basis: measured, party: lab, batch: 20,\n"
        "     given: {p100: 10 h, v100: {time: 2 h, batch: 256, party: vendor, basis: committed}}}\n"
    )
    content = result_of(written(tmp_path, line))
    assert content["deviations"][0]["deviation"] == "batch 20 → 256 (quality not shown)"
    assert content["fom"]["worst_basis"] == "committed"
    assert content["lines"][0]["machines"]["v100"]["party"] == "vendor"


def test_another_partys_time_has_to_say_its_conditions_and_a_gain_is_told(tmp_path: Path) -> None:
    line = (
        "  - {name: ONE, basis: measured, party: lab, batch: 20,\n"
        "     given: {p100: 10 h, v100: {time: 2 h, utilisation_gain: 4, party: vendor, basis: committed}}}\n"
    )
    path = written(tmp_path, line)
    said = [one["deviation"] for one in result_of(path)["deviations"]]
    assert said == ["batch not stated (the line fixes 20)", "times a stated utilisation gain of 4"]
    assert "gain of 4" in str(run(str(path), "-t", "v100", "--strict").exception)


def test_number_formats_that_differ_are_told_where_a_line_leaves_them_open(tmp_path: Path) -> None:
    path = written(tmp_path, "  - {name: NET, basis: modelled, party: lab, model: alexnet}\n")
    told = format_suite(result_of(path, "a100-sxm"))
    assert (
        "number formats: NET runs in fp32 on p100 and in fp32/tf32 on a100-sxm; the line does not fix them" in told
    )
    fixed = written(tmp_path, "  - {name: NET, basis: modelled, party: lab, model: alexnet, precision: fp32}\n")
    assert "number formats:" not in format_suite(result_of(fixed, "a100-sxm"))
    proposed = format_suite(result_of(fixed, NET=Conditions(precision="mixed")))
    assert "precision fp32 → mixed" in proposed
    assert "number formats:" not in proposed


def test_a_frozen_line_is_what_its_profile_was(tmp_path: Path, root: Path, monkeypatch) -> None:
    path, frozen = written(tmp_path, P1B3), tmp_path / "f.suite.yaml"
    assert run(str(path), "--freeze", str(frozen)).exit_code == 0
    (models := tmp_path / "model_profiles").mkdir()
    for file in (root / "model_profiles" / "candle").glob("p1b3.*"):
        (models / file.name).write_bytes(file.read_bytes())
    profile = models / "p1b3.yaml"
    profile.write_text(
        profile.read_text().replace("train_samples: 800121", "train_samples: 1000"), encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)
    assert "differs from version 1" in str(run("f.suite.yaml", "-t", "v100").exception)


def test_a_frozen_rate_tells_by_how_much_todays_is_another_from_a_thousandth_on(tmp_path: Path) -> None:
    suite = load_suite(written(tmp_path, P1B3))
    found = run_suite(suite, load_machine("titan"), load_machine("v100"), Options(), load_model, {})
    (line,) = found.baseline
    assert line.unit_per_day is not None

    def moved(factor: float) -> str:
        return replace(found, now=(replace(line, unit_per_day=line.unit_per_day.scaled(factor)),)).moved

    assert moved(1.0009) == moved(1 / 1.0009) == ""
    for factor, by in ((1.0011, "+0.1%"), (0.9, "-10.0%")):
        assert f"1 of 1 differ from today's estimates (TWO by {by})" in moved(factor)


def test_freezing_takes_nothing_else_and_the_baseline_no_proposal(tmp_path: Path) -> None:
    path, frozen = str(written(tmp_path, P1B3)), str(tmp_path / "f.suite.yaml")
    assert "Leave --strict out" in str(run(path, "--freeze", frozen, "--strict").exception)
    assert "wrong ending for a suite" in str(run(path, "--freeze", str(tmp_path / "f.xlsx")).exception)
    assert "1 rates of p100 frozen" in run(path, "--freeze", frozen).stdout
    assert "baseline and the target" in str(run(frozen, "-t", "p100").exception)


def test_strict_refuses_and_proposals_must_fit(tmp_path: Path) -> None:
    path = str(written(tmp_path, GIVEN, P1B3))
    refused = run(path, "-t", "v100", "--propose", "TWO.batch=256", "--strict")
    assert isinstance(refused.exception, FomkitError)
    assert "batch 100 → 256" in str(refused.exception)
    for proposal, said in (
        ("THREE.batch=1", "not a line of it"),
        ("TWO.seq=1", "seq is not fixed by the line"),
        ("TWO.batch=0", "a whole number of 1 or more"),
        ("TWO.precision=half", "not a precision"),
        ("batch=2", "LINE.CONDITION=VALUE"),
        ("ONE.batch=2", "is given"),
    ):
        assert said in str(run(path, "-t", "v100", "--propose", proposal).exception)


# --- missing lines -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("required", "code"), [("true", 1), ("false", 0)])
def test_a_required_line_without_a_time_gives_no_fom(tmp_path: Path, required: str, code: int) -> None:
    lacking = f"  - {{name: P3B2, required: {required}, basis: measured, party: lab, given: {{p100: 1 h}}}}\n"
    path = written(tmp_path, GIVEN, lacking)
    done = run(str(path), "-t", "v100")
    assert done.exit_code == code
    assert "missing: P3B2 on v100" in done.stdout
    content = json.loads(run(str(path), "-t", "v100", "--json").stdout)
    if code:
        assert "incomplete: P3B2" in done.stdout
        assert content["fom"] is None
        assert content["incomplete"] == ["P3B2"]
    else:
        assert content["fom"]["value"] == pytest.approx(2)
        assert content["missing"][0]["line"] == "P3B2"


def test_an_unknown_workload_is_an_error_not_a_missing_line(tmp_path: Path) -> None:
    path = written(tmp_path, "  - {name: ONE, basis: modelled, party: lab, model: p1b33}\n")
    assert "p1b3" in str(run(str(path), "-t", "v100").exception)


# --- frozen baselines --------------------------------------------------------------------------------------------


def test_a_frozen_baseline_stays_and_a_changed_line_needs_a_new_version(tmp_path: Path) -> None:
    path = written(tmp_path, GIVEN, P1B3, end="# a remark that stays\n")
    before = result_of(path)
    frozen = tmp_path / "frozen.suite.yaml"
    assert run(str(path), "--freeze", str(frozen)).exit_code == 0
    text = frozen.read_text(encoding="utf-8")
    assert "# a remark that stays" in text
    after = result_of(frozen)
    assert after["frozen"]
    assert after["fom"]["value"] == pytest.approx(before["fom"]["value"], rel=1e-12)
    assert after["fom"]["low"] == pytest.approx(before["fom"]["low"], rel=1e-9)
    for old, new in (("batch: 100", "batch: 50"), ("p100: 10 h", "p100: 11 h"), ("version: 1", "version: 2")):
        assert old in text
        frozen.write_text(text.replace(old, new), encoding="utf-8")
        with pytest.raises(FomkitError, match="differs from version"):
            load_suite(frozen)
    frozen.write_text(text.replace("v100: 5 h", "v100: 4 h"), encoding="utf-8")
    assert result_of(frozen)["lines"][0]["ratio"] == pytest.approx(2.5)
    again = tmp_path / "again.suite.yaml"
    assert run(str(frozen), "--freeze", str(again)).exit_code == 0
    assert load_suite(again).version == 2
    assert again.read_text(encoding="utf-8").count("frozen:") == 1


def test_a_suite_without_a_time_cannot_be_frozen(tmp_path: Path) -> None:
    path = written(tmp_path, "  - {name: ONE, basis: measured, party: lab, given: {v100: 1 h}}\n")
    out = tmp_path / "f.suite.yaml"
    assert "cannot be frozen; ONE has no time" in str(run(str(path), "--freeze", str(out)).exception)
    assert not out.exists()


# --- bad files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "end", "said"),
    [
        ("  - {name: A, basis: measured, party: lab}\n", "", "has no work"),
        ("  - {name: A, basis: measured, party: lab, given: {p100: 0 s}}\n", "", "greater than 0"),
        ("  - {name: A, basis: measured, party: lab, given: {p100: {batch: 2}}}\n", "", "both or neither"),
        ("  - {name: A, basis: measured, party: lab, given: {p100: {time: 2 s, low: 1 s}}}\n", "", "one end"),
        ("  - {name: A, basis: measured, party: lab, given: {p100: {time: 2 s, low: 3 s, high: 4 s}}}\n", "",
         "not between low and high"),
        ("  - {name: A, basis: measured, party: lab, given: {p100: 2 s, v100: {relative_rate: 2}}}\n", "",
         "mixes relative rates with times"),
        (GIVEN + GIVEN, "", "is listed twice"),
        (GIVEN, "campaigns: [{name: c, line: TWO, units: 5}]\n", "'TWO' is not a line"),
        (GIVEN, "mean: median\n", "mean"),
    ],
)  # fmt: skip
def test_mistakes_are_told_with_their_line(tmp_path: Path, lines: str, end: str, said: str) -> None:
    with pytest.raises(FomkitError, match=said):
        load_suite(written(tmp_path, lines, end=end))


# --- CANDLE ------------------------------------------------------------------------------------------------------


def test_candle_is_projected_on_both_sides_and_leaves_out_what_nobody_knows() -> None:
    content = result_of(Path("candle"), "v100")
    assert {one["line"] for one in content["missing"]} == {"P3B2", "P3B3"}
    assert content["fom"]["worst_basis"] == "modelled"
    assert 1 < content["fom"]["low"] < content["fom"]["value"] < content["fom"]["high"] < 4
    assert content["fom"]["weights"]["TC1"] > 0.5


def test_candle_as_measured_is_slower_on_the_newer_device() -> None:
    """P1B3 waits for the host, takes most of the time, and was measured slower on the V100."""
    content = result_of(Path("candle-measured"), "v100")
    assert content["fom"]["value"] == pytest.approx(0.585, abs=1e-3)
    assert content["fom"]["weights"]["P1B3"] == pytest.approx(0.633, abs=1e-3)
    assert content["fom"]["worst_basis"] == "measured"
    assert result_of(Path("candle-measured"), "titan")["fom"]["worst_basis"] == "estimated"


def test_a_suite_from_measured_steps_of_its_baseline_stands_beside_the_projected_and_the_measured() -> None:
    done = run("candle", "--target", "v100", "--from", "candle-lecture", "--json")
    assert done.exit_code == 0, done.output
    content = json.loads(done.stdout)
    assert not sorted_out(content, "fom")[1]
    found = content["calibrated"]
    lines = {one["name"]: one for one in found["lines"]}
    # P2B1: an epoch of 2,850 steps of 64 took 420 s on the P100 and 300 s on the V100.
    one = lines["P2B1"]
    assert one["baseline_step_s"]["value"] == pytest.approx(420 / 2850)
    assert one["measured_step_s"]["value"] == pytest.approx(300 / 2850)
    there = fomkit.estimate("candle/p2b1", "v100", batch=64, precision="fp32").step.value
    here = fomkit.estimate("candle/p2b1", "p100", batch=64, precision="fp32").step.value
    assert one["rest_s"]["value"] == pytest.approx(420 / 2850 - here, rel=1e-9)
    assert one["step_s"]["value"] == pytest.approx(there + 420 / 2850 - here, rel=1e-9)
    assert one["inside"]
    # NT3's rest shrank far more than its host could.
    assert [name for name, line in lines.items() if not line["inside"]] == ["NT3"]
    assert (found["inside"], found["measured_lines"]) == (8, 9)
    assert {one["line"] for one in found["left_out"]} == {"P3B2", "P3B3"}
    assert found["fom"]["low"] < found["measured_fom"]["value"] < found["fom"]["high"]
    assert found["measured_fom"]["value"] < found["fom"]["value"] < found["projected_fom"]["value"]
    assert "8 of 9 lines measured on v100 are in their interval" in format_suite(content)


def test_a_rest_is_never_below_nothing_and_too_long_a_prediction_is_scaled() -> None:
    assert rest_of(Span(1.0, 0.9, 1.1), Span(2.0, 1.5, 2.5)).ends == (0.0, 0.0, 0.0)
    target, device, measured = Span(4.0, 3.0, 5.0), Span(2.0, 1.5, 2.5), Span(1.0, 1.0, 1.0)
    assert target_step(target, device, measured, rest_of(measured, device)).value == pytest.approx(2.0)
    # The rest of a quicker device may be a host's, which stays, or the device's own, which shrinks with it.
    exact = target_step(Span.exact(1.0), Span.exact(4.0), Span.exact(10.0), Span.exact(6.0))
    assert exact.ends == pytest.approx((7.0, 1.0 + 6.0 / 8, 1.0 + 12.0))


def test_a_table_that_calibrates_nothing_is_refused_with_the_reasons() -> None:
    done = run("lecture", "--target", "a", "--from", "candle-lecture")
    assert isinstance(done.exception, FomkitError)
    assert "no line can be calibrated. P1: it has no estimated rate on one device" in str(done.exception)


def test_the_rates_of_a_weighted_mean_are_weighted_and_called_so(tmp_path: Path) -> None:
    head = HEAD.replace("mean: ratio_of_harmonic_means", "mean: weighted_harmonic")
    suite = written(tmp_path, GIVEN, GIVEN.replace("ONE", "TWO"), head=head)
    assert "  weighted harmonic mean rates: p100 " in run(str(suite), "--target", "v100").output


def test_rates_of_different_units_have_no_common_mean(tmp_path: Path) -> None:
    other = GIVEN.replace("ONE", "TWO").replace("party: lab", "party: lab, unit: megatoken")
    texts = {}
    for mean in ("harmonic", "ratio_of_harmonic_means"):
        head = HEAD.replace("mean: ratio_of_harmonic_means", f"mean: {mean}")
        for name, lines in (("one", (GIVEN, GIVEN.replace("ONE", "TWO"))), ("two", (GIVEN, other))):
            texts[mean, name] = run(str(written(tmp_path, *lines, head=head)), "--target", "v100").output
    for mean in ("harmonic", "ratio_of_harmonic_means"):
        assert "  harmonic mean rates: p100 " in texts[mean, "one"]
        assert "unit " not in texts[mean, "one"]
        assert "harmonic mean rates" not in texts[mean, "two"]
        assert "units differ from line to line (run, megatoken)" in texts[mean, "two"]
        assert [line.split()[-3] for line in texts[mean, "two"].splitlines() if line[:4] in ("ONE ", "TWO ")] == [
            "run", "megatoken"
        ]  # fmt: skip
    assert "the value is a mean of each line's ratio to p100" in texts["harmonic", "two"]
    assert "weighted_harmonic" not in texts["harmonic", "two"]
    assert "units count the same in this mean of rates" in texts["ratio_of_harmonic_means", "two"]
    book = tmp_path / "two.xlsx"
    done = run(str(written(tmp_path, GIVEN, other, head=head)), "--target", "v100", "-o", str(book))
    assert done.exit_code == 0, done.output
    rows = load_workbook(book)["Summary"].iter_rows(max_col=3, values_only=True)
    differ = {str(row[0]) for row in rows if str(row[2]).endswith("; units differ")}
    assert differ == {
        "target's harmonic mean rate",
        "baseline's harmonic mean rate",
        "by the mean weighted_harmonic",
    }


def test_frozen_rates_that_are_not_todays_are_told(tmp_path: Path) -> None:
    """Before, one output showed a FOM of frozen rates and another a FOM of present rates, without explanation."""
    frozen = tmp_path / "f.suite.yaml"
    assert run(str(written(tmp_path, P1B3)), "--freeze", str(frozen)).exit_code == 0
    same = run(str(frozen), "-t", "v100")
    assert "by an earlier fomkit" not in same.stdout
    now = json.loads(run(str(frozen), "-t", "v100", "--json").stdout)["lines"][0]["unit_per_day"]
    suite = load_suite(frozen)
    old = {name: replace(one, unit_per_day=one.unit_per_day.scaled(0.9)) for name, one in suite.frozen.items()}
    text = freeze_text(frozen.read_text(encoding="utf-8"), suite, old, "0.0.9")
    frozen.write_text(text, encoding="utf-8")
    told = " ".join(run(str(frozen), "-t", "v100").stdout.split())
    ratio = now["v100"] / now["p100"]
    assert f"1 of 1 differ from today's estimates (TWO by +11.1%); the FOM would be {ratio:.3f}" in told
    assert f"= {ratio / 0.9:.3f}" in told


def test_advice_on_a_line_names_fields_of_the_suite(tmp_path: Path) -> None:
    """`fom` named --nodes, --node-devices, --precision, --allow-uncovered and --scope, which it does not have."""
    lines = [
        "{name: A, model: today/llama3-8b, batch: 8, samples: 1000, epochs: 1}",
        "{name: B, model: resnet50, precision: int8, samples: 1000, epochs: 1}",
        "{name: C, model: today/llama3-8b, batch: 8, samples: 1000, epochs: 1, nodes: 1}",
    ]
    path = tmp_path / "mine.suite.yaml"
    head = "schema: fomkit/suite/1\nname: mine\nversion: 1\nbaseline: h100-sxm\nscope: device\nmean: harmonic\n"
    path.write_text(head + "lines:\n" + "".join(f"  - {line}\n" for line in lines))
    own = set(re.findall(r"--[a-z-]+", run("--help").output)) | {"--mode"}  # of `fomkit profile`
    for target in ("p100", "v100"):
        done = run(str(path), "--target", target)
        assert set(re.findall(r"--[a-z-]+", done.output)) <= own
    assert (
        "(nodes: 1, with 'node: {devices: 4}' in the machine's file, layout: {tensor: 2, sequence: true,"
        in done.output
    )
    path.write_text(path.read_text().replace("scope: device", "scope: node"))
    assert "or choose another 'scope' of the suite: device." in str(run(str(path), "--target", "l4").exception)
