"""The smallest change of one parameter that reaches a goal (`solve_one`), or the reason why none does.

Of a whole number that has no known better direction, many values are tried (`search`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span
from fomkit.plan.memory import largest_that_fits
from fomkit.profiles.metrics import title_of
from fomkit.whatif.cases import Figures, Goal, Point
from fomkit.whatif.parameters import Parameter
from fomkit.whatif.subjects import AnySubject

Margins = Callable[[Sequence[float]], Sequence[float | None]]
"""Function from values to margins, of which 0 or more is enough; None where there is no estimate."""
NEAR_SHARE = 0.75
"""Share of the tries for values directly next to the current one; the others are spaced by a factor."""
FIRST, CHUNK = 16, 128
"""Number of values that are evaluated at once: at first, and at most."""
DEAD = 16
"""Number of consecutive values without an estimate that ends the search on their side."""


def log_change(value: float, now: float) -> float:
    """Return the size of a change: |ln(value / now)|."""
    return abs(math.log(value / now))


def _nearest_values(now: float, grain: int, most: float, count: int) -> list[float]:
    """Return the values next to the current one, the nearest in ln first."""
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


def candidates(now: float, grain: int, most: float, count: int) -> list[float]:
    """Return the values to try, the nearest first: all next to the current one, then values spaced by a factor.

    >>> candidates(4.0, 1, 10.0, 8)
    [5.0, 3.0, 6.0, 7.0, 2.0, 8.0, 14.0, 1.0, 23.0, 40.0]
    """
    near = _nearest_values(now, grain, most, round(count * NEAR_SHARE))
    edges = (min([*near, now]), max([*near, now]))
    ends = (max(float(grain), now / most), now * most)
    ways = [log_change(end, edge) for end, edge in zip(ends, edges, strict=True)]
    far: set[float] = set()
    for edge, end, way in zip(edges, ends, ways, strict=True):
        if way > 0:
            parts = math.ceil((count - len(near)) * way / sum(ways)) + 1
            apart = (edge * (end / edge) ** (place / parts) for place in range(1, parts + 1))
            far |= {now + grain * round((value - now) / grain) for value in apart}
    kept = {value for value in far if value >= grain} - {*near, now}
    return [*near, *sorted(kept, key=lambda value: log_change(value, now))]


@dataclass
class Search:
    """The results for the values that were tried.

    `known`: margin by value; None where there is no estimate.
    """

    margins: Margins
    now: float
    grain: int
    known: dict[float, float | None] = field(default_factory=dict)

    def evaluate(self, values: Sequence[float]) -> None:
        """Evaluate some values, the smallest first."""
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
        return min(enough, key=lambda value: log_change(value, self.now), default=None)

    def is_dead(self, tried: Sequence[float], sign: int) -> bool:
        """Check whether a side has no more estimates."""
        side = [self.known[value] for value in tried if (value - self.now) * sign > 0]
        return len(side) >= DEAD and all(margin is None for margin in side)

    def outward(self, values: Sequence[float]) -> None:
        """Try values from the nearest on, until one is enough or no side has estimates any more."""
        left, size = list(values), FIRST
        while left and self.reached is None:
            chunk, left = left[:size], left[size:]
            self.evaluate(chunk)
            dead = [sign for sign in (1, -1) if self.is_dead(chunk, sign)]
            left = [value for value in left if not any((value - self.now) * sign > 0 for sign in dead)]
            size = min(2 * size, CHUNK)

    def around(self, value: float, count: int) -> None:
        """Try the values between a value and its neighbours that were tried."""
        below = max((one for one in [*self.known, self.now] if one < value), default=value)
        above = min((one for one in [*self.known, self.now] if one > value), default=value)
        places = max(1, round((above - below) / self.grain))
        every = max(1, math.ceil(places / count))
        self.evaluate([below + place * self.grain for place in range(every, places, every)])


def search(margins: Margins, now: float, grain: int, most: float, count: int) -> Search:
    """Try whole numbers from the nearest on.

    Nothing is proved: a value between the tried ones may reach the goal, or reach it with a smaller change.

    `now`: the current value, whose margin is below 0; `grain`: its smallest change; `most`: the largest factor of
    its change; `count`: approximate number of values to try.
    """
    found = Search(margins, now, grain)
    found.outward(candidates(now, grain, most, count))
    known = found.estimated
    centre = found.reached if found.reached is not None else max(known, key=lambda one: known[one], default=None)
    if centre is not None:
        found.around(centre, max(1, round(count * (1 - NEAR_SHARE))))
    return found


MOST = 1000.0
"""Largest factor by which a parameter is changed."""
NEAR = 1e-10
"""Tolerance of a root in ln(parameter)."""
STILL = 1e-9
"""Changes of a margin below this count as none."""


@dataclass(frozen=True)
class Change:
    """The result of changing one parameter alone.

    `value`: value at which the goal is reached; where it is not reached, the value that comes nearest.
    `figure`: the figure of the goal there, estimated again.
    `probability`: that the goal is reached there.
    `why`: why it is not reached; "" where it is.
    `proved`: false where only some values were tried: another one may reach the goal, or with a smaller change.
    `unfit`: message if a device's memory does not hold a step there; "" where it does, or this is unknown.
    """

    parameter: Parameter
    reached: bool
    value: float
    factor: float
    figure: Span
    probability: float
    why: str = ""
    proved: bool = True
    unfit: str = ""


@dataclass
class Evaluator:
    """A subject and a goal; every point is evaluated once."""

    subject: AnySubject
    goal: Goal
    most: float = MOST
    _known: dict[tuple[tuple[str, float], ...], Figures | FomkitError] = field(default_factory=dict)

    def figures(self, point: Point) -> Figures | FomkitError:
        """Return the figures at a point, or the error that prevents them."""
        key = tuple(sorted(point.items()))
        if key not in self._known:
            (self._known[key],) = self.subject.at([point])
        return self._known[key]

    def margins(self, name: str, values: Sequence[float]) -> list[float | None]:
        """Return the goal's margins at values of one parameter, all evaluated together."""
        points = [{name: value} for value in values]
        keys = [((name, value),) for value in values]
        self._known.update(zip(keys, self.subject.at(points), strict=True))
        return [self.margin(point) for point in points]

    def margin(self, point: Point) -> float | None:
        """Return the goal's margin at a point; None where there are no figures."""
        found = self.figures(point)
        return None if isinstance(found, FomkitError) else self.goal.margin(found)

    def change(self, parameter: Parameter, value: float, why: str = "") -> Change:
        """Return the change of a parameter to a value, with the figures there."""
        found = self.subject.figures_at({parameter.name: value})
        span, probability = self.goal.span(found), self.goal.reached(found)
        proved = not parameter.grain or (parameter.of == "model" and parameter.better != 0)
        unfit = "" if proved else self.subject.unfit({parameter.name: value})
        return Change(parameter, not why, value, value / parameter.value, span, probability, why, proved, unfit)

    def not_found(self, parameter: Parameter, tried: int, best: float) -> Change:
        """Return the change to the nearest of the values tried, none of which is enough."""
        waits = self.subject.binding({parameter.name: best})
        values = "1 value" if tried == 1 else f"{tried:,} values"
        return self.change(
            parameter,
            best,
            f"not found among {values} tried; nearest at {best:,.0f}, where steps wait for {waits}",
        )

    def still(self, parameter: Parameter, values: Sequence[float]) -> bool:
        """Check that none of some values of a parameter moves the goal's figure."""
        now = self.margin({})
        margins = [self.margin({parameter.name: value}) for value in values]
        return now is not None and all(margin is None or abs(margin - now) < STILL for margin in margins)


def solve_one(evaluator: Evaluator, parameter: Parameter) -> Change:
    """Find the smallest change of one parameter, above 0, that reaches a goal.

    For a whole number without a known better direction, it is the smallest among the values tried: all next to the
    current one, then values spaced by a factor. For other whole numbers, and for rates, times and shares, a
    farther value on the better side is assumed to be never worse; values without an estimate are skipped.
    """
    if not parameter.grain:
        return _solve_real(evaluator, parameter)
    return _solve_whole(evaluator, parameter) if parameter.better else _solve_any_whole(evaluator, parameter)


def root(evaluator: Evaluator, start: Point, directions: Point, farthest: float) -> float | None:
    """Find the distance from a point, with every parameter moved along its direction in ln, that reaches the goal.

    `start`: current parameters; `directions`: d ln(parameter) by name, for each unit of the way; `farthest`: where
    the search ends. Returns the shortest way whose margin is 0 or more; None where the farthest is not enough.
    """
    from scipy.optimize import brentq

    def at(way: float) -> Point:
        return {name: start[name] * math.exp(way * slope) for name, slope in directions.items()}

    def margin(way: float) -> float:
        found = evaluator.figures(at(way))
        if isinstance(found, FomkitError):
            raise found
        return evaluator.goal.margin(found)

    if margin(farthest) < 0:
        return None
    if margin(0.0) >= 0:
        return 0.0
    way = float(brentq(margin, 0.0, farthest, xtol=NEAR))
    # The root is between two floats; the result must be on the side that reaches the goal.
    while margin(way) < 0 and way < farthest:
        way = min(way + NEAR, farthest)
    return way


def _solve_real(evaluator: Evaluator, parameter: Parameter) -> Change:
    up, down = parameter.value * evaluator.most, parameter.value / evaluator.most
    if parameter.unit == "share" and not parameter.name.startswith("overhead/"):
        up = min(up, 1.0)
    ends = {1: (up,), -1: (down,), 0: (up, down)}[parameter.better]
    margins = {end: evaluator.margin({parameter.name: end}) for end in ends}
    known = {end: margin for end, margin in margins.items() if margin is not None}
    if not known:
        raise FomkitError(parameter.name, f"cannot be changed by {evaluator.most:g} times.")
    best = max(known, key=lambda end: known[end])
    if known[best] >= 0:
        change = math.log(best / parameter.value)
        way = root(
            evaluator, {parameter.name: parameter.value}, {parameter.name: math.copysign(1.0, change)}, abs(change)
        )
        return evaluator.change(parameter, parameter.value * math.exp(math.copysign(way or 0.0, change)))
    return _out_of_reach(evaluator, parameter, list(known), best)


def _out_of_reach(evaluator: Evaluator, parameter: Parameter, tried: Sequence[float], best: float) -> Change:
    if evaluator.still(parameter, tried):
        return evaluator.change(parameter, best, f"{title_of(evaluator.goal.figure)} does not depend on it")
    waits = evaluator.subject.binding({parameter.name: best})
    factor = f"{best / parameter.value:.4g}"
    return evaluator.change(parameter, best, f"even at its best, {factor} times, steps wait for {waits}")


def _solve_whole(evaluator: Evaluator, parameter: Parameter) -> Change:
    """Try doubling steps, then those between the last that fails and the first that is enough."""
    far = math.floor((parameter.value * evaluator.most - parameter.value) / parameter.grain)
    if parameter.better < 0:
        far = math.floor(parameter.value / parameter.grain) - 1
    tried = list[float]()

    def value_at(steps: int) -> float:
        return parameter.value + parameter.better * steps * parameter.grain

    def fails(steps: int) -> bool:
        margin = evaluator.margin({parameter.name: value_at(steps)})
        tried.extend([value_at(steps)] * (margin is not None))
        return margin is None or margin < 0

    if (failed := largest_that_fits(fails, far)) < far:
        return evaluator.change(parameter, value_at(failed + 1))
    if not tried:
        raise FomkitError(parameter.name, "has no other value that can be estimated.")
    best = max(tried, key=lambda value: evaluator.margin({parameter.name: value}) or -math.inf)
    if parameter.of == "machine" and not evaluator.still(parameter, tried):
        return evaluator.not_found(parameter, len(tried), best)
    return _out_of_reach(evaluator, parameter, tried, best)


def _solve_any_whole(evaluator: Evaluator, parameter: Parameter) -> Change:
    """Try many values of a whole number without a known better direction."""
    found = search(
        lambda values: evaluator.margins(parameter.name, values), parameter.value, parameter.grain, evaluator.most,
        evaluator.subject.tries,
    )  # fmt: skip
    if found.reached is not None:
        return evaluator.change(parameter, found.reached)
    known = found.estimated
    if not known:
        raise FomkitError(
            parameter.name, f"has no other value that can be estimated among {len(found.known):,} tried."
        )
    best = max(known, key=lambda value: known[value])
    if evaluator.still(parameter, list(known)):
        return _out_of_reach(evaluator, parameter, list(known), best)
    return evaluator.not_found(parameter, len(known), best)
