"""Sizes as names: dimensions traced at several sizes become expressions in ``batch``, ``seq`` and such."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fomkit.trace.calls import Dimensions, TracedOp, add_lines
from fomkit.trace.polynomial import Candidates, write_sum

Number = int | float
Sizes = Mapping[str, int]
FLAGS = ("trans_a", "trans_b")
"""Decided by strides, which an axis of length 1 leaves open: the largest sizes decide."""


class NoExpression(Exception):  # noqa: N818 - a verdict, not a fault
    """The steps at several sizes are not one step with named sizes; the message says where."""


class _Namer:
    """Writes the values that one dimension has at all points as one expression."""

    def __init__(self, sizes: Sequence[Sizes], names: Sequence[str]) -> None:
        self.sizes, self.names = sizes, names
        points = [tuple(one[name] for name in names) for one in sizes]
        self.largest = max(range(len(points)), key=lambda place: points[place])
        self._candidates = Candidates(points)
        self._known: dict[tuple[Number, ...], str | None] = {}

    def expression(self, values: tuple[Any, ...]) -> Any:
        """Give the number that all values are, or the expression that meets them, or None."""
        if len(set(values)) == 1:
            return values[0]
        if values not in self._known:
            whole = all(value == int(value) for value in values)
            factors = self._candidates.fit([int(value) for value in values]) if whole else None
            self._known[values] = None if factors is None else write_sum(factors, self.names)
        return self._known[values]

    @property
    def told(self) -> str:
        """Say at which sizes the steps were traced, those that change."""
        changing = [name for name in self.names if len({one[name] for one in self.sizes}) > 1]
        return "; ".join(f"{name} {', '.join(str(one[name]) for one in self.sizes)}" for name in changing)


def _dimensions(ops: Sequence[TracedOp], namer: _Namer) -> Dimensions:
    first, found = ops[0], Dimensions()
    for name, value in first.dimensions.items():
        values = [op.dimensions.get(name) for op in ops]
        if name in FLAGS:
            decided = values[namer.largest]
            found[name] = value if decided is None else decided
            continue
        numbers = tuple(number for number in values if isinstance(number, int | float))
        same = value if len(set(values)) == 1 else None
        written = namer.expression(numbers) if len(numbers) == len(ops) else same
        if written is None:
            listed = ", ".join(str(item) for item in values)
            raise NoExpression(f"{name} of {first.op} in '{first.module}' is {listed} at {namer.told}")
        found[name] = written
    return found


def _together(steps: Sequence[Sequence[TracedOp]], namer: _Namer) -> Iterator[TracedOp]:
    if len({len(step) for step in steps}) > 1:
        steps = _joined(steps, namer)
    for ops in zip(*steps, strict=True):
        if len({op.identity for op in ops}) > 1:
            other = next(op for op in ops if op.identity != ops[0].identity)
            raise NoExpression(f"{ops[0].op} in '{ops[0].module}' becomes {other.op}, at one of {namer.told}")
        parts = list(_together([op.parts for op in ops], namer))
        count = namer.expression(tuple(int(op.count) for op in ops))
        if count is None:
            times = ", ".join(str(op.count) for op in ops)
            raise NoExpression(f"{ops[0].op} in '{ops[0].module}' runs {times} times at {namer.told}")
        yield replace(ops[0], dimensions=_dimensions(ops, namer), parts=parts, count=count)


def _one_more(known: TracedOp, op: TracedOp) -> TracedOp:
    return replace(known, count=int(known.count) + 1, lines=add_lines(known.lines, op.lines))


def _joined(steps: Sequence[Sequence[TracedOp]], namer: _Namer) -> list[list[TracedOp]]:
    """Join equal executions of steps that differ in length: a loop over a sequence runs as often as it is long."""
    found = []
    for step in steps:
        counted: dict[object, TracedOp] = {}
        for op in step:
            key = (op.identity, tuple(op.dimensions.items()))
            known = counted.get(key)
            counted[key] = _one_more(known, op) if known else op
        found.append(list(counted.values()))
    if len({len(step) for step in found}) > 1:
        counts = ", ".join(str(len(step)) for step in steps)
        raise NoExpression(f"the number of ops is {counts} at {namer.told}")
    return found


def name_sizes(
    steps: Sequence[Sequence[TracedOp]], sizes: Sequence[Sizes], names: Sequence[str]
) -> list[TracedOp]:
    """Join the traces of one step at several sizes into one whose dimensions are expressions in the names.

    Parameters
    ----------
    steps : list of lists of TracedOp
        The ops of the step at each of ``sizes``.
    sizes : list of mappings
        At least three; those that are not among ``names`` are the same in all.
    names : list of str
        The sizes to write expressions in.

    Raises
    ------
    NoExpression
        When the ops differ, or a dimension is no short sum of products of the sizes.
    """
    return list(_together(steps, _Namer(sizes, names)))
