"""What a sweep adds to the times of its points: memory, cost and energy, each only where it is known."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import pandas as pd

from fomkit.errors import FomkitError
from fomkit.precision import choose_formats
from fomkit.quantities import DAY_S
from fomkit.study.memory_of import step_memory
from fomkit.study.options import choose_sizes
from fomkit.whatif.sweep_parameters import POWER, PRICE

if TYPE_CHECKING:
    from fomkit.hardware import Machine
    from fomkit.study.options import Options
    from fomkit.whatif.sweep_axes import Axis
    from fomkit.workload import ModelProfile

Per = Literal["unit of work", "sample", "step"]
MOST_FOLLOWED = 256
"""Sizes whose step is followed op by op; each takes some hundredths of a second."""
HOUR_S = 3600.0
ENDS = ("", "_low", "_high")
PEAK_BYTE, FITS, COST, ENERGY = "peak_byte", "fits", "cost", "energy_j"


class Objective(NamedTuple):
    """One thing that points are compared by."""

    name: str
    column: str
    better: Literal["higher", "lower"]
    unit: str


class Memory(NamedTuple):
    """Peaks [byte] by the values of the sizes that are varied, or why there are none."""

    sizes: tuple[str, ...]
    peaks: Mapping[tuple[float, ...], float]
    why_not: str = ""


def per_of(known: Sequence[str]) -> Per:
    """Choose what cost and energy are of: the largest thing whose rate is known."""
    if "unit_per_day" in known:
        return "unit of work"
    return "sample" if "sample_per_s" in known else "step"


def device_seconds(found: pd.DataFrame, per: Per, devices: pd.Series, jobs: pd.Series) -> dict[str, pd.Series]:
    """Give the seconds of a device that one unit, sample or step takes: value and ends.

    Examples
    --------
    >>> two = pd.Series([2.0])
    >>> found = pd.DataFrame({f"unit_per_day{end}": [4.0] for end in ENDS})
    >>> device_seconds(found, "unit of work", two, two)[""].tolist()
    [86400.0]
    """
    if per == "step":
        return {end: devices * found[f"step_s{end}"] for end in ENDS}
    turned = {"": "", "_low": "_high", "_high": "_low"}
    if per == "sample":
        return {end: devices / found[f"sample_per_s{turned[end]}"] for end in ENDS}
    return {end: devices * jobs * DAY_S / found[f"unit_per_day{turned[end]}"] for end in ENDS}


def add_spending(found: pd.DataFrame, points: pd.DataFrame, seconds: Mapping[str, pd.Series],
                 up_share: float) -> pd.DataFrame:  # fmt: skip
    """Add cost and energy, as far as the points have a price and a power.

    An hour is paid for whether the machine is up or not; power is drawn while it is.
    """
    columns: dict[str, pd.Series] = {}
    for end in ENDS:
        if PRICE in points:
            columns[f"{COST}{end}"] = points[PRICE] * seconds[end] / HOUR_S
    for end in ENDS:
        if POWER in points:
            columns[f"{ENERGY}{end}"] = points[POWER] * seconds[end] * up_share
    return found.assign(**columns)


def follow_memory(model: ModelProfile, machine: Machine, axes: Sequence[Axis], options: Options) -> Memory:
    """Follow the memory of a step at every combination of sizes that a sweep can meet."""
    own = [axis for axis in axes if axis.name in model.sizes or axis.name == "batch"]
    names = tuple(axis.name for axis in own)
    formats = choose_formats(options.precision, model.traced_with.get("framework", ""), machine)
    if formats.stream not in ("", "fp32"):
        return Memory(names, {}, f"the order of ops is of the traced formats, not of {options.precision}")
    if model.order is None:
        return Memory(names, {}, "the profile has no order of its ops")
    many = math.prod(axis.count or 0 for axis in own)
    if many > MOST_FOLLOWED:
        return Memory(
            names, {}, f"{many:,} sizes would each be followed op by op; list {MOST_FOLLOWED} or fewer to have it"
        )
    peaks = {}
    base = choose_sizes(model, options.wanted_sizes)
    try:
        for values in itertools.product(*(axis.grid().tolist() for axis in own)):
            use = step_memory(
                model, {**base, **{name: int(value) for name, value in zip(names, values, strict=True)}}
            )
            peaks[values] = math.nan if use is None else use.peak_byte
    except FomkitError as error:
        return Memory(names, {}, error.what)
    return Memory(names, peaks)


def add_memory(found: pd.DataFrame, points: pd.DataFrame, memory: Memory) -> pd.DataFrame:
    """Add the peak of each point's sizes [byte]."""
    if not memory.peaks:
        return found
    values = points[list(memory.sizes)].itertuples(index=False, name=None) if memory.sizes else [()] * len(points)
    return found.assign(**{PEAK_BYTE: np.array([memory.peaks[tuple(one)] for one in values])})


def add_fits(found: pd.DataFrame, capacity_byte: float | None) -> pd.DataFrame:
    """Say whether a device holds a step, where both are known."""
    if capacity_byte is None or PEAK_BYTE not in found:
        return found
    return found.assign(**{FITS: found[PEAK_BYTE] <= capacity_byte})


def objectives_of(known: Sequence[str], per: Per) -> tuple[Objective, ...]:
    """Name what points are compared by: time, cost, energy and memory, as far as they are known."""
    time = {
        "unit of work": Objective("time", "unit_per_day", "higher", "1/day"),
        "sample": Objective("time", "sample_per_s", "higher", "1/s"),
        "step": Objective("time", "step_s", "lower", "s"),
    }[per]
    others = (
        Objective("cost", COST, "lower", f"price a {per}"),
        Objective("energy", ENERGY, "lower", f"J a {per}"),
        Objective("memory", PEAK_BYTE, "lower", "byte"),
    )
    return (time, *(one for one in others if one.column in known))
