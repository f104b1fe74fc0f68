"""Output of each verb on terminals of 80, 100 and 140 columns: no line is wider, no number is cut."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from terminal import in_this_process

from fomkit.cli import choices
from fomkit.output.screen import Page, Screen
from fomkit.profiles.models import load_model
from fomkit.verbs.profiling import MAIN_SHARE, profile_summary

WIDTHS = (80, 100, 140)
COMMANDS = (
    "estimate resnet50 p1b3 --target v100 --baseline p100",
    "estimate p1b3 --target v100 --baseline p100 --from candle-lecture",
    "estimate p1b3-lecture --target v100 --baseline x86-lecture --explain",
    "estimate gpt2 candle/p3b3 --target v100 --baseline p100 --explain",
    "fom candle --target v100",
    "fom lecture",
    "compare",
    "compare --all",
    "compare tc1 p1b3 --grid --target v100",
    "explain resnet50 --target v100 --top 3",
    "show resnet50 --convolutions --target v100 --workspace 256MiB",
    "show gpt2 --formula",
    "show v100",
    "show",
    "memory resnet50 --batch 64 --target v100",
    "advise resnet50 --target v100",
    "cost resnet50 --target v100 --price '3.06 USD/h per device, 2018-04-01' --infer-batch 1",
    "campaign candle-example --target titan --target a",
    "scaling p1b3 --target a100-sxm --nodes 1..4 --link system,5us,25GB/s,each",
    "sensitivity p1b3 --target v100",
    "solve p1b3 --target v100 --units-per-day 400",
    "sweep p1b3 --target v100 --vary batch=50,100 --vary 'byte_per_s=0.5 TB/s..4 TB/s:3'",
)


def _too_wide(text: str, width: int) -> list[str]:
    """Return lines wider than the terminal, except a single word that must not be broken (a path)."""
    return [line for line in text.splitlines() if len(line) > width and len(line.split()) > 1]


@pytest.mark.parametrize(
    ("command", "asked_for"),
    [
        ("campaign candle-example -t titan", ["phase", "units/day", "duration"]),
        (
            "scaling p1b3 -t a100-sxm --nodes 1..4 --link system,5us,25GB/s,each",
            ["nodes", "speed-up", "efficiency"],
        ),
        (
            "scaling p1b3 -t a100-sxm --nodes 1..4 --link system,5us,25GB/s,each",
            ["scaling", "units/day", "interval"],
        ),
        ("sensitivity resnet50 -t v100", ["of the machine", "elasticity", "swing"]),
        ("solve resnet50 -t v100 --units-per-day 0.5", ["change alone", "needed", "P(reached)", "why not"]),
    ],
)
def test_a_narrow_table_keeps_what_its_verb_is_asked_for(
    command: str, asked_for: list[str], tmp_path: Path
) -> None:
    """Before, speed-up, duration and swing were cut first, and columns without a name were listed as ', '."""
    answered = []

    def capture(content: dict[str, Any], write: Callable[..., str], *_: object) -> None:
        answered.append(write(content, Screen(80)))

    with mock.patch.object(choices, "write_answer", capture):
        in_this_process(*shlex.split(command), cwd=tmp_path)
    (text,) = answered
    heads = [line for line, below in zip(text.splitlines(), text.splitlines()[1:], strict=False) if "───" in below]
    assert any(all(word in head for word in asked_for) for head in heads), heads
    assert not re.search(r"not shown at 80 columns: ,|, ,|, ;", text)


@pytest.mark.parametrize("command", COMMANDS)
def test_no_line_is_wider_and_no_number_is_cut(command: str, tmp_path: Path) -> None:
    answered = []

    def capture(content: dict[str, Any], write: Callable[..., str], *_: object) -> None:
        answered.append({width: write(content, Screen(width)) for width in WIDTHS})

    with mock.patch.object(choices, "write_answer", capture):
        done = in_this_process(*shlex.split(command), cwd=tmp_path)
    assert answered, done.stderr
    for texts in answered:
        _check(texts)


def _check(texts: Mapping[int, str]) -> None:
    for width, text in texts.items():
        assert not _too_wide(text, width)
        assert not re.search(r"\S…(\s|$)", text)


@pytest.mark.parametrize("model", ["p1b3", "gpt2", "resnet50", "alexnet"])
def test_a_profile_ends_with_the_ops_and_the_sizes_that_carry_its_work(model: str) -> None:
    answer = profile_summary(load_model(model))
    _check({width: answer.write(dict(answer.content), Screen(width)) for width in WIDTHS})
    assert sum(one["share"] for one in answer.content["ops"]) >= MAIN_SHARE
    text = answer.summary().splitlines()
    heading = next(place for place, line in enumerate(text) if line.startswith("sizes of their products"))
    first = text[heading + 3]
    if model == "p1b3":  # a layer of 29,532 to 1,000: 2 · 100 · 29,532 · 1,000 of 12.21 GFLOP
        assert first.split() == ["gemm", "100", "1,000", "29,532", "1", f"{5.9064 / 12.207:.1%}"]
        assert [one["op"] for one in answer.content["ops"]] == ["aten::mm", "aten::addmm"]


def test_columns_go_from_the_right_and_are_named() -> None:
    page = Page(Screen(60))
    cells = ["resnet50", "1,234,567.8", "12.34 … 56.78 ms", "a sentence of some words", "9,876,543.2"]
    page.rows(["model", ("rate", "right"), "interval", "words", ("more", "right")], [cells], first_out=("rate",))
    text = page.text()
    assert text.splitlines()[0].split() == ["model", "interval", "words", "more"]
    assert "9,876,543.2" in text
    assert "12.34 … 56.78 ms" in text
    assert "not shown at 60 columns: rate; use a wider terminal, --json or -o" in " ".join(text.split())


def test_a_pipe_takes_all_of_a_table() -> None:
    page = Page(Screen())
    page.rows([f"column {number}" for number in range(12)], [["word"] * 12])
    assert "not shown" not in page.text()


def test_a_pipe_is_as_wide_as_columns_says(tmp_path: Path) -> None:
    """Before, `COLUMNS=80 fomkit … | less` broke every line of a table."""
    command = ("fom", "lecture")
    with mock.patch.dict("os.environ", COLUMNS="80"):
        stated = in_this_process(*command, cwd=tmp_path)
    plain = in_this_process(*command, cwd=tmp_path)
    assert max(map(len, stated.stdout.splitlines())) <= 80 < max(map(len, plain.stdout.splitlines()))


def test_words_stay_whole_and_lines_go_on_below() -> None:
    page = Page(Screen(60))
    page.line("  note: " + "word " * 20)
    lines = page.text().splitlines()
    assert all(len(line) <= 60 for line in lines)
    assert [line[: len(line) - len(line.lstrip())] for line in lines] == ["  ", "    "]


def test_an_interval_and_a_number_with_its_unit_stay_on_one_line() -> None:
    page = Page(Screen(48))
    page.rows(
        ["fact", "value", "basis"], [["launch of a kernel", "5.000 µs (3.00 … 10.0 µs) and more of it", "assumed"]]
    )
    text = page.text()
    assert len(text.splitlines()) > 3, "the cell is broken"
    assert "(3.00 … 10.0 µs)" in text
    assert "5.000 µs" in text
    html = Screen(48, html=True)
    page = Page(html)
    page.rows(["step", "interval"], [["1.766 ms", "1.55 … 1.97 ms"]])
    assert '<td class="whole">1.55 … 1.97 ms</td>' in page.text()


def test_columns_of_one_header_that_are_not_shown_are_told_apart() -> None:
    page = Page(Screen(30))
    cells = [["p1b3 on v100", "1.766 ms", "1.55 … 1.97 ms", "15.3", "13.4 … 17.1"]]
    page.rows(["model", "step", "interval", "rate", "interval"], cells)
    assert "not shown at 30 columns: interval of step, rate, interval of rate" in " ".join(page.text().split())
