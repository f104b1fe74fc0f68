"""Charts and tables as records of a report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fomkit.dossier.words import number, share
from fomkit.report.book import Cell, Figure, Head, Table

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

_HEADS = {
    "time_s": "time", "low_s": "low", "high_s": "high", "flop_per_s": "rate", "all_byte": "together",
    "pass_name": "pass", "name": "op", "reached": "with those above",
}  # fmt: skip


def figure(
    key: str, title: str, chart: alt.TopLevelMixin, says: str, caption: tuple[str, ...] = (),
    table: Table | None = None, finds: str = "",
) -> Figure:  # fmt: skip
    """Put a chart into a report; its width is the page's."""
    # Data are records of our own making, so the library need not check each cell against its schema.
    spec: dict[str, Any] = chart.to_dict(validate=False)
    for name in ("$schema", "config", "title"):
        spec.pop(name, None)
    for layer in spec.get("layer", [spec]):
        for channel in layer.get("encoding", {}).values():
            if isinstance(channel, dict):  # the page places legends and cuts labels, by the width that it has
                (channel.get("axis") or {}).pop("labelLimit", None)
                (channel.get("legend") or {}).pop("orient", None)
    return Figure(key, title, says, spec, caption, table, finds)


def frame_table(caption: str, frame: pd.DataFrame, columns: Mapping[str, str]) -> Table:
    """Put columns of a table into a report.

    Parameters
    ----------
    caption : str
    frame : DataFrame
    columns : mapping
        Dimension of each column (`fomkit.quantities`); ``share``, ``count``, or "" for text.
    """
    head = tuple(Head(_HEADS.get(name, name.replace("_", " ")), bool(kind)) for name, kind in columns.items())
    rows = tuple(
        tuple(_cell(row[name], kind) for name, kind in columns.items()) for row in frame.to_dict("records")
    )
    return Table(caption, head, rows)


def _cell(value: Any, kind: str) -> Cell:
    if not kind:
        return Cell(str(value))
    if kind == "share":
        return share(value)
    return number(value, None if kind == "count" else kind)
