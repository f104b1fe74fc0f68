"""A review of a returned workbook as text: each change with its effect, all together, what to talk about."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fomkit.quantities import format_number
from fomkit.report.screen import PLAIN, Page, Screen

_SHOWN = 3
"""Headlines of one change that are shown; --json has them all."""
_BULK = 4
"""Findings of one column that say the same and are told on one line."""
_CELL = re.compile(r"(.+)!([A-Z]+)\d+")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|[-+]?\d[\d,.]*(?:e[-+]?\d+)?", re.IGNORECASE)
Content = Mapping[str, Any]


def _figure(entry: object) -> str:
    return f"{entry:.6g}" if isinstance(entry, float) else str(entry)


def _range(value: float, low: float, high: float) -> str:
    ends = "" if low == value == high else f" ({format_number(low)} … {format_number(high)})"
    return f"{format_number(value)}{ends}"


def _effect(one: Content, threshold: float | None) -> Iterator[str]:
    old, new = (_range(*(one[f"{when}{end}"] for end in ("", "_low", "_high"))) for when in ("old", "new"))
    if one["old"] == one["new"]:
        was, now = (
            " … ".join(format_number(one[f"{when}_{end}"]) for end in ("low", "high")) for when in ("old", "new")
        )
        yield f"{one['figure']} {format_number(one['old'])} ({was} → {now})"
    else:
        yield f"{one['figure']} {old} → {new}, {one['change']:+.2%}"
    chances = (one["old_probability"], one["new_probability"])
    if None not in chances and chances[0] != chances[1]:
        said = " → ".join(f"{chance:.1%}" for chance in chances)
        yield f"P({one['figure']} ≥ {format_number(threshold or 0.0)}) {said}"


def _effects(
    effects: Sequence[Content] | None, why_not: str, threshold: float | None, *, is_idle: bool = False
) -> list[str]:
    if effects is None:
        return [f"cannot be computed: {why_not}"]
    if is_idle:
        return ["moves nothing: no headline of the workbook hangs on it"]
    if not effects:
        return ["moves nothing"]
    largest = sorted(effects, key=lambda one: (not one["figure"].startswith("FOM"), -abs(one["change"])))
    lines = [line for one in largest[:_SHOWN] for line in _effect(one, threshold)]
    return [*lines, *([f"and {len(largest) - _SHOWN} more"] if len(largest) > _SHOWN else [])]


def _broken(line: str, room: int) -> list[str]:
    """Break a line that is too long before its last arrow."""
    at = line.rfind(" → ", 0, room)
    return [line] if len(line) <= room or at < 0 else [line[:at], f"  {line[at + 1 :]}"]


def _put(page: Page, label: str, lines: Sequence[str], style: str = "") -> None:
    """Put lines beside a label, or below it where a screen is narrow."""
    if page.screen.narrow and len(lines) > 1:
        room = page.screen.width - 4
        lines, indent = ["", *(part for line in lines for part in _broken(line, room))], "   "
    else:
        indent = " " * len(label)
    for number, line in enumerate(lines):
        page.line(f"{indent if number else label} {line}", style)


def _ground(one: Content) -> str:
    said = f"basis {one['basis'] or 'not said'}, party {one['party'] or 'not said'}"
    return f"{said}; {one['source']}" if one["source"] else said


def _change(page: Page, one: Content, threshold: float | None) -> None:
    page.line(
        f"{one['where']}: {one['what']}: {_figure(one['old'])} → {_figure(one['new'])} {one['unit']}".rstrip()
    )
    page.line(f"  {_ground(one)}")
    if one["alone"] is not None or one["not_computed"]:
        lines = _effects(one["alone"], one["not_computed"], threshold, is_idle=one["moves_nothing"])
        _put(page, "  alone:", lines)


def _moves(word: str, moves: Sequence[Content]) -> str:
    said = [
        f"{one['old'] or 'not said'} → {one['new'] or 'not said'}"
        if one["old"] != one["new"]
        else one["new"] or "not said"
        for one in moves
    ]
    counts = [f" ({one['count']})" if len(moves) > 1 else "" for one in moves]
    return f"{word} {', '.join(text + count for text, count in zip(said, counts, strict=True))}"


def _factor(one: Content) -> str:
    low, high = one["factor_low"], one["factor_high"]
    if low is None:
        return ""
    ends = [format_number(low), format_number(high)]
    return f" × {ends[0]}" if ends[0] == ends[1] else f" × {ends[0]} … {ends[1]}"


def _group(page: Page, one: Content, threshold: float | None) -> None:
    of = f"{one['machine']}, " if one["machine"] else ""
    where = f"{one['where'][0]} … {one['where'][-1].rpartition('!')[2]}"
    page.line(f"{where}: {of}{one['column']}: {one['count']} cells{_factor(one)}")
    sources = one["sources"]
    said = [*([sources[0]] if sources else []), *([f"{len(sources)} sources"] if len(sources) > 1 else [])]
    page.line(f"  {'; '.join([_moves('basis', one['basis']) + ', ' + _moves('party', one['party']), *said])}")
    if one["alone"] is not None or one["not_computed"]:
        lines = _effects(one["alone"], one["not_computed"], threshold, is_idle=one["moves_nothing"])
        _put(page, "  together:", lines)


def _alike(finding: Content) -> tuple[str, ...]:
    """Give what findings of one column have in common: all but the row's name and its figures."""
    found = _CELL.fullmatch(finding["where"])
    place = found.groups() if found else (finding["where"],)
    said = finding["said"]
    return finding["kind"], *place, _QUOTED.sub("", said.partition(": ")[2] or said)


def _findings(page: Page, findings: Sequence[Content]) -> None:
    alike: dict[tuple[str, ...], list[Content]] = {}
    for one in findings:
        alike.setdefault(_alike(one), []).append(one)
    for some in alike.values():
        if len(some) < _BULK:
            for one in some:
                page.line(f"to talk about: {one['where']} ({one['kind']}): {one['said']}", "yellow")
            continue
        first = some[0]
        more = f"{first['said']} And {len(some) - 1} more cells of this column."
        page.line(f"to talk about: {first['where']} ({first['kind']}): {more}", "yellow")


def format_review(content: Content, screen: Screen = PLAIN) -> str:
    """Write a review."""
    page, changed, findings = Page(screen), content["changes"], content["findings"]
    counts = f"{len(changed)} changed inputs, {len(findings)} findings"
    page.line(f"{content['workbook']} against {content['issued']}: {counts}", "bold")
    for said in content["caveats"]:
        page.line(f"caveat: {said}", "yellow")
    groups = {group["where"][0]: group for group in content["groups"]}
    grouped = {where for group in groups.values() for where in group["where"]}
    for one in changed:
        if one["where"] in groups:
            _group(page, groups[one["where"]], content["threshold"])
        elif one["where"] not in grouped:
            _change(page, one, content["threshold"])
    if changed:
        lines = _effects(content["together"], content["not_computed"], content["threshold"])
        _put(page, "all together:", lines, "bold")
    _findings(page, findings)
    return page.text()
