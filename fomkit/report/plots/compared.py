"""Projected beside measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fomkit.report.plots.ink import Mark, check_plotting, drawn, si, spans_told, values

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

WHAT = ("projected", "measured")


def compared(figures: pd.DataFrame) -> alt.LayerChart:
    """Draw each measured time beside the projected one, with their intervals.

    Parameters
    ----------
    figures : DataFrame
        Two rows a line: ``name`` (of the line), ``what`` (projected, measured), ``time_s``, ``low_s``, ``high_s``,
        and ``said`` (what may be claimed of it).
    """
    check_plotting("figures")
    import altair as alt

    ends = [*figures["low_s"].tolist(), *figures["high_s"].tolist()]
    shown = figures.assign(time=spans_told(figures))
    y = alt.Y("name:N", title=None, sort=None, axis=alt.Axis(grid=True))
    offset = alt.YOffset("what:N", sort=list(WHAT))
    colours, shapes = drawn(WHAT, {"measured": Mark("#D55E00", "diamond")})
    colour, shape = alt.Color("what:N", title=None, scale=colours), alt.Shape("what:N", title=None, scale=shapes)
    x = alt.X("time_s:Q", title="time, on a logarithmic axis", axis=alt.Axis(labelExpr=si("s"), tickCount=6),
              scale=alt.Scale(type="log", domain=[min(ends) / 1.3, max(ends) * 1.3], nice=False))  # fmt: skip
    base = alt.Chart(values(shown))
    spans = base.mark_rule(strokeWidth=2.5).encode(y=y, yOffset=offset, x="low_s:Q", x2="high_s:Q", color=colour)
    points = base.mark_point(filled=True, size=90, opacity=1).encode(
        y=y, yOffset=offset, x=x, color=colour, shape=shape,
        tooltip=[alt.Tooltip("name:N"), alt.Tooltip("what:N"), alt.Tooltip("time:N"),
                 alt.Tooltip("said:N", title="what may be claimed")],
    )  # fmt: skip
    chart: alt.LayerChart = (spans + points).properties(width=640, height=48 * figures["name"].nunique())
    return chart
