"""Matrix products with a sparse left factor."""

from __future__ import annotations

from fomkit.costs.formula import Cost, Variant, sizes

INDEX_BYTE = 4
"""Width of a row pointer and of a column index [byte]; the libraries' usual 32-bit integers."""


def formulas() -> dict[Variant, Cost]:
    """Price b products of a sparse m×k by a dense k×n matrix.

    Only the m·k·density stored elements meet the n columns: 2·b·m·n·k·density flop. The workbooks of DeepBench
    count the share of zeros there instead. The left factor is stored by compressed rows (CSR; Saad, Iterative
    Methods for Sparse Linear Systems, §3.4): a value and a column index for each stored element and m + 1 row
    pointers. Each of the three matrices moves once.

    Examples
    --------
    >>> row = dict(zip(sizes("b m n k density item_byte"), (1, 2, 3, 10, 0.5, 4)))
    >>> [float(formula.subs(row)) for formula in formulas()[()][:2]]  # 10 stored; 80 + 12 + 120 + 24 byte
    [60.0, 236.0]
    """
    b, m, n, k, density, item_byte = sizes("b m n k density item_byte")
    stored = m * k * density
    left = stored * (item_byte + INDEX_BYTE) + (m + 1) * INDEX_BYTE
    return {(): Cost(flop=2 * b * n * stored, byte=b * (left + item_byte * (k * n + m * n)), launches=1)}
