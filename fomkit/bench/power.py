"""Energy read while ops are timed, as part of the profile, and while a step runs in another process.

Of ops idle power comes first, then a reading around each. Of a step an instrument is read all the while, and cut
to when the steps ran.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import quantiles
from typing import Any, NamedTuple

from fomkit.bench.journal import Journal
from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span
from fomkit.core.machine import TIMED_OPS, AveragePower, Energy, EnergyScope, Fact
from fomkit.core.measurement import StepEnergy
from fomkit.harness import energy_gpu
from fomkit.harness.energy_gpu import STATED_ERROR_W, CannotReadError, Gpu, find_gpu, find_zones, read_limit
from fomkit.harness.torch.worker import Answer
from fomkit.merit.footprint import Sample, counted, integrate

RAPL_UPDATE_S = 1e-3
"""RAPL counters move on about every millisecond."""
GPU_UPDATE_S = 0.1
"""So far may an NVML counter lag behind; taken as an upper bound, no document states it."""
PERIOD_S = 0.1
"""Wished time between two readings of power."""
STEP_PERIOD_S = 0.02
"""And while steps run, which are cut out of the readings."""


@dataclass(frozen=True)
class Reading:
    """Energy [J] over a time [s], with what the instrument leaves open."""

    energy_j: Span
    wall_s: float


class Readout(NamedTuple):
    """What an instrument said at a moment [s]: its counters [J], or one power [W]."""

    moment_s: float
    quantities: Sequence[float]


class EnergyLog:
    """Readings of one instrument, by a thread.

    `clock`: the clock of the moments; `period_s`: wished time between two readings.
    """

    def __init__(
        self, meter: Meter, clock: Callable[[], float] = time.monotonic, period_s: float = STEP_PERIOD_S
    ) -> None:
        self.meter, self._clock, self._period_s = meter, clock, period_s
        self.readings: list[Readout] = []
        self.trouble = ""
        self._done = threading.Event()
        self.thread = threading.Thread(target=self._read_all, daemon=True)

    def read(self) -> None:
        """Read once."""
        try:
            quantities = self.meter.read()
        except CannotReadError as reason:
            self.trouble = str(reason)
            return
        self.readings.append(Readout(self._clock(), quantities))

    def _read_all(self) -> None:
        while not self.trouble and not self._done.wait(self._period_s):
            self.read()

    def stop(self) -> None:
        """Read no more."""
        self._done.set()
        self.thread.join()

    def between(self, begin_s: float = -math.inf, end_s: float = math.inf) -> Reading:
        """Give the energy between the first and the last reading in a time.

        Raises CannotReadError, FomkitError when there are not two readings, or the instrument failed.
        """
        if self.trouble:
            raise CannotReadError(self.trouble)
        inside = [reading for reading in self.readings if begin_s <= reading.moment_s <= end_s]
        if len(inside) < 2:
            raise CannotReadError(f"{self.meter.source}: was read {len(inside)} times while steps ran, too few")
        return self.meter.total(inside)


@dataclass
class CounterMeter:
    """Counters that are read before and after.

    `read`: gives each counter [J].
    `most_j`: where each begins anew.
    `source`: what they are.
    `update_s`: a counter may lag so far behind, at both ends.
    `error_w`: what the instrument states of itself, ±.
    `limit_w`: most power that what it reads is built for.
    """

    read: Callable[[], Sequence[float]]
    most_j: Sequence[float]
    source: str
    update_s: float
    error_w: float = 0.0
    limit_w: float | None = None
    scope: EnergyScope = "chip"
    clock: Callable[[], float] = time.monotonic
    _began: Readout = field(default=Readout(0.0, ()), init=False)

    def total(self, readings: Sequence[Readout]) -> Reading:
        """Give the energy from the first reading to the last, between two of which a counter comes round once."""
        joule, wall_s = 0.0, readings[-1].moment_s - readings[0].moment_s
        for one, other in pairwise(readings):
            both = zip(one.quantities, other.quantities, self.most_j, strict=True)
            joule += sum(counted(*each, other.moment_s - one.moment_s) for each in both)
        open_j = min(2 * self.update_s / wall_s, 1.0) * joule + self.error_w * wall_s if wall_s > 0 else joule
        return Reading(Span(joule, max(joule - open_j, 0.0), joule + open_j), wall_s)

    def begin(self) -> None:
        """Begin a reading."""
        quantities = self.read()
        self._began = Readout(self.clock(), quantities)

    def end(self) -> Reading:
        """End it; raises CannotReadError, FomkitError where nothing came of it."""
        quantities = self.read()
        return self.total([self._began, Readout(self.clock(), quantities)])


@dataclass
class SampledMeter:
    """Power that a thread reads now and then, summed up by the trapezoid rule.

    `source`, `error_w`, `limit_w`: as of a `CounterMeter`; `period_s`: wished time between two readings.
    """

    power_w: Callable[[], float]
    source: str
    error_w: float = STATED_ERROR_W
    limit_w: float | None = None
    scope: EnergyScope = "chip"
    period_s: float = PERIOD_S
    clock: Callable[[], float] = time.monotonic
    log: EnergyLog = field(init=False)

    def read(self) -> list[float]:
        """Read the power once [W]."""
        return [self.power_w()]

    def total(self, readings: Sequence[Readout]) -> Reading:
        """Integrate from the first reading to the last."""
        found = integrate([Sample(one.moment_s, one.quantities[0]) for one in readings], error_w=self.error_w)
        return Reading(found.energy_j, found.wall_s)

    def begin(self) -> None:
        """Start the thread."""
        self.log = EnergyLog(self, self.clock, self.period_s)
        self.log.read()
        self.log.thread.start()

    def end(self) -> Reading:
        """Stop the thread and integrate; raises CannotReadError, FomkitError where nothing came of it."""
        self.log.stop()
        self.log.read()
        return self.log.between()


Meter = CounterMeter | SampledMeter
"""An instrument."""


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


def find_meter(device: str) -> Meter:
    """Find the instrument of a device, ``cpu`` or ``cuda``.

    Raises CannotReadError when there is none, or no permission to read it.
    """
    return gpu_meter(find_gpu()) if device == "cuda" else rapl_meter()


Around = Callable[[Callable[[], Answer]], Answer]
IDLE_S = 3.0
"""Time [s] in which nothing is asked, to read idle power."""
FEWEST = 10
"""Readings from which a tenth and nine tenths of them mean anything."""
LEAST_SHARE = 0.1
"""Below so small a share of timed work the power of the work cannot be told from that of the rest."""


def _mark(journal: Journal, name: str, reading: Reading, meter: Meter, **more: float) -> None:
    energy = reading.energy_j
    journal.mark(name, **more, joule=energy.value, low=energy.low, high=energy.high, wall_s=reading.wall_s,
                 source=meter.source, scope=meter.scope, limit_w=meter.limit_w)  # fmt: skip


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
            _mark(journal, "power", reading, meter, timed_s=timed_s)
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
            _mark(journal, "idle", reading, meter)
    except (CannotReadError, FomkitError) as reason:
        journal.say(f"energy: not measured, {reason}")
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
    limit = Fact.exact(first["limit_w"], "published", first["source"]) if (
        first["limit_w"] and scope == "chip") else None  # fmt: skip
    return Energy(scope, 1, None, idle_w, (), None, (average,) if average else (), limit)


def missed_of(journal: Journal) -> list[str]:
    """Say how many readings failed, and why the last did."""
    missed = journal.marked("power_missed")
    return [f"energy: {len(missed)} readings failed, the last: {missed[-1]['said']}"] if missed else []


DEVICES: Mapping[str, str] = {"cpu": "cpu", "gpu": "cuda"}
"""What a measured step calls its device, and what a meter does."""
Moments = Sequence[tuple[float, float]]
"""Beginnings and ends [s] of times in which plain steps ran one after the other, by `time.monotonic`."""
ReadEnergy = Callable[[str, Moments, int], StepEnergy | str]
"""Of a device (``cpu``, ``gpu``), the moments and the number of steps: energy of a step, or why there is none."""


def energy_of_step(log: EnergyLog, moments: Moments, steps: int) -> StepEnergy:
    """Give the energy of a step: the mean power of the readings, for as long as a step takes.

    `moments` (begin, end): when steps ran one after the other [s]; `steps`: in all of them together. Raises
    CannotReadError, FomkitError when too little was read while they ran, or the instrument stood still.
    """
    found = [log.between(*moment) for moment in moments if moment[1] > moment[0]]
    read_s, ran_s = sum(one.wall_s for one in found), sum(end - begin for begin, end in moments)
    if not sum(one.energy_j.value for one in found) > 0 or not read_s > 0:
        raise CannotReadError(f"{log.meter.source}: did not move while steps ran")
    share = ran_s / read_s / steps
    value, low, high = (
        float(f"{share * sum(getattr(one.energy_j, end) for one in found):.6g}")
        for end in ("value", "low", "high")
    )
    return StepEnergy(value, low, high, log.meter.scope, log.meter.source)


@contextmanager
def watch_energy(find: Callable[[str], Meter] = find_meter) -> Iterator[ReadEnergy]:
    """Read the instruments of this machine's devices; gives what tells the energy of steps timed meanwhile.

    `find`: finds an instrument, or raises `CannotReadError` with the reason why there is none.
    """
    logs, reasons = dict[str, EnergyLog](), dict[str, str]()
    for device, name in DEVICES.items():
        try:
            logs[device] = EnergyLog(find(name))
        except (CannotReadError, FomkitError) as reason:
            reasons[device] = str(reason)

    def read(device: str, moments: Moments, steps: int) -> StepEnergy | str:
        if device not in logs:
            return reasons[device]
        try:
            return energy_of_step(logs[device], moments, steps)
        except (CannotReadError, FomkitError) as reason:
            return str(reason)

    for log in logs.values():
        log.thread.start()
    try:
        yield read
    finally:
        for log in logs.values():
            log.stop()
