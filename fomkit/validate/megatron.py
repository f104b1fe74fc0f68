"""Published steps and activations of Megatron-LM beside what is projected; nothing is fitted to them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from fomkit.hardware import Machine
from fomkit.parallel import Layout
from fomkit.parallel.activations import activation_byte
from fomkit.profiles import load_machine, load_model
from fomkit.quantities import BINARY
from fomkit.spans import Span
from fomkit.study.layout_file import load_layout
from fomkit.study.options import Options
from fomkit.study.scaling import stepper_of, with_links
from fomkit.tables.text import read_rows
from fomkit.workload import ModelProfile

TARGET = "a100-sxm"
TECHNIQUES: dict[str, dict[str, Any]] = {
    "none": {},
    "sequence": {"sequence": True},
    "selective": {"recompute": "selective"},
    "seqsel": {"sequence": True, "recompute": "selective"},
    "full": {"recompute": "full"},
}
_TABLE_LAYOUT = {"tensor", "pipeline", "interleave", "microbatch"}


class Compared(NamedTuple):
    """One published figure: step [s], or activations [byte, or share of those without a technique]."""

    model: str
    technique: str
    published: float
    projected: Span

    @property
    def error(self) -> float:
        """Projected over published, less 1."""
        return self.projected.value / self.published - 1


def _lines(path: Path) -> list[dict[str, str]]:
    rows = read_rows(path)
    _, header = next(rows)
    return [dict(zip(header, row, strict=True)) for _, row in rows]


def _layout(base: Layout, line: dict[str, str]) -> Layout:
    sizes: dict[str, Any] = {name: int(value) for name, value in line.items() if name in _TABLE_LAYOUT}
    return replace(base, **sizes, **TECHNIQUES[line["technique"]])


def megatron_steps(folder: Path, machine: Machine | None = None) -> list[Compared]:
    """Project the published steps.

    Parameters
    ----------
    folder : Path
        With ``steps.csv`` and ``hdr.layout.yaml``.
    machine : Machine, optional
        Default: the shipped a100-sxm.
    """
    base, links = load_layout(folder / "hdr.layout.yaml")
    target = with_links(machine or load_machine(TARGET), links)
    found = []
    for line in _lines(folder / "steps.csv"):
        stepper = stepper_of(load_model(line["model"]), target, _layout(base, line), Options())
        step = stepper.at(int(line["devices"]), int(line["batch"]))
        found.append(Compared(line["model"], line["technique"], float(line["published_step_s"]), step.wall_s))
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
        value = byte / whole if line["unit"] == "%" else byte
        unit = 0.01 if line["unit"] == "%" else BINARY["Gi"]
        found.append(
            Compared(line["model"], line["technique"], float(line["published"]) * unit, Span.exact(value))
        )
    return found
