"""Estimator: the longer of arithmetic and traffic at the machine's rates and the kind's usual utilisation."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING

import numpy as np

from fomkit.hardware import Fact, Machine
from fomkit.predict.estimates import Answers
from fomkit.predict.rates import Bounds, Rates, bounds, rates
from fomkit.predict.rising import growing_axes, resized
from fomkit.predict.rows import Rows, Table, are, as_rows, numbers
from fomkit.predict.usual import Usuals, usual_utilisation
from fomkit.quantities import format_quantity

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]


PRODUCTS_AT_ONCE = 4_000
"""Products whose smaller batches are priced together; each has some ten, with all their columns."""


def _evidence(known: Rates, usual: float, source: str, launch: Fact | None, starts: float) -> str:
    words = [known.describe(), f"utilisation {usual:.2g}, {source}"]
    if known.flop_per_s is None:
        words.append("no peak known, traffic only")
    if launch is None:
        words.append("launch cost unknown, left out")
    elif starts:
        start_s = format_quantity(launch.value, "time_s", 2)
        words.append(f"{starts:g} launch{'es' if starts > 1 else ''} of {start_s}")
    return "; ".join(words)


def _times(rows: Rows, found: Bounds, usual: Usuals, machine: Machine) -> Matrix:
    """Give value, ends, and the value without launches (4, q) [s], by the floors and the usual utilisation."""
    kernel_s, launch = found.floor_s / usual.value, machine.device.launch_s
    # The usual utilisation and the stated rate err independently; both are factors.
    faster = np.hypot(np.log(usual.high / usual.value), np.log(found.high))
    slower = np.hypot(np.log(usual.value / usual.low), np.log(found.low))
    starts, (start_s, low_s, high_s) = _starts(rows, launch)
    time_s = kernel_s + starts * start_s
    below = np.hypot(kernel_s * (1 - np.exp(-faster)), starts * (start_s - low_s))
    above = np.hypot(kernel_s * (np.exp(slower) - 1), starts * (high_s - start_s))
    return np.stack([time_s, time_s - below, time_s + above, kernel_s])


def _starts(rows: Rows, launch: Fact | None) -> tuple[Matrix, tuple[float, float, float]]:
    """Give the launches of each row, and what one costs with its ends [s]."""
    if launch is None:
        return np.zeros(len(rows)), (0.0, 0.0, 0.0)
    return np.nan_to_num(numbers(rows, "launches")), (launch.value, launch.low, launch.high)


def _never_falling(rows: Rows, machine: Machine, interval: float) -> Matrix:
    """Do what `_running_maxima` does, so many rows at once that memory stays bounded."""
    parts = range(0, len(rows), PRODUCTS_AT_ONCE)
    places = np.arange(len(rows))
    return np.concatenate(
        [_running_maxima(rows.take(places[at : at + PRODUCTS_AT_ONCE]), machine, interval) for at in parts], 1
    )


def _running_maxima(rows: Rows, machine: Machine, interval: float) -> Matrix:
    """Give what `_times` does (4, q) [s] of products, which take no longer with a smaller batch.

    What other machines reach rises and falls with the size: their kernels like multiples of some numbers, and the
    floor of a few rows stays where it is while more of it is reached. Whether this machine's library does so too,
    nobody knows. So the times at the powers of two up to the size, each at least the one before, are joined by
    straight lines.
    """
    axes = growing_axes(rows)
    size = np.array([numbers(rows, name, 1.0)[at] for at, name in enumerate(axes.tolist())])
    below = np.floor(np.log2(np.maximum(size, 1.0)))
    last = below + (size > 2.0**below)
    counts = last.astype(int) + 1
    of = np.repeat(np.arange(len(rows)), counts)
    power = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts)
    smaller = resized(rows.take(of), axes[of], 2.0**power)
    times = np.full((4, len(rows), int(counts.max())), -np.inf)
    times[:, of, power] = _times(
        smaller, bounds(smaller, machine), usual_utilisation(smaller, machine, interval), machine
    )
    times = np.maximum.accumulate(times, 2)
    at = np.arange(len(rows))
    left, right = times[:, at, below.astype(int)], times[:, at, last.astype(int)]
    return np.asarray(left + (right - left) * (size / 2.0**below - 1), np.float64)


def _answers(rows: Rows, found: Bounds, usual: Usuals, machine: Machine, interval: float) -> Answers:
    times, launch = _times(rows, found, usual, machine), machine.device.launch_s
    products = np.flatnonzero(are(rows, "kind", "gemm"))
    if len(products):
        times[:, products] = _never_falling(rows.take(products), machine, interval)
    kernel_s, (starts, (start_s, _, _)) = times[3], _starts(rows, launch)  # time less launches may round to 0
    reached = np.divide(found.floor_s, kernel_s, out=usual.value.copy(), where=kernel_s > 0)
    known_of = cache(partial(rates, machine))

    dtypes, engines = (rows.text(name) for name in ("dtype", "engine"))

    def evidence(place: int) -> str:
        known = known_of(dtypes.words[dtypes.codes[place]], engines.words[engines.codes[place]])
        return _evidence(known, reached[place], usual.source[place], launch, float(starts[place]))

    return Answers(
        rows.index,
        times[:3],
        np.full(len(rows), "roofline", object),
        np.where(starts * start_s > kernel_s, "launch", found.names),
        evidence,
    )


def estimate(rows: Table, machine: Machine, interval: float) -> Answers:
    """Predict rows from rates alone.

    time = max(flop / peak, byte / bandwidth) / utilisation + launches · launch cost. The utilisation is what
    other, timed machines would reach (`fomkit.predict.usual`), and their disagreement gives the interval, together
    with the spread of the facts. A product takes no longer with a smaller batch.

    Parameters
    ----------
    rows : DataFrame
        COSTED rows.
    machine : Machine
        Peaks and bandwidth as stated, else as fitted to its table.
    interval : float
        Share of intervals that should contain the truth.

    Returns
    -------
    Answers
        The rows for which every rate that their kind needs is known.
    """
    rows = as_rows(rows)
    found, usual = bounds(rows, machine), usual_utilisation(rows, machine, interval)
    known = ~np.isnan(found.floor_s) & ~np.isnan(usual.value)
    if not known.all():
        rows, found, usual = rows.take(known), found.chosen(known), usual.chosen(known)
    return _answers(rows, found, usual, machine, interval)
