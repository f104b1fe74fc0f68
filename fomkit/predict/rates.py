"""The rates that bound a machine's times: stated peaks and bandwidth, else what its table sustained."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fomkit.dtypes import REAL_OF
from fomkit.hardware import Fact, Machine
from fomkit.predict.engines import ARITHMETIC_KINDS
from fomkit.predict.estimates import Record
from fomkit.predict.rows import Table, are, numbers, same_texts
from fomkit.quantities import format_quantity

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
    names = [f"{one}/{engine}" for one in (dtype, REAL_OF.get(dtype, dtype))]
    sustained = next((best[name] for name in names if name in best), None) if isinstance(best, Mapping) else None
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


class Bounds(NamedTuple):
    """The floors of many ops, by the rate that binds each.

    Attributes
    ----------
    floor_s : array (q,)
        NaN where a term that the kind needs is unknown: arithmetic kinds need the peak, all need the bandwidth.
    compute : array (q,) of bool
        True where arithmetic binds, False where traffic does.
    low, high : array (q,)
        Ends of the rate that binds, as shares of its value.
    fitted : array (q,) of bool
        True where no source states that rate.
    """

    floor_s: NDArray[np.float64]
    compute: NDArray[np.bool_]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    fitted: NDArray[np.bool_]

    def chosen(self, which: NDArray[np.bool_]) -> Bounds:
        """Give those of some of the ops."""
        return Bounds(**{name: column[which] for name, column in self._asdict().items()})

    @property
    def names(self) -> NDArray[np.object_]:
        """Compute or memory."""
        return np.where(self.compute, "compute", "memory").astype(object)


def floors(
    arithmetic: NDArray[np.bool_],
    flop: NDArray[np.float64],
    byte: NDArray[np.float64],
    flop_per_s: NDArray[np.float64] | float,
    byte_per_s: NDArray[np.float64] | float,
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Give the longer of flop / peak and byte / bandwidth [s], and where it is the first; NaN where unknown."""
    compute_s, memory_s = np.asarray(flop / flop_per_s), np.asarray(byte / byte_per_s)
    compute = compute_s >= memory_s
    floor_s = np.where(compute, compute_s, memory_s)
    return np.where(np.isnan(compute_s) & arithmetic, np.nan, floor_s), compute


def value_of(rate: Fact | None) -> float:
    """Give a rate, NaN where it is unknown."""
    return np.nan if rate is None else rate.value


def _bind(
    arithmetic: NDArray[np.bool_], flop: NDArray[np.float64], byte: NDArray[np.float64], known: Rates
) -> Bounds:
    pair = (known.byte_per_s, known.flop_per_s)
    floor_s, compute = floors(arithmetic, flop, byte, value_of(pair[1]), value_of(pair[0]))
    ends = [np.ones(2) if fact is None else np.array([fact.low, fact.high]) / fact.value for fact in pair]
    fitted = [fact is not None and fact.source == FITTED for fact in pair]
    low, high = np.where(compute, ends[1][:, None], ends[0][:, None])
    return Bounds(floor_s, compute, low, high, np.where(compute, fitted[1], fitted[0]))


def same_rates(rows: Table) -> dict[tuple[str, str], NDArray[np.intp]]:
    """Give the positions of the rows of each number format and engine."""
    pairs, numbers_of = same_texts(rows, "dtype", "engine")
    return {(dtype, engine): np.flatnonzero(numbers_of == at) for at, (dtype, engine) in enumerate(pairs)}


def bounds(rows: Table, machine: Machine) -> Bounds:
    """Find the term that bounds each op of a COSTED table."""
    arithmetic = are(rows, "kind", *ARITHMETIC_KINDS)
    flop, byte = numbers(rows, "flop"), numbers(rows, "byte")
    columns = [np.empty(len(rows), kind) for kind in (float, bool, float, float, bool)]
    for pair, at in same_rates(rows).items():
        found = _bind(arithmetic[at], flop[at], byte[at], rates(machine, *pair))
        for column, values in zip(columns, found, strict=True):
            column[at] = values
    return Bounds(*columns)


def binding(row: Record, known: Rates) -> Bound | None:
    """Find the term that bounds an op: the longer of flop / peak and byte / bandwidth.

    Returns
    -------
    Bound or None
        None where a term that the kind needs is unknown: arithmetic kinds need the peak, all need the bandwidth.
    """
    flop, byte = (np.array([row[name]], np.float64) for name in ("flop", "byte"))
    found = _bind(np.array([row["kind"] in ARITHMETIC_KINDS]), flop, byte, known)
    rate = known.flop_per_s if found.compute[0] else known.byte_per_s
    if rate is None or math.isnan(found.floor_s[0]):
        return None
    return Bound(str(found.names[0]), float(found.floor_s[0]), rate)
