"""One step traced at several values of each named size, so that its dimensions become expressions in the names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from fomkit.trace.calls import TracedOp
from fomkit.trace.order_table import name_order
from fomkit.trace.step import Step
from fomkit.trace.symbolic import NoExpression, Sizes, name_sizes

BATCH = "batch"
Trace = Callable[[Sizes], Step]


class Refused(NoExpression):
    """The code does not run at some sizes."""


def _attempts(name: str, value: int) -> Iterator[tuple[int, ...]]:
    """Give four further values to trace a size at, then others for code that refuses the first ones.

    A batch may grow. Any other size shrinks first, since tables of positions end at its value; odd values show
    what rounds, and where the code refuses those, halves and quarters may do.
    """
    if name == BATCH or value < 8:
        yield 2 * value, 3 * value, 5 * value, 7 * value
        return
    yield value - 1, value // 2 + 1, value // 3 + 2, 2 * value // 3 + 1
    yield value // 2, value // 4, 3 * value // 4, value // 8
    yield 2 * value, 3 * value, 4 * value, 5 * value


@dataclass
class _Exploration:
    """Traces at the points tried, those that fit together, and the reason for each size that stays fixed."""

    trace: Trace
    sizes: Sizes
    ops: list[TracedOp]
    traced: dict[tuple[int, ...], Step | Exception] = field(default_factory=dict)
    points: list[Sizes] = field(default_factory=list)
    values: dict[str, tuple[int, ...]] = field(default_factory=dict)
    fixed: dict[str, str] = field(default_factory=dict)

    def at(self, sizes: Sizes) -> Step:
        """Give the step at a point, traced once; a step that failed there fails again."""
        point = tuple(sizes.values())
        if point not in self.traced:
            try:
                self.traced[point] = self.trace(sizes)
            except Exception as error:  # whatever the user's code raises at sizes it was not written for
                self.traced[point] = error
        found = self.traced[point]
        if isinstance(found, Exception):
            changed = ", ".join(f"{name} {sizes[name]}" for name in sizes if sizes[name] != self.sizes[name])
            told = str(found).strip().split("\n")[0]
            raise Refused(f"at {changed} the step raises {type(found).__name__}: {told:.200}") from found
        return found

    def _further(self, name: str, values: tuple[int, ...]) -> list[Sizes]:
        """Give a point for each value; the sizes named before change along, so that their products show."""
        points: list[Sizes] = []
        for place, value in enumerate(values):
            others = {other: known[(place + 1) % len(known)] for other, known in self.values.items()}
            points.append({**self.sizes, **others, name: value})
        return points

    def add(self, name: str) -> None:
        """Name one more size, or note why it stays fixed."""
        for values in _attempts(name, self.sizes[name]):
            try:
                self._name(name, values[:2])
                return
            except Refused as reason:
                self._stays(name, reason)
                continue
            except NoExpression as reason:
                self._stays(name, reason)
            with suppress(NoExpression):  # two more points show longer sums
                self._name(name, values)
            return

    def _stays(self, name: str, reason: NoExpression) -> None:
        self.fixed[name] = f"the sizes hold for {name} {self.sizes[name]} only: {reason}"

    def _name(self, name: str, values: tuple[int, ...]) -> None:
        points = [*self.points, *self._further(name, values)]
        steps = [self.at(point).ops for point in points]
        self.ops = name_sizes(steps, points, [*self.values, name])
        self.values[name], self.points = (self.sizes[name], *values), points
        self.fixed.pop(name, None)

    def order(self) -> tuple[list[TracedOp], list[str]]:
        """Give the order with as many sizes named as can be, and why others hold at their value only."""
        names = list(self.values)
        for most in range(len(names), 0, -1):
            some = names[:most]
            points = [one for one in self.points if all(one[name] == self.sizes[name] for name in names[most:])]
            with suppress(NoExpression):
                return name_order([self.at(one).order for one in points], points, some), _stay(names[most:])
        return self.at(self.sizes).order, _stay(names)


def _stay(names: list[str]) -> list[str]:
    return [f"the order of the ops, and so the memory, holds at one {' and '.join(names)} only"] if names else []


@dataclass(frozen=True)
class SizedStep:
    """A step whose sizes have names.

    Attributes
    ----------
    step : Step
        At the sizes given.
    sizes : mapping
        Their values by name.
    ops, order : list of TracedOp
        Its ops and lines, with sizes as names.
    fixed, notes : list of str
        Why a size has to stay fixed; what else is to be said.
    """

    step: Step
    sizes: Sizes
    ops: list[TracedOp]
    order: list[TracedOp]
    fixed: list[str]
    notes: list[str]


def _explore(trace: Trace, sizes: Sizes, step: Step) -> SizedStep:
    point = tuple(sizes.values())
    exploration = _Exploration(trace, sizes, step.ops, {point: step}, [sizes])
    for name in sizes:
        exploration.add(name)
    order, notes = exploration.order()
    return SizedStep(step, sizes, exploration.ops, order, list(exploration.fixed.values()), notes)


def trace_sizes(trace: Trace, sizes: Sizes) -> SizedStep:
    """Trace a step; give it with sizes as names, and for each size that has to stay fixed why.

    Parameters
    ----------
    trace : function of the sizes
        Gives the step at them.
    sizes : mapping
        Value of each named size; ``batch`` comes first.

    Raises
    ------
    Exception
        What the step raises at the sizes given.
    """
    step = trace(sizes)
    found = _explore(trace, sizes, step)
    if not (found.fixed or found.notes):
        return found
    # The first step may have filled caches or lazy layers, which no later step does again.
    again = trace(sizes)
    if again.ops == step.ops and again.order == step.order:
        return found
    return _explore(trace, sizes, again)
