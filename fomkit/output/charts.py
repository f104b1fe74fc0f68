"""Charts as Altair objects made from plain tables, with colours for colour-blind readers and units on the axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, floor, isfinite, log10
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from fomkit.core.units import BINARY, format_number, format_quantity, memory_text
from fomkit.ops.views import BESIDE
from fomkit.output.decisions import format_setting
from fomkit.output.pages import check_plotting

if TYPE_CHECKING:
    import altair as alt

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C7A00", "#767676")
"""Okabe and Ito's palette (2008), distinguishable with any colour vision. Its yellow, too pale on white, is made
darker; grey replaces black, which is invisible on a dark page. The last colour is for the remainder."""
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "stroke")
GREY = "#808080"
"""Colour of lines without data of their own: legible on white and on a dark page."""


class Mark(NamedTuple):
    """Colour and shape of a category in all figures of a page."""

    colour: str
    shape: str


KINDS: Mapping[str, Mark] = {
    "conv": Mark("#0072B2", "circle"), "gemm": Mark("#D55E00", "square"), "sparse_gemm": Mark("#D55E00", "cross"),
    "attention": Mark("#56B4E9", "triangle-up"), "rnn": Mark("#CC79A7", "diamond"),
    "experts": Mark("#56B4E9", "cross"), "norm": Mark("#E69F00", "diamond"),
    "pointwise": Mark("#009E73", "triangle-up"), "softmax": Mark("#8C7A00", "circle"),
    "reduction": Mark("#8C7A00", "triangle-down"),
    "pool": Mark("#8C7A00", "square"), "optimizer": Mark("#CC79A7", "cross"),
    "embedding": Mark("#767676", "circle"), "copy": Mark("#767676", "square"),
    "collective": Mark("#CC79A7", "triangle-up"), "input": Mark("#767676", "triangle-down"),
    "other": Mark("#767676", "cross"),
}  # fmt: skip
"""Marks of the kinds of ops: kinds that usually take long have their own colour; shapes separate the others."""


def _json_cell(value: Any) -> Any:
    """Convert a cell to a JSON value; NaN and infinity become None."""
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not isfinite(value) else value


def values(frame: pd.DataFrame) -> alt.InlineData:
    """Convert a DataFrame to chart data with any number of rows, NaN as null."""
    rows = [{str(name): _json_cell(cell) for name, cell in row.items()} for row in frame.to_dict("records")]
    import altair as alt

    data = alt.InlineData(values=[])
    data["values"] = rows  # set after the constructor, which would validate every cell against a schema
    return data


def si(unit: str) -> str:
    """Return the Vega expression of an axis label: the number with SI prefix and unit, such as ``12 ms``."""
    # d3 uses SI prefixes ("k", "M", "µ"); a blank separates the number from the prefixed unit.
    prefixed = f"replace(format(datum.value, '~s'), /([a-zA-Zµ])?$/, ' $1') + '{unit}'"
    # Times above 1000 s keep the unit s: "2 ks" is unusual.
    return f"datum.value >= 1000 ? format(datum.value, ',') + ' s' : {prefixed}" if unit == "s" else prefixed


def format_spans(frame: pd.DataFrame) -> list[str]:
    """Format times with their intervals, row by row: columns ``time_s``, ``low_s`` and ``high_s`` [s].

    >>> import pandas as pd
    >>> format_spans(pd.DataFrame({"time_s": [0.0898], "low_s": [0.0756], "high_s": [0.108]}))
    ['89.8 ms (75.6 ms to 108 ms)']
    """
    texts = []
    for ends in zip(*(frame[name].tolist() for name in ("time_s", "low_s", "high_s")), strict=True):
        value, low, high = (format_quantity(end, "time_s", 3) for end in ends)
        texts.append(f"{value} ({'no spread stated' if ends[1] == ends[2] else f'{low} to {high}'})")
    return texts


def drawn(names: Sequence[str], marks: Mapping[str, Mark] | None = None) -> tuple[alt.Scale, alt.Scale]:
    """Return the scales of colour and shape for some names, from ``marks`` or from the palette in order."""
    import altair as alt

    most = len(COLOURS) - 1
    found = [
        marks[name] if marks is not None and name in marks else Mark(COLOURS[min(place, most)], SHAPES[place % 8])
        for place, name in enumerate(names)
    ]
    colours, shapes = [one.colour for one in found], [one.shape for one in found]
    return alt.Scale(domain=list(names), range=colours), alt.Scale(domain=list(names), range=shapes)


def decades(low: float, high: float) -> list[float]:
    """Return the powers of ten between two numbers, for the grid of a logarithmic axis.

    >>> decades(0.03, 200.0)
    [0.1, 1.0, 10.0, 100.0]
    """
    return [10.0**power for power in range(ceil(log10(low)), floor(log10(high)) + 1)]


WHAT = ("projected", "measured")


def compared(figures: pd.DataFrame) -> alt.LayerChart:
    """Draw each measured time beside the projected one, with their intervals.

    `figures`: two rows for each name: ``name``, ``what`` (projected, measured), ``time_s``, ``low_s``, ``high_s``,
    and ``said`` (what the projection may claim).
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
"""Parts below the share `SMALL` of the step are merged into `REST`, if there are several."""


def composition(parts: pd.DataFrame, by: str = KIND) -> alt.Chart:
    """Draw one bar for each pass, divided into parts.

    `parts`: one row for each part of a bar: ``pass`` (or another term of the step), ``part``, ``time_s``; bars are
    in the order of their first rows; `by`: the title of the parts in the legend.
    """
    check_plotting("figures")
    import altair as alt

    sums = parts.groupby("part", sort=False)["time_s"].sum().sort_values(ascending=False)
    small = set(sums[sums < SMALL * sums.sum()].index) - {BESIDE}
    if len(small) > 1:
        parts = parts.assign(part=parts["part"].where(~parts["part"].isin(small), REST))
        parts = parts.groupby(["pass", "part"], sort=False)[["time_s"]].sum().reset_index()
    keys = [*(name for name in sums.index if name in set(parts["part"])), *([REST] if len(small) > 1 else [])]
    marks = {BESIDE: Mark("#B8B8B8", SHAPES[0]), REST: Mark(COLOURS[-1], SHAPES[1])}
    colour, _ = drawn(keys, {**(KINDS if by == KIND else {}), **marks})
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
    """Draw the memory in use by role, from op to op.

    `live`: one row for each moment and role: ``id`` (number of executed ops), ``role``, ``byte``, ``all_byte``
    (sum over roles), ``op`` and ``pass_name``; roles in stacking order; `capacity_byte`: the device's capacity
    [byte], drawn if it is less than 3 times the peak.
    """
    check_plotting("figures")
    import altair as alt

    roles = list(dict.fromkeys(live["role"].astype(str)))
    places, mebi = live["role"].map(roles.index), BINARY["Mi"]
    shown = live[["id", "role"]].assign(place=places, used=live["byte"] / mebi)
    whole = live.drop_duplicates("id")[["id", "all_byte", "op", "pass_name"]]
    whole = whole.assign(together=[memory_text(byte) for byte in whole["all_byte"]], used=whole["all_byte"] / mebi)
    x = alt.X("id:Q", title="ops of the step, in the order they run", axis=alt.Axis(format="~s", tickCount=8),
              scale=alt.Scale(nice=False))  # fmt: skip
    areas = (
        alt.Chart(values(shown))
        .mark_area(interpolate="step-after", opacity=0.9)
        .encode(
            x=x,
            y=alt.Y("used:Q", title="memory [MiB]", stack=True, axis=alt.Axis(tickCount=5)),
            color=alt.Color("role:N", title=None, scale=drawn(roles)[0]),
            order=alt.Order("place:Q"),
        )
    )
    # An area has a single tooltip; invisible bars at every moment add one for each moment.
    tooltip = [
        alt.Tooltip("together:N"), alt.Tooltip("op:N"), alt.Tooltip("pass_name:N", title="pass"),
        alt.Tooltip("id:Q", title="ops so far"),
    ]  # fmt: skip
    moments = alt.Chart(values(whole)).mark_rule(opacity=0, strokeWidth=4).encode(
        x=x, y="used:Q", tooltip=tooltip
    )  # fmt: skip
    chart: alt.LayerChart = areas + moments
    if capacity_byte is not None and capacity_byte < 3 * float(live["all_byte"].max()):
        holds = alt.Chart(values(pd.DataFrame({"used": [capacity_byte / mebi], "said": ["the device holds"]})))
        edge = holds.mark_rule(color=GREY, strokeDash=[6, 4], strokeWidth=1.5).encode(y="used:Q")
        name = holds.mark_text(align="left", baseline="bottom", dx=6, dy=-3, color=GREY)
        chart = chart + edge + name.encode(y="used:Q", x=alt.value(0), text="said:N")
    return chart.properties(width=640, height=300)


PASSES = ("forward", "backward", "update")


def pareto(groups: pd.DataFrame) -> alt.LayerChart:
    """Draw the longest ops by pass, longest first, with their cumulative share of the step.

    `groups`: one row for each op and pass, the longest op first: ``name``, ``pass``, ``pass_s`` [s]; and for all
    passes of the op ``time_s``, ``low_s``, ``high_s``, ``share`` of the step, ``reached`` (cumulative share).
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
"""Decades of the rate axis below the highest rate; few ops with much arithmetic are slower."""
TOOLTIP = {
    "op": "op", "sizes": "sizes", "pass_name": "pass", "module": "module", "time": "in one step",
    "share_said": "share of the step", "rate": "rate reached", "intensity_said": "FLOP per byte",
    "time_source": "its time is", "bound": "bound by",
}  # fmt: skip
"""Columns in an op's tooltip, and their titles."""


def heights(ops: pd.DataFrame, roofs: pd.DataFrame) -> tuple[float, float]:
    """Return the bounds of the rate axis [flop/s], at most `DECADES` apart; slower ops are drawn on the edge."""
    most = 2.5 * max(ops["flop_per_s"].max(), roofs["flop_per_s"].max())
    return max(float(ops["flop_per_s"].min()) / 2, most / 10**DECADES), float(most)


def _corners(roofs: pd.DataFrame, low: float, high: float) -> pd.DataFrame:
    """Return each roof as a line: the memory's rate up to the ridge point, then the peak."""
    lines = [
        {"roof": roof["roof"], "x": at, "y": min(float(roof["flop_per_s"]), at * float(roof["byte_per_s"]))}
        for roof in roofs.to_dict("records")
        for at in (low, float(roof["flop_per_s"]) / float(roof["byte_per_s"]), high)
    ]
    return pd.DataFrame(lines, columns=["roof", "x", "y"])


def roofline(ops: pd.DataFrame, roofs: pd.DataFrame) -> alt.LayerChart:
    """Draw the rate of each op over its arithmetic intensity.

    `ops`: one row for each op with arithmetic: ``op``, ``kind``, ``sizes``, ``pass_name``, ``module``, ``time_s``,
    ``low_s`` and ``high_s`` in one step, ``share`` of the step, ``intensity`` [flop/byte], ``flop_per_s``,
    ``time_source``, ``bound``; `roofs`: ``roof`` (name and peak), ``flop_per_s`` and ``byte_per_s`` for each
    number format and engine.
    """
    check_plotting("figures")
    import altair as alt

    kinds = ops.groupby("kind", sort=False)["share"].sum().sort_values(ascending=False).index.tolist()
    colour, shape = drawn(kinds, KINDS)
    known = [*ops["intensity"].tolist(), *(roofs["flop_per_s"] / roofs["byte_per_s"]).tolist()]
    low, high = min(known) / 2, max(known) * 3
    least, most = heights(ops, roofs)
    x = alt.X("intensity:Q", title="arithmetic intensity (FLOP per byte)",
              scale=alt.Scale(type="log", domain=[low, high], nice=False),
              axis=alt.Axis(format="~g", values=decades(low, high)))  # fmt: skip
    y = alt.Y("flop_per_s:Q", title="rate reached",
              scale=alt.Scale(type="log", domain=[least, most], nice=False, clamp=True),
              axis=alt.Axis(labelExpr=si("FLOP/s"), values=decades(least, most)))  # fmt: skip
    labelled = ops.assign(
        time=format_spans(ops),
        share_said=[f"{share:.2%}" for share in ops["share"]],
        rate=[format_quantity(rate, "flop_per_s", 3) for rate in ops["flop_per_s"]],
        intensity_said=[format_number(intensity, 3) for intensity in ops["intensity"]],
    )
    picked = alt.selection_point(fields=["kind"], bind="legend", name="kinds")
    points = alt.Chart(values(labelled), name="ops").mark_point(filled=True, strokeWidth=1).encode(
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
    # At low intensity no op reaches a peak, so there is room for the peak's name.
    named = alt.Chart(values(roofs.assign(start=low, ridge=roofs["flop_per_s"] / roofs["byte_per_s"])))
    label = named.mark_text(align="left", baseline="bottom", dx=4, dy=-3, color=GREY)
    labels = label.encode(x="start:Q", y="flop_per_s:Q", text="roof:N")
    leader = named.mark_rule(color=GREY, strokeDash=[2, 4])
    leaders = leader.encode(x="start:Q", x2="ridge:Q", y="flop_per_s:Q")
    memory = roofs.drop_duplicates("byte_per_s")
    said = [f"memory {format_quantity(rate, 'byte_per_s', 3)}" for rate in memory["byte_per_s"]]
    memory = memory.assign(x=low, y=low * memory["byte_per_s"], said=said)
    slope = alt.Chart(values(memory)).mark_text(align="left", baseline="top", dx=8, dy=4, color=GREY)
    slopes = slope.encode(x="x:Q", y="y:Q", text="said:N")
    chart: alt.LayerChart = (leaders + lines + labels + slopes + points).properties(width=640, height=380)
    return chart


def doubled(most: float) -> list[int]:
    """Return 1, 2, 4, … up to a number, for the grid of an axis."""
    return [2**power for power in range(int(most).bit_length())]


def scaling(points: pd.DataFrame, reference: str = "one device") -> alt.LayerChart:
    """Draw the speed-up over devices, with the ideal speed-up.

    `points`: one row for each mode and number of devices: ``mode``, ``devices``, ``speedup``, ``low``, ``high``,
    ``efficiency``, ``step_s``, ``ideal`` (the speed-up without any loss) and ``limit``; `reference`: in words.
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
    x = alt.X("devices:Q", title="devices", scale=alt.Scale(type="log", base=2),
              axis=alt.Axis(format="~s", values=doubled(points["devices"].max())))  # fmt: skip
    y = alt.Y("speedup:Q", title=f"times as fast as {reference}", scale=alt.Scale(type="log", base=2),
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


ENDS = ("the lower value", "the higher value")
MOST = 15
"""Largest number of parameters in a tornado chart."""
MARGIN = 0.2
"""Margin on either side for the labels at the bars' ends, as a share of the bars' range."""


def _bars(table: pd.DataFrame, middle: float) -> list[dict[str, Any]]:
    bars = []
    for row in table.head(MOST).to_dict("records"):
        unit = str(row["unit"])
        stated = row["varied"] if row["has_interval"] else f"{row['varied']}, no interval stated"
        for end, setting, at in zip(ENDS, (row["low"], row["high"]), (row["at_low"], row["at_high"]), strict=True):
            if at is None or at != at:
                continue
            name = row["parameter"] + ("" if row["has_interval"] else f" ({row['varied']})")
            bars.append({
                "parameter": name, "end": end, "setting": format_setting(setting, unit),
                "now": format_setting(row["value"], unit), "figure": at, "from": middle, "change": at / middle - 1,
                "elasticity": "kink" if row["kink"] else format_number(row["elasticity"], 3), "range": stated,
            })  # fmt: skip
    return bars


def tornado(table: pd.DataFrame, middle: float, title: str, figure: str) -> alt.LayerChart:
    """Draw a tornado chart of the first 15 parameters, with tooltips; ``save`` writes HTML, PNG or SVG.

    `table`: one row for each parameter, in the order of the bars: parameter, unit, value, low, high, has_interval,
    varied (in words), at_low, at_high (the figure at either bound, None where invalid), elasticity, kink
    (`fomkit.whatif.sensitivity.Sensitivity.table`); `middle`: the figure without a change; `figure`: the title of
    the axis, such as ``units/day``.
    """
    import altair as alt

    bars = _bars(table, middle)
    order = list(dict.fromkeys(bar["parameter"] for bar in bars))
    base = alt.Chart(pd.DataFrame(bars))
    ends = [middle, *(bar["figure"] for bar in bars)]
    margin = MARGIN * (max(ends) - min(ends)) or MARGIN * middle
    scale = alt.Scale(domain=[min(ends) - margin, max(ends) + margin], nice=False, zero=False)
    x = alt.X("figure:Q", title=figure, scale=scale)
    y = alt.Y("parameter:N", sort=order, title=None, axis=alt.Axis(labelLimit=320))
    hover = [
        alt.Tooltip("parameter:N"), alt.Tooltip("setting:N", title="at"), alt.Tooltip("now:N", title="is"),
        alt.Tooltip("figure:Q", title=figure, format=".4~g"), alt.Tooltip("change:Q", format="+.1%"),
        alt.Tooltip("elasticity:N"), alt.Tooltip("range:N", title="varied over"),
    ]  # fmt: skip
    colour = alt.Color(
        "end:N", title="parameter at", sort=list(ENDS), legend=alt.Legend(orient="bottom"),
        scale=alt.Scale(domain=list(ENDS), range=list(COLOURS[:2])),
    )  # fmt: skip
    drawn = base.mark_bar(height={"band": 0.7}).encode(x=x, x2="from:Q", y=y, color=colour, tooltip=hover)
    rises = alt.datum.change >= 0
    text = base.encode(x=x, y=y, text="setting:N", tooltip=hover)
    # The layers have names so that a narrow page can leave them out.
    right = text.transform_filter(rises).mark_text(align="left", dx=4).properties(name="ends_right")
    left = text.transform_filter(alt.datum.change < 0).mark_text(align="right", dx=-4).properties(name="ends_left")
    line = alt.Chart(pd.DataFrame({"figure": [middle]})).mark_rule(color=GREY).encode(x="figure:Q")
    layers = alt.LayerChart(layer=[drawn, left, right, line])
    return layers.properties(title=title, width=520, height=26 * len(order))
