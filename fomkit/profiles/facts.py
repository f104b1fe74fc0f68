"""Facts as files state them: a value, perhaps its ends, its basis and its source."""

from __future__ import annotations

from fomkit.hardware import Basis, Fact


def fact_of(value: float | None, low: float | None, high: float | None, basis: Basis, source: str) -> Fact | None:
    """Make a fact; an end that is not stated is the value, and no value is no fact."""
    if value is None:
        return None
    return Fact(value, value if low is None else low, value if high is None else high, basis, source)
