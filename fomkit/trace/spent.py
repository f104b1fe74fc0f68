"""Time that a profiler saw of equal ops in one step, before it is joined to a table."""

from __future__ import annotations

from dataclasses import dataclass

from fomkit.trace.calls import Dimensions


@dataclass(frozen=True)
class Spent:
    """Time of equal ops in one step.

    Attributes
    ----------
    op, kind, dtype, pass_name : str
        As rows of the op table have them; ``kind`` is "" for what has no work.
    dimensions : dict
    count : int
        Executions in a step.
    time_s : float
        Of all of them together [s].
    """

    op: str
    kind: str
    dtype: str
    pass_name: str
    dimensions: Dimensions
    count: int
    time_s: float
