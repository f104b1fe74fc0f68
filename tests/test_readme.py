"""The README and its first pages: they show what the commands print, and each section is on its page."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest
from terminal import in_terminal

from fomkit.cli.main import verb_command
from fomkit.profiles.models import load_model

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
    text = in_terminal([sys.executable, "-m", "fomkit", *words[1:], "--quiet"], settings, tour)
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


def accuracy(chapter: str, start: str) -> list[str]:
    """Return the cells of the first line of a chapter that starts so; chapter "": of the page's first table."""
    text = PAGES["accuracy.md"].partition(f"\n## {chapter}\n")[2] if chapter else PAGES["accuracy.md"]
    lines = [line for line in text.partition("\n## ")[0].splitlines() if line.startswith(f"| {start} |")]
    return [cell.strip(" *").replace(".0 %", " %") for cell in lines[0].strip("|").split("|")]


def of_peers(found: str) -> str:
    """Return the errors of the tools that the README names, in its order."""
    errors = dict(one.replace(" %", "").rsplit(" ", 1) for one in found.split(", "))
    return ", ".join(f"{name} {errors[name]} %" for name in ("NeuSight", "Habitat", "roofline") if name in errors)


NUMBERS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def boards(chapter: str) -> str:
    """Return how many boards a chapter counts; the P4 throttled and does not count."""
    text = PAGES["accuracy.md"].partition(f"\n## {chapter}\n")[2].partition("\n*Ratios")[0]
    return NUMBERS[len(set(re.findall(r"^\| ((?!P4|all|worst)[\w-]+): all \|", text, re.MULTILINE)))]


OWN, FACTS = "Whole models, from the device's own table", "Whole models, from the data sheet alone"
OTHER, HERE = "Whole models, from another board's table", "Steps on the machine at hand"


def quoted() -> list[str]:
    """Return the lines of the README's table with each figure taken from its line on the page on accuracy."""
    _, own_cases, own, _, own_peers = accuracy("", "whole models, from the device's own table of kernels")
    _, fact_cases, facts, _, fact_peers = accuracy("", "whole models, from the data sheet alone")
    chose_none = "training steps of image networks that chose no rule, on a board known by its data sheet"
    _, image_cases, images, image_aim, _ = accuracy("", chose_none)
    _, op_cases, ops, *_ = accuracy("", "80 % intervals of single ops that hold the measured time")
    _, p100_cases, _, p100, *_, p100_peers = accuracy(OTHER, "P100-PCIe-16GB: all")
    kinds = [
        [accuracy(one, f"all counted: {what}")[1] for what in ("inference", "training")] for one in (OWN, FACTS)
    ]
    here = " ".join(PAGES["accuracy.md"].partition(f"\n## {HERE}\n")[2].partition("\n## ")[0].split())
    models, error, aim = re.findall(
        r"times steps of (\w+) models .* were ([\d.]+) % with exactly .* just before \(target (\d+)\)", here
    )[0]
    (own_infer, own_train), (infer, train) = kinds
    return [
        f"passes of whole transformer models ({own_infer} inference, {own_train} training) on {boards(OWN)} GPUs "
        f"with timed kernels | mean error {own} | {own_cases} | {of_peers(own_peers)}",
        f"the same on {boards(FACTS)} GPUs, from the data sheet alone ({infer} inference, {train} training) | "
        f"mean error {facts} | {fact_cases} | {of_peers(fact_peers)}",
        "training steps of image networks that were not used to choose any rule, on an RTX 3090, from its data "
        f"sheet alone | mean error {images} | {image_cases} | our target: {image_aim.removeprefix('≤ ')}",
        "passes of whole transformer models on a P100, from DeepBench's timings of a P100 | mean error "
        f"{p100} % | {p100_cases} | {of_peers(p100_peers).partition(', roofline')[0]}",
        f"training steps on a CPU, from ops timed just before | median error {error} % | {NUMBERS.index(models)} "
        f"| our target: {aim} %",
        f"single ops: does the 80 % interval contain the measured time? | in {ops} of cases | {op_cases} | "
        "80 % would be exact",
    ]


def test_the_readme_says_how_right_it_is_in_the_words_of_its_page() -> None:
    """Every figure of the README's table is that of its own line on the page on accuracy."""
    table = TEXT.split("## How right it is")[1].split("\n## ")[0]
    lines = [line.strip("| ") for line in re.findall(r"^\|.*\|$", table, re.MULTILINE)]
    assert lines[2:] == quoted()


def test_the_readme_explains_the_figures_that_its_first_command_prints() -> None:
    (_, first), (_, second), *_ = shown_commands(TEXT)
    text = TEXT.split("```")[2].split("\n\n")[1]
    days, low, high, rate, ratio = re.findall(r"\d+\.\d+", text)
    assert " ".join(" ".join(first[:2]).split()) == (
        f"resnet50 on v100: {days} days a run ({low} … {high}), {rate} trained models a day, at best: without "
        f"input, validation, start_up; {ratio} {first[1].split(ratio)[1].strip()}"
    )
    sizes = load_model("today/llama3-8b-decode").sizes
    assert f"for {sizes['batch']} requests at once. Each request already holds {sizes['cache']:,} tokens" in (
        " ".join(text.split())
    )
    assert "megatokens a day" in second[0]


def test_every_page_is_listed() -> None:
    listed = set(re.findall(r"\]\(([\w-]+\.md)\)", PAGES["README.md"]))
    assert listed == {*PAGES} - {"README.md"}


def test_every_question_is_a_command_with_options_that_it_has() -> None:
    for line in re.findall(r"\| `(fomkit .*)` \|$", PAGES["questions.md"], re.MULTILINE):
        _, verb, *words = shlex.split(line)
        options = {name for one in verb_command(verb).params for name in one.opts}
        assert {word for word in words if word.startswith("-")} <= options, line
