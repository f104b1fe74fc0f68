"""A tornado: how far a figure moves as each parameter goes from one end to the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fomkit.quantities import format_number
from fomkit.report.plots.ink import GREY
from fomkit.report.sensitivity import format_setting

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

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

    Parameters
    ----------
    table : DataFrame
        One row for each parameter, in the order of the bars: parameter, unit, value, low, high, has_interval,
        varied (in words), at_low, at_high (the figure at either end, None where it cannot be), elasticity, kink
        (`fomkit.whatif.sensitivity.Sensitivity.table`).
    middle : float
        The figure as it is.
    title : str
    figure : str
        What the axis says: ``units/day``.

    Returns
    -------
    altair.LayerChart
        The first 15 parameters, with hover texts; ``save`` writes HTML, PNG or SVG.
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
