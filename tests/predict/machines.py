"""Machines made for the tests of this room."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from fomkit.core.machine import Device, Fact, Machine, Peak
from fomkit.ops.tables import column_names
from fomkit.prediction import gp
from fomkit.prediction.estimators import Answers, Timed
from fomkit.prediction.typical import TypicalUtilisations
from fomkit.profiles.evidence import shipped_typical_tables
from fomkit.profiles.machines import load_machine

NUMBERS = column_names("TIMINGS", "number")
TEXTS = column_names("TIMINGS", "text")


def fact(value: float, low: float | None = None, high: float | None = None) -> Fact:
    return Fact(value, value if low is None else low, value if high is None else high, "assumed", "test")


def timings(*rows: dict[str, object]) -> pd.DataFrame:
    """Make a TIMINGS table from rows that state only some columns."""
    table = pd.DataFrame(list(rows), columns=[*TEXTS, *NUMBERS])
    return table.astype({**dict.fromkeys(NUMBERS, "float64"), **dict.fromkeys(TEXTS, "str")})


def device(launch: Fact | None = None, bandwidth: Fact | None = None, **peaks: float) -> Device:
    """Make a device; peaks are named like fp32_vector."""
    stated = tuple(Peak(*name.split("_"), fact(rate)) for name, rate in peaks.items())
    return Device(peaks=stated, byte_per_s=bandwidth, launch_s=launch)


def machine(of: Device | None = None, table: pd.DataFrame | None = None, **more: object) -> Machine:
    known = timings() if table is None else table
    return Machine("test", "test", "lab", of or Device(), known, typical=shipped_typical_tables(), **more)


def posterior(
    features: np.ndarray, target: np.ndarray, noise: np.ndarray, query: np.ndarray, hyper: gp.Hyper
) -> gp.Posterior:
    """Predict from the rows of an unprepared table."""
    return gp.posterior(gp.precompute(features, target, noise, hyper), query)


def typical_at(found: TypicalUtilisations, place: int = 0) -> TypicalUtilisations | None:
    """Return the typical utilisation of one op; None if it is unknown."""
    one = TypicalUtilisations._make(column[place] for column in found)
    return None if math.isnan(one.value) else one


def as_answers(found: dict[int, Timed]) -> Answers:
    """Return predictions as columns, by index."""
    columns = list(zip(*found.values(), strict=True)) or [()] * len(Timed._fields)
    sources, bounds = (np.array(column, object) for column in columns[3:5])
    times = np.array(columns[:3], np.float64)
    return Answers(np.fromiter(found, np.int64, len(found)), times, sources, bounds, list(columns[5]).__getitem__)


def loaded(name: str | Path) -> Machine:
    """Load a machine prepared for predictions that need no fits."""
    return replace(load_machine(name), typical=shipped_typical_tables())
