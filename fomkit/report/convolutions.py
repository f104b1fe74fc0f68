"""Convolutions by method, as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fomkit.quantities import format_mebibyte, format_quantity
from fomkit.report.columns import Column, fitting
from fomkit.report.screen import PLAIN, Page, Screen, figure
from fomkit.report.terminal import format_coverage, format_interval
from fomkit.report.whole_numbers import table_of_numbers

Layer = Mapping[str, Any]
Cell = Callable[[Layer], str]


def _method(layer: Layer, name: str | None) -> Mapping[str, Any]:
    found: Mapping[str, Any] = next((one for one in layer["methods"] if one["method"] == name), {})
    return found


def _best(name: str, write: Callable[[float], str]) -> Cell:
    def cell(layer: Layer) -> str:
        value = _method(layer, layer["best"]).get(name)
        return "unknown" if value is None else write(value)

    return cell


def _direct(name: str, dimension: str) -> Cell:
    def cell(layer: Layer) -> str:
        value = _method(layer, "direct").get(name)
        return "unknown" if value is None else format_quantity(value, dimension)

    return cell


def _less(layer: Layer) -> str:
    direct, best = (_method(layer, name).get("flop") for name in ("direct", layer["best"]))
    return "" if not direct or best is None else f"{best / direct:.0%}"


def _seconds(value: float) -> str:
    return format_quantity(value, "time_s")


def _time(layer: Layer) -> str:
    return "missing" if layer["time_s"] is None else _seconds(layer["time_s"]["value"])


def _columns(with_time: bool) -> list[Column]:
    columns = [
        Column("pass", "", lambda layer: layer["pass_name"]),
        Column(*figure("count"), lambda layer: f"{layer['count']:,.0f}", 1),
        Column("layer", "", lambda layer: _places(layer["modules"]), 9),
        Column(*figure("flop", "direct flop"), _direct("flop", "flop"), 8 if with_time else 2),
    ]
    if with_time:
        columns.append(Column(*figure("direct_s"), _direct("floor_s", "time_s"), 4))
    columns += [
        Column("best method", "", lambda layer: _method(layer, layer["best"]).get("title", "unknown")),
        Column(*figure("flop"), _less, 3),
        Column(*figure("work_depth"), _best("work_depth", lambda value: f"{value:.0f}"), 7 if with_time else 0),
        Column(*figure("workspace_byte"), _best("workspace_byte", format_mebibyte), 2 if with_time else 0),
    ]
    if with_time:
        columns += [
            Column(*figure("best_s"), _best("floor_s", _seconds)),
            Column(*figure("time_s", "predicted"), _time),
            Column("interval", "", lambda layer: format_interval(layer["time_s"], "time_s"), 6),
            Column("time from", "", lambda layer: layer["time_source"] or "", 5),
        ]
    return columns


def _add_layers(page: Page, content: Mapping[str, Any], screen: Screen) -> None:
    layers = content["layers"]
    label = max(len(layer["shape"]) for layer in layers)
    columns = fitting(_columns(content["target"] is not None), layers, label, screen.width)
    table = table_of_numbers([("convolution", ""), *((one.header, one.justify) for one in columns)])
    for layer in layers:
        table.add_row(layer["shape"], *(one.write(layer) for one in columns))
    page.table(table)


def _places(modules: list[str]) -> str:
    more = f" and {len(modules) - 1} more" if len(modules) > 1 else ""
    return f"{modules[0] or '(none)'}{more}"


def _add_methods(page: Page, content: Mapping[str, Any]) -> None:
    table = table_of_numbers(
        [("method", ""), figure("possible_in"), figure("best_in"), figure("largest_workspace_byte"),
         ("not possible", "")]
    )  # fmt: skip
    table.columns[-1].no_wrap = False
    for one in content["methods"]:
        byte = one["largest_workspace_byte"]
        why = "; ".join(f"{reason} ({count})" for reason, count in one["absent"].items())
        table.add_row(
            one["title"], f"{one['possible_in']:,.0f}", f"{one['best_in']:,.0f}" if one["best_in"] else "",
            "" if byte is None else format_mebibyte(byte), why,
        )  # fmt: skip
    page.line("")
    page.table(table)


def _notes(content: Mapping[str, Any]) -> list[str]:
    limit, total = content["workspace_limit_byte"], content["total"]
    allowed = "any" if limit is None else f"at most {format_mebibyte(limit)}"
    lines = [f"workspace in MiB, {allowed}; flop: of the best method, transforms included, over the direct one's"]
    if total is None:
        return [*lines, "best: the least arithmetic; name a machine, --target v100, for floors and times"]
    time_s = total["time_s"]
    sums = {name: "unknown" if total[name] is None else _seconds(total[name]) for name in ("direct_s", "best_s")}
    said = f"all convolutions of a step: direct floor {sums['direct_s']}, best floor {sums['best_s']}"
    if time_s is not None:
        said += f", predicted {_seconds(time_s['value'])} ({format_interval(time_s, 'time_s')}; "
        said += f"{format_coverage(total['time_sources'])})"
    if total["without_time"]:
        said += f", {total['without_time']} without a time"
    return [
        *lines,
        "best: the lowest floor. Floors are modelled: flop and byte, the workspace's too, at the machine's rates",
        "times are predicted from the machine's table or rates, whatever method its library took",
        said,
    ]


def format_convolutions(content: Mapping[str, Any], screen: Screen = PLAIN) -> str:
    """Write ``fomkit/convolutions/1``."""
    page = Page(screen)
    sizes = ", ".join(f"{name} {size}" for name, size in content["sizes"].items()) or "sizes fixed"
    target = "" if content["target"] is None else f" on {content['target']}"
    page.line(f"{content['name']}: {content['title']}")
    page.line(f"convolutions of one step by method{target}, {sizes}; one execution each, in order")
    _add_layers(page, content, screen)
    _add_methods(page, content)
    for line in _notes(content):
        page.line(line)
    if content["interval"] is not None:
        page.line(f"intervals: {content['interval']:.0%}")
    for said in content["deviations"]:
        page.line(f"note: {said}")
    return page.text()
