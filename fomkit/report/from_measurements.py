"""Measured baseline × predicted ratio beside the prediction, for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from fomkit.quantities import format_number, format_quantity
from fomkit.report.screen import PLAIN, Page, Screen, figure, new_table
from fomkit.report.terminal import format_interval, merit_caveats

if TYPE_CHECKING:
    from rich.table import Table

WAYS = {"predicted": "predicted", "measured_times_ratio": "measured × ratio"}
_STYLES = {"agree": "", "ambiguous": "yellow", "disagree": "bold red"}


def with_ways(content: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Give the models of a study with the second way beside those that have one, for a table of one row each."""
    ways = {(one["model"], one["target"]): one for one in content.get("from_measurements", {}).get("models", ())}
    found = (
        (one, ways.get((one["model"], one["target"])) if "ratio" in one else None) for one in content["models"]
    )
    return [one if way is None else {**one, "from_measurements": way} for one, way in found]


def _cells(way: Mapping[str, Any]) -> list[str]:
    run, rate = way["run_s"], way["unit_per_day"]
    return [
        format_quantity(way["step_s"]["value"], "time_s"),
        format_interval(way["step_s"], "time_s"),
        format_quantity(run["value"], "time_s") if run else "unknown",
        format_interval(run, "time_s"),
        format_number(rate["value"]) if rate else "unknown",
        format_interval(rate, None),
    ]


def _table(content: Mapping[str, Any]) -> Table:
    table = new_table(
        [("model", ""), ("machine", ""), ("way", ""), figure("step_s"), ("interval", ""), figure("run_s"),
         ("interval", ""), figure("unit_per_day"), ("interval", "")]
    )  # fmt: skip
    for one in content["models"]:
        for key, name in WAYS.items():
            table.add_row(one["model"], one["target"], name, *_cells(one[key]))
    return table


def _row(row: Mapping[str, Any]) -> str:
    spread = ""
    if row["step_s"]:
        ends = "no spread stated" if row["low"] is None else f"{row['low']:g} … {row['high']:g}"
        repeats = f", {row['repeats']} repeats" if row["repeats"] else ""
        step = format_quantity(row["step_s"]["value"], "time_s")
        spread = f" ({ends}{repeats}) = {step} a step"
    return f"{row['row']}: {row['quantity']} {row['value']:g}{spread}: {row['said']}"


def _baseline_lines(one: Mapping[str, Any]) -> Iterator[str]:
    measured, predicted = one["measured_step_s"], one["predicted_step_s"]
    name = f"{one['model']} on {one['baseline']}"
    if measured is None:
        yield f"{name}: no measurement; only predicted"
    else:
        of = f", median of {len(one['used'])} rows" if len(one["used"]) > 1 else ""
        value, ends = format_quantity(measured["value"], "time_s"), format_interval(measured, "time_s")
        factor = format_number(measured["value"] / predicted["value"], 3)
        yield (
            f"{name}: measured {value} ({ends}{of}), predicted {format_quantity(predicted['value'], 'time_s')} "
            f"({format_interval(predicted, 'time_s')}): {factor} times the prediction, "
            f"{'inside' if one['in_predicted_interval'] else 'outside'} its interval"
        )
    for row in one["used"]:
        yield f"  used {_row(row)}"
    for row in one["set_aside"]:
        yield f"  set aside {_row(row)}"


def _way_lines(one: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    way, name = one["measured_times_ratio"], f"{one['model']} on {one['target']}"
    ratio = one["predicted_step_ratio"]
    yield (
        f"{name}: {one['verdict']}: measured × ratio is {format_number(one['factor'], 3)} times the prediction; "
        f"{one['verdict_means']}",
        _STYLES[one["verdict"]],
    )
    yield f"  predicted step ratio {format_number(ratio['value'], 3)} ({format_interval(ratio, None)})", ""
    if way["scaled_unpredicted"]:
        yield f"  no ratio was predicted of, scaled as far as measured: {', '.join(way['scaled_unpredicted'])}", ""
    if way["excludes"]:
        yield f"  units/day by measured × ratio still exclude: {', '.join(way['excludes'])}", ""
    if way["counted_twice"]:
        yield f"  in the measured figure and added once more: {', '.join(way['counted_twice'])}", "yellow"


def format_from_measurements(content: Mapping[str, Any], screen: Screen = PLAIN) -> str:
    """Write both ways as a table, where they disagree, and every row of measurements about the baseline."""
    page = Page(screen)
    page.line(f"\nmeasured baseline × predicted ratio, from {content['file']}", "bold")
    page.table(_table(content))
    for one in content["models"]:
        for text, style in _way_lines(one):
            page.line(text, style)
    for baseline in content["baselines"]:
        for text in _baseline_lines(baseline):
            page.line(text)
    if content["rows_of_others"]:
        page.line(f"rows of other models or machines: {content['rows_of_others']:,}")
    for merit in content["foms"]:
        value, spread = format_number(merit["value"]), format_interval(merit, None)
        page.line(
            f"FOM {merit['target']} over the measured {merit['baseline']} = {value} ({spread}); "
            "measured times weigh the ratios and cancel in each",
            "bold",
        )
        for said in merit_caveats(merit):
            page.line(f"  {said}", "yellow")
    if not content["foms"]:
        page.line("no FOM from measurements: every model needs a measured step and a run")
    page.line(f"errors: {content['errors']}")
    return page.text()
