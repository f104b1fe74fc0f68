"""Estimator: the table knows the op in another pass, and the two passes usually differ by a known ratio."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from fomkit.predict.estimates import Estimator, Timed, records, texts
from fomkit.predict.rates import binding, rates
from fomkit.predict.usual import Usual, usual_utilisation, without_pass

if TYPE_CHECKING:
    import pandas as pd

    from fomkit.hardware import Machine

BASELINE = "forward"
TRANSFERRED: Mapping[str, tuple[str, ...]] = {"conv": ("backward_input", "backward_weight")}
"""Kinds and passes that follow the forward pass: their work is the same, in another order.

On the nine training tables of DeepBench, nothing heard of the machine's own chip, it is off by 19 % (input) and
30 % (weight) in the middle.
Recurrent layers do not follow: their weight gradient is one product over all steps, off by a factor of two.
"""


def usual_here(rows: pd.DataFrame, machine: Machine, interval: float) -> dict[int, tuple[str, Usual]]:
    """Give what bounds ops on a machine, and their usual utilisation; none where a rate is unknown."""
    usual = usual_utilisation(rows, machine, interval)
    bounds = {index: binding(row, rates(machine, row["dtype"], row["engine"])) for index, row in records(rows)}
    return {
        index: (bound.name, usual[index])
        for index, bound in bounds.items()
        if bound is not None and index in usual
    }


def _spread(known: float, of_ratio: float) -> float:
    return math.exp(math.hypot(math.log(known), math.log(of_ratio)))


def widen(known: Timed, faster: float, slower: float) -> Timed:
    """Carry a time over to another op, its interval widened by how much faster or slower [1] that may be."""
    return known._replace(
        low_s=known.time_s / _spread(known.time_s / known.low_s, faster),
        high_s=known.time_s * _spread(known.high_s / known.time_s, slower),
        time_source="transferred",
    )


def _answer(known: Timed, baseline: Usual, asked: Usual, bound: str) -> Timed:
    ratio = baseline.value / asked.value
    wide = widen(known, asked.high / asked.value, asked.value / asked.low)
    return wide._replace(
        time_s=wide.time_s * ratio,
        low_s=wide.low_s * ratio,
        high_s=wide.high_s * ratio,
        bound=bound,
        evidence=f"{ratio:.2g} × its {BASELINE} pass ({known.time_source}, {known.evidence}), the ratio of "
        f"what is {asked.source} and {baseline.source}",
    )


def estimate(rows: pd.DataFrame, machine: Machine, interval: float, *, table: Estimator) -> dict[int, Timed]:
    """Predict gradients of convolutions on a machine whose table has their forward pass only.

    time = forward time · usual utilisation of the forward pass / usual utilisation of the asked one. The machine's
    own library is in the forward time, which peak and bandwidth do not know: a slow one is slow in each pass.

    Parameters
    ----------
    rows : DataFrame
        COSTED rows.
    machine : Machine
    interval : float
        Share of intervals that should contain the truth.
    table : Estimator
        What prices the forward pass, from the machine's table alone.

    Returns
    -------
    dict
        The rows whose forward pass ``table`` knows.
    """
    follows = [
        kind in TRANSFERRED and word in TRANSFERRED[kind]
        for kind, word in zip(texts(rows, "kind"), texts(rows, "pass_name"), strict=True)
    ]
    chosen = rows[follows]
    if not len(chosen):
        return {}
    forward = chosen.assign(pass_name=BASELINE)
    known = table(forward, machine, interval)
    times: dict[int, Timed] = {}
    for (kind, word), rows in chosen.groupby(["kind", "pass_name"], sort=False):
        of = without_pass(machine, str(kind), str(word))
        asked, baseline = (usual_here(part, of, interval) for part in (rows, forward.loc[rows.index]))
        for index in rows.index.tolist():
            if index in known and index in asked and index in baseline:
                times[index] = _answer(known[index], baseline[index][1], asked[index][1], asked[index][0])
    return times
