"""Estimators: the table lacks the op, but has one that does the same work another way."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from fomkit.dtypes import ITEM_BYTE
from fomkit.predict.estimates import Estimator, Timed, numbers, texts
from fomkit.predict.transfer import BASELINE, usual_here, widen

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fomkit.hardware import Machine

MOVING = ("pointwise",)
"""Kinds that take what an element-wise op takes that reads and writes as much."""

FORWARD_FLOP: Mapping[str, float] = {"norm": 8 / 13, "softmax": 5 / 4}
"""Kinds whose gradients take what their forward pass takes per byte, and the flop of that pass by those of the
gradient (`fomkit.costs.elementwise`). Both passes walk over rows and wait for memory: an element-wise op, which
need not add anything up, moves up to a third more."""

FEWEST = 8
"""Timings of a storage order from which a table counts as having it; fits need as many of a family."""

ORDER_SPREAD = 0.25
"""Standard deviation of ln(time) between storage orders of one product. On the tables of DeepBench eight of ten
products (848 pairs) lie within a factor of 1.38; half lie within 1.07."""


def _classes(products: pd.DataFrame) -> pd.Series[str]:
    """Name what a fit of products tells apart, batched ones for themselves: libraries call other kernels."""
    batched = np.where(numbers(products, "b", 1.0) > 1, "batched", "single")
    return texts(products, "dtype") + "/" + texts(products, "engine") + "/" + batched


def _orders(products: pd.DataFrame) -> NDArray[np.float64]:
    """Give the storage orders as numbers; NaN where a factor's is not stated."""
    return 2 * numbers(products, "trans_a") + numbers(products, "trans_b")


def _usual_orders(products: pd.DataFrame, timings: pd.DataFrame) -> NDArray[np.float64]:
    """Give products the commonest storage order of their class in the table; NaN where it has their own."""
    known = timings[(timings["kind"] == "gemm").to_numpy()]
    table: dict[str, dict[float, int]] = {}
    for group, orders in pd.Series(_orders(known)).groupby(_classes(known).to_numpy()):
        # An order that was not stated may be any, so a class with one such has them all.
        if orders.notna().all():
            table[str(group)] = {float(str(order)): int(count) for order, count in orders.value_counts().items()}
    found = np.full(len(products), np.nan)
    for at, (its_class, asked) in enumerate(zip(_classes(products), _orders(products), strict=True)):
        here = table.get(str(its_class), {})
        if not math.isnan(asked) and here.get(float(asked), 0) < FEWEST <= max(here.values(), default=0):
            found[at] = max(here, key=lambda order: here[order])
    return found


def another_order(rows: pd.DataFrame, machine: Machine, interval: float, *, table: Estimator) -> dict[int, Timed]:
    """Predict products that are stored as the table has none: by those that it has, with a wider interval.

    Parameters
    ----------
    rows : DataFrame
        COSTED rows.
    machine : Machine
    interval : float
        Share of intervals that should contain the truth.
    table : Estimator
        What prices the product in the table's storage order, from the machine's table alone.

    Returns
    -------
    dict
        Products of which the table has fewer than `FEWEST` timings in their storage order.
    """
    products = rows[(rows["kind"] == "gemm").to_numpy()]
    if not len(products) or not {"trans_a", "trans_b"} <= set(machine.timings.columns):
        return {}
    orders = _usual_orders(products, machine.timings)
    lacking = ~np.isnan(orders)
    if not lacking.any():
        return {}
    chosen, orders = products[lacking], orders[lacking]
    stored = chosen.assign(trans_a=orders // 2, trans_b=orders % 2)
    spread = math.exp(NormalDist().inv_cdf(0.5 + interval / 2) * ORDER_SPREAD)
    return {
        index: widen(timed, spread, spread)._replace(
            evidence=f"as stored with trans_a {order // 2:g}, trans_b {order % 2:g}, its own order is not in the "
            f"table ({timed.time_source}, {timed.evidence})"
        )
        for (index, timed), order in _paired(table(stored, machine, interval), stored.index.tolist(), orders)
    }


def _paired(
    times: dict[int, Timed], indices: list[int], orders: NDArray[np.float64]
) -> list[tuple[tuple[int, Timed], float]]:
    order_of = dict(zip(indices, orders.tolist(), strict=True))
    return [((index, timed), order_of[index]) for index, timed in times.items()]


def moved_data(rows: pd.DataFrame, machine: Machine, interval: float, *, table: Estimator) -> dict[int, Timed]:
    """Predict element-wise ops of other passes by the machine's own element-wise ops.

    An element-wise forward op that reads and writes as many bytes takes their place. The interval is widened by
    how far ops of the kind usually lie apart at the same traffic.

    Parameters
    ----------
    rows : DataFrame
        COSTED rows.
    machine : Machine
    interval : float
        Share of intervals that should contain the truth.
    table : Estimator
        What prices the element-wise op, from the machine's table alone.

    Returns
    -------
    dict
        Rows of the kinds in `MOVING` whose stand-in ``table`` knows.
    """
    chosen = rows[texts(rows, "kind").isin(MOVING).to_numpy()]
    if not len(chosen):
        return {}
    like = chosen.assign(
        kind="pointwise", engine="vector", pass_name=BASELINE, op="", inputs=np.nan, flop=chosen["numel"]
    )
    return _carried_over(chosen, table(like, machine, interval), machine, interval, "an element-wise op")


def row_gradients(rows: pd.DataFrame, machine: Machine, interval: float, *, table: Estimator) -> dict[int, Timed]:
    """Predict gradients of norms and of softmax by the machine's own forward passes over the same rows.

    time = forward time · bytes of the gradient / bytes of the forward pass, which reads and writes each element
    once. The interval is widened as in `moved_data`.

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
        Gradients of the kinds in `FORWARD_FLOP` whose forward pass ``table`` knows.
    """
    gradient = texts(rows, "pass_name").str.startswith("backward") & texts(rows, "kind").isin(list(FORWARD_FLOP))
    chosen = rows[gradient.to_numpy()]
    if not len(chosen):
        return {}
    once = chosen["numel"] * texts(chosen, "dtype").map(ITEM_BYTE)
    like = chosen.assign(
        pass_name=BASELINE, op="", inputs=np.nan, read_byte=once, write_byte=once, byte=2 * once,
        flop=chosen["flop"] * texts(chosen, "kind").map(FORWARD_FLOP),
    )  # fmt: skip
    more = dict(zip(chosen.index.tolist(), (chosen["byte"] / (2 * once)).tolist(), strict=True))
    known = {
        index: timed._replace(
            time_s=timed.time_s * more[index], low_s=timed.low_s * more[index], high_s=timed.high_s * more[index]
        )
        for index, timed in table(like, machine, interval).items()
    }
    return _carried_over(chosen, known, machine, interval, f"its {BASELINE} pass")


def _carried_over(
    chosen: pd.DataFrame, known: Mapping[int, Timed], machine: Machine, interval: float, what: str
) -> dict[int, Timed]:
    """Take over the times of ops of the same traffic, wider by how far ops of the kind usually lie apart."""
    times: dict[int, Timed] = {}
    for index, (bound, usual) in usual_here(chosen, machine, interval).items():
        if index in known:
            timed = known[index]
            times[index] = widen(timed, usual.high / usual.value, usual.value / usual.low)._replace(
                bound=bound,
                evidence=f"as {what} of this traffic ({timed.time_source}, {timed.evidence})",
            )
    return times
