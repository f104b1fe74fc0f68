"""The projected timeline: a valid trace file whose slices add up to the estimate, in the order of the step."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import fomkit
from fomkit.cli.main import app
from fomkit.core.machine import Fact, Machine, Overhead
from fomkit.ops.views import executions
from fomkit.output.files import timeline_text
from fomkit.plan.estimate import estimate
from fomkit.plan.memory_of import step_memory
from fomkit.plan.op_tables import PROCESS, STEP_TRACK, timeline_content
from fomkit.plan.options import Options
from fomkit.profiles.machines import load_machine
from fomkit.profiles.models import load_model

NS = 1e-9
CASES = (
    ("gpt2", "v100", {}),
    ("candle/p3b2", "p100", {}),
    ("candle/p1b3", "v100", {"batch": 1}),
    ("candle/p1b3", "fed slowly", {}),
    ("resnet50", "a100-sxm", {"precision": "mixed"}),
    ("p1b3-lecture", "x86-lecture", {}),
)
Events = list[dict[str, Any]]


def fed_slowly() -> Machine:
    """Return a machine whose steps wait for input, and lose some time between them."""
    fed, lost = (
        Overhead(name, "step", Fact(time_s, time_s, time_s, "assumed", "a test"), None)
        for name, time_s in (("input", 0.5), ("synchronisation", 0.01))
    )
    return replace(load_machine("v100"), overheads=(fed, lost))


@pytest.fixture(scope="module", params=CASES, ids=lambda case: "-on-".join(case[:2]))
def case(request: pytest.FixtureRequest) -> tuple[Any, dict[str, Any]]:
    """Return an estimate and what its timeline's file says."""
    model, machine, chosen = request.param
    target = fed_slowly() if machine == "fed slowly" else load_machine(machine)
    given = load_model(model), target, Options(**chosen, allow_uncovered=True)
    return estimate(*given), json.loads(timeline_text(timeline_content(*given)))


def of(content: dict[str, Any], phase: str) -> Events:
    return [event for event in content["traceEvents"] if event["ph"] == phase]


def ops_of(content: dict[str, Any]) -> Events:
    return [event for event in of(content, "X") if event["tid"] != STEP_TRACK]


def test_slices_add_up_to_the_estimate(case: tuple[Any, dict[str, Any]]) -> None:
    one, content = case
    device = sum(event["dur"] for event in ops_of(content)) * 1e-6
    assert device == pytest.approx(one.step_time.device_s.value, abs=NS)
    whole, *terms = (event for event in of(content, "X") if event["tid"] == STEP_TRACK)
    assert whole["name"] == "projected step"
    assert whole["dur"] * 1e-6 == pytest.approx(one.step.value, abs=NS)
    assert sum(event["dur"] for event in terms) * 1e-6 == pytest.approx(one.step.value, abs=2 * NS)
    assert terms[0]["dur"] * 1e-6 == pytest.approx(one.step_time.device_s.value, abs=NS)
    waits = one.machine.overheads[0].name == "input" if one.machine.overheads else False
    late = one.step_time.host_launch_s
    launches = late is not None and late.value > one.step_time.device_s.value and not waits
    expected = ["device", "waits for input", "overheads"] if waits else ["device"]
    expected += ["waits for the host's launches"] * launches
    assert [event["name"] for event in terms] == expected
    assert content["otherData"]["step_s"]["value"] == one.step.value


def test_the_file_keeps_to_the_format(case: tuple[Any, dict[str, Any]]) -> None:
    """Trace Event Format (Google, 2016): complete events, counters, instants and metadata."""
    _, content = case
    assert content["displayTimeUnit"] == "ms"
    named = {event["tid"] for event in of(content, "M") if event["name"] == "thread_name"}
    assert of(content, "M")[0]["name"] == "process_name"
    needed = {"M": {"args"}, "X": {"ts", "dur", "tid"}, "C": {"ts", "args"}, "i": {"ts", "tid", "s"}}
    for event in content["traceEvents"]:
        assert {"name", "ph", "pid"} | needed[event["ph"]] <= set(event)
        assert event["pid"] == PROCESS
        assert event.get("tid", STEP_TRACK) in named
        for key in ("ts", "dur"):
            value = event.get(key, 0.0)
            assert math.isfinite(value)
            assert value >= 0
    assert all(isinstance(value, int | float) for event in of(content, "C") for value in event["args"].values())


def test_slices_of_a_track_do_not_overlap_in_whole_nanoseconds(case: tuple[Any, dict[str, Any]]) -> None:
    _, content = case
    ends: Counter[int] = Counter()
    for event in ops_of(content):
        begin, length = int(event["ts"] * 1000), int(event["dur"] * 1000)
        assert begin >= ends[event["tid"]]
        ends[event["tid"]] = begin + length


def test_it_is_marked_as_projected(case: tuple[Any, dict[str, Any]]) -> None:
    one, content = case
    assert content["traceEvents"][0]["args"]["name"].startswith("projected by fomkit, not measured: ")
    assert {event["cat"] for event in content["traceEvents"] if event["ph"] != "M"} == {"projected"}
    head = content["otherData"]
    assert (head["schema"], head["model"], head["target"]) == (
        "fomkit/timeline/1",
        one.model.name,
        one.machine.name,
    )


def test_slices_say_what_is_known_of_them(case: tuple[Any, dict[str, Any]]) -> None:
    one, content = case
    slices = ops_of(content)
    counted = Counter[str]()
    for event in slices:
        told = event["args"]
        counted[event["name"]] += told["executions"]
        assert told["shape"]
        assert told["time_source"]
        # to the nanosecond, as the ends are
        assert told["low_us"] - 1e-3 <= event["dur"] <= told["high_us"] + 1e-3
    expected = one.ops.groupby("op")["count"].sum().to_dict()
    assert counted == pytest.approx(expected)
    for name in ("flop", "byte"):
        total = sum(event["args"].get(name, 0.0) for event in slices)
        assert total == pytest.approx((one.ops[name] * one.ops["count"]).sum(), rel=1e-9)


def test_ops_stand_in_the_order_that_was_traced() -> None:
    model = load_model("resnet50")
    content = timeline_content(model, load_machine("v100"), Options())
    passes = [event["args"]["pass_name"].partition("_")[0] for event in ops_of(content)]
    assert passes == sorted(passes, key=("forward", "backward", "update").index)
    assert content["otherData"]["order"] == "as traced"
    modules = [event["args"].get("module") for event in ops_of(content)]
    assert modules[:2] == ["stem.conv", "stem.norm"]
    assert model.order is not None
    assert len(modules) == model.order.loc[model.order["row"].notna(), "id"].nunique()


def test_the_memorys_peak_is_that_of_the_memory_command() -> None:
    model, options = load_model("gpt2"), Options(2)
    content = timeline_content(model, load_machine("v100"), options)
    use = step_memory(model, {**model.sizes, "batch": 2})
    assert use is not None
    assert max(event["args"]["byte"] for event in of(content, "C")) == use.peak_byte


@pytest.mark.parametrize(
    ("change", "options", "why"),
    [
        ({"order": None}, Options(), "the profile has no op order"),
        ({"traced_with": {"framework": "keras"}}, Options(precision="mixed"), "traced in other number formats"),
    ],
)
def test_memory_that_nobody_knows_is_absent(change: dict[str, Any], options: Options, why: str) -> None:
    model = replace(load_model("candle/p1b3"), **change)
    content = timeline_content(model, load_machine("v100"), options)
    assert why in content["otherData"]["memory"]
    assert not of(content, "C")


def test_work_without_a_time_is_marked_and_no_slice(unsized: Path) -> None:
    model = load_model(unsized)
    ops = model.ops.assign(traced_time_s=float("nan"))
    content = timeline_content(replace(model, ops=ops), load_machine("v100"), Options(allow_uncovered=True))
    missing = of(content, "i")
    assert missing
    assert {event["args"]["time"] for event in missing} == {"missing"}


def test_the_same_twice() -> None:
    given = load_model("candle/p1b3"), load_machine("v100"), Options()
    assert timeline_text(timeline_content(*given)) == timeline_text(timeline_content(*given))


@given(
    lines=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3)), max_size=12),
    counts=st.lists(st.integers(0, 6), min_size=4, max_size=4),
)
def test_executions_add_up_to_the_counts(lines: list[tuple[int, int]], counts: list[int]) -> None:
    rows = [row for row, times in lines for _ in range(times) if counts[row]]
    order = pd.DataFrame({"id": [0.0, *range(1, len(rows) + 1)], "row": [math.nan, *rows]})
    for given_order in (order, None):
        found = Counter[int]()
        for one in executions([float(count) for count in counts], given_order):
            found[one.row] += one.times
        assert {row: found[row] for row in range(4)} == pytest.approx(dict(enumerate(counts)))


def test_several_ids_of_one_execution_are_one() -> None:
    order = pd.DataFrame({"id": [1.0, 2.0, 3.0, 4.0], "row": [0.0, 0.0, 1.0, 0.0]})
    found = executions([2.0, 1.0], order)
    assert [(one.row, one.times, one.last_id) for one in found] == [(0, 1.0, 2), (1, 1.0, 3), (0, 1.0, 4)]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["gpt2", "--timeline", "out.json"], "--timeline: needs times on a machine. Add, for example, --target"),
        (["gpt2", "-t", "v100", "--timeline", "out.txt"], "out.txt: has the wrong ending for a timeline"),
        (["v100", "--timeline", "out.json"], "is a machine, and --timeline is for models"),
        (["--timeline", "out.json"], "these options need a model"),
    ],
)
def test_mistakes_are_told(
    arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["show", *arguments])
    assert done.exit_code != 0
    assert words in str(done.exception or done.output)
    assert not list(tmp_path.iterdir())


def test_the_command_writes_it_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    done = CliRunner().invoke(app, ["show", "candle/p1b3", "-t", "v100", "--timeline", str(path)])
    assert done.exit_code == 0
    assert done.stdout.endswith("out.json, predicted, for ui.perfetto.dev\n")
    assert json.loads(path.read_text(encoding="utf-8"))["otherData"]["target"] == "v100"


@pytest.mark.parametrize("precision", [None, "bf16", "fp8"])
def test_whoever_asks_for_the_memory_of_a_step_hears_what_memory_says(precision: str | None) -> None:
    """llama3-8b-decode is of bf16: nothing is narrower in bf16, weights of linear layers are in fp8."""
    name, board = "llama3-8b-decode", "h100-sxm"
    peak = fomkit.memory(name, board, precision=precision).content["peak"]["byte"]
    swept = fomkit.sweep(name, board, {"batch": [16, 4096]}, precision=precision).table
    assert swept["peak_byte"].iloc[0] == peak
    assert swept["fits"].tolist() == [True, False]
    assert fomkit.advise(name, board, precision=precision).content["memory"]["peak_byte"] == peak
    projected = timeline_content(fomkit.model(name), fomkit.machine(board), Options(precision=precision))
    counted = [one["args"]["byte"] for one in projected["traceEvents"] if one["name"] == "projected memory"]
    assert max(counted) == peak
