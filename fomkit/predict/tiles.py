"""How well sizes fill the tiles of a library's kernels: what only a large table of timings can tell.

A kernel works on whole tiles and loads 16 bytes at once, so time rises in steps where a size passes a multiple. A
table of a hundred products of round sizes cannot tell these steps from its other jumps, one of thousands can: with
these features left-out products of NeuSight's tables are off by 5.1 % instead of 6.1 (V100) and 5.1 instead of 7.3
(A100), convolutions by 10.2 instead of 12.1 (V100) and 12.6 instead of 15.0 (P100), all medians.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fomkit.predict.rows import Table, item_bytes, numbers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]

PRODUCT_TILE = 128.0
"""Rows and columns of a usual tile of a product (cuBLAS: 128×128)."""
OUTPUT_TILES = (4.0, 8.0)
"""Rows and columns of usual tiles of a convolution's output (Winograd's 2×2 to 4×4, in pairs)."""
LOAD_BYTE = 16.0

SPLIT_DEPTH = 8192.0
"""Depth k from which libraries surely split a product's sum over k among units."""


def fill(sizes: Matrix, tile: float) -> Matrix:
    """Give log2 of the share of the tiles that a size fills: 0 for a whole number of tiles.

    Examples
    --------
    >>> fill(np.array([128.0, 64.0, 256.0]), 128.0).tolist()
    [0.0, -1.0, 0.0]
    """
    return np.asarray(np.log2(sizes / (np.ceil(sizes / tile) * tile)), np.float64)


def _aligned(rows: Table, column: str) -> Matrix:
    """Tell where a row of this many elements is a whole number of loads."""
    elements = LOAD_BYTE / item_bytes(rows)
    return np.asarray(np.mod(numbers(rows, column, 1.0), elements) == 0, np.float64)


def product_tiles(rows: Table) -> Matrix:
    """Give the features of products (n × 5)."""
    filled = [fill(numbers(rows, name, 1.0), PRODUCT_TILE) for name in ("m", "n")]
    return np.column_stack([*filled, *(_aligned(rows, name) for name in ("m", "n", "k"))])


def depth_in_turn(rows: Table) -> Matrix:
    """Count the steps over k that one unit walks through in turn, however few rows and columns there are (n).

    Examples
    --------
    >>> import pandas as pd
    >>> depth_in_turn(pd.DataFrame({"k": [512.0, 500_000.0]})).tolist()
    [512.0, 8192.0]
    """
    return np.asarray(np.minimum(numbers(rows, "k"), SPLIT_DEPTH), np.float64)


def whole_depth(rows: Table) -> NDArray[np.bool_]:
    """Tell which products have a depth k of a power of two, for which libraries choose other kernels (n).

    Some ran up to twice as fast as products of other depths beside them, first seen on the Titan X Pascal. With it
    and `depth_in_turn` its left-out products are off by 4.4 % instead of 9.1, five sheets that it was chosen on by
    6.0 instead of 6.9, and the other five by 4.2 instead of 4.3 (means of medians; the V100's fp32 is worse).
    """
    return np.asarray(np.mod(np.log2(numbers(rows, "k", 1.0)), 1.0) == 0)


def conv_output(rows: Table, size: str, axis: str) -> Matrix:
    """Give the depth, height or width of a convolution's output; at least 1, for a transposed one its input's.

    Parameters
    ----------
    rows : DataFrame
    size, axis : str
        The column of the input's size, and the letter of its axis: d, h or w.
    """
    reach = numbers(rows, f"dilation_{axis}", 1.0) * (numbers(rows, f"kernel_{axis}", 1.0) - 1)
    inside = numbers(rows, size, 1.0) + 2 * numbers(rows, f"pad_{axis}", 0.0) - reach - 1
    output = np.floor(inside / numbers(rows, f"stride_{axis}", 1.0)) + 1
    straight = np.where(numbers(rows, "transposed", 0.0) > 0, numbers(rows, size, 1.0), output)
    return np.asarray(np.maximum(straight, 1.0), np.float64)


def conv_tiles(rows: Table) -> Matrix:
    """Give the features of convolutions (n × 3)."""
    height, width = conv_output(rows, "height", "h"), conv_output(rows, "width", "w")
    filled = [(fill(height, tile) + fill(width, tile)) / 2 for tile in OUTPUT_TILES]
    return np.column_stack([*filled, _aligned(rows, "in_channels")])
