"""The sensitivity of a result to its parameters (``fomkit/sensitivity/1``): elasticities and swings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

import pandas as pd

from fomkit import __version__
from fomkit.core.errors import FomkitError, Shown
from fomkit.core.interval import Span
from fomkit.plan.content import INTERVAL_MEANING, Ends, as_content, span_content
from fomkit.whatif.cases import FIGURES, Figures, Outcome, Point, Title
from fomkit.whatif.parameters import PLAIN_RANGE, NotVaried, Parameter, ToMeasure
from fomkit.whatif.subjects import AnySubject

if TYPE_CHECKING:
    import altair as alt

STEP = 0.01
"""Change of a parameter's logarithm on each side, over which an elasticity is computed."""
ROUGH = 0.01
"""Largest difference of a smooth effect's elasticities: of the step and its half, or of the two sides."""
ROUGH_WHOLE = 0.05
"""The same for whole numbers, whose neighbours are farther away."""
ROUNDING = 1e-9
"""Smaller changes are rounding errors of a sum."""


@dataclass(frozen=True)
class Effect:
    """The effect of one parameter.

    `elasticity`: d ln(figure) / d ln(parameter), by figure.
    `at_half_step`, `below`, `above`: the same of the main figure over half the step, and over each side alone;
      None where a whole number has no half step, or there is no such side.
    `smooth`: whether these agree.
    `step`: change of the parameter on each side, as a share of its value.
    `low`, `high`: values of the parameter at the ends of the swing.
    `at_low`, `at_high`: the main figure there; None where it cannot be estimated.
    `swing`: |at_high - at_low| over the current figure.
    `why`: why a point could not be estimated; "" where all could.
    """

    parameter: Parameter
    elasticity: Mapping[str, float]
    at_half_step: float | None
    below: float | None
    above: float | None
    smooth: bool
    step: float
    low: float
    high: float
    at_low: Span | None
    at_high: Span | None
    swing: float
    why: str

    @property
    def kink(self) -> bool:
        """True where the figure rises on one side and falls on the other: no single slope describes both."""
        if self.smooth or self.below is None or self.above is None:
            return False
        return self.below * self.above < 0 and min(abs(self.below), abs(self.above)) > ROUNDING

    @property
    def moves(self) -> bool:
        """True where any figure changes with it by more than rounding."""
        return self.swing > ROUNDING or any(abs(slope) > ROUNDING for slope in self.elasticity.values())


def _around(parameter: Parameter) -> list[tuple[float, float]]:
    """Return the values below and above for an elasticity: over the step, then over its half."""
    if not parameter.grain:
        return [(parameter.value * math.exp(-step), parameter.value * math.exp(step)) for step in (STEP, STEP / 2)]
    away = max(1, round(parameter.value * STEP / parameter.grain))
    moves = (times * parameter.grain for times in (away, away // 2) if times)
    return [(parameter.value - move, parameter.value + move) for move in moves]


def _figure_of(outcome: Outcome | None, name: str) -> Span | None:
    """Return a figure of an outcome; None where it has none, such as the rate of a system too small for a run."""
    return outcome.get(name) if isinstance(outcome, Mapping) else None


def _slope(pair: tuple[Outcome | None, Outcome | None], at: tuple[float, float], figure: str) -> float | None:
    low, high = (_figure_of(outcome, figure) for outcome in pair)
    return math.log(high.value / low.value) / math.log(at[1] / at[0]) if low and high else None


def _central(
    ends: tuple[Outcome | None, Outcome | None], at: tuple[float, float], here: Figures, value: float, figure: str
) -> float | None:
    """Return the slope over both sides, else over the only one."""
    tried = (
        _slope(ends, at, figure),
        _slope((here, ends[1]), (value, at[1]), figure),
        _slope((ends[0], here), (at[0], value), figure),
    )
    return next((slope for slope in tried if slope is not None), None)


def effect_of(subject: AnySubject, parameter: Parameter, here: Figures, figure: str) -> Effect | None:
    """Compute the effect of a parameter above 0 on a subject's figures; None where it has no other valid value."""
    pairs, ends = _around(parameter), parameter.ends
    values = list(dict.fromkeys([*(value for pair in pairs for value in pair), *ends]))
    possible = [value for value in values if value > 0 and value != parameter.value]
    points: list[Point] = [{parameter.name: value} for value in possible]
    found: dict[float, Outcome] = dict(zip(possible, subject.at(points), strict=True))
    found[parameter.value] = here
    outcomes = [(found.get(low), found.get(high)) for low, high in pairs]
    slopes = {name: _central(outcomes[0], pairs[0], here, parameter.value, name) for name in here}
    half = _central(outcomes[1], pairs[1], here, parameter.value, figure) if len(pairs) > 1 else None
    near, at = outcomes[-1], pairs[-1]
    below = _slope((near[0], here), (at[0], parameter.value), figure)
    above = _slope((here, near[1]), (parameter.value, at[1]), figure)
    if slopes[figure] is None:
        return None
    at_low, at_high = (_figure_of(found.get(end), figure) for end in ends)
    middle, known = here[figure], [slope for slope in (slopes[figure], half, below, above) if slope is not None]
    swing = abs((at_high or middle).value - (at_low or middle).value) / middle.value
    errors = [str(outcome) for outcome in found.values() if isinstance(outcome, FomkitError)]
    return Effect(
        parameter=parameter,
        elasticity={name: slope for name, slope in slopes.items() if slope is not None},
        at_half_step=half,
        below=below,
        above=above,
        smooth=max(known) - min(known) <= (ROUGH_WHOLE if parameter.grain else ROUGH),
        step=STEP if not parameter.grain else (pairs[0][1] - parameter.value) / parameter.value,
        low=ends[0],
        high=ends[1],
        at_low=at_low,
        at_high=at_high,
        swing=swing,
        why=errors[0] if errors else "",
    )


SCHEMA = "fomkit/sensitivity/1"
ASSUMED = (
    "one parameter at a time; every op keeps its utilisation on a changed machine",
    "an elasticity is that of the estimate; how well utilisation transfers has not been measured",
)

Varied = TypedDict("Varied", {"from": float, "to": float, "has_interval": bool, "said": str})
EffectContent = TypedDict("EffectContent", {
    "parameter": str, "of": str, "unit": str, "setting": float, "basis": str | None, "source": str | None,
    "elasticity": dict[str, float], "at_half_step": float | None, "below": float | None, "above": float | None,
    "smooth": bool, "kink": bool, "step": float, "varied": Varied, "at_low": Ends | None, "at_high": Ends | None,
    "swing": float, "why": str | None,
})  # fmt: skip

Hanging = TypedDict("Hanging", {
    "schema": str, "fomkit": str, "interval": float, "interval_covers": str, "figure": str,
    "figures": dict[str, Ends], "step": float, "plain_range": float, "parameters": list[EffectContent],
    "not_varied": list[NotVaried], "assumed": list[str],
})  # fmt: skip


class SensitivityContent(Title, ToMeasure, Hanging):
    """The content of ``fomkit/sensitivity/1``."""


@dataclass(frozen=True, repr=False)
class Sensitivity(Shown):
    """The sensitivity of a result to its parameters.

    `figure`: the main figure: fom, else unit_per_day, else sample_per_s, else step_s.
    `effects`: those of the machine, then those of the work (sizes, samples, epochs), each the largest swing first.
    `not_varied` (str, str): parameters that were not varied, each with the reason.
    `to_measure`: ``measurements``, best first, and the notes on them (`Subject.measurements`).
    """

    title: Title
    level: float
    figure: str
    figures: Figures
    effects: tuple[Effect, ...]
    not_varied: tuple[tuple[str, str], ...]
    to_measure: ToMeasure

    @property
    def content(self) -> SensitivityContent:
        """Everything in the form of ``fomkit/sensitivity/1``."""
        return {
            "schema": SCHEMA, "fomkit": __version__, **self.title, "interval": self.level,
            "interval_covers": INTERVAL_MEANING, "figure": self.figure,
            "figures": {name: span_content(span) for name, span in self.figures.items()}, "step": STEP,
            "plain_range": PLAIN_RANGE, "parameters": [_effect(effect) for effect in self.effects],
            "not_varied": [{"parameter": name, "why": why} for name, why in self.not_varied], **self.to_measure,
            "assumed": list(ASSUMED),
        }  # fmt: skip

    def bars(self) -> pd.DataFrame:
        """Return one row for each parameter, in the order of the effects, from which the tornado chart is drawn.

        Returns a DataFrame: parameter, of (machine or model), unit, value, low, high, has_interval, varied (in
        words), at_low, at_high (of the main figure), swing [share], elasticity, smooth, kink.
        """
        rows = [
            {
                "parameter": effect.parameter.name, "of": effect.parameter.of, "unit": effect.parameter.unit,
                "value": effect.parameter.value, "low": effect.low, "high": effect.high,
                "has_interval": effect.parameter.has_interval, "varied": effect.parameter.varied,
                "at_low": None if effect.at_low is None else effect.at_low.value,
                "at_high": None if effect.at_high is None else effect.at_high.value, "swing": effect.swing,
                "elasticity": effect.elasticity[self.figure], "smooth": effect.smooth, "kink": effect.kink,
            }
            for effect in self.effects
        ]  # fmt: skip
        return pd.DataFrame(rows)

    def chart(self) -> alt.LayerChart:
        """Draw the tornado chart, which a notebook shows and ``save`` writes; needs the extra ``report``."""
        chart: alt.LayerChart = self._view.figure(self)
        return chart


def _effect(effect: Effect) -> EffectContent:
    parameter = effect.parameter
    varied = {"from": effect.low, "to": effect.high, "has_interval": parameter.has_interval,
              "said": parameter.varied}  # fmt: skip
    return as_content(
        EffectContent, effect, parameter, parameter=parameter.name, setting=parameter.value, varied=varied
    )


def sensitivity(subject: AnySubject) -> Sensitivity:
    """Compute the sensitivity of a subject's figures to its parameters.

    Elasticities are central differences over 1 % of each parameter, compared with half of it; whole numbers are
    evaluated at their neighbours. The swing is between the bounds of a parameter's own interval, else ±10 %.
    """
    here = subject.figures_at({})
    figure = next(name for name in FIGURES if name in here)
    effects, not_varied = [], subject.not_varied()
    for parameter in subject.parameters():
        effect = effect_of(subject, parameter, here, figure) if parameter.value > 0 else None
        if not parameter.value > 0:
            not_varied.append((parameter.name, "it is 0, which has no logarithm"))
        elif effect is None:
            not_varied.append((parameter.name, "no other value near it can be estimated"))
        elif not effect.moves:
            not_varied.append((parameter.name, "no figure depends on it"))
        else:
            effects.append(effect)
    if not effects:
        raise FomkitError("sensitivity", "no parameter changes a figure. State rates in the machine's profile.")
    # Machine parameters come before those of the work: less work does not make the machine faster.
    ranked = sorted(effects, key=lambda one: (
        one.parameter.of == "model", -one.swing, -abs(one.elasticity[figure]), one.parameter.name,
    ))  # fmt: skip
    to_measure = subject.measurements()
    return Sensitivity(subject.title, subject.level, figure, here, tuple(ranked), tuple(not_varied), to_measure)
