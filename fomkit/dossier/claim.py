"""The answer, first: a figure, its unit and its interval; and beside it what the answer is made of."""

from __future__ import annotations

from typing import Any

from fomkit.dossier.words import BOUND, LEFT_OUT, SOURCES, amount, both_ends, interval, plural
from fomkit.metrics import upper_bounds
from fomkit.quantities import format_number, format_quantity
from fomkit.report.book import Claim, Share, Tile
from fomkit.spans import Span
from fomkit.study.estimate import Estimate

_SCOPES = {"device": "one device", "node": "one node", "system": "the whole system"}


def _excluded(one: Estimate) -> str:
    if one.fit.said:
        return f"Nobody can have it: the step {one.fit.said.removesuffix(' (fomkit memory)')}."
    terms = [LEFT_OUT.get(term, term).partition(":")[0] for term in one.excludes]
    if not terms:
        return "Nothing is left out that the profiles name."
    return f"{upper_bounds(terms, 'Units/day')}."


def _claim(of: str, span: Span, dimension: str | None, unit: str, bound: str) -> Claim:
    low, high = both_ends(span, dimension)
    place = None if low == high else (span.value - span.low) / (span.high - span.low)
    return Claim(of, amount(span, dimension), unit, interval(span, dimension), low, high, place, bound)


def claim_of(one: Estimate) -> Claim:
    """Put the answer of an estimate: units of work a day, else the step, where nobody said what a run is."""
    of = f"{one.model.name} on {one.machine.name}"
    per_day = one.unit_per_day
    if per_day is None:
        said = "Its profile does not say what a run is, so there are no runs a day."
        return _claim(of, one.step, "time_s", "for one training step", said)
    unit = f"{plural(one.model.unit.name, per_day.value)} a day on {_SCOPES[one.scope]}"
    return _claim(of, per_day, None, unit, _excluded(one))


def tiles_of(one: Estimate, content: dict[str, Any]) -> tuple[Tile, ...]:
    """Put the figures beside the answer."""
    run, batch = one.run_time, one.sizes.get("batch")
    sizes = ", ".join(f"{name} {size}" for name, size in one.sizes.items() if name != "batch")
    steps = "" if run.steps_per_epoch is None else f"{run.steps_per_epoch:,} steps an epoch"
    epochs = "" if one.model.run.epochs is None else f", {one.model.run.epochs} epochs"
    more, bound = ", ".join(filter(None, (sizes, steps + epochs))), one.step_time.bound
    found = [
        Tile("one step", amount(one.step), interval(one.step)),
        Tile("one run", amount(run.run_s), interval(run.run_s) or "the profile does not say what a run is"),
        Tile("batch", "unknown" if batch is None else f"{batch:,}", more),
        Tile("number format", one.precision, one.formats.said),
        Tile("waits for", BOUND.get(bound, bound)),
    ]  # fmt: skip
    ratio = content.get("ratio")
    if ratio is not None:
        of = Span(ratio["value"], ratio["low"], ratio["high"], one.step.level)
        told = f"{interval(of, None)}; {ratio['of']}"
        found.append(Tile(f"times {ratio['baseline']}", f"{format_number(ratio['value'], 3)} ×", told))
    energy = content.get("energy_j")
    if energy is not None and energy.get("run") is not None:
        found.append(Tile("energy of a run", format_quantity(energy["run"]["value"], "energy_j", 3)))
    return tuple(found)


def evidence_of_time(one: Estimate) -> tuple[Share, ...]:
    """Tell what the predicted time rests on, the largest share first; empty shares are left out."""
    shares = sorted(one.coverage.items(), key=lambda pair: -pair[1])
    return tuple(Share(name, part, SOURCES[name]) for name, part in shares if part > 0)
