"""Peak rates that bound an op on a machine, and the parts of a timing that are not the op itself.

`rates` returns a machine's peak and bandwidth: the stated facts, else the best rates that its timing table
sustained. `bounds` computes the floor of each op from them. A timing includes its harness's fixed cost and is
truncated to the step of its clock; `own_times` separates both.

Fresh pages: above a size (glibc: 32 MiB at most) freed memory returns to the system, so each new tensor is mapped
page by page. The rate of this is a fact of the machine. Timings of such ops are stored without this time
(``harness_s``); `with_fresh` adds it to every predicted time, whichever estimator predicted it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from fomkit.core.machine import Device, Fact, Machine, Peak
from fomkit.core.measurement import chip_words
from fomkit.core.units import ITEM_BYTE, REAL_OF, format_quantity
from fomkit.ops.columns import Words
from fomkit.ops.kinds import PRODUCT_KINDS
from fomkit.prediction.estimators import Rows, Table, as_rows, is_in, item_bytes, numbers, same_texts
from fomkit.prediction.gp import Flags, Matrix, Places

FITTED = "rates fitted to the table"
UNSEEN = 2.0
"""Upper bound of a fitted bandwidth over the best rate that the table shows: products reuse data."""


@dataclass(frozen=True)
class Rates:
    """Peak and bandwidth for a number format on an engine; None where neither a fact nor the table has one."""

    flop_per_s: Fact | None
    byte_per_s: Fact | None

    def describe(self) -> str:
        """Write the rates, with a note where they are fitted because no source states them."""
        pairs = ((self.flop_per_s, "flop_per_s"), (self.byte_per_s, "byte_per_s"))
        known = [(fact, dimension) for fact, dimension in pairs if fact is not None]
        words = [
            f"{format_quantity(fact.value, dimension)}{f' {fact.source}' if fact.source.startswith(HELD) else ''}"
            for fact, dimension in known
        ]
        return ", ".join([*words, FITTED] if any(fact.source == FITTED for fact, _ in known) else words)


def _fitted(value: object, unseen: float = 1.0) -> Fact | None:
    if not isinstance(value, float) or not math.isfinite(value) or value <= 0:
        return None
    return Fact(value, value, value * unseen, "estimated", FITTED)


def rates(machine: Machine, dtype: str, engine: str) -> Rates:
    """Return the rates of a number format on an engine.

    A stated fact has priority. The fallback is the best rate that any product of the table sustained
    (`fomkit.prediction.calibration` stores it). A fitted bandwidth is a lower bound: its interval is one-sided.
    """
    fitted = machine.fits.get("rates")
    stored: Mapping[str, object] = fitted if isinstance(fitted, Mapping) else {}
    best = stored.get("flop_per_s")
    names = [f"{one}/{engine}" for one in (dtype, REAL_OF.get(dtype, dtype))]
    sustained = next((best[name] for name in names if name in best), None) if isinstance(best, Mapping) else None
    peak = machine.device.peak(dtype, engine)
    return Rates(
        flop_per_s=peak.rate if peak is not None else _fitted(sustained),
        byte_per_s=machine.device.byte_per_s or _fitted(stored.get("byte_per_s"), UNSEEN),
    )


HELD = "limited by"
"""First words of the source of a rate that a power limit lowers."""
HELD_FLOP_PER_J, HELD_PROCESS_M, HELD_POWER = 73e9, 12e-9, 1.5
"""Flop of fp32 per joule in long products of a 12 nm chip, and the exponent with which this falls with the process
size. Four timed boards need more than their power limit. The rate of their long products over the typical
utilisation of 0.85 gives 65 (T4), 70 (P4, inside models), 76 (M40) and 81 (TITAN X of 2015), for three process
sizes. The value is their mean; the mean of any three predicts the fourth within a sixth."""
HELD_SPREAD = 1.25
"""Uncertainty factor of the power-limited rate: the clock follows the temperature and the preceding load."""


def power_shortfall(machine: Machine) -> float:
    """Return ln(fp32 peak / rate that the power limit sustains); 0 where they are unknown or power suffices.

    A stated peak assumes the boost clock. A board whose peak needs more power than its limit is throttled in long
    computations: a T4 sustains half its peak in 70 W.
    """
    energy, peak = machine.energy, machine.device.peak("fp32", "vector")
    if energy is None or peak is None or energy.limit_w is None or energy.process_m is None:
        return 0.0
    per_joule = HELD_FLOP_PER_J * (HELD_PROCESS_M / energy.process_m) ** HELD_POWER
    return max(math.log(peak.rate.value / (energy.limit_w.value * per_joule)), 0.0)


def throttled(machine: Machine) -> Machine:
    """Return the machine with its fp32 peak lowered to the rate that its power limit sustains, where that is less.

    Peaks of its matrix engines stay, because their arithmetic takes less power; their low bounds fall to the same
    share. Only times predicted from facts use this machine: timings already include the throttling.
    """
    short = power_shortfall(machine)
    if not short or machine.energy is None or machine.energy.limit_w is None:
        return machine

    def limited(peak: Peak) -> Peak:
        stated = peak.rate
        if (peak.dtype, peak.engine) == ("fp32", "vector"):
            rate = stated.value * math.exp(-short)
            ends = (rate / HELD_SPREAD, min(rate * HELD_SPREAD, stated.high))
            whole = format_quantity(stated.value, "flop_per_s")
            return replace(peak, rate=Fact(rate, *ends, "estimated", f"{HELD} {power} (peak {whole})"))
        if peak.engine == "matrix":
            return replace(peak, rate=replace(stated, low=min(stated.low, stated.value * math.exp(-short))))
        return peak

    power = format_quantity(machine.energy.limit_w.value, "power_w")
    return replace(machine, device=replace(machine.device, peaks=tuple(map(limited, machine.device.peaks))))


BALANCED = ("gemm",)
"""Work that comes nearer to the peak where memory is fast relative to arithmetic. For other kinds this balance has
no predictive value: with it, ops of left-out chips are predicted worse."""


def balance_of(machine: Machine, work: str, dtype: str, engine: str) -> float:
    """Return log2 of flop per byte where it predicts a kind of work; NaN elsewhere or if it is unknown."""
    known = rates(machine, dtype, engine)
    if work not in BALANCED or known.flop_per_s is None or known.byte_per_s is None:
        return math.nan
    return float(np.log2(known.flop_per_s.value / known.byte_per_s.value))


HELD_BACK = 1.1
"""`spare_of` above which a board has a part of its engine; below, data sheets are rounded or clocks differ."""


def spare_of(machine: Machine, dtype: str, engine: str = "matrix") -> float:
    """Return how much faster the matrix engine of a board is than the board lets it run; 1 if unknown or another.

    Some boards accumulate in fp32 at half the rate of their engine, and some are sold with a part of the rate of
    their chip (`TypicalTables.engines`). Operands and power suffice for the full rate, so tiles wait for neither.
    Factors in tf32 have the digits of fp16 and twice its width: engines take half as many of them, and one that
    takes fewer is held back.
    """
    device, tables = machine.device, machine.typical
    peak, vector = device.peak(dtype, "matrix"), device.peak("fp32", "vector")
    if peak is None or engine != "matrix":
        return 1.0
    floating = [one for one in device.peaks if one.engine == "matrix" and one.accumulate_dtype.startswith("fp")]
    alike = [one for one in floating if (one.dtype == "tf32") == (dtype == "tf32")]  # its digits are not fp32's
    whole = [one.rate.value for one in alike if ITEM_BYTE[one.dtype] == ITEM_BYTE[dtype]]
    if dtype == "tf32":
        whole += [one.rate.value / 2 for one in floating if one.dtype == "fp16"]
    if tables is not None and vector is not None and (dtype == "tf32" or ITEM_BYTE[dtype] < 4):
        ratio = tables.engines.get(" ".join(chip_words(device.architecture)), 0.0)
        whole.append(ratio * vector.rate.value * 2 / ITEM_BYTE[dtype])
    return max([peak.rate.value, *whole]) / peak.rate.value


class Bounds(NamedTuple):
    """The floors of many ops and the rate that bounds each.

    `floor_s` (q,): [s]; NaN where a required rate is unknown: product kinds require the peak, all require the
      bandwidth.
    `compute` (q,): true where arithmetic bounds the op, false where traffic does.
    `low`, `high` (q,): bounds of the interval of that rate, as shares of its value.
    `fitted` (q,): true where that rate is fitted to the table, not stated.
    """

    floor_s: Matrix
    compute: Flags
    low: Matrix
    high: Matrix
    fitted: Flags

    def chosen(self, which: Flags | Places) -> Bounds:
        """Select some of the ops."""
        return Bounds._make(column[which] for column in self)

    @property
    def names(self) -> Words:
        """The name of each bound: compute or memory."""
        return Words(self.compute.astype(np.intp), ("memory", "compute"))


def floors(
    arithmetic: Flags, flop: Matrix, byte: Matrix, flop_per_s: Matrix | float, byte_per_s: Matrix | float
) -> tuple[Matrix, Flags]:
    """Return max(flop / peak, byte / bandwidth) [s], NaN where unknown, and where the first is the maximum."""
    compute_s, memory_s = np.asarray(flop / flop_per_s), np.asarray(byte / byte_per_s)
    compute = compute_s >= memory_s
    floor_s = np.where(compute, compute_s, memory_s)
    return np.where(np.isnan(compute_s) & arithmetic, np.nan, floor_s), compute


SHOWN = 0.4
"""Share of the host's launch cost that is visible in a kernel's time on the device: 2 of 5 µs. The shortest
kernels in tables of replayed graphs take 1.7 to 2.5 µs. The host launches the next kernel while one runs, so a
step counts the rest as host time (`fomkit.plan.step`). Utilisations are fitted to times less this share."""


def starts_within(time_s: Matrix, starts_s: Matrix) -> Matrix:
    """Return the part of each time with launches that is visible launch cost [s]; 0 where the time is shorter.

    >>> starts_within(np.array([1.0, 50.0]), np.full(2, 5.0)).tolist()
    [0.0, 2.0]
    """
    return np.where(SHOWN * starts_s < time_s, SHOWN * starts_s, 0.0)


def kernel_start(device: Device) -> Matrix:
    """Return the visible launch cost of a kernel, and its bounds (3, 1) [s]; 0 where it is unknown."""
    launch = device.launch_s if device.units is not None else None
    return np.zeros((3, 1)) if launch is None else SHOWN * np.array([[launch.value], [launch.low], [launch.high]])


def value_of(rate: Fact | None) -> float:
    """Return the value of a rate, NaN where it is unknown."""
    return np.nan if rate is None else rate.value


def _bounds_by(arithmetic: Flags, flop: Matrix, byte: Matrix, known: Rates) -> Bounds:
    pair = (known.byte_per_s, known.flop_per_s)
    floor_s, compute = floors(arithmetic, flop, byte, value_of(pair[1]), value_of(pair[0]))
    ends = [np.ones(2) if fact is None else np.array([fact.low, fact.high]) / fact.value for fact in pair]
    fitted = [fact is not None and fact.source == FITTED for fact in pair]
    low, high = np.where(compute, ends[1][:, None], ends[0][:, None])
    return Bounds(floor_s, compute, low, high, np.where(compute, fitted[1], fitted[0]))


def same_rates(rows: Table) -> dict[tuple[str, str], Places]:
    """Return the positions of the rows of each number format and engine."""
    pairs, numbers_of = same_texts(rows, "dtype", "engine")
    return {(dtype, engine): (numbers_of == at).nonzero()[0] for at, (dtype, engine) in enumerate(pairs)}


def bounds(rows: Table, machine: Machine) -> Bounds:
    """Compute the floor of each op of a COSTED table, and the rate that bounds it."""
    arithmetic = is_in(rows, "kind", *PRODUCT_KINDS)
    flop, byte = numbers(rows, "flop"), numbers(rows, "byte")
    groups = same_rates(rows)
    if len(groups) == 1:
        return _bounds_by(arithmetic, flop, byte, rates(machine, *next(iter(groups))))
    columns = [np.empty(len(rows), kind) for kind in (float, bool, float, float, bool)]
    for pair, at in groups.items():
        found = _bounds_by(arithmetic[at], flop[at], byte[at], rates(machine, *pair))
        for column, values in zip(columns, found, strict=True):
            column[at] = values
    return Bounds(*columns)


BOOST = 1.1
"""Factor by which boost clocks raised matrix products above a datasheet's peak (DeepBench, GTX 1080 Ti: 1.07)."""
REACHED = 0.95
"""Highest share of a stated bandwidth that is predicted: the fastest hundredth of each kind on ten timed boards
reaches 0.52 to 0.96 (5,200 products, attentions and streams larger than any cache)."""
CACHED_BYTE = 2.7e8
"""Largest operands [byte] that an unknown cache may hold; the largest known one has 256 MiB (AMD MI300X)."""
FADES = 0.3
"""Traffic beyond a cache, as a share of it, from which it does not help: an L40S decodes up to 2.3 times as fast
as its memory with up to 1.15 times its cache, 0.84 times as fast with 1.3 times (docs/adr/0094)."""
PLAIN = ("gemm", "attention", "experts")
"""Kinds without cheaper algorithms, which take at least the time of their arithmetic."""


def cached_byte(device: Device) -> float:
    """Return the largest operands that the device's caches may hold [byte]."""
    return CACHED_BYTE if device.cache_byte is None else device.cache_byte.value


def least_seconds(rows: Rows, found: Bounds, source: Words, held_byte: float) -> Matrix:
    """Return the shortest times of `PLAIN` ops on a machine of these rates, of value and bounds (3, n) [s].

    0 where nothing limits them: measured times, and traffic up to ``held_byte``, which a cache may hold. The
    arithmetic of a masked half may be skipped. Memory is never faster than its rate, and no prediction comes
    nearer to it than `REACHED`; just beyond ``held_byte`` a part of the data is still held (`FADES`).
    """
    attention = is_in(rows, "kind", "attention")
    skipped = np.where(attention & found.compute & (numbers(rows, "causal") > 0), 2.0, 1.0)
    bounded = ~source.is_in("measured") & ~np.isnan(found.floor_s) & ~found.fitted
    beyond = np.nan_to_num(np.clip((numbers(rows, "byte") / held_byte - 1) / FADES, 0.0, 1.0), nan=1.0)
    least_s = np.repeat(found.floor_s[None] / found.high / np.where(found.compute, BOOST, 1.0) / skipped, 3, 0)
    least_s[0] = np.where(found.compute, least_s[0], found.floor_s / REACHED)
    return np.where(bounded, least_s * np.where(found.compute, 1.0, beyond), 0.0)


def sustained_seconds(rows: Rows, source: Words, machine: Machine) -> Matrix:
    """Return the shortest times of products from facts by the rates that long ones sustain (3, n) [s]; else 0.

    A maker that states such a rate says that power, not the engine, limits long products; no shorter time than its
    own is predicted for them. The low bound may exceed it as boost clocks do.
    """
    held = {(one.dtype, one.engine): one.rate.value * one.sustained for one in machine.device.peaks
            if one.sustained < 1}  # fmt: skip
    least_s = np.zeros((3, len(rows)))
    for pair, at in same_rates(rows).items() if held else ():
        least_s[:, at] = numbers(rows, "flop")[at] / held.get(pair, math.inf)
    least_s[1] /= BOOST
    return np.where(is_in(rows, "kind", "gemm", "experts") & source.is_in("roofline"), least_s, 0.0)


ENOUGH = 20
"""Fewest timings of a harness from which its clock step is estimated; fewer could be round by chance."""

STEPS = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8)


def _common_step(seconds: Matrix) -> float:
    if len(seconds) < ENOUGH:
        return 0.0
    for step in STEPS:
        ticks = seconds / step
        if ticks.min() > 0.5 and np.abs(ticks - np.round(ticks)).max() < 1e-3:  # a time below a step would read 0
            return step
    return 0.0


def clock_step(timings: pd.DataFrame) -> Matrix:
    """Estimate for each row the step [s] to which its harness's times are truncated; 0 where none is visible.

    DeepBench truncates to whole microseconds, so the true time is in [t, t + 1 µs).
    """
    steps = np.zeros(len(timings))
    time_s, harness = numbers(timings, "time_s"), as_rows(timings).text("harness")
    for number in range(len(harness.words)):
        at = harness.codes == number
        steps[at] = _common_step(time_s[at])
    return steps


def op_seconds(timings: pd.DataFrame) -> Matrix:
    """Return each time [s] less the fixed cost that its harness adds."""
    return timings["time_s"].to_numpy(np.float64) - numbers(timings, "harness_s", 0.0)


def own_times(timings: pd.DataFrame) -> pd.DataFrame:
    """Add ``_time_s``, the time of the op itself, and ``_step_s``, the clock step [s], unless they are there."""
    if "_time_s" in timings.columns:
        return timings
    return timings.assign(_time_s=op_seconds(timings), _step_s=clock_step(timings))


_STREAMED = ("norm", "softmax", "pointwise", "traffic")
"""Work that memory bounds, by the names of `fomkit.prediction.typical`."""


_ENGINES = {"positions": 1.0, "activation": 2.0}
"""Element-wise ops that serving engines run by their own kernels, from this many inputs on; with fewer, the kernel
is a framework's."""
BY_NUMBER = 0.5
"""Share of the ratio of widths, in logarithms, by which such kernels take longer. The engines' convolutions (see
`narrow_format_factors`) have 0.3 to 1.4, median 0.7; 0.5 was chosen of 0, 0.35, 0.5, 0.7 on `validate` pieces."""


def narrow_format_factors(
    rows: Table, work: str, timed: Iterable[str], dtype: str
) -> tuple[Matrix, Matrix, Matrix]:
    """Estimate how much longer ops take in formats narrower than all timed ones: ln of the factor, its spreads.

    A kernel that loads 16 bytes at once moves as many byte/s of narrower numbers, as PyTorch's element-wise
    kernels do (ATen/native/cuda/MemoryAccess.cuh; none of Vidur's 240 additions in fp16 on two boards takes 1.25
    times the time of its bytes). A kernel that loads number by number moves as many numbers per second. For ops
    without a framework's name, and for all that is not element-wise, no table says which kernel runs, so the slow
    bound of an 80 % interval reaches the ratio of widths. In public tables of serving engines (aiconfigurator:
    convolutions over tokens in bf16, from 16 MB on) the engines' own kernels reach 0.34 to 0.74 of the bandwidth
    of five machines; PyTorch's in fp32 reach 0.8 to 0.98. Rows of an A100 beyond its bandwidth and the H200's
    above 1 GB (0.14 to 0.16 of it) are not counted there. For ops that an engine runs in one kernel (norms without
    a framework's name, rotary positions, gated activations) the estimate is between both rules, and the rules are
    the bounds. A lookup copies number by number (ATen/native/cuda/Indexing.cu), at a speed as uncertain as before.

    `work`: a name of `fomkit.prediction.typical`; `timed`: number formats of the timings. Returns arrays (n,): ln
    of the factor, and how much shorter and longer the time may be, as half-widths of an 80 % interval [ln].

    >>> import pandas as pd
    >>> rows = {"kind": ["pointwise"] * 3, "op": ["aten::add", "add", "positions"], "inputs": [2.0, 2.0, 1.0]}
    >>> found = narrow_format_factors(pd.DataFrame(rows), "pointwise", ["fp32"], "bf16")
    >>> [np.exp(one).round(2).tolist() for one in found]
    [[1.0, 1.0, 1.41], [1.0, 1.0, 1.41], [1.0, 2.0, 1.41]]
    """
    narrowest = min((ITEM_BYTE[one] for one in timed), default=0.0) if work in _STREAMED else 0.0
    if narrowest <= ITEM_BYTE[dtype]:
        return np.zeros(len(rows)), np.zeros(len(rows)), np.zeros(len(rows))
    ratio, op = math.log(narrowest / ITEM_BYTE[dtype]), as_rows(rows).text("op")
    least = op.mapped([_ENGINES.get(word, math.inf) for word in op.words], float)
    unnamed = op.mapped(["::" not in word for word in op.words], bool)
    engines = (numbers(rows, "inputs", 1.0) >= least) | (is_in(rows, "kind", "norm") & unnamed)
    lookups = is_in(rows, "kind", "embedding")
    share = np.where(lookups, 1.0, np.where(engines, BY_NUMBER, 0.0))
    by_vectors = is_in(rows, "kind", "pointwise", "copy") & ~unnamed & ~engines
    longer = np.where(lookups, 1.0, np.where(by_vectors, 0.0, 1 - share))
    return share * ratio, share * ratio, longer * ratio


_WRITTEN = ("pointwise", "copy", "norm", "softmax", "pool", "embedding")
"""Kinds that write nothing but their results."""


def result_byte(ops: Table) -> Matrix:
    """Return the bytes of each op's new tensor; 0 where there is none or the row does not state its size."""
    size, item, op = as_rows(ops).number, item_bytes(ops), as_rows(ops).text("op")
    kernel = size("kernel_d") * size("kernel_h") * size("kernel_w")
    conv = {
        "backward_input": size("batch") * size("in_channels") * size("depth") * size("height") * size("width"),
        "backward_weight": size("out_channels") * size("in_channels") / size("groups") * kernel,
    }
    byte = np.where(is_in(ops, "kind", "gemm"), size("b") * size("m") * size("n") * item, 0.0)
    for pass_name, numel in conv.items():
        byte = np.where(is_in(ops, "kind", "conv") & is_in(ops, "pass_name", pass_name), numel * item, byte)
    in_place = op.mapped([word.endswith("_") for word in op.words], bool)
    written = is_in(ops, "kind", *_WRITTEN) & ~in_place & ~is_in(ops, "pass_name", "update")
    return np.asarray(np.where(written, numbers(ops, "write_byte"), byte), np.float64)


def fresh_seconds(ops: Table, device: Device) -> Matrix:
    """Return the time that fresh pages add to each op [s]; 0 on a device without these facts."""
    rate, above = device.fresh_byte_per_s, device.fresh_above_byte
    if rate is None or above is None or not len(ops):
        return np.zeros(len(ops))
    byte = result_byte(ops)
    return np.asarray(np.where(byte >= above, byte / rate.value, 0.0), np.float64)


def with_fresh(timed: pd.DataFrame, device: Device) -> pd.DataFrame:
    """Add the time of fresh pages to a TIMED table, and note it in the evidence."""
    extra = fresh_seconds(timed, device)
    if not extra.any():
        return timed
    texts = timed["evidence"].astype("str").to_numpy(object).copy()
    for place in np.flatnonzero(extra).tolist():
        texts[place] = f"{texts[place]}; plus fresh memory pages of its result {extra[place]:.3g} s"
    times = {name: timed[name] + extra for name in ("time_s", "low_s", "high_s")}
    return timed.assign(**times, evidence=pd.array(texts, "str"))
