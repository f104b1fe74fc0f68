"""Predict the time of a product on a chip of many processors from its facts: waves of tiles, traffic, a start.

`tiled` cuts products into tiles, `tile_seconds` predicts their time, `fit_form` fits the constants (`Form`).

The result of a product is cut into tiles, and each processor computes one tile at a time. So the arithmetic takes
whole waves of tiles, however full the last is. A result of few tiles is also split along its depth, and the parts
are joined. Traffic (partly served by the cache) and the wait of a tile for its operands (which grows with the
depth) overlap with it. The longest of these hides most of the others, and a start is added::

    t = start + (arithmetic^p + traffic^p + wait^p)^(1/p) + joining + quantising

The ratio of measured time to this is predicted from the tables of timed machines (`fomkit.prediction.typical`).

Vector units use the same tiles, and so do matrix engines that multiply fp32 directly. They read single numbers, so
rows need not fill 16 bytes. There the storage order of the factors matters (`TURNED`).

Products too thin for tiles run by other kernels. Attention and experts are cut into tiles too; a fit of their
timings uses the number of tiles as a feature.
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
from fomkit.ops.columns import Words, one_word
from fomkit.prediction.estimators import Table, as_rows, is_in, item_bytes, numbers
from fomkit.prediction.gp import (
    SURFACE_NOISE,
    SURFACE_VARIANCE,
    Flags,
    Matrix,
    Surfaces,
    Texts,
    correlation,
    distance_blocks,
)

TILED, TWINS = "tiles", "twins"
"""Names of the surfaces of products in tiles, followed by `library_of`: a few rows of each machine, to predict
other chips; and many rows, to predict other boards of the same chip, for matrix engines."""
TILES = ((16, 64), (64, 64), (64, 128), (128, 64), (128, 128), (128, 256), (256, 128), (256, 256))
"""Rows and columns of the tiles for which libraries have kernels."""
SPLITS = (1, 2, 4, 8, 16)
"""Parts into which the depth may be split."""
STEP = 64.0
"""Depth that a tile processes at once; a part of it takes as long."""
REUSE, LESS = 64.0, 0.35
"""Results per loaded operand, a·b / (a + b) for a tile of a × b, above which it runs at full rate, and the
exponent with which the rate falls below."""
JOIN_S = 1.5e-6
"""Time of joining parts of the depth, besides their traffic of one byte per item [s]."""
EXPECTED_WAIT_S = 0.5e-9
"""Wait per unit of depth [s] that is assumed in the library's choice of tile and parts."""
TURNED = 1.09
"""Factor on the arithmetic of a product in fp32 where the rows of both factors are along the depth, as in a linear
layer's forward pass: both are transposed on the way to the units. Gradients and batched products read one or both
as stored. In 12 of 13 tables of vector units (sides of 256 and more, from 300 µs) the factor over products with
both stored plainly, relative to their forms, is 1.01 to 1.27; the median is 1.1 (docs/adr/0057)."""
CACHE_BYTE_PER_S = 1.2e11
"""Cache bandwidth per processor: 64 bytes a cycle at 1.9 GHz."""
TURNS = 6
"""Sets of weights that the timed programs use in turn; the cache must hold all of them to help."""


class Form(NamedTuple):
    """The constants of a library on a machine, fitted to its table by ``benchmarks/usual_utilisation.py``.

    `start_s` [s]. `arithmetic`, `memory`, `quantising`: times of these over their floors. `power`: p.
    `wait_s`: wait per unit of depth [s]. `cache_rate`: share of `CACHE_BYTE_PER_S` that is reached.
    `cache_share`: share of the cache that is used.
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
"""Width of a number [byte] below which the left factor is first converted from a 2-byte one."""


class Chip(NamedTuple):
    """The facts that the form needs: processors, cache [byte], peak [flop/s], bandwidth [byte/s].

    `spare`: how much faster the engine is than this peak (`rates.spare_of`); 1 for a timed chip, whose form is
    fitted to its own times.
    """

    units: float
    cache_byte: float
    flop_per_s: float
    byte_per_s: float
    spare: float = 1.0


FACTS = Chip._fields.index("spare")
"""Number of a chip's facts; a fit stores them before the constants of its form."""


class Tiled(NamedTuple):
    """Products as they run on a chip, columns of (n,).

    `arithmetic_s`: whole waves of the fastest tile, with `TURNED` [s]. `depth`: of one part. `joining_s` [s].
    `weight_byte`, `other_byte`: traffic of the second factor, and of the first and the result. `quantised_byte`:
    traffic of converting factors of less than `NARROW_BYTE` from 2-byte ones. `features` (n, 8): for the surfaces.
    """

    arithmetic_s: Matrix
    depth: Matrix
    joining_s: Matrix
    weight_byte: Matrix
    other_byte: Matrix
    quantised_byte: Matrix
    features: Matrix


def chips_of(device: Device) -> dict[str, Chip]:
    """Return the chip by number format and engine, as ``bf16/matrix``, without those that are not stated."""
    byte_per_s = device.byte_per_s
    known = {} if byte_per_s is None else {
        f"{peak.dtype}/{peak.engine}": chip_of(device, peak.rate.value, byte_per_s.value)
        for peak in device.peaks if peak.engine == "matrix"
    }  # fmt: skip
    return {name: chip for name, chip in known.items() if chip is not None}


def chip_of(device: Device, flop_per_s: float, byte_per_s: float) -> Chip | None:
    """Return the facts that the form needs; None where processors or cache are not stated."""
    if device.units is None or device.cache_byte is None:
        return None
    return Chip(device.units.value, device.cache_byte.value, flop_per_s, byte_per_s)


def _fastest_choice(sides: tuple[Matrix, ...], chip: Chip, splits: Sequence[int]) -> tuple[Matrix, Matrix, Matrix]:
    """Return arithmetic [s], depth of a part and joining [s] of the fastest choice of tile and parts."""
    b, m, n, k = sides
    # In whole waves: candidates are (tiles, splits, n).
    high, wide = np.array(TILES, np.float64).T[:, :, None]
    parts = np.array(splits, np.float64)[None, :, None]
    rate = np.minimum(1.0, chip.spare * (high * wide / (high + wide) / REUSE) ** LESS)
    count = (b * np.ceil(m / high) * np.ceil(n / wide))[:, None, :]
    steps = np.ceil(k / parts / STEP) * STEP
    per_tile = 2 * (high * wide / rate)[:, None, :] * steps / (chip.flop_per_s / chip.units)
    arithmetic = np.ceil(count * parts / chip.units) * per_tile
    joining = (parts > 1) * (JOIN_S + parts * b * m * n / chip.byte_per_s)
    best = (arithmetic + EXPECTED_WAIT_S * k / parts + joining).reshape(-1, len(m)).argmin(0)
    split, at = best % len(splits), np.arange(len(m))
    return arithmetic.reshape(-1, len(m))[best, at], k / parts[0, split, 0], joining[0, split, at]


def tiled(rows: Table, chip: Chip, splits: Sequence[int] = SPLITS) -> Tiled:
    """Cut COSTED products into tiles, by the fastest choice of tile and of parts of the depth."""
    b, m, n, k = sides = tuple(numbers(rows, name) for name in ("b", "m", "n", "k"))
    item, (arithmetic_s, depth, joining_s) = item_bytes(rows), _fastest_choice(sides, chip, splits)
    weight, other = item * b * n * k, b * (item * m * k + np.maximum(item, 2.0) * m * n)
    quantised = np.where(item < NARROW_BYTE, (2 + item) * b * m * k, 0.0)
    compute_s, memory_s = 2 * b * m * n * k / chip.flop_per_s, numbers(rows, "byte") / chip.byte_per_s
    wave = b * np.ceil(m / 128) * np.ceil(n / 128) / chip.units
    held = (TURNS * weight + other) / chip.cache_byte
    floor_s, by_tiles = np.maximum(compute_s, memory_s), arithmetic_s / compute_s
    features = np.log2(np.column_stack([m * b, n, k, compute_s / memory_s, wave, by_tiles, held, floor_s]))
    along = ~(numbers(rows, "trans_a") > 0) & (numbers(rows, "trans_b") > 0) & is_in(rows, "dtype", "fp32")
    arithmetic_s = np.where(along, TURNED, 1.0) * arithmetic_s
    return Tiled(arithmetic_s, depth, joining_s, weight, other, quantised, features)


def tile_seconds(form: Form, products: Tiled, chip: Chip) -> Matrix:
    """Return the time of products by the form [s]; it rises with every side, apart from changes of the tile."""
    held = chip.cache_byte * form.cache_share
    byte = products.weight_byte + products.other_byte
    kept_byte = products.other_byte + products.quantised_byte * 2 / 3  # 2/3: the 2-byte factor before conversion
    cached, kept = (1 / (1 + (one / held) ** 4) for one in (TURNS * products.weight_byte + kept_byte, kept_byte))
    slow, fast = 1 / chip.byte_per_s, 1 / max(CACHE_BYTE_PER_S * chip.units * form.cache_rate, chip.byte_per_s)
    memory_s = byte * ((1 - cached) * form.memory * slow + cached * fast)
    arithmetic_s = products.arithmetic_s * max(form.arithmetic / chip.spare, 1.0)
    parts = np.stack([arithmetic_s, memory_s, products.depth * form.wait_s])
    longest = parts.max(0)  # powers of ratios do not overflow
    together = longest * ((parts / longest) ** form.power).sum(0) ** (1 / form.power)
    quantising = form.quantising * products.quantised_byte * ((1 - kept) * slow + kept * fast)
    return np.asarray(form.start_s + together + products.joining_s + quantising, np.float64)


HELD = 0.2
"""Weight of the prior, in ln(time) per factor of e in a constant: one machine's form is used for products of
others, so constants that its table does not determine keep their defaults."""


def fit_form(products: Tiled, chip: Chip, seconds: Matrix) -> Form:
    """Fit a form to times, robust to outliers, with a prior at the defaults; constants have three digits."""
    from scipy.optimize import least_squares  # imported here: predictions do not need scipy

    start, logs = np.log(Form()), np.log(seconds)

    def errors(logged: Matrix) -> Matrix:
        wrong = np.log(tile_seconds(Form(*np.exp(logged)), products, chip)) - logs
        return np.concatenate([wrong, np.sqrt(len(seconds)) * HELD * (logged - start)])

    found = least_squares(errors, start, loss="soft_l1", f_scale=0.2, max_nfev=60).x
    return Form(*(float(f"{value:.3g}") for value in np.exp(found)))


WASTE_TILES = ((128, 128), (64, 64), (128, 256), (256, 128))
"""Rows and columns of the tiles for which a fit of many products has the fill of the last wave as a feature."""


def waves(rows: Table, units: float) -> Matrix:
    """Return features of products for a number of processors (n × 5): waves of tiles, and waste of the last ones.

    >>> import pandas as pd
    >>> waves(pd.DataFrame({"b": [1.0], "m": [1280.0], "n": [1280.0]}), 100).tolist()
    [[0.0, 0.0, 0.0, 1.0, 1.0]]
    """
    b, m, n = (numbers(rows, name) for name in ("b", "m", "n"))
    counts = np.stack([b * np.ceil(m / high) * np.ceil(n / wide) / units for high, wide in WASTE_TILES], 1)
    return np.asarray(np.log2(np.column_stack([counts[:, 0], np.ceil(counts) / counts])), np.float64)


def log_time_over_floor(found: Surfaces, products: Tiled, chip: Chip) -> Matrix:
    """Return ln(time by each surface's form / floor) for products on a chip (surfaces × q)."""
    times = np.stack([tile_seconds(Form(*one.form), products, chip) for one in found.known])
    return np.asarray(np.log(times) - np.log(2.0) * products.features[:, -1], np.float64)


def digit_bytes(rows: Table) -> Matrix:
    """Return the size of one number of each row's format, without the separate scales of blocks [byte]."""
    return np.asarray(np.exp2(np.round(np.log2(item_bytes(rows)))), np.float64)


def library_of(dtype: str, engine: str) -> str:
    """Return the engine whose library multiplies a number format.

    A matrix engine that multiplies fp32 directly (AMD's) reads single numbers unconverted, as vector units do.
    """
    return "vector" if dtype == "fp32" else engine


def runs_in_tiles(products: Table, library: str) -> Flags:
    """Return which products of a library run in tiles as timed ones do.

    On vector units those that are not thin. On matrix engines those whose stored rows are read 16 bytes at a time:
    a row of the first operand holds k numbers, or m if it is stored transposed; a row of the second n, or k; a row
    of the result n.
    """
    if library == "vector":
        return np.asarray(thinness(products) == 0)
    items = np.maximum(16.0 / digit_bytes(products), 1.0)
    m, n, k = (numbers(products, name) % items == 0 for name in ("m", "n", "k"))
    turned = [numbers(products, name) > 0 for name in ("trans_a", "trans_b")]
    return np.asarray(np.where(turned[0], m, k) & np.where(turned[1], k, n) & n)


GENERATION_YEARS, LEAST_WORD = 2.0, 0.05
"""Years between two generations at which the weight of one for the other is exp(−1/2), and the least weight.
Kernels of a library are written for a generation and used on the next: those of Turing are named for Volta, those
of Pascal for Maxwell. 1.5, 2 and 3 years were compared on products of left-out machines (docs/adr/0057)."""


def near_in_time(known: Sequence[Surface], years: Mapping[str, float], architecture: str) -> Matrix:
    """Return weights of surfaces for products by the years between generations; 1 where a year is unknown.

    `years`: by vendor and generation, the first two words of an architecture.
    """
    own = years.get(" ".join(architecture.split()[:2]), math.nan)
    theirs = np.array([years.get(" ".join(one.architecture.split()[:2]), math.nan) for one in known])
    near = np.exp(-0.5 * ((theirs - own) / GENERATION_YEARS) ** 2) + LEAST_WORD
    return np.asarray(np.nan_to_num(near, nan=1.0), np.float64)


OPEN_COUNTS = 3.0
"""A surface that explains none of its variance at an op has the weight 1 / (1 + this)²: from convolutions of
left-out chips and sizes, for which 3 to 6 do equally well."""


def weighed_by_rows(found: Surfaces, features: Matrix, weight: Matrix) -> Matrix:
    """Return weights of surfaces for each op (surfaces × q): ``weight`` (surfaces,), lower where rows are far.

    Machines are timed at different sizes, one at kernels of 3×3, another at no small images; away from its rows a
    surface is its mean. The weight depends on the share of its variance that its nearest row leaves unexplained.
    """
    starts = np.cumsum([0, *(len(one.rows) for one in found.known[:-1])])
    near = np.empty((len(found.known), len(features)))
    for block, distance in distance_blocks(features / found.length, found.lifted):
        near[:, block] = correlation(np.minimum.reduceat(distance, starts, 1))[: len(features) - block.start].T
    left_open = 1 - near**2 * SURFACE_VARIANCE / (SURFACE_VARIANCE + SURFACE_NOISE)
    each = weight[:, None] / (1 + OPEN_COUNTS * left_open) ** 2
    return np.asarray(each / each.sum(0), np.float64)


def of_width(known: Sequence[Surface], dtype: str) -> list[Surface]:
    """Select the surfaces of the formats nearest in width: for narrower ones operands are converted first."""
    off = [abs(math.log2(ITEM_BYTE[one.dtype] / ITEM_BYTE[dtype])) for one in known]
    return [one for one, octaves in zip(known, off, strict=True) if octaves == min(off)]


THIN = 8.0
"""Rows or columns from which a product is not like matrix-vector ones: the fewest of DeepBench's training list.
Its inference list has 1, 2 and 4 as well, on two boards of one chip: these read their matrix at 0.60 to 0.74 of
the bandwidth, and those with 16 columns at 0.19 to 0.34."""


def thinness(rows: Table) -> Matrix:
    """Return how thin products are: 1 with one row or column, 0 from `THIN`, linear in log2 in between (n).

    Libraries run a product with one row or column by a kernel of its own, which reads the matrix once, bound by
    memory. Products with a few more rows are in between; how they run depends on library and chip.

    >>> import pandas as pd
    >>> thinness(pd.DataFrame({"m": [1.0, 4.0, 16.0], "n": [512.0, 512.0, 512.0]})).round(3).tolist()
    [1.0, 0.333, 0.0]
    """
    least = np.minimum(numbers(rows, "m"), numbers(rows, "n"))
    return np.asarray(np.clip(1 - np.log2(least) / np.log2(THIN), 0.0, 1.0), np.float64)


def mix(first: Matrix, second: Matrix, share: Matrix, interval: float) -> Matrix:
    """Mix two predictions of some ops by their logarithms; the interval is wider where they disagree.

    `first`, `second` (3, q): logarithms of value, low and high; `share` (q,): of the second; `interval`: share of
    intervals that should contain the truth. Returns (3, q).

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
"""Queries and keys in a typical tile of attention, and tokens in one of an expert's products."""
FEW_TILES = (5.0, 9.0)
"""log2 of an attention's number of tiles between which it matters how many units of the device they fill."""


LATENT, DECODE, WINDOW = "latent", "decode", "window"
"""Queries over a cache that is keys and values at once, for all heads, one query over separate ones, and masked
queries that see fewer keys than there are queries, of which some programs compute all scores of the prompt."""


def attention_parts(rows: Table) -> Texts:
    """Return the part of each attention: "full" has no mask, "" has one over as many keys as queries."""
    queries, keys = numbers(rows, "q_len"), numbers(rows, "kv_len")
    latent, full = (numbers(rows, "shared_dim") > 0) & (queries < keys), numbers(rows, "causal") == 0
    sorts = [latent, (queries == 1) & (keys > 1), full, queries > keys]
    return np.select(sorts, [LATENT, DECODE, "full", WINDOW], "").astype(object)


def by_parts(rows: Table) -> Words:
    """Return the kinds of rows; attention with kernels of its own gets the name of that part (`View.parts`)."""
    kinds = as_rows(rows).text("kind")
    own = np.flatnonzero(kinds.is_in("attention"))
    parts = attention_parts(as_rows(rows).take(own)) if len(own) else own
    for part in (DECODE, LATENT, "full"):
        if len(at := own[parts == part]):
            kinds = kinds.replaced(at, one_word(part, len(at)))
    return kinds


def attention_features(rows: Table) -> Matrix:
    """Return the features of attention (n × 9)."""
    names = ("batch", "heads", "kv_heads", "q_len", "kv_len", "head_dim")
    batch, heads, kv_heads, q_len, kv_len, head_dim = (np.log2(numbers(rows, name)) for name in names)
    cache, work = batch + kv_heads + kv_len + head_dim, batch + heads + q_len + kv_len + head_dim
    # Few tiles leave units idle; among many the waste of the last wave is negligible.
    queries = numbers(rows, "q_len")
    tiles = np.clip(batch + heads + np.log2(np.ceil(queries / TILE)), *FEW_TILES)
    last = np.log2(queries / (np.ceil(queries / (2 * TILE)) * (2 * TILE)))
    # Libraries pack heads into tiles, so their number is a feature besides its product with the batch.
    sizes = [batch + heads, batch + kv_heads, heads, kv_len, head_dim, cache, work]
    return np.column_stack([*sizes, tiles, last])


def attention_waves(rows: Table, units: float) -> Matrix:
    """Return a feature of attention for a number of processors (n × 1): the waste of the last wave of tiles.

    Its tiles are those of two thread groups that alternate. A single query has no waste.
    """
    batch, heads, queries = (numbers(rows, name) for name in ("batch", "heads", "q_len"))
    count = batch * heads * np.ceil(queries / (2 * TILE)) / units
    wasted = np.where(queries > 1, np.ceil(count) / count, 1.0)
    return np.asarray(np.log2(wasted)[:, None], np.float64)


def attention_terms(rows: Table) -> Matrix:
    """Return the terms (n × 4): call, unmasked flop, byte, and the keys that one query passes sequentially."""
    flop, byte, keys = (numbers(rows, name) for name in ("flop", "byte", "kv_len"))
    return np.column_stack([np.ones(len(rows)), flop * computed_share(rows), byte, keys])


def computed_share(rows: Table) -> Matrix:
    """Return the share of an attention's scores that kernels compute (n): with a mask whole tiles, about half."""
    queries, keys = numbers(rows, "q_len"), numbers(rows, "kv_len")
    masked = (numbers(rows, "causal") > 0) & (queries > 1)
    later, square = 1 - np.maximum(queries - TILE, 0) / (2 * keys), 0.5 * (1 + TILE / np.maximum(keys, TILE))
    return np.where(masked & (queries <= keys), np.where(queries < keys, later, square), 1.0)


OF_PART, OF_TIMED, FULL = ("attention", "full"), ("gemm",), 1.0
"""Work that a part of an engine does like the whole; work of which this holds where a board of the chip is timed;
and the share of its peak that the part reaches (docs/adr/0091, 0095). Experts are left out."""


def of_part(reached: Matrix, rows: Table, spare: float, flop_per_s: float, byte_per_s: float) -> Matrix:
    """Return ln(utilisation) with a part of an engine: as fast as the whole until the part is the bound.

    `reached`: ln(utilisation) of the whole engine; `rows`: COSTED rows of attention or of products; `spare`: see
    `Chip`. Where a mask hides half of the arithmetic, a utilisation may be up to 2.
    """
    flop, traffic_s = numbers(rows, "flop"), numbers(rows, "byte") / byte_per_s
    unmasked = attention_terms(rows)[:, 1] if is_in(rows, "kind", "attention").all() else flop
    own_s, whole_s = (np.maximum(flop / flop_per_s / one, traffic_s) for one in (1.0, spare))
    least_s = np.maximum(unmasked / flop_per_s / FULL, traffic_s)
    return np.asarray(np.minimum(reached + np.log(own_s / whole_s), np.log(own_s / least_s)), np.float64)


def expert_features(rows: Table) -> Matrix:
    """Return the features of a mixture's experts (n × 9)."""
    names = ("b", "m", "n", "k", "experts", "top_k")
    b, m, n, k, experts, top_k = (np.log2(numbers(rows, name)) for name in names)
    each = m + top_k - experts
    return np.column_stack([m, k, n, b, experts, top_k, each, each + b + k + n, b + k + n])


def expert_terms(rows: Table) -> Matrix:
    """Return the terms (n × 5): call, flop, weights read, all tokens sent, and the tiles of the experts in use."""
    b, m, n, k, experts, top_k = (numbers(rows, name) for name in ("b", "m", "n", "k", "experts", "top_k"))
    each, weights = m * top_k / experts, n * k
    read = np.minimum(b, np.maximum(each * b, 1.0)) * weights * item_bytes(rows)
    tiles = np.where(each >= 1, np.ceil(each / EXPERT_TILE), each) * b * weights
    return np.column_stack([np.ones(len(rows)), numbers(rows, "flop"), read, m * top_k * k, tiles])
