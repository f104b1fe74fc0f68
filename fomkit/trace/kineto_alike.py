"""Executions of all steps, in columns, and the steps among them that are alike."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fomkit.trace.step_spread import is_cold


class Key(NamedTuple):
    """What two executions share that are one: what they are, name, call (-1 for none), pass, and a detail.

    ``what`` is ``op``, ``unknown``, ``owner_back`` (the backward pass of a row that holds others), ``update``
    (``name`` is then its place among the updates) or ``device`` (a kernel that no call holds; ``name`` is its
    own, ``detail`` its message or bytes, ``call`` that of the call around it).
    """

    what: str
    name: int
    call: int
    pass_name: str
    detail: int = -1


class Alike(NamedTuple):
    """The steps that are alike, and what ran in those that were taken.

    Attributes
    ----------
    steps : int
        How many are alike.
    counts : dict
        Executions in one of them, in order of first execution.
    times : dict
        Times [s] of all executions in those that were taken, step by step.
    step_s : tuple of float
        Time of all executions in each step that was taken [s].
    cold : tuple of int and float, or None
        Place among all steps, and time [s], of a first one that was left out as a cold start.
    taken : tuple of int
        Places of those that were taken, among all steps.
    """

    steps: int
    counts: dict[Key, int]
    times: dict[Key, NDArray[np.float64]]
    step_s: tuple[float, ...]
    cold: tuple[int, float] | None
    taken: tuple[int, ...]


@dataclass
class Collected:
    """Executions by step and key, 16 bytes each."""

    keys: dict[Key, int] = field(default_factory=dict)
    gradients: dict[Key, list[float]] = field(default_factory=dict)
    units: dict[Key, str] = field(default_factory=dict)
    occupied: dict[Key, list[float]] = field(default_factory=dict)
    updates: dict[tuple[object, ...], int] = field(default_factory=dict)
    _step: array[int] = field(default_factory=lambda: array("i"))
    _key: array[int] = field(default_factory=lambda: array("i"))
    _time: array[float] = field(default_factory=lambda: array("d"))

    def add(self, step: int, key: Key, time: float) -> None:
        """Add an execution of so many µs."""
        self._step.append(step)
        self._key.append(self.keys.setdefault(key, len(self.keys)))
        self._time.append(time / 1e6)

    def occupy(self, key: Key, sums: list[float]) -> None:
        """Add occupancy × time, and time, of kernels that say their occupancy."""
        known = self.occupied.setdefault(key, [0.0, 0.0])
        known[0] += sums[0]
        known[1] += sums[1]

    def occupancy(self) -> dict[Key, float]:
        """Give the achieved occupancy [share] of each key that has one, weighted by time."""
        return {key: share / time for key, (share, time) in self.occupied.items() if time > 0}

    def shares(self) -> dict[Key, tuple[float, float]]:
        """Give the shares of time for the input's and the weight's gradient, of calls whose kernels tell."""
        return {
            key: (to_input / both, to_weight / both)
            for key, (to_input, to_weight) in self.gradients.items()
            if (both := to_input + to_weight) > 0
        }

    def most_alike(self) -> Alike:
        """Take the steps that ran the same, the most there are, of equally many the later ones; no cold start."""
        step, key = np.frombuffer(self._step, np.int32), np.frombuffer(self._key, np.int32)
        time = np.frombuffer(self._time, np.float64)
        order = np.lexsort((key, step))
        starts = np.flatnonzero(np.diff(step[order], prepend=-1))
        alike: dict[bytes, list[int]] = {}
        for first, last in zip(starts, [*starts[1:], len(order)], strict=True):
            alike.setdefault(key[order[first:last]].tobytes(), []).append(int(step[order[first]]))
        taken = max(alike.values(), key=lambda members: (len(members), members[-1]), default=[])
        known = np.nan_to_num(time)
        alike_count, cold = len(taken), None
        step_s = tuple(float(known[step == one].sum()) for one in sorted(taken))
        if is_cold(step_s):
            cold = min(taken), step_s[0]
            taken, step_s = sorted(taken)[1:], step_s[1:]
        inside = np.isin(step, taken)
        names = list(self.keys)
        ran, counts = np.unique(key[inside], return_counts=True)
        sorted_by_key = np.lexsort((step[inside], key[inside]))
        parts = np.split(time[inside][sorted_by_key], np.cumsum(counts)[:-1])
        return Alike(
            alike_count,
            {names[one]: int(count) // len(taken) for one, count in zip(ran, counts, strict=True)},
            {names[one]: part for one, part in zip(ran, parts, strict=True)},
            step_s,
            cold,
            tuple(sorted(taken)),
        )
