"""Content of a model's views: groups of its ops, its layers, and formulas of its sizes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import isnan, nan
from typing import Any, Literal, NamedTuple, NotRequired, TypedDict

import pandas as pd

from fomkit import __version__
from fomkit.bench.measured_run import run_content
from fomkit.core.errors import FomkitError
from fomkit.core.machine import Machine
from fomkit.core.model import ModelProfile
from fomkit.ops.check import check_table
from fomkit.ops.conv_methods import im2col_byte
from fomkit.ops.groups import GROUPINGS, Grouping, Sums, add_up, fewest, group_labels, identities
from fomkit.ops.pricing import add_costs, symbolic_work
from fomkit.ops.resize import evaluate, resize_ops, sizes_used
from fomkit.ops.views import SEPARATORS, TYPE_COLUMNS, has_lines, layer_census, split_by_line, tree_labels
from fomkit.plan.content import Condition, Ends, MaybeEnds, as_content, conditions_content, span_content
from fomkit.plan.coverage import Uses, coverage, uses_of
from fomkit.plan.estimate import estimate
from fomkit.plan.options import Options, choose_sizes
from fomkit.plan.step import device_time

Activations = TypedDict("Activations", {
    "input_byte": float, "feature_maps_byte": float, "feature_maps_in_place_byte": float, "copies_byte": float,
    "with_copies_byte": float,
})  # fmt: skip
Census = TypedDict("Census", {
    "samples": int | None, "types": list[dict[str, str | float]], "total": dict[str, float],
    "all_operations": float, "activations": Activations, "largest_im2col_byte": float, "not_counted": list[str],
    "outside_layers_flop": float,
})  # fmt: skip


def census_content(model: ModelProfile, sizes: Mapping[str, int]) -> Census | None:
    """Count a model's layers by type, in the forward pass of one sample; None where layers were not recorded.

    A profile whose batch is fixed is counted at that batch, which ``samples`` states.

    `sizes`: named sizes that override the profile's; a batch among them is ignored.
    """
    if model.layers is None:
        return None
    samples = 1 if "batch" in sizes_used(model.ops) else model.sizes.get("batch")
    sizes = {**model.sizes, **sizes, **({} if samples is None else {"batch": samples})}
    where = f"{model.name}, layers"
    layers = resize_ops(model.layers, sizes, where)
    check_table(layers, "LAYERS", where)
    ops = add_costs(resize_ops(model.ops, sizes, model.name))
    census = layer_census(layers, ops, im2col_byte(ops, whole_batch=True))
    total = {name: float(census.types[name].sum()) for name in TYPE_COLUMNS}
    maps = total["output_byte"] + census.input_byte
    return {
        "samples": samples,
        "types": [
            {"layer": str(name), **{column: float(row[column]) for column in TYPE_COLUMNS}}
            for name, row in census.types.iterrows()
        ],
        "total": total, "all_operations": total["multiply_adds"] + total["other_operations"],
        "activations": {
            "input_byte": census.input_byte, "feature_maps_byte": maps,
            "feature_maps_in_place_byte": maps - census.in_place_byte, "copies_byte": census.copy_byte,
            "with_copies_byte": maps + census.copy_byte,
        },
        "largest_im2col_byte": census.largest_im2col_byte, "not_counted": list(census.idle),
        "outside_layers_flop": census.elsewhere_flop,
    }  # fmt: skip


SCHEMA = "fomkit/show/1"
Measure = Literal["time", "flop", "byte"]
COLUMNS: Mapping[Measure, str] = {"time": "time_s", "flop": "flop", "byte": "byte"}
TRACED = "traced"
"""Source of times that the trace itself measured."""


@dataclass(frozen=True)
class View:
    """How a model's ops are grouped and listed.

    `measure`: time, flop or byte; None for time if every op has one, else flop.
    `top`: list only the fewest groups that together reach this share of the measure.
    `depth`: levels of a tree; 0 or None for all.
    """

    by: Grouping = "kind"
    measure: Measure | None = None
    top: float | None = None
    depth: int | None = None


@dataclass(frozen=True)
class _Step:
    """The ops of a step with their costs and times, and their sums."""

    ops: pd.DataFrame
    labels: pd.Series[str]
    distinct: pd.Series[int]
    total: Sums
    level: float
    uses: Uses | None
    """What an op's use inside a step adds to its interval; None where times are not predicted."""


class ShownOps(NamedTuple):
    """The ops of a step with their costs and, on a machine, their times.

    `notes`: what holds for their figures; `conditions`: of their times; None without a machine.
    """

    ops: pd.DataFrame
    sizes: Mapping[str, int]
    notes: tuple[str, ...]
    conditions: dict[str, Condition] | None


def shown_ops(model: ModelProfile, machine: Machine | None, options: Options) -> ShownOps:
    """Return the ops of a model's step at the chosen sizes."""
    if machine is not None:
        found = estimate(model, machine, options)
        notes = (*found.formats.message.splitlines(), *found.deviations)
        return ShownOps(found.ops, found.sizes, notes, conditions_content(found))
    sizes = choose_sizes(model, options.wanted_sizes)
    numeric = resize_ops(model.ops, sizes, model.name)
    check_table(numeric, "OPS", model.name)
    return ShownOps(add_costs(numeric), sizes, model.caveats, None)


def _is_traced(ops: pd.DataFrame) -> bool:
    return "traced_time_s" in ops.columns and bool(ops["traced_time_s"].notna().any())


def _traced_at(
    ops: pd.DataFrame, model: ModelProfile, sizes: Mapping[str, int]
) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Drop the times of a trace where the step has other sizes than the traced one."""
    if not _is_traced(ops) or dict(sizes) == dict(model.sizes):
        return ops, ()
    own = ", ".join(f"{name} {size}" for name, size in model.sizes.items())
    return ops.drop(columns="traced_time_s"), (f"times of its ops were traced at {own} and are left out",)


Missing = TypedDict("Missing", {"flop": float, "byte": float, "traced": NotRequired[float],
                                "time": NotRequired[float]})  # fmt: skip
OpSums = TypedDict("OpSums", {
    "count": float, "distinct_ops": int, "flop": float | None, "byte": float | None, "intensity": float | None,
    "flop_share": float | None, "byte_share": float | None, "missing": Missing,
    "traced_s": NotRequired[float | None], "traced_share": NotRequired[float | None],
    "time_share": NotRequired[float | None], "time_s": NotRequired[MaybeEnds | Ends | None],
    "time_sources": NotRequired[dict[str, float]],
})  # fmt: skip


class OpGroup(OpSums):
    """The sums of a named group."""

    group: str


class Branch(OpGroup):
    """The sums of a tree level alone, and of the level with all levels below it."""

    depth: int
    inclusive: OpSums


class OtherGroups(OpSums):
    """The sums of the groups that are not listed."""

    groups: int


class WholeStep(OpSums):
    """The sums of all ops."""

    at_least: bool


ByTop = TypedDict("ByTop", {"share": float, "reached": float, "measure": str, "rest": OtherGroups | None})
GroupedBy = TypedDict("GroupedBy", {"name": str, "means": str, "separator": str | None})
Counted = TypedDict("Counted", {"total": int | None, "trainable": int | None})
ModelContent = TypedDict("ModelContent", {
    "schema": str, "fomkit": str, "is": Literal["model"], "name": str, "title": str, "mode": str | None,
    "parameters": Counted, "sizes": dict[str, int], "by": GroupedBy, "measure": str, "target": str | None,
    "interval": float | None, "rows": list[OpGroup] | list[Branch], "total": WholeStep, "top": ByTop | None,
    "measured": Mapping[str, object] | None, "layers": Census | None, "unsupported": list[str],
    "deviations": list[str], "view": dict[str, str | int | float], "conditions": NotRequired[dict[str, Condition]],
})  # fmt: skip


def _share_of(part: float, whole: float) -> float:
    return nan if isnan(part) or isnan(whole) or whole <= 0 else part / whole


def _time_entry(step: _Step, ops: pd.DataFrame, sums: Sums) -> Mapping[str, object]:
    """Return the entries about the time of some ops: the traced time, or the predicted one."""
    if step.uses is None:
        known = not isnan(sums.time_s)
        time: object = {"value": sums.time_s, "low": None, "high": None} if known else nan
        sources = {TRACED: 1.0} if known else {}
    else:
        time = nan if isnan(sums.time_s) else span_content(device_time(ops, step.level, step.uses))
        sources = {name: share for name, share in coverage(ops).items() if share > 0 and len(ops)}
    return {"time_share": _share_of(sums.time_s, step.total.time_s), "time_s": time, "time_sources": sources}


def _sums_entry(step: _Step, ops: pd.DataFrame) -> OpSums:
    """Convert the sums of some ops to an entry of ``rows``."""
    sums, timed = add_up(ops, step.distinct), "time_s" in ops.columns
    traced = timed and step.uses is not None and not isnan(step.total.traced_s)  # traced and predicted times
    missing = as_content(
        Missing, flop=sums.flop_missing, byte=sums.byte_missing, traced=sums.traced_missing if traced else None,
        time=sums.time_missing if timed else None,
    )  # fmt: skip
    return as_content(
        OpSums, _time_entry(step, ops, sums) if timed else {"time_s": None}, sums, distinct_ops=sums.distinct,
        flop_share=_share_of(sums.flop, step.total.flop), byte_share=_share_of(sums.byte, step.total.byte),
        missing=missing, traced_s=sums.traced_s if traced else None,
        traced_share=_share_of(sums.traced_s, step.total.traced_s) if traced else None,
    )  # fmt: skip


def _measured_amount(entry: Mapping[str, Any], measure: Measure) -> float:
    found = entry.get(COLUMNS[measure])
    value = found["value"] if isinstance(found, Mapping) else found
    return float("nan") if value is None else float(value)


def _flat(step: _Step, measure: Measure, top: float | None) -> tuple[list[OpGroup], ByTop | None]:
    def size(entry: OpGroup) -> float:
        amount = _measured_amount(entry, measure)
        return -1.0 if isnan(amount) else amount

    groups = step.ops.groupby(step.labels, sort=False)
    found: list[OpGroup] = [{"group": str(name), **_sums_entry(step, rows)} for name, rows in groups]
    entries = sorted(found, key=size, reverse=True)
    if top is None:
        return entries, None
    cut = fewest({entry["group"]: _measured_amount(entry, measure) for entry in entries}, top)
    left = ~step.labels.isin(cut.groups)
    rest: OtherGroups | None = None
    if left.any():
        rest = {"groups": len(entries) - len(cut.groups), **_sums_entry(step, step.ops[left])}
    totals: ByTop = {"share": top, "reached": cut.reached, "measure": measure, "rest": rest}
    return [entry for entry in entries if entry["group"] in cut.groups], totals


def _tree(step: _Step, separator: str, depth: int | None) -> list[Branch]:
    rows = list[Branch]()
    for place in tree_labels(step.labels, separator, depth):
        own = _sums_entry(step, step.ops[step.labels.isin(place.own)])
        whole = place.inclusive if place.inclusive != place.own else None
        inclusive = own if whole is None else _sums_entry(step, step.ops[step.labels.isin(whole)])
        rows.append({"group": place.path, "depth": place.depth, **own, "inclusive": inclusive})
    return rows


def show_model(model: ModelProfile, view: View, options: Options, machine: Machine | None = None) -> ModelContent:
    """Return a step by groups of ops (``fomkit/show/1``), with a machine's times, else those of the trace."""
    ops, sizes, notes, conditions = shown_ops(model, machine, options)
    ops, stale = _traced_at(ops, model, sizes)
    if machine is None and _is_traced(ops):
        ops = ops.assign(time_s=ops["traced_time_s"])
    if view.by == "code" and not has_lines(ops):
        raise FomkitError(
            model.name,
            "its op table has no lines of code. Profile the program again with 'fomkit profile FILE.py' or "
            "'--script FILE.py', which record them; or show it --by module.",
        )
    ops = split_by_line(ops) if view.by == "code" else ops.reset_index(drop=True)
    distinct = identities(ops)
    total = add_up(ops, distinct)
    if view.measure == "time" and isnan(total.time_s):
        raise FomkitError("--measure time", "no op has a time. Name a machine: --target v100.")
    measure = view.measure or ("flop" if total.time_missing else "time")
    uses = uses_of(machine) if machine is not None else None
    step = _Step(ops, group_labels(ops, view.by), distinct, total, options.interval, uses)
    separator = SEPARATORS.get(view.by)
    is_tree = separator is not None and view.top is None
    rows, top = _flat(step, measure, view.top) if not is_tree else ([], None)
    return as_content(
        ModelContent, model, schema=SCHEMA, fomkit=__version__, **{"is": "model"},
        mode=model.traced_with.get("mode"), sizes=sizes, measure=measure, target=machine and machine.name,
        parameters={"total": model.parameters_total, "trainable": model.parameters_trainable},
        by={"name": view.by, "means": GROUPINGS[view.by], "separator": separator},
        interval=options.interval if machine is not None else None,
        rows=_tree(step, separator, view.depth or None) if separator is not None and is_tree else rows,
        total={**_sums_entry(step, ops), "at_least": model.at_least}, top=top,
        measured=None if model.measured is None else run_content(model.measured),
        layers=census_content(model, sizes) if view.by == "kind" else None, deviations=[*notes, *stale],
        view={name: value for name, value in asdict(view).items() if value}, conditions=conditions,
    )  # fmt: skip


STEP = "step"
QUANTITIES = ("flop", "byte")
_NO_WORK = ("op", "count", "module", "code_line", "traced_time_s")
"""Columns that do not affect an op's work."""


class _Sum:
    """The work of some ops in one quantity: the terms with a formula, and the executions without one."""

    def __init__(self) -> None:
        self.terms: list[Any] = []
        self.missing = 0.0

    def add(self, work: Any, count: float) -> None:
        import sympy  # takes half a second to import, and only this view needs it

        if work is sympy.nan:
            self.missing += count
        else:
            self.terms.append(sympy.Rational(repr(count)) * work)

    def formula(self) -> Any:
        """Return the expanded sum; None where no op has a formula."""
        import sympy

        return sympy.expand(sympy.Add(*self.terms)) if self.terms else None


def _sums_on_symbols(model: ModelProfile, sizes: Mapping[str, Any]) -> dict[str, dict[str, _Sum]]:
    """Add up the work of distinct ops as symbolic expressions, by pass and for the step."""
    found: dict[str, dict[str, _Sum]] = defaultdict(lambda: {name: _Sum() for name in QUANTITIES})
    columns = [name for name in model.ops.columns if name not in _NO_WORK]
    for _, rows in model.ops.groupby(columns, sort=False, dropna=False):
        cells = {str(name): value for name, value in rows.iloc[0].items()}
        count = float(rows["count"].sum())
        for name, work in symbolic_work(cells, lambda text: evaluate(text, sizes, model.name)).items():
            for part in (_word_of_pass(str(cells["pass_name"])), STEP):
                found[part][name].add(work, count)
    return {**{name: found[name] for name in found if name != STEP}, STEP: found[STEP]}


def _word_of_pass(pass_name: str) -> str:
    return pass_name.partition("_")[0]


Formula = TypedDict("Formula", {"formula": str, "value": float})
FormulaRow = TypedDict("FormulaRow", {"pass_name": str, "flop": Formula | None, "byte": Formula | None,
                                      "missing": dict[str, float]})  # fmt: skip
Formulas = TypedDict("Formulas", {
    "schema": str, "fomkit": str, "name": str, "title": str, "mode": str | None, "sizes": dict[str, int],
    "free": list[str], "rows": list[FormulaRow], "at_least": bool, "unsupported": list[str],
})  # fmt: skip


def formulas_content(model: ModelProfile, options: Options) -> Formulas:
    """Return the work of one step, by pass, as formulas of its named sizes (``fomkit/formulas/1``).

    `options`: a batch or other size that is set there is inserted as a number. Each formula has its value at
    ``sizes``, a float64 sum over ops; both are None where no op has a formula. ``missing`` counts the executions
    without a formula, which neither includes.

    >>> from fomkit.profiles.models import load_model
    >>> formulas_content(load_model("candle/p1b3"), Options())["rows"][0]["flop"]["formula"]
    '60177401*batch'
    """
    import sympy

    chosen, wanted = choose_sizes(model, options.wanted_sizes), options.wanted_sizes
    sizes = {
        name: sympy.Integer(size) if name in wanted else sympy.Symbol(name, integer=True, positive=True)
        for name, size in chosen.items()
    }
    numeric = resize_ops(model.ops, chosen, model.name)
    check_table(numeric, "OPS", model.name)
    costed = add_costs(numeric, checked=True)
    work = costed[list(QUANTITIES)].mul(costed["count"], axis=0)
    by_pass = work.groupby(costed["pass_name"].map(_word_of_pass))
    groups = {**{str(name): rows for name, rows in by_pass}, STEP: work}
    values = {name: {key: float(rows[key].sum()) for key in QUANTITIES} for name, rows in groups.items()}
    free: set[Any] = set()
    rows = list[FormulaRow]()
    for name, sums in _sums_on_symbols(model, sizes).items():
        known: dict[str, Formula] = {}
        for key, whole in sums.items():
            if (formula := whole.formula()) is not None:
                free |= formula.free_symbols
                known[key] = {"formula": str(formula), "value": values[name][key]}
        rows.append({"pass_name": name, "flop": known.get("flop"), "byte": known.get("byte"),
                     "missing": {key: whole.missing for key, whole in sums.items()}})  # fmt: skip
    return as_content(
        Formulas, model, schema="fomkit/formulas/1", fomkit=__version__, mode=model.traced_with.get("mode"),
        sizes=chosen, free=[name for name, size in sizes.items() if size in free], rows=rows,
    )  # fmt: skip
