"""Estimator: the longer of arithmetic and traffic at the machine's rates and the kind's usual utilisation."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fomkit.hardware import Fact, Machine
from fomkit.predict.estimates import Record, Timed, records
from fomkit.predict.rates import Bound, Rates, binding, rates
from fomkit.predict.usual import Usual, usual_utilisation
from fomkit.quantities import format_quantity

if TYPE_CHECKING:
    import pandas as pd


def _evidence(known: Rates, usual: Usual, launch: Fact | None, starts: float) -> str:
    words = [known.describe(), f"utilisation {usual.value:.2g}, {usual.source}"]
    if known.flop_per_s is None:
        words.append("no peak known, traffic only")
    if launch is None:
        words.append("launch cost unknown, left out")
    elif starts:
        start_s = format_quantity(launch.value, "time_s", 2)
        words.append(f"{starts:g} launch{'es' if starts > 1 else ''} of {start_s}")
    return "; ".join(words)


def _answer(row: Record, bound: Bound, usual: Usual, known: Rates, launch: Fact | None) -> Timed:
    kernel_s, rate = bound.floor_s / usual.value, bound.rate
    # The usual utilisation and the stated rate err independently; both are factors.
    faster = math.hypot(math.log(usual.high / usual.value), math.log(rate.high / rate.value))
    slower = math.hypot(math.log(usual.value / usual.low), math.log(rate.value / rate.low))
    starts = 0.0 if launch is None or math.isnan(row["launches"]) else float(row["launches"])
    start_s, low_s, high_s = (launch.value, launch.low, launch.high) if launch is not None else (0.0, 0.0, 0.0)
    time_s = kernel_s + starts * start_s
    below = math.hypot(kernel_s * (1 - math.exp(-faster)), starts * (start_s - low_s))
    above = math.hypot(kernel_s * (math.exp(slower) - 1), starts * (high_s - start_s))
    return Timed(
        time_s=time_s,
        low_s=time_s - below,
        high_s=time_s + above,
        time_source="roofline",
        bound="launch" if starts * start_s > kernel_s else bound.name,
        evidence=_evidence(known, usual, launch, starts),
    )


def estimate(rows: pd.DataFrame, machine: Machine, interval: float) -> dict[int, Timed]:
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
    dict
        The rows for which every rate that their kind needs is known.
    """
    times: dict[int, Timed] = {}
    usual = usual_utilisation(rows, machine, interval)
    for index, row in records(rows):
        known = rates(machine, row["dtype"], row["engine"])
        bound = binding(row, known)
        if bound is not None and index in usual:
            times[index] = _answer(row, bound, usual[index], known, machine.device.launch_s)
    return times
