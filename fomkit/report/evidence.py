"""What the longest ops of a step rest on, for people (``fomkit/explain/1``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from fomkit.quantities import format_quantity
from fomkit.report.screen import PLAIN, Page, Screen, figure, new_table
from fomkit.report.terminal import format_coverage, format_interval

if TYPE_CHECKING:
    from rich.table import Table

Entry = Mapping[str, Any]
_BROAD = 110
"""Columns from which the table of ops has room for intervals."""
_RATES: Mapping[str, tuple[str, str]] = {"flop": ("compute", "flop_per_s"), "byte": ("memory", "byte_per_s")}


def _seconds(value: float) -> str:
    return format_quantity(value, "time_s", 3)


def _source(near: Entry) -> str:
    row = near["source_row"]
    places = [near["source_file"], near["source_sheet"], None if row is None else f"row {row:g}"]
    return ", ".join(str(place) for place in places if place is not None) or "source not stated"


def _ops_table(ops: list[Entry], rest: Entry, screen: Screen) -> Table:
    broad = screen.width >= _BROAD
    more = [("pass", ""), figure("count"), figure("time_s", "each")] if broad else [figure("count")]
    last = [("interval", ""), figure("share"), ("time from", "")] if broad else [figure("share")]
    table = new_table([("#", "right"), ("op", ""), *more, figure("step_time_s"), *last])
    for place, one in enumerate(ops, 1):
        step, count = one["step_time_s"], f"{one['count']:,.0f}"
        before = [one["pass_name"], count, _seconds(one["time_s"]["value"])] if broad else [count]
        share = f"{one['share']:.1%}"
        after = [format_interval(step, "time_s"), share, one["time_source"]] if broad else [share]
        name = one["sizes"] if broad else f"{one['sizes']}, {one['pass_name']}"
        table.add_row(str(place), name, *before, _seconds(step["value"]), *after)
    if rest["ops"]:
        before, share = [""] * len(more), f"{rest['share']:.1%}"
        after = ["", share, ""] if broad else [share]
        table.add_row("", f"({rest['ops']:,} others)", *before, _seconds(rest["time_s"]), *after, style="dim")
    return table


def _times(text: str) -> str:
    return text.replace("*", " · ")


def _cost(name: str, one: Entry) -> str:
    cost, (term, rate) = one["costs"][name], _RATES[name]
    if cost["value"] is None:
        return "unknown; no formula for this op"
    bound = one["floor"][term]
    worked = "" if cost["formula"] is None else f"{_times(cost['formula'])} = {_times(cost['numbers'])} = "
    at = "" if bound is None else f"; {_seconds(bound['time_s'])} at {format_quantity(bound['rate'], rate)}"
    basis = "" if bound is None else f" ({bound['basis']}: {bound['source']})"
    return f"{worked}{format_quantity(cost['value'], name)}{at}{basis}"


def _floor(one: Entry) -> str:
    floor_s = one["floor"]["time_s"]
    if floor_s is None:
        return "unknown; the machine does not state the rates that it needs"
    share = floor_s / one["time_s"]["value"]
    return f"{_seconds(floor_s)} by {one['floor']['binding']}, {share:.0%} of the time; bound: {one['bound']}"


def _lines(one: Entry) -> Iterator[tuple[str, str]]:
    formats = f"{one['dtype']} on the {one['engine']} engine"
    places = f"{one['modules']} place{'s' if one['modules'] > 1 else ''} of the model"
    yield "", f"{one['op']}, {one['pass_name']}, {formats}, {one['count']:,.0f} × from {places}"
    interval = format_interval(one["time_s"], "time_s")
    yield "time", f"{_seconds(one['time_s']['value'])} each ({interval}), {one['time_source']}"
    if not one["nearest"] or ";" in one["evidence"] or one["time_source"] == "transferred":
        yield "evidence", one["evidence"]
    for number, near in enumerate(one["nearest"]):
        far = "the same op" if near["distance"] == 0 else f"distance {near['distance']:.2g}"
        told = f"{near['sizes']}: {_seconds(near['time_s'])}, {far} ({_source(near)})"
        yield "" if number else "timed", told
    yield "flop", _cost("flop", one)
    yield "byte", _cost("byte", one)
    yield "floor", _floor(one)


def _add_op(page: Page, place: int, one: Entry) -> None:
    from rich.table import Table

    page.line("")
    page.line(f"{place}. {one['sizes']}", "bold")
    grid = Table.grid(padding=(0, 2))
    for _ in range(3):
        grid.add_column()
    for name, text in _lines(one):
        grid.add_row("", name, text)
    page.table(grid)


def _add_shorthands(page: Page, ops: list[Entry]) -> None:
    named = {
        name: text for one in ops for cost in one["costs"].values() for name, text in cost.get("where", {}).items()
    }
    if named:
        page.line("")
        page.line("named parts of the formulas")
        for name, text in named.items():
            page.line(f"  {name} = {_times(text)}")


def _add_measurements(page: Page, content: Entry, screen: Screen) -> None:
    page.line("")
    page.line(
        "to time on the machine, best first: what an exact timing would leave of the step's interval", "bold"
    )
    more = [("pass", ""), figure("executions"), ("now", "")] if screen.width >= _BROAD else []
    table = new_table([("op", ""), *more, ("step then", ""), figure("shrinks")])
    for one in content["measurements"]:
        passes = ", ".join(one["passes"])
        cells = [passes, f"{one['executions']:,.0f}", one["time_source"]] if more else []
        name = one["sizes"] if more else f"{one['sizes']}, {passes}"
        table.add_row(name, *cells, format_interval(one["step_s"], "time_s"), f"{one['shrinks']:.1%}")
    page.table(table)
    if content["all_measured"] is not None:
        page.line(
            f"with all of these timed, the step's interval is {format_interval(content['all_measured'], 'time_s')}"
        )
    page.line("-o FILE.csv writes these as a table of ops; what a timing tells of similar ops is not counted")


def _head(content: Entry) -> Iterator[str]:
    step, device = content["step_s"], content["device_s"]
    sizes = ", ".join(f"{name} {size}" for name, size in content["sizes"].items()) or "sizes fixed"
    interval = f"{content['interval']:.0%} interval {format_interval(step, 'time_s')}"
    took = f"{format_quantity(step['value'], 'time_s')} ({interval})"
    least = "at least " if content["unpriced"] else ""
    yield f"{content['model']} on {content['target']}, {sizes}, {content['precision']}: a step takes {least}{took}"
    if device["value"] != step["value"]:
        busy = format_quantity(device["value"], "time_s")
        yield f"the device works {busy} of it, which the shares are of; the step waits for {content['bound']}"
    yield f"time from: {format_coverage(content['coverage'])}"


def format_evidence(content: Entry, screen: Screen = PLAIN) -> str:
    """Write ``fomkit/explain/1``."""
    page = Page(screen)
    for line in _head(content):
        page.line(line)
    page.table(_ops_table(content["ops"], content["rest"], screen))
    for place, one in enumerate(content["ops"], 1):
        _add_op(page, place, one)
    _add_shorthands(page, content["ops"])
    _add_measurements(page, content, screen)
    for one in content["unpriced"]:
        page.line(f"without a time: {one['op']} ({one['sizes']}), {one['count']:,.0f} ×")
    for said in content["deviations"]:
        page.line(f"note: {said}")
    return page.text()


def measurement_rows(content: Entry) -> list[Mapping[str, Any]]:
    """Give the ops to time as rows of a table of ops, best first, with how much each would tell."""
    return [{**one["line"], "shrinks": one["shrinks"]} for one in content["measurements"]]
