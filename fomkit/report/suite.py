"""A suite's figure of merit as aligned text: what is missing or changed first, then the value, then the lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fomkit.quantities import format_number
from fomkit.report.screen import PLAIN, Page, Screen, figure, new_table
from fomkit.report.terminal import mark_of, show_merit

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
    return [name for name in names if any(one["machines"][name]["excludes"] is None for one in content["lines"])]


def _first_lines(content: Mapping[str, Any], page: Page) -> None:
    old, new = content["baseline"], content["target"]
    for name in (old, new):
        kinds = [line["machines"][name]["kind"] for line in content["lines"]]
        said = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
        page.line(f"coverage of {name}: {said}, of {len(kinds)} lines")
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
        show_merit(page, content["fom"])
        if content["threshold"] is not None:
            page.line(_verdict_line(content["threshold"]))
    page.table(_table(content, screen))
    if screen.narrow:
        page.line(f"not shown on a narrow screen: {', '.join(_wide_headers(content))}; --json has them")
    for one in content["campaigns"]:
        days = ", ".join(f"{name} {_number(value, 5)}" for name, value in one["days"].items())
        page.line(f"campaign {one['name']}: {one['units']:,.8g} units of {one['line']}; days: {days}")
    for note in content["notes"]:
        page.line(f"note: {note}")
    return page.text()
