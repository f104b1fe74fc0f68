"""Figure of merit: the ratio of the units of work a day of two machines, over several lines, by several means.

The lecture's mean is the ratio of harmonic mean rates (Foster & Stevens 2018, lecture 10): a harmonic mean of the
ratios, weighted by the time each line takes on the baseline. With a weight for each line it is the ratio of two
sustained rates P_tot = 3600 / Σ(w·t·n/N) of procurements. The weighted geometric mean of speed-ups is NERSC's
sustained system improvement, SSNI = N·(Π Sᵢ^wᵢ)^(1/Σw); at system scope the ratios already include N.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import harmonic_mean
from typing import TYPE_CHECKING, Literal, TypeVar

from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span, correlation_on_chip, divide, share_that_cancels
from fomkit.core.machine import Machine

if TYPE_CHECKING:
    from fomkit.core.job import Suite

Numbers = Sequence[float]
Mean = Callable[[Numbers, Numbers, Numbers], float]


def _time_ratio(new: Numbers, old: Numbers, weights: Numbers) -> float:
    time_old = math.fsum(weight / rate for weight, rate in zip(weights, old, strict=True))
    return time_old / math.fsum(weight / rate for weight, rate in zip(weights, new, strict=True))


def _harmonic(new: Numbers, old: Numbers, weights: Numbers) -> float:
    parts = (weight * b / a for weight, a, b in zip(weights, new, old, strict=True))
    return math.fsum(weights) / math.fsum(parts)


def _geometric(new: Numbers, old: Numbers, weights: Numbers) -> float:
    logs = (weight * math.log(a / b) for weight, a, b in zip(weights, new, old, strict=True))
    return math.exp(math.fsum(logs) / math.fsum(weights))


def _arithmetic(new: Numbers, old: Numbers, weights: Numbers) -> float:
    parts = (weight * a / b for weight, a, b in zip(weights, new, old, strict=True))
    return math.fsum(parts) / math.fsum(weights)


MEANS: Mapping[str, Mean] = {
    "ratio_of_harmonic_means": _time_ratio,
    "weighted_harmonic": _time_ratio,
    "harmonic": _harmonic,
    "geometric": _geometric,
    "arithmetic": _arithmetic,
}
"""Functions of the target's rates, the baseline's rates and the lines' weights."""

WEIGHTED = ("weighted_harmonic", "geometric")
"""The means in which lines have weights; the others count each line once."""

OF_RATES = tuple(name for name, mean in MEANS.items() if mean is _time_ratio)
"""The means of rates, which are meaningful where all lines have the same unit; the others are means of ratios."""


def _weights(name: str, weights: Numbers | None, count: int) -> Numbers:
    return weights if weights is not None and name in WEIGHTED else [1.0] * count


def take_mean(name: str, new: Numbers, old: Numbers, weights: Numbers | None = None) -> float:
    """Compute a mean of the speed-ups of one machine over another.

    `name`: a key of `MEANS`; `new`, `old`: units per day of the target and of the baseline, line by line, all
    above 0; `weights`: used by the means in `WEIGHTED`; default: all 1.

    >>> round(take_mean("geometric", [564e3, 4512e3, 9024e3], [7475.2, 74752.0, 37376.0]), 6)
    103.213445
    """
    return MEANS[name](new, old, _weights(name, weights, len(new)))


def implied_weights(name: str, old: Numbers, weights: Numbers | None = None) -> list[float]:
    """Return each line's share in a mean; shares sum to 1.

    In the harmonic means a share is the weight of a ratio's reciprocal, in the geometric that of its logarithm, in
    the arithmetic that of the ratio. In the ratio of harmonic means it is a share of the baseline's time.
    """
    shares = list(_weights(name, weights, len(old)))
    if MEANS[name] is _time_ratio:
        shares = [share / rate for share, rate in zip(shares, old, strict=True)]
    total = math.fsum(shares)
    return [share / total for share in shares]


def mean_rate(name: str, rates: Numbers, weights: Numbers) -> float:
    """Take the mean whose ratio a figure of merit by a mean of rates is; by another, harmonic of each rate once.

    >>> mean_rate("weighted_harmonic", [1.0, 2.0], [1.0, 3.0])
    1.6
    """
    return harmonic_mean(rates, _weights(name, weights, len(rates)) if name in OF_RATES else None)


MEAN = "ratio_of_harmonic_means"


@dataclass(frozen=True)
class Rates:
    """Units per day of one machine, one entry for each line of work, at one scope."""

    machine: str
    scope: str
    unit_per_day: Mapping[str, Span]


@dataclass(frozen=True)
class FigureOfMerit:
    """The figure of merit and the figures that it follows from.

    `mean`: the mean of ``value``, a key of `fomkit.merit.fom.MEANS`.
    `value`: how many times faster the target is.
    `ratios`: rate of the target over that of the baseline, by line.
    `weights`: the effective weight of each line's ratio in the value; they sum to 1.
    `others`: the value by every other mean, with its interval.
    `mean_rates`: harmonic mean rate [1/day] of the baseline and of the target; weighted if `mean` weighs rates.
    `with_whole_rates`: the value with every rate cut to a whole number, as in the lecture; NaN below one a day.
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
        """The value by every other mean, without intervals."""
        return {name: span.value for name, span in self.others.items()}

    @property
    def errors_cancel(self) -> Mapping[str, float] | None:
        """The share of the variance of each line's ratio that cancels on boards of one chip; None if none does."""
        sides = self.baseline.unit_per_day, self.target.unit_per_day
        shares = {line: share_that_cancels(*(side[line] for side in sides)) for line in self.ratios}
        return {line: share for line, share in shares.items() if share} or None


def _whole_rates(rates: Sequence[Span]) -> float:
    cut = [math.floor(rate.value) for rate in rates]
    return harmonic_mean(cut) if all(cut) else math.nan


Pull = Callable[[Numbers, Numbers, Numbers], Numbers]

_TERMS: Mapping[str, Pull] = {
    "harmonic": lambda new, old, _: [b / a for a, b in zip(new, old, strict=True)],
    "geometric": lambda _, __, weights: weights,
    "arithmetic": lambda new, old, _: [a / b for a, b in zip(new, old, strict=True)],
}
"""The terms of a mean, from the target's rates, the baseline's and the weights; a mean of rates adds up times."""


def _elasticities(mean: str, new: Numbers, old: Numbers, weights: Numbers, side: Numbers) -> list[float]:
    """Return the derivatives of a mean's logarithm by that of each line's rate on one side; they sum to 1."""
    terms = _TERMS[mean](new, old, weights) if mean in _TERMS else implied_weights(mean, side, weights)
    return [term / math.fsum(terms) for term in terms]


def _own_variance(spans: Sequence[Span], pulls: Numbers, end: str, cancel: Numbers) -> float:
    """Return the variance of a mean's logarithm towards one end from the errors that lines do not share."""
    return math.fsum(
        (pull * math.log(getattr(span, end) / span.value)) ** 2 * (1 - span.shared) * (1 - part)
        for span, pull, part in zip(spans, pulls, cancel, strict=True)
    )


def _shared_rates(spans: Sequence[Span], end: str) -> list[float]:
    """Return the rates moved towards one end by the part of their errors that lines share."""
    return [span.value * (getattr(span, end) / span.value) ** math.sqrt(span.shared) for span in spans]


def _shared_that_cancels(sides: Sequence[tuple[Sequence[Span], Numbers]], linked: Numbers) -> float:
    """Return the share of the variance by errors that lines share which cancels between boards of one chip.

    Of one line it is `share_that_cancels`. Each line counts by its part of the width of both means, so that narrow
    lines cancel no error of wide ones.
    `sides`: the spans and pulls of each machine; `linked`: the correlation of each line's errors.
    """
    widths = [[pull * math.log(span.high / span.low) for span, pull in zip(*side, strict=True)] for side in sides]
    found = 2 * math.prod(
        math.fsum(part * math.sqrt(of) for part, of in zip(width, linked, strict=True)) for width in widths
    )
    return found and found / math.fsum(math.fsum(width) ** 2 for width in widths)


def _mean_with_ends(mean: str, old: Sequence[Span], new: Sequence[Span], weights: Sequence[float]) -> Span:
    """Compute a mean of lines on two machines with its interval.

    On one machine, the shared part of errors (`Span.shared`) is fully correlated; the rest is independent from
    line to line and adds in quadrature. Errors of two machines are independent, unless they are boards of one
    chip: then a share cancels, line by line (`share_that_cancels`), and of the shared part `_shared_that_cancels`.
    """

    def of(new_rates: Sequence[float], old_rates: Sequence[float]) -> float:
        return math.log(take_mean(mean, new_rates, old_rates, weights))

    rates = [rate.value for rate in new], [rate.value for rate in old]
    middle, (pulls, old_pulls) = of(*rates), (_elasticities(mean, *rates, weights, side) for side in rates)
    cancel, linked = (
        [share(*pair) for pair in zip(new, old, strict=True)]
        for share in (share_that_cancels, correlation_on_chip)
    )
    rest = 1 - _shared_that_cancels(((new, pulls), (old, old_pulls)), linked)

    def reach(end: str, other: str) -> float:
        shared = of(_shared_rates(new, end), rates[1]) - middle, of(rates[0], _shared_rates(old, other)) - middle
        own = _own_variance(new, pulls, end, cancel) + _own_variance(old, old_pulls, other, cancel)
        return math.sqrt(rest * math.hypot(*shared) ** 2 + own)

    value = take_mean(mean, *rates, weights)
    ends = value * math.exp(-reach("low", "high")), value * math.exp(reach("high", "low"))
    return Span(value, *ends, new[0].level)


def figure_of_merit(
    baseline: Rates, target: Rates, mean: str = MEAN, weights: Mapping[str, float] | None = None
) -> FigureOfMerit:
    """Compare two machines over the same lines of work, by a mean of `MEANS`; by default all weigh the same."""
    where, lines = f"fom of {target.machine} over {baseline.machine}", list(baseline.unit_per_day)
    if baseline.scope != target.scope:
        per = f"the baseline's rates are per {baseline.scope} and the target's per {target.scope}"
        raise FomkitError(where, f"{per}. Give --scope so that both are the same.")
    if (missing := {*lines} ^ {*target.unit_per_day}) or not lines:
        raise FomkitError(where, f"both machines need a rate for every line. Missing on one: {sorted(missing)}.")
    old = [baseline.unit_per_day[line] for line in lines]
    new = [target.unit_per_day[line] for line in lines]
    by_line = [1.0 if weights is None else weights[line] for line in lines]
    old_values, new_values = ([rate.value for rate in rates] for rates in (old, new))
    shares = implied_weights(mean, old_values, by_line)
    return FigureOfMerit(
        baseline=baseline,
        target=target,
        value=_mean_with_ends(mean, old, new, by_line),
        ratios={line: divide(b, a) for line, a, b in zip(lines, old, new, strict=True)},
        weights=dict(zip(lines, shares, strict=True)),
        others={name: _mean_with_ends(name, old, new, by_line) for name in MEANS if name != mean},
        mean_rates={
            side: mean_rate(mean, rates, by_line)
            for side, rates in (("baseline", old_values), ("target", new_values))
        },
        with_whole_rates=_whole_rates(new) / _whole_rates(old) if mean == MEAN else math.nan,
        mean=mean,
    )


def merit_of_rates(
    suite: Suite, machines: tuple[Machine, Machine], sides: Sequence[Mapping[str, Span]]
) -> FigureOfMerit | None:
    """Compare two machines over the lines of a suite for which both have a rate; None where there is none."""
    both = [line.name for line in suite.lines if all(line.name in side for side in sides)]
    if not both:
        return None
    old, new = (
        Rates(machine.name, suite.scope, {name: side[name] for name in both})
        for machine, side in zip(machines, sides, strict=True)
    )
    return figure_of_merit(old, new, suite.mean, {line.name: line.weight for line in suite.lines})


Word = TypeVar("Word", bound=str)

REACHED, MISSED = 0.9, 0.1
"""Probability of reaching a threshold from which it counts as reached, and up to which it counts as missed."""
PROPOSAL = ("meets", "does not meet", "ambiguous")
"""Words of the JSON for a proposal compared with a threshold."""
Acceptance = Literal["met", "missed", "ambiguous", "not measured"]
ACCEPTANCE: tuple[Acceptance, Acceptance, Acceptance] = ("met", "missed", "ambiguous")
"""Words of every text and workbook for a threshold that is reached, missed, and neither."""


def verdict(chance: float, words: tuple[Word, Word, Word]) -> Word:
    """Select the word for a probability of reaching a threshold: reached, missed, or neither.

    >>> verdict(0.9, ACCEPTANCE), verdict(0.5, ACCEPTANCE), verdict(0.1, ACCEPTANCE)
    ('met', 'ambiguous', 'missed')
    """
    reached, missed, neither = words
    return reached if chance >= REACHED else missed if chance <= MISSED else neither
