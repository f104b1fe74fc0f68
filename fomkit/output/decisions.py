"""Format as text what changes of inputs do: sensitivities, the least changes that reach a target, and reviews."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from fomkit.core.interval import alone_text, chance_text
from fomkit.core.units import by_key, count_text, format_number
from fomkit.merit.fom import REACHED
from fomkit.output.screen import PLAIN, Page, Screen, figure, named_sizes
from fomkit.output.values import UNFIT, dimension_of, format_interval, format_plain, interval_words
from fomkit.profiles.metrics import title_of, upper_bounds

if TYPE_CHECKING:
    from fomkit.plan.content import Ends
    from fomkit.whatif.parameters import Measurable, NotVaried
    from fomkit.whatif.sensitivity import EffectContent, SensitivityContent
    from fomkit.whatif.solve import FrontierContent, SolveContent
    from fomkit.workbook.changes import Effect, Effects
    from fomkit.workbook.review import Changed, FindingContent, Group, Move, ReviewContent

MEASUREMENTS = 8
"""Largest number of measurements that are printed."""
GROUPS: Mapping[str, str] = {"machine": "of the machine", "model": "of the work", "line": "of given times"}
"""Tables of parameters by what they belong to: less work must not look like a faster machine."""


def format_setting(value: float, unit: str, digits: int = 3) -> str:
    """Format the value of a parameter.

    >>> format_setting(9e11, "byte_per_s"), format_setting(0.95, "share"), format_setting(32.0, "count")
    ('900 GB/s', '95.0%', '32')
    """
    return f"{value:.{digits}g} ×" if unit == "factor" else format_plain(value, unit, digits)


def title_line(content: SensitivityContent | SolveContent) -> str:
    """Format the title: the subject and its main figure without a change."""
    if "suite" in content:
        subject = f"{content['suite']}: {content['target']} over {content['baseline']}"
    else:
        nodes = f", {count_text(content['nodes'], 'node')}" if "nodes" in content else ""
        precision = f", {content['precision']}" if "precision" in content else ""
        sizes: dict[str, object] = {**content["sizes"]}
        if "samples_per_step" in content:
            sizes["batch"] = f"{content['samples_per_step']:,} ({content['sizes']['batch']:,} for each replica)"
        subject = f"{content['model']} on {content['target']}{nodes}, {named_sizes({'sizes': sizes})}{precision}"
    name = content["figure"]
    span = content["figures"][name]
    interval = interval_words(content["interval"], span, dimension_of(name))
    return f"{subject}: {title_of(name)} {format_plain(span['value'], dimension_of(name))} ({interval})"


def bound_line(content: SensitivityContent | SolveContent) -> str:
    """Format what the main figure excludes, and whether it is therefore a bound."""
    message = upper_bounds(content["excludes"])
    if message and content["figure"] not in ("unit_per_day", "fom"):
        message = f"the figure excludes what is not stated: {', '.join(content['excludes'])}"
    alone = alone_text(content.get("excludes_alone", {}))
    lines = [message or "nothing excluded", *([alone] if alone else [])]
    if content.get("little_explained"):
        lines.append(
            f"the device explains less than half of a measured run of {', '.join(content['little_explained'])}: "
            "the figure covers only the device's work"
        )
    if content.get("does_not_fit"):
        lines.append(f"{UNFIT} without changes: {content['does_not_fit']}")
    return "\n".join(lines)


def _parameter_cells(one: EffectContent, name: str) -> list[str]:
    unit, varied, mark = one["unit"], one["varied"], "" if one["smooth"] else " *"
    setting, start, end = (format_setting(value, unit) for value in (one["setting"], varied["from"], varied["to"]))
    return [
        one["parameter"], setting, f"kink{mark}" if one["kink"] else f"{one['elasticity'][name]:+.3f}{mark}",
        f"{start} … {end}", varied["said"],
        *(format_plain(at["value"], dimension_of(name)) if at else "cannot be"
          for at in (one["at_low"], one["at_high"])),
        f"{one['swing']:.1%}",
    ]  # fmt: skip


def _by_why(entries: Iterable[NotVaried]) -> Iterator[tuple[str, str]]:
    """Return each reason with the parameters that it applies to."""
    found = by_key((one["why"], one["parameter"]) for one in entries)
    return ((why, ", ".join(names)) for why, names in found.items())


def _elasticity_lines(content: SensitivityContent) -> Iterator[str]:
    name = content["figure"]
    yield bound_line(content)
    yield f"elasticity: % of {title_of(name)} for 1 % of the parameter; swing: between the bounds, relative to now"
    for parameter in content["parameters"]:
        if not parameter["smooth"]:
            sides = {"below": parameter["below"], "above": parameter["above"],
                     "over half the step": parameter["at_half_step"]}  # fmt: skip
            slopes = (f"{slope:+.3f} {side}" for side, slope in sides.items() if slope is not None)
            yield f"* not smooth in {parameter['parameter']}: {', '.join(slopes)}"
        if parameter["why"]:
            yield f"{parameter['parameter']}: {parameter['why']}"
    for why, names in _by_why(content["not_varied"]):
        yield f"not listed, {why}: {names}"
    if stay := content.get("lines_that_stay"):
        yield f"lines without an estimate on {content['target']}, which rates do not affect: {', '.join(stay)}"


def _commands(found: Sequence[Measurable]) -> Iterator[str]:
    """Yield the command for each measurement; the most frequent command comes last and covers the others."""
    by = by_key((one["command"] or "a measurement on its machine", one["what"]) for one in found)
    *few, (usual, _) = sorted(by.items(), key=lambda item: len(item[1]))
    yield from (f"{', '.join(names)}: {command}" for command, names in few)
    yield f"{'the others' if few else 'each'}: {usual}"


def format_sensitivity(content: SensitivityContent, screen: Screen = PLAIN) -> str:
    """Format ``fomkit/sensitivity/1`` as text."""
    page = Page(screen)
    page.line(title_line(content), "bold")
    for owner, title in GROUPS.items():
        if found := [parameter for parameter in content["parameters"] if parameter["of"] == owner]:
            page.rows(
                [title, figure("setting"), figure("elasticity"), figure("varied.from"), "by",
                 figure("at_low"), figure("at_high"), figure("swing")],
                (_parameter_cells(one, content["figure"]) for one in found),
                first_out=("by", *map(title_of, ("varied.from", "at_low", "at_high"))),
            )  # fmt: skip
    page.lines(_elasticity_lines(content))
    what, dimension = ("FOM", None) if "suite" in content else ("step", "time_s")
    if best := [one for one in content.get("measurements", ()) if one["shrinks"] > 0][:MEASUREMENTS]:
        page.heading(f"what to measure, best first: remaining width of the {what}'s interval")
        rows = []
        for case in best:
            span = case["fom"] if "suite" in content else case["step_s"]
            then = format_interval(span, dimension) if span["low"] < span["high"] else "nothing left"
            rows.append([case["what"], case["kind"], then, f"{case['shrinks']:.1%}"])
        page.rows(["measurement", "covers", f"{what} then", figure("shrinks")], rows)
        page.lines(_commands(best))
    if content.get("no_spread_stated"):
        names = ", ".join(content["no_spread_stated"])
        page.line(f"stated without a spread, so a measurement changes the figure but not its interval: {names}")
    if content.get("measurements_say"):
        page.line(content["measurements_say"])
    page.line(f"assumed: {'; '.join(content['assumed'])}")
    page.notes(content["notes"], "yellow")
    return page.text()


POINTS = 12
"""Largest number of combinations that are printed."""


def _factor_text(value: float) -> str:
    """Format a factor with enough digits to distinguish it from 1.

    >>> _factor_text(1.00012), _factor_text(2.0), _factor_text(0.25)
    ('1.00012 ×', '2.000 ×', '0.250 ×')
    """
    return f"{value:.3f} ×" if abs(value - 1) >= 0.001 else f"{value:.6g} ×"


def _goal_cells(then: Ends, probability: float, name: str) -> list[str]:
    """Format a figure after a change, its interval and the probability of the target."""
    interval = format_interval(then, dimension_of(name))
    return [format_plain(then["value"], dimension_of(name)), interval, chance_text(probability, 1)]


def _changes(content: SolveContent, page: Page) -> None:
    rows = list[list[str]]()
    for change in content["changes"]:
        unit = change["unit"]
        needed, factor = "cannot" if change["proved"] else "not found", ""
        if change["needed"] is not None and change["factor"] is not None:
            needed, factor = format_setting(change["needed"], unit, 4), _factor_text(change["factor"])
        rows.append([
            change["parameter"], format_setting(change["setting"], unit), needed, factor,
            *_goal_cells(change["then"], change["probability"], content["figure"]),
            change["why"] or ("does not fit" if change["reached"] and change["does_not_fit"] else ""),
        ])  # fmt: skip
    page.rows(
        ["change alone", figure("setting"), figure("needed"), figure("changes.factor"), figure("then"), "interval",
         figure("changes.probability"), "why not"],
        rows, ("interval", *map(title_of, ("changes.factor", "setting", "then"))),
        ("" if change["reached"] else "dim" for change in content["changes"]),
    )  # fmt: skip
    page.lines(
        f"{change['parameter']} {format_setting(change['needed'], change['unit'])}: {change['does_not_fit']}"
        for change in content["changes"]
        if change["needed"] is not None and change["does_not_fit"]
    )


def _frontier(content: SolveContent, found: FrontierContent, page: Page) -> None:
    names, points = found["parameters"], found["points"]
    page.heading(f"together: {', '.join(names)}; the smallest sum of |ln(factor)| first")
    if not found["reached"]:
        page.line(f"cannot reach it: {found['why']}")
        return
    page.rows(
        [*names, figure("total"), figure("then"), "interval", figure("changes.probability")],
        (
            [*(_factor_text(point["factors"][name]) for name in names), f"{point['total']:.3f}",
             *_goal_cells(point["then"], point["probability"], content["figure"])]
            for point in points[:POINTS]
        ),
        first_out=(title_of("total"), "interval"),
    )  # fmt: skip
    if len(points) > POINTS:
        page.line(f"and {len(points) - POINTS} more; --json has all")


def format_solution(content: SolveContent, screen: Screen = PLAIN) -> str:
    """Format ``fomkit/solve/1`` as text."""
    page = Page(screen)
    page.line(title_line(content), "bold")
    goal, name = content["goal"], content["figure"]
    target = f"target: {title_of(name)} {'at most' if goal['at_most'] else 'at least'} "
    target += f"{format_plain(goal['asked'], dimension_of(name))}, probability {goal['probability']:.12g}"
    if name == "fom" and goal["probability"] < REACHED:
        target += f" ('fomkit fom' says met from {REACHED:g}: --probability {REACHED:g})"
    target += f"; now {chance_text(content['probability'], 1)}"
    if content["already_reached"]:
        page.line(f"{target}: already reached without a change")
        page.line(bound_line(content))
    else:
        verdict = "" if content["reached"] else "; no change that was tried reaches it"
        page.line(f"{target}{verdict}")
        if content["changes"]:
            _changes(content, page)
        page.lines(f"not tried: {names}: {why}" for why, names in _by_why(content["refused"]))
        if content["frontier"] is not None:
            _frontier(content, content["frontier"], page)
        page.line(bound_line(content))
        most = f"no parameter is changed by more than {content['most_factor']:g} times"
        page.line(f"{most}; {'; '.join(content['assumed'])}")
    page.notes(content["notes"], "yellow")
    return page.text()


_SHOWN = 3
"""Largest number of headlines that are printed for one change; --json has all."""
_BULK = 4
"""Number of equal findings in one column from which they are printed as one line."""
_CELL = re.compile(r"(.+)!([A-Z]+)\d+")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|[-+]?\d[\d,.]*(?:e[-+]?\d+)?", re.IGNORECASE)


def _entry_figure(entry: object) -> str:
    return f"{entry:.6g}" if isinstance(entry, float) else str(entry)


def _effect(content: Effect, threshold: float | None) -> Iterator[str]:
    old, new = (format_number(content[when]) for when in ("old", "new"))
    was = f"{format_number(content['old_low'])} … {format_number(content['old_high'])}"
    now = f"{format_number(content['new_low'])} … {format_number(content['new_high'])}"
    if content["old"] == content["new"]:
        yield f"{content['figure']} {old} ({was} → {now})"
    else:
        if not content["old_low"] == content["old"] == content["old_high"]:
            old = f"{old} ({was})"
        if not content["new_low"] == content["new"] == content["new_high"]:
            new = f"{new} ({now})"
        yield f"{content['figure']} {old} → {new}, {content['change']:+.2%}"
    known = (content["old_probability"], content["new_probability"])
    chances = [chance for chance in known if chance is not None]
    if len(chances) > 1 and chances[0] != chances[1]:
        message = " → ".join(chance_text(chance, 1) for chance in chances)
        yield f"P({content['figure']} ≥ {format_number(threshold or 0.0)}) {message}"


def _effect_lines(
    effects: Effects | None, why_not: str, threshold: float | None, *, is_idle: bool = False
) -> list[str]:
    if effects is None:
        return [f"cannot be computed: {why_not}"]
    if is_idle:
        return ["no effect: no result depends on it"]
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
    """Add lines beside a label, or below it on a narrow screen."""
    if page.screen.narrow and len(lines) > 1:
        room = page.screen.width - 4
        lines, indent = ["", *(part for line in lines for part in _broken(line, room))], "   "
    else:
        indent = " " * len(label)
    for number, line in enumerate(lines):
        page.line(f"{indent if number else label} {line}", style)


def _put_effects(page: Page, label: str, content: Changed | Group, threshold: float | None) -> None:
    if content["alone"] is not None or content["not_computed"]:
        lines = _effect_lines(
            content["alone"], content["not_computed"], threshold, is_idle=content["moves_nothing"]
        )
        _put(page, label, lines)


def _change(page: Page, content: Changed, threshold: float | None) -> None:
    moved = f"{_entry_figure(content['old'])} → {_entry_figure(content['new'])} {content['unit']}".rstrip()
    page.line(f"{content['where']}: {content['what']}: {moved}")
    source = f"; {content['source']}" if content["source"] else ""
    page.line(f"  basis {content['basis'] or 'not stated'}, party {content['party'] or 'not stated'}{source}")
    _put_effects(page, "  alone:", content, threshold)


def _moves(word: str, moves: Sequence[Move]) -> str:
    shown = []
    for move in moves:
        old, new = (move[when] or "not stated" for when in ("old", "new"))
        count = f" ({move['count']})" if len(moves) > 1 else ""
        shown.append(f"{old} → {new}{count}" if move["old"] != move["new"] else f"{new}{count}")
    return f"{word} {', '.join(shown)}"


def _group_factor(content: Group) -> str:
    low, high = content["factor_low"], content["factor_high"]
    if low is None or high is None:
        return ""
    ends = [format_number(low), format_number(high)]
    return f" × {ends[0]}" if ends[0] == ends[1] else f" × {ends[0]} … {ends[1]}"


def _group(page: Page, content: Group, threshold: float | None) -> None:
    machine_text = f"{content['machine']}, " if content["machine"] else ""
    where = f"{content['where'][0]} … {content['where'][-1].rpartition('!')[2]}"
    page.line(f"{where}: {machine_text}{content['column']}: {content['count']} cells{_group_factor(content)}")
    sources = content["sources"]
    more = [f"{len(sources)} sources"] if len(sources) > 1 else []
    grounds = f"{_moves('basis', content['basis'])}, {_moves('party', content['party'])}"
    page.line(f"  {'; '.join([grounds, *sources[:1], *more])}")
    _put_effects(page, "  together:", content, threshold)


def _similarity_key(finding: FindingContent) -> tuple[str, ...]:
    """Return what equal findings of one column share: everything but the row's name and numbers."""
    found = _CELL.fullmatch(finding["where"])
    place = found.groups() if found else (finding["where"],)
    message = finding["said"]
    return finding["kind"], *place, _QUOTED.sub("", message.partition(": ")[2] or message)


def _findings(page: Page, findings: Sequence[FindingContent]) -> None:
    for some in by_key((_similarity_key(finding), finding) for finding in findings).values():
        is_bulk = len(some) >= _BULK
        more = f" And {len(some) - 1} more cells of this column." if is_bulk else ""
        for one in some[:1] if is_bulk else some:
            page.line(f"to discuss: {one['where']} ({one['kind']}): {one['said']}{more}", "yellow")


def format_review(content: ReviewContent, screen: Screen = PLAIN) -> str:
    """Format a review as text."""
    page, changed, findings = Page(screen), content["changes"], content["findings"]
    counts = (
        f"{len(some)} {name}{'s' * (len(some) != 1)}"
        for some, name in ((changed, "changed input"), (findings, "finding"))
    )
    page.line(f"{content['workbook']} against {content['issued']}: {', '.join(counts)}", "bold")
    page.lines((f"caveat: {message}" for message in content["caveats"]), "yellow")
    groups = {group["where"][0]: group for group in content["groups"]}
    grouped = {where for group in groups.values() for where in group["where"]}
    for one in changed:
        if one["where"] in groups:
            _group(page, groups[one["where"]], content["threshold"])
        elif one["where"] not in grouped:
            _change(page, one, content["threshold"])
    if changed:
        lines = _effect_lines(content["together"], content["not_computed"], content["threshold"])
        _put(page, "all together:", lines, "bold")
    _findings(page, findings)
    return page.text()
