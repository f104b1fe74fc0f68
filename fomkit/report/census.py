"""Layers by type, as the tables of the classic networks have them, as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fomkit.quantities import format_mebibyte
from fomkit.report.screen import Page, Screen, figure
from fomkit.report.whole_numbers import table_of_numbers

WIDE = 100
"""Width from which other operations have a column of their own."""

_NAMES = (
    "layers", "multiply_adds", "other_operations", "parameters", "parameter_byte", "output_byte", "im2col_byte",
)  # fmt: skip


def _cell(name: str, value: float) -> str:
    if not value:
        return ""
    return format_mebibyte(value) if name.endswith("_byte") else f"{value:,.0f}"


def add_census(page: Page, census: Mapping[str, Any], batch: int | None, screen: Screen) -> None:
    """Add the table of layer types and what it adds up to."""
    names = [name for name in _NAMES if name != "other_operations" or screen.width >= WIDE]
    samples = census["samples"]
    of = "one sample" if samples == 1 else f"{samples} samples"
    page.line(f"layers by type, forward pass of {of}; weights, outputs and im2col in MiB")
    table = table_of_numbers([("layer", ""), *map(figure, names)])
    for row in census["types"]:
        table.add_row(row["layer"], *(_cell(name, row[name]) for name in names))
    table.add_section()
    table.add_row("total", *(_cell(name, census["total"][name]) for name in names), style="bold")
    page.table(table)
    for line in _sums(census, batch):
        page.line(line)


def _sums(census: Mapping[str, Any], batch: int | None) -> list[str]:
    maps, total = census["activations"], census["total"]
    mib = {name: format_mebibyte(value) for name, value in maps.items()}
    copies = (
        f"feature maps and {mib['copies_byte']} for one copy per reader of what several layers read, as in Caffe"
    )
    lines = [
        f"{census['all_operations']:,.0f} operations in all: multiply-adds, additions of biases, elements of "
        "pooling and local normalisation windows, one for any other output",
        f"feature maps {mib['feature_maps_byte']} MiB: data {mib['input_byte']} and outputs "
        f"{format_mebibyte(total['output_byte'])}; {mib['feature_maps_in_place_byte']} where layers that work in "
        "place take none",
        f"activations {mib['with_copies_byte']} MiB: {copies if maps['copies_byte'] else 'the feature maps'}",
    ]
    if census["samples"] == 1 and batch is not None and batch > 1:
        full, less = (maps[name] * batch for name in ("feature_maps_byte", "feature_maps_in_place_byte"))
        lines.append(
            f"feature maps at batch {batch}: {format_mebibyte(full)} MiB, {format_mebibyte(less)} in place"
        )
    if census["largest_im2col_byte"]:
        lines.append(
            f"im2col, convolutions as plain products: {format_mebibyte(total['im2col_byte'])} MiB together, "
            f"{format_mebibyte(census['largest_im2col_byte'])} for the largest"
        )
    if census["not_counted"]:
        lines.append(f"not counted, at inference they hand on what they get: {', '.join(census['not_counted'])}")
    return lines
