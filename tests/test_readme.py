"""The README: what it prints is what the commands print, and its sections are what they say."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest
from terminal import in_terminal

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
WIDTH = "115"
SKIPPED = "..."
FILES = dict(re.findall(r'^```\w+ title="([^"]+)"\n(.*?)^```$', TEXT, re.MULTILINE | re.DOTALL))


def told() -> list[tuple[str, list[str]]]:
    """Give each command of the README that shows what it prints, and the lines."""
    blocks = re.findall(r"^```console\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    return [
        (command, lines.splitlines())
        for block in blocks
        for command, lines in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)
    ]


def in_order(shown: list[str], printed: list[str]) -> str:
    """Give the first line that is not where it should be; "" where all are. Lines may be left out at '...'."""
    at, skipping = 0, False
    for line in shown:
        if line == SKIPPED:
            skipping = True
            continue
        try:
            found = printed.index(line, at)
        except ValueError:
            return line
        if found != at and not skipping:
            return line
        at, skipping = found + 1, False
    return "" if skipping or not any(printed[at:]) else "... at the end"


def test_lines_are_compared_in_order() -> None:
    assert in_order(["a", SKIPPED, "c"], ["a", "b", "c"]) == ""
    assert in_order(["a", "c"], ["a", "b", "c"]) == "c"
    assert in_order(["c", SKIPPED, "a"], ["c", "b"]) == "a"
    assert in_order(["a"], ["a", "b"]) != ""


@pytest.fixture(scope="module")
def tour(tmp_path_factory) -> Path:
    """A folder with the files of the README."""
    folder = tmp_path_factory.mktemp("tour")
    for name, content in FILES.items():
        (folder / name).write_text(content, encoding="utf-8")
    return folder


@pytest.mark.parametrize(("command", "shown"), told(), ids=lambda one: one if isinstance(one, str) else "")
def test_the_tour_prints_what_it_shows(command: str, shown: list[str], tour: Path) -> None:
    words = shlex.split(command)
    assert words[0] == "fomkit"
    if words[1] == "profile":
        pytest.importorskip("torch", reason="the README profiles a model of PyTorch")
    settings = {"COLUMNS": WIDTH, "NO_COLOR": "1", "PYTHONPATH": str(ROOT)}
    text = in_terminal([sys.executable, "-m", "fomkit.cli", *words[1:], "--quiet"], settings, tour)
    printed = [line.rstrip() for line in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text).splitlines()]
    assert not in_order(shown, printed), text


def test_the_tour_goes_through_what_it_promises() -> None:
    verbs = [shlex.split(command)[1] for command, _ in told()]
    assert verbs == ["estimate", "explain", "fom", "compare", "profile", "estimate"]


def test_the_first_screen_answers() -> None:
    first = TEXT.splitlines()[:40]
    assert any(line.startswith("FOM ") for line in first)
    assert any(line.startswith("![") and "docs/images/report.png" in line for line in first)


def test_sections_that_tests_and_people_look_for() -> None:
    headings = re.findall(r"^## (.*)$", TEXT, re.MULTILINE)
    for heading in (
        "Install",
        "Five minutes",
        "How far off it is",
        "What it ran on",
        "What you can ask",
        "Test it",
    ):
        assert heading in headings
    for table in ("Estimate", "Look closer", "Decide", "Suites and vendors", "Profile and measure"):
        assert f"**{table}**" in TEXT
    assert "no real counter was read." in " ".join(TEXT.split())
