"""What the figures should reach and what they must not fall behind, by the table ``validation/aims.csv``.

A target is where a figure should be; a tolerance is where it is today, with room for the noise of a refit. A
figure past its tolerance has regressed, and the command fails; one that misses its target is printed as missed.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from fomkit.errors import FomkitError
from fomkit.timings.foreign_table import read_columns
from fomkit.validate.scores import Score

INTERVAL_GAIN = "interval_gain"
"""How far the interval score lies below that of one constant band, as a share."""
FIGURES = ("median", "mean", "bias", "total", "hit_rate", "half_width", INTERVAL_GAIN)
_KEYS = ("comparison", "level", "machine", "what", "figure")
_ENDS = ("target_least", "target_most", "tolerance_least", "tolerance_most")


class Range(NamedTuple):
    """Least and largest value, both included; of signed figures the absolute value counts."""

    least: float
    most: float

    def holds(self, value: float) -> bool:
        """Tell whether a value is in it; unknown is not."""
        return self.least <= value <= self.most


class Aim(NamedTuple):
    """A figure with its target and tolerance: which line, which of its columns."""

    comparison: str
    level: str
    machine: str
    what: str
    figure: str
    target: Range
    tolerance: Range


class Verdict(NamedTuple):
    """An aim with the figure that was found."""

    aim: Aim
    value: float

    @property
    def met(self) -> bool:
        """True where the target is reached."""
        return self.aim.target.holds(self.value)

    @property
    def kept(self) -> bool:
        """True where the figure is not past its tolerance."""
        return self.aim.tolerance.holds(self.value)


def read_aims(path: Path) -> list[Aim]:
    """Read the table of targets and tolerances.

    Raises
    ------
    FomkitError
        With file and line, when a figure is none or a cell is no number.
    """
    table = read_columns(path, _KEYS, _ENDS)
    aims = []
    for line, row in zip(table.index.tolist(), table.to_dict("records"), strict=True):
        if row["figure"] not in FIGURES:
            raise FomkitError(f"{path}:{line}", f"{row['figure']!r} is no figure. Expected {', '.join(FIGURES)}.")
        ends = [float(row[name]) for name in _ENDS]
        words = {name: str(row[name]) for name in _KEYS}
        aims.append(Aim(**words, target=Range(*ends[:2]), tolerance=Range(*ends[2:])))
    return aims


def figure_of(line: Score, figure: str) -> float:
    """Give one column of a line, without its sign where it has one."""
    if figure == INTERVAL_GAIN:
        return 1 - line.interval_score / line.constant_score
    return abs(float(getattr(line, figure)))


def judge(lines: Iterable[Score], aims: Iterable[Aim]) -> list[Verdict]:
    """Judge each aim whose line is there; the others were not asked for."""
    known = {(line.comparison, str(line.level), line.machine, line.what): line for line in lines}
    keyed = [(aim, known.get((aim.comparison, aim.level, aim.machine, aim.what))) for aim in aims]
    return [Verdict(aim, figure_of(line, aim.figure)) for aim, line in keyed if line is not None]
