"""Predict the time of each op of a COSTED table from the best available evidence; the result is a TIMED table.

`add_times` is the main function. `estimator_cascade` lists the estimators by priority. Ops that consist of other
ops, such as recurrent layers, are predicted as sums of their parts (`price`, `add_up`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pandas as pd

from fomkit.core.errors import FomkitError
from fomkit.core.interval import DEFAULT_LEVEL, half_width, op_half_width
from fomkit.core.machine import Machine
from fomkit.ops.check import check_table
from fomkit.ops.columns import Words, choose_words, first_alike
from fomkit.ops.families.products import GATES, gemm
from fomkit.ops.tables import COSTS, DIMENSIONS, TIME_SOURCES, TIMES, in_order
from fomkit.prediction import estimates, exact, exchange, interpolate, prior, transfer
from fomkit.prediction.donors import attention_alike, original, rescale_answers, stated
from fomkit.prediction.estimates import Answers, Estimator, Rows, Table, as_rows, cached, is_in, item_bytes
from fomkit.prediction.exact import row_major, settle
from fomkit.prediction.families import VIEWS, servable
from fomkit.prediction.gp import Flags, Indices, Matrix, Places
from fomkit.prediction.prior import name_bounds
from fomkit.prediction.rates import own_times, value_of
from fomkit.prediction.transfer import BASELINE

CALL, PART = "call", "part"
"""Values of the column ``piece`` of rows that are components of an op: its library calls (preferred) or its parts.
The column ``of`` is the index of that op, ``count`` the executions of the component per execution of the op."""


class Parts(NamedTuple):
    """The components of ops, and the prediction for each.

    `of` (n,): index of the op; `runs` (n,): executions of the component per execution of that op.
    `answers`: predictions of the components; `at` (n,): the position of each there, -1 where it has no time.
    """

    rows: Rows
    of: Indices
    runs: Matrix
    answers: Answers
    at: Places

    def fully_timed(self) -> Parts:
        """Keep the components of those ops whose recurrences all have a time from the machine's own table."""
        timed = np.zeros(len(self.of), bool)
        known = self.at >= 0
        timed[known] = self.answers.source.is_in("measured", "interpolated", "extrapolated")[self.at[known]]
        lacking = self.of[~timed & is_in(self.rows, "kind", "rnn")]
        kept = np.flatnonzero(estimates.places_of(self.of, lacking) < 0)
        return Parts(self.rows.take(kept), self.of[kept], self.runs[kept], self.answers, self.at[kept])


def _parts(rows: Rows, word: str, answers: Answers) -> Parts:
    """Select the components of one sort: library calls or parts."""
    own = rows.take(is_in(rows, "piece", word))
    of, runs = own.number("of").astype(np.int64), own.number("count")
    return Parts(own, of, runs, answers, estimates.places_of(own.index, answers.index))


def add_up(parts: Parts, wanted: Indices) -> Answers:
    """Add up the predicted times of components.

    Bounds of intervals add up like the values, because the parts of an op err together. The source of a sum is the
    weakest of its parts.

    `wanted`: ops to add up. Returns those that have parts, all of them with a time.
    """
    if not len(parts.of):
        return estimates.join_answers([])
    known = parts.at >= 0
    seconds, ranks = np.full((3, len(known)), np.nan), np.zeros(len(known), np.intp)
    source = parts.answers.source
    seconds[:, known] = parts.answers.times[:, parts.at[known]] * parts.runs[known]
    ranks[known] = source.mapped([TIME_SOURCES.index(word) for word in source.words], np.intp)[parts.at[known]]
    # Sort by op, then by falling time (unknown first); lexsort is stable: equal parts keep their order.
    order = np.lexsort((-np.where(known, seconds[0], np.inf), parts.of))
    owners, first = np.unique(parts.of[order], return_index=True)
    total = np.add.reduceat(seconds[:, order], first, axis=1)
    places = estimates.places_of(wanted, owners)
    places = places[(places >= 0) & ~np.isnan(total[0, places])]
    longest = order[first[places]]
    pieces = np.add.reduceat(parts.runs[order], first)[places]
    weakest = np.maximum.reduceat(ranks[order], first)[places]
    op = parts.rows.text("op")

    def evidence(place: int) -> str:
        at = int(longest[place])
        text = parts.answers.evidence(int(parts.at[at]))
        return f"sum of {pieces[place]:g} parts; longest part {op.at(at)}: {text}"

    limit = parts.answers.limit.taken(parts.at[longest])
    return Answers(owners[places], total[:, places], Words(weakest, TIME_SOURCES), limit, evidence)


_WHERE = "add_times"
_TIMES = [column.name for column in TIMES]
_IDENTITY = ["kind", "op", "dtype", "engine", "pass_name", *(column.name for column in (*DIMENSIONS, *COSTS))]


BACKWARD = 2.9
"""Time of the backward pass of an attention in one kernel over its forward pass: five products against two, at
0.7 to 1 of the rate. Of 32 pairs from six libraries, eight of ten are between 2.5 and 3.4 (docs/adr/0055)."""
BACKWARD_FASTER, BACKWARD_SLOWER = 0.15, 0.4
"""Standard deviations of its logarithm. The slow side is wider because the training library may differ from the
one whose forward pass was timed: on one device backward passes took 1 to 1.7 times the time of the fastest."""


@estimates.opened_by(
    lambda rows, _machine: is_in(rows, "kind", "attention") & is_in(rows, "pass_name", "backward")
)
def attention_gradients(chosen: Rows, machine: Machine, interval: float, *, table: Estimator) -> Answers:
    """Predict the backward pass of attention from its forward pass, where that is one kernel (an `Estimator`).

    Returns those rows whose forward pass ``table`` can predict. A library that stores no scores in the forward
    pass recomputes them, and does not write and read them as separate ops would.
    """
    half = {name: chosen.number(name) / 2 for name in ("flop", "byte")}  # two products, not four
    known = table(chosen.assign(pass_name=BASELINE, **half), machine, interval)
    faster, slower = (np.exp(op_half_width(interval) * one) for one in (BACKWARD_FASTER, BACKWARD_SLOWER))

    def evidence(place: int) -> str:
        return f"{BACKWARD} × its {BASELINE} pass ({known.source.at(place)}, {known.evidence(place)})"

    times = transfer.widen(known.times, faster, slower) * BACKWARD
    return Answers(known.index, times, estimates.transferred(known.source), known.limit, evidence)


FUSED = ("forward", "backward_input", "backward_weight")
WALKED, AT_ONCE = (5.5, 0.55, 1.29), (18.0, 0.07, 0.33)
"""Kernel launches per step besides the product (or for all steps together, for the gradient of the weights), and
the half-widths of the 80 % interval below and above [ln], from DeepBench's recurrences (docs/adr/0065)."""


def _fuses(machine: Machine) -> bool:
    """Return whether recurrent layers run as library calls: on devices that state processors and launch cost."""
    return machine.device.units is not None and machine.device.launch_s is not None


def _recurrences(rows: Rows, machine: Machine) -> Flags:
    of_known = is_in(rows, "kind", "rnn") & is_in(rows, "cell", *GATES) & is_in(rows, "pass_name", *FUSED)
    return of_known & servable(rows, "rnn") & _fuses(machine)


@estimates.opened_by(_recurrences)
def recurrences(rows: Rows, machine: Machine, interval: float, *, product: Estimator) -> Answers:
    """Predict recurrences that no table has from their products and the launches of a library (an `Estimator`)."""
    forward, once = (is_in(rows, "pass_name", name) for name in FUSED[::2])
    batch, steps, hidden = (rows.number(name) for name in ("batch", "steps", "hidden_size"))
    cell, runs = rows.text("cell"), np.where(once, 1.0, steps)
    width, rest = hidden * cell.mapped([GATES.get(word, 0.0) for word in cell.words], float), batch * steps / runs
    walks = np.where(forward, [rest, width, hidden], [rest, hidden, width])
    m, n, k = np.where(once, [width, hidden, rest], walks)
    sizes = {"b": 1.0, "m": m, "n": n, "k": k, "trans_a": once * 1.0, "trans_b": forward * 1.0}
    flop, byte, *_ = gemm(1.0, m, n, k, item_bytes(rows))
    known = product(rows.assign(kind="gemm", **sizes, flop=flop, byte=byte), machine, interval)
    at = estimates.places_of(known.index, rows.index)
    launches, faster, slower = np.where(once[at], np.array([AT_ONCE]).T, np.array([WALKED]).T)
    start_s = launches * value_of(machine.device.launch_s)
    time_s, wider = runs[at] * (known.time_s + start_s), op_half_width(interval) / op_half_width(DEFAULT_LEVEL)

    def evidence(place: int) -> str:
        return f"{runs[at[place]]:g} × {launches[place]:g} launches and a product ({known.evidence(place)})"

    limit = choose_words(start_s > known.time_s, "launch", known.limit)
    times = np.array([time_s, time_s * np.exp(-faster * wider), time_s * np.exp(slower * wider)])
    return Answers(known.index, times, estimates.transferred(known.source), limit, evidence)


_ATEN = "native_dropout _fused_dropout bernoulli bernoulli_ rand rand_like uniform_"
_OTHER = "Dropout Bernoulli RandomUniform RandomUniformLike StatelessRandomUniform StatelessRandomUniformV2"
DRAWS = frozenset((*(f"aten::{name}" for name in _ATEN.split()), *_OTHER.split()))
"""Ops that draw a random number for each element, by the names of three frameworks."""
DRAW_S = np.array([[1.5e-10], [0.8e-10], [3.6e-10]])
"""Time of drawing one random number on one processor besides the traffic [s], and its bounds (docs/adr/0060)."""
TWO_KERNELS = "aten::_softmax_backward_data"
"""On a GPU, a kernel of its own multiplies gradient and result first (ATen's SoftMax.cu, docs/adr/0081)."""


def _does_more(rows: Rows, machine: Machine) -> Flags:
    """Select untimed ops with work besides their traffic, on devices that state their number of processors."""
    timings = machine.timings
    timed = estimates.cached(timings, None, "ops", lambda: frozenset(as_rows(timings).text("op").words))
    does = is_in(rows, "op", *(DRAWS | {TWO_KERNELS}) - timed) & ~is_in(rows, "kind", "copy")
    return does & (machine.device.units is not None)


def further_work(
    rows: Rows, found: Answers, machine: Machine, interval: float, price_kernels: Callable[[Rows], Answers]
) -> Answers:
    """Add drawing random numbers, or a gradient's first kernel, to ops that do so; ``found`` covers the rest."""
    at = np.flatnonzero(_does_more(rows, machine)[places := estimates.places_of(found.index, rows.index)])
    if not len(at):
        return found
    own, time_s, units = rows.take(places[at]), found.time_s[at], value_of(machine.device.units)
    twice, numel = is_in(own, "op", TWO_KERNELS), own.number("numel")
    moved = item_bytes(own) * numel
    added = np.where(twice, 3 * moved / own.number("byte") * time_s, DRAW_S * numel / units)
    if twice.any():
        sizes = {"read_byte": 2 * moved, "write_byte": moved, "byte": 3 * moved}
        product = own.assign(kind="pointwise", op="aten::mul", inputs=2.0, **sizes)
        first = price_kernels(product.take(np.flatnonzero(twice)))
        priced = estimates.places_of(first.index, own.index)
        added[:, priced] = first.times
    ratio, least, most = 1 + added / time_s
    wider, times = half_width(interval) / half_width(DEFAULT_LEVEL), found.times.copy()
    times[:, at] = transfer.widen(times[:, at], (ratio / least) ** wider, (most / ratio) ** wider) * ratio
    words = np.where(twice, "the product of gradient and result", "the drawing of random numbers").tolist()
    factors = {place: (ratio[number], words[number]) for number, place in enumerate(at.tolist())}

    def evidence(place: int) -> str:
        if place not in factors:
            return found.evidence(place)
        as_much = f"an op of this traffic ({found.source.at(place)}, {found.evidence(place)})"
        return f"{factors[place][0]:.2f} × {as_much}, with {factors[place][1]}"

    source = found.source.replaced(at, estimates.transferred(found.source.taken(at)))
    return Answers(found.index, times, source, lambda: found.limit, evidence)


@estimates.opened_by(lambda rows, _machine: is_in(rows, "kind", "attention") & is_in(rows, "engine", "matrix"))
def one_kernel(rows: Rows, machine: Machine, interval: float, *, steps: Sequence[Estimator]) -> Answers:
    """Predict attention on a matrix engine that no table has as one kernel, from other machines (an `Estimator`).

    Frameworks run it as one kernel in these number formats, with any mask; parts would write and read all scores.
    """
    return _in_turn(rows, machine, interval, steps)


TABLE = (exact.estimate, partial(attention_alike, table=interpolate.estimate), interpolate.estimate)


def estimator_cascade() -> tuple[tuple[Estimator, ...], tuple[Estimator, ...]]:
    """List the estimators by priority; the first that can predict a row does.

    1. products with packed weights, from the prediction for whole weights; 2. the op was timed; 3. the product was
    timed in other storage orders only; 4. similar ops were timed, here and on other machines; 5. its forward pass
    was timed; 6. one of these applies in the other 16-bit format of the matrix engine, or to the forward pass of
    an attention; 7. attention on a matrix engine is one kernel; 8. a recurrence is its products, on devices that
    state their processors; 9. the op is a sum of library calls whose recurrences are predicted so, or were timed;
    10. it is a sum of parts; 11. it moves data like a timed element-wise op or like its own forward pass, a copy
    with addresses; 12. it is a collective on a stated link; 13. the machine's rates apply, for the backward
    pass of an attention through its forward pass; else the op stays unpriced.

    Returns the estimators before the sums, and those after them.
    """
    table = partial(_in_turn, steps=TABLE)
    timed = (exact.estimate, partial(transfer.another_order, table=table), *TABLE[1:],
             partial(transfer.estimate, table=table))  # fmt: skip
    formats = partial(transfer.another_format, table=partial(_in_turn, steps=timed))
    whole = partial(_in_turn, steps=(*timed, formats, prior.estimate))
    facts = (partial(attention_alike, table=prior.estimate, by_facts=True), prior.estimate)
    by_rates = (partial(attention_gradients, table=partial(_in_turn, steps=facts)), *facts)
    before = (partial(transfer.packed_weights, table=whole), *timed, formats,
              partial(attention_gradients, table=partial(_in_turn, steps=(*timed, formats))),
              partial(one_kernel, steps=by_rates), partial(recurrences, product=whole))  # fmt: skip
    after = (partial(transfer.copied_data, table=table), partial(transfer.moved_data, table=table),
             partial(transfer.row_gradients, table=table), exchange.estimate_collective, *by_rates)  # fmt: skip
    return before, after


def _in_turn(rows: Table, machine: Machine, interval: float, steps: Sequence[Estimator]) -> Answers:
    found: list[Answers] = []
    rows = as_rows(rows)
    pending = np.ones(len(rows), bool)
    for estimate in steps:
        if not pending.any():
            break
        query = rows if pending.all() else rows.take(pending)
        answers = estimate(query, machine, interval)
        if len(answers):
            found.append(answers)
            pending[estimates.places_of(answers.index, rows.index)] = False
    return estimates.join_answers(found)


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
    return Answers(found.index, times, found.source, lambda: found.limit, found.evidence)


def as_added(kinds: Words, sources: Words, times: Matrix, interval: float) -> Matrix:
    """Return value and bounds (3, n) of times that are added up; the value of interpolated times is the mean.

    A library that is slow for one shape causes skewed errors, which average out in a sum if independent. Where ops
    err together (products of similar sizes, ops far from every timed one) the median stays (docs/adr/0061).

    `times`: of ops of these kinds and time sources, with the bounds of normal errors at the level ``interval``.
    """
    alone, times = (kind for kind, view in VIEWS.items() if view.waves is None), times.copy()
    interpolated, z = np.flatnonzero(sources.is_in("interpolated") & kinds.is_in(*alone)), half_width(interval)
    longer = estimates.means(times[:, interpolated], z) - times[0, interpolated]
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

    def counted(found: Answers) -> Answers:
        found = further_work(rows, found, machine, interval, kernels)
        if in_sums:
            kinds = rows.text("kind").taken(estimates.places_of(found.index, rows.index))
            times, one = as_added(kinds, found.source, found.times, interval), found
            found = Answers(one.index, times, one.source, lambda: one.limit, one.evidence)
        return exact.with_halves(rows, found, machine, interval, partial(_in_turn, steps=TABLE))

    is_op = is_in(rows, "piece", "")
    if is_op.all():
        return name_bounds(rows, counted(_in_turn(rows, machine, interval, (*before, *after))), machine)
    known = _in_turn(rows, machine, interval, before)
    pending = estimates.places_of(rows.index, known.index) < 0
    waiting = pending & (estimates.places_of(rows.index, rows.number("of")[~is_op].astype(np.int64)) >= 0)
    rest = _in_turn(rows.take(pending & ~waiting), machine, interval, after)
    known = name_bounds(rows, counted(estimates.join_answers([known, rest])), machine)
    ops = known.chosen(np.flatnonzero(is_op[estimates.places_of(known.index, rows.index)]))
    calls, parts = (_parts(rows, word, known.noted(notes)) for word in (CALL, PART))
    sums = [partial(_sum, parts=one) for one in (calls if _fuses(machine) else calls.fully_timed(), parts)]
    rest = _in_turn(rows.take(waiting), machine, interval, (*sums, *after))
    return estimates.join_answers([ops, name_bounds(rows, rest, machine)])


def _sum(rows: Table, _machine: Machine, _interval: float, *, parts: Parts) -> Answers:
    return add_up(parts, as_rows(rows).index)


def add_times(
    costed: pd.DataFrame,
    machine: Machine,
    *,
    interval: float = 0.8,
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
    built = _as_built(machine)
    pieces = [
        one.assign(piece=word) for one, word in ((calls, CALL), (parts, PART)) if one is not None and len(one)
    ]
    query, first = _distinct(pd.concat([costed, *pieces], ignore_index=True) if pieces else costed)
    rows, notes = settle(query, built)
    answers = answers_on(rows, price(rows, built, interval, notes, in_sums=in_sums), machine, interval)
    return with_answers(costed, answers.noted(notes), first[: len(costed)])


def answers_on(rows: Rows, answers: Answers, machine: Machine, interval: float) -> Answers:
    """Rescale predictions for the machine as built, if the machine is a changed one."""
    if machine.origin is None:
        return answers
    # The times that were stated for the changed machine itself are used, and the others rescaled.
    own = prepared(stated(machine))
    known = name_bounds(rows, exact.estimate(rows, own, interval), own)
    rest = answers.chosen(np.flatnonzero(~np.isin(answers.index, known.index)))
    built = replace(machine, timings=_as_built(machine).timings)
    return estimates.join_answers([known, rescale_answers(rows, rest, built)])


def _as_built(machine: Machine) -> Machine:
    return replace(prepared(original(machine)), links=machine.links)


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
