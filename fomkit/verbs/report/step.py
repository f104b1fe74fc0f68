"""Sections of the report about a step: its ops, measurements, memory, the devices of a job, and more devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from shlex import quote
from typing import Any

import pandas as pd

from fomkit.core.errors import FomkitError
from fomkit.core.interval import Span, level_text
from fomkit.core.job import Layout
from fomkit.core.machine import Machine
from fomkit.core.measurement import Measurement
from fomkit.core.units import agree, count_text, format_quantity, memory_text
from fomkit.output import charts
from fomkit.output.pages import Cell, Figure, Head, Listing, Section, Table
from fomkit.output.values import job_words
from fomkit.plan.estimate import Estimate
from fomkit.plan.evidence import op_frame, roof_frame
from fomkit.plan.job import Placed
from fomkit.plan.memory import Held
from fomkit.plan.memory_of import fit_in, held_by_sizes, in_formats, reserve_of, reserve_text
from fomkit.plan.op_tables import ROLE_WORDS, composition_table, memory_table, pareto_table
from fomkit.plan.options import Options
from fomkit.plan.scaling import MODES, ScalingSpec, scale, with_user_links
from fomkit.profiles.machines import load_machine
from fomkit.validation.cells import Cell as Measured
from fomkit.validation.cells import CellVerdict, cell_verdicts, make_cells
from fomkit.verbs.machine_view import BY_SIZES, GAPS, assumed_of, bounds_of_part
from fomkit.verbs.report.words import ends, figure, frame_table, number, share
from fomkit.verbs.scaling import ScalingContent, scaling_content
from fomkit.verbs.views import Plots

MEASURED_TITLE = "Projected against measured"
_QUANTITIES = {
    "step_s": "step", "epoch_s": "epoch", "run_s": "run", "latency_s": "latency", "sample_per_s": "rate"
}  # fmt: skip
_CLAIMS = {
    "absolute": "its time", "ratio": "only the ratio to another machine",
    "start-up bound": "neither: fixed costs outside the device", "host bound": "neither: it waits for the host",
    "unexplained": "neither, for an unknown reason",
}  # fmt: skip


def _judged_cells(estimate: Estimate, rows: Sequence[Measurement]) -> tuple[CellVerdict, ...]:
    """Project each measured figure of the model and give a verdict; figures of this machine come first."""

    def machine_of(name: str) -> Machine:
        return estimate.machine if name == estimate.machine.name else load_machine(name)

    ordered = sorted(rows, key=lambda row: row.machine != estimate.machine.name)
    options = Options(interval=estimate.step.level)
    return cell_verdicts(make_cells(ordered, options, lambda _name: estimate.model, machine_of), None)


def _name(cell: Measured, here: str) -> str:
    batch = "" if cell.batch is None else f", batch {cell.batch}"
    return f"{cell.machine}{' (this page)' if cell.machine == here else ''}, {_QUANTITIES[cell.quantity]}{batch}"


def _drawn(all_verdicts: Sequence[CellVerdict], here: str) -> Any:
    rows = []
    for one in all_verdicts:
        cell = one.cell
        if cell.projected is None or cell.quantity == "sample_per_s":
            continue
        for what, span in (("projected", cell.projected), ("measured", cell.measured)):
            rows.append({"name": _name(cell, here), "what": what, "time_s": span.value, "low_s": span.low,
                         "high_s": span.high, "said": _CLAIMS.get(one.claim or "", one.cause)})  # fmt: skip
    return pd.DataFrame(rows)


def _timing(span: Span | None, quantity: str) -> Cell:
    if span is None:
        return Cell("unknown")
    dimension = None if quantity == "sample_per_s" else "time_s"
    value = number(span.value, dimension)
    if span.low == span.high:
        return value
    ends = [number(end, dimension).text for end in (span.low, span.high)]
    return value._replace(text=f"{value.text} ({ends[0]} to {ends[1]})")


def _claims_table(all_verdicts: Sequence[CellVerdict], here: str, level: float) -> Table:
    head = (Head("measured where, what"), Head("projected", True), Head("measured", True),
            Head("projected / measured", True), Head("inside the interval"), Head("what may be claimed"),
            Head("why"), Head("source"))  # fmt: skip
    rows = []
    for one in all_verdicts:
        cell = one.cell
        ratio = None if cell.projected is None else cell.projected.value / cell.measured.value
        inside = {None: "", True: "yes", False: "no"}[cell.inside]
        sources = "; ".join(dict.fromkeys(row.source for row in cell.rows if row.source))
        rows.append((
            Cell(_name(cell, here)), _timing(cell.projected, cell.quantity), _timing(cell.measured, cell.quantity),
            number(ratio), Cell(inside), Cell(_CLAIMS.get(one.claim or "", "nothing")), Cell(one.cause),
            Cell(sources),
        ))  # fmt: skip
    return Table(
        f"Projected and measured, with {level_text(level)} intervals where one is stated", head, tuple(rows)
    )


def measured(
    estimate: Estimate, key: str, rows: Sequence[Measurement], names: Sequence[str], more: Sequence[str] = ()
) -> Section:
    """Make the section that compares projections with measurements of the model, on this and other machines."""
    ours = [row for row in rows if row.model == estimate.model.name and row.quantity != "energy_j"]
    here = [row for row in ours if row.machine == estimate.machine.name]
    tables = ", ".join(names) or "none"
    absent = "" if here else (
        f"The known tables ({tables}) have no measurement of {estimate.model.name} on {estimate.machine.name}. "
        "Add your own with 'fomkit import' into the folder measurements/."
    )  # fmt: skip
    if not ours:
        return Section(f"{key}-measured", MEASURED_TITLE, tuple(more), absent=absent)
    all_verdicts = _judged_cells(estimate, ours)
    drawn = _drawn(all_verdicts, estimate.machine.name)
    tables_shown = (_claims_table(all_verdicts, estimate.machine.name, estimate.step.level),)
    inside = [each.cell.inside for each in all_verdicts if each.cell.inside is not None]
    says = (
        f"{count_text(len(here), 'measured figure')} of {estimate.model.name} on "
        f"{estimate.machine.name}, {len(ours) - len(here)} on other machines; each is projected at its own batch. "
        f"{sum(inside)} of {len(inside)} are inside the projected interval.",
        "A device model predicts the time of the device. Where fixed costs of a framework or the host dominate, "
        "it must not claim the time; see the column 'what may be claimed'.",
        *more,
    )
    if drawn.empty:
        return Section(f"{key}-measured", MEASURED_TITLE, says, absent=absent, tables=tables_shown)
    caption = ("Circles are projected, diamonds measured; lines are the intervals, where one is stated.",)
    shown = figure(f"{key}-compared", "Projected and measured times", charts.compared(drawn), says[0], caption)
    return Section(f"{key}-measured", MEASURED_TITLE, says, (shown,), tables_shown, absent=absent)


MEMORY_TITLE = "Memory over the step"


def _memory_verdict(estimate: Estimate, peak_byte: float) -> str:
    machine, peak = estimate.machine, memory_text(peak_byte)
    holds, reserve = machine.device.capacity_byte, reserve_of(machine)
    if holds is None or reserve is None:
        return f"At most {peak} at once. The memory of the device of {machine.name} is not stated."
    fit = fit_in(machine, peak_byte)
    message = (
        "fits only without the reserve into" if fit.warning else "fits into" if fit.fits else "does not fit into"
    )
    return (
        f"At most {peak} at once, which {message} the {memory_text(holds.value)} of {machine.name} "
        f"({peak_byte / holds.value:.0%}). The reserve for the framework and its libraries is "
        f"{reserve_text(reserve)}: {reserve.source}."
    )


def _by_role(held: Held, title: str) -> Table:
    pieces = pd.DataFrame([{"for": ROLE_WORDS.get(role, role), "byte": byte} for role, byte in held.items()])
    return frame_table(title, pieces, {"for": "", "byte": "memory"})


def devices(estimate: Estimate, placed: Placed, key: str, options: Options) -> Section:
    """Make the section about the devices of a job: how long one calculates and waits, and what it holds."""
    job, step, whole_s = placed.content, placed.stepper.at(placed.devices, placed.batch), estimate.step
    parts = {"calculation, and waits for the host": step.compute_s, "waits for other stages": step.bubble_s,
             "communication that no work hides": step.exposed_s}  # fmt: skip
    rows = tuple((Cell(name), number(span.value, "time_s"), Cell(ends(span)), share(span.value / whole_s.value))
                 for name, span in parts.items() if span.value)  # fmt: skip
    head = (Head("part of a step"), Head("time", True), Head("interval", True), Head("share", True))
    tables = [Table(f"One step, with {level_text(whole_s.level)} intervals", head, rows)]
    held = placed.stepper.held(placed.devices, placed.batch)
    if held is not None:
        tables.append(_by_role(held, "Memory of the fullest device"))
    says = (
        f"{job_words(job)}.",
        "The memory of a device is unknown." if held is None else _memory_verdict(estimate, sum(held.values())),
        f"The times of ops on this page are those of one device for a microbatch of "
        f"{count_text(job['microbatch'], 'sample')}; of several stages it is the first.",
    )
    named = zip(("Assumed of memory", "Memory not counted"), bounds_of_part(placed, options), strict=True)
    lists = tuple(Listing(name, items) for name, items in named if items and held is not None)
    return Section(f"{key}-devices", "The devices of a run", says, (), tuple(tables), lists)


def memory(estimate: Estimate, key: str) -> Section:
    """Make the section about the memory in use from op to op, and whether the device holds it."""
    followed = in_formats(estimate.model, estimate.sizes, estimate.formats)
    held = None if followed is None else held_by_sizes(followed, estimate.sizes)
    if held is not None:
        says, tables = (_memory_verdict(estimate, sum(held.values())),), (_by_role(held, "Memory of the device"),)
        return Section(f"{key}-memory", MEMORY_TITLE, says, (), tables, (Listing("Assumed", (BY_SIZES,)),))
    try:
        live = memory_table(estimate)
        chart = Plots(estimate).memory()
    except FomkitError as error:
        return Section(f"{key}-memory", MEMORY_TITLE, absent=f"Unknown: {error.what}")
    message = _memory_verdict(estimate, float(live["all_byte"].max()))
    peak = live[live["all_byte"] == live["all_byte"].max()]
    at_peak = peak.drop_duplicates("role")[["role", "byte"]]
    shown = figure(
        f"{key}-live", "Memory by what it is for, op by op", chart, message,
        (f"{message} The peak is at {peak['op'].iloc[0] or 'an op without a row'} "
         f"({peak['pass_name'].iloc[0]}).",),
        frame_table("Memory at the peak", at_peak, {"role": "", "byte": "memory"}),
    )  # fmt: skip
    assumed = assumed_of(estimate.model, estimate.sizes, estimate.formats)
    lists = (Listing("Assumed", assumed), Listing("Not counted", (GAPS,)))
    return Section(f"{key}-memory", MEMORY_TITLE, figures=(shown,), lists=lists)


MOST_OPS = 1500
"""Number of ops in a page's table (the longest); more would make the file large."""


def composition(estimate: Estimate, key: str) -> Section:
    """Make the section about the time of a step by pass and kind of op."""
    parts = composition_table(estimate)
    step = estimate.step_time
    message = ", ".join(f"{name} {format_quantity(span.value, 'time_s', 3)}" for name, span in step.passes.items())
    host = step.host_launch_s
    host_text = (
        "What the host needs to start the kernels is unknown here." if host is None else
        f"Meanwhile the host starts the kernels in {format_quantity(host.value, 'time_s', 3)}; the longer counts."
    )  # fmt: skip
    shown = figure(
        f"{key}-parts", "Each pass, by kind of op", Plots(estimate).composition(),
        f"Time of one step by pass: {message}.",
        (f"The device runs {message}. {host_text}",),
        frame_table("One step by pass and kind of op", parts, {"pass": "", "part": "", "time_s": "time_s"}),
    )  # fmt: skip
    return Section(f"{key}-time", "Where the time goes", figures=(_longest(estimate, key), shown))


def _longest(estimate: Estimate, key: str) -> Figure:
    ops = op_frame(estimate)
    longest = pareto_table(ops)
    wholes = longest.drop_duplicates("name")
    reached = float(wholes["reached"].iloc[-1]) if len(wholes) else 0.0
    message = f"The {len(wholes)} longest ops take {reached:.0%} of the step."
    return figure(
        f"{key}-pareto", "The longest ops", Plots(estimate).pareto(), message,
        (f"{message} Bars are passes, lines the {level_text(estimate.step.level)} interval; the number at the "
         "end is the share of the step that an op has together with the ops above it. Ops of equal sizes "
         "count as one.",),
        frame_table("The longest ops", wholes, {"name": "", "time_s": "time_s", "low_s": "time_s",
                                                "high_s": "time_s", "share": "share", "reached": "share"}),
    )  # fmt: skip


def roofline(estimate: Estimate, key: str) -> Section:
    """Make the section about the rate of each op relative to the limits of the machine."""
    title = "Roofline"
    ops = op_frame(estimate)
    try:
        chart = Plots(estimate).roofline()
    except FomkitError as error:
        return Section(f"{key}-roofline", title, absent=f"No roofline: {error.what}")
    without = ops[~(ops["flop"] > 0) & ops["time_s"].notna()]
    roofs = roof_frame(estimate, ops)
    above = ops[ops["flop_per_s"] > roofs["flop_per_s"].max()]
    caption = [
        "Each mark is an op; its size is its share of the time. Memory traffic limits ops below the sloping line, "
        "arithmetic those below the flat one. Click a kind in the legend to see it alone; click an op to find it "
        "in the table below."
    ]
    if len(without):
        caption.append(
            f"{count_text(len(without), 'op')} without arithmetic (copies and the like, "
            f"{share(without['share'].sum()).text} of the time) "
            f"{agree(len(without), 'is not drawn; the table has it/are not drawn; the table has them')}."
        )
    if len(above):
        caption.append(
            f"Above the flat line: {count_text(len(above), 'op')}. FLOP are counted for direct products and "
            "convolutions, and for all pairs of an attention; libraries have cheaper algorithms (Winograd, FFT), "
            "and leave out the pairs that a causal attention masks."
        )
    drawn = ops[(ops["flop"] > 0) & ops["time_s"].notna()]
    if drawn["flop_per_s"].min() < charts.heights(drawn, roofs)[0]:
        caption.append("Ops below the axis of rates are drawn on it.")
    shown = figure(f"{key}-roof", "Rate of every op over its arithmetic intensity", chart,
                   f"Roofline of {count_text(len(ops) - len(without), 'op')} under {'; '.join(roofs['roof'])}.",
                   tuple(caption), finds=f"{key}-ops-table")  # fmt: skip
    return Section(f"{key}-roofline", title, figures=(shown,))


def all_ops(estimate: Estimate, key: str) -> Section:
    """Make the section that lists every distinct op, the longest first."""
    ops = op_frame(estimate)
    shown, rest = ops.head(MOST_OPS), ops.iloc[MOST_OPS:]
    says = [
        f"{count_text(len(ops), 'distinct op')}; those of equal name, sizes, number format and pass count as one."
    ]
    if len(rest):
        others = agree(len(rest), f"another takes/{len(rest):,} others take")
        says.append(f"The {len(shown):,} longest are listed; {others} {rest['share'].sum():.2%} of it.")
    head = (
        Head("op"), Head("time", True, "of all executions in one step"),
        Head("share", True, "of the device time of a step"), Head("sizes"), Head("kind", filtered=True),
        Head("pass", filtered=True), Head("interval", True), Head("runs", True, "executions in one step"),
        Head("time is", filtered=True, hint="how the time was predicted"),
        Head("bound by", filtered=True), Head("rate", True, "FLOP a second reached"), Head("module"),
        Head("evidence", hint="the nearest timed op, or the rates used"),
    )  # fmt: skip
    rows = tuple(_op_row({str(name): cell for name, cell in row.items()}) for row in shown.to_dict("records"))
    table = Table("Every op of one step, longest first", head, rows, key=f"{key}-ops-table")
    return Section(f"{key}-ops", "Every op", tuple(says), tables=(table,))


def _op_row(row: Mapping[str, Any]) -> tuple[Cell, ...]:
    time, ends = row["time_s"], [format_quantity(row[name], "time_s", 3) for name in ("low_s", "high_s")]
    between = Cell(f"{ends[0]} to {ends[1]}", row["high_s"] - row["low_s"]) if time == time else Cell("", -1.0)
    return (
        Cell(row["op"].rpartition("::")[2] or row["op"], hint=row["op"]),
        number(time, "time_s") if time == time else Cell("unknown", -1.0), share(row["share"]),
        Cell(row["size"], hint=row["sizes"]), Cell(row["kind"]), Cell(row["pass_name"].replace("_", " ")), between,
        number(row["count"]), Cell(row["time_source"] or "unpriced"), Cell(row["bound"]),
        number(row["flop_per_s"] or None, "flop_per_s"), Cell(row["module"]), Cell(row["evidence"]),
    )  # fmt: skip


SCALING_TITLE = "More devices"
LINK = "--link system,5us,25GB/s,each"
FEWEST = 3
"""Smallest number of device counts for which a curve is drawn; fewer are only in the table."""
LIMITS = {"batch": "batches too small to fill a device", "device": "nothing but the device",
          "memory": "a memory too small to hold it"}  # fmt: skip
MOST_NODES = 64
"""Largest number of nodes by default; the machine's own number where it is smaller."""

COLUMNS = {"mode": "", "devices": "count", "speedup": "count", "low": "count", "high": "count",
           "efficiency": "share", "step_s": "time_s", "limit": ""}  # fmt: skip


def _points(contents: Sequence[ScalingContent]) -> pd.DataFrame:
    rows = []
    for content in contents:
        reference = {reference["mode"]: reference["devices"] for reference in content["references"]}
        for point in content["points"]:
            speedup = point["speedup"]
            rows.append(
                {"mode": f"{point['mode']} scaling", "devices": point["devices"], "speedup": speedup["value"],
                 "low": speedup["low"], "high": speedup["high"], "efficiency": point["efficiency"]["value"],
                 "step_s": point["step_s"]["value"], "ideal": point["devices"] / reference[point["mode"]],
                 "limit": point["limit"]}
            )  # fmt: skip
    return pd.DataFrame(rows)


def _groups(machine: Machine, nodes: Sequence[int] | None, layout: Layout) -> list[tuple[Machine, list[int]]]:
    """Return the machines and node counts to scale to: parts of a node first, then nodes."""
    if nodes is not None:
        return [(machine, list(nodes))]
    between = any(link.tier == "system" for link in machine.links)
    most = min(machine.system_nodes or MOST_NODES, MOST_NODES) if between else 1
    parts = [part for part in charts.doubled(machine.node_devices or 1)
             if part < (machine.node_devices or 1) and part % layout.fewest_devices == 0]  # fmt: skip
    return [*((with_user_links(machine, (), part), [1]) for part in parts), (machine, charts.doubled(most))]


def _contents(estimate: Estimate, options: Options, nodes: Sequence[int] | None) -> list[ScalingContent]:
    """Scale over each group of devices; all points of strong scaling share one batch."""
    batch, job, layout = estimate.sizes.get("batch"), estimate.job, Layout()
    whole = None if batch is None else batch * (estimate.machine.node_devices or 1)
    if job is not None:
        layout, whole = replace(job.layout, data=None), batch
        options = replace(options, batch=job.samples // job.replicas)
    return [
        scaling_content(scale(estimate.model, machine, ScalingSpec(counts, layout, MODES, whole, options)))
        for machine, counts in _groups(estimate.machine, nodes, layout)
    ]


def _reference_of(points: pd.DataFrame) -> str:
    """Return the devices to which speed-ups are relative, in words."""
    devices = round(float((points["devices"] / points["ideal"]).iloc[0]))
    return "one device" if devices == 1 else f"{devices:,} devices"


def scaling(estimate: Estimate, key: str, options: Options, nodes: Sequence[int] | None = None) -> Section:
    """Make the section about more devices, by default up to 64 nodes; where links are unknown, it says so."""
    machine, model = estimate.machine, estimate.model
    hint = f"See: fomkit scaling {quote(model.asked_as or model.name)} -t {machine.name} --nodes 1..64 {LINK}"
    if (machine.node_devices or 1) > 1 and not any(link.tier == "node" for link in machine.links):
        hint += f" {LINK.replace('system', 'node')}"
    if nodes is None and not machine.links:
        return Section(f"{key}-scaling", SCALING_TITLE, absent=f"The profile of {machine.name} names no link "
                       f"between devices or nodes, so runs on several are not estimated. {hint}")  # fmt: skip
    try:
        contents = _contents(estimate, options, nodes)
    except FomkitError as error:
        return Section(f"{key}-scaling", SCALING_TITLE, absent=f"Not estimated: {error}. {hint}")
    points = _points(contents)
    if points["ideal"].max() == 1:
        lone = f"{machine.name} has {_reference_of(points)}, and no link to more. {hint}"
        return Section(f"{key}-scaling", SCALING_TITLE, absent=lone)
    last, over = points[points["devices"] == points["devices"].max()], _reference_of(points)
    says = tuple(
        f"{row['mode'].capitalize()}: {row['devices']:,} devices are {row['speedup']:.3g} times as fast as {over} "
        f"({row['efficiency']:.0%} of the ideal), limited by {LIMITS.get(row['limit'], row['limit'])}."
        for row in last.to_dict("records")
    )
    table = frame_table("Speed-up by devices", points, COLUMNS)
    caption = ("Strong scaling divides one batch among replicas, weak scaling gives each its own. The dashed line "
               "is ideal scaling.",)  # fmt: skip
    chart = charts.scaling(points, over)
    shown = figure(f"{key}-curve", "Speed-up over devices", chart, " ".join(says), caption, table)
    largest = contents[-1]
    refused = tuple(f"{count_text(each['nodes'], 'node')}: {each['why']}" for each in largest["not_estimated"])
    lists = (Listing("Assumed", tuple(largest["assumed"])),
             *((Listing("Without a step", refused),) if refused else ()))  # fmt: skip
    few = points["devices"].nunique() < FEWEST
    return Section(f"{key}-scaling", SCALING_TITLE, says, () if few else (shown,), (table,) if few else (), lists)
