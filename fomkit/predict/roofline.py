"""Estimator: the longer of arithmetic and traffic at the machine's rates and the kind's usual utilisation."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING

import numpy as np

from fomkit.hardware import Fact, Machine
from fomkit.predict.estimates import Answers
from fomkit.predict.rates import Bounds, Rates, bounds, rates
from fomkit.predict.rows import Rows, Table, as_rows, numbers
from fomkit.predict.usual import Usuals, usual_utilisation
from fomkit.quantities import format_quantity

if TYPE_CHECKING:
    pass


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


def _answers(rows: Rows, found: Bounds, usual: Usuals, machine: Machine) -> Answers:
    kernel_s, launch = found.floor_s / usual.value, machine.device.launch_s
    # The usual utilisation and the stated rate err independently; both are factors.
    faster = np.hypot(np.log(usual.high / usual.value), np.log(found.high))
    slower = np.hypot(np.log(usual.value / usual.low), np.log(found.low))
    starts = np.zeros(len(rows)) if launch is None else np.nan_to_num(numbers(rows, "launches"))
    start_s, low_s, high_s = (launch.value, launch.low, launch.high) if launch is not None else (0.0, 0.0, 0.0)
    time_s = kernel_s + starts * start_s
    below = np.hypot(kernel_s * (1 - np.exp(-faster)), starts * (start_s - low_s))
    above = np.hypot(kernel_s * (np.exp(slower) - 1), starts * (high_s - start_s))

    known_of = cache(partial(rates, machine))

    dtypes, engines = (rows.text(name) for name in ("dtype", "engine"))

    def evidence(place: int) -> str:
        known = known_of(dtypes.words[dtypes.codes[place]], engines.words[engines.codes[place]])
        return _evidence(known, usual.value[place], usual.source[place], launch, float(starts[place]))

    return Answers(
        rows.index,
        np.stack([time_s, time_s - below, time_s + above]),
        np.full(len(rows), "roofline", object),
        np.where(starts * start_s > kernel_s, "launch", found.names),
        evidence,
    )


def estimate(rows: Table, machine: Machine, interval: float) -> Answers:
    """Predict rows from rates alone.

    time = max(flop / peak, byte / bandwidth) / utilisation + launches · launch cost. The utilisation is what
    other, timed machines would reach (`fomkit.predict.usual`), and their disagreement gives the interval, together
    with the spread of the facts.

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
    return _answers(rows, found, usual, machine)
