"""The convolutions of a model by each method that computes them, as plain content (``fomkit/convolutions/1``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from math import isnan
from typing import TYPE_CHECKING, Any

import pandas as pd

from fomkit import __version__
from fomkit.costs import METHODS, add_costs, method_costs
from fomkit.errors import FomkitError
from fomkit.predict.method_floors import add_floors, add_workspace, best_methods
from fomkit.resize import resize_ops
from fomkit.rollup import coverage, device_time, uses_of
from fomkit.study.content import span_content
from fomkit.study.estimate import estimate
from fomkit.study.fits import with_fits
from fomkit.study.options import Options, choose_sizes
from fomkit.views import identities, shape_label

if TYPE_CHECKING:
    from fomkit.hardware import Machine
    from fomkit.workload import ModelProfile

SCHEMA = "fomkit/convolutions/1"
BASIS = "modelled"
"""What figures of methods are: formulas at stated rates, never a timing."""
_WORK = (
    "multiply_adds",
    "additions",
    "multiplications",
    "flop",
    "work_depth",
    "samples_at_once",
    "workspace_byte",
)
_TIMES = ("products_s", "transforms_s", "memory_s", "floor_s")
_TITLES = {method.name: method.title for method in METHODS}


def _number(value: float) -> float | None:
    return None if isnan(value) else float(value)


def _ops(model: ModelProfile, machine: Machine | None, options: Options) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Give the costed, and where there is a machine timed, convolutions of a step."""
    if machine is None:
        sizes = choose_sizes(model, options.wanted_sizes)
        ops, said = add_costs(resize_ops(model.ops, sizes, model.name)), model.caveats
    else:
        found = estimate(model, machine, options)
        ops, said = found.ops, (*found.formats.said.splitlines(), *found.deviations)
    rows = ops[ops["kind"] == "conv"].reset_index(drop=True)
    if rows.empty:
        raise FomkitError(model.name, "has no convolutions. Show it --by kind to see what it has.")
    return rows, tuple(said)


def _distinct(rows: pd.DataFrame) -> pd.DataFrame:
    """Add up equal convolutions; ``modules`` are those that run them."""
    groups = rows.groupby(identities(rows), sort=False)
    first = rows.loc[groups.head(1).index].reset_index(drop=True)
    modules = [list(dict.fromkeys(names)) for names in groups["module"].agg(list)]
    return first.assign(count=groups["count"].sum().to_numpy(), modules=pd.Series(modules, first.index))


def _methods(rows: pd.DataFrame) -> Iterator[dict[str, Any]]:
    timed = "floor_s" in rows.columns
    for row in rows[rows["absent"] == ""].to_dict("records"):
        figures = {name: _number(row[name]) for name in (*_WORK, *(_TIMES if timed else ()))}
        bound = {"bound": row["bound"] or None} if timed else {}
        yield {"method": row["method"], "title": _TITLES[row["method"]], **figures, **bound}


def _time(row: Mapping[str, Any]) -> dict[str, Any]:
    """Give what is known of the time of one execution, and where from; modelled by a table or rates, no method."""
    known = not isnan(row["time_s"])
    ends = {end: float(row[name]) for end, name in (("value", "time_s"), ("low", "low_s"), ("high", "high_s"))}
    return {
        "time_s": ends if known else None,
        "time_source": row["time_source"] or None,
        "evidence": row["evidence"] or None,
    }


def _layer(row: Mapping[str, Any], methods: pd.DataFrame, best: str) -> dict[str, Any]:
    absent = methods[methods["absent"] != ""]
    return {
        "modules": row["modules"],
        "pass_name": row["pass_name"],
        "shape": shape_label(row).removeprefix("conv "),
        "dtype": row["dtype"],
        "engine": row["engine"],
        "count": float(row["count"]),
        **(_time(row) if "time_s" in row else {}),
        "best": best or None,
        "methods": list(_methods(methods)),
        "absent": {_TITLES[name]: why for name, why in zip(absent["method"], absent["absent"], strict=True)},
    }


def _sums(layers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Say of each method how many executions it can compute, in how many it is best, and its largest workspace."""
    found = []
    for method in METHODS:
        known = [(layer, one) for layer in layers for one in layer["methods"] if one["method"] == method.name]
        why: Counter[str] = Counter()
        for layer in layers:
            if method.title in layer["absent"]:
                why[layer["absent"][method.title].partition(":")[0]] += layer["count"]
        found.append(
            {
                "method": method.name,
                "title": method.title,
                "possible_in": sum(layer["count"] for layer, _ in known),
                "best_in": sum(layer["count"] for layer in layers if layer["best"] == method.name),
                "largest_workspace_byte": max((one["workspace_byte"] for _, one in known), default=None),
                "absent": {reason: f"{count:g}" for reason, count in why.most_common()},
            }
        )
    return found


def _total(rows: pd.DataFrame, layers: list[dict[str, Any]], machine: Machine, level: float) -> dict[str, Any]:
    """Add up the floors of a step's convolutions by the direct method and by the best, beside their time."""

    def floor_s(name: str, layer: Mapping[str, Any]) -> float:
        wanted = layer["best"] if name == "best" else name
        found = [one["floor_s"] for one in layer["methods"] if one["method"] == wanted]
        return float("nan") if not found or found[0] is None else found[0] * layer["count"]

    sums = {name: sum(floor_s(name, layer) for layer in layers) for name in ("direct", "best")}
    timed = rows[rows["time_s"].notna()]
    span = device_time(timed, level, uses_of(machine)) if len(timed) else None
    return {
        "direct_s": _number(sums["direct"]),
        "best_s": _number(sums["best"]),
        "time_s": None if span is None else span_content(span),
        "time_sources": {name: share for name, share in coverage(timed).items() if share > 0 and len(timed)},
        "without_time": int(len(rows) - len(timed)),
    }


def convolutions_content(
    model: ModelProfile, options: Options, machine: Machine | None = None, limit_byte: float | None = None
) -> dict[str, Any]:
    """Say by which methods each convolution of a step can be computed, what each takes, and which is best.

    Parameters
    ----------
    model : ModelProfile
    options : Options
        Batch and other sizes; precision and interval where there is a machine.
    machine : Machine, optional
        Whose rates give floors, and whose table gives the times beside them; without it the best method is the
        one of least arithmetic.
    limit_byte : float, optional
        Most workspace [byte] that a method may take.

    Returns
    -------
    dict
        ``fomkit/convolutions/1``.

    Raises
    ------
    FomkitError
        When the model has no convolution or a size cannot be had.
    """
    ops, said = _ops(model, machine, options)
    rows = _distinct(ops)
    methods = add_workspace(method_costs(rows), rows["batch"], limit_byte)
    if machine is not None:
        methods = add_floors(methods, rows, with_fits(machine))
    best = best_methods(methods, "flop" if machine is None else "floor_s")
    by_op = dict(iter(methods.groupby("of", sort=False)))
    layers = [
        _layer({str(name): cell for name, cell in row.items()}, by_op[place], best[place])
        for place, row in zip(rows.index, rows.to_dict("records"), strict=True)
    ]
    return {
        "schema": SCHEMA,
        "fomkit": __version__,
        "name": model.name,
        "title": model.title,
        "mode": model.traced_with.get("mode"),
        "sizes": choose_sizes(model, options.wanted_sizes),
        "target": None if machine is None else machine.name,
        "interval": None if machine is None else options.interval,
        "basis": BASIS,
        "workspace_limit_byte": limit_byte,
        "layers": layers,
        "methods": _sums(layers),
        "total": None if machine is None else _total(ops, layers, machine, options.interval),
        "deviations": [*said, *_unknown(methods, machine)],
    }


def _unknown(methods: pd.DataFrame, machine: Machine | None) -> Iterator[str]:
    """Say where the machine's facts do not tell a floor."""
    if machine is not None and (methods.loc[methods["absent"] == "", "floor_s"].isna()).any():
        yield f"{machine.name} states no rate, and its table tells none, of some arithmetic or of its memory"


def method_rows(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Give one row for each convolution and method, for a CSV file or a table; absent methods say why."""
    rows = []
    for layer in content["layers"]:
        place = {
            name: value for name, value in layer.items() if name not in ("methods", "absent", "best", "evidence")
        }
        known = {one["method"]: one for one in layer["methods"]}
        for method in METHODS:
            figures = known.get(method.name, {"method": method.name, "title": method.title})
            best = method.name == layer["best"]
            rows.append({**place, **figures, "best": best, "absent": layer["absent"].get(method.title)})
    return rows
