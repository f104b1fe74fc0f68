"""A sweep as text: what was varied, the best points, the front of Pareto."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fomkit.metrics import upper_bounds
from fomkit.quantities import format_number, format_quantity
from fomkit.report.screen import PLAIN, Page, Screen, figure, new_table

Entry = Mapping[str, Any]
ROWS = 20
"""Points of the front that a page lists."""
_QUANTITIES = {
    "byte/s": "byte_per_s", "flop/s": "flop_per_s", "s": "time_s", "W": "power_w", "byte": "byte", "J": "energy_j",
}  # fmt: skip
_OF_RESULTS = {"step_s": "s", "peak_byte": "byte", "energy_j": "J"}
_WORDS = {"unit_per_day": "units/day", "sample_per_s": "samples/s", "step_s": "step", "cost": "cost",
          "energy_j": "energy", "peak_byte": "peak"}  # fmt: skip


def _shown(value: float | None, unit: str) -> str:
    if value is None:
        return "unknown"
    if unit == "count":
        return f"{value:,.0f}"
    if unit in _QUANTITIES and value:
        return format_quantity(value, _QUANTITIES[unit], 3)
    return format_number(value, 3) if unit == "number" else f"{format_number(value, 3)} {unit}"


def _cell(point: Entry, name: str, units: Mapping[str, str]) -> str:
    if name not in point:
        return ""
    text = _shown(point[name], units.get(name, "number"))
    low, high = point.get(f"{name}_low"), point.get(f"{name}_high")
    if low is None or high is None or low == high:
        return text
    return f"{text} ({_shown(low, units.get(name, 'number'))} to {_shown(high, units.get(name, 'number'))})"


def _varied(one: Entry) -> str:
    low, high = (_shown(one[end], one["unit"]) for end in ("least", "most"))
    if one["least"] == one["most"]:
        return f"{one['name']} {low}"
    of = "" if one["count"] is None else f", {one['count']:,} values"
    spacing = ", even ratios" if one["spacing"] == "log" else ""
    return f"{one['name']} {low} to {high}{of}{spacing}"


def format_sweep(content: Entry, screen: Screen = PLAIN) -> str:
    """Write a sweep (``fomkit/sweep/1``) as text."""
    page = Page(screen)
    seed = "" if content["seed"] is None else f", seed {content['seed']}"
    spent = [one["name"] for one in content["objectives"] if one["name"] in ("cost", "energy")]
    of = f"; {' and '.join(spent)} for each {content['per']}" if spent else ""
    page.line(
        f"{content['model']} on {content['target']}: {content['points']:,} points ({content['way']}{seed}), "
        f"{content['interval']:.0%} intervals, number formats {content['precision'] or 'as traced'}{of}"
    )
    units = {one["name"]: one["unit"] for one in content["varied"]} | _OF_RESULTS
    if content["price"]:
        units["cost"] = content["price"]["currency"]
    for one in content["varied"]:
        page.line(f"  {_varied(one)}")
    _best(page, content, units)
    _front(page, content, units)
    if said := upper_bounds(content["excludes"], "rates"):
        page.line(f"{said}; times and costs are lower bounds")
    if content["price"] and content["price"]["date"]:
        price = content["price"]
        page.line(f"price: of {price['date']}, in {price['currency']} per {price['per']} ({price['source']})")
    for name, why in content["absent"].items():
        page.line(f"without {_WORDS[name]}: {why}")
    for text in content["assumed"]:
        page.line(f"assumed: {text}")
    for said in content["notes"]:
        page.line(f"note: {said}", "yellow")
    return page.text()


def _moving(content: Entry) -> list[str]:
    """Name the parameters with more than one value."""
    return [one["name"] for one in content["varied"] if one["least"] != one["most"]]


def _best(page: Page, content: Entry, units: Mapping[str, str]) -> None:
    names = _moving(content)
    page.line("")
    if content["too_large"]:
        page.line(f"{content['too_large']:,} of the points do not fit the device's memory")
    if content["not_checked"]:
        some = "" if content["not_checked"] == content["points"] else f"{content['not_checked']:,} of the "
        page.line(f"whether {some}points fit was not checked, because {content['why_not_checked']}", "yellow")
    for one, best in zip(content["objectives"], content["best"], strict=True):
        point = best["point"]
        if point is None:
            page.line(f"best {_WORDS[one['column']]}: no point fits the device's memory")
            continue
        at = ", ".join(f"{name} {_shown(point[name], units[name])}" for name in names)
        where = f" at {at}" if at else ""
        unsure = ", if that fits" if point.get("fits") is None else ""
        page.line(f"best {_WORDS[one['column']]}: {_cell(point, one['column'], units)}{where}{unsure}", "bold")


def _front(page: Page, content: Entry, units: Mapping[str, str]) -> None:
    front, points = content["front"], content["front"]["points"]
    columns = [one["column"] for one in content["objectives"]]
    if len(columns) < 2 or not points:
        return
    names = _moving(content)
    words = ", ".join(_WORDS[name] for name in columns)
    page.line("")
    page.line(
        f"Front over {words}: {front['size']:,} points; no other is as good in all of these and better in one"
    )
    table = new_table([figure("front.points", word) for word in (*names, *(_WORDS[name] for name in columns))])
    for point in points[:ROWS]:
        table.add_row(*(_cell(point, name, units) for name in (*names, *columns)))
    page.table(table)
    if front["size"] > ROWS:
        page.line(f"{front['size'] - ROWS:,} more are in the JSON, up to its limit, and in the table (-o)")
