"""What views of several kinds are made of: logarithms of sizes, flags, and the terms of a roofline."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fomkit.predict.rows import Table, numbers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]


def log_sizes(rows: Table, *columns: str) -> list[Matrix]:
    """Give log2 of each column; 0 where it is empty."""
    return [np.log2(numbers(rows, column, 1.0)) for column in columns]


def log_product(rows: Table, *columns: str) -> Matrix:
    """Give log2 of the product of the columns."""
    return np.asarray(sum(log_sizes(rows, *columns)), np.float64)


def flag(condition: Matrix | NDArray[np.bool_]) -> Matrix:
    """Give a feature that is 0 or 2: a flag weighs as much as a factor of four in a size."""
    return 2.0 * np.asarray(condition, np.float64)


def roofline_terms(rows: Table) -> Matrix:
    """Give the terms (n × 3) of the plain roofline: one call, its flop and its byte."""
    return np.column_stack([np.ones(len(rows)), numbers(rows, "flop"), numbers(rows, "byte")])
