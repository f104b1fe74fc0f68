"""A value with its interval: sums, products, ratios, the probability of a threshold, what one side leaves out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial, reduce
from statistics import NormalDist

DEFAULT_LEVEL = 0.8
LEAST_LEVEL, MOST_LEVEL = 0.01, 0.999
"""Least and largest level of an interval that may be asked for: no table of errors describes rarer ones."""
ROUNDING = 1e-9
"""Relative difference below which two figures count as equal."""
ALIKE = 2.0
"""Largest ratio of two boards' times of one work for boards of one chip: one that is further apart is another, or
cut, or throttled, whatever its profile says of its chip."""
SAME_CHIP = 0.8
"""Correlation of an op's errors on two boards of one chip, both from facts or both from timings of similar ops.

It is 0.76 to 0.97 on five chips by facts, 0.67 to 0.93 on three by timings, and 0.06 and 0.1 between boards of
different chips; with 0.8, sums of ops are inside their interval on each chip at least 80 times of 100
(docs/adr/0075)."""


@dataclass(frozen=True)
class Span:
    """A positive quantity: its value and the interval that should contain the truth at ``level``.

    `value`, `low`, `high`: in one unit, with ``low <= value <= high``; or arrays of equal shape for many variants,
      which are added, scaled and divided element by element.
    `shared`: share of the error's variance that is common with other work on the same machine; 1 if unknown.
    `common`: shares of the variance by errors that boards of one chip have in common (`SAME_CHIP`), by name; empty
      if unknown.
    """

    value: float
    low: float
    high: float
    level: float = DEFAULT_LEVEL
    shared: float = field(default=1.0, repr=False, compare=False)
    common: tuple[tuple[str, float], ...] = field(default=(), repr=False, compare=False)

    @classmethod
    def exact(cls, value: float, level: float = DEFAULT_LEVEL) -> Span:
        """Return the span of a value known without error."""
        return cls(value, value, value, level)

    @property
    def ends(self) -> tuple[float, float, float]:
        """Value, low and high, in this order."""
        return self.value, self.low, self.high

    def contains(self, value: float) -> bool:
        """Whether a value is in the interval, whose ends belong to it, up to rounding of the last digits."""
        return self.low * (1 - ROUNDING) <= value <= self.high * (1 + ROUNDING)

    def scaled(self, factor: float) -> Span:
        """Multiply by a number known without error, 0 or above."""
        return replace(self, value=self.value * factor, low=self.low * factor, high=self.high * factor)

    def per(self, numerator: float) -> Span:
        """Divide a number known without error by this span; low and high are exchanged."""
        return replace(self, value=numerator / self.value, low=numerator / self.high, high=numerator / self.low)


@lru_cache(maxsize=64)
def half_width(level: float) -> float:
    """Return the half-width of a normal distribution's interval at a level, in standard deviations.

    >>> round(half_width(0.8), 3)
    1.282
    """
    return NormalDist().inv_cdf(0.5 + level / 2)


def level_text(level: float) -> str:
    """Write the level of an interval, without rounding it up to 100 %.

    >>> level_text(0.8), level_text(0.999), level_text(0.985)
    ('80%', '99.9%', '98.5%')
    """
    return f"{100 * level:.4g}%"


def chance_text(chance: float, digits: int = 0) -> str:
    """Write a probability in percent; only 0 and 1 themselves are written as certain.

    >>> chance_text(0.9997), chance_text(0.42), chance_text(0.0001, 1)
    ('>99%', '42%', '<0.1%')
    """
    least = 10.0 ** -(2 + digits)
    if 1 - least < chance < 1:
        return f">{1 - least:.{digits}%}"
    return f"<{least:.{digits}%}" if 0 < chance < least else f"{chance:.{digits}%}"


@lru_cache(maxsize=64)
def op_half_width(level: float) -> float:
    """Return the half-width of one op's interval, in standard deviations of the normal that is equal at 80 %.

    Errors of ops have longer tails than a normal's: for left-out rows of whole tables, of few rows and of devices
    without timings, 95 and 99 % are 1.9 and 3.5 times as wide as 80 %, as for Student's distribution with three
    degrees of freedom (docs/adr/0058). Errors of a step are sums, whose tails are shorter.

    >>> [round(op_half_width(level) / half_width(0.8), 3) for level in (0.5, 0.8, 0.95, 0.99)]
    [0.467, 1.0, 1.943, 3.566]
    """

    def student(probability: float) -> float:
        # The distribution in closed form (Abramowitz and Stegun, 26.7.3), inverted by bisection.
        low, high = 0.0, 1e6
        for _ in range(100):
            x = (low + high) / 2
            angle = math.atan(x / math.sqrt(3))
            reached = 0.5 + (angle + math.sin(angle) * math.cos(angle)) / math.pi
            low, high = (x, high) if reached < probability else (low, x)
        return (low + high) / 2

    return half_width(DEFAULT_LEVEL) * student(0.5 + level / 2) / student(0.5 + DEFAULT_LEVEL / 2)


def of_few(draws: int) -> float:
    """Return the factor on an 80 % interval whose spread is estimated from few draws.

    Student's quantile by its expansion in the normal one, z (Abramowitz and Stegun, 26.7.5), over z.

    >>> round(of_few(5), 3), round(of_few(30), 3)  # 1.533 and 1.311 over 1.282
    (1.196, 1.023)
    """
    z, free = half_width(0.8), draws - 1.0
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return 1 + (first / free + second / free**2 + third / free**3) / z


def _sum_of_ends(terms: Sequence[float]) -> float:
    # Arrays of variants are added in turn; plain numbers without intermediate rounding.
    return math.fsum(terms) if all(isinstance(term, float | int) for term in terms) else sum(terms)


def _longest_end(terms: Sequence[float]) -> float:
    if all(isinstance(term, float | int) for term in terms):
        return max(terms)
    from numpy import maximum

    longest: float = reduce(maximum, terms)
    return longest


def _log_deviations(span: Span) -> tuple[float, float]:
    """Return the standard deviations of the logarithm below and above the value."""
    z = half_width(span.level)
    return math.log(span.value / span.low) / z, math.log(span.high / span.value) / z


def _log_normal(value: float, below: float, above: float, level: float) -> Span:
    z = half_width(level)
    return Span(value, value * math.exp(-z * below), value * math.exp(z * above), level)


def at_level(span: Span, level: float) -> Span:
    """Convert an interval to another level; its logarithm is assumed normal on each side of the value.

    >>> wider = at_level(Span(1.0, 0.5, 2.0, level=0.8), 0.95)
    >>> round(wider.low, 3), round(wider.high, 3)
    (0.346, 2.887)
    """
    if level == span.level or span.low == span.high:  # the value may be 0, which has no logarithm
        return span if level == span.level else replace(span, level=level)
    wider = _log_normal(span.value, *_log_deviations(span), level)
    return replace(wider, shared=span.shared, common=span.common)


def add_common(spans: Iterable[Span]) -> Span:
    """Add quantities with fully correlated errors: values and bounds add.

    The share of the sum's error that is common with other work is the least of its parts'. Boards of a chip have
    errors of the sum in common if they have those of each part without an exact value.

    >>> add_common([Span(2.0, 1.0, 4.0), Span(3.0, 2.0, 5.0)])
    Span(value=5.0, low=3.0, high=9.0, level=0.8)
    """
    parts = list(spans)
    level = parts[0].level if parts else DEFAULT_LEVEL
    value, low, high = (_sum_of_ends([part.ends[end] for part in parts]) for end in range(3))
    common = {part.common for part in parts if part.common}
    alike = len(common) == 1 and all(part.common or part.low == part.high for part in parts)
    shared = min((part.shared for part in parts), default=1.0)
    return Span(value, low, high, level, shared, common.pop() if alike else ())


def add_known(spans: Sequence[Span | None]) -> Span | None:
    """Add as `add_common`; None without any, or if one is unknown: the rest would be taken for the whole.

    >>> add_known([Span(2.0, 1.0, 4.0), None]) is None
    True
    """
    known = [span for span in spans if span is not None]
    return add_common(known) if known and len(known) == len(spans) else None


def add_independent(spans: Iterable[Span]) -> Span:
    """Add quantities with independent errors: values add, half-widths add in quadrature.

    Each side is treated separately, so a skewed interval stays skewed, one dominant part keeps its interval, and
    the result is never wider than `add_common`. Tests compare it with sampling; see docs/adr/0003. If one part
    alone has an error, the sum's error is common with other work as this part's is.

    >>> add_independent([Span(10.0, 7.0, 14.0), Span(10.0, 6.0, 13.0)])
    Span(value=20.0, low=15.0, high=25.0, level=0.8)
    """
    parts = list(spans)
    value = math.fsum(part.value for part in parts)
    below = math.hypot(*(part.value - part.low for part in parts))
    above = math.hypot(*(part.high - part.value for part in parts))
    found = Span(value, value - below, value + above, parts[0].level if parts else DEFAULT_LEVEL)
    uncertain = [part for part in parts if part.high > part.low]
    if len(uncertain) != 1:
        return found
    return replace(found, shared=uncertain[0].shared, common=uncertain[0].common)


def longest_of(spans: Sequence[Span]) -> Span:
    """Return the longest of simultaneous times."""
    value, low, high = (_longest_end([span.ends[end] for span in spans]) for end in range(3))
    # Units of a step are added in another order than its ops, which changes the last digits.
    alike = partial(math.isclose, rel_tol=1e-9)
    common = next(
        (span.common for span in spans if span.common and all(map(alike, span.ends, (value, low, high)))), ()
    )
    return Span(value, low, high, spans[0].level, min(span.shared for span in spans), common)


def correlation_on_chip(one: Span, other: Span) -> float:
    """Return the correlation of two quantities' errors by what boards of one chip have in common; 0 by default.

    >>> correlation_on_chip(*(Span(6.0, 3.0, 12.0, common=(("facts", share),)) for share in (1.0, 0.25)))
    0.4
    """
    shares = dict(other.common) if max(one.value, other.value) <= ALIKE * min(one.value, other.value) else {}
    return SAME_CHIP * math.fsum(math.sqrt(share * shares.get(name, 0.0)) for name, share in one.common)


def share_that_cancels(one: Span, other: Span) -> float:
    """Return the share of the variance of a ratio's logarithm that errors common to two boards of a chip cancel.

    >>> board = Span(6.0, 3.0, 12.0, common=(("facts of a chip", 1.0),))
    >>> share_that_cancels(board, board.scaled(2.0)), share_that_cancels(board, Span(6.0, 3.0, 12.0))
    (0.8, 0.0)
    """
    linked = correlation_on_chip(one, other)
    if not linked:
        return 0.0
    widths = [math.log(span.high / span.low) for span in (one, other)]
    return 2 * linked * math.prod(widths) / math.fsum(width**2 for width in widths)


def divide(numerator: Span, denominator: Span) -> Span:
    """Divide two quantities, as log-normals; their errors are independent unless boards of one chip share them.

    >>> ratio = divide(Span(6.0, 3.0, 12.0), Span(2.0, 2.0, 2.0))
    >>> ratio.value, round(ratio.low, 9), round(ratio.high, 9)
    (3.0, 1.5, 6.0)
    """
    up, down = _log_deviations(numerator), _log_deviations(denominator)
    rest = math.sqrt(1 - share_that_cancels(numerator, denominator))
    below, above = rest * math.hypot(up[0], down[1]), rest * math.hypot(up[1], down[0])
    return _log_normal(numerator.value / denominator.value, below, above, numerator.level)


def multiply_independent(span: Span, other: Span) -> Span:
    """Multiply two quantities with independent errors, as log-normals.

    >>> product = multiply_independent(Span(6.0, 3.0, 12.0), Span(2.0, 2.0, 2.0))
    >>> product.value, round(product.low, 9), round(product.high, 9)
    (12.0, 6.0, 24.0)
    """
    first, second = _log_deviations(span), _log_deviations(other)
    below, above = math.hypot(first[0], second[0]), math.hypot(first[1], second[1])
    return _log_normal(span.value * other.value, below, above, span.level)


def shrinks(now: Span, then: Span) -> float:
    """Return the share of an interval's width by which another interval is narrower; 0 if it has no width.

    >>> shrinks(Span(3.0, 1.0, 5.0), Span(3.0, 2.0, 5.0))
    0.25
    """
    width = now.high - now.low
    return (width - (then.high - then.low)) / width if width > 0 else 0.0


def probability_above(span: Span, threshold: float) -> float:
    """Return the probability that a quantity reaches a threshold above 0; 0 or 1 if no spread is stated.

    The logarithm is assumed normal on each side of the value, with the standard deviations from both bounds.

    >>> probability_above(Span(60.0, 60.0, 60.0), 50.0), round(probability_above(Span(60.0, 50.0, 70.0), 50.0), 6)
    (1.0, 0.9)
    """
    below, above = _log_deviations(span)
    distance = math.log(threshold / span.value)
    deviation = above if distance > 0 else below
    if not deviation:
        return float(distance <= 0)
    return 1 - NormalDist().cdf(distance / deviation)


def reached_with(span: Span, probability: float) -> float:
    """Return the value that a quantity reaches with a probability between 0 and 1; see `probability_above`.

    >>> span = Span(60.0, 50.0, 70.0)
    >>> [round(reached_with(span, share), 6) for share in (0.9, 0.5, 0.1)]
    [50.0, 60.0, 70.0]
    """
    below, above = _log_deviations(span)
    z = NormalDist().inv_cdf(probability)
    return span.value * math.exp(-z * (below if z > 0 else above))


Side = tuple[str, Iterable[str] | None]
"""A machine, and the terms that its rate leaves out; None if unknown."""


def left_out_alone(pairs: Iterable[tuple[Side, Side]]) -> dict[str, list[str]]:
    """Return the terms that one side of some ratios leaves out and the other includes, by machine.

    >>> left_out_alone([(("v100", ["input"]), ("tpu", ["host_launch", "input"]))])
    {'tpu': ['host_launch']}
    """
    found: dict[str, set[str]] = {}
    for (old, of_old), (new, of_new) in pairs:
        if of_old is not None and of_new is not None:
            found.setdefault(new, set()).update({*of_new} - {*of_old})
            found.setdefault(old, set()).update({*of_old} - {*of_new})
    return {name: sorted(terms) for name, terms in found.items() if terms}


def alone_text(alone: Mapping[str, Sequence[str]]) -> str:
    """Write which side of a ratio leaves out terms of the other, which flatters it; "" where neither does.

    >>> alone_text({"tpu": ["host_launch"]})
    'only tpu excludes host_launch, which favours it'
    """
    said = (f"only {name} excludes {', '.join(terms)}, which favours it" for name, terms in alone.items())
    return "; ".join(said)
