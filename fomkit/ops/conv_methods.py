"""Methods to compute a convolution: work, depth and workspace of each, as formulas and as tables of ops.

Direct, im2col, FFT and Winograd are the rows of the work-depth table in Ben-Nun & Hoefler, "Demystifying Parallel
and Distributed Deep Learning" (ACM Computing Surveys 52(4), 2019, table 6). Its row of Winograd is corrected here:
a tile of m outputs with a kernel of r needs α = m + r − 1 inputs (printed: m − r + 1); each tile and pair of
channels needs α² products, and each tile and channel its transforms (Lavin & Gray, "Fast Algorithms for
Convolutional Neural Networks", CVPR 2016).

Depth is the longest chain of additions, and of levels of a transform, with any number of processors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fomkit.ops.families import costs
from fomkit.ops.families.formula import Row, Size, ceil, columns_of, floor, log2

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

AXES = ("d", "h", "w")
FORWARD, BACK_INPUT, BACK_WEIGHT = PASSES = ("forward", "backward_input", "backward_weight")
FFT_TILE = 32
"""Tile [elements along an axis] of the tiled FFT, as in cuDNN's FFT_TILING."""
WINOGRAD_KERNEL = 3
"""The kernel [elements along an axis] whose transforms are counted here."""

Triple = tuple[Size, Size, Size]


class MethodCost(NamedTuple):
    """The cost of one execution of a convolution by one method.

    `multiply_adds`: of the products, 2 flop each.
    `additions`, `multiplications`: of everything else, 1 flop each: transforms, and scattered sums.
    `work_depth`: levels.
    `fixed_byte`, `sample_byte`: workspace [byte], which for a whole batch is fixed_byte + batch·sample_byte: that
      of the filters, and that of each sample.
    """

    multiply_adds: Size
    additions: Size
    multiplications: Size
    work_depth: Size
    fixed_byte: Size
    sample_byte: Size


class Transform(NamedTuple):
    """Additions and multiplications by constants of one transform along one axis; shared parts count once."""

    additions: int
    multiplications: int

    def mirrored(self, inputs: int, outputs: int) -> Transform:
        """Return the transposed transform: as many multiplications, and outputs − inputs more additions."""
        return Transform(self.additions + outputs - inputs, self.multiplications)


class Winograd(NamedTuple):
    """The transforms of F(m, 3): data Bᵀ (α → α), filter G (3 → α) and result Aᵀ (α → m)."""

    data: Transform
    filter: Transform
    result: Transform


WINOGRAD: Mapping[int, Winograd] = {
    2: Winograd(Transform(4, 0), Transform(3, 2), Transform(4, 0)),
    4: Winograd(Transform(12, 7), Transform(6, 5), Transform(10, 3)),
}
"""By the outputs of a tile along an axis. A line of F(2, 3) is as Lavin & Gray count it; F(4, 3) is counted in the
programs that tests/costs/counted.py has for their matrices."""

PARTS: Mapping[str, Callable[..., Size]] = {
    "slides_d": lambda kernel_d: 1 - floor(1 / kernel_d),
    "slides_h": lambda kernel_h: 1 - floor(1 / kernel_h),
    "slides_w": lambda kernel_w: 1 - floor(1 / kernel_w),
}
"""Parts of formulas besides those of `costs`: 1 along an axis where the kernel is longer than 1, else 0."""


def _volume(lengths: Triple) -> Size:
    return lengths[0] * lengths[1] * lengths[2]


def _levels(amount: Size) -> Size:
    """Return the levels of a tree over this number: ⌈log2⌉."""
    return ceil(log2(amount))


def _all_levels(amounts: Triple) -> Size:
    return sum(_levels(amount) for amount in amounts)


def direct(
    pass_name: str, batch: Size, in_channels: Size, out_channels: Size,
    groups: Size, depth: Size, height: Size, width: Size, kernel_d: Size, kernel_h: Size, kernel_w: Size,
    transposed: Size, out_depth: Size, out_height: Size, out_width: Size, slid_over: Size,
) -> MethodCost:  # fmt: skip
    """Price the sums as defined; implicit GEMM computes the same in the order of a matrix product.

    The depth is that of the sum of one result, axis by axis; with a stride, sums of an input gradient are shorter.
    """
    kernel: Triple = (kernel_d, kernel_h, kernel_w)
    products = batch * in_channels * out_channels / groups * _volume(kernel) * slid_over
    if pass_name == BACK_WEIGHT:
        axes = zip((out_depth, out_height, out_width), (depth, height, width), strict=True)
        lengths = tuple((1 - transposed) * out + transposed * size for out, size in axes)
        levels = _levels(batch) + sum(_levels(length) for length in lengths)
    else:
        summed = in_channels if pass_name == FORWARD else out_channels
        levels = _levels(summed / groups) + _all_levels(kernel)
    return MethodCost(products, 0, 0, levels, 0, 0)


def im2col(
    pass_name: str, batch: Size, in_channels: Size, out_channels: Size,
    groups: Size, depth: Size, height: Size, width: Size, kernel_d: Size, kernel_h: Size, kernel_w: Size,
    transposed: Size, out_depth: Size, out_height: Size, out_width: Size, slid_over: Size, item_byte: Size,
) -> MethodCost:  # fmt: skip
    """Price a plain product with the patches gathered in memory, one group after the other.

    The workspace is (channels/groups) · kernel volume · positions of the kernel, with the channels of the input,
    or of the output in a transposed convolution. The input gradient (of a transposed one: the forward pass)
    computes such a matrix and adds its elements up at their positions (col2im).
    """
    plain = direct(
        pass_name, batch, in_channels, out_channels, groups, depth, height, width, kernel_d, kernel_h, kernel_w,
        transposed, out_depth, out_height, out_width, slid_over,
    )  # fmt: skip
    channels = (1 - transposed) * in_channels + transposed * out_channels
    elements = channels * _volume((kernel_d, kernel_h, kernel_w)) * slid_over
    scattered = {FORWARD: transposed, BACK_INPUT: 1 - transposed, BACK_WEIGHT: 0}[pass_name]
    return plain._replace(additions=scattered * batch * elements, sample_byte=item_byte * elements / groups)


class _Tiled(NamedTuple):
    """One pass as transform, product in the transformed space, and transform back.

    `tiles`: of one sample.
    `data`, `result`: channels of the array that the pass reads, and of the array on the other side of the filters.
    `filters`: pairs of channels that have a filter.
    `summed`: number of terms in the sum of one product.
    """

    tiles: Size
    data: Size
    result: Size
    filters: Size
    summed: Size


def _tiled(
    pass_name: str, batch: Size, channels: tuple[Size, Size], groups: Size, positions: Triple, tile: Triple
) -> _Tiled:
    """Split a pass into tiles of outputs along each axis; for weight gradients, of the output's gradient."""
    tiles = _volume((ceil(positions[0] / tile[0]), ceil(positions[1] / tile[1]), ceil(positions[2] / tile[2])))
    data, result = reversed(channels) if pass_name == BACK_INPUT else channels
    summed = batch * tiles if pass_name == BACK_WEIGHT else data / groups
    return _Tiled(tiles, data, result, data * result / groups, summed)


def _separable(transform: Transform, slides: Triple, before: Triple, after: Triple) -> tuple[Size, Size]:
    """Count a transform along each axis in turn, from the lengths before it to the lengths after it."""
    lines = slides[0] * before[1] * before[2] + slides[1] * after[0] * before[2] + slides[2] * after[0] * after[1]
    return transform.additions * lines, transform.multiplications * lines


def _winograd_transforms(
    tile: int, pass_name: str, slides: Triple, kernel: Triple, outputs: Triple, points: Triple
) -> tuple[tuple[Size, Size], tuple[Size, Size], tuple[Size, Size]]:
    """Count the transforms of one tile's data, of one filter and of one tile's result."""
    own, alpha = WINOGRAD[tile], tile + WINOGRAD_KERNEL - 1
    data = _separable(own.data, slides, points, points)
    if pass_name != BACK_WEIGHT:
        filters = _separable(own.filter, slides, kernel, points)
        return data, filters, _separable(own.result, slides, points, outputs)
    # The weight gradient runs two transforms backwards: of the output's gradient, and of the filter's.
    collected = _separable(own.filter.mirrored(WINOGRAD_KERNEL, alpha), slides, points, kernel)
    return data, collected, _separable(own.result.mirrored(alpha, tile), slides, outputs, points)


def winograd(
    tile: int, pass_name: str, batch: Size, in_channels: Size, out_channels: Size,
    groups: Size, depth: Size, height: Size, width: Size, kernel_d: Size, kernel_h: Size, kernel_w: Size,
    out_depth: Size, out_height: Size, out_width: Size, slides_d: Size, slides_h: Size, slides_w: Size,
    item_byte: Size,
) -> MethodCost:  # fmt: skip
    """Price F(m, 3), m = ``tile``, along each axis with a kernel of 3: m outputs of a tile from α = m + 2 inputs.

    Multiply-adds: α^axes for each tile and pair of channels. The direct method needs (3·m)^axes: 2.25 times as
    many in two axes for m = 2, and 4 times for m = 4.
    """
    slides: Triple = (slides_d, slides_h, slides_w)
    kernel: Triple = (kernel_d, kernel_h, kernel_w)
    outputs: Triple = (1 + (tile - 1) * slides_d, 1 + (tile - 1) * slides_h, 1 + (tile - 1) * slides_w)
    points: Triple = (outputs[0] + kernel_d - 1, outputs[1] + kernel_h - 1, outputs[2] + kernel_w - 1)
    positions = (depth, height, width) if pass_name == BACK_INPUT else (out_depth, out_height, out_width)
    cut = _tiled(pass_name, batch, (in_channels, out_channels), groups, positions, outputs)
    volume, tiles = _volume(points), batch * cut.tiles
    transforms = _winograd_transforms(tile, pass_name, slides, kernel, outputs, points)
    shares = (tiles * cut.data, cut.filters, tiles * cut.result)
    spans = _all_levels(outputs if pass_name == BACK_WEIGHT else kernel) + 2 * _all_levels(points)
    return MethodCost(
        multiply_adds=tiles * cut.filters * volume,
        additions=sum(share * additions for share, (additions, _) in zip(shares, transforms, strict=True)),
        multiplications=sum(share * times for share, (_, times) in zip(shares, transforms, strict=True)),
        work_depth=spans + _levels(cut.summed),
        fixed_byte=item_byte * volume * cut.filters,
        sample_byte=item_byte * volume * cut.tiles * (cut.data + cut.result),
    )


def fft(
    length: int | None, pass_name: str, batch: Size, in_channels: Size, out_channels: Size,
    groups: Size, depth: Size, height: Size, width: Size, kernel_d: Size, kernel_h: Size, kernel_w: Size,
    out_depth: Size, out_height: Size, out_width: Size, slides_d: Size, slides_h: Size, slides_w: Size,
    item_byte: Size,
) -> MethodCost:  # fmt: skip
    """Price the transform to frequencies and back by radix-2 FFTs of real tiles.

    A tile of L points along an axis has L − kernel + 1 outputs (overlap-save). A radix-2 FFT of V points is
    V/2·log2(V) butterflies of 6 additions and 4 multiplications; real data take half. Their spectrum has (V +
    2^axes)/2 independent complex points, and a product of two takes 4 multiply-adds. These counts are derived
    here; the structure, three families of transforms and a product for each pair of channels, is that of Mathieu,
    Henaff & LeCun, "Fast Training of Convolutional Networks through FFTs" (ICLR 2014).

    `length`: L, a power of two; None for one tile that holds the whole padded image.
    """
    positions = (depth, height, width) if pass_name == BACK_INPUT else (out_depth, out_height, out_width)

    def span(slides: Size, size: Size, kernel: Size) -> Size:
        return 1 + slides * ((length or 2 ** _levels(size + kernel - 1)) - 1)

    points: Triple = (
        span(slides_d, positions[0], kernel_d),
        span(slides_h, positions[1], kernel_h),
        span(slides_w, positions[2], kernel_w),
    )
    outputs: Triple = (points[0] - kernel_d + 1, points[1] - kernel_h + 1, points[2] - kernel_w + 1)
    cut = _tiled(pass_name, batch, (in_channels, out_channels), groups, positions, outputs)
    volume, levels, tiles = _volume(points), _all_levels(points), batch * cut.tiles
    spectrum = (volume + (1 + slides_d) * (1 + slides_h) * (1 + slides_w)) / 2
    butterflies = volume * levels / 4 * (cut.filters + tiles * (cut.data + cut.result))
    complex_byte = 2 * item_byte * spectrum
    return MethodCost(
        multiply_adds=4 * spectrum * tiles * cut.filters,
        additions=6 * butterflies,
        multiplications=4 * butterflies,
        work_depth=2 * levels + _levels(cut.summed),
        fixed_byte=complex_byte * cut.filters,
        sample_byte=complex_byte * cut.tiles * (cut.data + cut.result),
    )


FORMULAS: Mapping[str, Callable[..., MethodCost]] = {
    "direct": direct,
    "im2col": im2col,
    "fft": partial(fft, None),
    "fft_tiled": partial(fft, FFT_TILE),
    "winograd_2": partial(winograd, 2),
    "winograd_4": partial(winograd, 4),
}
"""Methods with different formulas, by name; each formula is for one of `PASSES`."""

BOTH = "backward"
"""The pass of a row that combines both gradients."""
_PARTS = {**costs.PARTS, **PARTS}


class Method(NamedTuple):
    """A method to compute a convolution.

    `formulas`: a key of `FORMULAS`.
    `in_memory`: false where one kernel does all steps and keeps the workspace of samples on the chip.
    """

    name: str
    title: str
    formulas: str
    in_memory: bool = True


METHODS: tuple[Method, ...] = (
    Method("direct", "direct", "direct"),
    Method("implicit_gemm", "implicit GEMM", "direct"),
    Method("im2col", "im2col", "im2col"),
    Method("fft", "FFT", "fft"),
    Method("fft_tiled", f"FFT, tiles of {FFT_TILE}", "fft_tiled"),
    Method("winograd_2", "Winograd F(2,3)", "winograd_2"),
    Method("winograd_2_fused", "Winograd F(2,3), fused", "winograd_2", in_memory=False),
    Method("winograd_4", "Winograd F(4,3)", "winograd_4"),
    Method("winograd_4_fused", "Winograd F(4,3), fused", "winograd_4", in_memory=False),
)
"""In order of priority among equal methods."""


def _any_above(sizes: Row, column: str, limit: float, *, where_it_slides: bool = False) -> Flags:
    """Return where a size exceeds a limit along an axis, or along an axis where the kernel is longer than 1."""
    found = [(sizes[f"{column}_{axis}"] > limit) & (sizes[f"slides_{axis}"] >= where_it_slides) for axis in AXES]
    return np.asarray(found[0] | found[1] | found[2])


def _obstacles(sizes: Row, formulas: str) -> list[tuple[Flags, str]]:
    """List the reasons why a method cannot compute ops, each with flags of the ops that it applies to."""
    if formulas in ("direct", "im2col"):
        return []
    found = [
        (np.asarray(sizes["transposed"] > 0), "transposed: its formulas hold for plain convolutions only"),
        (_any_above(sizes, "stride", 1), "stride above 1: it computes the skipped positions too"),
        (_any_above(sizes, "dilation", 1, where_it_slides=True), "dilation above 1: neighbours share no inputs"),
        (~_any_above(sizes, "kernel", 1), "kernel of 1: neighbours share no inputs"),
    ]
    if formulas == "fft_tiled":
        found.append((_any_above(sizes, "kernel", FFT_TILE), f"kernel longer than the tile of {FFT_TILE}"))
    if formulas.startswith("winograd"):
        kernels = [sizes[f"kernel_{axis}"] for axis in AXES]
        odd = [(length != 1) & (length != WINOGRAD_KERNEL) for length in kernels]
        message = f"no transforms for this kernel: only {WINOGRAD_KERNEL} is modelled"
        found.append((np.asarray(odd[0] | odd[1] | odd[2]), message))
    return found


def _costs(
    sizes: Row, formulas: str, pass_name: str, many: int | tuple[int, ...]
) -> tuple[MethodCost, NDArray[np.object_]]:
    """Return the costs of ops by one set of formulas, NaN where they do not apply, and the reasons."""
    why = np.full(many, "", object)
    for true_of, reason in reversed(_obstacles(sizes, formulas)):
        why[np.broadcast_to(true_of, many)] = reason
    # Where a method does not apply, a tile may have no outputs.
    with np.errstate(divide="ignore", invalid="ignore"):
        cost: MethodCost = sizes.give(FORMULAS[formulas], pass_name=pass_name)
    possible = why == ""
    return MethodCost(*(np.where(possible, part, np.nan) for part in cost)), why


def _flop(cost: MethodCost) -> Array:
    return np.asarray(2 * cost.multiply_adds + cost.additions + cost.multiplications)


def least_flop(row: Row, pass_name: str, flop: Array) -> Array:
    """Return the arithmetic [flop] of the method that needs least, transforms included.

    `row`: convolutions (n) of one pass, and the parts of their formulas; `pass_name`: if backward, both gradients,
    each by its own method; `flop` (n,): that of direct convolution.
    """
    halves = PASSES[1:] if pass_name == BOTH else (pass_name,)
    sizes, found = Row(row.__getitem__, PARTS), np.zeros(flop.shape)
    for half in halves:
        saving = (name for name in FORMULAS if name not in ("direct", "im2col"))
        costs = [_flop(_costs(sizes, name, half, flop.shape)[0]) for name in saving]
        found += np.fmin.reduce([flop / len(halves), *costs])
    return found


def method_costs(ops: pd.DataFrame) -> pd.DataFrame:
    """Return the costs of the convolutions of a table by each method.

    `ops`: an OPS table whose dimensions are numbers. Returns one row for each convolution and each of `METHODS`:
    ``of``, the op's index; ``method``; multiply_adds, additions and multiplications; ``flop``, all of these with 2
    for a multiply-add; work_depth [levels]; fixed_byte and sample_byte [byte], the workspace for filters and per
    sample; and ``absent``, the reason if the method cannot compute it: all figures are then NaN.

    >>> line = {"depth": 1.0, "kernel_d": 1.0, "stride_d": 1.0, "pad_d": 0.0, "dilation_d": 1.0, "groups": 1.0}
    >>> square = {"height": 28.0, "kernel_h": 3.0, "stride_h": 1.0, "pad_h": 1.0, "dilation_h": 1.0}
    >>> square |= {name.replace("_h", "_w").replace("height", "width"): size for name, size in square.items()}
    >>> op = {"kind": "conv", "dtype": "fp32", "pass_name": "forward", "batch": 1.0, "in_channels": 512.0}
    >>> found = method_costs(pd.DataFrame([{**op, **line, **square, "out_channels": 512.0}])).set_index("method")
    >>> found.loc["direct", ["multiply_adds", "work_depth"]].tolist()
    [1849688064.0, 13.0]
    >>> float(found.at["direct", "multiply_adds"] / found.at["winograd_4", "multiply_adds"])
    4.0
    """
    places = np.flatnonzero(ops["kind"].to_numpy(object) == "conv")
    passes = ops["pass_name"].to_numpy(object)[places]
    tables: list[pd.DataFrame] = []
    read: dict[str, Array] = {}
    for pass_name in dict.fromkeys(passes):
        rows = places[passes == pass_name]
        sizes = Row(columns_of(ops, rows, read), _PARTS)
        tables.extend(_table_of_method(sizes, method, str(pass_name), rows) for method in METHODS)
    if not tables:
        return pd.DataFrame(columns=["of", "method", *MethodCost._fields, "flop", "absent"])
    order = {method.name: place for place, method in enumerate(METHODS)}
    whole = pd.concat(tables, ignore_index=True)
    whole = whole.assign(_method=whole["method"].map(order)).sort_values(["of", "_method"], kind="stable")
    return whole.assign(of=ops.index.to_numpy()[whole["of"]]).drop(columns="_method").reset_index(drop=True)


def im2col_byte(ops: pd.DataFrame, *, whole_batch: bool) -> pd.Series[float]:
    """Return the bytes that each convolution of a table would gather as a plain product, 0 for other ops.

    It gathers for its whole batch or for one sample at a time, and for one group at a time; in a row of both
    gradients, for one gradient at a time.
    """
    found = pd.Series(0.0, ops.index)
    kinds, passes = (ops[name].to_numpy(object) for name in ("kind", "pass_name"))
    rows = np.flatnonzero(kinds == "conv")
    for pass_name in dict.fromkeys(passes[rows]):
        own = rows[passes[rows] == pass_name]
        sizes = Row(columns_of(ops, own, {}), _PARTS)
        half = pass_name if pass_name in PASSES else PASSES[-1]
        byte = sizes.give(FORMULAS["im2col"], pass_name=half).sample_byte
        found.iloc[own] = byte * (sizes["batch"] if whole_batch else 1.0)
    return found


def _table_of_method(sizes: Row, method: Method, pass_name: str, rows: NDArray[np.intp]) -> pd.DataFrame:
    many = len(rows)
    if pass_name in PASSES:
        cost, absent = _costs(sizes, method.formulas, pass_name, many)
        if not method.in_memory:
            cost = cost._replace(sample_byte=cost.sample_byte * 0)
    else:
        cost = MethodCost(*(np.full(many, np.nan) for _ in MethodCost._fields))
        absent = np.full(many, "the row is both gradients, which have different methods", object)
    return pd.DataFrame(
        {"of": rows, "method": method.name, **cost._asdict(), "flop": _flop(cost), "absent": absent}
    )
