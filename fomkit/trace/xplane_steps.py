"""The time of a node, or of all, in a step of a file of planes: the median of steps without a cold first one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fomkit.trace.step_spread import is_cold, say_cold, say_contention, say_spread
from fomkit.trace.xplane_times import NodeTime, PlaneTimes


@dataclass(frozen=True)
class PlaneSteps:
    """The steps of a file of planes.

    Attributes
    ----------
    steps : int
        Steps in the file.
    step_s : tuple of float
        Time [s] in each step that is taken, of the nodes that ran equally often in all.
    cold_s : float or None
        The same of a first step that is not taken.
    """

    steps: int
    step_s: tuple[float, ...]
    cold_s: float | None = None

    def mean_s(self, time: NodeTime, count: float = 0.0) -> float:
        """Give a node's time in a step [s]: the median of steps, where its executions fill them.

        Parameters
        ----------
        time : NodeTime
        count : float, optional
            Executions in a step of one that was not recorded each time: their mean counts for all.
        """
        if (by_step := _by_step(time, self.steps)) is not None and (not count or count * self.steps == time.count):
            return float(np.median(by_step[self.cold_s is not None :]))
        return time.time_s / time.count * (count or time.count / self.steps)


def _by_step(time: NodeTime, steps: int) -> NDArray[np.float64] | None:
    """Part a node's time [s] among steps by the order of its executions; None where they do not fill them."""
    if time.count % steps:
        return None
    return np.asarray(time.in_order().reshape(steps, -1).sum(axis=1))


def steps_of(times: PlaneTimes, steps: int) -> PlaneSteps:
    """Find the time of each step.

    Parameters
    ----------
    times : PlaneTimes
    steps : int
        How many there are.
    """
    found = [one for time in times.nodes.values() if (one := _by_step(time, steps)) is not None]
    whole = tuple(np.sum(found, axis=0).tolist()) if found else ()
    return PlaneSteps(steps, whole[1:], whole[0]) if is_cold(whole) else PlaneSteps(steps, whole)


def say_steps(steps: PlaneSteps, timer: str, nodes: Iterable[NodeTime]) -> Iterator[str]:
    """Tell how a file's steps were taken, how far they differ and whether other work was there, a line each."""
    if steps.cold_s is not None:
        yield say_cold(f"step 1 of {steps.steps}", steps.cold_s, steps.step_s)
    yield from say_spread(timer, steps.step_s)
    yield from say_contention(node.in_order() for node in nodes)
