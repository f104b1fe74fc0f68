"""Power that was read now and then becomes energy: the trapezoid rule, with what lies between the readings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from fomkit.errors import FomkitError
from fomkit.spans import Span

GAP = 3.0
"""Readings that lie so many times their usual distance apart have a gap between them."""


@dataclass(frozen=True)
class Sample:
    """A reading of power [W] at a moment [s]."""

    moment_s: float
    power_w: float


@dataclass(frozen=True)
class Gap:
    """Time [s] without a reading, from a moment on."""

    moment_s: float
    length_s: float


@dataclass(frozen=True)
class Integral:
    """Energy over a time.

    Attributes
    ----------
    energy_j : Span
    wall_s : float
    period_s : float
        Usual distance of readings.
    gaps : tuple of Gap
    """

    energy_j: Span
    wall_s: float
    period_s: float
    gaps: tuple[Gap, ...]

    @property
    def power_w(self) -> Span:
        """Mean power [W]."""
        return self.energy_j.scaled(1 / self.wall_s)


def _at(one: Sample, other: Sample, moment_s: float) -> Sample:
    """Give the reading on the line between two others."""
    share = (moment_s - one.moment_s) / (other.moment_s - one.moment_s)
    return Sample(moment_s, one.power_w + share * (other.power_w - one.power_w))


def _within(samples: Sequence[Sample], start_s: float, end_s: float) -> list[Sample]:
    """Cut readings to a time, with readings made up at its ends on the lines between the real ones."""
    inside: list[Sample] = []
    for one, other in pairwise(samples):
        if other.moment_s <= start_s or one.moment_s >= end_s:
            continue
        first = one if one.moment_s >= start_s else _at(one, other, start_s)
        last = other if other.moment_s <= end_s else _at(one, other, end_s)
        inside += [last] if inside else [first, last]
    return inside


def _check(samples: Sequence[Sample], start_s: float, end_s: float) -> None:
    if len(samples) < 2:
        raise FomkitError("power", f"was read {len(samples)} times; energy needs two readings. Read longer.")
    for one, other in pairwise(samples):
        if not other.moment_s > one.moment_s:
            raise FomkitError(
                "power", f"was read at {one.moment_s:g} s and then at {other.moment_s:g} s. Sort it."
            )
    if not all(math.isfinite(one.power_w) and one.power_w >= 0 for one in samples):
        raise FomkitError("power", "is below 0 or not a number in a reading. Leave that reading out.")
    if not start_s < end_s:
        raise FomkitError("power", f"the end, {end_s:g} s, is not after the start, {start_s:g} s. Swap them.")
    first, last = samples[0].moment_s, samples[-1].moment_s
    if start_s < first or end_s > last:
        raise FomkitError(
            "power",
            f"was read from {first:.15g} to {last:.15g} s, and {start_s:.15g} to {end_s:.15g} s are asked for. "
            "Nothing is made up outside; choose a time inside.",
        )


def integrate(
    samples: Sequence[Sample],
    start_s: float | None = None,
    end_s: float | None = None,
    error_w: float = 0.0,
) -> Integral:
    """Integrate readings of power by the trapezoid rule.

    Between two readings power may have stayed at either for the whole time, and in a gap anywhere between the
    least and the largest reading: that and the instrument's own error make the interval.

    Parameters
    ----------
    samples : sequence of Sample
        In order of time.
    start_s, end_s : float, optional
        What to integrate over [s]; default: from the first to the last reading.
    error_w : float
        What the instrument states of itself, ± [W].

    Raises
    ------
    FomkitError
        When there are fewer than two readings, they are out of order or below 0, or the time goes beyond them.

    Examples
    --------
    >>> integrate([Sample(0.0, 10.0), Sample(1.0, 20.0), Sample(2.0, 20.0)]).energy_j
    Span(value=35.0, low=30.0, high=40.0, level=0.8)
    """
    start = samples[0].moment_s if start_s is None and samples else start_s or 0.0
    end = samples[-1].moment_s if end_s is None and samples else end_s or 0.0
    _check(samples, start, end)
    period = median(other.moment_s - one.moment_s for one, other in pairwise(samples))
    inside = _within(samples, start, end)
    least, most = (choose(one.power_w for one in inside) for choose in (min, max))
    value, below, above, gaps = [], [], [], []
    for one, other in pairwise(inside):
        length = other.moment_s - one.moment_s
        mean, half = (one.power_w + other.power_w) / 2, abs(other.power_w - one.power_w) / 2
        value.append(mean * length)
        if length > GAP * period:
            gaps.append(Gap(one.moment_s, length))
            below.append((mean - least) * length)
            above.append((most - mean) * length)
        else:
            below.append(half * length)
            above.append(half * length)
    energy, error = math.fsum(value), error_w * (end - start)
    low, high = energy - math.fsum(below) - error, energy + math.fsum(above) + error
    return Integral(Span(energy, max(low, 0.0), high), end - start, period, tuple(gaps))
