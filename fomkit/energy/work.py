"""Energy of arithmetic and of memory traffic, besides the power that is there anyway."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fomkit.hardware import Energy, Fact
from fomkit.spans import Span, add_common, add_independent

if TYPE_CHECKING:
    import pandas as pd


NEGLIGIBLE = 1e-3
"""Share of a step's flop below which a format nobody prices takes the dearest stated figure, which is said."""
Figures = Mapping[tuple[str, str], Fact]
"""Energy of a flop [J] by number format and engine."""


@dataclass(frozen=True)
class Work:
    """Energy of some ops besides idle power.

    Attributes
    ----------
    terms : mapping
        Energy [J] of the flop of each number format and engine, and of the bytes, by a name that says which.
    missing : tuple of str
        What has no energy; where there is any, the terms are not all.
    """

    terms: Mapping[str, Span]
    missing: tuple[str, ...] = ()


def _flop_sums(costed: pd.DataFrame) -> dict[tuple[str, str], float]:
    """Add up the flop of each number format and engine that has any."""
    amounts: dict[tuple[str, str], list[float]] = {}
    flop = costed["flop"].to_numpy(float) * costed["count"].to_numpy(float)
    for dtype, engine, amount in zip(
        costed["dtype"].tolist(), costed["engine"].tolist(), flop.tolist(), strict=True
    ):
        if amount > 0:
            amounts.setdefault((dtype, engine), []).append(amount)
    return {pair: math.fsum(parts) for pair, parts in amounts.items()}


def figures_for(costed: pd.DataFrame, energy: Energy) -> tuple[Figures, tuple[str, ...]]:
    """Choose the energy of a flop for each number format and engine of a step.

    Returns
    -------
    figures : mapping
        Without the formats that have no figure and more than a negligible share of the flop.
    said : tuple of str
        What took another format's figure.
    """
    sums = _flop_sums(costed)
    whole = math.fsum(sums.values())
    dearest = max((one.joule for one in energy.per_flop), key=lambda fact: fact.value, default=None)
    figures, said = dict[tuple[str, str], Fact](), []
    for (dtype, engine), amount in sums.items():
        fact = energy.flop_j(dtype, engine)
        if fact is None and dearest is not None and amount < NEGLIGIBLE * whole:
            said.append(
                f"{amount / whole:.1g} of the flop, {dtype} on the {engine} engine, take the dearest figure"
            )
            fact = dearest
        if fact is not None:
            figures[dtype, engine] = fact
    return figures, tuple(said)


def price_work(costed: pd.DataFrame, energy: Energy, figures: Figures, level: float) -> Work:
    """Price the flop and bytes of a step's ops.

    One figure's error is common to all ops that it prices, so a term is a sum times that figure.

    Parameters
    ----------
    costed : DataFrame
        A COSTED or TIMED table; of each row ``flop`` and ``byte`` of one execution, times ``count``.
    energy : Energy
    figures : mapping
        Of the whole step (`figures_for`).
    level : float
        Of the intervals.
    """
    byte = costed["byte"].to_numpy(float) * costed["count"].to_numpy(float)
    missing, terms = [], dict[str, Span]()
    if unknown := int((costed["flop"].isna() | costed["byte"].isna()).sum()):
        missing.append(f"{unknown} rows of ops have no count of flop or bytes")
    for (dtype, engine), amount in _flop_sums(costed).items():
        if (dtype, engine) in figures:
            terms[f"flop {dtype} {engine}"] = figures[dtype, engine].span(level).scaled(amount)
        else:
            missing.append(f"nobody states the energy of a flop in {dtype} on the {engine} engine")
    traffic = math.fsum(one for one in byte.tolist() if not math.isnan(one))
    if traffic > 0 and energy.byte_j is None:
        missing.append("nobody states the energy of a byte of memory traffic")
    elif traffic > 0 and energy.byte_j is not None:
        terms["byte"] = energy.byte_j.span(level).scaled(traffic)
    return Work(terms, tuple(missing))


def add_work(parts: Sequence[tuple[Work, float]]) -> Work:
    """Add the work of several passes, each so many times; one figure's error is common to all of them.

    Examples
    --------
    >>> step = Work({"byte": Span(2.0, 1.0, 3.0)})
    >>> add_work([(step, 3), (step, 2)]).terms["byte"]
    Span(value=10.0, low=5.0, high=15.0, level=0.8)
    """
    names = dict.fromkeys(name for work, _ in parts for name in work.terms)
    terms = {
        name: add_common(work.terms[name].scaled(times) for work, times in parts if name in work.terms)
        for name in names
    }
    return Work(terms, tuple(dict.fromkeys(said for work, _ in parts for said in work.missing)))


def total(terms: Mapping[str, Span]) -> Span:
    """Add terms whose figures know nothing of each other."""
    return add_independent(terms.values())
