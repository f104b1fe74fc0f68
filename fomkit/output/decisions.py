"""What a result hangs on, for people (``fomkit/sensitivity/1``).

The smallest changes that reach a goal, for people (``fomkit/solve/1``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fomkit.core.figure_table import title_of, upper_bounds
from fomkit.core.units import format_number, format_quantity
from fomkit.output.screen import PLAIN, Page, Screen, figure, new_table
from fomkit.output.terminal import UNFIT, format_interval

Entry = Mapping[str, Any]
MEASUREMENTS = 8
"""Measurements that are printed."""
GROUPS: Mapping[str, str] = {"machine": "of the machine", "model": "of the work"}
"""What the two tables are about: less work is no faster machine."""
DIMENSIONS: Mapping[str, str] = {"step_s": "time_s"}


def format_setting(value: float, unit: str, digits: int = 3) -> str:
    """Write the value of a parameter.

    Examples
    --------
    >>> format_setting(9e11, "byte_per_s"), format_setting(0.95, "share"), format_setting(32.0, "count")
    ('900 GB/s', '95.0%', '32')
    """
    if unit == "count":
        return f"{value:,.0f}"
    return f"{value:.1%}" if unit == "share" else format_quantity(value, unit, digits)


def format_figure(value: float, name: str) -> str:
    """Write a figure: a time with its unit, else a plain number."""
    dimension = DIMENSIONS.get(name)
    return format_number(value) if dimension is None else format_quantity(value, dimension)


def title_line(content: Entry) -> str:
    """Name what was asked of and its main figure as it is."""
    if "suite" in content:
        of = f"{content['suite']}: {content['target']} over {content['baseline']}"
    else:
        sizes = ", ".join(f"{name} {size}" for name, size in content["sizes"].items())
        nodes = f", {content['nodes']:,} nodes" if "nodes" in content else ""
        precision = f", {content['precision']}" if "precision" in content else ""
        of = f"{content['model']} on {content['target']}{nodes}, {sizes or 'sizes fixed'}{precision}"
    name = content["figure"]
    span = content["figures"][name]
    interval = format_interval(span, DIMENSIONS.get(name))
    message = (
        f"{title_of(name)} {format_figure(span['value'], name)} ({content['interval']:.0%} interval {interval})"
    )
    return f"{of}: {message}"


def bound_line(content: Entry) -> str:
    """Say what nobody stated, and what the main figure is because of it."""
    message = upper_bounds(content["excludes"])
    if message and content["figure"] not in ("unit_per_day", "fom"):
        message = f"the figure is without what nobody stated: {', '.join(content['excludes'])}"
    lines = [message or "nothing excluded"]
    if content.get("little_explained"):
        lines.append(
            f"the device explains less than half of a measured run of {', '.join(content['little_explained'])}: "
            "the figure is of the device's work alone"
        )
    if content.get("does_not_fit"):
        lines.append(f"{UNFIT} as it is: {content['does_not_fit']}")
    return "\n".join(lines)


def _ends(entry: Entry, name: str) -> tuple[str, str]:
    low, high = (entry[end] and format_figure(entry[end]["value"], name) for end in ("at_low", "at_high"))
    return low or "cannot be", high or "cannot be"


def _elasticity(entry: Entry, name: str) -> str:
    mark = "" if entry["smooth"] else " *"
    return f"kink{mark}" if entry["kink"] else f"{entry['elasticity'][name]:+.3f}{mark}"


def _parameters(content: Entry, page: Page) -> None:
    name = content["figure"]
    for of, title in GROUPS.items():
        found = [parameter for parameter in content["parameters"] if parameter["of"] == of]
        if not found:
            continue
        table = new_table(
            [(title, ""), figure("setting"), figure("elasticity"), figure("varied.from"), ("", ""),
             figure("at_low"), figure("at_high"), figure("swing")]
        )  # fmt: skip
        for one in found:
            unit, varied = one["unit"], one["varied"]
            ends = f"{format_setting(varied['from'], unit)} … {format_setting(varied['to'], unit)}"
            table.add_row(
                one["parameter"], format_setting(one["setting"], unit), _elasticity(one, name), ends,
                varied["said"], *_ends(one, name), f"{one['swing']:.1%}",
            )  # fmt: skip
        page.table(table)


def _elasticity_lines(content: Entry) -> Iterator[str]:
    name = content["figure"]
    yield bound_line(content)
    yield f"elasticity: % of {title_of(name)} for 1 % of the parameter; swing: from end to end, of the figure now"
    for parameter in content["parameters"]:
        if not parameter["smooth"]:
            sides = (
                ("below", parameter["below"]),
                ("above", parameter["above"]),
                ("over half the step", parameter["at_half_step"]),
            )
            slopes_text = ", ".join(f"{slope:+.3f} {side}" for side, slope in sides if slope is not None)
            yield f"* not smooth in {parameter['parameter']}: {slopes_text}"
        if parameter["why"]:
            yield f"{parameter['parameter']}: {parameter['why']}"
    still: dict[str, list[str]] = {}
    for one in content["not_varied"]:
        still.setdefault(one["why"], []).append(one["parameter"])
    for why, names in still.items():
        yield f"not listed, {why}: {', '.join(names)}"
    if stay := content.get("lines_that_stay"):
        yield f"lines without an estimate on {content['target']}, which stay: {', '.join(stay)}"


def _measurements(content: Entry, page: Page) -> None:
    found = [one for one in content.get("measurements", ()) if one["shrinks"] > 0]
    key = "fom" if "suite" in content else "step_s"
    what = "FOM" if key == "fom" else "step"
    if found:
        page.line("")
        page.line(f"to measure, best first: what would be left of the {what}'s interval", "bold")
        table = new_table([("measurement", ""), ("", ""), (f"{what} then", ""), figure("shrinks"), ("by", "")])
        for one in found[:MEASUREMENTS]:
            left = one[key]["low"] < one[key]["high"]
            then = format_interval(one[key], None if key == "fom" else "time_s") if left else "nothing left"
            command = one["command"]
            table.add_row(one["what"], one["kind"], then, f"{one['shrinks']:.1%}", command or "its machine")
        page.table(table)
    if content.get("no_spread_stated"):
        names = ", ".join(content["no_spread_stated"])
        page.line(f"stated without a spread, so measuring moves the figure and not its interval: {names}")
    if content.get("measurements_say"):
        page.line(content["measurements_say"])


def format_sensitivity(content: Entry, screen: Screen = PLAIN) -> str:
    """Write ``fomkit/sensitivity/1``."""
    page = Page(screen)
    page.line(title_line(content), "bold")
    _parameters(content, page)
    for line in _elasticity_lines(content):
        page.line(line)
    _measurements(content, page)
    page.line(f"assumed: {'; '.join(content['assumed'])}")
    for message in content["notes"]:
        page.line(f"note: {message}", "yellow")
    return page.text()


POINTS = 12
"""Combinations that are printed."""


def _factor(value: float) -> str:
    """Write a factor with as many digits as tell it from 1.

    Examples
    --------
    >>> _factor(1.00012), _factor(2.0), _factor(0.25)
    ('1.00012 ×', '2.000 ×', '0.250 ×')
    """
    return f"{value:.3f} ×" if abs(value - 1) >= 0.001 else f"{value:.6g} ×"


def _probability(value: float) -> str:
    return ">99.9%" if 0.999 < value < 1 else "<0.1%" if 0 < value < 0.001 else f"{value:.1%}"


def _goal_text(content: Entry) -> str:
    goal, name = content["goal"], content["figure"]
    bound = "at most" if goal["at_most"] else "at least"
    return f"{title_of(name)} {bound} {format_figure(goal['asked'], name)}, probability {goal['probability']:g}"


def _changes(content: Entry, page: Page) -> None:
    name = content["figure"]
    table = new_table(
        [("change alone", ""), figure("setting"), figure("needed"), figure("changes.factor"), figure("then"),
         ("interval", ""), figure("changes.probability"), ("", "")]
    )  # fmt: skip
    for change in content["changes"]:
        unit = change["unit"]
        missed = "cannot" if change["proved"] else "not found"
        needed = format_setting(change["needed"], unit, 4) if change["reached"] else missed
        unfit = "does not fit" if change["reached"] and change["does_not_fit"] else ""
        table.add_row(
            change["parameter"], format_setting(change["setting"], unit), needed,
            _factor(change["factor"]) if change["reached"] else "", format_figure(change["then"]["value"], name),
            format_interval(change["then"], DIMENSIONS.get(name)), _probability(change["probability"]),
            change["why"] or unfit, style="" if change["reached"] else "dim",
        )  # fmt: skip
    page.table(table)
    for change in content["changes"]:
        if change["reached"] and change["does_not_fit"]:
            setting = format_setting(change["needed"], change["unit"])
            page.line(f"{change['parameter']} {setting}: {change['does_not_fit']}")


def _frontier(content: Entry, page: Page) -> None:
    found = content["frontier"]
    names = found["parameters"]
    page.line("")
    page.line(f"together: {', '.join(names)}; the least sum of |ln(factor)| first", "bold")
    if not found["reached"]:
        page.line(f"cannot reach it: {found['why']}")
        return
    name = content["figure"]
    heads = [(name, "") for name in names]
    table = new_table([*heads, figure("total"), figure("then"), ("interval", ""), figure("changes.probability")])
    for point in found["points"][:POINTS]:
        table.add_row(
            *(f"{_factor(point['factors'][parameter])}" for parameter in names), f"{point['total']:.3f}",
            format_figure(point["then"]["value"], name), format_interval(point["then"], DIMENSIONS.get(name)),
            _probability(point["probability"]),
        )  # fmt: skip
    page.table(table)
    if len(found["points"]) > POINTS:
        page.line(f"and {len(found['points']) - POINTS} more; --json has all")


def _with_notes(content: Entry, page: Page) -> str:
    for message in content["notes"]:
        page.line(f"note: {message}", "yellow")
    return page.text()


def format_solution(content: Entry, screen: Screen = PLAIN) -> str:
    """Write ``fomkit/solve/1``."""
    page = Page(screen)
    page.line(title_line(content), "bold")
    now = f"now {_probability(content['probability'])}"
    if content["already_reached"]:
        page.line(f"asked: {_goal_text(content)}; {now}: already reached, nothing must change")
        page.line(bound_line(content))
        return _with_notes(content, page)
    verdict = "" if content["reached"] else "; nothing that was tried reaches it"
    page.line(f"asked: {_goal_text(content)}; {now}{verdict}")
    if content["changes"]:
        _changes(content, page)
    refused: dict[str, list[str]] = {}
    for one in content["refused"]:
        refused.setdefault(one["why"], []).append(one["parameter"])
    for why, names in refused.items():
        page.line(f"not tried: {', '.join(names)}: {why}")
    if content["frontier"] is not None:
        _frontier(content, page)
    page.line(bound_line(content))
    page.line(
        f"no parameter is changed by more than {content['most_factor']:g} times; {'; '.join(content['assumed'])}"
    )
    return _with_notes(content, page)
