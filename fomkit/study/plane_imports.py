"""Traces of TensorFlow's profiler as a model profile: alone, or joined to the model that they are of.

Not imported with the room, as `fomkit.study.imports`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from fomkit.errors import FomkitError, printable
from fomkit.resize import resize_ops
from fomkit.schema import check_table
from fomkit.tables import empty_table
from fomkit.trace import profile_graph
from fomkit.trace.step_spread import say_sum
from fomkit.trace.xplane_join import JoinedNodes, join_nodes, say_joined, with_node_times
from fomkit.trace.xplane_model import JOIN, UNKNOWN_FORMAT, table_of_times
from fomkit.trace.xplane_steps import say_steps
from fomkit.trace.xplane_times import PlaneTimes, read_plane_times, say_read
from fomkit.workload import ModelProfile

LEAST_SHARE = 0.5
"""Least share of the trace's time, and of the graph's products, that trace and graph must have in common."""
_LISTED = 5
_BATCH = "the samples of a step are not in a trace; say them with --set batch=N"


def _is_of(found: ModelProfile, times: PlaneTimes) -> dict[str, str]:
    device = printable(times.device) or "cpu"
    return {**found.traced_with, "framework": "tensorflow", "device": device}


def _alone(path: Path, times: PlaneTimes, sizes: Mapping[str, int]) -> tuple[ModelProfile, tuple[str, ...]]:
    ops, steps = table_of_times(times)
    check_table(ops, "OPS", str(path))
    name = path.name.partition(".")[0]
    passes = set(ops["pass_name"])
    said = (
        f"partial: times of {len(ops):,} ops without sizes, over {steps.steps} steps: {JOIN}",
        UNKNOWN_FORMAT,
        *say_steps(steps, times.timer, times.nodes.values()),
        *say_sum(float((ops["count"] * ops["traced_time_s"]).sum()), steps.step_s),
        *say_read(times),
        *(() if "batch" in sizes else (_BATCH,)),
    )
    profile = ModelProfile(name, name, ops, empty_table("OPS"), sizes, {"mode": _mode(passes)})
    return replace(profile, traced_with=_is_of(profile, times)), said


def _mode(passes: set[str]) -> str:
    return "infer" if passes == {"forward"} else "train"


def _shares(joined: JoinedNodes) -> str:
    return ", ".join(
        f"{one.op} {one.time_s / joined.whole_s:.1%} ({one.why})" for one in joined.unjoined[:_LISTED]
    )


def model_of_planes(
    path: Path, sizes: Mapping[str, int], graph: Path | None = None
) -> tuple[ModelProfile, tuple[str, ...]]:
    """Make a model profile of a trace of TensorFlow's profiler.

    Parameters
    ----------
    path : Path
        ``*.xplane.pb``.
    sizes : mapping
        Named sizes of the step that was recorded.
    graph : Path, optional
        The ``model.py`` of the Keras model; it is run. Without it ops have times and no sizes.

    Returns
    -------
    model : ModelProfile
        With ``traced_time_s`` in its ops.
    said : tuple of str
        How it was made and what is missing, a line each.

    Raises
    ------
    FomkitError
        When the trace is damaged, holds no op, or is of another model.
    """
    times = read_plane_times(path)
    if graph is None:
        profile, said = _alone(path, times, sizes)
    else:
        profile, nodes = profile_graph(graph, sizes=sizes)
        joined = join_nodes(times, nodes, len(profile.ops))
        _check_is_of(joined, path, graph)
        sized = resize_ops(profile.ops, profile.sizes, str(graph))
        ops = with_node_times(profile.ops, sized["count"].astype("float64").tolist(), joined)
        left = (f"not joined: {_shares(joined)}",) if joined.unjoined else ()
        said = (*say_joined(joined), *left, *say_read(times))
        profile = replace(profile, ops=ops, traced_with=_is_of(profile, times))
    return profile, said


def _check_is_of(joined: JoinedNodes, path: Path, graph: Path) -> None:
    """Raise where the trace is of another model than the graph."""
    if joined.known_share >= LEAST_SHARE and joined.missed <= LEAST_SHARE * joined.products:
        return
    raise FomkitError(
        str(path),
        f"is not of the model in {graph}: {joined.known_share:.0%} of its time is of ops of that model's graph, "
        f"and {joined.missed} of the graph's {joined.products} products are not in it. Give the file of the model "
        "that was recorded.",
    )
