"""A suite calibrated by measurements on its baseline: device time as predicted, the rest as on the baseline.

A measured step is longer than the device's work in it; host, framework and input take the rest. The rest on
another machine is unknown, so the baseline's rest is used for it, with an interval (`WITHIN`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import hypot

from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span, add_independent, at_level, divide, multiply_independent
from fomkit.core.job import Suite
from fomkit.core.machine import Machine
from fomkit.core.measurement import Measurement
from fomkit.merit.fom import FigureOfMerit, merit_of_rates
from fomkit.merit.measured_steps import MeasuredEstimate, measured_of
from fomkit.merit.rated_lines import RatedLine, line_per_day, rates_of
from fomkit.plan.estimate import with_step

WITHIN = 2.0
"""Factor within which the rest of a step on another machine is assumed to equal the baseline's (80 %), because the
two hosts are not stated. On the low side the rest may also have shrunk as the device's part does, and by this
factor again. Assumed in view of CANDLE's lines (Foster & Stevens 2018): eight of nine from P100 to V100 are within
it, three of five from Titan to V100."""


@dataclass(frozen=True)
class CalibratedLine:
    """One line on the target, from its measured step on the baseline.

    `device`, `measured`: of the baseline's step, the predicted device time, and the whole measured time [s].
    `rest`: the part of it that the device does not explain [s]; 0 where the prediction exceeds the measurement.
    `step`: on the target [s]; `unit_per_day`: from this step.
    `found`: the measured step on the target; None without a measurement.
    `found_per_day`: from that step.
    """

    name: str
    device: Span
    measured: Span
    rest: Span
    step: Span
    unit_per_day: Span
    baseline_per_day: Span
    found: Span | None = None
    found_per_day: Span | None = None

    @property
    def inside(self) -> bool | None:
        """Whether the measured step on the target is inside the interval; None without a measurement."""
        return None if self.found is None else self.step.contains(self.found.value)


@dataclass(frozen=True)
class Calibration:
    """A suite calibrated by measured steps of its baseline.

    `lines`: those that could be calibrated; `left_out` (line, reason): the others, which are in no figure.
    `merit`: of the calibrated target; `projected`: of the device's work alone, `measured`: as measured on both
      machines. Each is over the same lines as far as they have it; None where no line has.
    """

    lines: tuple[CalibratedLine, ...]
    left_out: tuple[tuple[str, str], ...]
    merit: FigureOfMerit | None
    projected: FigureOfMerit | None
    measured: FigureOfMerit | None

    @property
    def held(self) -> tuple[int, int]:
        """Of the lines measured on the target, how many are in their interval, and how many there are."""
        known = [line.inside for line in self.lines if line.inside is not None]
        return sum(known), len(known)


def rest_of(measured: Span, device: Span) -> Span:
    """Return the part of a measured step [s] that the device does not explain; at least 0.

    >>> rest_of(Span(5.0, 5.0, 5.0), Span(2.0, 1.0, 4.0))
    Span(value=3.0, low=1.0, high=4.0, level=0.8)
    """
    value = measured.value - device.value
    below = hypot(measured.value - measured.low, device.high - device.value)
    above = hypot(measured.high - measured.value, device.value - device.low)
    return Span(max(value, 0.0), max(value - below, 0.0), max(value + above, 0.0), measured.level)


def target_step(target: Span, device: Span, measured: Span, rest: Span) -> Span:
    """Return the target's step: its device time and the rest; a prediction that is too long is scaled down."""
    if rest.value <= 0:
        return multiply_independent(measured, divide(target, device))
    least = min(1.0, target.value / device.value) / WITHIN
    above_0 = replace(rest, low=max(rest.low, rest.value / 1e3))  # 0 has no logarithm
    carried = multiply_independent(above_0, at_level(Span(1.0, least, WITHIN), rest.level))
    return add_independent([target, carried])


def _calibrated_line(
    rated: RatedLine, old: MeasuredEstimate | None, new: MeasuredEstimate | None, baseline: str, level: float
) -> CalibratedLine | str:
    """Calibrate a line, or return the reason why it cannot be calibrated."""
    if old is None or new is None:
        return "it has no estimated rate on one device of each machine"
    if old.measured is None:
        messages = "; ".join(dict.fromkeys(reading.message for reading in old.readings))
        return f"it has no measurement on {baseline}{f': {messages}' if messages else ''}"
    line, device = rated.line, old.predicted.step
    measured = at_level(old.measured.step, level)
    rest = rest_of(measured, device)
    step = target_step(new.predicted.step, device, measured, rest)
    # The measured step of the baseline is on both sides of the ratio, so it adds no error to it.
    exact = Span.exact(measured.value, level)
    rates = line_per_day(with_step(old.predicted, exact), line), line_per_day(with_step(new.predicted, step), line)
    if rates[0] is None or rates[1] is None:  # both have one profile, so both rates are known, or neither
        return "its profile does not define a run"
    found = None if new.measured is None else at_level(new.measured.step, level)
    there = None if found is None else line_per_day(with_step(new.predicted, found), line)
    return CalibratedLine(line.name, device, measured, rest, step, rates[1], rates[0], found, there)


def calibrate(
    suite: Suite, machines: tuple[Machine, Machine], sides: tuple[Sequence[RatedLine], Sequence[RatedLine]],
    rows: Sequence[Measurement], level: float,
) -> Calibration:  # fmt: skip
    """Calibrate a suite by measurements on its baseline.

    `machines`, `sides`: baseline and target, and the rated lines of both, none of them frozen; `rows`:
    measurements on the baseline, and on the target for comparison; `level`: of the intervals. Raises FomkitError
    when no row is a measurement of any line there.
    """
    lines, left_out = [], []
    for rated_old, rated in zip(*sides, strict=True):
        old, new = (  # a step is that of one device at any scope
            None if (own := one.alone) is None
            else replace(measured_of(replace(own, scope="device"), rows), predicted=own)
            for one in (rated_old, rated)
        )  # fmt: skip
        line = _calibrated_line(rated, old, new, machines[0].name, level)
        if isinstance(line, str):
            left_out.append((rated.line.name, line))
        else:
            lines.append(line)
    if not lines:
        reasons = "; ".join(f"{name}: {why}" for name, why in left_out)
        raise FomkitError(f"--from, suite {suite.name}", f"no line can be calibrated. {reasons}.")
    old_rates = {one.name: one.baseline_per_day for one in lines}
    calibrated = {one.name: one.unit_per_day for one in lines}
    found = {one.name: one.found_per_day for one in lines if one.found_per_day is not None}
    projected = [rates_of(one for one in side if one.line.name in old_rates) for side in sides]
    merit, alone, measured = (
        merit_of_rates(suite, machines, rates)
        for rates in ((old_rates, calibrated), projected, (old_rates, found))
    )
    return Calibration(tuple(lines), tuple(left_out), merit, alone, measured)
