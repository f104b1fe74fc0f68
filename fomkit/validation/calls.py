"""Single calls inside models beside the predictions of their kernels: what use in a step adds to the error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from fomkit.core.interval import DEFAULT_LEVEL
from fomkit.plan.coverage import USES, Spread, Use, Uses, groups_of
from fomkit.validation.graphs import per_call
from fomkit.validation.scores import Cases, Score, cases_of_table, constant_band, score

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]


SEEN = 3.0
"""A call is scored where its label less the harness is so many times the harness for each op that it starts;
below, the harness decides: the host's work for an op that adds a thousand numbers shows as 12 to 18 us."""
WORDS = {"fw": "forward", "bw": "backward", "acc": "accumulation"}
FEWEST = 2
"""Calls of a class from which it has a line of its own."""
_CALL = ["graph", "call", "label"]


def scored_calls(labels: pd.DataFrame, timed: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, int]]:
    """Set labels of calls beside their predictions.

    `labels`: what `fomkit.validation.labels.read_single_calls` gives, of one device; `timed`: what
    `fomkit.validation.graphs.predict_graphs` gives. Gives the labels with ``time_s, low_s, high_s``, and why how
    many others are not scored.
    """
    doubtful = labels["flag"] != ""
    started = labels.join(timed.groupby(_CALL).size().rename("started"), on=_CALL)["started"].fillna(1)
    short = ~doubtful & (labels["seconds"] < SEEN * started * labels["harness_s"])
    rows = labels[~doubtful & ~short]
    joined = rows.join(per_call(timed), on=_CALL)
    unknown = joined["time_s"].isna()
    reasons = {
        "label flagged as doubtful": int(doubtful.sum()),
        f"label below {SEEN:g} times its harness for each op": int(short.sum()),
        "no kernel by the rules, or no time": int(unknown.sum()),
    }
    return joined[~unknown], {reason: count for reason, count in reasons.items() if count}


def cases_of_calls(rows: pd.DataFrame) -> Cases:
    """Give the calls as cases; those of one model are a fold."""
    truth, weight = (rows[name].to_numpy(np.float64) for name in ("seconds", "count"))
    return constant_band(
        cases_of_table(rows, truth, weight=weight, fold=rows.groupby("graph").ngroup().to_numpy())
    )


def call_scores(scored: pd.DataFrame, comparison: str, machine: str) -> Iterator[Score]:
    """Score the calls of one machine, all together and by class and pass."""
    if not len(scored):
        return
    yield score(cases_of_calls(scored), comparison, "op", machine, "all")
    for (name, label), rows in scored.groupby(["class", "label"], sort=True):
        if len(rows) >= FEWEST:
            yield score(cases_of_calls(rows), comparison, "op", machine, f"{name}, {WORDS[str(label)]}")


_ENDS = ["time_s", "low_s", "high_s"]


def calls_by_group(labels: pd.DataFrame, timed: pd.DataFrame) -> pd.DataFrame:
    """Give the scored calls of a device with the group of the kernel that takes most of each call's time.

    `labels`: what `fomkit.validation.labels.read_single_calls` gives, of one device; `timed`: what
    `fomkit.validation.graphs.predict_graphs` gives. Gives a DataFrame: ``graph, label, count, seconds, time_s,
    low_s, high_s, group``; calls without a group are left out.
    """
    by_time = timed.assign(group=groups_of(timed)).sort_values("time_s", kind="stable")
    longest = by_time.groupby(_CALL)["group"].last()
    scored, _ = scored_calls(labels, timed)
    found = scored.join(longest, on=_CALL)
    return found[found["group"].fillna("") != ""]


def needed(error: Vector, own: Vector, weight: Vector, share: float) -> float:
    """Give the independent spread that lets so large a share of the errors lie below the widened end.

    `error` (n,): ln(measured / predicted), towards this end; `own` (n,): log distance of the interval's end that
    is there already; `weight` (n,): above 0.

    >>> error, weight = np.array([0.0, 0.1, 0.5, 0.2]), np.ones(4)
    >>> [round(needed(error, np.full(4, 0.3), weight, share), 6) for share in (0.75, 1.0)]
    [0.0, 0.4]
    """
    beyond = np.sqrt(np.maximum(error, own) ** 2 - own**2)
    order = np.argsort(beyond, kind="stable")
    reached = np.cumsum(weight[order]) / weight.sum()
    return float(beyond[order][min(int(np.searchsorted(reached, share - 1e-12)), len(order) - 1)])


def _spread(cases: pd.DataFrame) -> Spread:
    """Tell both sides from cases of several machines, each machine with one weight."""
    share = 0.5 + DEFAULT_LEVEL / 2
    truth, value, low, high = (np.log(cases[name].to_numpy(np.float64)) for name in ("seconds", *_ENDS))
    weight = (1 / cases.groupby("machine")["seconds"].transform("size")).to_numpy(np.float64)
    z = NormalDist().inv_cdf(share)
    return Spread(
        needed(value - truth, value - low, weight, share) / z,
        needed(truth - value, high - value, weight, share) / z,
    )


def fit_uses(calls: Mapping[str, pd.DataFrame]) -> Uses:
    """Tell what use in a step adds, from the calls of several machines.

    `calls`: Machine to what `calls_by_group` gives. Gives a mapping: by group; those that fewer than `FEWEST`
    machines have are the shipped ones.
    """
    if len(calls) < FEWEST:
        return USES
    every = pd.concat([rows.assign(machine=name) for name, rows in calls.items()], ignore_index=True)
    weighted = every.assign(**{name: every[name] * every["count"] for name in ("seconds", *_ENDS)})
    found = dict(USES)
    for group, cases in every.groupby("group", sort=True):
        if cases["machine"].nunique() >= FEWEST:
            of_group = weighted[weighted["group"] == group].groupby(["machine", "graph", "label"])
            whole = of_group[["seconds", *_ENDS]].sum().reset_index()
            found[str(group)] = Use(_spread(cases), _spread(whole))
    return found
