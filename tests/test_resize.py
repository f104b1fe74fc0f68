"""Expressions in named sizes: what is read, what is refused, and what resizing does to a table."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fomkit.core.errors import FomkitError
from fomkit.ops.resize import evaluate, evaluate_all, resize_ops, sizes_used

number = st.integers(0, 50)
expressions = st.recursive(
    st.one_of(number.map(str), st.sampled_from(["batch", "seq"])),
    lambda inner: st.tuples(inner, st.sampled_from(["+", "-", "*"]), inner).map(
        lambda parts: f"({' '.join(parts)})"
    ),
    max_leaves=6,
)


@given(expressions, number, number)
def test_means_what_python_means(text: str, batch: int, seq: int) -> None:
    assert evaluate(text, {"batch": batch, "seq": seq}, "") == eval(text, {}, {"batch": batch, "seq": seq})


@pytest.mark.parametrize(
    ("text", "value"),
    [("7//2", 3), ("2*3+4", 10), ("2+3*4", 14), ("10-3-2", 5), ("-batch", -5), ("2*(batch+1)", 12)],
)
def test_order_of_operations(text: str, value: int) -> None:
    assert evaluate(text, {"batch": 5}, "") == value


@pytest.mark.parametrize(
    "text",
    ["", "2 3", "batch(2)", "__import__('os')", "2**3", "1/2", "(1", "1)", "+", "1e3", "batch.real", "1;2", "1//0",
     "x" * 201, "(" * 150, "-" * 199],
)  # fmt: skip
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(FomkitError):
        evaluate(text, {"batch": 5}, "ops: row 3, m")


def test_an_unknown_size_names_the_known_ones() -> None:
    with pytest.raises(FomkitError, match="The nearest name is 'batch'"):
        evaluate("2*bach", {"batch": 5}, "ops")


def test_resizing_a_table_leaves_the_input_and_gives_floats() -> None:
    ops = pd.DataFrame({"m": ["batch", "2*batch", 7.0], "n": [1.0, 2.0, 3.0]})
    before = ops.copy()
    resized = resize_ops(ops, {"batch": 8}, "x")
    assert resized["m"].tolist() == [8.0, 16.0, 7.0]
    assert resized["m"].dtype == float
    pd.testing.assert_frame_equal(ops, before)
    pd.testing.assert_frame_equal(resize_ops(resized, {"batch": 9}, "x"), resized)
    assert sizes_used(ops) == {"batch"}
    assert sizes_used(resized) == set()


def test_a_negative_size_is_refused() -> None:
    with pytest.raises(FomkitError, match="gives -3"):
        resize_ops(pd.DataFrame({"m": ["batch - 4"]}), {"batch": 1}, "x")


def test_a_size_that_is_negative_at_one_of_many_points_is_refused() -> None:
    with pytest.raises(FomkitError, match=r"'batch - 4' gives -3"):
        evaluate_all(["batch", "batch - 4"], {"batch": np.array([9.0, 1.0])}, "x")
    assert evaluate_all(["batch", "batch - 4"], {"batch": np.array([9.0, 4.0])}, "x").tolist() == [[9, 4], [5, 0]]
