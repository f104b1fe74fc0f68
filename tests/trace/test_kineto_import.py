"""`fomkit import` of traces: a model by default, a machine when asked."""

from __future__ import annotations

import gzip
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from kineto_traces import HALF, Recording, linear_step
from terminal import in_this_process

from fomkit.files import csv
from fomkit.profiles.machines import load_machine
from fomkit.readers.registry import choose_import
from fomkit.verbs.estimates import estimate
from fomkit.verbs.profiles import model


@pytest.fixture
def here(tmp_path: Path) -> Path:
    recording = Recording()
    for number in range(3):
        linear_step(recording, number)
    (tmp_path / "trace.json.gz").write_bytes(gzip.compress(recording.text().encode()))
    return tmp_path


def run_process(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fomkit", "import", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


run = partial(in_this_process, "import")


def test_a_trace_is_a_model(here: Path) -> None:
    facts = ("--set", "batch=8", "--samples", "80", "--epochs", "2")
    done = run_process("trace.json.gz", *facts, "-o", "t.yaml", cwd=here)
    assert done.returncode == 0, done.stderr
    assert "3 of 3 steps are alike and were used" in done.stderr
    found = model(here / "t.yaml")
    assert found.batch == 8
    assert dict(found.traced_with) == {"framework": "torch", "device": "Synthetic GPU", "mode": "train"}
    assert dict(found.optimizer) == {"rule": "sgd", "impl": "per_tensor"}
    assert found.ops["traced_time_s"].notna().all()
    assert any("achieved occupancy 50.0%" in note for note in found.notes)
    assert any("the optimizer updates 68 parameters" in note for note in found.notes)
    assert estimate(found, "v100", allow_uncovered=True).step.value > 0


def test_without_a_batch_it_says_so(here: Path) -> None:
    done = run("trace.json.gz", "-o", "t.yaml", cwd=here)
    assert "give them with --set batch=N" in done.stderr
    assert model(here / "t.yaml").batch is None


def test_facts_keep_what_they_state(here: Path) -> None:
    facts = "schema: fomkit/model/1\nname: mine\ntitle: Mine\ntraced_with: {framework: torch}\n" \
            "parameters: {total: 68, trainable: 68}\nsizes: {batch: 8}\ndata: {train_samples: 800}\n" \
            "run: {epochs: 3}\n"  # fmt: skip
    (here / "facts.yaml").write_text(facts)
    done = run("trace.json.gz", "--facts", "facts.yaml", "-o", "t.yaml", cwd=here)
    assert done.returncode == 0, done.stderr
    found = model(here / "t.yaml")
    assert (found.name, found.parameters_total, found.data.train_samples, found.run.epochs) == ("mine", 68, 800, 3)


def test_a_trace_is_a_machine_when_asked(here: Path) -> None:
    done = run("trace.json.gz", "--as", "machine", "-o", "m.yaml", cwd=here)
    assert done.returncode == 0, done.stderr
    machine = load_machine(here / "m.yaml")
    timings = machine.timings.set_index("kind")
    assert timings.loc["collective", ["collective", "ranks", "time_s"]].tolist() == ["all_reduce", 16, 40e-6]
    assert sorted(timings.loc["gemm", "time_s"].mul(1e6).round(6)) == [22.0, 30.0]
    assert set(timings["harness"]) == {"torch.profiler, kernels"}
    assert set(timings["harness_s"]) == {0.0}
    assert set(timings["repeats"]) == {3.0}
    assert "no dimensions to key a timing by" in done.stderr


def test_what_is_partial_is_told_and_kept(here: Path) -> None:
    recording = Recording()
    recording.op("aten::mm", [(8, 16), (16, 4)], [("sgemm", 1.0)], dtype=HALF)
    recording.op("mine::kernel", [(8, 16)], [("my_kernel", 6.0)])
    (here / "p.json").write_text(recording.text())
    done = run("p.json", "-o", "p.yaml", cwd=here)
    assert "partial: 1 of 2 executions a step has no rule or no shapes" in done.stderr
    found = model(here / "p.yaml")
    assert found.unsupported == ("mine::kernel (no rule) ×1",)
    assert any(note.startswith("partial: ") for note in found.notes)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--as", "measurements"], "is not of a known format. The formats of such files are"),
        (["--as", "machine", "--format", "ops"], "the format 'ops' makes a model"),
        (["--as", "machine", "--device", "a"], "a trace is of one device"),
        (["--as", "machine", "--set", "batch=8"], "are for a model, not for a machine"),
        (["--format", "kinetto"], "The nearest name is 'kineto'"),
    ],
)
def test_what_does_not_go_together_is_told(here: Path, arguments: list[str], words: str) -> None:
    done = run("trace.json.gz", *arguments, "-o", "t.yaml", cwd=here)
    assert done.returncode == 2
    assert words in done.stderr
    assert not (here / "t.yaml").exists()


def test_the_content_decides_and_size_is_no_matter(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv, "MAX_BYTE", 1000)
    path = here / "trace.json.gz"
    assert choose_import(path, None, None) == ("kineto", "model")
    assert choose_import(path, "machine", None) == ("kineto", "machine")
    assert choose_import(path, "machine", "kineto") == ("kineto", "machine")


def test_a_cut_trace_leaves_nothing_behind(here: Path) -> None:
    content = (here / "trace.json.gz").read_bytes()
    (here / "cut.json.gz").write_bytes(content[:-200])
    done = run("cut.json.gz", "-o", "t.yaml", cwd=here)
    assert done.returncode == 2
    assert "gzip data is cut off or damaged" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (here / "t.yaml").exists()


def test_the_machine_gives_the_share_of_its_peak(here: Path) -> None:
    """Two products of 1,024 flop at 22 and 30 µs, an update of 136 flop at 4 µs, on 1 GFLOP/s: 2.184 of 56 µs."""
    facts = "schema: fomkit/machine/1\nname: slow\ntitle: Slow\nparty: lab\ndevice:\n  peak:\n" \
            "  - {dtype: fp32, engine: vector, rate: 1 GFLOP/s, source: made up}\n" \
            "  memory: {capacity: 1 GiB, bandwidth: 1 GB/s, source: made up}\n" \
            "  launch: {per_op: 5 us, low: 3 us, high: 10 us, basis: assumed}\n"  # fmt: skip
    (here / "slow.yaml").write_text(facts)
    done = run("trace.json.gz", "--machine", "slow.yaml", "-o", "t.yaml", cwd=here)
    assert done.returncode == 0, done.stderr
    assert "flop utilisation 3.9% of the peaks of slow, weighted by time (55% of it is" in done.stderr
    refused = run("trace.json.gz", "--machine", "slow.yaml", "--as", "machine", "-o", "m.yaml", cwd=here)
    assert refused.returncode == 2
    assert "--machine: is for a record, or for a trace that becomes a model" in refused.stderr
