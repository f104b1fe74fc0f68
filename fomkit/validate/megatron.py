"""Published steps and activations of Megatron-LM beside what is projected; nothing is fitted to them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fomkit.hardware import Machine
from fomkit.parallel import Layout
from fomkit.parallel.activations import activation_byte
from fomkit.profiles import load_machine, load_model
from fomkit.profiles.locate import shipped_folder
from fomkit.quantities import BINARY
from fomkit.spans import DEFAULT_LEVEL, Span
from fomkit.study.content import span_content
from fomkit.study.layout_file import load_layout
from fomkit.study.options import Options
from fomkit.study.scaling import stepper_of, with_links
from fomkit.tables.text import read_rows
from fomkit.validate.scores import Score, make_cases, score
from fomkit.workload import ModelProfile

TARGET = "a100-sxm"
TECHNIQUES: dict[str, dict[str, Any]] = {
    "none": {},
    "sequence": {"sequence": True},
    "selective": {"recompute": "selective"},
    "seqsel": {"sequence": True, "recompute": "selective"},
    "full": {"recompute": "full"},
}
NAME = "Megatron-LM as published"
_ENDS = ("value", "low", "high")
_TABLE_LAYOUT = {"tensor", "pipeline", "interleave", "microbatch"}


class Compared(NamedTuple):
    """One published figure beside the projected one.

    ``unit`` is s of a step, of activations byte, or share of those without a technique.
    """

    model: str
    technique: str
    published: float
    projected: Span
    unit: str
    source: str

    @property
    def error(self) -> float:
        """Projected over published, less 1."""
        return self.projected.value / self.published - 1

    def content(self) -> dict[str, Any]:
        """Give it as plain content."""
        projected = {"projected": span_content(self.projected), "error": self.error}
        return {**self._asdict(), **projected}


def _lines(path: Path) -> list[dict[str, str]]:
    rows = read_rows(path)
    _, header = next(rows)
    return [dict(zip(header, row, strict=True)) for _, row in rows]


def _layout(base: Layout, line: dict[str, str]) -> Layout:
    sizes: dict[str, Any] = {name: int(value) for name, value in line.items() if name in _TABLE_LAYOUT}
    return replace(base, **sizes, **TECHNIQUES[line["technique"]])


def megatron_steps(folder: Path, machine: Machine | None = None, level: float = DEFAULT_LEVEL) -> list[Compared]:
    """Project the published steps.

    Parameters
    ----------
    folder : Path
        With ``steps.csv`` and ``hdr.layout.yaml``.
    machine : Machine, optional
        Default: the shipped a100-sxm.
    level : float
        Of the intervals.
    """
    base, links = load_layout(folder / "hdr.layout.yaml")
    target = with_links(machine or load_machine(TARGET), links)
    found, options = [], Options(interval=level)
    for line in _lines(folder / "steps.csv"):
        stepper = stepper_of(load_model(line["model"]), target, _layout(base, line), options)
        step = stepper.at(int(line["devices"]), int(line["batch"]))
        published = float(line["published_step_s"])
        found.append(Compared(line["model"], line["technique"], published, step.wall_s, "s", line["source"]))
    return found


def _activations(model: ModelProfile, sizes: dict[str, str], technique: str) -> float:
    if model.transformer is None:
        return float("nan")
    layout = _layout(Layout(), {**sizes, "technique": technique})
    micro = int(sizes["microbatch"])
    return activation_byte(model.transformer, micro, layout, int(sizes["batch"]) // micro)


def megatron_activations(folder: Path) -> list[Compared]:
    """Give the published activations of the first stage beside those of the equations.

    Parameters
    ----------
    folder : Path
        With ``steps.csv`` and ``activations.csv``.
    """
    sizes = {line["model"]: line for line in _lines(folder / "steps.csv")}
    found = []
    for line in _lines(folder / "activations.csv"):
        model, of = load_model(line["model"]), sizes[line["model"]]
        byte = _activations(model, of, line["technique"])
        whole = _activations(model, of, "none")
        in_shares = line["unit"] == "%"
        value, unit, scale = (byte / whole, "share", 0.01) if in_shares else (byte, "byte", BINARY["Gi"])
        published = float(line["published"]) * scale
        found.append(
            Compared(line["model"], line["technique"], published, Span.exact(value), unit, line["source"])
        )
    return found


def megatron_figures(level: float = DEFAULT_LEVEL) -> list[Compared]:
    """Give all of what is published in the tables that come with fomkit, steps first."""
    folder = shipped_folder("validation") / "megatron"
    return [*megatron_steps(folder, level=level), *megatron_activations(folder)]


def _score(figures: list[Compared], what: str, level: float) -> Score:
    spans = [one.projected for one in figures]
    columns = [one.published for one in figures], *([getattr(span, end) for span in spans] for end in _ENDS)
    cases = make_cases(*(np.array(column, np.float64) for column in columns))
    return score(cases, NAME, "model", TARGET, what, interval=level)


def megatron_scores(figures: list[Compared], level: float = DEFAULT_LEVEL) -> list[Score]:
    """Score them for the aims: the steps, the worst of these, and the activations, which have no interval."""
    steps = [one for one in figures if one.unit == "s"]
    worst = max(steps, key=lambda one: abs(one.error))
    others = [one for one in figures if one.unit != "s"]
    named = (("steps", steps), ("worst step", [worst]), ("activations", others))
    return [_score(some, what, level) for what, some in named]
