"""Campaigns as plain content (``fomkit/campaign-cost/1``)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fomkit import __version__
from fomkit.fom.money import paid_units
from fomkit.spans import Span, add_known
from fomkit.study.campaign import CampaignCost, PhaseCost
from fomkit.study.content import price_content, span_content
from fomkit.study.footprint import Grid, footprint, grid_content, lacks

SCHEMA = "fomkit/campaign-cost/1"


def _order(days: Span | None) -> int | None:
    return None if days is None else math.floor(math.log10(days.value))


def _no_spread(
    phases: Sequence[PhaseCost], spans: Sequence[Span | None], total: Span | None
) -> dict[str, Any] | None:
    """Name the phases whose figure states no spread, and the share of the sum that they carry."""
    if total is None or not total.value:
        return None
    exact = {
        one.phase.name: span for one, span in zip(phases, spans, strict=True) if span and span.low == span.high
    }
    share = math.fsum(span.value for span in exact.values()) / total.value
    return {"phases": list(exact), "share": share}


def _kg(one: PhaseCost, grid: Grid) -> Span | None:
    return footprint(one.energy_j, one.energy_scope, grid)[1]


def _phase(one: PhaseCost, grid: Grid) -> dict[str, Any]:
    phase = one.phase
    return {
        "name": phase.name,
        "work": phase.model or f"{phase.suite}: {phase.line}",
        "mode": phase.mode,
        "runs": phase.runs,
        "runs_basis": phase.basis,
        "source": phase.source,
        "basis": one.basis,
        "run_s": span_content(one.run_s),
        "unit_per_day": span_content(one.per_day),
        "days": span_content(one.days),
        "order_of_magnitude": _order(one.days),
        "money": span_content(one.money),
        "energy_j": span_content(one.energy_j),
        "energy_scope": one.energy_scope,
        "energy_missing": list(one.energy_missing),
        "kg": span_content(_kg(one, grid)),
        "fits": one.fit.fits,
        "explained": None if one.explained is None else one.explained.share,
        "measured_run": None if one.explained is None else one.explained.said,
        "excludes": list(one.excludes),
        "deviations": list(one.said),
        "missing": one.missing,
    }


def _carbon(phases: Sequence[PhaseCost], grid: Grid) -> dict[str, Any] | None:
    """Add up the carbon of phases, each from its own scope to the wall; None where nobody asks for it."""
    if grid.kg_per_j is None:
        return None
    lacking = [why for one in phases for why in lacks(one.energy_scope, one.energy_missing, grid)]
    return {
        "kg": span_content(add_known([_kg(one, grid) for one in phases])),
        "missing": list(dict.fromkeys(lacking)),
        **grid_content(grid),
    }


def campaign_content(one: CampaignCost, grid: Grid) -> dict[str, Any]:
    """Put a campaign on one machine in the form of an entry of ``machines``."""
    phases, scope = one.phases, one.options.scope or "system"
    scopes = {each.energy_scope for each in phases}
    energy_scope = next(iter(scopes)) if len(scopes) == 1 else None
    of_each = {
        "days": [each.days for each in phases],
        "money": [each.money for each in phases],
        "energy_j": [each.energy_j if energy_scope else None for each in phases],
    }
    sums = {name: add_known(spans) for name, spans in of_each.items()}
    return {
        "target": one.machine.name,
        "scope": scope,
        "interval": one.options.interval,
        "price": price_content(one.price),
        "currency": one.price.currency if one.price else None,
        "paid_units": paid_units(one.price, one.machine, scope) if one.price else None,
        "phases": [_phase(each, grid) for each in phases],
        **{name: span_content(total) for name, total in sums.items()},
        "order_of_magnitude": _order(sums["days"]),
        "no_spread": {name: _no_spread(phases, of_each[name], total) for name, total in sums.items()},
        "little_explained": [each.line for each in one.little_explained],
        "lower_bound": [each.phase.name for each in phases if each.excludes],
        "energy_scope": energy_scope,
        "carbon": _carbon(phases, grid),
    }


def campaigns_content(found: Sequence[CampaignCost], grid: Grid) -> dict[str, Any]:
    """Put a campaign on some machines in the form of ``fomkit/campaign-cost/1``."""
    workflow = found[0].workflow
    return {
        "schema": SCHEMA,
        "fomkit": __version__,
        "campaign": workflow.name,
        "title": workflow.title,
        "machines": [campaign_content(one, grid) for one in found],
        "notes": list(workflow.notes),
    }


def phase_rows(content: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Give one row for each phase on each machine."""
    return [
        {"target": one["target"], "currency": one["currency"], **phase}
        for one in content["machines"]
        for phase in one["phases"]
    ]
