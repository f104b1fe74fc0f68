"""What a result hangs on, for people (``fomkit/sensitivity/1``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fomkit.metrics import title_of, upper_bounds
from fomkit.quantities import format_number, format_quantity
from fomkit.report.screen import PLAIN, Page, Screen, figure, new_table
from fomkit.report.terminal import UNFIT, format_interval

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
    said = f"{title_of(name)} {format_figure(span['value'], name)} ({content['interval']:.0%} interval {interval})"
    return f"{of}: {said}"


def bound_line(content: Entry) -> str:
    """Say what nobody stated, and what the main figure is because of it."""
    said = upper_bounds(content["excludes"])
    if said and content["figure"] not in ("unit_per_day", "fom"):
        said = f"the figure is without what nobody stated: {', '.join(content['excludes'])}"
    lines = [said or "nothing excluded"]
    if content.get("little_explained"):
        lines.append(
            f"the device explains less than half of a measured run of {', '.join(content['little_explained'])}: "
            "the figure is of the device's work alone"
        )
    if content.get("does_not_fit"):
        lines.append(f"{UNFIT} as it is: {content['does_not_fit']}")
    return "\n".join(lines)


def _ends(one: Entry, name: str) -> tuple[str, str]:
    low, high = (one[end] and format_figure(one[end]["value"], name) for end in ("at_low", "at_high"))
    return low or "cannot be", high or "cannot be"


def _elasticity(one: Entry, name: str) -> str:
    mark = "" if one["smooth"] else " *"
    return f"kink{mark}" if one["kink"] else f"{one['elasticity'][name]:+.3f}{mark}"


def _parameters(content: Entry, page: Page) -> None:
    name = content["figure"]
    for of, title in GROUPS.items():
        found = [one for one in content["parameters"] if one["of"] == of]
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


def _said(content: Entry) -> Iterator[str]:
    name = content["figure"]
    yield bound_line(content)
    yield f"elasticity: % of {title_of(name)} for 1 % of the parameter; swing: from end to end, of the figure now"
    for one in content["parameters"]:
        if not one["smooth"]:
            sides = (("below", one["below"]), ("above", one["above"]), ("over half the step", one["at_half_step"]))
            told = ", ".join(f"{slope:+.3f} {side}" for side, slope in sides if slope is not None)
            yield f"* not smooth in {one['parameter']}: {told}"
        if one["why"]:
            yield f"{one['parameter']}: {one['why']}"
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
    for line in _said(content):
        page.line(line)
    _measurements(content, page)
    page.line(f"assumed: {'; '.join(content['assumed'])}")
    for said in content["notes"]:
        page.line(f"note: {said}", "yellow")
    return page.text()
