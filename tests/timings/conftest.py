"""Workbooks built for one test each, and the nine real ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import openpyxl
import pytest

Cells = Sequence[Sequence[object]]
Maker = Callable[..., Path]


@pytest.fixture
def make_workbook(tmp_path: Path) -> Maker:
    """Give a function that writes sheets (name to rows) as a workbook."""

    def make(sheets: Mapping[str, Cells], name: str = "made.xlsx") -> Path:
        book = openpyxl.Workbook()
        book.remove(book.worksheets[0])
        for title, rows in sheets.items():
            sheet = book.create_sheet(title)
            for number, row in enumerate(rows, start=1):
                for column, value in enumerate(row, start=1):
                    if value is not None:
                        sheet.cell(number, column, value)
        path = tmp_path / name
        book.save(path)
        return path

    return make


@pytest.fixture(scope="session")
def train(shared: Path) -> Path:
    """The folder of the nine training workbooks."""
    return shared / "data" / "deepbench" / "train"
