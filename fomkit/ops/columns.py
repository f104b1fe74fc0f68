"""The columns of a table as arrays, each read once; a text column is stored as codes and distinct words (`Words`).

Values derived from a column, such as its logarithms or the rows that hold a word, are computed once per row of the
table, however many sizes of an op each row represents (`fomkit.prediction.estimators.Rows`). `cached` keeps any
result while the table that it was computed from is in use; tables of profiles never change.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
Flags = NDArray[np.bool_]
Places = NDArray[np.intp]
Texts = NDArray[np.object_]
Indices = NDArray[np.int64]
"""Columns of numbers, of flags, of positions, of texts, and of rows' indices in their table."""

FEW = 300
"""Rows up to which a dictionary is faster than hashing the whole column."""
SPARSE = 4
"""Most codes per row for which an array of all codes is used in place of hashing."""


def numbered(codes: Places, count: int) -> tuple[Places, list[int]]:
    """Return each row's number of its code, by first appearance, and the codes, below ``count``, in that order.

    >>> numbered(np.array([7, 3, 7]), 8)
    (array([0, 1, 0]), [7, 3])
    """
    if len(codes) > max(FEW, count):
        first = np.full(count, len(codes))
        first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)  # backwards: the first is written last
        distinct = np.argsort(first, kind="stable")[: np.count_nonzero(first < len(codes))]
        number = np.empty(count, np.intp)
        number[distinct] = np.arange(len(distinct))
        return number[codes], distinct.tolist()
    listed = codes.tolist()
    known = {code: number for number, code in enumerate(dict.fromkeys(listed))}
    return np.array(list(map(known.__getitem__, listed)), np.intp), list(known)


DIGITS = 10
"""Significant digits of predictions: more than clocks have, fewer than the order of summation affects."""
NEAR_BOUNDARY = 5e-3
"""Distance from a rounding boundary that counts as close, in units of the last digit: at least 5e-13 of a
value."""

_SCALES = np.concatenate([[np.nan], 10.0 ** np.arange(-299.0, 309.0), [np.nan]])
"""Powers of ten, whose calculation takes long; NaN for those of no finite number."""


def significant(values: Matrix) -> Matrix:
    """Round to `DIGITS` significant digits; 0 and NaN stay.

    The order of summation in a matrix product depends on the number of rows, and with it the last few bits of
    results. Without these bits an op has the same time in a sweep, alone, and on a cluster's workers.

    >>> significant(np.array([1 / 3, 2e-6 / 3, 0.0])).tolist()
    [0.3333333333, 6.666666667e-07, 0.0]
    """
    return rounded(values)[0]


def rounded(values: Matrix) -> tuple[Matrix, Flags]:
    """Return the `significant` digits, and which values are so close to a rounding boundary that bits matter."""
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = _SCALES.take((DIGITS + 299 - np.floor(np.log10(values))).astype(np.intp), mode="clip")
        scaled = values * scale
        whole = np.round(scaled)
        found = whole / scale
        return np.where(np.isfinite(found), found, values), np.abs(scaled - whole) > 0.5 - NEAR_BOUNDARY


def _codes(column: NDArray[Any]) -> tuple[Places | int, int]:
    """Return a code below a count for each row, equal where a column is equal, and the count."""
    first = column[0]
    if (column == first).all() or (first != first and np.isnan(column).all()):
        return 0, 1
    with np.errstate(invalid="ignore"):
        whole = column.astype(np.intp)
    low = whole.min()
    count = int(whole.max()) - int(low) + 1
    if count <= SPARSE * len(column) and (whole == column).all():
        return whole - low, count
    codes, found = pd.factorize(column, use_na_sentinel=False)
    return codes, len(found)


def alike(columns: Sequence[NDArray[Any]]) -> tuple[Places, Places]:
    """Group rows that agree in all columns; return the first row of each group, and each row's group.

    >>> first, number = alike([np.array([2.0, 2.0, 1.0, 2.0]), np.array([0, 1, 0, 0])])
    >>> first.tolist(), number.tolist()
    ([0, 1, 2], [0, 1, 2, 0])
    """
    if (rows := len(columns[0])) > FEW:
        group_of, most = np.zeros(rows, np.intp), 1
        for column in columns:
            codes, count = _codes(column)
            group_of, most = group_of * count + codes, most * count
            if most > SPARSE * rows:
                group_of, found = pd.factorize(group_of)
                most = len(found)
    else:
        table = np.ascontiguousarray(np.array(columns, np.float64).T)
        table[np.isnan(table)] = np.nan  # one bit pattern for all NaN
        table += 0.0  # and for all 0: -0.0 becomes 0.0
        cells, known = table.view(np.dtype((np.void, table.itemsize * table.shape[1]))), dict[Any, int]()
        group_of = np.array([known.setdefault(cell, len(known)) for cell in cells.ravel().tolist()], np.intp)
        most = len(known)
    # Groups are numbered by first appearance.
    first = np.empty(most, np.intp)
    first[group_of[::-1]] = np.arange(rows - 1, -1, -1)  # backwards: the first is written last
    leader = first[group_of]
    leads = leader == np.arange(rows)
    return leads.nonzero()[0], (leads.cumsum() - 1)[leader]


def first_alike(rows: pd.DataFrame, keys: Sequence[str]) -> Places:
    """Return for each row the position of the first row with the same values; empty cells are equal."""
    cells = [rows[key] for key in keys]
    columns = [
        cell.to_numpy(np.float64) if cell.dtype.kind == "f" else pd.factorize(cell.to_numpy(object))[0]
        for cell in cells
    ]
    first, group_of = alike(columns)
    return first[group_of]


def nearest_rows(distance: Matrix, count: int) -> Places:
    """Return the flat indices of the ``count`` nearest rows of each query (q, count), in the order of the rows.

    Of rows that are equally far to seven digits the first count: more digits depend on the order of summation, and
    a table of round sizes has many rows at equal distances.
    """
    if count == 1:
        own = np.arange(0, distance.size, distance.shape[1])
        return np.asarray(distance.astype(np.float32).argmin(1) + own)[:, None]
    with np.errstate(over="ignore"):
        short = distance.astype(np.float32)
    # Bits of non-negative numbers sort like the numbers. Partitioning them is several times as fast as
    # argpartition.
    bits = short.view(np.int32)
    last = np.partition(bits, count - 1, 1)[:, count - 1, None]
    near = bits <= last
    if np.count_nonzero(near) != count * len(near):
        tied = np.flatnonzero(near.sum(1) != count)
        less, equal = bits[tied] < last[tied], bits[tied] == last[tied]
        near[tied] = less | (equal & (np.cumsum(equal, 1) <= count - less.sum(1, keepdims=True)))
    return near.ravel().nonzero()[0].reshape(-1, count)


def nearest_of(distance: Matrix, rows: Places) -> tuple[Places, Matrix]:
    """Return the nearest of some rows of each query (q, count) by their distances, and its distance (q)."""
    cell = np.arange(len(rows)), distance.astype(np.float32).argmin(1)
    return rows[cell], distance[cell]


def concatenate_in_order(parts: Sequence[tuple[NDArray[Any], ...]]) -> list[NDArray[Any]]:
    """Concatenate the columns of parts in the order of their positions, the first column, which is dropped."""
    if len(parts) == 1:
        return list(parts[0][1:])
    at, *columns = (np.concatenate(column) for column in zip(*parts, strict=True))
    found = [np.empty_like(column) for column in columns]
    for one, column in zip(found, columns, strict=True):
        one[at] = column
    return found


class Words(NamedTuple):
    """A text column: each row's code, and the distinct words by code; "" where the column is empty."""

    codes: Places
    words: tuple[str, ...]

    def taken(self, at: Places | Flags | slice) -> Words:
        """Select some rows."""
        return Words(self.codes[at], self.words)

    def cells(self) -> Texts:
        """Return the word of each row."""
        return np.array(self.words, object)[self.codes]

    def at(self, place: int) -> str:
        """Return the word of one row."""
        return str(self.words[self.codes[place]])

    def mapped(self, values: Sequence[Any], dtype: type) -> NDArray[Any]:
        """Return for each row the value of its word."""
        return np.array(values, dtype)[self.codes]

    def is_in(self, *wanted: str) -> Flags:
        """Return which rows hold one of some words."""
        return self.mapped([word in wanted for word in self.words], bool)

    def replaced(self, at: Places | Flags, others: Words) -> Words:
        """Return the column with other words at some positions."""
        words = tuple(dict.fromkeys((*self.words, *others.words)))
        codes = self.codes.copy()
        codes[at] = others.mapped([words.index(word) for word in others.words], np.intp)
        return Words(codes, words)


def choose_words(which: Flags, first: Words | str, other: Words) -> Words:
    """Return a word, or the words of one column, where a flag is set, else those of another column."""
    chosen = one_word(first, int(which.sum())) if isinstance(first, str) else first.taken(np.flatnonzero(which))
    return other.replaced(which, chosen)


def one_word(word: str, count: int) -> Words:
    """Return a column that holds one word."""
    return Words(np.zeros(count, np.intp), (word,))


def words_of(codes: Places, named: Sequence[str]) -> Words:
    """Return a text column from each row's code and the words by code, in which a word may occur repeatedly."""
    words = tuple(dict.fromkeys(named)) or ("",)
    return Words(np.array([words.index(word) for word in named], np.intp)[codes], words)


def read_words(column: pd.Series | Texts) -> Words:
    """Read a text column."""
    if isinstance(column, pd.Series) and isinstance(column.dtype, pd.CategoricalDtype):
        codes, cells = column.cat.codes.to_numpy(np.intp), column.cat.categories.tolist()
    else:
        codes, found = pd.factorize(np.asarray(column, object))
        cells = found.tolist()
    if (codes < 0).any():
        codes = np.where(codes < 0, len(cells), codes)
        cells = [*cells, ""]
    return words_of(np.asarray(codes, np.intp), [str(cell) for cell in cells])


def as_words(column: Words | Texts | str, count: int) -> Words:
    """Return a text column as `Words`; a single word applies to all ``count`` rows."""
    if isinstance(column, str):
        return one_word(column, count)
    return column if isinstance(column, Words) else read_words(column)


def combinations(columns: Sequence[Words]) -> tuple[list[tuple[str, ...]], Places]:
    """Return the distinct combinations of text columns, by first appearance, and each row's number of them."""
    together, count = np.zeros(len(columns[0].codes), np.intp), 1
    for column in columns:
        together, count = together * len(column.words) + column.codes, count * len(column.words)
    number_of, distinct = numbered(together, count)
    found = []
    for number in distinct:
        cell: list[str] = []
        for column in reversed(columns):
            number, at = divmod(number, len(column.words))
            cell.append(column.words[at])
        found.append(tuple(reversed(cell)))
    return found, number_of


def unchanging(column: Matrix) -> Matrix:
    """Return a read-only view of a column, because results are shared."""
    found = column.view()
    found.flags.writeable = False
    return found


NONE_LEAST = -1.0
"""Value of ``least`` for which `derive` computes no logarithm."""


def derive(column: Matrix, default: float, least: float) -> Matrix:
    """Return a column with ``default`` in empty cells; or log2 of that, of ``least`` where it is less."""
    filled = np.where(np.isnan(column), default, column)
    return filled if least == NONE_LEAST else np.asarray(np.log2(np.maximum(filled, least)), np.float64)


class Columns:
    """The columns of a table, each read once; the table must not be changed in place."""

    def __init__(self, table: pd.DataFrame) -> None:
        self.table, self.names = table, frozenset(table.columns)
        self._numbers: dict[str, Matrix] = {}
        self._words: dict[str, Words] = {}
        self._is_in: dict[tuple[str, ...], Flags] = {}
        self._derived: dict[tuple[str, float, float], Matrix] = {}
        self._same: dict[tuple[str, ...], tuple[list[tuple[str, ...]], Places]] = {}
        self.computed: dict[object, Any] = {}

    def __len__(self) -> int:
        return len(self.table)

    @cached_property
    def index(self) -> Indices:
        """The index of the rows."""
        return self.table.index.to_numpy(np.int64)

    def number(self, name: str) -> Matrix:
        """Return a column of numbers, NaN where it is empty or absent."""
        if name not in self._numbers:
            known = name in self.names
            cells = self.table[name].to_numpy(np.float64) if known else np.full(len(self), np.nan)
            self._numbers[name] = unchanging(cells)
        return self._numbers[name]

    def derived(self, name: str, default: float, least: float = NONE_LEAST) -> Matrix:
        """Return a column of numbers, changed by `derive`."""
        key = (name, default, least)
        if key not in self._derived:
            self._derived[key] = unchanging(derive(self.number(name), default, least))
        return self._derived[key]

    def same_texts(self, columns: tuple[str, ...]) -> tuple[list[tuple[str, ...]], Places]:
        """Return the distinct combinations of some text columns, and each row's number of them."""
        if columns not in self._same:
            self._same[columns] = combinations([self.text(column) for column in columns])
        return self._same[columns]

    def is_in(self, name: str, *words: str) -> Flags:
        """Return which rows hold one of some words in a column."""
        key = (name, *words)
        if key not in self._is_in:
            self._is_in[key] = self.text(name).is_in(*words)
        return self._is_in[key]

    def text(self, name: str) -> Words:
        """Return a column of words."""
        if name not in self._words:
            known = name in self.names
            self._words[name] = read_words(self.table[name]) if known else one_word("", len(self))
        return self._words[name]


Result = TypeVar("Result")

TABLES = 32
"""Tables whose results are cached, the most recently used; a machine with a short table uses a dozen others."""
PAIRS = 256
"""Cached results of one table with a second object, the most recently used: in a sweep, each point has its own
device and machine."""

_Results = OrderedDict[tuple[int, str], tuple[object, Any]]
_CACHE: OrderedDict[int, tuple[pd.DataFrame, _Results, _Results]] = OrderedDict()
"""By table: the table, what was made of it alone, and of it with something else."""


def cached(table: pd.DataFrame, also: object, name: str, make: Callable[[], Result]) -> Result:
    """Return a result from the cache, or compute and store it.

    `table`: the key, by identity; it must not be changed in place; `also`: a second object that the result depends
    on, by identity too, or None; `name`: name of the result; `make`: computes it.
    """
    if id(table) not in _CACHE or _CACHE[id(table)][0] is not table:
        _CACHE[id(table)] = (table, OrderedDict(), OrderedDict())
    _CACHE.move_to_end(id(table))
    while len(_CACHE) > TABLES:
        _CACHE.popitem(last=False)
    _, alone, pairs = _CACHE[id(table)]
    results, key = alone if also is None else pairs, (id(also), name)
    if key not in results or results[key][0] is not also:
        results[key] = (also, make())
    result: Result = results[key][1]
    if also is not None:
        results.move_to_end(key)
        while len(results) > PAIRS:
            results.popitem(last=False)
    return result
