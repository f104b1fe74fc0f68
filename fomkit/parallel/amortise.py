"""Overheads of a stack that are paid once a job: their share falls as the job gets longer."""

from __future__ import annotations

from collections.abc import Sequence

from fomkit.spans import Span

SMALL_SHARE = 0.01
"""Share of a job below which what is paid once hardly counts."""


def amortised_share(shares: Sequence[float], times_longer: float) -> float:
    """Give the share of one-off overheads once the job's own work is so many times as long.

    Parameters
    ----------
    shares : sequence of float
        Shares of the time of the job as it is.
    times_longer : float

    Examples
    --------
    >>> round(amortised_share([0.155, 0.181], 10), 3)
    0.048
    """
    once = sum(shares)
    return once / (once + (1 - once) * times_longer)


def times_for_share(shares: Sequence[float], share: float) -> float:
    """Give how many times as long the work must be for one-off overheads to be a given share.

    Examples
    --------
    >>> round(times_for_share([0.155, 0.181], 0.048165), 2)
    10.0
    """
    once = sum(shares)
    return once * (1 - share) / (share * (1 - once))


def work_for_share(once_s: Span, share: float = SMALL_SHARE) -> Span:
    """Give the work [s] beside which a time that is paid once is a given share of the job.

    Examples
    --------
    >>> round(work_for_share(Span.exact(40.0)).value, 9)
    3960.0
    """
    return once_s.scaled((1 - share) / share)
