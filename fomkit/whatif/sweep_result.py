"""A sweep that was worked out: its points as a table, the front, and everything else as content."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from fomkit.shown import Shown
from fomkit.whatif.sweep import Sweep
from fomkit.whatif.sweep_content import sweep_content
from fomkit.whatif.sweep_tally import Tally


@dataclass(frozen=True)
class Swept(Shown):
    """All points of a sweep.

    Attributes
    ----------
    table : DataFrame
        One row for each point: its parameters in SI units, then step_s [s], sample_per_s [1/s] and unit_per_day
        [1/day] with their ends, cost and energy_j [J], peak_byte [byte], fits and basis, as far as they are known.
    front : DataFrame
        The rows of it that no other betters in every objective, one of each set of equals.
    content : mapping
        ``fomkit/sweep/1``.
    """

    table: pd.DataFrame
    front: pd.DataFrame
    content: Mapping[str, Any]

    @property
    def best(self) -> pd.Series:
        """The point of least time a unit of work, of those whose step the memory holds."""
        return self.front.iloc[0]

    def summary(self) -> str:
        """Write it as the text that the command line prints."""
        return self._view.text(self)


def blocks_of_sweep(sweep: Sweep, scheduler: str | None = None) -> Iterator[pd.DataFrame]:
    """Give the points a stretch at a time, worked out here or on a Dask cluster."""
    if scheduler is None:
        return sweep.blocks()
    from fomkit.whatif.cluster import blocks_on

    return blocks_on(sweep, scheduler)


def run_sweep(sweep: Sweep, scheduler: str | None = None) -> Swept:
    """Work a sweep out and keep every point.

    Raises
    ------
    FomkitError
        When a point cannot be estimated, or the cluster cannot be used.
    """
    tally = Tally(sweep)
    table = pd.concat(list(tally.over(blocks_of_sweep(sweep, scheduler))))
    return Swept(table, tally.sorted_front(), sweep_content(sweep, tally))
