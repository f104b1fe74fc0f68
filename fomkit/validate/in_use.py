"""How far calls inside models lie from the predictions of their kernels: what use in a step adds to the error."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from fomkit.rollup import USES, Spread, Use, Uses, groups_of
from fomkit.spans import DEFAULT_LEVEL
from fomkit.validate.calls import scored_calls

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]

FEWEST = 2
"""Machines from which a spread is learnt; with fewer it is the shipped one."""
_CALL = ["graph", "call", "label"]
_ENDS = ["time_s", "low_s", "high_s"]


def calls_by_group(labels: pd.DataFrame, timed: pd.DataFrame) -> pd.DataFrame:
    """Give the scored calls of a device with the group of the kernel that takes most of each call's time.

    Parameters
    ----------
    labels : DataFrame
        What `fomkit.validate.labels.read_single_calls` gives, of one device.
    timed : DataFrame
        What `fomkit.validate.predicted.predict_graphs` gives.

    Returns
    -------
    DataFrame
        ``graph, label, count, seconds, time_s, low_s, high_s, group``; calls without a group are left out.
    """
    by_time = timed.assign(group=groups_of(timed)).sort_values("time_s", kind="stable")
    longest = by_time.groupby(_CALL)["group"].last()
    scored, _ = scored_calls(labels, timed)
    found = scored.join(longest, on=_CALL)
    return found[found["group"].fillna("") != ""]


def needed(error: Vector, own: Vector, weight: Vector, share: float) -> float:
    """Give the independent spread that lets so large a share of the errors lie below the widened end.

    Parameters
    ----------
    error : array (n,)
        ln(measured / predicted), towards this end.
    own : array (n,)
        Log distance of the interval's end that is there already.
    weight : array (n,)
        Above 0.
    share : float

    Examples
    --------
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


def learn_uses(calls: Mapping[str, pd.DataFrame]) -> Uses:
    """Tell what use in a step adds, from the calls of several machines.

    Parameters
    ----------
    calls : mapping
        Machine to what `calls_by_group` gives.

    Returns
    -------
    mapping
        By group; those that fewer than `FEWEST` machines have are the shipped ones.
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
