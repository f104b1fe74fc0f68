"""Results as JSON and CSV text, and as a plain sheet."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fomkit.tables.cells import disarm
from fomkit.tables.write import format_rows

if TYPE_CHECKING:
    import pandas as pd


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


def _table(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[Any]]]:
    flat = [_flat(row) for row in rows]
    header = list(dict.fromkeys(key for row in flat for key in row))
    return header, [[row.get(key) for key in header] for row in flat]


def to_frame(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Put nested rows into a DataFrame, one column a leaf (``step_s.low``), unknown as a missing value.

    Examples
    --------
    >>> to_frame([{"op": "mm", "time_s": {"low": 1.0, "high": 3.0}}]).columns.tolist()
    ['op', 'time_s.low', 'time_s.high']
    """
    import pandas as pd

    header, table = _table(rows)
    return pd.DataFrame(table, columns=header)


def to_xlsx(rows: list[Mapping[str, Any]], title: str) -> bytes:
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
    for line, cells in enumerate([header, *table], start=1):
        for column, value in enumerate(cells, start=1):
            cell = sheet.cell(line, column, value)
            if isinstance(value, str):
                cell.data_type = "s"
    for cell in sheet[1]:
        cell.font = Font(bold=True)
    sheet.freeze_panes = "A2"
    stream = BytesIO()
    book.save(stream)
    return stream.getvalue()


def to_csv(rows: list[Mapping[str, Any]]) -> str:
    """Write nested rows as CSV, one column a leaf (``step_s.low``), unknown as an empty cell.

    Text that a spreadsheet program would run as a formula gets a leading apostrophe.
    """
    header, table = _table(rows)
    return format_rows([disarm(key) for key in header], ([_cell(value) for value in row] for row in table))
