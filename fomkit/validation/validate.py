"""The comparisons one after the other; published steps of Megatron-LM beside what is projected."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, cast

from fomkit import __version__
from fomkit.core.interval import DEFAULT_LEVEL, Span
from fomkit.core.job import Layout
from fomkit.core.machine import Machine
from fomkit.core.model import ModelProfile
from fomkit.core.units import BINARY
from fomkit.files.csv import read_rows
from fomkit.parallel.step import activation_byte
from fomkit.plan.content import Ends, span_content
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
from fomkit.validation.merits import merit_notes, merit_scores
from fomkit.validation.neusight import FACTS, Found, compare_labels, counted_devices, label_cases
from fomkit.validation.published_steps import CHOSEN, step_scores
from fomkit.validation.scores import (
    Cases,
    Level,
    Score,
    Verdict,
    cases_of_spans,
    check_aims,
    join_cases,
    mixed,
    score,
)  # fmt: skip
from fomkit.validation.vision import NOTE as VISION
from fomkit.validation.vision import vision_scores

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

    def content(self) -> Published:
        """Give it as plain content."""
        return {
            "model": self.model, "technique": self.technique, "published": self.published,
            "projected": span_content(self.projected), "unit": self.unit, "source": self.source,
            "error": self.error,
        }  # fmt: skip


Published = TypedDict("Published", {
    "model": str, "technique": str, "published": float, "projected": Ends, "unit": str, "source": str,
    "error": float,
})  # fmt: skip


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
_HEADING = re.compile(r"^## (.+?)(?: <!-- (.+) -->)?$", re.MULTILINE)


class SetText(NamedTuple):
    """What is said of a set of comparisons: its title, the comparison that it is of, the text.

    ``title`` is "" of what stands before all; ``set`` is "" of a chapter that no comparison is behind.
    """

    title: str
    set: str
    text: str


def read_sets(path: Path) -> list[SetText]:
    """Read the texts of the sets: a heading each, with the name of the comparison in a comment behind it."""
    first, *others = _HEADING.split(path.read_text(encoding="utf-8"))
    rest = zip(others[::3], others[1::3], others[2::3], strict=True)
    return [SetText("", "", first.strip()), *(SetText(title, of or "", text.strip()) for title, of, text in rest)]


class Headline(NamedTuple):
    """A figure of the short answer: which it is, in words, and what was found.

    `name`: its column in ``history.csv``; `target`: None where no aim is of it; `peers`: errors of other tools.
    """

    name: str
    words: str
    figure: str
    value: float
    cases: int
    target: scores.Range | None
    peers: Mapping[str, float]

    def content(self) -> HeadlineContent:
        """Give it as plain content."""
        return cast("HeadlineContent", {**self._asdict(), "peers": dict(self.peers)})


HeadlineContent = TypedDict("HeadlineContent", {
    "name": str, "words": str, "figure": str, "value": float, "cases": int, "target": tuple[float, float] | None,
    "peers": dict[str, float],
})  # fmt: skip


def _short_answer(lines: Iterable[Score], aims: Iterable[scores.Aim]) -> Iterator[Headline]:
    """Find the figures of the short answer; those whose line did not run are left out."""
    known = {(line.comparison, str(line.level), line.machine, line.what): line for line in lines}
    targets = {aim[:5]: aim.target for aim in aims}
    for row in _lines(shipped_folder("validation") / "headlines.csv"):
        key = (row["comparison"], row["level"], row["machine"], row["what"])
        if (line := known.get(key)) is not None:
            figure = row["figure"]
            peers = {
                name: getattr(errors, figure) for name, errors in line.peers.items() if figure in errors._fields
            }
            value = scores.figure_of(line, figure)
            yield Headline(
                row["name"], row["words"], figure, value, line.cases, targets.get((*key, figure)), peers
            )


class Earlier(TypedDict):
    """Figures of an earlier version, by the names of headlines."""

    date: str
    version: str
    figures: dict[str, float]


def read_history(path: Path) -> list[Earlier]:
    """Read the figures of earlier versions; one that nobody knows is left out."""
    return [
        {"date": row.pop("date"), "version": row.pop("version"),
         "figures": {name: float(cell) for name, cell in row.items() if cell}}
        for row in _lines(path)
    ]  # fmt: skip


@dataclass(frozen=True)
class Validation:
    """What a run of all comparisons gave.

    `published`: figures of many devices that somebody published, beside the projected ones.
    `not_scored` (str, int, str): what is not scored, how often, and why.
    `notes`: splits, folds and rules.
    `headlines`: the short answer, each figure with its target and what other tools reach.
    """

    lines: tuple[Score, ...]
    verdicts: tuple[Verdict, ...]
    published: tuple[Compared, ...]
    not_scored: tuple[tuple[str, int, str], ...]
    notes: tuple[str, ...]
    level: float
    full: bool
    headlines: tuple[Headline, ...] = ()

    @property
    def regressed(self) -> bool:
        """True where a figure is past its tolerance."""
        return not all(verdict.kept for verdict in self.verdicts)

    def content(self) -> ValidationContent:
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
            "published_as": NAME,
            "sets": [
                {"title": told.title, "set": told.set, "text": told.text}
                for told in read_sets(shipped_folder("validation") / "sets.md")
            ],
            "headlines": [one.content() for one in self.headlines],
            "history": read_history(shipped_folder("validation") / "history.csv"),
        }


NotScored = TypedDict("NotScored", {"what": str, "count": int, "reason": str})
Told = TypedDict("Told", {"title": str, "set": str, "text": str})
ValidationContent = TypedDict("ValidationContent", {
    "schema": str, "fomkit": str, "interval": float, "full": bool, "regressed": bool, "said": list[str],
    "lines": list[scores.ScoreContent], "published": list[Published], "aims": list[scores.AimContent],
    "not_scored": list[NotScored], "published_as": str, "sets": list[Told], "headlines": list[HeadlineContent],
    "history": list[Earlier],
})  # fmt: skip


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
        CHOSEN,
        "The routing of mixtures of experts (getitem, setitem, count) depends on data and is not predicted.",
    )


MIX = "facts, twenty rows, whole sheets: a third each"
"""Ops of devices that nobody timed, of sheets of which twenty rows are known, and left out of whole ones."""


def _pooled(
    sheets: list[Cases], mix: Sequence[Sequence[Cases]], found: Found, folder: LabelFolder, level: float
) -> list[Score]:
    """Score all cases of a level together, for hit rates and widths; ``mix``: what `MIX` is made of."""
    calls = list(counted_devices(found.calls, folder).values())
    groups: list[tuple[Level, str, list[Cases]]] = [
        ("op", "DeepBench ops", sheets),
        ("op", "calls in models", calls),
        ("op", "all ops", [*sheets, *calls] if sheets else []),
        ("op", MIX, [mixed(mix, level)] if all(mix) else []),
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
    bare, of_facts = deepbench_scores.held_out_scores(level) if sheets is None else ([], [])
    mix = of_facts, scored.thin, scored.full
    pooled = _pooled(scored.cases if sheets is None else [], mix, found, folder, level)
    apart = [*bare, *deepbench_scores.table_scores()] if sheets is None else []
    merits = [*merit_scores(found, folder, level)]
    layers = [*dense_layer_scores(level), *deepbench_scores.piece_scores(level)] if sheets is None else []
    layers += [*vision_scores(level), *step_scores(level)] if sheets is None else []
    lines = (*scored.lines, *apart, *layers, *found.scores, *merits, *pooled)
    published = tuple(megatron_figures(level))
    scored_lines = (*lines, *megatron_scores([*published], level))
    aims = scores.read_aims(tables / "aims.csv")
    verdicts = tuple(check_aims(scored_lines, aims))
    notes = (*_data_notes(full), VISION, *merit_notes(merits), *found.notes)
    headlines = tuple(_short_answer(scored_lines, aims))
    return Validation(lines, verdicts, published, tuple(found.not_scored), notes, level, full, headlines)
