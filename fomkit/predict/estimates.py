"""What every estimator takes and gives back, and how it reads a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec

import numpy as np
import pandas as pd

from fomkit.hardware import Machine
from fomkit.predict.kept import kept
from fomkit.predict.rows import Rows, Table, as_rows
from fomkit.schema import KIND_DIMENSIONS

if TYPE_CHECKING:
    from numpy.typing import NDArray

Record = Mapping[str, Any]
"""One row of a table: column to value."""

PRODUCTS = ("gemm", "sparse_gemm")
PASS_FREE = (*PRODUCTS, "collective")
"""Kinds whose time depends on the sizes alone, whatever pass they run in."""


class Timed(NamedTuple):
    """What an estimator says of one op: the columns of `fomkit.schema.TIMES`."""

    time_s: float
    low_s: float
    high_s: float
    time_source: str
    bound: str
    evidence: str


class Answers(Mapping[int, Timed]):
    """What an estimator says of many ops, as columns; the words for the evidence are made when asked for.

    Attributes
    ----------
    index : array (q,)
        The ops, by their index.
    time_s, low_s, high_s : array (q,)
    time_source, bound : array (q,) of str
    """

    def __init__(
        self,
        index: NDArray[np.int64],
        times: NDArray[np.float64],
        time_source: NDArray[np.object_],
        bound: NDArray[np.object_],
        evidence: Callable[[int], str],
    ) -> None:
        self.index, self.time_source, self.bound, self._evidence = index, time_source, bound, evidence
        self.time_s, self.low_s, self.high_s = times
        self._places: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.index)

    def __iter__(self) -> Iterator[int]:
        return iter(self.index.tolist())

    def __getitem__(self, index: int) -> Timed:
        if not self._places:
            self._places = {known: place for place, known in enumerate(self.index.tolist())}
        return self.at(self._places[index])

    def at(self, place: int) -> Timed:
        """Give the answer at one place of the columns."""
        value, low, high = (float(column[place]) for column in (self.time_s, self.low_s, self.high_s))
        return Timed(value, low, high, self.time_source[place], self.bound[place], self.evidence(place))

    def chosen(self, places: NDArray[np.intp]) -> Answers:
        """Give the answers at some places."""
        sources, bounds = self.time_source[places], self.bound[places]
        return Answers(
            self.index[places], self.times[:, places], sources, bounds, lambda at: self.evidence(int(places[at]))
        )

    @property
    def times(self) -> NDArray[np.float64]:
        """Value and ends (3, q) [s]."""
        return np.stack([self.time_s, self.low_s, self.high_s])

    def evidence(self, place: int) -> str:
        """Write what the answer at one place of the columns rests on."""
        return self._evidence(place)


def as_answers(found: Mapping[int, Timed]) -> Answers:
    """Put what an estimator found into columns."""
    if isinstance(found, Answers):
        return found
    columns = list(zip(*found.values(), strict=True)) or [()] * len(Timed._fields)
    words: list[str] = list(columns[5])
    index = np.fromiter(found, np.int64, len(found))
    sources, bounds = (np.array(column, object) for column in columns[3:5])
    return Answers(index, np.array(columns[:3], np.float64), sources, bounds, words.__getitem__)


def join_answers(found: Sequence[Answers]) -> Answers:
    """Put the answers of several estimators, about different ops, one after the other."""
    if len(found) == 1:
        return found[0]
    ends = np.cumsum([0, *(len(answers) for answers in found)])

    def evidence(place: int) -> str:
        part = int(np.searchsorted(ends, place, "right")) - 1
        return found[part].evidence(place - int(ends[part]))

    def joined(name: str, empty: type) -> NDArray[Any]:
        return np.concatenate([np.empty(0, empty), *(getattr(answers, name) for answers in found)])

    times = np.stack([joined(name, float) for name in ("time_s", "low_s", "high_s")])
    sources, bounds = (joined(name, object) for name in ("time_source", "bound"))
    return Answers(joined("index", np.int64), times, sources, bounds, evidence)


Estimator = Callable[[Table, Machine, float], Mapping[int, Timed]]
"""From COSTED rows, a machine and the level of the intervals to the rows it can price, by their index.

The level is the share of intervals that should contain the truth. Some estimators are given ``table`` besides,
which prices other ops that they ask for, from the machine's table alone.
"""

_More = ParamSpec("_More")


def opened_by(
    choose: Callable[[Rows, Machine], NDArray[np.bool_]],
) -> Callable[
    [Callable[Concatenate[Rows, Machine, _More], Answers]], Callable[Concatenate[Table, Machine, _More], Answers]
]:
    """Open an `Estimator`: only the rows that are its business reach it, and it is not asked where there are none.

    Parameters
    ----------
    choose : function
        Tells, from all rows and the machine, which are its business.
    """

    def opened(
        estimator: Callable[Concatenate[Rows, Machine, _More], Answers],
    ) -> Callable[Concatenate[Table, Machine, _More], Answers]:
        @wraps(estimator)
        def asked(rows: Table, machine: Machine, /, *more: _More.args, **named: _More.kwargs) -> Answers:
            rows = as_rows(rows)
            chosen = rows.take(choose(rows, machine))
            return estimator(chosen, machine, *more, **named) if len(chosen) else as_answers({})

        return asked

    return opened


def records(rows: pd.DataFrame) -> Iterator[tuple[int, Record]]:
    """Walk over the rows of a table with an integer index."""
    for index, record in zip(rows.index.tolist(), rows.to_dict("records"), strict=True):
        yield index, {str(name): value for name, value in record.items()}


def timed_kinds(timings: pd.DataFrame) -> frozenset[str]:
    """Name the kinds of ops that a table has timings of."""
    return kept(timings, None, "kinds", lambda: frozenset(as_rows(timings).text("kind").words))


def describe_sizes(row: Record) -> str:
    """Write the sizes of an op, leaving out the axes it does not have.

    Examples
    --------
    >>> describe_sizes({"kind": "gemm", "b": 1.0, "m": 100.0, "n": 1000.0, "k": 29532.0})
    'b 1, m 100, n 1000, k 29532'
    """
    sizes = {name: row[name] for name in KIND_DIMENSIONS[str(row["kind"])] if name in row}
    flat = sizes.get("depth") == 1 and sizes.get("kernel_d") == 1
    return ", ".join(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in sizes.items()
        if not (flat and (name == "depth" or name.endswith("_d"))) and not name.startswith("dilation")
    )
