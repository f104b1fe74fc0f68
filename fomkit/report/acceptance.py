"""Accepted lines as aligned text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fomkit.metrics import upper_bounds
from fomkit.quantities import format_number
from fomkit.report.screen import PLAIN, Page, Screen, figure, new_table
from fomkit.report.terminal import UNFIT, format_interval, mark_of


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
        for said in line["deviations"]:
            page.line(f"deviation: {line['name']} was committed under other conditions: {said}", "yellow")
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
