"""A file of planes without its model: a table of times by op, layer and pass, without sizes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fomkit.dtypes import usual_engine
from fomkit.trace.calls import BACKWARD, FORWARD, UPDATE
from fomkit.trace.op_table import make_table
from fomkit.trace.xplane_steps import PlaneSteps, steps_of
from fomkit.trace.xplane_times import NodeTime, PlaneTimes, in_loop, op_of_kernel

if TYPE_CHECKING:
    import pandas as pd

_GRADIENT = "gradient_tape/"
_UPDATES = ("ResourceApply", "AssignSub", "AssignAdd", "AssignVariable", "Apply")
STAND_IN = "fp32"
"""Number format of ops whose trace tells none; the op table has no word for that."""
UNKNOWN_FORMAT = (
    f"partial: the trace tells neither number format nor arithmetic unit of an op: {STAND_IN} and "
    f"{usual_engine('other', STAND_IN)} stand in the op table for unknown ones"
)
JOIN = (
    "its events carry no shapes. For sizes, work and prediction say which model it is of: --graph model.py, the "
    "file of the Keras model that fomkit profile takes"
)


def _scope(name: str) -> str:
    return name.rpartition("/")[0]


def _update_scopes(nodes: Iterable[tuple[str, NodeTime]]) -> set[str]:
    """Find the outermost scopes that change variables themselves, which are those of optimizers."""
    return {
        scope
        for name, time in nodes
        if op_of_kernel(time.kernel).startswith(_UPDATES) and (scope := _scope(name)) and "/" not in scope
    }


def _layer(name: str, known: Iterable[str]) -> str:
    """Give the scope that a node lies in; of a gradient that of the op it is of."""
    scope = _scope(name.removeprefix(_GRADIENT))
    while name.startswith(_GRADIENT) and scope in known:
        scope = _scope(scope)
    return scope.replace("/", ".")


def table_of_times(times: PlaneTimes) -> tuple[pd.DataFrame, PlaneSteps]:
    """Sum the times of nodes by op, layer and pass.

    Returns
    -------
    ops : DataFrame
        An OPS table of kind ``other``, with the mean time of one execution in a step.
    steps : PlaneSteps
    """
    steps = steps_of(times, times.likely_steps())
    updates = _update_scopes(times.nodes.items())
    sums: dict[tuple[str, str, str], list[float]] = {}
    for name, time in times.nodes.items():
        pass_name = BACKWARD if name.startswith(_GRADIENT) else UPDATE if _scope(name) in updates else FORWARD
        loop = name.partition("/body/")[0].partition("/cond/")[0]
        scope = _scope(loop).replace("/", ".") if in_loop(name) else _layer(name, times.nodes)
        key = (op_of_kernel(time.kernel), scope if pass_name != UPDATE else "", pass_name)
        known = sums.setdefault(key, [0.0, 0.0])
        known[0] += time.count
        known[1] += steps.mean_s(time)
    rows = [
        {
            "op": op,
            "kind": "other",
            "dtype": STAND_IN,
            "engine": usual_engine("other", STAND_IN),
            "pass_name": pass_name,
            "module": scope,
            "count": count / steps.steps,
            "traced_time_s": time_s / (count / steps.steps),
        }
        for (op, scope, pass_name), (count, time_s) in sorted(sums.items(), key=lambda item: -item[1][1])
    ]
    return make_table(rows), steps
