"""A suite's result as a ledger: estimated lines with their ops, all others as the times they come to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fomkit.hardware import Machine
from fomkit.ledger import Case, Given, Ledger, WorkloadFacts
from fomkit.quantities import DAY_S
from fomkit.spans import DEFAULT_LEVEL
from fomkit.study.content import BASES_BY_TRUST
from fomkit.study.ledger_of import case_of, caveats_of, machines_of, rounds_of, uses_at, widened_of, workload_of
from fomkit.study.rated_lines import RatedLine, up_devices
from fomkit.study.suites import SuiteResult
from fomkit.workload import Unit


def _facts(rated: RatedLine) -> WorkloadFacts | None:
    """Give what one run of an estimated line is; None where it is not estimated."""
    if rated.estimate is None:
        return None
    facts = workload_of(rated.estimate, rated.line.name)
    return replace(facts, unit=Unit(rated.line.unit, rated.line.runs))


def _given(result: SuiteResult, rated: RatedLine, machine: Machine) -> Given | None:
    """Give the time of one unit on one device that a rate comes to."""
    if rated.unit_per_day is None:
        return None
    time = rated.unit_per_day.per(DAY_S * up_devices(machine, result.suite))
    return Given(time, rated.basis, rated.party, rated.source)


def _line(result: SuiteResult, old: RatedLine, new: RatedLine) -> tuple[WorkloadFacts, dict[str, RatedLine]]:
    """Give a line's facts, and the rated lines whose ops stand in the workbook.

    A line estimated under other conditions on the baseline stands there as the time it comes to: a workbook has
    one row of conditions for a line.
    """
    facts, before = _facts(new), _facts(old)
    line = new.line
    estimated = {}
    if facts is not None:
        estimated[result.machines[1].name] = new
    if before is not None and facts in (None, before):
        estimated[result.machines[0].name] = old
    found = facts or before or WorkloadFacts(line.name, unit=Unit(line.unit, line.runs))
    given = {
        machine.name: time
        for machine, rated in zip(result.machines, (old, new), strict=True)
        if machine.name not in estimated and (time := _given(result, rated, machine)) is not None
    }
    whole = replace(
        found,
        given=given,
        weight=line.weight,
        required=line.required,
        category=new.category,
        basis=max(old.basis, new.basis, key=BASES_BY_TRUST.index),
        party=new.party,
    )
    return whole, estimated


def _level(rated: Sequence[RatedLine]) -> float:
    return next((one.unit_per_day.level for one in rated if one.unit_per_day is not None), DEFAULT_LEVEL)


def _deviations(result: SuiteResult) -> tuple[tuple[str, str], ...]:
    return tuple(
        (machine.name, f"{one.line.name}: {said}")
        for machine, side in zip(result.machines, (result.baseline, result.target), strict=True)
        for one in side
        for said in one.deviations
    )


def _caveats(result: SuiteResult) -> tuple[tuple[str, str], ...]:
    """Say what the figure of merit leaves out, what no device holds, and what measured runs say of it."""
    estimated = [(one.line.name, one.estimate) for one in (*result.target, *result.baseline) if one.estimate]
    found = caveats_of(result.excludes, estimated, [one.line for one in result.little_explained])
    if result.withheld and result.suite.threshold is not None:
        found += (("", f"threshold {result.suite.threshold:g}: no verdict is given, it rests on these lines"),)
    return found


def ledger_of_suite(result: SuiteResult) -> Ledger:
    """Give the ledger of a suite on a target and a baseline."""
    suite, (baseline, target) = result.suite, result.machines
    level = _level([*result.target, *result.baseline])
    machines = machines_of(result.estimates, [target, baseline])
    lines = [_line(result, old, new) for old, new in zip(result.baseline, result.target, strict=True)]
    cases: list[Case] = [
        case_of(rated.estimate, facts.name, machines[name].device)
        for name in (target.name, baseline.name)
        for facts, estimated in lines
        if (rated := estimated.get(name)) is not None and rated.estimate is not None
    ]
    counted = result.merit.ratios if result.merit is not None else {}
    bases = [facts.basis for facts, _ in lines if facts.name in counted]
    return Ledger(
        title=f"Suite {suite.name}, version {suite.version}",
        scope=suite.scope,
        machines=tuple(machines.values()),
        workloads=tuple(facts for facts, _ in lines),
        cases=tuple(cases),
        targets=(target.name,),
        baseline=baseline.name,
        level=level,
        mean=suite.mean,
        threshold=None if result.withheld else suite.threshold,
        worst_basis=max(bases, key=BASES_BY_TRUST.index) if bases else "",
        deviations=_deviations(result),
        caveats=_caveats(result),
        notes=(
            suite.title,
            *suite.notes,
            *(f"missing: {one.line.name} on {name}" for one, name in result.missing),
        ),
        rounds=rounds_of([target, baseline]),
        uses=uses_at(level),
        widened=widened_of(one.machine for one in result.estimates),
    )
