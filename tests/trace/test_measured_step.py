"""Steps that really run: what is timed, how times of ops are joined to the op table, and that none is lost."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from terminal import in_this_process

torch = pytest.importorskip("torch", reason="the tracer's tests need PyTorch: pip install '.[torch]'")

from torch import nn  # noqa: E402
from torch.nn.functional import cross_entropy  # noqa: E402

import fomkit  # noqa: E402
from fomkit.bench import model_steps, torch_child  # noqa: E402
from fomkit.bench.measured_run import (  # noqa: E402
    join_times,
    measure_profile,
    measurement_of,
    run_content,
    with_times,
)
from fomkit.bench.model_steps import (  # noqa: E402
    NO_ENERGY,
    Timed,
    by_processor,
    step_times,
    stopwatch,
    time_file,
    timing_result,
)
from fomkit.bench.torch_child import profiled_steps  # noqa: E402
from fomkit.core.errors import FomkitError  # noqa: E402
from fomkit.core.measurement import NO_ROW, NO_WORK, MeasuredOps, Repeated, StepTimes  # noqa: E402
from fomkit.core.model import ModelProfile, Workload  # noqa: E402
from fomkit.frontends.drafting import Request  # noqa: E402
from fomkit.frontends.model_file import run_file, take_workload  # noqa: E402
from fomkit.frontends.profile import profile_workload  # noqa: E402
from fomkit.frontends.step_spread import Spent  # noqa: E402
from fomkit.frontends.torch.profile import (  # noqa: E402
    check_finite,
    check_workload,
    real_step,
)
from fomkit.ops.resize import resize_ops  # noqa: E402
from fomkit.output.explained import measured_lines  # noqa: E402
from fomkit.output.models import format_model_view  # noqa: E402
from fomkit.plan.options import Options  # noqa: E402
from fomkit.profiles.models import load_model, save_model  # noqa: E402
from fomkit.readers.profilers.kineto import time_spent  # noqa: E402
from fomkit.verbs.model_view import View, show_model  # noqa: E402

WORDS = 400
STEPS = 3
SMALL = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 3))
batch_size = 6
inputs = lambda batch: torch.randn(batch, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
"""
ON_TORCH = """
import os
os.environ["KERAS_BACKEND"] = "torch"
import keras
raise SystemExit("this file must not run")
"""


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.lstm = nn.Embedding(WORDS, 48), nn.LSTM(48, 96, 2, batch_first=True)
        self.words = nn.Linear(96, WORDS)

    def forward(self, words: Any) -> Any:
        return self.words(self.lstm(self.embedding(words))[0])


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(64, 4, 256, 0.1, batch_first=True, activation="gelu")
        self.embedding = nn.Embedding(WORDS, 64)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.words = nn.Linear(64, WORDS)

    def forward(self, words: Any) -> Any:
        return self.words(self.layers(self.embedding(words)))


def convolutions() -> nn.Module:
    first = (nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.1))
    second = (nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.ReLU(True), nn.AdaptiveAvgPool2d(1))
    return nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(32, 10))


def _adam(parameters: Any) -> Any:
    return torch.optim.Adam(parameters, lr=1e-4)


def _classes(output: Any, _inputs: Any) -> Any:
    return cross_entropy(output, output.new_zeros(len(output), dtype=torch.int64))


def _next_words(output: Any, words: Any) -> Any:
    return cross_entropy(output.flatten(0, 1), words.flatten())


MODELS: dict[str, Callable[[], Workload]] = {
    "mlp": lambda: Workload(
        nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Dropout(0.1), nn.Linear(512, 10)),
        lambda batch: torch.randn(batch, 256), _classes, _adam, 64,
    ),
    "cnn": lambda: Workload(convolutions(), lambda batch: torch.randn(batch, 3, 32, 32), _classes, _adam, 8),
    "lstm": lambda: Workload(
        Tagger(), lambda batch, seq=24: torch.randint(WORDS, (batch, seq)), _next_words, _adam, 8
    ),
    "attention": lambda: Workload(
        Encoder(), lambda batch, seq=32: torch.randint(WORDS, (batch, seq)), _next_words, _adam, 4
    ),
}  # fmt: skip


@pytest.fixture(scope="module", params=list(MODELS))
def timed(request: Any, tmp_path_factory: Any) -> tuple[ModelProfile, Timed]:
    """Return a profile by shapes and, for the same model, steps under the profiler."""
    workload = MODELS[request.param]()
    profile = profile_workload(workload, name=request.param)
    step = real_step(workload, Request(request.param, "test", "train", dict(profile.sizes)), "cpu")
    watch = stopwatch()
    path = tmp_path_factory.mktemp("trace") / "trace.json"
    samples = profiled_steps(step.run, watch, STEPS, path, "cpu")
    check_finite(step.run(), "test")
    run = _run_of(step_times([watch(step.run) for _ in range(7)]))
    return profile, Timed(run, "torch.profiler", step_times(samples), tuple(time_spent(path)[0]))


def _run_of(step: Any, **known: Any) -> Any:
    from fomkit.core.measurement import MeasuredRun

    return MeasuredRun(**{"clock": "process", "device": "cpu", "processor": "one", "threads": 1, "sizes": {},
                          "warm_up": 1, "step": step, **known})  # fmt: skip


def test_all_time_stands_in_rows_or_is_listed(timed: tuple[ModelProfile, Timed]) -> None:
    profile, seen = timed
    found = with_times(profile, seen)
    measured = found.measured
    assert measured is not None
    assert measured.ops is not None
    whole = sum(one.time_s for one in seen.spent)
    assert measured.ops.total_s == pytest.approx(whole, rel=1e-4)
    count = resize_ops(found.ops, found.sizes, "x")["count"]
    in_rows = (found.ops["traced_time_s"] * count).sum()
    assert in_rows == pytest.approx(measured.ops.joined_s, rel=1e-4)
    lost = [one for one in measured.ops.unjoined if one.why == NO_ROW]
    # What has work and no row is what this device does besides: the zero state of a recurrent layer.
    assert sum(one.time_s for one in lost) < 0.05 * whole, lost
    assert {one.op for one in lost} <= {"aten::zeros", "aten::fill_"}, lost
    without = {one.op for one in seen.spent if not one.kind}
    for one in measured.ops.unjoined:
        assert one.time_s > 0
        assert one.why == (NO_WORK if one.op in without or one.op.endswith(" others") else NO_ROW), one


def test_the_op_table_stays_what_the_shapes_told(timed: tuple[ModelProfile, Timed]) -> None:
    profile, seen = timed
    found = with_times(profile, seen)
    assert found.ops.drop(columns="traced_time_s").equals(profile.ops.drop(columns="traced_time_s"))
    heavy = found.ops["kind"].isin(["gemm", "conv", "rnn", "attention", "optimizer"])
    assert found.ops.loc[heavy, "traced_time_s"].gt(0).all()


def _event(name: str, start: float, time: float, *dims: list[int]) -> dict[str, Any]:
    category = "user_annotation" if "#" in name else "cpu_op"
    shapes = {"Input Dims": list(dims), "Input type": ["float"] * len(dims)} if dims else {}
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": time, "args": shapes}


def test_every_microsecond_in_an_op_is_told_once(tmp_path: Path) -> None:
    """Two steps by hand: 40 µs in a product, 6 µs in views around and next to it, the rest in the program."""
    events = []
    for step, slower in enumerate((0.0, 4.0)):
        at = 1000.0 * (step + 1)
        events += [
            _event(f"ProfilerStep#{step}", at, 100.0 + slower),
            _event("aten::linear", at + 10, 45.0 + slower, [4, 8], [3, 8]),
            _event("aten::t", at + 11, 3.0, [3, 8]),
            _event("aten::mm", at + 15, 38.0 + slower, [4, 8], [8, 3]),
            _event("aten::empty", at + 16, 5.0),
            _event("aten::view", at + 80, 2.0, [4, 3]),
        ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}), encoding="utf-8")
    spent, covered = time_spent(path)
    assert covered == pytest.approx((47 / 100 + 51 / 104) / 2)
    told = {one.op: (one.count, round(one.time_s * 1e6, 6), one.kind) for one in spent}
    assert told == {
        "aten::mm": (1, 40.0, "gemm"),
        "aten::linear": (1, 4.0, ""),
        "aten::t": (1, 3.0, ""),
        "aten::view": (1, 2.0, ""),
    }


def test_a_profile_with_times_is_saved_shown_and_loaded(timed: tuple[ModelProfile, Timed], tmp_path: Path) -> None:
    found = with_times(*timed)
    save_model(found, tmp_path / "m.yaml")
    back = load_model(tmp_path / "m.yaml")
    assert back.measured == found.measured
    content = show_model(back, View("op"), Options())
    total = content["total"]["time_s"]["value"]
    assert total == pytest.approx(content["measured"]["ops"]["joined_s"], rel=1e-4)
    assert content["measured"]["profiler_overhead"] is not None
    assert content["measured"]["ops_share_of_step"] > 0


def test_times_hold_at_their_own_sizes_only(timed: tuple[ModelProfile, Timed]) -> None:
    found = with_times(*timed)
    content = show_model(found, View("op"), Options(batch=3))
    assert "time_s" not in content["total"]
    assert any("left out" in one for one in content["deviations"])


CLOCKS = [{"process": 0.010, "wall": 0.030}] * 6


def _shared_ops(mm_s: float, calm_s: float = math.nan, **known: Any) -> Timed:
    """A product and a view in a step of 10 ms of processor time, 90 % of it in ops."""
    spent = (
        Spent("aten::mm", "gemm", "fp32", "forward", {}, 1, mm_s, calm_s),
        Spent("aten::t", "", "", "", {}, 1, 0.002, 0.002),
    )
    times = step_times(CLOCKS)
    return Timed(_run_of(times, **known), "torch.profiler", times, spent)


def test_ops_of_the_calmest_steps_stand_as_they_are() -> None:
    """The view ran undisturbed; dividing its time by the product's delay would make it too fast."""
    found = by_processor(_shared_ops(0.040, calm_s=0.007), 0.9)
    assert [one.time_s for one in found.spent] == [0.007, 0.002]
    assert found.scaled_by == 1
    assert "least disturbed" in found.run.notes[0]


def test_a_small_disturbance_is_divided_off_and_said() -> None:
    found = by_processor(_shared_ops(0.040, calm_s=0.0088), 0.9)
    assert found.scaled_by == pytest.approx(1.2)
    assert sum(one.time_s for one in found.spent) == pytest.approx(0.009)
    assert "divided by 1.2" in found.run.notes[-1]
    several = _shared_ops(0.040, threads=2, clock="wall")
    assert by_processor(several, 0.9) == several


@pytest.mark.parametrize("calm_s", [0.016, math.nan])
def test_a_large_disturbance_leaves_no_times_of_ops(calm_s: float) -> None:
    found = by_processor(_shared_ops(0.016, calm_s), 0.9)
    assert (found.spent, found.profiled, found.scaled_by) == ((), None, 1)
    assert "was 2 times their processor time" in found.run.notes[-1]
    assert "--measure step" in found.run.notes[-1]


def test_times_that_were_divided_are_headed_so_and_not_summed_up(timed: tuple[ModelProfile, Timed]) -> None:
    found = with_times(timed[0], replace(timed[1], scaled_by=1.2345678))
    assert found.measured is not None
    assert found.measured.ops is not None
    assert found.measured.ops.scaled_by == 1.23457
    content = show_model(found, View("op"), Options())
    assert content["measured"]["ops_share_of_step"] is None
    text = format_model_view(content)
    assert "times: as measured ÷1.2" in text
    assert "divided by 1.23" in text
    assert "add up to processor time" in text
    assert "add up to 1" not in text
    assert "the spread" in text


@pytest.fixture(scope="module")
def small(tmp_path_factory: Any) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """Run the command once in a separate folder."""
    folder = tmp_path_factory.mktemp("small")
    (folder / "model.py").write_text(SMALL, encoding="utf-8")
    words = ("profile", "model.py", "--measure", "ops", "--threads", "1", "-o", "m.yaml")
    command = [sys.executable, "-c", WHATEVER_RUNS_BESIDE, *words]
    return folder, subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


WHATEVER_RUNS_BESIDE = """
import fomkit.cli.main, fomkit.bench.model_steps as measuring
measuring.MOST_SHARED = float("inf")
fomkit.cli.main.main()
"""
"""The command, which keeps times of ops even where other tests take the processor away."""


def _fomkit(folder: Path, *words: str) -> Any:
    return in_this_process(*words, cwd=folder)


def test_the_command_times_step_and_ops_without_noise(small: Any) -> None:
    folder, done = small
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    assert "USDT" not in done.stdout
    assert "processor time, median of" in done.stdout
    assert "on the plain step" in done.stdout
    run = load_model(folder / "m.yaml").measured
    assert run is not None
    assert run.ops is not None
    assert (run.threads, run.clock, run.sizes, run.device) == (1, "process", {"batch": 6}, "cpu")
    assert run.step.repeats >= model_steps.LEAST
    assert run.step.wall is not None
    assert run.overhead is not None
    assert run.ops.step.repeats >= model_steps.LEAST_PROFILED
    assert run.software["torch"] == str(torch.__version__)
    assert run.load_start is not None
    assert run.load_end is not None
    assert (run.energy is None) == any(note.startswith(NO_ENERGY) for note in run.notes)


def test_predicted_and_measured_stand_side_by_side(small: Any) -> None:
    folder, _ = small
    shown = json.loads(_fomkit(folder, "show", "m.yaml", "--by", "op", "--target", "v100", "--json").stdout)
    update = next(row for row in shown["rows"] if row["group"] == "SGD.step")
    assert update["time_s"]["value"] > 0
    assert update["traced_s"] > 0
    text = _fomkit(folder, "show", "m.yaml", "--by", "op", "--target", "v100").stdout
    assert "measured step:" in text
    assert " measured " in text


def test_a_measured_step_is_a_row_of_measurements(small: Any) -> None:
    from fomkit.readers.measurements import read_measurements

    folder, _ = small
    done = _fomkit(folder, "export", "m.yaml", "--machine", "knl-7250", "-o", "step.csv")
    assert done.returncode == 0, done.stderr
    (row,) = read_measurements(folder / "step.csv")
    run = load_model(folder / "m.yaml").measured
    assert run is not None
    assert run.step.process is not None
    assert run.step.wall is not None
    told = (row.model, row.machine, row.quantity, row.batch, row.precision)
    assert told == ("model", "knl-7250", "step_s", 6, "fp32")
    shared = run.step.wall.median_s > 1.05 * run.step.process.median_s
    step = run.step.process if shared else run.step.wall
    assert row.value == step.median_s
    assert (row.low, row.high) == (step.p10_s, step.p90_s)
    assert ("process time, as other processes shared" in row.note) is shared
    arguments = ("estimate", "m.yaml", "--target", "v100", "--baseline", "knl-7250", "--from", "step.csv")
    assert "used: step.csv:2" in _fomkit(folder, *arguments).stdout
    assert "Add --machine" in _fomkit(folder, "export", "m.yaml", "-o", "other.csv").stderr
    refused = _fomkit(folder, "export", "m.yaml", "--machine", "v100", "-o", "other.csv")
    assert refused.returncode == 2
    assert "was measured on a CPU" in refused.stderr
    assert "v100 is of a GPU" in refused.stderr


@pytest.mark.parametrize(
    ("wall", "clock", "device", "value", "told"),
    [
        (0.0101, "process", "cpu", 0.0101, "wall time"),
        (0.030, "process", "cpu", 0.010, "process time, as other processes shared the processor"),
        (0.030, "wall", "cpu", 0.030, "wall time"),
        (0.030, "device", "gpu", 0.009, "device time"),
    ],
)
def test_a_row_of_measurements_is_of_the_wall_or_says_of_what(
    wall: float, clock: str, device: str, value: float, told: str
) -> None:
    samples = [{"process": 0.010, "wall": wall, "device": 0.009}] * 6
    profile = profile_workload(MODELS["mlp"](), name="mlp")
    found = replace(profile, measured=_run_of(step_times(samples), clock=clock, device=device))
    row = measurement_of(found, "a-machine-of-mine", "m.yaml")
    assert row.value == value
    assert told in row.note
    assert f"is not known, it ran on a {device.upper()}" in row.note
    here, other = ("titan", "knl-7250") if device == "gpu" else ("knl-7250", "titan")
    assert "not known" not in measurement_of(found, here, "m.yaml").note
    with pytest.raises(FomkitError, match="Name the profile of the machine that it ran on"):
        measurement_of(found, other, "m.yaml")


@pytest.mark.parametrize(
    ("plain", "profiled", "told"),
    [
        (
            (0.009, 0.010, 0.011),
            (0.011, 0.012, 0.013),
            "+20.0% on the plain step by processor time, interval +0.0%",
        ),
        ((0.002, 0.010, 0.040), (0.010, 0.041, 0.080), "overhead unknown, -75% to +3900% on the plain step"),
    ],
)
def test_the_overhead_is_told_with_what_the_repeats_leave_open(
    plain: tuple[float, ...], profiled: tuple[float, ...], told: str
) -> None:
    """Three repeats have no interval of their median; the quartiles replace it."""
    steps = [StepTimes(9, Repeated(middle, low, high, low, high)) for low, middle, high in (plain, profiled)]
    run = _run_of(steps[0], ops=MeasuredOps("torch.profiler", steps[1], 0.01))
    assert told in "\n".join(measured_lines(run_content(run)))
    few = [StepTimes(3, Repeated(middle, low, high)) for low, middle, high in (plain, profiled)]
    run = _run_of(few[0], ops=MeasuredOps("torch.profiler", few[1], 0.01))
    assert told in "\n".join(measured_lines(run_content(run)))


def _rnn(op: str, pass_name: str, input_size: int, **more: Any) -> dict[str, Any]:
    sizes = {"cell": "lstm", "hidden_size": 8.0, "batch": 2.0, "steps": 3.0, "layers": 1.0, "directions": 1.0}
    cells = {"input_size": float(input_size), **sizes}
    return {"op": op, "kind": "rnn", "dtype": "fp32", "pass_name": pass_name, **more, **cells}


@pytest.mark.parametrize("passes", [("forward",), ("forward", "backward_weight", "backward_input")])
def test_one_time_of_both_gradients_is_parted_by_their_work(passes: tuple[str, ...]) -> None:
    """Of an input of 24 that needs no gradient, the gradient of the weights has 32 / 8 times the work."""
    widths = {"forward": 24, "backward_weight": 24, "backward_input": 0}
    ops = pd.DataFrame([_rnn("aten::lstm", one, widths[one], count=1.0, engine="vector") for one in passes])
    cells = _rnn("", "", 24)
    sizes = {name: cells[name] for name in cells if name not in ("op", "kind", "dtype", "pass_name")}
    times = dict(zip(widths, (0.010, 0.005, 0.005), strict=True))
    spent = [
        Spent("aten::lstm", "rnn", "fp32", one, sizes, 1, times[one], halved=one != "forward") for one in passes
    ]
    joined = join_times(ops, spent)
    assert list(joined.time_s) == pytest.approx([0.010, 0.008, 0.002][: len(passes)])
    assert joined.miscounted == 0
    assert joined.parted == (2 if len(passes) > 1 else 0)


def test_only_a_table_with_parted_rows_says_so(timed: tuple[ModelProfile, Timed]) -> None:
    found = with_times(*timed)
    assert found.measured is not None
    said = [note for note in found.measured.notes if "had one time" in note]
    assert bool(said) is bool(join_times(resize_ops(found.ops, found.sizes, "x"), timed[1].spent).parted)
    assert bool(said) is bool({"rnn", "conv"} & set(found.ops["kind"]))


def _answer(path: Path, *, ops: bool = False) -> dict[str, Any]:
    """Run the child's request in this process."""
    request = Request("model", "model.py", "train", {})
    return dict(
        timing_result(torch_child.time_torch, torch_child.lacks_memory, path, request, ops=ops, threads=None)
    )


def test_the_light_mode_has_no_profiler(file_of: Callable[[str], Path], monkeypatch: Any) -> None:
    path = file_of(SMALL)

    def profiler(*_: object, **__: object) -> None:
        raise RuntimeError("the profiler was asked for")

    monkeypatch.setattr(torch_child, "profile", profiler)
    assert _answer(path)["timed"]["ops"] is None
    assert "the profiler was asked for" in _answer(path, ops=True)["errors"][0][1]


def test_inference_at_another_batch(file_of: Callable[[str], Path]) -> None:
    path = file_of(SMALL.replace("lambda batch: torch.randn(batch, 64)", "torch.randn(6, 64)"))
    workload = take_workload(run_file(path), "model.py", check_workload)
    profile = profile_workload(workload, mode="infer", batch=9)
    found = measure_profile(profile, path, ops=False, threads=2)
    assert found.measured is not None
    assert (found.measured.sizes, found.measured.threads, found.measured.clock) == ({"batch": 9}, 2, "wall")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (SMALL.replace("torch.randn(batch, 64)", "torch.full((batch, 64), float('nan'))"), "the loss is nan"),
        (SMALL + "loss_fn = lambda output, inputs: torch.zeros(10**13).sum() + output.sum()\n", "does not fit"),
        (SMALL + "loss_fn = lambda output, inputs: output\n", "One number was expected"),
    ],
)
def test_a_step_of_no_use_is_told(text: str, told: str, file_of: Callable[[str], Path]) -> None:
    ((where, what),) = _answer(file_of(text))["errors"]
    assert where.startswith("model.py")
    assert told in what


def test_limits_are_told_with_what_to_do(file_of: Callable[[str], Path]) -> None:
    slow = file_of(SMALL + "import time\nloss_fn = lambda output, inputs: time.sleep(60) or output.sum()\n")
    with pytest.raises(FomkitError, match=r"did not finish within 1 s\. The step runs a dozen times"):
        time_file(slow, mode="train", sizes={}, ops=False, time_limit_s=1.0)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--script", "model.py", "--measure", "step"], "--measure is not for a training program"),
        (["keras_model.py", "--measure", "ops"], "Keras on PyTorch is not timed yet"),
        (["model.py", "--threads", "2"], "--threads is for timing"),
        (["model.py", "--precision", "bf16"], "--precision bf16 is for the plain step"),
        (["model.py", "--measure", "ops", "--precision", "bf16"], "--precision bf16 is for the plain step"),
        (
            ["model.py", "--measure"],
            "fomkit: --measure: has no value. Expected step or ops. Write, for example, '--measure step'.",
        ),
        (
            ["model.py", "--batch"],
            "--batch: has no value. Write it after the option; 'fomkit profile -h' describes",
        ),
    ],
)
def test_what_cannot_be_timed_is_refused(words: list[str], told: str, small: Any) -> None:
    folder, _ = small
    (folder / "keras_model.py").write_text(ON_TORCH, encoding="utf-8")
    done = _fomkit(folder, "profile", *words)
    assert done.returncode == 2
    assert told in done.stderr


def test_a_notebook_times_files_only() -> None:
    with pytest.raises(FomkitError, match=r"only a model\.py can be timed"):
        fomkit.profile(MODELS["mlp"](), measure="step")


class _Event:
    """An event that reads a simulated clock."""

    now = 0.0
    recorded = 0

    def __init__(self, *, enable_timing: bool) -> None:
        assert enable_timing
        self.at = math.nan

    def record(self) -> None:
        self.at = _Event.now
        _Event.recorded += 1

    def synchronize(self) -> None:
        assert not math.isnan(self.at)

    def elapsed_time(self, end: _Event) -> float:
        return end.at - self.at


class _Cuda:
    Event = _Event
    waited = 0

    @staticmethod
    def synchronize() -> None:
        assert _Event.recorded % 2 == 0, "what ran before must be over when a step begins"
        _Cuda.waited += 1


def test_an_accelerator_is_timed_by_its_events() -> None:
    def step() -> None:
        _Event.now += 12.5  # [ms]

    watch = stopwatch(_Cuda)
    samples = [watch(step) for _ in range(6)]
    assert _Cuda.waited == 6
    assert _Event.recorded == 12
    times = step_times(samples)
    assert times.device is not None
    assert times.device.median_s == 0.0125
    assert times.wall is not None
    assert times.process is not None
    run = _run_of(times, clock="device", device="gpu")
    assert run.step_time == times.device
    assert replace(run, clock="wall").step_time == times.wall


def test_the_profiled_steps_stand_between_halves_of_the_plain_ones() -> None:
    ran: list[str] = []

    def watch(step: Any) -> dict[str, float]:
        step()
        return {"wall": 10.0}

    def profiled(repeats: int) -> list[dict[str, float]]:
        ran.append("profiled")
        return [{"wall": 11.0}] * repeats

    timed = model_steps.time_steps(lambda: ran.append("plain"), watch, profiled, lambda _: None)
    assert len(timed.plain) == model_steps.LEAST
    assert len(timed.profiled) == model_steps.LEAST_PROFILED
    half = model_steps.LEAST // 2
    # Before: the warm-up and a half; after: one step to settle, the other half, and one whose loss is looked at.
    assert ran == ["plain"] * (model_steps.WARM_UP + half) + ["profiled"] + ["plain"] * (half + 2)
