"""The lecture's cut: the few groups that make up most of a measure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import accumulate
from typing import NamedTuple

from fomkit.errors import FomkitError


class Cut(NamedTuple):
    """The fewest groups that reach a share of a measure, the largest first, and the share that they reach."""

    groups: tuple[str, ...]
    reached: float


def fewest(amounts: Mapping[str, float], share: float) -> Cut:
    """Find the fewest groups that together reach a share of the total.

    Parameters
    ----------
    amounts : mapping
        Amount of each group, 0 or more; groups whose amount is unknown (NaN) take no part.
    share : float
        Above 0 and at most 1.

    Raises
    ------
    FomkitError
        When the share is not between 0 and 1, or no amount is known.

    Examples
    --------
    >>> fewest({"Add": 22.0, "MatMul": 115.0, "Fill": 1.0}, 0.95)
    Cut(groups=('MatMul', 'Add'), reached=0.9927536231884058)
    """
    if not 0 < share <= 1:
        raise FomkitError("--top", f"{share:g} is no share of a total. Write, for example, '--top 95%'.")
    known = sorted(
        ((name, amount) for name, amount in amounts.items() if not math.isnan(amount)),
        key=lambda entry: entry[1],
        reverse=True,
    )
    total = math.fsum(amount for _, amount in known)
    if total <= 0:
        raise FomkitError("--top", "nothing of this measure is known. Choose another with --measure.")
    so_far = list(accumulate(amount for _, amount in known))
    # A sum of floats may miss the whole by its last digits.
    needed = next(place for place, reached in enumerate(so_far, start=1) if reached >= share * total * (1 - 1e-12))
    return Cut(tuple(name for name, _ in known[:needed]), so_far[needed - 1] / total)
