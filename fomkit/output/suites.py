"""A suite's figure of merit as aligned text: what is missing or changed first, then the value, then the lines.

A review of a returned workbook as text: each change with its effect, all together, what to talk about.

Accepted lines as aligned text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fomkit.core.figure_table import upper_bounds
from fomkit.core.units import format_number
from fomkit.output.screen import PLAIN, Page, Screen, figure, new_table
from fomkit.output.terminal import UNFIT, format_interval, mark_of, show_merit

if TYPE_CHECKING:
    from rich.table import Table


_DIGITS = 8


def _number(value: float | None, digits: int = _DIGITS) -> str:
    return "missing" if value is None else f"{value:,.{digits}g}"


def _wide_headers(content: Mapping[str, Any]) -> list[str]:
    """Name the columns that a narrow terminal does without, which is said; ``--json`` has them."""
    sides = (content["baseline"], content["target"])
    return ["required", "class", "basis", "party", *(f"{name} from" for name in sides)]


def _table(content: Mapping[str, Any], screen: Screen) -> Table:
    old, new = content["baseline"], content["target"]
    unit = "rate" if all(line["relative"] for line in content["lines"]) else "units/day"
    wide = [] if screen.narrow else [(header, "") for header in _wide_headers(content)]
    table = new_table(
        [("line", ""), *wide, (f"{old} {unit}", "right"), (f"{new} {unit}", "right"), figure("ratio"),
         figure("weight")]
    )  # fmt: skip
    for line in content["lines"]:
        on = line["machines"]
        required = "yes" if line["required"] else "no"
        words = (required, *(line[name] for name in ("class", "basis", "party")), on[old]["from"], on[new]["from"])
        table.add_row(
            line["name"],
            *words[: len(wide)],
            *(_number(line["unit_per_day"][name]) + mark_of(on[name]) for name in (old, new)),
            "" if line["ratio"] is None else format_number(line["ratio"], 7),
            "" if line["weight"] is None else f"{line['weight']:.1%}",
        )
    return table


def _verdict_line(threshold: Mapping[str, Any]) -> str:
    reached, probability = format_number(threshold["threshold"]), threshold["probability"]
    if "why" in threshold:
        # Its lines are named above, with their shares; ``why`` names them in the JSON.
        return (
            f"  threshold {reached}: {threshold['verdict']}, it rests on the lines above of whose measured runs "
            "the device explains less than half (--allow-excluded gives it)"
        )
    if probability is None:
        return f"  threshold {reached}: {threshold['verdict']} (the times carry no spread, so no probability)"
    return f"  threshold {reached}: {threshold['verdict']}, P(FOM ≥ {reached}) = {probability:.0%}"


def _unstated(content: Mapping[str, Any]) -> list[str]:
    """Name the machines whose frozen rates do not say what they leave out."""
    names = (content["baseline"], content["target"])
    return [name for name in names if any(line["machines"][name]["excludes"] is None for line in content["lines"])]


def _first_lines(content: Mapping[str, Any], page: Page) -> None:
    old, new = content["baseline"], content["target"]
    for name in (old, new):
        kinds = [line["machines"][name]["kind"] for line in content["lines"]]
        message = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
        page.line(f"coverage of {name}: {message}, of {len(kinds)} lines")
    if relative := [line["name"] for line in content["lines"] if line["relative"]]:
        page.line(f"relative: {', '.join(relative)}: rates are multiples of a reference's, not units a day")
    for line in content["lines"]:
        if line["precisions_differ"]:
            formats = [line["machines"][name]["precision"] for name in (old, new)]
            page.line(
                f"number formats: {line['name']} runs in {formats[0]} on {old} and in {formats[1]} on {new}; "
                "the line does not fix them",
                "yellow",
            )
    for name in _unstated(content):
        page.line(f"frozen rates of {name} do not say what they leave out; freeze the next version", "yellow")
    for one in content["missing"]:
        left = "required" if one["required"] else "optional, left out of the mean"
        page.line(f"missing: {one['line']} on {one['machine']} ({left}): {one['why']}", "yellow")
    for deviation in content["deviations"]:
        page.line(
            f"deviation: {deviation['line']} on {deviation['machine']}: {deviation['deviation']}; class optimized",
            "yellow",
        )


def format_suite(content: Mapping[str, Any], screen: Screen = PLAIN) -> str:
    """Write a suite's figure of merit, its lines and its notes."""
    page = Page(screen)
    page.line(f"{content['suite']}, version {content['version']}: {content['title']}")
    _first_lines(content, page)
    if content["fom"] is None:
        reason = (
            f"incomplete: {', '.join(content['incomplete'])}" if content["incomplete"] else "no line has a rate"
        )
        page.line(f"no FOM of {content['target']} over {content['baseline']}; {reason}", "bold")
    else:
        show_merit(page, content["fom"])
        if content["threshold"] is not None:
            page.line(_verdict_line(content["threshold"]))
    page.table(_table(content, screen))
    if screen.narrow:
        page.line(f"not shown on a narrow screen: {', '.join(_wide_headers(content))}; --json has them")
    for campaign in content["campaigns"]:
        days = ", ".join(f"{name} {_number(value, 5)}" for name, value in campaign["days"].items())
        page.line(
            f"campaign {campaign['name']}: {campaign['units']:,.8g} units of {campaign['line']}; days: {days}"
        )
    for note in content["notes"]:
        page.line(f"note: {note}")
    return page.text()


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


def _effect(content: Content, threshold: float | None) -> Iterator[str]:
    old, new = (_range(*(content[f"{when}{end}"] for end in ("", "_low", "_high"))) for when in ("old", "new"))
    if content["old"] == content["new"]:
        was, now = (
            " … ".join(format_number(content[f"{when}_{end}"]) for end in ("low", "high"))
            for when in ("old", "new")
        )
        yield f"{content['figure']} {format_number(content['old'])} ({was} → {now})"
    else:
        yield f"{content['figure']} {old} → {new}, {content['change']:+.2%}"
    chances = (content["old_probability"], content["new_probability"])
    if None not in chances and chances[0] != chances[1]:
        message = " → ".join(f"{chance:.1%}" for chance in chances)
        yield f"P({content['figure']} ≥ {format_number(threshold or 0.0)}) {message}"


def _effects(
    effects: Sequence[Content] | None, why_not: str, threshold: float | None, *, is_idle: bool = False
) -> list[str]:
    if effects is None:
        return [f"cannot be computed: {why_not}"]
    if is_idle:
        return ["moves nothing: no headline of the workbook hangs on it"]
    if not effects:
        return ["moves nothing"]
    largest = sorted(effects, key=lambda effect: (not effect["figure"].startswith("FOM"), -abs(effect["change"])))
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


def _ground(content: Content) -> str:
    message = f"basis {content['basis'] or 'not said'}, party {content['party'] or 'not said'}"
    return f"{message}; {content['source']}" if content["source"] else message


def _change(page: Page, content: Content, threshold: float | None) -> None:
    page.line(
        f"{content['where']}: {content['what']}: {_figure(content['old'])} → "
        f"{_figure(content['new'])} {content['unit']}".rstrip()
    )
    page.line(f"  {_ground(content)}")
    if content["alone"] is not None or content["not_computed"]:
        lines = _effects(content["alone"], content["not_computed"], threshold, is_idle=content["moves_nothing"])
        _put(page, "  alone:", lines)


def _moves(word: str, moves: Sequence[Content]) -> str:
    shown = [
        f"{move['old'] or 'not said'} → {move['new'] or 'not said'}"
        if move["old"] != move["new"]
        else move["new"] or "not said"
        for move in moves
    ]
    counts = [f" ({move['count']})" if len(moves) > 1 else "" for move in moves]
    return f"{word} {', '.join(text + count for text, count in zip(shown, counts, strict=True))}"


def _factor(content: Content) -> str:
    low, high = content["factor_low"], content["factor_high"]
    if low is None:
        return ""
    ends = [format_number(low), format_number(high)]
    return f" × {ends[0]}" if ends[0] == ends[1] else f" × {ends[0]} … {ends[1]}"


def _group(page: Page, content: Content, threshold: float | None) -> None:
    of = f"{content['machine']}, " if content["machine"] else ""
    where = f"{content['where'][0]} … {content['where'][-1].rpartition('!')[2]}"
    page.line(f"{where}: {of}{content['column']}: {content['count']} cells{_factor(content)}")
    sources = content["sources"]
    sources_shown = [
        *([sources[0]] if sources else []),
        *([f"{len(sources)} sources"] if len(sources) > 1 else []),
    ]
    grounds = f"{_moves('basis', content['basis'])}, {_moves('party', content['party'])}"
    page.line(f"  {'; '.join([grounds, *sources_shown])}")
    if content["alone"] is not None or content["not_computed"]:
        lines = _effects(content["alone"], content["not_computed"], threshold, is_idle=content["moves_nothing"])
        _put(page, "  together:", lines)


def _similarity_key(finding: Content) -> tuple[str, ...]:
    """Give what findings of one column have in common: all but the row's name and its figures."""
    found = _CELL.fullmatch(finding["where"])
    place = found.groups() if found else (finding["where"],)
    message = finding["said"]
    return finding["kind"], *place, _QUOTED.sub("", message.partition(": ")[2] or message)


def _findings(page: Page, findings: Sequence[Content]) -> None:
    similar: dict[tuple[str, ...], list[Content]] = {}
    for finding in findings:
        similar.setdefault(_similarity_key(finding), []).append(finding)
    for some in similar.values():
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
    for message in content["caveats"]:
        page.line(f"caveat: {message}", "yellow")
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


def _row(line: Mapping[str, Any]) -> list[str]:
    committed, measured, probability = line["committed"], line["measured"], line["probability"]
    return [
        line["name"],
        "yes" if line["required"] else "no",
        "missing" if committed is None else format_number(committed["value"], 5) + mark_of(line),
        line["basis"],
        line["party"],
        "none" if measured is None else format_number(measured["value"], 5),
        format_interval(measured, None) if line["spread_stated"] else "no spread stated" if measured else "",
        "" if line["difference"] is None else f"{line['difference']:+.1%}",
        "" if probability is None else f"{probability:.0%}",
        line["verdict"],
    ]


def format_acceptance(content: Mapping[str, Any], screen: Screen = PLAIN) -> str:
    """Write for each line what was committed, what was measured, and whether that is met."""
    page = Page(screen)
    page.line(
        f"{content['suite']}, version {content['version']}, on {content['machine']}: committed against measured"
    )
    table = new_table(
        [("line", ""), ("required", ""), figure("lines.committed"), ("basis", ""), ("party", ""),
         figure("lines.measured"), ("interval", ""), figure("difference"), figure("probability"),
         ("verdict", "")]
    )  # fmt: skip
    for line in content["lines"]:
        table.add_row(*_row(line))
    page.table(table)
    for line in content["lines"]:
        if line["committed"] is None:
            page.line(f"note: {line['name']} has no committed rate: {line['committed_from']}", "yellow")
        for message in line["deviations"]:
            page.line(f"deviation: {line['name']} was committed under other conditions: {message}", "yellow")
        if line["contradictory"]:
            page.line(
                f"note: the rows of {line['name']} exclude each other, so nothing is met or missed", "yellow"
            )
        if line["modelled_share"] > 0.001:
            share = f"validation and overheads, {line['modelled_share']:.1%} of the run"
            page.line(f"note: {line['name']}: the step is measured; {share}, are as predicted")
        for row in line["rows"]:
            if not row["used"]:
                page.line(f"set aside: {row['where']}: {row['said']}", "yellow")
    excluded = dict.fromkeys(term for line in content["lines"] for term in line["excludes"])
    if excluded:
        page.line(upper_bounds(excluded, "modelled commitments"))
    for line in content["lines"]:
        if line["fits"] is False:
            page.line(f"{UNFIT} {line['name']}: the device's memory does not hold the committed step", "yellow")
    page.line(
        f"met: the rate reaches the committed value with 90 % or more; missed: with 10 % or less, by the "
        f"{content['interval']:.0%} interval of the measurement's repeats; without one, the measured value decides"
    )
    return page.text()
