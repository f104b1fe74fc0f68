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
from typing import Any, NamedTuple

from fomkit.costs.formula import counts, sizes

AXES = ("d", "h", "w")
FORWARD, BACK_INPUT, BACK_WEIGHT = PASSES = ("forward", "backward_input", "backward_weight")
FFT_TILE = 32
"""Tile [elements along an axis] of the tiled FFT, as cuDNN's FFT_TILING has it."""
WINOGRAD_KERNEL = 3
"""The kernel [elements along an axis] whose transforms are counted here."""

Triple = tuple[Any, Any, Any]


class MethodCost(NamedTuple):
    """What one execution of a convolution takes by one method, as sympy expressions.

    Attributes
    ----------
    multiply_adds
        Of the products, 2 flop each.
    additions, multiplications
        Of everything else, 1 flop each: transforms, and scattered sums.
    work_depth
        Levels.
    fixed_byte, sample_byte
        Workspace [byte], with the whole batch at once fixed_byte + batch·sample_byte: what filters take however
        many samples there are, and what each sample adds.
    """

    multiply_adds: Any
    additions: Any
    multiplications: Any
    work_depth: Any
    fixed_byte: Any
    sample_byte: Any


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


def parts() -> dict[str, Any]:
    """Give ``slides_d``, ``slides_h`` and ``slides_w``: 1 where the kernel is longer than 1 that way, else 0."""
    import sympy

    return {f"slides_{axis}": 1 - sympy.floor(1 / sizes(f"kernel_{axis}")) for axis in AXES}


def _slides() -> Triple:
    slides: Triple = counts("slides_d slides_h slides_w")
    return slides


def _kernel() -> Triple:
    kernel: Triple = sizes("kernel_d kernel_h kernel_w")
    return kernel


def _out() -> Triple:
    out: Triple = sizes("out_depth out_height out_width")
    return out


def _product(factors: Triple) -> Any:
    return factors[0] * factors[1] * factors[2]


def _levels(amount: Any) -> Any:
    """Give the levels of a tree over so many: ⌈log2⌉."""
    import sympy
    from sympy.codegen.cfunctions import log2

    return sympy.ceiling(log2(amount))


def _multiply_adds() -> Any:
    batch, in_channels, out_channels, groups, slid_over = sizes("batch in_channels out_channels groups slid_over")
    return batch * in_channels * out_channels / groups * _product(_kernel()) * slid_over


def _direct_depth(pass_name: str) -> Any:
    """Sum over what one result is made of, axis by axis; with a stride an input gradient is made of fewer."""
    batch, in_channels, out_channels, groups = sizes("batch in_channels out_channels groups")
    if pass_name != BACK_WEIGHT:
        summed = in_channels if pass_name == FORWARD else out_channels
        return _levels(summed / groups) + sum(_levels(length) for length in _kernel())
    transposed, inside = counts("transposed"), sizes("depth height width")
    lengths = [(1 - transposed) * out + transposed * size for out, size in zip(_out(), inside, strict=True)]
    return _levels(batch) + sum(_levels(length) for length in lengths)


def direct() -> dict[str, MethodCost]:
    """Price the sums as they are defined; implicit GEMM does the same in the order of a matrix product."""
    return {name: MethodCost(_multiply_adds(), 0, 0, _direct_depth(name), 0, 0) for name in PASSES}


def im2col() -> dict[str, MethodCost]:
    """Price a plain product with the patches gathered in memory, one group after the other.

    The workspace is (channels/groups) · kernel volume · positions that the kernel slides over, of the input's
    channels or, where the convolution is transposed, of the output's. The input gradient (of a transposed one: the
    forward pass) makes such a matrix and adds its elements up where they belong (col2im).
    """
    batch, in_channels, out_channels, groups, item_byte, slid_over = sizes(
        "batch in_channels out_channels groups item_byte slid_over"
    )
    transposed = counts("transposed")
    channels = (1 - transposed) * in_channels + transposed * out_channels
    elements = channels * _product(_kernel()) * slid_over
    scattered = {FORWARD: transposed, BACK_INPUT: 1 - transposed, BACK_WEIGHT: 0}
    byte = item_byte * elements / groups
    return {
        name: MethodCost(_multiply_adds(), adds * batch * elements, 0, _direct_depth(name), 0, byte)
        for name, adds in scattered.items()
    }


class _Tiled(NamedTuple):
    """One pass as transform, product in the transformed space, and transform back.

    Attributes
    ----------
    tiles
        Of one sample.
    data, result
        Channels of the array that the pass reads and of the one on the other side; filters lie between them.
    summed
        What one product is summed over.
    """

    tiles: Any
    data: Any
    result: Any
    summed: Any

    @property
    def filters(self) -> Any:
        """Pairs of channels that have a filter."""
        return self.data * self.result / sizes("groups")


def _tiled(pass_name: str, tile: Triple) -> _Tiled:
    """Cut a pass into tiles of so many outputs along each axis; that of the weight gradient cuts the gradient."""
    import sympy

    batch, in_channels, out_channels, groups = sizes("batch in_channels out_channels groups")
    positions = sizes("depth height width") if pass_name == BACK_INPUT else _out()
    each = [sympy.ceiling(length / part) for length, part in zip(positions, tile, strict=True)]
    tiles = each[0] * each[1] * each[2]
    data, result = (out_channels, in_channels) if pass_name == BACK_INPUT else (in_channels, out_channels)
    summed = batch * tiles if pass_name == BACK_WEIGHT else data / groups
    return _Tiled(tiles, data, result, summed)


def _separable(one: Transform, before: Triple, after: Triple) -> tuple[Any, Any]:
    """Count a transform along each axis in turn, from lengths before to lengths after it."""
    slides = _slides()
    lines = slides[0] * before[1] * before[2] + slides[1] * after[0] * before[2] + slides[2] * after[0] * after[1]
    return one.additions * lines, one.multiplications * lines


def _winograd_transforms(
    tile: int, pass_name: str, lengths: tuple[Triple, Triple]
) -> tuple[tuple[Any, Any], tuple[Any, Any], tuple[Any, Any]]:
    """Count the transforms of one tile's data, of one filter and of one tile's result."""
    outputs, points = lengths
    own, alpha = WINOGRAD[tile], tile + WINOGRAD_KERNEL - 1
    data = _separable(own.data, points, points)
    if pass_name != BACK_WEIGHT:
        return data, _separable(own.filter, _kernel(), points), _separable(own.result, points, outputs)
    # The weight gradient runs the other two backwards: the output's gradient is spread, the filter's collected.
    collected = _separable(own.filter.mirrored(WINOGRAD_KERNEL, alpha), points, _kernel())
    return data, collected, _separable(own.result.mirrored(alpha, tile), outputs, points)


def winograd(tile: int) -> dict[str, MethodCost]:
    """Price F(m, 3) along each axis where the kernel is 3, m outputs of a tile from α = m + 2 inputs.

    Multiply-adds: α^axes for each tile and pair of channels, where the direct method takes (3·m)^axes: 2.25 times
    as many in two axes for m = 2, and 4 times for m = 4.

    Parameters
    ----------
    tile : int
        m, a key of `WINOGRAD`.
    """
    batch, item_byte = sizes("batch item_byte")
    slides = _slides()
    outputs: Triple = tuple(1 + (tile - 1) * one for one in slides)
    points: Triple = tuple(m + r - 1 for m, r in zip(outputs, _kernel(), strict=True))
    volume, found = _product(points), {}
    for name in PASSES:
        cut = _tiled(name, outputs)
        tiles = batch * cut.tiles
        data, filters, result = _winograd_transforms(tile, name, (outputs, points))
        shares = (tiles * cut.data, cut.filters, tiles * cut.result)
        adds, times = (
            sum(share * one[place] for share, one in zip(shares, (data, filters, result), strict=True))
            for place in (0, 1)
        )
        first = outputs if name == BACK_WEIGHT else _kernel()
        levels = [_levels(length) + 2 * _levels(span) for length, span in zip(first, points, strict=True)]
        found[name] = MethodCost(
            multiply_adds=tiles * cut.filters * volume,
            additions=adds,
            multiplications=times,
            work_depth=sum(levels) + _levels(cut.summed),
            fixed_byte=item_byte * volume * cut.filters,
            sample_byte=item_byte * volume * cut.tiles * (cut.data + cut.result),
        )
    return found


def fft(length: int | None) -> dict[str, MethodCost]:
    """Price the transform to frequencies and back by radix-2 FFTs of real tiles.

    A tile of L points along an axis gives L − kernel + 1 outputs (overlap-save). A radix-2 FFT of V points is
    V/2·log2(V) butterflies of 6 additions and 4 multiplications; real data take half. Their spectrum has
    (V + 2^axes)/2 complex points that do not follow from others, and a product of two takes 4 multiply-adds. So
    derived here; the structure, three families of transforms and a product for each pair of channels, is that of
    Mathieu, Henaff & LeCun, "Fast Training of Convolutional Networks through FFTs" (ICLR 2014).

    Parameters
    ----------
    length : int or None
        L, a power of two; None for one tile that holds the whole padded image.
    """
    import sympy

    batch, item_byte = sizes("batch item_byte")
    found = {}
    for name in PASSES:
        positions = sizes("depth height width") if name == BACK_INPUT else _out()
        axes = list(zip(_slides(), positions, _kernel(), strict=True))
        points: Triple = tuple(
            1 + one * ((length or 2 ** _levels(size + kernel - 1)) - 1) for one, size, kernel in axes
        )
        cut = _tiled(name, tuple(span - kernel + 1 for span, (_, _, kernel) in zip(points, axes, strict=True)))
        volume, levels = _product(points), sum(_levels(span) for span in points)
        spectrum = (volume + _product(tuple(1 + one for one in _slides()))) / 2
        tiles = batch * cut.tiles
        butterflies = volume * levels / 4 * (cut.filters + tiles * (cut.data + cut.result))
        complex_byte = 2 * item_byte * spectrum
        found[name] = MethodCost(
            multiply_adds=4 * spectrum * tiles * cut.filters,
            additions=6 * butterflies,
            multiplications=4 * butterflies,
            work_depth=2 * levels + _levels(cut.summed),
            fixed_byte=complex_byte * cut.filters,
            sample_byte=complex_byte * cut.tiles * (cut.data + cut.result),
        )
    return {name: MethodCost(*map(sympy.sympify, cost)) for name, cost in found.items()}


FORMULAS: Mapping[str, Callable[[], dict[str, MethodCost]]] = {
    "direct": direct,
    "im2col": im2col,
    "fft": lambda: fft(None),
    "fft_tiled": lambda: fft(FFT_TILE),
    "winograd_2": lambda: winograd(2),
    "winograd_4": lambda: winograd(4),
}
"""The ways that differ in their formulas, by name."""
