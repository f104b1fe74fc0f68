"""Every op of a step under the rates that bound it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fomkit.quantities import format_number, format_quantity
from fomkit.report.plots.ink import GREY, KINDS, check_plotting, decades, drawn, si, spans_told, values

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

DECADES = 5
"""How far below the fastest op a figure reaches; few have any arithmetic to speak of below it."""
TOOLTIP = {
    "op": "op", "sizes": "sizes", "pass_name": "pass", "module": "module", "time": "in one step",
    "share_said": "share of the step", "rate": "rate reached", "intensity_said": "FLOP per byte",
    "time_source": "its time is", "bound": "bound by",
}  # fmt: skip
"""Columns that a reader sees of an op under the pointer, and what they are called there."""


def _told(ops: pd.DataFrame) -> pd.DataFrame:
    """Add what a reader sees, as text."""
    return ops.assign(
        time=spans_told(ops),
        share_said=[f"{share:.2%}" for share in ops["share"]],
        rate=[format_quantity(rate, "flop_per_s", 3) for rate in ops["flop_per_s"]],
        intensity_said=[format_number(intensity, 3) for intensity in ops["intensity"]],
    )


def _room(ops: pd.DataFrame, roofs: pd.DataFrame) -> tuple[float, float]:
    """Give the intensities that the figure shows: those of the ops and of the ridges, and some room."""
    known = [*ops["intensity"].tolist(), *(roofs["flop_per_s"] / roofs["byte_per_s"]).tolist()]
    return min(known) / 2, max(known) * 3


def heights(ops: pd.DataFrame, roofs: pd.DataFrame) -> tuple[float, float]:
    """Give the rates [flop/s] between which ops are drawn: `DECADES` at most; slower ones lie on the edge."""
    most = 2.5 * max(ops["flop_per_s"].max(), roofs["flop_per_s"].max())
    return max(float(ops["flop_per_s"].min()) / 2, most / 10**DECADES), float(most)


def _corners(roofs: pd.DataFrame, low: float, high: float) -> pd.DataFrame:
    """Give each roof as a line: along the memory's rate up to its ridge, then along the peak."""
    import pandas as pd

    lines = [
        {"roof": roof["roof"], "x": at, "y": min(float(roof["flop_per_s"]), at * float(roof["byte_per_s"]))}
        for roof in roofs.to_dict("records")
        for at in (low, float(roof["flop_per_s"]) / float(roof["byte_per_s"]), high)
    ]
    return pd.DataFrame(lines, columns=["roof", "x", "y"])


def roofline(ops: pd.DataFrame, roofs: pd.DataFrame) -> alt.LayerChart:
    """Draw the rate of each op over its arithmetic intensity.

    Parameters
    ----------
    ops : DataFrame
        One row per op with arithmetic: ``op``, ``kind``, ``sizes``, ``pass_name``, ``module``, ``time_s``,
        ``low_s`` and ``high_s`` in one step, ``share`` of the step, ``intensity`` [flop/byte], ``flop_per_s``,
        ``time_source``, ``bound``.
    roofs : DataFrame
        ``roof`` (its name and peak), ``flop_per_s`` and ``byte_per_s`` of each number format and engine.
    """
    check_plotting("figures")
    import altair as alt

    kinds = ops.groupby("kind", sort=False)["share"].sum().sort_values(ascending=False).index.tolist()
    colour, shape = drawn(kinds, KINDS)
    low, high = _room(ops, roofs)
    least, most = heights(ops, roofs)
    x = alt.X(
        "intensity:Q",
        title="arithmetic intensity (FLOP per byte)",
        scale=alt.Scale(type="log", domain=[low, high], nice=False),
        axis=alt.Axis(format="~g", values=decades(low, high)),
    )
    y = alt.Y("flop_per_s:Q", title="rate reached",
              scale=alt.Scale(type="log", domain=[least, most], nice=False, clamp=True),
              axis=alt.Axis(labelExpr=si("FLOP/s"), values=decades(least, most)))  # fmt: skip
    picked = alt.selection_point(fields=["kind"], bind="legend", name="kinds")
    points = alt.Chart(values(_told(ops)), name="ops").mark_point(filled=True, strokeWidth=1).encode(
        x=x, y=y,
        color=alt.Color("kind:N", title=None, scale=colour),
        shape=alt.Shape("kind:N", title=None, scale=shape),
        size=alt.Size("share:Q", title="share of time", legend=None,
                      scale=alt.Scale(domain=[0, max(0.02, float(ops["share"].max()))], range=[24, 500])),
        opacity=alt.condition(picked, alt.value(0.75), alt.value(0.06)),
        tooltip=[alt.Tooltip(f"{name}:N", title=title) for name, title in TOOLTIP.items()],
    ).add_params(picked)  # fmt: skip
    corners = alt.Chart(values(_corners(roofs, low, high)))
    lines = corners.mark_line(color=GREY, strokeWidth=1.5).encode(x="x:Q", y="y:Q", detail="roof:N")
    # Nothing reaches a peak at few flop per byte, so its name has room there.
    named = alt.Chart(values(roofs.assign(start=low, ridge=roofs["flop_per_s"] / roofs["byte_per_s"])))
    labels = named.mark_text(align="left", baseline="bottom", dx=4, dy=-3, color=GREY).encode(
        x="start:Q", y="flop_per_s:Q", text="roof:N"
    )  # fmt: skip
    leaders = named.mark_rule(color=GREY, strokeDash=[2, 4]).encode(x="start:Q", x2="ridge:Q", y="flop_per_s:Q")
    memory = roofs.drop_duplicates("byte_per_s")
    said = [f"memory {format_quantity(rate, 'byte_per_s', 3)}" for rate in memory["byte_per_s"]]
    memory = memory.assign(x=low, y=low * memory["byte_per_s"], said=said)
    slopes = alt.Chart(values(memory)).mark_text(align="left", baseline="top", dx=8, dy=4, color=GREY).encode(
        x="x:Q", y="y:Q", text="said:N"
    )  # fmt: skip
    chart: alt.LayerChart = (leaders + lines + labels + slopes + points).properties(width=640, height=380)
    return chart
