"""Estimators: the table lacks the op, but has one that does the same work another way."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from fomkit.predict.estimates import Answers, Estimator, as_answers, timed_kinds
from fomkit.predict.kept import kept
from fomkit.predict.rows import Rows, Table, are, as_rows, item_bytes, numbers, same_texts
from fomkit.predict.transfer import BASELINE, transferred, usual_here, widen

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


def _classes(products: Table) -> list[str]:
    """Name what a fit of products tells apart, batched ones for themselves: libraries call other kernels."""
    batched = np.where(numbers(products, "b", 1.0) > 1, "/batched", "/single").tolist()
    pairs, numbers_of = same_texts(products, "dtype", "engine")
    return ["/".join(pairs[at]) + word for at, word in zip(numbers_of.tolist(), batched, strict=True)]


def _orders(products: Table) -> NDArray[np.float64]:
    """Give the storage orders as numbers; NaN where a factor's is not stated."""
    return 2 * numbers(products, "trans_a") + numbers(products, "trans_b")


def _timed_orders(timings: pd.DataFrame) -> dict[str, dict[float, int]]:
    """Count the timings of each storage order by class, of the classes where every timing states its order."""
    known = as_rows(timings).take(are(timings, "kind", "gemm"))
    table: dict[str, dict[float, int]] = {}
    for group, orders in pd.Series(_orders(known)).groupby(np.array(_classes(known), object)):
        # An order that was not stated may be any, so a class with one such has them all.
        if orders.notna().all():
            table[str(group)] = {float(str(order)): int(count) for order, count in orders.value_counts().items()}
    return table


def _usual_orders(products: Table, timings: pd.DataFrame) -> NDArray[np.float64]:
    """Give products the commonest storage order of their class in the table; NaN where it has their own."""
    table = kept(timings, None, "storage orders", partial(_timed_orders, timings))
    pairs = list(zip(_classes(products), _orders(products).tolist(), strict=True))
    found: dict[tuple[str, float], float] = {}
    for its_class, asked in dict.fromkeys(pairs):
        here: dict[float, int] = table.get(its_class, {})
        lacking = not math.isnan(asked) and here.get(asked, 0) < FEWEST <= max(here.values(), default=0)
        found[its_class, asked] = max(here, key=lambda order: here[order]) if lacking else np.nan
    return np.array([found.get(pair, np.nan) for pair in pairs])


def another_order(rows: Table, machine: Machine, interval: float, *, table: Estimator) -> Answers:
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
    Answers
        Products of which the table has fewer than `FEWEST` timings in their storage order.
    """
    rows = as_rows(rows)
    products = rows.take(are(rows, "kind", "gemm"))
    if (
        not len(products)
        or "gemm" not in timed_kinds(machine.timings)
        or not {"trans_a", "trans_b"} <= set(machine.timings.columns)
    ):
        return as_answers({})
    orders = _usual_orders(products, machine.timings)
    lacking = ~np.isnan(orders)
    if not lacking.any():
        return as_answers({})
    chosen, orders = products.take(lacking), orders[lacking]
    stored = chosen.assign(trans_a=orders // 2, trans_b=orders % 2)
    spread = math.exp(NormalDist().inv_cdf(0.5 + interval / 2) * ORDER_SPREAD)
    known = as_answers(table(stored, machine, interval))
    order = orders[pd.Index(stored.index).get_indexer(pd.Index(known.index))]

    def evidence(place: int) -> str:
        return (
            f"as stored with trans_a {order[place] // 2:g}, trans_b {order[place] % 2:g}, its own order is not in "
            f"the table ({known.time_source[place]}, {known.evidence(place)})"
        )

    return transferred(known, widen(known.times, spread, spread), known.bound, evidence)


def moved_data(rows: Table, machine: Machine, interval: float, *, table: Estimator) -> Answers:
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
    Answers
        Rows of the kinds in `MOVING` whose stand-in ``table`` knows.
    """
    rows = as_rows(rows)
    chosen = rows.take(are(rows, "kind", *MOVING))
    if not len(chosen) or "pointwise" not in timed_kinds(machine.timings):
        return as_answers({})
    like = chosen.assign(
        kind="pointwise", engine="vector", pass_name=BASELINE, op="", inputs=np.nan, flop=chosen.number("numel")
    )
    return _carried_over(
        chosen, as_answers(table(like, machine, interval)), machine, interval, "an element-wise op"
    )


def row_gradients(rows: Table, machine: Machine, interval: float, *, table: Estimator) -> Answers:
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
    Answers
        Gradients of the kinds in `FORWARD_FLOP` whose forward pass ``table`` knows.
    """
    timed = [kind for kind in FORWARD_FLOP if kind in timed_kinds(machine.timings)]
    rows = as_rows(rows)
    passes = rows.text("pass_name")
    back = passes.told([word.startswith("backward") for word in passes.words], bool)
    chosen = rows.take(are(rows, "kind", *timed) & back)
    if not len(chosen):
        return as_answers({})
    kinds, once = chosen.text("kind"), chosen.number("numel") * item_bytes(chosen)
    forward_share = kinds.told([FORWARD_FLOP.get(kind, np.nan) for kind in kinds.words], float)
    like = chosen.assign(
        pass_name=BASELINE, op="", inputs=np.nan, read_byte=once, write_byte=once, byte=2 * once,
        flop=chosen.number("flop") * forward_share,
    )  # fmt: skip
    known = as_answers(table(like, machine, interval))
    more = (chosen.number("byte") / (2 * once))[pd.Index(chosen.index).get_indexer(pd.Index(known.index))]
    scaled = Answers(known.index, known.times * more, known.time_source, known.bound, known.evidence)
    return _carried_over(chosen, scaled, machine, interval, f"its {BASELINE} pass")


def _carried_over(chosen: Rows, known: Answers, machine: Machine, interval: float, what: str) -> Answers:
    """Take over the times of ops of the same traffic, wider by how far ops of the kind usually lie apart."""
    here, places = usual_here(chosen, machine, interval), known.places(chosen.index)
    good = (places >= 0) & here.known
    usual, same = here.usual.chosen(good), known.chosen(places[good])

    def evidence(place: int) -> str:
        return f"as {what} of this traffic ({same.time_source[place]}, {same.evidence(place)})"

    times = widen(same.times, usual.high / usual.value, usual.value / usual.low)
    return transferred(same, times, here.bounds.names[good], evidence)
