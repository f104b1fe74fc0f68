"""How a training grows with nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fomkit.quantities import format_quantity
from fomkit.report.plots.ink import GREY, check_plotting, drawn, values

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd


def doubled(most: float) -> list[int]:
    """Give 1, 2, 4, … up to a number, for the lines of an axis."""
    return [2**power for power in range(int(most).bit_length())]


def scaling(points: pd.DataFrame) -> alt.LayerChart:
    """Draw the speed-up over devices, beside the ideal.

    Parameters
    ----------
    points : DataFrame
        One row per mode and number of devices: ``mode``, ``devices``, ``speedup``, ``low``, ``high``,
        ``efficiency``, ``step_s``, ``ideal`` (the speed-up without any loss) and ``limit``.
    """
    check_plotting("figures")
    import altair as alt

    modes = list(dict.fromkeys(points["mode"].astype(str)))
    shown = points.assign(
        step=[format_quantity(step, "time_s", 3) for step in points["step_s"]],
        share=[f"{share:.0%}" for share in points["efficiency"]],
        gain=[f"{gain:.3g} ({low:.3g} to {high:.3g})" for gain, low, high in
              zip(points["speedup"], points["low"], points["high"], strict=True)],
    )  # fmt: skip
    x = alt.X(
        "devices:Q",
        title="devices",
        scale=alt.Scale(type="log", base=2),
        axis=alt.Axis(format="~s", values=doubled(points["devices"].max())),
    )
    y = alt.Y("speedup:Q", title="times as fast as one", scale=alt.Scale(type="log", base=2),
              axis=alt.Axis(format="~g", values=doubled(points["ideal"].max())))  # fmt: skip
    colours, shapes = drawn(modes)
    colour = alt.Color("mode:N", title=None, scale=colours)
    base = alt.Chart(values(shown))
    lines = base.mark_line().encode(x=x, y=y, color=colour)
    spans = base.mark_rule(strokeWidth=2).encode(x=x, y="low:Q", y2="high:Q", color=colour)
    dots = base.mark_point(filled=True, size=70, opacity=1).encode(
        x=x, y=y, color=colour, shape=alt.Shape("mode:N", title=None, scale=shapes),
        tooltip=[
            alt.Tooltip("mode:N"), alt.Tooltip("devices:Q", format=","), alt.Tooltip("gain:N", title="speed-up"),
            alt.Tooltip("share:N", title="efficiency"), alt.Tooltip("step:N"),
            alt.Tooltip("limit:N", title="limited by"),
        ],
    )  # fmt: skip
    ideal = base.mark_line(color=GREY, strokeDash=[6, 4]).encode(x=x, y="ideal:Q")
    chart: alt.LayerChart = (ideal + lines + spans + dots).properties(width=640, height=320)
    return chart
