"""What limits a timed op, and why it may be faster than the datasheet allows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from fomkit.predict.estimates import Record, Timed, records
from fomkit.predict.rates import FITTED, Bound, binding, rates

if TYPE_CHECKING:
    import pandas as pd

    from fomkit.hardware import Machine

REASONS: Mapping[tuple[str, str], str] = {
    ("conv", "compute"): "Winograd or FFT need less arithmetic",
    ("attention", "compute"): "a fused kernel skips the masked half",
}
"""Why a kind beats its binding rate; other kinds beat arithmetic by boost clocks and traffic by caches."""

USUAL_REASONS: Mapping[str, str] = {"compute": "boost clocks", "memory": "caches hold part of the data"}

BOOST = 1.1
"""How far boost clocks carried matrix products above a datasheet's peak (DeepBench, GTX 1080 Ti: 1.07)."""

CACHED_BYTE = 2.7e8
"""Operands [byte] up to this size may lie in a cache; the largest last level known is 256 MiB (AMD MI300X)."""

_OF_A_TABLE = ("measured", "interpolated", "extrapolated", "transferred")


def _reason(row: Record, bound: str) -> str:
    kernel = [row.get(name, np.nan) for name in ("kernel_d", "kernel_h", "kernel_w")]
    if row["kind"] == "conv" and np.prod(kernel) == 1:
        # A 1×1 convolution is a plain product: no algorithm saves arithmetic there.
        return USUAL_REASONS[bound]
    if bound == "memory" and row["byte"] > CACHED_BYTE:
        return "no cache holds so much; the table or the stated bandwidth is off"
    return REASONS.get((row["kind"], bound), USUAL_REASONS[bound])


def _possible(row: Record, timed: Timed, bound: Bound) -> Timed:
    """Lift the ends of a plain product that no machine of these rates could reach; other kinds have short cuts."""
    cached = bound.name == "memory" and row["byte"] <= CACHED_BYTE
    if row["kind"] not in ("gemm", "attention") or timed.time_source == "measured" or cached:
        return timed
    if row["kind"] == "attention" and bound.name == "compute":
        return timed  # a fused kernel may skip the masked half
    least_s = bound.floor_s * bound.rate.value / bound.rate.high / BOOST
    times = {name: max(getattr(timed, name), least_s) for name in ("time_s", "low_s", "high_s")}
    if timed.time_s < least_s:
        times["evidence"] = f"{timed.evidence}; lifted to the {bound.name} floor less {BOOST - 1:.0%}"
    return timed._replace(**times)


def _named(row: Record, timed: Timed, machine: Machine) -> Timed:
    bound = binding(row, rates(machine, row["dtype"], row["engine"]))
    if bound is None or bound.rate.source == FITTED:
        return timed
    timed = _possible(row, timed, bound)
    if timed.time_source in _OF_A_TABLE:
        launch = machine.device.launch_s
        starts_s = launch.value * float(np.nan_to_num(row["launches"])) if launch is not None else 0.0
        timed = timed._replace(bound="launch" if starts_s > bound.floor_s else bound.name)
    if timed.time_s < bound.floor_s:
        reason = _reason(row, bound.name)
        said = f"{timed.evidence}; {timed.time_s / bound.floor_s:.0%} of the {bound.name} floor: {reason}"
        timed = timed._replace(evidence=said)
    return timed


def name_bounds(rows: pd.DataFrame, times: Mapping[int, Timed], machine: Machine) -> dict[int, Timed]:
    """Name the bound of times that come from the table, and the reason of every time below the stated floor.

    Only stated rates count: fitted ones come from the same table and would prove nothing.

    Parameters
    ----------
    rows : DataFrame
        COSTED rows.
    times : mapping
        What is known of them.
    machine : Machine

    Returns
    -------
    dict
        ``times`` with bound compute, memory or launch where the rates are stated, and longer evidence.
    """
    return {index: _named(row, times[index], machine) for index, row in records(rows) if index in times}
