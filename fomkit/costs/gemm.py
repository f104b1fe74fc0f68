"""Matrix products, dense and with a sparse left factor."""

from __future__ import annotations

from fomkit.costs.formula import Cost, Size

INDEX_BYTE = 4
"""Width of a row pointer and of a column index [byte]; the libraries' usual 32-bit integers."""


def gemm(b: Size, m: Size, n: Size, k: Size, item_byte: Size) -> Cost:
    """Price b products of (m×k)·(k×n).

    Each of the b·m·n results takes k multiply-adds of 2 flop (Golub & Van Loan, Matrix Computations, §1.1); both
    factors are read once and the product is written once, so the traffic is the compulsory one.

    Examples
    --------
    >>> gemm(b=1, m=2, n=3, k=5, item_byte=4)
    Cost(flop=60, byte=124, launches=1)
    """
    return Cost(flop=2 * b * m * n * k, byte=item_byte * b * (m * k + k * n + m * n))


def sparse_gemm(b: Size, m: Size, n: Size, k: Size, density: Size, item_byte: Size) -> Cost:
    """Price b products of a sparse m×k by a dense k×n matrix.

    Only the m·k·density stored elements meet the n columns: 2·b·m·n·k·density flop. The workbooks of DeepBench
    count the share of zeros there instead. The left factor is stored by compressed rows (CSR; Saad, Iterative
    Methods for Sparse Linear Systems, §3.4): a value and a column index for each stored element and m + 1 row
    pointers. Each of the three matrices moves once.

    Examples
    --------
    >>> sparse_gemm(b=1, m=2, n=3, k=10, density=0.5, item_byte=4)  # 10 stored; 80 + 12 + 120 + 24 byte
    Cost(flop=60.0, byte=236.0, launches=1)
    """
    stored = m * k * density
    left = stored * (item_byte + INDEX_BYTE) + (m + 1) * INDEX_BYTE
    return Cost(flop=2 * b * n * stored, byte=b * (left + item_byte * (k * n + m * n)))
