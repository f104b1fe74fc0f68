"""Format a model: groups of its ops, its layers by type, its work as formulas, its convolutions by method."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from fomkit.core.interval import level_text
from fomkit.core.units import agree, count_text, format_mebibyte, format_number, format_quantity
from fomkit.ops.views import TYPE_COLUMNS
from fomkit.output.explained import measured_lines
from fomkit.output.screen import PLAIN, Column, Entry, Page, Screen, figure, named_sizes
from fomkit.output.values import format_coverage, format_interval, seconds

if TYPE_CHECKING:
    from fomkit.verbs.model_view import Census, FormulaRow, Formulas

WIDE = 100
"""Screen width from which other operations have a separate column."""


def _census_cell(name: str, row: Entry) -> str:
    value = row[name]
    if not value:
        return ""
    return format_mebibyte(value) if name.endswith("_byte") else f"{value:,.0f}"


def _add_census(page: Page, census: Census, batch: int | None) -> None:
    """Add the table of layer types, as in the papers of the classic networks, and its sums."""
    names = [name for name in TYPE_COLUMNS if name != "other_operations" or page.screen.width >= WIDE]
    samples = census["samples"]
    samples_text = "one sample" if samples == 1 else f"{samples} samples"
    page.line(f"layers by type, forward pass of {samples_text}; weights, outputs and im2col in MiB")
    columns = [Column("layer", "", lambda row: row["layer"])]
    columns += [Column(*figure(name), partial(_census_cell, name)) for name in names]
    rows = [*census["types"], None, {"layer": "total", **census["total"]}]
    page.columns(columns, rows, [*[""] * (len(rows) - 1), "bold"])
    maps, total = census["activations"], census["total"]
    whole, data, less = (
        format_mebibyte(maps[name]) for name in ("feature_maps_byte", "input_byte", "feature_maps_in_place_byte")
    )
    each = f"{format_mebibyte(maps['copies_byte'])} for the copies that Caffe makes for each reader of an output"
    copies = f"feature maps and {each}" if maps["copies_byte"] else "the feature maps"
    lines = [
        f"{census['all_operations']:,.0f} operations in all: multiply-adds, additions of biases, elements of "
        "pooling and local normalisation windows, one for any other output",
        f"feature maps {whole} MiB: data {data} and outputs {format_mebibyte(total['output_byte'])}; {less} "
        "without layers that work in place",
        f"activations {format_mebibyte(maps['with_copies_byte'])} MiB: {copies}",
    ]
    if census["samples"] == 1 and batch is not None and batch > 1:
        full, in_place = (
            format_mebibyte(maps[name] * batch) for name in ("feature_maps_byte", "feature_maps_in_place_byte")
        )
        lines.append(f"feature maps at batch {batch}: {full} MiB, {in_place} in place")
    if census["largest_im2col_byte"]:
        lines.append(
            f"im2col, convolutions as plain products: {format_mebibyte(total['im2col_byte'])} MiB in total, "
            f"{format_mebibyte(census['largest_im2col_byte'])} for the largest"
        )
    if census["not_counted"]:
        lines.append(
            f"not counted, because at inference they return their input: {', '.join(census['not_counted'])}"
        )
    page.lines(lines)


def format_share(share: float | None) -> str:
    """Format a share with one decimal; an unknown share is empty."""
    if share is None:
        return ""
    return "<0.1%" if 0 < share < 0.0005 else f"{share:.1%}"


def _amount_of(name: str, lacking: str, write: Callable[[Any], str]) -> Callable[[Entry], str]:
    """Return a function that formats a figure of a group; an empty group has an empty cell.

    A sum gets ≥ where ops have no figure ``lacking``, and in the total also where ops have no rule.
    """

    def cell(entry: Entry) -> str:
        if not entry["count"]:
            return ""
        least = "≥ " if entry["missing"][lacking] or entry.get("at_least") else ""
        return "missing" if entry[name] is None else least + write(entry[name])

    return cell


def _interval(entry: Entry) -> str:
    span = entry["time_s"]
    return "" if span is None or span["low"] is None else format_interval(span, "time_s")


def _traced(entry: Entry) -> str:
    if not entry["count"]:
        return ""
    least = "≥ " if entry["missing"]["traced"] else ""
    return "missing" if entry["traced_s"] is None else least + seconds(entry["traced_s"])


def _intensity(entry: Entry) -> str:
    return "" if entry["intensity"] is None else format_number(entry["intensity"], 3)


def _group_columns(content: Entry, other_times: str) -> list[Column]:
    """Return the columns of groups; ``other_times``: title of traced or measured times, "" without any."""
    predicted = content["target"] is not None

    def share(name: str) -> Callable[[Entry], str]:
        return lambda entry: format_share(entry.get(name))

    columns = [
        Column(*figure("count"), lambda entry: f"{entry['count']:,.0f}" if entry["count"] else "", 1),
        Column(*figure("distinct_ops"), lambda entry: f"{entry['distinct_ops']:,}" if entry["count"] else "", 6),
        Column(*figure("flop"), _amount_of("flop", "flop", partial(format_quantity, dimension="flop"))),
        Column(*figure("flop_share"), share("flop_share"), 2),
        Column(*figure("byte"), _amount_of("byte", "byte", partial(format_quantity, dimension="byte")), 3),
        Column(*figure("byte_share"), share("byte_share"), 5),
        Column(*figure("intensity"), _intensity, 4),
    ]
    if other_times:
        columns += [Column(other_times, "right", _traced), Column("share", "right", share("traced_share"), 3)]
    if "time_s" in content["total"]:
        time = _amount_of("time_s", "time", lambda span: seconds(span["value"]))
        columns.append(Column("predicted" if other_times else figure("time_s")[0], "right", time))
        columns += [Column("interval", "", _interval, 4 if other_times else 0)] if predicted else []
        columns.append(Column(*figure("time_share"), share("time_share")))
    if predicted:
        columns.append(Column("time from", "", lambda entry: format_coverage(entry["time_sources"]), 7))
    if any("inclusive" in row for row in content["rows"]):
        inner = f"{content['measure']}_share"
        columns.append(Column("+ inner", "right", lambda row: format_share(row.get("inclusive", row)[inner])))
    return columns


def _group_label(row: Entry, separator: str) -> str:
    if not row["group"]:
        return "(none)"
    depth = row.get("depth", 0)
    name = str(row["group"])
    return "  " * depth + name.rpartition(separator)[2] if separator and depth else name


_MEASURES = {"time": "time", "flop": "arithmetic (flop)", "byte": "memory traffic (byte)"}

_LEVELS = {"module": "modules", "scope": "scopes"}


def _group_notes(content: Entry) -> list[str]:
    total, lines = content["total"], []
    top = content["top"]
    if top is not None:
        named = len(content["rows"])
        groups = f"{named} {'group reaches' if named == 1 else 'groups reach'} {top['reached']:.2%}"
        lines.append(f"{groups} of the {_MEASURES[top['measure']]}; requested: {top['share']:.0%}")
    depth = content["view"].get("depth")
    below = _LEVELS.get(content["by"]["name"])
    if depth is not None and below is not None and top is None:
        lines.append(f"{below} below level {depth} are added to their parents; --depth 0 shows all")
    for name, amount in total["missing"].items():
        if amount:
            missing = f"{amount:,.0f} of {total['count']:,.0f} executions {agree(amount, 'has/have')} no {name}"
            lines.append(f"missing: {missing}; shares refer to the known part")
    if content["interval"] is not None:
        level = level_text(content["interval"])
        lines.append(f"intervals: {level}; times are device times, one op after the other")
    if content["unsupported"]:
        ops = ", ".join(content["unsupported"])
        lines.append(f"not in the table, no rule: {ops}; totals are lower bounds")
    if content["measured"] is not None:
        lines += measured_lines(content["measured"])
    return [*lines, *(f"note: {message}" for message in content["deviations"])]


def _word_of_traced(content: Entry) -> str:
    """Return the title of times that are not predicted: measured in a run here, or read from a trace file.

    Times that were all divided by one factor have the factor in the title.
    """
    if content["measured"] is None:
        return "traced"
    ops = content["measured"].get("ops")
    return "measured" if not ops or ops["scaled_by"] == 1 else f"measured ÷{ops['scaled_by']:.2g}"


def format_model_view(content: Entry, screen: Screen = PLAIN) -> str:
    """Format ``fomkit/show/1`` of a model as text."""
    page = Page(screen)
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
    page.line(f"{content['name']}: {content['title']}")
    page.line(f"{what}, {named_sizes(content)}{learned}; {order}{times}")
    rows = [{**row, "label": _group_label(row, content["by"]["separator"] or "")} for row in content["rows"]]
    if rest := content["top"] and content["top"]["rest"]:
        rows.append({**rest, "label": f"({count_text(rest['groups'], 'other')})"})
    label = Column(content["by"]["name"], "", lambda row: row["label"])
    columns = [label, *_group_columns(content, _word_of_traced(content) if "traced_s" in content["total"] else "")]
    styles = [*[""] * len(content["rows"]), *["dim"] * bool(rest), "", "bold"]
    page.columns(columns, [*rows, None, {**content["total"], "label": "total"}], styles)
    page.lines(_group_notes(content))
    if content["layers"] is not None:
        page.line("")
        _add_census(page, content["layers"], content["sizes"].get("batch"))
    return page.text()


def _formula_lines(row: FormulaRow) -> list[str]:
    lines = [row["pass_name"]]
    for name, found in (("flop", row["flop"]), ("byte", row["byte"])):
        least = "≥ " if row["missing"][name] else ""
        if found is None:
            lines.append(f"  {name}: missing")
        else:
            value = format_quantity(found["value"], name)
            lines.append(f"  {name} = {found['formula']}  ({least}{value})")
    return lines


def format_formulas(content: Formulas, screen: Screen = PLAIN) -> str:
    """Format ``fomkit/formulas/1`` as text."""
    page = Page(screen)
    page.line(f"{content['name']}: {content['title']}")
    what = "one inference" if content["mode"] == "infer" else "one training step"
    free = f"as formulas of {' and '.join(content['free'])}; in brackets at" if content["free"] else "at"
    page.line(f"work of {what} {free} {named_sizes(content, 'fixed sizes')}")
    page.lines(line for row in content["rows"] for line in _formula_lines(row))
    for name, amount in content["rows"][-1]["missing"].items():
        if amount:
            none = f"{amount:,.0f} {agree(amount, 'execution has/executions have')} no {name}"
            page.line(f"missing: {none} and {agree(amount, 'is/are')} excluded from the formulas")
    if content["unsupported"]:
        page.line(f"not in the table, no rule: {', '.join(content['unsupported'])}; formulas exclude them")
    return page.text()


def formula_rows(content: Formulas) -> Sequence[Entry]:
    """Return the formulas for a CSV file: a row for each pass, and for the step."""
    return [
        {"pass_name": row["pass_name"], "flop": row["flop"] and row["flop"]["formula"],
         "byte": row["byte"] and row["byte"]["formula"]}
        for row in content["rows"]
    ]  # fmt: skip


def view_rows(content: Entry) -> Sequence[Entry]:
    """Return the rows of a view for a CSV file, the total last."""
    return [*content["rows"], {"group": "total", **content["total"]}]


Cell = Callable[[Entry], str]


def _method(layer: Entry, name: str | None) -> Entry:
    found: Entry = next((method for method in layer["methods"] if method["method"] == name), {})
    return found


def _by(method: str, name: str, write: Callable[[float], str]) -> Cell:
    """Return a function that formats a figure of a layer by one method, or by the best one for an empty name."""

    def cell(layer: Entry) -> str:
        value = _method(layer, method or layer["best"]).get(name)
        return "unknown" if value is None else write(value)

    return cell


def _flop_ratio(layer: Entry) -> str:
    direct, best = (_method(layer, name).get("flop") for name in ("direct", layer["best"]))
    return "" if not direct or best is None else f"{best / direct:.0%}"


def _method_columns(with_time: bool) -> list[Column]:
    direct_flop = _by("direct", "flop", partial(format_quantity, dimension="flop"))
    columns = [
        Column("convolution", "", lambda layer: layer["shape"]),
        Column("pass", "", lambda layer: layer["pass_name"]),
        Column(*figure("count"), lambda layer: f"{layer['count']:,.0f}", 1),
        Column("layer", "", lambda layer: _first_place(layer["modules"]), 9),
        Column(*figure("flop", "direct flop"), direct_flop, 8 if with_time else 2),
    ]
    if with_time:
        columns.append(Column(*figure("direct_s"), _by("direct", "floor_s", seconds), 4))
    columns += [
        Column("best method", "", lambda layer: _method(layer, layer["best"]).get("title", "unknown")),
        Column(*figure("flop"), _flop_ratio, 3),
        Column(*figure("work_depth"), _by("", "work_depth", lambda value: f"{value:.0f}"), 7 if with_time else 0),
        Column(*figure("workspace_byte"), _by("", "workspace_byte", format_mebibyte), 2 if with_time else 0),
    ]
    if with_time:

        def time(layer: Entry) -> str:
            return "missing" if layer["time_s"] is None else seconds(layer["time_s"]["value"])

        columns += [
            Column(*figure("best_s"), _by("", "floor_s", seconds)),
            Column(*figure("time_s", "predicted"), time),
            Column("interval", "", lambda layer: format_interval(layer["time_s"], "time_s"), 6),
            Column("time from", "", lambda layer: layer["time_source"] or "", 5),
        ]
    return columns


def _first_place(modules: list[str]) -> str:
    more = f" and {len(modules) - 1} more" if len(modules) > 1 else ""
    return f"{modules[0] or '(none)'}{more}"


def _method_notes(content: Entry) -> list[str]:
    limit, total = content["workspace_limit_byte"], content["total"]
    allowed = "any" if limit is None else f"at most {format_mebibyte(limit)}"
    lines = [f"workspace in MiB, {allowed}; flop: of the best method, transforms included, over the direct one's"]
    if total is None:
        return [*lines, "best: the least arithmetic; name a machine (--target v100) for floors and times"]
    time_s = total["time_s"]
    sums = {name: "unknown" if total[name] is None else seconds(total[name]) for name in ("direct_s", "best_s")}
    message = f"all convolutions of a step: direct floor {sums['direct_s']}, best floor {sums['best_s']}"
    if time_s is not None:
        message += f", predicted {seconds(time_s['value'])} ({format_interval(time_s, 'time_s')}; "
        message += f"{format_coverage(total['time_sources'])})"
    if total["without_time"]:
        message += f", {total['without_time']} without a time"
    return [
        *lines,
        "best: the lowest floor. Floors are modelled: flop and byte, with the workspace, at the machine's rates",
        "times are predicted from the machine's table or rates, for whatever method its library uses",
        message,
    ]


def format_convolutions(content: Entry, screen: Screen = PLAIN) -> str:
    """Format ``fomkit/convolutions/1`` as text."""
    page = Page(screen)
    target = "" if content["target"] is None else f" on {content['target']}"
    page.line(f"{content['name']}: {content['title']}")
    page.line(f"convolutions of one step by method{target}, {named_sizes(content)}; one execution each, in order")
    page.columns(_method_columns(content["target"] is not None), content["layers"])
    page.line("")
    page.rows(
        ["method", figure("possible_in"), figure("best_in"), figure("largest_workspace_byte"), "not possible"],
        (
            [method["title"], f"{method['possible_in']:,.0f}",
             f"{method['best_in']:,.0f}" if method["best_in"] else "",
             "" if method["largest_workspace_byte"] is None else format_mebibyte(method["largest_workspace_byte"]),
             "; ".join(f"{reason} ({count})" for reason, count in method["absent"].items())]
            for method in content["methods"]
        ),
    )  # fmt: skip
    page.lines(_method_notes(content))
    if content["interval"] is not None:
        page.line(f"intervals: {level_text(content['interval'])}")
    page.notes(content["deviations"])
    return page.text()


LISTED = 6
"""Number of ops, and of product sizes, that the text of a profile lists."""


def format_profiled(content: dict[str, Any], screen: Screen = PLAIN) -> str:
    """Format ``fomkit/profiled/1``: a profile's content, the ops with most of its work, and product sizes."""
    page = Page(screen)
    page.lines(content["lines"])
    ops, products = content["ops"], content["products"]
    sums = [figure("count", "times a step"), figure("flop_share", "of the flop")]
    if ops:
        shares, flop = sum(one["share"] for one in ops), format_quantity(content["flop"], "flop")
        known = "known " if content["at_least"] else ""
        page.heading(f"the ops with {shares:.1%} of a step's {known}{flop}")
        rows = [[one["op"], f"{one['count']:,.0f}", f"{one['share']:.1%}"] for one in ops[:LISTED]]
        page.rows(["op", *sums], rows)
    if products:
        page.heading(f"sizes of their products{f', {LISTED} of {len(products)}' * (len(products) > LISTED)}")
        sides = [name for name in "mnk" if any("m" in one for one in products[:LISTED])]
        heads = [*((side.upper(), "right") for side in sides), *sums]
        page.rows(["product", *heads], [_product_cells(one, sides) for one in products[:LISTED]])
        page.line("")
    return page.text()


def _product_cells(one: Entry, sides: Sequence[str]) -> list[str]:
    """Format a product as cells; sizes of one matrix product have separate columns, ``b`` of them run at once."""
    kind = one["product"].split(" ")[0]
    label = one["product"] if "m" not in one else kind if one["b"] == 1 else f"{one['b']:,.0f} {kind} at once"
    sizes = [f"{one[side]:,.0f}" if "m" in one else "" for side in sides]
    return [label, *sizes, f"{one['count']:,.0f}", f"{one['share']:.1%}"]
