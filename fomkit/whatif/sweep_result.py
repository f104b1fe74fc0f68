"""The result of a sweep: its points as a table, their Pareto front, and its content, ``fomkit/sweep/1``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypedDict

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fomkit import __version__
from fomkit.core.errors import Shown
from fomkit.core.measurement import verdict_on
from fomkit.ops.precision import choose_formats
from fomkit.plan.content import INTERVAL_MEANING, Condition, as_content, conditions_content
from fomkit.plan.estimate import estimate
from fomkit.plan.job import NodesJob
from fomkit.plan.options import NODES
from fomkit.plan.run import left_out_note, left_out_share, steps_per_epoch
from fomkit.prediction.exchange import Network
from fomkit.profiles.evidence import without_implausible
from fomkit.whatif.sweep import Sweep
from fomkit.whatif.sweep_axes import POWER, PRICE, Array, Axis
from fomkit.whatif.sweep_figures import FITS, Objective

Mask = NDArray[np.bool_]
Blocks = Iterable[pd.DataFrame]
BLOCK = 512
"""Number of points that are compared at once; it bounds the memory."""


def _front_of_two(values: Array) -> Mask:
    """Sort by the first column, then scan with the least second value so far: n log n."""
    order = np.lexsort((values[:, 1], values[:, 0]))
    first, second = values[order].T
    starts = np.flatnonzero(np.r_[True, first[1:] != first[:-1]])
    least = second[starts]  # of each group with equal first values
    before = np.r_[np.inf, np.minimum.accumulate(least)[:-1]]
    group = np.cumsum(np.r_[True, first[1:] != first[:-1]]) - 1
    found = np.zeros(len(values), bool)
    found[order] = (least < before)[group] & (second == least[group])
    return found


def _dominated(values: Array, by: Array) -> Mask:
    """Return which of distinct ``values`` another point of ``by`` dominates, being nowhere worse."""
    found = np.zeros(len(values), bool)
    for start in range(0, len(by), BLOCK):
        others = by[start : start + BLOCK]
        nowhere_worse = (others[:, None, :] <= values[None, :, :]).all(2)
        differs = (others[:, None, :] != values[None, :, :]).any(2)
        found |= (nowhere_worse & differs).any(0)
    return found


def _front_of_many(values: Array) -> Mask:
    """Scan distinct points by the sum of their ranks: a point that dominates another comes before it."""
    ranks = sum(np.unique(column, return_inverse=True)[1] for column in values.T)
    order = np.argsort(ranks, kind="stable")
    front_places = np.empty(0, np.intp)
    for start in range(0, len(order), BLOCK):
        own = order[start : start + BLOCK]
        own = own[~_dominated(values[own], values[front_places])]
        own = own[~_dominated(values[own], values[own])]
        front_places = np.r_[front_places, own]
    found = np.zeros(len(values), bool)
    found[front_places] = True
    return found


def pareto_front(values: Array) -> Mask:
    """Return a mask of points that no other dominates: at least as good in all and better in one objective.

    `values` (n, k): lower is better in each of k ≥ 1 objectives. A point with NaN is never on the front and
    dominates none; equal points are on it together. Returns an array (n,) of bool. One objective takes n steps,
    two take n log n; more are compared in blocks, at most n times the size of the front.

    >>> pareto_front(np.array([[1.0, 4.0], [2.0, 2.0], [3.0, 3.0], [4.0, 1.0]])).tolist()
    [True, True, False, True]
    """
    found = np.zeros(len(values), bool)
    known = np.flatnonzero(~np.isnan(values).any(1))
    if not len(known):
        return found
    own = values[known]
    if own.shape[1] == 1:
        found[known] = own[:, 0] == own[:, 0].min()
    elif own.shape[1] == 2:
        found[known] = _front_of_two(own)
    else:
        distinct, place = np.unique(own, axis=0, return_inverse=True)
        found[known] = _front_of_many(distinct)[place.ravel()]
    return found


def lower_is_better(table: pd.DataFrame, objectives: Iterable[Objective]) -> Array:
    """Return the objectives of each point (n, k), with signs so that lower is better in all."""
    columns = [
        table[objective.column].to_numpy(np.float64) * (-1.0 if objective.better == "higher" else 1.0)
        for objective in objectives
    ]
    return np.stack(columns, axis=1)


class Tally:
    """Ranges, best points and front of the points so far.

    `seen`: number of points so far.
    `too_large`: points whose step a device does not hold; they are neither best nor on the front.
    `not_checked`: points for which it is unknown whether they fit; they are compared like points that do.
    `front`: one point for each set of objectives that no other point dominates, the first of equal ones.
    """

    def __init__(self, sweep: Sweep) -> None:
        self.sweep = sweep
        self.seen = 0
        self.too_large = 0
        self.not_checked = 0
        self.front = pd.DataFrame()
        self.ranges: dict[str, tuple[float, float]] = {}

    def add(self, block: pd.DataFrame) -> None:
        """Add some points to the tally."""
        self.seen += len(block)
        for name in block.columns:
            if block[name].dtype.kind == "f" and block[name].notna().any():
                low, high = self.ranges.get(str(name), (math.inf, -math.inf))
                self.ranges[str(name)] = min(low, float(block[name].min())), max(high, float(block[name].max()))
        if FITS in block:
            self.not_checked += int(block[FITS].isna().sum())
            held = block[FITS].fillna(True).to_numpy(bool)
            self.too_large += int((~held).sum())
            block = block[held]
        else:
            self.not_checked += len(block)
        both = pd.concat([self.front, block]) if len(self.front) else block
        values = lower_is_better(both, self.sweep.objectives)
        best = both[pareto_front(values)]
        self.front = best.drop_duplicates([objective.column for objective in self.sweep.objectives])

    def sorted_front(self, objective: Objective | None = None) -> pd.DataFrame:
        """Return the front, the best by one objective first; default: by time."""
        if not len(self.front):
            return self.front
        first = objective or self.sweep.objectives[0]
        order = [first, *(objective for objective in self.sweep.objectives if objective != first)]
        return self.front.iloc[np.lexsort(lower_is_better(self.front, order).T[::-1])]


SCHEMA = "fomkit/sweep/1"
UNCHECKED = "the memory of this step is unknown"
FRONT_LISTED = 200
"""Number of points of the front that are listed; the table of the sweep has them all."""
_UNITS = {"byte_per_s": "byte/s", "flop_per_s": "flop/s", "time_s": "s", "power_w": "W"}
ASSUMED = {
    "machine": "on a machine with other rates every op keeps its utilisation on the machine as built; intervals "
    "keep their relative width, but how far this holds has not been measured",
    PRICE: "a device costs its price in every hour, whether the machine is up or not; the date of the price is "
    "not stated",
    POWER: "a device uses this power all the time that it works, and nothing else is counted",
    "nodes": "each copy of the model has the batch of the point (weak scaling), as in fomkit scaling",
    "best": "values are compared, not intervals: points whose intervals overlap may swap ranks",
    "sizes": "a run has the same number of samples at any size, although the samples differ in size",
    FITS: "a point whose step does not fit the device's memory is neither best nor on the front",
}


def points_content(points: pd.DataFrame) -> Iterator[dict[str, object]]:
    """Yield points with their results; None is unknown."""
    for row in points.to_dict("records"):
        yield {str(name): None if pd.isna(value) else value for name, value in row.items()}


AxisContent = TypedDict("AxisContent", {"name": str, "unit": str, "least": float, "most": float,
                                        "count": int | None, "spacing": str})  # fmt: skip
PriceOf = TypedDict("PriceOf", {"currency": str, "per": str, "date": str, "source": str})
ObjectiveContent = TypedDict("ObjectiveContent", {"name": str, "column": str, "better": str, "unit": str})
EndsOfRange = TypedDict("EndsOfRange", {"least": float, "most": float})
Best = TypedDict("Best", {"objective": str, "point": dict[str, object] | None})
Front = TypedDict("Front", {"size": int, "points": list[dict[str, object]]})
SweepContent = TypedDict("SweepContent", {
    "schema": str, "fomkit": str, "model": str, "target": str, "sizes": dict[str, int], "precision": str,
    "scope": str, "interval": float, "interval_covers": str, "way": str, "seed": int | None, "points": int,
    "too_large": int | None, "not_checked": int, "why_not_checked": str | None, "excludes": list[str],
    "price": PriceOf | None, "varied": list[AxisContent], "per": str, "unit": str,
    "objectives": list[ObjectiveContent], "ranges": dict[str, EndsOfRange], "best": list[Best], "front": Front,
    "absent": dict[str, str], "assumed": list[str], "notes": list[str], "conditions": dict[str, Condition],
})  # fmt: skip


def _axis_content(axis: Axis, sweep: Sweep) -> AxisContent:
    low, high = axis.ends
    plain = "count" if axis.kind.whole else "number"
    if axis.name == PRICE and sweep.bill is not None:
        plain = f"{sweep.bill.price.currency}/h"
    return {
        "name": axis.name, "unit": _UNITS.get(axis.kind.dimension, plain),
        "least": int(low) if axis.kind.whole else low, "most": int(high) if axis.kind.whole else high,
        "count": axis.count, "spacing": "listed" if axis.values else "log" if axis.log else "linear",
    }  # fmt: skip


def _sweep_assumed(sweep: Sweep) -> list[str]:
    machine_facts = any(name.startswith(("byte_per_s", "launch_s", "flop_per_s")) for name in sweep.names)
    sizes = any(axis.kind.whole and axis.name not in ("batch", "nodes") for axis in sweep.plan.axes)
    holds = {
        "machine": machine_facts, PRICE: PRICE in sweep.names, POWER: POWER in sweep.names,
        "nodes": sweep.on_nodes, "best": True,
        "sizes": sizes and sweep.per == "unit of work", FITS: FITS in sweep.known,
    }  # fmt: skip
    return [text for name, text in ASSUMED.items() if holds[name]]


def _sweep_conditions(sweep: Sweep) -> dict[str, Condition]:
    """State what a time varies with, for the given machine and least sizes, and what each point varies."""
    options, sizes = sweep.options_at_least, sweep.least_sizes
    if sweep.on_nodes:
        nodes = next(int(axis.ends[0]) for axis in sweep.plan.axes if axis.name == NODES)
        found = NodesJob(sweep.model, sweep.machine, sweep.layout, options).conditions(nodes)
    else:
        found = conditions_content(estimate(sweep.model, sweep.machine, options))
    if "byte_per_s" in sweep.names:
        found["bandwidth"] = {"is": "modelled", "what": "that of each point, as it is varied here"}
    if sizes:
        found["sizes"] = {"is": "modelled", "what": f"each op at the {' and '.join(sizes)} of each point"}
    return found


def _left_out_notes(sweep: Sweep, firsts: Iterable[pd.DataFrame]) -> Iterator[str]:
    """Yield notes on best points whose runs leave a notable share of the samples out."""
    if sweep.per != "unit of work":
        return
    model, last_batch = sweep.model, sweep.options.last_batch or sweep.model.data.last_batch
    sizes = {**model.sizes, **sweep.options.wanted_sizes}
    for first in firsts:
        for point in points_content(first):
            at: dict[str, Any] = {"train_samples": model.data.train_samples, **sizes, **point}
            batch, samples = int(at["batch"]), int(at["train_samples"])
            if sweep.on_nodes:
                batch *= sweep.layout.replicas(int(at[NODES]) * Network(sweep.machine).node_devices)
            share = left_out_share(samples, steps_per_epoch(samples, batch, last_batch)[0], batch)
            if note := left_out_note(share):
                yield f"a best point, with {batch:,} samples in a step: {note}"


def sweep_content(sweep: Sweep, tally: Tally) -> SweepContent:
    """Return the content of a sweep, ``fomkit/sweep/1``, once all its points are in the tally."""
    front = tally.sorted_front()
    formats = choose_formats(
        sweep.options.precision, sweep.model.traced_with.get("framework", ""), sweep.machine, sweep.model.ops
    )
    sizes = {**sweep.model.sizes, **sweep.options.wanted_sizes}
    firsts = [(objective, tally.sorted_front(objective).head(1)) for objective in sweep.objectives]
    left_out = dict.fromkeys(_left_out_notes(sweep, [first for _, first in firsts]))
    way, price = sweep.plan.way, sweep.bill and sweep.bill.price
    return as_content(
        SweepContent, sweep, tally, schema=SCHEMA, fomkit=__version__, model=sweep.model.name,
        target=sweep.machine.name, sizes={name: size for name, size in sizes.items() if name not in sweep.names},
        precision=formats.name, interval=sweep.options.interval, interval_covers=INTERVAL_MEANING, way=way,
        seed=None if way == "grid" else sweep.plan.seed, points=tally.seen,
        too_large=tally.too_large if FITS in sweep.known else None,
        why_not_checked=(sweep.memory.unchecked or UNCHECKED) if tally.not_checked else None,
        price=price and as_content(PriceOf, price, price.per_s), unit=sweep.model.unit.name,
        varied=[_axis_content(axis, sweep) for axis in sweep.plan.axes],
        ranges={name: {"least": low, "most": high} for name, (low, high) in tally.ranges.items()
                if name not in sweep.names},
        best=[{"objective": one.name, "point": next(points_content(first), None)} for one, first in firsts],
        front={"size": len(front), "points": list(points_content(front.head(FRONT_LISTED)))},
        assumed=_sweep_assumed(sweep), conditions=_sweep_conditions(sweep),
        notes=[*verdict_on(without_implausible(sweep.machine)), *left_out],
    )  # fmt: skip


@dataclass(frozen=True, repr=False)
class Swept(Shown):
    """All points of a sweep.

    `table`: a row for each point: its parameters (SI units), step_s [s], sample_per_s [1/s] and unit_per_day
      [1/day] with low and high, cost and energy_j [J], peak_byte [byte], fits and basis, as far as they are known.
    `front`: the rows of the table that no other row dominates, one of each set of equals.
    `content`: ``fomkit/sweep/1``.
    """

    table: pd.DataFrame = field()
    front: pd.DataFrame
    content: SweepContent = field()

    @property
    def best(self) -> pd.Series:
        """The point with the least time a unit of work, of those whose step the memory holds."""
        return self.front.iloc[0]


def run_sweep(
    sweep: Sweep, scheduler: str | None = None, after_each: Callable[[], None] = lambda: None, *,
    keep: bool = True, first: int = 0, through: Callable[[Blocks], Blocks] = lambda blocks: blocks,
) -> Swept:  # fmt: skip
    """Run a sweep, and keep every point unless ``keep`` is false.

    `scheduler`: of a Dask cluster; default: this machine; `after_each`: called after each stretch; `first`: the
    first stretch; `through`: a function on the stretches, which may write them and prepend earlier ones.
    """
    tally, tables, blocks = Tally(sweep), list[pd.DataFrame](), sweep.blocks(first)
    if scheduler is not None:
        from fomkit.whatif.cluster import blocks_on

        blocks = blocks_on(sweep, scheduler, first)
    for block in through(blocks):
        tally.add(block)
        tables.append(block if keep else block.iloc[:0].copy())
        after_each()
    return Swept(pd.concat(tables), tally.sorted_front(), sweep_content(sweep, tally))
