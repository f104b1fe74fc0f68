"""``fomkit profile`` as a real process, and its messages for mistakes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from terminal import in_this_process

import fomkit
from fomkit.frontends.profile import profile_file
from fomkit.profiles.models import load_model

pytest.importorskip("torch", reason="the tracer's tests need PyTorch: pip install '.[torch]'")

TEXT = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(8, 4, bias=False), torch.nn.Linear(4, 3, bias=False))
batch_size = 6
inputs = lambda batch: torch.randn(batch, 8)
loss_fn = lambda output, inputs: torch.linalg.matrix_exp(output[:3]).sum()
optimizer = lambda parameters: torch.optim.SGD(parameters, lr=0.1, foreach=False)
"""


def run_process(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "fomkit", "profile", *arguments]
    # From a folder of its own the checkout is found by its full path, where fomkit is not installed.
    known = {**os.environ, "PYTHONPATH": str(Path(fomkit.__file__).parents[1])}
    return subprocess.run(line, cwd=cwd, env=known, capture_output=True, text=True, timeout=300, check=False)


command = partial(in_this_process, "profile")


def test_a_profile_is_written_and_reads_back(file_of: Callable[..., Path], tmp_path: Path) -> None:
    path = file_of(TEXT)
    done = run_process("model.py", "--batch", "5", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for line in (
        "model: Sequential, training step, batch 5, traced on the meta device",
        "parameters: 44, of them trainable 44",
        "unsupported: aten::linalg_matrix_exp",
        "Written: model.yaml, model.ops.csv",
    ):
        assert line in done.stdout
    read, traced = load_model(tmp_path / "model.yaml"), profile_file(path, batch=5)
    used = list(read.ops.columns)
    assert read.ops.equals(traced.ops[used])
    assert read.sizes == {"batch": 5}
    assert (read.unsupported, read.notes, read.optimizer) == (traced.unsupported, traced.notes, traced.optimizer)


def test_existing_files_are_kept_and_mistakes_are_one_message(
    file_of: Callable[..., Path], tmp_path: Path
) -> None:
    file_of(TEXT)
    kept = file_of("mine", "model.yaml")
    refused = command("model.py", cwd=tmp_path)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "model.yaml: exists already. Choose another name, or pass --force to replace it." in refused.stderr
    file_of("mine", "model.ops.csv")
    assert "model.yaml and model.ops.csv: exist already" in command("model.py", cwd=tmp_path).stderr
    (tmp_path / "model.ops.csv").unlink()
    assert kept.read_text() == "mine"
    broken = file_of("1 / 0", "broken.py")
    failed = command(broken.name, "-o", "model.yaml", "--force", cwd=tmp_path)
    assert failed.returncode == 2
    assert failed.stderr == "fomkit: broken.py:1: raises ZeroDivisionError: division by zero\n"
    assert kept.read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken.py", "model.py", "model.yaml"]
    assert "YAML" in command("model.py", "-o", "model.csv", cwd=tmp_path).stderr


def test_what_cannot_be_written_or_run_is_told_before_anything_runs(tmp_path: Path) -> None:
    """A program must not train for an hour before the missing output folder is reported."""
    (tmp_path / "slow.py").write_text("open('ran', 'w')")
    for arguments, words in (
        (
            ("slow.py", "-o", "no/model.yaml"),
            "no/model.yaml: cannot be written: there is no folder no. Create it first.",
        ),
        ((".",), ".: is a folder. Give the Python file, or the ONNX file, in it."),
        (("slow.py", "--batch", str(10**20)), f"--batch: is {10**20}. Give 1e+15 at most."),
    ):
        failed = command(*arguments, cwd=tmp_path)
        assert (failed.returncode, failed.stdout) == (2, "")
        assert failed.stderr.startswith(f"fomkit: {words}")
    assert [path.name for path in tmp_path.iterdir()] == ["slow.py"]


def test_a_program_and_its_own_arguments(root: Path, tmp_path: Path) -> None:
    program = str(root / "tests" / "data" / "scripts" / "pictures" / "train.py")
    done = command("--script", program, "-o", "out.yaml", "--", "--batch-size", "8", "--epochs", "3", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "batch 8, traced in its own run on the cpu" in done.stdout
    read = load_model(tmp_path / "out.yaml")
    assert (read.batch, read.run.epochs, read.data.train_samples) == (8, 3, 250)
    assert read.traced_with["device"] == "cpu"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--script", "model.py", "--batch", "8"), "--batch is not for a training program"),
        (("--script", "model.py", "--mode", "infer"), "--mode infer is not for a training program"),
        (
            ("model.py", "--", "--epochs", "3"),
            "'--epochs 3' are for a training program. Add --script",
        ),
        (("--script", "absent.py"), "is not a file. Give a Python program that trains"),
        (("--script", "model.py"), "ran without a step of an optimizer in this process"),
    ],
)
def test_misuse_of_a_program_is_one_message(
    file_of: Callable[..., Path], tmp_path: Path, arguments: tuple[str, ...], told: str
) -> None:
    file_of(TEXT)
    refused = command(*arguments, cwd=tmp_path)
    assert refused.returncode == 2
    assert told in refused.stderr
    assert "Traceback" not in refused.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["model.py"]
