"""The ops of one model at many sizes at once, as arrays; and which of them are worth timing on a machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span, shrinks
from fomkit.ops.check import check_table
from fomkit.ops.groups import identities, shape_label
from fomkit.ops.kinds import KINDS, PASS_FREE_KINDS, UNNAMED_KINDS
from fomkit.ops.precision import Formats, byte_factor, restate_ops
from fomkit.ops.pricing import add_costs, split_recurrent
from fomkit.ops.resize import evaluate_many, resize_ops
from fomkit.ops.tables import SIZED, SOURCES
from fomkit.plan.content import span_content
from fomkit.plan.estimate import Estimate
from fomkit.plan.options import choose_sizes
from fomkit.plan.step import steps_if_timed
from fomkit.prediction.cascade import prepared, price
from fomkit.prediction.estimates import as_rows
from fomkit.prediction.rates import fresh_seconds
from fomkit.prediction.storage_order import row_major, settle_engines

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fomkit.core.machine import Machine
    from fomkit.core.model import ModelProfile

    Array = NDArray[np.float64]
    Sizes = Mapping[str, Array]


_TEXTS = ("op", "kind", "dtype", "engine", "pass_name")
_PLACE = ("count", "module", "code_line", "traced_time_s")


@dataclass(frozen=True)
class StepOps:
    """The distinct ops of a model's step, to be sized.

    `rows`: one row for each, restated, at the profile's own sizes.
    `expressions`: column to the text of each row; rows without one keep their number.
    `factors`: column to what the number format makes of its value, for each row.
    `counts`: for each row the number, or the texts, of its executions.
    `parts`: the profile's parts with ``of`` a row.
    """

    rows: pd.DataFrame
    expressions: Mapping[str, Mapping[int, str]]
    factor: Array
    counts: tuple[tuple[str | float, ...], ...]
    parts: pd.DataFrame
    where: str


class Timed(NamedTuple):
    """Ops (n) at several sizes (u), as built.

    `times` (3, n, u): value and ends [s]; NaN where unpriced.
    `sources` (n, u): `SOURCES` of the times.
    `executions`, `flop`, `byte`, `launches` (n, u).
    """

    times: Array
    sources: NDArray[np.int8]
    executions: Array
    flop: Array
    byte: Array
    launches: Array


def _symbols(ops: pd.DataFrame) -> dict[str, dict[int, str]]:
    """Find the cells of a table that are expressions."""
    found = {}
    for name in SIZED:
        if name in ops.columns and ops[name].dtype.kind != "f":
            cells = enumerate(ops[name].tolist())
            found[name] = {
                place: cell for place, cell in cells if isinstance(cell, str) and not cell.strip().isdigit()
            }
    return {name: cells for name, cells in found.items() if cells}


def step_ops(model: ModelProfile, machine: Machine, formats: Formats) -> StepOps:
    """Collect the distinct ops of a model's step, with the engines that a machine has."""
    ops = row_major(model.ops)
    traced = resize_ops(ops, choose_sizes(model, {}), model.name)
    restated = settle_engines(restate_ops(traced, formats).reset_index(drop=True), prepared(machine))[0]
    symbols = _symbols(ops)
    _check_fixed_updates(traced, symbols, formats, model.name)
    factor = np.ones(len(restated))
    factor[: len(traced)] = byte_factor(traced["dtype"], restated["dtype"].iloc[: len(traced)])
    names = [name for name in restated.columns if name not in _PLACE]
    cells = restated[names].astype(object).where(restated[names].notna(), None)
    for name, texts in symbols.items():
        if name in names:
            cells.iloc[list(texts), names.index(name)] = list(texts.values())
    groups: dict[tuple[object, ...], list[int]] = {}
    for place, key in enumerate(cells.itertuples(index=False, name=None)):
        groups.setdefault((*key, factor[place]), []).append(place)
    first = [places[0] for places in groups.values()]
    new = {place: number for number, places in enumerate(groups.values()) for place in places}
    texts_of = symbols.get("count", {})
    counts = restated["count"].tolist()
    of_first = model.parts[model.parts["of"].isin(first)] if len(model.parts) else model.parts
    return StepOps(
        rows=restated.iloc[first].reset_index(drop=True),
        expressions={
            name: {new[place]: text for place, text in cells_of.items() if place in set(first)}
            for name, cells_of in symbols.items()
            if name != "count"
        },
        factor=factor[first],
        counts=tuple(tuple(texts_of.get(place, counts[place]) for place in places) for places in groups.values()),
        parts=of_first.assign(of=of_first["of"].map(new)) if len(of_first) else of_first,
        where=model.name,
    )


def _check_fixed_updates(
    ops: pd.DataFrame, symbols: Mapping[str, Mapping[int, str]], formats: Formats, where: str
) -> None:
    updates = set(np.flatnonzero(ops["kind"] == "optimizer").tolist())
    if formats.casts_weights and any(updates & set(cells) for cells in symbols.values()):
        raise FomkitError(
            where, "its update depends on a named size, so the casts of its weights cannot be sized together. "
            "Estimate each size alone, or choose --precision fp32.",
        )  # fmt: skip


def _repeated(words: pd.Series, many: int) -> pd.Categorical:
    codes, cells = pd.factorize(words.to_numpy(object))
    return pd.Categorical.from_codes(np.repeat(codes, many), categories=pd.Index(cells, dtype=object))


def _stacked(step: StepOps, at: NDArray[np.intp], sizes: Sizes) -> pd.DataFrame:
    """Make the table of some rows (n) at all sizes (u), row by row."""
    rows, many = step.rows.iloc[at], len(next(iter(sizes.values())))
    columns: dict[str, object] = {name: _repeated(rows[name], many) for name in _TEXTS}
    columns["count"] = np.ones(len(at) * many)
    for name in rows.columns:
        if name in columns or name in _PLACE or rows[name].isna().all():
            continue
        if rows[name].dtype.kind != "f":
            columns[name] = _repeated(rows[name], many)
            continue
        cells = np.repeat(rows[name].to_numpy(np.float64)[:, None], many, 1)
        texts = step.expressions.get(name, {})
        for place, row in enumerate(at.tolist()):
            if row in texts:
                value = evaluate_many(texts[row], sizes, f"{step.where}, {name}")
                cells[place] = value * step.factor[row] if name in ("read_byte", "write_byte") else value
        columns[name] = cells.ravel()
    return pd.DataFrame(columns)


def _ends(stacked: pd.DataFrame, many: int) -> pd.DataFrame:
    """Give for each op a row of its least sizes and one of its largest.

    What a check allows is a range of numbers, whole ones where dimensions are, which expressions keep; so these
    two speak for all the others.
    """
    columns: dict[str, object] = {}
    for name in stacked.columns:
        if stacked[name].dtype.kind != "f":
            columns[name] = stacked[name].array[::many].repeat(2)
            continue
        cells = stacked[name].to_numpy(np.float64).reshape(-1, many)
        columns[name] = np.stack([cells.min(1), cells.max(1)], 1).ravel()
    return pd.DataFrame(columns)


def _executions(step: StepOps, sizes: Sizes) -> Array:
    many = len(next(iter(sizes.values())))
    found = np.zeros((len(step.counts), many))
    for row, counts in enumerate(step.counts):
        for count in counts:
            found[row] += evaluate_many(count, sizes, step.where) if isinstance(count, str) else count
    return found


def _parts(step: StepOps, at: NDArray[np.intp], sizes: Sizes, formats: Formats) -> pd.DataFrame | None:
    """Make the parts of some rows at all sizes; ``of`` is their place in `_stacked`."""
    if not len(step.parts) or not step.parts["of"].isin(at).any():
        return None
    many, where = len(next(iter(sizes.values()))), f"{step.where}, parts"
    places = {row: place for place, row in enumerate(at.tolist())}
    chosen = step.parts[step.parts["of"].isin(at)].reset_index(drop=True)
    sized = resize_ops(chosen, {name: int(values[0]) for name, values in sizes.items()}, where)
    columns = {"of": (sized["of"].map(places).to_numpy("int64")[:, None] * many + np.arange(many)).ravel()}
    for name, texts in _symbols(chosen).items():
        cells = np.repeat(sized[name].to_numpy(np.float64)[:, None], many, 1)
        for place, text in texts.items():
            cells[place] = evaluate_many(text, sizes, f"{where}, {name}")
        columns[name] = cells.ravel()
    stacked = sized.take(np.repeat(np.arange(len(sized)), many)).reset_index(drop=True).assign(**columns)
    stacked = stacked[stacked["count"] != 0]
    return add_costs(restate_ops(stacked.drop(columns="of"), formats)).assign(of=stacked["of"].to_numpy("int64"))


def times_at(step: StepOps, machine: Machine, formats: Formats, sizes: Sizes, interval: float) -> Timed:
    """Price a step's ops at many sizes.

    `machine`: as built; `sizes`: each named size as an array (u,) of whole numbers.
    """
    machine = prepared(machine)
    many = len(next(iter(sizes.values())))
    shape = (len(step.rows), many)
    times, sources = np.full((3, *shape), np.nan), np.zeros(shape, np.int8)
    work = {name: np.full(shape, np.nan) for name in ("flop", "byte", "launches")}
    for at in _of_kinds(step.rows):
        stacked = _stacked(step, at, sizes)
        check_table(_ends(stacked, many), "OPS", step.where)
        table = add_costs(stacked, checked=True)
        for name, values in work.items():
            values[at] = table[name].to_numpy(np.float64).reshape(len(at), many)
        calls = split_recurrent(table) if table["kind"].iat[0] == "rnn" else None
        parts = _parts(step, at, sizes, formats)
        answers = price(as_rows(table), machine, interval, parts=parts, calls=calls)
        flat, numbers = np.full((3, len(table)), np.nan), np.zeros(len(table), np.int8)
        flat[:, answers.index] = np.stack([answers.time_s, answers.low_s, answers.high_s])
        flat += fresh_seconds(table, machine.device)
        numbers[answers.index] = [SOURCES[name] for name in answers.time_source.tolist()]
        times[:, at], sources[at] = flat.reshape(3, len(at), many), numbers.reshape(len(at), many)
    return Timed(times, sources, _executions(step, sizes), work["flop"], work["byte"], work["launches"])


def _of_kinds(rows: pd.DataFrame) -> Iterator[NDArray[np.intp]]:
    kinds = rows["kind"].to_numpy(object)
    for kind in dict.fromkeys(kinds):
        yield np.flatnonzero(kinds == kind)


def _as_timed(ops: pd.DataFrame) -> pd.DataFrame:
    """Blank what a timing need not say, so that ops which one timing serves are alike."""
    return ops.assign(
        op=ops["op"].mask(ops["kind"].isin(UNNAMED_KINDS), ""),
        pass_name=ops["pass_name"].mask(ops["kind"].isin(PASS_FREE_KINDS), ""),
    )


def _line(row: dict[str, Any]) -> dict[str, Any]:
    """Give the cells of a table of ops: what is to be run, by the names of the columns."""
    kind = str(row["kind"])
    sizes = KINDS[kind].columns
    names = ("op", "kind", "dtype", "engine", "pass_name", "count", *sizes)
    known = {name: row[name] for name in names if name in row and row[name] == row[name] and row[name] != ""}
    return {
        name: int(cell) if isinstance(cell, float) and cell.is_integer() else cell for name, cell in known.items()
    }


def _if_timed(estimate: Estimate, rows: pd.DataFrame, step: Span) -> dict[str, Any]:
    first = {str(name): cell for name, cell in rows.iloc[0].items()}
    executions = float(rows["count"].sum())
    return {
        "sizes": shape_label(first),
        "ops": sorted(set(rows["op"].astype("str"))),
        "passes": sorted(set(rows["pass_name"].astype("str"))),
        "time_source": str(first["time_source"]),
        "executions": executions,
        "share": float((rows["time_s"] * rows["count"]).sum()) / estimate.step_time.device_s.value,
        "step_s": span_content(step),
        "shrinks": shrinks(estimate.step, step),
        "line": _line({**first, "count": executions}),
    }


def ops_to_time(estimate: Estimate, top: int) -> dict[str, Any]:
    """List what could be timed on the machine, by how much narrower the interval of the step would be.

    `top`: timings to list. Gives a dict: ``measurements``, best first, and ``all_measured``, the step [s] with
    every one of them known. An entry has sizes, time_source, executions and share of the device time of all ops
    that the timing would serve, ``step_s`` with them known, ``shrinks`` [share of the interval's width now], and
    ``line``, the cells of a table of ops. ``line`` names the first of these ops where several share sizes, and its
    count is that of all.
    """
    settled = settle_engines(estimate.ops.reset_index(drop=True), estimate.machine)[0]
    groups = identities(_as_timed(settled))
    steps = steps_if_timed(settled, groups, estimate.machine, estimate.step.level)
    listed = {number: _if_timed(estimate, settled[groups == number], step) for number, step in steps.items()}
    best = sorted(listed, key=lambda number: (-listed[number]["shrinks"], -listed[number]["share"]))[:top]
    together = groups.isin(best).astype("int64")
    known = steps_if_timed(settled, together, estimate.machine, estimate.step.level).get(1)
    return {"measurements": [listed[number] for number in best], "all_measured": span_content(known)}
