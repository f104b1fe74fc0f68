"""Where the time of a step goes: passes in parts, the longest ops, the roofline, and every op in a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fomkit.dossier.drawing import figure, frame_table
from fomkit.dossier.words import number, share
from fomkit.errors import FomkitError
from fomkit.quantities import format_quantity
from fomkit.report.book import Cell, Figure, Head, Section, Table
from fomkit.study.estimate import Estimate
from fomkit.study.figure_tables import composition_table, pareto_table
from fomkit.study.op_frame import op_frame, roof_frame
from fomkit.study.plots import Plots

MOST_OPS = 1500
"""Ops that the table of a page lists, the longest; more would make the file heavy."""


def composition(one: Estimate, key: str) -> Section:
    """Tell what a step is made of."""
    parts = composition_table(one)
    step = one.step_time
    said = ", ".join(f"{name} {format_quantity(span.value, 'time_s', 3)}" for name, span in step.passes.items())
    host = step.host_launch_s
    beside = (
        "What the host needs to start the kernels is unknown here." if host is None else
        f"Meanwhile the host starts the kernels in {format_quantity(host.value, 'time_s', 3)}; the longer decides."
    )  # fmt: skip
    shown = figure(
        f"{key}-parts", "Each pass, by kind of op", Plots(one).composition(),
        f"Time of one step by pass: {said}.",
        (f"The device runs {said}. {beside}",),
        frame_table("One step by pass and kind of op", parts, {"pass": "", "part": "", "time_s": "time_s"}),
    )  # fmt: skip
    return Section(f"{key}-time", "Where the time goes", figures=(_longest(one, key), shown))


def _longest(one: Estimate, key: str) -> Figure:
    ops = op_frame(one)
    longest = pareto_table(ops)
    wholes = longest.drop_duplicates("name")
    reached = float(wholes["reached"].iloc[-1]) if len(wholes) else 0.0
    said = f"The {len(wholes)} longest ops take {reached:.0%} of the step."
    return figure(
        f"{key}-pareto", "The longest ops", Plots(one).pareto(), said,
        (f"{said} Bars are passes, lines the {one.step.level:.0%} interval, and the number behind is the share of "
         "the step that an op reaches together with those above it. Ops of equal sizes count as one.",),
        frame_table("The longest ops", wholes, {"name": "", "time_s": "time_s", "low_s": "time_s",
                                                "high_s": "time_s", "share": "share", "reached": "share"}),
    )  # fmt: skip


def roofline(one: Estimate, key: str) -> Section:
    """Tell how near each op comes to what the machine can do."""
    title = "Roofline"
    ops = op_frame(one)
    try:
        chart = Plots(one).roofline()
    except FomkitError as error:
        return Section(f"{key}-roofline", title, absent=f"No roofline: {error.what}")
    without = ops[~(ops["flop"] > 0) & ops["time_s"].notna()]
    roofs = roof_frame(one, ops)
    above = ops[ops["flop_per_s"] > roofs["flop_per_s"].max()]
    caption = [
        "Each mark is an op, as large as its share of the time. Under the sloping line memory traffic limits it, "
        "under the flat one arithmetic. Choose a kind in the legend to see it alone; click an op to find it in "
        "the table below.",
    ]
    if len(without):
        caption.append(
            f"{len(without)} ops without arithmetic (copies and the like, {share(without['share'].sum()).text} "
            "of the time) have no place here; the table has them."
        )
    if len(above):
        caption.append(
            f"{len(above)} ops stand above the flat line: FLOP are counted as a direct product or convolution has "
            "them, and libraries know cheaper algorithms (Winograd, FFT)."
        )
    shown = figure(f"{key}-roof", "Rate of every op over its arithmetic intensity", chart,
                   f"Roofline of {len(ops) - len(without)} ops under {'; '.join(roofs['roof'])}.",
                   tuple(caption), finds=f"{key}-ops-table")  # fmt: skip
    return Section(f"{key}-roofline", title, figures=(shown,))


def all_ops(one: Estimate, key: str) -> Section:
    """List every distinct op, longest first."""
    ops = op_frame(one)
    shown, rest = ops.head(MOST_OPS), ops.iloc[MOST_OPS:]
    says = [f"{len(ops):,} distinct ops; those of equal name, sizes, number format and pass count as one."]
    if len(rest):
        says.append(
            f"The {len(shown):,} longest are listed; {len(rest):,} others take {rest['share'].sum():.2%} of it."
        )
    head = (
        Head("op"), Head("time", True, "of all executions in one step"),
        Head("share", True, "of the device time of a step"), Head("sizes"), Head("kind", filtered=True),
        Head("pass", filtered=True), Head("interval", True), Head("runs", True, "executions in one step"),
        Head("time is", filtered=True, hint="how the time was made"),
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
