"""Ways to compute a convolution: work, depth and workspace of each, as formulas.

Direct, im2col, FFT and Winograd are the rows of the work-depth table in Ben-Nun & Hoefler, "Demystifying Parallel
and Distributed Deep Learning" (ACM Computing Surveys 52(4), 2019, table 6). Its row of Winograd is corrected here:
a tile of m outputs under a kernel of r takes α = m + r − 1 inputs (printed: m − r + 1); each tile and pair of
channels takes α² products, and each tile and channel its transforms (Lavin & Gray, "Fast Algorithms for
Convolutional Neural Networks", CVPR 2016).

Depth is the longest chain of additions, and of levels of a transform, with any number of processors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from fomkit.ops.families.formula import Size, ceil, floor, log2

AXES = ("d", "h", "w")
FORWARD, BACK_INPUT, BACK_WEIGHT = PASSES = ("forward", "backward_input", "backward_weight")
FFT_TILE = 32
"""Tile [elements along an axis] of the tiled FFT, as cuDNN's FFT_TILING has it."""
WINOGRAD_KERNEL = 3
"""The kernel [elements along an axis] whose transforms are counted here."""

Triple = tuple[Size, Size, Size]


class MethodCost(NamedTuple):
    """What one execution of a convolution takes by one method.

    `multiply_adds`: of the products, 2 flop each.
    `additions`, `multiplications`: of everything else, 1 flop each: transforms, and scattered sums.
    `work_depth`: levels.
    `fixed_byte`, `sample_byte`: workspace [byte], with the whole batch at once fixed_byte + batch·sample_byte:
      what filters take however many samples there are, and what each sample adds.
    """

    multiply_adds: Size
    additions: Size
    multiplications: Size
    work_depth: Size
    fixed_byte: Size
    sample_byte: Size


class Transform(NamedTuple):
    """Additions and multiplications by constants of one transform along one axis, with shared parts made once."""

    additions: int
    multiplications: int

    def mirrored(self, inputs: int, outputs: int) -> Transform:
        """Count the transposed transform: as many multiplications, and outputs − inputs more additions."""
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
"""What formulas take besides those of `products`: 1 along an axis where the kernel is longer than 1, else 0."""


def _volume(lengths: Triple) -> Size:
    return lengths[0] * lengths[1] * lengths[2]


def _levels(amount: Size) -> Size:
    """Give the levels of a tree over so many: ⌈log2⌉."""
    return ceil(log2(amount))


def _all_levels(amounts: Triple) -> Size:
    return sum(_levels(amount) for amount in amounts)


def direct(
    pass_name: str, batch: Size, in_channels: Size, out_channels: Size,
    groups: Size, depth: Size, height: Size, width: Size, kernel_d: Size, kernel_h: Size, kernel_w: Size,
    transposed: Size, out_depth: Size, out_height: Size, out_width: Size, slid_over: Size,
) -> MethodCost:  # fmt: skip
    """Price the sums as they are defined; implicit GEMM does the same in the order of a matrix product.

    The depth is that of the sum which one result is made of, axis by axis; with a stride an input gradient is
    made of fewer.
    """
    kernel: Triple = (kernel_d, kernel_h, kernel_w)
    products = batch * in_channels * out_channels / groups * _volume(kernel) * slid_over
    if pass_name == BACK_WEIGHT:
        seen = zip((out_depth, out_height, out_width), (depth, height, width), strict=True)
        lengths = tuple((1 - transposed) * out + transposed * size for out, size in seen)
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

    The workspace is (channels/groups) · kernel volume · positions that the kernel slides over, of the input's
    channels or, where the convolution is transposed, of the output's. The input gradient (of a transposed one: the
    forward pass) makes such a matrix and adds its elements up where they belong (col2im).
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
    `data`, `result`: channels of the array that the pass reads and of the one on the other side; filters lie
      between them.
    `filters`: pairs of channels that have a filter.
    `summed`: what one product is summed over.
    """

    tiles: Size
    data: Size
    result: Size
    filters: Size
    summed: Size


def _tiled(
    pass_name: str, batch: Size, channels: tuple[Size, Size], groups: Size, positions: Triple, tile: Triple
) -> _Tiled:
    """Cut a pass into tiles of so many outputs along each axis; that of the weight gradient cuts the gradient."""
    tiles = _volume((ceil(positions[0] / tile[0]), ceil(positions[1] / tile[1]), ceil(positions[2] / tile[2])))
    data, result = reversed(channels) if pass_name == BACK_INPUT else channels
    summed = batch * tiles if pass_name == BACK_WEIGHT else data / groups
    return _Tiled(tiles, data, result, data * result / groups, summed)


def _separable(transform: Transform, slides: Triple, before: Triple, after: Triple) -> tuple[Size, Size]:
    """Count a transform along each axis in turn, from lengths before to lengths after it."""
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
    # The weight gradient runs the other two backwards: the output's gradient is spread, the filter's collected.
    collected = _separable(own.filter.mirrored(WINOGRAD_KERNEL, alpha), slides, points, kernel)
    return data, collected, _separable(own.result.mirrored(alpha, tile), slides, outputs, points)


def winograd(
    tile: int, pass_name: str, batch: Size, in_channels: Size, out_channels: Size,
    groups: Size, depth: Size, height: Size, width: Size, kernel_d: Size, kernel_h: Size, kernel_w: Size,
    out_depth: Size, out_height: Size, out_width: Size, slides_d: Size, slides_h: Size, slides_w: Size,
    item_byte: Size,
) -> MethodCost:  # fmt: skip
    """Price F(m, 3) along each axis where the kernel is 3, m outputs of a tile from α = m + 2 inputs.

    Multiply-adds: α^axes for each tile and pair of channels, where the direct method takes (3·m)^axes: 2.25 times
    as many in two axes for m = 2, and 4 times for m = 4.

    `tile`: m, a key of `WINOGRAD`.
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

    A tile of L points along an axis gives L − kernel + 1 outputs (overlap-save). A radix-2 FFT of V points is
    V/2·log2(V) butterflies of 6 additions and 4 multiplications; real data take half. Their spectrum has
    (V + 2^axes)/2 complex points that do not follow from others, and a product of two takes 4 multiply-adds. So
    derived here; the structure, three families of transforms and a product for each pair of channels, is that of
    Mathieu, Henaff & LeCun, "Fast Training of Convolutional Networks through FFTs" (ICLR 2014).

    `length`: l, a power of two; None for one tile that holds the whole padded image.
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
"""The ways that differ in their formulas, by name; each of one of `PASSES`."""
