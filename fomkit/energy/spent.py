"""Energy over a time: power × time, and what the work takes besides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fomkit.energy.methods import Method
from fomkit.energy.work import Work, total
from fomkit.hardware import Energy
from fomkit.spans import Span, multiply_independent


@dataclass(frozen=True)
class Spent:
    """Energy [J] of one device over a time, and the terms that it is the sum of."""

    energy_j: Span
    terms: Mapping[str, Span]

    def scaled(self, factor: float) -> Spent:
        """Multiply by a number of equal runs or devices."""
        terms = {name: term.scaled(factor) for name, term in self.terms.items()}
        return Spent(self.energy_j.scaled(factor), terms)


def at_most(energy: Energy, time_s: Span) -> float | None:
    """Give the most energy [J] that one chip can take in a time; None where nobody states its limit."""
    return None if energy.limit_w is None else energy.limit_w.value * time_s.high


def spend(method: Method, time_s: Span, work: Work, most_j: float | None = None) -> Spent:
    """Add up the energy of one device.

    Parameters
    ----------
    method : Method
    time_s : Span
        All of the time [s], waiting too.
    work : Work
        What is done in it; priced only where the method counts work.
    most_j : float, optional
        Upper bound [J] of a chip's energy: no interval reaches above it, but a value may, and is left as it is.

    Examples
    --------
    >>> method = Method("per_work", Span.exact(40.0), "chip", "modelled", "", counts_work=True)
    >>> spend(method, Span.exact(2.0), Work({"byte": Span(20.0, 10.0, 30.0)})).energy_j
    Span(value=100.0, low=90.0, high=110.0, level=0.8)
    """
    # Work takes no time below 0; where nothing takes time, logarithms have nothing to say.
    lasting = (
        multiply_independent(method.power_w, time_s) if time_s.low > 0 else method.power_w.scaled(time_s.value)
    )
    terms = {"idle power" if method.counts_work else "power": lasting}
    if method.counts_work:
        terms |= work.terms
    found = total(terms)
    if most_j is not None and method.scope == "chip":
        found = Span(found.value, found.low, max(found.value, min(found.high, most_j)), found.level)
    return Spent(found, terms)
