"""Estimator: the longer of arithmetic and traffic at the machine's rates and the kind's typical utilisation.

What limits a timed op, and why it may be faster than the datasheet allows. What usual libraries make of images
on a device known by its facts: convolutions of a matrix engine, and norms.

A convolution is computed as a product without being one (implicit GEMM): its rows are positions of images, its
columns channels, its depth the channels and the kernel that a result is summed over. Tiles and waves are those
of `fomkit.prediction.tiles`; the traffic is that of the images and the kernel alone. Matrix engines take images
pixel by pixel, so one that lies channel by channel is turned on the way in, and on the way out.

Where each channel has a kernel of its own there is no product: vector units do it. The gradient of such a kernel
is summed by a block of threads for each of its weights, which reads both images anew; where they lie pixel by
pixel another library's kernel reads them once.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from fomkit.core.interval import op_half_width
from fomkit.core.machine import Fact, Machine
from fomkit.core.units import format_quantity
from fomkit.ops.columns import choose_words, significant
from fomkit.prediction import tiles
from fomkit.prediction.estimates import (
    Answers,
    Rows,
    Table,
    are,
    as_rows,
    item_bytes,
    numbers,
    places_of,
    same_texts,
)
from fomkit.prediction.families import conv_output
from fomkit.prediction.gp import Flags, Matrix, Places, Texts
from fomkit.prediction.monotone import SIDES, growing_axes, lines, resized, sizes_along
from fomkit.prediction.rates import SHOWN, Bounds, Rates, bounds, floors, held, kernel_start, rates, value_of
from fomkit.prediction.typical import TypicalUtilisations, spread_at, typical_utilisation

DEPTH, VECTOR = SIDES.index("k"), 16.0
"""The depth among a product's sides, and numbers of it that are read at once."""
PRODUCTS_AT_ONCE = 40_000
"""Products whose smaller batches are priced together; each may have some ten, with all their columns."""


ARITHMETIC = 1.5
"""Time of a convolution's tiles over that at the stated peak. DeepBench's fp16 convolutions on a V100 take 1.47 to
1.58 by pass. A board whose engine is held back (`tiles.spare_of`) takes no longer than its stated peak says."""
TRAFFIC = 1.25
"""Time of the traffic over that at the stated bandwidth, as the forms of six machines' products have it (1.15 to
1.37)."""
TURNING = 1.6
"""Time of turning an image over that of its traffic; half of it where a kernel of 1 allows a product as they lie.
This and the next figures: steps of image networks on an RTX 3090 (docs/adr/0051)."""
GROUPED = 1.5
"""How much longer tiles and traffic of a convolution in groups take."""
SPLITS = (1, 2, 4, 8, 16, 32, 64, 128)
"""Parts into which a gradient's sum over all positions may be cut."""
LOAD_BYTE = 16.0
"""Channels of a pixel are filled up to a multiple of this many bytes."""
VECTOR_SHARE = 1 / 3
"""Share of the vector units' peak at which kernels of single channels calculate, beside their traffic."""
GRADIENT_SLOWER = 1.15
"""How much longer gradients take that read both images once."""
BLOCKS = 8.0
"""Blocks of threads on a processor that are needed to keep memory busy."""
HELD_NUMBERS = 16_384
"""Numbers of a row that a processor holds: 1024 threads of 16 registers each."""
PASSES = {True: 3 / 2, False: 5 / 3}  # (reads twice, writes), (reads two tensors twice, writes)
"""Bytes moved over the least, forward and back."""
APART_SPREAD = 0.4
"""Standard deviation of ln(time) of convolutions in groups, of which no table tells."""


def _volume(rows: Table, *names: str) -> Matrix:
    return np.asarray(np.prod([numbers(rows, name) for name in names], 0), np.float64)


class _Sizes:
    """A convolution's sizes (n); of a transposed one, those of the plain one whose gradient it is."""

    def __init__(self, rows: Table) -> None:
        batch, transposed = numbers(rows, "batch"), numbers(rows, "transposed") > 0
        inside = _volume(rows, "depth", "height", "width")
        axes = (("depth", "d"), ("height", "h"), ("width", "w"))
        outside = np.prod([conv_output(rows, size, axis) for size, axis in axes], 0)
        stride = _volume(rows, "stride_d", "stride_h", "stride_w")
        channels = numbers(rows, "in_channels"), numbers(rows, "out_channels")
        self.groups = numbers(rows, "groups")
        self.kernel = _volume(rows, "kernel_d", "kernel_h", "kernel_w")
        # The wide side is the input of a plain convolution and the output of a transposed one.
        self.wide_positions = batch * np.where(transposed, inside * stride, inside)
        self.positions = batch * np.where(transposed, inside, outside)
        self.wide = np.where(transposed, channels[1], channels[0])
        self.narrow = np.where(transposed, channels[0], channels[1])
        passes = [are(rows, "pass_name", "forward"), are(rows, "pass_name", "backward_input")]
        self.gathers = np.where(transposed, passes[1], passes[0])
        self.scatters = np.where(transposed, passes[0], passes[1])
        self.byte = item_bytes(rows) * (self.wide_positions * self.wide + self.positions * self.narrow)

    def product(self, rows: Table) -> pd.DataFrame:
        """Give the products that they are: the few channels as rows, so that narrow tiles serve them."""
        step = LOAD_BYTE / item_bytes(rows)
        wide, narrow = (np.ceil(one / self.groups / step) * step for one in (self.wide, self.narrow))
        m = np.where(self.gathers, narrow, np.where(self.scatters, wide, narrow))
        n = np.where(
            self.gathers, self.positions, np.where(self.scatters, self.wide_positions, wide * self.kernel)
        )
        work = self.positions * wide * narrow * self.kernel
        sizes = {"b": self.groups, "m": m, "n": n, "k": work / m / n}
        dtypes = as_rows(rows).text("dtype").cells()
        return pd.DataFrame({**sizes, "dtype": dtypes, "byte": self.byte})


def _by_pixel(rows: Rows) -> Flags:
    """Tell which convolutions' images lie pixel by pixel."""
    layout = rows.text("layout")
    return np.asarray(layout.mapped([word.endswith("c") for word in layout.words], bool))


def _as_products(rows: Rows, sizes: _Sizes, chip: tiles.Chip, spare: float) -> Matrix:
    """Give how long convolutions of several channels take [s]."""
    product = tiles.tiled(sizes.product(rows), chip, SPLITS, spare)
    slower = np.where(sizes.groups > 1, GROUPED, 1.0)
    arithmetic_s = product.arithmetic_s * max(ARITHMETIC / spare, 1.0)
    together = np.hypot(arithmetic_s, TRAFFIC * numbers(rows, "byte") / chip.byte_per_s)
    turned = np.where(sizes.kernel > 1, TURNING, TURNING / 2) * 2 * sizes.byte / chip.byte_per_s
    turned = np.where(_by_pixel(rows), 0.0, turned * (1 - 1 / (1 + (sizes.byte / chip.cache_byte) ** 2)))
    return np.asarray(slower * together + product.joining_s + turned, np.float64)


def _of_single_channels(rows: Rows, sizes: _Sizes, chip: tiles.Chip, vector_flop_per_s: float) -> Matrix:
    """Give how long convolutions of single channels take [s]."""
    beside = numbers(rows, "flop") / (VECTOR_SHARE * vector_flop_per_s)
    through = (numbers(rows, "byte") / chip.byte_per_s + beside) * np.where(sizes.gathers, 1.0, GRADIENT_SLOWER)
    weights = sizes.narrow * sizes.kernel
    read = 2 * item_bytes(rows) * sizes.positions * np.maximum(weights, BLOCKS * chip.units)
    in_one_pass = sizes.gathers | sizes.scatters | _by_pixel(rows)
    return np.asarray(np.where(in_one_pass, through, read / chip.byte_per_s), np.float64)


def _convolutions(rows: Rows, machine: Machine, dtype: str, interval: float) -> tuple[Matrix, Texts] | None:
    """Give utilisation with its ends (3, q) and sources of a matrix engine's convolutions in a number format."""
    known, device = rates(machine, dtype, "matrix"), machine.device
    vector = device.peak("fp32", "vector")
    if known.flop_per_s is None or known.byte_per_s is None or vector is None:
        return None
    flop_per_s, byte_per_s = known.flop_per_s.value, known.byte_per_s.value
    chip = tiles.chip_of(device, flop_per_s, byte_per_s)
    if chip is None:
        return None
    sizes = _Sizes(rows)
    alone = (sizes.groups > 1) & (sizes.groups == sizes.wide)
    seconds = np.where(
        alone,
        _of_single_channels(rows, sizes, chip, vector.rate.value),
        _as_products(rows, sizes, chip, tiles.spare_of(device, dtype)),
    )
    floor_s, _ = floors(
        np.ones(len(rows), bool), numbers(rows, "flop"), numbers(rows, "byte"), flop_per_s, byte_per_s
    )
    reached = floor_s / seconds
    spread = np.where(alone | (sizes.groups > 1), APART_SPREAD, spread_at(np.log(reached)))
    factor = np.exp(op_half_width(interval) * spread)
    how = ("channel by channel on vector units of", "in tiles as a product on")
    words = (f"{one} {chip.units:.0f} processors" for one in how)
    return np.stack([reached, reached / factor, reached * factor]), np.where(alone, *words).astype(object)


def long_norms(rows: Table) -> Flags:
    """Tell which norms have rows that no processor holds."""
    return np.asarray(are(rows, "kind", "norm") & (numbers(rows, "row") > HELD_NUMBERS))


def _read_twice(rows: Rows, twice: Flags) -> tuple[Rows, Matrix]:
    """Take some norms for ops on single elements that move their tensors so many times; 1 of all others."""
    times = np.where(are(rows, "pass_name", "forward"), PASSES[True], PASSES[False])
    times = np.where(twice, times, 1.0)
    kinds, ops = (choose_words(twice, word, rows.text(name)) for name, word in (("kind", "pointwise"), ("op", "")))
    # Their names do not say that they load vectors, as those of ops on single elements do (`rates.narrower`).
    return rows.assign(kind=kinds, op=ops, byte=numbers(rows, "byte") * times), times


def utilisation_of(rows: Table, machine: Machine, interval: float) -> TypicalUtilisations:
    """Give what `typical_utilisation` does, with convolutions in tiles and norms that read twice.

    Convolutions of a matrix engine go by tiles where processors and cache are stated, else as others are usual.
    """
    rows = as_rows(rows)
    conv = are(rows, "kind", "conv") & are(rows, "engine", "matrix") & ~are(rows, "pass_name", "backward")
    twice = long_norms(rows)
    if not (conv | twice).any():
        return typical_utilisation(rows, machine, interval)
    ends, sources = np.full((3, len(rows)), np.nan), np.full(len(rows), "", object)
    started, rest = np.zeros(len(rows), bool), ~conv
    groups, number = same_texts(rows.take(conv), "dtype")
    for at_group, (dtype,) in enumerate(groups):
        at = np.flatnonzero(conv)[number == at_group]
        found = _convolutions(rows.take(at), machine, dtype, interval)
        if found is None:
            rest[at] = True
        else:
            ends[:, at], sources[at] = significant(found[0]), found[1]
    moved, times = _read_twice(rows, twice)
    if rest.any():
        got = typical_utilisation(moved.take(rest), machine, interval)
        ends[:, rest] = got.value, got.low, got.high
        sources[rest], started[rest] = got.source, got.started
    ends[:, twice] = significant(ends[:, twice] / times[twice])
    sources[twice] += ", its rows read twice"
    return TypicalUtilisations(ends[0], ends[1], ends[2], sources, started)


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
    start_s, low_s, high_s = (SHOWN * starts * end for end in ends)
    time_s = kernel_s + start_s
    below = np.hypot(kernel_s * (1 - np.exp(-faster)), start_s - low_s)
    above = np.hypot(kernel_s * (np.exp(slower) - 1), high_s - start_s)
    return np.array([time_s, time_s - below, time_s + above, kernel_s])


def _starts(
    rows: Rows, utilisation: TypicalUtilisations, launch: Fact | None
) -> tuple[Matrix, tuple[float, float, float]]:
    """Give the launches that are added to each row, and what one costs with its ends [s]."""
    ends = (0.0, 0.0, 0.0) if launch is None else (launch.value, launch.low, launch.high)
    return np.where(utilisation.started, 0.0, numbers(rows, "launches")), ends


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
    dtypes, engines = (rows.text(name) for name in ("dtype", "engine"))

    def evidence(place: int) -> str:
        known = rates(machine, dtypes.at(place), engines.at(place))
        return _evidence(known, reached[place], utilisation.source[place], launch, float(starts[place]),
                         float(shown_s[place]))  # fmt: skip

    bound = choose_words(starts * start_s > kernel_s, "launch", found.names)
    return Answers(rows.index, times[:3], "roofline", bound, evidence)


def _in_format(rows: Rows, machine: Machine, interval: float) -> Answers:
    """Predict rows in the number formats and on the engines that they state."""
    found, utilisation = bounds(rows, machine), utilisation_of(rows, machine, interval)
    known = ~np.isnan(found.floor_s) & ~np.isnan(utilisation.value)
    return _answers(rows.take(known), found.chosen(known), utilisation.chosen(known), machine, interval)


def _sooner(found: Answers, others: Answers) -> Answers:
    """Take from others what takes less."""
    at = places_of(found.index, others.index)
    both = np.flatnonzero(at >= 0)  # others may know none of them
    less = both[others.time_s[at[both]] < found.time_s[both]]
    times = found.times.copy()
    times[:, less] = others.times[:, at[less]]
    taken = set(less.tolist())

    def evidence(place: int) -> str:
        return f"sooner in fp32: {others.evidence(at[place])}" if place in taken else found.evidence(place)

    return Answers(
        found.index, times, found.source, found.limit.replaced(less, others.limit.taken(at[less])), evidence
    )


def estimate(rows: Table, machine: Machine, interval: float) -> Answers:
    """Predict rows from rates alone.

    time = max(flop / peak, byte / bandwidth) / utilisation + what launches show (`rates.SHOWN`). The peak
    is what a limit of power lets the machine hold (`rates.held`). The utilisation is what other, timed machines
    would reach (`typical`), and their disagreement gives the interval, together with the spread of the facts. A
    product takes no longer with a smaller batch. Products in tiles were timed with their start, so no launch is
    added to theirs. Where fp32 may be rounded to tf32 it need not be: what the vector units do sooner they do.

    An `Estimator` of the rows for which every rate that their kind needs is known, as stated, else as fitted to
    the machine's table.
    """
    rows, machine = as_rows(rows), held(machine)
    found, wide = _in_format(rows, machine, interval), np.flatnonzero(are(rows, "dtype", "tf32"))
    if not len(wide):
        return found
    return _sooner(found, _in_format(rows.take(wide).assign(dtype="fp32", engine="vector"), machine, interval))


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
STARTED = "the start of a kernel"
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


def _least(rows: Rows, found: Bounds, answers: Answers, start_s: Matrix) -> Matrix:
    """Give the least time, and the least ends of its interval (3, n), that a machine of these rates takes [s].

    0 where nothing bounds it: what was timed itself, kinds with short cuts, and traffic that a cache may hold. The
    arithmetic of a masked half may be skipped. Nothing makes memory faster than its rate; a machine that was not
    timed is not believed to come nearer to it than `REACHED`. Experts that a table tells of may be fewer. What is
    told of longer kernels takes the start of one, ``start_s`` (3, 1), at least.
    """
    attention = are(rows, "kind", "attention")
    experts = are(rows, "kind", "experts") & answers.source.are("roofline")
    skipped = np.where(attention & found.compute & (numbers(rows, "causal") > 0), 2.0, 1.0)
    cached = ~found.compute & (numbers(rows, "byte") <= CACHED_BYTE)
    bounded = (are(rows, "kind", "gemm") | attention | experts) & ~answers.source.are("measured") & ~cached
    bounded &= ~np.isnan(found.floor_s) & ~found.fitted
    by_facts = ~found.compute & answers.source.are("roofline")
    least_s = np.repeat(found.floor_s[None] / found.high / np.where(by_facts, 1.0, BOOST) / skipped, 3, 0)
    least_s[0] = np.where(by_facts, found.floor_s / REACHED, least_s[0])
    short = answers.source.are("extrapolated", "transferred") & (answers.time_s < start_s[0])
    return np.maximum(np.where(bounded, least_s, 0.0), np.where(short, start_s, 0.0))


def name_bounds(rows: Rows, times: Answers, machine: Machine) -> Answers:
    """Name the bound of times that come from the table, and the reason of every time below the stated floor.

    The ends of a plain product that no machine of these rates could reach are lifted. Only stated rates count:
    fitted ones come from the same table and would prove nothing.

    `rows`: COSTED rows; `times`: what is known of them, given back with bounds and longer evidence.
    """
    rows = rows.take(places_of(times.index, rows.index))
    found = bounds(rows, machine)
    stated = ~np.isnan(found.floor_s) & ~found.fitted
    start_s = kernel_start(machine.device)
    seconds = np.maximum(times.times, _least(rows, found, times, start_s))
    seconds[2] = np.maximum(seconds[2], seconds[0])
    lifted = times.time_s < seconds[0]
    starts_s = numbers(rows, "launches") * value_of(machine.device.launch_s)
    names = found.names
    bound = choose_words(starts_s > found.floor_s, "launch", names)
    of_table = stated & times.source.are(*_OF_A_TABLE)
    below = stated & (seconds[0] < found.floor_s)

    def evidence(place: int) -> str:
        message, name = times.evidence(place), names.at(place)
        if lifted[place]:
            floor = f"the {name} floor"
            less = f"{floor} over {REACHED:.0%}" if not below[place] else f"{floor} less {BOOST - 1:.0%}"
            message = f"{message}; lifted to {STARTED if seconds[0, place] == start_s[0, 0] else less}"
        if below[place]:
            share = seconds[0, place] / found.floor_s[place]
            byte, flop, least_flop = (float(numbers(rows, of)[place]) for of in ("byte", "flop", "least_flop"))
            reason = _reason(rows.text("kind").at(place), name, byte, share, least_flop / flop if flop else 1.0)
            message = f"{message}; {share:.0%} of the {name} floor: {reason}"
        return message

    return Answers(times.index, seconds, times.source, choose_words(of_table, bound, times.limit), evidence)
