"""Read energy while ops are timed, for the machine profile, and while a step runs in another process.

For ops, `start_watching` reads idle power first, then the energy around each op; `energy_of` makes the profile's
energy part. For a step, `watch_energy` reads an instrument continuously and uses the readings during the steps.
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
"""Update interval of RAPL counters [s], about a millisecond."""
GPU_UPDATE_S = 0.1
"""Assumed upper bound on the lag of an NVML counter [s]; no document states it."""
PERIOD_S = 0.1
"""Nominal time between two readings of power [s]."""
STEP_PERIOD_S = 0.02
"""Nominal time between two readings while steps run [s]."""


@dataclass(frozen=True)
class Reading:
    """Energy [J] over a time [s], with the uncertainty of the instrument as its interval."""

    energy_j: Span
    wall_s: float


class Readout(NamedTuple):
    """The output of an instrument at a moment [s]: its counters [J], or one power [W]."""

    moment_s: float
    quantities: Sequence[float]


class EnergyLog:
    """Readings of one instrument, made by a thread.

    `clock`: the clock of the moments; `period_s`: nominal time between two readings.
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
        """Read the instrument once."""
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
        """Stop the thread."""
        self._done.set()
        self.thread.join()

    def between(self, begin_s: float = -math.inf, end_s: float = math.inf) -> Reading:
        """Return the energy between the first and the last reading in a time interval.

        Raises CannotReadError, FomkitError when there are not two readings, or the instrument failed.
        """
        if self.trouble:
            raise CannotReadError(self.trouble)
        inside = [reading for reading in self.readings if begin_s <= reading.moment_s <= end_s]
        if len(inside) < 2:
            times = "once" if len(inside) == 1 else f"{len(inside)} times"
            raise CannotReadError(f"{self.meter.source}: was read only {times} while steps ran")
        return self.meter.total(inside)


@dataclass
class CounterMeter:
    """Energy counters that are read before and after.

    `read`: returns each counter [J].
    `most_j`: value at which each counter wraps [J].
    `update_s`: largest lag of a counter, at both readings [s].
    `error_w`: the instrument's stated error, ± [W].
    `limit_w`: power limit of the hardware that it reads [W].
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
        """Return the energy from the first to the last reading; a counter may wrap once between two readings."""
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
        """End a reading and return it; raises CannotReadError, FomkitError if it failed."""
        quantities = self.read()
        return self.total([self._began, Readout(self.clock(), quantities)])


@dataclass
class SampledMeter:
    """Power that a thread reads periodically, integrated by the trapezoid rule.

    `source`, `error_w`, `limit_w`: as for `CounterMeter`; `period_s`: nominal time between two readings.
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
        """Stop the thread and integrate; raises CannotReadError, FomkitError if the reading failed."""
        self.log.stop()
        self.log.read()
        return self.log.between()


Meter = CounterMeter | SampledMeter
"""An instrument."""


def rapl_meter(root: Path = Path("/")) -> CounterMeter:
    """Make the meter of this machine's processors, or raise CannotReadError with the file and the reason."""
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
    """Make the meter of a GPU: its energy counter if it has one, else its power."""
    energy = gpu.energy_j
    if energy is None:
        return SampledMeter(gpu.power_w, gpu.source, limit_w=gpu.limit_w)
    # It counts from 0 when the driver is loaded, in 64 bits: it does not wrap.
    return CounterMeter(
        lambda: [energy()], [2.0**64], gpu.source, GPU_UPDATE_S, error_w=STATED_ERROR_W, limit_w=gpu.limit_w
    )


def find_meter(device: str) -> Meter:
    """Find the instrument of ``cpu`` or ``cuda``; raise CannotReadError without one, or permission to read it."""
    return gpu_meter(find_gpu()) if device == "cuda" else rapl_meter()


Around = Callable[[Callable[[], Answer]], Answer]
IDLE_S = 3.0
"""Idle time [s] over which idle power is read."""
MIN_READINGS = 10
"""Fewest readings from which the first and the ninth decile are meaningful."""
LEAST_SHARE = 0.1
"""Least share of timed work used to separate the power of the work from idle power."""


def _mark(journal: Journal, name: str, reading: Reading, meter: Meter, **more: float) -> None:
    energy = reading.energy_j
    journal.mark(name, **more, joule=energy.value, low=energy.low, high=energy.high, wall_s=reading.wall_s,
                 source=meter.source, scope=meter.scope, limit_w=meter.limit_w)  # fmt: skip


def watching(meter: Meter, journal: Journal) -> Around:
    """Return a function that runs an op's timing and records its energy; a failed reading costs no timing."""

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
            # The repeats only; the reading also covers warm-up runs and loops.
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
    """Find an instrument, read idle power once, and return the function that reads around each op.

    Without an instrument the profile notes the reason, and ops are timed without readings.
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
    """Return mean power [W] with bounds that cover the instrument's error and the readings' deciles 1 and 9."""
    wall = sum(mark["wall_s"] for mark in marks)
    value, low, high = (sum(mark[name] for mark in marks) / wall for name in ("joule", "low", "high"))
    if len(marks) >= MIN_READINGS:
        each = quantiles([mark["joule"] / mark["wall_s"] for mark in marks], n=10, method="inclusive")
        low, high = min(low, each[0]), max(high, each[-1])
    # Power is above 0; without this bound an interval that reaches 0 would have no lower bound.
    return value, max(low, 1e-3 * value), high


def energy_of(journal: Journal, device: str) -> Energy | None:
    """Make the energy part of a profile: idle power, and the power of timed ops; None without readings."""
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
        source = f"{first['source']}, {seconds:.0f} s idle; other processes that ran there are included"
        idle_w = Fact(*_powers(idle), "measured", source)
    if marks:
        value, low, high = _powers(marks)
        share = sum(mark["timed_s"] for mark in marks) / sum(mark["wall_s"] for mark in marks)
        used = min(max(share, LEAST_SHARE), 1.0)
        # Power of the timed work if the device idled otherwise.
        alone, limit = (value - (idle_w.value if idle_w else 0.0) * (1 - used)) / used, first["limit_w"]
        if device == "cuda":
            # Between timed repeats a GPU may idle while it waits for the host; a CPU makes operands meanwhile.
            high = max(high, min(alone, limit) if limit else alone)
        source = f"{first['source']} around {len(marks)} timings; timed repeats are {share:.0%} of that time"
        average = AveragePower(TIMED_OPS, Fact(value, low, high, "measured", source), scope, devices=1)
    limit = Fact.exact(first["limit_w"], "published", first["source"]) if (
        first["limit_w"] and scope == "chip") else None  # fmt: skip
    return Energy(scope, 1, None, idle_w, (), None, (average,) if average else (), limit)


def missed_of(journal: Journal) -> list[str]:
    """Return a note of how many readings failed, and why the last did; empty if none failed."""
    missed = journal.marked("power_missed")
    return [f"energy: {len(missed)} readings failed, the last: {missed[-1]['said']}"] if missed else []


DEVICES: Mapping[str, str] = {"cpu": "cpu", "gpu": "cuda"}
"""Names of devices in measured steps to names of devices for meters."""
Moments = Sequence[tuple[float, float]]
"""Begin and end [s] of the times in which plain steps ran in succession, by `time.monotonic`."""
ReadEnergy = Callable[[str, Moments, int], StepEnergy | str]
"""Takes device (``cpu``, ``gpu``), moments and number of steps; returns a step's energy, or why there is none."""


def energy_of_step(log: EnergyLog, moments: Moments, steps: int) -> StepEnergy:
    """Return the energy of a step: mean power of the readings times the time of a step.

    `moments` (begin, end): times in which steps ran in succession [s]; `steps`: number of steps in all of them.
    Raises CannotReadError, FomkitError when too little was read while they ran, or the instrument did not change.
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
    """Read the instruments of this machine's devices; yield a function for the energy of steps timed meanwhile.

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
