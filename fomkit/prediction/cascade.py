"""Predict the time of each op from the best available evidence, also on a machine whose rates were changed.

`estimator_cascade` lists the estimators by priority. `price` calls them in turn; ops that consist of other ops,
such as recurrent layers, are sums of their components (`composed`). `add_times` makes a TIMED table.

A machine with changed rates keeps the utilisation of the machine as built, to which its timings belong: ops are
priced on that one, and their times rescaled (`answers_on`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType

import numpy as np
import pandas as pd

from fomkit.core.errors import FomkitError
from fomkit.core.interval import DEFAULT_LEVEL, half_width
from fomkit.core.machine import Machine
from fomkit.ops.check import check_table
from fomkit.ops.columns import Words, cached, choose_words, first_alike
from fomkit.ops.tables import COSTS, DIMENSIONS, TIMES, in_order
from fomkit.prediction import composed, estimators, exact, interpolate, prior, transfer
from fomkit.prediction.composed import CALL, PART
from fomkit.prediction.estimators import Answers, Estimator, Rows, Table, as_rows, is_in, numbers, places_of
from fomkit.prediction.exact import row_major, settle
from fomkit.prediction.exchange import estimate_collective
from fomkit.prediction.families import VIEWS
from fomkit.prediction.gp import Indices, Matrix, Places
from fomkit.prediction.prior import name_bounds
from fomkit.prediction.rates import bounds, own_times, starts_within

_WHERE = "add_times"
_TIMES = [column.name for column in TIMES]
_IDENTITY = ["kind", "op", "dtype", "engine", "pass_name", *(column.name for column in (*DIMENSIONS, *COSTS))]


@estimators.opened_by(lambda rows, _machine: is_in(rows, "kind", "attention") & is_in(rows, "engine", "matrix"))
def one_kernel(rows: Rows, machine: Machine, interval: float, *, steps: Sequence[Estimator]) -> Answers:
    """Predict attention on a matrix engine that no table has as one kernel, from other machines (an `Estimator`).

    Frameworks run it as one kernel in these number formats, with any mask; parts would write and read all scores.
    """
    return _in_turn(rows, machine, interval, steps)


def _timed_query(rows: Rows, machine: Machine, interval: float) -> Answers:
    """Predict one query over a cache by timed ones, in its number format or a similar one (an `Estimator`)."""
    timed = interpolate.estimate
    return _in_turn(rows, machine, interval, (timed, partial(transfer.another_format, table=timed)))


TABLE = (
    exact.estimate,
    partial(composed.attention_alike, table=interpolate.estimate, one_query=_timed_query),
    interpolate.estimate,
)


def estimator_cascade() -> tuple[tuple[Estimator, ...], tuple[Estimator, ...]]:
    """List estimators by priority, before and after the sums of components; the first that can predict does."""
    table = partial(_in_turn, steps=TABLE)
    timed = (
        exact.estimate,  # the op was timed
        partial(transfer.another_order, table=table),  # the product was timed in other storage orders only
        *TABLE[1:],  # similar ops were timed, here and on other machines
        partial(transfer.estimate, table=table),  # its forward pass was timed
    )
    formats = partial(transfer.another_format, table=partial(_in_turn, steps=timed))
    whole = partial(_in_turn, steps=(*timed, formats, prior.estimate))
    facts = (partial(composed.attention_alike, table=prior.estimate, by_facts=True), prior.estimate)
    by_rates = (partial(composed.attention_gradients, table=partial(_in_turn, steps=facts)), *facts)
    before = (
        partial(transfer.packed_weights, table=whole),  # the weights are packed: from the product with whole ones
        exact.estimate,  # the op was timed
        partial(composed.padded_products, product=whole),  # programs pad what no library runs
        *timed[1:],
        formats,  # one of these applies in the other 16-bit format of the matrix engine
        partial(composed.attention_gradients, table=partial(_in_turn, steps=(*timed, formats))),
        partial(one_kernel, steps=by_rates),  # attention on a matrix engine
        partial(composed.recurrences, product=whole),  # on devices that state their processors
    )
    # Then an op may be the sum of library calls, if their recurrences are predicted so or were timed, or of parts.
    after = (
        partial(transfer.copied_data, table=table),  # like a timed element-wise op, with addresses
        partial(transfer.moved_data, table=table),  # like a timed element-wise op
        partial(transfer.row_gradients, table=table),  # like its own forward pass
        estimate_collective,  # on a stated link
        *by_rates,  # the machine's rates apply
    )
    return before, after


def _in_turn(rows: Table, machine: Machine, interval: float, steps: Sequence[Estimator]) -> Answers:
    """Predict rows by several estimators: each gets those that none before it could predict."""
    found, rows = list[Answers](), as_rows(rows)
    pending = np.ones(len(rows), bool)
    for estimate in steps:
        if not pending.any():
            break
        query = rows if pending.all() else rows.take(pending)
        answers = estimate(query, machine, interval)
        if len(answers):
            found.append(answers)
            pending[places_of(answers.index, rows.index)] = False
    return estimators.join_answers(found)


def _distinct(costed: pd.DataFrame) -> tuple[Rows, Indices]:
    """Return the distinct rows, indexed by the position of their first appearance, and for each row that position.

    Only the components of the first of equal ops are kept; components themselves are not merged.
    """
    keys = [name for name in _IDENTITY if name in costed.columns]
    first = first_alike(costed, keys)
    own = np.unique(first)
    if "piece" in costed.columns:
        of = costed["of"].to_numpy(np.float64)
        first = np.where(np.isnan(of), first, np.arange(len(of)))
        own = np.unique(first[np.isnan(of) | np.isin(of, own)])
    return as_rows(costed.set_axis(np.arange(len(costed)), axis=0)).take(own), first


def prepared(machine: Machine) -> Machine:
    """Return the machine with its timings as the estimators expect them: sorted, row-major, with own times."""
    timings = cached(machine.timings, None, "own times", lambda: own_times(in_order(row_major(machine.timings))))
    return replace(machine, timings=timings)


def _for_sums(rows: Table, machine: Machine, interval: float, *, estimator: Estimator) -> Answers:
    """Predict at `DEFAULT_LEVEL` and rescale the intervals as log-normal: a sum has the tails of a normal."""
    found = estimator(rows, machine, DEFAULT_LEVEL)
    times = found.times[0] * (found.times / found.times[0]) ** (half_width(interval) / half_width(DEFAULT_LEVEL))
    return found.timed(times)


def as_added(kinds: Words, sources: Words, times: Matrix, interval: float) -> Matrix:
    """Return value and bounds (3, n) of times that are added up; the value of interpolated times is the mean.

    A library that is slow for one shape causes skewed errors, which average out in a sum if independent. Where ops
    err together (products of similar sizes, ops far from every timed one) the median stays (docs/adr/0061).

    `times`: of ops of these kinds and time sources, with the bounds of normal errors at the level ``interval``.
    """
    alone, times = (kind for kind, view in VIEWS.items() if view.waves is None), times.copy()
    interpolated, z = np.flatnonzero(sources.is_in("interpolated") & kinds.is_in(*alone)), half_width(interval)
    longer = estimators.means(times[:, interpolated], z) - times[0, interpolated]
    near = max(1 - z / half_width(DEFAULT_LEVEL), 0.0)  # at low levels the bounds, too, are around the mean
    times[:, interpolated] += np.array([[1.0], [near], [near]]) * longer
    return times


def price(
    rows: Rows,
    machine: Machine,
    interval: float,
    notes: Mapping[int, str] = MappingProxyType({}),
    *,
    in_sums: bool = False,
) -> Answers:
    """Predict rows with resolved engines, on a machine that is `prepared`; see `add_times`.

    Components are predicted first; an op that no table can predict is then the sum of its components.

    `rows`: COSTED rows with unique integer indices; components have a word in ``piece``; `notes`: put before the
    evidence of rows, by index. Returns the ops (not the components) that have a time.
    """
    before, after = estimator_cascade()
    if in_sums and interval != DEFAULT_LEVEL:
        before, after = (tuple(partial(_for_sums, estimator=one) for one in some) for some in (before, after))

    def kernels(own: Rows) -> Answers:
        return _in_turn(own, machine, interval, (*before, *after))

    def whole(found: Answers) -> Answers:
        """Add the work that the estimators leave out; with ``in_sums`` return the times as terms of a sum."""
        found = composed.further_work(rows, found, machine, interval, kernels)
        if in_sums:
            kinds = rows.text("kind").taken(places_of(found.index, rows.index))
            found = found.timed(as_added(kinds, found.source, found.times, interval))
        found = composed.with_halves(rows, found, machine, interval, partial(_in_turn, steps=TABLE))
        return name_bounds(rows, found, machine)

    is_op = is_in(rows, "piece", "")
    if is_op.all():
        return whole(kernels(rows))
    # First the components, and all ops but those that wait for their components.
    known = _in_turn(rows, machine, interval, before)
    pending = places_of(rows.index, known.index) < 0
    waiting = pending & (places_of(rows.index, rows.number("of")[~is_op].astype(np.int64)) >= 0)
    rest = _in_turn(rows.take(pending & ~waiting), machine, interval, after)
    known = whole(estimators.join_answers([known, rest]))
    ops = known.chosen(np.flatnonzero(is_op[places_of(known.index, rows.index)]))
    # Then the sums.
    calls, parts = (composed.components_of(rows, word, known.noted(notes)) for word in (CALL, PART))
    calls = calls if composed.runs_library_calls(machine) else calls.fully_timed()
    sums = [partial(_sum, components=one) for one in (calls, parts)]
    rest = _in_turn(rows.take(waiting), machine, interval, (*sums, *after))
    return estimators.join_answers([ops, name_bounds(rows, rest, machine)])


def _sum(rows: Table, _machine: Machine, _interval: float, *, components: composed.Components) -> Answers:
    return composed.add_up(components, as_rows(rows).index)


def add_times(
    costed: pd.DataFrame,
    machine: Machine,
    *,
    interval: float = DEFAULT_LEVEL,
    parts: pd.DataFrame | None = None,
    calls: pd.DataFrame | None = None,
    checked: bool = False,
    in_sums: bool = False,
) -> pd.DataFrame:
    """Add the predicted time of one execution of each op, with its interval and evidence.

    Rows that differ only in place or count are predicted once.

    `costed`: a COSTED table; `machine`: facts, timings, and fits of these timings (`calibration.fit_timings`);
    without fits nothing is interpolated; `interval`: share of intervals that should contain the truth, between 0
    and 1; `parts`: a COSTED table of the parts of ops, per execution of the op, with the column ``of``: the
    position of the op in ``costed``; `calls`: the same for recurrent layers as library calls (`split_recurrent`),
    used instead of ``parts`` where the machine's table has the recurrences; `checked`: true where the caller has
    checked or built the tables; `in_sums`: true where the times will be added up: errors of sums have shorter
    tails than those of one op (`op_half_width`). Returns the same rows and index with time_s, low_s, high_s [s],
    time_source, bound and evidence; NaN and "" where nothing is known. Raises FomkitError for an interval outside
    (0, 1), ManyFomkitError for a missing column or dimension.
    """
    if not 0 < interval < 1:
        raise FomkitError(_WHERE, f"the interval is {interval}. Give a share between 0 and 1, for example 0.8.")
    for table in () if checked else (costed, parts, calls):
        if table is not None:
            check_table(table.drop(columns=[*_TIMES, "of"], errors="ignore"), "COSTED", _WHERE)
    built = prepared(original(machine))
    pieces = [
        one.assign(piece=word) for one, word in ((calls, CALL), (parts, PART)) if one is not None and len(one)
    ]
    query, first = _distinct(pd.concat([costed, *pieces], ignore_index=True) if pieces else costed)
    rows, notes = settle(query, built)
    answers = answers_on(rows, price(rows, built, interval, notes, in_sums=in_sums), machine, interval)
    return with_answers(costed, answers.noted(notes), first[: len(costed)])


def with_answers(costed: pd.DataFrame, answers: Answers, first: Places) -> pd.DataFrame:
    """Return a TIMED table: the columns of `fomkit.ops.tables.TIMES`, for each row those of row ``first``."""
    places = np.full(int(first.max(initial=-1)) + 1, -1)
    places[answers.index] = np.arange(len(answers))
    at = places[first]
    priced = at >= 0
    numbers, words = np.full((3, len(first)), np.nan), np.full((3, len(first)), "", object)
    numbers[:, priced] = answers.times[:, at[priced]]
    evidence = np.array([answers.evidence(place) for place in range(len(answers))], object)
    words[:, priced] = np.stack([answers.time_source, answers.bound, evidence])[:, at[priced]]
    columns = zip(_TIMES, (*numbers, *(pd.array(column, "str") for column in words)), strict=True)
    return costed.assign(**{name: pd.Series(column, costed.index) for name, column in columns})


ROOFLINE = "roofline"
"""The time source that states the cost of launches separately; times from tables include it."""
FROM_TABLE = ("measured", "interpolated", "extrapolated")
"""Time sources that become transferred, because nothing was timed on the changed machine."""


def original(machine: Machine) -> Machine:
    """Return the machine as built, which the timings are of; its table is the same object in every call."""
    if machine.origin is None:
        return machine
    timings = cached(machine.timings, None, "as built", lambda: machine.as_built().timings)
    return replace(machine, device=machine.origin, origin=None, timings=timings)


def time_ratio(
    time_s: Matrix, starts_s: Matrix, floor_s: Matrix, changed_floor_s: Matrix, launches: Matrix | float
) -> Matrix:
    """Return the time on the changed machine as a share of the original's.

    Launches that are separate in a time scale with the launch cost. The rest is the kernel, whose utilisation
    floor / time is kept, so it scales with the floor. Where a floor is unknown the kernel's time stays. All
    arguments broadcast. Workbooks compute the same (`fomkit.workbook.records`).

    `time_s`: on the original machine; `starts_s`: cost of the op's launches there, 0 where it is not separate;
    `floor_s`, `changed_floor_s`: on both machines; `launches`: launch cost as a share of the original's.

    >>> ones = np.ones(1)
    >>> time_ratio(10 * ones, 2 * ones, 4 * ones, 2 * ones, 1.0).round(9).tolist()  # 0.8 + 9.2 / 2 of 10
    [0.54]
    """
    fixed_s = starts_within(time_s, starts_s)
    fixed_share = np.nan_to_num(fixed_s / time_s)
    ratio = changed_floor_s / floor_s
    return np.asarray(fixed_share * launches + (1 - fixed_share) * np.where(np.isnan(ratio), 1.0, ratio))


def rescale_answers(rows: Rows, answers: Answers, machine: Machine) -> Answers:
    """Rescale predictions of COSTED rows for the original machine to the changed one."""
    built = original(machine)
    rows = rows.take(places_of(answers.index, rows.index))
    before, after = bounds(rows, built), bounds(rows, machine)
    launch = built.device.launch_s
    launches_s = numbers(rows, "launches") * (launch.value if launch is not None else 0.0)
    starts_s = np.where(answers.source.is_in(ROOFLINE), launches_s, 0.0)
    costs = [None if one is None else one.value for one in (launch, machine.device.launch_s)]
    changed_launch = costs[1] / costs[0] if costs[0] and costs[1] is not None else 1.0
    share = time_ratio(answers.time_s, starts_s, before.floor_s, after.floor_s, changed_launch)
    sources = choose_words(answers.source.is_in(*FROM_TABLE), "transferred", answers.source)
    launched = launches_s * changed_launch > after.floor_s
    names = choose_words(np.isnan(after.floor_s), answers.limit, choose_words(launched, "launch", after.names))

    def evidence(place: int) -> str:
        return f"{share[place]:.3g} × that on {built.name} as built, equal utilisation ({answers.evidence(place)})"

    return Answers(answers.index, answers.times * share, sources, names, evidence)


def answers_on(rows: Rows, answers: Answers, machine: Machine, interval: float) -> Answers:
    """Return predictions for a machine, from those for the machine as built."""
    if machine.origin is None:
        return answers
    # The times that were stated for the changed machine itself are used, and the others rescaled.
    stated = cached(machine.timings, None, "stated", lambda: machine.timings[machine.stated_rows()])
    own = prepared(replace(machine, timings=stated))
    known = name_bounds(rows, exact.estimate(rows, own, interval), own)
    rest = answers.chosen(np.flatnonzero(~np.isin(answers.index, known.index)))
    changed = replace(machine, timings=prepared(original(machine)).timings)
    return estimators.join_answers([known, rescale_answers(rows, rest, changed)])
