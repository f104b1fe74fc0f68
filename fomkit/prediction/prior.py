"""Predict times from facts alone: the floor at the machine's rates over the typical utilisation of the kind.

`estimate` is the estimator. `utilisation_of` adds to `typical_utilisation` two rules for devices known by their
facts: convolutions of a matrix engine, and norms of long rows. `name_bounds` names what bounds each time.

A convolution is computed as a product (implicit GEMM): rows are image positions, columns are channels, depth is
channels × kernel size. Tiles and waves are those of `fomkit.prediction.tiles`; traffic is that of images and
kernel alone. Matrix engines read images channels-last, so a channels-first image is transposed before and after.

A convolution with a kernel per channel is no product; vector units compute it. The gradient of such a kernel is
summed by a block of threads per weight, and each block reads both images again. For channels-last images another
library's kernel reads them once.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np
import pandas as pd

from fomkit.core.interval import op_half_width
from fomkit.core.machine import Fact, Machine
from fomkit.core.units import format_quantity
from fomkit.ops.columns import Words, cached, choose_words, significant
from fomkit.prediction import estimators, tiles
from fomkit.prediction.estimators import Answers, Rows, Table, as_rows, is_in, numbers
from fomkit.prediction.families import conv_output
from fomkit.prediction.gp import Flags, Matrix, Texts
from fomkit.prediction.monotone import SIDES, growing_axes, lines, resized, sizes_along
from fomkit.prediction.rates import (
    BOOST,
    CACHED_BYTE,
    PLAIN,
    REACHED,
    SHOWN,
    Bounds,
    Rates,
    bounds,
    cached_byte,
    floors,
    kernel_start,
    least_seconds,
    rates,
    spare_of,
    sustained_seconds,
    throttled,
    value_of,
)
from fomkit.prediction.typical import SHORTEST_S, TypicalUtilisations, spread_at, started, typical_utilisation

DEPTH, VECTOR = SIDES.index("k"), 16.0
"""Position of the depth among a product's sides, and numbers along the depth that are loaded at once."""
PRODUCTS_AT_ONCE = 40_000
"""Most products priced together in `_running_maxima`; each may have some ten smaller sizes, with all columns."""

ARITHMETIC = 1.5
"""Time of a convolution's tiles over their time at the stated peak. DeepBench's fp16 convolutions on a V100 take
1.47 to 1.58, by pass. For a board whose engine is held back it is divided by `rates.spare_of`, down to 1."""
TRAFFIC = 1.25
"""Time of the traffic over that at the stated bandwidth: 1.15 to 1.37 in the `tiles.Form` of six machines."""
TURNING = 1.6
"""Time of transposing an image over the time of its traffic; half of it for kernels of 1, some of whose products
run on images as stored. This and the next figures: steps of image networks on an RTX 3090 (docs/adr/0051)."""
GROUPED = 1.5
"""Factor on the time of tiles and traffic of a grouped convolution."""
SPLITS = (1, 2, 4, 8, 16, 32, 64, 128)
"""Parts into which the sum over all positions of a gradient may be split."""
LOAD_BYTE = 16.0
"""Channels are padded to a multiple of this many bytes per pixel."""
VECTOR_SHARE = 1 / 3
"""Share of the vector units' peak that depthwise kernels reach; this time adds to that of their traffic."""
GRADIENT_SLOWER = 1.15
"""Factor on the time of gradients that read both images once."""
BLOCKS = 8.0
"""Blocks of threads per processor that are needed to keep memory busy."""
HELD_NUMBERS = 16_384
"""Numbers of a row that fit in a processor: 1024 threads of 16 registers each."""
PASSES = {True: 3 / 2, False: 5 / 3}  # (reads twice, writes), (reads two tensors twice, writes)
"""Bytes moved over compulsory bytes, for the forward and the backward pass."""
APART_SPREAD = 0.4
"""Standard deviation of ln(time) of grouped convolutions, for which no table has timings."""


def _volume(rows: Table, *names: str) -> Matrix:
    return np.asarray(np.prod([numbers(rows, name) for name in names], 0), np.float64)


class _Sizes:
    """A convolution's sizes (n); for a transposed one, those of the plain convolution whose gradient it is."""

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
        passes = [is_in(rows, "pass_name", "forward"), is_in(rows, "pass_name", "backward_input")]
        self.gathers = np.where(transposed, passes[1], passes[0])
        self.scatters = np.where(transposed, passes[0], passes[1])
        self.byte = estimators.item_bytes(rows) * (self.wide_positions * self.wide + self.positions * self.narrow)

    def product(self, rows: Table) -> pd.DataFrame:
        """Return the equivalent products, with the few channels as rows so that narrow tiles fit them."""
        step = LOAD_BYTE / estimators.item_bytes(rows)
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
    """Return which convolutions have channels-last images."""
    layout = rows.text("layout")
    return np.asarray(layout.mapped([word.endswith("c") for word in layout.words], bool))


def _as_products(rows: Rows, sizes: _Sizes, chip: tiles.Chip) -> Matrix:
    """Predict the time of convolutions that are computed as products [s]."""
    product = tiles.tiled(sizes.product(rows), chip, SPLITS)
    slower = np.where(sizes.groups > 1, GROUPED, 1.0)
    arithmetic_s = product.arithmetic_s * max(ARITHMETIC / chip.spare, 1.0)
    together = np.hypot(arithmetic_s, TRAFFIC * numbers(rows, "byte") / chip.byte_per_s)
    turned = np.where(sizes.kernel > 1, TURNING, TURNING / 2) * 2 * sizes.byte / chip.byte_per_s
    turned = np.where(_by_pixel(rows), 0.0, turned * (1 - 1 / (1 + (sizes.byte / chip.cache_byte) ** 2)))
    return np.asarray(slower * together + product.joining_s + turned, np.float64)


def _of_single_channels(rows: Rows, sizes: _Sizes, chip: tiles.Chip, vector_flop_per_s: float) -> Matrix:
    """Predict the time of depthwise convolutions [s]."""
    flop_s = numbers(rows, "flop") / (VECTOR_SHARE * vector_flop_per_s)
    through = (numbers(rows, "byte") / chip.byte_per_s + flop_s) * np.where(sizes.gathers, 1.0, GRADIENT_SLOWER)
    weights = sizes.narrow * sizes.kernel
    read = 2 * estimators.item_bytes(rows) * sizes.positions * np.maximum(weights, BLOCKS * chip.units)
    in_one_pass = sizes.gathers | sizes.scatters | _by_pixel(rows)
    return np.asarray(np.where(in_one_pass, through, read / chip.byte_per_s), np.float64)


def _convolutions(rows: Rows, machine: Machine, dtype: str, interval: float) -> tuple[Matrix, Texts] | None:
    """Return utilisation with bounds (3, q) and sources of a matrix engine's convolutions in a number format."""
    known, device = rates(machine, dtype, "matrix"), machine.device
    vector = device.peak("fp32", "vector")
    if known.flop_per_s is None or known.byte_per_s is None or vector is None:
        return None
    flop_per_s, byte_per_s = known.flop_per_s.value, known.byte_per_s.value
    if (chip := tiles.chip_of(device, flop_per_s, byte_per_s)) is None:
        return None
    sizes = _Sizes(rows)
    alone = (sizes.groups > 1) & (sizes.groups == sizes.wide)
    seconds = np.where(
        alone,
        _of_single_channels(rows, sizes, chip, vector.rate.value),
        _as_products(rows, sizes, chip._replace(spare=spare_of(machine, dtype))),
    )
    floor_s, _ = floors(
        np.ones(len(rows), bool), numbers(rows, "flop"), numbers(rows, "byte"), flop_per_s, byte_per_s
    )
    reached = floor_s / seconds
    spread = np.where(alone | (sizes.groups > 1), APART_SPREAD, spread_at(np.log(reached)))
    factor = np.exp(op_half_width(interval) * spread)
    how = ("channel by channel on the vector units of", "tile model of a product on")
    words = (f"{one} {chip.units:.0f} processors" for one in how)
    return np.stack([reached, reached / factor, reached * factor]), np.where(alone, *words).astype(object)


def _read_twice(rows: Rows, twice: Flags) -> tuple[Rows, Matrix]:
    """Return long norms as pointwise ops with the bytes they move, and the factors on the bytes."""
    times = np.where(is_in(rows, "pass_name", "forward"), PASSES[True], PASSES[False])
    times = np.where(twice, times, 1.0)
    kinds, ops = (choose_words(twice, word, rows.text(name)) for name, word in (("kind", "pointwise"), ("op", "")))
    # Without a name these rows do not count as kernels that load vectors (`rates.narrow_format_factors`).
    return rows.assign(kind=kinds, op=ops, byte=numbers(rows, "byte") * times), times


def utilisation_of(
    rows: Table, machine: Machine, interval: float, unknown: Flags | None = None
) -> TypicalUtilisations:
    """Return `typical_utilisation`, but convolutions in tiles and long norms as ops that read their rows twice.

    Convolutions of a matrix engine are computed in tiles where processors and cache are stated. `unknown`: ops
    other than these that are left out (NaN).
    """
    rows = as_rows(rows)
    conv = is_in(rows, "kind", "conv") & is_in(rows, "engine", "matrix") & ~is_in(rows, "pass_name", "backward")
    twice = is_in(rows, "kind", "norm") & (numbers(rows, "row") > HELD_NUMBERS)  # they do not fit in a processor
    if unknown is None and not (conv | twice).any():
        return typical_utilisation(rows, machine, interval)
    ends, sources = np.full((3, len(rows)), np.nan), np.full(len(rows), "", object)
    in_tiles, rest = np.zeros(len(rows), bool), ~(conv if unknown is None else conv | unknown)
    groups, number = estimators.same_texts(rows.take(conv), "dtype")
    for at_group, (dtype,) in enumerate(groups):
        at = np.flatnonzero(conv)[number == at_group]
        found = _convolutions(rows.take(at), machine, dtype, interval)
        if found is None:
            rest[at] = True
        else:
            ends[:, at], sources[at] = significant(found[0]), found[1]
    moved, times = _read_twice(rows, twice) if twice.any() else (rows, np.ones(len(rows)))
    if rest.any():
        got = typical_utilisation(moved.take(rest), machine, interval)
        ends[:, rest] = got.value, got.low, got.high
        sources[rest], in_tiles[rest] = got.source, got.started
    ends[:, twice] = significant(ends[:, twice] / times[twice])
    sources[twice] += ", with rows read twice"
    return TypicalUtilisations(ends[0], ends[1], ends[2], sources, in_tiles)


def _evidence(
    known: Rates, utilisation: float, source: str, launch: Fact | None, starts: float, start_s: float
) -> str:
    words = [known.describe(), f"utilisation {utilisation:.2g}, {source}"]
    if known.flop_per_s is None:
        words.append("no peak known, traffic only")
    if launch is None:
        words.append("launch cost unknown, excluded")
    elif starts:
        whole, visible = (format_quantity(one, "time_s", 2) for one in (launch.value, start_s))
        words.append(
            f"{starts:g} launch of {whole}, {visible} of it visible" if starts == 1
            else f"{starts:g} launches of {whole}, {visible} of each visible"
        )  # fmt: skip
    return "; ".join(words)


def _times(rows: Rows, found: Bounds, utilisation: TypicalUtilisations, machine: Machine) -> Matrix:
    """Return value, bounds, and value without launches (4, q) [s], from floors and typical utilisation."""
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
    """Return the launches that are added to each row, and the cost of one with its bounds [s]."""
    ends = (0.0, 0.0, 0.0) if launch is None else (launch.value, launch.low, launch.high)
    return np.where(utilisation.started, 0.0, numbers(rows, "launches")), ends


def climbing(times: Matrix, rungs: Matrix, long: Flags) -> Matrix:
    """Return times of products that never fall with size, nor exceed those of two halves of a product.

    `times` (4, lines, rungs) [s]; `rungs`: the sizes, powers of two and others; `long` (lines, rungs): products
    that may run as two: of short ones the start, which may be unknown, is most, and tiles know their waves.
    """
    halved = np.log2(rungs) % 1 == 0
    each = np.where(long, times / rungs, np.inf)[:, :, halved]
    times[:, :, halved] = np.minimum(times[:, :, halved], np.minimum.accumulate(each, 2) * rungs[halved])
    return np.asarray(np.maximum.accumulate(times, 2), np.float64)


def _running_maxima(rows: Rows, machine: Machine, interval: float, stepped: bool) -> Matrix:
    """Return `_times` (4, q) [s] of products, made monotone: no product takes longer with a smaller batch.

    The utilisations of other machines rise and fall with the size: their kernels favour multiples of some numbers,
    and the floor of a few rows is constant while utilisation rises. Whether this machine's library behaves alike
    is unknown. So the times at powers of two up to the size, as a running maximum, are joined by straight lines.
    Products in tiles (`stepped`) begin another row of tiles one row above a power of two: these sizes are added.
    """
    axes = growing_axes(rows)
    size = sizes_along(rows, axes)
    first, line, names = lines(rows, axes)
    rungs = 2.0 ** np.arange(np.ceil(np.log2(size.max(initial=1.0))) + 1)
    if stepped:
        rungs = np.unique([rungs, rungs + 1])
    last = np.maximum(np.searchsorted(rungs, size), 0)
    below = np.maximum(last - (rungs[last] > size), 0)
    base, sizes = np.repeat(first, len(rungs)), np.tile(rungs, len(first))
    # One more along the depth begins no row of tiles, and prevents vector loads; so depths are whole vectors.
    sizes = np.where((axes[base] == DEPTH) & (sizes > VECTOR), np.floor(sizes / VECTOR) * VECTOR, sizes)
    smaller = resized(rows.take(base), axes[base], sizes)

    def climbed() -> Matrix:
        utilisation, found = typical_utilisation(smaller, machine, interval), bounds(smaller, machine)
        times = _times(smaller, found, utilisation, machine).reshape(4, len(first), len(rungs))
        return climbing(times, rungs, (found.floor_s.reshape(times.shape[1:]) >= SHORTEST_S) & (not stepped))

    # Another batch mostly has the same rungs.
    same = (names, significant(numbers(smaller, "byte")).tobytes(), machine.excluded, id(machine.typical))
    times = cached(machine.timings, machine.device, f"{stepped} {interval} {same}", climbed)
    left, right = times[:, line, below], times[:, line, last]
    share = (size - rungs[below]) / np.maximum(rungs[last] - rungs[below], 1.0)
    return np.asarray(left + (right - left) * share, np.float64)


def _in_format(rows: Rows, machine: Machine, interval: float) -> Answers:
    """Predict rows in the number formats and on the engines that they state."""
    found = bounds(rows, machine)
    rows, found = rows.take(floored := ~np.isnan(found.floor_s)), found.chosen(floored)
    products, launch = is_in(rows, "kind", "gemm"), machine.device.launch_s
    # The times of products are of other sizes (`_running_maxima`); only start and source are of their own.
    utilisation = utilisation_of(rows, machine, interval, products)
    utilisation.started[products] = started(rows.take(products), machine, interval)
    times = _times(rows, found, utilisation, machine)
    for stepped in (False, True):
        at = np.flatnonzero(products & (utilisation.started == stepped))
        for start in range(0, len(at), PRODUCTS_AT_ONCE):
            part = at[start : start + PRODUCTS_AT_ONCE]
            times[:, part] = _running_maxima(rows.take(part), machine, interval, stepped)
    # Time less launches may round to 0.
    kernel_s, (starts, (start_s, _, _)) = times[3], _starts(rows, utilisation, launch)
    shown_s = np.divide(times[0] - kernel_s, starts, out=np.zeros(len(rows)), where=starts > 0)
    reached = np.divide(found.floor_s, kernel_s, out=utilisation.value.copy(), where=kernel_s > 0)
    dtypes, engines = (rows.text(name) for name in ("dtype", "engine"))

    @cache
    def sources() -> Texts:
        found = utilisation.source.copy()
        found[products] = typical_utilisation(rows.take(products), machine, interval).source
        return found

    def evidence(place: int) -> str:
        known = rates(machine, dtypes.at(place), engines.at(place))
        return _evidence(known, reached[place], sources()[place], launch, float(starts[place]),
                         float(shown_s[place]))  # fmt: skip

    bound = choose_words(starts * start_s > kernel_s, "launch", found.names)
    answers = Answers(rows.index, times[:3], "roofline", bound, evidence)
    return answers.chosen(np.flatnonzero(~np.isnan(times[0])))


def bounded_by(found: Answers, others: Answers, note: str = "", *, longer: bool = False) -> Answers:
    """Replace predictions by others that are shorter, or longer; ``note`` is put before the evidence of these."""
    at, sign = estimators.places_of(found.index, others.index), -1.0 if longer else 1.0
    both = np.flatnonzero(at >= 0)  # others may contain none of them
    less = both[sign * others.time_s[at[both]] < sign * found.time_s[both]]
    limit = found.limit.replaced(less, others.limit.taken(at[less]))
    return found.changed(
        less, others.times[:, at[less]], lambda _, place: f"{note}{others.evidence(at[place])}", limit=limit
    )


def estimate(rows: Table, machine: Machine, interval: float) -> Answers:
    """Predict rows from rates alone (an `Estimator`).

    time = max(flop / peak, byte / bandwidth) / utilisation + visible launch cost (`rates.SHOWN`). The peak is the
    one that the power limit sustains (`rates.throttled`). The utilisation is what timed machines would reach
    (`typical`); their disagreement and the spread of the facts make the interval. A product takes no longer with a
    smaller batch. Timings of products in tiles include their start, so no launch is added to these. Ops in tf32
    may also run in fp32; they get the shorter of both times.

    Returns the rows for which every rate that their kind needs is known: stated, else fitted to the machine's
    table.
    """
    rows, machine = as_rows(rows), throttled(machine)
    found, wide = _in_format(rows, machine, interval), np.flatnonzero(is_in(rows, "dtype", "tf32"))
    if not len(wide):
        return found
    in_fp32 = _in_format(rows.take(wide).assign(dtype="fp32", engine="vector"), machine, interval)
    return bounded_by(found, in_fp32, "faster in fp32: ")


REASONS: Mapping[tuple[str, str], str] = {("attention", "compute"): "a fused kernel skips the masked half"}
"""Why a kind is faster than its bounding rate; other kinds exceed the peak by boost clocks, bandwidth by
caches."""
UNEXPLAINED = "more than boost clocks explain, even"
"""In DeepBench's training sheets this applies to 20 of 434 convolutions above the peak, all of the P100 in
fp16."""

AT_MOST: Mapping[str, float] = {
    "a fused kernel skips the masked half": 2.0,
    "boost clocks": 1.0,
    "caches hold part of the data": 3.5,
}
"""Most that each reason can speed up an op, apart from `BOOST`; beyond that the evidence names no reason."""
DEFAULT_REASONS: Mapping[str, str] = {"compute": "boost clocks", "memory": "caches hold part of the data"}


def _reason(kind: str, bound: str, byte: float, share: float, least: float) -> str:
    """Return why a time is this share of the floor; the cheapest algorithm needs the share ``least`` of flop."""
    if bound == "memory" and byte > CACHED_BYTE:
        return "the data exceed every cache; the table or the stated bandwidth is wrong"
    if kind == "conv" and bound == "compute" and share * BOOST < least:
        return f"{UNEXPLAINED} with the cheapest known algorithm, {least:.0%} of the arithmetic"
    if bound == "compute" and least < 1:
        return f"Winograd or FFT needs less arithmetic, down to {least:.0%}"
    reason = REASONS.get((kind, bound), DEFAULT_REASONS[bound])
    if share * BOOST * AT_MOST[reason] < 1:
        return f"no known reason explains this much ({reason}: up to {AT_MOST[reason] * BOOST:.1f} times)"
    return reason


def name_bounds(rows: Rows, times: Answers, machine: Machine) -> Answers:
    """Name the bound of times that come from the table, and the reason of every time below the stated floor.

    Values and bounds of plain products below what these rates allow are raised to it. Only stated rates count:
    fitted ones come from the same table and would prove nothing. Times derived from longer kernels take at least a
    kernel's start.
    """
    rows = rows.take(estimators.places_of(times.index, rows.index))
    found = bounds(rows, machine)
    stated = ~np.isnan(found.floor_s) & ~found.fitted
    start_s = kernel_start(machine.device)
    short = times.source.is_in("extrapolated", "transferred") & (times.time_s < start_s[0])
    seconds = np.maximum(times.times, np.where(short, start_s, 0.0))
    at = np.flatnonzero(is_in(rows, "kind", *PLAIN))
    least = (rows.take(at), found.chosen(at), times.source.taken(at), cached_byte(machine.device))
    seconds[:, at] = np.maximum(seconds[:, at], least_seconds(*least))
    held = sustained_seconds(rows, times.source, machine)
    slowed, seconds = held[0] > seconds[0], np.maximum(seconds, held)
    lifted = times.time_s < seconds[0]
    seconds[2] = np.maximum(seconds[2], times.high_s * (seconds[0] / times.time_s))  # as far above as before
    below = stated & (seconds[0] < found.floor_s)

    def limit() -> Words:
        starts_s = numbers(rows, "launches") * value_of(machine.device.launch_s)
        bound = choose_words(starts_s > found.floor_s, "launch", found.names)
        of_table = times.source.is_in("measured", "interpolated", "extrapolated", "transferred")
        return choose_words(stated & of_table, bound, times.limit)

    def evidence(place: int) -> str:
        message, name = times.evidence(place), found.names.at(place)
        if slowed[place]:
            message += "; raised to the rate that is stated as sustained in long products"
        elif lifted[place]:
            less = f"divided by {REACHED:.0%}" if not below[place] else f"minus {BOOST - 1:.0%}"
            started = seconds[0, place] == start_s[0, 0]
            message += f"; raised to the {'launch time of a kernel' if started else f'{name} floor {less}'}"
        if below[place]:
            share = seconds[0, place] / found.floor_s[place]
            byte, flop, least_flop = (float(numbers(rows, of)[place]) for of in ("byte", "flop", "least_flop"))
            reason = _reason(rows.text("kind").at(place), name, byte, share, least_flop / flop if flop else 1.0)
            message = f"{message}; {share:.0%} of the {name} floor: {reason}"
        return message

    return Answers(times.index, seconds, times.source, limit, evidence)
