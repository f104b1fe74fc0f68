"""Projected beside measured.

What a step is made of: each pass in its parts, beside what else could make the step wait.

What stands in memory while a step runs.

The few ops that take most of the time.

Every op of a step under the rates that bound it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fomkit.core.units import format_number, format_quantity
from fomkit.ops.vocabulary import BESIDE
from fomkit.output.plots.ink import (
    COLOURS,
    GREY,
    KINDS,
    SHAPES,
    Mark,
    check_plotting,
    decades,
    drawn,
    format_spans,
    si,
    values,
)

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd


WHAT = ("projected", "measured")


def compared(figures: pd.DataFrame) -> alt.LayerChart:
    """Draw each measured time beside the projected one, with their intervals.

    `figures`: two rows a line: ``name`` (of the line), ``what`` (projected, measured), ``time_s``, ``low_s``,
    ``high_s``, and ``said`` (what may be claimed of it).
    """
    check_plotting("figures")
    import altair as alt

    ends = [*figures["low_s"].tolist(), *figures["high_s"].tolist()]
    shown = figures.assign(time=format_spans(figures))
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


KIND = "kind of op"

REST, SMALL = "all others", 0.01
"""What parts below this share of the step are together, where they are several."""


def composition(parts: pd.DataFrame, by: str = KIND) -> alt.Chart:
    """Draw one bar a pass, in parts.

    `parts`: one row per part of a bar: ``pass`` (or another term of the step), ``part``, ``time_s``; bars in the
    order of their first rows; `by`: what the parts are, as the legend says.
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


def memory(live: pd.DataFrame, capacity_byte: float | None = None) -> alt.LayerChart:
    """Draw the memory that each role takes from op to op.

    `live`: one row per moment and role: ``id`` (executed ops so far), ``role``, ``byte``, ``all_byte`` (all roles
    together), ``op`` and ``pass_name``; roles in the order in which they are stacked; `capacity_byte`: what the
    device holds [byte]; drawn where it is not far above the peak.
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


PASSES = ("forward", "backward", "update")


def pareto(groups: pd.DataFrame) -> alt.LayerChart:
    """Draw the longest ops, longest first, in their passes, with the share that they reach together.

    `groups`: one row per op and pass, the longest op first: ``name``, ``pass``, ``pass_s`` [s]; and of all passes
    of the op ``time_s``, ``low_s``, ``high_s``, ``share`` of the step, ``reached`` (share with all ops before it).
    """
    check_plotting("figures")
    import altair as alt

    shown = groups.assign(
        time=format_spans(groups),
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
    label = whole.mark_text(align="left", dx=5).encode(y=y, x="high_s:Q", text="reached_said:N")
    chart: alt.LayerChart = (bars + ends + label).properties(width=640, height=22 * groups["name"].nunique())
    return chart


DECADES = 5
"""How far below the fastest op a figure reaches; few have any arithmetic to speak of below it."""
TOOLTIP = {
    "op": "op", "sizes": "sizes", "pass_name": "pass", "module": "module", "time": "in one step",
    "share_said": "share of the step", "rate": "rate reached", "intensity_said": "FLOP per byte",
    "time_source": "its time is", "bound": "bound by",
}  # fmt: skip
"""Columns that a reader sees of an op under the pointer, and what they are called there."""


def _with_labels(ops: pd.DataFrame) -> pd.DataFrame:
    """Add what a reader sees, as text."""
    return ops.assign(
        time=format_spans(ops),
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

    `ops`: one row per op with arithmetic: ``op``, ``kind``, ``sizes``, ``pass_name``, ``module``, ``time_s``,
    ``low_s`` and ``high_s`` in one step, ``share`` of the step, ``intensity`` [flop/byte], ``flop_per_s``,
    ``time_source``, ``bound``; `roofs`: ``roof`` (its name and peak), ``flop_per_s`` and ``byte_per_s`` of each
    number format and engine.
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
    points = alt.Chart(values(_with_labels(ops)), name="ops").mark_point(filled=True, strokeWidth=1).encode(
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
