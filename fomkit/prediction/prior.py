"""Estimator: the longer of arithmetic and traffic at the machine's rates and the kind's typical utilisation.

What limits a timed op, and why it may be faster than the datasheet allows.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial

import numpy as np

from fomkit.core.machine import Fact, Machine
from fomkit.core.units import format_quantity
from fomkit.prediction import images
from fomkit.prediction.estimates import Answers, Rows, Table, are, as_rows, choose_words, numbers, places_of
from fomkit.prediction.gp import Matrix, Places
from fomkit.prediction.monotone import SIDES, growing_axes, lines, resized, sizes_along
from fomkit.prediction.rates import Bounds, Rates, bounds, rates, starts_beside
from fomkit.prediction.typical import TypicalUtilisations, typical_utilisation

DEPTH, VECTOR = SIDES.index("k"), 16.0
"""The depth among a product's sides, and numbers of it that are read at once."""
PRODUCTS_AT_ONCE = 40_000
"""Products whose smaller batches are priced together; each may have some ten, with all their columns."""


def _evidence(
    known: Rates, utilisation: float, source: str, launch: Fact | None, starts: float, start_s: float
) -> str:
    words = [known.describe(), f"utilisation {utilisation:.2g}, {source}"]
    if known.flop_per_s is None:
        words.append("no peak known, traffic only")
    if launch is None:
        words.append("launch cost unknown, left out")
    elif starts:
        words.append(f"{starts:g} launch{'es' if starts > 1 else ''} of {format_quantity(start_s, 'time_s', 2)}")
    return "; ".join(words)


def _times(rows: Rows, found: Bounds, utilisation: TypicalUtilisations, machine: Machine) -> Matrix:
    """Give value, ends, and the value without launches (4, q) [s], by the floors and the typical utilisation."""
    kernel_s = found.floor_s / utilisation.value
    # The typical utilisation and the stated rate err independently; both are factors.
    faster = np.hypot(np.log(utilisation.high / utilisation.value), np.log(found.high))
    slower = np.hypot(np.log(utilisation.value / utilisation.low), np.log(found.low))
    starts, ends = _starts(rows, utilisation, machine.device.launch_s)
    start_s, low_s, high_s = (starts_beside(kernel_s, starts * end) for end in ends)
    time_s = kernel_s + start_s
    below = np.hypot(kernel_s * (1 - np.exp(-faster)), start_s - low_s)
    above = np.hypot(kernel_s * (np.exp(slower) - 1), high_s - start_s)
    return np.stack([time_s, time_s - below, time_s + above, kernel_s])


def _starts(
    rows: Rows, utilisation: TypicalUtilisations, launch: Fact | None
) -> tuple[Matrix, tuple[float, float, float]]:
    """Give the launches that are added to each row, and what one costs with its ends [s]."""
    ends = (0.0, 0.0, 0.0) if launch is None else (launch.value, launch.low, launch.high)
    return np.where(utilisation.started, 0.0, numbers(rows, "launches", 0.0)), ends


def _never_falling(rows: Rows, places: Places, machine: Machine, interval: float, stepped: bool) -> Matrix:
    """Do what `_running_maxima` does for some rows, so many at once that memory stays bounded."""
    parts = (places[at : at + PRODUCTS_AT_ONCE] for at in range(0, len(places), PRODUCTS_AT_ONCE))
    return np.concatenate([_running_maxima(rows.take(part), machine, interval, stepped) for part in parts], 1)


def _running_maxima(rows: Rows, machine: Machine, interval: float, stepped: bool) -> Matrix:
    """Give what `_times` does (4, q) [s] of products, which take no longer with a smaller batch.

    What other machines reach rises and falls with the size: their kernels like multiples of some numbers, and the
    floor of a few rows stays where it is while more of it is reached. Whether this machine's library does so too,
    nobody knows. So the times at the powers of two up to the size, each at least the one before, are joined by
    straight lines. Products in tiles (`stepped`) begin another row of tiles with one row more than a power of two:
    these sizes count too.
    """
    axes = growing_axes(rows)
    size = sizes_along(rows, axes)
    first, line, _ = lines(rows, axes)
    rungs = 2.0 ** np.arange(np.ceil(np.log2(size.max(initial=1.0))) + 1)
    if stepped:
        rungs = np.unique([rungs, rungs + 1])
    last = np.maximum(np.searchsorted(rungs, size), 0)
    below = np.maximum(last - (rungs[last] > size), 0)
    base, sizes = np.repeat(first, len(rungs)), np.tile(rungs, len(first))
    # A depth of one more begins no row of tiles, and is read otherwise than one of whole vectors.
    sizes = np.where((axes[base] == DEPTH) & (sizes > VECTOR), np.floor(sizes / VECTOR) * VECTOR, sizes)
    smaller = resized(rows.take(base), axes[base], sizes)
    utilisation = typical_utilisation(smaller, machine, interval)
    times = _times(smaller, bounds(smaller, machine), utilisation, machine).reshape(4, len(first), len(rungs))
    times = np.maximum.accumulate(times, 2)
    left, right = times[:, line, below], times[:, line, last]
    share = (size - rungs[below]) / np.maximum(rungs[last] - rungs[below], 1.0)
    return np.asarray(left + (right - left) * share, np.float64)


def _answers(
    rows: Rows, found: Bounds, utilisation: TypicalUtilisations, machine: Machine, interval: float
) -> Answers:
    times, launch = _times(rows, found, utilisation, machine), machine.device.launch_s
    products = are(rows, "kind", "gemm")
    for stepped in (False, True):
        at = np.flatnonzero(products & (utilisation.started == stepped))
        if len(at):
            times[:, at] = _never_falling(rows, at, machine, interval, stepped)
    # Time less launches may round to 0.
    kernel_s, (starts, (start_s, _, _)) = times[3], _starts(rows, utilisation, launch)
    shown_s = np.divide(times[0] - kernel_s, starts, out=np.zeros(len(rows)), where=starts > 0)
    reached = np.divide(found.floor_s, kernel_s, out=utilisation.value.copy(), where=kernel_s > 0)
    known_of = cache(partial(rates, machine))

    dtypes, engines = (rows.text(name) for name in ("dtype", "engine"))

    def evidence(place: int) -> str:
        known = known_of(dtypes.words[dtypes.codes[place]], engines.words[engines.codes[place]])
        return _evidence(known, reached[place], utilisation.source[place], launch, float(starts[place]),
                         float(shown_s[place]))  # fmt: skip

    bound = choose_words(starts * start_s > kernel_s, "launch", found.names)
    return Answers(rows.index, times[:3], "roofline", bound, evidence)


def estimate(rows: Table, machine: Machine, interval: float) -> Answers:
    """Predict rows from rates alone.

    time = max(flop / peak, byte / bandwidth) / utilisation + what launches add (`rates.starts_beside`). The
    utilisation is what other, timed machines would reach (`typical`), and their disagreement gives the interval,
    together with the spread of the facts. A product takes no longer with a smaller batch. Products in tiles were
    timed with their start, so no launch is added to theirs.

    An `Estimator` of the rows for which every rate that their kind needs is known, as stated, else as fitted to
    the machine's table.
    """
    rows = as_rows(rows)
    found, utilisation = bounds(rows, machine), images.typical_utilisation(rows, machine, interval)
    known = ~np.isnan(found.floor_s) & ~np.isnan(utilisation.value)
    if not known.all():
        rows, found, utilisation = rows.take(known), found.chosen(known), utilisation.chosen(known)
    return _answers(rows, found, utilisation, machine, interval)


REASONS: Mapping[tuple[str, str], str] = {("attention", "compute"): "a fused kernel skips the masked half"}
"""Why a kind beats its binding rate; other kinds beat arithmetic by boost clocks and traffic by caches."""

LESS_ARITHMETIC = "Winograd or FFT need less arithmetic"
UNEXPLAINED = "more than boost clocks explain, also"
"""Of 434 convolutions above the peak in DeepBench's training sheets these are 20, all of the P100 in fp16."""

AT_MOST: Mapping[str, float] = {
    "a fused kernel skips the masked half": 2.0,
    "boost clocks": 1.0,
    "caches hold part of the data": 3.5,
}
"""How many times faster each reason can make an op, `BOOST` aside; beyond it nothing is explained away."""

DEFAULT_REASONS: Mapping[str, str] = {"compute": "boost clocks", "memory": "caches hold part of the data"}

BOOST = 1.1
"""How far boost clocks carried matrix products above a datasheet's peak (DeepBench, GTX 1080 Ti: 1.07)."""

REACHED = 0.95
"""Most of a stated bandwidth that is believed of a machine that nobody timed: the fastest hundredth of each kind
on ten timed boards reaches 0.52 to 0.96 of it (5,200 products, attentions and streams larger than any cache)."""

CACHED_BYTE = 2.7e8
"""Operands [byte] up to this size may lie in a cache; the largest last level known is 256 MiB (AMD MI300X)."""

_OF_A_TABLE = ("measured", "interpolated", "extrapolated", "transferred")


def _reason(kind: str, bound: str, byte: float, share: float, least: float) -> str:
    """Say why a time is a share of the floor, where the cheapest known algorithm needs a share of the flop."""
    if bound == "memory" and byte > CACHED_BYTE:
        return "no cache holds so much; the table or the stated bandwidth is off"
    if kind == "conv" and bound == "compute" and share * BOOST < least:
        return f"{UNEXPLAINED} by the cheapest algorithm known here, {least:.0%} of the arithmetic"
    if bound == "compute" and least < 1:
        return f"{LESS_ARITHMETIC}, down to {least:.0%}"
    reason = REASONS.get((kind, bound), DEFAULT_REASONS[bound])
    if share * BOOST * AT_MOST[reason] < 1:
        return f"no reason known here gives so much ({reason}: up to {AT_MOST[reason] * BOOST:.1f} times)"
    return reason


def _least(rows: Rows, found: Bounds, answers: Answers) -> Matrix:
    """Give the least time, and the least ends of its interval (3, n), that a machine of these rates takes [s].

    0 where nothing bounds it: what was timed itself, kinds with short cuts, and traffic that a cache may hold. The
    arithmetic of a masked half may be skipped. Nothing makes memory faster than its rate; a machine that was not
    timed is not believed to come nearer to it than `REACHED`.
    """
    attention = are(rows, "kind", "attention")
    skipped = np.where(attention & found.compute & (numbers(rows, "causal", 0.0) > 0), 2.0, 1.0)
    cached = ~found.compute & (numbers(rows, "byte") <= CACHED_BYTE)
    bounded = (are(rows, "kind", "gemm") | attention) & ~answers.source.are("measured") & ~cached
    bounded &= ~np.isnan(found.floor_s) & ~found.fitted
    by_facts = ~found.compute & answers.source.are("roofline")
    least_s = np.repeat(found.floor_s[None] / found.high / np.where(by_facts, 1.0, BOOST) / skipped, 3, 0)
    least_s[0] = np.where(by_facts, found.floor_s / REACHED, least_s[0])
    return np.where(bounded, least_s, 0.0)


def name_bounds(rows: Rows, times: Answers, machine: Machine) -> Answers:
    """Name the bound of times that come from the table, and the reason of every time below the stated floor.

    The ends of a plain product that no machine of these rates could reach are lifted. Only stated rates count:
    fitted ones come from the same table and would prove nothing.

    `rows`: COSTED rows; `times`: what is known of them. Gives an Answers: ``times`` with bound compute, memory or
    launch where the rates are stated, and longer evidence.
    """
    rows = rows.take(places_of(times.index, rows.index))
    found = bounds(rows, machine)
    stated = ~np.isnan(found.floor_s) & ~found.fitted
    seconds = np.maximum(times.times, _least(rows, found, times))
    seconds[2] = np.maximum(seconds[2], seconds[0])
    lifted = times.time_s < seconds[0]
    launch = machine.device.launch_s
    starts_s = numbers(rows, "launches", 0.0) * (launch.value if launch is not None else 0.0)
    names = found.names
    bound = choose_words(starts_s > found.floor_s, "launch", names)
    of_table = stated & times.source.are(*_OF_A_TABLE)
    below = stated & (seconds[0] < found.floor_s)

    def evidence(place: int) -> str:
        message, name = times.evidence(place), names.at(place)
        if lifted[place]:
            floor = f"the {name} floor"
            less = f"{floor} over {REACHED:.0%}" if not below[place] else f"{floor} less {BOOST - 1:.0%}"
            message = f"{message}; lifted to {less}"
        if below[place]:
            share = seconds[0, place] / found.floor_s[place]
            byte, flop, least_flop = (float(numbers(rows, of)[place]) for of in ("byte", "flop", "least_flop"))
            reason = _reason(rows.text("kind").at(place), name, byte, share, least_flop / flop if flop else 1.0)
            message = f"{message}; {share:.0%} of the {name} floor: {reason}"
        return message

    return Answers(times.index, seconds, times.source, choose_words(of_table, bound, times.limit), evidence)
