"""A whole number of which more may help or hinder: many values tried, and the nearest that reaches a goal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

Margins = Callable[[Sequence[float]], Sequence[float | None]]
"""From values to margins, of which 0 or more is enough; None where there is no estimate."""
NEAR_SHARE = 0.75
"""Part of the tries that is spent on every value next to the one that is; the others are apart by a factor."""
FIRST, CHUNK = 16, 128
"""Values that are asked at once: in the beginning, and at most."""
DEAD = 16
"""So many values in a row without an estimate end the search on their side."""


def away(value: float, now: float) -> float:
    """Give the size of a change: |ln(value / now)|."""
    return abs(math.log(value / now))


def _next_to(now: float, grain: int, most: float, count: int) -> list[float]:
    """Give the values next to one, the nearest first in ln."""
    bottom, top = max(float(grain), now / most), now * most
    low, high = now - grain, now + grain
    found: list[float] = []
    while len(found) < count and (low >= bottom or high <= top):
        if low >= bottom and (high > top or now / low <= high / now):
            found.append(low)
            low -= grain
        else:
            found.append(high)
            high += grain
    return found


def _apart(edge: float, end: float, count: int) -> Iterator[float]:
    """Give values from an edge to an end, apart by a factor."""
    yield from (edge * (end / edge) ** (place / count) for place in range(1, count + 1))


def candidates(now: float, grain: int, most: float, count: int) -> list[float]:
    """Choose the values that are tried, the nearest first: all next to the one that is, then apart by a factor.

    Examples
    --------
    >>> candidates(4.0, 1, 10.0, 8)
    [5.0, 3.0, 6.0, 7.0, 2.0, 8.0, 14.0, 1.0, 23.0, 40.0]
    """
    near = _next_to(now, grain, most, round(count * NEAR_SHARE))
    edges = (min([*near, now]), max([*near, now]))
    ends = (max(float(grain), now / most), now * most)
    ways = [away(end, edge) for end, edge in zip(ends, edges, strict=True)]
    far: set[float] = set()
    for edge, end, way in zip(edges, ends, ways, strict=True):
        if way > 0:
            parts = math.ceil((count - len(near)) * way / sum(ways)) + 1
            far |= {now + grain * round((value - now) / grain) for value in _apart(edge, end, parts)}
    kept = {value for value in far if value >= grain} - {*near, now}
    return [*near, *sorted(kept, key=lambda value: away(value, now))]


@dataclass
class Search:
    """What is known after some values were tried.

    Attributes
    ----------
    known : dict
        Margin by value; None where there is no estimate.
    """

    margins: Margins
    now: float
    grain: int
    known: dict[float, float | None] = field(default_factory=dict)

    def ask(self, values: Sequence[float]) -> None:
        """Try some values, the smallest first."""
        new = sorted({value for value in values if value not in self.known})
        self.known.update(zip(new, self.margins(new), strict=True))

    @property
    def estimated(self) -> dict[float, float]:
        """Margins of the values that have an estimate."""
        return {value: margin for value, margin in self.known.items() if margin is not None}

    @property
    def reached(self) -> float | None:
        """The nearest value that is enough; None where none is known."""
        enough = [value for value, margin in self.estimated.items() if margin >= 0]
        return min(enough, key=lambda value: away(value, self.now), default=None)

    def is_dead(self, asked: Sequence[float], sign: int) -> bool:
        """Tell whether a side has no more estimates."""
        side = [self.known[value] for value in asked if (value - self.now) * sign > 0]
        return len(side) >= DEAD and all(margin is None for margin in side)

    def outward(self, values: Sequence[float]) -> None:
        """Try values from the nearest on, until one is enough or nothing can be estimated any more."""
        left, size = list(values), FIRST
        while left and self.reached is None:
            chunk, left = left[:size], left[size:]
            self.ask(chunk)
            dead = [sign for sign in (1, -1) if self.is_dead(chunk, sign)]
            left = [value for value in left if not any((value - self.now) * sign > 0 for sign in dead)]
            size = min(2 * size, CHUNK)

    def around(self, value: float, count: int) -> None:
        """Try what lies between a value and its neighbours that were tried."""
        below = max((one for one in [*self.known, self.now] if one < value), default=value)
        above = min((one for one in [*self.known, self.now] if one > value), default=value)
        places = max(1, round((above - below) / self.grain))
        every = max(1, math.ceil(places / count))
        self.ask([below + place * self.grain for place in range(every, places, every)])


def search(margins: Margins, now: float, grain: int, most: float, count: int) -> Search:
    """Try whole numbers from the nearest on.

    Nothing is proved: a value between those that were tried may reach the goal, or reach it with a smaller change.

    Parameters
    ----------
    margins : callable
    now : float
        The value that is, whose margin is below 0.
    grain : int
        By which it changes at least.
    most : float
        Factor by which it is changed at most.
    count : int
        About how many values are tried.
    """
    found = Search(margins, now, grain)
    found.outward(candidates(now, grain, most, count))
    known = found.estimated
    centre = found.reached if found.reached is not None else max(known, key=lambda one: known[one], default=None)
    if centre is not None:
        found.around(centre, max(1, round(count * (1 - NEAR_SHARE))))
    return found
