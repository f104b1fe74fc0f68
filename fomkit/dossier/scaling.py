"""What more devices bring, where the machine's links and nodes are known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fomkit.dossier.drawing import figure, frame_table
from fomkit.errors import FomkitError
from fomkit.hardware import Machine
from fomkit.report import plots
from fomkit.report.book import Listing, Section
from fomkit.study.estimate import Estimate
from fomkit.study.options import Options
from fomkit.study.scaling import Asked, scale, with_links
from fomkit.study.scaling_view import scaling_content

if TYPE_CHECKING:
    import pandas as pd

TITLE = "More devices"
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


def _points(contents: Sequence[dict[str, Any]]) -> pd.DataFrame:
    import pandas as pd

    rows = []
    for content in contents:
        reference = {one["mode"]: one["devices"] for one in content["references"]}
        for one in content["points"]:
            speedup = one["speedup"]
            rows.append(
                {"mode": f"{one['mode']} scaling", "devices": one["devices"], "speedup": speedup["value"],
                 "low": speedup["low"], "high": speedup["high"], "efficiency": one["efficiency"]["value"],
                 "step_s": one["step_s"]["value"], "ideal": one["devices"] / reference[one["mode"]],
                 "limit": one["limit"]}
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


def _contents(one: Estimate, options: Options, nodes: Sequence[int] | None) -> list[dict[str, Any]]:
    """Scale over each group of devices, strong steps all of one batch."""
    batch = one.sizes.get("batch")
    whole = None if batch is None else batch * (one.machine.node_devices or 1)
    return [
        scaling_content(scale(one.model, machine, Asked(counts, whole_batch=whole, options=options)))
        for machine, counts in _groups(one.machine, nodes)
    ]


def _told(points: pd.DataFrame) -> tuple[str, ...]:
    last = points[points["devices"] == points["devices"].max()]
    return tuple(
        f"{row['mode'].capitalize()}: {row['devices']:,} devices are {row['speedup']:.3g} times as fast as one "
        f"({row['efficiency']:.0%} of the ideal), limited by {LIMITS.get(row['limit'], row['limit'])}."
        for row in last.to_dict("records")
    )


def scaling(one: Estimate, key: str, options: Options, nodes: Sequence[int] | None = None) -> Section:
    """Tell what more devices bring; where links or nodes are unknown, say so.

    Parameters
    ----------
    one : Estimate
    key : str
    options : Options
        Those of the estimate.
    nodes : sequence of int, optional
        Numbers of nodes; default: parts of a node, and as many nodes as the machine has, 64 at most.
    """
    machine = one.machine
    hint = f"Ask with: fomkit scaling {one.model.name} -t {machine.name} --nodes 1..64 {LINK}"
    if nodes is None and not machine.links:
        return Section(f"{key}-scaling", TITLE, absent=f"The profile of {machine.name} names no link between "
                       f"devices or nodes, so nothing is said of more of them. {hint}")  # fmt: skip
    try:
        contents = _contents(one, options, nodes)
    except FomkitError as error:
        return Section(f"{key}-scaling", TITLE, absent=f"Not estimated: {error}. {hint}")
    points = _points(contents)
    if points["devices"].max() < 2:
        return Section(f"{key}-scaling", TITLE, absent=f"{machine.name} has one device. {hint}")
    says, table = _told(points), frame_table("Speed-up by devices", points, COLUMNS)
    caption = ("Strong scaling shares one batch out, weak scaling gives each replica its own. The dashed line "
               "loses nothing.",)  # fmt: skip
    shown = figure(f"{key}-curve", "Speed-up over devices", plots.scaling(points), " ".join(says), caption, table)
    refused = tuple(f"{each['nodes']} nodes: {each['why']}" for each in contents[-1]["not_estimated"])
    lists = (Listing("Assumed", tuple(contents[-1]["assumed"])),
             *((Listing("Without a step", refused),) if refused else ()))  # fmt: skip
    few = points["devices"].nunique() < FEWEST
    return Section(f"{key}-scaling", TITLE, says, () if few else (shown,), (table,) if few else (), lists)
