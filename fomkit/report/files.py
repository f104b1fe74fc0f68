"""Results as JSON and CSV text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fomkit.tables.cells import disarm
from fomkit.tables.write import format_rows


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


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return disarm(value) if isinstance(value, str) else str(value)


def to_csv(rows: list[Mapping[str, Any]]) -> str:
    """Write nested rows as CSV, one column a leaf (``step_s.low``), unknown as an empty cell.

    Text that a spreadsheet program would run as a formula gets a leading apostrophe.
    """
    flat = [_flat(row) for row in rows]
    header = list(dict.fromkeys(key for row in flat for key in row))
    cells = ([_cell(row.get(key)) for key in header] for row in flat)
    return format_rows([disarm(key) for key in header], cells)
