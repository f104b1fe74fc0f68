"""Tables that break their labels where a terminal is narrow, and never a number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fomkit.report.screen import new_table

if TYPE_CHECKING:
    from rich.table import Table


def table_of_numbers(headers: Sequence[tuple[str, str]]) -> Table:
    """Begin a table whose first column is a label and whose other cells stay on one line."""
    table = new_table(headers)
    table.padding = (0, 1, 0, 0)
    table.columns[0].overflow = "fold"
    for column in table.columns[1:]:
        column.no_wrap = True
    return table
