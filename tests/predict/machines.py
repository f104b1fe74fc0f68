"""Machines made for the tests of this room."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd

from fomkit.core.machine import Device, Fact, Machine, Peak
from fomkit.ops.tables import column_names
from fomkit.profiles.evidence import shipped_typical_tables
from fomkit.profiles.machines import load_machine

NUMBERS = column_names("TIMINGS", "number")
TEXTS = column_names("TIMINGS", "text")


def fact(value: float, low: float | None = None, high: float | None = None) -> Fact:
    return Fact(value, value if low is None else low, value if high is None else high, "assumed", "test")


def timings(*rows: dict[str, object]) -> pd.DataFrame:
    """Make a TIMINGS table from rows that state only what they need."""
    table = pd.DataFrame(list(rows), columns=[*TEXTS, *NUMBERS])
    return table.astype({**dict.fromkeys(NUMBERS, "float64"), **dict.fromkeys(TEXTS, "str")})


def device(launch: Fact | None = None, bandwidth: Fact | None = None, **peaks: float) -> Device:
    """Make a device; peaks are named like fp32_vector."""
    stated = tuple(Peak(*name.split("_"), fact(rate)) for name, rate in peaks.items())
    return Device(peaks=stated, byte_per_s=bandwidth, launch_s=launch)


def machine(of: Device | None = None, table: pd.DataFrame | None = None, **more: object) -> Machine:
    known = timings() if table is None else table
    return Machine("test", "test", "lab", of or Device(), known, typical=shipped_typical_tables(), **more)


def loaded(name: str | Path) -> Machine:
    """Load a machine, ready for predictions that need no fits."""
    return replace(load_machine(name), typical=shipped_typical_tables())
