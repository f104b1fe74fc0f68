"""The figures that fomkit prints, read from the table ``metrics.csv``: name, unit, direction and meaning of each.

Times are averaged arithmetically, rates harmonically, ratios geometrically or not at all (Smith, CACM 31(10),
1988; Fleming and Wallace, CACM 29(3), 1986). The levels are those of Deep500 (Ben-Nun et al., IPDPS 2019):
operators, networks, training, distributed training; ``system`` is for a whole machine.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, NamedTuple

Level = Literal["op", "network", "training", "distributed", "system"]
Better = Literal["lower", "higher", "none"]
Mean = Literal["arithmetic", "harmonic", "geometric", "none"]


class Metric(NamedTuple):
    """One figure.

    `name`: the end of its path in the JSON output, without lists: ``step_s``, ``peak.byte``; ``*`` matches any
      name in between. A value and its bounds, low and high, are one figure.
    `title`: its name in a printed table.
    `unit`: ``count``, ``ratio`` and ``share`` are plain numbers; ``mixed`` is that of the figure it refers to.
    `mean`: the only mean that is valid for it.
    `by`: the commands that print it, separated by blanks.
    `keyed`: the keys of its values where there are several, outermost first: ``machine, line``.
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


METRICS = tuple(
    Metric._make(row[name] for name in Metric._fields)
    for row in csv.DictReader(Path(__file__).with_name("metrics.csv").read_text(encoding="utf-8").splitlines())
)


class PeerColumn(NamedTuple):
    """A column of Deep500's Table II: its meaning, the corresponding figures here, or why there is none."""

    column: str
    what: str
    ours: tuple[str, ...] = ()
    absent: str = ""


_TRAINS = "fomkit does not train: it predicts the time of a step, not what the model learns"
DEEP500: tuple[PeerColumn, ...] = (
    PeerColumn("Perf", "performance", ("step_s", "flop_per_s", "unit_per_day")),
    PeerColumn("Con", "convergence", absent=_TRAINS),
    PeerColumn("Acc", "accuracy", absent=_TRAINS),
    PeerColumn("Tim", "time", ("time_s", "step_s", "run_s")),
    PeerColumn("Cos", "cost", ("money", "money_per_million")),
    PeerColumn("Ene", "energy", ("energy_j", "wall_j")),
    PeerColumn("Util", "utilisation", ("peak_fraction",)),
    PeerColumn("Mem", "memory consumption", ("peak.byte", "roles")),
    PeerColumn("Tput", "throughput", ("sample_per_s", "unit_per_day")),
    PeerColumn("Brk", "timing breakdown", ("passes_s", "time_share")),
    PeerColumn("Sca", "strong scaling", ("speedup", "efficiency")),
    PeerColumn("Com", "communication", ("busy_s", "exposed_s")),
    PeerColumn("TTA", "time to accuracy, by the user's curve of epochs", ("to_target_s",)),
    PeerColumn("FTA", "final test accuracy", absent=_TRAINS),
    PeerColumn("Lat", "latency of inference", ("latency_s",)),
)
"""The columns of metrics in that table; the others (closed, open, infrastructure, operators, the fields of
application) state what a benchmark contains. Written from the paper, not compared with its print."""


def title_of(name: str) -> str:
    """Return the title of a figure in printed tables.

    >>> title_of("unit_per_day")
    'units/day'
    """
    return metric_of(name).title


def metric_of(name: str) -> Metric:
    """Return the row of a figure."""
    return next(metric for metric in METRICS if metric.name == name)


def upper_bounds(excludes: Iterable[str], of: str = "units/day") -> str:
    """Write that figures are upper bounds because of terms that are not stated; "" without such terms.

    >>> upper_bounds(["input", "start_up"])
    'units/day are upper bounds; not stated: input, start_up'
    """
    terms = ", ".join(excludes)
    return f"{of} are upper bounds; not stated: {terms}" if terms else ""
