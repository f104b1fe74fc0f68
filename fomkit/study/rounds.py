"""What a review keeps: the vendor's figures as a machine profile, and the round in its notes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fomkit.errors import FomkitError
from fomkit.hardware import Device, Machine, Party
from fomkit.ledger import Ledger, OpLine
from fomkit.ledger.op_times import op_time
from fomkit.predict.engines import ARITHMETIC_KINDS
from fomkit.predict.estimates import PASS_FREE
from fomkit.predict.rates import FITTED
from fomkit.shown import Shown
from fomkit.study.ledger_of import ROUND
from fomkit.workbook.changes import Change, Finding
from fomkit.workbook.for_target import BASELINE
from fomkit.workbook.layout import FACTS, GIVEN, OPS, UNKNOWN
from fomkit.workbook.read import Book

_ANY_NAME = (*ARITHMETIC_KINDS, "collective", "optimizer")
VENDOR: Party = "vendor"


@dataclass(frozen=True)
class Review(Shown):
    """A returned workbook compared with the one that was sent.

    Attributes
    ----------
    sent : Book
        The workbook that was sent.
    before, after : Ledger
        Its ledger as sent, and with all changes.
    """

    returned: Path
    issued: Path
    sent: Book
    before: Ledger
    after: Ledger
    changes: tuple[Change, ...]
    findings: tuple[Finding, ...]

    def summary(self) -> str:
        """Write it as the text that the command line prints."""
        return self._view.text(self)


def changed_machine(found: Review) -> str:
    """Name the target whose facts or ops were changed; the first target where nothing was.

    Raises
    ------
    FomkitError
        When the changes are about several machines, or about one that is no target.
    """
    rows = {title: found.sent.tables[title].entries for title in (FACTS.title, OPS.title)}
    names = {str(rows[one.title][one.index]["machine"]) for one in found.changes if one.title in rows}
    own = sorted(name for name in names if name not in found.before.targets or name == BASELINE)
    if own:
        raise FomkitError(
            str(found.returned),
            f"changes {', '.join(own)}, which is no target. Nothing is kept. Ask for its rows as issued.",
        )
    if len(names) > 1:
        listed = ", ".join(sorted(names))
        raise FomkitError(
            str(found.returned), f"changes several machines: {listed}. Keep one; send others their own."
        )
    name = names.pop() if names else found.before.targets[0]
    if name == BASELINE:
        raise FomkitError(str(found.returned), f"rates a machine called {BASELINE!r}, of which nothing is kept.")
    return name


def _is_kept(change: Change) -> bool:
    return change.title in (FACTS.title, OPS.title) and not (change.is_condition or change.is_left_out)


def not_kept(found: Review) -> list[str]:
    """Say which changes have no place in a machine profile."""
    own = [one for one in found.changes if not (one.is_ground or _is_kept(one))]
    given = sum(one.title == GIVEN.title and not one.is_left_out for one in own)
    others = len(own) - given
    said = []
    if given:
        said.append(f"not kept: {given} change{'s' * (given > 1)} of given times; they belong in the suite")
    if others:
        said.append(
            f"not kept: {others} change{'s' * (others > 1)} of conditions; they are the same for everybody"
        )
    return said


def _stated(after: Device, before: Device, facts: bool) -> Device:
    """Leave out the rates that were fitted to a table, unless somebody changed them."""
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


def _timing(line: OpLine, change: Change, device: Device, level: float) -> dict[str, Any]:
    span = op_time(line, device, level)
    time_s = float("nan") if span is None else span.value
    return _row(line, time_s, change.basis, VENDOR, f"{change.where}: {change.source}")


def _row(line: OpLine, time_s: float, basis: str, party: str, note: str) -> dict[str, Any]:
    return {
        "kind": line.kind,
        "op": "" if line.kind in _ANY_NAME else line.op,
        "pass_name": "" if line.kind in PASS_FREE else line.pass_name,
        "dtype": line.dtype,
        "engine": line.engine,
        **dict(line.dimensions),
        "time_s": time_s,
        "harness": "",
        "basis": basis,
        "party": party,
        "note": note,
    }


def _untouched(found: Review, machine: str, party: Party) -> Iterator[dict[str, Any]]:
    """Give the measured ops that nobody changed: inputs of the workbook, which do not move with the facts."""
    changed = {id(line) for line, _ in _changed_ops(found, machine)}
    for case in found.after.cases:
        for line in case.ops:
            measured = case.machine == machine and line.time_source == "measured" and id(line) not in changed
            if measured and line.time_s is not None:
                yield _row(line, line.time_s, "measured", party, line.evidence)


def _number(entry: object) -> str:
    return f"{entry:.6g}" if isinstance(entry, float) else UNKNOWN if entry is None else str(entry)


def _note(change: Change, number: int) -> str:
    ground = ", ".join(word for word in (change.basis, change.party, change.source) if word)
    moved = f"{_number(change.old)} → {_number(change.new)} {change.unit}".rstrip()
    return f"{ROUND}{number}: {change.where}, {change.what}: {moved} ({ground})"


def round_machine(found: Review, base: Machine | None) -> Machine:
    """Give the changed machine with the vendor's figures.

    Its facts are those of the returned workbook; each op whose time was stated is a timing that says
    ``party: vendor``. Where facts of a machine with a table were changed, the table stays that of the machine as
    built (``origin``): measured ops keep their times and all others their utilisation, as in the workbook. Every
    change is a note, which the next workbook shows under History.

    Parameters
    ----------
    base : Machine or None
        The machine's own profile with its table of timings, where there is one.
    """
    import pandas as pd

    name = changed_machine(found)
    facts, before = found.after.machine(name), found.before.machine(name)
    old = base if base is not None else replace(facts, notes=())
    device = _stated(facts.device, before.device, base is None or not len(base.timings))
    rows = [_timing(line, change, facts.device, found.after.level) for line, change in _changed_ops(found, name)]
    origin = None
    if base is not None and len(base.timings) and (base.origin is not None or device != base.device):
        origin = base.origin or base.device
        known = [] if base.origin is not None else _untouched(found, name, base.party)
        rows = [*known, *rows]
    earlier = [note for note in old.notes if note.startswith(ROUND)]
    number = 1 + max((int(note[len(ROUND) :].partition(":")[0]) for note in earlier), default=0)
    notes = [_note(change, number) for change in found.changes if _is_kept(change) and not change.is_ground]
    return replace(
        old,
        party=VENDOR,
        device=device,
        origin=origin,
        node_devices=facts.node_devices,
        system_nodes=facts.system_nodes,
        availability=facts.availability,
        overheads=facts.overheads,
        timings=pd.concat([old.timings, pd.DataFrame(rows)], ignore_index=True) if rows else old.timings,
        fits={},
        timings_key="",
        notes=(*old.notes, *notes),
    )
