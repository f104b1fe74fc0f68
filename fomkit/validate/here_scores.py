"""Estimates of steps beside the same steps timed: errors, and intervals that use in a step makes wider."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from fomkit.rollup.use import Spread
from fomkit.spans import Span
from fomkit.validate.scores import Cases, interval_scores, make_cases


@dataclass(frozen=True)
class Compared:
    """One model's step, estimated and timed.

    Attributes
    ----------
    name : str
    timed_s : float
        Median of the steps [s].
    span : Span
        The estimate [s].
    """

    name: str
    timed_s: float
    span: Span

    @property
    def log_error(self) -> float:
        """ln(timed / estimated)."""
        return math.log(self.timed_s / self.span.value)

    @property
    def error(self) -> float:
        """Estimated over timed, less 1."""
        return self.span.value / self.timed_s - 1

    @property
    def hit(self) -> bool:
        """True where the interval holds the timed step."""
        return self.span.low <= self.timed_s <= self.span.high

    @property
    def score(self) -> float:
        """Interval score; see `fomkit.validate.scores.interval_scores`."""
        timed_s, low, high = (np.array([one]) for one in (self.timed_s, self.span.low, self.span.high))
        return float(interval_scores(timed_s, low, high, self.span.level)[0])


def _side(errors: Sequence[float], widths: Sequence[float], pooled: float) -> float:
    """Give what errors towards one side have beyond their intervals, as a standard deviation; few are eked out."""
    known = [error**2 - width**2 for error, width in zip(errors, widths, strict=True)]
    return math.sqrt(max((sum(known) + pooled**2) / (len(known) + 1), 0.0))


def use_spread(steps: Sequence[Compared]) -> Spread:
    """Tell what a sum of single ops misses of a step, from steps that were timed.

    Errors of each side, less what the intervals allow for already, with one more that has the spread of all.
    """
    below = [one for one in steps if one.log_error < 0]
    above = [one for one in steps if one.log_error >= 0]

    def width(one: Compared) -> float:
        z = NormalDist().inv_cdf(0.5 + one.span.level / 2)
        end = one.span.high / one.span.value if one.log_error >= 0 else one.span.value / one.span.low
        return math.log(end) / z

    def side(some: Sequence[Compared], pooled: float) -> float:
        return _side([one.log_error for one in some], [width(one) for one in some], pooled)

    pooled = side(steps, 0.0)
    return Spread(side(below, pooled), side(above, pooled))


def widened(one: Compared, spread: Spread) -> Compared:
    """Give an estimate with its interval widened."""
    low, high = spread.widen(one.span.value, one.span.low, one.span.high, one.span.level)
    return replace(one, span=Span(one.span.value, low, high, one.span.level))


def widen_left_out(steps: Sequence[Compared]) -> list[Compared]:
    """Widen each estimate by what the other models tell: none is scored on what it was fitted to.

    A single model has no others and stays as it is.
    """
    if len(steps) < 2:
        return list(steps)
    return [widened(one, use_spread([other for other in steps if other.name != one.name])) for one in steps]


def cases_of(steps: Sequence[Compared]) -> Cases:
    """Give steps as cases to score."""
    columns = zip(*((one.timed_s, one.span.value, one.span.low, one.span.high) for one in steps), strict=True)
    return make_cases(*(np.array(column) for column in columns))
