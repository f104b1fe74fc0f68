"""How long a measurement may take, and how well each op is timed in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Plan(NamedTuple):
    """How much is measured.

    Attributes
    ----------
    name : str
    budget_s : float
        Time [s] of everything, by the clock that times the ops (`fomkit.measure.verdict.clocks_of`).
    target : float
        Half the 95 % interval of a median, as a share of it, that is narrow enough.
    most : int
        Repeats of an op at most.
    limit_s : float
        Time [s] by that clock that the repeats of one op may take, in each state of the caches.
    op_s : float
        Time [s] of one execution above which no op of the design is asked for.
    shapes : int
        Shapes of each kind in the design; the hour of the full plan holds twice as many.
    """

    name: str
    budget_s: float
    target: float
    most: int
    limit_s: float
    op_s: float
    shapes: int

    def effort(self) -> dict[str, float | int]:
        """Give what the process that times is told; see `fomkit.timings.measure_times.Effort`."""
        return {"target": self.target, "least": 6, "most": self.most, "limit_s": self.limit_s}


PLANS: Mapping[str, Plan] = {
    "quick": Plan("quick", 110.0, 0.03, 15, 0.25, 0.02, 48),
    "default": Plan("default", 560.0, 0.02, 30, 0.6, 0.06, 48),
    "full": Plan("full", 3600.0, 0.01, 60, 1.5, 0.2, 96),
}
"""The plans by name; ``quick`` takes 2 minutes, ``default`` 10, where nobody else uses the machine."""
