"""Projections compared with measurements: verdicts on the lecture's table, corrections between cells, the grid."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import openpyxl
import pandas as pd
import pytest
from typer.testing import CliRunner

import fomkit
from fomkit.cli.main import app
from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span
from fomkit.output.screen import Screen
from fomkit.plan.options import Options
from fomkit.profiles.locate import locate
from fomkit.profiles.machines import load_machine
from fomkit.profiles.models import load_model
from fomkit.readers.measurements import read_measurements
from fomkit.validation.cells import agreement, make_cells
from fomkit.verbs.estimates import estimate
from fomkit.verbs.profiles import machine

HEADER = "model,machine,quantity,value,low,high,batch,precision,devices,scope,basis,framework"


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["compare", *arguments])


@pytest.fixture(scope="module")
def lecture() -> dict[tuple[str, str], dict[str, Any]]:
    done = run("--calibrate-on", "tc1", "--host-from", "p100", "--json")
    assert done.exit_code == 0, done.exception
    return {(cell["model"], cell["machine"]): cell for cell in json.loads(done.stdout)["cells"]}


# --- the lecture's table -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "claim"),
    [
        ("tc1", "absolute"), ("nt3", "absolute"), ("p3b3", "ratio"), ("p2b1", "ratio"),
        ("p1b1", "start-up bound"), ("p1b2", "start-up bound"), ("combo", "start-up bound"),
        ("p3b1", "start-up bound"),
        ("p1b3", "host bound"), ("uno", "host bound"), ("p3b2", "host bound"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["p100", "v100"])
def test_each_benchmark_says_what_may_be_claimed(lecture, model: str, claim: str, name: str) -> None:
    assert lecture[model, name]["claim"] == claim


def test_a_figure_that_nobody_measured_gets_no_verdict(lecture) -> None:
    for key in (("p1b1", "titan"), ("uno", "titan"), ("p1b3", "a")):
        assert lecture[key]["claim"] is None
        assert lecture[key]["ratio"] is None
        assert "estimated, not measured" in lecture[key]["cause"]


def test_tc1_stands_beside_its_44_seconds_uncalibrated(lecture) -> None:
    cell = lecture["tc1", "v100"]
    assert cell["measured"]["value"] == 44
    assert 0.4 < cell["explained"] < 0.9  # TensorFlow 1.x of 2018 took longer than the kernels of the table
    assert cell["ratio_agrees"] == "inside"


@pytest.mark.parametrize(("name", "seconds"), [("v100", 11.4), ("titan", 87.6), ("knl-7250", 501), ("p100", 19.7)])
def test_calibrating_on_tc1_predicts_nt3(lecture, name: str, seconds: float) -> None:
    """The P100 is an exception: its 29 s are off its own trend."""
    extended = lecture["nt3", name]["calibrated"]
    assert extended["value"] == pytest.approx(seconds, rel=5e-3)
    assert extended["inside"] or name == "p100"


def test_a_host_term_is_carried_with_the_spread_of_the_other_models(lecture) -> None:
    extended = lecture["p1b1", "v100"]["with_host_term"]
    here = lecture["p1b1", "p100"]
    host = here["measured"]["value"] - here["projected"]["value"]
    assert extended["value"] == pytest.approx(host + lecture["p1b1", "v100"]["projected"]["value"])
    assert extended["low"] < extended["value"] < extended["high"]
    assert extended["inside"]
    assert lecture["tc1", "v100"]["with_host_term"] is None  # its time is the device's own


def test_a_roofline_with_the_update_stays_below_every_measurement(lecture) -> None:
    """No op, and so no epoch, is faster than its arithmetic at peak and its bytes at the memory's bandwidth."""
    gaps = {}
    for (model, name), cell in lecture.items():
        if cell["projected"] is None:
            continue
        one, device = estimate(model, name), machine(name).device
        peak, rate = device.peak("fp32", "vector"), device.byte_per_s
        assert peak is not None
        assert rate is not None
        floors = pd.concat([one.ops["flop"] / peak.rate.value, one.ops["byte"] / rate.value], axis=1).max(axis=1)
        step = float((floors * one.ops["count"]).sum())
        assert one.run_time.steps_per_epoch is not None
        gaps[model, name] = cell["measured"]["value"] / (step * one.run_time.steps_per_epoch)
    assert len(gaps) == 36
    assert min(gaps.values()) > 2


# --- verdicts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "low", "high", "said"),
    [(10, 10, 10, "inside"), (13, 13, 13, "ambiguous"), (20, 20, 20, "outside"), (20, 11, 30, "ambiguous")],
)
def test_outside_but_near_is_ambiguous(value: float, low: float, high: float, said: str) -> None:
    assert agreement(value, low, high, Span(10, 8, 12.5)) == said


def table(folder: Path, *rows: str) -> Path:
    path = folder / "m.csv"
    path.write_text("\n".join([HEADER, *rows, ""]), encoding="utf-8")
    return path


def test_estimated_rows_are_never_averaged_with_measured_ones(tmp_path: Path) -> None:
    path = table(
        tmp_path,
        "p1b3,v100,step_s,0.002,,,100,fp32,1,device,measured,",
        "p1b3,v100,step_s,0.004,,,100,fp32,1,device,measured,",
        "p1b3,v100,step_s,9,,,100,fp32,1,device,estimated,",
    )
    (cell,) = make_cells(read_measurements(path), Options(), load_model, load_machine)
    assert cell.measured.value == pytest.approx(0.003)
    assert (cell.measured.low, cell.measured.high) == (0.002, 0.004)
    assert {row.basis for row in cell.rows} == {"measured"}


def test_rates_compare_the_right_way_round(tmp_path: Path) -> None:
    steps = {name: estimate("p1b3", name).step.value for name in ("v100", "p100")}
    rows = [f"p1b3,{name},sample_per_s,{100 / step},,,100,fp32,1,device,measured," for name, step in steps.items()]
    content = json.loads(run("--measured", str(table(tmp_path, *rows)), "--json").stdout)
    fast, slow = content["cells"]
    assert fast["error"] == pytest.approx(0, abs=1e-9)
    assert fast["ratio"] == pytest.approx(steps["p100"] / steps["v100"])
    assert fast["projected_ratio"]["value"] == pytest.approx(fast["ratio"])
    assert (fast["claim"], fast["agrees"], slow["ratio"]) == ("absolute", "inside", None)


@pytest.mark.parametrize(("share", "claim"), [(0.35, "absolute"), (0.32, "unexplained")])
def test_a_time_is_claimed_where_the_device_explains_a_third_of_it(
    tmp_path: Path, share: float, claim: str
) -> None:
    step = estimate("p1b3", "v100").step.value
    row = f"p1b3,v100,step_s,{step / share},,,100,fp32,1,device,measured,"
    (cell,) = json.loads(run("--measured", str(table(tmp_path, row)), "--json").stdout)["cells"]
    assert cell["explained"] == pytest.approx(share)
    assert cell["claim"] == claim


def test_a_figure_of_several_devices_is_not_held_against_one(tmp_path: Path) -> None:
    path = table(
        tmp_path,
        "p1b3,v100,step_s,0.002,,,100,fp32,1,device,measured,",
        "p1b3,v100,sample_per_s,400000,,,100,fp32,8,,measured,",
    )
    one, eight = make_cells(read_measurements(path), Options(), load_model, load_machine)
    assert one.estimate is not None
    assert (eight.estimate, eight.missing) == (
        None, "the measurement is of 8 devices, but a step is projected for one"
    )  # fmt: skip
    rows = "p1b3,v100,sample_per_s,400000,,,100,fp32,8,,measured,"
    done = run("--measured", str(table(tmp_path, rows)), "--grid", "--json").stdout
    assert {cell["explained"] for cell in json.loads(done)["cells"]} == {None}


def test_a_machine_without_a_profile_leaves_its_cell_and_says_so(tmp_path: Path) -> None:
    path = table(tmp_path, "p1b3,k81,epoch_s,5491,,,100,fp32,1,device,measured,")
    (cell,) = json.loads(run("--measured", str(path), "--json").stdout)["cells"]
    assert cell["claim"] is None
    assert "no machine profile is named k81" in cell["cause"]


def test_bad_input_is_one_message(tmp_path: Path) -> None:
    path = str(table(tmp_path, "p1b3,v100,epoch_s,5,,,100,fp32,1,device,measured,",
                     "tc1,v100,sample_per_s,9,,,20,fp32,1,device,measured,"))  # fmt: skip
    for arguments, said in (
        (("nope", "--measured", path), "has no row of the model 'nope'"),
        (("--measured", path, "--calibrate-on", "tc1"), "no measured epoch"),
        (("--measured", path, "--calibrate-on", "nt3"), "no row of the model 'nt3'"),
        (("--measured", path, "--host-from", "a"), "no row of the machine 'a'"),
        (("--measured", path, "--host-from", "v100"), "no host term"),
        (("--measured", path, "-t", "titn"), "no row of the machine 'titn'"),
        (("--measured", path, "--baseline", "nope"), "no row of the machine 'nope'"),
        (("--measured", path, "-o", "x.png"), "ending"),
        (("--measured", path, "--grid", "--latency", "7"), "no unit"),
        (("--measured", path, "--latency", "7 ms"), "--latency: limits inference, which needs --grid"),
        (("--measured", path, "--precision", "bf16"), "needs --grid"),
        (("--measured", "absent.csv"), "or a name. Known names: 'candle-lecture', 'candle-readmes'."),
    ):  # fmt: skip
        error = run(*arguments).exception
        assert isinstance(error, FomkitError), arguments
        assert said in str(error)


# --- the grid ----------------------------------------------------------------------------------------------------


def test_the_grid_keeps_the_latency_and_says_why_a_cell_is_empty(tmp_path: Path) -> None:
    out = tmp_path / "grid.csv"
    done = run("tc1", "p3b3", "--grid", "-t", "v100", "-t", "raspberry-pi-3", "-o", str(out))
    assert done.exit_code == 0, done.exception
    with out.open(encoding="utf-8", newline="") as stream:
        cells = list(csv.DictReader(stream))
    assert len(cells) == 2 * 2 * 2 * 2
    for cell in cells:
        assert bool(cell["sample_per_s.value"]) != bool(cell["why"])
        if cell["latency_s.value"]:
            assert float(cell["latency_s.value"]) <= 7e-3
    said = {
        (cell["machine"], cell["framework"], cell["mode"]): cell["why"] for cell in cells if cell["model"] == "tc1"
    }
    assert "more than 7 ms" in said["raspberry-pi-3", "torch", "infer"]
    assert "not measured" in said["v100", "keras/tensorflow", "infer"]
    assert "empty: " in done.stdout


def test_one_network_in_two_frameworks_is_one_row(tmp_path: Path) -> None:
    arguments = ("nt3-keras", "nt3", "--grid", "-t", "v100", "-t", "knl-7250")
    cells = json.loads(run(*arguments, "--json").stdout)["cells"]
    assert [(one["model"], one["framework"], one["mode"], one["basis"]) for one in cells[:4]] == [
        ("nt3", "torch", "train", "modelled"), ("nt3", "keras/tensorflow", "train", "modelled"),
        ("nt3", "torch", "infer", "modelled"), ("nt3", "keras/tensorflow", "infer", "modelled"),
    ]  # fmt: skip
    assert len(cells) == 8
    assert cells[1]["explained"] == pytest.approx(0.63, abs=0.02)  # of the lecture's 11 s, as of PyTorch's trace
    assert cells[0]["sample_per_s"] != cells[1]["sample_per_s"]
    latency = table(tmp_path, "nt3,v100,latency_s,0.004,0.003,0.005,2,fp32,1,device,measured,keras/tensorflow")
    (only,) = [
        one
        for one in json.loads(run("nt3", "--grid", "-t", "v100", "--measured", str(latency), "--json").stdout)[
            "cells"
        ]
        if (one["framework"], one["mode"]) == ("keras/tensorflow", "infer")
    ]
    assert (only["basis"], only["batch"], only["latency_s"]["value"]) == ("measured", 2, 0.004)
    tpu = json.loads(run("nt3", "nt3-keras", "--grid", "-t", "tpu-v5e", "--precision", "bf16", "--json").stdout)
    assert {one["basis"] for one in tpu["cells"]} == {"modelled"}
    assert only["sample_per_s"]["value"] == pytest.approx(500)


def test_the_shipped_table_is_the_lectures() -> None:
    rows = read_measurements(locate("candle-lecture", "measurements"))
    assert {row.holds for row in rows if row.model == "p2b1"} != {""}


def test_profiles_are_named_by_path_as_well_as_by_name(tmp_path: Path) -> None:
    own = tmp_path / "mine.yaml"
    text = (locate("titan", "machine_profiles")).read_text(encoding="utf-8")
    own.write_text(text.replace("title: ", "title: mine, ", 1), encoding="utf-8")
    model = str(locate("candle/tc1", "model_profiles"))
    said = [json.loads(run(one, "-t", other, "--baseline", other, "--json").stdout)["cells"]
            for one, other in (("tc1", "titan"), ("candle/tc1", str(own)), (model, str(own)))]  # fmt: skip
    assert said[0]
    assert said[0] == said[1] == said[2]
    assert run(model, "--grid", "-t", str(own)).exit_code == 0


def test_the_grid_as_a_sheet(tmp_path: Path) -> None:
    out = tmp_path / "grid.xlsx"
    assert run("p1b3", "--grid", "-t", "v100", "-o", str(out)).exit_code == 0
    sheet = openpyxl.load_workbook(out)["grid"]
    header = [cell.value for cell in sheet[1]]
    rows = [dict(zip(header, (cell.value for cell in row), strict=True)) for row in sheet.iter_rows(min_row=2)]
    assert len(rows) == 4
    for row in rows:
        assert isinstance(row["sample_per_s.value"], float) != bool(row["why"])


# --- rows that say a thing twice ---------------------------------------------------------------------------------


def test_copies_count_once_and_several_figures_of_a_cell_are_told(tmp_path: Path) -> None:
    row = "p1b3,v100,step_s,{},,,100,{},1,device,measured,"
    rows = [row.format(0.002, "fp32"), row.format(0.002, "fp32"), row.format(0.009, "fp16")]
    path = tmp_path / "m.csv"
    path.write_text("\n".join([HEADER, *rows, ""]), encoding="utf-8")
    done = run("--measured", str(path))
    assert done.exit_code == 0, done.exception
    notes = [line for line in done.stdout.splitlines() if line.startswith("note: ")]
    assert notes[0] == f"note: {path}:3 is a copy of line 2 and counts once"
    assert notes[1] == (
        "note: p1b3 on v100, step_s: lines 2, 4 state 0.002 … 0.009; their median counts, its interval "
        "covers them all; they are of different precisions"
    )
    (cell,) = json.loads(run("--measured", str(path), "--json").stdout)["cells"]
    assert cell["measured"]["value"] == pytest.approx(0.0055)
    grid = run("p1b3", "--grid", "--measured", str(path), "--target", "v100")
    assert f"note: {path}:3 is a copy of line 2 and counts once" in grid.stdout


def test_the_default_is_one_screen_and_all_has_every_cell() -> None:
    found = fomkit.compare()
    short = found.write(dict(found.content), Screen(80))
    assert len(short.splitlines()) <= 40
    assert "--all shows all 49 cells: times" in short
    assert "tc1             5–65%   1.73× | 1.59×" in short
    whole = found.summary(cells=True)
    assert whole.count("what limits the time") == 1
    assert sum(line.startswith("tc1 ") for line in whole.splitlines()) == 4
    assert run("--all").stdout == whole


def test_a_machines_mean_ratio_is_over_the_cells_whose_ratio_is_claimed() -> None:
    content = fomkit.compare().content
    for one in content["foms"]:
        cells = [
            cell for cell in content["cells"]
            if cell["machine"] == one["target"] and cell["claim"] in ("absolute", "ratio")
            and None not in (cell["ratio"], cell["projected_ratio"])
        ]  # fmt: skip
        assert one["count"] == len(cells)
        assert one["measured"] == pytest.approx(geometric_mean(cell["ratio"] for cell in cells))
        projected = geometric_mean(cell["projected_ratio"]["value"] for cell in cells)
        assert one["projected"]["value"] == pytest.approx(projected)
        assert one["projected"]["low"] < projected < one["projected"]["high"]
    assert [one["target"] for one in content["foms"]] == ["v100", "titan", "knl-7250"]
