"""The metrics by which Deep500 compares benchmarks (Ben-Nun et al., IPDPS 2019, Table II), and ours.

The columns were written down after the paper and not compared with its print.
"""

from __future__ import annotations

from typing import NamedTuple


class PeerColumn(NamedTuple):
    """A column of Deep500's Table II: what it is, the figures here that answer it, or why there is none."""

    column: str
    what: str
    ours: tuple[str, ...] = ()
    absent: str = ""


_TRAINS = "fomkit never trains: it knows the work of a step, not what the step learns"
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
"""Its columns of metrics; the others (closed, open, infrastructure, operators, the fields of application) say
what a benchmark contains."""
