"""What stands in memory while a step runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fomkit.quantities import format_quantity
from fomkit.report.plots.ink import GREY, check_plotting, drawn, si, values

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd


def memory(live: pd.DataFrame, capacity_byte: float | None = None) -> alt.LayerChart:
    """Draw the memory that each role takes from op to op.

    Parameters
    ----------
    live : DataFrame
        One row per moment and role: ``id`` (executed ops so far), ``role``, ``byte``, ``all_byte`` (all roles
        together), ``op`` and ``pass_name``; roles in the order in which they are stacked.
    capacity_byte : float, optional
        What the device holds [byte]; drawn where it is not far above the peak.
    """
    check_plotting("figures")
    import altair as alt
    import pandas as pd

    roles = list(dict.fromkeys(live["role"].astype(str)))
    shown = live[["id", "role", "byte"]].assign(place=live["role"].map(roles.index))
    whole = live.drop_duplicates("id")[["id", "all_byte", "op", "pass_name"]]
    whole = whole.assign(together=[format_quantity(byte, "byte", 3) for byte in whole["all_byte"]])
    x = alt.X("id:Q", title="ops of the step, in the order they run", axis=alt.Axis(format="~s", tickCount=8),
              scale=alt.Scale(nice=False))  # fmt: skip
    areas = (
        alt.Chart(values(shown))
        .mark_area(interpolate="step-after", opacity=0.9)
        .encode(
            x=x,
            y=alt.Y("byte:Q", title="memory", stack=True, axis=alt.Axis(labelExpr=si("B"), tickCount=5)),
            color=alt.Color("role:N", title=None, scale=drawn(roles)[0]),
            order=alt.Order("place:Q"),
        )
    )
    # Areas have one tooltip each; a bar at every moment, not seen, lets a reader point at a place.
    tooltip = [
        alt.Tooltip("together:N"), alt.Tooltip("op:N"), alt.Tooltip("pass_name:N", title="pass"),
        alt.Tooltip("id:Q", title="ops so far"),
    ]  # fmt: skip
    moments = alt.Chart(values(whole)).mark_rule(opacity=0, strokeWidth=4).encode(
        x=x, y="all_byte:Q", tooltip=tooltip
    )  # fmt: skip
    chart: alt.LayerChart = areas + moments
    if capacity_byte is not None and capacity_byte < 3 * float(live["all_byte"].max()):
        holds = alt.Chart(values(pd.DataFrame({"byte": [capacity_byte], "said": ["the device holds"]})))
        edge = holds.mark_rule(color=GREY, strokeDash=[6, 4], strokeWidth=1.5).encode(y="byte:Q")
        name = holds.mark_text(align="left", baseline="bottom", dx=6, dy=-3, color=GREY)
        chart = chart + edge + name.encode(y="byte:Q", x=alt.value(0), text="said:N")
    return chart.properties(width=640, height=300)
