"""The predict stage: from COSTED to TIMED, each row by the best evidence there is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from fomkit.errors import FomkitError
from fomkit.hardware import Machine
from fomkit.predict import alpha_beta, borrow, interpolate, measured, roofline, stand_in, transfer
from fomkit.predict.bounds import name_bounds
from fomkit.predict.carried import carry_over, original, stated
from fomkit.predict.clock import own_times
from fomkit.predict.engines import settle
from fomkit.predict.estimates import Answers, Estimator, Timed, as_answers, join_answers
from fomkit.predict.families import same_ops
from fomkit.predict.kept import kept
from fomkit.predict.rows import Rows, Table, as_rows
from fomkit.predict.storage import row_major
from fomkit.predict.sums import add_up, fully_timed
from fomkit.schema import COSTS, DIMENSIONS, TIMES, check_table, in_order

if TYPE_CHECKING:
    from numpy.typing import NDArray

_WHERE = "add_times"
_TIMES = [column.name for column in TIMES]
_IDENTITY = ["kind", "op", "dtype", "engine", "pass_name", *(column.name for column in (*DIMENSIONS, *COSTS))]


def _sum(rows: Table, _machine: Machine, _interval: float, *, parts: pd.DataFrame) -> dict[int, Timed]:
    return add_up(parts, rows.index.tolist())


def ladder(calls: pd.DataFrame | None, parts: pd.DataFrame | None) -> tuple[Estimator, ...]:
    """List the estimators in the order in which they are asked; the first that knows a row prices it.

    1. the op was timed; 2. the product was timed in other storage orders only; 3. a few similar ops were timed,
    and many on machines that it follows; 4. similar ops were timed; 5. its forward pass was timed; 6. one of these
    holds in the other 16-bit format of the matrix engine; 7. it is a sum of library calls of which the recurrences
    were timed; 8. it is a sum of parts; 9. it moves data as a timed element-wise op or its own forward pass does;
    10. it is a collective on a link that the machine states; 11. the machine's rates. What none of them knows
    stays unpriced.

    Parameters
    ----------
    calls, parts : DataFrame or None
        TIMED tables with the column ``of``.
    """
    sums = [partial(_sum, parts=table) for table in (calls, parts) if table is not None]
    table = partial(_climb, steps=(measured.estimate, borrow.estimate, interpolate.estimate))
    timed = (
        measured.estimate,
        partial(stand_in.another_order, table=table),
        borrow.estimate,
        interpolate.estimate,
        partial(transfer.estimate, table=table),
    )
    return (
        *timed,
        partial(stand_in.another_format, table=partial(_climb, steps=timed)),
        *sums,
        partial(stand_in.moved_data, table=table),
        partial(stand_in.row_gradients, table=table),
        alpha_beta.estimate,
        roofline.estimate,
    )


def _climb(rows: Table, machine: Machine, interval: float, steps: Sequence[Estimator]) -> Answers:
    found: list[Answers] = []
    rows = as_rows(rows)
    pending = np.ones(len(rows), bool)
    for estimate in steps:
        if not pending.any():
            break
        asked = rows if pending.all() else rows.take(pending)
        answers = as_answers(estimate(asked, machine, interval))
        if len(answers):
            found.append(answers)
            pending &= ~np.isin(rows.index, answers.index)
    return join_answers(found)


def _distinct(costed: pd.DataFrame) -> tuple[Rows, NDArray[np.int64]]:
    """Give the distinct rows, indexed by the position of their first appearance, and each row's position there."""
    keys = [name for name in _IDENTITY if name in costed.columns]
    first = same_ops(costed, keys)
    own = np.unique(first)
    return as_rows(costed.set_axis(np.arange(len(costed)), axis=0)).take(own), first


def prepared(machine: Machine) -> Machine:
    """Give a machine with its timings as the estimators read them: in one order of rows and of storage."""
    timings = kept(machine.timings, None, "own times", lambda: own_times(in_order(row_major(machine.timings))))
    return replace(machine, timings=timings)


def _sums(parts: pd.DataFrame | None, machine: Machine, interval: float) -> pd.DataFrame | None:
    if parts is None or not len(parts):
        return None
    timed = add_times(parts.drop(columns="of"), machine, interval=interval, checked=True)
    return timed.assign(of=parts["of"].astype("int64"))


def price(
    rows: Rows,
    machine: Machine,
    interval: float,
    *,
    parts: pd.DataFrame | None = None,
    calls: pd.DataFrame | None = None,
) -> Answers:
    """Price rows whose engines are settled, on a machine that is `prepared`; see `add_times`.

    Parameters
    ----------
    rows : Rows
        COSTED rows, each with an integer index of its own.
    machine : Machine
    interval : float
    parts, calls : DataFrame, optional
        COSTED tables of what rows are made of, by the column ``of``.

    Returns
    -------
    Answers
        Those rows that have a time.
    """
    timed_calls = _sums(calls, machine, interval)
    steps = ladder(None if timed_calls is None else fully_timed(timed_calls), _sums(parts, machine, interval))
    return name_bounds(rows, _climb(rows, machine, interval, steps), machine)


def add_times(
    costed: pd.DataFrame,
    machine: Machine,
    *,
    interval: float = 0.8,
    parts: pd.DataFrame | None = None,
    calls: pd.DataFrame | None = None,
    checked: bool = False,
) -> pd.DataFrame:
    """Add what one execution of each op takes on a machine, with an interval and the evidence for it.

    Rows that differ in place or count only are predicted once.

    Parameters
    ----------
    costed : DataFrame
        A COSTED table.
    machine : Machine
        Facts, timings, and fits of these timings (`fomkit.predict.fit.fit_timings`); without fits nothing is
        interpolated.
    interval : float
        Share of intervals that should contain the truth, between 0 and 1.
    parts : DataFrame, optional
        A COSTED table with the column ``of``: what the op at that position of ``costed`` is made of, per
        execution.
    calls : DataFrame, optional
        The same for recurrent layers as library calls (`fomkit.costs.split_recurrent`); preferred to ``parts``
        where the machine's table has the recurrences.
    checked : bool
        True where the caller has checked the tables, or made them.

    Returns
    -------
    DataFrame
        The same rows and index with time_s, low_s, high_s [s], time_source, bound and evidence; NaN and "" where
        nothing is known.

    Raises
    ------
    ManyFomkitError
        When a column or a dimension is missing.
    FomkitError
        When the interval is not between 0 and 1, or the fits are not of these timings.
    """
    if not 0 < interval < 1:
        raise FomkitError(_WHERE, f"the interval is {interval}. Give a share between 0 and 1, for example 0.8.")
    for table in () if checked else (costed, parts, calls):
        if table is not None:
            check_table(table.drop(columns=[*_TIMES, "of"], errors="ignore"), "COSTED", _WHERE)
    built = replace(prepared(original(machine)), links=machine.links)
    asked, first = _distinct(costed)
    rows, notes = settle(asked, built)
    answers = price(rows, built, interval, parts=parts, calls=calls)
    if machine.origin is not None:
        answers = _on_changed(rows, answers, machine, built, interval)
    return costed.assign(**_columns(answers, first, notes, costed.index))


def _on_changed(rows: Rows, answers: Answers, machine: Machine, built: Machine, interval: float) -> Answers:
    """Take what was stated for a changed machine as it stands, and carry the rest over from it as built."""
    own = prepared(stated(machine))
    known = name_bounds(rows, as_answers(measured.estimate(rows, own, interval)), own)
    rest = answers.chosen(np.flatnonzero(~np.isin(answers.index, known.index)))
    return join_answers([known, carry_over(rows, rest, replace(machine, timings=built.timings))])


def _columns(
    answers: Answers, first: NDArray[np.int64], notes: Mapping[int, str], index: pd.Index
) -> dict[str, pd.Series]:
    """Put answers in the columns of `fomkit.schema.TIMES`; ``first`` names the answer to each row."""
    places = np.full(int(first.max(initial=-1)) + 1, -1)
    places[answers.index] = np.arange(len(answers))
    at = places[first]
    priced = at >= 0
    numbers, words = np.full((3, len(first)), np.nan), np.full((3, len(first)), "", object)
    numbers[:, priced] = np.stack([answers.time_s, answers.low_s, answers.high_s])[:, at[priced]]
    evidence = np.array([_said(answers, place, notes) for place in range(len(answers))], object)
    words[:, priced] = np.stack([answers.time_source, answers.bound, evidence])[:, at[priced]]
    columns = zip(_TIMES, (*numbers, *(pd.array(column, "str") for column in words)), strict=True)
    return {name: pd.Series(column, index) for name, column in columns}


def _said(answers: Answers, place: int, notes: Mapping[int, str]) -> str:
    note = notes.get(int(answers.index[place]))
    return f"{note}; {answers.evidence(place)}" if note else answers.evidence(place)
