"""Work, workspace and least time of each method for a model's convolutions (``fomkit/convolutions/1``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fomkit import __version__
from fomkit.core.errors import FomkitError
from fomkit.core.machine import Fact, Machine
from fomkit.core.model import ModelProfile
from fomkit.core.units import format_mebibyte
from fomkit.ops.conv_methods import METHODS, method_costs
from fomkit.ops.groups import identities, row_dicts, shape_label
from fomkit.plan.content import Condition, Ends, as_content
from fomkit.plan.coverage import coverage, uses_of
from fomkit.plan.options import Options
from fomkit.plan.step import device_time
from fomkit.prediction.exact import settle_engines
from fomkit.prediction.rates import rates
from fomkit.profiles.evidence import with_fits
from fomkit.verbs.model_view import shown_ops

Array = NDArray[np.float64]


def _facts(machine: Machine, dtype: str, engine: str) -> tuple[Fact | None, Fact | None, Fact | None]:
    """Return the rates of products, by the op's engine, of transforms, by the vector engine, and of the memory.

    None where unknown. Where the vector engine has no rate for the op's number format, that for fp32 is used.
    """
    own = rates(machine, dtype, engine)
    vector = [rates(machine, name, "vector").flop_per_s for name in (dtype, "fp32")]
    others = own.flop_per_s if engine == "vector" else next((rate for rate in vector if rate is not None), None)
    return own.flop_per_s, others, own.byte_per_s


def add_workspace(methods: pd.DataFrame, batch: pd.Series[float], limit_byte: float | None) -> pd.DataFrame:
    """Add the number of samples that a method processes at once, and the workspace that it then needs.

    `methods`: as `fomkit.ops.conv_methods.method_costs` returns; `batch`: samples of each op, by its index;
    `limit_byte`: largest workspace [byte]; None for no limit. Returns the DataFrame with samples_at_once and
    workspace_byte [byte]. A method that does not fit for one sample is marked absent, with the reason.
    """
    samples = methods["of"].map(batch).to_numpy(np.float64)
    fixed, each = (methods[name].to_numpy(np.float64) for name in ("fixed_byte", "sample_byte"))
    room = np.inf if limit_byte is None else limit_byte - fixed
    fitting = np.where(each > 0, np.floor(np.divide(room, each, out=np.full(len(each), np.inf), where=each > 0)),
                       np.where(room >= 0, np.inf, 0.0))  # fmt: skip
    at_once = np.minimum(samples, fitting)
    unplaced = (methods["absent"] == "").to_numpy() & (at_once < 1)
    absent = methods["absent"].to_numpy(object).copy()
    for place in np.flatnonzero(unplaced):
        needed = format_mebibyte(float(fixed[place] + each[place]))
        absent[place] = f"more workspace than the limit for one sample: {needed} MiB"
    known = absent == ""
    return methods.assign(
        samples_at_once=np.where(known, at_once, np.nan),
        workspace_byte=np.where(known, fixed + at_once * each, np.nan),
        absent=absent,
    )


def add_floors(methods: pd.DataFrame, ops: pd.DataFrame, machine: Machine) -> pd.DataFrame:
    """Add the least time of each method.

    Products take 2 · multiply_adds / peak of the op's engine; transforms take their operations / peak of the
    vector engine. Both run one after the other if they use one engine, else at the same time. The memory moves the
    op's own byte, and the workspace of all samples is written once and read once. The floor is the longer of
    arithmetic and memory.

    `methods`: with a workspace (`add_workspace`); `ops`: COSTED rows that ``of`` refers to. Returns a DataFrame
    with products_s, transforms_s, memory_s and floor_s [s], and ``bound``; NaN and "" where a rate is unknown or
    the method is absent.
    """
    settled, _ = settle_engines(ops, machine)
    pairs = dict.fromkeys(zip(settled["dtype"], settled["engine"], strict=True))
    facts = {pair: _facts(machine, str(pair[0]), str(pair[1])) for pair in pairs}
    found = [facts[pair] for pair in zip(settled["dtype"], settled["engine"], strict=True)]
    place = ops.index.get_indexer(pd.Index(methods["of"]))
    product, other, memory = (
        np.array([np.nan if fact is None else fact.value for fact in column])[place]
        for column in zip(*found, strict=True)
    )
    batch, byte = (ops[name].to_numpy(np.float64)[place] for name in ("batch", "byte"))
    absent = (methods["absent"] != "").to_numpy()
    more = (methods["additions"] + methods["multiplications"]).to_numpy(np.float64)
    moved = byte + 2 * (methods["fixed_byte"] + batch * methods["sample_byte"]).to_numpy(np.float64)
    products_s = 2 * methods["multiply_adds"].to_numpy(np.float64) / product
    transforms_s = np.where(more == 0, 0.0, more / other)
    memory_s = np.where(absent, np.nan, moved / memory)
    one_engine = (settled["engine"].to_numpy(object) == "vector")[place]
    compute_s = np.where(one_engine, products_s + transforms_s, np.maximum(products_s, transforms_s))
    floor_s = np.where(absent, np.nan, np.maximum(compute_s, memory_s))
    bound = np.where(np.isnan(floor_s), "", np.where(compute_s >= memory_s, "compute", "memory"))
    times = {"products_s": products_s, "transforms_s": transforms_s, "memory_s": memory_s, "floor_s": floor_s}
    return methods.assign(**{name: np.where(absent, np.nan, one) for name, one in times.items()}, bound=bound)


def best_methods(methods: pd.DataFrame, by: str) -> pd.Series[str]:
    """Return for each op the method with the smallest figure (the first of equal ones); "" where none is known."""
    known = methods[methods[by].notna()]
    first = known.loc[known.groupby("of", sort=False)[by].idxmin()]
    return first.set_index("of")["method"].reindex(methods["of"].unique(), fill_value="")


SCHEMA = "fomkit/convolutions/1"
BASIS = "modelled"
"""Basis of the figures of methods: formulas at stated rates, never timings."""
_TITLES = {method.name: method.title for method in METHODS}
MethodFigures = TypedDict("MethodFigures", {
    "method": str, "title": str, "multiply_adds": float | None, "additions": float | None,
    "multiplications": float | None, "flop": float | None, "work_depth": float | None,
    "samples_at_once": float | None, "workspace_byte": float | None, "products_s": NotRequired[float | None],
    "transforms_s": NotRequired[float | None], "memory_s": NotRequired[float | None],
    "floor_s": NotRequired[float | None], "bound": NotRequired[str | None],
})  # fmt: skip
ConvLayer = TypedDict("ConvLayer", {
    "modules": list[str], "pass_name": str, "shape": str, "dtype": str, "engine": str, "count": float,
    "time_s": NotRequired[Ends | None], "time_source": NotRequired[str | None],
    "evidence": NotRequired[str | None], "best": str | None, "methods": list[MethodFigures],
    "absent": dict[str, str],
})  # fmt: skip
MethodSum = TypedDict("MethodSum", {
    "method": str, "title": str, "possible_in": float, "best_in": float, "largest_workspace_byte": float | None,
    "absent": dict[str, str],
})  # fmt: skip
ConvTotal = TypedDict("ConvTotal", {
    "direct_s": float | None, "best_s": float | None, "time_s": Ends | None, "time_sources": dict[str, float],
    "without_time": int,
})  # fmt: skip
Convolutions = TypedDict("Convolutions", {
    "schema": str, "fomkit": str, "name": str, "title": str, "mode": str | None, "sizes": dict[str, int],
    "target": str | None, "interval": float | None, "basis": str, "workspace_limit_byte": float | None,
    "layers": list[ConvLayer], "methods": list[MethodSum], "total": ConvTotal | None, "deviations": list[str],
    "conditions": NotRequired[dict[str, Condition]],
})  # fmt: skip


def _distinct(rows: pd.DataFrame) -> pd.DataFrame:
    """Merge equal convolutions and add up their counts; ``modules`` lists the modules that run them."""
    groups = rows.groupby(identities(rows), sort=False)
    first = rows.loc[groups.head(1).index].reset_index(drop=True)
    modules = [list(dict.fromkeys(names)) for names in groups["module"].agg(list)]
    return first.assign(count=groups["count"].sum().to_numpy(), modules=pd.Series(modules, first.index))


def _layer(row: Mapping[str, Any], methods: pd.DataFrame, best: str) -> ConvLayer:
    absent, known = methods[methods["absent"] != ""], methods[methods["absent"] == ""].to_dict("records")
    layer = as_content(
        ConvLayer, row, shape=shape_label(row).removeprefix("conv "), best=best,
        methods=[as_content(MethodFigures, one, title=_TITLES[one["method"]]) for one in known],
        absent={_TITLES[name]: why for name, why in zip(absent["method"], absent["absent"], strict=True)},
        time_s=None, time_source=None, evidence=None,
    )  # fmt: skip
    if "time_s" in row:  # time of one execution from the timing table or rates, whichever method it used
        ends: Ends = {"value": float(row["time_s"]), "low": float(row["low_s"]), "high": float(row["high_s"])}
        layer["time_s"] = None if np.isnan(row["time_s"]) else ends
        layer["time_source"], layer["evidence"] = row["time_source"] or None, row["evidence"] or None
    return layer


def _sums(layers: list[ConvLayer]) -> list[MethodSum]:
    """Count for each method the executions it can compute and is best for, and find its largest workspace."""
    found = list[MethodSum]()
    for method in METHODS:
        known = [(layer, one) for layer in layers for one in layer["methods"] if one["method"] == method.name]
        why: Counter[str] = Counter()
        for layer in layers:
            if method.title in layer["absent"]:
                why[layer["absent"][method.title].partition(":")[0]] += int(layer["count"])
        workspaces = (byte for _, one in known if (byte := one["workspace_byte"]) is not None)
        found.append(
            as_content(
                MethodSum, method, method=method.name, possible_in=sum(layer["count"] for layer, _ in known),
                best_in=sum(layer["count"] for layer in layers if layer["best"] == method.name),
                largest_workspace_byte=max(workspaces, default=None),
                absent={reason: f"{count:g}" for reason, count in why.most_common()},
            )
        )  # fmt: skip
    return found


def _total(rows: pd.DataFrame, layers: list[ConvLayer], machine: Machine, level: float) -> ConvTotal:
    """Add up the floors of a step's convolutions by the direct and by the best method, and their times."""

    def floor_s(name: str, layer: ConvLayer) -> float:
        wanted = layer["best"] if name == "best" else name
        found = [one["floor_s"] for one in layer["methods"] if one["method"] == wanted]
        return float("nan") if not found or found[0] is None else found[0] * layer["count"]

    sums = {name: sum(floor_s(name, layer) for layer in layers) for name in ("direct", "best")}
    timed = rows[rows["time_s"].notna()]
    span = device_time(timed, level, uses_of(machine)) if len(timed) else None
    sources = {name: share for name, share in coverage(timed).items() if share > 0 and len(timed)}
    return as_content(ConvTotal, direct_s=sums["direct"], best_s=sums["best"], time_s=span, time_sources=sources,
                      without_time=len(rows) - len(timed))  # fmt: skip


def convolutions_content(
    model: ModelProfile, options: Options, machine: Machine | None = None, limit_byte: float | None = None
) -> Convolutions:
    """List the methods that can compute each convolution of a step, the costs of each, and the best method.

    `options`: batch and other sizes; with a machine also precision and interval; `machine`: its rates give the
    floors and its timing table the times; without it the best method is the one with the least arithmetic;
    `limit_byte`: largest workspace [byte] of a method. Returns a dict: ``fomkit/convolutions/1``. Raises
    FomkitError when the model has no convolution or a size is unknown.
    """
    step = shown_ops(model, machine, options)
    ops, notes = step.ops[step.ops["kind"] == "conv"].reset_index(drop=True), [*step.notes]
    if ops.empty:
        raise FomkitError(model.name, "has no convolutions. Show it --by kind to see what it has.")
    rows = _distinct(ops)
    methods = add_workspace(method_costs(rows), rows["batch"], limit_byte)
    if machine is not None:
        methods = add_floors(methods, rows, with_fits(machine))
        if methods.loc[methods["absent"] == "", "floor_s"].isna().any():
            what = "has no rate, stated or from its table, for some arithmetic or for its memory"
            notes.append(f"{machine.name} {what}")
    best = best_methods(methods, "flop" if machine is None else "floor_s")
    by_op = dict(iter(methods.groupby("of", sort=False)))
    layers = [_layer(row, by_op[place], best[place]) for place, row in enumerate(row_dicts(rows))]
    return as_content(
        Convolutions, model, schema=SCHEMA, fomkit=__version__, mode=model.traced_with.get("mode"),
        sizes=step.sizes, target=machine and machine.name,
        interval=None if machine is None else options.interval, basis=BASIS, workspace_limit_byte=limit_byte,
        layers=layers, methods=_sums(layers), conditions=step.conditions,
        total=None if machine is None else _total(ops, layers, machine, options.interval),
        deviations=notes,
    )  # fmt: skip


def method_rows(content: Convolutions) -> list[Mapping[str, object]]:
    """Return one row for each convolution and method, for a CSV file or a table; absent methods have a reason."""
    rows, elsewhere = list[Mapping[str, object]](), ("methods", "absent", "best", "evidence")
    for layer in content["layers"]:
        place = {name: value for name, value in layer.items() if name not in elsewhere}
        known: dict[str, Mapping[str, object]] = {one["method"]: one for one in layer["methods"]}
        for method in METHODS:
            figures = known.get(method.name, {"method": method.name, "title": method.title})
            best = method.name == layer["best"]
            rows.append({**place, **figures, "best": best, "absent": layer["absent"].get(method.title)})
    return rows
