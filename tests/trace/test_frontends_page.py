"""The six frontends of docs/frontends.md run from a checkout as they are written."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from kineto_traces import Recording, linear_step
from terminal import in_this_process

from fomkit.ops.pricing import add_costs
from fomkit.ops.resize import resize_ops
from fomkit.verbs.profiles import model

ROOT = Path(__file__).resolve().parents[2]
SECTION = (ROOT / "docs" / "frontends.md").read_text(encoding="utf-8").split("\n## ")[0]
COMMANDS = [line for line in SECTION.splitlines() if line.startswith("fomkit ")]


def test_there_is_a_line_for_each_frontend() -> None:
    assert len(COMMANDS) == SECTION.split("```")[1].count("\n# ") == 6


def run_process(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    ran = [sys.executable, "-c", "from fomkit.cli.main import main; main()", *arguments]
    return subprocess.run(ran, cwd=cwd, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_frontend_reads_its_model(command: str, tmp_path: Path) -> None:
    for package in ("torch", "onnx"):
        pytest.importorskip(package, reason="the page's frontends need fomkit's extras [torch,onnx]")
    words = shlex.split(command)
    at = words.index("-o") + 1
    words[at] = str(tmp_path / words[at])
    # What reads a table loads no framework, and shows as well as any that a process of its own does it.
    run = run_process if words[2].endswith(".ops.csv") else in_this_process
    done = run(*words[1:], cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    found = model(words[at])
    costed = add_costs(resize_ops(found.ops, found.sizes, found.name))
    assert not found.unsupported
    assert costed["flop"].sum() > 0


def test_the_trace_is_the_one_that_the_tests_make() -> None:
    recording = Recording()
    for number in (1, 2, 3):
        linear_step(recording, number)
    text = (ROOT / "tests" / "data" / "frontends" / "linear.trace.json").read_text(encoding="utf-8")
    assert text == recording.text() + "\n"
