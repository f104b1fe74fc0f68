"""Kinds whose time is decided by traffic: pointwise, reduction, norm, softmax, pool, embedding, copy, other."""

from __future__ import annotations

from typing import Any

from fomkit.costs.formula import Cost, Variant, counts, sizes

NORM_FLOP = {"forward": 8, "backward": 13}
"""Flop per element of layer normalisation (Ba et al., arXiv:1607.06450), everything per row left out.

Forward: mean 1; squared deviation summed 3; centred and scaled 2; gain and bias 2. Backward: gradient times
gain 1; normalised value again 2; two row sums 1 + 2; combination 4; gradients of gain 2 and bias 1.
"""

SOFTMAX_FLOP = {"forward": 5, "backward": 4}
"""Flop per element of a stable softmax: maximum, difference, exponential, sum, quotient; back y·(g − Σ y·g)."""


def _traffic(flop: Any) -> Cost:
    read_byte, write_byte = counts("read_byte write_byte")
    return Cost(flop, read_byte + write_byte, 1)


def per_element() -> dict[Variant, Cost]:
    """Price one operation per element, whatever it is: an exponential counts 1, like an addition."""
    return {(): _traffic(sizes("numel"))}


def moved() -> dict[Variant, Cost]:
    """Price ops that only move data: no flop."""
    return {(): _traffic(0)}


def norm() -> dict[Variant, Cost]:
    """Price a normalisation by `NORM_FLOP`, batch and group norms alike."""
    return {(name,): _traffic(flop * sizes("numel")) for name, flop in NORM_FLOP.items()}


def softmax() -> dict[Variant, Cost]:
    """Price a softmax or log-softmax by `SOFTMAX_FLOP`."""
    return {(name,): _traffic(flop * sizes("numel")) for name, flop in SOFTMAX_FLOP.items()}
