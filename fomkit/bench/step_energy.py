"""Energy of a step that another process times: an instrument read all the while, and cut to when the steps ran."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import NamedTuple

from fomkit.bench.model_steps import Moments, ReadEnergy
from fomkit.bench.power import CounterMeter, Meter, Reading, SampledMeter, find_meter
from fomkit.core.errors import FomkitError
from fomkit.core.measurement import StepEnergy
from fomkit.harness.energy_gpu import CannotReadError
from fomkit.plan.footprint import Sample, counted, integrate

PERIOD_S = 0.02
"""Time between two readings."""
DEVICES: Mapping[str, str] = {"cpu": "cpu", "gpu": "cuda"}
"""What a measured step calls its device, and what a meter does."""


class _Read(NamedTuple):
    """What an instrument said at a moment [s]: its counters [J], or one power [W]."""

    moment_s: float
    quantities: Sequence[float]


class EnergyLog:
    """Readings of one instrument, by a thread.

    `clock`: the clock of the moments that are asked for.
    """

    def __init__(self, meter: Meter, clock: Callable[[], float] = time.monotonic) -> None:
        self.meter, self._clock = meter, clock
        self.readings: list[_Read] = []
        self.trouble = ""
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._read_all, daemon=True)

    def read(self) -> None:
        """Read once."""
        meter = self.meter
        try:
            quantities = meter.read() if isinstance(meter, CounterMeter) else [_power(meter)]
        except CannotReadError as reason:
            self.trouble = str(reason)
            return
        self.readings.append(_Read(self._clock(), quantities))

    def _read_all(self) -> None:
        while not self.trouble and not self._done.wait(PERIOD_S):
            self.read()

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """Read no more."""
        self._done.set()
        self._thread.join()

    def between(self, begin_s: float, end_s: float) -> Reading:
        """Give the energy between the first and the last reading in a time.

        Raises CannotReadError, FomkitError when there are not two readings, or the instrument failed.
        """
        if self.trouble:
            raise CannotReadError(self.trouble)
        inside = [reading for reading in self.readings if begin_s <= reading.moment_s <= end_s]
        if len(inside) < 2:
            raise CannotReadError(f"{self.meter.source}: was read {len(inside)} times while steps ran, too few")
        meter = self.meter
        if not isinstance(meter, CounterMeter):
            error_w = meter.error_w if isinstance(meter, SampledMeter) else 0.0
            found = integrate([Sample(one.moment_s, one.quantities[0]) for one in inside], error_w=error_w)
            return Reading(found.energy_j, found.wall_s)
        joule = 0.0
        for one, other in pairwise(inside):
            both = zip(one.quantities, other.quantities, meter.most_j, strict=True)
            joule += sum(counted(*each, other.moment_s - one.moment_s) for each in both)
        return meter.reading(joule, inside[-1].moment_s - inside[0].moment_s)


def _power(meter: Meter) -> float:
    if not isinstance(meter, SampledMeter):
        raise CannotReadError(f"{meter.source}: is read before and after only")
    return meter.power_w()


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
        log.start()
    try:
        yield read
    finally:
        for log in logs.values():
            log.stop()
