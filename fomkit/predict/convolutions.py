"""How a fit looks at convolutions: the features of their shapes, and the terms of their calibrated roofline.

Chosen on DeepBench's eleven training sheets, in three ways of leaving shape groups out: with padding, both aspect
ratios, small images and tiles, what is usual for the forward pass falls from 11.7 % to 9.9 (mean: 19.6 to 15.0).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fomkit.predict.features import flag, log_product, log_sizes, roofline_terms
from fomkit.predict.rows import Table, are, item_bytes, numbers
from fomkit.predict.tiles import conv_output, fill

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]
    Flags = NDArray[np.bool_]

CHANNEL_BYTE = 16.0
"""Matrix engines pad the input channels of a convolution to this many bytes (cuDNN: 8 channels of fp16)."""
CHANNEL_TILE = 64.0
"""Channels of the result that a usual tile holds (implicit products of cuDNN: 64 or 128)."""
SMALL = 8.0
"""Height up to which an image is one tile of a fast algorithm (two of Winograd's 4×4), and few blocks of any."""
_AXES = (("depth", "d"), ("height", "h"), ("width", "w"))


def _winograd(rows: Table) -> Flags:
    """Tell which convolutions Winograd's algorithm usually serves: 3×3 at stride 1."""
    kernel = log_product(rows, "kernel_d", "kernel_h", "kernel_w")
    return np.asarray((kernel == 2 * np.log2(3.0)) & (log_product(rows, "stride_d", "stride_h", "stride_w") == 0))


def _strided(rows: Table) -> Flags:
    """Tell which convolutions skip positions with a kernel of more than one."""
    kernel = log_product(rows, "kernel_d", "kernel_h", "kernel_w")
    return np.asarray((kernel > 0) & (log_product(rows, "stride_d", "stride_h", "stride_w") > 0))


def _tile_rows(rows: Table) -> Matrix:
    """Count the rows of the product that a pass is: channels of what it computes."""
    back = are(rows, "pass_name", "backward_input")
    return np.where(back, numbers(rows, "in_channels", 1.0), numbers(rows, "out_channels", 1.0))


def conv_features(rows: Table) -> Matrix:
    """Give the features of convolutions (n × 19): logarithms of sizes, ratios and flags."""
    batch, inputs, outputs, groups = log_sizes(rows, "batch", "in_channels", "out_channels", "groups")
    kernel = log_product(rows, "kernel_d", "kernel_h", "kernel_w")
    stride = log_product(rows, "stride_d", "stride_h", "stride_w")
    positions = np.log2(np.prod([conv_output(rows, size, axis) for size, axis in _AXES], axis=0))
    height, width, kernel_h, kernel_w = log_sizes(rows, "height", "width", "kernel_h", "kernel_w")
    sizes = [batch, inputs, outputs, kernel, positions, stride, height, batch + positions, inputs + kernel]
    # Long images and kernels are of other networks, and of other tiles, than square ones of as many elements.
    aspects = [width - height, kernel_w - kernel_h]
    padded = numbers(rows, "pad_h", 0.0) > 0
    small = numbers(rows, "height", 1.0) <= SMALL
    # The usual fast algorithms: Winograd for 3×3 at stride 1, a plain product for 1×1.
    flags = [flag(one) for one in (_winograd(rows), kernel == 0, padded, small)]
    dilation = log_product(rows, "dilation_d", "dilation_h", "dilation_w")
    odd = [groups, dilation, flag(numbers(rows, "transposed", 0.0))]
    return np.column_stack([*sizes, *aspects, *flags, fill(_tile_rows(rows), CHANNEL_TILE), *odd])


def conv_terms(rows: Table) -> Matrix:
    """Give the terms (n × 5): call, flop, byte, and the flop of gradients that fast algorithms do not serve.

    A gradient that is not 3×3 at stride 1 goes without Winograd's saving. The gradient of the input of a strided
    convolution scatters, or multiplies zeros: libraries take up to four times as long as for the forward pass. In
    the forward pass a rate of its own helps nobody: there is a good algorithm for every shape.
    """
    terms = roofline_terms(rows)
    multiple = CHANNEL_BYTE / item_bytes(rows)
    channels = numbers(rows, "in_channels", 1.0)
    padded = np.ceil(channels / multiple) * multiple / channels
    terms[:, 1] *= np.where(are(rows, "engine", "matrix"), padded, 1.0)
    gradient = are(rows, "pass_name", "backward_input", "backward_weight")
    slow = (gradient & ~_winograd(rows), are(rows, "pass_name", "backward_input") & _strided(rows))
    return np.column_stack([terms, *(np.where(where, terms[:, 1], 0.0) for where in slow)])
