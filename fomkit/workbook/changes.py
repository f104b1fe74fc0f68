"""Find what was changed in a workbook's inputs, check each change, and compute its effect on the headlines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import isfinite
from typing import TypedDict, get_args

from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span, probability_above
from fomkit.core.machine import Party
from fomkit.core.units import by_key
from fomkit.ops.tables import BASES
from fomkit.workbook.layout import ASSUMPTIONS, FACTS, GIVEN, INPUT_TABLES, JOBS, OPS, WORKLOADS, Table
from fomkit.workbook.read import FOLLOWS, LEADERS, Book, Entry, Place, Rows
from fomkit.workbook.read_sheet_model import sheet_model_from
from fomkit.workbook.records import SheetModel, Values, case_name, evaluate, floor_s, op_time

IDENTITY = {
    FACTS.title: ("machine", "fact"),
    WORKLOADS.title: ("workload",),
    GIVEN.title: ("workload", "machine"),
    JOBS.title: ("workload", "machine"),
    OPS.title: ("workload", "machine", "op", "sizes", "pass_name"),
    ASSUMPTIONS.title: ("name",),
}
"""Columns that identify a row; a row in which they differ was moved."""
_NEAR = 1e-12
Row = Mapping[str, Entry]


@dataclass(frozen=True)
class Change:
    """One input that differs from the issued one.

    `index`, `key`: its row and column in the table.
    `what`, `unit`: the names of row and column; the unit where it is beside the figure.
    `basis`, `party`, `source`: those of the row in the returned workbook.
    `is_ground`: true for a text (basis, party, source) changed with a figure of the same row; such a text alone is
      a change of its own.
    `is_ignored`: true for choices of the whole workbook and rows of machines that are no targets: they are not
      used in any computation.
    `is_idle`: true where no headline of the issued workbook depends on the cell: it is kept, without effect.
    `machine`, `was_basis`, `was_party`: the row's machine; its basis and party as issued.
    """

    title: str
    index: int
    key: str
    where: str
    what: str
    unit: str
    old: Entry
    new: Entry
    is_number: bool
    is_condition: bool
    basis: str
    party: str
    source: str
    is_ground: bool = False
    is_ignored: bool = False
    is_idle: bool = False
    machine: str = ""
    was_basis: str = ""
    was_party: str = ""


@dataclass(frozen=True)
class Finding:
    """Something to discuss with the vendor: the place, the kind, and a message."""

    where: str
    kind: str
    message: str


def same_entry(old: Entry, new: Entry) -> bool:
    """Return whether two entries are equal, up to rounding; an empty text equals no text."""
    if isinstance(old, float) and isinstance(new, float):
        return abs(old - new) <= _NEAR * max(abs(old), abs(new))
    return old == new or {old, new} == {None, ""}


def row_name(table: Table, row: Row) -> str:
    """Return the name of a row, from its identifying columns."""
    keys = (*IDENTITY[table.title], *(("what", "where") if table is FACTS else ()))
    return " ".join(str(row[key]) for key in keys if row.get(key) not in (None, ""))


def _check_places(issued: Book, returned: Book, table: Table) -> None:
    old, new = issued.rows(table), returned.rows(table)
    first = issued.tables[table.title].first if table.title in issued.tables else 0
    for index, (was, now) in enumerate(zip(old, new, strict=False)):
        for key in IDENTITY[table.title]:
            if was.get(key) != now.get(key):
                raise FomkitError(
                    f"{returned.path}, sheet {table.sheet}, cell {table.letter(key)}{first + index}",
                    f"{now.get(key)!r} is found, {was.get(key)!r} was issued. Leave rows in their places.",
                )
    if len(old) != len(new):
        raise FomkitError(
            f"{returned.path}, sheet {table.sheet}",
            f"the table {table.title!r} has {len(new)} rows, {len(old)} were issued. Leave rows in their places.",
        )


def _entry_changes(
    rows: Rows, index: int, was: Row, now: Row, targets: frozenset[Entry], moving: frozenset[Place]
) -> Iterator[Change]:
    table = rows.table
    is_foreign = "machine" in was and was["machine"] not in targets
    unit, leader = str(now.get("unit") or "") if table is FACTS else "", LEADERS.get(table.title, "")
    for column in table.columns:
        if column.role not in ("input", "condition") or same_entry(was.get(column.key), now.get(column.key)):
            continue
        if table is OPS and column.key == "time" and was.get("utilisation") is not None:
            continue  # a number written over a formula, which `tampering` reports
        if was.get(column.key) == FOLLOWS and same_entry(now.get(column.key), now.get(leader)):
            continue
        is_number = table.is_number(column)
        yield Change(
            title=table.title, index=index, key=column.key,
            where=f"{table.sheet}!{rows.cell(index, column.key)}",
            what=row_name(table, now) + ("" if column.key == leader else f", {column.header}"),
            unit=unit if is_number and unit != "1" else "",  # plain counts have no unit
            old=was.get(column.key), new=now.get(column.key),
            is_number=is_number, is_condition=is_foreign or column.role == "condition",
            basis=str(now.get("basis") or ""), party=str(now.get("party") or ""),
            source=str(now.get("source") or now.get("evidence") or ""),
            is_ignored=is_foreign or table is ASSUMPTIONS,
            is_idle=is_number and bool(moving) and rows.place(index, column.key) not in moving,
            machine=str(was.get("machine") or ""), was_basis=str(was.get("basis") or ""),
            was_party=str(was.get("party") or ""),
        )  # fmt: skip


def follow_ends(issued: Book, changed: Book) -> Book:
    """Keep the ratio of a bound to a changed value, where the bound is as issued and no headline depends on it."""
    moving, rows = issued.moving, issued.tables[FACTS.title]
    for index, (was, now) in enumerate(zip(rows.entries, changed.rows(FACTS), strict=True)):
        old, new = was.get("value"), now.get("value")
        if not (isinstance(old, float) and isinstance(new, float)) or same_entry(old, new) or not old:
            continue
        for key in ("low", "high"):
            end = was.get(key)
            if not isinstance(end, float) or not same_entry(end, now.get(key)):
                continue
            if rows.place(index, key) not in moving:
                changed = changed.with_entry(FACTS.title, index, key, end * new / old)
    return changed


def changes(issued: Book, returned: Book) -> Iterator[Change]:
    """Yield the inputs and conditions that were changed."""
    moving = issued.moving
    for table in INPUT_TABLES:
        _check_places(issued, returned, table)
        if table.title not in issued.tables:
            continue
        rows = issued.tables[table.title]
        for index, (was, now) in enumerate(zip(rows.entries, returned.rows(table), strict=True)):
            found = list(_entry_changes(rows, index, was, now, issued.targets, moving))
            figures = any(one.is_number for one in found)
            yield from (replace(one, is_ground=figures and not one.is_number) for one in found)


_OTHER_UNIT = 100.0
"""A figure that differs by this factor is probably in another unit."""
_NO_UNIT = 1e6
"""A figure that differs by this factor cannot be right in any unit."""
_SMALLEST, _LARGEST = 1e-18, 1e24
"""Bounds of figures of machines, in the unit of any sheet."""
_WHOLE = ("devices per node", "nodes")
_WHOLE_KEYS = ("batch", "train", "validation", "epochs", "devices")
_MAY_BE_0 = ("exposed", "bubble", "beside", "rest")
"""Waiting times of a run on many devices, which may be 0."""
PARTIES = get_args(Party)
_GROUNDED = (FACTS.title, GIVEN.title, JOBS.title, OPS.title)
"""Tables whose figures have a basis, a party and a source."""


def _range_problems(change: Change, row: Row) -> Iterator[str]:
    new = change.new
    if not isinstance(new, float):
        if isinstance(change.old, float):
            yield "was a figure and is now unknown"
        return
    if new < 0 or (new == 0 and change.key not in _MAY_BE_0):
        yield f"is {new:g}, and more than 0 was expected"
    elif not _SMALLEST <= new <= _LARGEST:
        yield f"is {new:g}, which is impossible for a machine"
    elif isinstance(change.old, float) and change.old > 0 and not 1 / _NO_UNIT < new / change.old < _NO_UNIT:
        yield f"is {new:g}, and {change.old:g} was issued: no other unit explains that"
    whole = change.key in _WHOLE_KEYS or (change.title == FACTS.title and row.get("fact") in _WHOLE)
    if whole and not new.is_integer():
        yield f"is {new:g}, and a whole number was expected"
    if row.get("fact") in ("availability", "overhead share") and new > 1:
        yield f"is {new:g}, and a share up to 1 was expected"


def _interval_problems(change: Change, row: Row) -> Iterator[str]:
    value: Entry = 1.0 if change.title in (OPS.title, JOBS.title) else row.get(LEADERS.get(change.title, ""))
    if change.key not in ("value", "hours", "low", "high") or not isinstance(value, float):
        return
    low, high = (end if isinstance(end := row.get(key), float) else value for key in ("low", "high"))
    if not low <= value <= high:
        yield f"the interval {low:g} … {high:g} does not contain the value {value:g}"


def _unit_problems(change: Change, row: Row) -> Iterator[str]:
    if isinstance(change.old, float) and isinstance(change.new, float) and change.old > 0 and change.new > 0:
        factor = change.new / change.old
        if not 1 / _OTHER_UNIT < factor < _OTHER_UNIT:
            unit = f" is in {row.get('unit')} and" if row.get("unit") else ""
            yield f"the cell{unit} was {change.old:g}; {change.new:g} is {factor:.3g} times that. Check the unit"


def _basis_problems(change: Change, was: Row, row: Row) -> Iterator[str]:
    if change.title not in _GROUNDED or change.is_condition:
        return
    if change.basis not in BASES:
        yield f"its basis is {change.basis!r}. One of {', '.join(BASES)} was expected"
    if change.party not in PARTIES:
        yield f"its party is {change.party!r}. One of {', '.join(PARTIES)} was expected"
    if all(was.get(key) == row.get(key) for key in ("basis", "party", "source", "evidence")):
        yield "the figure was changed, and basis, party and source were not"


def _evidence_wanted(change: Change) -> str:
    """Return a request for evidence where a changed figure is called measured; "" elsewhere."""
    if change.basis != "measured" or change.is_condition or change.title not in _GROUNDED:
        return ""
    was = "as issued" if change.was_basis == "measured" else f"but was {change.was_basis or 'without a basis'}"
    message = "a changed figure is labelled measured"
    return f"{change.what}: {message}, {was}. Ask for the measurement: its log, date and software."


def validate(changed: Sequence[Change], issued: Book, returned: Book) -> Iterator[Finding]:
    """Yield findings about changes that are invalid or lack a basis, a party or a source."""
    reported = set()
    for change in changed:
        if change.is_condition:
            effect = "; it is ignored" if change.is_ignored else ""
            if change.key == "batch" and not change.is_ignored:
                effect = "; the work of its ops stays that of the issued batch, so its effect is not real"
            message = f"{change.what} is fixed for all vendors; a change is a deviation{effect}."
            yield Finding(change.where, "condition", message)
        elif change.key in ("basis", "party") and not change.is_ground:
            moved = f"was {change.old or 'empty'!r}, is {change.new or 'empty'!r}"
            yield Finding(change.where, "basis", f"{change.what}: {moved}, but no figure changed. Ask why.")
        if not change.is_number or change.is_ignored:
            continue
        if (message := _evidence_wanted(change)) and (change.title, change.index) not in reported:
            reported.add((change.title, change.index))
            yield Finding(change.where, "evidence", message)
        row = returned.tables[change.title].entries[change.index]
        was = issued.tables[change.title].entries[change.index]
        for kind, found in (
            ("range", [*_range_problems(change, row), *_interval_problems(change, row)]),
            ("unit", _unit_problems(change, row)),
            ("basis", _basis_problems(change, was, row)),
        ):
            for message in found:
                yield Finding(change.where, kind, f"{change.what}: {message}.")


def above_peak(changed: Sequence[Change], sheet_model: SheetModel, first: int) -> Iterator[Finding]:
    """Yield findings about changed ops that are faster than the stated rates allow, with all changes applied."""
    touched = {change.index for change in changed if change.title == OPS.title}
    lines = [(case, line) for case in sheet_model.cases for line in case.ops]
    for index, (case, line) in enumerate(lines):
        device = sheet_model.machine(case.machine).device
        span, floor = op_time(line, device, sheet_model.level) if index in touched else None, floor_s(line, device)
        if span is not None and span.value < floor:
            where = f"Ops!{OPS.letter('utilisation')}{first + index}"
            times = f"{floor / span.value:.2f} times as fast as the stated peak and bandwidth allow"
            yield Finding(where, "above peak", f"{case.name}, {line.sizes}: {times}. Ask the vendor why.")


_ALIKE = 0.02
"""Relative difference up to which two peaks count as equal, because data sheets round."""


def sparse_peaks(changed: Sequence[Change], book: Book) -> Iterator[Finding]:
    """Yield findings about changed peaks that may be rates with 2:4 sparsity, twice those of dense products."""
    rows = book.tables[FACTS.title].entries
    peaks = {(row["machine"], row["what"]): row["value"] for row in rows if row["where"] == "matrix"}
    for change in changed:
        row: Row = rows[change.index] if (change.title, change.key) == (FACTS.title, "value") else {}
        if row.get("fact") != "peak" or row["where"] != "matrix" or not isinstance(change.new, float):
            continue
        like: dict[str, Entry] = {
            "twice the issued one": 2 * change.old if isinstance(change.old, float) else None
        }
        if row["what"] in ("fp16", "bf16"):
            like |= {f"that of {one}": peaks.get((row["machine"], one)) for one in ("fp8", "int8")}
        known = {name: rate for name, rate in like.items() if isinstance(rate, float)}
        found = [name for name, rate in known.items() if abs(rate - change.new) < _ALIKE * change.new]
        if found:
            what = (
                f"{change.what}: {change.new:,.6g} {change.unit} is {' and '.join(found)}: a rate with sparsity?"
            )
            yield Finding(change.where, "sparse peak", f"{what} Ask for the dense rate.")


IMPOSSIBLE = (FomkitError, ArithmeticError, ValueError)
"""Errors that impossible figures cause: divisions by 0, logarithms of negative numbers."""
BULK = 6
"""Number of changes in one column from which they are reported as a group."""
_ROW_TABLES = (OPS.title, GIVEN.title, JOBS.title, WORKLOADS.title)
"""Tables with similar rows; a machine's facts, by contrast, are different quantities."""
Effect = TypedDict("Effect", {
    "figure": str, "old": float, "new": float, "change": float, "old_low": float, "old_high": float,
    "new_low": float, "new_high": float, "old_probability": float | None, "new_probability": float | None,
})  # fmt: skip
Effects = list[Effect]


@dataclass(frozen=True)
class Headline:
    """A figure with its interval; for a figure of merit also the probability of reaching the threshold."""

    span: Span
    probability: float | None = None

    @property
    def figures(self) -> tuple[float, ...]:
        """All numbers that a change may affect."""
        return (*self.span.ends, *(() if self.probability is None else (self.probability,)))


def _headlines(sheet_model: SheetModel, values: Values) -> dict[str, Headline]:
    """Return the headlines: FOM and units a day of the targets, or steps per second where there is no rate."""
    found: dict[str, Headline] = {}
    for target in sheet_model.targets:
        if target in values.merits:
            span, bar = values.merits[target].value, sheet_model.threshold
            found[f"FOM of {target}"] = Headline(span, None if bar is None else probability_above(span, bar))
        for workload in sheet_model.workloads:
            key = (workload.name, target)
            rate, case = values.unit_per_day.get(key), values.cases.get(key)
            if rate is not None:
                found[f"units/day of {case_name(*key)}"] = Headline(rate)
            elif case is not None:
                found[f"steps/s of {case_name(*key)}"] = Headline(case.step.wall_s.per(1.0))
    return found


def with_changes(issued: Book, some: Iterable[Change]) -> Book:
    """Return the issued workbook with some changes applied, without those that are ignored."""
    book = issued
    for change in (one for one in some if not one.is_ignored):
        book = book.with_entry(change.title, change.index, change.key, change.new)
    return follow_ends(issued, book)


def _effects_of(before: Mapping[str, Headline], sheet_model: SheetModel) -> Effects:
    after = _headlines(sheet_model, evaluate(sheet_model))
    for name, old in before.items():
        now = after[name].figures if name in after else (float("nan"),)
        if all(map(isfinite, old.figures)) and not all(map(isfinite, now)):
            raise ValueError(f"{name} would not be a number")
    return [
        {
            "figure": name, "old": old.span.value, "new": new.span.value,
            "change": new.span.value / old.span.value - 1, "old_low": old.span.low, "old_high": old.span.high,
            "new_low": new.span.low, "new_high": new.span.high, "old_probability": old.probability,
            "new_probability": new.probability,
        }
        for name, old in before.items()
        if (new := after.get(name)) is not None
        and any(abs(now - was) > _NEAR * abs(was) for was, now in zip(old.figures, new.figures, strict=True))
    ]  # fmt: skip


@dataclass(frozen=True)
class Effector:
    """The headlines of an issued workbook with its sheet model, and the effects of changes on them."""

    sent: Book
    sheet_model: SheetModel
    findings: Sequence[Finding]

    @cached_property
    def before(self) -> Mapping[str, Headline]:
        """The headlines as issued."""
        return _headlines(self.sheet_model, evaluate(self.sheet_model))

    def barred(self, change: Change) -> str:
        """Return why nothing can be computed with a change; "" where it can."""
        if not any(finding.kind == "range" and finding.where == change.where for finding in self.findings):
            return ""
        return f"{change.what} is {'unknown' if change.new is None else 'impossible'}"

    def of(self, some: Sequence[Change], name: str) -> tuple[Effects | None, str]:
        """Return the effects of some changes together, or why there are none; idle cells have no effect."""
        before, known = self.before, [one for one in some if not (one.is_ignored or one.is_idle)]
        impossible = [one for one in some if not one.is_ignored and self.barred(one)]
        if impossible and len(some) == 1:
            return None, self.barred(impossible[0])
        if impossible:
            return None, f"{', '.join(dict.fromkeys(one.where for one in impossible))}: impossible"
        try:
            return _effects_of(before, sheet_model_from(with_changes(self.sent, known))), ""
        except IMPOSSIBLE as error:
            return None, f"{name} nothing can be computed ({error})"


def columns(changed: Iterable[Change]) -> Iterator[list[Change]]:
    """Yield the changes of one machine in one column, where there are many."""
    similar = by_key(((one.title, one.machine, one.key), one) for one in changed if one.title in _ROW_TABLES)
    yield from (some for some in similar.values() if len(some) >= BULK)
