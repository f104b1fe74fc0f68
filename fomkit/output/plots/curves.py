"""How a training grows with nodes.

A tornado: how far a figure moves as each parameter goes from one end to the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fomkit.core.units import format_number, format_quantity
from fomkit.output.decisions import format_setting
from fomkit.output.plots.ink import GREY, check_plotting, drawn, values

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


LOWER, HIGHER = "#0072B2", "#E69F00"
"""Blue and orange of Okabe and Ito, told apart with any colour vision; labels say the same."""
ENDS = ("the lower value", "the higher value")
MOST = 15
"""Parameters drawn: the first ones."""
MARGIN = 0.2
"""Part of the bars' range that is left on either side for what is written at their ends."""


def _bars(table: pd.DataFrame, middle: float) -> list[dict[str, Any]]:
    bars = []
    for row in table.head(MOST).to_dict("records"):
        unit = str(row["unit"])
        stated = row["varied"] if row["has_interval"] else f"{row['varied']}, no interval is stated"
        for end, setting, at in zip(ENDS, (row["low"], row["high"]), (row["at_low"], row["at_high"]), strict=True):
            if at is None or at != at:
                continue
            bars.append(
                {
                    "parameter": row["parameter"] + ("" if row["has_interval"] else f" ({row['varied']})"),
                    "end": end,
                    "setting": format_setting(setting, unit),
                    "now": format_setting(row["value"], unit),
                    "figure": at,
                    "from": middle,
                    "change": at / middle - 1,
                    "elasticity": "kink" if row["kink"] else format_number(row["elasticity"], 3),
                    "range": stated,
                }
            )
    return bars


def _domain(bars: list[dict[str, Any]], middle: float) -> list[float]:
    ends = [middle, *(bar["figure"] for bar in bars)]
    margin = MARGIN * (max(ends) - min(ends)) or MARGIN * middle
    return [min(ends) - margin, max(ends) + margin]


def tornado(table: pd.DataFrame, middle: float, title: str, figure: str) -> alt.LayerChart:
    """Draw a tornado.

    `table`: one row for each parameter, in the order of the bars: parameter, unit, value, low, high, has_interval,
    varied (in words), at_low, at_high (the figure at either end, None where it cannot be), elasticity, kink
    (`fomkit.whatif.sensitivity.Sensitivity.table`); `middle`: the figure as it is; `figure`: what the axis says:
    ``units/day``. Gives an altair.LayerChart: the first 15 parameters, with hover texts; ``save`` writes HTML, PNG
    or SVG.
    """
    import altair as alt
    import pandas as pd

    bars = _bars(table, middle)
    order = list(dict.fromkeys(bar["parameter"] for bar in bars))
    base = alt.Chart(pd.DataFrame(bars))
    scale = alt.Scale(domain=_domain(bars, middle), nice=False, zero=False)
    x = alt.X("figure:Q", title=figure, scale=scale)
    y = alt.Y("parameter:N", sort=order, title=None, axis=alt.Axis(labelLimit=320))
    hover = [
        alt.Tooltip("parameter:N"), alt.Tooltip("setting:N", title="at"), alt.Tooltip("now:N", title="is"),
        alt.Tooltip("figure:Q", title=figure, format=".4~g"), alt.Tooltip("change:Q", format="+.1%"),
        alt.Tooltip("elasticity:N"), alt.Tooltip("range:N", title="varied over"),
    ]  # fmt: skip
    colour = alt.Color(
        "end:N", title="parameter at", sort=list(ENDS), legend=alt.Legend(orient="bottom"),
        scale=alt.Scale(domain=list(ENDS), range=[LOWER, HIGHER]),
    )  # fmt: skip
    drawn = base.mark_bar(height={"band": 0.7}).encode(x=x, x2="from:Q", y=y, color=colour, tooltip=hover)
    rises = alt.datum.change >= 0
    text = base.encode(x=x, y=y, text="setting:N", tooltip=hover)
    # Their names let a narrow page leave them out.
    right = text.transform_filter(rises).mark_text(align="left", dx=4).properties(name="ends_right")
    left = text.transform_filter(alt.datum.change < 0).mark_text(align="right", dx=-4).properties(name="ends_left")
    line = alt.Chart(pd.DataFrame({"figure": [middle]})).mark_rule(color=GREY).encode(x="figure:Q")
    layers = alt.LayerChart(layer=[drawn, left, right, line])
    return layers.properties(title=title, width=520, height=26 * len(order))
