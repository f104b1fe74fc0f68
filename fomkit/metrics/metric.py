"""What is said of a figure."""

from __future__ import annotations

from typing import Literal, NamedTuple

Level = Literal["op", "network", "training", "distributed", "system"]
Better = Literal["lower", "higher", "none"]
Mean = Literal["arithmetic", "harmonic", "geometric", "none"]


class Metric(NamedTuple):
    """One figure.

    Attributes
    ----------
    name : str
        The end of its place in the JSON output, lists left out: ``step_s``, ``peak.byte``; ``*`` stands for a name
        in between. A value and its ends, low and high, are one figure.
    title : str
        What a printed table calls it.
    unit : str
        ``count``, ``ratio`` and ``share`` are plain numbers; ``mixed`` is that of the figure spoken of.
    mean : str
        The one mean that may be taken over it.
    by : str
        The commands that give it, separated by blanks.
    keyed : str
        What its values are told apart by where it holds several, outermost first: ``machine, line``.
    """

    name: str
    title: str
    unit: str
    level: Level
    better: Better
    mean: Mean
    by: str
    doc: str
    keyed: str = ""
