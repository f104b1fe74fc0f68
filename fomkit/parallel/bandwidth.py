"""The least bandwidth at which more devices gain anything, without overlap."""

from __future__ import annotations


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
