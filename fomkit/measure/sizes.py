"""Sizes that fill a space evenly: a low-discrepancy sequence in the logarithms, some of them rounded."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np

Choice = TypeVar("Choice")

PRIMES = (2, 3, 5, 7, 11, 13, 17, 19)


def _digits_reversed(number: int, base: int) -> float:
    """Give the van der Corput number: the digits behind the point, in reverse.

    Examples
    --------
    >>> [_digits_reversed(number, 2) for number in (1, 2, 3)]
    [0.5, 0.25, 0.75]
    """
    value, share = 0.0, 1.0
    while number:
        share /= base
        number, digit = divmod(number, base)
        value += share * digit
    return value


def halton(count: int, axes: int, start: int = 1) -> Iterator[tuple[float, ...]]:
    """Give points that fill the unit cube evenly (Halton, Numerische Mathematik 2, 1960).

    Parameters
    ----------
    count, axes : int
        Points, and their coordinates, at most 8.
    start : int
        Number of the first point.
    """
    for number in range(start, start + count):
        yield tuple(_digits_reversed(number, base) for base in PRIMES[:axes])


def in_turn(choices: Sequence[Choice], count: int, seed: int = 0) -> list[Choice]:
    """Give each choice equally often, in an order that falls in step with nothing.

    Taken strictly in turn, three choices would meet three thirds of the second size of `halton`, one each.

    Examples
    --------
    >>> sorted(in_turn("abc", 6))
    ['a', 'a', 'b', 'b', 'c', 'c']
    """
    found = [choices[place % len(choices)] for place in range(count)]
    random.Random(seed).shuffle(found)  # noqa: S311 - sizes, no secret
    return found


def rounded(value: float, step: int) -> int:
    """Round to a whole multiple of a step, at least one.

    Examples
    --------
    >>> rounded(100.0, 32), rounded(3.0, 32)
    (96, 32)
    """
    return max(1, round(value / step)) * step


def log_sizes(
    count: int, ranges: Mapping[str, tuple[float, float]], steps: Sequence[int] = (1,), start: int = 1
) -> Iterator[dict[str, int]]:
    """Give sizes spread evenly in their logarithms.

    Models ask for round sizes and libraries run those by other kernels, so each step of rounding is taken equally
    often; what is below four steps is only made whole.

    Parameters
    ----------
    count : int
    ranges : mapping
        Least and largest value of each size.
    steps : sequence of int
        Sizes are multiples of one of these.
    start : int
        Number of the first point of the sequence.
    """
    for step, point in zip(in_turn(steps, count, start), halton(count, len(ranges), start), strict=True):
        found = {}
        for (name, (low, high)), share in zip(ranges.items(), point, strict=True):
            value = float(np.exp(np.log(low) + share * np.log(high / low)))
            found[name] = rounded(value, step if value >= 4 * step else 1)
        yield found
