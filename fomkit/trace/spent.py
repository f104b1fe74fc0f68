"""Time that a profiler saw of equal ops in one step, before it is joined to a table."""

from __future__ import annotations

import math
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
        Of all of them together [s], the median of steps.
    calm_s : float
        The same in the quarter of steps that was least disturbed [s]; NaN where steps are not told apart.
    halved : bool
        Whether it is half of what was told as one time of both gradients.
    """

    op: str
    kind: str
    dtype: str
    pass_name: str
    dimensions: Dimensions
    count: int
    time_s: float
    calm_s: float = math.nan
    halved: bool = False
