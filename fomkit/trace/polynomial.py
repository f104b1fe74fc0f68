"""Short sums of products of named sizes with whole-number factors, found from values at a few points."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import combinations, product
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Point = tuple[int, ...]
"""Values of the named sizes, in the order of their names."""
Exponents = tuple[int, ...]
"""Power of each named size in a product."""

MOST_TERMS = 4
MOST_FACTORS = 3
MOST_POWER = 2


@cache
def _monomials(sizes: int) -> tuple[Exponents, ...]:
    """Give the products to try, the plain ones first: batch, seq, batch·seq, seq², batch·seq² and such."""
    powers = product(range(MOST_POWER + 1), repeat=sizes)
    return tuple(sorted((one for one in powers if sum(one) <= MOST_FACTORS), key=lambda one: (sum(one), one)))


def _value(exponents: Exponents, point: Point) -> int:
    return prod(size**power for size, power in zip(point, exponents, strict=True))


class Candidates:
    """All sums of a few products, prepared for many dimensions traced at the same points.

    A sum of k terms has k unknown factors; every further point checks it. Fewer terms are tried first.

    Parameters
    ----------
    points : sequence of Point
        Where the steps were traced; at least three.
    """

    def __init__(self, points: Sequence[Point]) -> None:
        import numpy as np

        self.points = tuple(points)
        products = _monomials(len(self.points[0]))
        self._columns = {one: [_value(one, point) for point in self.points] for one in products}
        most = min(MOST_TERMS, (len(self.points) + 1) // 2, len(products))
        self._sums: list[tuple[list[tuple[Exponents, ...]], NDArray[np.float64], NDArray[np.float64]]] = []
        for terms in range(1, most + 1):
            chosen = list(combinations(products, terms))
            scale = np.array([[max(self._columns[one]) for one in some] for some in chosen], float)
            matrices = np.array([[self._columns[one] for one in some] for some in chosen], float)
            inverses = np.linalg.pinv(matrices.transpose(0, 2, 1) / scale[:, None, :]) / scale[:, :, None]
            self._sums.append((chosen, inverses, scale))

    def fit(self, values: Sequence[int]) -> dict[Exponents, int] | None:
        """Find the factors of the shortest sum that meets all values exactly; None where no short one does."""
        import numpy as np

        given = np.array(values, float)
        for chosen, inverses, scale in self._sums:
            guesses = inverses @ given
            # Floats leave the more doubt, the less of the values a product makes up.
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
        """Round to whole factors; what rounding left is solved for once more, since floats hold 16 digits only."""
        factors = [round(float(factor)) for factor in guess]
        for _ in range(2):
            rest = self._rest(chosen, factors, values)
            if not any(rest):
                return {one: factor for one, factor in zip(chosen, factors, strict=True) if factor}
            factors = [factor + round(float(more)) for factor, more in zip(factors, inverse @ rest, strict=True)]
        return None

    def _rest(self, chosen: tuple[Exponents, ...], factors: list[int], values: Sequence[int]) -> list[int]:
        columns = [self._columns[one] for one in chosen]
        sums = [
            sum(f * column[at] for f, column in zip(factors, columns, strict=True)) for at in range(len(values))
        ]
        return [int(value) - one for value, one in zip(values, sums, strict=True)]


def write_sum(factors: dict[Exponents, int], names: Sequence[str]) -> str:
    """Write a sum in the language of dimension cells, longer products first.

    Examples
    --------
    >>> write_sum({(0, 0): -4, (1, 2): 12, (1, 0): 1}, ["batch", "seq"])
    '12*batch*seq*seq + batch - 4'
    """
    text = ""
    for exponents in sorted(factors, key=lambda one: (-sum(one), one)):
        factor = factors[exponents]
        letters = [name for name, power in zip(names, exponents, strict=True) for _ in range(power)]
        term = "*".join(([] if letters and abs(factor) == 1 else [str(abs(factor))]) + letters)
        sign = " - " if factor < 0 else " + "
        text += sign + term if text else f"-{term}" if factor < 0 else term
    return text or "0"
