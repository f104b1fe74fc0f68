"""A suite on two machines: each line's rate, given or estimated, and the figure of merit over all lines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from fomkit.errors import FomkitError
from fomkit.fom import FigureOfMerit, Rates, figure_of_merit, unit_per_day
from fomkit.hardware import Machine
from fomkit.spans import Span
from fomkit.study.estimate import Estimate, estimate
from fomkit.study.options import Options, choose_scope
from fomkit.workload import ModelProfile, Suite, SuiteLine


@dataclass(frozen=True)
class SuiteResult:
    """A suite compared on a target and its baseline.

    Attributes
    ----------
    estimates : tuple of Estimate
        Those behind the estimated lines; empty where all lines are given.
    """

    suite: Suite
    merit: FigureOfMerit
    estimates: tuple[Estimate, ...]

    @property
    def has_interval(self) -> bool:
        """False where every line is given, because given times carry no spread."""
        return bool(self.estimates)


def given_machines(suite: Suite) -> list[str]:
    """Name the machines that every given line has a time for, in the order of the first line."""
    given = [line.given_s for line in suite.lines if line.given_s]
    return [name for name in given[0] if all(name in times for times in given)] if given else []


def _given_rate(line: SuiteLine, machine: Machine, suite: Suite) -> Span:
    if machine.name not in line.given_s:
        known = ", ".join(line.given_s)
        raise FomkitError(
            suite.name,
            f"line {line.name!r} gives no time for {machine.name!r}, only for {known}. Add it, or a model.",
        )
    share = machine.availability if suite.scope == "system" else 1.0
    return unit_per_day(Span.exact(line.given_s[machine.name]), machine.devices(suite.scope) * share)


def run_suite(
    suite: Suite,
    baseline: Machine,
    target: Machine,
    options: Options,
    load: Callable[[str], ModelProfile],
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

    Raises
    ------
    FomkitError
        When a machine has no time for a line, or does not state the suite's scope.
    """
    choose_scope([baseline, target], suite.scope)
    estimates: list[Estimate] = []
    rates: list[Rates] = []
    for machine in (baseline, target):
        units: dict[str, Span] = {}
        for line in suite.lines:
            if line.model is None:
                units[line.name] = _given_rate(line, machine, suite)
                continue
            chosen = replace(
                options, batch=line.batch, scope=suite.scope, sizes=line.sizes, precision=line.precision
            )
            one = estimate(load(line.model), machine, chosen)
            if one.unit_per_day is None:
                raise FomkitError(line.model, "has no units per day. Its profile lacks train_samples or epochs.")
            estimates.append(one)
            units[line.name] = one.unit_per_day
        rates.append(Rates(machine.name, suite.scope, units))
    return SuiteResult(suite, figure_of_merit(*rates), tuple(estimates))
