"""The comparisons one after the other; published steps of Megatron-LM beside what is projected."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from fomkit import __version__
from fomkit.core.interval import DEFAULT_LEVEL, Span
from fomkit.core.job import Layout
from fomkit.core.machine import Machine
from fomkit.core.model import ModelProfile
from fomkit.core.units import BINARY
from fomkit.files.csv import read_rows
from fomkit.parallel.job import activation_byte
from fomkit.plan.content import span_content
from fomkit.plan.options import Options
from fomkit.plan.scaling import stepper_of, with_links
from fomkit.profiles.declared import load_layout
from fomkit.profiles.locate import shipped_folder
from fomkit.profiles.machines import load_machine
from fomkit.profiles.models import load_model
from fomkit.validation import deepbench_scores, scores
from fomkit.validation.deepbench_folds import FOLDS, GROUPS, KNOWN, SEEDS, read_sheets
from fomkit.validation.deepbench_scores import FEW, GROUPED, HELD_OUT, MOST, choose_sheets, dense_layer_scores
from fomkit.validation.deepbench_scores import NAME as DENSE
from fomkit.validation.graphs import LabelFolder, shipped
from fomkit.validation.neusight import FACTS, Found, compare_labels, counted_devices, label_cases
from fomkit.validation.scores import Cases, Level, Score, Verdict, cases_of_spans, check_aims, join_cases, score

TARGET = "a100-sxm"
TECHNIQUES: dict[str, dict[str, Any]] = {
    "none": {},
    "sequence": {"sequence": True},
    "selective": {"recompute": "selective"},
    "seqsel": {"sequence": True, "recompute": "selective"},
    "full": {"recompute": "full"},
}
NAME = "Megatron-LM as published"
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

    `folder`: with ``steps.csv`` and ``hdr.layout.yaml``; `machine`: default: the shipped a100-sxm; `level`: of the
    intervals.
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

    `folder`: with ``steps.csv`` and ``activations.csv``.
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


def megatron_scores(figures: list[Compared], level: float = DEFAULT_LEVEL) -> list[Score]:
    """Score them for the aims: the steps, the worst of these, and the activations, which have no interval."""
    steps = [figure for figure in figures if figure.unit == "s"]
    worst = max(steps, key=lambda step: abs(step.error))
    others = [figure for figure in figures if figure.unit != "s"]
    named = (("steps", steps), ("worst step", [worst]), ("activations", others))
    cases = {what: cases_of_spans([one.published for one in some], [one.projected for one in some])
             for what, some in named}  # fmt: skip
    return [score(own, NAME, "model", TARGET, what, interval=level) for what, own in cases.items()]


SCHEMA = "fomkit/validate/1"
POOLED = "pooled"


@dataclass(frozen=True)
class Validation:
    """What a run of all comparisons gave.

    `published`: figures of many devices that somebody published, beside the projected ones.
    `not_scored` (str, int, str): what is not scored, how often, and why.
    `notes`: splits, folds and rules.
    """

    lines: tuple[Score, ...]
    verdicts: tuple[Verdict, ...]
    published: tuple[Compared, ...]
    not_scored: tuple[tuple[str, int, str], ...]
    notes: tuple[str, ...]
    level: float
    full: bool

    @property
    def regressed(self) -> bool:
        """True where a figure is past its tolerance."""
        return not all(verdict.kept for verdict in self.verdicts)

    def content(self) -> dict[str, Any]:
        """Give everything as plain content (``fomkit/validate/1``)."""
        return {
            "schema": SCHEMA,
            "fomkit": __version__,
            "interval": self.level,
            "full": self.full,
            "regressed": self.regressed,
            "said": list(self.notes),
            "lines": [line.content() for line in self.lines],
            "published": [one.content() for one in self.published],
            "aims": [verdict.content() for verdict in self.verdicts],
            "not_scored": [{"what": what, "count": count, "reason": why} for what, count, why in self.not_scored],
        }


def _data_notes(full: bool) -> tuple[str, ...]:
    groups = "; ".join(f"{kind} by {', '.join(names)}" for kind, names in GROUPS.items())
    way = (
        "the product fits and judges the other folds alone"
        if full
        else "intervals from the errors of other folds, whose fits have seen the scored rows: the interval gain "
        "is some points better than with --full, and hit rates are about the same"
    )
    return (
        f"{GROUPED}: {FOLDS} folds, group g in fold g mod {FOLDS}, groups in rising order; {groups} "
        f"(row-major: a workbook's m is our n). Everything is fitted anew without the fold; {way}.",
        f"{FEW}: {KNOWN} rows of each kind and pass by seeds {', '.join(map(str, SEEDS))}; the others are scored.",
        "Labels are never fitted. Medians over sheets are of values without their sign.",
        f"{FACTS}, {HELD_OUT}: nothing that was timed on the device, or on another board of its chip, tells what "
        f"is usual; {MOST} timings of a kind at most are scored.",
        "Published steps of Megatron-LM are projected with nothing fitted to them (docs/parallel.md lists "
        "each constant); their activations check that the paper's equations were taken over rightly.",
        f"{DENSE}: a layer is the BLAS product of its weights as they lie with the batch; the paper does not say "
        "how they lie. Of AlexNet's FC7 at batch 64 DeepBench's time on the same board is 1.15 times as long, and "
        "1.5 times where the weights are transposed: closer than two sources no prediction can be.",
        "The routing of mixtures of experts (getitem, setitem, count) depends on data and is not predicted.",
    )


def _pooled(sheets: list[Cases], found: Found, folder: LabelFolder, level: float) -> list[Score]:
    """Score all cases of a level together, for hit rates and widths."""
    calls = list(counted_devices(found.calls, folder).values())
    groups: list[tuple[Level, str, list[Cases]]] = [
        ("op", "DeepBench ops", sheets),
        ("op", "calls in models", calls),
        ("op", "all ops", [*sheets, *calls] if sheets else []),
        ("model", "labels and ratios", label_cases(found, folder)),
    ]
    known = [(level_of, name, join_cases(cases)) for level_of, name, cases in groups if cases]
    return [score(cases, POOLED, level_of, "all", name, interval=level) for level_of, name, cases in known]


def validate(
    data: Path | None = None,
    *,
    full: bool = False,
    sheets: Iterable[str] | None = None,
    level: float = DEFAULT_LEVEL,
) -> Validation:
    """Rerun the public comparisons.

    `data`: a folder laid out like ``validation/neusight``; default: that one; `full`: refit inside each fold as a
    user would: minutes more; `sheets`: titles of the DeepBench sheets to run (``"v100 fp32/vector"``); default:
    all, with medians; `level`: level of the intervals. Raises FomkitError when a table cannot be read.
    """
    tables = shipped_folder("validation")
    folder = LabelFolder(data or shipped())
    chosen = choose_sheets(read_sheets(tables / "deepbench" / "sheets.csv"), sheets)
    scored = deepbench_scores.score_sheets(chosen, level, full=full, whole=sheets is None)
    found = compare_labels(folder, level)
    pooled = _pooled(scored.cases if sheets is None else [], found, folder, level)
    apart = [*deepbench_scores.held_out_scores(level), *dense_layer_scores(level)] if sheets is None else []
    lines = (*scored.lines, *apart, *found.scores, *pooled)
    published = tuple(megatron_figures(level))
    scored_lines = (*lines, *megatron_scores([*published], level))
    verdicts = tuple(check_aims(scored_lines, scores.read_aims(tables / "aims.csv")))
    notes = (*_data_notes(full), *found.notes)
    return Validation(lines, verdicts, published, tuple(found.not_scored), notes, level, full)
