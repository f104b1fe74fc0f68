"""Predict the utilisation of ops on a machine without timings from the timing tables of other machines.

`typical_utilisation` is the main function. Each op is described relative to its machine (`FEATURES`): its time at
the peak and at the bandwidth, and its outputs per unit of arithmetic. Ops with equal features make equal demands,
so timings on one machine predict another. A *surface* is a Gaussian-process fit of one machine's ln(utilisation).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np

from fomkit.core.errors import FomkitError
from fomkit.core.interval import DEFAULT_LEVEL, of_few, op_half_width
from fomkit.core.machine import Machine
from fomkit.core.measurement import Surface, TypicalTables, chip_words, kin_of, kind_of_work, on_series
from fomkit.core.units import BLOCKS_OF_FP8, ITEM_BYTE
from fomkit.ops.columns import significant
from fomkit.ops.kinds import PRODUCT_KINDS
from fomkit.prediction import families, tiles
from fomkit.prediction.estimators import Rows, Table, as_rows, is_in, numbers, same_texts, weighted_median
from fomkit.prediction.families import PRODUCT_TILE, aligned, fill, flag, log_product, log_sizes, winograd
from fomkit.prediction.gp import Flags, Matrix, Places, Surfaces, Texts, side_by_side, surface_values, surfaces
from fomkit.prediction.monotone import used_as_in_parts
from fomkit.prediction.rates import HELD_BACK, balance_of, narrow_format_factors, rates, spare_of, value_of

FEATURES_BALANCED = 6.0
"""Powers of two beyond which a larger ratio of arithmetic to traffic time has no further effect."""

BY_PROGRAM = 0.5
"""Standard deviation of the log ratio of products in fp8_block, whose sums a program scales, to those in fp8: 1.1
times as quick on two boards of Hopper, 0.7 times on two of Blackwell."""

SHORTEST_S = 2e-6
"""Read time of a matrix below which its product with a vector is mostly launch cost; its share of the bandwidth
then depends on the harness."""

Widths = tuple[float, float]
ANY, OF_ENCODERS = (0.0, np.inf), (64.0, 80.0)
"""Bounds of head widths: any, and those of encoders' tables. Beyond these a surface returns to its mean, that of
short sequences: heads of 128 took five times as long as of 80."""
LEAST_SIZE = 1e-30  # replaces sizes of 0, which have no logarithm
_sizes, _log_product = partial(log_sizes, least=LEAST_SIZE), partial(log_product, least=LEAST_SIZE)


def _log(values: Matrix) -> Matrix:
    return np.asarray(np.log2(np.maximum(values, LEAST_SIZE)), np.float64)


def _work(rows: Table, flop_per_s: Matrix, byte_per_s: float) -> list[Matrix]:
    """Return the floor and the ratio of arithmetic to traffic time, both as log2."""
    compute, memory = _log(numbers(rows, "flop") / flop_per_s), _log(numbers(rows, "byte") / byte_per_s)
    return [np.maximum(compute, memory), np.clip(compute - memory, -FEATURES_BALANCED, FEATURES_BALANCED)]


def _gemm(rows: Table, flop_per_s: Matrix, byte_per_s: float) -> Matrix:
    b, m, n, k = _sizes(rows, "b", "m", "n", "k")
    filled = sum(fill(numbers(rows, name), PRODUCT_TILE) for name in ("m", "n"))
    loads = aligned(rows, "n") + aligned(rows, "k")
    shape = [k, b + m + n - _log(flop_per_s), np.minimum(m, n), np.abs(m - n) / 2, flag(b > 0), filled, loads]
    return np.column_stack([*_work(rows, flop_per_s, byte_per_s), *shape])


def _matvec(rows: Table, flop_per_s: Matrix, byte_per_s: float) -> Matrix:
    # The matrix is read once: the features are its read time at the bandwidth and the outputs that share it.
    floor = np.maximum(_traffic(rows, flop_per_s, byte_per_s)[:, 0], np.log2(SHORTEST_S))
    return np.column_stack([floor, _log_product(rows, "b", "m", "n")])


def _sparse(rows: Table, flop_per_s: Matrix, byte_per_s: float) -> Matrix:
    return np.column_stack([*_work(rows, flop_per_s, byte_per_s), *_sizes(rows, "n", "density")])


def _conv(rows: Table, flop_per_s: Matrix, byte_per_s: float) -> Matrix:
    batch, inputs, outputs, groups, height, width = _sizes(
        rows, "batch", "in_channels", "out_channels", "groups", "height", "width"
    )
    kernel = _log_product(rows, "kernel_d", "kernel_h", "kernel_w")
    stride = _log_product(rows, "stride_d", "stride_h", "stride_w")
    positions = batch + height + width - stride
    shape = [inputs, outputs, groups, positions - _log(flop_per_s), kernel, stride, flag(winograd(rows))]
    return np.column_stack([*_work(rows, flop_per_s, byte_per_s), *shape, flag(kernel == 0)])


def _rnn(rows: Table, flop_per_s: Matrix, byte_per_s: float) -> Matrix:
    batch, steps, hidden = _sizes(rows, "batch", "steps", "hidden_size")
    lstm, gru = (flag(is_in(rows, "cell", cell)) for cell in ("lstm", "gru"))
    size = hidden - _log(flop_per_s) / 2
    return np.column_stack([_work(rows, flop_per_s, byte_per_s)[0], size, batch, steps, lstm, gru])


def _attention(rows: Table, flop_per_s: Matrix, byte_per_s: float, widths: Widths = ANY) -> Matrix:
    batch, heads, kv_heads, length = _sizes(rows, "batch", "heads", "kv_heads", "q_len")
    depth = _log(np.clip(numbers(rows, "head_dim"), *widths))
    shape = [length, depth, batch + heads - _log(flop_per_s), heads - kv_heads]
    return np.column_stack([*_work(rows, flop_per_s, byte_per_s), *shape])


def _experts(rows: Table, flop_per_s: Matrix, byte_per_s: float) -> Matrix:
    m, n, b, experts, top_k = _sizes(rows, "m", "n", "b", "experts", "top_k")
    return np.column_stack([*_work(rows, flop_per_s, byte_per_s), m + top_k - experts, n, b - _log(flop_per_s)])


def _traffic(rows: Table, flop_per_s: Matrix, byte_per_s: float) -> Matrix:
    del flop_per_s
    return np.column_stack([_log(numbers(rows, "byte") / byte_per_s), *_sizes(rows, "row")])


def _bytes_alone(rows: Table, flop_per_s: Matrix, byte_per_s: float) -> Matrix:
    return _traffic(rows, flop_per_s, byte_per_s)[:, :1]


FEATURES: Mapping[str, Callable[[Table, Matrix, float], Matrix]] = {
    "gemm": _gemm, "matvec": _matvec, "sparse_gemm": _sparse, "conv": _conv, "rnn": _rnn, "attention": _attention,
    "decode": _attention, "latent": _attention, "full": partial(_attention, widths=OF_ENCODERS),
    "experts": _experts, "norm": _traffic, "softmax": _traffic, "pointwise": _bytes_alone, "traffic": _bytes_alone,
}  # fmt: skip
"""Map COSTED rows of a kind, the peak [flop/s] of each and the bandwidth [byte/s] to features (n × p)."""


WORK: Mapping[str, str] = {**{kind: kind for kind in FEATURES if kind != "traffic"}, "optimizer": "pointwise"}
"""Kinds with surfaces of their own; all other kinds share the surfaces of data movement."""
_FALLBACKS = {"sparse_gemm": "gemm/vector", tiles.LATENT: f"{tiles.DECODE}/matrix"}  # for work without a table
MOVING = "traffic"
MATVEC = "matvec"
"""Products with a side of 1: their share of the bandwidth is predicted from such products alone, on any engine."""
BY_PASS, OF_LIBRARIES = ("conv", "rnn"), ("gemm", "conv")  # the second: years of generations matter

BALANCE_TOLERANCE = 0.5
"""Difference in log2(flop per byte) at which the weight of another machine is exp(−1/2)."""
AT_LEAST = 0.01
OTHER_VENDOR, OTHER_LIBRARY, OTHER_WIDTH = 0.3, 0.1, 0.1
SAME_ARCHITECTURE, SAME_CHIP = 3.0, 4.0
"""Factors on the weight of a machine, or of a number format of other width: judgements. The time of tiles depends
on the library (two boards of AMD: 1.3 times that of eight of NVIDIA), other work depends on it less."""
LEAST, SLOPE = 0.15, 0.4
"""Standard deviation of ln(utilisation) where all machines agree and an op reaches its floor, and its increase per
unit of −ln(utilisation): what limits an op on one machine may not limit it on another. Fitted to products and
convolutions of left-out chips, so that intervals hit alike at low and high utilisation; 0.3 to 0.5 do as well."""
HEARD = 4.0
"""Machines beyond the first at which half of the disagreement counts: between two or three it may be chance."""
OF_OTHER_SIZES, AGREED_SPREAD = ("conv",), 0.3
"""Work whose surfaces are weighted by distance to their rows (`tiles.weighed_by_rows`), and its standard deviation
where they agree: from left-out chips and sizes, for which 0.2 to 0.4 do equally well."""

UNTESTED_Z = 2.5  # bounds of an interval, in standard deviations, where no chip could be left out

_GROUP = ("kind", "dtype", "engine", "pass_name")


class TypicalUtilisations(NamedTuple):
    """The typical utilisation floor / time of many ops: median, bounds of the interval, and source.

    `value`, `low`, `high` (q,): NaN where it is unknown.
    `source` (q,).
    `started` (q,): true where the time from this utilisation includes the kernel's start: no launch is added.
    """

    value: Matrix
    low: Matrix
    high: Matrix
    source: Texts
    started: Flags

    def chosen(self, which: Flags | Places) -> TypicalUtilisations:
        """Select some of the ops."""
        return TypicalUtilisations._make(column[which] for column in self)


@lru_cache(maxsize=256)
def _closest(tables: TypicalTables, excluded: tuple[str, ...], chip: str, group: tuple[str, ...]) -> str:
    """Return the name of the best table of surfaces for ops, first of the chip's series; "" if there is none."""
    kind, _, engine, pass_name = group
    work = WORK.get(kind, MOVING)
    engines, passes = (engine, "vector", "matrix"), (pass_name, f"{pass_name}_input", "forward")
    if work not in BY_PASS:
        names = [f"{work}/{name}" for name in engines]
    else:
        names = [f"{work}/{name}/{word}" for word in passes for name in engines]
    names = [on_series(work, chip, engine), *names, _FALLBACKS.get(work, "")]
    return next((name for name in names if surfaces(tables, name, excluded) is not None), "")


def _similarity(surface: Surface, dtype: str, balance: float, architecture: str, kin: bool) -> float:
    widths = {round(math.log2(ITEM_BYTE[one])) for one in (dtype, surface.dtype)}
    weight = 1.0 if len(widths) == 1 else OTHER_WIDTH
    if not np.isnan(balance) and not np.isnan(surface.balance):
        weight *= float(np.exp(-0.5 * ((surface.balance - balance) / BALANCE_TOLERANCE) ** 2)) + AT_LEAST
    here, there = chip_words(architecture), chip_words(surface.architecture)
    if here and here[0] != there[0]:
        return weight * (OTHER_LIBRARY if surface.form else OTHER_VENDOR)
    return weight * (SAME_ARCHITECTURE if kin else 1.0) * (SAME_CHIP if kin and here == there else 1.0)


def similarity(
    found: Surfaces, dtype: str, balance: float, architecture: str, years: Mapping[str, float],
    engines: Mapping[str, float],
) -> Matrix:  # fmt: skip
    """Weight the surfaces for a machine by number format, balance, architecture and age (surfaces).

    Boards of one chip are not independent: together they count as the square root of their number. `years`: see
    `tiles.near_in_time`.
    """
    boards = [(one.architecture, one.dtype) for one in found.known]
    near = zip(found.known, kin_of(architecture, [one for one, _ in boards], engines), strict=True)
    weight = np.array([_similarity(one, dtype, balance, architecture, kin) for one, kin in near])
    weight *= tiles.near_in_time(found.known, years, architecture) / np.sqrt([*map(boards.count, boards)])
    return np.asarray(weight / weight.sum(), np.float64)


def spread_at(utilisation: Matrix) -> Matrix:
    """Return the standard deviation of ln(utilisation) for ops of this predicted ln(utilisation).

    >>> spread_at(np.log([1.0, 0.5, 0.25])).round(2).tolist()
    [0.15, 0.32, 0.57]
    """
    return np.asarray(np.hypot(LEAST, SLOPE * np.minimum(utilisation, 0.0)), np.float64)


def median_and_spread(
    found: Surfaces, features: Matrix, weight: Matrix, above: Matrix | None = None
) -> tuple[Matrix, Matrix]:
    """Return ln(utilisation) of ops (q × p) and its standard deviation, from weighted surfaces.

    The deviation is up to the factors in `Surface.errors`. `weight` (surfaces,), or per op, see
    `tiles.weighed_by_rows`. `above` (surfaces × q): ln(time by the surface's form / floor), for surfaces that are
    fitted relative to a form which explains longer times; None for surfaces relative to the floor itself.
    """
    predictions = surface_values(found, features) - (0.0 if above is None else above)
    value = weighted_median(predictions, weight)
    each = weight.reshape(len(weight), -1)
    others = 1 / (each**2).sum(0) - 1
    between = (each * (predictions - value) ** 2).sum(0) * others / (others + HEARD)
    alone = AGREED_SPREAD if weight.ndim > 1 else LEAST if above is not None else spread_at(value)
    return value, np.asarray(np.sqrt(between + alone**2))


def _ends(found: Surfaces, interval: float) -> tuple[float, float]:
    """Return the bounds of an interval in standard deviations, from the errors on left-out chips.

    The next chip is farther off than the quantiles of n chips say, as a new draw is farther from the mean of n
    draws than they are: by √(1 + 1/n).
    """
    tested = [one for one in found.known if len(one.errors)]
    chips = len({one.architecture for one in tested})
    if not chips:
        return -UNTESTED_Z, UNTESTED_Z
    errors = np.concatenate([one.errors for one in tested]) * np.sqrt(1 + 1 / chips)
    level = min(interval, DEFAULT_LEVEL)  # the few stored quantiles of each do not describe tails
    below, above = np.quantile(errors, [0.5 - level / 2, 0.5 + level / 2]).tolist()
    farther = op_half_width(interval) / op_half_width(level)
    return min(below, 0.0) * farther, max(above, 0.0) * farther


@lru_cache(maxsize=256)
def _included_machines(
    tables: TypicalTables,
    name: str,
    excluded: tuple[str, ...],
    dtype: str,
    balance: float,
    architecture: str,
    interval: float,
) -> tuple[Matrix, tuple[float, float]]:
    """Return the weight of each other machine, and the bounds of an interval in standard deviations."""
    found = surfaces(tables, name, excluded)
    if found is None:
        raise KeyError(name)
    years = tables.years if name.startswith(OF_LIBRARIES) else {}
    weight = similarity(found, dtype, balance, architecture, years, tables.engines)
    below, above = _ends(found, interval)
    if name.startswith(MATVEC):
        # Each board has about a dozen rows for vectors, so their errors are estimated from few draws.
        wider = of_few(max(len({one.architecture for one in found.known}), 2))
        below, above = below * wider, above * wider
    return weight, (below, above)


class _Peers(NamedTuple):
    """Surfaces for products in tiles and their weights; `ends`: bounds of the interval in standard deviations.

    `twins`: of boards of the same chip; `spare`: `spare_of` a board with a part of their engine, else 1.
    """

    found: Surfaces
    weight: Matrix
    interval: float
    ends: tuple[float, float]
    first: str
    library: str
    twins: bool
    spare: float = 1.0


@lru_cache(maxsize=64)
def _peers(
    tables: TypicalTables, excluded: tuple[str, ...], dtype: str, library: str, architecture: str, interval: float
) -> _Peers | None:
    twins, every = (surfaces(tables, f"{name}/{library}", excluded) for name in (tiles.TWINS, tiles.TILED))
    same = [it for it in twins.known if chip_words(it.architecture) == chip_words(architecture)] if twins else []
    of = twins if same else every
    if of is None:
        return None
    found = side_by_side(of.length, tiles.of_width(same or of.known, dtype))
    weight = similarity(found, dtype, math.nan, architecture, tables.years, tables.engines)
    first = found.known[int(weight.argmax())].machine
    return _Peers(found, weight, interval, _ends(of, interval), first, library, bool(same))


def _in_tiles(machine: Machine, dtype: str, engine: str, interval: float) -> tuple[tiles.Chip, _Peers] | None:
    """Return what predicts products in tiles; None where processors, cache, a rate or surfaces are not known."""
    known, device = rates(machine, dtype, engine), machine.device
    if machine.typical is None or known.flop_per_s is None or known.byte_per_s is None:
        return None
    if (chip := tiles.chip_of(device, known.flop_per_s.value, known.byte_per_s.value)) is None:
        return None
    library, spare = tiles.library_of(dtype, engine), spare_of(machine, dtype, engine)
    found = _peers(machine.typical, machine.excluded, dtype, library, device.architecture, interval)
    if found is not None and found.twins and spare > HELD_BACK:  # predicted as they are, see `_of_tiles`
        return chip._replace(flop_per_s=spare * chip.flop_per_s), found._replace(spare=spare)
    return None if found is None else (chip._replace(spare=spare), found)


def started(products: Rows, machine: Machine, interval: float) -> Flags:
    """Return `TypicalUtilisations.started` of products, without computing their utilisation."""
    groups, number = same_texts(products, "dtype", "engine")
    found = np.zeros(len(products), bool)
    for at_group, (dtype, engine) in enumerate(groups):
        if (known := _in_tiles(machine, dtype, engine, interval)) is not None:
            at = np.flatnonzero(number == at_group)
            found[at] = tiles.runs_in_tiles(products.take(at), known[1].library)
    return found


def _of_tiles(rows: Rows, dtype: str, chip: tiles.Chip, peers: _Peers) -> tuple[Matrix, str]:
    """Do the same as `_of_group` for products of a machine that states processors and cache."""
    products = tiles.tiled(rows, chip)
    above = tiles.log_time_over_floor(peers.found, products, chip)
    value, sigma = median_and_spread(peers.found, products.features, peers.weight, above)
    if peers.spare > 1:
        own = chip.flop_per_s / peers.spare
        value = tiles.of_part(value, rows, peers.spare, own, chip.byte_per_s)
    on = f"tile model on {chip.units:.0f} processors and {chip.cache_byte / 1e6:.0f} MB of cache"
    wide = op_half_width(peers.interval) * BY_PROGRAM * (dtype == BLOCKS_OF_FP8)
    low, high = (np.copysign(np.hypot(end * sigma, wide), end) for end in peers.ends)
    return np.exp([value, value + low, value + high]), f"{on}, typical of {peers.first} and similar machines"


def _table_of(group: tuple[str, ...], machine: Machine) -> str:
    """Return the name of the best surfaces for ops of a kind, format, engine and pass; "" where there are none."""
    if (tables := machine.typical) is None:
        why = "has no typical utilisations. Call fomkit.profiles.evidence.with_fits first."
        raise FomkitError(machine.name, why)
    return _closest(tables, machine.excluded, machine.device.architecture, group)


def _of_group(
    rows: Rows, group: tuple[str, ...], machine: Machine, interval: float
) -> tuple[Matrix, str | Texts] | None:
    """Return median and bounds (3, q) of rows of one kind, format, engine and pass, and their sources."""
    _, dtype, engine, _ = group
    name, tables = _table_of(group, machine), machine.typical
    found = surfaces(tables, name, machine.excluded) if name and tables is not None else None
    known = rates(machine, dtype, engine)
    if tables is None or found is None or known.byte_per_s is None:
        return None
    work = kind_of_work(name)
    if work in PRODUCT_KINDS and known.flop_per_s is None:
        return None
    peak = np.full(len(rows), value_of(known.flop_per_s))
    like = "" if work == MOVING else machine.device.architecture  # all machines count alike for data movement
    balance = balance_of(machine, work, dtype, engine)
    weight, (below, above) = _included_machines(tables, name, machine.excluded, dtype, balance, like, interval)
    features = FEATURES[work](rows, peak, known.byte_per_s.value)
    if work in OF_OTHER_SIZES and len(weight) > 1:
        weight = tiles.weighed_by_rows(found, features, weight)
    value, sigma = median_and_spread(found, features, weight)
    chip = chip_words(machine.device.architecture)
    timed = work in tiles.OF_TIMED and any(chip_words(one.architecture) == chip for one in found.known)
    if (work in tiles.OF_PART or timed) and (spare := spare_of(machine, dtype, engine)) > HELD_BACK:
        whole = FEATURES[work](rows, spare * peak, known.byte_per_s.value)
        whole, _ = median_and_spread(found, whole, weight)
        value = np.maximum(value, tiles.of_part(whole, rows, spare, peak[0], known.byte_per_s.value))
    each = np.array([f"typical of {name} on {one.machine} and similar machines" for one in found.known], object)
    source: str | Texts = each[weight.argmax(0)]
    if work == "gemm" and (name == "gemm/matrix" or not machine.device.units):
        why = "rows are no multiple of 16 bytes" if machine.device.units else "processors and cache are not stated"
        source = f"{source}; no tile model: {why}"
    longer, *spread = narrow_format_factors(rows, work, (one.dtype for one in found.known), dtype)
    wide = op_half_width(interval) * BY_PROGRAM * (dtype == BLOCKS_OF_FP8 and name.startswith(("gemm", MATVEC)))
    faster, slower = (np.hypot(op_half_width(interval) / op_half_width(0.8) * one, wide) for one in spread)
    ends = (0.0, -np.hypot(below * sigma, slower), np.hypot(above * sigma, faster))
    return np.exp([value - longer + end for end in ends]), source


def _thinned(
    rows: Rows, group: tuple[str, ...], machine: Machine, interval: float, found: tuple[Matrix, str | Texts]
) -> tuple[Matrix, Texts]:
    """Mix in, for thin products, the utilisation of matrix-vector products; return bounds (3, q) and sources."""
    ends, sources = found[0], np.full(len(rows), found[1], object)
    at = np.flatnonzero((thin := tiles.thinness(rows)) > 0)
    of_vectors = _of_group(rows.take(at), (MATVEC, *group[1:]), machine, interval) if len(at) else None
    if of_vectors is not None:
        ends[:, at] = np.exp(tiles.mix(np.log(ends[:, at]), np.log(of_vectors[0]), thin[at], interval))
        sources[at] = np.where(thin[at] > 0.5, of_vectors[1], sources[at])
    return ends, sources


def typical_utilisation(rows: Table, machine: Machine, interval: float) -> TypicalUtilisations:
    """Return the typical utilisation of ops on a machine.

    Each timed machine's surface (`surfaces`) predicts a utilisation; the result is their weighted median, in which
    similar machines weigh most. The interval follows from their disagreement and the errors of such medians on
    left-out chips.

    `rows`: COSTED rows. `machine`: with ``typical``, the surfaces of others. Its own timings are not used, nor are
    those of architectures that it excludes. `interval`: share of intervals that should contain the truth.
    """
    warm = families.warm_part(rows := as_rows(rows), machine.device)
    if is_in(rows, "kind", "attention").any():
        rows = rows.assign(kind=tiles.by_parts(rows))
    ends, sources = np.full((3, len(rows)), np.nan), np.full(len(rows), "", object)
    groups, numbers_of = same_texts(rows, *_GROUP)
    # Groups that use the same table of surfaces are predicted together.
    merged: dict[tuple[object, ...], int] = {}
    products = [kind == "gemm" for kind, *_ in groups]
    tables = [(_table_of(group, machine), *group[1:3]) for group in groups]
    number = [merged.setdefault((one, *table), len(merged)) for one, table in zip(products, tables, strict=True)]
    firsts = [number.index(at) for at in range(len(merged))]
    numbers_of = np.array([*number, -1])[numbers_of]
    in_tiles = np.zeros(len(rows), bool)
    for at_group, first in enumerate(firsts):
        at, group, is_product = np.flatnonzero(numbers_of == at_group), groups[first], products[first]
        known = _in_tiles(machine, group[1], group[2], interval) if is_product else None
        if known and (tiled := tiles.runs_in_tiles(rows.take(at), known[1].library)).any():
            own, at = at[tiled], at[~tiled]
            ends[:, own], sources[own] = _of_tiles(rows.take(own), group[1], *known)
            in_tiles[own] = True
        predict = partial(_of_group, group=group, machine=machine, interval=interval)
        found = used_as_in_parts(rows.take(at), warm[at], predict) if len(at) else None
        if found is not None and is_product:
            ends[:, at], sources[at] = _thinned(rows.take(at), group, machine, interval, found)
        elif found is not None:
            ends[:, at], sources[at] = found
    value, low, high = significant(ends)
    return TypicalUtilisations(value, low, high, sources, in_tiles)
