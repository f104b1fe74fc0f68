"""The utilisation that ops of a kind usually reach on machines nobody timed: look-up in the shipped table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from fomkit.predict.estimates import Record
from fomkit.predict.utilisation import LEVELS, UTILISATION

WORK: Mapping[str, str] = {
    "gemm": "gemm", "sparse_gemm": "sparse_gemm", "conv": "conv", "rnn": "rnn", "attention": "attention",
    "norm": "norm", "softmax": "softmax", "pointwise": "pointwise", "optimizer": "pointwise",
}  # fmt: skip
"""Kinds with measurements of their own; the others move data and take the spread of all kinds that do."""


class Usual(NamedTuple):
    """Utilisation floor / time: median, ends of the interval, and where it comes from."""

    value: float
    low: float
    high: float
    source: str


def _names(row: Record) -> Iterator[str]:
    """Name the entries that may serve an op, the closest first."""
    work = WORK.get(str(row["kind"]), "traffic")
    engine, word = str(row["engine"]), str(row["pass_name"]).partition("_")[0]
    if work == "gemm" and row.get("b", 1.0) > 1:
        yield f"batched gemm/{engine}"
    yield f"{work}/{engine}/{word}"
    yield f"{work}/{engine}"
    yield work
    if work == "attention":
        if row["causal"] == 1:
            yield f"causal attention/{engine}"
        yield f"batched gemm/{engine}"
    yield f"{work}/vector/{word}"
    yield f"{work}/vector"
    yield f"gemm/{engine}"
    yield "gemm/vector"


def usual_utilisation(row: Record, floor_s: float, interval: float) -> Usual:
    """Give the utilisation usual for an op whose floor is ``floor_s`` [s].

    Between the floors of the table its logarithm is interpolated, beyond them it stays.

    Examples
    --------
    >>> row = {"kind": "gemm", "engine": "vector", "pass_name": "forward", "b": 1.0}
    >>> usual = usual_utilisation(row, 0.01, 0.8)
    >>> usual.low < usual.value < usual.high
    True
    """
    name = next(name for name in _names(row) if name in UTILISATION)
    floors = np.log([floor for floor, _ in UTILISATION[name]])
    quantiles = np.log([values for _, values in UTILISATION[name]])
    here = [np.interp(np.log(max(floor_s, 1e-12)), floors, quantiles[:, level]) for level in range(len(LEVELS))]
    low, value, high = np.exp(np.interp([0.5 - interval / 2, 0.5, 0.5 + interval / 2], LEVELS, here)).tolist()
    return Usual(value, low, high, f"usual for {name}")
