"""The longest ops of a step, and the evidence that the time of each rests on (``fomkit/explain/1``).

`explain_ops` lists with each op the nearest timings: their source, their distance, and their times. `ops_to_time`
sorts ops by how much a timing would narrow the step's interval.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isnan
from typing import Any, NamedTuple, NotRequired, TypedDict

import numpy as np
import pandas as pd

from fomkit import __version__
from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span, shrinks
from fomkit.core.machine import Fact, Machine
from fomkit.core.model import ModelProfile
from fomkit.core.units import format_quantity
from fomkit.ops.groups import identities, is_known, row_dicts, shape_label
from fomkit.ops.kinds import KINDS, PASS_FREE_KINDS, PRODUCT_KINDS, UNNAMED_KINDS
from fomkit.ops.pricing import work_out
from fomkit.ops.tables import COSTS
from fomkit.plan.content import INTERVAL_MEANING, Condition, Ends, Part, as_content, conditions_content
from fomkit.plan.coverage import uses_of
from fomkit.plan.estimate import Estimate
from fomkit.plan.step import device_times, ops_of, started_of, terms_beside
from fomkit.prediction.cascade import prepared
from fomkit.prediction.estimators import Record, records
from fomkit.prediction.exact import hits, settle_engines, settled_ops
from fomkit.prediction.families import families, fitted, servable
from fomkit.prediction.gp import distances
from fomkit.prediction.interpolate import family_of, features_of
from fomkit.prediction.rates import FITTED, bounds, rates, throttled
from fomkit.prediction.transfer import BASELINE, in_another_format

SCHEMA = "fomkit/explain/1"
NEAREST = 3
"""Number of timings listed for an op."""


AT_ONCE = 64
"""Number of groups of ops that `steps_if_timed` evaluates at once, each in a variant of the step."""


def steps_if_timed(
    timed: pd.DataFrame, groups: pd.Series[int], machine: Machine, level: float, model: ModelProfile | None = None
) -> dict[int, Span]:
    """Return the step's wall time, group by group, as if the ops of that group took exactly their predicted time.

    The ops of the group then have no error, neither of their own nor that of their family (one kind and time
    source); the rest adds up as in `device_times`. The error of their use in the step remains. A timing would also
    inform about similar ops, and may differ from the prediction; both are unknown beforehand and left out.

    `timed`: a TIMED table; `groups`: a number for each row; rows of one number share a measurement; `machine`: for
    the terms beside the device; `level`: of the intervals in ``timed``; `model`: whose blocks wait for the host.
    Returns the step's wall time [s] by group.
    """
    known = timed["time_s"].notna().to_numpy()
    rows, numbers = timed[known], groups[known].to_numpy()
    ops, uses, distinct, started = ops_of(rows), uses_of(machine), np.unique(numbers), started_of(timed, model)
    steps = {}
    for first in range(0, len(distinct), AT_ONCE):
        some = distinct[first : first + AT_ONCE]
        seconds = np.where(numbers[:, None] == some, ops.seconds[:1], ops.seconds)
        found = device_times(ops._replace(seconds=seconds), uses, level).ends.T.tolist()
        for number, (value, low, high) in zip(some.tolist(), found, strict=True):
            device_s = Span(value, low, high, level)
            steps[number] = terms_beside(started, machine, device_s).wall(device_s)
    return steps


class Neighbour(NamedTuple):
    """One timing near an op.

    `timing`: its row of the table; products in row-major order.
    `time_s`: time of the op itself [s]: less the harness's fixed cost, the median over duplicates.
    `distance`: in the fit's length scales: 0 is the same op; from about 1 on a timing has little influence.
    """

    timing: dict[str, Any]
    time_s: float
    distance: float


def _exact_neighbours(rows: pd.DataFrame, machine: Machine) -> Iterator[tuple[int, list[Neighbour]]]:
    for kind in sorted(set(rows["kind"])):
        chosen = rows[rows["kind"] == kind]
        places, number = hits(chosen, machine.timings, kind)
        of_op = [name for name in (*KINDS[kind].columns, "op", "pass_name") if name in chosen.columns]
        for (index, row), at in zip(records(chosen[of_op]), number.tolist(), strict=True):
            timed = [record for _, record in records(machine.timings.iloc[list(places[at])])]
            if timed:
                yield index, [Neighbour({**one, **row}, one["_time_s"], 0.0) for one in timed]


def _fitted_neighbours(rows: pd.DataFrame, machine: Machine) -> Iterator[tuple[int, list[Neighbour]]]:
    for name, at in families(rows):
        chosen = rows.iloc[at]
        chosen, family = chosen[servable(chosen, name.kind)], family_of(machine, name)
        if family is None or not len(chosen):
            continue
        training = family.training
        chosen = chosen[fitted(chosen, training, name.kind)]
        known, query = (features_of(family.fit, one, name.kind, len(training)) for one in (family.rows, chosen))
        apart = distances(query, known, family.fit.hyper.length)
        nearest = np.argsort(apart, axis=1, kind="stable")[:, :NEAREST]
        for index, far, places in zip(chosen.index.tolist(), apart, nearest, strict=True):
            near = zip(records(training.iloc[places]), far[places].tolist(), strict=True)
            yield index, [Neighbour(dict(row), row["_time_s"], distance) for (_, row), distance in near]


def nearest_timings(timed: pd.DataFrame, machine: Machine) -> dict[int, list[Neighbour]]:
    """Find the timings that the times of some ops rest on.

    `timed`: TIMED rows, each with an index of its own; `machine`: with timings and their fits. Returns a dict: by
    index, nearest first, `NEAREST` at most. A measured op has its own timings, an interpolated or extrapolated one
    those of its fit, a transferred one those of its forward pass or of the timed format. Ops whose time comes from
    rates or from the sum of their parts have none.
    """
    machine = prepared(machine)
    # The evidence of an op that is the sum of its parts already names the evidence of the parts.
    rows, _ = settle_engines(timed[~timed["evidence"].str.contains("sum of ")], machine)
    source = rows["time_source"]
    rows.loc[source == "transferred", "pass_name"] = BASELINE
    found = dict(_exact_neighbours(rows[source == "measured"], machine))
    found |= dict(_fitted_neighbours(rows[source.isin(("interpolated", "extrapolated", "transferred"))], machine))
    rest = timed[(timed["time_source"] == "transferred") & ~timed.index.isin(list(found))]
    other = in_another_format(rest, machine)
    like = rest.loc[other.index].assign(dtype=other.text("dtype").cells())
    found |= {**dict(_fitted_neighbours(like, machine)), **dict(_exact_neighbours(like, machine))}
    return {index: near[:NEAREST] for index, near in found.items()}


def distinct_ops(ops: pd.DataFrame) -> pd.DataFrame:
    """Merge ops of one name, sizes, number format and pass, adding up their counts over modules."""
    ops = ops.reset_index(drop=True)
    groups = ops.groupby(identities(ops), sort=False)
    first = ops.loc[groups.head(1).index].reset_index(drop=True)
    counts = groups["count"].agg(["sum", "size"])
    return first.assign(count=counts["sum"].to_numpy(), places=counts["size"].to_numpy())


Near = TypedDict("Near", {"sizes": str, "distance": float, "time_s": float, "source_file": str | None,
                          "source_sheet": str | None, "source_row": float | None})  # fmt: skip
Worked = TypedDict("Worked", {"value": float | None, "formula": str | None, "numbers": NotRequired[str],
                              "where": NotRequired[Mapping[str, str]]})  # fmt: skip
Bound = TypedDict("Bound", {"rate": float, "basis": str, "source": str, "time_s": float})
Floor = TypedDict("Floor", {"compute": Bound | None, "memory": Bound | None, "binding": str | None,
                            "time_s": float | None})  # fmt: skip
ExplainedOp = TypedDict("ExplainedOp", {
    "op": str, "kind": str, "pass_name": str, "dtype": str, "engine": str, "sizes": str,
    "dimensions": dict[str, object], "count": float, "modules": int, "time_s": Ends, "step_time_s": Ends,
    "share": float, "time_source": str, "bound": str, "evidence": str, "nearest": list[Near],
    "costs": dict[str, Worked], "floor": Floor,
})  # fmt: skip
Rest = TypedDict("Rest", {"ops": int, "time_s": float, "share": float})
Untimed = TypedDict("Untimed", {"op": str, "sizes": str, "count": float})
IfTimed = TypedDict("IfTimed", {
    "sizes": str, "ops": list[str], "passes": list[str], "time_source": str, "executions": float, "share": float,
    "step_s": Ends, "shrinks": float, "line": dict[str, object],
})  # fmt: skip
ToTime = TypedDict("ToTime", {"measurements": list[IfTimed], "all_measured": Ends | None})
Explanation = TypedDict("Explanation", {
    "schema": str, "fomkit": str, "model": str, "target": str, "sizes": dict[str, int], "precision": str,
    "precision_means": str, "interval": float, "interval_covers": str, "step_s": Ends, "device_s": Ends,
    "bound": str, "coverage": dict[str, float], "excludes": list[str], "deviations": list[str],
    "conditions": dict[str, Condition], "ops": list[ExplainedOp], "rest": Rest, "unpriced": list[Untimed],
    "measurements": list[IfTimed], "all_measured": Ends | None, "part": Part | None,
})  # fmt: skip


def neighbour_content(near: Neighbour) -> Near:
    """Convert a timing near an op to an entry of ``nearest``."""
    unknown = dict.fromkeys(("source_file", "source_sheet", "source_row"))  # where a table has no such column
    return as_content(Near, near, near.timing, unknown, sizes=shape_label(near.timing))


def _costs(row: Record) -> dict[str, Worked]:
    worked, no_formula = work_out(row), {"formula": None}
    return {one.name: as_content(Worked, worked.get(one.name, no_formula), value=row[one.name]) for one in COSTS}


def _rate(fact: Fact | None, amount: float) -> Bound | None:
    if fact is None or isnan(amount):
        return None
    return {"rate": fact.value, "basis": fact.basis, "source": fact.source, "time_s": amount / fact.value}


def _floor(row: Record, machine: Machine) -> Floor:
    """Return the times of arithmetic and traffic at the machine's rates, and which of them is the bound.

    The rates are those of the prediction: for times from facts, the peak that the power limit sustains.
    """
    machine = throttled(machine) if row["time_source"] == "roofline" else machine
    known, found = rates(machine, row["dtype"], row["engine"]), bounds(pd.DataFrame([row]), machine)
    return as_content(
        Floor, compute=_rate(known.flop_per_s, row["flop"]), memory=_rate(known.byte_per_s, row["byte"]),
        binding=None if isnan(found.floor_s[0]) else found.names.at(0), time_s=found.floor_s[0],
    )  # fmt: skip


def _span(row: Record, factor: float) -> Ends:
    value, low, high = (float(row[column]) * factor for column in ("time_s", "low_s", "high_s"))
    return {"value": value, "low": low, "high": high}


def _entry(row: Record, near: list[Neighbour], machine: Machine, device_s: float) -> ExplainedOp:
    sizes = KINDS[str(row["kind"])].dimensions
    dimensions = {name: row[name] if is_known(row.get(name)) else None for name in sizes}
    in_step = _span(row, float(row["count"]))
    return as_content(
        ExplainedOp, row, sizes=shape_label(row), dimensions=dimensions, modules=int(row["places"]),
        time_s=_span(row, 1.0), step_time_s=in_step, share=in_step["value"] / device_s,
        nearest=[neighbour_content(one) for one in near], costs=_costs(row), floor=_floor(row, machine),
    )  # fmt: skip


def _longest(estimated: Estimate, top: int) -> tuple[list[ExplainedOp], Rest, list[Untimed]]:
    """Return the entries of the longest ops, the sum of the others, and the ops without a time."""
    machine = estimated.fitted
    ops = distinct_ops(settled_ops(estimated.ops, machine))
    device_s = estimated.step_time.device_s.value
    known = ops[ops["time_s"].notna()]
    seconds = (known["time_s"] * known["count"]).sort_values(ascending=False, kind="stable")
    chosen, others = known.loc[seconds.index[:top]], seconds.iloc[top:]
    near = nearest_timings(chosen, machine)
    entries = [_entry(row, near.get(index, []), machine, device_s) for index, row in records(chosen)]
    rest: Rest = {"ops": len(others), "time_s": float(others.sum()), "share": float(others.sum()) / device_s}
    missing: list[Untimed] = [
        {"op": str(row["op"]), "sizes": shape_label(row), "count": float(row["count"])}
        for _, row in records(ops[ops["time_s"].isna()])
    ]
    return entries, rest, missing


def explain_ops(one: Estimate, top: int = 10, part: Part | None = None) -> Explanation:
    """Explain what the times of the longest ops of a step rest on, and which ops to time first.

    `top`: ops, and measurements, to list; `part`: the job of which the estimate is one microbatch on one device.
    Returns a dict: ``fomkit/explain/1``. Shares are of the device time; those of ``ops`` and ``rest`` add up to 1.
    ``unpriced`` lists work without a time, which is in no share.
    """
    model, machine = one.model, one.machine
    if one.ops["time_s"].isna().all():
        raise FomkitError(
            f"{model.name} on {machine.name}",
            "no op has a time, so there is nothing to explain. Add the machine's bandwidth and peak, or timings.",
        )
    ops, rest, missing = _longest(one, top)
    return as_content(
        Explanation, ops_to_time(one, top), one, schema=SCHEMA, fomkit=__version__, model=model.name,
        target=machine.name, precision_means=one.formats.message, interval=one.step.level, part=part,
        interval_covers=INTERVAL_MEANING, step_s=one.step, device_s=one.step_time.device_s,
        bound=one.step_time.bound, conditions=conditions_content(one), ops=ops, rest=rest, unpriced=missing,
    )  # fmt: skip


TEXTS = ("op", "kind", "pass_name", "dtype", "engine", "time_source", "bound", "evidence")


def _size(row: Mapping[str, Any]) -> str:
    """Write the sizes of an op in short, those of a product in full."""
    if row["kind"] in PRODUCT_KINDS:
        return shape_label(row).partition(" ")[2]
    if is_known(row.get("message_byte")):
        return f"{_si(float(row['message_byte']))}B over {row['ranks']:,.0f}"
    numel = row.get("numel")
    return "" if numel is None or numel != numel else f"{_si(float(numel))} elements"


def _label(row: Mapping[str, Any]) -> str:
    """Name an op in short: products by kind and sizes, the others by their own name and number of elements."""
    if row["kind"] in PRODUCT_KINDS:
        return shape_label(row)
    name, size = str(row["op"]).rpartition("::")[2] or str(row["kind"]), _size(row)
    return f"{name} of {size}" if size else name


def _si(number: float) -> str:
    """Write a count in short.

    >>> _si(25_690_112.0), _si(512.0)
    ('25.7 M', '512')
    """
    size, prefix = next((pair for pair in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if number >= pair[0]), (1.0, ""))
    return f"{number / size:.3g} {prefix}".rstrip()


def op_frame(estimated: Estimate) -> pd.DataFrame:
    """Return the distinct ops of a step, longest first; those without a time come last.

    Returns a DataFrame: ``label`` (short, for figures), ``op``, ``kind``, ``sizes``, ``size`` (short),
    ``pass_name``, ``dtype``, ``engine``, ``module``, ``count`` (executions), ``time_s``, ``low_s``, ``high_s`` (of
    all executions in a step [s]), ``share`` of the device time, ``flop`` and ``byte`` of all executions,
    ``intensity`` [flop/byte], ``flop_per_s``, ``time_source``, ``bound``, ``evidence``. NaN is unknown.

    >>> import fomkit
    >>> frame = op_frame(fomkit.estimate("p1b3-lecture", "x86-lecture"))
    >>> frame["op"].iloc[0], float(round(frame["share"].sum(), 9))
    ('Assign', 1.0)
    """
    ops = distinct_ops(settled_ops(estimated.ops, estimated.fitted))
    count = ops["count"].to_numpy(np.float64)
    amounts = {
        name: ops[name].to_numpy(np.float64) * count for name in ("time_s", "low_s", "high_s", "flop", "byte")
    }
    known = {name: np.where(column > 0, column, np.nan) for name, column in amounts.items()}
    rows, modules = row_dicts(ops), [""] * len(ops)
    if "module" in ops.columns:
        pairs = zip(ops["module"].astype("str"), ops["places"].astype(int), strict=True)
        modules = [f"{first} and {places - 1} more" if places > 1 else first for first, places in pairs]
    frame = pd.DataFrame(
        {
            "label": [_label(row) for row in rows],
            **{name: ops[name].astype("str").to_numpy() for name in TEXTS},
            "sizes": [shape_label(row) for row in rows],
            "size": [_size(row) for row in rows],
            "module": modules,
            "count": count,
            **amounts,
            "share": amounts["time_s"] / estimated.step_time.device_s.value,
            "intensity": amounts["flop"] / known["byte"],
            "flop_per_s": amounts["flop"] / known["time_s"],
        }
    )
    return frame.sort_values("time_s", ascending=False, kind="stable", na_position="last", ignore_index=True)


def roof_frame(estimated: Estimate, ops: pd.DataFrame) -> pd.DataFrame:
    """Return the rates that bound the ops: one row for each number format and engine of their arithmetic.

    `ops`: from `op_frame`. Returns a DataFrame: ``roof`` (name and peak), ``flop_per_s``, ``byte_per_s``, where
    both are known.
    """
    machine, rows = estimated.fitted, []
    busy = ops[ops["flop"] > 0]
    for dtype, engine in busy[["dtype", "engine"]].drop_duplicates().itertuples(index=False):
        known = rates(machine, str(dtype), str(engine))
        if known.flop_per_s is None or known.byte_per_s is None:
            continue
        peak = f"{dtype} {engine} {format_quantity(known.flop_per_s.value, 'flop_per_s', 3)}"
        fitted = FITTED in (known.flop_per_s.source, known.byte_per_s.source)
        rows.append({"roof": f"{peak} (fitted to the table)" if fitted else peak,
                     "flop_per_s": known.flop_per_s.value, "byte_per_s": known.byte_per_s.value})  # fmt: skip
    return pd.DataFrame(rows, columns=["roof", "flop_per_s", "byte_per_s"])


def _if_timed(estimate: Estimate, rows: pd.DataFrame, step: Span) -> IfTimed:
    first = {str(name): cell for name, cell in rows.iloc[0].items()}
    executions = float(rows["count"].sum())
    cells = {**first, "count": executions}
    names = ("op", "kind", "dtype", "engine", "pass_name", "count", *KINDS[str(first["kind"])].columns)
    line = {
        name: int(cell) if isinstance(cell, float) and cell.is_integer() else cell
        for name, cell in ((name, cells.get(name)) for name in names)
        if is_known(cell)
    }
    return as_content(
        IfTimed, sizes=shape_label(first), ops=sorted(set(rows["op"].astype("str"))), executions=executions,
        passes=sorted(set(rows["pass_name"].astype("str"))), time_source=first["time_source"], step_s=step,
        share=float((rows["time_s"] * rows["count"]).sum()) / estimate.step_time.device_s.value,
        shrinks=shrinks(estimate.step, step), line=line,
    )  # fmt: skip


def ops_to_time(estimate: Estimate, top: int) -> ToTime:
    """List the ops that could be timed on the machine, by how much a timing would narrow the step's interval.

    `top`: timings to list. Returns a dict: ``measurements``, best first, and ``all_measured``, the step [s] with
    all of the listed ones known. An entry has sizes, time_source, executions and share of the device time of all
    ops that the timing would serve, ``step_s`` with them known, ``shrinks`` [share of the current width of the
    interval], and ``line``, the cells of a table of ops. ``line`` names the first of these ops where several share
    sizes; its count is the sum over them.
    """
    settled = settled_ops(estimate.ops, estimate.machine)
    # Without the columns that a timing need not state, ops that share a timing are equal.
    name = settled["op"].mask(settled["kind"].isin(UNNAMED_KINDS), "")
    pass_name = settled["pass_name"].mask(settled["kind"].isin(PASS_FREE_KINDS), "")
    groups = identities(settled.assign(op=name, pass_name=pass_name))
    steps = steps_if_timed(settled, groups, estimate.machine, estimate.step.level, estimate.model)
    time_s = (settled["time_s"] * settled["count"]).groupby(groups).sum()
    best = sorted(steps, key=lambda number: (-shrinks(estimate.step, steps[number]), -time_s[number]))[:top]
    together = groups.isin(best).astype("int64")
    known = steps_if_timed(settled, together, estimate.machine, estimate.step.level, estimate.model).get(1)
    listed = [_if_timed(estimate, settled[groups == number], steps[number]) for number in best]
    return as_content(ToTime, measurements=listed, all_measured=known)
