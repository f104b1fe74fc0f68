"""The comparisons one after the other, and what came out of all of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fomkit import __version__
from fomkit.profiles.locate import shipped_folder
from fomkit.spans import DEFAULT_LEVEL
from fomkit.validate.aims import Verdict, judge, read_aims
from fomkit.validate.deepbench import FOLDS, GROUPS, read_sheets
from fomkit.validate.dense_layers import NAME as DENSE
from fomkit.validate.dense_layers import dense_layer_scores
from fomkit.validate.device_left_out import LEFT_OUT, MOST, left_out_scores
from fomkit.validate.few_rows import KNOWN, SEEDS
from fomkit.validate.folder import LabelFolder, shipped
from fomkit.validate.megatron import Compared, megatron_figures, megatron_scores
from fomkit.validate.neusight import FACTS, Found, compare_labels, counted_devices, label_cases
from fomkit.validate.scores import Cases, Level, Score, join_cases, score
from fomkit.validate.sheet_scores import FEW, GROUPED, choose_sheets, score_sheets

SCHEMA = "fomkit/validate/1"
POOLED = "pooled"


@dataclass(frozen=True)
class Validation:
    """What a run of all comparisons gave.

    Attributes
    ----------
    lines : tuple of Score
    verdicts : tuple of Verdict
    published : tuple of Compared
        Figures of many devices that somebody published, beside the projected ones.
    left_out : tuple of (str, int, str)
        What is not scored, how often, and why.
    said : tuple of str
        Splits, folds and rules.
    level : float
    full : bool
    """

    lines: tuple[Score, ...]
    verdicts: tuple[Verdict, ...]
    published: tuple[Compared, ...]
    left_out: tuple[tuple[str, int, str], ...]
    said: tuple[str, ...]
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
            "said": list(self.said),
            "lines": [line.content() for line in self.lines],
            "published": [one.content() for one in self.published],
            "aims": [
                {
                    **one.aim._asdict(),
                    "value": None if np.isnan(one.value) else one.value,
                    "met": one.met,
                    "kept": one.kept,
                }
                for one in self.verdicts
            ],
            "not_scored": [{"what": what, "count": count, "reason": why} for what, count, why in self.left_out],
        }


def _said(full: bool) -> tuple[str, ...]:
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
        f"{FACTS}, {LEFT_OUT}: nothing that was timed on the device, or on another board of its chip, tells what "
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
    return [
        score(join_cases(cases), POOLED, level_of, "all", name, interval=level)
        for level_of, name, cases in groups
        if cases
    ]


def validate(
    data: Path | None = None,
    *,
    full: bool = False,
    sheets: Iterable[str] | None = None,
    level: float = DEFAULT_LEVEL,
) -> Validation:
    """Rerun the public comparisons.

    Parameters
    ----------
    data : Path, optional
        A folder laid out like ``validation/neusight``; default: that one.
    full : bool
        Refit inside each fold as a user would: minutes more.
    sheets : iterable of str, optional
        Titles of the DeepBench sheets to run (``"v100 fp32/vector"``); default: all, with medians.
    level : float
        Level of the intervals.

    Raises
    ------
    FomkitError
        When a table cannot be read.
    """
    tables = shipped_folder("validation")
    folder = LabelFolder(data or shipped())
    asked = choose_sheets(read_sheets(tables / "deepbench" / "sheets.csv"), sheets)
    scored = score_sheets(asked, level, full=full, whole=sheets is None)
    found = compare_labels(folder, level)
    pooled = _pooled(scored.cases if sheets is None else [], found, folder, level)
    apart = [*left_out_scores(level), *dense_layer_scores(level)] if sheets is None else []
    lines = (*scored.lines, *apart, *found.scores, *pooled)
    published = tuple(megatron_figures(level))
    judged = (*lines, *megatron_scores([*published], level))
    verdicts = tuple(judge(judged, read_aims(tables / "aims.csv")))
    said = (*_said(full), *found.said)
    return Validation(lines, verdicts, published, tuple(found.left_out), said, level, full)
