"""The means that figures of merit are taken by, each as a function of both machines' rates and the weights.

The lecture's is the ratio of harmonic mean rates (Foster & Stevens 2018, lecture 10). Weighted by line it is the
ratio of two sustained rates P_tot = 3600 / Σ(w·t·n/N) of procurements; the weighted geometric mean of speed-ups is
NERSC's sustained system improvement, SSNI = N·(Π Sᵢ^wᵢ)^(1/Σw), where the ratios hold N already at system scope.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

Numbers = Sequence[float]
Mean = Callable[[Numbers, Numbers, Numbers], float]


def _rates(new: Numbers, old: Numbers, weights: Numbers) -> float:
    time_old = math.fsum(weight / rate for weight, rate in zip(weights, old, strict=True))
    return time_old / math.fsum(weight / rate for weight, rate in zip(weights, new, strict=True))


def _harmonic(new: Numbers, old: Numbers, weights: Numbers) -> float:
    parts = (weight * b / a for weight, a, b in zip(weights, new, old, strict=True))
    return math.fsum(weights) / math.fsum(parts)


def _geometric(new: Numbers, old: Numbers, weights: Numbers) -> float:
    logs = (weight * math.log(a / b) for weight, a, b in zip(weights, new, old, strict=True))
    return math.exp(math.fsum(logs) / math.fsum(weights))


def _arithmetic(new: Numbers, old: Numbers, weights: Numbers) -> float:
    parts = (weight * a / b for weight, a, b in zip(weights, new, old, strict=True))
    return math.fsum(parts) / math.fsum(weights)


MEANS: Mapping[str, Mean] = {
    "ratio_of_harmonic_means": _rates,
    "weighted_harmonic": _rates,
    "harmonic": _harmonic,
    "geometric": _geometric,
    "arithmetic": _arithmetic,
}
"""Functions of the target's rates, the baseline's rates and the lines' weights."""

WEIGHTED = ("weighted_harmonic", "geometric")
"""The means that lines have weights in; the others take each line once."""


def _weights(name: str, weights: Numbers | None, count: int) -> Numbers:
    return weights if weights is not None and name in WEIGHTED else [1.0] * count


def take_mean(name: str, new: Numbers, old: Numbers, weights: Numbers | None = None) -> float:
    """Take a mean of how many times faster one machine is.

    Parameters
    ----------
    name : str
        A key of `MEANS`.
    new, old : sequence of float
        Units per day of the target and of the baseline, line by line, all above 0.
    weights : sequence of float, optional
        Used by the means in `WEIGHTED`; default: all 1.

    Examples
    --------
    >>> round(take_mean("geometric", [564e3, 4512e3, 9024e3], [7475.2, 74752.0, 37376.0]), 6)
    103.213445
    """
    return MEANS[name](new, old, _weights(name, weights, len(new)))


def implied_weights(name: str, old: Numbers, weights: Numbers | None = None) -> list[float]:
    """Give each line's share in a mean; shares sum to 1.

    In the harmonic kinds it is the weight of a ratio's reciprocal, in the geometric that of its logarithm, in the
    arithmetic that of the ratio itself. In the ratio of harmonic means it is the share of the baseline's time.
    """
    shares = list(_weights(name, weights, len(old)))
    if MEANS[name] is _rates:
        shares = [share / rate for share, rate in zip(shares, old, strict=True)]
    total = math.fsum(shares)
    return [share / total for share in shares]
