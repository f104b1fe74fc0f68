"""Convolutions in one to three dimensions, with groups, dilation and transposition."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fomkit.costs.formula import PASSES, Cost, Size, floor


def output_length(
    size: Size, kernel: Size, stride: Size, pad: Size, dilation: Size, transposed: Size, output_pad: Size
) -> Size:
    """Count output positions along one axis.

    A convolution gives floor((in + 2·pad − dilation·(kernel − 1) − 1) / stride) + 1 positions, and a transposed
    one inverts that, (in − 1)·stride − 2·pad + dilation·(kernel − 1) + 1 + output padding (torch.nn.Conv2d and
    ConvTranspose2d, section Shape).

    Examples
    --------
    >>> float(output_length(224, kernel=7, stride=2, pad=3, dilation=1, transposed=0, output_pad=0))
    112.0
    """
    reach = dilation * (kernel - 1) + 1
    direct = floor((size + 2 * pad - reach) / stride) + 1
    inverse = (size - 1) * stride - 2 * pad + reach + output_pad
    return (1 - transposed) * direct + transposed * inverse


def out_depth(
    depth: Size,
    kernel_d: Size,
    stride_d: Size,
    pad_d: Size,
    dilation_d: Size,
    transposed: Size,
    output_pad_d: Size,
) -> Size:
    """Count output positions along the depth."""
    return output_length(depth, kernel_d, stride_d, pad_d, dilation_d, transposed, output_pad_d)


def out_height(
    height: Size,
    kernel_h: Size,
    stride_h: Size,
    pad_h: Size,
    dilation_h: Size,
    transposed: Size,
    output_pad_h: Size,
) -> Size:
    """Count output positions along the height."""
    return output_length(height, kernel_h, stride_h, pad_h, dilation_h, transposed, output_pad_h)


def out_width(
    width: Size,
    kernel_w: Size,
    stride_w: Size,
    pad_w: Size,
    dilation_w: Size,
    transposed: Size,
    output_pad_w: Size,
) -> Size:
    """Count output positions along the width."""
    return output_length(width, kernel_w, stride_w, pad_w, dilation_w, transposed, output_pad_w)


def slid_over(
    depth: Size,
    height: Size,
    width: Size,
    transposed: Size,
    out_depth: Size,
    out_height: Size,
    out_width: Size,
) -> Size:
    """Count the positions that the kernel slides over: the output's, or the input's where it is transposed."""
    return (1 - transposed) * (out_depth * out_height * out_width) + transposed * (depth * height * width)


PARTS: Mapping[str, Callable[..., Size]] = {
    "slid_over": slid_over,
    "out_depth": out_depth,
    "out_height": out_height,
    "out_width": out_width,
}
"""What the formulas of convolutions take besides columns."""


def conv(
    pass_name: str,
    batch: Size,
    in_channels: Size,
    out_channels: Size,
    depth: Size,
    height: Size,
    width: Size,
    kernel_d: Size,
    kernel_h: Size,
    kernel_w: Size,
    groups: Size,
    out_depth: Size,
    out_height: Size,
    out_width: Size,
    slid_over: Size,
    item_byte: Size,
) -> Cost:
    """Price direct convolution, each of its three passes alike.

    Every kernel element meets every position it slides over, the output's for a convolution and the input's for a
    transposed one: 2·batch·out_channels·(in_channels/groups)·kernel volume·positions flop. The input gradient and
    the weight gradient contain the same products in another order, grouped or not (Dumoulin & Visin,
    arXiv:1603.07285, chapter 4). Each pass reads two of input, weights and output, and writes the third.
    ``backward`` is both gradients. Winograd and FFT algorithms need less arithmetic, so a measured time may lie
    below this flop divided by the peak.
    """
    weights = in_channels * out_channels * kernel_d * kernel_h * kernel_w / groups
    flop = 2 * batch * weights * slid_over
    inside, outside = depth * height * width, out_depth * out_height * out_width
    byte = item_byte * (batch * in_channels * inside + weights + batch * out_channels * outside)
    calls = PASSES[pass_name]
    return Cost(calls * flop, calls * byte, calls)
