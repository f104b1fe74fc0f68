"""Format scaling results and sweeps as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fomkit.core.interval import level_text
from fomkit.core.units import agree, count_text, format_number, format_quantity, memory_text
from fomkit.output.screen import PLAIN, Column, Entry, Page, Screen, figure
from fomkit.output.values import UNFIT, column_of, format_plain, interval_of, mark_of, seconds, word_of
from fomkit.profiles.metrics import upper_bounds

if TYPE_CHECKING:
    from fomkit.plan.scaling import Needed
    from fomkit.verbs.scaling import Reference, ScalingContent
    from fomkit.whatif.sweep_result import AxisContent, SweepContent


LIMITS = {"memory": "memory size", "batch": "small batches"}
"""Words for limits of a step whose name in the JSON is ambiguous: "memory" could be a bandwidth."""


def _curve(page: Page, content: ScalingContent, reference: Reference) -> None:
    mode = reference["mode"]
    points = [point for point in content["points"] if point["mode"] == mode]
    if not points:
        return
    meaning = "one batch divided among replicas" if mode == "strong" else "a batch for each replica"
    against = f"{count_text(reference['devices'], 'device')} with batch {reference['batch']:,}"
    unfit = ", which does not fit its memory" if reference["fits"] is False else ""
    took = format_plain(reference["step_s"]["value"], "time_s")
    page.heading(f"{mode} scaling: {meaning}; relative to {against} in {took}{unfit}")
    page.columns(
        [column_of("nodes"), column_of("devices", rank=4), column_of("batch", rank=3), column_of("step_s"),
         interval_of("step_s", 2), column_of("busy_s", rank=6), column_of("exposed_s", rank=5),
         column_of("bubble_s", rank=7), column_of("speedup"), column_of("efficiency"),
         interval_of("efficiency", 2),
         Column("limit", "", lambda one: LIMITS.get(one["limit"], one["limit"]) + mark_of(one), 1)],
        points,
    )  # fmt: skip


def _needed(span: Needed) -> str:
    """Format the rate that is needed; a missing bound means that no rate suffices."""
    value, low, high = (span[name] for name in ("value", "low", "high"))
    if low is None:
        return "none is enough"
    least = format_quantity(low, "byte_per_s")
    most = "none is enough" if high is None else format_quantity(high, "byte_per_s")
    return f"{'none is enough' if value is None else format_quantity(value, 'byte_per_s')} ({least} to {most})"


def _bandwidth(page: Page, content: ScalingContent) -> None:
    found = content["least_bandwidth"]
    if found is None:
        return
    page.heading("bandwidth per device that a speed-up needs, without overlap, each replica with its own batch")
    rates = ((one, _needed(one["needed_byte_per_s"])) for one in found["whole"])
    parts = [
        f"{count_text(one['replicas'], 'replica')}: {rate} on links of tier {one['tier']}" for one, rate in rates
    ]
    way = {"auto": "the fastest way of those priced", "parameter_server": "a parameter server"}
    by = way.get(found["algorithm"], f"a {found['algorithm']}")
    gathered = " and of the parameters that zero gathers" * bool(content["layout"]["zero"])
    gradients = f"{format_quantity(found['gradient_byte'], 'byte')} of gradients"
    page.line(f"{gradients}{gathered} by {by}; " + "; ".join(parts))
    layers = found["layers_at"]["layers"]
    if not layers:
        return
    page.columns(
        [Column(f"layer, {count_text(found['layers_at']['replicas'], 'replica')}", "",
                lambda layer: layer["module"] or "(the model itself)"),
         column_of("gradient_byte"), column_of("time_s", "forward and backward"),
         Column(*figure("needed_byte_per_s"), lambda layer: _needed(layer["needed_byte_per_s"]))],
        layers,
    )  # fmt: skip


def _add_goal(page: Page, content: ScalingContent) -> None:
    curve = content["to_target"]
    if curve is None:
        return
    page.heading(f"a training to {curve['metric']} {curve['target']:g} ({curve['source']})")
    reached: list[Entry] = [
        {**point, **point["to_target"]} for point in content["points"] if point["to_target"] is not None
    ]
    if known := [one for one in reached if one["epochs"] is not None]:
        page.columns(
            [word_of("mode", "scaling"), column_of("nodes"), column_of("batch"), column_of("epochs"),
             column_of("to_target_s", marks=True), interval_of("to_target_s")],
            known,
        )  # fmt: skip
    for one in reached:
        if one["why"]:
            page.line(f"{one['mode']}, {count_text(one['nodes'], 'node')}: {one['why']}")


def _system(page: Page, content: ScalingContent) -> None:
    rows: list[Entry] = [
        {**point, **point["system"]} for point in content["points"] if point["system"] is not None
    ]
    if not rows:
        why = content["no_run"] or "an epoch has fewer samples than a step"
        page.line(f"no {content['unit']}s a day: {why}")
        return
    page.heading(f"{content['unit']}s of the whole system a day")
    found = [word_of("mode", "scaling"), column_of("nodes"), column_of("run_s"), column_of("runs_at_once", rank=1),
             column_of("useful_share", rank=2)]  # fmt: skip
    if any("checkpoint_interval_s" in row for row in rows):
        found.append(column_of("checkpoint_interval_s", rank=3))
    page.columns([*found, column_of("unit_per_day", marks=True), interval_of("unit_per_day")], rows)
    page.lines([upper_bounds(rows[0]["excludes"])] * bool(rows[0]["excludes"]))


def _stack(page: Page, content: ScalingContent) -> None:
    stack = content["stack"]
    if stack is None:
        return
    if stack["in_each_run"]:
        times = [f"{one['name']} {seconds(one['once_s'] or 0.0)}" for one in stack["in_each_run"]]
        page.line(f"paid once, and in each run above: {', '.join(times)}")
    if not stack["layers"]:
        return
    parts = [f"{one['once_share']:.1%} of a job of {one['times']:,} times the work" for one in stack["longer"][1:]]
    names, share = ", ".join(layer["name"] for layer in stack["layers"]), stack["longer"][0]["once_share"]
    least = f"1% at {format_number(stack['times_for_one_percent'] or 0.0)} times"
    page.line(f"paid once a job: {names}, together {share:.1%}; {', '.join(parts)}; {least}")


def format_scaling(content: ScalingContent, screen: Screen = PLAIN) -> str:
    """Format scaling results as text."""
    page = Page(screen)
    devices = count_text(content["node_devices"], "device")
    page.line(f"{content['model']} on {content['target']}, {devices} in a node", "bold")
    page.line(f"layout: {content['layout_said']}")
    for reference in {one["mode"]: one for one in content["references"]}.values():
        _curve(page, content, reference)
    for why in dict.fromkeys(one["why"] for one in content["not_estimated"]):
        nodes = [f"{one['nodes']:,}" for one in content["not_estimated"] if one["why"] == why]
        page.line(f"no step at {', '.join(nodes)} {'node' if nodes == ['1'] else 'nodes'}: {why}")
    known = [(point["peak_byte"], point) for point in content["points"] if point["peak_byte"] is not None]
    if known and content["capacity_byte"] is not None:
        byte, most = max(known, key=lambda one: one[0])
        word = "holds" if most["fits"] else "does not hold"
        where = f"({most['mode']}, nodes {most['nodes']:,})"
        peak = f"memory: at most {memory_text(byte)} a device"
        page.line(f"{peak} {where}; {content['target']} {word} it")
    elif not known:
        page.line("memory: unknown for this layout or profile")
    page.lines((f"{UNFIT} {message}" for message in content["does_not_fit"]), "yellow")
    _bandwidth(page, content)
    _system(page, content)
    _add_goal(page, content)
    _stack(page, content)
    points = content["points"]
    for one in {point["mode"]: point for point in points}.values():
        shares = sorted(one["coverage"].items(), key=lambda share: -share[1])
        parts = ", ".join(f"{name} {share:.0%}" for name, share in shares if share >= 0.005)
        page.line(f"time sources of a {one['mode']} step, nodes {one['nodes']:,}: {parts}")
    if content["excludes"]:
        page.line(f"excluded from a step: {', '.join(content['excludes'])}; it is a lower bound")
    page.notes(content["notes"])
    page.line(f"assumed: {'; '.join(content['assumed'])}")
    return page.text()


ROWS = 20
"""Largest number of the front's points that are printed."""
_QUANTITIES = {
    "byte/s": "byte_per_s", "flop/s": "flop_per_s", "s": "time_s", "W": "power_w", "J": "energy_j",
}  # fmt: skip
_OF_RESULTS = {"step_s": "s", "peak_byte": "byte", "energy_j": "J"}
_WORDS = {"unit_per_day": "units/day", "sample_per_s": "samples/s", "step_s": "step", "cost": "cost",
          "energy_j": "energy", "peak_byte": "peak memory"}  # fmt: skip


def _in_unit(value: float | None, unit: str) -> str:
    if value is None:
        return "unknown"
    if unit in ("count", "byte"):
        return f"{value:,.0f}" if unit == "count" else memory_text(value)
    if unit in _QUANTITIES and value:
        return format_quantity(value, _QUANTITIES[unit], 3)
    return format_number(value, 3) if unit == "number" else f"{format_number(value, 3)} {unit}"


def _point_cell(point: Entry, name: str, units: Mapping[str, str]) -> str:
    if name not in point:
        return ""
    unit, low, high = units.get(name, "number"), point.get(f"{name}_low"), point.get(f"{name}_high")
    ends = (
        "" if low is None or high is None or low == high else f" ({_in_unit(low, unit)} to {_in_unit(high, unit)})"
    )
    return f"{_in_unit(point[name], unit)}{ends}"


def _varied(entry: AxisContent) -> str:
    low, high = (_in_unit(entry[end], entry["unit"]) for end in ("least", "most"))
    if entry["least"] == entry["most"]:
        return f"{entry['name']} {low}"
    many = "" if entry["count"] is None else f", {count_text(entry['count'], 'value')}"
    spacing = ", logarithmic" if entry["spacing"] == "log" else ""
    return f"{entry['name']} {low} to {high}{many}{spacing}"


def format_sweep(content: SweepContent, screen: Screen = PLAIN) -> str:
    """Format a sweep (``fomkit/sweep/1``) as text."""
    page = Page(screen)
    seed = "" if content["seed"] is None else f", seed {content['seed']}"
    spent = [objective["name"] for objective in content["objectives"] if objective["name"] in ("cost", "energy")]
    per = f"; {' and '.join(spent)} for each {content['per']}" if spent else ""
    page.line(
        f"{content['model']} on {content['target']}: {count_text(content['points'], 'point')} "
        f"({content['way']}{seed}), {level_text(content['interval'])} intervals, "
        f"number formats {content['precision'] or 'as traced'}{per}"
    )
    units = {one["name"]: one["unit"] for one in content["varied"]} | _OF_RESULTS
    if content["price"]:
        units["cost"] = content["price"]["currency"]
    page.lines(f"  {_varied(one)}" for one in content["varied"])
    names = _varied_names(content)
    page.line("")
    if count := content["too_large"]:
        page.line(f"{count:,} of the points {agree(count, 'does/do')} not fit the device's memory")
    if content["not_checked"]:
        some = "" if content["not_checked"] == content["points"] else f"{content['not_checked']:,} of the "
        fit = "points fit" if some else agree(content["points"], "the point fits/points fit")
        page.line(f"whether {some}{fit} was not checked, because {content['why_not_checked']}", "yellow")
    for one, best in zip(content["objectives"], content["best"], strict=True):
        point: Entry | None = best["point"]
        if point is None:
            page.line(f"best {_WORDS[one['column']]}: no point fits the device's memory")
            continue
        at = ", ".join(f"{name} {_in_unit(point[name], units[name])}" for name in names)
        where = f" at {at}" if at else ""
        unsure = ", if that fits" if point.get("fits") is None else ""
        page.line(
            f"best {_WORDS[one['column']]}: {_point_cell(point, one['column'], units)}{where}{unsure}", "bold"
        )
    _front(page, content, units)
    if message := upper_bounds(content["excludes"], "rates"):
        page.line(f"{message}; times and costs are lower bounds")
    price = content["price"]
    if price and price["date"]:
        page.line(f"price: of {price['date']}, in {price['currency']} per {price['per']} ({price['source']})")
    page.lines(f"without {_WORDS[name]}: {why}" for name, why in content["absent"].items())
    page.lines(f"assumed: {text}" for text in content["assumed"])
    page.notes(content["notes"], "yellow")
    return page.text()


def _varied_names(content: SweepContent) -> list[str]:
    """Return the names of the parameters with more than one value."""
    return [one["name"] for one in content["varied"] if one["least"] != one["most"]]


def _front(page: Page, content: SweepContent, units: Mapping[str, str]) -> None:
    front, points = content["front"], content["front"]["points"]
    columns = [objective["column"] for objective in content["objectives"]]
    if len(columns) < 2 or not points:
        return
    names = _varied_names(content)
    words = ", ".join(_WORDS[name] for name in columns)
    better = "no other point is as good in all of these and better in one"
    page.heading(f"Front over {words}: {count_text(front['size'], 'point')}; {better}", "")
    page.rows(
        [figure("front.points", word) for word in (*names, *(_WORDS[name] for name in columns))],
        ([_point_cell(point, name, units) for name in (*names, *columns)] for point in points[:ROWS]),
    )
    if front["size"] > ROWS:
        page.line(f"{front['size'] - ROWS:,} more are in the JSON, up to its limit, and in the table (-o)")
