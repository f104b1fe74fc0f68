"""Figure of merit: how many times more units of work a day one machine does than another.

The lecture's mean (Foster & Stevens 2018, lecture 10) is the ratio of the two machines' harmonic mean rates. It is
a harmonic mean of the ratios, weighted by the time each line takes on the baseline.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, geometric_mean, harmonic_mean

from fomkit.errors import FomkitError
from fomkit.quantities import DAY_S
from fomkit.spans import Span, divide_independent

MEAN = "ratio_of_harmonic_means"


@dataclass(frozen=True)
class Rates:
    """Units per day of one machine, one entry for each line of work, at one scope."""

    machine: str
    scope: str
    unit_per_day: Mapping[str, Span]


@dataclass(frozen=True)
class FigureOfMerit:
    """The figure of merit with everything needed to argue with it.

    Attributes
    ----------
    value : Span
        Ratio of harmonic mean rates, target over baseline.
    ratios : mapping
        Rate of the target over that of the baseline, by line.
    weights : mapping
        The weight each line's ratio really has in the value; they sum to 1.
    other_means : mapping
        Harmonic, geometric and arithmetic mean of the ratios.
    mean_rates : mapping
        Harmonic mean rate [1/day] of the baseline and of the target.
    with_whole_rates : float
        The value when every rate is first cut to a whole number, as the lecture prints it; NaN below one a day.
    """

    baseline: Rates
    target: Rates
    value: Span
    ratios: Mapping[str, Span]
    weights: Mapping[str, float]
    other_means: Mapping[str, float]
    mean_rates: Mapping[str, float]
    with_whole_rates: float
    mean: str = MEAN


def unit_per_day(unit_s: Span, runs_at_once: float) -> Span:
    """Turn the time of one unit of work into units per day.

    Parameters
    ----------
    unit_s : Span
        Time of one unit on the devices it occupies [s].
    runs_at_once : float
        Units in progress at the same time.

    Examples
    --------
    >>> unit_per_day(Span.exact(60 * 3600.0), 18_688).value
    7475.2
    """
    return unit_s.per(DAY_S * runs_at_once)


def harmonic_rate(rates: Sequence[Span]) -> Span:
    """Take the harmonic mean of rates whose errors go together.

    Examples
    --------
    >>> round(harmonic_rate([Span.exact(7475.2), Span.exact(74752.0), Span.exact(37376.0)]).value, 4)
    17250.4615
    """
    return Span(
        harmonic_mean([rate.value for rate in rates]),
        harmonic_mean([rate.low for rate in rates]),
        harmonic_mean([rate.high for rate in rates]),
        rates[0].level,
    )


def _whole(rates: Sequence[Span]) -> float:
    cut = [math.floor(rate.value) for rate in rates]
    return harmonic_mean(cut) if all(cut) else math.nan


def figure_of_merit(baseline: Rates, target: Rates) -> FigureOfMerit:
    """Compare two machines over the same lines of work.

    Raises
    ------
    FomkitError
        When the scopes or the lines differ.
    """
    where = f"fom of {target.machine} over {baseline.machine}"
    if baseline.scope != target.scope:
        raise FomkitError(
            where,
            f"the baseline's rates are per {baseline.scope} and the target's per {target.scope}. "
            "State --scope so that both are the same.",
        )
    if set(baseline.unit_per_day) != set(target.unit_per_day) or not baseline.unit_per_day:
        missing = set(baseline.unit_per_day) ^ set(target.unit_per_day)
        raise FomkitError(where, f"both machines need a rate for every line. Missing on one: {sorted(missing)}.")
    lines = list(baseline.unit_per_day)
    old = [baseline.unit_per_day[line] for line in lines]
    new = [target.unit_per_day[line] for line in lines]
    ratios = {line: divide_independent(b, a) for line, a, b in zip(lines, old, new, strict=True)}
    points = [ratio.value for ratio in ratios.values()]
    day_per_unit = [1 / rate.value for rate in old]
    mean_old, mean_new = harmonic_rate(old), harmonic_rate(new)
    return FigureOfMerit(
        baseline,
        target,
        divide_independent(mean_new, mean_old),
        ratios,
        {line: share / math.fsum(day_per_unit) for line, share in zip(lines, day_per_unit, strict=True)},
        {"harmonic": harmonic_mean(points), "geometric": geometric_mean(points), "arithmetic": fmean(points)},
        {"baseline": mean_old.value, "target": mean_new.value},
        _whole(new) / _whole(old),
    )
