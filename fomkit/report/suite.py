"""A suite's figure of merit as aligned text: what is missing or changed first, then the value, then the lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fomkit.quantities import format_number
from fomkit.report.screen import PLAIN, Page, Screen, new_table
from fomkit.report.terminal import format_merit

if TYPE_CHECKING:
    from rich.table import Table

_DIGITS = 8


def _number(value: float | None, digits: int = _DIGITS) -> str:
    return "missing" if value is None else f"{value:,.{digits}g}"


def _table(content: Mapping[str, Any]) -> Table:
    old, new = content["baseline"], content["target"]
    table = new_table(
        [("line", ""), ("required", ""), ("class", ""), ("basis", ""), ("party", ""), (f"{old} from", ""),
         (f"{new} from", ""), (f"{old} units/day", "right"), (f"{new} units/day", "right"), ("ratio", "right"),
         ("weight", "right")]
    )  # fmt: skip
    for line in content["lines"]:
        on = line["machines"]
        table.add_row(
            line["name"],
            "yes" if line["required"] else "no",
            line["class"],
            line["basis"],
            line["party"],
            on[old]["from"],
            on[new]["from"],
            _number(line["unit_per_day"][old]),
            _number(line["unit_per_day"][new]),
            "" if line["ratio"] is None else format_number(line["ratio"], 7),
            "" if line["weight"] is None else f"{line['weight']:.1%}",
        )
    return table


def _verdict_line(threshold: Mapping[str, Any]) -> str:
    reached, probability = format_number(threshold["threshold"]), threshold["probability"]
    if probability is None:
        return f"  threshold {reached}: {threshold['verdict']} (the times carry no spread, so no probability)"
    return f"  threshold {reached}: {threshold['verdict']}, P(FOM ≥ {reached}) = {probability:.0%}"


def _first_lines(content: Mapping[str, Any], page: Page) -> None:
    lines = content["lines"]
    estimated = sum(any(on["from"] == line["model"] for on in line["machines"].values()) for line in lines)
    frozen = f"; {content['baseline']} frozen in version {content['version']}" if content["frozen"] else ""
    page.line(f"coverage: {len(lines) - estimated} of {len(lines)} lines given, {estimated} estimated{frozen}")
    if relative := [line["name"] for line in lines if line["relative"]]:
        page.line(f"relative: {', '.join(relative)}: rates are multiples of a reference's, not units a day")
    for one in content["missing"]:
        left = "required" if one["required"] else "optional, left out of the mean"
        page.line(f"missing: {one['line']} on {one['machine']} ({left}): {one['why']}", "yellow")
    for one in content["deviations"]:
        page.line(f"deviation: {one['line']} on {one['machine']}: {one['deviation']}; class optimized", "yellow")


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
        first, *others = format_merit(content["fom"])
        page.line(first, "bold")
        for text in others:
            page.line(text)
        if content["threshold"] is not None:
            page.line(_verdict_line(content["threshold"]))
    page.table(_table(content))
    for one in content["campaigns"]:
        days = ", ".join(f"{name} {_number(value, 5)}" for name, value in one["days"].items())
        page.line(f"campaign {one['name']}: {one['units']:,.8g} units of {one['line']}; days: {days}")
    for note in content["notes"]:
        page.line(f"note: {note}")
    return page.text()
