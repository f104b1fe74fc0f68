"""Format the evidence behind estimates: measurements of a baseline or step, the longest ops, a table's totals."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from fomkit.core.units import count_text, format_number, format_quantity
from fomkit.ops.kinds import of_role
from fomkit.ops.tables import TRAFFIC
from fomkit.output.screen import PLAIN, Entry, Header, Page, Screen, figure, named_sizes, new_table
from fomkit.output.suites import merit_caveats, merit_interval
from fomkit.output.values import format_coverage, format_interval, interval_words, job_words, seconds

if TYPE_CHECKING:
    from fomkit.plan.evidence import ExplainedOp, Explanation, Rest
    from fomkit.plan.op_tables import Totals
    from fomkit.verbs.compare import Study
    from fomkit.verbs.from_measurements import MeasuredWays, OfBaseline, OfWays, Row

WAYS: Mapping[Literal["predicted", "measured_times_ratio"], str] = {
    "predicted": "predicted", "measured_times_ratio": "measured × ratio"
}  # fmt: skip


def with_ways(content: Study) -> list[Entry]:
    """Return the models of a study, each with its prediction from measurements, if any, as one row."""
    ways = {(one["model"], one["target"]): one for one in content.get("from_measurements", {}).get("models", ())}
    found = (
        (model, ways.get((model["model"], model["target"])) if "ratio" in model else None)
        for model in content["models"]
    )
    return [one if way is None else {**one, "from_measurements": way} for one, way in found]


def _measured_row(row: Row) -> str:
    spread = ""
    if row["step_s"]:
        ends = "no spread stated" if row["low"] is None else f"{row['low']:g} … {row['high']:g}"
        repeats = f", {count_text(row['repeats'], 'repeat')}" if row["repeats"] else ""
        spread = f" ({ends}{repeats}) = {seconds(row['step_s']['value'])} a step"
    return f"{row['row']}: {row['quantity']} {row['value']:g}{spread}: {row['said']}"


def _baseline_lines(one: OfBaseline) -> Iterator[str]:
    measured, predicted = one["measured_step_s"], one["predicted_step_s"]
    name = f"{one['model']} on {one['baseline']}"
    if measured is None:
        yield f"{name}: no measurement; predicted only"
    else:
        rows_text = f", median of {len(one['used'])} rows" if len(one["used"]) > 1 else ""
        was = f"{seconds(measured['value'])} ({format_interval(measured, 'time_s')}{rows_text})"
        now = f"{seconds(predicted['value'])} ({format_interval(predicted, 'time_s')})"
        factor = format_number(measured["value"] / predicted["value"], 3)
        where = "inside" if one["in_predicted_interval"] else "outside"
        yield f"{name}: measured {was}, predicted {now}: {factor} times the prediction, {where} its interval"
    yield from (f"  used: {_measured_row(row)}" for row in one["used"])
    yield from (f"  not used: {_measured_row(row)}" for row in one["set_aside"])


def _way_lines(one: OfWays) -> Iterator[tuple[str, str]]:
    way, name = one["measured_times_ratio"], f"{one['model']} on {one['target']}"
    ratio = one["predicted_step_ratio"]
    yield (
        f"{name}: {one['verdict']}: measured × ratio is {format_number(one['factor'], 3)} times the prediction; "
        f"{one['verdict_means']}",
        {"agree": "", "ambiguous": "yellow", "disagree": "bold red"}[one["verdict"]],
    )
    yield f"  predicted step ratio {format_number(ratio['value'], 3)} ({format_interval(ratio, None)})", ""
    if way["scaled_unpredicted"]:
        yield f"  no predicted ratio, scaled like the measured part: {', '.join(way['scaled_unpredicted'])}", ""
    if way["excludes"]:
        yield f"  units/day by measured × ratio still exclude: {', '.join(way['excludes'])}", ""
    if way["counted_twice"]:
        yield f"  in the measured figure, and added again: {', '.join(way['counted_twice'])}", "yellow"


def format_from_measurements(content: MeasuredWays, screen: Screen = PLAIN) -> str:
    """Format both predictions as a table, whether they agree, and every row of measurements of the baseline."""
    page = Page(screen)
    page.line(f"\nmeasured baseline × predicted ratio, from {content['file']}", "bold")
    rows = []
    for model in content["models"]:
        for key, name in WAYS.items():
            step, run, rate = model[key]["step_s"], model[key]["run_s"], model[key]["unit_per_day"]
            rows.append([
                model["model"], model["target"], name, seconds(step["value"]), format_interval(step, "time_s"),
                seconds(run["value"]) if run else "unknown", format_interval(run, "time_s"),
                format_number(rate["value"]) if rate else "unknown", format_interval(rate, None),
            ])  # fmt: skip
    page.rows(
        ["model", "machine", "way", figure("step_s"), "interval", figure("run_s"), "interval",
         figure("unit_per_day"), "interval"], rows,
    )  # fmt: skip
    for model in content["models"]:
        for text, style in _way_lines(model):
            page.line(text, style)
    for baseline in content["baselines"]:
        page.lines(_baseline_lines(baseline))
    if content["rows_of_others"]:
        page.line(f"rows of other models or machines: {content['rows_of_others']:,}")
    for merit in content["foms"]:
        value = f"{format_number(merit['value'])} ({merit_interval(merit)})"
        title = f"FOM {merit['target']} over the measured {merit['baseline']} = {value}"
        page.line(f"{title}; measured times weight the ratios and cancel in each", "bold")
        page.lines((f"  {note}" for note in merit_caveats(merit)), "yellow")
    if not content["foms"]:
        page.line("no FOM from measurements: every model needs a measured step and a run")
    page.line(f"errors: {content['errors']}")
    return page.text()


_BROAD = 110
"""Screen width from which the table of ops has room for intervals."""
_RATES: Mapping[str, tuple[Literal["compute", "memory"], str]] = {
    "flop": ("compute", "flop_per_s"), "byte": ("memory", "byte_per_s")
}  # fmt: skip

_seconds = partial(seconds, digits=3)


def _op_words(sizes: str, row: Mapping[str, Any], *ops: str) -> str:
    """Name an op by kind and sizes; where it works element by element, by its own name and number of elements."""
    if row.get("numel") is None or "tensors" in row:
        return sizes
    more = "" if row.get("row") is None else f", {row['row']:,.12g} a row"
    if row["read_byte"] != row["write_byte"] and sizes.startswith(of_role("moves")):  # a cast, and its direction
        read, written = (format_quantity(row[name], "byte", 3) for name in TRAFFIC)
        more += f", {read} read, {written} written"
    names = "/".join(op.rpartition("::")[2] for op in ops)
    return f"{names} of {count_text(round(row['numel']), 'element')}{more}"


def _add_ops(page: Page, ops: Sequence[ExplainedOp], rest: Rest) -> None:
    broad = page.screen.width >= _BROAD
    more = ["pass", figure("count"), figure("time_s", "each")] if broad else [figure("count")]
    last = ["interval", figure("share"), "time from"] if broad else [figure("share")]
    table = new_table([("#", "right"), "op", *more, figure("step_time_s"), *last])
    for place, one in enumerate(ops, 1):
        step, count, share = one["step_time_s"], f"{one['count']:,.0f}", f"{one['share']:.1%}"
        name = _op_words(one["sizes"], one["dimensions"], one["op"])
        cells = [f"{name}, {one['pass_name']}", count, _seconds(step["value"]), share]
        if broad:
            cells = [
                name, one["pass_name"], count, _seconds(one["time_s"]["value"]), _seconds(step["value"]),
                format_interval(step, "time_s"), share, one["time_source"],
            ]  # fmt: skip
        table.add_row(str(place), *cells)
    if rest["ops"]:
        after = ["", f"{rest['share']:.1%}", ""] if broad else [f"{rest['share']:.1%}"]
        before = [f"({count_text(rest['ops'], 'other')})", *("" for _ in more)]
        table.add_row("", *before, _seconds(rest["time_s"]), *after, style="dim")
    page.table(table)


def _with_dots(text: str) -> str:
    text = re.sub(r"(?<![\w.])\d{4,}(?![\w.])", lambda found: f"{int(found[0]):,}", text)
    return text.replace("**", "^").replace("*", " · ")


def _cost(name: str, entry: ExplainedOp) -> str:
    cost, (term, rate) = entry["costs"][name], _RATES[name]
    if cost["value"] is None:
        return "unknown; no formula for this op"
    bound = entry["floor"][term]
    worked = "" if cost["formula"] is None else f"{_with_dots(cost['formula'])} = {_with_dots(cost['numbers'])} = "
    at = "" if bound is None else f"; {_seconds(bound['time_s'])} at {format_quantity(bound['rate'], rate)}"
    basis = "" if bound is None else f" ({bound['basis']}: {bound['source']})"
    return f"{worked}{format_quantity(cost['value'], name)}{at}{basis}"


def _op_explained(entry: ExplainedOp) -> Iterator[tuple[str, str]]:
    formats = f"{entry['dtype']} on the {entry['engine']} engine"
    places = f"{count_text(entry['modules'], 'place')} of the model"
    yield "", f"{entry['op']}, {entry['pass_name']}, {formats}, {entry['count']:,.0f} × from {places}"
    interval = format_interval(entry["time_s"], "time_s")
    yield "time", f"{_seconds(entry['time_s']['value'])} each ({interval}), {entry['time_source']}"
    if not entry["nearest"] or ";" in entry["evidence"] or entry["time_source"] == "transferred":
        yield "evidence", entry["evidence"]
    for number, near in enumerate(entry["nearest"]):
        far = "the same op" if near["distance"] == 0 else f"distance {near['distance']:.2g}"
        row = None if near["source_row"] is None else f"row {near['source_row']:g}"
        source = ", ".join(filter(None, (near["source_file"], near["source_sheet"], row))) or "source not stated"
        yield "" if number else "timed", f"{near['sizes']}: {_seconds(near['time_s'])}, {far} ({source})"
    yield "flop", _cost("flop", entry)
    yield "byte", _cost("byte", entry)
    floor_s, by = entry["floor"]["time_s"], entry["floor"]["binding"]
    if floor_s is None:
        yield "floor", "unknown; the machine does not state the rates that it needs"
    else:
        share = f"{floor_s / entry['time_s']['value']:.0%} of the time"
        yield "floor", f"{_seconds(floor_s)} by {by}, {share}; bound: {entry['bound']}"


def _evidence_head(content: Explanation) -> Iterator[str]:
    step, device = content["step_s"], content["device_s"]
    interval = interval_words(content["interval"], step, "time_s")
    took = f"{'at least ' if content['unpriced'] else ''}{seconds(step['value'])} ({interval})"
    title = f"{content['model']} on {content['target']}, {named_sizes(content)}, {content['precision']}"
    part = content["part"]
    if part is None:
        yield f"{title}: a step takes {took}"
    else:
        yield f"{title}: a microbatch of {count_text(part['microbatch'], 'sample')} takes a device {took}"
        yield f"part of {job_words(part)}, without waits for other devices that are not among its ops"
    if device["value"] != step["value"]:
        busy = f"the device works {seconds(device['value'])} of it, to which the shares of ops refer"
        bound = content["bound"].replace("measured", "an unknown limit: its time is measured")
        yield f"{busy}; the step is bound by {bound}"
    yield f"time from: {format_coverage(content['coverage'])}"


def format_evidence(content: Explanation, screen: Screen = PLAIN) -> str:
    """Format ``fomkit/explain/1`` as text."""
    from rich.table import Table

    page = Page(screen)
    page.lines(_evidence_head(content))
    _add_ops(page, content["ops"], content["rest"])
    for place, one in enumerate(content["ops"], 1):
        page.heading(f"{place}. {_op_words(one['sizes'], one['dimensions'], one['op'])}")
        grid = Table.grid("", "", "", padding=(0, 2))
        for name, text in _op_explained(one):
            grid.add_row("", name, text)
        page.table(grid)
    costs = [cost for one in content["ops"] for cost in one["costs"].values()]
    if named := {name: text for cost in costs for name, text in cost.get("where", {}).items()}:
        page.heading("named parts of the formulas", "")
        page.lines(f"  {name} = {_with_dots(text)}" for name, text in named.items())
    page.heading("to time on the machine, best first: the step's interval after an exact timing")
    broad = page.screen.width >= _BROAD
    more: list[Header] = ["pass", figure("executions"), "now"] if broad else []
    rows = []
    for case in content["measurements"]:
        passes, then = ", ".join(case["passes"]), format_interval(case["step_s"], "time_s")
        name = _op_words(case["sizes"], case["line"], *case["ops"])
        cells = [f"{name}, {passes}"]
        if broad:
            cells = [name, passes, f"{case['executions']:,.0f}", case["time_source"]]
        rows.append([*cells, then, f"{case['shrinks']:.1%}"])
    page.rows(["op", *more, "step then", figure("shrinks")], rows)
    if content["all_measured"] is not None:
        then = format_interval(content["all_measured"], "time_s")
        page.line(f"with all of these timed, the step's interval would be {then}")
    page.line("-o FILE.csv writes these as a table of ops; the effect of a timing on similar ops is not counted")
    for left in content["unpriced"]:
        page.line(f"without a time: {left['op']} ({left['sizes']}), {left['count']:,.0f} ×")
    page.notes(content["deviations"])
    page.line("conditions on which the time depends:")
    page.lines(f"  {name}, {one['is']}: {one['what']}" for name, one in content["conditions"].items())
    return page.text()


def measurement_rows(content: Explanation) -> list[Entry]:
    """Return the ops to time as rows of an op table, the best first, with how much each narrows the interval."""
    return [{**measurement["line"], "shrinks": measurement["shrinks"]} for measurement in content["measurements"]]


_LISTED = 12


def format_prediction(content: Totals, name: str) -> str:
    """Format the totals of a predicted table: rows, evidence, sum of the times, and rows without a time."""
    total, priced = content["time_s"], content["rows"] - sum(map(len, content["unpriced"].values()))
    lines = [f"{name} on {content['target']}: {count_text(content['rows'], 'row')}, {priced:,} priced"]
    lines += [
        f"  {source}: {count_text(one['rows'], 'row')}, {one['share']:.1%} of the time"
        for source, one in content["sources"].items()
    ]
    if total is not None:
        least = "at least " if content["unpriced"] else ""
        interval = interval_words(content["interval"], total, "time_s")
        lines.append(f"sum of time × count: {least}{seconds(total['value'])} ({interval})")
    for kind, rows in content["unpriced"].items():
        listed, more = ", ".join(map(str, rows[:_LISTED])), len(rows) - _LISTED
        words = f"{content['rows_are']}{'s' * (len(rows) > 1)} {listed}{f' and {more:,} more' if more > 0 else ''}"
        lines.append(f"unpriced, kind {kind}: {len(rows):,} ({words})")
    return "\n".join(lines) + "\n"


_CLOCKS = {"process": "processor time", "wall": "wall time", "device": "time on the device"}
MOST_LISTED = 5
_WIDE = 0.5
"""Width of the interval of the profiler's overhead, as a share of the step, above which no value is printed."""


def _step_text(run: Entry, clock: str) -> str:
    times = run["step"][clock]
    quartiles = f"quartiles {seconds(times['p25_s'])} to {seconds(times['p75_s'])}"
    ends = (times["low_s"], times["high_s"])
    interval = "" if None in ends else f", 95 % interval of it {seconds(ends[0])} to {seconds(ends[1])}"
    clock_text = f"{_CLOCKS[clock]}, median of {run['step']['repeats']}"
    return f"{seconds(times['median_s'])} {clock_text}{interval}, {quartiles}"


def energy_text(energy: Entry) -> str:
    """Format the energy of a step, with its interval, scope and instrument."""
    step, low, high = (format_quantity(energy[name], "energy_j") for name in ("value_j", "low_j", "high_j"))
    return f"{step} ({low} to {high}) a step, scope {energy['scope']}, {energy['source']}"


def _profiler_overhead(run: Entry) -> list[str]:
    """Format the profiler's overhead; only its bounds where they are more than half a step apart."""
    if run["profiler_overhead"] is None:
        return []
    least, most = run["profiler_overhead_low"], run["profiler_overhead_high"]
    relative_to = f"on the plain step by {_CLOCKS[run['clock']]}"
    if most - least > _WIDE:
        return [f"profiler: overhead unknown, {least:+.0%} to {most:+.0%} {relative_to}"]
    return [f"profiler: {run['profiler_overhead']:+.1%} {relative_to}, interval {least:+.1%} to {most:+.1%}"]


def _op_lines(run: Entry) -> list[str]:
    ops, share = run["ops"], run["ops_share_of_step"]
    lines = _profiler_overhead(run)
    if share is not None:
        lines.append(f"ops: their times add up to {share:.1%} of the plain step by {_CLOCKS[run['clock']]}")
    if ops["scaled_by"] != 1:
        divided = f"ops: their times were divided by {ops['scaled_by']:.3g} to add up to processor time"
        lines.append(f"{divided}; the sum is therefore no check, and a single op may be wrong by as much")
    lines.append("ops: the spread of their times is not recorded; the intervals shown are of predictions only")
    if run["joined_share_of_ops"] is not None:
        lines.append(f"ops: {run['joined_share_of_ops']:.1%} of their time is in rows of the table")
    listed = ops["unjoined"]
    if listed:
        shown = ", ".join(f"{one['op']} {seconds(one['time_s'])} ({one['why']})" for one in listed[:MOST_LISTED])
        more = f", and {len(listed) - MOST_LISTED} more in the profile" if len(listed) > MOST_LISTED else ""
        lines.append(f"not in rows: {shown}{more}")
    return lines


def measured_lines(run: Entry) -> list[str]:
    """Format the measurement of a run: the step, the profiler's overhead, and how far the ops explain the step."""
    others = [name for name in _CLOCKS if name != run["clock"] and run["step"][name] is not None]
    lines = [f"measured step: {_step_text(run, run['clock'])}"]
    lines += [f"  by another clock: {_step_text(run, name)}" for name in others]
    threads = "" if run["device"] == "gpu" else f", {count_text(run['threads'], 'thread')}"
    load = "" if run["load_start"] is None else f", load {run['load_start']:g} to {run['load_end']:g}"
    allocator = ", ".join(f"{name}={text}" for name, text in run["allocator"].items()) or "default"
    precision = f", autocast to {run['precision']}" if run["precision"] else ""
    lines.append(f"on: {run['processor']}{threads}{precision}{load}, allocator {allocator}")
    if run["energy"]:
        lines.append(f"energy: {energy_text(run['energy'])}")
    return [*lines, *(_op_lines(run) if run["ops"] else []), *(f"note: {note}" for note in run["notes"])]
