"""What more devices bring, where the machine's links and nodes are known.

What the answer hangs on, and what to measure to know it better.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from fomkit.core.errors import FomkitError
from fomkit.core.machine import Machine
from fomkit.output.charts import scaling as draw_scaling
from fomkit.output.charts import tornado as draw_tornado
from fomkit.output.decisions import format_setting
from fomkit.output.pages import Cell, Head, Listing, Section, Table
from fomkit.plan.estimate import Estimate
from fomkit.plan.options import Options
from fomkit.plan.scaling import ScalingSpec, scale, with_links
from fomkit.verbs.report.words import figure, frame_table, number, parameter, share
from fomkit.verbs.scaling import ScalingContent, scaling_content
from fomkit.whatif.cases import OneModel
from fomkit.whatif.parameters import Measurable
from fomkit.whatif.sensitivity import Sensitivity
from fomkit.whatif.sensitivity import sensitivity as work_out

if TYPE_CHECKING:
    import pandas as pd


SCALING_TITLE = "More devices"
LINK = "--link system,5us,25GB/s,each"
FEWEST = 3
"""Numbers of devices from which a curve tells more than its table."""
LIMITS = {"batch": "batches too small to fill a device", "device": "nothing but the device"}
MOST_NODES = 64
"""Nodes that are looked at where nobody says how many; the machine's own number where it is smaller."""

COLUMNS = {"mode": "", "devices": "count", "speedup": "count", "low": "count", "high": "count",
           "efficiency": "share", "step_s": "time_s", "limit": ""}  # fmt: skip


def _doubled(most: int) -> list[int]:
    found = [1]
    while found[-1] * 2 <= most:
        found.append(found[-1] * 2)
    return found


def _points(contents: Sequence[ScalingContent]) -> pd.DataFrame:
    import pandas as pd

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


def _groups(machine: Machine, nodes: Sequence[int] | None) -> list[tuple[Machine, list[int]]]:
    """Give what to scale to: parts of a node, then nodes."""
    if nodes is not None:
        return [(machine, list(nodes))]
    between = any(link.tier == "system" for link in machine.links)
    most = min(machine.system_nodes or MOST_NODES, MOST_NODES) if between else 1
    parts = [part for part in _doubled(machine.node_devices or 1) if part < (machine.node_devices or 1)]
    return [*((with_links(machine, (), part), [1]) for part in parts), (machine, _doubled(most))]


def _contents(estimate: Estimate, options: Options, nodes: Sequence[int] | None) -> list[ScalingContent]:
    """Scale over each group of devices, strong steps all of one batch."""
    batch = estimate.sizes.get("batch")
    whole = None if batch is None else batch * (estimate.machine.node_devices or 1)
    return [
        scaling_content(scale(estimate.model, machine, ScalingSpec(counts, whole_batch=whole, options=options)))
        for machine, counts in _groups(estimate.machine, nodes)
    ]


def _speedup_sentences(points: pd.DataFrame) -> tuple[str, ...]:
    last = points[points["devices"] == points["devices"].max()]
    return tuple(
        f"{row['mode'].capitalize()}: {row['devices']:,} devices are {row['speedup']:.3g} times as fast as one "
        f"({row['efficiency']:.0%} of the ideal), limited by {LIMITS.get(row['limit'], row['limit'])}."
        for row in last.to_dict("records")
    )


def scaling(estimate: Estimate, key: str, options: Options, nodes: Sequence[int] | None = None) -> Section:
    """Tell what more devices bring; where links or nodes are unknown, say so.

    `options`: those of the estimate; `nodes`: numbers of nodes; default: parts of a node, and as many nodes as the
    machine has, 64 at most.
    """
    machine = estimate.machine
    hint = f"Ask with: fomkit scaling {estimate.model.name} -t {machine.name} --nodes 1..64 {LINK}"
    if nodes is None and not machine.links:
        return Section(f"{key}-scaling", SCALING_TITLE, absent=f"The profile of {machine.name} names no link "
                       f"between devices or nodes, so nothing is said of more of them. {hint}")  # fmt: skip
    try:
        contents = _contents(estimate, options, nodes)
    except FomkitError as error:
        return Section(f"{key}-scaling", SCALING_TITLE, absent=f"Not estimated: {error}. {hint}")
    points = _points(contents)
    if points["devices"].max() < 2:
        return Section(f"{key}-scaling", SCALING_TITLE, absent=f"{machine.name} has one device. {hint}")
    says, table = _speedup_sentences(points), frame_table("Speed-up by devices", points, COLUMNS)
    caption = ("Strong scaling shares one batch out, weak scaling gives each replica its own. The dashed line "
               "loses nothing.",)  # fmt: skip
    shown = figure(f"{key}-curve", "Speed-up over devices", draw_scaling(points), " ".join(says), caption, table)
    refused = tuple(f"{each['nodes']} nodes: {each['why']}" for each in contents[-1]["not_estimated"])
    lists = (Listing("Assumed", tuple(contents[-1]["assumed"])),
             *((Listing("Without a step", refused),) if refused else ()))  # fmt: skip
    few = points["devices"].nunique() < FEWEST
    return Section(f"{key}-scaling", SCALING_TITLE, says, () if few else (shown,), (table,) if few else (), lists)


SENSITIVITY_TITLE = "What the answer hangs on"
FIGURES = {"unit_per_day": "units a day", "sample_per_s": "samples a second", "step_s": "time of a step"}
MEASURED = 6
"""Measurements that are listed."""


def _effects_in_words(found: Sensitivity, sizes: Collection[str]) -> pd.DataFrame:
    """Give the effects, with the names of parameters in words."""
    table = found.table()
    return table.assign(parameter=[_word(name, sizes) for name in table["parameter"]])


def _word(name: str, sizes: Collection[str]) -> str:
    return f"size {name}" if name in sizes and name != "batch" else parameter(name)


def _effects_table(effects: pd.DataFrame) -> Table:
    head = (Head("parameter"), Head("is", True), Head("varied from", True), Head("to", True),
            Head("elasticity", True, "by how many percent the answer changes for one percent of the parameter"),
            Head("swing", True, "between these ends, as a share of the answer"))  # fmt: skip
    rows = tuple(
        (
            Cell(row["parameter"]), *(Cell(format_setting(row[name], row["unit"]), row[name])
                                           for name in ("value", "low", "high")),
            Cell("kink") if row["kink"] else number(row["elasticity"]), share(row["swing"]),
        )
        for row in effects.to_dict("records")
    )  # fmt: skip
    return Table("Parameters of the machine, then of the work, each the largest swing first", head, rows)


def _to_measure(entries: Sequence[Measurable]) -> Table:
    head = (Head("measure"), Head("which is"), Head("the interval would be narrower by", True), Head("with"))
    rows = tuple(
        (Cell(str(entry["what"])), Cell(str(entry["kind"])), share(entry["shrinks"]), Cell(str(entry["command"])))
        for entry in entries[:MEASURED]
    )
    return Table("What to measure to know the step better", head, rows)


def _most(found: Sensitivity, sizes: Collection[str], name: str) -> str:
    """Name the parameter of the machine that moves the answer most, and that of the work."""
    groups = {"Of the machine": "machine", "Of the work": "model"}
    sentences = []
    for title, of in groups.items():
        first = next((effect for effect in found.effects if effect.parameter.of == of), None)
        if first is not None:
            word = _word(first.parameter.name, sizes)
            sentences.append(f"{title}, most on {word}: a swing of {first.swing:.0%} of the {name}.")
    return " ".join(sentences)


def sensitivity(estimate: Estimate, key: str, options: Options) -> Section:
    """Tell which parameter moves the answer most."""
    subject = OneModel(estimate.model, estimate.machine, options)
    try:
        found = work_out(subject)
    except FomkitError as error:
        return Section(f"{key}-sensitivity", SENSITIVITY_TITLE, absent=f"Not worked out: {error}")
    middle, name = found.figures[found.figure].value, FIGURES.get(found.figure, found.figure)
    says = (
        f"{_most(found, estimate.sizes, name)} Each parameter is changed alone, between the ends of its own "
        "interval where one is stated, else by 10 % either way.",
    )
    shown = figure(
        f"{key}-tornado", f"{name.capitalize()} as one parameter changes",
        draw_tornado(_effects_in_words(found, estimate.sizes), middle, "", name), says[0],
        ("Bars start at the answer as it is. Blue is the parameter's lower value, orange its higher one.",),
        _effects_table(_effects_in_words(found, estimate.sizes)),
    )  # fmt: skip
    table = _to_measure(found.to_measure["measurements"])
    left = tuple(f"{parameter(name)}: {why}" for name, why in found.not_varied)
    lists = (
        Listing(
            "Assumed", (*found.content["assumed"], f"of measurements: {found.to_measure['measurements_say']}")
        ),
        *((Listing("Not varied", left),) if left else ()),
    )
    return Section(f"{key}-sensitivity", SENSITIVITY_TITLE, says, (shown,), (table,), lists)
