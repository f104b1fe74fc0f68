"""``fomkit accept``: committed rates compared with measurements, and the rows that do not count."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fomkit.cli.main import app
from fomkit.merit.suites import _modelled_share
from fomkit.verbs.estimates import estimate

SUITE = """schema: fomkit/suite/1
name: s
version: 1
baseline: p100
scope: device
mean: ratio_of_harmonic_means
lines:
  - {name: TWO, basis: modelled, party: lab, model: p1b3, batch: 100, epochs: 20}
  - {name: GIVEN, basis: committed, party: vendor, batch: 20, given: {v100: 5 h, p100: 9 h}}
"""
HEADER = "model,machine,quantity,value,low,high,repeats,batch,precision,devices,scope,basis"


@pytest.fixture
def folder(tmp_path, root, monkeypatch) -> Path:
    for path in (root / "machine_profiles").glob("v100.*"):
        shutil.copy(path, tmp_path / path.name)
    shutil.copy(tmp_path / "v100.yaml", tmp_path / "round2.yaml")
    (tmp_path / "s.suite.yaml").write_text(SUITE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def accepted(folder: Path, *rows: str) -> tuple[int, dict[str, Any]]:
    (folder / "m.csv").write_text("\n".join([HEADER, *rows, ""]), encoding="utf-8")
    done = CliRunner().invoke(
        app, ["accept", "s.suite.yaml", "--committed", "round2.yaml", "--measured", "m.csv", "--json"]
    )
    return done.exit_code, {line["name"]: line for line in json.loads(done.stdout)["lines"]}


def step_row(step: float, low: float, high: float, batch: int = 100) -> str:
    return f"p1b3,v100,step_s,{step},{low},{high},20,{batch},fp32,1,device,measured"


GIVEN_ROW = "GIVEN,v100,run_s,18000,,,1,20,fp32,1,device,measured"


def test_verdicts_follow_the_measured_interval(folder: Path) -> None:
    step = estimate("p1b3", "v100").step.value
    for factor, verdict in ((0.8, "met"), (1.0, "ambiguous"), (1.3, "missed")):
        middle = step * factor
        code, lines = accepted(folder, step_row(middle, middle * 0.95, middle * 1.05), GIVEN_ROW)
        assert lines["TWO"]["verdict"] == verdict
        assert code == (0 if verdict == "met" else 1)
        assert lines["TWO"]["measured"]["value"] == pytest.approx(lines["TWO"]["committed"]["value"] / factor)
    assert lines["GIVEN"]["verdict"] == "met"  # exactly the committed hours; no spread, so no probability
    assert lines["GIVEN"]["probability"] is None


def test_a_run_on_many_devices_is_measured_on_as_many(folder: Path) -> None:
    line = "  - {name: LARGE, basis: modelled, party: lab, model: p1b3, batch: 800, nodes: 1}\n"
    (folder / "s.suite.yaml").write_text(SUITE.replace("scope: device", "scope: node") + line, encoding="utf-8")
    links = "links: [{tier: node, alpha: 5 us, bandwidth: 25 GB/s, direction: each, source: made up}]\n"
    machine = folder / "round2.yaml"
    machine.write_text(machine.read_text(encoding="utf-8") + links, encoding="utf-8")
    row = "p1b3,v100,step_s,{},{},{},20,800,fp32,{},node,measured"
    _, lines = accepted(folder, row.format(1, 0.9, 1.1, 8), row.format(1, 0.9, 1.1, 1), GIVEN_ROW)
    large = lines["LARGE"]
    # One run of the node at a time, of 20 epochs of 1,000 steps; validation beside them is as predicted.
    steps = 86_400 / large["measured"]["value"] * (1 - large["modelled_share"])
    assert steps == pytest.approx(20 * 1000, rel=1e-9)
    assert [one["used"] for one in large["rows"]] == [True, False]
    assert "its devices is 1, the estimate's is 8" in large["rows"][1]["said"]
    assert large["verdict"] == "missed"
    words = ["accept", "s.suite.yaml", "--committed", "round2.yaml", "--measured", "m.csv"]
    shown = CliRunner(env={"COLUMNS": "80"}).invoke(app, words).stdout
    assert re.search(r"^LARGE +missed +[\d.]+ +4\.\d+ +-\d", shown, re.MULTILINE)  # what is asked stands first


def test_a_model_may_be_named_as_the_suite_does_and_a_line_that_no_row_names_is_told(folder: Path) -> None:
    suite = folder / "s.suite.yaml"
    suite.write_text(SUITE.replace("model: p1b3", "model: candle/p1b3"), encoding="utf-8")
    for name in ("p1b3", "candle/p1b3", "TWO"):
        _, lines = accepted(folder, step_row(0.01, 0.009, 0.011).replace("p1b3", name))
        assert lines["TWO"]["verdict"] != "not measured", name
    words = ["accept", "s.suite.yaml", "--committed", "round2.yaml", "--measured", "m.csv"]
    assert "GIVEN is not measured: no row names" in CliRunner().invoke(app, words).stdout


def test_rows_under_other_conditions_are_set_aside(folder: Path) -> None:
    code, lines = accepted(folder, step_row(1e-3, 9e-4, 2e-3, batch=256), GIVEN_ROW.replace(",20,", ",64,"))
    assert code == 1
    assert {line["verdict"] for line in lines.values()} == {"not measured"}
    assert "batch is 256" in lines["TWO"]["rows"][0]["said"]
    assert "batch is 64, the line's is 20" in lines["GIVEN"]["rows"][0]["said"]


def test_rows_of_a_given_line_must_state_what_is_compared(folder: Path) -> None:
    rows = [
        GIVEN_ROW.replace(",1,device", ",8,device"),
        GIVEN_ROW.replace(",device,", ",node,"),
        GIVEN_ROW.replace(",1,device", ",,device"),
    ]
    _, lines = accepted(folder, *rows)
    assert lines["GIVEN"]["verdict"] == "not measured"
    said = " ".join(row["said"] for row in lines["GIVEN"]["rows"])
    assert "devices is 8, the line's is 1" in said
    assert "scope is node, the line's is device" in said
    assert "devices is not stated" in said


def test_rows_that_exclude_each_other_decide_nothing(folder: Path) -> None:
    step = estimate("p1b3", "v100").step.value
    rows = [step_row(step * factor, step * factor * 0.98, step * factor * 1.02) for factor in (0.05, 0.9)]
    code, lines = accepted(folder, *rows, GIVEN_ROW)
    assert code == 1
    assert lines["TWO"]["contradictory"]
    assert lines["TWO"]["verdict"] == "ambiguous"


def test_what_is_predicted_beside_a_measured_step_is_told(folder: Path) -> None:
    step = estimate("p1b3", "v100").step.value
    _, lines = accepted(folder, step_row(step, step * 0.9, step * 1.1), GIVEN_ROW)
    assert 0.01 < lines["TWO"]["modelled_share"] < 0.5  # 200,030 validation samples
    assert lines["GIVEN"]["modelled_share"] == 0


def test_of_a_run_that_nobody_states_no_share_is_predicted() -> None:
    assert _modelled_share(estimate("p3b2", "titan")) == 0


def test_an_unknown_machine_in_the_rows_is_one_message(folder: Path) -> None:
    (folder / "m.csv").write_text(f"{HEADER}\n{GIVEN_ROW}\n".replace("v100", "v101"), encoding="utf-8")
    command = ["accept", "s.suite.yaml", "--committed", "round2.yaml", "--measured", "m.csv"]
    done = CliRunner().invoke(app, command)
    assert "no row is of 'v100'" in str(done.exception)
    named = CliRunner().invoke(app, [*command, "--measured-on", "v101"])
    assert named.exit_code == 1  # one line is met, the other is not measured
    assert "not measured" in named.stdout
