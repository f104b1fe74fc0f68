"""How much a figure moves with one parameter: its elasticity here, and its swing between two ends."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fomkit.errors import FomkitError
from fomkit.spans import Span
from fomkit.whatif.parameters import Parameter
from fomkit.whatif.subject import Figures, Outcome, Point, Subject

STEP = 0.01
"""Change of a parameter's logarithm on either side of it that an elasticity is taken over."""
ROUGH = 0.01
"""Elasticities that differ by more, between the step and its half or between the two sides, are a kink."""
ROUGH_WHOLE = 0.05
"""The same of whole numbers, whose neighbours are farther away."""
ROUNDING = 1e-9
"""What is less is no movement but the rounding of a sum."""


@dataclass(frozen=True)
class Effect:
    """What one parameter does.

    Attributes
    ----------
    elasticity : mapping
        d ln(figure) / d ln(parameter), by figure.
    at_half_step, below, above : float or None
        The same of the main figure over half the step, and over each side of it alone; None where a whole number
        has no half step, or there is no such side.
    smooth : bool
        They agree.
    step : float
        Change of the parameter on each side, as a share of its value.
    low, high : float
        Ends that the swing is between.
    at_low, at_high : Span or None
        The main figure there; None where it cannot be.
    swing : float
        |at_high - at_low| over the figure as it is.
    why : str
        Why a point could not be had; "" where all could.
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
        """True where the figure rises to one side and falls to the other: no one slope tells of both."""
        if self.smooth or self.below is None or self.above is None:
            return False
        return self.below * self.above < 0 and min(abs(self.below), abs(self.above)) > ROUNDING

    @property
    def moves(self) -> bool:
        """True where any figure moves with it, within rounding."""
        return self.swing > ROUNDING or any(abs(slope) > ROUNDING for slope in self.elasticity.values())


def _around(one: Parameter) -> list[tuple[float, float]]:
    """Give the values below and above at which an elasticity is taken: over the step, then over its half."""
    if not one.grain:
        return [(one.value * math.exp(-step), one.value * math.exp(step)) for step in (STEP, STEP / 2)]
    away = max(1, round(one.value * STEP / one.grain))
    pairs = [(one.value - away * one.grain, one.value + away * one.grain)]
    if half := away // 2:
        pairs.append((one.value - half * one.grain, one.value + half * one.grain))
    return pairs


def _slope(pair: tuple[Outcome | None, Outcome | None], at: tuple[float, float], figure: str) -> float | None:
    low, high = pair
    if not isinstance(low, Mapping) or not isinstance(high, Mapping):
        return None
    return math.log(high[figure].value / low[figure].value) / math.log(at[1] / at[0])


def _central(
    ends: tuple[Outcome | None, Outcome | None], at: tuple[float, float], here: Figures, value: float, figure: str
) -> float | None:
    """Take the slope over both sides, else over the one that there is."""
    tried = (
        _slope(ends, at, figure),
        _slope((here, ends[1]), (value, at[1]), figure),
        _slope((ends[0], here), (at[0], value), figure),
    )
    return next((slope for slope in tried if slope is not None), None)


def _agree(slopes: Sequence[float | None], most: float) -> bool:
    known = [slope for slope in slopes if slope is not None]
    return max(known, default=0.0) - min(known, default=0.0) <= most


def effect_of(subject: Subject, one: Parameter, here: Figures, figure: str) -> Effect | None:
    """Work out what one parameter does to a subject's figures.

    Parameters
    ----------
    subject : Subject
    one : Parameter
        With a value above 0.
    here : mapping
        The figures as they are.
    figure : str
        The main one of them.

    Returns
    -------
    Effect or None
        None where no value beside its own can be had.
    """
    pairs, ends = _around(one), one.ends
    values = list(dict.fromkeys([*(value for pair in pairs for value in pair), *ends]))
    possible = [value for value in values if value > 0 and value != one.value]
    points: list[Point] = [{one.name: value} for value in possible]
    found: dict[float, Outcome] = dict(zip(possible, subject.at(points), strict=True))
    found[one.value] = here
    outcomes = [(found.get(low), found.get(high)) for low, high in pairs]
    slopes = {name: _central(outcomes[0], pairs[0], here, one.value, name) for name in here}
    half = _central(outcomes[1], pairs[1], here, one.value, figure) if len(pairs) > 1 else None
    near, at = outcomes[-1], pairs[-1]
    below = _slope((near[0], here), (at[0], one.value), figure)
    above = _slope((here, near[1]), (one.value, at[1]), figure)
    if slopes[figure] is None:
        return None
    at_low, at_high = (outcome[figure] if isinstance(outcome, Mapping) else None
                       for outcome in (found.get(end) for end in ends))  # fmt: skip
    middle = here[figure]
    swing = abs((at_high or middle).value - (at_low or middle).value) / middle.value
    errors = [str(outcome) for outcome in found.values() if isinstance(outcome, FomkitError)]
    return Effect(
        parameter=one,
        elasticity={name: slope for name, slope in slopes.items() if slope is not None},
        at_half_step=half,
        below=below,
        above=above,
        smooth=_agree([slopes[figure], half, below, above], ROUGH_WHOLE if one.grain else ROUGH),
        step=STEP if not one.grain else (pairs[0][1] - one.value) / one.value,
        low=ends[0],
        high=ends[1],
        at_low=at_low,
        at_high=at_high,
        swing=swing,
        why=errors[0] if errors else "",
    )
