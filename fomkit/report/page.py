"""A small table for notebooks, from the same content that ``--json`` prints; names stay text."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from fomkit.quantities import format_number, format_quantity
from fomkit.report.terminal import UNFIT, format_coverage, format_interval


def _row(one: Mapping[str, Any]) -> str:
    per_day = one["unit_per_day"]
    cells = (
        one["model"],
        one["target"],
        one["batch"],
        format_quantity(one["step_s"]["value"], "time_s"),
        format_interval(one["step_s"], "time_s"),
        ("unknown" if per_day is None else format_number(per_day["value"]))
        + (f" {UNFIT} does not fit the memory" if one["fits"] is False else ""),
        format_interval(per_day, None),
        one["bound"],
        format_coverage(one["coverage"]),
        ", ".join(one["excludes"]),
    )
    return "".join(f"<td>{escape(str(cell))}</td>" for cell in cells)


def estimates_html(content: Mapping[str, Any]) -> str:
    """Write a study as an HTML table with its coverage and exclusions."""
    head = (
        "model",
        "machine",
        "batch",
        "step",
        "interval",
        "units/day",
        "interval",
        "bound",
        "coverage",
        "excludes",
    )
    rows = "".join(f"<tr>{_row(one)}</tr>" for one in content["models"])
    header = "".join(f"<th>{name}</th>" for name in head)
    caption = f"{content['interval']:.0%} intervals, scope {escape(content['scope'])}"
    return f"<table><caption>{caption}</caption><tr>{header}</tr>{rows}</table>"
