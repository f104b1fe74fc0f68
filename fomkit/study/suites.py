"""A suite on two machines: each line's rate, given, frozen or estimated, and the figure of merit over all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from fomkit.errors import FomkitError, nearest_names
from fomkit.fom import FigureOfMerit, Rates, figure_of_merit, unit_per_day
from fomkit.hardware import Basis, Machine, Party
from fomkit.spans import Span, at_level
from fomkit.study.conditions import (
    changed_conditions,
    check_proposed,
    deviations,
    fixed_conditions,
    under_conditions,
)
from fomkit.study.estimate import Estimate, estimate
from fomkit.study.options import Options, choose_scope
from fomkit.suite import OPTIMIZED, Category, Conditions, FrozenRate, Suite, SuiteLine
from fomkit.workload import ModelProfile

Load = Callable[[str], ModelProfile]


@dataclass(frozen=True)
class RatedLine:
    """One line of a suite on one machine.

    Attributes
    ----------
    unit_per_day : Span or None
        None where nobody gave a time and none could be estimated; ``missing`` says why.
    category : str
        ``optimized`` where a condition of the line was changed.
    deviations : tuple of str
        Each condition that differs from what the line fixes.
    estimate : Estimate or None
        That behind an estimated rate.
    source : str
        Where the rate is from.
    """

    line: SuiteLine
    unit_per_day: Span | None
    basis: Basis
    party: Party
    category: Category
    source: str
    deviations: tuple[str, ...] = ()
    estimate: Estimate | None = None
    missing: str = ""


@dataclass(frozen=True)
class SuiteResult:
    """A suite compared on a target and its baseline.

    Attributes
    ----------
    baseline, target : tuple of RatedLine
        Line by line.
    merit : FigureOfMerit or None
        Over the lines that both machines have a rate for; None where a required one is missing.
    """

    suite: Suite
    machines: tuple[Machine, Machine]
    baseline: tuple[RatedLine, ...]
    target: tuple[RatedLine, ...]
    merit: FigureOfMerit | None

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
        """Those behind the estimated lines; empty where all lines are given."""
        return tuple(one.estimate for one in (*self.baseline, *self.target) if one.estimate is not None)

    @property
    def has_interval(self) -> bool:
        """False where every rate is given without a spread."""
        rates = [one.unit_per_day for one in (*self.baseline, *self.target) if one.unit_per_day is not None]
        return any(rate.low < rate.high for rate in rates)

    def summary(self) -> str:
        """Write the result as the text that the command line prints."""
        from fomkit.report.suite import format_suite
        from fomkit.study.suite_content import suite_content

        return format_suite(suite_content(self))


def given_machines(suite: Suite) -> list[str]:
    """Name the machines that every line without a model has a time for, in the order of the first such line."""
    given = [line.given for line in suite.lines if line.model is None]
    return [name for name in given[0] if all(name in times for times in given)] if given else []


def up_devices(machine: Machine, suite: Suite) -> float:
    """Count the devices at the suite's scope, by the share of the time that they are up."""
    return machine.devices(suite.scope) * (machine.availability if suite.scope == "system" else 1.0)


@dataclass(frozen=True)
class _Rating:
    """What rating a line needs besides the line: the suite, the machine, and what is proposed for it."""

    suite: Suite
    machine: Machine
    options: Options
    load: Load
    proposals: Mapping[str, Conditions] = field(default_factory=dict)

    def _given(self, line: SuiteLine) -> RatedLine:
        given = line.given[self.machine.name]
        said = deviations(line.conditions, given.conditions)
        run_s = at_level(given.run_s, self.options.interval)
        rate = unit_per_day(run_s.scaled(line.runs), up_devices(self.machine, self.suite) * given.utilisation_gain)
        return RatedLine(
            line,
            rate,
            given.basis,
            given.party,
            OPTIMIZED if said else given.category,
            given.source or "given",
            said,
        )

    def _estimated(self, line: SuiteLine, name: str) -> RatedLine:
        model = self.load(name)
        fixed = fixed_conditions(line.conditions, model)
        proposed = self.proposals.get(line.name, Conditions())
        check_proposed(line.name, fixed, proposed)
        said = deviations(fixed, proposed)
        run = changed_conditions(fixed, proposed)
        options = replace(
            self.options,
            batch=run.batch,
            scope=self.suite.scope,
            sizes=run.sizes,
            precision=run.precision,
        )
        rated = RatedLine(line, None, "modelled", "lab", OPTIMIZED if said else line.category, name, said)
        try:
            one = estimate(under_conditions(model, run), self.machine, options)
        except FomkitError as error:
            return replace(rated, missing=str(error))
        if one.unit_per_day is None:
            return replace(rated, missing=f"{name} does not say what a run is: no train_samples or epochs")
        per_run = one.unit_per_day.scaled(model.unit.runs / line.runs)
        basis: Basis = "measured" if one.coverage["measured"] > 1 - 1e-12 else "modelled"
        return replace(rated, unit_per_day=per_run, basis=basis, estimate=one)

    def rate(self, line: SuiteLine) -> RatedLine:
        """Rate one line: as frozen, else as given, else as estimated, else as missing."""
        if self.machine.name == self.suite.baseline and self.suite.frozen:
            frozen = self.suite.frozen.get(line.name)
            source = f"frozen in version {self.suite.version}"
            basis: Basis = frozen.basis if frozen else line.basis
            rate = at_level(frozen.unit_per_day, self.options.interval) if frozen else None
            why = "" if frozen else f"version {self.suite.version} froze no rate"
            return RatedLine(line, rate, basis, line.party, line.category, source, missing=why)
        if self.machine.name in line.given:
            if line.name in self.proposals:
                raise FomkitError(
                    line.name,
                    f"its time on {self.machine.name} is given, so a proposal cannot change it. "
                    "State the conditions beside the given time.",
                )
            return self._given(line)
        if line.model is not None:
            return self._estimated(line, line.model)
        why = f"no time given for {self.machine.name}, only for {', '.join(line.given)}"
        return RatedLine(line, None, line.basis, line.party, line.category, "given", missing=why)


def rate_lines(
    suite: Suite,
    machine: Machine,
    options: Options,
    load: Load,
    proposals: Mapping[str, Conditions] | None = None,
) -> tuple[RatedLine, ...]:
    """Rate every line of a suite on one machine.

    Raises
    ------
    FomkitError
        As `run_suite` does.
    """
    choose_scope([machine], suite.scope)
    names = [line.name for line in suite.lines]
    for name in proposals or {}:
        if name not in names:
            raise FomkitError(suite.name, f"{name!r} is no line of it. {nearest_names(name, names)}")
    rating = _Rating(suite, machine, options, load, proposals or {})
    return tuple(rating.rate(line) for line in suite.lines)


def freeze_rates(suite: Suite, baseline: Machine, options: Options, load: Load) -> dict[str, FrozenRate]:
    """Rate the lines of a suite on its baseline, as what a new version freezes; lines without a time stay out.

    Raises
    ------
    FomkitError
        When the machine does not state the suite's scope, a workload is unknown, or a required line has no time.
    """
    rated = rate_lines(suite, baseline, options, load)
    for one in rated:
        if one.unit_per_day is None and one.line.required:
            raise FomkitError(suite.name, f"cannot be frozen; {one.line.name} has no time: {one.missing}")
    return {
        one.line.name: FrozenRate(one.unit_per_day, one.basis) for one in rated if one.unit_per_day is not None
    }


def _merit(result: SuiteResult) -> FigureOfMerit | None:
    """Take the figure of merit over the lines rated on both; None where there is none, or a required one lacks."""
    suite, sides = result.suite, (result.baseline, result.target)
    rates = [{one.line.name: one.unit_per_day for one in side if one.unit_per_day is not None} for side in sides]
    both = [line.name for line in suite.lines if all(line.name in side for side in rates)]
    if result.incomplete or not both:
        return None
    old, new = (
        Rates(machine.name, suite.scope, {name: side[name] for name in both})
        for machine, side in zip(result.machines, rates, strict=True)
    )
    return figure_of_merit(old, new, suite.mean, {line.name: line.weight for line in suite.lines})


def run_suite(
    suite: Suite,
    baseline: Machine,
    target: Machine,
    options: Options,
    load: Load,
    proposals: Mapping[str, Conditions] | None = None,
) -> SuiteResult:
    """Rate every line on both machines and compare.

    Parameters
    ----------
    suite : Suite
    baseline, target : Machine
    options : Options
        The scope is the suite's.
    load : function
        Gives the model profile of a name.
    proposals : mapping, optional
        What is changed on the target, by line.

    Raises
    ------
    FomkitError
        When a machine does not state the suite's scope, a workload is unknown, or a proposal fits no line.
    """
    old = rate_lines(suite, baseline, options, load)
    new = rate_lines(suite, target, options, load, proposals)
    result = SuiteResult(suite, (baseline, target), old, new, None)
    return replace(result, merit=_merit(result))
