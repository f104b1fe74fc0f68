"""Epochs to a target by batch, from a CSV table of the user's own."""

from __future__ import annotations

from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING

from fomkit.errors import FomkitError
from fomkit.schema import check_table, row_place
from fomkit.spans import Span
from fomkit.tables import read_numbered_table
from fomkit.workload import EpochsToTarget

if TYPE_CHECKING:
    import pandas as pd


def _span(table: pd.DataFrame, position: int, where: str) -> Span:
    value, low, high = (
        float(table[name].iloc[position]) if name in table.columns else float("nan")
        for name in ("epochs", "low", "high")
    )
    if isnan(low) and isnan(high):
        return Span.exact(value)
    if not low <= value <= high:
        raise FomkitError(where, "must have low ≤ epochs ≤ high, or neither end. Correct these.")
    return Span(value, low, high)


def load_epochs(path: Path) -> EpochsToTarget:
    """Load a curve of epochs to a target.

    Parameters
    ----------
    path : Path
        A CSV table with the columns of `fomkit.schema.EPOCHS`.

    Raises
    ------
    FomkitError
        With file and line, when a cell cannot be, a batch stands twice, or rows are of different targets.
    """
    table = read_numbered_table(path, "EPOCHS")
    check_table(table, "EPOCHS", str(path))
    found: dict[int, Span] = {}
    first = table.iloc[0]
    for position, batch in enumerate(table["batch"].astype(int).tolist()):
        where = row_place(str(path), table.index, position)
        if batch in found:
            raise FomkitError(where, f"batch {batch:,} stands here a second time. Keep one, with its interval.")
        for name in ("metric", "target"):
            if table[name].iloc[position] != first[name]:
                raise FomkitError(
                    where,
                    f"the {name} is {table[name].iloc[position]}, and above it is {first[name]}. "
                    "Keep one target to a file.",
                )
        found[batch] = _span(table, position, where)
    sources = "; ".join(dict.fromkeys(table["source"].tolist()))
    in_order = dict(sorted(found.items()))
    return EpochsToTarget(in_order, str(first["metric"]), float(first["target"]), sources, str(path))
