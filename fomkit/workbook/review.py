"""Compare a returned workbook with the issued one, and make a machine profile from the vendor's figures."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict

import pandas as pd

from fomkit import __version__
from fomkit.core.errors import FomkitError, Shown
from fomkit.core.machine import Device, Machine, Party
from fomkit.ops.kinds import PASS_FREE_KINDS, UNNAMED_KINDS
from fomkit.plan.content import as_content
from fomkit.prediction.rates import FITTED
from fomkit.profiles.plausibility import check_facts
from fomkit.workbook import changes
from fomkit.workbook.changes import Change, Effector, Effects, Finding, follow_ends, with_changes
from fomkit.workbook.from_studies import ROUND
from fomkit.workbook.layout import FACTS, GIVEN, INPUT_TABLES, JOBS, OPS, UNKNOWN
from fomkit.workbook.read import FOLLOWS, Book, read_book
from fomkit.workbook.read_sheet_model import sheet_model_from
from fomkit.workbook.records import OpLine, SheetModel, op_time
from fomkit.workbook.tampering import appearance, tampering
from fomkit.workbook.vendor import BASELINE

VENDOR: Party = "vendor"


@dataclass(frozen=True, repr=False)
class Review(Shown):
    """A returned workbook compared with the issued one: the inputs as issued, and with all changes."""

    returned: Path
    issued: Path
    sent: Book
    before: SheetModel
    after: SheetModel
    changes: tuple[Change, ...]
    findings: tuple[Finding, ...]


def changed_machine(found: Review) -> str:
    """Return the target whose facts or ops were changed; the first target where nothing was."""
    rows = {title: found.sent.tables[title].entries for title in (FACTS.title, OPS.title)}
    names = {str(rows[change.title][change.index]["machine"]) for change in found.changes if change.title in rows}
    own = sorted(name for name in names if name not in found.before.targets or name == BASELINE)
    if own:
        message = "which is not a target. Nothing is stored. Ask the vendor for its rows as issued."
        raise FomkitError(str(found.returned), f"changes {', '.join(own)}, {message}")
    if len(names) > 1:
        message = f"changes several machines: {', '.join(sorted(names))}. Change one; send others their own."
        raise FomkitError(str(found.returned), message)
    name = names.pop() if names else found.before.targets[0]
    if name == BASELINE:
        raise FomkitError(str(found.returned), f"rates a machine called {BASELINE!r}, which cannot be stored.")
    return name


def _is_recorded(change: Change) -> bool:
    return change.title in (FACTS.title, OPS.title) and not (change.is_condition or change.is_ignored)


def not_recorded(found: Review, base: Machine | None) -> list[str]:
    """Return messages about what a machine profile cannot hold, or, without a ``base`` to keep them, does not."""
    own = [change for change in found.changes if not (change.is_ground or _is_recorded(change))]
    given, jobs = (sum(one.title == table.title and not one.is_ignored for one in own) for table in (GIVEN, JOBS))
    others = len(own) - given - jobs
    kept = "links, energy, price and timings; put the profile of the machine into ./machine_profiles to keep them"
    lone = [f"not stored: {kept}"] if base is None and any(map(_is_recorded, found.changes)) else []
    return lone + [
        f"not stored: {count} change{'s' * (count > 1)} of {what}"
        for count, what in (
            (given, "given times; they belong in the suite"),
            (jobs, "terms of runs on many devices; they follow from links and layouts"),
            (others, "conditions; they are the same for all vendors"),
        )
        if count
    ]


def _stated_device(after: Device, before: Device, facts: bool) -> Device:
    """Leave out rates that were fitted to a table, unless they were changed."""
    fitted = {(peak.dtype, peak.engine): peak.rate.value for peak in before.peaks if peak.rate.source == FITTED}
    peaks = tuple(peak for peak in after.peaks if fitted.get((peak.dtype, peak.engine)) != peak.rate.value)
    bandwidth = after.byte_per_s
    if facts and bandwidth is not None and bandwidth.source == FITTED and bandwidth == before.byte_per_s:
        bandwidth = None
    return replace(after, peaks=peaks, byte_per_s=bandwidth)


def _changed_ops(found: Review, machine: str) -> Iterator[tuple[OpLine, Change]]:
    lines = [(case, line) for case in found.after.cases for line in case.ops]
    seen = set()
    for change in found.changes:
        if change.title == OPS.title and change.key in ("utilisation", "time") and change.index not in seen:
            seen.add(change.index)
            case, line = lines[change.index]
            if case.machine == machine:
                yield line, change


def _timing_row(line: OpLine, time_s: float, basis: str, party: str, note: str) -> dict[str, object]:
    return {
        "kind": line.kind, "op": "" if line.kind in UNNAMED_KINDS else line.op,
        "pass_name": "" if line.kind in PASS_FREE_KINDS else line.pass_name, "dtype": line.dtype,
        "engine": line.engine, **dict(line.dimensions), "time_s": time_s, "harness": "", "basis": basis,
        "party": party, "note": note,
    }  # fmt: skip


def _unchanged_timings(found: Review, machine: str, party: Party) -> Iterator[dict[str, object]]:
    """Yield timings of the unchanged measured ops: they are inputs of the workbook and do not follow the facts."""
    changed = {id(line) for line, _ in _changed_ops(found, machine)}
    for case in found.after.cases:
        for line in case.ops:
            measured = case.machine == machine and line.time_source == "measured" and id(line) not in changed
            if measured and line.time_s is not None:
                yield _timing_row(line, line.time_s, "measured", party, line.evidence)


def _note_on(change: Change, number: int) -> str:
    ground = ", ".join(word for word in (change.basis, change.party, change.source) if word)
    old, new = (
        f"{entry:.6g}" if isinstance(entry, float) else UNKNOWN if entry is None else str(entry)
        for entry in (change.old, change.new)
    )
    moved = f"{old} → {new} {change.unit}".rstrip()
    return f"{ROUND}{number}: {change.where}, {change.what}: {moved} ({ground})"


def round_machine(found: Review, base: Machine | None) -> Machine:
    """Return the changed machine with the vendor's figures.

    Its facts are those of the returned workbook; each op whose time was stated becomes a timing with
    ``party: vendor``. If facts of a machine with a timing table were changed, the table still belongs to the
    machine as built (``origin``): measured ops keep their times and all others their utilisation, as in the
    workbook. Every change becomes a note, which the next workbook shows under History.

    `base`: the machine's own profile with its timing table, where there is one.
    """
    name = changed_machine(found)
    facts, before = found.after.machine(name), found.before.machine(name)
    old = base if base is not None else replace(facts, notes=())
    device = _stated_device(facts.device, before.device, base is None or not len(base.timings))
    rows = []
    for line, change in _changed_ops(found, name):
        span = op_time(line, facts.device, found.after.level)
        time_s, note = math.nan if span is None else span.value, f"{change.where}: {change.source}"
        rows.append(_timing_row(line, time_s, change.basis, VENDOR, note))
    origin = None
    if base is not None and len(base.timings) and (base.origin is not None or device != base.device):
        origin = base.origin or base.device
        known = [] if base.origin is not None else _unchanged_timings(found, name, base.party)
        rows = [*known, *rows]
    earlier = [note for note in old.notes if note.startswith(ROUND)]
    number = 1 + max((int(note[len(ROUND) :].partition(":")[0]) for note in earlier), default=0)
    notes = [_note_on(change, number) for change in found.changes if _is_recorded(change) and not change.is_ground]
    timings = pd.concat([old.timings, pd.DataFrame(rows)], ignore_index=True) if rows else old.timings
    return replace(
        old.with_timings(timings), party=VENDOR, device=device, origin=origin, node_devices=facts.node_devices,
        system_nodes=facts.system_nodes, availability=facts.availability, overheads=facts.overheads,
        notes=(*old.notes, *notes),
    )  # fmt: skip


MOST_ALONE = 200
"""Largest number of changes whose effect is computed one by one."""


def _facts_of(sheet_model: SheetModel) -> dict[str, tuple[str, ...]]:
    """Return for each machine the facts that are implausible together."""
    found = {}
    for machine in sheet_model.machines:
        try:
            found[machine.name] = check_facts(machine.device, machine.name, machine.links)
        except FomkitError as error:
            found[machine.name] = (error.what,)
    return found


def _implausible(before: SheetModel, after: SheetModel) -> list[Finding]:
    """Return findings about facts that became implausible by the changes."""
    old = _facts_of(before)
    return [
        Finding(f"facts of {name}", "plausibility", f"{text[:1].upper()}{text[1:]}.".replace("..", "."))
        for name, texts in _facts_of(after).items()
        for text in texts
        if text not in old.get(name, ())
    ]


def review(returned: Path, issued: Path) -> Review:
    """Compare a returned workbook with the issued one."""
    sent, back = read_book(issued), read_book(returned)
    changed = tuple(changes.changes(sent, back))
    back.check()
    before, book = sheet_model_from(sent), with_changes(sent, changed)
    after = sheet_model_from(book)
    findings = [*tampering(sent, back, is_unchanged=not changed), *appearance(sent, back)]
    findings += changes.validate(changed, sent, follow_ends(sent, back))
    findings += [*_implausible(before, after), *changes.sparse_peaks(changed, book)]
    findings += changes.above_peak(changed, after, sent.tables[OPS.title].first)
    return Review(returned, issued, sent, before, after, changed, tuple(findings))


Changed = TypedDict("Changed", {
    "where": str, "what": str, "unit": str, "old": object, "new": object, "basis": str, "party": str,
    "source": str, "alone": Effects | None, "not_computed": str, "moves_nothing": bool,
})  # fmt: skip
Move = TypedDict("Move", {"old": str, "new": str, "count": int})
Group = TypedDict("Group", {
    "sheet": str, "machine": str, "column": str, "where": list[str], "count": int, "factor_low": float | None,
    "factor_high": float | None, "basis": list[Move], "party": list[Move], "sources": list[str],
    "alone": Effects | None, "not_computed": str, "moves_nothing": bool,
})  # fmt: skip
FindingContent = TypedDict("FindingContent", {"where": str, "kind": str, "said": str})
ReviewContent = TypedDict("ReviewContent", {
    "schema": str, "fomkit": str, "workbook": str, "issued": str, "caveats": list[str], "threshold": float | None,
    "changes": list[Changed], "groups": list[Group], "together": Effects | None, "not_computed": str,
    "findings": list[FindingContent],
})  # fmt: skip


def _moves(pairs: Sequence[tuple[str, str]]) -> list[Move]:
    """Count pairs of old and new entries, the most frequent first."""
    return [{"old": old, "new": new, "count": count} for (old, new), count in Counter(pairs).most_common()]


def _group_content(some: Sequence[Change], effector: Effector) -> Group:
    """Summarise the changes of one column: their number, factors, basis, party and sources, and their effect."""
    pairs = ((one.old, one.new) for one in some)
    ratios = [new / old for old, new in pairs if isinstance(old, float) and isinstance(new, float) and old]
    table = next(table for table in INPUT_TABLES if table.title == some[0].title)
    header = next(column.header for column in table.columns if column.key == some[0].key)
    is_computed = some[0].is_number and not some[0].is_ignored
    alone, why_not = effector.of(some, "with this column") if is_computed else (None, "")
    return {
        "sheet": table.sheet, "machine": some[0].machine, "column": header, "where": [one.where for one in some],
        "count": len(some), "factor_low": min(ratios, default=None), "factor_high": max(ratios, default=None),
        "basis": _moves([(one.was_basis, one.basis) for one in some]),
        "party": _moves([(one.was_party, one.party) for one in some]),
        "sources": list(dict.fromkeys(one.source for one in some if one.source)), "alone": alone,
        "not_computed": why_not, "moves_nothing": all(one.is_idle for one in some) and not some[0].is_ignored,
    }  # fmt: skip


def review_content(found: Review) -> ReviewContent:
    """Convert a review to ``fomkit/review/1``: each change with its effect alone, and the effect of all together.

    An effect is None, with the reason in ``not_computed``, where a figure is unknown or impossible. ``groups`` are
    columns in which many figures of a machine were changed, each with the effect of all of them.
    """
    findings, entries = list(found.findings), list[Changed]()
    effector = Effector(found.sent, found.before, found.findings)
    figures = [change for change in found.changes if not change.is_ground]
    for index, change in enumerate(figures):
        alone, why_not = None, ""
        if change.is_number and not change.is_ignored and index < MOST_ALONE:
            alone, why_not = effector.of([change], f"{change.what}:")
            if why_not and not effector.barred(change):
                findings.append(Finding(change.where, "range", f"{why_not}."))
        words: dict[object, object] = {None: UNKNOWN, FOLLOWS: "the value"}
        entry = as_content(
            Changed, change, old=words.get(change.old, change.old), new=words.get(change.new, change.new),
            alone=alone, not_computed=why_not, moves_nothing=change.is_idle and not change.is_ignored,
        )  # fmt: skip
        entries.append(entry)
    together, why_not = effector.of(found.changes, "with all changes")
    if why_not and not any(finding.kind == "range" for finding in findings):
        findings.append(Finding(str(found.returned), "range", f"{why_not}."))
    return as_content(
        ReviewContent, found.before, schema="fomkit/review/1", fomkit=__version__, workbook=str(found.returned),
        issued=str(found.issued), caveats=[message for _, message in found.before.caveats], changes=entries,
        groups=[_group_content(some, effector) for some in changes.columns(figures)], together=together,
        not_computed=why_not, findings=[as_content(FindingContent, one, said=one.message) for one in findings],
    )  # fmt: skip
