"""A workbook of everything, written once."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_ledgers import sheet_model

from fomkit.workbook.write import write_workbook


@pytest.fixture(scope="session")
def issued(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The workbook of `made_ledgers.ledger`."""
    path = tmp_path_factory.mktemp("workbooks") / "sent.xlsx"
    write_workbook(sheet_model(), path)
    return path
