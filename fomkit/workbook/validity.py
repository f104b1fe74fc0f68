"""Whether a changed figure can be: its range, its unit, its ground, and whether it beats the stated peak.

What changes of a workbook do to its headlines: to the value, its interval and the chance of the threshold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span, probability_above
from fomkit.ops.tables import BASES
from fomkit.workbook.changes import Change, Finding, follow_ends
from fomkit.workbook.layout import FACTS, GIVEN, OPS, WORKLOADS
from fomkit.workbook.read import LEADERS, Book, Entry
from fomkit.workbook.read_sheet_model import sheet_model_from
from fomkit.workbook.records import SheetModel, Values, evaluate, floor_s, op_time

_OTHER_UNIT = 100.0
"""A figure so many times the one issued is likely in another unit."""
_NO_UNIT = 1e6
"""A figure so many times the one issued is in no unit at all."""
_SMALLEST, _LARGEST = 1e-18, 1e24
"""Figures that no machine has in the unit of any sheet."""
_WHOLE = ("devices per node", "nodes")
_WHOLE_KEYS = ("batch", "train", "validation", "epochs", "devices")
_GROUND = ("basis", "party")
PARTIES = ("lab", "vendor", "published")


def _whole(change: Change, row: Mapping[str, Entry]) -> bool:
    return change.key in _WHOLE_KEYS or (change.title == FACTS.title and row.get("fact") in _WHOLE)


def _range(change: Change, row: Mapping[str, Entry]) -> Iterator[str]:
    new = change.new
    if not isinstance(new, float):
        if isinstance(change.old, float):
            yield "was a figure and is unknown now"
        return
    if new <= 0:
        yield f"is {new:g}, and more than 0 was expected"
    elif not _SMALLEST <= new <= _LARGEST:
        yield f"is {new:g}, which is no figure of a machine"
    elif isinstance(change.old, float) and change.old > 0 and not 1 / _NO_UNIT < new / change.old < _NO_UNIT:
        yield f"is {new:g}, and {change.old:g} was issued: no unit is so different"
    if _whole(change, row) and not new.is_integer():
        yield f"is {new:g}, and a whole number was expected"
    if row.get("fact") in ("availability", "overhead share") and new > 1:
        yield f"is {new:g}, and a share up to 1 was expected"


def _order(change: Change, row: Mapping[str, Entry]) -> Iterator[str]:
    value: Entry = 1.0 if change.title == OPS.title else row.get(LEADERS.get(change.title, ""))
    if change.key not in ("value", "hours", "low", "high") or not isinstance(value, float):
        return
    low, high = (end if isinstance(end := row.get(key), float) else value for key in ("low", "high"))
    if not low <= value <= high:
        yield f"the interval {low:g} … {high:g} does not hold the value {value:g}"


def _unit(change: Change, row: Mapping[str, Entry]) -> Iterator[str]:
    if isinstance(change.old, float) and isinstance(change.new, float) and change.old > 0 and change.new > 0:
        factor = change.new / change.old
        if not 1 / _OTHER_UNIT < factor < _OTHER_UNIT:
            unit = f" is in {row.get('unit')} and" if row.get("unit") else ""
            yield f"the cell{unit} was {change.old:g}; {change.new:g} is {factor:.3g} times that. Check the unit"


def _ground(change: Change, was: Mapping[str, Entry], row: Mapping[str, Entry]) -> Iterator[str]:
    if change.title not in (FACTS.title, GIVEN.title, OPS.title) or change.is_condition:
        return
    if change.basis not in BASES:
        yield f"its basis is {change.basis!r}. One of {', '.join(BASES)} was expected"
    if change.party not in PARTIES:
        yield f"its party is {change.party!r}. One of {', '.join(PARTIES)} was expected"
    if all(was.get(key) == row.get(key) for key in ("basis", "party", "source", "evidence")):
        yield "the figure was changed, and basis, party and source were not"


def _evidence(change: Change) -> str:
    """Ask for evidence where a changed figure is called measured; "" elsewhere."""
    if (
        change.basis != "measured"
        or change.is_condition
        or change.title not in (FACTS.title, GIVEN.title, OPS.title)
    ):
        return ""
    was = "and was issued so" if change.was_basis == "measured" else f"and was {change.was_basis or 'of no basis'}"
    message = "a changed figure is labelled measured"
    return f"{change.what}: {message}, {was}. Ask for the measurement: its log, date and software."


def _alone(change: Change) -> Iterator[Finding]:
    """Tell of words that were changed without the figure that they are about."""
    if change.key in _GROUND:
        message = f"was {change.old or 'empty'!r}, is {change.new or 'empty'!r}, but no figure changed. Ask why."
        yield Finding(change.where, "basis", f"{change.what}: {message}")


def validate(changed: Sequence[Change], issued: Book, returned: Book) -> Iterator[Finding]:
    """Walk over what is wrong with, or unsaid of, the changes."""
    reported = set()
    for change in changed:
        if change.is_condition:
            effect = "; it is left out" if change.is_ignored else ""
            message = f"{change.what} is set for everybody; a change is a deviation{effect}."
            yield Finding(change.where, "condition", message)
        elif not (change.is_number or change.is_ground):
            yield from _alone(change)
        if not change.is_number or change.is_ignored:
            continue
        if (message := _evidence(change)) and (change.title, change.index) not in reported:
            reported.add((change.title, change.index))
            yield Finding(change.where, "evidence", message)
        row = returned.tables[change.title].entries[change.index]
        was = issued.tables[change.title].entries[change.index]
        for kind, found in (
            ("range", [*_range(change, row), *_order(change, row)]),
            ("unit", _unit(change, row)),
            ("basis", _ground(change, was, row)),
        ):
            for message in found:
                yield Finding(change.where, kind, f"{change.what}: {message}.")


def above_peak(changed: Sequence[Change], sheet_model: SheetModel, first: int) -> Iterator[Finding]:
    """Walk over changed ops that are faster than the stated rates allow.

    `sheet_model`: with all changes; `first`: number of the first row of ops.
    """
    touched = {change.index for change in changed if change.title == OPS.title}
    index = 0
    for case in sheet_model.cases:
        device = sheet_model.machine(case.machine).device
        for line in case.ops:
            span = op_time(line, device, sheet_model.level) if index in touched else None
            floor = floor_s(line, device)
            if span is not None and span.value < floor:
                message = (
                    f"{case.workload} on {case.machine}, {line.sizes}: {floor / span.value:.2f} times as fast as "
                )
                where = f"Ops!{OPS.letter('utilisation')}{first + index}"
                yield Finding(where, "above peak", f"{message}the stated peak and bandwidth allow. Say why.")
            index += 1


IMPOSSIBLE = (FomkitError, ArithmeticError, ValueError)
"""What figures that cannot be end in: divisions by 0, logarithms of negative numbers."""
BULK = 6
"""Changes of one column from which on they are told together."""
_ROW_TABLES = (OPS.title, GIVEN.title, WORKLOADS.title)
"""Tables whose rows are alike; each fact of a machine is a thing of its own."""
_NEAR = 1e-12
Effects = list[dict[str, Any]]


@dataclass(frozen=True)
class Headline:
    """A figure with its interval, and of a figure of merit the chance of reaching the threshold."""

    span: Span
    probability: float | None = None

    @property
    def figures(self) -> tuple[float, ...]:
        """Everything that a change may move."""
        return (*self.span.ends, *(() if self.probability is None else (self.probability,)))


def headlines(sheet_model: SheetModel, values: Values) -> dict[str, Headline]:
    """Give the headlines that a change may move: FOM and units a day of the targets, else their steps."""
    found: dict[str, Headline] = {}
    for target in sheet_model.targets:
        if target in values.merits:
            span, bar = values.merits[target].value, sheet_model.threshold
            found[f"FOM of {target}"] = Headline(span, None if bar is None else probability_above(span, bar))
        for workload in sheet_model.workloads:
            rate, case = (
                values.unit_per_day.get((workload.name, target)),
                values.cases.get((workload.name, target)),
            )
            if rate is not None:
                found[f"units/day of {workload.name} on {target}"] = Headline(rate)
            elif case is not None:
                found[f"steps/s of {workload.name} on {target}"] = Headline(case.step.wall_s.per(1.0))
    return found


def with_changes(issued: Book, some: Iterable[Change]) -> Book:
    """Give the issued workbook with some changes; those that are left out of everything are not among them."""
    book = issued
    for change in (one for one in some if not one.is_ignored):
        book = book.with_entry(change.title, change.index, change.key, change.new)
    return follow_ends(issued, book)


def _is_moved(old: Headline, new: Headline) -> bool:
    return any(abs(now - was) > _NEAR * abs(was) for was, now in zip(old.figures, new.figures, strict=True))


def _effects(before: Mapping[str, Headline], sheet_model: SheetModel) -> Effects:
    after = headlines(sheet_model, evaluate(sheet_model))
    for name, old in before.items():
        now = after[name].figures if name in after else (float("nan"),)
        if all(map(isfinite, old.figures)) and not all(map(isfinite, now)):
            raise ValueError(f"{name} would be no number")
    return [
        {
            "figure": name,
            "old": old.span.value,
            "new": new.span.value,
            "change": new.span.value / old.span.value - 1,
            "old_low": old.span.low,
            "old_high": old.span.high,
            "new_low": new.span.low,
            "new_high": new.span.high,
            "old_probability": old.probability,
            "new_probability": new.probability,
        }
        for name, old in before.items()
        if (new := after.get(name)) is not None and _is_moved(old, new)
    ]


def barred(change: Change, findings: Sequence[Finding]) -> str:
    """Say why nothing can be computed with a change; "" where it can."""
    if not any(finding.kind == "range" and finding.where == change.where for finding in findings):
        return ""
    return f"{change.what} is {'unknown' if change.new is None else 'impossible'}"


@dataclass(frozen=True)
class Effector:
    """The headlines of an issued workbook, and what changes do to them."""

    sent: Book
    before: Mapping[str, Headline]
    findings: Sequence[Finding]

    def of(self, some: Sequence[Change], name: str) -> tuple[Effects | None, str]:
        """Give the effects of some changes together, or why there are none; idle cells move nothing."""
        known = [one for one in some if not (one.is_ignored or one.is_idle)]
        impossible = [one for one in some if not one.is_ignored and barred(one, self.findings)]
        if impossible and len(some) == 1:
            return None, barred(impossible[0], self.findings)
        if impossible:
            return None, f"{', '.join(dict.fromkeys(one.where for one in impossible))} cannot be"
        try:
            return _effects(self.before, sheet_model_from(with_changes(self.sent, known))), ""
        except IMPOSSIBLE as error:
            return None, f"{name} nothing can be computed ({error})"


def columns(changed: Iterable[Change]) -> Iterator[list[Change]]:
    """Walk over the changes of one machine in one column, where they are many."""
    similar: dict[tuple[str, str, str], list[Change]] = {}
    for one in changed:
        if one.title in _ROW_TABLES:
            similar.setdefault((one.title, one.machine, one.key), []).append(one)
    yield from (some for some in similar.values() if len(some) >= BULK)
