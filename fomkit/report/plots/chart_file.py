"""A chart as the content of a file: HTML that needs no network, PNG or SVG."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

from fomkit.report.plots.ink import check_plotting

if TYPE_CHECKING:
    import altair as alt

ENDINGS = (".html", ".png", ".svg")
SCALE = 2.0
"""Points of a PNG for each of the drawing."""


class _Harmless(json.JSONEncoder):
    """Names of strangers stand inside a script element, which ``</script>`` would end."""

    def encode(self, o: object) -> str:
        return super().encode(o).replace("<", "\\u003c")


def check_drawable(where: str) -> None:
    """Raise when the libraries that draw are not installed.

    Raises
    ------
    FomkitError
        With the command that installs them.
    """
    check_plotting(where, "vl_convert")


def chart_file(chart: alt.TopLevelMixin, ending: str) -> str | bytes:
    """Give the content of a chart's file.

    Parameters
    ----------
    chart : altair chart
    ending : str
        One of `ENDINGS`.
    """
    if ending == ".html":
        page = io.StringIO()
        chart.save(page, format="html", inline=True, json_kwds={"cls": _Harmless})
        return page.getvalue()
    if ending == ".svg":
        drawing = io.StringIO()
        chart.save(drawing, format="svg")
        return drawing.getvalue()
    picture = io.BytesIO()
    chart.save(picture, format="png", scale_factor=SCALE)
    return picture.getvalue()
