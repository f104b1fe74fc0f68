"""The rates that bound a machine's times: stated peaks and bandwidth, else what its table sustained."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from fomkit.hardware import Fact, Machine
from fomkit.predict.engines import ARITHMETIC_KINDS
from fomkit.predict.estimates import Record
from fomkit.quantities import format_quantity

FITTED = "rates fitted to the table"
UNSEEN = 2.0
"""A machine may move bytes up to so many times faster than the best that its table shows: products reuse data."""


@dataclass(frozen=True)
class Rates:
    """What one number format runs at on one engine; None where neither a fact nor the table tells."""

    flop_per_s: Fact | None
    byte_per_s: Fact | None

    def describe(self) -> str:
        """Write the rates, and that they are fitted where no source states them."""
        words = []
        for fact, dimension in ((self.flop_per_s, "flop_per_s"), (self.byte_per_s, "byte_per_s")):
            if fact is not None:
                words.append(format_quantity(fact.value, dimension))
        if any(fact is not None and fact.source == FITTED for fact in (self.flop_per_s, self.byte_per_s)):
            words.append(FITTED)
        return ", ".join(words)


def _fitted(value: object, unseen: float = 1.0) -> Fact | None:
    if not isinstance(value, float) or not math.isfinite(value) or value <= 0:
        return None
    return Fact(value, value, value * unseen, "estimated", FITTED)


def rates(machine: Machine, dtype: str, engine: str) -> Rates:
    """Find the rates of a number format on an engine.

    A stated fact comes first. Else the best rates that any product of the table sustained, which
    `fomkit.predict.fit` keeps; that of bytes is a lower bound, so its spread is one-sided.
    """
    fitted = machine.fits.get("rates")
    stored: Mapping[str, object] = fitted if isinstance(fitted, Mapping) else {}
    best = stored.get("flop_per_s")
    sustained = best.get(f"{dtype}/{engine}") if isinstance(best, Mapping) else None
    peak = machine.device.peak(dtype, engine)
    return Rates(
        flop_per_s=peak.rate if peak is not None else _fitted(sustained),
        byte_per_s=machine.device.byte_per_s or _fitted(stored.get("byte_per_s"), UNSEEN),
    )


class Bound(NamedTuple):
    """The floor of an op [s] by the rate that binds it, and that rate with its spread."""

    name: str
    floor_s: float
    rate: Fact


def binding(row: Record, known: Rates) -> Bound | None:
    """Find the term that bounds an op: the longer of flop / peak and byte / bandwidth.

    Returns
    -------
    Bound or None
        None where a term that the kind needs is unknown: arithmetic kinds need the peak, all need the bandwidth.
    """
    peak, bandwidth = known.flop_per_s, known.byte_per_s
    if bandwidth is None or math.isnan(row["byte"]):
        return None
    memory = Bound("memory", row["byte"] / bandwidth.value, bandwidth)
    if peak is None or math.isnan(row["flop"]):
        return None if row["kind"] in ARITHMETIC_KINDS else memory
    compute = Bound("compute", row["flop"] / peak.value, peak)
    return max(compute, memory, key=lambda bound: bound.floor_s)
