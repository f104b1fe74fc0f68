"""A suite's result as plain content, ``fomkit/fom/1``."""

from __future__ import annotations

from typing import Any

from fomkit import __version__
from fomkit.fom.verdicts import PROPOSAL, verdict
from fomkit.spans import Span, probability_above
from fomkit.study.content import BASES_BY_TRUST, merit_content, span_content
from fomkit.study.plausible import verdict_on
from fomkit.study.rated_lines import RatedLine
from fomkit.study.suites import SuiteResult

NOT_GIVEN = "not given"
"""Instead of a verdict on a threshold that rests on work of which the device is the smaller part."""


def _verdict(value: Span, threshold: float, *, has_interval: bool, withheld: str) -> dict[str, Any]:
    if withheld:
        return {"threshold": threshold, "probability": None, "verdict": NOT_GIVEN, "why": withheld}
    probability = probability_above(value, threshold)
    return {
        "threshold": threshold,
        "probability": probability if has_interval else None,
        "verdict": verdict(probability, PROPOSAL),
    }


def _rated_content(one: RatedLine) -> dict[str, Any]:
    return {
        "unit_per_day": span_content(one.unit_per_day),
        "basis": one.basis,
        "party": one.party,
        "class": one.category,
        "from": one.source,
        "kind": one.kind,
        "precision": one.precision or None,
        "fits": None if one.estimate is None else one.estimate.fit.fits,
        "excludes": None if one.excludes is None else list(one.excludes),
        "deviations": list(one.deviations),
        "missing": one.missing or None,
    }


def _line_content(result: SuiteResult, old: RatedLine, new: RatedLine) -> dict[str, Any]:
    line, merit = old.line, result.merit
    names = [machine.name for machine in result.machines]
    rates = {name: one.unit_per_day for name, one in zip(names, (old, new), strict=True)}
    ratio = merit.ratios.get(line.name) if merit else None
    held = next((one for one in result.explained if one.line == line.name), None)
    return {
        "name": line.name,
        "unit": line.unit,
        "runs_per_unit": line.runs,
        "required": line.required,
        "class": new.category,
        "basis": max(old.basis, new.basis, key=BASES_BY_TRUST.index),
        "party": new.party,
        "model": line.model,
        "relative": line.is_relative,
        "precisions_differ": bool(old.precision and new.precision and old.precision != new.precision),
        "fixed": line.conditions.stated(),
        "unit_per_day": {name: rate.value if rate else None for name, rate in rates.items()},
        "ratio": ratio.value if ratio else None,
        "ratio_interval": span_content(ratio),
        "weight": merit.weights.get(line.name) if merit else None,
        "excludes": sorted({term for one in (old, new) for term in one.excludes or ()}),
        "explained": None if held is None else held.share,
        "measured_run": None if held is None else held.said,
        "machines": {name: _rated_content(one) for name, one in zip(names, (old, new), strict=True)},
    }


def _campaigns(result: SuiteResult) -> list[dict[str, Any]]:
    found = []
    for campaign in result.suite.campaigns:
        days = {
            machine.name: span_content(next(one.unit_per_day for one in side if one.line.name == campaign.line))
            for machine, side in zip(result.machines, (result.baseline, result.target), strict=True)
        }
        found.append(
            {
                "name": campaign.name,
                "line": campaign.line,
                "units": campaign.units,
                "days": {name: campaign.units / rate["value"] if rate else None for name, rate in days.items()},
            }
        )
    return found


def suite_content(result: SuiteResult) -> dict[str, Any]:
    """Put a suite's result in the form of ``fomkit/fom/1``."""
    suite, merit = result.suite, result.merit
    block = None
    if merit is not None:
        worst = max((one.basis for one in result.counted), key=BASES_BY_TRUST.index)
        block = merit_content(merit, worst, result.excludes, result.unfit, result.explained)
        if not result.has_interval:
            block |= {"low": None, "high": None}
    missing = [
        {"line": one.line.name, "machine": name, "required": one.line.required, "why": one.missing}
        for one, name in result.missing
    ]
    judged = None
    if merit is not None and suite.threshold is not None:
        judged = _verdict(merit.value, suite.threshold, has_interval=result.has_interval, withheld=result.withheld)
    return {
        "schema": "fomkit/fom/1",
        "fomkit": __version__,
        "suite": suite.name,
        "title": suite.title,
        "version": suite.version,
        "baseline": result.machines[0].name,
        "target": result.machines[1].name,
        "frozen": bool(suite.frozen) and result.machines[0].name == suite.baseline,
        "interval": merit.value.level if merit and result.has_interval else None,
        "threshold": judged,
        "incomplete": list(result.incomplete),
        "missing": missing,
        "deviations": [
            {"line": one.line.name, "machine": machine.name, "deviation": said}
            for machine, side in zip(result.machines, (result.baseline, result.target), strict=True)
            for one in side
            for said in one.deviations
        ],
        "fom": block,
        "lines": [
            _line_content(result, old, new) for old, new in zip(result.baseline, result.target, strict=True)
        ],
        "campaigns": _campaigns(result),
        "notes": [
            *suite.notes,
            *dict.fromkeys(
                text for one in result.estimates for text in (*one.machine.said_of_name, *verdict_on(one.machine))
            ),
        ],
    }
