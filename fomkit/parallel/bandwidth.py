"""The least bandwidth at which more devices gain anything, without overlap."""

from __future__ import annotations

from typing import NamedTuple

from fomkit.spans import Span


class Needed(NamedTuple):
    """A rate that is needed with its interval [byte/s]; None where none is enough."""

    value: float | None
    low: float | None
    high: float | None


def least_bandwidth(gradient_byte: float, ranks: int, step_s: float, alpha_s: float = 0.0) -> float | None:
    """Give the rate of a ring's links above which ``ranks`` devices train more samples a second than one.

    Each does what one does in ``step_s``; together they gain once the sum over replicas takes less than
    ``(n - 1) · step_s``: ``B > 2S/(n·t)`` where starting costs nothing. The same holds where one batch is shared
    out, of which each does an n-th in an n-th of ``step_s``: then ``B > 2S/t``; give ``step_s/n``.

    Parameters
    ----------
    gradient_byte : float
    ranks : int
    step_s : float
        Time of one device's step [s].
    alpha_s : float
        Start-up of a message [s].

    Returns
    -------
    float or None
        [byte/s]; None where starting alone takes longer than there is, and for one rank.

    Examples
    --------
    >>> round(least_bandwidth(102_228_128, 2, 0.3) / 1e6, 2)
    340.76
    """
    if ranks < 2:
        return None
    room = (ranks - 1) * step_s - 2 * (ranks - 1) * alpha_s
    return 2 * (ranks - 1) / ranks * gradient_byte / room if room > 0 else None


def needed_between(gradient_byte: float, ranks: int, step: Span, alpha: Span) -> Needed:
    """Give `least_bandwidth` with its interval: a longer step and a quicker start need less.

    Examples
    --------
    >>> step, alpha = Span(0.3, 0.2, 0.6), Span.exact(0.0)
    >>> [round(rate / 1e6, 2) for rate in needed_between(102_228_128, 2, step, alpha)]
    [340.76, 170.38, 511.14]
    """
    ends = (step.value, alpha.value), (step.high, alpha.low), (step.low, alpha.high)
    return Needed(*(least_bandwidth(gradient_byte, ranks, step_s, alpha_s) for step_s, alpha_s in ends))
