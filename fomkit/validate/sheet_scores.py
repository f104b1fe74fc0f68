"""DeepBench's sheets scored one by one, and their medians."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np

from fomkit.errors import FomkitError, nearest_names
from fomkit.profiles import load_machine
from fomkit.profiles.locate import shipped_folder
from fomkit.study.fits import own_fits
from fomkit.validate.deepbench import Sheet, left_out_cases, parts, read_sheets
from fomkit.validate.few_rows import few_rows_cases
from fomkit.validate.published import SIMPLE
from fomkit.validate.scores import Cases, Errors, Score, constant_band, join_cases, score

GROUPED, FEW = "shape groups left out", "20 rows known"
SHEETS = "median of sheets"


class SheetScores(NamedTuple):
    """What DeepBench's sheets gave.

    Attributes
    ----------
    lines : list of Score
        Medians first, where all sheets were asked for.
    cases : list of Cases
        Left-out rows by kind, with the scores of one constant band per kind.
    """

    lines: list[Score]
    cases: list[Cases]


def median_line(
    lines: list[Score], comparison: str, what: str, peers: Mapping[str, Errors], machine: str = SHEETS
) -> Score:
    """Give the medians over sheets or machines; totals and biases without their sign."""
    values: dict[str, Any] = {}
    for column in fields(Score):
        if column.type == "float":
            values[column.name] = float(np.median([abs(getattr(line, column.name)) for line in lines]))
    cases = sum(line.cases for line in lines)
    return Score(comparison, "op", machine, what, cases, **values, peers=peers)


def _medians(lines: Iterable[Score], comparison: str) -> list[Score]:
    kinds: dict[str, list[Score]] = {}
    for line in lines:
        kinds.setdefault(line.what, []).append(line)
    peers = SIMPLE if comparison == GROUPED else {}
    return [median_line(found, comparison, what, peers.get(what, {})) for what, found in kinds.items()]


def choose_sheets(known: list[Sheet], titles: Iterable[str] | None) -> list[Sheet]:
    """Take the sheets of these titles, or all.

    Raises
    ------
    FomkitError
        When a title is unknown.
    """
    by_title = {sheet.title: sheet for sheet in known}
    asked = list(by_title if titles is None else titles)
    for title in asked:
        if title not in by_title:
            raise FomkitError(title, f"is no sheet. {nearest_names(title, by_title)}")
    return [by_title[title] for title in asked]


def score_sheets(sheets: Iterable[Sheet], level: float, *, full: bool, whole: bool) -> SheetScores:
    """Score DeepBench's sheets.

    Parameters
    ----------
    sheets : iterable of Sheet
    level : float
    full : bool
        Refit inside each fold.
    whole : bool
        True where these are all sheets, so that their medians mean something.
    """
    grouped: list[Score] = []
    few: list[Score] = []
    found: dict[str, list[Cases]] = {}
    names = sorted(
        {sheet.machine for sheet in read_sheets(shipped_folder("validation") / "deepbench" / "sheets.csv")}
    )
    lenders = tuple(own_fits(load_machine(name)) for name in names)
    for sheet in sheets:
        machine = load_machine(sheet.machine)
        for part in parts(sheet, machine):
            for what, cases in left_out_cases(part, machine, level, full=full):
                grouped.append(score(cases, GROUPED, "op", sheet.title, what, interval=level))
                found.setdefault(part.kind, []).append(cases)
            seeds = list(few_rows_cases(part, machine, level, lenders))
            if seeds:
                few.append(score(join_cases(seeds), FEW, "op", sheet.title, part.what, interval=level))
    medians = [*_medians(grouped, GROUPED), *_medians(few, FEW)] if whole else []
    # The rival of all sheets together is one band per kind, whatever the sheet and the pass.
    pooled = [constant_band(join_cases(cases), level) for cases in found.values()]
    return SheetScores([*medians, *grouped, *few], pooled)
