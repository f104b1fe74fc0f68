"""Layers by type, as the tables of the classic networks have them, as text.

A model by groups of its ops, its layers by type, and its work as formulas, as text.

Convolutions by method, as text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fomkit.core.units import format_mebibyte, format_number, format_quantity
from fomkit.output.estimates import measured_lines
from fomkit.output.screen import PLAIN, Column, Page, Screen, figure, fitting, table_of_numbers
from fomkit.output.terminal import format_coverage, format_interval

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


Entry = Mapping[str, Any]


LABEL, SCOPE = 24, 40
"""Width of the groups' names up to which columns give way to them; names of ops do not break well."""


def format_share(share: float | None) -> str:
    """Write a share with one decimal; unknown is empty."""
    if share is None:
        return ""
    return "<0.1%" if 0 < share < 0.0005 else f"{share:.1%}"


def _least(entry: Entry, name: str) -> str:
    """Mark a sum that lacks some of its ops: those without a figure, in the total also those without a rule."""
    return "≥ " if entry["missing"][name] or entry.get("at_least") else ""


def _amount(name: str, dimension: str) -> Callable[[Entry], str]:
    def write(entry: Entry) -> str:
        if not entry["count"]:
            return ""
        if entry[name] is None:
            return "missing"
        return _least(entry, name) + format_quantity(entry[name], dimension)

    return write


def _group_time(entry: Entry) -> str:
    if not entry["count"]:
        return ""
    if entry["time_s"] is None:
        return "missing"
    return _least(entry, "time") + format_quantity(entry["time_s"]["value"], "time_s")


def _interval(entry: Entry) -> str:
    span = entry["time_s"]
    return "" if span is None or span["low"] is None else format_interval(span, "time_s")


def _intensity(entry: Entry) -> str:
    return "" if entry["intensity"] is None else format_number(entry["intensity"], 3)


def _traced(entry: Entry) -> str:
    if not entry["count"]:
        return ""
    if entry["traced_s"] is None:
        return "missing"
    least = "≥ " if entry["missing"]["traced"] else ""
    return least + format_quantity(entry["traced_s"], "time_s")


def _group_columns(with_time: bool, predicted: bool, beside: str) -> list[Column]:
    columns = [
        Column(*figure("count"), lambda entry: f"{entry['count']:,.0f}" if entry["count"] else "", 1),
        Column(*figure("distinct_ops"), lambda entry: f"{entry['distinct_ops']:,}" if entry["count"] else "", 6),
        Column(*figure("flop"), _amount("flop", "flop")),
        Column(*figure("flop_share"), lambda entry: format_share(entry["flop_share"]), 2),
        Column(*figure("byte"), _amount("byte", "byte"), 3),
        Column(*figure("byte_share"), lambda entry: format_share(entry["byte_share"]), 5),
        Column(*figure("intensity"), _intensity, 4),
    ]
    if beside:
        columns.append(Column(beside, "right", _traced))
        columns.append(Column("share", "right", lambda entry: format_share(entry["traced_share"]), 3))
    if with_time:
        columns.append(Column("predicted" if beside else figure("time_s")[0], "right", _group_time))
        columns += [Column("interval", "", _interval, 4 if beside else 0)] if predicted else []
        columns.append(Column(*figure("time_share"), lambda entry: format_share(entry.get("time_share"))))
    if predicted:
        columns.append(Column("time from", "", lambda entry: format_coverage(entry["time_sources"]), 7))
    return columns


def _inclusive(measure: str) -> Column:
    return Column("+ inner", "right", lambda row: format_share(row.get("inclusive", row)[f"{measure}_share"]))


def _label(row: Entry, separator: str) -> str:
    if not row["group"]:
        return "(none)"
    if not separator:
        return str(row["group"])
    depth = row.get("depth", 0)
    name = str(row["group"])
    return "  " * depth + name.rpartition(separator)[2] if depth else name


def _add_rows(page: Page, content: Mapping[str, Any], screen: Screen) -> None:
    rows, total, top = content["rows"], content["total"], content["top"]
    beside = _word_of_traced(content) if "traced_s" in total else ""
    columns = _group_columns("time_s" in total, content["target"] is not None, beside)
    if any("inclusive" in row for row in rows):
        columns.append(_inclusive(content["measure"]))
    labels = [_label(row, content["by"]["separator"] or "") for row in rows]
    widest = max(map(len, [*labels, "(99 others)"]))
    reserved = min(SCOPE if content["by"]["name"] == "scope" else LABEL, widest)
    columns = fitting(columns, [*rows, total], reserved, screen.width)
    table = table_of_numbers(
        [(content["by"]["name"], ""), *((column.header, column.justify) for column in columns)]
    )
    for label, row in zip(labels, rows, strict=True):
        table.add_row(label, *(column.write(row) for column in columns))
    if top is not None and top["rest"] is not None:
        rest = top["rest"]
        table.add_row(f"({rest['groups']} others)", *(column.write(rest) for column in columns), style="dim")
    table.add_section()
    table.add_row("total", *(column.write(total) for column in columns), style="bold")
    page.table(table)


_MEASURES = {"time": "time", "flop": "arithmetic (flop)", "byte": "memory traffic (byte)"}


_LEVELS = {"module": "modules", "scope": "scopes"}


def _group_notes(content: Mapping[str, Any]) -> list[str]:
    total, lines = content["total"], []
    top = content["top"]
    if top is not None:
        named = len(content["rows"])
        groups = f"{named} {'group reaches' if named == 1 else 'groups reach'}"
        lines.append(
            f"{groups} {top['reached']:.2%} of the {_MEASURES[top['measure']]}; asked: {top['share']:.0%}"
        )
    depth = content["view"].get("depth")
    below = _LEVELS.get(content["by"]["name"])
    if depth is not None and below is not None and top is None:
        lines.append(f"{below} below level {depth} are added to those they lie in; --depth 0 shows all")
    for name, amount in total["missing"].items():
        if amount:
            lines.append(
                f"missing: {amount:,.0f} of {total['count']:,.0f} executions have no {name}; "
                "shares are of what is known"
            )
    if content["interval"] is not None:
        lines.append(
            f"intervals: {content['interval']:.0%}; times are those of the device, one op after the other"
        )
    if content["unsupported"]:
        lines.append(
            f"not in the table, no rule: {', '.join(content['unsupported'])}; totals are at least what it holds"
        )
    if content["measured"] is not None:
        lines += measured_lines(content["measured"])
    return [*lines, *(f"note: {message}" for message in content["deviations"])]


def _word_of_traced(content: Mapping[str, Any]) -> str:
    """Name times that are not predicted: of a run here, or of a trace that came as a file."""
    if content["measured"] is None:
        return "traced"
    return f"measured{_divided(content)}"


def _divided(content: Mapping[str, Any]) -> str:
    """Mark times that were divided by one factor for all, which a measurement is not."""
    ops = (content["measured"] or {}).get("ops")
    return "" if not ops or ops["scaled_by"] == 1 else f" ÷{ops['scaled_by']:.2g}"


def _head(content: Mapping[str, Any]) -> list[str]:
    sizes = ", ".join(f"{name} {size}" for name, size in content["sizes"].items()) or "sizes fixed"
    parameters = content["parameters"]["total"]
    learned = "" if parameters is None else f"; {parameters:,} parameters"
    what = "one inference" if content["mode"] == "infer" else "one training step"
    tree = any("inclusive" in row for row in content["rows"])
    order = "in order of execution" if tree else f"by {_MEASURES[content['measure']]}"
    times = ""
    if "time_s" in content["total"]:
        target = content["target"]
        times = f"; times: {f'as {_word_of_traced(content)}' if target is None else f'predicted on {target}'}"
        times += f", beside those {_word_of_traced(content)}" if "traced_s" in content["total"] else ""
    return [f"{content['name']}: {content['title']}", f"{what}, {sizes}{learned}; {order}{times}"]


def format_model_view(content: Mapping[str, Any], screen: Screen = PLAIN) -> str:
    """Write ``fomkit/show/1`` of a model."""
    page = Page(screen)
    for line in _head(content):
        page.line(line)
    _add_rows(page, content, screen)
    for line in _group_notes(content):
        page.line(line)
    if content["layers"] is not None:
        page.line("")
        add_census(page, content["layers"], content["sizes"].get("batch"), screen)
    return page.text()


def _formula_lines(row: Entry) -> list[str]:
    lines = [row["pass_name"]]
    for name in ("flop", "byte"):
        least = "≥ " if row["missing"][name] else ""
        if row[name] is None:
            lines.append(f"  {name}: missing")
        else:
            value = format_quantity(row[name]["value"], name)
            lines.append(f"  {name} = {row[name]['formula']}  ({least}{value})")
    return lines


def format_formulas(content: Mapping[str, Any], screen: Screen = PLAIN) -> str:
    """Write ``fomkit/formulas/1``."""
    page = Page(screen)
    page.line(f"{content['name']}: {content['title']}")
    what = "one inference" if content["mode"] == "infer" else "one training step"
    sizes = ", ".join(f"{name} {size}" for name, size in content["sizes"].items()) or "fixed sizes"
    free = f"as formulas of {' and '.join(content['free'])}; in brackets at" if content["free"] else "at"
    page.line(f"work of {what} {free} {sizes}")
    for row in content["rows"]:
        for line in _formula_lines(row):
            page.line(line)
    for name, amount in content["rows"][-1]["missing"].items():
        if amount:
            page.line(f"missing: {amount:,.0f} executions have no {name} and are in no formula")
    if content["unsupported"]:
        page.line(f"not in the table, no rule: {', '.join(content['unsupported'])}; formulas hold what it has")
    return page.text()


def formula_rows(content: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Give the formulas for a CSV file: a row for each pass, and for the step."""
    return [
        {"pass_name": row["pass_name"], **{name: row[name] and row[name]["formula"] for name in ("flop", "byte")}}
        for row in content["rows"]
    ]


def view_rows(content: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Give the rows of a view for a CSV file, the total last."""
    return [*content["rows"], {"group": "total", **content["total"]}]


Layer = Mapping[str, Any]
Cell = Callable[[Layer], str]


def _method(layer: Layer, name: str | None) -> Mapping[str, Any]:
    found: Mapping[str, Any] = next((method for method in layer["methods"] if method["method"] == name), {})
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


def _method_time(layer: Layer) -> str:
    return "missing" if layer["time_s"] is None else _seconds(layer["time_s"]["value"])


def _method_columns(with_time: bool) -> list[Column]:
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
            Column(*figure("time_s", "predicted"), _method_time),
            Column("interval", "", lambda layer: format_interval(layer["time_s"], "time_s"), 6),
            Column("time from", "", lambda layer: layer["time_source"] or "", 5),
        ]
    return columns


def _add_layers(page: Page, content: Mapping[str, Any], screen: Screen) -> None:
    layers = content["layers"]
    label = max(len(layer["shape"]) for layer in layers)
    columns = fitting(_method_columns(content["target"] is not None), layers, label, screen.width)
    table = table_of_numbers([("convolution", ""), *((column.header, column.justify) for column in columns)])
    for layer in layers:
        table.add_row(layer["shape"], *(column.write(layer) for column in columns))
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
    for method in content["methods"]:
        byte = method["largest_workspace_byte"]
        why = "; ".join(f"{reason} ({count})" for reason, count in method["absent"].items())
        table.add_row(
            method["title"], f"{method['possible_in']:,.0f}",
            f"{method['best_in']:,.0f}" if method["best_in"] else "",
            "" if byte is None else format_mebibyte(byte), why,
        )  # fmt: skip
    page.line("")
    page.table(table)


def _method_notes(content: Mapping[str, Any]) -> list[str]:
    limit, total = content["workspace_limit_byte"], content["total"]
    allowed = "any" if limit is None else f"at most {format_mebibyte(limit)}"
    lines = [f"workspace in MiB, {allowed}; flop: of the best method, transforms included, over the direct one's"]
    if total is None:
        return [*lines, "best: the least arithmetic; name a machine, --target v100, for floors and times"]
    time_s = total["time_s"]
    sums = {name: "unknown" if total[name] is None else _seconds(total[name]) for name in ("direct_s", "best_s")}
    message = f"all convolutions of a step: direct floor {sums['direct_s']}, best floor {sums['best_s']}"
    if time_s is not None:
        message += f", predicted {_seconds(time_s['value'])} ({format_interval(time_s, 'time_s')}; "
        message += f"{format_coverage(total['time_sources'])})"
    if total["without_time"]:
        message += f", {total['without_time']} without a time"
    return [
        *lines,
        "best: the lowest floor. Floors are modelled: flop and byte, the workspace's too, at the machine's rates",
        "times are predicted from the machine's table or rates, whatever method its library took",
        message,
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
    for line in _method_notes(content):
        page.line(line)
    if content["interval"] is not None:
        page.line(f"intervals: {content['interval']:.0%}")
    for message in content["deviations"]:
        page.line(f"note: {message}")
    return page.text()
