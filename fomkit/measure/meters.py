"""Instruments between a beginning and an end: counters read twice, and power read all the while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from fomkit.energy import Sample, counted, integrate
from fomkit.hardware import EnergyScope
from fomkit.spans import Span
from fomkit.timings.energy_counters import CannotReadError, find_zones, read_limit, read_zone
from fomkit.timings.energy_gpu import STATED_ERROR_W, Gpu, find_gpu

RAPL_UPDATE_S = 1e-3
"""RAPL counters move on about every millisecond."""
GPU_UPDATE_S = 0.1
"""So far may an NVML counter lag behind; taken as an upper bound, no document states it."""
PERIOD_S = 0.1
"""Wished time between two readings of power."""


@dataclass(frozen=True)
class Reading:
    """Energy [J] over a time [s], with what the instrument leaves open."""

    energy_j: Span
    wall_s: float


class Meter(Protocol):
    """An instrument.

    Attributes
    ----------
    source : str
        What it reads.
    scope : str
    limit_w : float or None
        Most power that what it reads is built for.
    """

    source: str
    scope: EnergyScope
    limit_w: float | None

    def begin(self) -> None:
        """Begin a reading."""

    def end(self) -> Reading:
        """End it; `CannotReadError` or `FomkitError` where nothing came of it."""


@dataclass
class CounterMeter:
    """Counters that are read before and after.

    Attributes
    ----------
    read : function
        Gives each counter [J].
    most_j : sequence of float
        Where each begins anew.
    update_s : float
        A counter may lag so far behind, at both ends.
    error_w : float
        What the instrument states of itself, ±.
    """

    read: Callable[[], Sequence[float]]
    most_j: Sequence[float]
    source: str
    update_s: float
    error_w: float = 0.0
    limit_w: float | None = None
    scope: EnergyScope = "chip"
    clock: Callable[[], float] = time.monotonic
    _before: Sequence[float] = field(default=())
    _began: float = 0.0

    def open_j(self, joule: float, wall_s: float) -> float:
        """Give what the counters leave open [J] of an energy over a time."""
        return min(2 * self.update_s / wall_s, 1.0) * joule + self.error_w * wall_s if wall_s > 0 else joule

    def begin(self) -> None:
        """Read the counters."""
        self._before, self._began = self.read(), self.clock()

    def end(self) -> Reading:
        """Read them again and take the differences, once round at most."""
        after, wall = self.read(), self.clock() - self._began
        joule = sum(counted(*each, wall) for each in zip(self._before, after, self.most_j, strict=True))
        open_j = self.open_j(joule, wall)
        return Reading(Span(joule, max(joule - open_j, 0.0), joule + open_j), wall)


@dataclass
class SampledMeter:
    """Power that a thread reads now and then, summed up by the trapezoid rule."""

    power_w: Callable[[], float]
    source: str
    error_w: float = STATED_ERROR_W
    limit_w: float | None = None
    scope: EnergyScope = "chip"
    period_s: float = PERIOD_S
    clock: Callable[[], float] = time.monotonic
    samples: list[Sample] = field(default_factory=list)
    _done: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _trouble: str = ""

    def sample(self) -> None:
        """Read the power once."""
        try:
            power = self.power_w()
        except CannotReadError as reason:
            self._trouble = str(reason)
            return
        self.samples.append(Sample(self.clock(), power))

    def _sample_all(self) -> None:
        while not self._done.wait(self.period_s):
            self.sample()

    def begin(self) -> None:
        """Start the thread."""
        self.samples, self._trouble, self._done = [], "", threading.Event()
        self.sample()
        self._thread = threading.Thread(target=self._sample_all, daemon=True)
        self._thread.start()

    def end(self) -> Reading:
        """Stop the thread and integrate."""
        self._done.set()
        if self._thread is not None:
            self._thread.join()
        self.sample()
        if self._trouble:
            raise CannotReadError(self._trouble)
        found = integrate(self.samples, error_w=self.error_w)
        return Reading(found.energy_j, found.wall_s)


def rapl_meter(root: Path = Path("/")) -> CounterMeter:
    """Make the meter of this machine's processors.

    Raises
    ------
    CannotReadError
        With the file and the reason.
    """
    zones = find_zones(root)
    names = ", ".join(zone.name for zone in zones)
    limits = [read_limit(zone) for zone in zones if zone.name.startswith("package")]
    known = [limit for limit in limits if limit is not None]
    return CounterMeter(
        read=lambda: [read_zone(zone) for zone in zones],
        most_j=[zone.most_j for zone in zones],
        source=f"RAPL counters {names}",
        update_s=RAPL_UPDATE_S,
        limit_w=sum(known) if len(known) == len(limits) == 1 else None,
        scope="chip" if len(limits) == 1 else "node",
    )


def gpu_meter(gpu: Gpu) -> Meter:
    """Make the meter of a GPU: its counter where it has one, else its power."""
    energy = gpu.energy_j
    if energy is None:
        return SampledMeter(gpu.power_w, gpu.source, limit_w=gpu.limit_w)
    # It counts from 0 when the driver is loaded, in 64 bits: it does not come round.
    return CounterMeter(
        lambda: [energy()], [2.0**64], gpu.source, GPU_UPDATE_S, error_w=STATED_ERROR_W, limit_w=gpu.limit_w
    )


def find_meter(device: str, root: Path = Path("/")) -> Meter:
    """Find the instrument of a device, ``cpu`` or ``cuda``.

    Raises
    ------
    CannotReadError
        When there is none, or no permission to read it.
    """
    return gpu_meter(find_gpu()) if device == "cuda" else rapl_meter(root)
