"""Fixture: a workbook with every kind of input, written once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from made_ledgers import sheet_model

from fomkit.workbook import review
from fomkit.workbook.read import read_book
from fomkit.workbook.write import write_workbook


@pytest.fixture(scope="session")
def issued(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Write the workbook of `made_ledgers.sheet_model`; reviews read it once, returned workbooks each time."""
    path = tmp_path_factory.mktemp("workbooks") / "sent.xlsx"
    write_workbook(sheet_model(), path)
    known = read_book(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(review, "read_book", lambda one: known if one == path else read_book(one))
        yield path
