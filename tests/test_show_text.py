"""The text of ``fomkit show`` on terminals of several widths: no line of a table is wider, no number is cut."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fomkit.output.machines import format_machine_view
from fomkit.output.models import format_model_view, format_share
from fomkit.output.screen import Screen
from fomkit.plan.options import Options
from fomkit.profiles.locate import shipped_folder
from fomkit.profiles.machines import load_machine
from fomkit.profiles.models import load_model
from fomkit.verbs.machine_view import show_machine
from fomkit.verbs.model_view import View, show_model

WIDTHS = (80, 100, 120, 200)


@pytest.fixture(scope="module")
def contents() -> dict[str, Any]:
    v100 = load_machine("v100")
    choice = Options(allow_uncovered=True)
    return {
        "machine": show_machine(v100, [load_model("alexnet"), load_model("gpt2")]),
        "vgg16": show_model(load_model("vgg16"), View(), choice),
        "resnet50-caffe": show_model(load_model("resnet50-caffe"), View(), choice, v100),
        "gpt2": show_model(load_model("gpt2"), View("module", depth=2), choice, v100),
        "p1b3-lecture": show_model(load_model("p1b3-lecture"), View("op", top=0.95), choice),
    }


def table_lines(text: str) -> list[str]:
    """Return the lines of tables; sentences may be longer, a terminal breaks them."""
    lines = text.splitlines()
    rules = [place for place, line in enumerate(lines) if line.startswith("──")]
    return [line for rule in rules for line in lines[rule - 1 : rule + 9] if "  " in line]


@pytest.mark.parametrize("width", WIDTHS)
def test_tables_fit_and_numbers_are_whole(contents: dict[str, Any], width: int) -> None:
    for name, content in contents.items():
        write = format_machine_view if name == "machine" else format_model_view
        lines = table_lines(write(content, Screen(width)))
        assert lines, name
        for line in lines:
            assert len(line) <= width, (name, line)
            assert "…" not in line.replace(" … ", ""), (name, line)


@pytest.mark.parametrize("width", WIDTHS)
def test_golden_numbers_are_there_at_any_width(contents: dict[str, Any], width: int) -> None:
    told = format_model_view(contents["vgg16"], Screen(width))
    for number in ("15,470,264,320", "15,503,498,216", "138,357,544", "527.79", "109.84"):
        assert number in told
    assert "143.57" in format_model_view(contents["resnet50-caffe"], Screen(width))


def test_colour_only_where_it_is_wanted(contents: dict[str, Any]) -> None:
    assert "\x1b" not in format_machine_view(contents["machine"])
    assert "\x1b" in format_machine_view(contents["machine"], Screen(80, colour=True))


def test_work_without_a_figure_says_so(unsized: Path) -> None:
    told = format_model_view(show_model(load_model(str(unsized)), View("op", top=0.95), Options()))
    assign = next(line for line in told.splitlines() if line.startswith("Assign"))
    assert assign.split() == ["Assign", "1", "1", "missing", "missing", "73.65", "ms", "25.6%"]
    assert "≥ 12.15 GFLOP" in told


@pytest.mark.parametrize("name", sorted(path.stem for path in shipped_folder("machine_profiles").glob("*.yaml")))
def test_every_shipped_machine_is_shown(name: str) -> None:
    told = format_machine_view(show_machine(load_machine(name), []))
    assert told.startswith(f"{name}: ")


def test_a_table_of_named_ops_covers_no_shapes() -> None:
    known = load_machine("x86-lecture")
    named = known.timings[known.timings["op"] != ""].reset_index(drop=True)
    told = format_machine_view(show_machine(replace(known, timings=named, timings_key="named"), []))
    assert "shape coverage: none, because no row is for all ops of its kind and sizes" in told


@pytest.mark.parametrize(
    ("share", "said"), [(None, ""), (0.0, "0.0%"), (0.0001, "<0.1%"), (0.0005, "0.1%"), (1.0, "100.0%")]
)
def test_small_shares_are_not_nothing(share: float | None, said: str) -> None:
    assert format_share(share) == said
