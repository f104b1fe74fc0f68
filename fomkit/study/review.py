"""A returned workbook against the one that was sent: what changed, whether it can be, and what it does."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, nan
from pathlib import Path
from typing import Any

from fomkit import __version__
from fomkit.errors import FomkitError
from fomkit.ledger import Ledger, Values, evaluate
from fomkit.study.rounds import Review
from fomkit.workbook.appearance import appearance
from fomkit.workbook.changes import Change, Finding, changes
from fomkit.workbook.layout import OPS, UNKNOWN
from fomkit.workbook.read import Book, read_book
from fomkit.workbook.read_cells import FOLLOWS
from fomkit.workbook.read_ledger import ledger_from
from fomkit.workbook.tampering import tampering
from fomkit.workbook.validity import above_peak, validate

_IMPOSSIBLE = (FomkitError, ArithmeticError, ValueError)
"""What figures that cannot be end in: divisions by 0, logarithms of negative numbers."""
MOST_ALONE = 200
"""Changes whose effect is computed one by one."""


def _with(issued: Book, some: Sequence[Change]) -> Book:
    book = issued
    for change in (one for one in some if not one.is_left_out):
        book = book.with_entry(change.title, change.index, change.key, change.new)
    return book


def review(returned: Path, issued: Path) -> Review:
    """Compare a returned workbook with the one that was sent.

    Raises
    ------
    FomkitError
        When either cannot be read, or rows and columns are not in their places.
    """
    sent, back = read_book(issued), read_book(returned)
    changed = tuple(changes(sent, back))
    back.check()
    before, book = ledger_from(sent), _with(sent, changed)
    after = ledger_from(book)
    findings = [*tampering(sent, back, is_unchanged=not changed), *appearance(sent, back)]
    findings += validate(changed, sent, back)
    findings += above_peak(changed, after, sent.tables[OPS.title].first)
    return Review(returned, issued, sent, before, after, changed, tuple(findings))


def _figures(ledger: Ledger, values: Values) -> dict[str, float]:
    """Give the headlines that a change may move: FOM and units a day of the targets, else their steps."""
    figures: dict[str, float] = {}
    for target in ledger.targets:
        if target in values.merits:
            figures[f"FOM of {target}"] = values.merits[target].value.value
        for one in ledger.workloads:
            rate, case = values.unit_per_day.get((one.name, target)), values.cases.get((one.name, target))
            if rate is not None:
                figures[f"units/day of {one.name} on {target}"] = rate.value
            elif case is not None:
                figures[f"steps/s of {one.name} on {target}"] = 1 / case.step.wall_s.value
    return figures


def _effects(before: dict[str, float], ledger: Ledger) -> list[dict[str, Any]]:
    after = _figures(ledger, evaluate(ledger))
    lost = [name for name, old in before.items() if isfinite(old) and not isfinite(after.get(name, nan))]
    if lost:
        raise ValueError(f"{lost[0]} would be no number")
    return [
        {"figure": name, "old": old, "new": after[name], "change": after[name] / old - 1}
        for name, old in before.items()
        if name in after and abs(after[name] - old) > 1e-12 * abs(old)
    ]


def _said(entry: object) -> object:
    return UNKNOWN if entry is None else "the value" if entry == FOLLOWS else entry


def _change_content(change: Change, alone: list[dict[str, Any]] | None, why_not: str) -> dict[str, Any]:
    return {
        "where": change.where,
        "what": change.what,
        "unit": change.unit,
        "old": _said(change.old),
        "new": _said(change.new),
        "basis": change.basis,
        "party": change.party,
        "source": change.source,
        "alone": alone,
        "not_computed": why_not,
    }


def _finding_content(finding: Finding) -> dict[str, str]:
    return {"where": finding.where, "kind": finding.kind, "said": finding.said}


def _barred(change: Change, findings: Sequence[Finding]) -> str:
    """Say why nothing can be computed with a change; "" where it can."""
    if not any(one.kind == "range" and one.where == change.where for one in findings):
        return ""
    return f"{change.what} is {'unknown' if change.new is None else 'impossible'}"


def _alone(found: Review, change: Change, before: dict[str, float]) -> tuple[list[dict[str, Any]] | None, str]:
    """Give the effect of one change, or why there is none."""
    why_not = _barred(change, found.findings)
    if why_not:
        return None, why_not
    try:
        return _effects(before, ledger_from(_with(found.sent, [change]))), ""
    except _IMPOSSIBLE as error:
        return None, f"{change.what}: nothing can be computed ({error})"


def _together(found: Review, before: dict[str, float]) -> tuple[list[dict[str, Any]] | None, str]:
    computed = [change for change in found.changes if not change.is_left_out]
    barred = [change.where for change in computed if _barred(change, found.findings)]
    if barred:
        return None, f"{', '.join(barred)} cannot be"
    try:
        return _effects(before, found.after), ""
    except _IMPOSSIBLE as error:
        return None, f"with all changes nothing can be computed ({error})"


def review_content(found: Review) -> dict[str, Any]:
    """Put a review in the form of ``fomkit/review/1``: each change with its effect alone, and all together.

    An effect is None, and ``not_computed`` says why, where a figure is unknown or cannot be.
    """
    findings, entries = list(found.findings), []
    before = _figures(found.before, evaluate(found.before))
    for index, change in enumerate(one for one in found.changes if not one.is_ground):
        alone, why_not = None, ""
        if change.is_number and not change.is_left_out and index < MOST_ALONE:
            alone, why_not = _alone(found, change, before)
            if why_not and not _barred(change, findings):
                findings.append(Finding(change.where, "range", f"{why_not}."))
        entries.append(_change_content(change, alone, why_not))
    together, why_not = _together(found, before)
    if why_not and not any(one.kind == "range" for one in findings):
        findings.append(Finding(str(found.returned), "range", f"{why_not}."))
    return {
        "schema": "fomkit/review/1",
        "fomkit": __version__,
        "workbook": str(found.returned),
        "issued": str(found.issued),
        "changes": entries,
        "together": together,
        "not_computed": why_not,
        "findings": [_finding_content(finding) for finding in findings],
    }
