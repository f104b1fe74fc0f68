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
from fomkit.predict import borrow, interpolate, measured, roofline, stand_in, transfer
from fomkit.predict.bounds import name_bounds
from fomkit.predict.clock import own_times
from fomkit.predict.engines import settle_engines
from fomkit.predict.estimates import Estimator, Timed
from fomkit.predict.storage import row_major
from fomkit.predict.sums import add_up, fully_timed
from fomkit.schema import COSTS, DIMENSIONS, TIMES, check_table

if TYPE_CHECKING:
    from numpy.typing import NDArray

_WHERE = "add_times"
_TIMES = [column.name for column in TIMES]
_IDENTITY = ["kind", "op", "dtype", "engine", "pass_name", *(column.name for column in (*DIMENSIONS, *COSTS))]


def _sum(rows: pd.DataFrame, _machine: Machine, _interval: float, *, parts: pd.DataFrame) -> dict[int, Timed]:
    return add_up(parts, rows.index.tolist())


def ladder(calls: pd.DataFrame | None, parts: pd.DataFrame | None) -> tuple[Estimator, ...]:
    """List the estimators in the order in which they are asked; the first that knows a row prices it.

    1. the op was timed; 2. the product was timed in other storage orders only; 3. a few similar ops were timed,
    and many on machines that it follows; 4. similar ops were timed; 5. its forward pass was timed; 6. it is a sum
    of library calls of which the recurrences were timed; 7. it is a sum of parts; 8. it moves data as a timed
    element-wise op or its own forward pass does; 9. the machine's rates. What none of them knows stays unpriced.

    Parameters
    ----------
    calls, parts : DataFrame or None
        TIMED tables with the column ``of``.
    """
    sums = [partial(_sum, parts=table) for table in (calls, parts) if table is not None]
    table = partial(_climb, steps=(measured.estimate, borrow.estimate, interpolate.estimate))
    return (
        measured.estimate,
        partial(stand_in.another_order, table=table),
        borrow.estimate,
        interpolate.estimate,
        partial(transfer.estimate, table=table),
        *sums,
        partial(stand_in.moved_data, table=table),
        partial(stand_in.row_gradients, table=table),
        roofline.estimate,
    )


def _climb(rows: pd.DataFrame, machine: Machine, interval: float, steps: Sequence[Estimator]) -> dict[int, Timed]:
    times: dict[int, Timed] = {}
    for estimate in steps:
        pending = rows[~rows.index.isin(list(times))]
        if len(pending):
            times |= estimate(pending, machine, interval)
    return times


def _distinct(costed: pd.DataFrame) -> tuple[pd.DataFrame, NDArray[np.int64]]:
    """Give the distinct rows, indexed by the position of their first appearance, and each row's position there."""
    keys = [name for name in _IDENTITY if name in costed.columns]
    codes = np.asarray(costed.groupby(keys, dropna=False, sort=False).ngroup(), np.int64)
    _, first = np.unique(codes, return_index=True)
    return costed.iloc[first].set_axis(first, axis=0), first[codes]


def _with_notes(times: Mapping[int, Timed], notes: Mapping[int, str]) -> dict[int, Timed]:
    return {
        index: timed._replace(evidence=f"{notes[index]}; {timed.evidence}") if index in notes else timed
        for index, timed in times.items()
    }


def _timed_parts(parts: pd.DataFrame | None, machine: Machine, interval: float) -> pd.DataFrame | None:
    if parts is None or not len(parts):
        return None
    timed = add_times(parts.drop(columns="of"), machine, interval=interval)
    return timed.assign(of=parts["of"].astype("int64"))


def add_times(
    costed: pd.DataFrame,
    machine: Machine,
    *,
    interval: float = 0.8,
    parts: pd.DataFrame | None = None,
    calls: pd.DataFrame | None = None,
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
    check_table(costed.drop(columns=_TIMES, errors="ignore"), "COSTED", _WHERE)
    machine = replace(machine, timings=own_times(row_major(machine.timings)))
    asked, first = _distinct(costed)
    rows, notes = settle_engines(asked, machine)
    timed_calls = _timed_parts(calls, machine, interval)
    steps = ladder(
        None if timed_calls is None else fully_timed(timed_calls), _timed_parts(parts, machine, interval)
    )
    times = _with_notes(name_bounds(rows, _climb(rows, machine, interval, steps), machine), notes)
    unpriced = Timed(np.nan, np.nan, np.nan, "", "", "")
    answers = [times.get(position, unpriced) for position in first.tolist()]
    columns = pd.DataFrame(answers, columns=_TIMES, index=costed.index)
    text = dict.fromkeys(("time_source", "bound", "evidence"), "str")
    return costed.assign(**{str(name): column for name, column in columns.astype(text).items()})
