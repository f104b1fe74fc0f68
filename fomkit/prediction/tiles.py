"""How long a product takes on a chip of many processors, from its sheet: waves of tiles, traffic, a start.

A product is cut into tiles of its result, and each processor computes one tile at a time. So its arithmetic takes
whole waves of tiles, whatever is left of the last; a result of few tiles is cut along its depth as well, and the
parts are joined. Beside it run the traffic, of which the cache serves what fits it, and the wait of one tile for
its operands, which grows with the depth. The longest hides most of the others, and a start comes on top::

    t = start + (arithmetic^p + traffic^p + wait^p)^(1/p) + joining + quantising

Of what is left, the tables of timed machines tell (`fomkit.prediction.typical`).

Vector units take the same tiles, and matrix engines that multiply fp32 as it is; they read numbers one by one, so
rows that fill no 16 bytes are as good as others. There it matters how factors lie (`TURNED`).

Products too thin for tiles run by kernels of their own. Attention and experts are cut into tiles too; to a fit of
their timings, how many they are is a feature.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fomkit.core.interval import op_half_width
from fomkit.core.machine import Device
from fomkit.core.measurement import Surface
from fomkit.core.units import ITEM_BYTE
from fomkit.prediction.estimates import Table, are, item_bytes, numbers
from fomkit.prediction.gp import (
    SURFACE_NOISE,
    SURFACE_VARIANCE,
    Flags,
    Matrix,
    Surfaces,
    Texts,
    apart,
    correlation,
)

TILED, TWINS = "tiles", "twins"
"""Products as tiles of a result that processors share, by `library_of`: few rows of each machine, for other chips,
and many, for other boards of its own chip, where the engine is one of matrices."""
TILES = ((16, 64), (64, 64), (64, 128), (128, 64), (128, 128), (128, 256), (256, 128), (256, 256))
"""Rows and columns of tiles that libraries have kernels for."""
SPLITS = (1, 2, 4, 8, 16)
"""Parts into which the depth may be cut."""
STEP = 64.0
"""Depth that a tile is computed by at once: part of it costs as much."""
REUSE, LESS = 64.0, 0.35
"""Results per operand loaded, a·b / (a + b) of a tile of a × b, from which it runs at full rate, and the power by
which the rate falls below."""
JOIN_S = 1.5e-6
"""What it takes to join parts of the depth, besides their traffic of one byte an item [s]."""
EXPECTED_WAIT_S = 0.5e-9
"""Wait for a unit of depth [s] by which a library is taken to choose tile and parts."""
TURNED = 1.09
"""How much longer the arithmetic of a product in fp32 takes where the rows of both factors lie along the depth, as
in a linear layer's forward pass: both are turned on the way to the units. Gradients and batched products read one
or both as they lie. Of 13 tables of vector units (256 and more a side, from 300 µs) 12 take 1.01 to 1.27 times as
long so as with both stored plainly, beside their forms, 1.1 in the middle (docs/adr/0057)."""
CACHE_BYTE_PER_S = 1.2e11
"""What the cache may bring to one processor: 64 bytes a cycle at 1.9 GHz."""
TURNS = 6
"""Sets of weights that the timed programs use in turn, so that the cache must hold all of them to help."""


class Form(NamedTuple):
    """The constants of a library on a machine, fitted to its table by ``benchmarks/usual_utilisation.py``.

    `start_s` [s]. `arithmetic`, `memory`, `quantising`: times of these over their floors. `power`: p.
    `wait_s`: wait for a unit of depth [s]. `cache_rate`: share of `CACHE_BYTE_PER_S` that is reached.
    `cache_share`: share of the cache that serves.
    """

    start_s: float = 2.5e-6
    arithmetic: float = 1.2
    memory: float = 1.1
    power: float = 2.5
    wait_s: float = 0.4e-9
    quantising: float = 1.0
    cache_rate: float = 0.5
    cache_share: float = 0.8


NARROW_BYTE = 1.5
"""Width of a number under which the left factor is made of a 2-byte one first [byte]."""


class Chip(NamedTuple):
    """What the form needs of a machine: processors, cache [byte], peak [flop/s] and bandwidth [byte/s]."""

    units: float
    cache_byte: float
    flop_per_s: float
    byte_per_s: float


class Tiled(NamedTuple):
    """Products as a chip runs them, columns of (n,).

    `arithmetic_s`: whole waves of the tile that takes least, with `TURNED` [s]. `depth`: of one part.
    `joining_s` [s].
    `weight_byte`, `other_byte`: traffic of the second factor, and of the first and the result. `quantised_byte`:
    traffic of making factors of less than `NARROW_BYTE` of 2-byte ones. `features` (n, 8): as the surfaces look at
    them. `spare`: see `spare_of`.
    """

    arithmetic_s: Matrix
    depth: Matrix
    joining_s: Matrix
    weight_byte: Matrix
    other_byte: Matrix
    quantised_byte: Matrix
    features: Matrix
    spare: float = 1.0


def chips_of(device: Device) -> dict[str, Chip]:
    """Give what the form needs by number format and engine, as ``bf16/matrix``; empty where it is not stated."""
    byte_per_s = device.byte_per_s
    known = {} if byte_per_s is None else {
        f"{peak.dtype}/{peak.engine}": chip_of(device, peak.rate.value, byte_per_s.value)
        for peak in device.peaks if peak.engine == "matrix"
    }  # fmt: skip
    return {name: chip for name, chip in known.items() if chip is not None}


def chip_of(device: Device, flop_per_s: float, byte_per_s: float) -> Chip | None:
    """Give what the form needs; None where processors or cache are not stated."""
    if device.units is None or device.cache_byte is None:
        return None
    return Chip(device.units.value, device.cache_byte.value, flop_per_s, byte_per_s)


def spare_of(device: Device, dtype: str) -> float:
    """Give how much faster a matrix engine is with other sums of factors as wide; 1 where nothing says so.

    Some boards sum in fp32 at half of the rate of their engine. Operands and power suffice for the whole rate
    there, so tiles wait for neither. Factors in tf32 have the digits of fp16 and twice its width: engines take
    half as many of them, and one that takes fewer is held back.
    """
    peak = device.peak(dtype, "matrix")
    if peak is None:
        return 1.0
    floating = [one for one in device.peaks if one.engine == "matrix" and one.accumulate_dtype.startswith("fp")]
    rates = [one.rate.value for one in floating if ITEM_BYTE[one.dtype] == ITEM_BYTE[dtype]]
    if dtype == "tf32":
        rates += [one.rate.value / 2 for one in floating if one.dtype == "fp16"]
    return max([peak.rate.value, *rates]) / peak.rate.value


def _soonest(
    sides: tuple[Matrix, ...], chip: Chip, splits: Sequence[int], spare: float
) -> tuple[Matrix, Matrix, Matrix]:
    """Give the arithmetic [s] of the tile and parts that are soonest done, their depth, and joining them [s]."""
    b, m, n, k = sides
    # A wave at a time: candidates are (tiles, splits, n).
    high, wide = np.array(TILES, np.float64).T[:, :, None]
    parts = np.array(splits, np.float64)[None, :, None]
    rate = np.minimum(1.0, spare * (high * wide / (high + wide) / REUSE) ** LESS)
    count = (b * np.ceil(m / high) * np.ceil(n / wide))[:, None, :]
    steps = np.ceil(k / parts / STEP) * STEP
    per_tile = 2 * (high * wide / rate)[:, None, :] * steps / (chip.flop_per_s / chip.units)
    arithmetic = np.ceil(count * parts / chip.units) * per_tile
    joining = (parts > 1) * (JOIN_S + parts * b * m * n / chip.byte_per_s)
    best = (arithmetic + EXPECTED_WAIT_S * k / parts + joining).reshape(-1, len(m)).argmin(0)
    split, at = best % len(splits), np.arange(len(m))
    return arithmetic.reshape(-1, len(m))[best, at], k / parts[0, split, 0], joining[0, split, at]


def tiled(rows: Table, chip: Chip, splits: Sequence[int] = SPLITS, spare: float = 1.0) -> Tiled:
    """Cut products into tiles: the tile and the parts of the depth that are soonest done.

    `rows`: COSTED products; `splits`: parts into which the depth may be cut; `spare`: see `spare_of`.
    """
    b, m, n, k = sides = tuple(numbers(rows, name) for name in ("b", "m", "n", "k"))
    item, (arithmetic_s, depth, joining_s) = item_bytes(rows), _soonest(sides, chip, splits, spare)
    weight, other = item * b * n * k, b * (item * m * k + np.maximum(item, 2.0) * m * n)
    quantised = np.where(item < NARROW_BYTE, (2 + item) * b * m * k, 0.0)
    compute_s, memory_s = 2 * b * m * n * k / chip.flop_per_s, numbers(rows, "byte") / chip.byte_per_s
    wave = b * np.ceil(m / 128) * np.ceil(n / 128) / chip.units
    held = (TURNS * weight + other) / chip.cache_byte
    floor_s, by_tiles = np.maximum(compute_s, memory_s), arithmetic_s / compute_s
    features = np.log2(np.column_stack([m * b, n, k, compute_s / memory_s, wave, by_tiles, held, floor_s]))
    along = ~(numbers(rows, "trans_a") > 0) & (numbers(rows, "trans_b") > 0) & are(rows, "dtype", "fp32")
    arithmetic_s = np.where(along, TURNED, 1.0) * arithmetic_s
    return Tiled(arithmetic_s, depth, joining_s, weight, other, quantised, features, spare)


def tile_seconds(form: Form, products: Tiled, chip: Chip) -> Matrix:
    """Give how long products take [s] by the form; rises with every side but for the tile that is chosen."""
    held = chip.cache_byte * form.cache_share
    byte = products.weight_byte + products.other_byte
    kept_byte = products.other_byte + products.quantised_byte * 2 / 3  # as it was before it was made smaller
    cached, kept = (1 / (1 + (one / held) ** 4) for one in (TURNS * products.weight_byte + kept_byte, kept_byte))
    slow, fast = 1 / chip.byte_per_s, 1 / max(CACHE_BYTE_PER_S * chip.units * form.cache_rate, chip.byte_per_s)
    memory_s = byte * ((1 - cached) * form.memory * slow + cached * fast)
    arithmetic_s = products.arithmetic_s * max(form.arithmetic / products.spare, 1.0)
    parts = np.stack([arithmetic_s, memory_s, products.depth * form.wait_s])
    longest = parts.max(0)  # powers of shares stay in the range of numbers
    together = longest * ((parts / longest) ** form.power).sum(0) ** (1 / form.power)
    quantising = form.quantising * products.quantised_byte * ((1 - kept) * slow + kept * fast)
    return np.asarray(form.start_s + together + products.joining_s + quantising, np.float64)


HELD = 0.2
"""How firmly constants of a form are held, in ln(time) for a factor of e: one machine's form serves another's
products, so what its table leaves open shall be as everywhere."""


def fit_form(products: Tiled, chip: Chip, seconds: Matrix) -> Form:
    """Fit a form to times, robust to outliers; each constant has three digits and is held to its default."""
    from scipy.optimize import least_squares  # no prediction waits for it

    start, logs = np.log(Form()), np.log(seconds)

    def errors(logged: Matrix) -> Matrix:
        wrong = np.log(tile_seconds(Form(*np.exp(logged)), products, chip)) - logs
        return np.concatenate([wrong, np.sqrt(len(seconds)) * HELD * (logged - start)])

    found = least_squares(errors, start, loss="soft_l1", f_scale=0.2, max_nfev=60).x
    return Form(*(float(f"{value:.3g}") for value in np.exp(found)))


WASTE_TILES = ((128, 128), (64, 64), (128, 256), (256, 128))
"""Rows and columns of the tiles of which a fit of many timed products is told how full the last wave is."""


def waves(rows: Table, units: float) -> Matrix:
    """Give features of products on so many processors (n × 5): waves of tiles, and what the last of each wastes.

    >>> import pandas as pd
    >>> waves(pd.DataFrame({"b": [1.0], "m": [1280.0], "n": [1280.0]}), 100).tolist()
    [[0.0, 0.0, 0.0, 1.0, 1.0]]
    """
    b, m, n = (numbers(rows, name) for name in ("b", "m", "n"))
    counts = np.stack([b * np.ceil(m / high) * np.ceil(n / wide) / units for high, wide in WASTE_TILES], 1)
    return np.asarray(np.log2(np.column_stack([counts[:, 0], np.ceil(counts) / counts])), np.float64)


def above_floor(found: Surfaces, products: Tiled, chip: Chip) -> Matrix:
    """Give ln of the time by each surface's form over the floor, for products on a chip (surfaces × q)."""
    times = np.stack([tile_seconds(Form(*one.form), products, chip) for one in found.known])
    return np.asarray(np.log(times) - np.log(2.0) * products.features[:, -1], np.float64)


def digit_bytes(rows: Table) -> Matrix:
    """Give the size of one number of each row's format, less the scales of blocks, which lie apart [byte]."""
    return np.asarray(np.exp2(np.round(np.log2(item_bytes(rows)))), np.float64)


def library_of(dtype: str, engine: str) -> str:
    """Name the engine whose library's kernels multiply a number format so.

    A matrix engine that takes fp32 as it is (AMD's) narrows nothing and reads single numbers, as vector units do.
    """
    return "vector" if dtype == "fp32" else engine


def runs_in_tiles(products: Table, library: str) -> Flags:
    """Tell which products of a library run in tiles as timed ones did.

    Of vector units those that are not thin. Of matrix engines those whose stored rows are read 16 bytes at a time:
    a row of the first operand holds k numbers, and m where it is stored transposed; one of the second n, or k; one
    of the result n.
    """
    if library == "vector":
        return np.asarray(thinness(products) == 0)
    items = np.maximum(16.0 / digit_bytes(products), 1.0)
    m, n, k = (numbers(products, name) % items == 0 for name in ("m", "n", "k"))
    turned = [numbers(products, name) > 0 for name in ("trans_a", "trans_b")]
    return np.asarray(np.where(turned[0], m, k) & np.where(turned[1], k, n) & n)


GENERATION_YEARS, LEAST_WORD = 2.0, 0.05
"""Years between two generations by which the word of one falls to exp(−1/2) for the other, and the least that is
left of it. Kernels of a library are made for a generation and serve the next: those of Turing are named for Volta,
those of Pascal for Maxwell. Products of machines left out were compared at 1.5, 2 and 3 years (docs/adr/0057)."""


def near_in_time(known: Sequence[Surface], years: Mapping[str, float], architecture: str) -> Matrix:
    """Weigh what surfaces say of products by how near their generations are; 1 where a year is not known.

    `years`: by vendor and generation, the first two words of an architecture.
    """
    own = years.get(" ".join(architecture.split()[:2]), math.nan)
    theirs = np.array([years.get(" ".join(one.architecture.split()[:2]), math.nan) for one in known])
    near = np.exp(-0.5 * ((theirs - own) / GENERATION_YEARS) ** 2) + LEAST_WORD
    return np.asarray(np.nan_to_num(near, nan=1.0), np.float64)


OPEN_COUNTS = 3.0
"""How much less a surface counts that leaves its whole variance open, as 1 / (1 + this)²: told from convolutions
of chips and sizes left out, on which 3 to 6 do alike."""


def weighed_by_rows(found: Surfaces, features: Matrix, weight: Matrix) -> Matrix:
    """Weigh surfaces (surfaces,) for each op (surfaces × q) by how near to it their rows are as well.

    Of machines that were timed at unlike sizes, one at windows of 3×3, another at no small images, each says its
    mean away from its rows. What counts is the share of its variance that its nearest row leaves open.
    """
    starts = np.cumsum([0, *(len(one.rows) for one in found.known[:-1])])
    near = np.empty((len(found.known), len(features)))
    for block, distance in apart(features / found.length, found.lifted):
        near[:, block] = correlation(np.minimum.reduceat(distance, starts, 1)).T
    left_open = 1 - near**2 * SURFACE_VARIANCE / (SURFACE_VARIANCE + SURFACE_NOISE)
    each = weight[:, None] / (1 + OPEN_COUNTS * left_open) ** 2
    return np.asarray(each / each.sum(0), np.float64)


def of_width(known: Sequence[Surface], dtype: str) -> list[Surface]:
    """Choose the surfaces of the number formats nearest in width: for a narrower one operands are made first."""
    off = [abs(math.log2(ITEM_BYTE[one.dtype] / ITEM_BYTE[dtype])) for one in known]
    return [one for one, octaves in zip(known, off, strict=True) if octaves == min(off)]


THIN = 8.0
"""Rows or columns from which a product is none of a matrix and a vector: the fewest of DeepBench's training list.
Its inference list has 1, 2 and 4 as well, on two boards of one chip: they read their matrix at 0.60 to 0.74 of the
bandwidth, and with 16 columns at 0.19 to 0.34."""


def thinness(rows: Table) -> Matrix:
    """Give how thin products are: 1 with one row or column, 0 from `THIN`, by powers of two in between (n).

    Libraries run a product with one row or column by a kernel of its own, which reads the matrix once and waits
    for memory. A few rows more lie between it and the tiles of large products; where depends on library and chip.

    >>> import pandas as pd
    >>> thinness(pd.DataFrame({"m": [1.0, 4.0, 16.0], "n": [512.0, 512.0, 512.0]})).round(3).tolist()
    [1.0, 0.333, 0.0]
    """
    least = np.minimum(numbers(rows, "m"), numbers(rows, "n"))
    return np.asarray(np.clip(1 - np.log2(least) / np.log2(THIN), 0.0, 1.0), np.float64)


def mix(first: Matrix, second: Matrix, share: Matrix, interval: float) -> Matrix:
    """Mix what two estimators say of some ops, by their logarithms; where they disagree the interval is wider.

    `first`, `second` (3, q): logarithms of value, low and high; `share` (q,): of the second; `interval`: share of
    intervals that should contain the truth. Gives array (3, q).

    >>> same = np.array([[1.0], [0.5], [2.0]])
    >>> mix(same, same, np.array([0.5]), 0.8).ravel().tolist()
    [1.0, 0.5, 2.0]
    """
    gap = op_half_width(interval) * (second[0] - first[0])
    between = share * (1 - share) * gap**2
    value = (1 - share) * first[0] + share * second[0]
    below, above = (
        np.sqrt((1 - share) * (first[at] - first[0]) ** 2 + share * (second[at] - second[0]) ** 2 + between)
        for at in (1, 2)
    )
    return np.stack([value, value - below, value + above])


TILE, EXPERT_TILE = 128.0, 64.0
"""Queries and keys in a usual tile of an attention, and tokens in one of an expert's products."""
FEW_TILES = (5.0, 9.0)
"""Powers of two of an attention's tiles between which it matters how many units of the device they fill."""


def _logs(rows: Table, *names: str) -> list[Matrix]:
    return [np.log2(numbers(rows, name)) for name in names]


LATENT, DECODE = "latent", "decode"
"""One query over a cache that is keys and values at once, for all heads, and over one of both."""


def attention_parts(rows: Table) -> Texts:
    """Name decoding, one query over a cache, which waits for memory, and attention without a mask."""
    decodes = (numbers(rows, "q_len") == 1) & (numbers(rows, "kv_len") > 1)
    one_query = np.where(numbers(rows, "shared_dim") > 0, LATENT, DECODE)
    return np.where(decodes, one_query, np.where(numbers(rows, "causal") == 0, "full", "")).astype(object)


def attention_features(rows: Table) -> Matrix:
    """Give the features of attention (n × 9)."""
    batch, heads, kv_heads, q_len, kv_len, head_dim = _logs(
        rows, "batch", "heads", "kv_heads", "q_len", "kv_len", "head_dim"
    )
    cache, work = batch + kv_heads + kv_len + head_dim, batch + heads + q_len + kv_len + head_dim
    # Few tiles leave units idle; of many the last wave is lost among the others.
    queries = numbers(rows, "q_len")
    tiles = np.clip(batch + heads + np.log2(np.ceil(queries / TILE)), *FEW_TILES)
    last = np.log2(queries / (np.ceil(queries / (2 * TILE)) * (2 * TILE)))
    # Libraries pack heads into tiles: their number times the batch does not tell what they do.
    sizes = [batch + heads, batch + kv_heads, heads, kv_len, head_dim, cache, work]
    return np.column_stack([*sizes, tiles, last])


def attention_waves(rows: Table, units: float) -> Matrix:
    """Give a feature of attention on so many processors (n × 1): what the last wave of tiles wastes.

    Its tiles are those of two groups of threads that take turns. One query at a time has none.
    """
    batch, heads, queries = (numbers(rows, name) for name in ("batch", "heads", "q_len"))
    count = batch * heads * np.ceil(queries / (2 * TILE)) / units
    wasted = np.where(queries > 1, np.ceil(count) / count, 1.0)
    return np.asarray(np.log2(wasted)[:, None], np.float64)


def attention_terms(rows: Table) -> Matrix:
    """Give the terms (n × 4): call, flop that a mask leaves, byte, and the keys that one query sees in turn."""
    keys = numbers(rows, "kv_len")
    masked = (numbers(rows, "causal") > 0) & (numbers(rows, "q_len") > 1)
    seen = np.where(masked, 0.5 * (1 + TILE / np.maximum(keys, TILE)), 1.0)
    return np.column_stack([np.ones(len(rows)), numbers(rows, "flop") * seen, numbers(rows, "byte"), keys])


def expert_features(rows: Table) -> Matrix:
    """Give the features of a mixture's experts (n × 9)."""
    b, m, n, k, experts, top_k = _logs(rows, "b", "m", "n", "k", "experts", "top_k")
    each = m + top_k - experts
    return np.column_stack([m, k, n, b, experts, top_k, each, each + b + k + n, b + k + n])


def expert_terms(rows: Table) -> Matrix:
    """Give the terms (n × 5): call, flop, weights read, all tokens sent, and the tiles of experts that are met."""
    b, m, n, k, experts, top_k = (numbers(rows, name) for name in ("b", "m", "n", "k", "experts", "top_k"))
    each, weights = m * top_k / experts, n * k
    read = np.minimum(b, np.maximum(each * b, 1.0)) * weights * item_bytes(rows)
    tiles = np.where(each >= 1, np.ceil(each / EXPERT_TILE), each) * b * weights
    return np.column_stack([np.ones(len(rows)), numbers(rows, "flop"), read, m * top_k * k, tiles])
