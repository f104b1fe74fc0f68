"""Fully connected layers as somebody else timed them on a machine of ours: EIE's dense products."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from fomkit.predict.storage import row_major
from fomkit.profiles import load_machine
from fomkit.profiles.locate import shipped_folder
from fomkit.spans import DEFAULT_LEVEL
from fomkit.study import predict_ops
from fomkit.timings.foreign_table import read_columns
from fomkit.validate.scores import Cases, Score, join_cases, make_cases, score

NAME = "EIE's dense layers"
_WORDS = ("machine", "kind", "dtype", "layout")
_NUMBERS = ("batch", "b", "m", "n", "k", "trans_a", "trans_b", "time_s")
_OF_AN_OP = ["kind", "dtype", "b", "m", "n", "k", "trans_a", "trans_b"]


def _cases(rows: pd.DataFrame, machine: str, level: float) -> Cases:
    ops = row_major(rows)[_OF_AN_OP].reset_index(drop=True)
    timed = predict_ops(ops, load_machine(machine), interval=level).ops
    ends = (timed[name].to_numpy(np.float64) for name in ("time_s", "low_s", "high_s"))
    return make_cases(rows["time_s"].to_numpy(np.float64), *ends)


def dense_layer_scores(level: float = DEFAULT_LEVEL, path: Path | None = None) -> list[Score]:
    """Score the layers, each batch by itself and all together; nothing is fitted to them.

    Parameters
    ----------
    level : float
        Of the intervals.
    path : Path, optional
        A table laid out like ``validation/eie/layers.csv``; default: that one.
    """
    table = read_columns(path or shipped_folder("validation") / "eie" / "layers.csv", _WORDS, _NUMBERS)
    lines = []
    for machine, rows in table.groupby("machine", sort=False):
        parts = {
            f"batch {batch:g}": _cases(some, str(machine), level)
            for batch, some in rows.groupby("batch", sort=True)
        }
        named = {**parts, "all": join_cases(parts.values())}
        lines += [score(cases, NAME, "op", str(machine), what, interval=level) for what, cases in named.items()]
    return lines
