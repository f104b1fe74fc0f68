"""A sweep as plain content (``fomkit/sweep/1``): what was varied, the best points and the front."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd

from fomkit import __version__
from fomkit.precision import choose_formats
from fomkit.study.content import INTERVAL_MEANING
from fomkit.study.plausible import verdict_on, without_implausible
from fomkit.whatif.sweep import Sweep
from fomkit.whatif.sweep_axes import Axis
from fomkit.whatif.sweep_memory import FITS
from fomkit.whatif.sweep_parameters import POWER, PRICE
from fomkit.whatif.sweep_tally import Tally

SCHEMA = "fomkit/sweep/1"
UNCHECKED = "nobody knows the memory of this step"
FRONT_LISTED = 200
"""Points of the front that are listed; the table of the sweep has them all."""
_UNITS = {"byte_per_s": "byte/s", "flop_per_s": "flop/s", "time_s": "s", "power_w": "W"}
ASSUMED = {
    "machine": "on a machine with other rates every op keeps the utilisation that it has on the machine as built; "
    "intervals keep their relative width, though nothing measured says how far that carries",
    PRICE: "a device costs its price for every hour of the day, whether the machine is up or not; nobody said of "
    "which day the price is",
    POWER: "a device takes this power all the time that it works, and nothing beside it is counted",
    "nodes": "each copy of the model has the batch of the point (weak scaling), as in fomkit scaling",
    "best": "values are compared, not intervals: points whose intervals overlap may change places",
    "sizes": "a run has the same number of samples at any size, though each is another",
    FITS: "a point whose step the device's memory does not hold is neither best nor on the front",
}


def _plain(value: object) -> object:
    """Give a cell as JSON has it: unknown is null."""
    if isinstance(value, bool | str):
        return value
    if isinstance(value, int) or value is pd.NA:
        return None if value is pd.NA else value
    number = float(str(value))
    return None if math.isnan(number) else number


def points_content(points: pd.DataFrame) -> Iterator[dict[str, object]]:
    """Give points with their results."""
    for row in points.to_dict("records"):
        yield {str(name): _plain(value) for name, value in row.items()}


def _axis_content(axis: Axis, sweep: Sweep) -> dict[str, Any]:
    low, high = axis.ends
    plain = "count" if axis.kind.whole else "number"
    if axis.name == PRICE and sweep.bill is not None:
        plain = f"{sweep.bill.price.currency}/h"
    return {
        "name": axis.name,
        "unit": _UNITS.get(axis.kind.dimension, plain),
        "least": int(low) if axis.kind.whole else low,
        "most": int(high) if axis.kind.whole else high,
        "count": axis.count,
        "spacing": "listed" if axis.values else "log" if axis.log else "linear",
    }


def _price_content(sweep: Sweep) -> dict[str, str] | None:
    """Say what the cost is of; None where there is none."""
    if sweep.bill is None:
        return None
    price = sweep.bill.price
    return {"currency": price.currency, "per": price.per, "date": price.date, "source": price.per_s.source}


def _assumed(sweep: Sweep) -> list[str]:
    machine_facts = any(name.startswith(("byte_per_s", "launch_s", "flop_per_s")) for name in sweep.names)
    sizes = any(axis.kind.whole and axis.name not in ("batch", "nodes") for axis in sweep.plan.axes)
    holds = {
        "machine": machine_facts, PRICE: PRICE in sweep.names, POWER: POWER in sweep.names,
        "nodes": sweep.on_nodes, "best": True,
        "sizes": sizes and sweep.per == "unit of work", FITS: FITS in sweep.known,
    }  # fmt: skip
    return [text for name, text in ASSUMED.items() if holds[name]]


def sweep_content(sweep: Sweep, tally: Tally) -> dict[str, Any]:
    """Put a sweep in the form of ``fomkit/sweep/1``, once its points went by."""
    front = tally.sorted_front()
    formats = choose_formats(
        sweep.options.precision, sweep.model.traced_with.get("framework", ""), sweep.machine, sweep.model.ops
    )
    sizes = {**sweep.model.sizes, **sweep.options.wanted_sizes}
    firsts = [(one, tally.sorted_front(one).head(1)) for one in sweep.objectives]
    return {
        "schema": SCHEMA,
        "fomkit": __version__,
        "model": sweep.model.name,
        "target": sweep.machine.name,
        "sizes": {name: size for name, size in sizes.items() if name not in sweep.names},
        "precision": formats.name,
        "scope": sweep.scope,
        "interval": sweep.options.interval,
        "interval_covers": INTERVAL_MEANING,
        "way": sweep.plan.way,
        "seed": None if sweep.plan.way == "grid" else sweep.plan.seed,
        "points": tally.seen,
        "too_large": tally.too_large if FITS in sweep.known else None,
        "not_checked": tally.not_checked,
        "why_not_checked": (sweep.memory.unchecked or UNCHECKED) if tally.not_checked else None,
        "excludes": list(sweep.excludes),
        "price": _price_content(sweep),
        "varied": [_axis_content(axis, sweep) for axis in sweep.plan.axes],
        "per": sweep.per,
        "unit": sweep.model.unit.name,
        "objectives": [one._asdict() for one in sweep.objectives],
        "ranges": {name: {"least": low, "most": high} for name, (low, high) in tally.ranges.items()
                   if name not in sweep.names},
        "best": [{"objective": one.name, "point": next(points_content(first), None)} for one, first in firsts],
        "front": {
            "size": len(front),
            "points": list(points_content(front.head(FRONT_LISTED))),
        },
        "absent": dict(sweep.absent),
        "assumed": _assumed(sweep),
        "notes": list(verdict_on(without_implausible(sweep.machine))),
    }  # fmt: skip
