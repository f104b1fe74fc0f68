"""What changes of a workbook do to its headlines: to the value, its interval and the chance of the threshold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from fomkit.errors import FomkitError
from fomkit.ledger import Ledger, Values, evaluate
from fomkit.spans import Span, probability_above
from fomkit.workbook.changes import Change, Finding, follow_ends
from fomkit.workbook.layout import GIVEN, OPS, WORKLOADS
from fomkit.workbook.read import Book
from fomkit.workbook.read_ledger import ledger_from

IMPOSSIBLE = (FomkitError, ArithmeticError, ValueError)
"""What figures that cannot be end in: divisions by 0, logarithms of negative numbers."""
BULK = 6
"""Changes of one column from which on they are told together."""
_ALIKE = (OPS.title, GIVEN.title, WORKLOADS.title)
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


def headlines(ledger: Ledger, values: Values) -> dict[str, Headline]:
    """Give the headlines that a change may move: FOM and units a day of the targets, else their steps."""
    found: dict[str, Headline] = {}
    for target in ledger.targets:
        if target in values.merits:
            span, bar = values.merits[target].value, ledger.threshold
            found[f"FOM of {target}"] = Headline(span, None if bar is None else probability_above(span, bar))
        for one in ledger.workloads:
            rate, case = values.unit_per_day.get((one.name, target)), values.cases.get((one.name, target))
            if rate is not None:
                found[f"units/day of {one.name} on {target}"] = Headline(rate)
            elif case is not None:
                found[f"steps/s of {one.name} on {target}"] = Headline(case.step.wall_s.per(1.0))
    return found


def with_changes(issued: Book, some: Iterable[Change]) -> Book:
    """Give the issued workbook with some changes; those that are left out of everything are not among them."""
    book = issued
    for change in (one for one in some if not one.is_left_out):
        book = book.with_entry(change.title, change.index, change.key, change.new)
    return follow_ends(issued, book)


def _is_moved(old: Headline, new: Headline) -> bool:
    return any(abs(now - was) > _NEAR * abs(was) for was, now in zip(old.figures, new.figures, strict=True))


def _effects(before: Mapping[str, Headline], ledger: Ledger) -> Effects:
    after = headlines(ledger, evaluate(ledger))
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
    if not any(one.kind == "range" and one.where == change.where for one in findings):
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
        known = [one for one in some if not (one.is_left_out or one.is_idle)]
        impossible = [one for one in some if not one.is_left_out and barred(one, self.findings)]
        if impossible and len(some) == 1:
            return None, barred(impossible[0], self.findings)
        if impossible:
            return None, f"{', '.join(dict.fromkeys(one.where for one in impossible))} cannot be"
        try:
            return _effects(self.before, ledger_from(with_changes(self.sent, known))), ""
        except IMPOSSIBLE as error:
            return None, f"{name} nothing can be computed ({error})"


def columns(changed: Iterable[Change]) -> Iterator[list[Change]]:
    """Walk over the changes of one machine in one column, where they are many."""
    alike: dict[tuple[str, str, str], list[Change]] = {}
    for one in changed:
        if one.title in _ALIKE:
            alike.setdefault((one.title, one.machine, one.key), []).append(one)
    yield from (some for some in alike.values() if len(some) >= BULK)
