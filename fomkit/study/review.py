"""A returned workbook against the one that was sent: what changed, whether it can be, and what it does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fomkit import __version__
from fomkit.errors import FomkitError
from fomkit.ledger import Ledger, evaluate
from fomkit.predict.plausibility import judge_facts
from fomkit.study.effects import Effector, Effects, barred, columns, headlines, with_changes
from fomkit.study.rounds import Review
from fomkit.workbook.appearance import appearance
from fomkit.workbook.changes import Change, Finding, changes, follow_ends
from fomkit.workbook.layout import INPUT_TABLES, OPS, UNKNOWN
from fomkit.workbook.read import read_book
from fomkit.workbook.read_cells import FOLLOWS
from fomkit.workbook.read_ledger import ledger_from
from fomkit.workbook.tampering import tampering
from fomkit.workbook.validity import above_peak, validate

MOST_ALONE = 200
"""Changes whose effect is computed one by one."""


def _facts_of(ledger: Ledger) -> dict[str, tuple[str, ...]]:
    """Say of each machine which facts hardly can be beside each other."""
    found = {}
    for machine in ledger.machines:
        try:
            found[machine.name] = judge_facts(machine.device, machine.name)
        except FomkitError as error:
            found[machine.name] = (error.what,)
    return found


def _implausible(before: Ledger, after: Ledger) -> list[Finding]:
    """Find facts that became implausible by the changes."""
    old = _facts_of(before)
    return [
        Finding(f"facts of {name}", "plausibility", f"{text[:1].upper()}{text[1:]}.".replace("..", "."))
        for name, texts in _facts_of(after).items()
        for text in texts
        if text not in old.get(name, ())
    ]


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
    before, book = ledger_from(sent), with_changes(sent, changed)
    after = ledger_from(book)
    findings = [*tampering(sent, back, is_unchanged=not changed), *appearance(sent, back)]
    findings += validate(changed, sent, follow_ends(sent, back))
    findings += _implausible(before, after)
    findings += above_peak(changed, after, sent.tables[OPS.title].first)
    return Review(returned, issued, sent, before, after, changed, tuple(findings))


def _said(entry: object) -> object:
    return UNKNOWN if entry is None else "the value" if entry == FOLLOWS else entry


def _change_content(change: Change, alone: Effects | None, why_not: str) -> dict[str, Any]:
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
        "moves_nothing": change.is_idle and not change.is_left_out,
    }


def _finding_content(finding: Finding) -> dict[str, str]:
    return {"where": finding.where, "kind": finding.kind, "said": finding.said}


def _moves(pairs: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """Count what became what, the most frequent first."""
    return [{"old": old, "new": new, "count": count} for (old, new), count in Counter(pairs).most_common()]


def _group_content(some: Sequence[Change], effector: Effector) -> dict[str, Any]:
    """Put the changes of one column in a form: how many, from what to what, on which ground, and what they do."""
    ratios = [
        one.new / one.old for one in some if isinstance(one.old, float) and isinstance(one.new, float) and one.old
    ]
    table = next(one for one in INPUT_TABLES if one.title == some[0].title)
    header = next(column.header for column in table.columns if column.key == some[0].key)
    is_told = some[0].is_number and not some[0].is_left_out
    alone, why_not = effector.of(some, "with this column") if is_told else (None, "")
    return {
        "sheet": table.sheet,
        "machine": some[0].machine,
        "column": header,
        "where": [one.where for one in some],
        "count": len(some),
        "factor_low": min(ratios, default=None),
        "factor_high": max(ratios, default=None),
        "basis": _moves([(one.was_basis, one.basis) for one in some]),
        "party": _moves([(one.was_party, one.party) for one in some]),
        "sources": list(dict.fromkeys(one.source for one in some if one.source)),
        "alone": alone,
        "not_computed": why_not,
        "moves_nothing": all(one.is_idle for one in some) and not some[0].is_left_out,
    }


def review_content(found: Review) -> dict[str, Any]:
    """Put a review in the form of ``fomkit/review/1``: each change with its effect alone, and all together.

    An effect is None, and ``not_computed`` says why, where a figure is unknown or cannot be. ``groups`` are the
    columns in which many figures of a machine were changed, each with the effect of all of them.
    """
    findings, entries = list(found.findings), []
    effector = Effector(found.sent, headlines(found.before, evaluate(found.before)), found.findings)
    told = [one for one in found.changes if not one.is_ground]
    for index, change in enumerate(told):
        alone, why_not = None, ""
        if change.is_number and not change.is_left_out and index < MOST_ALONE:
            alone, why_not = effector.of([change], f"{change.what}:")
            if why_not and not barred(change, found.findings):
                findings.append(Finding(change.where, "range", f"{why_not}."))
        entries.append(_change_content(change, alone, why_not))
    together, why_not = effector.of(found.changes, "with all changes")
    if why_not and not any(one.kind == "range" for one in findings):
        findings.append(Finding(str(found.returned), "range", f"{why_not}."))
    return {
        "schema": "fomkit/review/1",
        "fomkit": __version__,
        "workbook": str(found.returned),
        "issued": str(found.issued),
        "caveats": [said for _, said in found.before.caveats],
        "threshold": found.before.threshold,
        "changes": entries,
        "groups": [_group_content(some, effector) for some in columns(told)],
        "together": together,
        "not_computed": why_not,
        "findings": [_finding_content(finding) for finding in findings],
    }
