"""Counters of energy that run round: what lies between two readings."""

from __future__ import annotations

from fomkit.errors import FomkitError

MOST_W = 2000.0
"""More than one processor takes [W]: a counter that may have gone round twice at this power tells nothing."""


def counted(before: float, after: float, most: float, wall_s: float) -> float:
    """Give what a counter [J] went forward between two readings, once round at most.

    Parameters
    ----------
    before, after : float
        Readings [J].
    most : float
        Where the counter begins anew at 0 [J].
    wall_s : float
        Time between the readings [s].

    Raises
    ------
    FomkitError
        When a reading lies outside the counter, or the time is so long that it may have gone round twice.

    Examples
    --------
    >>> counted(10.0, 25.0, 100.0, 1e-2), counted(90.0, 5.0, 100.0, 1e-2)
    (15.0, 15.0)
    """
    for reading in (before, after):
        if not 0 <= reading <= most:
            raise FomkitError(
                "energy counter", f"reads {reading:g} J and ends at {most:g} J. Nothing is made of it."
            )
    forward = after - before if after >= before else after - before + most
    # A look after each turn was missed if the power could have brought it round more than once.
    if wall_s * MOST_W - forward >= most:
        said = (
            f"begins anew every {most:g} J and was not looked at for {wall_s:.3g} s: it may have gone round twice"
        )
        raise FomkitError("energy counter", f"{said}. Measure shorter.")
    return forward
