"""The points of a sweep, any stretch of them at a time: a grid, random numbers or a Sobol sequence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import pandas as pd

from fomkit.errors import FomkitError
from fomkit.whatif.sweep_axes import Axis

if TYPE_CHECKING:
    from numpy.typing import NDArray

Way = Literal["grid", "random", "sobol"]
WAYS: tuple[Way, ...] = get_args(Way)
MOST_POINTS = 10_000_000
"""About an hour on one core of 2020; what is more should say so."""
DRAWN = 4_096
"""Points of a sweep that draws them, unless told."""


@dataclass(frozen=True)
class Plan:
    """What is varied, and the points at which.

    Attributes
    ----------
    axes : tuple of Axis
        Whole numbers first, so that neighbours on a grid share the sizes of a model.
    points : int
    seed : int
        Of the random numbers, or of what scrambles the Sobol sequence; a grid has no use for it.
    """

    axes: tuple[Axis, ...]
    way: Way
    points: int
    seed: int = 0

    def table(self, start: int, stop: int) -> pd.DataFrame:
        """Give the points from ``start`` up to ``stop``, a column for each axis; the same whatever is asked for.

        Examples
        --------
        >>> from fomkit.whatif.sweep_axes import Kind, make_axis
        >>> plan = make_plan([make_axis("batch", "1..3", Kind(whole=True)), make_axis("x", "5,6", Kind())], "grid")
        >>> plan.table(1, 4).to_numpy().tolist()
        [[1.0, 6.0], [2.0, 5.0], [2.0, 6.0]]
        """
        if self.way == "grid":
            grids = [axis.grid() for axis in self.axes]
            places = np.unravel_index(np.arange(start, stop), [len(grid) for grid in grids])
            columns = [grid[place] for grid, place in zip(grids, places, strict=True)]
        else:
            shares = self._shares(start, stop - start)
            columns = [axis.drawn(shares[:, place]) for place, axis in enumerate(self.axes)]
        names = [axis.name for axis in self.axes]
        whole = [column.astype(np.int64) if axis.kind.whole else column
                 for axis, column in zip(self.axes, columns, strict=True)]  # fmt: skip
        return pd.DataFrame(dict(zip(names, whole, strict=True)), index=pd.RangeIndex(start, stop))

    def _shares(self, start: int, count: int) -> NDArray[np.float64]:
        """Give numbers from 0 up to 1 (count, axes) of a stretch of the sequence."""
        width = len(self.axes)
        if self.way == "random":
            # One draw of the generator for each number, so a stretch begins where those before it end.
            generator = np.random.Generator(np.random.PCG64(self.seed).advance(start * width))
            return generator.random((count, width))
        from scipy.stats import qmc

        engine = qmc.Sobol(width, scramble=True, seed=np.random.default_rng(self.seed))
        if start:
            engine.fast_forward(start)
        # The first stretch is drawn up to a power of two: the sequence is made for it, and scipy warns otherwise.
        found: NDArray[np.float64] = engine.random(2 ** math.ceil(math.log2(max(count, 1))))[:count]
        return found


def _check_count(points: int, way: Way, axes: Sequence[Axis]) -> None:
    if points <= MOST_POINTS:
        return
    of = "" if way != "grid" else f" ({' × '.join(f'{axis.count:,} {axis.name}' for axis in axes)})"
    raise FomkitError(
        "sweep",
        f"asks for {points:,} points{of}; {MOST_POINTS:,} is the most. Take fewer steps, or sample: "
        "--way sobol --points 100000.",
    )


def _is_whole(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def make_plan(axes: Sequence[Axis], way: Way = "grid", points: int | None = None, seed: int = 0) -> Plan:
    """Check what is to be swept, and count its points.

    Parameters
    ----------
    axes : sequence of Axis
    way : str
        grid takes every combination; random and sobol draw ``points``.
    points : int, optional
        Default: all of a grid, else 4,096.
    seed : int

    Raises
    ------
    FomkitError
        When nothing is varied, an axis stands twice, or there are more points than anybody waits for.
    """
    names = [axis.name for axis in axes]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise FomkitError(f"--vary {twice}", "is given twice. Put all its values into one.")
    if not axes:
        raise FomkitError("sweep", "varies nothing. Add, for example, --vary batch=16,32,64.")
    if way not in WAYS:
        raise FomkitError("--way", f"is {way!r}. Give grid, random or sobol.")
    if not _is_whole(seed) or not 0 <= seed < 2**63:
        raise FomkitError("--seed", f"is {seed!r}. Give a whole number of 0 or more.")
    ordered = tuple(sorted(axes, key=lambda axis: not axis.kind.whole))
    if way == "grid":
        if points is not None:
            raise FomkitError("--points", "is for --way random or sobol; a grid has those of its values.")
        counts = [axis.count if axis.count is not None else len(axis.grid()) for axis in ordered]
        _check_count(math.prod(counts), way, ordered)
        # Rounding to whole numbers may make some steps of a range the same.
        return Plan(ordered, way, math.prod(len(axis.grid()) for axis in ordered), int(seed))
    wanted = DRAWN if points is None else points
    if not _is_whole(wanted) or wanted < 1:
        raise FomkitError("--points", f"is {wanted!r}. Give a whole number of 1 or more.")
    _check_count(int(wanted), way, ordered)
    return Plan(ordered, way, int(wanted), int(seed))
