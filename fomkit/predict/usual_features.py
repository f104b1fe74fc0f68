"""How ops look beside the machine that runs them, so that timings of one machine tell of another.

Sizes of an op are set beside the machine's rates: its time at the peak and at the bandwidth, and the outputs that
each unit of arithmetic gets. Two machines for which these agree are asked to do the same work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from fomkit.predict.rows import Table, are, item_bytes, numbers
from fomkit.predict.tiles import LOAD_BYTE, PRODUCT_TILE, fill

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]

BALANCED = 6.0
"""Powers of two beyond which it no longer matters how far arithmetic and traffic lie apart."""

SHORTEST_S = 2e-6
"""Reading time of a matrix below which its product with a vector is a start and little else; what it reaches of
the bandwidth then tells of the harness."""


def _log(values: Matrix) -> Matrix:
    return np.asarray(np.log2(np.maximum(values, 1e-30)), np.float64)


def _sizes(rows: Table, *columns: str) -> list[Matrix]:
    return [_log(numbers(rows, column, 1.0)) for column in columns]


def _flag(condition: NDArray[np.bool_]) -> Matrix:
    # A flag weighs as much as a factor of four in a size.
    return 2.0 * np.asarray(condition, np.float64)


def _log_product(rows: Table, *columns: str) -> Matrix:
    return np.asarray(sum(_sizes(rows, *columns)), np.float64)


def _work(rows: Table, flop_per_s: Matrix, byte_per_s: float) -> list[Matrix]:
    """Give the floor and how far arithmetic lies above traffic, as powers of two."""
    compute, memory = _log(numbers(rows, "flop") / flop_per_s), _log(numbers(rows, "byte") / byte_per_s)
    return [np.maximum(compute, memory), np.clip(compute - memory, -BALANCED, BALANCED)]


def _loaded_whole(rows: Table, column: str) -> Matrix:
    """Tell where a row of this many elements is a whole number of loads."""
    elements = LOAD_BYTE / item_bytes(rows)
    return np.asarray(np.mod(numbers(rows, column, 1.0), elements) == 0, np.float64)


def _gemm(rows: Table, flop_per_s: Matrix, byte_per_s: float) -> Matrix:
    b, m, n, k = _sizes(rows, "b", "m", "n", "k")
    filled = sum(fill(numbers(rows, name, 1.0), PRODUCT_TILE) for name in ("m", "n"))
    loads = _loaded_whole(rows, "n") + _loaded_whole(rows, "k")
    shape = [k, b + m + n - _log(flop_per_s), np.minimum(m, n), np.abs(m - n) / 2, _flag(b > 0), filled, loads]
    return np.column_stack([*_work(rows, flop_per_s, byte_per_s), *shape])


def _matvec(rows: Table, flop_per_s: Matrix, byte_per_s: float) -> Matrix:
    # One reading of the matrix: how long it takes at the bandwidth, and how many outputs share it.
    floor = np.maximum(_traffic(rows, flop_per_s, byte_per_s)[:, 0], np.log2(SHORTEST_S))
    return np.column_stack([floor, _log_product(rows, "b", "m", "n")])


def _sparse(rows: Table, flop_per_s: Matrix, byte_per_s: float) -> Matrix:
    return np.column_stack([*_work(rows, flop_per_s, byte_per_s), *_sizes(rows, "n", "density")])


def _conv(rows: Table, flop_per_s: Matrix, byte_per_s: float) -> Matrix:
    batch, inputs, outputs, groups, height, width = _sizes(
        rows, "batch", "in_channels", "out_channels", "groups", "height", "width"
    )
    kernel = _log_product(rows, "kernel_d", "kernel_h", "kernel_w")
    stride = _log_product(rows, "stride_d", "stride_h", "stride_w")
    positions = batch + height + width - stride
    winograd = _flag((kernel == 2 * np.log2(3.0)) & (stride == 0))
    shape = [inputs, outputs, groups, positions - _log(flop_per_s), kernel, stride, winograd, _flag(kernel == 0)]
    return np.column_stack([*_work(rows, flop_per_s, byte_per_s), *shape])


def _rnn(rows: Table, flop_per_s: Matrix, byte_per_s: float) -> Matrix:
    batch, steps, hidden = _sizes(rows, "batch", "steps", "hidden_size")
    cells = [_flag(are(rows, "cell", cell)) for cell in ("lstm", "gru")]
    shape = [hidden - _log(flop_per_s) / 2, batch, steps, *cells]
    return np.column_stack([_work(rows, flop_per_s, byte_per_s)[0], *shape])


def _attention(rows: Table, flop_per_s: Matrix, byte_per_s: float) -> Matrix:
    batch, heads, length, depth = _sizes(rows, "batch", "heads", "q_len", "head_dim")
    return np.column_stack([*_work(rows, flop_per_s, byte_per_s), length, depth, batch + heads - _log(flop_per_s)])


def _traffic(rows: Table, flop_per_s: Matrix, byte_per_s: float) -> Matrix:
    del flop_per_s
    return np.column_stack([_log(numbers(rows, "byte") / byte_per_s), *_sizes(rows, "row")])


def _bytes_alone(rows: Table, flop_per_s: Matrix, byte_per_s: float) -> Matrix:
    return _traffic(rows, flop_per_s, byte_per_s)[:, :1]


FEATURES: Mapping[str, Callable[[Table, Matrix, float], Matrix]] = {
    "gemm": _gemm, "matvec": _matvec, "sparse_gemm": _sparse, "conv": _conv, "rnn": _rnn, "attention": _attention,
    "norm": _traffic, "softmax": _traffic, "pointwise": _bytes_alone, "traffic": _bytes_alone,
}  # fmt: skip
"""COSTED rows of a kind, the peak [flop/s] of each and the bandwidth [byte/s] to features (n × p)."""
