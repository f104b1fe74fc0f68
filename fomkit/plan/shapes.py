"""The ops of one model at many sizes at once, as arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from fomkit.core.errors import FomkitError
from fomkit.ops.check import check_table
from fomkit.ops.columns import Columns
from fomkit.ops.families.formula import columns_of
from fomkit.ops.precision import Formats, byte_factor, restate_ops
from fomkit.ops.pricing import CostGroup, cost_columns, cost_groups, recurrent_calls
from fomkit.ops.resize import evaluate_all, evaluate_many, many_of, resize_ops
from fomkit.ops.tables import SIZED, SOURCES, TABLES
from fomkit.plan.coverage import shares_of
from fomkit.plan.options import choose_sizes
from fomkit.plan.step import StepRows, ops_in
from fomkit.prediction.cascade import prepared, price, with_answers
from fomkit.prediction.estimates import Answers, Rows, places_of, records, repeated
from fomkit.prediction.exact import row_major, settle_engines
from fomkit.prediction.gp import FEW, alike
from fomkit.prediction.rates import fresh_seconds, with_fresh

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fomkit.core.machine import Device, Machine
    from fomkit.core.model import ModelProfile

    Array = NDArray[np.float64]
    Sizes = Mapping[str, Array]


_TEXTS = ("op", "kind", "dtype", "engine", "pass_name")
_PLACE = ("count", "module", "code_line", "traced_time_s")
_WORK = ("flop", "byte", "launches")


class Cells(NamedTuple):
    """The cells of a table of ops that are expressions of named sizes (e), as columns.

    `columns`: the names of the table's columns that have any; `texts`: the expressions, each once.
    `at`: place among the cells of all these columns, one column after the other; `text`: number of its text.
    `factor`: what the number format makes of it.
    `least`, `most`, `whole`: what the column allows.
    """

    columns: tuple[str, ...]
    texts: tuple[str, ...]
    at: NDArray[np.intp]
    text: NDArray[np.intp]
    factor: Array
    least: Array
    most: Array
    whole: NDArray[np.bool_]


_ALLOWED = {column.name: column for column in TABLES["OPS"]}


def _cells(expressions: Mapping[str, Mapping[int, str]], factor: Array) -> Cells:
    """Collect the expressions of a table, column by column and row by row."""
    columns = tuple(expressions)
    listed = [(at, row, text) for at, name in enumerate(columns) for row, text in expressions[name].items()]
    texts = tuple(dict.fromkeys(text for _, _, text in listed))
    column, row = (np.array([one[place] for one in listed], np.intp) for place in (0, 1))
    number = {text: place for place, text in enumerate(texts)}
    moved = np.array([name in ("read_byte", "write_byte") for name in columns], bool)
    # What a loop does between its steps is done 0 times where there is one step.
    allowed = [replace(_ALLOWED[name], least=0.0) if name == "count" else _ALLOWED[name] for name in columns]
    least, most, whole = (np.array([getattr(one, name) for one in allowed], kind)[column]
                          for name, kind in (("least", float), ("most", float), ("whole", bool)))  # fmt: skip
    return Cells(
        columns, texts, column * len(factor) + row, np.array([number[text] for *_, text in listed], np.intp),
        np.where(moved[column], factor[row], 1.0) if len(row) else np.empty(0), least, most, whole,
    )  # fmt: skip


@dataclass(frozen=True)
class SizedOps:
    """Ops whose columns may depend on named sizes.

    `columns`: one row for each, restated, at some sizes; `cells`: those that are expressions; `groups`: rows that
    one cost formula prices; `where`: how messages name them.
    """

    columns: Columns
    cells: Cells
    groups: Sequence[CostGroup]
    where: str

    @property
    def rows(self) -> pd.DataFrame:
        """One row for each op."""
        return self.columns.table

    @cached_property
    def _fixed(self) -> dict[str, Array]:
        """The columns of numbers at some sizes (n, 1)."""
        names = [str(name) for name, dtype in self.rows.dtypes.items() if dtype.kind == "f"]
        row = columns_of(self.rows, np.arange(len(self.rows)), {}, (1,))
        return {name: row(name) for name in ("item_byte", *names)}

    def at(self, sizes: Sizes) -> Rows:
        """Size, check and price each row at all sizes (u), row by row."""
        many, cells = many_of(sizes), self.cells
        values = evaluate_all(cells.texts, sizes, self.where)
        # What a check allows is a range of numbers, whole ones where dimensions are, which expressions keep; so
        # the least sizes of each row and its largest speak for all the others.
        ends = np.stack([values.min(1), values.max(1)], 1)[cells.text] * cells.factor[:, None]
        wrong = (ends < cells.least[:, None]) | (ends > cells.most[:, None])
        wrong |= cells.whole[:, None] & (np.floor(ends) != ends)
        flat = np.repeat(
            np.concatenate([np.empty((0, 1)), *(self._fixed[name] for name in cells.columns)]), many, 1
        )
        flat[cells.at] = values[cells.text] * cells.factor[:, None]
        sized = dict(zip(cells.columns, flat.reshape(len(cells.columns), len(self.rows), many), strict=True))
        if wrong.any():
            both = {name: np.stack([column.min(1), column.max(1)], 1).ravel() for name, column in sized.items()}
            table = self.rows.iloc[np.repeat(np.arange(len(self.rows)), 2)].assign(**both)
            check_table(table.drop(columns=["of", *_WORK], errors="ignore"), "OPS", self.where)

        def costs(*names: str) -> dict[str, Array]:
            return cost_columns(self.rows, names, {**self._fixed, **sized}, (many,), self.groups)

        return repeated(self.columns, many, **sized, **costs(*_WORK),
                        least_flop=lambda: costs("least_flop")["least_flop"].ravel())  # fmt: skip


class Replaced(NamedTuple):
    """The number format and engine that an op was asked for in, and a note that it has others."""

    note: str
    asked: Mapping[str, str]


@dataclass(frozen=True)
class StepOps:
    """The distinct ops of a model's step, to be sized.

    `ops`: each executed once.
    `counts`: executions of each row; `sized_counts`: row, text and times of those that are expressions, beside.
    `parts`: the profile's parts with ``of`` a row; None where it has none.
    `first` (t,): for each row of the model's restated table the op that it is.
    `replaced`: ops that run on another engine than was asked for.
    """

    ops: SizedOps
    counts: Array
    sized_counts: tuple[tuple[int, str, int], ...]
    parts: SizedOps | None
    first: NDArray[np.intp]
    replaced: Mapping[int, Replaced]

    @property
    def rows(self) -> pd.DataFrame:
        """One row for each op, at some sizes."""
        return self.ops.rows

    @cached_property
    def passes(self) -> NDArray[np.object_]:
        """Forward, backward or update: the pass of each op."""
        passes = self.ops.columns.text("pass_name")
        return np.array([word.partition("_")[0] for word in passes.words], object)[passes.codes]

    @cached_property
    def recurrent(self) -> dict[int, dict[str, Any]]:
        """The recurrent layers by their row, at some sizes, as they were asked for."""
        layers = records(self.rows[self.ops.columns.text("kind").are("rnn")])
        return {row: {**one, **(self.replaced[row].asked if row in self.replaced else {})} for row, one in layers}

    def executions(self, sizes: Sizes) -> Array:
        """Give the executions of each op at all sizes (n, u)."""
        found = np.repeat(self.counts[:, None], many_of(sizes), 1)
        for row, text, times in self.sized_counts:
            found[row] += times * evaluate_many(text, sizes, self.ops.where)
        return found


class Priced(NamedTuple):
    """Ops at several sizes, row by row, and what is known of each on a machine as built."""

    rows: Rows
    answers: Answers
    executions: Array


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
    ops: pd.DataFrame, model: ModelProfile, formats: Formats, sizes: Mapping[str, int], *, is_parts: bool = False
) -> tuple[pd.DataFrame, pd.DataFrame, Array]:
    """Give ops at some sizes, the same in number formats, and by how much their bytes change."""
    traced = resize_ops(ops, sizes, model.name)
    # What a loop of parts does between its steps is done 0 times where there is one step.
    check_table(traced[traced["count"] != 0] if is_parts else traced, "OPS", model.name)
    restated = restate_ops(traced, formats, is_parts=is_parts).reset_index(drop=True)
    factor = np.ones(len(restated))
    factor[: len(traced)] = byte_factor(traced["dtype"], restated["dtype"].iloc[: len(traced)])
    return traced, restated, factor


def step_ops(
    model: ModelProfile, machine: Machine, formats: Formats, sizes: Mapping[str, int] | None = None
) -> StepOps:
    """Collect the distinct ops of a model's step, with the engines that a machine has.

    `sizes`: those at which what is no expression is worked out; default: the profile's own.
    """
    ops, sizes = row_major(model.ops), choose_sizes(model, {}) if sizes is None else sizes
    keep, same = _same_rows(ops, formats)
    times = np.bincount(same)
    ops = ops.iloc[keep].reset_index(drop=True) if len(keep) < len(same) else ops
    traced, asked, factor = _restated(ops, model, formats, sizes)
    restated, notes = settle_engines(asked, prepared(machine))
    symbols = _symbols(ops)
    if formats.casts_weights and has_sized_update(traced, symbols):
        raise FomkitError(
            model.name, "its update depends on a named size, so the casts of its weights cannot be sized "
            "together. Estimate each size alone, or choose --precision fp32.",
        )  # fmt: skip
    texts_of = symbols.get("count", {})
    columns = [_cells_of(restated[name], symbols.get(name, {})) for name in restated.columns if name not in _PLACE]
    told = [notes.get(place, "") for place in range(len(restated))]
    groups: dict[tuple[object, ...], list[int]] = {}
    for place, key in enumerate(zip(*columns, factor.tolist(), told, strict=True)):
        groups.setdefault(key, []).append(place)
    first = [places[0] for places in groups.values()]
    new = np.empty(len(restated), np.intp)
    for number, places in enumerate(groups.values()):
        new[places] = number
    chosen, counts = set(first), restated["count"].to_numpy(np.float64, copy=True)
    counts[: len(times)] *= times
    counts[list(texts_of)] = 0.0
    expressions = {
        name: {int(new[place]): text for place, text in cells_of.items() if place in chosen}
        for name, cells_of in symbols.items()
        if name != "count"
    }
    rows = _told(restated.iloc[first]).assign(count=1.0)
    return StepOps(
        ops=SizedOps(Columns(rows), _cells(expressions, factor[first]), cost_groups(rows), model.name),
        counts=np.bincount(new, counts, len(first)).astype(np.float64),
        sized_counts=tuple((int(new[place]), text, int(times[place])) for place, text in texts_of.items()),
        parts=_parts_of(model, formats, sizes, {int(keep[at]): int(new[at]) for at in first if at < len(keep)}),
        first=new[same] if len(same) > len(keep) else new,
        replaced={
            number: Replaced(told[place], {name: str(asked[name].iloc[place]) for name in ("dtype", "engine")})
            for number, place in enumerate(first)
            if told[place]
        },
    )


def _same_rows(ops: pd.DataFrame, formats: Formats) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Give the first of the rows of a long table that differ in place alone, and each row's number of them.

    Where weights are cast, rows follow for each of the table.
    """
    if len(ops) <= FEW or formats.casts_weights:
        return np.arange(len(ops)), np.arange(len(ops))
    return alike([pd.factorize(ops[name])[0] for name in ops.columns if name == "count" or name not in _PLACE])


def _cells_of(column: pd.Series[Any], texts: Mapping[int, str]) -> list[object]:
    """Give the cells of a column, None where it is empty, and the expressions that stand there."""
    cells, empty = column.to_numpy(object, copy=True), np.asarray(column.isna(), bool)
    cells[empty] = None
    for place, text in texts.items():
        cells[place] = text
    found: list[object] = cells.tolist()
    return found


def _told(rows: pd.DataFrame) -> pd.DataFrame:
    """Leave out the columns that say nothing of what takes time."""
    rows = rows.drop(columns=[name for name in _PLACE if name != "count"], errors="ignore").reset_index(drop=True)
    return rows.loc[:, rows.notna().any() | rows.columns.isin(_TEXTS)]


def _parts_of(
    model: ModelProfile, formats: Formats, sizes: Mapping[str, int], new: Mapping[int, int]
) -> SizedOps | None:
    parts = model.parts
    parts = row_major(parts[parts["of"].isin(list(new))].reset_index(drop=True)) if len(parts) else parts
    if not len(parts):
        return None
    _, restated, factor = _restated(parts.drop(columns="of"), model, formats, sizes, is_parts=True)
    rows = _told(restated).assign(of=parts["of"].map(new))
    return SizedOps(Columns(rows), _cells(_symbols(parts), factor), cost_groups(rows), f"{model.name}, parts")


def has_sized_update(ops: pd.DataFrame, symbols: Mapping[str, Mapping[int, str]] | None = None) -> bool:
    """Tell whether the update of a step depends on a named size."""
    updates = set(np.flatnonzero(ops["kind"] == "optimizer").tolist())
    return any(updates & set(cells) for cells in (_symbols(ops) if symbols is None else symbols).values())


def _parts(step: StepOps, sizes: Sizes) -> Rows | None:
    """Make the parts of the rows at all sizes; ``of`` is their place among `repeated` ones."""
    if step.parts is None:
        return None
    parts, many = step.parts.at(sizes), many_of(sizes)
    parts = parts.assign(of=parts.number("of") * many + parts.index % many)
    return parts.take(parts.number("count") != 0)  # what a loop does between its steps, when there is only one


@lru_cache(maxsize=32)
def _worded(words: tuple[Any, ...], numbers: tuple[str, ...]) -> tuple[Columns, Sequence[CostGroup]]:
    """Give rows of these words, with empty columns of numbers, and those that one formula prices."""
    table = pd.DataFrame([dict(row) for row in words]).assign(**dict.fromkeys(numbers, np.nan))
    return Columns(table), cost_groups(table)


def _calls(step: StepOps, rows: Rows) -> Rows | None:
    """Make the library calls of recurrent layers at all sizes; ``of`` is the layer's place among ``rows``."""
    many, found = len(rows) // len(step.rows), list[dict[str, Any]]()
    for row, layer in step.recurrent.items():
        own = {name: rows.number(name).reshape(-1, many)[row] for name in step.ops.cells.columns}
        found += [{**call, "of": float(row)} for call in recurrent_calls({**layer, **own})]
    if not found:
        return None
    words = tuple(tuple((name, cell) for name, cell in call.items() if isinstance(cell, str)) for call in found)
    names = dict.fromkeys(name for call in found for name, cell in call.items() if not isinstance(cell, str))
    (columns, groups), ones = _worded(words, tuple(names)), np.ones(many)
    sized = {name: np.array([call.get(name, np.nan) * ones for call in found]) for name in names}
    costs = cost_columns(columns.table, ("flop", "byte", "launches", "least_flop"), sized, (many,), groups)
    calls = repeated(columns, many, **sized, **costs)
    calls = calls.assign(of=calls.number("of") * many + calls.index % many)
    return calls.take(calls.number("count") != 0)


def price_at(step: StepOps, machine: Machine, sizes: Sizes, interval: float) -> Priced:
    """Price a step's ops at many sizes.

    `machine`: as built; `sizes`: each named size as an array (u,) of whole numbers.
    """
    machine, rows = prepared(machine), step.ops.at(sizes)
    answers = price(rows, machine, interval, parts=_parts(step, sizes), calls=_calls(step, rows))
    return Priced(rows, answers, step.executions(sizes))


def seconds_of(rows: Rows, answers: Answers, device: Device) -> Array:
    """Give value and ends [s] of all rows (3, n), NaN of those without an answer; with fresh pages."""
    times = np.full((3, len(rows)), np.nan)
    times[:, places_of(answers.index, rows.index)] = answers.times
    return times + fresh_seconds(rows, device)


def times_at(step: StepOps, machine: Machine, sizes: Sizes, interval: float) -> Timed:
    """Time a step's ops at many sizes; see `price_at`."""
    rows, answers, executions = price_at(step, machine, sizes, interval)
    shape, sources = (len(step.rows), -1), np.zeros(len(rows), np.int8)
    sources[answers.index] = answers.source.mapped([SOURCES[word] for word in answers.source.words], np.int8)
    work = (rows.number(name).reshape(shape) for name in _WORK)
    times = seconds_of(rows, answers, machine.device).reshape(3, *shape)
    return Timed(times, sources.reshape(shape), executions, *work)


@dataclass(frozen=True)
class TimedStep:
    """A step's ops at one point on a machine; its table is made when somebody looks at it.

    `answers`: what is known of `priced.rows` on the machine; `costed`: makes the COSTED table of the step.
    """

    step: StepOps
    priced: Priced
    answers: Answers
    device: Device
    costed: Callable[[], pd.DataFrame]

    @cached_property
    def table(self) -> pd.DataFrame:
        """The TIMED table; nobody may change it in place."""
        notes = {row: replaced.note for row, replaced in self.step.replaced.items()}
        timed = with_answers(self.costed(), self.answers.noted(notes), self.step.first)
        return with_fresh(timed, self.device)

    @cached_property
    def time_s(self) -> Array:
        """Value and ends of each op [s] (3, n), NaN where unpriced."""
        return seconds_of(self.priced.rows, self.answers, self.device)

    @cached_property
    def sources(self) -> list[str]:
        """The time source of each op; "" where unpriced."""
        return self._words(self.answers.time_source)

    def _words(self, words: NDArray[np.object_]) -> list[str]:
        found = np.full(len(self.step.rows), "", object)
        found[self.answers.index] = words
        return found.tolist()

    def coverage(self, runs: Array | float = 1.0) -> dict[str, float]:
        """Give the share of the time by time source, where each op runs so many times as often (n,)."""
        return shares_of(self.priced.executions[:, 0] * runs, self.time_s[0], self.sources)

    def products(self) -> pd.DataFrame:
        """Give what names the precision of a step: kind, flop, count, and the number format that was asked for."""
        dtypes = self.step.ops.columns.text("dtype").cells()
        for row, replaced in self.step.replaced.items():
            dtypes[row] = replaced.asked["dtype"]
        flop, count = self.priced.rows.number("flop"), self.priced.executions[:, 0]
        return pd.DataFrame({"kind": self.step.rows["kind"], "dtype": dtypes, "flop": flop, "count": count})

    @cached_property
    def rows(self) -> StepRows:
        """The ops as a step is added up from them."""
        executions, columns = self.priced.executions[:, 0], self.step.ops.columns
        kinds, passes = (columns.text(name).cells().tolist() for name in ("kind", "pass_name"))
        times = self.time_s[:, :, None]
        ops = ops_in(kinds, passes, self.sources, times, np.nan_to_num(times * executions[:, None]))
        starts = self.priced.rows.number("launches") * executions
        return StepRows(ops, self.step.passes, self._words(self.answers.bound), starts)
