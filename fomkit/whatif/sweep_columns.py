"""What points of a sweep are compared by, and the energy of those with a power."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import pandas as pd

from fomkit.quantities import DAY_S
from fomkit.whatif.sweep_memory import PEAK_BYTE
from fomkit.whatif.sweep_money import COST, ENDS, Per
from fomkit.whatif.sweep_parameters import POWER

ENERGY = "energy_j"


class Objective(NamedTuple):
    """One thing that points are compared by."""

    name: str
    column: str
    better: Literal["higher", "lower"]
    unit: str


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


def add_energy(
    found: pd.DataFrame, points: pd.DataFrame, seconds: Mapping[str, pd.Series], up_share: float
) -> pd.DataFrame:
    """Add the energy [J] of a power that is asked for; it is drawn while the machine is up."""
    return found.assign(**{f"{ENERGY}{end}": points[POWER] * seconds[end] * up_share for end in ENDS})


def objectives_of(known: Sequence[str], per: Per, currency: str) -> tuple[Objective, ...]:
    """Name what points are compared by: time, cost, energy and memory, as far as they are known."""
    time = {
        "unit of work": Objective("time", "unit_per_day", "higher", "1/day"),
        "sample": Objective("time", "sample_per_s", "higher", "1/s"),
        "step": Objective("time", "step_s", "lower", "s"),
    }[per]
    others = (
        Objective("cost", COST, "lower", f"{currency} a {per}"),
        Objective("energy", ENERGY, "lower", f"J a {per}"),
        Objective("memory", PEAK_BYTE, "lower", "byte"),
    )
    return (time, *(one for one in others if one.column in known))
