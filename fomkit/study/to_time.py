"""Which ops are worth timing on a machine: those that shrink the interval of a step most."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fomkit.predict.engines import ARITHMETIC_KINDS, settle_engines
from fomkit.predict.estimates import PASS_FREE
from fomkit.rollup import steps_if_timed
from fomkit.schema import KIND_DIMENSIONS, OPTIONAL_DIMENSIONS
from fomkit.spans import Span
from fomkit.study.content import span_content
from fomkit.study.estimate import Estimate
from fomkit.views import identities
from fomkit.views.shapes import shape_label

if TYPE_CHECKING:
    import pandas as pd

ANY_NAME = (*ARITHMETIC_KINDS, "collective", "optimizer")
"""Kinds whose time hangs on the sizes, whatever the framework calls the op."""


def _as_timed(ops: pd.DataFrame) -> pd.DataFrame:
    """Blank what a timing need not say, so that ops which one timing serves are alike."""
    return ops.assign(
        op=ops["op"].mask(ops["kind"].isin(ANY_NAME), ""),
        pass_name=ops["pass_name"].mask(ops["kind"].isin(PASS_FREE), ""),
    )


def _line(row: dict[str, Any]) -> dict[str, Any]:
    """Give the cells of a table of ops: what is to be run, by the names of the columns."""
    kind = str(row["kind"])
    sizes = (*KIND_DIMENSIONS[kind], *OPTIONAL_DIMENSIONS.get(kind, ()))
    names = ("op", "kind", "dtype", "engine", "pass_name", "count", *sizes)
    known = {name: row[name] for name in names if name in row and row[name] == row[name] and row[name] != ""}
    return {
        name: int(cell) if isinstance(cell, float) and cell.is_integer() else cell for name, cell in known.items()
    }


def _width(span: Span) -> float:
    return span.high - span.low


def _if_timed(one: Estimate, rows: pd.DataFrame, step: Span) -> dict[str, Any]:
    first = {str(name): cell for name, cell in rows.iloc[0].items()}
    executions, now = float(rows["count"].sum()), _width(one.step)
    return {
        "sizes": shape_label(first),
        "ops": sorted(set(rows["op"].astype("str"))),
        "passes": sorted(set(rows["pass_name"].astype("str"))),
        "time_source": str(first["time_source"]),
        "executions": executions,
        "share": float((rows["time_s"] * rows["count"]).sum()) / one.step_time.device_s.value,
        "step_s": span_content(step),
        "shrinks": (now - _width(step)) / now if now > 0 else 0.0,
        "line": _line({**first, "count": executions}),
    }


def ops_to_time(one: Estimate, top: int) -> dict[str, Any]:
    """List what could be timed on the machine, by how much narrower the interval of the step would be.

    Parameters
    ----------
    one : Estimate
    top : int
        Timings to list.

    Returns
    -------
    dict
        ``measurements``, best first, and ``all_measured``, the step [s] with every one of them known. An entry has
        sizes, time_source, executions and share of the device time of all ops that the timing would
        serve, ``step_s`` with them known, ``shrinks`` [share of the interval's width now], and ``line``, the
        cells of a table of ops. ``line`` names the first of these ops where several share sizes, and its count is
        that of all.
    """
    settled = settle_engines(one.ops.reset_index(drop=True), one.machine)[0]
    groups = identities(_as_timed(settled))
    steps = steps_if_timed(settled, groups, one.machine, one.step.level)
    listed = {number: _if_timed(one, settled[groups == number], step) for number, step in steps.items()}
    best = sorted(listed, key=lambda number: (-listed[number]["shrinks"], -listed[number]["share"]))[:top]
    together = groups.isin(best).astype("int64")
    known = steps_if_timed(settled, together, one.machine, one.step.level).get(1)
    return {"measurements": [listed[number] for number in best], "all_measured": span_content(known)}
