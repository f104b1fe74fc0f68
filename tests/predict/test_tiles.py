"""Features that only a large table can determine, and kinds whose timings predict other ops."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from fomkit.ops.pricing import add_costs
from fomkit.prediction.calibration import cross_validate, fit_timings
from fomkit.prediction.families import (
    FamilyName,
    conv_tiles,
    depth_in_turn,
    fill,
    look_at,
    product_tiles,
    training_rows,
)
from fomkit.prediction.gp import LIMIT


@pytest.fixture(autouse=True)
def one_thread():
    """Threads would wait for each other over matrices of this size."""
    with threadpool_limits(limits=1):
        yield


def products(m, n=128.0, k=64.0, dtype="fp32") -> pd.DataFrame:
    m, n, k = np.broadcast_arrays(*(np.atleast_1d(np.asarray(size, float)) for size in (m, n, k)))
    sizes = pd.DataFrame({"m": m, "n": n, "k": k, "b": 1.0})
    return sizes.assign(kind="gemm", dtype=dtype, engine="vector", trans_a=0.0, trans_b=1.0)


def convs(height, stride=1.0, pad=1.0, transposed=0.0) -> pd.DataFrame:
    square = {f"{name}_{axis}": value for axis in "hw" for name, value in
              (("kernel", 3.0), ("stride", stride), ("pad", pad), ("dilation", 1.0))}  # fmt: skip
    sizes = {"height": height, "width": height, "in_channels": 8.0, "transposed": transposed, "dtype": "fp16"}
    return pd.DataFrame([{**square, **sizes}])


def test_reading_alone_and_writing_alone_lie_equally_far_from_doing_both():
    rows = [
        {"read_byte": read, "write_byte": write, "row": 1.0} for read, write in ((0, 255), (255, 0), (127, 127))
    ]
    assert look_at(pd.DataFrame(rows), "pointwise", 8).tolist() == [[8, 0, -8], [8, 0, 8], [np.log2(255), 0, 0]]


@given(st.floats(1, 1e6), st.sampled_from([4.0, 128.0]))
def test_a_tile_is_filled_by_half_at_least_beyond_the_first(size, tile):
    filled = float(fill(np.array([size]), tile)[0])
    assert np.log2(size / tile) - 1e-9 <= filled <= 1e-12 if size < tile else -1 <= filled <= 1e-12


def test_products_by_hand():
    # 192 rows are one and a half tiles in two; 16 bytes are 4 elements of fp32 and 8 of fp16.
    features = product_tiles(products([192.0, 130.0]))
    assert features[0].tolist() == pytest.approx([np.log2(0.75), 0, 1, 1, 1])
    assert features[1].tolist() == pytest.approx([np.log2(130 / 256), 0, 0, 1, 1])
    assert product_tiles(products(100.0, 100.0, 96.0, "fp16"))[0, 2:].tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("rows", "output"),
    [(convs(7.0), 7), (convs(14.0, stride=2.0), 7), (convs(9.0, pad=0.0), 7), (convs(7.0, transposed=1.0), 7)],
)
def test_convolutions_are_looked_at_by_their_output(rows, output):
    assert conv_tiles(rows)[0].tolist() == pytest.approx([np.log2(output / 8), np.log2(output / 8), 1])


def test_only_large_tables_look_at_tiles():
    rows = products([16.0, 32.0])
    small, large = look_at(rows, "gemm", LIMIT), look_at(rows, "gemm", LIMIT + 1)
    assert large.shape[1] == small.shape[1] + 5
    np.testing.assert_array_equal(large[:, : small.shape[1]], small)
    attention = pd.DataFrame(
        {"batch": [1.0], "heads": 2.0, "kv_heads": 2.0, "q_len": 8.0, "kv_len": 8.0, "head_dim": 64.0}
    )
    assert look_at(attention, "attention", LIMIT + 1).shape == look_at(attention, "attention", 1).shape


def stepped(count: int) -> pd.DataFrame:
    """Make products whose time rises with every tile of 128 rows, as a model of a library."""
    rng = np.random.default_rng(5)
    rows = products(rng.integers(1, 1500, count), rng.integers(1, 1500, count).astype(float), 512.0)
    tiles = np.ceil(rows["m"] / 128) * np.ceil(rows["n"] / 128)
    return rows.assign(
        time_s=5e-6 + 1e-6 * tiles, op="", pass_name="", k=rng.integers(64, 80, count).astype(float)
    )


def test_steps_are_learnt_from_a_large_table(monkeypatch):
    from fomkit.prediction import families

    rows = training_rows(add_costs(stepped(LIMIT + 200)), FamilyName("gemm", "fp32", "vector", ""))
    error = {}
    for limit in (LIMIT, 10 * LIMIT):
        monkeypatch.setattr(families, "LIMIT", limit)
        error[limit] = float(np.median(np.abs(cross_validate(rows, "gemm", folds=3).log_error)))
    assert error[LIMIT] < 0.7 * error[10 * LIMIT]


def test_a_large_table_is_judged_by_an_even_part_from_all_of_the_rest():
    rows = training_rows(add_costs(stepped(LIMIT + 200)), FamilyName("gemm", "fp32", "vector", ""))
    found = cross_validate(rows, "gemm", folds=3)
    assert len(found.log_error) == len(found.fold) == (LIMIT + 200) // 2
    assert set(found.fold) == {0, 1, 2}


def traffic(op: str, numel: float, time_s: float) -> dict[str, object]:
    sizes = {"numel": numel, "row": 8.0, "read_byte": 8 * numel, "write_byte": 4 * numel, "time_s": time_s}
    return {"kind": "pointwise", "op": op, "dtype": "fp32", "engine": "vector", "pass_name": "forward", **sizes}


def test_timings_of_one_op_teach_what_others_of_the_same_traffic_take():
    rows = [traffic(op, 2.0**power, 3e-6 + 2.0**power * 1e-11) for op in ("aten::add", "aten::mul")
            for power in range(14, 26)]  # fmt: skip
    timings = add_costs(pd.DataFrame(rows))
    training = training_rows(timings, FamilyName("pointwise", "fp32", "vector", "forward"))
    assert len(training) == 24
    assert "pointwise/fp32/vector/forward" in fit_timings(timings)


def test_a_named_product_still_stands_for_itself():
    named = stepped(20).assign(op="fp8_block_gemm")
    assert fit_timings(add_costs(named)) == {}


def test_depths_of_a_power_of_two_are_told_apart_in_any_table():
    features = look_at(products(16.0, k=[512.0, 2048.0, 1760.0, 3072.0]), "gemm", 8)
    assert features[:, -1].tolist() == [2.0, 2.0, 0.0, 0.0]


def test_a_depth_is_walked_in_turn_until_it_is_split():
    assert depth_in_turn(products(1.0, k=[10.0, 8192.0, 500_000.0])).tolist() == [10.0, 8192.0, 8192.0]
