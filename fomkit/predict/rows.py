"""Rows of a table as plain columns: each is read when somebody asks for it, and choosing rows copies none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from fomkit.dtypes import ITEM_BYTE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]
    Places = NDArray[np.intp]


class Words(NamedTuple):
    """A text column: each row's number of its word, and the words, each once; "" where the column is empty."""

    codes: Places
    words: tuple[str, ...]

    def taken(self, at: Places) -> Words:
        """Give those of some rows."""
        return Words(self.codes[at], self.words)

    def cells(self) -> NDArray[np.object_]:
        """Give the word of each row."""
        return np.array(self.words, object)[self.codes]

    def told(self, values: Sequence[Any], dtype: type) -> NDArray[Any]:
        """Give each row the value of its word."""
        return np.array(values, dtype)[self.codes]


def words_of(numbers_of: Places, named: Sequence[str]) -> Words:
    """Give a text column by each row's number of its word, where numbers may share a word."""
    words = tuple(dict.fromkeys(named)) or ("",)
    return Words(np.array([words.index(word) for word in named], np.intp)[numbers_of], words)


def _words(column: pd.Series) -> Words:
    if isinstance(column.dtype, pd.CategoricalDtype):
        codes, cells = column.cat.codes.to_numpy(np.intp), column.cat.categories.tolist()
    else:
        codes, found = pd.factorize(column.to_numpy(object))
        cells = found.tolist()
    if (codes < 0).any():
        codes = np.where(codes < 0, len(cells), codes)
        cells = [*cells, ""]
    return words_of(np.asarray(codes, np.intp), [str(cell) for cell in cells])


class Rows:
    """Some rows of a table.

    Attributes
    ----------
    index : array (n,)
        The rows, by their index in the table, which is of whole numbers.
    columns : frozenset of str
    """

    def __init__(
        self, table: pd.DataFrame, at: Places, given: Mapping[str, Numbers | Words], read: dict[str, Any]
    ) -> None:
        self._table, self._at, self._given, self._read = table, at, given, read

    def __len__(self) -> int:
        return len(self._at)

    @property
    def index(self) -> NDArray[np.int64]:
        """The rows, by their index in the table."""
        if "" not in self._read:
            self._read[""] = self._table.index.to_numpy(np.int64)
        found: NDArray[np.int64] = self._read[""][self._at]
        return found

    def has(self, column: str) -> bool:
        """Tell whether there is such a column."""
        return column in self._given or column in self._table.columns

    def number(self, column: str) -> Numbers:
        """Give a column of numbers, NaN where it is empty or absent."""
        given = self._given.get(column)
        if isinstance(given, np.ndarray):
            return given
        if column not in self._read:
            known = column in self._table.columns
            none = np.full(len(self._table), np.nan)
            self._read[column] = self._table[column].to_numpy(np.float64) if known else none
        found: Numbers = self._read[column][self._at]
        return found

    def text(self, column: str) -> Words:
        """Give a column of words."""
        given = self._given.get(column)
        if isinstance(given, Words):
            return given
        if column not in self._read:
            known = column in self._table.columns
            none = Words(np.zeros(len(self._table), np.intp), ("",))
            self._read[column] = _words(self._table[column]) if known else none
        found: Words = self._read[column]
        return found.taken(self._at)

    def take(self, which: Places | NDArray[np.bool_]) -> Rows:
        """Give some of the rows, by place or by a flag for each."""
        at = np.flatnonzero(which) if which.dtype == bool else np.asarray(which, np.intp)
        given = {
            name: column.taken(at) if isinstance(column, Words) else column[at]
            for name, column in self._given.items()
        }
        return Rows(self._table, self._at[at], given, self._read)

    def assign(self, **columns: Numbers | Words | float | str) -> Rows:
        """Give the same rows with other columns; one number or word holds for all rows."""
        given = dict(self._given)
        for name, column in columns.items():
            if isinstance(column, str):
                column = Words(np.zeros(len(self), np.intp), (column,))
            given[name] = np.full(len(self), column) if isinstance(column, float) else column
        return Rows(self._table, self._at, given, self._read)

    def frame(self, names: Sequence[str]) -> pd.DataFrame:
        """Give some columns as a table, with the rows' own index."""
        chosen = self._table[[name for name in names if name in self._table.columns]].take(self._at)
        given = {
            name: column.cells() if isinstance(column, Words) else column
            for name, column in self._given.items()
            if name in names
        }
        return chosen.assign(**given)


Table = Rows | pd.DataFrame


def as_rows(table: Table) -> Rows:
    """Give a table's rows."""
    return table if isinstance(table, Rows) else Rows(table, np.arange(len(table)), {}, {})


def numbers(rows: Table, column: str, default: float = np.nan) -> Numbers:
    """Give a number column as float64, with ``default`` where it is empty or absent."""
    values = as_rows(rows).number(column)
    # NaN is the one number that is not itself.
    return values if default != default else np.where(np.isnan(values), default, values)


def are(rows: Table, column: str, *words: str) -> NDArray[np.bool_]:
    """Tell in which rows a text column holds one of some words."""
    known = as_rows(rows).text(column)
    return known.told([word in words for word in known.words], bool)


def places_of(asked: NDArray[np.int64], among: NDArray[np.int64]) -> Places:
    """Give the place of each op among others, both by their index; -1 where it is none of them."""
    return np.asarray(pd.Index(among).get_indexer(pd.Index(asked)), np.intp)


def item_bytes(rows: Table) -> Numbers:
    """Give the size of one number of each row's format [byte]."""
    known = as_rows(rows).text("dtype")
    return known.told([ITEM_BYTE.get(word, np.nan) for word in known.words], float)


def same_texts(rows: Table, *columns: str) -> tuple[list[tuple[str, ...]], Places]:
    """Give the distinct combinations of some text columns, by first appearance, and each row's number of them."""
    known = [as_rows(rows).text(column) for column in columns]
    together = np.zeros(len(rows), np.intp)
    for column in known:
        together = together * len(column.words) + column.codes
    numbers_of, distinct = pd.factorize(together)
    found = []
    for number in distinct.tolist():
        cell: list[str] = []
        for column in reversed(known):
            number, at = divmod(number, len(column.words))
            cell.append(column.words[at])
        found.append(tuple(reversed(cell)))
    return found, np.asarray(numbers_of, np.intp)
