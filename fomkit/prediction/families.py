"""Families of timings that one fit serves, and the features and roofline terms of their ops.

A family has one kind, number format, engine and pass (`FamilyName`). `VIEWS` defines for each kind the features
and terms; `training_rows` selects the timings of a family.

Tile features (`product_tiles`, `conv_tiles`) are used for large tables only. A kernel computes whole tiles and
loads 16 bytes at once, so time rises in steps where a size passes a multiple. A table of a hundred products of
round sizes cannot separate these steps from its other jumps, one of thousands can: with these features left-out
products of NeuSight's tables are off by 5.1 % instead of 6.1 (V100) and 5.1 instead of 7.3 (A100), convolutions by
10.2 instead of 12.1 (V100) and 12.6 instead of 15.0 (P100), all medians.

The features of convolutions were chosen on DeepBench's eleven training sheets, with shape groups left out in three
ways: padding, both aspect ratios, small images and tiles lower the median error of the forward pass from 11.7 % to
9.9 (mean: 19.6 to 15.0).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pandas as pd

from fomkit.core.machine import Device
from fomkit.ops.columns import first_alike
from fomkit.ops.kinds import KINDS
from fomkit.ops.tables import in_order
from fomkit.prediction import tiles
from fomkit.prediction.estimators import Rows, Table, as_rows, is_in, item_bytes, numbers, same_texts
from fomkit.prediction.gp import LIMIT, Flags, Matrix, Places, Texts, as_columns
from fomkit.prediction.rates import own_times


def log_sizes(rows: Table, *columns: str, least: float = 0.0) -> list[Matrix]:
    """Return log2 of each column, bounded below by ``least``; 0 where it is empty."""
    return [as_rows(rows).log2(column, least) for column in columns]


def log_product(rows: Table, *columns: str, least: float = 0.0) -> Matrix:
    """Return log2 of the product of the columns."""
    return np.asarray(sum(log_sizes(rows, *columns, least=least)), np.float64)


def warm_part(rows: Rows, device: Device) -> Matrix:
    """Return the batch whose data a stated cache holds, of single queries that it does not; 0 for others (n)."""
    byte, held = numbers(rows, "byte"), np.inf if device.cache_byte is None else device.cache_byte.value
    cold = is_in(rows, "kind", "attention") & (numbers(rows, "q_len") == 1) & (byte > held)
    return np.where(cold, numbers(rows, "batch") * (held if cold.any() else 0.0) / byte, 0.0)


def flag(condition: Matrix | Flags) -> Matrix:
    """Return a feature that is 0 or 2: a flag weighs as much as a factor of four in a size."""
    return 2.0 * np.asarray(condition, np.float64)


def roofline_terms(rows: Table, count: int = 3) -> Matrix:
    """Return the terms (n × 3) of the plain roofline: one call, its flop and its byte; and columns for others."""
    terms = np.ones((len(rows), count))
    terms[:, 1], terms[:, 2] = numbers(rows, "flop"), numbers(rows, "byte")
    return terms


PRODUCT_TILE = 128.0
"""Rows and columns of a typical tile of a product (cuBLAS: 128×128)."""
OUTPUT_TILES = (4.0, 8.0)
"""Rows and columns of typical tiles of a convolution's output (Winograd's 2×2 to 4×4, in pairs)."""
LOAD_BYTE = 16.0
SPLIT_DEPTH = 8192.0
"""Depth k from which libraries certainly split a product's sum over k among units."""


def fill(sizes: Matrix, tile: float) -> Matrix:
    """Return log2 of the share of its tiles that a size fills: 0 for a whole number of tiles.

    >>> fill(np.array([128.0, 64.0, 256.0]), 128.0).tolist()
    [0.0, -1.0, 0.0]
    """
    return np.asarray(np.log2(sizes / (np.ceil(sizes / tile) * tile)), np.float64)


def aligned(rows: Table, column: str) -> Matrix:
    """Return 1 where a row of this many elements is a whole number of loads, else 0."""
    elements = LOAD_BYTE / tiles.digit_bytes(rows)
    return np.asarray(np.mod(numbers(rows, column), elements) == 0, np.float64)


def product_tiles(rows: Table) -> Matrix:
    """Return the tile features of products (n × 5)."""
    filled = [fill(numbers(rows, name), PRODUCT_TILE) for name in ("m", "n")]
    return np.column_stack([*filled, *(aligned(rows, name) for name in ("m", "n", "k"))])


def depth_in_turn(rows: Table) -> Matrix:
    """Return the depth k that one unit sums up sequentially, however few rows and columns there are (n).

    >>> import pandas as pd
    >>> depth_in_turn(pd.DataFrame({"k": [512.0, 500_000.0]})).tolist()
    [512.0, 8192.0]
    """
    return np.asarray(np.minimum(numbers(rows, "k"), SPLIT_DEPTH), np.float64)


def conv_output(rows: Table, size: str, axis: str) -> Matrix:
    """Return the depth, height or width of a convolution's output, at least 1; for a transposed one its input's.

    `size`, `axis`: the column of the input's size, and the letter of its axis: d, h or w.
    """
    reach = numbers(rows, f"dilation_{axis}") * (numbers(rows, f"kernel_{axis}") - 1)
    inside = numbers(rows, size) + 2 * numbers(rows, f"pad_{axis}") - reach - 1
    output = np.floor(inside / numbers(rows, f"stride_{axis}")) + 1
    straight = np.where(numbers(rows, "transposed") > 0, numbers(rows, size), output)
    return np.asarray(np.maximum(straight, 1.0), np.float64)


def conv_tiles(rows: Table) -> Matrix:
    """Return the tile features of convolutions (n × 3)."""
    height, width = conv_output(rows, "height", "h"), conv_output(rows, "width", "w")
    filled = [(fill(height, tile) + fill(width, tile)) / 2 for tile in OUTPUT_TILES]
    return np.column_stack([*filled, aligned(rows, "in_channels")])


CHANNEL_BYTE = 16.0
"""Matrix engines pad the input channels of a convolution to this many bytes (cuDNN: 8 channels of fp16)."""
CHANNEL_TILE = 64.0
"""Output channels of a typical tile (implicit products of cuDNN: 64 or 128)."""
SMALL = 8.0
"""Height up to which an image is one tile of a fast algorithm (two of Winograd's 4×4), and few blocks of any."""
_AXES = (("depth", "d"), ("height", "h"), ("width", "w"))
_KERNEL, _STRIDE = (tuple(f"{name}_{axis}" for _, axis in _AXES) for name in ("kernel", "stride"))


def winograd(rows: Table) -> Flags:
    """Return which convolutions usually run by Winograd's algorithm: 3×3 at stride 1."""
    kernel = log_product(rows, *_KERNEL)
    return np.asarray((kernel == 2 * np.log2(3.0)) & (log_product(rows, *_STRIDE) == 0))


_OF_SHAPE = frozenset({*KINDS["conv"].dimensions, "transposed", "pass_name", "dtype", "engine"}) - {"batch"}


def _shape_features(rows: Table) -> Matrix:
    """Return `conv_features` (19 × n) for a batch of one."""
    inputs, outputs, groups = log_sizes(rows, "in_channels", "out_channels", "groups")
    kernel, stride = (log_product(rows, *names) for names in (_KERNEL, _STRIDE))
    positions = np.log2(np.prod([conv_output(rows, size, axis) for size, axis in _AXES], axis=0))
    height, width, kernel_h, kernel_w = log_sizes(rows, "height", "width", "kernel_h", "kernel_w")
    sizes = [np.zeros(len(inputs)), inputs, outputs, kernel, positions, stride, height, positions, inputs + kernel]
    # Long images and kernels occur in other networks, with other tiles, than square ones of as many elements.
    aspects = [width - height, kernel_w - kernel_h]
    padded, small = numbers(rows, "pad_h") > 0, numbers(rows, "height") <= SMALL
    # The typical fast algorithms: Winograd for 3×3 at stride 1, a plain product for 1×1.
    flags = [flag(one) for one in (winograd(rows), kernel == 0, padded, small)]
    dilation = log_product(rows, "dilation_d", "dilation_h", "dilation_w")
    odd = [groups, dilation, flag(numbers(rows, "transposed") > 0)]
    # A pass is a product with as many rows as its result has channels.
    back = is_in(rows, "pass_name", "backward_input")
    channels = np.where(back, numbers(rows, "in_channels"), numbers(rows, "out_channels"))
    return np.array([*sizes, *aspects, *flags, fill(channels, CHANNEL_TILE), *odd])


def conv_features(rows: Table) -> Matrix:
    """Return the features of convolutions (n × 19): logarithms of sizes, ratios and flags."""
    found = as_rows(rows).once(_shape_features, _OF_SHAPE).copy()
    found[[0, 7]] += log_sizes(rows, "batch")[0]
    return found.T


def _shape_factors(rows: Table) -> Matrix:
    """Return padded channels over channels of convolutions, and the two flags of `conv_terms` (3 × n)."""
    multiple = CHANNEL_BYTE / tiles.digit_bytes(rows)
    channels = numbers(rows, "in_channels")
    padded = np.ceil(channels / multiple) * multiple / channels
    gradient = is_in(rows, "pass_name", "backward_input", "backward_weight")
    skips = (log_product(rows, *_KERNEL) > 0) & (log_product(rows, *_STRIDE) > 0)
    slow = (gradient & ~winograd(rows), is_in(rows, "pass_name", "backward_input") & skips)
    return np.array([np.where(is_in(rows, "engine", "matrix"), padded, 1.0), *slow])


def conv_terms(rows: Table) -> Matrix:
    """Return the terms (n × 5): call, flop, byte, and the flop of two sorts of gradients without a fast algorithm.

    A gradient that is not 3×3 at stride 1 does not profit from Winograd. The gradient of the input of a strided
    convolution scatters, or multiplies zeros: libraries take up to four times as long as for the forward pass. The
    forward pass gets no such term: there is a good algorithm for every shape.
    """
    terms, (padded, *slow) = roofline_terms(rows, 5), as_rows(rows).once(_shape_factors, _OF_SHAPE)
    terms[:, 1] *= padded
    terms[:, 3], terms[:, 4] = (np.where(where > 0, terms[:, 1], 0.0) for where in slow)
    return terms


ONE_WAY = ("all_gather", "reduce_scatter", "all_to_all")
"""Collectives in which each part of the message is sent once; in an all-reduce it is sent twice."""
RANK_POWERS = np.arange(1.0, 13.0)
"""log2 of the numbers of ranks that have their own rate in a fit of collectives: 2 to 4,096."""


class FamilyName(NamedTuple):
    """The common properties of the rows of one fit.

    `pass_name`: "" for kinds without passes.
    `part`: the value of `View.parts`.
    """

    kind: str
    dtype: str
    engine: str
    pass_name: str
    part: str = ""

    def __str__(self) -> str:
        return "/".join(part for part in self if part)


class View(NamedTuple):
    """How the ops of one kind are described to a fit.

    `features`: from rows to features (n × p), mostly log2 of sizes; from dimensions only, as timings have no
      costs. `straight`: true where they are linear in log2(batch), if nothing else changes.
    `terms`: from COSTED rows to the terms (n × q) of the calibrated roofline; the first counts starts: one per
      call, or per step of it. All are linear in a batch that changes with its flop and byte.
    `groups`: columns that define a shape group; a group is left out as a whole in cross-validation.
    `exact`: columns that are not interpolated: rows with values that are not in the training rows are not served.
    `tiles`: further features for a table of more than `LIMIT` rows; `waves`: those for such a table that depend on
      the number of processors. A kind with both has `tiles.Form` in place of the terms.
    `any_op`: true where traffic determines the time, so that timings of one op predict another.
    `parts`: names ops that run by other kernels, which have fits of their own; "" for the rest.
    `along`: the size in which time is linear between two timed ops that share the columns of ``exact``.
    """

    features: Callable[[Table], Matrix]
    terms: Callable[[Table], Matrix]
    groups: tuple[str, ...]
    exact: tuple[str, ...] = ()
    tiles: Callable[[Table], Matrix] | None = None
    any_op: bool = False
    parts: Callable[[Table], Texts] | None = None
    waves: Callable[[Table, float], Matrix] | None = None
    along: str = ""
    straight: bool = False


def _storage(rows: Table) -> list[Matrix]:
    return [flag(numbers(rows, name, 0.5)) for name in ("trans_a", "trans_b")]


def _gemm_features(rows: Table) -> Matrix:
    b, m, n, k = log_sizes(rows, "b", "m", "n", "k")
    # Where the depth is a power of two, libraries choose other kernels. Some ran up to twice as fast as their
    # neighbours. With this and `depth_in_turn` left-out products of a Titan X Pascal are off by 4.4 % instead of
    # 9.1, of five sheets used for the choice by 6.0 instead of 6.9, of the five others by 4.2 instead of 4.3
    # (means of medians; the V100's fp32 is worse).
    whole_depth = np.mod(np.log2(numbers(rows, "k")), 1.0) == 0
    return as_columns([b, m, n, k, *_storage(rows), m + n, m + n + k, flag(whole_depth)])


def _sparse_features(rows: Table) -> Matrix:
    b, n, density = log_sizes(rows, "b", "n", "density")
    return np.column_stack([b, n, log_product(rows, "m", "k", "density"), density, *_storage(rows)])


def _rnn_features(rows: Table) -> Matrix:
    cells = [flag(is_in(rows, "cell", cell)) for cell in ("lstm", "gru")]
    return np.column_stack([*log_sizes(rows, "hidden_size", "batch", "steps"), *cells])


def _traffic_features(rows: Table) -> Matrix:
    read_byte, write_byte = numbers(rows, "read_byte"), numbers(rows, "write_byte")
    share = np.log2((read_byte + 1.0) / (write_byte + 1.0))
    return np.column_stack([np.log2(read_byte + write_byte + 1.0), *log_sizes(rows, "row"), share])


def _update_features(rows: Table) -> Matrix:
    numel, tensors = log_sizes(rows, "numel", "tensors")
    impls = [flag(is_in(rows, "impl", name)) for name in ("foreach", "fused")]
    return np.column_stack([numel, numel - tensors, *impls, flag(~is_in(rows, "rule", "sgd"))])


def _collective_features(rows: Table) -> Matrix:
    message, ranks = log_sizes(rows, "message_byte", "ranks")
    # Libraries change their algorithm between two sizes, so neighbouring sizes correlate less.
    others = [flag(is_in(rows, "collective", name)) for name in ONE_WAY]
    return np.column_stack([4 * message, ranks, flag(is_in(rows, "link", "system")), *others])


def _collective_terms(rows: Table) -> Matrix:
    # A ring of p ranks reduces in 2·(p − 1) steps, each of which sends 1/p of the message (Patarasuk & Yuan,
    # Journal of Parallel and Distributed Computing 69, 2009); to gather, scatter or exchange takes half. The rate
    # depends on the links of so many ranks, so each power of two has a rate; in between, the shares of both are
    # linear in log2(ranks).
    ranks, message = numbers(rows, "ranks"), numbers(rows, "message_byte")
    steps = np.where(is_in(rows, "collective", *ONE_WAY), 1.0, 2.0) * (ranks - 1)
    power = np.minimum(np.log2(ranks), RANK_POWERS[-1])
    share = np.maximum(0.0, 1.0 - np.abs(power[:, None] - RANK_POWERS))
    return np.column_stack([np.ones(len(rows)), steps, (message * steps / ranks)[:, None] * share])


def _gemm_terms(rows: Table) -> Matrix:
    return np.column_stack([roofline_terms(rows), depth_in_turn(rows)])


def _rnn_terms(rows: Table) -> Matrix:
    # Half the flop per step and sample is the number of weights, which are read again in every step. The fixed
    # cost of a call is about that of a step: with a coefficient of its own it would be fitted to cells and widths
    # that have few or many steps, and made a single step 13 times too long.
    steps = numbers(rows, "steps")
    weights = numbers(rows, "flop") / (2 * numbers(rows, "batch") * steps)
    item_byte = item_bytes(rows)
    in_steps = np.column_stack([steps + 1, numbers(rows, "flop"), steps * weights * item_byte])
    # The gradient of the weights is one product over all steps.
    at_once = is_in(rows, "pass_name", "backward_weight")[:, None]
    return np.where(at_once, roofline_terms(rows), in_steps)


_CONV_SHAPE = (
    "in_channels", "out_channels", *_KERNEL, "depth", "height", "width", *_STRIDE, "groups",
)  # fmt: skip
_HEADS, _SERIES = ("heads", "kv_heads", "head_dim"), ("collective", "ranks", "link")
_ATTENTION = View(tiles.attention_features, tiles.attention_terms, _HEADS, parts=tiles.attention_parts,
                  waves=tiles.attention_waves)  # fmt: skip
_TRAFFIC = View(_traffic_features, roofline_terms, ("numel",), any_op=True)
VIEWS: Mapping[str, View] = {
    "gemm": View(_gemm_features, _gemm_terms, ("k",), tiles=product_tiles, waves=tiles.waves),
    "sparse_gemm": View(_sparse_features, roofline_terms, ("m", "k", "density")),
    "conv": View(conv_features, conv_terms, _CONV_SHAPE, tiles=conv_tiles, straight=True),
    "rnn": View(_rnn_features, _rnn_terms, ("hidden_size", "steps"), straight=True),
    "attention": _ATTENTION,
    "experts": View(tiles.expert_features, tiles.expert_terms, ("n", "k")),
    "pointwise": _TRAFFIC,
    "reduction": _TRAFFIC,
    "norm": _TRAFFIC,
    "softmax": _TRAFFIC,
    "pool": _TRAFFIC,
    "embedding": _TRAFFIC,
    "copy": _TRAFFIC,
    "optimizer": View(_update_features, roofline_terms, ("numel",), exact=("rule", "impl")),
    "collective": View(
        _collective_features, _collective_terms, ("message_byte",), exact=_SERIES, along="message_byte"
    ),
}
"""The kinds that can be fitted."""


def look_at(rows: Table, kind: str, row_count: int) -> Matrix:
    """Return the features of rows for a fit of ``row_count`` training rows."""
    return with_tiles(VIEWS[kind].features(rows := as_rows(rows)), rows, kind, row_count)


def with_tiles(features: Matrix, rows: Rows, kind: str, row_count: int) -> Matrix:
    """Add the features that only a fit of more than `LIMIT` training rows has."""
    more = VIEWS[kind].tiles
    return np.column_stack([features, more(rows)]) if more and row_count > LIMIT else features


def families(rows: Table) -> Iterator[tuple[FamilyName, Places]]:
    """Yield the families in a table: name and row positions, in order of first appearance."""
    found, codes = same_texts(rows, *FamilyName._fields[:4])
    merged, number = dict[FamilyName, int](), np.full(len(found), -1)
    for code, cells in enumerate(found):
        name = FamilyName(*cells)
        if name.kind in VIEWS:
            name = name if KINDS[name.kind].by_pass else name._replace(pass_name="")
            number[code] = merged.setdefault(name, len(merged))
    order = np.argsort(family_of := number.take(codes), kind="stable")
    ends = np.bincount(family_of + 1, minlength=len(merged) + 1).cumsum().tolist()
    for name, places in zip(merged, (order[start:end] for start, end in pairwise(ends)), strict=True):
        if (parts := VIEWS[name.kind].parts) is None:
            yield name, places
            continue
        part = parts(as_rows(rows).take(places))
        yield from ((name._replace(part=one), places[part == one]) for one in np.unique(part).tolist())


def servable(rows: Table, kind: str) -> Flags:
    """Return which rows a fit may serve or be trained on.

    Recurrent timings with an input projection, more layers or directions are other ops; so are packed weights.
    """
    good = ~(numbers(rows, "weight_share") < 1)
    for name, value in (("input_size", 0.0), ("layers", 1.0), ("directions", 1.0)) if kind == "rnn" else ():
        good &= numbers(rows, name) == value
    return good


def fitted(rows: Table, training: pd.DataFrame, kind: str) -> Flags:
    """Return which rows have values of the training rows, in the columns that are not interpolated (`View.exact`).

    An all-reduce over 64 ranks does not predict the machine's 8: it uses other links and another algorithm.
    """
    if not (exact := list(VIEWS[kind].exact)):
        return np.ones(len(rows), bool)
    known = pd.MultiIndex.from_frame(training[exact])
    return np.asarray(pd.MultiIndex.from_frame(as_rows(rows).frame(exact)[exact]).isin(known))


def _rows_of(timings: pd.DataFrame, name: FamilyName) -> pd.DataFrame:
    timings = own_times(timings)
    unnamed = is_in(timings, "op", "")
    chosen = (unnamed | VIEWS[name.kind].any_op) & (timings["_time_s"] > 0).to_numpy()
    for column, value in zip(FamilyName._fields[:4], name, strict=False):
        if column != "pass_name" or value:
            chosen &= (timings[column] == value).to_numpy() if column in timings.columns else False
    rows = timings[chosen]
    if (parts := VIEWS[name.kind].parts) is not None:
        rows = rows[parts(rows) == name.part]
    return rows[servable(rows, name.kind)]


def training_rows(timings: pd.DataFrame, name: FamilyName) -> pd.DataFrame:
    """Return the training rows of a family: one per distinct op, shuffled alike whatever the table's order.

    Timings that name an op are valid for that op only and are left out, except in kinds whose traffic determines
    the time; special cases (`servable`) are left out too.

    Returns the timings with ``_time_s``, the median over duplicates less the harness [s], ``_step_s``, the step of
    the clock [s], and if there are duplicates ``_repeat``, the typical spread of ln(time) around these medians.
    """
    rows = in_order(_rows_of(timings, name))
    # Tables are grids: every tenth row of a sorted one may have the same width. So rows are shuffled.
    rows = rows.iloc[np.random.default_rng(0).permutation(len(rows))]
    # Ops of equal traffic stay distinct: their differences are part of the uncertainty of the next op.
    more = [column for column in ("trans_a", "trans_b") if column in KINDS[name.kind].optional]
    keys = [*KINDS[name.kind].dimensions, *more, *(("op",) if VIEWS[name.kind].any_op else ())]
    ids = first_alike(rows, [key for key in keys if key in rows.columns])  # position of each op's first row
    places = np.unique(ids)
    if len(places) == len(rows):
        return rows.reset_index(drop=True)
    grouped = rows["_time_s"].groupby(ids)
    apart = (rows["_time_s"] / grouped.transform("median")).to_numpy(np.float64)
    repeat = 1.4826 * float(np.median(np.abs(np.log(apart))))
    # Of duplicates the first in the table's order is kept.
    earliest = rows.index.to_series().groupby(ids).min().reindex(places)
    median = grouped.median().reindex(places).to_numpy()
    return rows.loc[earliest].assign(_time_s=median, _repeat=repeat).reset_index(drop=True)


def training_key(rows: pd.DataFrame, kind: str) -> str:
    """Hash the sizes and times of `training_rows`, so that a fit is used only with the rows it was fitted to."""
    names = ("_time_s", "_step_s", *KINDS[kind].dimensions, *("op",) * VIEWS[kind].any_op)
    digest = sha256()
    for name in filter(rows.columns.__contains__, names):
        cells = rows[name]
        is_number = cells.dtype.kind == "f"
        digest.update(cells.to_numpy("<f8").tobytes() if is_number else "\x1f".join(map(str, cells)).encode())
    return digest.hexdigest()
