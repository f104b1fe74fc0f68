"""Content of suite results, acceptance checks and campaigns, as plain values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, TypedDict

from fomkit import __version__
from fomkit.core.interval import Span, add_known, left_out_alone, probability_above
from fomkit.core.job import Suite
from fomkit.core.measurement import verdict_on
from fomkit.merit.calibrated import Calibration
from fomkit.merit.campaign import CampaignCost, PhaseCost, paid_units
from fomkit.merit.fom import PROPOSAL, verdict
from fomkit.merit.footprint import Grid, footprint, grid_content, missing_for_wall, most_kg
from fomkit.merit.measured_steps import Merit, merit_content
from fomkit.merit.rated_lines import RatedLine
from fomkit.merit.suites import AcceptedLine, SuiteResult, SuiteResults, deviations_of
from fomkit.plan.content import (
    BASES_BY_TRUST,
    Condition,
    Ends,
    MaybeEnds,
    OfJob,
    Priced,
    Stated,
    as_content,
    conditions_content,
    job_content,
    price_content,
)  # fmt: skip

NOT_GIVEN = "not given"
"""Replaces a verdict on a threshold where the device explains the smaller part of the work."""

Verdict = TypedDict("Verdict", {"threshold": float, "probability": float | None, "verdict": str,
                                "why": NotRequired[str]})  # fmt: skip
Rated = TypedDict("Rated", {
    "unit_per_day": MaybeEnds | None, "basis": str, "party": str, "class": str, "from": str, "kind": str,
    "precision": str | None, "fits": bool | None, "excludes": list[str] | None, "deviations": list[str],
    "notes": list[str], "missing": str | None, "conditions": NotRequired[dict[str, Condition]],
    "job": NotRequired[OfJob | None],
})  # fmt: skip
LineContent = TypedDict("LineContent", {
    "name": str, "unit": str, "runs_per_unit": float, "required": bool, "class": str, "basis": str, "party": str,
    "model": str | None, "relative": bool, "precisions_differ": bool, "fixed": Mapping[str, object],
    "unit_per_day": dict[str, float | None], "ratio": float | None, "ratio_interval": MaybeEnds | None,
    "weight": float | None, "excludes": list[str], "excludes_alone": dict[str, list[str]],
    "explained": float | None, "measured_run": str | None,
    "machines": dict[str, Rated],
})  # fmt: skip
CampaignDays = TypedDict("CampaignDays", {"name": str, "line": str, "units": float,
                                          "days": dict[str, float | None]})  # fmt: skip
StepLine = TypedDict("StepLine", {
    "name": str, "baseline_step_s": Ends, "rest_s": Ends, "step_s": Ends, "unit_per_day": Ends | None,
    "measured_step_s": Ends | None, "inside": bool | None,
})  # fmt: skip
LeftOutLine = TypedDict("LeftOutLine", {"line": str, "why": str})
Calibrated = TypedDict("Calibrated", {
    "fom": Ends | None, "projected_fom": Ends | None, "measured_fom": Ends | None, "measured_lines": int,
    "inside": int, "lines": list[StepLine], "left_out": list[LeftOutLine], "carried": str,
})  # fmt: skip
Missing = TypedDict("Missing", {"line": str, "machine": str, "required": bool, "why": str})
Deviation = TypedDict("Deviation", {"line": str, "machine": str, "deviation": str})
SuiteContent = TypedDict("SuiteContent", {
    "schema": str, "fomkit": str, "suite": str, "title": str, "version": int, "baseline": str, "target": str,
    "frozen": bool, "interval": float | None, "threshold": Verdict | None, "incomplete": list[str],
    "missing": list[Missing], "deviations": list[Deviation], "fom": Merit | None, "lines": list[LineContent],
    "campaigns": list[CampaignDays], "calibrated": NotRequired[Calibrated | None], "notes": list[str],
})  # fmt: skip


SuitesContent = TypedDict("SuitesContent", {
    "schema": str, "fomkit": str, "suite": str, "title": str, "version": int, "baseline": str,
    "targets": list[str], "results": list[SuiteContent], "refused": dict[str, str],
})  # fmt: skip


def _line_content(result: SuiteResult, old: RatedLine, new: RatedLine) -> LineContent:
    line, merit = old.line, result.merit
    names = [machine.name for machine in result.machines]
    rates = {name: one.unit_per_day for name, one in zip(names, (old, new), strict=True)}
    ratio = merit.ratios.get(line.name) if merit else None
    explained = next((one for one in result.explained if one.line == line.name), None)
    machines: dict[str, Rated] = {}
    for name, one in zip(names, (old, new), strict=True):
        behind = one.estimate
        machines[name] = as_content(
            Rated, one, **{"class": one.category, "from": one.source}, fits=one.fit.fits,
            conditions=conditions_content(behind) if behind else None, job=behind and job_content(behind),
        )  # fmt: skip
    return as_content(
        LineContent, line, runs_per_unit=line.runs, **{"class": new.category}, party=new.party,
        basis=max(old.basis, new.basis, key=BASES_BY_TRUST.index), relative=line.is_relative,
        precisions_differ=bool(old.precision and new.precision and old.precision != new.precision),
        fixed=line.conditions.stated(),
        unit_per_day={name: rate.value if rate else None for name, rate in rates.items()},
        ratio=ratio.value if ratio else None, ratio_interval=ratio,
        weight=merit.weights.get(line.name) if merit else None,
        excludes=dict.fromkeys(term for one in (old, new) for term in one.excludes or ()),
        excludes_alone=left_out_alone([((names[0], old.excludes), (names[1], new.excludes))]),
        explained=explained and explained.share, measured_run=explained and explained.message,
        machines=machines,
    )  # fmt: skip


def _campaigns(result: SuiteResult) -> list[CampaignDays]:
    found = list[CampaignDays]()
    for campaign in result.suite.campaigns:
        rates = {
            machine.name: next(one.unit_per_day for one in side if one.line.name == campaign.line)
            for machine, side in zip(result.machines, (result.baseline, result.target), strict=True)
        }
        days = {name: campaign.units / rate.value if rate else None for name, rate in rates.items()}
        found.append(as_content(CampaignDays, campaign, days=days))
    return found


HOST_TIME_RULE = (
    "the device's part as predicted; the rest of the baseline's measured step is assumed equal within a factor of "
    "two, because the hosts are not stated, and down to half of what the device's part shrinks to"
)


def _calibration(found: Calibration) -> Calibrated:
    """Convert a suite computed from measured steps of its baseline to plain values."""
    inside, count = found.held
    lines = [
        as_content(StepLine, one, baseline_step_s=one.measured, rest_s=one.rest, step_s=one.step,
                   measured_step_s=one.found)
        for one in found.lines
    ]  # fmt: skip
    return as_content(
        Calibrated, fom=found.merit and found.merit.value, projected_fom=found.projected and found.projected.value,
        measured_fom=found.measured and found.measured.value, measured_lines=count, inside=inside, lines=lines,
        left_out=[{"line": name, "why": why} for name, why in found.left_out], carried=HOST_TIME_RULE,
    )  # fmt: skip


def suite_content(result: SuiteResult) -> SuiteContent:
    """Convert a suite's result to ``fomkit/fom/1``."""
    suite, merit = result.suite, result.merit
    block = None
    if merit is not None:
        worst = max((one.basis for one in result.counted), key=BASES_BY_TRUST.index)
        block = merit_content(merit, worst, result.excludes, result.unfit, result.explained, result.alone)
    missing: list[Missing] = [
        {"line": one.line.name, "machine": name, "required": one.line.required, "why": one.missing}
        for one, name in result.missing
    ]
    against_threshold = None
    if merit is not None and suite.threshold is not None:
        probability = probability_above(merit.value, suite.threshold)
        against_threshold = as_content(
            Verdict, threshold=suite.threshold,
            probability=probability if result.has_interval and not result.withheld else None,
            verdict=NOT_GIVEN if result.withheld else verdict(probability, PROPOSAL), why=result.withheld or None,
        )  # fmt: skip
    machines = [estimate.machine for estimate in result.estimates]
    messages = (text for machine in machines for text in (*machine.caveats, *verdict_on(machine)))
    return as_content(
        SuiteContent, suite, result, schema="fomkit/fom/1", fomkit=__version__, suite=suite.name,
        baseline=result.machines[0].name, target=result.machines[1].name,
        frozen=bool(suite.frozen) and result.machines[0].name == suite.baseline,
        interval=merit.value.level if merit and result.has_interval else None, threshold=against_threshold,
        missing=missing, fom=block,
        deviations=[
            {"line": line, "machine": machine, "deviation": what} for line, machine, what in deviations_of(result)
        ],
        lines=[_line_content(result, old, new) for old, new in zip(result.baseline, result.target, strict=True)],
        campaigns=_campaigns(result),
        calibrated=None if result.calibration is None else _calibration(result.calibration),
        notes=[*filter(None, [result.moved]), *suite.notes, *dict.fromkeys(messages)],
    )  # fmt: skip


def suites_content(found: SuiteResults) -> SuitesContent:
    """Convert a suite's results on several targets to ``fomkit/foms/1``."""
    first, targets = found.results[0], [one.machines[1].name for one in found.results]
    return as_content(
        SuitesContent, first.suite, schema="fomkit/foms/1", fomkit=__version__, suite=first.suite.name,
        baseline=first.machines[0].name, targets=targets, results=[suite_content(one) for one in found.results],
        refused=found.refused,
    )  # fmt: skip


def suite_rows(content: Mapping[str, Any]) -> list[Mapping[str, object]]:
    """Return a row for each line with the figure of merit; the columns are the same for every pair of machines."""
    sides, merit = {"baseline": content["baseline"], "target": content["target"]}, content["fom"]
    fom = None if merit is None else {name: merit[name] for name in ("value", "low", "high")}
    return [
        {
            "target": content["target"], "fom": fom, "threshold": content["threshold"], **line,
            "unit_per_day": {side: line["unit_per_day"][name] for side, name in sides.items()},
            "machines": {side: line["machines"][name] for side, name in sides.items()},
        }
        for line in content["lines"]
    ]  # fmt: skip


AcceptedRow = TypedDict("AcceptedRow", {"where": str, "used": bool, "said": str})
Accepted = TypedDict("Accepted", {
    "name": str, "required": bool, "committed": MaybeEnds | None, "committed_from": str, "basis": str,
    "excludes": list[str], "fits": bool | None, "party": str, "measured": MaybeEnds | None,
    "difference": float | None, "spread_stated": bool, "probability": float | None, "verdict": str,
    "contradictory": bool, "modelled_share": float, "deviations": list[str], "rows": list[AcceptedRow],
})  # fmt: skip
AcceptContent = TypedDict("AcceptContent", {
    "schema": str, "fomkit": str, "suite": str, "version": int, "machine": str, "interval": float,
    "lines": list[Accepted],
})  # fmt: skip


def acceptance_content(suite: Suite, machine: str, lines: Sequence[AcceptedLine], level: float) -> AcceptContent:
    """Convert accepted lines to ``fomkit/accept/1``."""
    entries = [
        as_content(
            Accepted, line, line.committed, name=line.committed.line.name, required=line.committed.line.required,
            committed=rate, committed_from=line.committed.missing or line.committed.source,
            fits=line.committed.fit.fits, excludes=line.committed.excludes or (),
            difference=line.measured.value / rate.value - 1 if rate and line.measured else None,
            probability=line.probability if line.spread_stated else None,
            rows=[
                {"where": reading.row.where, "used": reading.step is not None, "said": reading.message}
                for reading in line.readings
            ],
        )
        for line in lines
        for rate in [line.committed.unit_per_day]
    ]  # fmt: skip
    return as_content(
        AcceptContent, suite, schema="fomkit/accept/1", fomkit=__version__, suite=suite.name, machine=machine,
        interval=level, lines=entries,
    )  # fmt: skip


SCHEMA = "fomkit/campaign-cost/1"
Phase = TypedDict("Phase", {
    "name": str, "work": str, "mode": str, "runs": float, "runs_basis": str, "source": str, "basis": str | None,
    "run_s": MaybeEnds | None, "unit_per_day": MaybeEnds | None, "days": MaybeEnds | None,
    "order_of_magnitude": int | None, "money": MaybeEnds | None, "energy_j": MaybeEnds | None,
    "energy_scope": str | None, "energy_at_most_j": float | None, "energy_missing": list[str],
    "kg": MaybeEnds | None, "fits": bool | None,
    "explained": float | None, "measured_run": str | None, "excludes": list[str], "deviations": list[str],
    "conditions": NotRequired[dict[str, Condition]], "missing": str,
})  # fmt: skip
CampaignCarbon = TypedDict("CampaignCarbon", {
    "kg": MaybeEnds | None, "at_most_kg": float | None, "missing": list[str], "kg_per_kwh": Stated | None,
    "to_wall": Stated | None, "pue": Stated | None, "notes": list[str],
})  # fmt: skip
NoSpread = TypedDict("NoSpread", {"phases": list[str], "share": float})
Sum = Literal["days", "money", "energy_j"]
MachinePhases = TypedDict("MachinePhases", {
    "target": str, "scope": str, "interval": float, "price": Priced | None, "currency": str | None,
    "paid_units": float | None, "phases": list[Phase], "days": MaybeEnds | None,
    "money": MaybeEnds | None, "energy_j": MaybeEnds | None, "order_of_magnitude": int | None,
    "no_spread": dict[Sum, NoSpread | None], "little_explained": list[str], "lower_bound": list[str],
    "energy_scope": str | None, "energy_at_most_j": float | None, "carbon": CampaignCarbon | None,
})  # fmt: skip
CampaignsContent = TypedDict("CampaignsContent", {
    "schema": str, "fomkit": str, "campaign": str, "title": str, "machines": list[MachinePhases],
    "notes": list[str],
})  # fmt: skip


def _magnitude(days: Span | None) -> int | None:
    return None if days is None else math.floor(math.log10(days.value))


def _no_spread(phases: Sequence[PhaseCost], spans: Sequence[Span | None], total: Span | None) -> NoSpread | None:
    """Name the phases whose figure has no spread, and their share of the sum."""
    if total is None or not total.value:
        return None
    exact = {
        one.phase.name: span for one, span in zip(phases, spans, strict=True) if span and span.low == span.high
    }
    share = math.fsum(span.value for span in exact.values()) / total.value
    return {"phases": list(exact), "share": share}


def _sum_of(spans: Sequence[Span | None]) -> Span | None:
    """Add up the figures of phases; without bounds where one of them has no spread."""
    total = add_known(spans)
    if total is not None and any(span.low == span.high for span in spans if span is not None):
        total = Span.exact(total.value)
    return total


def _phase(cost: PhaseCost, grid: Grid) -> Phase:
    phase = cost.phase
    explained, estimate = cost.explained, cost.estimate
    return as_content(
        Phase, cost, phase, work=phase.model or f"{phase.suite}: {phase.line}", runs_basis=phase.basis,
        unit_per_day=cost.per_day, order_of_magnitude=_magnitude(cost.days),
        kg=footprint(cost.energy_j, cost.energy_scope, grid)[1],
        fits=cost.fit.fits, explained=explained and explained.share, measured_run=explained and explained.message,
        conditions=None if estimate is None else conditions_content(estimate),
    )  # fmt: skip


def _carbon(
    phases: Sequence[PhaseCost], grid: Grid, at_most_j: float | None, level: float
) -> CampaignCarbon | None:
    """Add up the carbon of phases, each from its own scope to the wall; None where no grid is stated."""
    if grid.kg_per_j is None:
        return None
    lacking = [why for phase in phases for why in missing_for_wall(phase.energy_scope, phase.energy_missing, grid)]
    kg = _sum_of([footprint(phase.energy_j, phase.energy_scope, grid)[1] for phase in phases])
    return as_content(CampaignCarbon, grid_content(grid), kg=kg, missing=dict.fromkeys(lacking),
                      at_most_kg=most_kg(at_most_j, grid, level))  # fmt: skip


def campaign_content(cost: CampaignCost, grid: Grid) -> MachinePhases:
    """Convert a campaign on one machine to an entry of ``machines``."""
    phases, scope, price = cost.phases, cost.options.scope or "system", cost.price
    scopes = {each.energy_scope for each in phases}
    energy_scope = next(iter(scopes)) if len(scopes) == 1 else None
    of_each: dict[Sum, list[Span | None]] = {
        "days": [each.days for each in phases], "money": [each.money for each in phases],
        "energy_j": [each.energy_j if energy_scope else None for each in phases],
    }  # fmt: skip
    sums = {name: add_known(spans) for name, spans in of_each.items()}
    bounds = [each.energy_at_most_j for each in phases]
    at_most_j = None if None in bounds else math.fsum(one for one in bounds if one is not None)
    return as_content(
        MachinePhases, target=cost.machine.name, scope=scope, interval=cost.options.interval,
        price=None if price is None else price_content(price), currency=price and price.currency,
        paid_units=None if price is None else paid_units(price, cost.machine, scope),
        phases=[_phase(each, grid) for each in phases],
        **{name: _sum_of(spans) for name, spans in of_each.items()}, order_of_magnitude=_magnitude(sums["days"]),
        no_spread={name: _no_spread(phases, of_each[name], total) for name, total in sums.items()},
        little_explained=[each.line for each in cost.little_explained],
        lower_bound=[each.phase.name for each in phases if each.excludes], energy_scope=energy_scope,
        energy_at_most_j=at_most_j, carbon=_carbon(phases, grid, at_most_j, cost.options.interval),
    )  # fmt: skip


def campaigns_content(found: Sequence[CampaignCost], grid: Grid) -> CampaignsContent:
    """Convert a campaign on several machines to ``fomkit/campaign-cost/1``."""
    workflow = found[0].workflow
    machines = [campaign_content(one, grid) for one in found]
    return as_content(CampaignsContent, workflow, schema=SCHEMA, fomkit=__version__, campaign=workflow.name,
                      machines=machines)  # fmt: skip


def phase_rows(content: CampaignsContent) -> list[Mapping[str, object]]:
    """Return one row for each phase on each machine."""
    return [
        {"target": machine["target"], "currency": machine["currency"], **phase}
        for machine in content["machines"]
        for phase in machine["phases"]
    ]
