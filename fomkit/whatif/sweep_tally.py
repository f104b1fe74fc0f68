"""What is kept of a sweep while its points go by: ranges, the best points and the front of Pareto."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from fomkit.whatif.pareto import pareto_front
from fomkit.whatif.sweep import Sweep
from fomkit.whatif.sweep_columns import Objective
from fomkit.whatif.sweep_memory import FITS

if TYPE_CHECKING:
    from numpy.typing import NDArray


def lower_is_better(table: pd.DataFrame, objectives: Iterable[Objective]) -> NDArray[np.float64]:
    """Give the objectives of each point (n, k) so that lower is better in all."""
    columns = [
        table[one.column].to_numpy(np.float64) * (-1.0 if one.better == "higher" else 1.0) for one in objectives
    ]
    return np.stack(columns, axis=1)


class Tally:
    """Ranges, best points and front of the points that went by.

    Attributes
    ----------
    seen : int
        Points so far.
    too_large : int
        Those whose step a device does not hold; they are neither best nor on the front.
    not_checked : int
        Those of which nobody knows whether they fit; they are compared like those that do.
    front : DataFrame
        One point for each set of objectives that no other point betters, the first of equal ones.
    """

    def __init__(self, sweep: Sweep) -> None:
        self.sweep = sweep
        self.seen = 0
        self.too_large = 0
        self.not_checked = 0
        self.front = pd.DataFrame()
        self.ranges: dict[str, tuple[float, float]] = {}

    def over(self, blocks: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        """Pass blocks on, and take note of them."""
        for block in blocks:
            self.add(block)
            yield block

    def add(self, block: pd.DataFrame) -> None:
        """Take note of some points."""
        self.seen += len(block)
        for name in block.columns:
            if block[name].dtype.kind == "f":
                self._widen(str(name), block[name].to_numpy(np.float64))
        if FITS in block:
            self.not_checked += int(block[FITS].isna().sum())
            held = block[FITS].fillna(True).to_numpy(bool)
            self.too_large += int((~held).sum())
            block = block[held]
        else:
            self.not_checked += len(block)
        both = pd.concat([self.front, block]) if len(self.front) else block
        values = lower_is_better(both, self.sweep.objectives)
        best = both[pareto_front(values)]
        self.front = best.drop_duplicates([one.column for one in self.sweep.objectives])

    def _widen(self, name: str, values: NDArray[np.float64]) -> None:
        known = values[~np.isnan(values)]
        if not len(known):
            return
        low, high = self.ranges.get(name, (np.inf, -np.inf))
        self.ranges[name] = min(low, float(known.min())), max(high, float(known.max()))

    def sorted_front(self, objective: Objective | None = None) -> pd.DataFrame:
        """Give the front, the best by one objective first; default: by time."""
        if not len(self.front):
            return self.front
        first = objective or self.sweep.objectives[0]
        order = [first, *(one for one in self.sweep.objectives if one != first)]
        return self.front.iloc[np.lexsort(lower_is_better(self.front, order).T[::-1])]
