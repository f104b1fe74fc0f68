"""A model by groups of its ops, its layers by type, and its work as formulas, as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fomkit.quantities import format_number, format_quantity
from fomkit.report.census import add_census
from fomkit.report.columns import Column, fitting
from fomkit.report.measured import measured_lines
from fomkit.report.screen import PLAIN, Page, Screen, figure
from fomkit.report.terminal import format_coverage, format_interval
from fomkit.report.whole_numbers import table_of_numbers

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


def _time(entry: Entry) -> str:
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


def _columns(with_time: bool, predicted: bool, beside: str) -> list[Column]:
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
        columns.append(Column("predicted" if beside else figure("time_s")[0], "right", _time))
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
    columns = _columns("time_s" in total, content["target"] is not None, beside)
    if any("inclusive" in row for row in rows):
        columns.append(_inclusive(content["measure"]))
    labels = [_label(row, content["by"]["separator"] or "") for row in rows]
    widest = max(map(len, [*labels, "(99 others)"]))
    reserved = min(SCOPE if content["by"]["name"] == "scope" else LABEL, widest)
    columns = fitting(columns, [*rows, total], reserved, screen.width)
    table = table_of_numbers([(content["by"]["name"], ""), *((one.header, one.justify) for one in columns)])
    for label, row in zip(labels, rows, strict=True):
        table.add_row(label, *(one.write(row) for one in columns))
    if top is not None and top["rest"] is not None:
        rest = top["rest"]
        table.add_row(f"({rest['groups']} others)", *(one.write(rest) for one in columns), style="dim")
    table.add_section()
    table.add_row("total", *(one.write(total) for one in columns), style="bold")
    page.table(table)


_MEASURES = {"time": "time", "flop": "arithmetic (flop)", "byte": "memory traffic (byte)"}


_LEVELS = {"module": "modules", "scope": "scopes"}


def _notes(content: Mapping[str, Any]) -> list[str]:
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
    return [*lines, *(f"note: {said}" for said in content["deviations"])]


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
    for line in _notes(content):
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
