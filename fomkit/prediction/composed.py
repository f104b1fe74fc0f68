"""Estimators of ops that are predicted from other ops: as the sum of their components, or from an op like them.

An op may consist of other ops, as a recurrent layer does of its library calls: `add_up` sums their times. Others
have the time of another op and of work besides it: the backward pass of an attention (`attention_gradients`), a
recurrence (`recurrences`), ops that draw random numbers (`further_work`), and mixtures of experts (`with_halves`).
Others have the time of the same work in another shape: a product as padded (`padded_products`), attention of head
widths that no table has (`attention_alike`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd

from fomkit.core.interval import DEFAULT_LEVEL, half_width, op_half_width
from fomkit.core.machine import Machine
from fomkit.core.units import ITEM_BYTE
from fomkit.ops.columns import Words, cached, choose_words
from fomkit.ops.families.costs import GATES, attention, gemm
from fomkit.ops.tables import TIME_SOURCES
from fomkit.prediction import estimators, monotone, tiles, transfer
from fomkit.prediction.estimators import Answers, Estimator, Rows, as_rows, is_in, item_bytes, numbers, places_of
from fomkit.prediction.families import servable
from fomkit.prediction.gp import Flags, Indices, Matrix, Places
from fomkit.prediction.prior import bounded_by
from fomkit.prediction.rates import cached_byte, value_of
from fomkit.prediction.transfer import BASELINE, widen

CALL, PART = "call", "part"
"""Values of the column ``piece`` of rows that are components of an op: its library calls (preferred) or its parts.
The column ``of`` is the index of that op, ``count`` the executions of the component per execution of the op."""


VECTOR_BYTE = 16.0  # numbers that are loaded at once


class Components(NamedTuple):
    """The components of ops, and the prediction for each.

    `of` (n,): index of the op; `runs` (n,): executions of the component per execution of that op.
    `answers`: predictions of the components; `at` (n,): the position of each there, -1 where it has no time.
    """

    rows: Rows
    of: Indices
    runs: Matrix
    answers: Answers
    at: Places

    def fully_timed(self) -> Components:
        """Keep the components of those ops whose recurrences all have a time from the machine's own table."""
        timed = np.zeros(len(self.of), bool)
        known = self.at >= 0
        timed[known] = self.answers.source.is_in("measured", "interpolated", "extrapolated")[self.at[known]]
        lacking = self.of[~timed & is_in(self.rows, "kind", "rnn")]
        kept = np.flatnonzero(estimators.places_of(self.of, lacking) < 0)
        return Components(self.rows.take(kept), self.of[kept], self.runs[kept], self.answers, self.at[kept])


def components_of(rows: Rows, word: str, answers: Answers) -> Components:
    """Select the components of one sort, `CALL` or `PART`, with their predictions."""
    own = rows.take(is_in(rows, "piece", word))
    of, runs = own.number("of").astype(np.int64), own.number("count")
    return Components(own, of, runs, answers, estimators.places_of(own.index, answers.index))


def add_up(parts: Components, wanted: Indices) -> Answers:
    """Add up the predicted times of the wanted ops' components; ops with an untimed component are left out.

    Bounds of intervals add up like the values, because the parts of an op err together. The source of a sum is the
    weakest of its parts.
    """
    if not len(parts.of):
        return estimators.join_answers([])
    known = parts.at >= 0
    seconds, ranks = np.full((3, len(known)), np.nan), np.zeros(len(known), np.intp)
    source = parts.answers.source
    seconds[:, known] = parts.answers.times[:, parts.at[known]] * parts.runs[known]
    ranks[known] = source.mapped([TIME_SOURCES.index(word) for word in source.words], np.intp)[parts.at[known]]
    # Sort by op, then by falling time (unknown first); lexsort is stable: equal parts keep their order.
    order = np.lexsort((-np.where(known, seconds[0], np.inf), parts.of))
    owners, first = np.unique(parts.of[order], return_index=True)
    total = np.add.reduceat(seconds[:, order], first, axis=1)
    places = estimators.places_of(wanted, owners)
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


BACKWARD = 2.9
"""Time of the backward pass of an attention in one kernel over its forward pass: five products against two, at
0.7 to 1 of the rate. Of 32 pairs from six libraries, eight of ten are between 2.5 and 3.4 (docs/adr/0055)."""
BACKWARD_FASTER, BACKWARD_SLOWER = 0.15, 0.4
"""Standard deviations of its logarithm. The slow side is wider because the training library may differ from the
one whose forward pass was timed: on one device backward passes took 1 to 1.7 times the time of the fastest."""


@estimators.opened_by(
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
    return Answers(known.index, times, estimators.transferred(known.source), known.limit, evidence)


def _is_padded(rows: Rows, machine: Machine) -> Flags:
    of_engine = is_in(rows, "kind", "gemm") & is_in(rows, "engine", "matrix") & ~(tiles.thinness(rows) > 0)
    by_whom = (tiles.digit_bytes(rows) < tiles.NARROW_BYTE) | (machine.device.units is None)
    return of_engine & by_whom & ~tiles.runs_in_tiles(rows, "matrix")


@estimators.opened_by(_is_padded)
def padded_products(rows: Rows, machine: Machine, interval: float, *, product: Estimator) -> Answers:
    """Predict products whose rows are no whole vectors of 16 bytes as those in which they are (an `Estimator`).

    Where a library has no kernel for such rows, programs pad the factors: NVIDIA's and AMD's have none for numbers
    of one byte or less, and compilers for other engines (TPU, AMX, …) always pad. In 16 bits libraries for GPUs
    run slower kernels instead, which facts predict (`families.aligned`).
    """
    items, padded = np.maximum(VECTOR_BYTE / tiles.digit_bytes(rows), 1.0), rows
    for side in ("m", "n", "k"):
        whole = np.ceil(rows.number(side) / items) * items
        size = whole if side != "m" else np.where(rows.number("trans_a") > 0, whole, rows.number("m"))
        padded = monotone.resized(padded, np.full(len(rows), monotone.SIDES.index(side)), size)
    known = product(padded, machine, interval)
    at = estimators.places_of(known.index, rows.index)

    def evidence(place: int) -> str:
        size = " × ".join(f"{padded.number(name)[at[place]]:g}" for name in ("m", "k", "n"))
        return f"padded to {size} ({known.source.at(place)}, {known.evidence(place)})"

    return Answers(known.index, known.times, estimators.transferred(known.source), known.limit, evidence)


FUSED = ("forward", "backward_input", "backward_weight")
WALKED, AT_ONCE = (5.5, 0.55, 1.29), (18.0, 0.07, 0.33)
"""Kernel launches per step besides the product (or for all steps together, for the gradient of the weights), and
the half-widths of the 80 % interval below and above [ln], from DeepBench's recurrences (docs/adr/0065)."""


def runs_library_calls(machine: Machine) -> bool:
    """Return whether recurrent layers run as library calls: on devices that state processors and launch cost."""
    return machine.device.units is not None and machine.device.launch_s is not None


def _recurrences(rows: Rows, machine: Machine) -> Flags:
    of_known = is_in(rows, "kind", "rnn") & is_in(rows, "cell", *GATES) & is_in(rows, "pass_name", *FUSED)
    return of_known & servable(rows, "rnn") & runs_library_calls(machine)


@estimators.opened_by(_recurrences)
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
    at = estimators.places_of(known.index, rows.index)
    launches, faster, slower = np.where(once[at], np.array([AT_ONCE]).T, np.array([WALKED]).T)
    start_s = launches * value_of(machine.device.launch_s)
    time_s, wider = runs[at] * (known.time_s + start_s), op_half_width(interval) / op_half_width(DEFAULT_LEVEL)

    def evidence(place: int) -> str:
        return f"{runs[at[place]]:g} × {launches[place]:g} launches and a product ({known.evidence(place)})"

    limit = choose_words(start_s > known.time_s, "launch", known.limit)
    times = np.array([time_s, time_s * np.exp(-faster * wider), time_s * np.exp(slower * wider)])
    return Answers(known.index, times, estimators.transferred(known.source), limit, evidence)


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
    timed = cached(timings, None, "ops", lambda: frozenset(as_rows(timings).text("op").words))
    does = is_in(rows, "op", *(DRAWS | {TWO_KERNELS}) - timed) & ~is_in(rows, "kind", "copy")
    return does & (machine.device.units is not None)


def further_work(
    rows: Rows, found: Answers, machine: Machine, interval: float, price_kernels: Callable[[Rows], Answers]
) -> Answers:
    """Add drawing random numbers, or a gradient's first kernel, to ops that do so; ``found`` covers the rest."""
    at = np.flatnonzero(_does_more(rows, machine)[places := estimators.places_of(found.index, rows.index)])
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
        priced = estimators.places_of(first.index, own.index)
        added[:, priced] = first.times
    ratio, least, most = 1 + added / time_s
    wider = half_width(interval) / half_width(DEFAULT_LEVEL)
    times = transfer.widen(found.times[:, at], (ratio / least) ** wider, (most / ratio) ** wider) * ratio

    def evidence(number: int, place: int) -> str:
        as_much = f"an op of this traffic ({found.source.at(place)}, {found.evidence(place)})"
        work = "the product of gradient and result" if twice[number] else "the drawing of random numbers"
        return f"{ratio[number]:.2f} × {as_much}, with {work}"

    source = found.source.replaced(at, estimators.transferred(found.source.taken(at)))
    return found.changed(at, times, evidence, source)


UNTUNED = 1.25
"""Ratio of a mixture's time to that of two of half its width from which its kernel counts as not tuned. Libraries
choose the tiles of experts by width and board, from files that lack many widths. The ratio is larger for 0.01 to
0.9 % of the pairs in the whole tables of five boards; for Mixtral's experts on H100 it is 1.9 (docs/adr/0087)."""


def with_halves(rows: Rows, found: Answers, machine: Machine, interval: float, table: Estimator) -> Answers:
    """Lower the low bounds of experts of a table to what a tuned kernel would reach.

    Experts are no slower than two mixtures of half their width: those compute the same. Where timings say so, the
    kernel is not tuned for the width on this board; another version or library may run it as fast as the halves.
    Halves that a cache holds prove nothing. `table`: predicts the halves; ``found`` covers ``rows`` or a part.
    """
    places = estimators.places_of(found.index, rows.index)
    of_table = found.source.is_in("measured", "interpolated", "extrapolated")
    at = np.flatnonzero(is_in(rows, "kind", "experts")[places] & of_table)
    half = {name: rows.number(name)[places[at]] / 2 for name in ("n", "flop", "byte")}
    at, large = at[(big := half["byte"] > cached_byte(machine.device))], np.flatnonzero(big)
    if not len(at):
        return found
    halves = rows.take(places[at]).assign(**{name: column[large] for name, column in half.items()})
    known = table(halves, machine, interval)
    at = at[estimators.places_of(known.index, halves.index)]
    longer = (ratio := found.time_s[at] / (2 * known.time_s)) > UNTUNED
    at, ratio, halves_s = at[longer], ratio[longer], 2 * known.time_s[longer]
    (value, low, high) = found.times[:, at]

    def evidence(number: int, place: int) -> str:
        how = f"{ratio[number]:.2f} × as long as two of half the width, to which the low bound reaches"
        return f"{found.evidence(place)}; {how}"

    return found.changed(at, np.array([value, np.minimum(low, halves_s), high]), evidence)


NARROWEST = 64.0  # kernels of attention pad narrower heads to this width
WITHOUT_MASK, OTHER_WIDTH = 0.25, 0.3
"""Standard deviations of ln(time): of attention without a mask by attention with one, and per octave between the
width of its heads and the nearest timed one (docs/adr/0093)."""
CHUNKS = "chunk"  # attention of several queries over more keys
Shapes = Mapping[str, tuple[float, float]]
"""The narrowest and widest timed heads of attention, by part (`tiles.attention_parts`) or `CHUNKS`."""
BY_FACTS: Shapes = {"": (NARROWEST, np.inf), tiles.DECODE: (NARROWEST, np.inf)}
OF_16_BITS: Shapes = {**BY_FACTS, "full": (NARROWEST, NARROWEST)}
"""Those from which facts predict; wider heads of encoders ran by programs that other boards need not use."""


def _is_chunk(rows: Rows) -> Flags:
    return (numbers(rows, "q_len") > 1) & (numbers(rows, "q_len") < numbers(rows, "kv_len"))


def _timed_shapes(timings: pd.DataFrame, dtype: str) -> Shapes:
    own = estimators.as_rows(timings)
    own = own.take(is_in(own, "kind", "attention") & is_in(own, "dtype", dtype))
    part, width = np.where(_is_chunk(own), CHUNKS, tiles.attention_parts(own)), numbers(own, "head_dim")
    return {one: (float(width[part == one].min()), float(width[part == one].max())) for one in {*part.tolist()}}


def _as_shapes(rows: Rows, shapes: Shapes) -> tuple[Flags, Matrix, Matrix]:
    """Return which attention is predicted as masked squares, heads as padded, and octaves to the nearest timed."""
    part, width = tiles.attention_parts(rows), numbers(rows, "head_dim")
    width = np.maximum(width, min([NARROWEST, *(one for one, _ in shapes.values())]))
    least, most = shapes.get("full", (np.inf, 0.0))
    beside = numbers(rows, "q_len") > numbers(rows, "kv_len")  # others' few keys, or a window: as many small tiles
    unmasked = (part == "full") & (beside | (width < least) | (width > most))
    window = (part == tiles.WINDOW) & (tiles.WINDOW not in shapes)
    squares = (unmasked | window | (_is_chunk(rows) & (CHUNKS not in shapes))) & ("" in shapes)
    apart, part = np.zeros(len(rows)), np.where(squares, "", part)
    for name, (least, most) in shapes.items():
        apart[part == name] = np.log2(np.maximum(least / width, width / most))[part == name]
    return squares, width, np.maximum(apart, 0.0)


def _as_squares(rows: Rows) -> Rows:
    """Return attention as that of as many masked squares as have its tiles: their side is its number of keys."""
    sizes = ("batch", "q_len", "kv_len", "heads", "kv_heads", "head_dim")
    batch, queries, keys, heads, groups, width = (numbers(rows, name) for name in sizes)
    side = np.maximum(keys, np.minimum(queries, tiles.TILE))
    squares = rows.assign(q_len=side, kv_len=side, causal=1.0)
    many = batch * queries / side * tiles.computed_share(rows) / tiles.computed_share(squares)
    flop, byte, _ = attention(BASELINE, many, heads, groups, side, side, width, estimators.item_bytes(rows))
    return squares.assign(batch=many, flop=flop, byte=byte)


def _by_shapes(
    rows: Rows, shapes: Shapes, predict: Callable[[Rows], Answers], one_query: Callable[[Rows], Answers],
    interval: float,
) -> Answers:  # fmt: skip
    squares, width, apart = _as_shapes(rows, shapes)
    which = squares | (width > numbers(rows, "head_dim")) | (apart > 0)
    rows, squares, width, apart = rows.take(which), squares[which], width[which], apart[which]
    padded = width / numbers(rows, "head_dim")
    wide = rows.assign(head_dim=width, flop=numbers(rows, "flop") * padded)
    queried = (_as_squares(wide.take(squares)), wide.take(~squares))
    known = estimators.join_answers([predict(some) for some in queried if len(some)])
    at = places_of(known.index, rows.index)
    factor = np.exp(op_half_width(interval) * np.hypot(WITHOUT_MASK * squares, OTHER_WIDTH * apart))[at]
    times = widen(known.times, factor, factor)
    times[1] /= np.minimum(padded[at], 2.0)  # there may be a kernel of half the width

    def evidence(place: int) -> str:
        row, text = at[place], known.evidence(place)
        sort = "masked attention of as many tiles" if squares[row] else "attention"
        return f"as {sort}, heads of {width[row]:g} ({text})" if squares[row] or padded[row] > 1 else text

    source = choose_words(squares[at], estimators.transferred(known.source), known.source)
    found = _or_all_scores(Answers(known.index, times, source, known.limit, evidence), wide.take(squares), predict)
    return _by_one_query(found, wide, squares & _is_chunk(rows), one_query, interval)


def _or_all_scores(found: Answers, rows: Rows, predict: Callable[[Rows], Answers]) -> Answers:
    """Raise the high bounds of windows: some programs compute all scores of the prompt."""
    rows = rows.take(tiles.attention_parts(rows) == tiles.WINDOW)
    if not len(rows):
        return found
    more = numbers(rows, "q_len") / numbers(rows, "kv_len")
    known = predict(rows.assign(kv_len=numbers(rows, "q_len"), flop=numbers(rows, "flop") * more))
    times, at = found.times.copy(), places_of(known.index, found.index)
    times[2, at] = np.maximum(times[2, at], known.time_s)
    return found.timed(times)


def _by_one_query(
    found: Answers, rows: Rows, chunks: Flags, predict: Callable[[Rows], Answers], interval: float
) -> Answers:
    """Bound several queries over more keys: they take at least as long as one query.

    Where all queries of the heads that share keys fit one tile, they take no longer than one query of as many
    heads: libraries pack them so.
    """
    queries, heads, flop = (numbers(rows, name) for name in ("q_len", "heads", "flop"))

    def of_one(which: Flags, more: Matrix | float) -> Answers:
        one = rows.assign(q_len=1.0, heads=heads * more, flop=flop * more / queries)
        return _may_not_pack(predict(one.take(which)) if which.any() else estimators.NO_ANSWERS, interval)

    packed = chunks & (queries * heads <= tiles.TILE * numbers(rows, "kv_heads"))
    shorter = bounded_by(found, of_one(packed, queries))
    return bounded_by(shorter, of_one(chunks, 1.0), longer=True)


def _may_not_pack(known: Answers, interval: float) -> Answers:
    """Raise the high bound: a library may not pack the queries that read the same keys into one tile."""
    return known.timed(widen(known.times, 1.0, np.exp(op_half_width(interval) * WITHOUT_MASK)))


def _as_one_query(rows: Rows, predict: Callable[[Rows], Answers], interval: float) -> Answers:
    """Predict queries over a cache that all heads share: to a kernel, a query's heads are rows like any others."""
    queries, heads, flop = (numbers(rows, name) for name in ("q_len", "heads", "flop"))
    one = rows.assign(q_len=1.0, causal=0.0)
    known = predict(one.assign(heads=heads * queries))
    at = places_of(known.index, rows.index)

    def evidence(place: int) -> str:
        return f"as one query of {queries[at[place]]:g} times as many heads ({known.evidence(place)})"

    packed = Answers(known.index, known.times, estimators.transferred(known.source), known.limit, evidence)
    return bounded_by(_may_not_pack(packed, interval), predict(one.assign(flop=flop / queries)), longer=True)


def _is_latent(rows: Rows) -> Flags:
    return numbers(rows, "shared_dim") > 0


def _may_be_alike(rows: Rows, _machine: Machine) -> Flags:
    fused = is_in(rows, "kind", "attention") & is_in(rows, "engine", "matrix") & is_in(rows, "pass_name", BASELINE)
    return fused & (~_is_latent(rows) | _is_chunk(rows))


@estimators.opened_by(_may_be_alike)
def attention_alike(
    rows: Rows, machine: Machine, interval: float, *, table: Estimator, one_query: Estimator | None = None,
    by_facts: bool = False,
) -> Answers:  # fmt: skip
    """Predict attention of shapes that no table has by those of shapes that tables have (an `Estimator`).

    Without a mask, with heads of a width that was timed with a mask only or with fewer keys than queries, it takes
    as long as masked attention of as many tiles. So do several queries over more keys, but no longer than one
    query of as many more heads (one tile), and no less than one query; over a latent cache they are such a query.
    Narrow heads are padded. `one_query`: predicts one query over a cache, else ``table``; `by_facts`: the
    machine's table is not used.
    """

    def predict(some: Rows) -> Answers:
        return table(some, machine, interval)

    def single(some: Rows) -> Answers:
        return (one_query or table)(some, machine, interval)

    shared = _is_latent(rows)
    found, rows = [_as_one_query(rows.take(shared), predict, interval)], rows.take(~shared)
    for dtype in {*rows.text("dtype").words}:
        own = rows.take(is_in(rows, "dtype", dtype))
        make = partial(_timed_shapes, machine.timings, dtype)
        facts = OF_16_BITS if ITEM_BYTE[dtype] == 2 else BY_FACTS
        known = facts if by_facts else cached(machine.timings, None, f"attention in {dtype}", make)
        if len(own) and known:
            found.append(_by_shapes(own, known, predict, single, interval))
    return estimators.join_answers(found)
