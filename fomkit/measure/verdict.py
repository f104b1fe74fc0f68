"""Whether what was measured is enough: by which clock it ran, why it ended, what share now stands on timings."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from fomkit.costs import add_costs
from fomkit.errors import FomkitError
from fomkit.measure.ops import Wanted, as_table
from fomkit.predict import add_times

if TYPE_CHECKING:
    import pandas as pd

    from fomkit.hardware import Machine
    from fomkit.study import Estimate

ENOUGH = 0.8
"""Share of a model's predicted step time from which a measurement made for it is sufficient."""
ENOUGH_OF_DESIGN = 0.2
"""Share of a plan's ops from which one made for no model is: a plan holds more than its budget has time for, in an
order drawn over all kinds, so that a fifth of it tells something of each. What a model needs, `--for` judges."""
WALL_FACTOR = 4.0
"""Wall time that a measurement may take, as a multiple of its budget; then other work has most of the machine."""
DESIGN = "ops of the plan"
"""Whose share it is where no model was asked for."""
SOURCES = ("measured", "interpolated")
Ended = Literal["done", "budget", "wall", "interrupted"]
_WHY: Mapping[str, str] = {
    "done": "every op was tried",
    "budget": "the budget was spent",
    "wall": f"the wall time reached {WALL_FACTOR:g} times the budget, so other work had most of the machine",
    "interrupted": "it was interrupted",
}


class Clocks(NamedTuple):
    """What a measurement is timed by.

    Attributes
    ----------
    own, wall : function
        Seconds of the clock that the budget counts, which is the one that times the ops, and of the wall.
    name : str
        Of the former.
    """

    own: Callable[[], float]
    wall: Callable[[], float]
    name: str


def clocks_of(device: str, threads: int, spent_s: Callable[[], float]) -> Clocks:
    """Choose the clocks: one thread of a CPU is timed by the time of its process, all else by the wall.

    Parameters
    ----------
    spent_s : function
        The time [s] of the process that times; that of this thread, which predicts meanwhile, comes on top.
    """
    if device == "cpu" and threads == 1:
        return Clocks(lambda: time.thread_time() + spent_s(), time.monotonic, "process time")
    return Clocks(time.monotonic, time.monotonic, "wall time")


@dataclass(frozen=True)
class Verdict:
    """How far a measurement got.

    Attributes
    ----------
    shares : mapping
        By model, the share of its predicted step time that is measured or interpolated; without a model that of
        the plan's ops, by `DESIGN`.
    wanted, timed : int
        Ops that were asked for, and that have a time.
    own_s, wall_s, budget_s : float
        Time [s] that it took by the clock that counts and by the wall, and that it had by the former.
    clock : str
    ended : str
        done, budget, wall or interrupted.
    resume : str
        The command that goes on; "" where every op was tried.
    """

    shares: Mapping[str, float]
    wanted: int
    timed: int
    own_s: float
    wall_s: float
    budget_s: float
    clock: str
    ended: Ended
    resume: str = ""

    @property
    def sufficient(self) -> bool:
        """Whether every share is enough (`enough_of`) and the machine was not too busy to say so."""
        reached = all(share >= enough_of(whose) for whose, share in self.shares.items())
        return self.ended != "wall" and bool(self.shares) and reached

    def lines(self) -> list[str]:
        """Say it in words."""
        spent = (
            f"{self.own_s:.0f} s of {self.clock} (budget {self.budget_s:.0f} s), {self.wall_s:.0f} s by the wall"
        )
        found = [f"{self.timed} of {self.wanted} ops timed in {spent}; it ended because {_WHY[self.ended]}"]
        for whose, share in self.shares.items():
            of = DESIGN if whose == DESIGN else f"the predicted step time of {whose}"
            found.append(f"measured or interpolated: {share:.1%} of {of}")
        verdict = "sufficient" if self.sufficient else "not sufficient"
        within = ", within that wall time" if self.ended == "wall" else ""
        enough = min(map(enough_of, self.shares), default=ENOUGH)
        advice = "; --for MODEL judges by a model's step" if DESIGN in self.shares else ""
        found.append(f"{verdict}: {enough:.0%} of each is enough{within}{advice}")
        return found

    def content(self) -> dict[str, Any]:
        """Give it as plain values."""
        return {
            "sufficient": self.sufficient,
            "shares": [{"of": whose, "timed_share": share} for whose, share in self.shares.items()],
            "enough_share": min(map(enough_of, self.shares), default=ENOUGH),
            "wanted_ops": self.wanted,
            "timed_ops": self.timed,
            "clock": self.clock,
            "measuring_s": self.own_s,
            "measuring_wall_s": self.wall_s,
            "budget_s": self.budget_s,
            "ended": self.ended,
            "resume": self.resume or None,
        }


def enough_of(whose: str) -> float:
    """Give the share from which is enough of a model's step, or of a plan's ops (`DESIGN`)."""
    return ENOUGH_OF_DESIGN if whose == DESIGN else ENOUGH


def _share(seconds: pd.Series[float], sources: pd.Series[str]) -> float:
    total = float(seconds.sum())
    return float(seconds[sources.isin(SOURCES)].sum()) / total if total > 0 else 0.0


def design_share(ops: Sequence[Wanted], machine: Machine) -> float:
    """Give the share of a design's ops that a machine has timed or has timings on all sides of."""
    if not ops:
        return 0.0
    timed = add_times(add_costs(as_table([one.cells for one in ops])), machine)
    return float(timed["time_source"].isin(SOURCES).mean())


def model_shares(
    names: Sequence[str], machine: Machine, project: Callable[[str, Machine], Estimate]
) -> dict[str, float]:
    """Give the share of each model's predicted step time that is measured or interpolated.

    An op without any time counts nothing; a model that cannot be estimated there at all has a share of 0.
    """
    found = {}
    for name in names:
        try:
            ops = project(name, machine).ops
        except FomkitError:
            found[name] = 0.0
            continue
        found[name] = _share(ops["time_s"] * ops["count"], ops["time_source"])
    return found
