"""The interval of a result of several uncertain quantities, each moved to its ends alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from fomkit.spans import Span


def one_at_a_time(parts: Sequence[Span], result: Callable[[list[float]], float], level: float) -> Span:
    """Give a positive result of quantities whose errors know nothing of each other.

    Each quantity goes to its two ends while the others keep their values; the logarithms of what that changes
    add in quadrature, on each side of the value.

    Parameters
    ----------
    parts : sequence of Span
    result : function of the quantities' values
        Has to be above 0 at all ends.
    level : float
        The level of the intervals of the parts.

    Examples
    --------
    >>> share = one_at_a_time([Span(3.0, 2.0, 4.0), Span(1.0, 1.0, 1.0)], lambda at: at[0] / sum(at), 0.8)
    >>> share.value, round(share.low, 4), share.high
    (0.75, 0.6667, 0.8)
    """
    values = [part.value for part in parts]
    middle = result(values)
    below, above = [0.0], [0.0]
    for place, part in enumerate(parts):
        ends = (part.low, part.high) if part.low < part.high else ()
        moved = [math.log(result([*values[:place], end, *values[place + 1 :]]) / middle) for end in ends]
        below.append(min(0.0, *moved) if moved else 0.0)
        above.append(max(0.0, *moved) if moved else 0.0)
    return Span(middle, middle * math.exp(-math.hypot(*below)), middle * math.exp(math.hypot(*above)), level)
