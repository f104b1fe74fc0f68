"""A suite on two machines, its rates and figure of merit; commitments compared with measurements (`accept`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log

from fomkit.core.errors import FomkitError, Shown, letters, nearest_names
from fomkit.core.interval import Span, at_level, left_out_alone, probability_above
from fomkit.core.job import Conditions, FrozenRate, Suite
from fomkit.core.machine import Machine
from fomkit.core.measurement import Measurement
from fomkit.core.units import format_number
from fomkit.merit import measured_steps
from fomkit.merit.calibrated import Calibration, calibrate
from fomkit.merit.fom import ACCEPTANCE, Acceptance, FigureOfMerit, merit_of_rates, verdict
from fomkit.merit.measured_steps import Explained, MeasuredRuns, Reading
from fomkit.merit.rated_lines import LineRating, Load, RatedLine, as_fields, line_per_day, rates_of
from fomkit.plan.estimate import Estimate, with_step
from fomkit.plan.options import Options, choose_scope
from fomkit.plan.run import unit_per_day


@dataclass(frozen=True, repr=False)
class SuiteResult(Shown):
    """A suite compared on a target and its baseline.

    `baseline`, `target`: line by line.
    `merit`: over the lines that have a rate on both machines; None where a required one is missing.
    `explained`: of modelled lines with a measured run, the share that the device's work explains.
    `allow_excluded`: give a verdict on the threshold even though the device explains little of the measured runs.
    `calibration`: the same from measurements on the baseline, if requested.
    `unread`: why tables of measurements could not be read.
    `now`: current rates of the lines of a frozen baseline; empty if nothing is frozen, or they are not requested.
    """

    suite: Suite
    machines: tuple[Machine, Machine]
    baseline: tuple[RatedLine, ...]
    target: tuple[RatedLine, ...]
    merit: FigureOfMerit | None
    explained: tuple[Explained, ...] = ()
    allow_excluded: bool = False
    calibration: Calibration | None = None
    unread: tuple[str, ...] = ()
    now: tuple[RatedLine, ...] = ()

    @property
    def moved(self) -> str:
        """How far the baseline's frozen rates are from the current ones, in words; "" where they are equal."""
        pairs = zip(self.baseline, self.now, strict=False)
        modelled = [(old.line.name, old.unit_per_day, new.unit_per_day) for old, new in pairs if old.is_modelled]
        ratios = {
            name: new.value / old.value for name, old, new in modelled if old is not None and new is not None
        }
        far = {name: ratio for name, ratio in ratios.items() if abs(log(ratio)) > _MOVED}
        if not far:
            return ""
        most = sorted(far, key=lambda name: -abs(log(far[name])))[:_NAMED]
        machine, version = self.machines[0].name, self.suite.version
        what = f"{machine}'s rates were frozen in version {version} by an earlier fomkit; "
        what += f"{len(far)} of {len(ratios)} differ from today's estimates"
        merit = merit_of(replace(self, baseline=self.now))
        fom = "" if merit is None else f"; the FOM would be {format_number(merit.value.value)}"
        listed = ", ".join(f"{name} by {far[name] - 1:+.1%}" for name in most)
        return f"{what} ({listed}){fom}. 'fomkit fom {self.suite.name} --freeze FILE' freezes today's rates."

    @property
    def counted(self) -> tuple[RatedLine, ...]:
        """The rated lines that the figure of merit is computed from, of both machines."""
        names = self.merit.ratios if self.merit is not None else {}
        return tuple(one for one in (*self.baseline, *self.target) if one.line.name in names)

    @property
    def excludes(self) -> tuple[str, ...]:
        """Terms that the rates of the figure of merit leave out because they are not stated."""
        return tuple(dict.fromkeys(term for one in self.counted for term in one.excludes or ()))

    @property
    def alone(self) -> dict[str, list[str]]:
        """Terms that only one machine's rate leaves out of the ratio of a line, by machine."""
        names = self.merit.ratios if self.merit is not None else {}
        old, new = (machine.name for machine in self.machines)
        pairs = zip(self.baseline, self.target, strict=True)
        return left_out_alone(
            ((old, one.excludes), (new, other.excludes)) for one, other in pairs if one.line.name in names
        )

    @property
    def unfit(self) -> tuple[str, ...]:
        """The rated lines whose step fits in no device, each with its machine and the reason."""
        sides = zip(self.machines, (self.baseline, self.target), strict=True)
        return tuple(
            f"{one.line.name} on {machine.name} {one.unfit}"
            for machine, side in sides
            for one in side
            if one.unfit
        )

    @property
    def little_explained(self) -> tuple[Explained, ...]:
        """The lines of the figure of merit whose measured runs the device explains less than half."""
        names = self.merit.ratios if self.merit is not None else {}
        return measured_steps.little_explained(self.explained, names)

    @property
    def withheld(self) -> str:
        """The reason why no verdict on a threshold is given; "" where one is given."""
        names = ", ".join(one.line for one in self.little_explained)
        if not names or self.allow_excluded:
            return ""
        return f"it depends on {names}: the device explains less than half of their measured runs"

    @property
    def missing(self) -> tuple[tuple[RatedLine, str], ...]:
        """The rated lines without a rate, each with the name of its machine."""
        sides = ((self.baseline, self.machines[0].name), (self.target, self.machines[1].name))
        return tuple((one, name) for side, name in sides for one in side if one.unit_per_day is None)

    @property
    def incomplete(self) -> tuple[str, ...]:
        """The required lines without a rate, because of which there is no figure of merit."""
        return tuple(dict.fromkeys(one.line.name for one, _ in self.missing if one.line.required))

    @property
    def estimates(self) -> tuple[Estimate, ...]:
        """The estimates of the estimated lines on one device; empty where all lines are given."""
        return tuple(one.alone for one in (*self.baseline, *self.target) if one.alone is not None)

    @property
    def has_interval(self) -> bool:
        """False where every rate is given without a spread."""
        rates = [one.unit_per_day for one in (*self.baseline, *self.target) if one.unit_per_day is not None]
        return any(rate.low < rate.high for rate in rates)


@dataclass(frozen=True)
class SuiteResults(Shown):
    """A suite compared on several targets and one baseline.

    `results`: one for each target that could be rated, at least one; `refused`: the others, each with the reason.
    """

    results: tuple[SuiteResult, ...]
    refused: Mapping[str, str]

    def __len__(self) -> int:
        return len(self.results)

    def __iter__(self) -> Iterator[str]:
        return (one.machines[1].name for one in self.results)

    def __contains__(self, target: object) -> bool:
        return letters(str(target)) in map(letters, self)

    def __getitem__(self, target: str) -> SuiteResult:
        """Return the result of a target, named as on the command line; raise FomkitError where it has none."""
        wanted, baseline = letters(str(target)), self.results[0].machines[0].name
        for one in self.results:
            if letters(one.machines[1].name) == wanted:
                return one
        for name, why in self.refused.items():
            if letters(name) == wanted:
                raise FomkitError(name, why)
        if letters(baseline) == wanted:
            raise FomkitError(baseline, f"is the baseline. Results are of {', '.join(self)}.")
        raise FomkitError(str(target), f"was not rated. {nearest_names(str(target), [*self])}")


_MOVED = 1e-3
"""Absolute logarithm of a rate's ratio above which the rate counts as changed."""
_NAMED = 3


def given_machines(suite: Suite) -> list[str]:
    """Return the machines for which every line without a model has a time, in the order of the first such line."""
    given = [line.given for line in suite.lines if line.model is None]
    return [name for name in given[0] if all(name in times for times in given)] if given else []


def rate_lines(
    suite: Suite, machine: Machine, options: Options, load: Load, proposals: Mapping[str, Conditions] | None = None
) -> tuple[RatedLine, ...]:
    """Rate every line of a suite on one machine."""
    try:
        choose_scope([machine], suite.scope)
    except FomkitError as error:
        raise FomkitError(error.where, as_fields(error.what)) from None
    names = [line.name for line in suite.lines]
    for name in proposals or {}:
        if name not in names:
            raise FomkitError(suite.name, f"{name!r} is not a line of it. {nearest_names(name, names)}")
    rating = LineRating(suite, machine, options, load, proposals or {})
    return tuple(rating.rate(line) for line in suite.lines)


def freeze_rates(suite: Suite, baseline: Machine, options: Options, load: Load) -> dict[str, FrozenRate]:
    """Rate the lines of a suite on its baseline for a new frozen version; lines without a time are left out."""
    rated = rate_lines(suite, baseline, options, load)
    for one in rated:
        if one.unit_per_day is None and one.line.required:
            raise FomkitError(suite.name, f"cannot be frozen; {one.line.name} has no time: {one.missing}")
    return {
        one.line.name: FrozenRate(
            one.unit_per_day, one.basis, one.precision, one.work, one.excludes if one.kind == "estimated" else None
        )
        for one in rated
        if one.unit_per_day is not None
    }


def deviations_of(result: SuiteResult) -> tuple[tuple[str, str, str], ...]:
    """Return the differences from the conditions of lines: line, machine and difference, the baseline's first."""
    return tuple(
        (one.line.name, machine.name, what)
        for machine, side in zip(result.machines, (result.baseline, result.target), strict=True)
        for one in side
        for what in one.deviations
    )


def merit_of(result: SuiteResult) -> FigureOfMerit | None:
    """Return the figure of merit of lines rated on both machines; None if none is, or a required one lacks."""
    if result.incomplete:
        return None
    return merit_of_rates(result.suite, result.machines, [rates_of(result.baseline), rates_of(result.target)])


def run_suite(
    suite: Suite,
    baseline: Machine,
    target: Machine,
    options: Options,
    load: Load,
    proposals: Mapping[str, Conditions] | None = None,
    measured: MeasuredRuns = measured_steps.NOTHING_MEASURED,
    allow_excluded: bool = False,
    taken: Sequence[Measurement] = (),
) -> SuiteResult:
    """Rate every line on both machines and compare.

    `options`: the scope is the suite's; `load`: returns the model profile of a name; `proposals`: changed
    conditions on the target, by line; `measured`: measured runs with which the modelled lines are compared;
    `allow_excluded`: give a verdict on the threshold even though the device explains little of them; `taken`:
    measurements on the baseline with which lines are calibrated, none by default.
    """
    if baseline.name == target.name:
        raise FomkitError(
            target.name, "is the baseline and the target. Its ratio to itself is 1; name another one."
        )
    old = rate_lines(suite, baseline, options, load)
    new = rate_lines(suite, target, options, load, proposals)
    explained = measured_steps.explained_lines((baseline, target), (old, new), measured, load)
    calibration = None
    if taken:
        machines, unfrozen = (baseline, target), replace(suite, frozen={})
        sides = rate_lines(unfrozen, baseline, options, load), new
        calibration = calibrate(suite, machines, sides, taken, options.interval)
    result = SuiteResult(suite, (baseline, target), old, new, None, explained, allow_excluded, calibration)
    return replace(result, merit=merit_of(result))


@dataclass(frozen=True)
class AcceptedLine:
    """One line: the committed rate, the measured one, and the verdict.

    `committed`: its value is the commitment; the interval of its prediction does not count against the vendor.
    `measured`: units per day from the measured rows; None where no row is a measurement of this line.
    `spread_stated`: whether every row used states the interval of its repeats.
    `readings`: every row on this line's workload and this machine, including those set aside.
    `modelled_share`: share of the measured figure's run that is predicted: validation and overheads.
    """

    committed: RatedLine
    measured: Span | None
    spread_stated: bool
    readings: tuple[Reading, ...]
    modelled_share: float = 0.0

    @property
    def contradictory(self) -> bool:
        """Whether two rows contradict each other: one interval's low is more than 1.5 times the other's high."""
        steps = [reading.step for reading in self.readings if reading.step is not None]
        return any(step.low > 1.5 * other.high for step in steps for other in steps)

    @property
    def probability(self) -> float | None:
        """The probability that the machine's rate reaches the committed one; None where one is unknown."""
        if self.measured is None or self.committed.unit_per_day is None:
            return None
        return probability_above(self.measured, self.committed.unit_per_day.value * (1 - 1e-12))

    @property
    def verdict(self) -> Acceptance:
        """Met, missed or ambiguous, by the probability; not measured where it is unknown."""
        if self.probability is None:
            return "not measured"
        return "ambiguous" if self.contradictory else verdict(self.probability, ACCEPTANCE)


def _of_given(line: RatedLine, suite: Suite, machine: Machine, rows: Sequence[Measurement]) -> AcceptedLine:
    """Compare measured runs of a line that has no model profile; their units are the line's."""
    fixed, readings = line.line.conditions, []
    for row in rows:
        wanted: list[tuple[str, object, object]] = [
            ("scope", row.scope, suite.scope), ("devices", row.devices, 1), ("batch", row.batch, fixed.batch),
            ("precision", row.precision, fixed.precision),
        ]  # fmt: skip
        reason = measured_steps.other_condition([one for one in wanted if one[2] is not None], "the line's")
        if row.basis != "measured":
            reason = f"its basis is {row.basis}, not measured"
        elif row.quantity != "run_s":
            what = f"{row.quantity} of a line without a model profile does not give the time of a run"
            reason = f"{what}; measure run_s"
        readings.append(Reading(row, None if reason else row.span, reason or "a run"))
    found = measured_steps.measured_step(readings)
    rate = None
    if found is not None:
        rate = unit_per_day(found.step.scaled(line.line.runs), machine.up_devices(suite.scope))
    return AcceptedLine(line, rate, bool(found and found.spread_stated), tuple(readings))


def _modelled_share(estimate: Estimate) -> float:
    """Return the share of a run that is predicted even where the step is measured: validation and overheads."""
    times, epochs = estimate.run_time, estimate.model.run.epochs
    if times.run_s is None or times.training_s is None or epochs is None:
        return 0.0
    return 1 - times.training_s.value * epochs / times.run_s.value


def _accepted(line: RatedLine, suite: Suite, machine: Machine, rows: Sequence[Measurement]) -> AcceptedLine:
    one = line.estimate
    if one is None:
        return _of_given(line, suite, machine, [row for row in rows if row.model == line.line.name])
    names = (one.model.name, line.line.model, line.line.name)  # a suite may name a model by its folder
    readings = tuple(measured_steps.read_row(row, one) for row in rows if row.model in names)
    found = measured_steps.measured_step(readings)
    if found is None:
        return AcceptedLine(line, None, False, readings)
    rolled = with_step(one, found.step)
    rate = line_per_day(rolled, line.line)
    return AcceptedLine(line, rate, found.spread_stated, readings, _modelled_share(rolled))


def accept(
    suite: Suite, committed: Machine, rows: Sequence[Measurement], measured_on: str, options: Options, load: Load
) -> tuple[AcceptedLine, ...]:
    """Compare each line of a suite as committed with its measurements.

    `committed`: the profile that a vendor committed to, or the machine for which the suite has committed times;
    `measured_on`: name of the machine in the rows; `load`: returns the model profile of a name. Raises FomkitError
    when no row is of the machine, or a workload is unknown.
    """
    about = [row for row in rows if row.machine == measured_on]
    if not about:
        known = {row.machine for row in rows}
        raise FomkitError("--measured", f"no row is of {measured_on!r}. {nearest_names(measured_on, known)}")
    rated = rate_lines(replace(suite, frozen={}), committed, options, load)
    lines = tuple(_accepted(line, suite, committed, about) for line in rated)
    level = options.interval
    return tuple(
        replace(line, measured=at_level(line.measured, level)) if line.measured is not None else line
        for line in lines
    )
