"""Run all public comparisons and collect their scores, verdicts and headline figures (``fomkit/validate/1``)."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, permutations
from pathlib import Path
from typing import NamedTuple, TypedDict

import numpy as np

from fomkit import __version__
from fomkit.core.interval import DEFAULT_LEVEL, Span, probability_above
from fomkit.core.units import DAY_S
from fomkit.merit.fom import MEAN, Rates, figure_of_merit, take_mean
from fomkit.plan.content import as_content
from fomkit.plan.run import unit_per_day
from fomkit.profiles.locate import shipped_folder
from fomkit.validation import deepbench_scores, scores
from fomkit.validation.deepbench_folds import FOLDS, GROUPS, KNOWN_ROWS, SEEDS, read_sheets
from fomkit.validation.deepbench_scores import EIE as DENSE
from fomkit.validation.deepbench_scores import FEW, GROUPED, HELD_OUT, MAX_ROWS, choose_sheets, dense_layer_scores
from fomkit.validation.graphs import LabelFolder, shipped_labels
from fomkit.validation.neusight import FACTS, OWN, Found, Outcome, compare_labels, counted_devices, label_cases
from fomkit.validation.published_steps import (
    CHOSEN,
    MEGATRON,
    VISION_NOTE,
    Compared,
    Published,
    megatron_figures,
    megatron_scores,
    read_texts,
    step_scores,
    vision_scores,
)  # fmt: skip

SCHEMA = "fomkit/validate/1"
POOLED = "pooled"
_HEADING = re.compile(r"^## (.+?)(?: <!-- (.+) -->)?$", re.MULTILINE)


class SetText(TypedDict):
    """A chapter about a set of comparisons: its title, the name of the comparison, its text.

    ``title`` is "" for the text before the first heading; ``set`` is "" for a chapter without a comparison.
    """

    title: str
    set: str
    text: str


def read_sets(path: Path) -> list[SetText]:
    """Read the chapters: each begins with a heading, followed by the name of its comparison in a comment."""
    first, *others = _HEADING.split(path.read_text(encoding="utf-8"))
    rest = zip(others[::3], others[1::3], others[2::3], strict=True)
    found = (("", "", first), *rest)
    return [{"title": title, "set": of or "", "text": text.strip()} for title, of, text in found]


class Headline(TypedDict):
    """A headline figure: its name, its description and its value.

    `name`: its column in ``history.csv``; `target`: None where no aim covers it; `peers`: errors of other tools.
    """

    name: str
    words: str
    figure: str
    value: float
    cases: int
    target: tuple[float, float] | None
    peers: dict[str, float]


def _headlines(lines: Iterable[scores.Score], aims: Iterable[scores.Aim]) -> Iterator[Headline]:
    """Yield the headline figures; a figure whose line did not run is left out."""
    known = {(line.comparison, str(line.level), line.machine, line.what): line for line in lines}
    targets = {aim[:5]: aim.target for aim in aims}
    for row in read_texts(shipped_folder("validation") / "headlines.csv"):
        key = (row["comparison"], row["level"], row["machine"], row["what"])
        if (line := known.get(key)) is not None:
            figure = row["figure"]
            peers = {
                name: getattr(errors, figure) for name, errors in line.peers.items() if figure in errors._fields
            }
            yield {
                "name": row["name"], "words": row["words"], "figure": figure,
                "value": scores.figure_of(line, figure), "cases": line.cases,
                "target": targets.get((*key, figure)), "peers": peers,
            }  # fmt: skip


class HistoryEntry(TypedDict):
    """Figures of an earlier version, by the names of headlines."""

    date: str
    version: str
    figures: dict[str, float]


def read_history(path: Path) -> list[HistoryEntry]:
    """Read the figures of earlier versions; an empty cell is left out."""
    return [
        {"date": row.pop("date"), "version": row.pop("version"),
         "figures": {name: float(cell) for name, cell in row.items() if cell}}
        for row in read_texts(path)
    ]  # fmt: skip


@dataclass(frozen=True)
class Validation:
    """The result of a run of all comparisons.

    `published`: published figures of many devices, with the projected ones.
    `not_scored` (str, int, str): what is not scored, the number of cases, the reason.
    `headlines`: the headline figures, each with its target and the errors of other tools.
    """

    lines: tuple[scores.Score, ...]
    verdicts: tuple[scores.Verdict, ...]
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
        """Return everything as plain content (``fomkit/validate/1``)."""
        folder = shipped_folder("validation")
        history = read_history(folder / "history.csv")
        return as_content(
            ValidationContent, self, schema=SCHEMA, fomkit=__version__, interval=self.level, said=self.notes,
            aims=[as_content(scores.AimContent, verdict, verdict.aim) for verdict in self.verdicts],
            not_scored=[{"what": what, "count": count, "reason": why} for what, count, why in self.not_scored],
            published_as=MEGATRON, sets=read_sets(folder / "sets.md"), history=history,
        )  # fmt: skip


NotScored = TypedDict("NotScored", {"what": str, "count": int, "reason": str})
ValidationContent = TypedDict("ValidationContent", {
    "schema": str, "fomkit": str, "interval": float, "full": bool, "regressed": bool, "said": list[str],
    "lines": list[scores.ScoreContent], "published": list[Published], "aims": list[scores.AimContent],
    "not_scored": list[NotScored], "published_as": str, "sets": list[SetText], "headlines": list[Headline],
    "history": list[HistoryEntry],
})  # fmt: skip


def _data_notes(full: bool) -> tuple[str, ...]:
    groups = "; ".join(f"{kind} by {', '.join(names)}" for kind, names in GROUPS.items())
    way = (
        "fits and intervals are from the other folds only"
        if full
        else "intervals are from the errors of other folds, whose fits used the scored rows: the interval gain "
        "is some points better than with --full, hit rates are about the same"
    )
    return (
        f"{GROUPED}: {FOLDS} folds, group g in fold g mod {FOLDS}, groups in rising order; {groups} (row-major: a "
        f"workbook's m is our n). Everything is refitted without the fold; {way}.",
        f"{FEW}: {KNOWN_ROWS} known rows of each kind and pass, by seeds {', '.join(map(str, SEEDS))}; the others "
        "are scored.",
        "Labels are never fitted. Medians over sheets are of absolute values.",
        f"{FACTS}, {HELD_OUT}: no timing of the device, or of another board of its chip, is used to estimate "
        f"typical utilisation; {MAX_ROWS} timings of a kind at most are scored.",
        "Published steps of Megatron-LM are projected with nothing fitted to them (docs/parallel.md lists each "
        "constant); their activations check that the paper's equations were copied correctly.",
        f"{DENSE}: a layer is the BLAS product of its weights, as stored, and the batch; the paper does not state "
        "their storage order. For AlexNet's FC7 at batch 64 DeepBench's time on the same board is 1.15 times as "
        "long, 1.5 times with transposed weights; no prediction can be closer than these sources.",
        CHOSEN,
        "The routing of mixtures of experts (getitem, setitem, count) depends on data and is not predicted.",
    )


MIX = "facts, twenty rows, whole sheets: a third each"
"""Ops of devices without timings, ops of sheets with twenty known rows, and ops left out of whole sheets."""


def _pooled(
    sheets: list[scores.Cases],
    mix: Sequence[Sequence[scores.Cases]],
    found: Found,
    folder: LabelFolder,
    level: float,
) -> list[scores.Score]:
    """Score all cases of a level together, for hit rates and widths; ``mix``: the three parts of `MIX`."""
    calls = list(counted_devices(found.calls, folder).values())
    groups: list[tuple[scores.Level, str, list[scores.Cases]]] = [
        ("op", "DeepBench ops", sheets),
        ("op", "calls in models", calls),
        ("op", "all ops", [*sheets, *calls] if sheets else []),
        ("op", MIX, [scores.mixed(mix, level)] if all(mix) else []),
        ("model", "labels and ratios", label_cases(found, folder)),
    ]
    known = [(level_of, name, scores.join_cases(cases)) for level_of, name, cases in groups if cases]
    return [scores.score(cases, POOLED, level_of, "all", name, interval=level) for level_of, name, cases in known]


MERITS = "figures of merit"
BOTH_PREDICTED, BASELINE_MEASURED = "both machines predicted", "baseline measured"
SUITE_SIZES = (3, 4, 5)
SUITE_DRAWS = 12
"""Largest number of suites per pair of machines, drawn without replacement."""
THRESHOLDS = (0.8, 0.9, 0.95, 1.05, 1.1, 1.25)
"""Thresholds as multiples of the measured figure of merit."""


class Rated(NamedTuple):
    """One suite on two machines: the measured and the predicted figure of merit.

    Suites test the final result and not only its parts: whether the interval of a figure of merit contains the
    measured value as often as its level states, and whether the probability of reaching a threshold is calibrated.
    A suite is three to five models measured on both machines, one unit of work each, with the default mean of
    ``fomkit fom``. The draws are fixed. Suites of one pair of machines share models and therefore errors, so the
    number of pairs matters more than the number of suites.
    """

    truth: float
    span: Span


class _Step(NamedTuple):
    """A model on one machine: its step as measured and as predicted [s]."""

    measured: float
    predicted: Span


def _steps_by_model(found: Sequence[Outcome]) -> dict[str, _Step]:
    return {
        f"{one.label['graph']} {one.label['option']}": _Step(one.seconds("step"), span)
        for one in found
        if (span := one.spans["step"]) is not None
    }


def _drawn_suites(names: Sequence[str], pair: str) -> list[tuple[str, ...]]:
    """Draw the suites of a pair of machines; the random numbers are seeded by the pair's name."""
    known = [suite for lines in SUITE_SIZES for suite in combinations(names, lines)]
    return random.Random(pair).sample(known, min(SUITE_DRAWS, len(known)))  # noqa: S311


def _rate_suite(
    suite: Sequence[str], baseline: Mapping[str, _Step], target: Mapping[str, _Step], what: str
) -> Rated:
    level = target[suite[0]].predicted.level
    exact = {name: Span.exact(baseline[name].measured, level) for name in suite}
    old = exact if what == BASELINE_MEASURED else {name: baseline[name].predicted for name in suite}
    rates = [
        Rates(word, "device", {name: unit_per_day(span, 1) for name, span in spans.items()})
        for word, spans in (("baseline", old), ("target", {name: target[name].predicted for name in suite}))
    ]
    sides = ([DAY_S / side[name].measured for name in suite] for side in (target, baseline))
    return Rated(take_mean(MEAN, *sides), figure_of_merit(rates[0], rates[1]).value)


def rated_suites(machines: Mapping[str, Sequence[Outcome]], what: str) -> Iterator[Rated]:
    """Rate all suites of every pair of machines (`BOTH_PREDICTED`), in both directions by `BASELINE_MEASURED`."""
    known = {device: _steps_by_model(found) for device, found in machines.items()}
    for one, other in (combinations if what == BOTH_PREDICTED else permutations)(known, 2):
        common = [name for name in known[one] if name in known[other]]
        for suite in _drawn_suites(common, f"{one} / {other}"):
            yield _rate_suite(suite, known[one], known[other], what)


def brier_scores(rated: Sequence[Rated]) -> tuple[dict[str, float], dict[str, float]]:
    """Return, by threshold, the Brier score of the probabilities and the share of values on the wrong side.

    >>> brier, wrong = brier_scores([Rated(1.0, Span(1.0, 0.5, 2.0))])
    >>> round(brier["1.25"], 3), wrong["1.25"]
    (0.116, 0.0)
    """
    brier, wrong = dict[str, float](), dict[str, float]()
    for ratio in THRESHOLDS:
        came_true = float(ratio <= 1)
        chances = [probability_above(one.span, one.truth * ratio) for one in rated]
        verdicts = [float(one.span.value >= one.truth * ratio) for one in rated]
        brier[f"{ratio:g}"] = float(np.mean((np.array(chances) - came_true) ** 2))
        wrong[f"{ratio:g}"] = float(np.mean(np.array(verdicts) != came_true))
    return brier, wrong


def _suites_score(rated: Sequence[Rated], known: str, what: str, level: float) -> scores.Score:
    cases = scores.cases_of_spans([one.truth for one in rated], [one.span for one in rated])
    brier, wrong = brier_scores(rated)
    return replace(
        scores.score(cases, MERITS, "ratio", known, what, interval=level), brier=brier, wrong_verdicts=wrong
    )


def merit_scores(found: Found, folder: LabelFolder, level: float) -> Iterator[scores.Score]:
    """Score the suites of machines predicted from facts only, and of machines predicted from their own tables.

    For each group: all suites together, with both machines predicted and with a measured baseline; then each pair.
    """
    for known in (FACTS, OWN):
        machines = counted_devices(found.outcomes.get(known, {}), folder)
        for what in (BOTH_PREDICTED, BASELINE_MEASURED):
            if rated := list(rated_suites(machines, what)):
                yield _suites_score(rated, known, what, level)
        for pair in combinations(machines, 2):
            if rated := list(rated_suites({device: machines[device] for device in pair}, BOTH_PREDICTED)):
                yield _suites_score(rated, known, " / ".join(pair), level)


def merit_notes(lines: Sequence[scores.Score]) -> Iterator[str]:
    """Yield a note of how many suites and pairs of machines the lines of `merit_scores` cover."""
    counts = [f"{line.cases} {line.machine}" for line in lines if line.what == BOTH_PREDICTED]
    pairs = sum(" / " in line.what for line in lines)
    if counts:
        yield (
            f"{MERITS}: {' and '.join(counts)}, suites of {SUITE_SIZES[0]} to {SUITE_SIZES[-1]} models, one unit "
            f"of each, drawn once, {SUITE_DRAWS} of each of {pairs} pairs of machines at most. Suites of a pair "
            "share models, so together they are little more evidence than one."
        )


def validate(
    data: Path | None = None,
    *,
    full: bool = False,
    sheets: Iterable[str] | None = None,
    level: float = DEFAULT_LEVEL,
    tell: Callable[[str], None] = lambda _text: None,
) -> Validation:
    """Rerun the public comparisons.

    `data`: a folder laid out like ``validation/neusight`` (the default); `full`: refit inside each fold as a user
    would, which takes minutes longer; `sheets`: titles of the DeepBench sheets to run (``"v100 fp32/vector"``),
    default: all, with medians; `level`: level of the intervals; `tell`: called with a message before each part.
    """
    tables = shipped_folder("validation")
    folder = LabelFolder(data or shipped_labels())
    chosen = choose_sheets(read_sheets(tables / "deepbench" / "sheets.csv"), sheets)
    tell("part 1 of 5: sheets of DeepBench")
    scored = deepbench_scores.score_sheets(chosen, level, full=full, whole=sheets is None)
    tell("part 2 of 5: NeuSight's ops and models")
    found = compare_labels(folder, level)
    tell("part 3 of 5: devices known by facts")
    bare, of_facts = deepbench_scores.held_out_scores(level) if sheets is None else ([], [])
    mix = of_facts, scored.thin, scored.full
    pooled = _pooled(scored.cases if sheets is None else [], mix, found, folder, level)
    apart = [*bare, *deepbench_scores.table_scores()] if sheets is None else []
    merits = [*merit_scores(found, folder, level)]
    tell("part 4 of 5: layers and image networks")
    layers = [*dense_layer_scores(level), *deepbench_scores.piece_scores(level)] if sheets is None else []
    layers += [*vision_scores(level), *step_scores(level)] if sheets is None else []
    tell("part 5 of 5: published steps, targets and tolerances")
    lines = (*scored.lines, *apart, *layers, *found.scores, *merits, *pooled)
    published = tuple(megatron_figures(level))
    scored_lines = (*lines, *megatron_scores([*published], level))
    aims = scores.read_aims(tables / "aims.csv")
    verdicts = tuple(scores.check_aims(scored_lines, aims))
    notes = (*_data_notes(full), VISION_NOTE, *merit_notes(merits), *found.notes)
    headlines = tuple(_headlines(scored_lines, aims))
    return Validation(lines, verdicts, published, tuple(found.not_scored), notes, level, full, headlines)
