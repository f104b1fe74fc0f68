"""Fit a link's start-up time and rate to timed messages: α + n/β for each class of sizes.

This is Hockney's model (Parallel Computing 20, 1994) with one pair per class, since libraries change their
algorithm with the size. Errors are relative, as noise and the model's own errors are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fomkit.core.interval import Span
from fomkit.core.machine import Link, Tier

Vector = NDArray[np.float64]

KIB = 2.0**10
CLASSES: Mapping[str, tuple[float, float]] = {
    "large": (256 * KIB, np.inf), "medium": (4 * KIB, 256 * KIB), "small": (0.0, 4 * KIB),
}  # fmt: skip
"""Classes of message sizes [byte], bounds included; long ones first, since training mostly sends long ones."""
LEVEL = 0.8
MAX_CONDITION = 1e6
"""Condition number of the two terms above which the normal equations lose all significant digits."""
MIN_ERROR = 0.01
"""Smallest relative error that is assumed for a time."""
MIN_SIZES = 3
"""Fewest sizes for a fit: with fewer, a line has no residual to estimate its error from."""


class LinkLine(NamedTuple):
    """The fit of one class of sizes.

    `alpha_s`, `slope_s`: start-up time [s] and time per byte [s].
    `sure`: whether the slope is above 0 at 95 %; otherwise the sizes do not determine it.
    """

    alpha_s: Span
    slope_s: Span
    sure: bool


@dataclass(frozen=True)
class Timed:
    """Timed messages of one link.

    `byte`, `time_s`: size [byte] and median time [s] of each.
    `width`: half the 95 % interval of each median, as a share of it.
    """

    byte: Sequence[float]
    time_s: Sequence[float]
    width: Sequence[float]

    def within(self, least: float, most: float) -> Timed:
        """Return the messages of a class of sizes."""
        chosen = [place for place, byte in enumerate(self.byte) if least <= byte <= most]
        return Timed(*([column[place] for place in chosen] for column in (self.byte, self.time_s, self.width)))


def fit_line(timed: Timed) -> LinkLine | None:
    """Fit α [s] and 1/β [s/byte] by weighted least squares; None if these sizes do not determine both.

    They do not if there are fewer than three sizes, or if one message outweighs all others. If one term is below
    0, it is set to 0 and the other is fitted again. Residuals larger than the repeats explain widen the intervals,
    which are Student's.

    >>> sizes = [1e3, 1e4, 1e5, 1e6]
    >>> alpha, slope, _ = fit_line(Timed(sizes, [1e-5 + n / 1e9 for n in sizes], [0.01] * 4))
    >>> round(alpha.value * 1e6, 3), round(1e-9 / slope.value, 3)
    (10.0, 1.0)
    """
    byte, time_s = np.asarray(timed.byte, float), np.asarray(timed.time_s, float)
    if len(np.unique(byte)) < MIN_SIZES:
        return None
    error = time_s * np.maximum(np.asarray(timed.width, float) / 1.96, MIN_ERROR)
    terms = np.column_stack([np.ones(len(byte)), byte])
    weighed = terms / error[:, None]
    if np.linalg.cond(weighed / np.linalg.norm(weighed, axis=0)) > MAX_CONDITION:
        return None  # one message outweighs all others, so latency and rate cannot be separated
    used = [0, 1]
    values, half = _least_squares(terms, time_s, error, used)
    low, high = values - half, values + half
    wider = _student(len(byte) - 2, 0.95) / _student(len(byte) - 2, LEVEL)
    sure = values[1] > half[1] * wider
    if (values < 0).any():
        used = [int(np.argmax(values >= 0))]
        values, half = _least_squares(terms, time_s, error, used)
        # The upper bound of an omitted term is that of the first fit.
        low, high = values - half, np.maximum(values + half, high)
    columns = (np.maximum(0.0, one).tolist() for one in (values, low, high))
    alpha, slope = (Span(*bounds) for bounds in zip(*columns, strict=True))
    return LinkLine(alpha, slope, bool(sure))


def _student(free: int, level: float) -> float:
    """Return half of Student's interval at a level, in standard errors."""
    from scipy.special import stdtrit

    return float(stdtrit(free, (1 + level) / 2))


def _least_squares(terms: Vector, time_s: Vector, error: Vector, used: list[int]) -> tuple[Vector, Vector]:
    """Return each term's value and half its interval; 0 for an omitted term."""
    scaled, free = terms[:, used] / error[:, None], len(time_s) - len(used)
    size = np.linalg.norm(scaled, axis=0)
    found, *_ = np.linalg.lstsq(scaled / size, time_s / error, rcond=None)
    misfit = float(np.sum((scaled / size @ found - time_s / error) ** 2)) / free
    half = np.sqrt(np.diag(np.linalg.inv((scaled / size).T @ (scaled / size))) * max(1.0, misfit))
    values, spread = np.zeros(terms.shape[1]), np.zeros(terms.shape[1])
    values[used] = found / size
    spread[used] = half / size * _student(free, LEVEL)
    return values, spread


def _short(value: float) -> float:
    """Round a value to four digits, which is its accuracy at best."""
    return float(f"{value:.4g}")


def links_of(timed: Timed, tier: Tier, channel: str, source: str) -> tuple[Link, ...]:
    """Make the links of timed messages from rank to rank, one for each class with enough sizes.

    A class of short messages hardly determines the rate. If its slope may be 0 (`LinkLine.sure`), the rate is that
    of all sizes together, and the source says so.
    """
    whole = fit_line(timed)
    if whole is None:
        return ()
    found = []
    for name, (least, most) in CLASSES.items():
        part = timed.within(least, most)
        if (line := fit_line(part)) is None:
            continue
        alpha, slope, sure = line
        provenance = f"{source}; {name} messages, {len(set(part.byte))} sizes"
        if not sure:
            slope, provenance = whole.slope_s, f"{provenance}, rate of all {len(set(timed.byte))}"
        if slope.low <= 0:
            continue
        found.append(
            Link(
                tier=tier,
                alpha_s=_short(alpha.value),
                byte_per_s=_short(1 / slope.value),
                direction="each",
                source=provenance,
                channel=channel,
                least_byte=min(part.byte),
                most_byte=max(part.byte),
                alpha_range_s=(_short(alpha.low), _short(alpha.high)),
                range_byte_per_s=(_short(1 / slope.high), _short(1 / slope.low)),
                basis="measured",
            )
        )
    return tuple(found)
