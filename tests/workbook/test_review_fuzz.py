"""Whatever stands in a cell of a returned workbook, a review ends in findings or in one message."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import openpyxl
from hostile_files import NASTY
from hypothesis import given, settings
from hypothesis import strategies as st

from fomkit.errors import FomkitError
from fomkit.report.review import format_review
from fomkit.study.review import review, review_content
from fomkit.workbook.layout import INPUT_TABLES

figures = st.sampled_from([0, -1, 1e-300, 1e300, 2.5, True, 7])
cells = st.one_of(figures, st.sampled_from([text for text in NASTY if text.isprintable()]), st.none())


@given(
    changed=st.lists(
        st.tuples(st.sampled_from(INPUT_TABLES), st.integers(5, 30), st.integers(1, 30), cells), max_size=3
    )
)
@settings(max_examples=12)
def test_any_cell_may_hold_anything(issued: Path, tmp_path_factory, changed) -> None:
    book = openpyxl.load_workbook(issued)
    for table, row, column, value in changed:
        book[table.sheet].cell(row, column).value = value
    path = tmp_path_factory.mktemp("fuzz") / "vendor.xlsx"
    book.save(path)
    with suppress(FomkitError):
        content = review_content(review(path, issued))
        assert format_review(content)
        if content["together"]:
            assert content["changes"]
