"""What a collective takes by a machine's own table of such, inside a node, by transport."""

from __future__ import annotations

from math import exp, hypot, isnan, log
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from fomkit.errors import FomkitError
from fomkit.network.links import DECILES, Taken

if TYPE_CHECKING:
    import pandas as pd

MEASURED = (0.91, 1.06)
"""Ends of the interval of a measured collective over its value: deciles of sizes left out one at a time of the
three NCCL tables that ship (a100-sxm, h200-sxm, l40s)."""
_FROM_QUARTILES = NormalDist().inv_cdf(0.5 + DECILES / 2) / NormalDist().inv_cdf(0.75)


def _rows(timings: pd.DataFrame, collective: str, ranks: int, channel: str) -> pd.DataFrame | None:
    """Give the timings of a collective over so many ranks of a node, of one library.

    DeepBench has the better of two programs of one library in a row: NCCL 2.0 MPI, NCCL 2.0 Single.
    """
    if "collective" not in timings.columns:
        return None
    rows = timings[(timings["kind"] == "collective") & (timings["collective"] == collective)]
    rows = rows[(rows["ranks"] == ranks) & (rows["link"] == "node")]
    libraries = rows["library"].fillna("").astype("str").str.extract(r"^\s*(\S*)", expand=False).str.lower()
    if channel:
        rows = rows[libraries == channel.lower()]
    several = sorted(set(libraries) - {""})
    if not channel and len(several) > 1:
        raise FomkitError(
            "collectives",
            f"the machine's table has times of {' and '.join(several)} for {ranks} ranks. Choose one: --layout "
            f"channel={' or '.join(several)}.",
        )
    return None if rows.empty else rows


def _apart(ends: tuple[float, float], between: bool) -> tuple[float, float]:
    """Give how far low and high are from the value in logarithms: by repeats, and by sizes that nobody timed."""
    off = -log(MEASURED[0]), log(MEASURED[1])
    if any(map(isnan, ends)):
        return off
    repeats = [max(0.0, one) * _FROM_QUARTILES for one in ends]
    return (hypot(repeats[0], off[0]), hypot(repeats[1], off[1])) if between else (repeats[0], repeats[1])


def table_time(
    timings: pd.DataFrame, collective: str, message_byte: float, ranks: int, channel: str = ""
) -> Taken | None:
    """Give a collective's time from a table of such inside a node; None where it has none of so many ranks.

    Between two sizes the logarithm goes straight; above the largest its rate holds, below the least its time. The
    interval is that of the repeats where the table has their quartiles, with that of sizes left out where the
    size itself was not timed.

    Parameters
    ----------
    timings : DataFrame
        A TIMINGS table.
    collective : str
    message_byte : float
    ranks : int
    channel : str
        The library; "" takes the only one.

    Raises
    ------
    FomkitError
        When no channel was asked for and the times are of several libraries, whose mean would be of none.
    """
    rows = _rows(timings, collective, ranks, channel)
    if rows is None:
        return None
    quartiles = {name: rows[name] if name in rows.columns else np.nan for name in ("p25_s", "p75_s")}
    spans = rows.assign(**quartiles)[["message_byte", "time_s", "p25_s", "p75_s"]]
    # A mean of floats hangs on their order, which is the file's.
    means = spans.sort_values(list(spans.columns)).groupby("message_byte").mean()
    sizes = means.index.to_numpy(np.float64)
    middle, low, high = (np.log(means[name].to_numpy(np.float64)) for name in means.columns)
    at, known = log(message_byte), np.log(sizes)
    below, above = (float(np.interp(at, known, ends)) for ends in (middle - low, high - middle))
    value = exp(float(np.interp(at, known, middle))) * max(1.0, message_byte / float(sizes[-1]))
    ends = _apart((below, above), between=not bool((sizes == message_byte).any()))
    return Taken(value, value * exp(-ends[0]), value * exp(ends[1]), "measured")
