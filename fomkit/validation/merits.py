"""Figures of merit of small suites of labelled models, two machines each, beside the measured ones.

The product's own answer, not only its parts: does the interval of a figure of merit hold the measured one as
often as it says, and does the probability of reaching a threshold come true? A suite is three to five models that
were measured on both machines, one unit of work each, by the mean that ``fomkit fom`` takes. The draws are fixed.
Suites of one pair of machines share models, and so their errors: the pairs count for more than the suites.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, permutations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fomkit.core.interval import Span, probability_above
from fomkit.core.units import DAY_S
from fomkit.merit.fom import MEAN, Rates, figure_of_merit, take_mean
from fomkit.plan.run import unit_per_day
from fomkit.validation.neusight import FACTS, OWN, Found, Outcome, counted_devices
from fomkit.validation.scores import Score, cases_of_spans, score

if TYPE_CHECKING:
    from fomkit.validation.graphs import LabelFolder

NAME = "figures of merit"
BOTH, TARGET_ALONE = "both machines predicted", "baseline measured"
LINES = (3, 4, 5)
DRAWS = 12
"""Suites of each pair of machines at most, drawn without putting back."""
RATIOS = (0.8, 0.9, 0.95, 1.05, 1.1, 1.25)
"""Thresholds, over the measured figure of merit."""


class Rated(NamedTuple):
    """One suite on two machines: the measured figure of merit, and the predicted one."""

    truth: float
    span: Span


class _Line(NamedTuple):
    """A model on one machine: its step as measured and as predicted [s]."""

    measured: float
    predicted: Span


def _steps_by_model(found: Sequence[Outcome]) -> dict[str, _Line]:
    return {
        f"{one.label['graph']} {one.label['option']}": _Line(one.seconds("step"), span)
        for one in found
        if (span := one.spans["step"]) is not None
    }


def _drawn_suites(names: Sequence[str], pair: str) -> list[tuple[str, ...]]:
    """Draw the suites of a pair of machines; always the same."""
    known = [suite for lines in LINES for suite in combinations(names, lines)]
    return random.Random(pair).sample(known, min(DRAWS, len(known)))  # noqa: S311


def _rate_suite(
    suite: Sequence[str], baseline: Mapping[str, _Line], target: Mapping[str, _Line], what: str
) -> Rated:
    level = target[suite[0]].predicted.level
    exact = {name: Span.exact(baseline[name].measured, level) for name in suite}
    old = exact if what == TARGET_ALONE else {name: baseline[name].predicted for name in suite}
    rates = [
        Rates(word, "device", {name: unit_per_day(span, 1) for name, span in spans.items()})
        for word, spans in (("baseline", old), ("target", {name: target[name].predicted for name in suite}))
    ]
    sides = ([DAY_S / side[name].measured for name in suite] for side in (target, baseline))
    return Rated(take_mean(MEAN, *sides), figure_of_merit(rates[0], rates[1]).value)


def rated_suites(machines: Mapping[str, Sequence[Outcome]], what: str) -> Iterator[Rated]:
    """Rate all suites of every pair of machines; of a measured baseline each pair both ways.

    `machines`: the scored labels of each; `what`: `BOTH` or `TARGET_ALONE`.
    """
    known = {device: _steps_by_model(found) for device, found in machines.items()}
    for one, other in (combinations if what == BOTH else permutations)(known, 2):
        common = [name for name in known[one] if name in known[other]]
        for suite in _drawn_suites(common, f"{one} / {other}"):
            yield _rate_suite(suite, known[one], known[other], what)


def brier_scores(rated: Sequence[Rated]) -> tuple[dict[str, float], dict[str, float]]:
    """Give, by threshold, the Brier score of the probabilities, and how often the value alone says what is wrong.

    >>> brier, wrong = brier_scores([Rated(1.0, Span(1.0, 0.5, 2.0))])
    >>> round(brier["1.25"], 3), wrong["1.25"]
    (0.116, 0.0)
    """
    brier, wrong = dict[str, float](), dict[str, float]()
    for ratio in RATIOS:
        came_true = float(ratio <= 1)
        chances = [probability_above(one.span, one.truth * ratio) for one in rated]
        verdicts = [float(one.span.value >= one.truth * ratio) for one in rated]
        brier[f"{ratio:g}"] = float(np.mean((np.array(chances) - came_true) ** 2))
        wrong[f"{ratio:g}"] = float(np.mean(np.array(verdicts) != came_true))
    return brier, wrong


def _suites_line(rated: Sequence[Rated], known: str, what: str, level: float) -> Score:
    cases = cases_of_spans([one.truth for one in rated], [one.span for one in rated])
    brier, wrong = brier_scores(rated)
    return replace(score(cases, NAME, "ratio", known, what, interval=level), brier=brier, wrong_verdicts=wrong)


def merit_scores(found: Found, folder: LabelFolder, level: float) -> Iterator[Score]:
    """Score the suites of machines that are known by facts only, and by their own tables.

    Of each: all suites together, of both machines predicted and of a measured baseline, then pair by pair.
    """
    for known in (FACTS, OWN):
        machines = counted_devices(found.outcomes.get(known, {}), folder)
        for what in (BOTH, TARGET_ALONE):
            if rated := list(rated_suites(machines, what)):
                yield _suites_line(rated, known, what, level)
        for pair in combinations(machines, 2):
            if rated := list(rated_suites({device: machines[device] for device in pair}, BOTH)):
                yield _suites_line(rated, known, " / ".join(pair), level)


def merit_notes(lines: Sequence[Score]) -> Iterator[str]:
    """Say how many suites and pairs of machines the lines of `merit_scores` are of."""
    told = [f"{line.cases} {line.machine}" for line in lines if line.what == BOTH]
    pairs = sum(" / " in line.what for line in lines)
    if told:
        yield (
            f"{NAME}: {' and '.join(told)}, suites of {LINES[0]} to {LINES[-1]} models, one unit of each, drawn "
            f"once for all, {DRAWS} of each of {pairs} pairs of machines at most. Suites of a pair share models: "
            "as evidence they count little more than one."
        )
