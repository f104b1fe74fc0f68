"""The README and its first pages: they show what the commands print, and each section is on its page."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest
from terminal import in_terminal

from fomkit.cli.main import verb_command

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")}
FIRST = PAGES["first-steps.md"]
WIDTH = "100"
MOST_LINES = 150
SKIPPED = "..."
FILES = dict(re.findall(r'^```\w+ title="([^"]+)"\n(.*?)^```$', FIRST, re.MULTILINE | re.DOTALL))


def shown_commands(text: str) -> list[tuple[str, list[str]]]:
    """Return each command of a page that shows what it prints, and the lines."""
    blocks = re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [
        (command, lines.splitlines())
        for block in blocks
        for command, lines in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)
    ]


def in_order(shown: list[str], printed: list[str]) -> str:
    """Return the first line that is not where it should be; "" where all are. Lines may be left out at '...'."""
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
    """A folder with the files of the first steps."""
    folder = tmp_path_factory.mktemp("tour")
    for name, content in FILES.items():
        (folder / name).write_text(content, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("command", "shown"),
    [*shown_commands(TEXT), *shown_commands(FIRST)],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_the_tour_prints_what_it_shows(command: str, shown: list[str], tour: Path) -> None:
    words = shlex.split(command)
    assert words[0] == "fomkit"
    if words[1] == "profile":
        pytest.importorskip("torch", reason="the first steps profile a model of PyTorch")
    settings = {"COLUMNS": WIDTH, "NO_COLOR": "1", "PYTHONPATH": str(ROOT)}
    text = in_terminal([sys.executable, "-m", "fomkit.cli", *words[1:], "--quiet"], settings, tour)
    printed = [line.rstrip() for line in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text).splitlines()]
    assert not in_order(shown, printed), text


def test_the_tour_goes_through_what_it_promises() -> None:
    readme, steps = ([shlex.split(command)[1] for command, _ in shown_commands(text)] for text in (TEXT, FIRST))
    assert readme == ["estimate", "estimate", "explain"]
    assert steps == ["explain", "fom", "estimate", "compare", "profile", "estimate"]
    assert [name for name, text in PAGES.items() if shown_commands(text)] == ["first-steps.md"]


def test_the_readme_is_read_in_a_minute() -> None:
    assert len(TEXT.splitlines()) <= MOST_LINES


def test_the_first_screen_answers() -> None:
    first = TEXT.splitlines()[:40]
    assert any(line.startswith("FOM ") for line in first)
    assert any(line.startswith("![") and "docs/images/report.png" in line for line in first)


def headings(text: str) -> set[str]:
    return set(re.findall(r"^## (.*)$", text, re.MULTILINE))


def test_sections_that_tests_and_people_look_for() -> None:
    assert headings(TEXT) == {"Install", "Three commands", "How right it is", "Where to go", "Test it"}
    assert headings(PAGES["accuracy.md"]) >= {
        "Whole models, from the device's own table", "Whole models, from the data sheet alone", "Figures of merit",
        "Steps on the machine at hand", "What it ran on",
    }  # fmt: skip
    assert headings(PAGES["questions.md"]) >= {
        "Estimate", "Look closer", "Decide", "Suites and vendors", "Profile and measure",
    }  # fmt: skip
    assert "no real counter was read." in " ".join(PAGES["accuracy.md"].split())


def test_the_readme_says_how_right_it_is_in_the_words_of_its_page() -> None:
    """Every figure of the README's table is on the page of its source."""
    table = TEXT.split("## How right it is")[1].split("\n## ")[0]
    figures = set(re.findall(r"\d[\d,.]*\d|\d", "".join(re.findall(r"^\|.*\|$", table, re.MULTILINE))))
    assert len(figures) >= 15
    assert not [
        one
        for one in figures
        if not re.search(rf"(?<![\d.,]){re.escape(one)}(?![\d]|[.,]\d)", PAGES["accuracy.md"])
    ]


def test_every_page_is_listed() -> None:
    listed = set(re.findall(r"\]\(([\w-]+\.md)\)", PAGES["README.md"]))
    assert listed == {*PAGES} - {"README.md"}


def test_every_question_is_a_command_with_options_that_it_has() -> None:
    for line in re.findall(r"\| `(fomkit .*)` \|$", PAGES["questions.md"], re.MULTILINE):
        _, verb, *words = shlex.split(line)
        options = {name for one in verb_command(verb).params for name in one.opts}
        assert {word for word in words if word.startswith("-")} <= options, line
