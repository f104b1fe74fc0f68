"""What failures, checkpoints and queues leave of a system's time."""

from __future__ import annotations

from math import exp, expm1, sqrt


def young_s(checkpoint_s: float, mtbf_s: float) -> float:
    """Give the first-order best interval between checkpoints (Young, CACM 17(9), 1974) [s].

    Examples
    --------
    >>> young_s(60.0, 12_000.0)
    1200.0
    """
    return sqrt(2 * checkpoint_s * mtbf_s)


def daly_s(checkpoint_s: float, mtbf_s: float) -> float:
    """Give the higher-order best interval (Daly, FGCS 22(3), 2006, equation 37) [s].

    Examples
    --------
    >>> round(daly_s(60.0, 12_000.0), 1)
    1160.3
    """
    if checkpoint_s >= 2 * mtbf_s:
        return mtbf_s
    ratio = sqrt(checkpoint_s / (2 * mtbf_s))
    return young_s(checkpoint_s, mtbf_s) * (1 + ratio / 3 + ratio * ratio / 9) - checkpoint_s


def useful_share(checkpoint_s: float, restart_s: float, mtbf_s: float, interval_s: float) -> float:
    """Give the share of the time that is work and stays done (Daly 2006, equation 20).

    Failures come at random, at one rate; after each the work since the last checkpoint is done again.

    Examples
    --------
    >>> round(useful_share(60.0, 60.0, 12_000.0, 1160.3), 4)
    0.8988
    """
    wall = mtbf_s * exp(restart_s / mtbf_s) * expm1((interval_s + checkpoint_s) / mtbf_s)
    return interval_s / wall


def system_mtbf_s(device_mtbf_s: float, devices: int) -> float:
    """Give the mean time between failures of a job on so many devices, any of which ends it [s]."""
    return device_mtbf_s / devices
