"""Times of ops that are made of others: sums over their parts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fomkit.predict.estimates import Timed
from fomkit.schema import TIME_SOURCES

if TYPE_CHECKING:
    import pandas as pd


def weakest(sources: Iterable[str]) -> str:
    """Give the weakest of some time sources.

    Examples
    --------
    >>> weakest(["measured", "roofline", "interpolated"])
    'roofline'
    """
    return max(sources, key=TIME_SOURCES.index)


def _total(parts: pd.DataFrame) -> Timed:
    seconds = parts[["time_s", "low_s", "high_s"]].mul(parts["count"], axis=0)
    longest = parts.iloc[[int(seconds["time_s"].argmax())]].to_dict("records")[0]
    time_s, low_s, high_s = seconds.sum().tolist()
    return Timed(
        time_s,
        low_s,
        high_s,
        time_source=weakest(parts["time_source"]),
        bound=str(longest["bound"]),
        evidence=f"sum of {parts['count'].sum():g} parts; the longest, {longest['op']}: {longest['evidence']}",
    )


def add_up(parts: pd.DataFrame, wanted: Iterable[int]) -> dict[int, Timed]:
    """Add up timed parts.

    The ends of the intervals add like the values: parts of one op err together.

    Parameters
    ----------
    parts : DataFrame
        A TIMED table with the column ``of``, the index of the op that a row is part of; ``count`` is per execution
        of that op.
    wanted : iterable of int
        Ops to add up.

    Returns
    -------
    dict
        The ops that have parts, all of them with a time.
    """
    groups = parts.groupby("of").indices
    found = {index: parts.iloc[groups[index]] for index in wanted if index in groups}
    return {index: _total(group) for index, group in found.items() if group["time_s"].notna().all()}


def fully_timed(parts: pd.DataFrame) -> pd.DataFrame:
    """Keep the parts of ops whose recurrences all rest on the machine's own table."""
    timed = parts["time_source"].isin(("measured", "interpolated", "extrapolated")) | (parts["kind"] != "rnn")
    return parts[timed.groupby(parts["of"]).transform("all")]
