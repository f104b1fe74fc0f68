"""The totals of a predicted table, for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fomkit.quantities import format_quantity
from fomkit.report.terminal import format_interval

_LISTED = 12


def _rows(rows: Sequence[object], word: str) -> str:
    listed = ", ".join(map(str, rows[:_LISTED]))
    more = len(rows) - _LISTED
    return f"{word}{'s' * (len(rows) > 1)} {listed}{f' and {more:,} more' if more > 0 else ''}"


def format_prediction(content: Mapping[str, Any], name: str) -> str:
    """Write what became of a table's rows: how many, by what evidence, their time, and what has none.

    Parameters
    ----------
    content : mapping
        What `fomkit.study.Prediction.content` gives.
    name : str
        Of the table.
    """
    total, priced = content["time_s"], content["rows"] - sum(map(len, content["unpriced"].values()))
    lines = [f"{name} on {content['target']}: {content['rows']:,} rows, {priced:,} priced"]
    lines += [
        f"  {source}: {one['rows']:,} rows, {one['share']:.1%} of the time"
        for source, one in content["sources"].items()
    ]
    if total is not None:
        value, interval = format_quantity(total["value"], "time_s"), format_interval(total, "time_s")
        least = "at least " if content["unpriced"] else ""
        lines.append(f"sum of time × count: {least}{value} ({content['interval']:.0%} interval {interval})")
    lines += [
        f"unpriced, kind {kind}: {len(rows):,} ({_rows(rows, content['rows_are'])})"
        for kind, rows in content["unpriced"].items()
    ]
    return "\n".join(lines) + "\n"
