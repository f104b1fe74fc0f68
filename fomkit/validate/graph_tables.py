"""Op graphs as OPS tables: one row per kernel that the framework runs, by pass, and where it comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from fomkit.validate.framework_backward import accumulate, backward
from fomkit.validate.framework_forward import FORWARD
from fomkit.validate.framework_work import Work
from fomkit.validate.graph_rows import GraphRow

if TYPE_CHECKING:
    import pandas as pd

FORWARD_LABEL, BACKWARD_LABEL, ACCUMULATE_LABEL = "fw", "bw", "acc"
"""The three times that a label has for a call."""
TRAINING = "-train-"
"""What the name of a graph of a training step holds: it has gradients."""


def _forward(row: GraphRow) -> list[Work]:
    """Give what a call runs; one of a class without a rule is work that nothing prices, not none."""
    return FORWARD[row.opname](row) if row.opname in FORWARD else [{"op": row.opname, "kind": "other"}]


_PARTS: tuple[tuple[str, str, Callable[[GraphRow], list[Work]]], ...] = (
    (FORWARD_LABEL, "forward", _forward),
    (BACKWARD_LABEL, "backward", backward),
    (ACCUMULATE_LABEL, "backward", accumulate),
)


def _rows(graph: str, row: GraphRow) -> Iterator[dict[str, str | float]]:
    for label, pass_name, works in _PARTS if TRAINING in graph else _PARTS[:1]:
        for work in works(row):
            place = {"graph": graph, "call": row.name, "class": row.opname, "label": label}
            yield {**work, "pass_name": pass_name, "count": row.runs, **place}


def ops_of(graphs: Iterable[tuple[str, GraphRow]]) -> pd.DataFrame:
    """Make one OPS table of all graphs.

    Returns
    -------
    DataFrame
        Besides the columns of OPS: ``graph``, ``call`` and ``class`` say which call of which model a kernel
        belongs to, ``label`` whether the label counts it as fw, bw or acc.
    """
    import pandas as pd

    rows = [one for graph, row in graphs for one in _rows(graph, row)]
    return pd.DataFrame(rows).assign(dtype="fp32", engine="vector")
