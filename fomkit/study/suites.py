"""A suite on two machines: each line's rate, given, frozen or estimated, and the figure of merit over all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from fomkit.errors import FomkitError, nearest_names
from fomkit.fom import FigureOfMerit, Rates, figure_of_merit
from fomkit.hardware import Machine
from fomkit.shown import Shown
from fomkit.study.estimate import Estimate
from fomkit.study.explained import NOTHING_MEASURED, Explained, MeasuredRuns, explained_lines, little_explained
from fomkit.study.options import Options, choose_scope
from fomkit.study.rated_lines import LineRating, Load, RatedLine
from fomkit.suite import Conditions, FrozenRate, Suite


@dataclass(frozen=True)
class SuiteResult(Shown):
    """A suite compared on a target and its baseline.

    Attributes
    ----------
    baseline, target : tuple of RatedLine
        Line by line.
    merit : FigureOfMerit or None
        Over the lines that both machines have a rate for; None where a required one is missing.
    explained : tuple of Explained
        Of modelled lines that somebody measured a run of, how much of it the device's work explains.
    allow_excluded : bool
        Give a verdict on the threshold though the device explains little of what was measured.
    """

    suite: Suite
    machines: tuple[Machine, Machine]
    baseline: tuple[RatedLine, ...]
    target: tuple[RatedLine, ...]
    merit: FigureOfMerit | None
    explained: tuple[Explained, ...] = ()
    allow_excluded: bool = False

    @property
    def counted(self) -> tuple[RatedLine, ...]:
        """The rated lines that the figure of merit is made of, of both machines."""
        names = self.merit.ratios if self.merit is not None else {}
        return tuple(one for one in (*self.baseline, *self.target) if one.line.name in names)

    @property
    def excludes(self) -> tuple[str, ...]:
        """What the rates under the figure of merit leave out because nobody stated it."""
        return tuple(sorted({term for one in self.counted for term in one.excludes or ()}))

    @property
    def unfit(self) -> tuple[str, ...]:
        """The rated lines whose step no device holds, each with its machine and why."""
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
        return little_explained(self.explained, names)

    @property
    def withheld(self) -> str:
        """Why no verdict on a threshold is given; "" where one is."""
        names = ", ".join(one.line for one in self.little_explained)
        if not names or self.allow_excluded:
            return ""
        return f"it rests on {names}: of their measured runs the device explains less than half"

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
        return self._view.text(self)


def given_machines(suite: Suite) -> list[str]:
    """Name the machines that every line without a model has a time for, in the order of the first such line."""
    given = [line.given for line in suite.lines if line.model is None]
    return [name for name in given[0] if all(name in times for times in given)] if given else []


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
    rating = LineRating(suite, machine, options, load, proposals or {})
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
        one.line.name: FrozenRate(
            one.unit_per_day, one.basis, one.precision, one.work, one.excludes if one.estimate else None
        )
        for one in rated
        if one.unit_per_day is not None
    }


def merit_of(result: SuiteResult) -> FigureOfMerit | None:
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
    measured: MeasuredRuns = NOTHING_MEASURED,
    allow_excluded: bool = False,
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
    measured : MeasuredRuns
        Runs that were measured, to hold the modelled lines against.
    allow_excluded : bool
        Give a verdict on the threshold though the device explains little of these.

    Raises
    ------
    FomkitError
        When a machine does not state the suite's scope, a workload is unknown, or a proposal fits no line.
    """
    if baseline.name == target.name:
        raise FomkitError(
            target.name, "is the baseline and the target. Its ratio to itself is 1; name another one."
        )
    old = rate_lines(suite, baseline, options, load)
    new = rate_lines(suite, target, options, load, proposals)
    explained = explained_lines((baseline, target), (old, new), measured, load)
    result = SuiteResult(suite, (baseline, target), old, new, None, explained, allow_excluded)
    return replace(result, merit=merit_of(result))
