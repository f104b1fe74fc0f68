"""Figure of merit: how many times more units of work a day one machine does than another.

The lecture's mean (Foster & Stevens 2018, lecture 10) is the ratio of the two machines' harmonic mean rates. It is
a harmonic mean of the ratios, weighted by the time each line takes on the baseline.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import harmonic_mean

from fomkit.errors import FomkitError
from fomkit.fom.means import MEANS, implied_weights, take_mean
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
    mean : str
        The mean that ``value`` is taken by, a key of `fomkit.fom.means.MEANS`.
    value : Span
        How many times faster the target is.
    ratios : mapping
        Rate of the target over that of the baseline, by line.
    weights : mapping
        The weight each line's ratio really has in the value; they sum to 1.
    others : mapping
        The value by every other mean, with intervals made as that of the chosen one.
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
    others: Mapping[str, Span]
    mean_rates: Mapping[str, float]
    with_whole_rates: float
    mean: str

    @property
    def other_means(self) -> Mapping[str, float]:
        """Give the value by every other mean, without intervals."""
        return {name: span.value for name, span in self.others.items()}


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


def _whole(rates: Sequence[Span]) -> float:
    cut = [math.floor(rate.value) for rate in rates]
    return harmonic_mean(cut) if all(cut) else math.nan


def _merit(mean: str, old: Sequence[Span], new: Sequence[Span], weights: Sequence[float]) -> Span:
    """Take a mean whose errors go together on each machine and know nothing of each other across the two."""

    def of(new_rates: Sequence[float], old_rates: Sequence[float]) -> float:
        return math.log(take_mean(mean, new_rates, old_rates, weights))

    values = [rate.value for rate in new], [rate.value for rate in old]
    middle = of(*values)
    below = math.hypot(
        middle - of([rate.low for rate in new], values[1]), middle - of(values[0], [rate.high for rate in old])
    )
    above = math.hypot(
        of([rate.high for rate in new], values[1]) - middle, of(values[0], [rate.low for rate in old]) - middle
    )
    value = take_mean(mean, *values, weights)
    return Span(value, value * math.exp(-below), value * math.exp(above), new[0].level)


def _check_alike(baseline: Rates, target: Rates) -> None:
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


def figure_of_merit(
    baseline: Rates, target: Rates, mean: str = MEAN, weights: Mapping[str, float] | None = None
) -> FigureOfMerit:
    """Compare two machines over the same lines of work.

    Parameters
    ----------
    baseline, target : Rates
    mean : str
        A key of `fomkit.fom.means.MEANS`.
    weights : mapping, optional
        Weight of each line in the weighted means; default: all 1.

    Raises
    ------
    FomkitError
        When the scopes or the lines differ.
    """
    _check_alike(baseline, target)
    lines = list(baseline.unit_per_day)
    old = [baseline.unit_per_day[line] for line in lines]
    new = [target.unit_per_day[line] for line in lines]
    by_line = [1.0 if weights is None else weights[line] for line in lines]
    old_values, new_values = ([rate.value for rate in rates] for rates in (old, new))
    shares = implied_weights(mean, old_values, by_line)
    return FigureOfMerit(
        baseline=baseline,
        target=target,
        value=_merit(mean, old, new, by_line),
        ratios={line: divide_independent(b, a) for line, a, b in zip(lines, old, new, strict=True)},
        weights=dict(zip(lines, shares, strict=True)),
        others={name: _merit(name, old, new, by_line) for name in MEANS if name != mean},
        mean_rates={"baseline": harmonic_mean(old_values), "target": harmonic_mean(new_values)},
        with_whole_rates=_whole(new) / _whole(old) if mean == MEAN else math.nan,
        mean=mean,
    )
