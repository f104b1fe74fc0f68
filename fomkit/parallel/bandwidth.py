"""The least rate of links at which more devices gain anything: what an exchange costs, solved for the rate."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import NamedTuple

from fomkit.network.collectives import Line, ring_s

SLOWEST, QUICKEST = 1.0, 1e18
"""Rates between which one is looked for [byte/s]."""
_CLOSE = 1e-12
_TRIES = 200


class Needed(NamedTuple):
    """A rate that is needed with its interval [byte/s]; None where none is enough."""

    value: float | None
    low: float | None
    high: float | None


def least_rate(taken_s: Callable[[float], float], room_s: float) -> float | None:
    """Give the least rate at which an exchange takes no longer than there is room for.

    Parameters
    ----------
    taken_s : function
        What the exchange takes [s] at a rate [byte/s]; it never grows with the rate.
    room_s : float
        What it may take [s].

    Returns
    -------
    float or None
        [byte/s]; None where no rate is enough, because starting alone takes longer; 0 where any is.

    Examples
    --------
    A ring of two that may take 0.3 s for the gradients of ResNet-50 needs ``2S/(n·t)``.

    >>> rate = least_rate(lambda rate: ring_s("all_reduce", 102_228_128, 2, Line(0.0, rate)), 0.3)
    >>> round(rate / 1e6, 2)
    340.76
    """
    # Times are straight, or nearly, in seconds a byte: a chord finds the place at once, halving is the safe way.
    quick, slow = 1 / QUICKEST, 1 / SLOWEST
    under, over = taken_s(QUICKEST) - room_s, taken_s(SLOWEST) - room_s
    if under >= 0:
        return None
    if over <= 0:
        return 0.0
    for turn in range(_TRIES):
        chord = quick - under * (slow - quick) / (over - under)
        place = chord if turn % 2 == 0 and quick < chord < slow else sqrt(quick * slow)
        off = taken_s(1 / place) - room_s
        if abs(off) <= _CLOSE * room_s or slow <= quick * (1 + _CLOSE):
            return 1 / place
        if off < 0:
            quick, under = place, off
        else:
            slow, over = place, off
    return 1 / quick


def least_bandwidth(gradient_byte: float, ranks: int, step_s: float, alpha_s: float = 0.0) -> float | None:
    """Give the rate of a ring's links above which ``ranks`` devices train more samples a second than one, by hand.

    Each does what one does in ``step_s``, and its gradients go around in one message: without start-up that is
    ``B > 2S/(n·t)``. What a priced step needs, by any algorithm, is `fomkit.study.least_bandwidth`.

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

    def taken_s(rate: float) -> float:
        return ring_s("all_reduce", gradient_byte, ranks, Line(alpha_s, rate))

    return least_rate(taken_s, (ranks - 1) * step_s)
