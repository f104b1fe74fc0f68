"""Energy read while ops are timed: idle power first, then a reading around each op, as a part of the profile."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from statistics import quantiles
from typing import Any

from fomkit.errors import FomkitError
from fomkit.hardware import TIMED_OPS, AveragePower, Energy, EnergyScope, Fact
from fomkit.measure.journal import Journal
from fomkit.measure.meters import Meter, Reading, find_meter
from fomkit.timings.energy_counters import CannotReadError

Answer = dict[str, Any]
Around = Callable[[Callable[[], Answer]], Answer]
IDLE_S = 3.0
"""Time [s] in which nothing is asked, to read idle power."""
FEWEST = 10
"""Readings from which a tenth and nine tenths of them mean anything."""
LEAST_SHARE = 0.1
"""Below so small a share of timed work the power of the work cannot be told from that of the rest."""


def _kept(reading: Reading, meter: Meter) -> dict[str, Any]:
    energy = reading.energy_j
    return {"joule": energy.value, "low": energy.low, "high": energy.high, "wall_s": reading.wall_s,
            "source": meter.source, "scope": meter.scope, "limit_w": meter.limit_w}  # fmt: skip


def _timed_s(answer: Answer) -> float:
    """Add up the repeats [s]; what ran besides, to warm up and in loops, comes on top."""
    return sum(sum(answer.get(name) or ()) for name in ("warm", "cold"))


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
            journal.mark("power", timed_s=_timed_s(answer), **_kept(reading, meter))
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
            journal.mark("idle", **_kept(reading, meter))
    except (CannotReadError, FomkitError) as reason:
        said = f"energy: not measured, {reason}"
        if said not in [one["said"] for one in journal.marked("said")]:
            journal.mark("said", said=said)
        return lambda run: run()
    return watching(meter, journal)


def _powers(marks: Sequence[dict[str, Any]]) -> tuple[float, float, float]:
    """Give mean, least and largest power [W] of readings: of all time, and of nine in ten of the readings."""
    wall = sum(one["wall_s"] for one in marks)
    value, low, high = (sum(one[name] for one in marks) / wall for name in ("joule", "low", "high"))
    if len(marks) >= FEWEST:
        each = quantiles([one["joule"] / one["wall_s"] for one in marks], n=10, method="inclusive")
        low, high = min(low, each[0]), max(high, each[-1])
    # A power of 0 is no reading of anything; an interval that reaches it says only "below".
    return value, max(low, 1e-3 * value), high


def _undiluted(marks: Sequence[dict[str, Any]], value: float, idle_w: float) -> tuple[float, float]:
    """Give the share of the readings' time that is timed work, and its power if the device idled for the rest."""
    share = sum(one["timed_s"] for one in marks) / sum(one["wall_s"] for one in marks)
    used = min(max(share, LEAST_SHARE), 1.0)
    return share, (value - idle_w * (1 - used)) / used


def energy_of(journal: Journal, device: str) -> Energy | None:
    """Make the energy part of a profile: idle power, and the power of timed ops; None where nothing was read."""
    idle, marks = journal.marked("idle"), journal.marked("power")
    if not sum(one["joule"] for one in marks) > 0:
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
