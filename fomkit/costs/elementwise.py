"""Kinds whose time is decided by traffic: pointwise, reduction, norm, softmax, pool, embedding, copy, other."""

from __future__ import annotations

from collections.abc import Mapping

from fomkit.costs.formula import Cost, Size

NORM_FLOP: Mapping[str, int] = {"forward": 8, "backward": 13}
"""Flop per element of layer normalisation (Ba et al., arXiv:1607.06450), everything per row left out.

Forward: mean 1; squared deviation summed 3; centred and scaled 2; gain and bias 2. Backward: gradient times
gain 1; normalised value again 2; two row sums 1 + 2; combination 4; gradients of gain 2 and bias 1.
"""

SOFTMAX_FLOP: Mapping[str, int] = {"forward": 5, "backward": 4}
"""Flop per element of a stable softmax: maximum, difference, exponential, sum, quotient; back y·(g − Σ y·g)."""


def per_element(numel: Size, read_byte: Size, write_byte: Size) -> Cost:
    """Price one operation per element, whatever it is: an exponential counts 1, like an addition.

    Examples
    --------
    >>> per_element(numel=10, read_byte=80, write_byte=40)
    Cost(flop=10, byte=120, launches=1)
    """
    return Cost(numel, read_byte + write_byte)


def moved(read_byte: Size, write_byte: Size) -> Cost:
    """Price ops that only move data: no flop."""
    return Cost(0, read_byte + write_byte)


def norm(pass_name: str, numel: Size, read_byte: Size, write_byte: Size) -> Cost:
    """Price a normalisation by `NORM_FLOP`, batch and group norms alike."""
    return Cost(NORM_FLOP[pass_name] * numel, read_byte + write_byte)


def softmax(pass_name: str, numel: Size, read_byte: Size, write_byte: Size) -> Cost:
    """Price a softmax or log-softmax by `SOFTMAX_FLOP`."""
    return Cost(SOFTMAX_FLOP[pass_name] * numel, read_byte + write_byte)
