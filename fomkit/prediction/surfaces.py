"""The utilisation that each timed machine reached, as a smooth surface over features of its ops.

How well sizes fill the tiles of a library's kernels: what only a large table of timings can tell.

A kernel works on whole tiles and loads 16 bytes at once, so time rises in steps where a size passes a multiple. A
table of a hundred products of round sizes cannot tell these steps from its other jumps, one of thousands can: with
these features left-out products of NeuSight's tables are off by 5.1 % instead of 6.1 (V100) and 5.1 instead of 7.3
(A100), convolutions by 10.2 instead of 12.1 (V100) and 12.6 instead of 15.0 (P100), all medians.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fomkit.prediction.estimates import Table, item_bytes, numbers
from fomkit.prediction.gp import apart, correlation, covariance, distances

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fomkit.core.machine import Surface, TypicalTables

    Matrix = NDArray[np.float64]


VARIANCE, NOISE = 0.3, 0.02
"""Of ln(utilisation) over the shapes of one machine: a factor of 1.7, and 14 % that no feature explains."""

DIGITS, WEIGHT_DIGITS = 100.0, 1000.0
"""Features are kept in hundredths of a power of two, weights in thousandths."""


class Surfaces(NamedTuple):
    """All machines' surfaces of one kind of work, side by side.

    `length` (p,): of the features.
    `scaled`, `squares`, `weight` (n, p): features in lengths, their squared norms and the weights: rows of all
      surfaces one after the other.
    `starts`: the first row of each.
    """

    length: Matrix
    known: tuple[Surface, ...]
    scaled: Matrix
    squares: Matrix
    weight: Matrix
    starts: NDArray[np.intp]


def weights_of(features: Matrix, log_utilisation: Matrix, length: Matrix) -> Matrix:
    """Give each row of one machine its weight in the surface through them all (n).

    Rasmussen & Williams, Gaussian Processes for Machine Learning, eq. 2.25.
    """
    shared = VARIANCE * correlation(distances(features, features, length))
    return np.asarray(np.linalg.solve(shared + NOISE * np.eye(len(features)), log_utilisation))


def surface_rows(features: Matrix, weight: Matrix) -> NDArray[np.int32]:
    """Give rows as the whole numbers of `fomkit.core.machine.Surface`, the weight first."""
    table = np.column_stack([weight * WEIGHT_DIGITS, features * DIGITS])
    return np.rint(table).astype(np.int32)


def side_by_side(length: Matrix, known: Sequence[Surface]) -> Surfaces:
    """Put surfaces of one kind of work side by side, in lengths."""
    starts = np.cumsum([0, *(len(one.rows) for one in known[:-1])])
    rows = np.concatenate([one.rows for one in known]).astype(np.float64)
    scaled = rows[:, 1:] / DIGITS / length
    weight = rows[:, 0] / WEIGHT_DIGITS
    return Surfaces(length, tuple(known), scaled, (scaled * scaled).sum(1), weight, starts)


@lru_cache(maxsize=64)
def surfaces(tables: TypicalTables, work: str, excluded: tuple[str, ...] = ()) -> Surfaces | None:
    """Give the surfaces of a kind of work, some architectures' and machines' left out; None where none is left."""
    if (found := tables.of.get(work)) is None:
        return None
    known = [one for one in found.known if one.architecture not in excluded and one.machine not in excluded]
    return side_by_side(found.length, known) if known else None


def heights(found: Surfaces, features: Matrix) -> Matrix:
    """Give ln(utilisation) of queries (q × p) by each surface (surfaces × q)."""
    predicted = np.empty((len(found.known), len(features)))
    for block, distance in apart(features / found.length, found.scaled, found.squares):
        shared = covariance(distance, VARIANCE)
        shared *= found.weight
        predicted[:, block] = np.add.reduceat(shared, found.starts, axis=1).T
    return np.asarray(predicted + np.array([one.mean for one in found.known])[:, None])


PRODUCT_TILE = 128.0
"""Rows and columns of a usual tile of a product (cuBLAS: 128×128)."""
OUTPUT_TILES = (4.0, 8.0)
"""Rows and columns of usual tiles of a convolution's output (Winograd's 2×2 to 4×4, in pairs)."""
LOAD_BYTE = 16.0

SPLIT_DEPTH = 8192.0
"""Depth k from which libraries surely split a product's sum over k among units."""


def fill(sizes: Matrix, tile: float) -> Matrix:
    """Give log2 of the share of the tiles that a size fills: 0 for a whole number of tiles.

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

    `size`, `axis`: the column of the input's size, and the letter of its axis: d, h or w.
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
