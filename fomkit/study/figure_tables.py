"""The tables behind an estimate's figures: longest ops, passes in parts, memory by role."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from fomkit.errors import FomkitError
from fomkit.schema.vocabulary import BESIDE
from fomkit.study.estimate import Estimate
from fomkit.study.memory_of import step_memory

if TYPE_CHECKING:
    import pandas as pd

MOMENTS = 500
"""Moments of a step that a figure of memory shows; of more, the one with most memory of each stretch."""


ROLE_WORDS = {"state": "optimizer state"}


def pareto_table(ops: pd.DataFrame, top: int = 15) -> pd.DataFrame:
    """Give the longest ops of a step by name and sizes, each in its passes.

    Parameters
    ----------
    ops : DataFrame
        Of `fomkit.study.op_frame.op_frame`.
    top : int
        Ops to list.

    Returns
    -------
    DataFrame
        One row per op and pass, the longest op first: ``name``, ``pass``, ``pass_s``; of the op's passes together
        ``time_s``, ``low_s``, ``high_s`` [s], ``share`` of the step, ``reached`` (shares up to here).
    """
    known = ops[ops["time_s"].notna()]
    named = known.assign(**{"name": known["label"], "pass": known["pass_name"].str.split("_").str[0]})
    wholes = named.groupby("name", sort=False)[["time_s", "low_s", "high_s", "share"]].sum()
    wholes = wholes.sort_values("time_s", ascending=False, kind="stable").head(top)
    wholes = wholes.assign(reached=wholes["share"].cumsum())
    passes = named.groupby(["name", "pass"], sort=False)["time_s"].sum().rename("pass_s").reset_index()
    return wholes.reset_index().merge(passes, on="name", how="left")


def composition_table(one: Estimate, by: str = "kind") -> pd.DataFrame:
    """Give the parts of each pass, then what the host and the input need for a step, where the machine says it.

    Parameters
    ----------
    one : Estimate
    by : str
        A column of the ops: ``kind``, ``time_source`` or ``bound``.

    Returns
    -------
    DataFrame
        ``pass``, ``part``, ``time_s``.
    """
    import pandas as pd

    ops = one.ops[one.ops["time_s"].notna()]
    spent = pd.DataFrame(
        {
            "pass": ops["pass_name"].astype("str").str.split("_").str[0],
            "part": ops[by].astype("str"),
            "time_s": ops["time_s"].to_numpy(np.float64) * ops["count"].to_numpy(np.float64),
        }
    )
    sums = spent.groupby(["pass", "part"], sort=False)[["time_s"]].sum().reset_index()
    sums = sums.sort_values("time_s", ascending=False, kind="stable")
    order = {name: place for place, name in enumerate(("forward", "backward", "update"))}
    sums = sums.sort_values("pass", key=lambda column: column.map(order), kind="stable", ignore_index=True)
    beside = {"host, meanwhile": one.step_time.host_launch_s, "input, meanwhile": one.step_time.input_s,
              "overheads, after it": one.step_time.extra_s}  # fmt: skip
    rows = [{"pass": name, "part": BESIDE, "time_s": span.value} for name, span in beside.items()
            if span is not None and span.value > 0]  # fmt: skip
    return pd.concat([sums, pd.DataFrame(rows)], ignore_index=True) if rows else sums


def _shown(live_byte: np.ndarray[tuple[int], np.dtype[np.float64]]) -> list[int]:
    """Choose moments: all, or the fullest of each stretch, with the first and the last."""
    count = len(live_byte)
    if count <= MOMENTS:
        return list(range(count))
    edges = np.linspace(0, count, MOMENTS + 1).astype(int)
    fullest = [int(first + live_byte[first:last].argmax()) for first, last in pairwise(edges)]
    return sorted({0, *fullest, count - 1})


def memory_table(one: Estimate) -> pd.DataFrame:
    """Give the memory of each role over the step.

    Returns
    -------
    DataFrame
        ``id``, ``role``, ``byte``, ``all_byte``, ``op``, ``pass_name``; every role at every moment shown.

    Raises
    ------
    FomkitError
        When nobody recorded the order of the ops, or it is fixed at another size.
    """
    import pandas as pd

    use = step_memory(one.model, one.sizes)
    if use is None:
        raise FomkitError(
            one.model.name, "has no order of its ops, so its memory over a step is unknown. Profile it anew."
        )
    moments = _shown(use.live_byte)
    roles = use.over_time().iloc[moments]
    places = use.moments.iloc[moments]
    place = {"id": moments, "all_byte": use.live_byte[moments], "op": places["op"].to_numpy(),
             "pass_name": places["pass_name"].to_numpy()}  # fmt: skip
    tables = [
        pd.DataFrame({"role": ROLE_WORDS.get(str(role), str(role)), "byte": roles[role].to_numpy(), **place})
        for role in roles.columns
    ]
    return pd.concat(tables, ignore_index=True)
