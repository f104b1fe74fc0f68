"""The memory of a step as text: by role and moment, by module at the peak, and against a device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fomkit.quantities import format_mebibyte
from fomkit.report.screen import PLAIN, Page, Screen, figure, new_table

MODULES = 12
"""Modules listed; the others are one line."""

_WORDS = {"state": "optimizer state"}


def _cell(byte: float | None) -> str:
    return "" if not byte else format_mebibyte(byte)


def _roles(page: Page, content: Mapping[str, Any]) -> None:
    passes, totals = content["passes"], content["totals"]
    table = new_table([("MiB", ""), figure("totals"), *((f"peak of {name}", "right") for name in passes)])
    roles = [*dict.fromkeys([*totals, *(role for one in passes.values() for role in one["roles"])])]
    for role in roles:
        cells = [totals.get(role), *(one["roles"].get(role) for one in passes.values())]
        if any(cells):
            table.add_row(_WORDS.get(role, role), *map(_cell, cells))
    if passes:
        table.add_section()
        table.add_row("together", "", *(_cell(one["byte"]) for one in passes.values()), style="bold")
    page.table(table)


def _modules(page: Page, content: Mapping[str, Any]) -> None:
    table = new_table([("module at the peak", ""), figure("modules.byte", "MiB"), ("mostly", "")])
    rows, rest = content["modules"][:MODULES], content["modules"][MODULES:]
    for row in rows:
        mostly = max(row["roles"], key=row["roles"].__getitem__)
        table.add_row(row["module"] or "(the model itself)", _cell(row["byte"]), _WORDS.get(mostly, mostly))
    if rest:
        table.add_row(f"{len(rest)} others", _cell(sum(row["byte"] for row in rest)), "")
    page.table(table)


def _place(moment: Mapping[str, Any]) -> str:
    parts = [moment["op"] or "an op without a row", f"of {moment['module']}" if moment["module"] else ""]
    return " ".join(part for part in (*parts, f"in {moment['pass_name']}") if part)


def _room(content: Mapping[str, Any]) -> str:
    room, samples = content["target"], content["sizes"].get("batch")
    verdict = {True: "fits", False: "does not fit", None: "may fit"}[room["fits"]]
    at = "" if samples is None else f" at batch {samples}"
    line = f"{room['name']}: the step{at} {verdict} in {format_mebibyte(room['capacity_byte'])} MiB"
    if room["share"] is None:
        stands = "fits" if room["fits"] is None else "does not"
        return f"{line}; what stands at any batch {stands}, the peak is unknown"
    line = f"{line} ({room['share']:.0%})"
    if room["largest_batch"] is not None:
        return f"{line}; largest batch that fits: {room['largest_batch']:,}, before what is excluded"
    return f"{line}; the largest batch needs an order in which the batch has a name"


def _layers(layers: Mapping[str, Any]) -> str:
    mib = {name: format_mebibyte(value) for name, value in layers.items() if name.endswith("_byte")}
    of = "one sample" if layers["samples"] == 1 else f"{layers['samples']} samples"
    gathered = f"; im2col {mib['im2col_byte']} together, {mib['largest_im2col_byte']} for the largest"
    return (
        f"outputs of all layers for {of}, freed or not: {mib['feature_maps_byte']} MiB, "
        f"{mib['feature_maps_in_place_byte']} where layers that work in place take none"
        f"{gathered if layers['im2col_byte'] else ''}"
    )


def format_memory(content: Mapping[str, Any], screen: Screen = PLAIN) -> str:
    """Write the memory of a step as text."""
    page = Page(screen)
    sizes = ", ".join(f"{name} {size}" for name, size in content["sizes"].items())
    page.line(f"{content['name']}: {content['title']}; memory of one step at {sizes}", "bold")
    _roles(page, content)
    if content["peak"] is None:
        page.line(
            "unknown: activations and the peak. Its profile has no order of the ops; "
            "'fomkit profile FILE.py' writes one where PyTorch runs the step"
        )
    else:
        page.line(f"peak {format_mebibyte(content['peak']['byte'])} MiB, at {_place(content['peak'])}")
        _modules(page, content)
    if content["layers"] is not None:
        page.line(_layers(content["layers"]))
    if content["target"] is not None:
        page.line(_room(content))
    page.line(f"not counted: {'; '.join(content['excludes'])}")
    if content["assumed"]:
        page.line(f"assumed: {'; '.join(content['assumed'])}")
    for said in content["deviations"]:
        page.line(f"note: {said}", "yellow")
    return page.text()
