"""Rows as plain columns: what is read, chosen and assigned is what the table holds."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fomkit.ops.columns import Words, words_of
from fomkit.prediction.estimators import as_rows, is_in, item_bytes, numbers, same_texts


@pytest.fixture(params=["str", "object", "category"])
def table(request: pytest.FixtureRequest) -> pd.DataFrame:
    words = pd.Series(["gemm", None, "conv", "gemm"], index=[3, 5, 8, 9]).astype(request.param)
    return pd.DataFrame({"kind": words, "m": [1.0, np.nan, 3.0, 4.0]})


def test_columns_are_read_as_they_stand(table: pd.DataFrame) -> None:
    rows = as_rows(table)
    assert rows.index.tolist() == [3, 5, 8, 9]
    assert rows.text("kind").cells().tolist() == ["gemm", "", "conv", "gemm"]
    assert rows.text("absent").cells().tolist() == [""] * 4
    assert numbers(rows, "m", 7.0).tolist() == [1.0, 7.0, 3.0, 4.0]
    assert np.isnan(numbers(table, "absent")).all()
    assert is_in(table, "kind", "conv", "").tolist() == [False, True, True, False]
    assert (rows.has("kind"), rows.has("absent")) == (True, False)


def test_chosen_rows_keep_what_was_assigned(table: pd.DataFrame) -> None:
    rows = as_rows(table).take(np.array([3, 0, 2])).assign(m=np.array([1.0, 2.0, 3.0]), b=5.0, op="x")
    rows = rows.assign(kind=Words(np.array([0, 1, 0]), ("pool", "norm")))
    assert rows.is_in("kind", "norm", "gemm").tolist() == [False, True, False]  # no longer what the table says
    some = rows.take(np.array([False, True, True]))
    assert some.index.tolist() == [3, 8]
    assert some.number("m").tolist() == [2.0, 3.0]
    assert some.number("b").tolist() == [5.0, 5.0]
    assert some.text("kind").cells().tolist() == ["norm", "pool"]
    assert some.text("op").cells().tolist() == ["x", "x"]
    frame = some.frame(["kind", "m", "absent"])
    assert frame.index.tolist() == [3, 8]
    assert frame.to_dict("list") == {"kind": ["norm", "pool"], "m": [2.0, 3.0]}
    # The table and the rows that others hold stay as they are.
    assert as_rows(table).number("m")[2] == 3.0
    assert rows.index.tolist() == [9, 3, 8]


def test_a_view_never_changes_what_was_read(table: pd.DataFrame) -> None:
    rows = as_rows(table)
    with pytest.raises(ValueError, match="read-only"):
        rows.number("m")[0] = 99.0
    assert rows.number("m")[0] == 1.0


def test_numbers_that_share_a_word_are_one_word() -> None:
    kinds = words_of(np.array([0, 1, 2]), ("a", "b", "a"))
    rows = as_rows(pd.DataFrame({"m": [1.0, 2.0, 3.0]})).assign(kind=kinds)
    found, numbers_of = same_texts(rows, "kind")
    assert found == [("a",), ("b",)]
    assert numbers_of.tolist() == [0, 1, 0]


def test_formats_have_sizes_and_unknown_ones_none() -> None:
    assert item_bytes(pd.DataFrame({"dtype": ["fp16", "fp64", "fp16"]})).tolist() == [2.0, 8.0, 2.0]
    assert np.isnan(item_bytes(pd.DataFrame({"m": [1.0]}))).all()
