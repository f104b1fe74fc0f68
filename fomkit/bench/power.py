"""Energy read while ops are timed: idle power first, then a reading around each op, as part of the profile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from typing import Any, Protocol

from fomkit.bench.journal import Journal
from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span
from fomkit.core.machine import TIMED_OPS, AveragePower, Energy, EnergyScope, Fact
from fomkit.harness import energy_gpu
from fomkit.harness.energy_gpu import STATED_ERROR_W, CannotReadError, Gpu, find_gpu, find_zones, read_limit
from fomkit.plan.footprint import Sample, counted, integrate

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

    `source`: what it reads.
    `limit_w`: most power that what it reads is built for.
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

    `read`: gives each counter [J].
    `most_j`: where each begins anew.
    `update_s`: a counter may lag so far behind, at both ends.
    `error_w`: what the instrument states of itself, ±.
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

    def reading(self, joule: float, wall_s: float) -> Reading:
        """Give an energy over a time, with what the counters leave open."""
        open_j = min(2 * self.update_s / wall_s, 1.0) * joule + self.error_w * wall_s if wall_s > 0 else joule
        return Reading(Span(joule, max(joule - open_j, 0.0), joule + open_j), wall_s)

    def begin(self) -> None:
        """Read the counters."""
        self._before, self._began = self.read(), self.clock()

    def end(self) -> Reading:
        """Read them again and take the differences, once round at most."""
        after, wall = self.read(), self.clock() - self._began
        return self.reading(
            sum(counted(*each, wall) for each in zip(self._before, after, self.most_j, strict=True)), wall
        )


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

    Raises CannotReadError with the file and the reason.
    """
    zones = find_zones(root)
    names = ", ".join(zone.name for zone in zones)
    limits = [read_limit(zone) for zone in zones if zone.name.startswith("package")]
    known = [limit for limit in limits if limit is not None]
    return CounterMeter(
        read=lambda: [energy_gpu.read_zone(zone) for zone in zones],
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

    Raises CannotReadError when there is none, or no permission to read it.
    """
    return gpu_meter(find_gpu()) if device == "cuda" else rapl_meter(root)


Answer = dict[str, Any]
Around = Callable[[Callable[[], Answer]], Answer]
IDLE_S = 3.0
"""Time [s] in which nothing is asked, to read idle power."""
FEWEST = 10
"""Readings from which a tenth and nine tenths of them mean anything."""
LEAST_SHARE = 0.1
"""Below so small a share of timed work the power of the work cannot be told from that of the rest."""


def _reading_fields(reading: Reading, meter: Meter) -> dict[str, Any]:
    energy = reading.energy_j
    return {"joule": energy.value, "low": energy.low, "high": energy.high, "wall_s": reading.wall_s,
            "source": meter.source, "scope": meter.scope, "limit_w": meter.limit_w}  # fmt: skip


def watching(meter: Meter, journal: Journal) -> Around:
    """Make what reads the energy around the timing of an op and keeps it; no failed reading costs a timing."""

    def around(run: Callable[[], Answer]) -> Answer:
        trouble = ""
        try:
            meter.begin()
        except (CannotReadError, FomkitError) as reason:
            trouble = str(reason)
        try:
            answer = run()
        except BaseException:  # an interrupt too must not leave an instrument running
            with suppress(CannotReadError, FomkitError):
                meter.end()
            raise
        try:
            reading = None if trouble else meter.end()
        except (CannotReadError, FomkitError) as reason:
            reading, trouble = None, str(reason)
        if reading is None:
            journal.mark("power_missed", said=trouble)
        elif "reason" not in answer and reading.wall_s > 0:
            # The repeats; what ran besides, to warm up and in loops, comes on top.
            timed_s = sum(sum(answer.get(name) or ()) for name in ("warm", "cold"))
            journal.mark("power", timed_s=timed_s, **_reading_fields(reading, meter))
        return answer

    return around


def start_watching(
    journal: Journal,
    device: str,
    sleep: Callable[[float], None] = time.sleep,
    find: Callable[[str], Meter] = find_meter,
) -> Around:
    """Find an instrument, read idle power once, and give what reads around each op.

    Where there is no instrument the profile says why, and ops are timed as ever.
    """
    try:
        meter = find(device)
        if not journal.marked("idle"):
            meter.begin()
            sleep(IDLE_S)
            reading = meter.end()
            if not reading.energy_j.value > 0 or not reading.wall_s > 0:
                raise CannotReadError(f"{meter.source}: did not move in {IDLE_S:g} s")
            journal.mark("idle", **_reading_fields(reading, meter))
    except (CannotReadError, FomkitError) as reason:
        said = f"energy: not measured, {reason}"
        if said not in [one["said"] for one in journal.marked("said")]:
            journal.mark("said", said=said)
        return lambda run: run()
    return watching(meter, journal)


def _powers(marks: Sequence[dict[str, Any]]) -> tuple[float, float, float]:
    """Give mean, least and largest power [W] of readings: of all time, and of nine in ten of the readings."""
    wall = sum(mark["wall_s"] for mark in marks)
    value, low, high = (sum(mark[name] for mark in marks) / wall for name in ("joule", "low", "high"))
    if len(marks) >= FEWEST:
        each = quantiles([mark["joule"] / mark["wall_s"] for mark in marks], n=10, method="inclusive")
        low, high = min(low, each[0]), max(high, each[-1])
    # A power of 0 is no reading of anything; an interval that reaches it says only "below".
    return value, max(low, 1e-3 * value), high


def _undiluted(marks: Sequence[dict[str, Any]], value: float, idle_w: float) -> tuple[float, float]:
    """Give the share of the readings' time that is timed work, and its power if the device idled for the rest."""
    share = sum(mark["timed_s"] for mark in marks) / sum(mark["wall_s"] for mark in marks)
    used = min(max(share, LEAST_SHARE), 1.0)
    return share, (value - idle_w * (1 - used)) / used


def energy_of(journal: Journal, device: str) -> Energy | None:
    """Make the energy part of a profile: idle power, and the power of timed ops; None where nothing was read."""
    idle, marks = journal.marked("idle"), journal.marked("power")
    if not sum(mark["joule"] for mark in marks) > 0:
        marks = []
    if not idle and not marks:
        return None
    first = (idle or marks)[-1]
    scope: EnergyScope = first["scope"]
    idle_w = average = None
    if idle:
        seconds = sum(one["wall_s"] for one in idle)
        source = f"{first['source']}, {seconds:.0f} s with nothing asked of it; whatever else ran there counts"
        idle_w = Fact(*_powers(idle), "measured", source)
    if marks:
        value, low, high = _powers(marks)
        share, alone = _undiluted(marks, value, idle_w.value if idle_w else 0.0)
        limit = first["limit_w"]
        if device == "cuda":
            # Between timed repeats a GPU may wait for the host; a processor makes operands meanwhile.
            high = max(high, min(alone, limit) if limit else alone)
        source = f"{first['source']} around {len(marks)} timings; timed repeats are {share:.0%} of that time"
        average = AveragePower(TIMED_OPS, Fact(value, low, high, "measured", source), scope, devices=1)
    limit = Fact(first["limit_w"], first["limit_w"], first["limit_w"], "published", first["source"]) if (
        first["limit_w"] and scope == "chip") else None  # fmt: skip
    return Energy(scope, 1, None, idle_w, (), None, (average,) if average else (), limit)


def missed_of(journal: Journal) -> list[str]:
    """Say how many readings failed, and why the last did."""
    missed = journal.marked("power_missed")
    return [f"energy: {len(missed)} readings failed, the last: {missed[-1]['said']}"] if missed else []
