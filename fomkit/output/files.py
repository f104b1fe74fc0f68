"""Results as files and for notebooks: JSON, CSV, a plain sheet, an HTML table, a timeline; names stay text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any

from fomkit.core.units import format_number, format_quantity
from fomkit.files.csv import disarm
from fomkit.files.op_csv import format_rows
from fomkit.output.screen import Entry
from fomkit.output.terminal import UNFIT, format_coverage, format_interval

if TYPE_CHECKING:
    import pandas as pd


def to_json(content: Entry) -> str:
    """Write content as JSON; NaN and infinity are refused, unknown is null."""
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _flat(one: Entry) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for key, value in one.items():
        if isinstance(value, Mapping):
            row |= {f"{key}.{name}": cell for name, cell in _flat(value).items()}
        elif isinstance(value, list):
            row[key] = "; ".join(str(item) for item in value)
        else:
            row[key] = value
    return row


def _table(rows: Sequence[Entry]) -> tuple[list[str], list[list[Any]]]:
    flat = [_flat(row) for row in rows]
    header = list(dict.fromkeys(key for row in flat for key in row))
    return header, [[row.get(key) for key in header] for row in flat]


def to_frame(rows: Sequence[Entry]) -> pd.DataFrame:
    """Put nested rows into a DataFrame, one column a leaf (``step_s.low``), unknown as a missing value.

    >>> to_frame([{"op": "mm", "time_s": {"low": 1.0, "high": 3.0}}]).columns.tolist()
    ['op', 'time_s.low', 'time_s.high']
    """
    import pandas as pd

    header, table = _table(rows)
    return pd.DataFrame(table, columns=header)


def to_xlsx(rows: list[Entry], title: str) -> bytes:
    """Write nested rows as a sheet, one column a leaf (``step_s.low``), unknown as an empty cell.

    Numbers are numbers; text is text even where a spreadsheet program would take it for a formula.
    """
    from io import BytesIO

    from openpyxl import Workbook
    from openpyxl.styles import Font

    book = Workbook()
    sheet = book.active or book.create_sheet()
    sheet.title = title
    header, table = _table(rows)
    for line in (header, *table):
        sheet.append(line)
    for cell in (cell for line in sheet for cell in line if isinstance(cell.value, str)):
        cell.data_type = "s"
    for cell in sheet[1]:
        cell.font = Font(bold=True)
    sheet.freeze_panes = "A2"
    stream = BytesIO()
    book.save(stream)
    return stream.getvalue()


def to_csv(rows: list[Entry]) -> str:
    """Write nested rows as CSV, one column a leaf (``step_s.low``), unknown as an empty cell.

    Text that a spreadsheet program would run as a formula gets a leading apostrophe.
    """

    def cell(value: object) -> str:
        return disarm(value) if isinstance(value, str) else "" if value is None else str(value)

    header, table = _table(rows)
    return format_rows([disarm(key) for key in header], ([cell(value) for value in row] for row in table))


_HEADERS = (
    "model", "machine", "batch", "step", "interval", "units/day", "interval", "bound", "coverage", "excludes",
)  # fmt: skip


def _row(one: Entry) -> list[object]:
    per_day = one["unit_per_day"]
    rate = "unknown" if per_day is None else format_number(per_day["value"])
    unfit = f" {UNFIT} does not fit the memory" if one["fits"] is False else ""
    return [
        one["model"], one["target"], one["batch"], format_quantity(one["step_s"]["value"], "time_s"),
        format_interval(one["step_s"], "time_s"), rate + unfit, format_interval(per_day, None), one["bound"],
        format_coverage(one["coverage"]), ", ".join(one["excludes"]),
    ]  # fmt: skip


def estimates_html(content: Entry) -> str:
    """Write a study as an HTML table with its coverage and exclusions."""
    header = "".join(f"<th>{name}</th>" for name in _HEADERS)
    rows = ("".join(f"<td>{escape(str(cell))}</td>" for cell in _row(model)) for model in content["models"])
    caption = f"{content['interval']:.0%} intervals, scope {escape(content['scope'])}"
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f"<table><caption>{caption}</caption><tr>{header}</tr>{body}</table>"


def timeline_text(content: Entry) -> str:
    """Write trace events in JSON object format; NaN and infinity are refused.

    >>> print(timeline_text({"traceEvents": [{"ph": "M"}, {"ph": "X"}], "displayTimeUnit": "ms"}), end="")
    {"traceEvents": [
    {"ph": "M"},
    {"ph": "X"}
    ],
    "displayTimeUnit": "ms"}
    """
    written = partial(json.dumps, ensure_ascii=False, allow_nan=False)
    events = ",\n".join(map(written, content["traceEvents"]))
    others = {key: value for key, value in content.items() if key != "traceEvents"}
    rest = ",\n".join(f"{written(key)}: {written(value)}" for key, value in others.items())
    return f'{{"traceEvents": [\n{events}\n],\n{rest}}}\n'
