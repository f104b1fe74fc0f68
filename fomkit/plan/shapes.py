"""The ops of one model at many sizes at once, as arrays; and which of them are worth timing on a machine."""

from __future__ import annotations

from collections.abc import Mapping
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
from fomkit.ops.pricing import cost_columns, recurrent_calls
from fomkit.ops.resize import evaluate_many, resize_ops
from fomkit.ops.tables import SIZED, SOURCES
from fomkit.plan.content import span_content
from fomkit.plan.estimate import Estimate
from fomkit.plan.options import choose_sizes
from fomkit.plan.step import steps_if_timed
from fomkit.prediction.cascade import prepared, price
from fomkit.prediction.estimates import Rows, are, repeated
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
class SizedOps:
    """Ops whose columns may depend on named sizes.

    `rows`: one row for each, restated, at the profile's own sizes; `where`: how messages name them.
    `expressions`: column to the text of each row; rows without one keep their number.
    `factor`: what the number format makes of the bytes of each row.
    """

    rows: pd.DataFrame
    expressions: Mapping[str, Mapping[int, str]]
    factor: Array
    where: str

    def at(self, sizes: Sizes) -> Rows:
        """Size, check and price each row at all sizes (u), row by row."""
        many = len(next(iter(sizes.values())))
        sized: dict[str, Array] = {}
        for name, texts in self.expressions.items():
            sized[name] = np.repeat(self.rows[name].to_numpy(np.float64)[:, None], many, 1)
            for row, text in texts.items():
                value = evaluate_many(text, sizes, f"{self.where}, {name}")
                sized[name][row] = value * self.factor[row] if name in ("read_byte", "write_byte") else value
        # What a check allows is a range of numbers, whole ones where dimensions are, which expressions keep; so
        # the least sizes of each row and its largest speak for all the others.
        ends = {name: np.stack([cells.min(1), cells.max(1)], 1).ravel() for name, cells in sized.items()}
        both = self.rows.iloc[np.repeat(np.arange(len(self.rows)), 2)].assign(**ends)
        check_table(both.drop(columns="of", errors="ignore"), "OPS", self.where)
        costs = cost_columns(self.rows, ("flop", "byte", "launches"), sized, (many,))
        return repeated(self.rows, many, **sized, **costs)


@dataclass(frozen=True)
class StepOps:
    """The distinct ops of a model's step, to be sized.

    `ops`: each executed once.
    `counts`: for each row the number, or the texts, of its executions.
    `parts`: the profile's parts with ``of`` a row; None where it has none.
    """

    ops: SizedOps
    counts: tuple[tuple[str | float, ...], ...]
    parts: SizedOps | None

    @property
    def rows(self) -> pd.DataFrame:
        """One row for each op, at the profile's own sizes."""
        return self.ops.rows


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


def _restated(
    ops: pd.DataFrame, model: ModelProfile, machine: Machine, formats: Formats
) -> tuple[pd.DataFrame, pd.DataFrame, Array]:
    """Give ops at the profile's sizes, in the formats and on the engines that a machine has, and byte factors."""
    traced = resize_ops(ops, choose_sizes(model, {}), model.name)
    restated = settle_engines(restate_ops(traced, formats).reset_index(drop=True), prepared(machine))[0]
    factor = np.ones(len(restated))
    factor[: len(traced)] = byte_factor(traced["dtype"], restated["dtype"].iloc[: len(traced)])
    return traced, restated, factor


def step_ops(model: ModelProfile, machine: Machine, formats: Formats) -> StepOps:
    """Collect the distinct ops of a model's step, with the engines that a machine has."""
    ops = row_major(model.ops)
    traced, restated, factor = _restated(ops, model, machine, formats)
    symbols = _symbols(ops)
    _check_fixed_updates(traced, symbols, formats, model.name)
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
    expressions = {
        name: {new[place]: text for place, text in cells_of.items() if place in set(first)}
        for name, cells_of in symbols.items()
        if name != "count"
    }
    rows = _told(restated.iloc[first]).assign(count=1.0)
    return StepOps(
        ops=SizedOps(rows, expressions, factor[first], model.name),
        counts=tuple(tuple(texts_of.get(place, counts[place]) for place in places) for places in groups.values()),
        parts=_parts_of(model, machine, formats, {place: new[place] for place in first}),
    )


def _told(rows: pd.DataFrame) -> pd.DataFrame:
    """Leave out the columns that say nothing of what takes time."""
    rows = rows.drop(columns=[name for name in _PLACE if name != "count"], errors="ignore").reset_index(drop=True)
    return rows.loc[:, rows.notna().any() | rows.columns.isin(_TEXTS)]


def _parts_of(model: ModelProfile, machine: Machine, formats: Formats, new: Mapping[int, int]) -> SizedOps | None:
    parts = model.parts
    parts = row_major(parts[parts["of"].isin(list(new))].reset_index(drop=True)) if len(parts) else parts
    if not len(parts):
        return None
    _, restated, factor = _restated(parts.drop(columns="of"), model, machine, formats)
    rows = _told(restated).assign(of=parts["of"].map(new))
    return SizedOps(rows, _symbols(parts), factor, f"{model.name}, parts")


def _check_fixed_updates(
    ops: pd.DataFrame, symbols: Mapping[str, Mapping[int, str]], formats: Formats, where: str
) -> None:
    updates = set(np.flatnonzero(ops["kind"] == "optimizer").tolist())
    if formats.casts_weights and any(updates & set(cells) for cells in symbols.values()):
        raise FomkitError(
            where, "its update depends on a named size, so the casts of its weights cannot be sized together. "
            "Estimate each size alone, or choose --precision fp32.",
        )  # fmt: skip


def _executions(step: StepOps, sizes: Sizes) -> Array:
    many = len(next(iter(sizes.values())))
    found = np.zeros((len(step.counts), many))
    for row, counts in enumerate(step.counts):
        for count in counts:
            found[row] += evaluate_many(count, sizes, step.ops.where) if isinstance(count, str) else count
    return found


def _parts(step: StepOps, sizes: Sizes) -> Rows | None:
    """Make the parts of the rows at all sizes; ``of`` is their place among `repeated` ones."""
    if step.parts is None:
        return None
    parts, many = step.parts.at(sizes), len(next(iter(sizes.values())))
    parts = parts.assign(of=parts.number("of") * many + parts.index % many)
    return parts.take(parts.number("count") != 0)  # what a loop does between its steps, when there is only one


def _calls(step: StepOps, rows: Rows) -> Rows | None:
    """Make the library calls of recurrent layers at all sizes; ``of`` is the layer's place among ``rows``."""
    many, found = len(rows) // len(step.rows), list[dict[str, Any]]()
    for row in np.flatnonzero(are(step.rows, "kind", "rnn")).tolist():
        layer = {str(name): cell for name, cell in step.rows.iloc[row].items()}
        own = [name for name, texts in step.ops.expressions.items() if row in texts]
        layer |= {name: rows.number(name).reshape(-1, many)[row] for name in own}
        found += [{**call, "of": float(row)} for call in recurrent_calls(layer)]
    if not found:
        return None
    # A column is sized where one of its cells is an array; the others are repeated.
    cells = pd.DataFrame([{name: np.ravel(cell)[0] for name, cell in call.items()} for call in found])
    names = [name for name in cells.columns if cells[name].dtype.kind == "f"]
    sized = {name: np.stack([np.broadcast_to(call.get(name, np.nan), many) for call in found]) for name in names}
    costs = cost_columns(cells, ("flop", "byte", "launches"), sized, (many,))
    calls = repeated(cells, many, **sized, **costs)
    calls = calls.assign(of=calls.number("of") * many + calls.index % many)
    return calls.take(calls.number("count") != 0)


def times_at(step: StepOps, machine: Machine, sizes: Sizes, interval: float) -> Timed:
    """Price a step's ops at many sizes.

    `machine`: as built; `sizes`: each named size as an array (u,) of whole numbers.
    """
    machine, rows = prepared(machine), step.ops.at(sizes)
    shape = (len(step.rows), -1)
    calls = _calls(step, rows)
    answers = price(rows, machine, interval, parts=_parts(step, sizes), calls=calls)
    times, sources = np.full((3, len(rows)), np.nan), np.zeros(len(rows), np.int8)
    times[:, answers.index] = answers.times
    times += fresh_seconds(rows, machine.device)
    sources[answers.index] = answers.source.mapped([SOURCES[word] for word in answers.source.words], np.int8)
    work = (rows.number(name).reshape(shape) for name in ("flop", "byte", "launches"))
    return Timed(times.reshape(3, *shape), sources.reshape(shape), _executions(step, sizes), *work)


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
