"""Projected beside measured as aligned text, and the grid of rates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fomkit.metrics import upper_bounds
from fomkit.quantities import format_number, format_quantity
from fomkit.report.screen import PLAIN, Page, Screen, figure, new_table
from fomkit.report.terminal import UNFIT, format_interval, mark_of

_LEGEND = (
    "claim: absolute = the device explains a third or more, so its time may be compared; ratio = only its ratio "
    "to the baseline; start-up bound, host bound = the time is not the device's; unexplained = nothing says why",
    "agrees: inside the interval; ambiguous = outside it, but in that of 95 % or by the measurement's own spread; "
    "outside. Summaries leave unexplained cells out",
)
_SAID = {
    "absolute": "cells whose time is claimed, projected over measured",
    "ratio": "cells whose ratio to the baseline is claimed",
    "calibrated": "other models after calibration on one, each on its machine",
    "with_host_term": "other machines with the host's part carried from one",
}


def _figure(span: Mapping[str, float] | None, quantity: str) -> str:
    if span is None:
        return "unknown"
    if quantity == "sample_per_s":
        return f"{format_number(span['value'])}/s"
    return format_quantity(span["value"], "time_s")


def _dimension(quantity: str) -> str | None:
    return None if quantity == "sample_per_s" else "time_s"


def _ratio(cell: Mapping[str, Any]) -> tuple[str, str]:
    if cell["ratio"] is None:
        return "", ""
    projected = cell["projected_ratio"]
    measured = f"{format_number(cell['ratio'], 3)}×"
    if projected is None:
        return measured, "unknown"
    return measured, f"{format_number(projected['value'], 3)}× ({format_interval(projected, None)})"


def _cells(cell: Mapping[str, Any]) -> list[str]:
    quantity, error = cell["quantity"], cell["error"]
    measured, projected = _ratio(cell)
    return [
        cell["model"],
        cell["machine"],
        _figure(cell["measured"], quantity) if cell["basis"] == "measured" else
        f"[{_figure(cell['measured'], quantity)}]",
        _figure(cell["projected"], quantity),
        format_interval(cell["projected"], _dimension(quantity)),
        "" if error is None else f"{error:+.0%}",
        measured,
        projected,
        cell["claim"] or "none",
        cell["agrees"] or "",
        cell["cause"],
    ]  # fmt: skip


def _carried_line(cell: Mapping[str, Any], key: str) -> str:
    one, quantity = cell[key], cell["quantity"]
    inside = "inside" if one["inside"] else "outside"
    return (
        f"  {cell['model']} on {cell['machine']}: {_figure(one, quantity)} "
        f"({format_interval(one, _dimension(quantity))}) by {one['told_by']}, "
        f"measured {_figure(cell['measured'], quantity)}: {one['error']:+.0%}, {inside}"
    )


def format_compare(content: Mapping[str, Any], screen: Screen = PLAIN) -> str:
    """Write each cell with its claim and cause, then what was carried, then the means by name."""
    page = Page(screen)
    base = content["baseline"] or "none"
    quantities = dict.fromkeys(cell["quantity"] for cell in content["cells"])
    page.line(f"projected beside measured: {', '.join(quantities)}; ratios to {base}; [ ] = not measured")
    table = new_table(
        [("model", ""), ("machine", ""), figure("cells.measured"), figure("cells.projected"), ("interval", ""),
         figure("error"), figure("ratio"), ("projected ratio", ""), ("claim", ""), ("agrees", ""),
         ("what the time waits for", "")]
    )  # fmt: skip
    for cell in content["cells"]:
        table.add_row(*_cells(cell))
    page.table(table)
    for key, title in (
        ("calibrated", "calibrated on another model:"),
        ("with_host_term", "with a host term carried:"),
    ):
        carried = [cell for cell in content["cells"] if cell[key] is not None]
        if carried:
            page.line(title, "bold")
            for cell in carried:
                page.line(_carried_line(cell, key))
    for key, found in content["summary"].items():
        if found is not None:
            page.line(
                f"{_SAID[key]}: {found['count']}; geometric mean of measured over projected "
                f"{format_number(found['mean_factor'], 3)}, arithmetic mean of |error| {found['mean_error']:.0%}, "
                f"{found['inside']} inside"
            )
    for said in content["notes"]:
        page.line(f"note: {said}", "yellow")
    for line in _LEGEND:
        page.line(line)
    page.line(f"intervals: {content['interval']:.0%}, of {content['interval_covers']}")
    return page.text()


def _doubt(cell: Mapping[str, Any]) -> str:
    """Say beside a modelled rate how much of a measured run it explains, where that is the smaller part."""
    share = cell["explained"]
    little = "" if share is None or share >= 1 / 2 else f", the device explains {share:.1%} of a measured run"
    return mark_of(cell) + little


def format_grid(content: Mapping[str, Any], screen: Screen = PLAIN) -> str:
    """Write one row for each model and machine, one column for each framework and mode; empty cells say why."""
    page = Page(screen)
    limit = format_quantity(content["latency_limit_s"], "time_s", 3)
    page.line(f"samples per second; infer: {content['inference_is']}, {limit}")
    ways = list(dict.fromkeys((cell["framework"], cell["mode"]) for cell in content["cells"]))
    table = new_table([("model", ""), ("machine", ""), *((f"{name}, {mode}", "") for name, mode in ways)])
    rows: dict[tuple[str, str], dict[tuple[str, str], str]] = {}
    for cell in content["cells"]:
        rate = cell["sample_per_s"]
        if rate is None:
            text = f"empty: {cell['why']}"
        else:
            spread = "" if rate["low"] == rate["high"] else f" ({format_interval(rate, None)})"
            text = f"{format_number(rate['value'])}{spread}, batch {cell['batch']}, {cell['basis']}{_doubt(cell)}"
        rows.setdefault((cell["model"], cell["machine"]), {})[cell["framework"], cell["mode"]] = text
    for (model, machine), found in rows.items():
        table.add_row(
            model, machine, *(found.get(way, "empty: the profile has another framework") for way in ways)
        )
    page.table(table)
    excluded = dict.fromkeys(term for cell in content["cells"] for term in cell["excludes"])
    if excluded:
        page.line(upper_bounds(excluded, "modelled rates"))
    if any(cell["fits"] is False for cell in content["cells"]):
        page.line(f"{UNFIT} the device's memory does not hold the step: nobody can have this rate", "yellow")
    for said in content["notes"]:
        page.line(f"note: {said}", "yellow")
    page.line(f"intervals: {content['interval']:.0%}")
    return page.text()
