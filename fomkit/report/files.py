"""Results as JSON and CSV text."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from typing import Any


def to_json(content: Mapping[str, Any]) -> str:
    """Write content as JSON; NaN and infinity are refused, unknown is null."""
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _flat(one: Mapping[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for key, value in one.items():
        if isinstance(value, Mapping):
            row |= {f"{key}.{name}": cell for name, cell in _flat(value).items()}
        elif isinstance(value, list):
            row[key] = "; ".join(str(item) for item in value)
        else:
            row[key] = value
    return row


def _safe(cell: Any) -> Any:
    """Keep a spreadsheet program from running text as a formula."""
    return f"'{cell}" if isinstance(cell, str) and cell[:1] in tuple("=+-@\t\r") else cell


def to_csv(rows: list[Mapping[str, Any]]) -> str:
    """Write nested rows as CSV, one column a leaf (``step_s.low``), unknown as an empty cell."""
    flat = [_flat(row) for row in rows]
    header = list(dict.fromkeys(key for row in flat for key in row))
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([_safe(row.get(key)) for key in header] for row in flat)
    return stream.getvalue()
