"""Sizes as names: dimensions traced at several sizes become expressions in ``batch``, ``seq`` and other names.

An expression is a short sum of products of named sizes with whole-number factors. `Candidates` fits such sums to
values, `name_sizes` applies them to the ops of a step.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations, product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fomkit.core.errors import FomkitError, nearest_names
from fomkit.frontends.lowering.calls import Dimensions, TracedOp, add_counts, add_lines

Point = tuple[int, ...]
"""Values of the named sizes, in the order of their names."""
Exponents = tuple[int, ...]
"""Power of each named size in a product."""

NO_BATCH = "'batch_size' is missing. Give it, for example: batch_size = 100, or pass --batch 100."
"""What a file without a batch is told; with ``--batch``, it is traced at that batch."""

MAX_TERMS = 4
MAX_FACTORS = 3
MAX_POWER = 2


@cache
def _monomials(sizes: int) -> tuple[Exponents, ...]:
    """Return the products to try, low degrees first: batch, seq, batch·seq, seq², batch·seq² and so on.

    A cube, such as the triples of a batch or of residues, stands alone or beside the first size.
    """
    powers = product(range(MAX_POWER + 1), repeat=sizes)
    few = (power for power in powers if sum(power) <= MAX_FACTORS)
    cubes = (
        power for power in product((0, 1, 3), repeat=sizes) if 3 in power and sum(power) == 3 + (power[0] == 1)
    )
    return tuple(sorted({*few, *cubes}, key=lambda power: (sum(power), power)))


class Candidates:
    """All sums of a few products, prepared for many dimensions traced at the same points.

    A sum of k terms has k unknown factors; every further point checks it. Short sums are tried first.

    `points`: where the steps were traced; at least three.
    """

    def __init__(self, points: Sequence[Point]) -> None:
        self.points = tuple(points)
        products = _monomials(len(self.points[0]))
        self._columns = {
            one: [prod(size**power for size, power in zip(point, one, strict=True)) for point in self.points]
            for one in products
        }
        most = min(MAX_TERMS, (len(self.points) + 1) // 2, len(products))
        self._sums: list[tuple[list[tuple[Exponents, ...]], NDArray[np.float64], NDArray[np.float64]]] = []
        for terms in range(1, most + 1):
            chosen = list(combinations(products, terms))
            scale = np.array([[max(self._columns[one]) for one in some] for some in chosen], float)
            matrices = np.array([[self._columns[one] for one in some] for some in chosen], float)
            inverses = np.linalg.pinv(matrices.transpose(0, 2, 1) / scale[:, None, :]) / scale[:, :, None]
            self._sums.append((chosen, inverses, scale))

    def fit(self, values: Sequence[int]) -> dict[Exponents, int] | None:
        """Return the factors of the shortest sum that meets all values exactly; None if no short sum does."""
        given = np.array(values, float)
        for chosen, inverses, scale in self._sums:
            guesses = inverses @ given
            # The tolerance grows as the share of the product in the values falls, because of floating-point error.
            near = np.abs(guesses - np.rint(guesses)) < 0.01 + 1e-9 * np.abs(given).max() / scale
            for place in np.flatnonzero(near.all(axis=1)):
                found = self._refined(chosen[place], inverses[place], guesses[place], values)
                if found is not None:
                    return found
        return None

    def _refined(
        self, chosen: tuple[Exponents, ...], inverse: NDArray[np.float64], guess: NDArray[np.float64],
        values: Sequence[int],
    ) -> dict[Exponents, int] | None:  # fmt: skip
        """Round to whole factors, and correct them by the remaining residuals, since floats hold 16 digits."""
        factors = [round(float(factor)) for factor in guess]
        for _ in range(2):
            rows = zip(*(self._columns[one] for one in chosen), strict=True)
            sums = (sum(f * product for f, product in zip(factors, row, strict=True)) for row in rows)
            rest = [int(value) - one for value, one in zip(values, sums, strict=True)]
            if not any(rest):
                return {one: factor for one, factor in zip(chosen, factors, strict=True) if factor}
            factors = [factor + round(float(more)) for factor, more in zip(factors, inverse @ rest, strict=True)]
        return None


def write_sum(factors: dict[Exponents, int], names: Sequence[str]) -> str:
    """Write a sum in the language of dimension cells, longer products first.

    >>> write_sum({(0, 0): -4, (1, 2): 12, (1, 0): 1}, ["batch", "seq"])
    '12*batch*seq*seq + batch - 4'
    """
    text = ""
    for exponents in sorted(factors, key=lambda factor: (-sum(factor), factor)):
        factor = factors[exponents]
        letters = [name for name, power in zip(names, exponents, strict=True) for _ in range(power)]
        term = "*".join(([] if letters and abs(factor) == 1 else [str(abs(factor))]) + letters)
        sign = " - " if factor < 0 else " + "
        text += sign + term if text else f"-{term}" if factor < 0 else term
    return text or "0"


Number = int | float
Sizes = Mapping[str, int]
FLAGS = ("trans_a", "trans_b")
"""Flags decided by strides, which do not count for an axis of length 1: the largest sizes decide."""


class NoExpression(Exception):  # noqa: N818 - a verdict, not a fault
    """The steps at several sizes are not one step with named sizes; the message says where."""


class OtherOps(NoExpression):
    """The steps at several sizes run different ops, so that steps at more sizes are of no use."""


class _Namer:
    """Writes the values of one dimension at all points as one expression."""

    def __init__(self, sizes: Sequence[Sizes], names: Sequence[str]) -> None:
        self.sizes, self.names = sizes, names
        points = [tuple(size[name] for name in names) for size in sizes]
        self.largest = max(range(len(points)), key=lambda place: points[place])
        self._candidates = Candidates(points)
        self._known: dict[tuple[Number, ...], str | None] = {}

    def expression(self, values: tuple[Any, ...]) -> Any:
        """Return the number that all values equal, or an expression that meets them, or None."""
        if len(set(values)) == 1:
            return values[0]
        if values not in self._known:
            whole = all(value == int(value) for value in values)
            factors = self._candidates.fit([int(value) for value in values]) if whole else None
            self._known[values] = None if factors is None else write_sum(factors, self.names)
        return self._known[values]

    @property
    def sizes_text(self) -> str:
        """The sizes at which the steps were traced, only those that change."""
        changing = [name for name in self.names if len({size[name] for size in self.sizes}) > 1]
        return "; ".join(f"{name} {', '.join(str(size[name]) for size in self.sizes)}" for name in changing)


def _named_dimensions(ops: Sequence[TracedOp], namer: _Namer) -> Dimensions:
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
            raise NoExpression(f"{name} of {first.op} in '{first.module}' is {listed} at {namer.sizes_text}")
        found[name] = written
    return found


def _joined_steps(steps: Sequence[Sequence[TracedOp]], namer: _Namer) -> Iterator[TracedOp]:
    if len({len(step) for step in steps}) > 1:
        steps = _equal_joined(steps, namer)
    for ops in zip(*steps, strict=True):
        if len({op.identity for op in ops}) > 1:
            other = next(op for op in ops if op.identity != ops[0].identity)
            where = f"{ops[0].op} in '{ops[0].module}'"
            raise OtherOps(f"{where} becomes {other.op}, at one of {namer.sizes_text}")
        parts = list(_joined_steps([op.parts for op in ops], namer))
        count = namer.expression(tuple(op.count if isinstance(op.count, float) else int(op.count) for op in ops))
        if count is None:
            times = ", ".join(str(op.count) for op in ops)
            raise NoExpression(f"{ops[0].op} in '{ops[0].module}' runs {times} times at {namer.sizes_text}")
        yield replace(ops[0], dimensions=_named_dimensions(ops, namer), parts=parts, count=count)


def execution_keys(step: Sequence[TracedOp], often: Sequence[Counter[tuple[str, ...]]]) -> list[object]:
    """Return keys by which executions of a step are one row; ops that run equally often in all steps stay apart.

    Those may be equal by chance at one of the sizes, for example two sums, one of them over as many numbers as the
    batch has samples. `often`: how often each op runs in each step; empty: none stay apart.
    """
    return [place if len({one[op.identity] for one in often}) == 1 else op.key for place, op in enumerate(step)]


def _equal_joined(steps: Sequence[Sequence[TracedOp]], namer: _Namer) -> list[list[TracedOp]]:
    """Join equal executions in steps of different length, such as loops over a sequence."""
    for often in [], [Counter(op.identity for op in step) for step in steps]:
        found = []
        for step in steps:
            counted: dict[object, TracedOp] = {}
            for key, op in zip(execution_keys(step, often), step, strict=True):
                if known := counted.get(key):
                    count = add_counts(known.count, op.count)
                    op = replace(known, count=count, lines=add_lines(known.lines, op.lines))
                counted[key] = op
            found.append(list(counted.values()))
        if len({len(step) for step in found}) == 1:
            return found
    counts = ", ".join(str(len(step)) for step in steps)
    raise OtherOps(f"the number of ops is {counts} at {namer.sizes_text}")


def name_sizes(
    steps: Sequence[Sequence[TracedOp]], sizes: Sequence[Sizes], names: Sequence[str]
) -> list[TracedOp]:
    """Join the traces of one step at several sizes into one step whose dimensions are expressions in the names.

    `steps`: the ops of the step at each of ``sizes``; `sizes`: at least three; sizes not among ``names`` are the
    same in all; `names`: the sizes to write expressions in. Raises NoExpression when the ops differ, or a
    dimension is no short sum of products of the sizes.
    """
    return list(_joined_steps(steps, _Namer(sizes, names)))


MakeInputs = Callable[[Sizes], Any]


def call_inputs(make: Callable[..., Any], sizes: Sizes) -> Any:
    """Call an inputs function: the batch by position, other sizes by name."""
    return make(sizes["batch"], **{name: size for name, size in sizes.items() if name != "batch"})


def chosen_sizes(known: dict[str, int], wanted: Sizes, where: str) -> dict[str, int]:
    """Return the sizes of the inputs, replaced by the requested ones; raise for a size that inputs lacks."""
    for name in wanted:
        if name not in known:
            raise FomkitError(where, f"inputs has no size {name!r}. {nearest_names(name, known)}")
    return {**known, **wanted}


def named_sizes(make: Any, where: str) -> dict[str, int]:
    """Return the sizes that an inputs function defines: parameters whose default is a whole number.

    Its first parameter is the batch, whatever its name.

    >>> named_sizes(lambda n=32, seq=1024, causal=True: None, "model.py")
    {'batch': 32, 'seq': 1024}
    """
    try:
        parameters = inspect.signature(make).parameters.values()
    except ValueError:  # a builtin without a signature
        return {}
    if not parameters:
        raise FomkitError(where, "inputs takes no argument. A function of the batch was expected: inputs(batch).")
    sizes = {}
    for place, parameter in enumerate(parameters):
        if isinstance(parameter.default, bool) or not isinstance(parameter.default, int):
            continue
        if parameter.default < 1:
            what = f"inputs has {parameter.name}={parameter.default}"
            raise FomkitError(where, f"{what}. A size of 1 or more was expected.")
        sizes[parameter.name if place else "batch"] = parameter.default
    return sizes
