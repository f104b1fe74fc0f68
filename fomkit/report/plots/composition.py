"""What a step is made of: each pass in its parts, beside what else could make the step wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fomkit.quantities import format_quantity
from fomkit.report.plots.ink import COLOURS, KINDS, SHAPES, Mark, check_plotting, drawn, si, values
from fomkit.schema.vocabulary import BESIDE

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

KIND = "kind of op"

REST, SMALL = "all others", 0.01
"""What parts below this share of the step are together, where they are several."""


def composition(parts: pd.DataFrame, by: str = KIND) -> alt.Chart:
    """Draw one bar a pass, in parts.

    Parameters
    ----------
    parts : DataFrame
        One row per part of a bar: ``pass`` (or another term of the step), ``part``, ``time_s``; bars in the
        order of their first rows.
    by : str
        What the parts are, as the legend says.
    """
    check_plotting("figures")
    import altair as alt

    sums = parts.groupby("part", sort=False)["time_s"].sum().sort_values(ascending=False)
    small = set(sums[sums < SMALL * sums.sum()].index) - {BESIDE}
    if len(small) > 1:
        parts = parts.assign(part=parts["part"].where(~parts["part"].isin(small), REST))
        parts = parts.groupby(["pass", "part"], sort=False)[["time_s"]].sum().reset_index()
    keys = [*(name for name in sums.index if name in set(parts["part"])), *([REST] if len(small) > 1 else [])]
    colour, _ = drawn(
        keys,
        {**(KINDS if by == KIND else {}), BESIDE: Mark("#B8B8B8", SHAPES[0]), REST: Mark(COLOURS[-1], SHAPES[1])},
    )
    shown = parts.assign(
        place=parts["part"].map(keys.index), time=[format_quantity(time, "time_s", 3) for time in parts["time_s"]]
    )
    chart: alt.Chart = (
        alt.Chart(values(shown))
        .mark_bar(stroke="white", strokeWidth=0.5)
        .encode(
            y=alt.Y("pass:N", title=None, sort=None),
            x=alt.X("time_s:Q", title="time in one step", axis=alt.Axis(labelExpr=si("s"), tickCount=5)),
            color=alt.Color("part:N", title=None, scale=colour),
            order=alt.Order("place:Q"),
            tooltip=[alt.Tooltip("pass:N"), alt.Tooltip("part:N", title=by), alt.Tooltip("time:N", title="time")],
        )
        .properties(width=640, height=34 * shown["pass"].nunique())
    )
    return chart
