"""The distinct ops of a model's step as arrays, sized and priced at many sizes at once.

`step_ops` collects the ops once; `times_at` and `price_at` evaluate them at arrays of sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fomkit.core.machine import Device, Machine
from fomkit.core.model import ModelProfile
from fomkit.ops.check import check_table
from fomkit.ops.columns import FEW, Columns, Words, alike
from fomkit.ops.families.formula import DEFAULTS, columns_of
from fomkit.ops.precision import Formats, add_casts, byte_factors, restate_rows
from fomkit.ops.pricing import CHOOSERS, CostGroup, cost_columns, cost_groups, recurrent_calls
from fomkit.ops.resize import Cells, Expressions, cells_of, evaluate_many, expressions_in, many_of, resize_ops
from fomkit.ops.tables import SOURCES, TRAFFIC
from fomkit.plan.coverage import shares_of
from fomkit.plan.options import choose_sizes
from fomkit.plan.step import Started, StepRows, ops_in, shares_of_units
from fomkit.prediction.cascade import prepared, price, with_answers
from fomkit.prediction.composed import CALL, PART
from fomkit.prediction.estimators import Answers, Rows, places_of, records, repeated
from fomkit.prediction.exact import row_major, settle_engines
from fomkit.prediction.rates import fresh_seconds, with_fresh

Array = NDArray[np.float64]
Sizes = Mapping[str, Array]

_TEXTS = ("op", "kind", "dtype", "engine", "pass_name")
_PLACE = ("count", "module", "code_line", "traced_time_s")
_WORK = ("flop", "byte", "launches")


class _Table(NamedTuple):
    """Rows at some sizes, their cells that are expressions, and the factors by which formats change bytes."""

    rows: pd.DataFrame
    expressions: Expressions
    factor: Array

    def then(self, other: _Table) -> _Table:
        """Append the rows of another table."""
        if not (len(self.rows) and len(other.rows)):
            return self if len(self.rows) else other
        count, expressions = len(self.rows), {name: dict(cells) for name, cells in self.expressions.items()}
        for name, cells in other.expressions.items():
            expressions.setdefault(name, {}).update({count + row: text for row, text in cells.items()})
        rows = pd.concat([self.rows, other.rows], ignore_index=True)
        return _Table(rows, expressions, np.concatenate([self.factor, other.factor]))


@dataclass(frozen=True)
class SizedOps:
    """Ops whose columns may depend on named sizes, then their pieces: library calls and profile parts.

    `columns`: a row for each, restated, at some sizes; `cells`: the expressions; `groups`: rows that one cost
    formula prices; `layers`: recurrent layers; their library calls follow the ops; `where`: for messages.
    """

    columns: Columns
    cells: Cells
    groups: Sequence[CostGroup]
    layers: Layers
    where: str

    @cached_property
    def _fixed(self) -> dict[str, Array]:
        """The numeric columns at some sizes (n, 1)."""
        rows = self.columns.table
        names = [str(name) for name, dtype in rows.dtypes.items() if dtype.kind == "f"]
        row = columns_of(rows, np.arange(len(rows)), {}, (1,))
        return {
            name: row(name) for name in ("item_byte", *names, *(name for name in DEFAULTS if name not in rows))
        }

    def at(self, sizes: Sizes) -> Rows:
        """Size and check the rows at all sizes (u) and compute their costs; the sizes of a row are adjacent."""
        many, cells, rows = many_of(sizes), self.cells, self.columns.table
        values, wrong = cells.at(sizes, self.where)
        flat = np.repeat(
            np.concatenate([np.empty((0, 1)), *(self._fixed[name] for name in cells.columns)]), many, 1
        )
        flat[cells.place] = values
        sized = dict(zip(cells.columns, flat.reshape(len(cells.columns), len(rows), many), strict=True))
        if wrong:
            both = {name: np.stack([column.min(1), column.max(1)], 1).ravel() for name, column in sized.items()}
            table = rows.iloc[np.repeat(np.arange(len(rows)), 2)].assign(**both)
            check_table(table.drop(columns=["of", "piece", *_WORK], errors="ignore"), "OPS", self.where)
        calls = (
            call
            for row, layer in self.layers.items()
            for call in recurrent_calls({**layer, **{name: column[row] for name, column in sized.items()}})
        )
        places = np.flatnonzero(self.columns.text("piece").is_in(CALL)).tolist() if self.layers else []
        for place, call in zip(places, calls, strict=True):
            for name, cell in call.items():
                if not isinstance(cell, str):
                    sized[name][place] = cell

        def costs(*names: str) -> dict[str, Array]:
            return cost_columns(rows, names, {**self._fixed, **sized}, (many,), self.groups, cells.columns)

        if "of" in self._fixed:  # index of the parent op, which has `many` rows too
            sized["of"] = self._fixed["of"] * many + np.arange(many)
        return repeated(self.columns, many, **sized, **costs(*_WORK),
                        least_flop=lambda: costs("least_flop")["least_flop"].ravel())  # fmt: skip


class Replaced(NamedTuple):
    """A note on the number format and engine that an op has, and those that were requested."""

    note: str
    dtype: str
    engine: str


@dataclass(frozen=True)
class StepOps:
    """The distinct ops of a model's step, to be sized.

    `ops`: each op once, then the pieces of ops.
    `counts`: executions of each op; `sized_counts`: row, expression and multiplicity of the counts that are
      expressions, which are not in `counts`.
    `first` (t,): the op of each row of the model's table, and then of the rows that its formats add.
    `units`, `unit_shares` (g, n): what waits for its host alone (`Started`), with its share of each op's runs.
    `replaced`: ops that run on another engine than requested; `notes`: the same for pieces.
    """

    ops: SizedOps
    counts: Array
    sized_counts: tuple[tuple[int, str, int], ...]
    first: NDArray[np.intp]
    units: tuple[str, ...]
    unit_shares: Array
    replaced: Mapping[int, Replaced]
    notes: Mapping[int, str]

    def started(self, launches: Array, executions: Array, seconds: Array) -> Started:
        """Add up by unit what the host starts; columns (n, u): of each op, ``seconds`` of all its executions."""
        known = np.nan_to_num(launches)
        columns = (np.minimum(known, 1.0) * executions, np.maximum(known - 1.0, 0.0) * executions, seconds)
        return Started(self.units, *(self.unit_shares @ column for column in columns))

    @cached_property
    def rows(self) -> pd.DataFrame:
        """One row for each op, at some sizes."""
        return self.ops.columns.table.iloc[: len(self.counts)]

    def text(self, name: str) -> Words:
        """Return a text column of the ops."""
        return self.ops.columns.text(name).taken(slice(len(self.counts)))

    @cached_property
    def kinds_and_passes(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Kind and full pass of each op."""
        kinds, passes = (tuple(self.text(name).cells().tolist()) for name in ("kind", "pass_name"))
        return kinds, passes

    @cached_property
    def passes(self) -> NDArray[np.object_]:
        """The pass of each op: forward, backward or update."""
        passes = self.text("pass_name")
        return np.array([word.partition("_")[0] for word in passes.words], object)[passes.codes]

    def executions(self, sizes: Sizes) -> Array:
        """Return the executions of each op at all sizes (n, u)."""
        found = np.repeat(self.counts[:, None], many_of(sizes), 1)
        for row, text, times in self.sized_counts:
            found[row] += times * evaluate_many(text, sizes, self.ops.where)
        return found


class Priced(NamedTuple):
    """Ops at several sizes, row by row, with the prediction of each on a machine as built."""

    rows: Rows
    answers: Answers
    executions: Array


class TimedOps(NamedTuple):
    """Ops (n) at several sizes (u), as built.

    `times` (3, n, u): value, low and high [s]; NaN where unpriced.
    `sources` (n, u): `SOURCES` of the times.
    `executions`, `flop`, `byte`, `launches` (n, u).
    """

    times: Array
    sources: NDArray[np.int8]
    executions: Array
    flop: Array
    byte: Array
    launches: Array


def _restated(
    ops: pd.DataFrame, model: ModelProfile, formats: Formats, sizes: Mapping[str, int], *, is_parts: bool = False
) -> tuple[pd.DataFrame, Array]:
    """Return ops at some sizes in the formats of a step, and the factors of their bytes."""
    traced = resize_ops(ops, sizes, model.name)
    # A loop with one step executes the parts between its steps 0 times.
    check_table(traced[traced["count"] != 0] if is_parts else traced, "OPS", model.name)
    restated = restate_rows(traced, formats, is_parts=is_parts).reset_index(drop=True)
    factor = np.ones((len(restated), len(TRAFFIC)))
    factor[: len(traced)] = byte_factors(traced, restated["dtype"].iloc[: len(traced)])
    return restated, factor


def step_ops(
    model: ModelProfile, machine: Machine, formats: Formats, sizes: Mapping[str, int] | None = None
) -> StepOps:
    """Collect the distinct ops of a model's step, with the engines of a machine, by default at its own sizes."""
    machine, sizes = prepared(machine), choose_sizes(model, {}) if sizes is None else sizes
    ops = row_major(model.ops)
    if formats.casts_weights:
        ops = add_casts(ops, resize_ops(ops, sizes, model.name), formats)

    # Rows that are equal but for their place are restated once; after them come rows that the formats add.
    kept, same = _same_rows(ops, formats)
    merged = ops if len(kept) == len(same) else ops.iloc[kept].reset_index(drop=True)
    wanted, factor = _restated(merged, model, formats, sizes)
    rows, notes = settle_engines(wanted, machine)
    symbols = expressions_in(merged)
    first, op_of = _distinct_ops(rows, symbols, factor, notes)

    # The executions of an op are those of all its rows: a number, or an expression in sizes.
    repeats, texts = np.ones(len(rows)), symbols.get("count", {})
    repeats[: len(kept)] = np.bincount(same)
    runs = rows["count"].to_numpy(np.float64) * repeats
    runs[list(texts)] = 0.0

    # The ops by their first rows, then their pieces.
    ops_at = {row: op for op, row in enumerate(first)}
    asked = wanted[["dtype", "engine"]]
    replaced = {op: Replaced(notes[row], *asked.iloc[row]) for row, op in ops_at.items() if row in notes}
    expressions = {
        name: {ops_at[row]: text for row, text in column.items() if row in ops_at}
        for name, column in symbols.items()
        if name != "count"
    }
    own = _Table(_relevant_columns(rows.iloc[first]).assign(count=1.0), expressions, factor[first])
    layers = _layers_of(own.rows, replaced)
    traced = {kept[row]: op for row, op in ops_at.items() if row < len(kept)}
    pieces = _calls_of(layers).then(_parts_of(model, formats, sizes, traced))
    settled, notes_of = settle_engines(pieces.rows, machine) if len(pieces.rows) else (pieces.rows, {})
    whole = own.then(pieces._replace(rows=settled))

    placed, of_placed = (rows, op_of) if merged is ops else (ops, op_of[same])
    units, unit_shares = shares_of_units(placed, of_placed, len(first), model)
    cells, groups = cells_of(whole.expressions, whole.factor), cost_groups(whole.rows)
    return StepOps(
        ops=SizedOps(Columns(whole.rows), cells, groups, layers, model.name),
        counts=np.bincount(op_of, runs, len(first)).astype(np.float64),
        sized_counts=tuple((int(op_of[row]), text, int(repeats[row])) for row, text in texts.items()),
        first=of_placed,
        units=units,
        unit_shares=unit_shares,
        replaced=replaced,
        notes={len(first) + place: note for place, note in notes_of.items()},
    )


def _distinct_ops(
    rows: pd.DataFrame, symbols: Expressions, factor: Array, notes: Mapping[int, str]
) -> tuple[list[int], NDArray[np.intp]]:
    """Return the first row of each distinct op, and each row's op; ops that one formula prices are adjacent.

    Rows of one op have equal cells but for their place, where an expression stands for its values; equal factors
    of bytes and equal notes.
    """
    columns = [_cells_of(rows[name], symbols.get(name, {})) for name in rows.columns if name not in _PLACE]
    note_at = [notes.get(row, "") for row in range(len(rows))]
    numbers: dict[tuple[object, ...], int] = {}
    keys = zip(*columns, map(tuple, factor.tolist()), note_at, strict=True)
    number = np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.intp)
    first = np.unique(number, return_index=True)[1]
    choosers = [name for name in (*CHOOSERS, "kind") if name in rows.columns]
    order = np.lexsort([pd.factorize(rows[name].to_numpy(object)[first])[0] for name in choosers])
    return first[order].tolist(), np.argsort(order)[number]


def _same_rows(ops: pd.DataFrame, formats: Formats) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Group rows that are equal but for their place: return the first row of each, and each row's group.

    Short tables are not grouped, nor are those with narrow linear layers: `restate_rows` adds rows for each row.
    """
    if len(ops) <= FEW or formats.low:
        return np.arange(len(ops)), np.arange(len(ops))
    return alike([pd.factorize(ops[name])[0] for name in ops.columns if name == "count" or name not in _PLACE])


def _cells_of(column: pd.Series[Any], texts: Mapping[int, str]) -> list[object]:
    """Return the cells of a column as objects: None where empty, the expression where there is one."""
    cells, empty = column.to_numpy(object, copy=True), np.asarray(column.isna(), bool)
    cells[empty] = None
    for place, text in texts.items():
        cells[place] = text
    return list(cells)


def _relevant_columns(rows: pd.DataFrame) -> pd.DataFrame:
    """Drop the columns that do not affect the time: places except the count, and empty columns."""
    rows = rows.drop(columns=[name for name in _PLACE if name != "count"], errors="ignore").reset_index(drop=True)
    return rows.loc[:, rows.notna().any() | rows.columns.isin(_TEXTS)]


Layers = Mapping[int, Mapping[str, Any]]
"""Recurrent layers as requested, at some sizes, by their row."""


def _layers_of(ops: pd.DataFrame, replaced: Mapping[int, Replaced]) -> Layers:
    asked = {row: {"dtype": one.dtype, "engine": one.engine} for row, one in replaced.items()}
    return {row: {**layer, **asked.get(row, {})} for row, layer in records(ops[ops["kind"] == "rnn"])}


def _calls_of(layers: Layers) -> _Table:
    """Collect the library calls of recurrent layers; their sizes follow from the sized columns of the layers."""
    calls = ((row, call) for row, layer in layers.items() for call in recurrent_calls(layer))
    rows = pd.DataFrame([{**call, "of": float(row), "piece": CALL} for row, call in calls])
    sized = (str(name) for name in rows if rows[name].dtype.kind == "f" and name != "of")
    return _Table(rows, {name: {} for name in sized}, np.ones((len(rows), len(TRAFFIC))))


def _parts_of(model: ModelProfile, formats: Formats, sizes: Mapping[str, int], new: Mapping[int, int]) -> _Table:
    """Collect the profile's parts of ops; ``of`` is the row of the op."""
    parts = model.parts
    parts = row_major(parts[parts["of"].isin(list(new))].reset_index(drop=True)) if len(parts) else parts
    if not len(parts):
        return _Table(parts, {}, np.empty((0, len(TRAFFIC))))
    restated, factor = _restated(parts.drop(columns="of"), model, formats, sizes, is_parts=True)
    rows = _relevant_columns(restated).assign(of=parts["of"].map(new).astype(np.float64), piece=PART)
    return _Table(rows, expressions_in(parts), factor)


def price_at(step: StepOps, machine: Machine, sizes: Sizes, interval: float) -> Priced:
    """Price a step's ops at many sizes, each an array (u,) of whole numbers, on a machine as built."""
    rows, many = step.ops.at(sizes), many_of(sizes)
    runs = rows.number("count") != 0  # a loop with one step executes the work between its steps 0 times
    notes = {row * many + at: note for row, note in step.notes.items() for at in range(many)}
    answers = price(rows if runs.all() else rows.take(runs), prepared(machine), interval, notes, in_sums=True)
    return Priced(rows.take(np.arange(len(step.counts) * many)), answers, step.executions(sizes))


def seconds_of(rows: Rows, answers: Answers, device: Device) -> Array:
    """Return value, low and high [s] of all rows (3, n), fresh pages included; NaN without an answer."""
    times = np.full((3, len(rows)), np.nan)
    times[:, places_of(answers.index, rows.index)] = answers.times
    return times + fresh_seconds(rows, device)


def source_numbers(answers: Answers, count: int) -> NDArray[np.int8]:
    """Return the `SOURCES` number of the time of each of `count` rows; 0 for rows without an answer."""
    sources, known = np.zeros(count, np.int8), answers.source
    sources[answers.index] = known.mapped([SOURCES[word] for word in known.words], np.int8)
    return sources


def times_at(step: StepOps, machine: Machine, sizes: Sizes, interval: float) -> TimedOps:
    """Time a step's ops at many sizes; see `price_at`."""
    rows, answers, executions = price_at(step, machine, sizes, interval)
    shape, sources = (len(step.rows), -1), source_numbers(answers, len(rows))
    work = (rows.number(name).reshape(shape) for name in _WORK)
    times = seconds_of(rows, answers, machine.device).reshape(3, *shape)
    return TimedOps(times, sources.reshape(shape), executions, *work)


@dataclass(frozen=True)
class TimedStep:
    """A step's ops at one point on a machine; the table is made at its first access.

    `answers`: the predictions for `priced.rows` on the machine; `costed`: makes the COSTED table of the step.
    """

    step: StepOps
    priced: Priced
    answers: Answers
    device: Device
    costed: Callable[[], pd.DataFrame]

    @cached_property
    def table(self) -> pd.DataFrame:
        """The TIMED table; it is shared and must not be changed in place."""
        notes = {row: replaced.note for row, replaced in self.step.replaced.items()}
        timed = with_answers(self.costed(), self.answers.noted(notes), self.step.first)
        return with_fresh(timed, self.device)

    @cached_property
    def time_s(self) -> Array:
        """Value, low and high of each op [s] (3, n), NaN where unpriced."""
        return seconds_of(self.priced.rows, self.answers, self.device)

    @cached_property
    def sources(self) -> list[str]:
        """The time source of each op; "" where unpriced."""
        return self._words(self.answers.time_source)

    def _words(self, words: NDArray[np.object_]) -> list[str]:
        found = np.full(len(self.step.counts), "", object)
        found[self.answers.index] = words
        return found.tolist()

    def coverage(self, runs: Array | float = 1.0) -> dict[str, float]:
        """Return the share of the time by time source, where each op runs `runs` times as often (n,)."""
        return shares_of(self.priced.executions[:, 0] * runs, self.time_s[0], self.sources)

    def _dtypes(self) -> NDArray[np.object_]:
        """Return the requested number format of each op."""
        dtypes = self.step.text("dtype").cells()
        for row, replaced in self.step.replaced.items():
            dtypes[row] = replaced.dtype
        return dtypes

    def products(self) -> pd.DataFrame:
        """Return what determines a step's precision: kind, flop, count and the requested number format."""
        dtypes = self._dtypes()
        flop, count = self.priced.rows.number("flop"), self.priced.executions[:, 0]
        return pd.DataFrame({"kind": self.step.rows["kind"], "dtype": dtypes, "flop": flop, "count": count})

    @cached_property
    def rows(self) -> StepRows:
        """The ops in the form from which `roll_up_step` adds up a step."""
        executions, times = self.priced.executions[:, 0], self.time_s[:, :, None]
        built, sources = (source_numbers(one, len(executions)) for one in (self.priced.answers, self.answers))
        # On a changed machine, ops have errors in common as on the machine as built, whose times are rescaled.
        sources = np.where(sources == SOURCES["transferred"], built, sources)[:, None]
        seconds = np.where(np.isnan(times), 0.0, times * executions[:, None])
        ops = ops_in(*self.step.kinds_and_passes, sources, times, seconds)
        launches, runs = self.priced.rows.number("launches")[:, None], executions[:, None]
        started = self.step.started(launches, runs, seconds[0])
        formats = tuple(sorted(set(self._dtypes())))
        return StepRows(ops, self.step.kinds_and_passes[1], self._words(self.answers.bound), started, formats)
