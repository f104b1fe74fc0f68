"""Matrix products."""

from __future__ import annotations

from fomkit.costs.formula import Cost, Variant, sizes


def formulas() -> dict[Variant, Cost]:
    """Price b products of (m×k)·(k×n).

    Each of the b·m·n results takes k multiply-adds of 2 flop (Golub & Van Loan, Matrix Computations, §1.1); both
    factors are read once and the product is written once, so the traffic is the compulsory one.

    Examples
    --------
    >>> str(formulas()[()].flop)
    '2*b*k*m*n'
    """
    b, m, n, k, item_byte = sizes("b m n k item_byte")
    return {(): Cost(flop=2 * b * m * n * k, byte=item_byte * b * (m * k + k * n + m * n), launches=1)}
