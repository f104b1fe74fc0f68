"""The longest ops of a step, and what the time of each rests on (``fomkit/explain/1``).

The nine steps of the method, for one estimate, are in `fomkit.study.explain`.
"""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING, Any

from fomkit import __version__
from fomkit.costs import work_out
from fomkit.errors import FomkitError
from fomkit.hardware import Fact, Machine
from fomkit.predict.engines import settle_engines
from fomkit.predict.estimates import Record, records
from fomkit.predict.nearest import Neighbour, nearest_timings
from fomkit.predict.rates import binding, rates
from fomkit.schema import COSTS, KIND_DIMENSIONS
from fomkit.study.content import INTERVAL_MEANING, span_content
from fomkit.study.estimate import Estimate, estimate
from fomkit.study.fits import with_fits
from fomkit.study.options import Options
from fomkit.study.to_time import ops_to_time
from fomkit.views import identities
from fomkit.views.shapes import shape_label
from fomkit.workload import ModelProfile

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = "fomkit/explain/1"
_SOURCE = ("source_file", "source_sheet", "source_row")


def _known(value: Any) -> Any:
    return None if value is None or value == "" or value != value else value


def distinct_ops(ops: pd.DataFrame) -> pd.DataFrame:
    """Add ops of one name, sizes, number format and pass over the modules that run them."""
    ops = ops.reset_index(drop=True)
    groups = ops.groupby(identities(ops), sort=False)
    first = ops.loc[groups.head(1).index].reset_index(drop=True)
    counts = groups["count"].agg(["sum", "size"])
    return first.assign(count=counts["sum"].to_numpy(), places=counts["size"].to_numpy())


def neighbour_content(near: Neighbour) -> dict[str, Any]:
    """Put a timing beside an op in the form of an entry of ``nearest``."""
    return {
        "sizes": shape_label(near.timing),
        "distance": near.distance,
        "time_s": near.time_s,
        **{name: _known(near.timing.get(name)) for name in _SOURCE},
    }


def _costs(row: Record) -> dict[str, Any]:
    worked = work_out(row)
    return {
        name: {"value": _known(row[name]), **(worked[name]._asdict() if name in worked else {"formula": None})}
        for name in (column.name for column in COSTS)
    }


def _rate(fact: Fact | None, amount: float) -> dict[str, Any] | None:
    if fact is None or isnan(amount):
        return None
    return {"rate": fact.value, "basis": fact.basis, "source": fact.source, "time_s": amount / fact.value}


def _floor(row: Record, machine: Machine) -> dict[str, Any]:
    """Give what arithmetic and traffic take at the machine's rates, and which of them binds."""
    known = rates(machine, row["dtype"], row["engine"])
    bound = binding(row, known)
    return {
        "compute": _rate(known.flop_per_s, row["flop"]),
        "memory": _rate(known.byte_per_s, row["byte"]),
        "binding": None if bound is None else bound.name,
        "time_s": None if bound is None else bound.floor_s,
    }


def _span(row: Record, factor: float) -> dict[str, float]:
    names = {"value": "time_s", "low": "low_s", "high": "high_s"}
    return {end: float(row[column]) * factor for end, column in names.items()}


def _entry(row: Record, near: list[Neighbour], machine: Machine, device_s: float) -> dict[str, Any]:
    dimensions = {name: _known(row.get(name)) for name in KIND_DIMENSIONS[str(row["kind"])]}
    in_step = _span(row, float(row["count"]))
    return {
        **{name: str(row[name]) for name in ("op", "kind", "pass_name", "dtype", "engine")},
        "sizes": shape_label(row),
        "dimensions": dimensions,
        "count": float(row["count"]),
        "modules": int(row["places"]),
        "time_s": _span(row, 1.0),
        "step_time_s": in_step,
        "share": in_step["value"] / device_s,
        **{name: str(row[name]) for name in ("time_source", "bound", "evidence")},
        "nearest": [neighbour_content(one) for one in near],
        "costs": _costs(row),
        "floor": _floor(row, machine),
    }


def _longest(one: Estimate, top: int) -> tuple[list[dict[str, Any]], dict[str, Any], list[dict[str, Any]]]:
    """Give the entries of the longest ops, the sum of the others, and the ops without a time."""
    machine = with_fits(one.machine)
    ops = distinct_ops(settle_engines(one.ops.reset_index(drop=True), machine)[0])
    device_s = one.step_time.device_s.value
    known = ops[ops["time_s"].notna()]
    seconds = (known["time_s"] * known["count"]).sort_values(ascending=False, kind="stable")
    chosen, others = known.loc[seconds.index[:top]], seconds.iloc[top:]
    near = nearest_timings(chosen, machine)
    entries = []
    for index, row in records(chosen):
        entries.append(_entry(row, near.get(index, []), machine, device_s))
    rest = {"ops": len(others), "time_s": float(others.sum()), "share": float(others.sum()) / device_s}
    missing = [
        {"op": str(row["op"]), "sizes": shape_label(row), "count": float(row["count"])}
        for _, row in records(ops[ops["time_s"].isna()])
    ]
    return entries, rest, missing


def explain_ops(model: ModelProfile, machine: Machine, options: Options, top: int = 10) -> dict[str, Any]:
    """Tell of the ops that carry the time of a step what each time rests on, and which op to time first.

    Parameters
    ----------
    model : ModelProfile
    machine : Machine
    options : Options
    top : int
        Ops, and measurements, to list.

    Returns
    -------
    dict
        ``fomkit/explain/1``. Shares are of the device time, and those of ``ops`` and ``rest`` add up to 1.
        ``unpriced`` lists work without a time, which no share counts.

    Raises
    ------
    FomkitError
        When no op has a time, or the estimate cannot be made.
    """
    one = estimate(model, machine, options)
    if one.ops["time_s"].isna().all():
        raise FomkitError(
            f"{model.name} on {machine.name}",
            "no op has a time, so there is nothing to explain. Add the machine's bandwidth and peak, or timings.",
        )
    ops, rest, missing = _longest(one, top)
    return {
        "schema": SCHEMA,
        "fomkit": __version__,
        "model": model.name,
        "target": machine.name,
        "sizes": dict(one.sizes),
        "precision": one.precision,
        "precision_means": one.formats.said,
        "interval": options.interval,
        "interval_covers": INTERVAL_MEANING,
        "step_s": span_content(one.step),
        "device_s": span_content(one.step_time.device_s),
        "bound": one.step_time.bound,
        "coverage": dict(one.coverage),
        "excludes": list(one.excludes),
        "deviations": list(one.deviations),
        "ops": ops,
        "rest": rest,
        "unpriced": missing,
        **ops_to_time(one, top),
    }
