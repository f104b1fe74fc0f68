"""Read traces of TensorFlow's profiler as a model profile: alone, or joined to the graph of their model.

`join_nodes` assigns the times of graph nodes to rows of the op table; `model_of_planes` makes the profile.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from fomkit.core.errors import FomkitError, printable
from fomkit.core.measurement import NO_ROW, NO_WORK, Unjoined
from fomkit.core.model import ModelProfile
from fomkit.core.units import count_text, default_engine
from fomkit.frontends.layers import GraphNode, Nodes
from fomkit.frontends.lowering.calls import BACKWARD, FORWARD, UPDATE
from fomkit.frontends.lowering.tf import PRODUCTS, RULES
from fomkit.frontends.profile import profile_graph
from fomkit.frontends.step_spread import sum_notes
from fomkit.ops.check import check_table
from fomkit.ops.resize import resize_ops
from fomkit.ops.tables import table_of_rows
from fomkit.readers.profilers import xplane_times
from fomkit.readers.profilers.kineto import bare_model, batch_note
from fomkit.readers.profilers.xplane_times import PlaneTimes, in_loop, op_of_kernel, plane_notes

NO_RULE, NO_NODE = "no rule", "no node of the model's graph"
_GRADIENT = "gradient_tape/"
_BODY, _LOOP_MARKS = "/body/", ("/cond/", "/body/")


@dataclass
class JoinedNodes:
    """Result of assigning the nodes' times of one step to rows.

    `row_s`: time of all executions of each row [s]; NaN if none of its nodes was seen.
    `unjoined`: time without a row, the longest first.
    `fused`: nodes whose time includes the product before them; it is assigned to the product.
    `seen`, `expected`: executions of seen nodes in the trace, and those expected from the graph.
    `products`, `missed`: products and convolutions of the graph, and those missing in the trace.
    `notes`: how much the steps differ, a line each.
    `unseen`: executions in a step of nodes in loops that have work and were never recorded.
    """

    row_s: list[float]
    unjoined: tuple[Unjoined, ...] = ()
    steps: int = 1
    fused: int = 0
    seen: int = 0
    expected: int = 0
    unseen: int = 0
    products: int = 0
    missed: int = 0
    notes: tuple[str, ...] = ()

    @property
    def joined_s(self) -> float:
        """Time of a step that is assigned to rows [s]."""
        return sum(time for time in self.row_s if not math.isnan(time))

    @property
    def whole_s(self) -> float:
        """Time of a step of all nodes [s]."""
        return self.joined_s + sum(one.time_s for one in self.unjoined)

    def faster(self, factor: float) -> JoinedNodes:
        """Divide all times by a factor."""
        unjoined = tuple(replace(one, time_s=one.time_s / factor) for one in self.unjoined)
        return replace(self, row_s=[time / factor for time in self.row_s], unjoined=unjoined)

    @property
    def known_share(self) -> float:
        """Share of the time that is of nodes of the graph."""
        strange_s = sum(one.time_s for one in self.unjoined if one.why == NO_NODE)
        return 1 - strange_s / self.whole_s if self.whole_s else 0.0

    @property
    def share(self) -> float:
        """Share of the time of all nodes that is assigned to rows."""
        return self.joined_s / self.whole_s if self.whole_s else 0.0


def _sum_alike(loose: Iterable[Unjoined]) -> tuple[Unjoined, ...]:
    """Sum items of the same op, pass and reason, the longest first."""
    sums: dict[tuple[str, str, str], Unjoined] = {}
    for one in loose:
        known = sums.setdefault((one.op, one.pass_name, one.why), replace(one, count=0, time_s=0.0))
        both = replace(one, count=known.count + one.count, time_s=known.time_s + one.time_s)
        sums[one.op, one.pass_name, one.why] = both
    return tuple(sorted(sums.values(), key=lambda one: -one.time_s))


def _count_steps(times: PlaneTimes, nodes: Nodes) -> int:
    """Return the number of steps by which most of the model's nodes outside loops ran."""
    counts = Counter(
        round(count / nodes[name].count)
        for name, count in times.host.items()
        if name in nodes and not in_loop(name)
    )
    counts.pop(0, None)
    return max(counts, key=lambda count: (counts[count], count), default=times.likely_steps())


def _loops(nodes: Nodes) -> Mapping[str, list[int]]:
    """Return the rows of each loop whose nodes all belong to the same rows."""
    found: dict[str, set[tuple[int, ...]]] = {}
    for name, node in nodes.items():
        loop, separator, _ = name.partition(_BODY)
        if separator:
            found.setdefault(loop, set()).add(tuple(node.rows))
    return {loop: list(next(iter(rows))) for loop, rows in found.items() if len(rows) == 1}


def _why_no_row(node: GraphNode | None) -> str:
    if node is None:
        return NO_NODE
    if node.op not in RULES:
        return NO_RULE
    return NO_WORK if RULES[node.op] is None else NO_ROW


def _rows_with_time(name: str, nodes: Nodes, fused: bool, loops: Mapping[str, list[int]]) -> list[int]:
    """Return the rows that get a node's time; if `fused`, those of the product before it."""
    node = nodes.get(name)
    if node is not None:
        return nodes[node.product].rows if fused else node.rows
    # A name that is no node of the graph may keep a loop running, as its condition does; then the loop's rows get
    # it.
    around = (name.partition(mark)[0] for mark in _LOOP_MARKS)
    return next((loops[loop] for loop in around if loop in loops), [])


def join_nodes(times: PlaneTimes, nodes: Nodes, rows: int) -> JoinedNodes:
    """Assign the times of nodes to rows of the op table, given the model's graph and the number of rows."""
    steps, loops = xplane_times.steps_of(times, _count_steps(times, nodes)), _loops(nodes)
    notes = tuple(xplane_times.step_notes(steps, times.timer, times.nodes.values()))
    found, unjoined = JoinedNodes([math.nan] * rows, steps=steps.steps, notes=notes), list[Unjoined]()
    for name, time in times.nodes.items():
        node, expected = nodes.get(name), 0
        if node is not None and not times.device:
            # TensorFlow stops recording cheap ops: if some executions on a host are missing, the mean is used.
            expected = node.count
            found.seen += time.count
            found.expected += expected * steps.steps
        time_s = steps.step_time_s(time, expected)
        fused = bool(node and node.product and "Fused" in time.kernel and node.product not in times.nodes)
        found.fused += fused
        taken = _rows_with_time(name, nodes, fused, loops)
        for row in taken:
            known = found.row_s[row]
            found.row_s[row] = time_s / len(taken) + (0.0 if math.isnan(known) else known)
        if not taken:
            op = node.op if node is not None else op_of_kernel(time.kernel)
            pass_name = node.pass_name if node is not None else BACKWARD if name.startswith(_GRADIENT) else ""
            count = max(round(time.count / steps.steps), 1)
            unjoined.append(Unjoined(op, pass_name, count, time_s, _why_no_row(node)))
    found.unjoined = _sum_alike(unjoined)
    found.unseen = sum(
        node.count
        for name, node in nodes.items()
        if in_loop(name) and node.rows and name not in times.nodes and RULES.get(node.op) is not None
    )
    ran = {*times.nodes, *(nodes[name].product for name in times.nodes if name in nodes)}  # alone, or fused
    products = [name for name, node in nodes.items() if node.op in PRODUCTS or "Conv" in node.op]
    found.products, found.missed = len(products), sum(name not in ran for name in products)
    return found


def with_node_times(ops: pd.DataFrame, counts: Sequence[float], joined: JoinedNodes) -> pd.DataFrame:
    """Add the mean time of one execution to each row, NaN if unknown; ``counts``: executions in a step."""
    means = [time / count for time, count in zip(joined.row_s, counts, strict=True)]
    return ops.assign(traced_time_s=means)


def joined_notes(joined: JoinedNodes) -> Iterator[str]:
    """Yield notes on how times were assigned; those that begin with ``partial`` say what is missing."""
    yield f"{joined.share:.1%} of the time of ops is joined to rows, over {count_text(joined.steps, 'step')}"
    yield from joined.notes
    yield from gap_notes(joined)


def gap_notes(joined: JoinedNodes) -> Iterator[str]:
    """Yield notes on times that include other ops, are extrapolated, or are missing."""
    if joined.fused:
        yield f"products that ran fused with the ops after them: {joined.fused}; their row has the time of all"
    if joined.seen < joined.expected:
        yield (
            f"of {joined.expected:,} executions {joined.seen:,} are in the trace (TensorFlow stops recording ops "
            "that turned out cheap); their mean is used for all"
        )
    if joined.unseen:
        yield f"partial: {joined.unseen:,} executions a step in loops were never recorded, and have no time"


_UPDATES = ("ResourceApply", "AssignSub", "AssignAdd", "AssignVariable", "Apply")
STAND_IN = "fp32"
"""Number format of ops whose trace states none; the op table has no value for unknown formats."""
UNKNOWN_FORMAT = (
    f"partial: the trace states neither number format nor arithmetic unit of an op: {STAND_IN} and "
    f"{default_engine('other', STAND_IN)} stand in the op table for unknown ones"
)
JOIN = (
    "its events carry no shapes. For sizes, work and prediction name its model: --graph model.py, the file of "
    "the Keras model as for fomkit profile"
)


def _scope(name: str) -> str:
    return name.rpartition("/")[0]


def _layer(name: str, known: Iterable[str]) -> str:
    """Return the scope of a node; for a gradient, the scope of the op it belongs to."""
    scope = _scope(name.removeprefix(_GRADIENT))
    while name.startswith(_GRADIENT) and scope in known:
        scope = _scope(scope)
    return scope.replace("/", ".")


def table_of_times(times: PlaneTimes) -> tuple[pd.DataFrame, xplane_times.PlaneSteps]:
    """Sum the times of nodes by op, layer and pass; return an OPS table of kind ``other`` and the file's steps."""
    steps = xplane_times.steps_of(times, times.likely_steps())
    updates = {
        scope
        for name, time in times.nodes.items()
        if op_of_kernel(time.kernel).startswith(_UPDATES) and (scope := _scope(name)) and "/" not in scope
    }
    sums: dict[tuple[str, str, str], list[float]] = {}
    for name, time in times.nodes.items():
        pass_name = BACKWARD if name.startswith(_GRADIENT) else UPDATE if _scope(name) in updates else FORWARD
        loop = name.partition("/body/")[0].partition("/cond/")[0]
        scope = _scope(loop).replace("/", ".") if in_loop(name) else _layer(name, times.nodes)
        key = (op_of_kernel(time.kernel), scope if pass_name != UPDATE else "", pass_name)
        known = sums.setdefault(key, [0.0, 0.0])
        known[0] += time.count
        known[1] += steps.step_time_s(time)
    fixed = {"kind": "other", "dtype": STAND_IN, "engine": default_engine("other", STAND_IN)}
    rows = [
        {
            "op": op,
            **fixed,
            "pass_name": pass_name,
            "module": scope,
            "count": count / steps.steps,
            "traced_time_s": time_s / (count / steps.steps),
        }
        for (op, scope, pass_name), (count, time_s) in sorted(sums.items(), key=lambda item: -item[1][1])
    ]
    return table_of_rows(rows, "OPS"), steps


MIN_SHARE = 0.5
"""Least share of the trace's time, and of the graph's products, that trace and graph must have in common."""
_LISTED = 5


def _traced_with(found: ModelProfile, times: PlaneTimes) -> dict[str, str]:
    device = printable(times.device) or "cpu"
    return {**found.traced_with, "framework": "tensorflow", "device": device}


def _from_times(path: Path, times: PlaneTimes, sizes: Mapping[str, int]) -> tuple[ModelProfile, tuple[str, ...]]:
    ops, steps = table_of_times(times)
    check_table(ops, "OPS", str(path))
    mode = "infer" if set(ops["pass_name"]) == {"forward"} else "train"
    notes = (
        f"partial: times of {len(ops):,} ops without sizes, over {steps.steps} steps: {JOIN}",
        UNKNOWN_FORMAT,
        *xplane_times.step_notes(steps, times.timer, times.nodes.values()),
        *sum_notes(float((ops["count"] * ops["traced_time_s"]).sum()), steps.step_s),
        *plane_notes(times),
        *batch_note(sizes),
    )
    profile = bare_model(path, ops, sizes, mode=mode)
    return replace(profile, traced_with=_traced_with(profile, times)), notes


def model_of_planes(
    path: Path, sizes: Mapping[str, int], graph: Path | None = None
) -> tuple[ModelProfile, tuple[str, ...]]:
    """Make a model profile of a trace of TensorFlow's profiler.

    `path`: ``*.xplane.pb``. `sizes`: named sizes of the step that was recorded. `graph`: the ``model.py`` of the
    Keras model; it is run. Without it ops have times and no sizes. Returns a model with ``traced_time_s`` in its
    ops, and notes on how it was made and what is missing.
    """
    times = xplane_times.read_plane_times(path)
    if graph is None:
        profile, notes = _from_times(path, times, sizes)
    else:
        profile, nodes = profile_graph(graph, sizes=sizes)
        joined = join_nodes(times, nodes, len(profile.ops))
        if joined.known_share < MIN_SHARE or joined.missed > MIN_SHARE * joined.products:
            raise FomkitError(
                str(path),
                f"is not of the model in {graph}: {joined.known_share:.0%} of its time is of ops of that model's "
                f"graph, and {joined.missed} of the graph's {joined.products} products are not in it. Give the "
                "file of the model that was recorded.",
            )
        sized = resize_ops(profile.ops, profile.sizes, str(graph))
        ops = with_node_times(profile.ops, sized["count"].astype("float64").tolist(), joined)
        most = (f"{one.op} {one.time_s / joined.whole_s:.1%} ({one.why})" for one in joined.unjoined[:_LISTED])
        left = (f"not joined: {', '.join(most)}",) if joined.unjoined else ()
        notes = (*joined_notes(joined), *left, *plane_notes(times))
        profile = replace(profile, ops=ops, traced_with=_traced_with(profile, times))
    return profile, notes
