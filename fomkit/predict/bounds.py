"""What limits a timed op, and why it may be faster than the datasheet allows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from fomkit.predict.estimates import Answers
from fomkit.predict.rates import Bounds, bounds
from fomkit.predict.rows import Rows, numbers, places_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fomkit.hardware import Machine

REASONS: Mapping[tuple[str, str], str] = {("attention", "compute"): "a fused kernel skips the masked half"}
"""Why a kind beats its binding rate; other kinds beat arithmetic by boost clocks and traffic by caches."""

LESS_ARITHMETIC = "Winograd or FFT need less arithmetic"
UNEXPLAINED = "more than boost clocks explain, also"
"""Of 434 convolutions above the peak in DeepBench's training sheets these are 20, all of the P100 in fp16."""

AT_MOST: Mapping[str, float] = {
    "a fused kernel skips the masked half": 2.0,
    "boost clocks": 1.0,
    "caches hold part of the data": 3.5,
}
"""How many times faster each reason can make an op, `BOOST` aside; beyond it nothing is explained away."""

USUAL_REASONS: Mapping[str, str] = {"compute": "boost clocks", "memory": "caches hold part of the data"}

BOOST = 1.1
"""How far boost clocks carried matrix products above a datasheet's peak (DeepBench, GTX 1080 Ti: 1.07)."""

CACHED_BYTE = 2.7e8
"""Operands [byte] up to this size may lie in a cache; the largest last level known is 256 MiB (AMD MI300X)."""

_OF_A_TABLE = ("measured", "interpolated", "extrapolated", "transferred")


def _reason(kind: str, bound: str, byte: float, share: float, least: float) -> str:
    """Say why a time is a share of the floor, where the cheapest known algorithm needs a share of the flop."""
    if bound == "memory" and byte > CACHED_BYTE:
        return "no cache holds so much; the table or the stated bandwidth is off"
    if kind == "conv" and bound == "compute" and share * BOOST < least:
        return f"{UNEXPLAINED} by the cheapest algorithm known here, {least:.0%} of the arithmetic"
    if bound == "compute" and least < 1:
        return f"{LESS_ARITHMETIC}, down to {least:.0%}"
    reason = REASONS.get((kind, bound), USUAL_REASONS[bound])
    if share * BOOST * AT_MOST[reason] < 1:
        return f"no reason known here gives so much ({reason}: up to {AT_MOST[reason] * BOOST:.1f} times)"
    return reason


def _bounded(rows: Rows, found: Bounds, answers: Answers, kinds: NDArray[np.object_]) -> NDArray[np.bool_]:
    """Tell which times no machine of these rates could reach: plain products, other kinds have short cuts."""
    measured = answers.time_source == "measured"
    cached = ~found.compute & (numbers(rows, "byte") <= CACHED_BYTE)
    # A fused kernel may skip the masked half.
    plain = (kinds == "gemm") | ((kinds == "attention") & ~found.compute)
    return np.asarray(plain & ~measured & ~cached)


def name_bounds(rows: Rows, times: Answers, machine: Machine) -> Answers:
    """Name the bound of times that come from the table, and the reason of every time below the stated floor.

    The ends of a plain product that no machine of these rates could reach are lifted. Only stated rates count:
    fitted ones come from the same table and would prove nothing.

    Parameters
    ----------
    rows : DataFrame
        COSTED rows.
    times : Answers
        What is known of them.
    machine : Machine

    Returns
    -------
    Answers
        ``times`` with bound compute, memory or launch where the rates are stated, and longer evidence.
    """
    rows = rows.take(places_of(times.index, rows.index))
    found = bounds(rows, machine)
    kinds, stated = rows.text("kind").cells(), ~np.isnan(found.floor_s) & ~found.fitted
    least_s = np.where(stated & _bounded(rows, found, times, kinds), found.floor_s / found.high / BOOST, 0.0)
    lifted = times.time_s < least_s
    seconds = np.maximum(np.stack([times.time_s, times.low_s, times.high_s]), least_s)
    launch = machine.device.launch_s
    starts_s = np.nan_to_num(numbers(rows, "launches")) * (launch.value if launch is not None else 0.0)
    names = found.names
    bound = np.where(starts_s > found.floor_s, "launch", names)
    codes, sources = pd.factorize(times.time_source)
    of_table = stated & np.array([source in _OF_A_TABLE for source in sources], bool)[codes]
    below = stated & (seconds[0] < found.floor_s)
    byte, flop, least_flop = (numbers(rows, name) for name in ("byte", "flop", "least_flop"))

    def evidence(place: int) -> str:
        said, name = times.evidence(place), str(names[place])
        if lifted[place]:
            said = f"{said}; lifted to the {name} floor less {BOOST - 1:.0%}"
        if below[place]:
            share = seconds[0, place] / found.floor_s[place]
            least = least_flop[place] / flop[place] if flop[place] else 1.0
            reason = _reason(kinds[place], name, byte[place], share, least)
            said = f"{said}; {share:.0%} of the {name} floor: {reason}"
        return said

    return Answers(times.index, seconds, times.time_source, np.where(of_table, bound, times.bound), evidence)
