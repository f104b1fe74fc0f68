"""How much of the predicted time rests on what kind of evidence, and what has no time at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fomkit.errors import FomkitError
from fomkit.schema import TIME_SOURCES

if TYPE_CHECKING:
    import pandas as pd

UNPRICED = "unpriced"


def coverage(timed: pd.DataFrame) -> dict[str, float]:
    """Share of the predicted time of a step by time source.

    Work without a time has no share of a time; ``unpriced`` is its share of the op executions, and the other
    shares are scaled so that all sum to 1.

    Parameters
    ----------
    timed : DataFrame
        A TIMED table.

    Returns
    -------
    dict
        One entry for each time source and ``unpriced``.
    """
    count, time_s = (timed[name].to_numpy(np.float64) for name in ("count", "time_s"))
    priced = ~np.isnan(time_s)
    unpriced = float(count[~priced].sum() / count.sum()) if len(timed) else 0.0
    seconds: dict[str, float] = {}
    for source, spent_s in zip(timed["time_source"].tolist(), np.nan_to_num(time_s * count).tolist(), strict=True):
        seconds[source] = seconds.get(source, 0.0) + spent_s
    total = sum(seconds.values())
    shares = {
        source: (1 - unpriced) * seconds.get(source, 0.0) / total if total else 0.0 for source in TIME_SOURCES
    }
    return {**shares, UNPRICED: unpriced if total else 1.0}


def check_work(timed: pd.DataFrame, where: str) -> None:
    """Raise when a step executes nothing, which would take 0 s.

    Parameters
    ----------
    timed : DataFrame
        A table of ops with the column count; one that is an expression of sizes is taken for some.
    where : str
        The model, as the message names it.

    Raises
    ------
    FomkitError
    """
    counts = timed["count"].tolist() if len(timed) else []
    if any(isinstance(count, str) or count > 0 for count in counts):
        return
    found = f"{len(timed):,} ops, each executed 0 times" if len(timed) else "no ops"
    raise FomkitError(
        where, f"its step has {found}, so nothing would take no time. Expected ops. Trace the model anew."
    )


def check_covered(timed: pd.DataFrame, unsupported: tuple[str, ...], where: str) -> None:
    """Raise when an op of the step has no time, or the tracer met one that it has no rule for.

    Raises
    ------
    FomkitError
        With the number of executions and the kinds concerned.
    """
    lacking = np.isnan(timed["time_s"].to_numpy(np.float64))
    hint = "Add timings or facts to the machine profile, or pass --allow-uncovered for a lower bound of the time."
    if lacking.any():
        missing = timed[lacking]
        kinds = missing.groupby("kind")["count"].sum().sort_values(ascending=False)
        listed = ", ".join(f"{kind} ({count:,.0f})" for kind, count in kinds.items())
        runs, total = missing["count"].sum(), timed["count"].sum()
        raise FomkitError(
            where, f"{runs:,.0f} of {total:,.0f} op executions have no time; kinds: {listed}. {hint}"
        )
    if unsupported:
        listed = ", ".join(unsupported)
        raise FomkitError(where, f"the profile lists ops without a rule, which have no time: {listed}. {hint}")
