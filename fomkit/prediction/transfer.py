"""Estimators for ops that the table lacks, where it has the same work done in another way.

The other way is another pass, storage order or number format, or an op with the same traffic; typically the ratio
of both times is known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np
import pandas as pd

from fomkit.core.interval import op_half_width
from fomkit.core.machine import Machine
from fomkit.core.units import ITEM_BYTE, STANDS_IN
from fomkit.ops.columns import Words, alike, cached, words_of
from fomkit.ops.kinds import KINDS
from fomkit.ops.pricing import cost_columns
from fomkit.ops.tables import PASSES
from fomkit.prediction import estimators
from fomkit.prediction.estimators import Answers, Estimator, Rows, Table, is_in, numbers, places_of
from fomkit.prediction.gp import Flags, Matrix
from fomkit.prediction.prior import VECTOR, utilisation_of
from fomkit.prediction.rates import Bounds, bounds, rates, throttled, value_of
from fomkit.prediction.typical import TypicalUtilisations

BASELINE = "forward"
TRANSFERRED: Mapping[str, tuple[str, ...]] = {"conv": ("backward_input", "backward_weight")}
"""Kinds and passes that are predicted from the forward pass: they do the same work in another order.

On the nine training tables of DeepBench, without other timings of the machine's chip, the median error is 19 %
(input) and 30 % (weight). Recurrent layers are not predicted so: their weight gradient is one product over all
steps, off by a factor of two.
"""


def bound_utilisation(rows: Table, machine: Machine, interval: float) -> tuple[Bounds, TypicalUtilisations, Flags]:
    """Return the floors of ops on a machine, their typical utilisation, and where both are known."""
    machine = throttled(machine)
    utilisation, found = utilisation_of(rows, machine, interval), bounds(rows, machine)
    return found, utilisation, ~np.isnan(utilisation.value) & ~np.isnan(found.floor_s)


def widen(times: Matrix, faster: Matrix | float, slower: Matrix | float) -> Matrix:
    """Return times and bounds (3, q), with the interval widened by these factors to the fast and the slow side."""
    time_s, low_s, high_s = times
    below = np.hypot(np.log(time_s / low_s), np.log(faster))
    above = np.hypot(np.log(high_s / time_s), np.log(slower))
    return np.array([time_s, time_s / np.exp(below), time_s * np.exp(above)])


def _answers(known: Answers, wanted: TypicalUtilisations, baseline: TypicalUtilisations, bound: Words) -> Answers:
    ratio = baseline.value / wanted.value
    times = widen(known.times, wanted.high / wanted.value, wanted.value / wanted.low) * ratio

    def evidence(place: int) -> str:
        return (
            f"{ratio[place]:.2g} × its {BASELINE} pass ({known.source.at(place)}, {known.evidence(place)}), "
            f"ratio of utilisations: {wanted.source[place]}; {baseline.source[place]}"
        )

    return Answers(known.index, times, "transferred", bound, evidence)


def without_pass(machine: Machine, kind: str, pass_name: str) -> Machine:
    """Return the machine without the other machines that timed a kind, but not this pass: a ratio needs both."""
    known = machine.typical.of if machine.typical is not None else {}
    machines_of = {
        name: {one.machine for one in work.known} for name, work in known.items() if name.startswith(f"{kind}/")
    }
    timed = set[str]().union(*(names for name, names in machines_of.items() if name.endswith(f"/{pass_name}")))
    return replace(machine, excluded=(*machine.excluded, *sorted(set[str]().union(*machines_of.values()) - timed)))


@estimators.opened_by(
    lambda rows, machine: np.any(
        [
            is_in(rows, "kind", *{kind} & estimators.timed_kinds(machine)) & is_in(rows, "pass_name", *words)
            for kind, words in TRANSFERRED.items()
        ],
        axis=0,
    )
)
def estimate(chosen: Rows, machine: Machine, interval: float, *, table: Estimator) -> Answers:
    """Predict gradients of convolutions on a machine whose table has their forward pass only (an `Estimator`).

    time = forward time · typical utilisation of the forward pass / that of the gradient. The forward time includes
    the efficiency of the machine's own library, which peak and bandwidth do not: a slow library is slow in each
    pass. Returns the rows whose forward pass ``table`` predicts.
    """
    forward = chosen.assign(pass_name=BASELINE)
    known = table(forward, machine, interval)
    groups, numbers_of = estimators.same_texts(chosen, "kind", "pass_name")
    found = []
    for number, (kind, word) in enumerate(groups):
        at, of = np.flatnonzero(numbers_of == number), without_pass(machine, kind, word)
        limits, wanted, is_known = bound_utilisation(chosen.take(at), of, interval)
        _, baseline, is_baseline = bound_utilisation(forward.take(at), of, interval)
        places = places_of(chosen.index[at], known.index)
        good = (places >= 0) & is_known & is_baseline
        utilisations = wanted.chosen(good), baseline.chosen(good)
        found.append(_answers(known.chosen(places[good]), *utilisations, limits.names.taken(good)))
    return estimators.join_answers(found)


ADDRESS, COPIED_SPREAD = 50.0, 0.12
"""Instructions to find a number's address in a copy that changes the order of axes, and the deviation of ln(time):
0.1 on each of five boards by the value of the four others, 40 to 50, wider for so few (docs/adr/0075)."""

FORWARD_FLOP: Mapping[str, float] = {"norm": 8 / 13, "softmax": 5 / 4}
"""Kinds whose gradients take the same time per byte as their forward pass, and flop of that pass over flop of the
gradient (`ops.families.costs`). Both passes go over rows and are bound by memory; an element-wise op, which
does not sum up, moves up to a third more byte/s."""

BACKWARD = tuple(word for word in PASSES if word.startswith("backward"))

FEWEST = 8
"""Timings of a storage order from which a table counts as having it; fits need the same number for a family."""

ORDER_SPREAD, BROAD_ORDER_SPREAD, BROAD = 0.32, 0.12, 256.0
"""Standard deviation of ln(time) between storage orders of one product, and the same if it has at least `BROAD`
rows and columns. On the tables of DeepBench (11 sheets, 847 pairs) eight of ten broad products are within a factor
of 1.16, of the others within 1.5. With each sheet predicted from the ten others, 43 to 100 % of the intervals of
broad ones hit, 77 % in the mean: products of one sheet err alike (docs/adr/0048)."""

FORMAT_SPREAD, BLOCK_SPREAD = 0.15, 0.3
"""Standard deviation of ln(time) between fp16 and bf16 of one op on a matrix engine. No table has both of one
library. Products timed in fp16 by Vidur and in bf16 by aiconfigurator differ by 0.12 on A100 (2,079) and 0.16 on
H100 (1,147; root mean square), other versions and harnesses included (``benchmarks/format_spread.py``): an upper
bound. For kinds other than products it is an assumption.

The second is for a format of scaled blocks from fp8 with one scale, at one rate: where aiconfigurator also timed
fp8 with a scale for each 128 numbers, eight of ten products above 20 us take 0.69 to 1.22 times as long on the
H100, and 0.7 to 1.6 on the B200. The same is assumed for formats of another rate."""

FOLLOWS, FOLLOWS_S = (0.55, 0.35), 1e-4
"""Exponent with which a time follows the ratio of two formats' floors: for an op of 100 us in the timed format,
and its increase per factor of ten in time. Starts, and the joining of products, are as long in either. Chosen on
experts that aiconfigurator timed in bf16 and in fp8 on H100 and H200 with one library: 0.73 of the time at 60 us,
0.62 at 200 us, 0.57 at 500 us, 0.46 at 3 ms, where the rates predict 0.5. On B200 and GB200 those with a scale for
each 128 numbers take 0.9 to 1.5 of it, by kernels of their own; none with a single scale are timed."""

PACKED = ("gemm", "experts")
"""Kinds whose weights may be stored narrower than they are multiplied."""
UNPACKING, TOGETHER = 0.3, 1.5
"""Share of the peak at which experts with packed weights multiply, and the power with which this time and that of
their traffic add up. Fitted to experts in int4 (Marlin) on A100, H100 and L40S (docs/adr/0103)."""
DEFAULT_SUM_DTYPE = "fp32"


class _Sibling(NamedTuple):
    """The format whose timings replace another's on a matrix engine, and that other's peak over its own."""

    dtype: str
    rate: float


def _classes(products: Table) -> Words:
    """Return the classes of products with separate fits; libraries have other kernels for batched ones."""
    pairs, numbers_of = estimators.same_texts(products, "dtype", "engine")
    names = ["/".join((*pair, word)) for pair in pairs for word in ("single", "batched")]
    return Words(2 * numbers_of + (numbers(products, "b") > 1), tuple(names))


def _orders(products: Table) -> Matrix:
    """Return the storage orders as numbers; NaN where a factor's is not stated."""
    return 2 * numbers(products, "trans_a") + numbers(products, "trans_b")


def _timed_orders(timings: pd.DataFrame) -> dict[str, dict[float, int]]:
    """Count the timings of each storage order by class, for classes in which every timing states its order."""
    known = estimators.as_rows(timings).take(is_in(timings, "kind", "gemm"))
    table: dict[str, dict[float, int]] = {}
    for group, orders in pd.Series(_orders(known)).groupby(_classes(known).cells()):
        # An order that is not stated may be any, so a class with one such timing counts as having all orders.
        if orders.notna().all():
            table[str(group)] = {float(str(order)): int(count) for order, count in orders.value_counts().items()}
    return table


def _faster_of_mirrored(asked: Rows, stored: Rows, known: Answers, mirrored: Answers) -> Matrix:
    """Return the times (3, q) of products from another order, by the faster of two equivalent shapes.

    Aᵀ·B transposed is Bᵀ·A: the same product with rows and columns exchanged and the same storage, as is A·Bᵀ. In
    the timed order these are two products, of which one may use a slow kernel: on an MI100 512 × 64 takes a
    quarter of 64 × 512.
    """
    alike_both_ways = asked.number("trans_a") + asked.number("trans_b") == 1
    at, there = (places_of(known.index, one) for one in (stored.index, mirrored.index))
    times = known.times.copy()
    better = (there >= 0) & alike_both_ways[at]
    better[better] &= mirrored.time_s[there[better]] < known.time_s[better]
    times[:, better] = mirrored.times[:, there[better]]
    return times


def _commonest_orders(products: Table, timings: pd.DataFrame) -> Matrix:
    """Return the commonest storage order of each product's class in the table; NaN where the table has its own."""
    table = cached(timings, None, "storage orders", partial(_timed_orders, timings))
    classes, orders = _classes(products), _orders(products)
    first, number = alike([classes.codes, orders])
    found = np.full(len(first), np.nan)
    for place, at in enumerate(first.tolist()):
        here, wanted = table.get(classes.at(at), {}), float(orders[at])
        if not math.isnan(wanted) and here.get(wanted, 0) < FEWEST <= max(here.values(), default=0):
            found[place] = max(here, key=lambda order: here[order])
    return found[number]


DEEP = 256
"""Depth of a product from which a few more numbers do not change its time."""


@estimators.opened_by(
    lambda rows, machine: (
        is_in(rows, "kind", *{"gemm"} & estimators.timed_kinds(machine))
        & all(name in machine.timings.columns for name in ("trans_a", "trans_b"))
    )
)
def another_order(products: Rows, machine: Machine, interval: float, *, table: Estimator) -> Answers:
    """Predict products in a storage order that the table lacks from the order that it has, with a wider interval.

    An `Estimator` of those products of whose storage order the table has fewer than `FEWEST` timings.
    """
    orders = _commonest_orders(products, machine.timings)
    lacking = ~np.isnan(orders)
    if not lacking.any():
        return estimators.join_answers([])
    chosen, orders = products.take(lacking), orders[lacking]
    # Deep products whose rows run along the depth in neither operand, such as gradients of weights, read every
    # depth equally well; products in the table's storage order may not, so their depth is one of whole vectors.
    k = numbers(chosen, "k")
    across = (numbers(chosen, "trans_a") > 0) & ~(numbers(chosen, "trans_b") > 0) & (k >= DEEP)
    depth = np.where(across, np.ceil(k / VECTOR) * VECTOR, k)
    longer = depth / k
    flop, byte = (numbers(chosen, name) * longer for name in ("flop", "byte"))
    stored = chosen.assign(trans_a=orders // 2, trans_b=orders % 2, k=depth, flop=flop, byte=byte)
    broad = np.minimum(numbers(chosen, "m"), numbers(chosen, "n")) >= BROAD
    spread = np.exp(op_half_width(interval) * np.where(broad, BROAD_ORDER_SPREAD, ORDER_SPREAD))
    known = table(stored, machine, interval)
    mirrored = table(stored.assign(m=stored.number("n"), n=stored.number("m")), machine, interval)
    times = _faster_of_mirrored(products.take(lacking), stored, known, mirrored)
    places = places_of(known.index, stored.index)
    times /= longer[places]
    order, spread = orders[places], spread[places]

    def evidence(place: int) -> str:
        around = "factors exchanged, " if times[0, place] < known.time_s[place] else ""
        return (
            f"{around}timed with trans_a {order[place] // 2:g}, trans_b {order[place] % 2:g}; its own storage "
            f"order is not in the table ({known.source.at(place)}, {known.evidence(place)})"
        )

    return Answers(known.index, widen(times, spread, spread), "transferred", known.limit, evidence)


def _sum_dtypes(timings: pd.DataFrame) -> dict[tuple[str, str], set[str]]:
    """Return the accumulation formats that the timings of each number format and engine state."""
    found: dict[tuple[str, str], set[str]] = {}
    for dtype, engine, sums in estimators.same_texts(timings, "dtype", "engine", "accumulate_dtype")[0]:
        found.setdefault((dtype, engine), set()).update(filter(None, (sums,)))
    return found


def siblings(machine: Machine) -> dict[str, _Sibling]:
    """Return, by number format, the format whose timings replace it on the machine's matrix engine.

    Peaks of both are stated, with the same accumulation format (default fp32), and no timing has another.
    """
    peaks = [peak for peak in machine.device.peaks if peak.engine == "matrix"]
    timed = cached(machine.timings, None, "formats of sums", partial(_sum_dtypes, machine.timings))
    found: dict[str, _Sibling] = {}
    for own, there in product(peaks, peaks):
        if there.dtype == STANDS_IN.get(own.dtype):
            sums = {one.accumulate_dtype or DEFAULT_SUM_DTYPE for one in (own, there)}
            if len(sums) == 1 and timed.get((there.dtype, "matrix"), set()) <= sums:
                found.setdefault(own.dtype, _Sibling(there.dtype, own.rate.value / there.rate.value))
    return found


def in_another_format(rows: Table, machine: Machine) -> Rows:
    """Return, in the format of its sibling, each row of a matrix engine whose number format has one here."""
    rows, pairs = estimators.as_rows(rows), siblings(machine)
    chosen = rows.take(is_in(rows, "engine", "matrix") & is_in(rows, "dtype", *pairs))
    known = chosen.text("dtype")
    other = [pairs[word].dtype if word in pairs else word for word in known.words]
    like = chosen.assign(dtype=words_of(known.codes, other))
    return like.assign(byte=chosen.number("byte") * estimators.item_bytes(like) / estimators.item_bytes(chosen))


@estimators.opened_by(
    lambda rows, machine: is_in(rows, "engine", "matrix") & is_in(rows, "dtype", *siblings(machine))
)
def another_format(rows: Rows, machine: Machine, interval: float, *, table: Estimator) -> Answers:
    """Predict ops of a matrix engine from timings of a similar number format, with a wider interval.

    Typically both formats have as many bits and the same peak. Where the peaks differ, and for formats of scaled
    blocks (predicted from fp8), the time follows the ratio of the floors, with the bytes of each format, as far as
    `FOLLOWS` says; the interval reaches from the full ratio to none. An `Estimator` of rows whose format and its
    `siblings` have stated peaks, and which ``table`` predicts in the other format.
    """
    like = in_another_format(rows, machine)
    known = table(like, machine, interval)
    places = places_of(known.index, rows.index)
    own, there = rows.take(places), like.take(places)
    ratio = bounds(own, machine).floor_s / bounds(there, machine).floor_s
    words = own.text("dtype").cells()
    rate = np.array([siblings(machine)[word].rate for word in words])
    plain = (rate == 1) & np.array([ITEM_BYTE[word] % 1 == 0 for word in words], bool)  # no bytes of scales
    full = np.where(rate == 1, 0.0, np.log(np.where(np.isnan(ratio), 1 / rate, ratio)))
    spread = op_half_width(interval) * np.where(plain, FORMAT_SPREAD, BLOCK_SPREAD)
    ratio, times = _by_floors(known, full, spread)
    formats = there.text("dtype").cells()

    def evidence(place: int) -> str:
        scaled = "" if ratio[place] == 1 else f"{ratio[place]:.2g} × "
        return f"{scaled}as timed in {formats[place]} ({known.source.at(place)}, {known.evidence(place)})"

    return Answers(known.index, times, "transferred", known.limit, evidence)


def _by_floors(known: Answers, full: Matrix, apart: Matrix | float) -> tuple[Matrix, Matrix]:
    """Scale times by the ratios of floors, whose logarithms are ``full``, with the exponent of `FOLLOWS`.

    `apart`: half width of the other uncertainty, in logarithms. Returns the ratios of the times, and the times
    with their bounds (3, q).
    """
    share = np.clip(FOLLOWS[0] + FOLLOWS[1] * np.log10(known.time_s / FOLLOWS_S), 0.0, 1.0)
    # Distances of the time from the full ratio, and from no change: a format may also have the lower rate.
    slower, faster = np.exp(np.hypot(apart, np.sort(np.stack([(share - 1) * full, share * full]), axis=0)))
    ratio = np.exp(share * full)
    return ratio, widen(known.times, faster, slower) * ratio


def _while_unpacking(rows: Rows, machine: Machine) -> Matrix:
    """Return the floors of products, of experts with slower arithmetic that only partly overlaps with traffic."""
    alone = (bounds(rows.assign(**{other: np.zeros(len(rows))}), machine) for other in ("byte", "flop"))
    compute_s, memory_s = (one.floor_s for one in alone)
    both = ((compute_s / UNPACKING) ** TOGETHER + memory_s**TOGETHER) ** (1 / TOGETHER)
    return np.where(is_in(rows, "kind", "experts"), both, np.maximum(compute_s, memory_s))


@estimators.opened_by(lambda rows, _machine: numbers(rows, "weight_share") < 1)
def packed_weights(rows: Rows, machine: Machine, interval: float, *, table: Estimator) -> Answers:
    """Predict products whose weights are stored narrower than they are multiplied, from those with whole weights.

    The time follows the ratio of the floors as in `another_format`: less traffic, the same arithmetic. The
    conversion of the weights is counted for experts alone (`UNPACKING`); some programs for these take as long as
    with whole weights. An `Estimator` of rows that ``table`` predicts with whole weights.
    """
    names = {*(name for kind in PACKED for name in KINDS[kind].columns), "kind", "dtype"}
    frame = rows.frame(sorted(name for name in names if rows.has(name))).assign(weight_share=1.0)
    whole = rows.assign(weight_share=np.ones(len(rows)), byte=cost_columns(frame, ["byte"], {})["byte"])
    known = table(whole, machine, interval)
    at = places_of(known.index, rows.index)
    full = np.log(_while_unpacking(rows.take(at), machine) / _while_unpacking(whole.take(at), machine))
    ratio, times = _by_floors(known, np.nan_to_num(full), op_half_width(interval) * BLOCK_SPREAD)

    def evidence(place: int) -> str:
        return f"{ratio[place]:.2g} × with unpacked weights ({known.source.at(place)}, {known.evidence(place)})"

    return Answers(known.index, times, estimators.transferred(known.source), known.limit, evidence)


def _has_element_wise(machine: Machine) -> bool:
    return "pointwise" in estimators.timed_kinds(machine)


def _element_wise(rows: Rows) -> Rows:
    return rows.assign(
        kind="pointwise", engine="vector", pass_name=BASELINE, op="", inputs=np.nan, flop=rows.number("numel")
    )


def _copied(rows: Rows, machine: Machine) -> Flags:
    """Select copies that read as well as write, on devices of known processors and rate: `ADDRESS` is of GPUs."""
    rate = rates(machine, "fp32", "vector").flop_per_s
    known = _has_element_wise(machine) and None not in (machine.device.units, rate)
    return is_in(rows, "kind", "copy") & (numbers(rows, "read_byte") > 0) & known


@estimators.opened_by(_copied)
def copied_data(chosen: Rows, machine: Machine, interval: float, *, table: Estimator) -> Answers:
    """Predict copies: traffic as of element-wise ops and, added as a square, its addresses (an `Estimator`)."""
    known, side = table(_element_wise(chosen), machine, interval), np.exp(op_half_width(interval) * COPIED_SPREAD)
    numel = chosen.number("numel")[places_of(known.index, chosen.index)]
    flop_per_s = value_of(rates(machine, "fp32", "vector").flop_per_s)  # a multiply-add is 2 flop
    ratio = np.hypot(1.0, 2 * ADDRESS * numel / (flop_per_s * known.time_s))

    def evidence(place: int) -> str:
        return f"{ratio[place]:.2f} × an element-wise op ({known.source.at(place)}, {known.evidence(place)})"

    times = widen(known.times, side, side) * ratio
    return Answers(known.index, times, "transferred", known.limit, evidence)


@estimators.opened_by(lambda rows, machine: is_in(rows, "kind", "pointwise") & _has_element_wise(machine))
def moved_data(chosen: Rows, machine: Machine, interval: float, *, table: Estimator) -> Answers:
    """Predict element-wise ops of other passes from the machine's own element-wise ops.

    A forward op of the same traffic takes the place of each. The interval is widened by the spread of ops of the
    kind at equal traffic. An `Estimator` of rows for which ``table`` predicts such an op.
    """
    known = table(_element_wise(chosen), machine, interval)
    return _from_same_traffic(chosen, known, machine, interval, "an element-wise op")


@estimators.opened_by(
    lambda rows, machine: (
        is_in(rows, "kind", *FORWARD_FLOP.keys() & estimators.timed_kinds(machine))
        & is_in(rows, "pass_name", *BACKWARD)
    )
)
def row_gradients(chosen: Rows, machine: Machine, interval: float, *, table: Estimator) -> Answers:
    """Predict gradients of norms and of softmax from the machine's own forward passes over the same rows.

    time = forward time · bytes of the gradient / bytes of the forward pass, which reads and writes each element
    once. The interval is widened as in `moved_data`. An `Estimator` of gradients of the kinds in `FORWARD_FLOP`
    whose forward pass ``table`` predicts.
    """
    kinds, once = chosen.text("kind"), chosen.number("numel") * estimators.item_bytes(chosen)
    forward_share = kinds.mapped([FORWARD_FLOP.get(kind, np.nan) for kind in kinds.words], float)
    like = chosen.assign(
        pass_name=BASELINE, op="", inputs=np.nan, read_byte=once, write_byte=once, byte=2 * once,
        flop=chosen.number("flop") * forward_share,
    )  # fmt: skip
    known = table(like, machine, interval)
    more = (chosen.number("byte") / (2 * once))[places_of(known.index, chosen.index)]
    scaled = Answers(known.index, known.times * more, known.source, known.limit, known.evidence)
    return _from_same_traffic(chosen, scaled, machine, interval, f"its {BASELINE} pass")


def _from_same_traffic(chosen: Rows, known: Answers, machine: Machine, interval: float, what: str) -> Answers:
    """Use the predictions of ops of equal traffic, widened by the typical spread of the kind."""
    limits, reached, is_known = bound_utilisation(chosen, machine, interval)
    places = places_of(chosen.index, known.index)
    good = (places >= 0) & is_known
    utilisation, same = reached.chosen(good), known.chosen(places[good])

    def evidence(place: int) -> str:
        return f"as {what} of this traffic ({same.source.at(place)}, {same.evidence(place)})"

    times = widen(same.times, utilisation.high / utilisation.value, utilisation.value / utilisation.low)
    return Answers(same.index, times, "transferred", limits.names.taken(good), evidence)
