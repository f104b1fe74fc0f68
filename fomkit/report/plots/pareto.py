"""The few ops that take most of the time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fomkit.report.plots.ink import check_plotting, drawn, si, spans_told, values

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

PASSES = ("forward", "backward", "update")


def pareto(groups: pd.DataFrame) -> alt.LayerChart:
    """Draw the longest ops, longest first, in their passes, with the share that they reach together.

    Parameters
    ----------
    groups : DataFrame
        One row per op and pass, the longest op first: ``name``, ``pass``, ``pass_s`` [s]; and of all passes of the
        op ``time_s``, ``low_s``, ``high_s``, ``share`` of the step, ``reached`` (share with all ops before it).
    """
    check_plotting("figures")
    import altair as alt

    shown = groups.assign(
        time=spans_told(groups),
        share_said=[f"{share:.1%}" for share in groups["share"]],
        reached_said=[f"{reached:.0%}" for reached in groups["reached"]],
        place=groups["pass"].map({name: place for place, name in enumerate(PASSES)}),
    )
    y = alt.Y("name:N", title=None, sort=None)
    tooltip = [
        alt.Tooltip("name:N", title="op"), alt.Tooltip("time:N", title="in one step"),
        alt.Tooltip("share_said:N", title="share of the step"),
        alt.Tooltip("reached_said:N", title="with those above"), alt.Tooltip("pass:N"),
    ]  # fmt: skip
    passes = [name for name in PASSES if name in set(groups["pass"])]
    bars = alt.Chart(values(shown)).mark_bar().encode(
        y=y,
        x=alt.X("pass_s:Q", title="time in one step", axis=alt.Axis(labelExpr=si("s"), tickCount=5)),
        color=alt.Color("pass:N", title=None, scale=drawn(passes)[0]),
        order=alt.Order("place:Q"),
        tooltip=tooltip,
    )  # fmt: skip
    whole = alt.Chart(values(shown.drop_duplicates("name")))
    ends = whole.mark_rule(strokeWidth=1.5).encode(y=y, x="low_s:Q", x2="high_s:Q")
    told = whole.mark_text(align="left", dx=5).encode(y=y, x="high_s:Q", text="reached_said:N")
    chart: alt.LayerChart = (bars + ends + told).properties(width=640, height=22 * groups["name"].nunique())
    return chart
