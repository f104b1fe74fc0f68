"""The ops of models, as ops to time: each by what it adds to a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fomkit.measure.ops import Cells, Wanted, cells_of, distinct
from fomkit.predict.engines import ARITHMETIC_KINDS, settle_engines
from fomkit.predict.estimates import PASS_FREE

if TYPE_CHECKING:
    import pandas as pd

    from fomkit.hardware import Machine
    from fomkit.study import Estimate

NAMELESS = (*ARITHMETIC_KINDS, "optimizer")
"""Kinds whose sizes say all, whatever the framework calls the op."""


def _lengths(one: Estimate, row: Mapping[str, object]) -> str:
    """Give the elements of each tensor that an update changes; "" where the layers do not tell them all."""
    layers = one.model.layers
    if layers is None or not len(layers):
        return ""
    weights = (layers["parameters"] - layers["bias"]).to_numpy(np.float64)
    lengths = [int(size) for size in (*weights, *layers["bias"].to_numpy(np.float64)) if size > 0]
    tensors = row["tensors"] if row["kind"] == "optimizer" else len(lengths)
    told = sum(lengths) == float(str(row["numel"])) and len(lengths) == float(str(tensors))
    return " ".join(map(str, lengths)) if told else ""


def _of_rows(one: Estimate, rows: pd.DataFrame, knows_op: Callable[[Cells], bool]) -> list[Wanted]:
    found = []
    counts = rows["count"].to_numpy(np.float64)
    records = ({str(name): value for name, value in row.items()} for row in rows.to_dict("records"))
    for row, count in zip(records, counts.tolist(), strict=True):
        cells = cells_of(row)
        if cells["kind"] in NAMELESS or not knows_op(cells):
            cells.pop("op", None)
        if cells["kind"] in PASS_FREE:
            cells.pop("pass_name", None)
        if cells["kind"] == "optimizer" and (
            lengths := _lengths(one, {str(name): value for name, value in row.items()})
        ):
            cells["lengths"] = lengths
        found.append(Wanted(cells, count / one.step.value, one.model.name))
    return found


def ops_of_models(
    estimates: Sequence[Estimate], machine: Machine, knows_op: Callable[[Cells], bool]
) -> list[Wanted]:
    """List the ops of some models' steps, each weighted by how often a step runs it, by the step's time.

    Parameters
    ----------
    estimates : sequence of Estimate
        On the machine as far as it is known.
    machine : Machine
        Which engines it has decides which of them an op is timed on.
    knows_op : function of cells
        Whether the op that a row names is made, so that its timing may carry the name.
    """
    found: list[Wanted] = []
    for one in estimates:
        settled = settle_engines(one.ops.reset_index(drop=True), machine)[0]
        found += _of_rows(one, settled[settled["kind"] != "other"], knows_op)
    return distinct(found)
