"""The interface of estimators: their input (`Rows`) and their output (`Answers`).

`Rows` is a table as plain columns: a column is read at its first use, and selecting rows copies no column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, wraps
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fomkit.core.machine import Machine
from fomkit.core.units import ITEM_BYTE
from fomkit.ops.columns import (
    NONE_LEAST,
    Columns,
    Words,
    as_words,
    cached,
    combinations,
    derive,
    numbered,
    one_word,
    unchanging,
    words_of,
)
from fomkit.prediction.gp import NO_GRID, Flags, Indices, Matrix, Places, Texts

Scalar = TypeVar("Scalar", bound=np.generic)


class Rows:
    """Some rows of a table; each row of the table may occur at several sizes (`repeated`).

    `index` (n,): integer index of the rows in the table; with several sizes, their position.
    `at`: positions of the rows in the table; None for all of them in order.
    `read`: columns that replace the table's, for all its rows; a function is called at the first use.
    `many`: the number of sizes of each op of the table.
    """

    def __init__(self, columns: Columns, at: Places | None, given: Mapping[str, Matrix | Words],
                 read: dict[str, Any], many: int = 1) -> None:  # fmt: skip
        self._columns, self._at, self._given, self._read, self.many = columns, at, given, read, many

    def __len__(self) -> int:
        return len(self._columns) * self.many if self._at is None else len(self._at)

    @property
    def _places(self) -> Places:
        return np.arange(len(self)) if self._at is None else self._at

    @cached_property
    def _of_sized(self) -> Places:
        """The row of the table for each row, if there are several sizes of it."""
        return self._places // self.many

    def _of_table(self, column: NDArray[Scalar]) -> NDArray[Scalar]:
        """Return what a column (…, n) of the table holds for each row."""
        return self._chosen(column) if self.many == 1 else column.take(self._of_sized, -1)

    def varies(self, columns: Iterable[str]) -> bool:
        """Return whether one of some columns besides the batch may differ between the sizes of an op."""
        return any(name != "batch" and (name in self._given or name in self._read) for name in columns)

    def grid(self) -> Places:
        """Return the positions of the rows at those sizes that all of their ops have, op by op (ops, sizes)."""
        if self.many == 1:
            return NO_GRID
        of, size = np.divmod(self._places, self.many)
        ops = np.count_nonzero(np.diff(of)) + 1
        return np.flatnonzero((np.bincount(size, minlength=self.many) == ops)[size]).reshape(ops, -1)

    @property
    def index(self) -> Indices:
        """The index of each row in the table."""
        return self._chosen(self._columns.index) if self.many == 1 else self._places

    def _chosen(self, column: NDArray[Scalar]) -> NDArray[Scalar]:
        return column if self._at is None else column.take(self._at, -1)  # a third of the time of an index

    def has(self, column: str) -> bool:
        """Return whether there is such a column."""
        return column in self._given or column in self._read or column in self._columns.names

    def number(self, column: str) -> Matrix:
        """Return a column of numbers, NaN where it is empty or absent."""
        if isinstance(found := self._given.get(column), np.ndarray):
            return found
        known = self._read.get(column)
        if known is None:
            return self._of_table(self._columns.number(column))
        if callable(known):
            known = self._read[column] = unchanging(known())
        return self._chosen(known)

    def filled(self, column: str, default: float) -> Matrix:
        """Return a column of numbers, ``default`` where it is empty or absent."""
        return self._derived(column, default, NONE_LEAST)

    def log2(self, column: str, least: float) -> Matrix:
        """Return log2 of a column, bounded below by ``least``; 0 where the column is empty or absent."""
        return self._derived(column, 1.0, least)

    def _derived(self, column: str, default: float, least: float) -> Matrix:
        if column in self._given:
            return derive(self.number(column), default, least)
        if column not in self._read:
            return self._of_table(self._columns.derived(column, default, least))
        name = f"{column}, {default}, {least}"
        if name not in self._read:
            whole = Rows(self._columns, None, {}, self._read, self.many).number(column)
            self._read[name] = unchanging(derive(whole, default, least))
        return self._chosen(self._read[name])

    def once(self, compute: Callable[[Rows], NDArray[Scalar]], columns: frozenset[str]) -> NDArray[Scalar]:
        """Return (…, n) what is computed from some columns; once per row of the table where these are its own."""
        if not (columns.isdisjoint(self._given) and columns.isdisjoint(self._read)):
            return compute(self)
        if compute not in (known := self._columns.computed):
            known[compute] = compute(Rows(self._columns, None, {}, {}))
            known[compute].flags.writeable = False
        return self._of_table(known[compute])

    def text(self, column: str) -> Words:
        """Return a column of words."""
        given = self._given.get(column)
        if isinstance(given, Words):
            return given
        found = self._columns.text(column)
        return Words(self._of_table(found.codes), found.words)

    def is_in(self, column: str, *words: str) -> Flags:
        """Return which rows hold one of some words."""
        if column in self._given:
            return self.text(column).is_in(*words)
        return self._of_table(self._columns.is_in(column, *words))

    def same_texts(self, columns: tuple[str, ...]) -> tuple[list[tuple[str, ...]], Places]:
        """Return the distinct combinations of text columns, by first appearance, and each row's number of them."""
        if any(column in self._given for column in columns):
            return combinations([self.text(column) for column in columns])
        every, number = self._columns.same_texts(columns)
        numbers_of, distinct = numbered(self._of_table(number), len(every))
        return [every[one] for one in distinct], numbers_of

    def take(self, which: Places | Flags) -> Rows:
        """Select some of the rows, by position or by a flag for each."""
        at = which.nonzero()[0] if which.dtype == bool else np.asarray(which, np.intp)
        given = {
            name: column.taken(at) if isinstance(column, Words) else column.take(at)
            for name, column in self._given.items()
        }
        return Rows(self._columns, at if self._at is None else self._at.take(at), given, self._read, self.many)

    def assign(self, **columns: Matrix | Words | float | str) -> Rows:
        """Return the same rows with other columns; a single number or word applies to all rows."""
        given = dict(self._given)
        for name, column in columns.items():
            if isinstance(column, str):
                column = one_word(column, len(self))
            given[name] = np.full(len(self), column) if isinstance(column, float) else column
        return Rows(self._columns, self._at, given, self._read, self.many)

    def frame(self, names: Sequence[str]) -> pd.DataFrame:
        """Return some columns as a table, with the rows' own index."""
        known = [name for name in names if name in self._columns.names]
        of = self._of_table(np.arange(len(self._columns)))
        chosen = self._columns.table[known].iloc[of].set_axis(self.index)
        sized = {name: self.number(name) for name in known if isinstance(self._read.get(name), np.ndarray)}
        own = {name: column for name, column in self._given.items() if name in names}
        given = {name: column.cells() if isinstance(column, Words) else column for name, column in own.items()}
        return chosen.assign(**{**sized, **given})


Table = Rows | pd.DataFrame


def as_rows(table: Table) -> Rows:
    """Return a table as `Rows`."""
    return table if isinstance(table, Rows) else Rows(Columns(table), None, {}, {})


def repeated(columns: Columns, many: int, **sized: Matrix | Callable[[], Matrix]) -> Rows:
    """Repeat each row of a table ``many`` times in turn, with some columns of their own (rows × many)."""
    read: dict[str, Any] = {
        name: column if callable(column) else unchanging(column.ravel()) for name, column in sized.items()
    }
    return Rows(columns, None, {}, read, many)


def numbers(rows: Table, column: str, default: float = np.nan) -> Matrix:
    """Return a number column as float64, with ``default`` where it is empty or absent."""
    rows = rows if isinstance(rows, Rows) else as_rows(rows)
    # NaN is the only number that is not equal to itself.
    return rows.number(column) if default != default else rows.filled(column, default)


def is_in(rows: Table, column: str, *words: str) -> Flags:
    """Return in which rows a text column holds one of some words."""
    return (rows if isinstance(rows, Rows) else as_rows(rows)).is_in(column, *words)


def places_of(wanted: Indices, among: Indices) -> Places:
    """Return the position of each op among others, both by their index; -1 where it is not among them."""
    last, most = among.max(initial=-1), wanted.max(initial=-1)
    if most <= last == len(among) - 1 and (among[1:] > among[:-1]).all():
        return wanted  # each is at the position of its index
    places = np.full(max(last, most) + 1, -1, np.intp)
    places[among] = np.arange(len(among))
    return places[wanted]


def item_bytes(rows: Table) -> Matrix:
    """Return the size of one number of each row's format [byte]."""
    known = as_rows(rows).text("dtype")
    return known.mapped([ITEM_BYTE.get(word, np.nan) for word in known.words], float)


def same_texts(rows: Table, *columns: str) -> tuple[list[tuple[str, ...]], Places]:
    """Return the distinct combinations of text columns, by first appearance, and each row's number of them."""
    return as_rows(rows).same_texts(columns)


Record = Mapping[str, Any]
"""One row of a table: column to value."""


class Timed(NamedTuple):
    """The prediction for one op: the columns of `fomkit.ops.tables.TIMES`."""

    time_s: float
    low_s: float
    high_s: float
    time_source: str
    bound: str
    evidence: str


class Answers(Mapping[int, Timed]):
    """The predictions of an estimator for many ops, as columns; the evidence is written when it is read.

    `index` (q,): the index of each op.
    `times` (3, q) [s]: ``time_s``, ``low_s`` and ``high_s``.
    `source`, `limit`: the words of ``time_source`` and ``bound``, or one for all; ``limit`` may be a function.
    `evidence`: a function from a position in the columns to the text of the evidence.
    """

    def __init__(
        self, index: Indices, times: Matrix, source: Words | Texts | str,
        limit: Words | Texts | str | Callable[[], Words], evidence: Callable[[int], str],
    ) -> None:  # fmt: skip
        self.index, self.evidence, self._limit = index, evidence, limit
        self.source = as_words(source, len(index))
        self.times, (self.time_s, self.low_s, self.high_s) = times, times
        self._places: dict[int, int] = {}

    @cached_property
    def limit(self) -> Words:
        """What bounds each op, as words."""
        return as_words(self._limit() if callable(self._limit) else self._limit, len(self.index))

    @property
    def time_source(self) -> Texts:
        """The time source of each op (q,)."""
        return self.source.cells()

    @property
    def bound(self) -> Texts:
        """What bounds each op (q,)."""
        return self.limit.cells()

    def __len__(self) -> int:
        return len(self.index)

    def __iter__(self) -> Iterator[int]:
        return iter(self.index.tolist())

    def __getitem__(self, index: int) -> Timed:
        if not self._places:
            self._places = {known: place for place, known in enumerate(self.index.tolist())}
        place = self._places[index]
        value, low, high = self.times[:, place].tolist()
        return Timed(value, low, high, self.source.at(place), self.limit.at(place), self.evidence(place))

    def chosen(self, places: Places) -> Answers:
        """Select the predictions at some positions."""
        return Answers(self.index[places], self.times[:, places], self.source.taken(places),
                       lambda: self.limit.taken(places), lambda at: self.evidence(int(places[at])))  # fmt: skip

    def noted(self, notes: Mapping[int, str]) -> Answers:
        """Return the predictions with notes before the evidence of some ops, by their index."""
        if not notes:
            return self

        def evidence(place: int) -> str:
            note = notes.get(int(self.index[place]))
            return self.evidence(place) if note is None else f"{note}; {self.evidence(place)}"

        return Answers(self.index, self.times, self.source, lambda: self.limit, evidence)

    def timed(self, times: Matrix) -> Answers:
        """Return the predictions with other times (3, q)."""
        return Answers(self.index, times, self.source, lambda: self.limit, self.evidence)

    def changed(
        self, at: Places, times: Matrix, evidence: Callable[[int, int], str], source: Words | None = None,
        limit: Words | None = None,
    ) -> Answers:  # fmt: skip
        """Return the predictions with others at some positions.

        `times` (3, len(at)); `evidence`: from a number among these and the position; `source`, `limit`: of all.
        """
        every, numbers = self.times.copy(), {place: number for number, place in enumerate(at.tolist())}
        every[:, at] = times

        def text(place: int) -> str:
            return self.evidence(place) if place not in numbers else evidence(numbers[place], place)

        return Answers(self.index, every, source or self.source, limit or (lambda: self.limit), text)


NO_ANSWERS = Answers(np.empty(0, np.int64), np.empty((3, 0)), "", "", str)


def join_answers(found: Sequence[Answers]) -> Answers:
    """Concatenate the predictions of several estimators for different ops."""
    found = [answers for answers in found if len(answers)]
    if len(found) == 1:
        return found[0]
    if not found:
        return NO_ANSWERS
    ends = np.cumsum([0, *map(len, found)])

    def evidence(place: int) -> str:
        part = int(np.searchsorted(ends, place, "right")) - 1
        return found[part].evidence(place - int(ends[part]))

    def joined(columns: Sequence[Words]) -> Words:
        words = tuple(dict.fromkeys(word for column in columns for word in column.words))
        codes = [column.mapped([words.index(word) for word in column.words], np.intp) for column in columns]
        return Words(np.concatenate(codes), words)

    index = np.concatenate([answers.index for answers in found])
    times = np.concatenate([answers.times for answers in found], 1)
    sources = joined([answers.source for answers in found])
    return Answers(index, times, sources, lambda: joined([answers.limit for answers in found]), evidence)


Estimator = Callable[[Table, Machine, float], Answers]
"""From COSTED rows, a machine and the level of the intervals to predictions for the rows that it can predict.

The level is the share of intervals that should contain the truth. Some estimators also receive ``table``: an
estimator that predicts other ops from the machine's table alone.
"""


def opened_by(
    choose: Callable[[Rows, Machine], Flags],
) -> Callable[[Callable[..., Answers]], Callable[..., Answers]]:
    """Decorate an `Estimator`: only the rows that it applies to are passed, and without any it is not called."""

    def opened(estimator: Callable[..., Answers]) -> Callable[..., Answers]:
        @wraps(estimator)
        def estimate(rows: Table, machine: Machine, *more: Any, **named: Any) -> Answers:
            which = choose(rows := as_rows(rows), machine)
            return estimator(rows.take(which), machine, *more, **named) if which.any() else NO_ANSWERS

        return estimate

    return opened


def records(rows: pd.DataFrame) -> Iterator[tuple[int, Record]]:
    """Iterate over the rows of a table with an integer index."""
    for index, record in zip(rows.index.tolist(), rows.to_dict("records"), strict=True):
        yield index, {str(name): value for name, value in record.items()}


def timed_kinds(machine: Machine) -> frozenset[str]:
    """Return the kinds of ops that a machine's table has timings of: no collectives, if its links were changed."""
    timings = machine.timings
    kinds = cached(timings, None, "kinds", lambda: frozenset(as_rows(timings).text("kind").words))
    return kinds if machine.timed_links is None else kinds - {"collective"}


UNTIMED = ("roofline", "assumed")
"""Time sources that do not rest on timings."""


def transferred(source: Words) -> Words:
    """Return the sources of times derived from others': transferred where those rest on timings."""
    return words_of(source.codes, [word if word in UNTIMED else "transferred" for word in source.words])


def means(times: Matrix, reach: float) -> Matrix:
    """Return the mean (n) of log-normal times, given value (the median) and bounds (3, n).

    The mean is above the median by half the variance of the logarithm. Means add up in a sum, medians do not.
    `reach`: standard deviations from the value to a bound (`fomkit.core.interval.half_width`).

    >>> means(np.array([[1.0, 1.0], [1.0, 0.5], [1.0, 2.0]]), 1.0).round(6).tolist()
    [1.0, 1.271537]
    """
    variance = (np.log(times[1:] / times[0]) ** 2).mean(0) / reach**2
    return np.asarray(times[0] * np.exp(variance / 2), np.float64)


def weighted_median(predictions: Matrix, weight: Matrix) -> Matrix:
    """Return the weighted median of the predictions of surfaces (surfaces × q), interpolated between two of them.

    `weight` (surfaces,) or (surfaces × q): sums to 1.

    >>> weighted_median(np.array([[1.0], [2.0], [9.0]]), np.array([0.3, 0.4, 0.3])).round(9).tolist()
    [2.0]
    """
    order, at = np.argsort(predictions, 0, kind="stable"), np.arange(predictions.shape[1])
    values, weights = predictions[order, at], weight[order] if weight.ndim == 1 else weight[order, at]
    reached = np.cumsum(weights, 0) - weights / 2
    above = np.minimum((reached < 0.5).sum(0), len(predictions) - 1)
    below = np.maximum(above - 1, 0)
    first, value = reached[below, at], values[below, at]
    gap = reached[above, at] - first  # 0 where both are the same surface; then the share has no effect
    share = np.minimum(np.maximum((0.5 - first) / np.where(gap > 0, gap, 1.0), 0.0), 1.0)
    return np.asarray(value + share * (values[above, at] - value), np.float64)
