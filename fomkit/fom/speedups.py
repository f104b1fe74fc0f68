"""Speed-ups that several changes are said to give: their product is naive, and never stands alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from fomkit.errors import FomkitError
from fomkit.spans import Span

LEAST, MOST, MANY = 1e-6, 1e6, 20
"""What is taken for a speed-up, and how many; their product stays finite."""


@dataclass(frozen=True)
class Combined:
    """Claimed speed-ups beside what is modelled of all together.

    Attributes
    ----------
    claimed : mapping
        Factor by what is said to give it, each on its own.
    modelled : Span
        The speed-up of all together, by the model.
    """

    claimed: Mapping[str, float]
    modelled: Span

    @property
    def naive(self) -> float:
        """Product of the factors, as if no change took from what another gains."""
        return math.prod(self.claimed.values())


def combine(claimed: Mapping[str, float], modelled: Span) -> Combined:
    """Put claimed speed-ups beside the modelled one.

    Raises
    ------
    FomkitError
        When a factor is no finite number above 0.

    Examples
    --------
    DAWNBench's five (Coleman et al. 2017): hardware, software, learning rate, statistics, inference.

    >>> five = {"a": 1.25, "b": 3.1, "c": 3, "d": 29, "e": 3}
    >>> round(combine(five, Span(12.0, 9.0, 15.0)).naive, 6)
    1011.375
    """
    for name, factor in claimed.items():
        if not LEAST <= factor <= MOST:
            raise FomkitError(
                name, f"is a speed-up of {factor:g}. Give a factor of {LEAST:g} to {MOST:g}; '+80 %' is 1.8."
            )
    if len(claimed) > MANY:
        raise FomkitError("speed-ups", f"{len(claimed)} are claimed. Give {MANY} or fewer.")
    return Combined(dict(claimed), modelled)
