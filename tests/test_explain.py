"""``fomkit explain``: its numbers are the estimate's, and its first suggested timing is the best one."""

from __future__ import annotations

import math
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from terminal import in_this_process

import fomkit
from fomkit.core.errors import FomkitError
from fomkit.core.machine import Fact, Machine, Overhead
from fomkit.ops.groups import identities
from fomkit.ops.pricing import work_out
from fomkit.output.explained import format_evidence
from fomkit.output.screen import Screen
from fomkit.plan.coverage import uses_of
from fomkit.plan.estimate import Estimate, estimate
from fomkit.plan.evidence import explain_ops, op_frame, ops_to_time, steps_if_timed
from fomkit.plan.options import Options
from fomkit.plan.step import device_time, roll_up_step
from fomkit.prediction.cascade import add_times
from fomkit.profiles.evidence import with_fits
from fomkit.profiles.machines import load_machine
from fomkit.profiles.models import load_model

PAIRS = [("p1b3", "v100"), ("resnet50", "p100"), ("gpt2", "titan"), ("p1b3-lecture", "x86-lecture")]
EVERY = 100_000
OPTIONS = Options(allow_uncovered=True)


def explained(root: Path, model: str, machine: str, top: int = 10) -> tuple[dict[str, Any], Estimate]:
    known, target = (
        load_model(model),
        load_machine(root / "machine_profiles" / f"{machine}.yaml"),
    )
    return explain_ops(estimate(known, target, OPTIONS), top), estimate(known, target, OPTIONS)


@pytest.mark.parametrize(("model", "machine"), PAIRS)
def test_the_ops_add_up_to_the_estimate(root: Path, model: str, machine: str) -> None:
    content, one = explained(root, model, machine, EVERY)
    device = one.step_time.device_s.value
    assert sum(op["step_time_s"]["value"] for op in content["ops"]) == pytest.approx(device, rel=1e-9)
    assert sum(op["share"] for op in content["ops"]) == pytest.approx(1, rel=1e-9)
    assert content["rest"] == {"ops": 0, "time_s": 0.0, "share": 0.0}
    priced = one.ops["time_s"].notna()
    assert sum(op["count"] for op in content["ops"]) == pytest.approx(one.ops["count"][priced].sum())
    assert sum(op["count"] for op in content["unpriced"]) == pytest.approx(one.ops["count"][~priced].sum())
    cut, _ = explained(root, model, machine, 3)
    assert cut["ops"] == content["ops"][:3]
    assert sum(op["share"] for op in cut["ops"]) + cut["rest"]["share"] == pytest.approx(1, rel=1e-9)
    shares = [op["share"] for op in content["ops"]]
    assert shares == sorted(shares, reverse=True)


def test_a_step_that_no_device_holds_is_explained_and_told(tmp_path: Path) -> None:
    """As for an estimate, which has the same option."""
    words = ["explain", "gpt2", "--target", "v100", "--batch", "4000", "--top", "1"]
    done = in_this_process(*words, cwd=tmp_path)
    assert (done.returncode, "gpt2 on v100 does not fit: v100 has 16,384 MiB" in done.stderr) == (1, True)
    assert "batch 4000" in done.stdout
    assert in_this_process(*words, "--allow-oversize", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize(("model", "machine"), PAIRS)
def test_the_formulas_with_their_numbers_give_the_costs(root: Path, model: str, machine: str) -> None:
    content, _ = explained(root, model, machine, EVERY)
    seen = 0
    for op in content["ops"]:
        for cost in op["costs"].values():
            if cost["formula"] is not None and cost["value"] is not None:
                found = eval(cost["numbers"], {"floor": math.floor, "ceiling": math.ceil, "Max": max})
                assert found == pytest.approx(cost["value"], rel=1e-9), op["sizes"]
                seen += 1
    assert seen > len(content["ops"])


def test_a_convolutions_output_is_a_named_part_with_its_formula() -> None:
    row = dict.fromkeys(("depth", "kernel_d", "stride_d", "dilation_d", "dilation_h", "dilation_w", "groups"), 1.0)
    row |= {"batch": 2.0, "in_channels": 3.0, "out_channels": 64.0, "height": 224.0, "width": 224.0}
    row |= {"kernel_h": 7.0, "kernel_w": 7.0, "stride_h": 2.0, "stride_w": 2.0, "pad_h": 3.0, "pad_w": 3.0}
    worked = work_out({**row, "pad_d": 0.0, "kind": "conv", "dtype": "fp32", "pass_name": "forward"})["flop"]
    assert worked.numbers == f"2*2*3*1*7*7*64*{112 * 112}/1"
    assert {"slid_over", "out_height"} <= worked.where.keys()


def test_long_numbers_have_separators(root: Path) -> None:
    content, _ = explained(root, "resnet50", "v100", EVERY)
    text = format_evidence(content)
    assert "1. native_batch_norm_backward of 25,690,112 elements, 100,352 a row\n" in text
    assert "13 · numel = 13 · 25,690,112 = 334.0 MFLOP" in text
    assert not re.search(r"(?<![\d.])\d{8,}", text)


def test_nearest_timings_stand_where_they_are_said_to(root: Path) -> None:
    content, one = explained(root, "resnet50", "v100", EVERY)
    table = one.machine.timings
    seen = 0
    for op in content["ops"]:
        distances = [near["distance"] for near in op["nearest"]]
        assert distances == sorted(distances)
        assert bool(distances) == (op["time_source"] == "interpolated" or op["time_source"] == "extrapolated")
        for near in op["nearest"][:1]:
            place = (table["source_sheet"] == near["source_sheet"]) & (table["source_row"] == near["source_row"])
            found = table[place & (table["kind"] == op["kind"]) & (table["pass_name"] == op["pass_name"])]
            if op["kind"] == "conv":
                assert near["time_s"] in found["time_s"].tolist()
                assert f"distance {near['distance']:.2g}" in op["evidence"]
                seen += 1
    assert seen > 10


def _timed_too(machine: Machine, rows: pd.DataFrame) -> Machine:
    """Add timings of exactly the predicted time; as they name an op, the fits do not learn from them."""
    columns = ["op", *(name for name in machine.timings.columns if name in rows.columns and name != "op")]
    timings = rows[columns].assign(
        time_s=rows["time_s"], p25_s=rows["time_s"], p75_s=rows["time_s"], harness="exact"
    )
    return replace(machine, timings=pd.concat([machine.timings, timings], ignore_index=True))


@pytest.mark.parametrize(
    ("model", "machine", "kinds"), [("p1b3", "v100", {"gemm"}), ("resnet50", "p100", {"conv"})]
)
def test_the_timing_named_first_shrinks_the_interval_most(
    root: Path, model: str, machine: str, kinds: set[str]
) -> None:
    """Each candidate's timing is added to the machine's table, and the step is predicted again."""
    content, one = explained(root, model, machine, EVERY)
    target = with_fits(one.machine)
    rows = one.ops.reset_index(drop=True)
    widths = []
    candidates = [entry for entry in content["measurements"] if entry["line"]["kind"] in kinds][:4]
    assert content["measurements"][0] in candidates
    for entry in candidates:
        line = entry["line"]
        sizes = [name for name in line if name in rows.columns and name not in ("op", "count", "pass_name")]
        same = pd.concat([rows[name] == line[name] for name in sizes], axis=1).all(axis=1)
        served = rows[same & rows["pass_name"].isin(entry["passes"])]
        assert served["count"].sum() == pytest.approx(entry["executions"])
        known = _timed_too(target, served.drop_duplicates(["op", "pass_name"]))
        costed = rows.drop(columns=["time_s", "low_s", "high_s", "time_source", "bound", "evidence"])
        again = roll_up_step(add_times(costed, known, in_sums=True), target, 0.8).wall_s
        assert again.high - again.low == pytest.approx(entry["step_s"]["high"] - entry["step_s"]["low"], rel=2e-3)
        widths.append(again.high - again.low)
    assert widths[0] == min(widths)
    assert widths[0] < one.step.high - one.step.low


@pytest.mark.parametrize(("model", "machine"), PAIRS)
def test_every_timing_helps_and_all_of_them_leave_no_interval(root: Path, model: str, machine: str) -> None:
    content, one = explained(root, model, machine, EVERY)
    shrinks = [entry["shrinks"] for entry in content["measurements"]]
    assert shrinks == sorted(shrinks, reverse=True)
    assert min(shrinks) >= -1e-12
    assert max(shrinks) <= 1
    assert sum(entry["executions"] for entry in content["measurements"]) == pytest.approx(
        one.ops["count"][one.ops["time_s"].notna()].sum()
    )
    left = content["all_measured"]
    width = one.step.high - one.step.low
    # What stays is what the host and the overheads add.
    assert left["high"] - left["low"] <= width
    assert ops_to_time(one, 1)["measurements"] == content["measurements"][:1]


def test_one_op_alone_carries_the_whole_interval(root: Path) -> None:
    _, one = explained(root, "p1b3", "v100", 1)
    rows = one.ops[one.ops["kind"] == "gemm"].head(1)
    known = steps_if_timed(rows, identities(rows), one.machine, 0.8)
    (step,) = known.values()
    # Timed alone, how its use in a step differs stays unknown; a table taken inside steps leaves nothing.
    exact = rows.assign(low_s=rows["time_s"], high_s=rows["time_s"])
    in_use = device_time(exact, 0.8, uses_of(one.machine))
    assert (step.low, step.high) == pytest.approx((in_use.low, in_use.high))
    inside = replace(one.machine, timings=one.machine.timings.assign(harness="profiler"))
    (step,) = steps_if_timed(rows, identities(rows), inside, 0.8).values()
    assert step.high - step.low == pytest.approx(0, abs=1e-15)


def test_a_machine_of_facts_only_says_its_rates(root: Path) -> None:
    content, _ = explained(root, "gpt2", "titan", 3)
    for op in content["ops"]:
        assert op["nearest"] == []
        assert op["time_source"] == "roofline"
        assert op["evidence"]
        assert op["floor"]["memory"]["source"]
        floors = [op["floor"][term]["time_s"] for term in ("compute", "memory")]
        assert op["floor"]["time_s"] == max(floors)


def test_a_floor_takes_the_rate_that_power_lets_hold_where_the_time_does(root: Path) -> None:
    content, _ = explained(root, "gpt2", "l4", 3)
    (rate, source), *_ = {
        (op["floor"]["compute"]["rate"], op["floor"]["compute"]["source"])
        for op in content["ops"]
        if op["dtype"] == "fp32"
    }
    assert rate < 30.3e12
    assert source.startswith("limited by 72.00 W (peak 30.30 TFLOP/s")


def test_the_lectures_ops_are_its_measurements(root: Path) -> None:
    content, _ = explained(root, "p1b3-lecture", "x86-lecture", 4)
    assert {op["time_source"] for op in content["ops"]} == {"measured"}
    assert all(op["nearest"][0]["distance"] == 0 for op in content["ops"])
    assert all("Foster" in op["nearest"][0]["source_file"] for op in content["ops"])
    assert content["ops"][1]["costs"]["flop"]["formula"] == "2*b*k*m*n"


def test_a_step_that_waits_for_its_input_gains_nothing_from_timed_ops(root: Path) -> None:
    model, machine = (
        load_model(root / "model_profiles" / "candle" / "p1b3.yaml"),
        load_machine(root / "machine_profiles" / "v100.yaml"),
    )
    reading = Overhead("input", "step", Fact(10.0, 9.0, 12.0, "assumed", "a test"), None)
    content = explain_ops(estimate(model, replace(machine, overheads=(reading,)), Options(batch=1)))
    assert content["bound"] == "input"
    assert content["device_s"]["high"] < content["step_s"]["low"]
    assert {entry["shrinks"] for entry in content["measurements"]} == {0.0}
    assert "the step is bound by input" in format_evidence(content)


def test_a_machine_of_which_nothing_is_known_is_refused(root: Path) -> None:
    model = load_model(root / "model_profiles" / "candle" / "p1b3.yaml")
    machine = load_machine(root / "machine_profiles" / "titan.yaml")
    unknown = replace(machine, device=replace(machine.device, peaks=(), byte_per_s=None))
    with pytest.raises(FomkitError, match="no op has a time"):
        explain_ops(estimate(model, unknown, OPTIONS))


@pytest.mark.parametrize("width", [80, 120])
def test_tables_fit_the_screen(root: Path, width: int) -> None:
    content, _ = explained(root, "resnet50", "v100", 3)
    told = format_evidence(content, Screen(width)).splitlines()
    rules = [line for line in told if set(line) == {"─"}]
    assert len(rules) == 2
    assert max(map(len, rules)) <= width
    assert any("DeepBench_NV_V100.xlsx" in line for line in told)


def test_a_step_with_work_that_has_no_time_is_a_lower_bound(root: Path, unsized: Path) -> None:
    content, _ = explained(root, str(unsized), "v100", 3)
    assert content["unpriced"]
    assert "a step takes at least" in format_evidence(content)


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return in_this_process(*arguments, cwd=cwd)


def test_the_ops_to_time_are_a_table_of_ops(root: Path, tmp_path: Path) -> None:
    table = tmp_path / "to_time.csv"
    told = run("explain", "p1b3", "-t", "v100", "--top", "2", "-o", str(table), cwd=root)
    assert (told.returncode, told.stderr) == (0, "")
    assert "to time on the machine, best first" in told.stdout
    assert len(table.read_text(encoding="utf-8").splitlines()) == 3
    timed = run("predict", str(table), "-t", "v100", cwd=root)
    assert timed.returncode == 0
    assert len(timed.stdout.splitlines()) == 3


def test_another_ending_is_refused(root: Path, tmp_path: Path) -> None:
    told = run("explain", "p1b3", "-t", "v100", "-o", str(tmp_path / "x.txt"), cwd=root)
    assert told.returncode == 2
    assert ".json or .csv" in told.stderr


def test_a_power_is_shown_as_one(root: Path) -> None:
    """The experts that are met at all are 1 - (1 - 1/experts) to the number of choices: no product."""
    shown = format_evidence(explained(root, "today/deepseek-v3-decode", "h200-sxm", 1)[0])
    (line,) = [line for line in shown.splitlines() if line.startswith("  byte")]
    assert "(1 - (1 - 1/experts)^(m · top_k))" in line
    assert "(1 - (1 - 1/256)^(64 · 8))" in line
    assert "·  ·" not in shown


def test_ops_of_a_table_that_names_no_modules_stand_nowhere() -> None:
    known = load_model("p1b3")
    frame = op_frame(
        estimate(replace(known, ops=known.ops.drop(columns="module")), load_machine("titan"), OPTIONS)
    )
    assert set(frame["module"]) == {""}


def test_a_part_of_a_job_is_explained_as_one_microbatch_on_one_device() -> None:
    alone = fomkit.explain("llama3-70b-decode", "h100-sxm", layout="tensor=8", top=100).content
    step = fomkit.estimate("llama3-70b-decode", "h100-sxm", layout="tensor=8").step
    assert alone["step_s"] == {"value": step.value, "low": step.low, "high": step.high}
    assert {op["op"] for op in alone["ops"]} >= {"all_reduce_replayed", "feed-forward in"}
    layout = {"nodes": 1, "layout": "tensor=2,sequence,zero=1,microbatch=1"}
    found = fomkit.explain("llama3-8b", "h100-sxm", top=5, **layout)
    content = found.content
    assert content["part"]["microbatches"] == 2
    assert content["part"]["microbatch"] == 1
    assert sum(op["share"] for op in content["ops"]) + content["rest"]["share"] == pytest.approx(1)
    into = next(op for op in content["ops"] if op["op"] == "feed-forward in" and op["pass_name"] == "forward")
    assert (into["count"], into["dimensions"]["m"], into["dimensions"]["n"]) == (32, 8192, 14_336)  # gate and up
    # Two microbatches of this, the update and what its links wait for are the step.
    job = fomkit.estimate("llama3-8b", "h100-sxm", **layout).job
    assert job is not None
    assert 2 * content["device_s"]["value"] == pytest.approx(job.compute_s.value, rel=0.1)
    assert 2 * content["device_s"]["value"] < job.compute_s.value
    head = " ".join(found.summary().split())
    assert "a microbatch of 1 sample takes a device" in head
    assert "part of 8 devices (1 node), tensor 2, sequence, microbatch 1, zero 1; replicas: 4" in head


def test_a_part_fits_as_its_job_does() -> None:
    """Replicas of all layers do not; shared states do, though one device alone could not hold them."""
    whole = {"nodes": 1, "layout": "microbatch=1"}
    found = fomkit.explain("llama3-8b", "h100-sxm", top=1, **whole)
    assert [text.partition(":")[0] for text in found.unfit] == ["llama3-8b on h100-sxm does not fit"]
    vgg = load_model("vgg16")
    small = replace(
        machine := load_machine("v100"),
        device=replace(machine.device, capacity_byte=Fact.exact(1.9e9, "published", "test")),
    )
    alone, shared = (fomkit.explain(vgg, small, top=1, batch=batch, nodes=nodes, layout=layout)
                     for batch, nodes, layout in ((1, None, ""), (8, 1, "zero=1")))  # fmt: skip
    assert (len(alone.unfit), shared.unfit) == (1, [])
