"""Single calls inside models: predicted kernels beside the labels of the calls, by class and pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from fomkit.validate.predicted import per_call
from fomkit.validate.scores import Cases, Score, constant_band, make_cases, score

if TYPE_CHECKING:
    import pandas as pd

SEEN = 3.0
"""A call is scored where its label less the harness is so many times the harness; below, the harness decides."""
WORDS = {"fw": "forward", "bw": "backward", "acc": "accumulation"}
FEWEST = 2
"""Calls of a class from which it has a line of its own."""


def scored_calls(labels: pd.DataFrame, timed: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, int]]:
    """Set labels of calls beside their predictions.

    Parameters
    ----------
    labels : DataFrame
        What `fomkit.validate.labels.read_single_calls` gives, of one device.
    timed : DataFrame
        What `fomkit.validate.predicted.predict_graphs` gives.

    Returns
    -------
    scored : DataFrame
        The labels with ``time_s, low_s, high_s``.
    left_out : dict
        Why how many others are not scored.
    """
    doubtful = labels["flag"] != ""
    short = ~doubtful & (labels["seconds"] < SEEN * labels["harness_s"])
    rows = labels[~doubtful & ~short]
    joined = rows.join(per_call(timed), on=["graph", "call", "label"])
    unknown = joined["time_s"].isna()
    reasons = {
        "label flagged as doubtful": int(doubtful.sum()),
        f"label below {SEEN:g} times its harness": int(short.sum()),
        "no kernel by the rules, or no time": int(unknown.sum()),
    }
    return joined[~unknown], {reason: count for reason, count in reasons.items() if count}


def cases_of_calls(rows: pd.DataFrame) -> Cases:
    """Give the calls as cases; those of one model are a fold."""
    times = (rows[name].to_numpy(np.float64) for name in ("seconds", "time_s", "low_s", "high_s"))
    graph = rows.groupby("graph").ngroup().to_numpy()
    return constant_band(make_cases(*times, weight=rows["count"].to_numpy(np.float64), fold=graph))


def call_scores(scored: pd.DataFrame, comparison: str, machine: str) -> Iterator[Score]:
    """Score the calls of one machine, all together and by class and pass."""
    if not len(scored):
        return
    yield score(cases_of_calls(scored), comparison, "op", machine, "all")
    for (name, label), rows in scored.groupby(["class", "label"], sort=True):
        if len(rows) >= FEWEST:
            yield score(cases_of_calls(rows), comparison, "op", machine, f"{name}, {WORDS[str(label)]}")
