"""Sizes that fill a space evenly: a low-discrepancy sequence in the logarithms, some of them rounded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

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

    Models ask for round sizes and libraries run those by other kernels, so the steps of rounding take turns; what
    is below four steps is only made whole.

    Parameters
    ----------
    count : int
    ranges : mapping
        Least and largest value of each size.
    steps : sequence of int
        Sizes are multiples of one of these, in turn.
    start : int
        Number of the first point of the sequence.
    """
    for place, point in enumerate(halton(count, len(ranges), start)):
        step = steps[place % len(steps)]
        found = {}
        for (name, (low, high)), share in zip(ranges.items(), point, strict=True):
            value = float(np.exp(np.log(low) + share * np.log(high / low)))
            found[name] = rounded(value, step if value >= 4 * step else 1)
        yield found
