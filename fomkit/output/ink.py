"""What all figures share: colours that colour-blind readers tell apart, axes with units, a chart as a file."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from math import ceil, floor, isfinite, log10
from typing import TYPE_CHECKING, Any, NamedTuple

from fomkit.core.errors import FomkitError, install_hint
from fomkit.core.units import format_quantity

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd


COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C7A00", "#767676")
"""Okabe and Ito's palette (2008), which is told apart with any colour vision; its yellow, too pale on white, is
darker, and grey stands for black, which would vanish on a dark page. The last is for what is left over."""
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "stroke")
GREY = "#808080"
"""Lines that carry no data of their own: legible on white and on a dark page."""


class Mark(NamedTuple):
    """How something is drawn in all figures of a page."""

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
    "collective": Mark("#767676", "triangle-up"), "input": Mark("#767676", "triangle-down"),
    "other": Mark("#767676", "cross"),
}  # fmt: skip
"""Kinds of work: one colour each where they are usually long, the shape tells those of one colour apart."""


def check_plotting(where: str, *more: str) -> None:
    """Raise unless the plotting library is installed, and ``more``; better before the work than after it.

    Raises FomkitError with the command that installs all of them.
    """
    from importlib.util import find_spec

    absent = [name for name in ("altair", *more) if find_spec(name) is None]
    if absent:
        raise FomkitError(where, f"needs {', '.join(absent)}, not installed here. Run: {install_hint('report')}")


def _json_cell(value: Any) -> Any:
    """Give a cell as JSON has it; what is not known is null."""
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not isfinite(value) else value


def values(frame: pd.DataFrame) -> alt.InlineData:
    """Put a table into a figure; any number of rows, NaN as null."""
    rows = [{str(name): _json_cell(cell) for name, cell in row.items()} for row in frame.to_dict("records")]
    import altair as alt

    data = alt.InlineData(values=[])
    data["values"] = rows  # past the constructor, which would check every cell of it against a schema
    return data


def si(unit: str) -> str:
    """Give a label of an axis: the number with its prefix, and the unit, as ``12 ms``."""
    # d3's prefixes are SI's, so "k", "M", "µ" read as everywhere; a letter after a blank is the unit's prefix.
    prefixed = f"replace(format(datum.value, '~s'), /([a-zA-Zµ])?$/, ' $1') + '{unit}'"
    # But nobody says "2 ks".
    return f"datum.value >= 1000 ? format(datum.value, ',') + ' s' : {prefixed}" if unit == "s" else prefixed


def format_spans(frame: pd.DataFrame) -> list[str]:
    """Write times with their intervals, row by row: columns ``time_s``, ``low_s`` and ``high_s`` [s].

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
    """Give a colour and a shape to each name: those of ``marks``, else of the palette in order."""
    import altair as alt

    most = len(COLOURS) - 1
    found = [
        marks[name] if marks is not None and name in marks else Mark(COLOURS[min(place, most)], SHAPES[place % 8])
        for place, name in enumerate(names)
    ]
    colours, shapes = [one.colour for one in found], [one.shape for one in found]
    return alt.Scale(domain=list(names), range=colours), alt.Scale(domain=list(names), range=shapes)


def decades(low: float, high: float) -> list[float]:
    """Give the powers of ten between two numbers, for the lines of a logarithmic axis.

    >>> decades(0.03, 200.0)
    [0.1, 1.0, 10.0, 100.0]
    """
    return [10.0**power for power in range(ceil(log10(low)), floor(log10(high)) + 1)]


ENDINGS = (".html", ".png", ".svg")
SCALE = 2.0
"""Points of a PNG for each of the drawing."""


class _Harmless(json.JSONEncoder):
    """Names of strangers stand inside a script element, which ``</script>`` would end."""

    def encode(self, o: object) -> str:
        return super().encode(o).replace("<", "\\u003c")


def check_drawable(where: str) -> None:
    """Raise when the libraries that draw are not installed.

    Raises FomkitError with the command that installs them.
    """
    check_plotting(where, "vl_convert")


def chart_file(chart: alt.TopLevelMixin, ending: str) -> str | bytes:
    """Give the content of a chart's file: HTML that needs no network, PNG or SVG."""
    text, picture = io.StringIO(), io.BytesIO()
    if ending == ".png":
        chart.save(picture, format="png", scale_factor=SCALE)
        return picture.getvalue()
    if ending == ".svg":
        chart.save(text, format="svg")
    else:
        chart.save(text, format="html", inline=True, json_kwds={"cls": _Harmless})
    return text.getvalue()
