"""CONTRIBUTING.md: named files exist, and its four recipes work on a copy of the package."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"`((?:fomkit|tests|docs|machine_profiles)/[\w/.]*|NOTICE|pyproject\.toml|\.ci/run)`")
PROSE = BLOCK.sub("", TEXT)


def recipe(heading: str) -> list[tuple[str, str, str]]:
    """Return the blocks of a recipe: language, file and content."""
    return BLOCK.findall(TEXT.split(f"\n### {heading}\n")[1].split("\n### ")[0].split("\n## ")[0])


def apply(diff: str, path: Path) -> None:
    """Apply a block of diff: an existing line, kept or removed, then the lines to insert after it."""
    first, *added = diff.splitlines()
    new = [line[1:] for line in added]
    assert all(line.startswith("+") for line in added)
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines.count(first[1:]) == 1, f"{path.name} has not once: {first[1:]}"
    at = lines.index(first[1:])
    lines[at : at + 1] = new if first.startswith("-") else [first[1:], *new]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def run(folder: Path, *command: str) -> str:
    package = folder if (folder / "fomkit").exists() else ROOT
    settings = {**os.environ, "PYTHONPATH": str(package), "OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": str(folder)}
    done = subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def follow(heading: str, folder: Path) -> str:
    """Follow a recipe, and return the output of its commands."""
    told = []
    for kind, title, content in recipe(heading):
        if kind == "diff":
            apply(content, folder / title)
        elif title:
            (folder / title).parent.mkdir(parents=True, exist_ok=True)
            (folder / title).write_text(content, encoding="utf-8")
        elif kind == "sh":
            python = content.replace("python -m", f'"{sys.executable}" -m')
            told.append(run(folder, "sh", "-ec", python))
    return "".join(told)


@pytest.fixture
def copy(tmp_path) -> Path:
    """Copy the package into a folder, with links to the shipped profiles."""
    shutil.copytree(ROOT / "fomkit", tmp_path / "fomkit")
    for name in ("machine_profiles", "model_profiles"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


@pytest.mark.parametrize("name", sorted({*NAMED.findall(PROSE)}))
def test_what_is_named_exists(name: str) -> None:
    assert (ROOT / name).exists()


@pytest.mark.parametrize("name", sorted({*re.findall(r"python -m (fomkit[\w.]*)", TEXT)}))
def test_commands_exist(name: str) -> None:
    assert find_spec(name) is not None


def test_every_link_leads_somewhere() -> None:
    for link in re.findall(r"\]\(([^)#]+)", TEXT):
        assert (ROOT / link).exists(), link


def test_there_are_four_recipes() -> None:
    section = TEXT.split("## Four recipes\n")[1].split("\n## ")[0]
    headings = re.findall(r"^### (.*)$", section, re.MULTILINE)
    assert headings == [
        "An op's cost",
        "A reader",
        "A machine",
        "A report",
    ]


def test_an_ops_cost(copy: Path) -> None:
    follow("An op's cost", copy)
    told = run(copy, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/costs/test_fft.py")
    assert "1 passed" in told
    ops = "op,kind,dtype,engine,pass_name,count,b,n\nfft,fft,fp32,vector,forward,1,64,4096\n"
    (copy / "ops.csv").write_text(ops, encoding="utf-8")
    predicted = run(copy, sys.executable, "-m", "fomkit", "predict", "ops.csv", "--target", "v100")
    assert "roofline" in predicted


def test_a_reader(copy: Path) -> None:
    told = follow("A reader", copy)
    assert "2 timings from bench.log" in told
    assert "6.15e-05,bench.log,2," in (copy / "slow.timings.csv").read_text(encoding="utf-8")
    (copy / "broken.log").write_text("slowbench 3\n1 2 three\n", encoding="utf-8")
    command = [sys.executable, "-m", "fomkit", "import", "broken.log", "-o", "broken.yaml"]
    settings = {**os.environ, "PYTHONPATH": str(copy)}
    done = subprocess.run(command, cwd=copy, env=settings, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "broken.log:2" in done.stderr


def test_a_machine(tmp_path) -> None:
    told = follow("A machine", tmp_path)
    assert "An invented board: 3 timings from timings.csv" in told
    assert (tmp_path / "machine_profiles" / "newcomer.fits.json").is_file()
    assert re.search(r"^alexnet +newcomer", told, re.MULTILINE)


def test_a_report(copy: Path) -> None:
    told = follow("A report", copy)
    assert re.search(r"^alexnet: aten::\w+ in \w+, [\d.]+ GFLOP in a step$", told, re.MULTILINE), told
