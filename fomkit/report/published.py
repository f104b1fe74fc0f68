"""Published figures of many devices beside the projected ones, as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fomkit.quantities import BINARY, format_number, format_quantity
from fomkit.report.screen import PLAIN, Page, Screen, figure
from fomkit.report.whole_numbers import table_of_numbers

Entry = Mapping[str, Any]
_COLUMNS = (
    ("model", ""), ("technique", ""), figure("published"), figure("published.projected"), figure("interval"),
    figure("error"),
)  # fmt: skip
_WHAT = {"s": "step", "byte": "activations", "share": "activations"}


def _value(value: float, unit: str) -> str:
    if unit == "s":
        return format_quantity(value, "time_s")
    return f"{100 * value:.2f} %" if unit == "share" else f"{format_number(value / BINARY['Gi'])} GiB"


def _interval(span: Mapping[str, float], unit: str) -> str:
    if span["low"] == span["high"]:
        return ""
    return f"{_value(span['low'], unit)} to {_value(span['high'], unit)}"


def add_published(page: Page, entries: Iterable[Entry]) -> None:
    """Add the table of all, and where the published figures are from."""
    known = list(entries)
    page.line("Megatron-LM as published: steps and activations of many devices", "bold")
    table = table_of_numbers(_COLUMNS)
    for one in known:
        unit, span = one["unit"], one["projected"]
        table.add_row(
            f"{one['model']}, {_WHAT[unit]}", one["technique"], _value(one["published"], unit),
            _value(span["value"], unit), _interval(span, unit), f"{one['error']:+.1%}",
        )  # fmt: skip
    page.table(table)
    page.line(f"published: {'; '.join(dict.fromkeys(one['source'] for one in known))}")


def format_published(entries: Iterable[Entry], screen: Screen = PLAIN) -> str:
    """Write the table alone."""
    page = Page(screen)
    add_published(page, entries)
    return page.text()
