"""What a vendor committed to, held against what was measured on the delivered machine, line by line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from fomkit.errors import FomkitError, nearest_names
from fomkit.fom import unit_per_day
from fomkit.fom.verdicts import verdict
from fomkit.hardware import Machine
from fomkit.measurement import Measurement
from fomkit.spans import Span, at_level, probability_above
from fomkit.study.estimate import Estimate, with_step
from fomkit.study.measured_steps import MEASURED_LEVEL, Reading, measured_step, read_row
from fomkit.study.options import Options
from fomkit.study.rated_lines import Load, RatedLine, up_devices
from fomkit.study.suites import rate_lines
from fomkit.suite import Suite

Acceptance = Literal["met", "missed", "ambiguous", "not measured"]
_WORDS: tuple[Acceptance, Acceptance, Acceptance] = ("met", "missed", "ambiguous")


@dataclass(frozen=True)
class AcceptedLine:
    """One line: the committed rate, the measured one, and the verdict.

    Attributes
    ----------
    committed : RatedLine
        Its value is the commitment; the interval of a prediction behind it is not held against the vendor.
    measured : Span or None
        Units per day made of the measured rows; None where none is a measurement of this line.
    spread_stated : bool
        Whether every row used states the interval of its repeats.
    readings : tuple of Reading
        Every row about this line's workload on this machine, those set aside among them.
    modelled_share : float
        Share of the measured figure's run that is predicted: validation and overheads beside the measured step.
    """

    committed: RatedLine
    measured: Span | None
    spread_stated: bool
    readings: tuple[Reading, ...]
    modelled_share: float = 0.0

    @property
    def contradictory(self) -> bool:
        """Whether two rows exclude each other: their intervals, or values, are more than half apart."""
        steps = [reading.step for reading in self.readings if reading.step is not None]
        return any(one.low > 1.5 * other.high for one in steps for other in steps)

    @property
    def probability(self) -> float | None:
        """The probability that the machine's rate reaches the committed one; None where one is unknown."""
        if self.measured is None or self.committed.unit_per_day is None:
            return None
        return probability_above(self.measured, self.committed.unit_per_day.value * (1 - 1e-12))

    @property
    def verdict(self) -> Acceptance:
        """Say met, missed or ambiguous by the probability."""
        if self.probability is None:
            return "not measured"
        return "ambiguous" if self.contradictory else verdict(self.probability, _WORDS)


def _mismatch(row: Measurement, line: RatedLine, suite: Suite) -> str:
    """Say why a row is no measurement of a line without a model profile; "" where it is one."""
    if row.basis != "measured":
        return f"its basis is {row.basis}, not measured"
    if row.quantity != "run_s":
        return f"{row.quantity} of a line without a model profile says nothing of a run; measure run_s"
    fixed = line.line.conditions
    wanted: list[tuple[str, object, object]] = [
        ("scope", row.scope, suite.scope),
        ("devices", row.devices, 1),
        ("batch", row.batch, fixed.batch),
        ("precision", row.precision, fixed.precision),
    ]
    for name, stated, asked in wanted:
        if stated in (None, "") and asked is not None:
            return f"its {name} is not stated; {asked} is asked for"
        if asked is not None and stated != asked:
            return f"its {name} is {stated}; {asked} is asked for"
    return ""


def _of_given(line: RatedLine, suite: Suite, machine: Machine, rows: Sequence[Measurement]) -> AcceptedLine:
    """Take measured runs of a line that has no model profile: their units are the line's."""
    readings = []
    for row in rows:
        reason = _mismatch(row, line, suite)
        step = None if reason else Span(row.value, row.low, row.high, MEASURED_LEVEL)
        readings.append(Reading(row, step, reason or "a run"))
    found = measured_step(readings)
    rate = None
    if found is not None:
        rate = unit_per_day(found.step.scaled(line.line.runs), up_devices(machine, suite))
    return AcceptedLine(line, rate, bool(found and found.spread_stated), tuple(readings))


def _modelled_share(one: Estimate) -> float:
    """Give the share of a run that is predicted even where the step is measured: validation and overheads."""
    times, epochs = one.run_time, one.model.run.epochs
    if times.run_s is None or times.training_s is None or epochs is None:
        return 0.0
    return 1 - times.training_s.value * epochs / times.run_s.value


def _accepted(line: RatedLine, suite: Suite, machine: Machine, rows: Sequence[Measurement]) -> AcceptedLine:
    one = line.estimate
    if one is None:
        return _of_given(line, suite, machine, [row for row in rows if row.model == line.line.name])
    readings = tuple(read_row(row, one) for row in rows if row.model == one.model.name)
    found = measured_step(readings)
    if found is None:
        return AcceptedLine(line, None, False, readings)
    rolled = with_step(one, found.step)
    rate = rolled.unit_per_day
    scaled = rate.scaled(one.model.unit.runs / line.line.runs) if rate is not None else None
    return AcceptedLine(line, scaled, found.spread_stated, readings, _modelled_share(rolled))


def accept(
    suite: Suite,
    committed: Machine,
    rows: Sequence[Measurement],
    measured_on: str,
    options: Options,
    load: Load,
) -> tuple[AcceptedLine, ...]:
    """Compare each line of a suite as committed with what was measured.

    Parameters
    ----------
    suite : Suite
    committed : Machine
        The profile that a vendor committed to, or the machine that the suite gives committed times of.
    rows : sequence of Measurement
    measured_on : str
        Name of the machine in the rows.
    options : Options
    load : function
        Gives the model profile of a name.

    Raises
    ------
    FomkitError
        When no row is of the machine, or a workload is unknown.
    """
    about = [row for row in rows if row.machine == measured_on]
    if not about:
        known = {row.machine for row in rows}
        raise FomkitError("--measured", f"no row is of {measured_on!r}. {nearest_names(measured_on, known)}")
    rated = rate_lines(replace(suite, frozen={}), committed, options, load)
    lines = tuple(_accepted(line, suite, committed, about) for line in rated)
    level = options.interval
    return tuple(
        replace(one, measured=at_level(one.measured, level)) if one.measured is not None else one for one in lines
    )
