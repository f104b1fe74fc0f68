"""Convolutions of a matrix engine and long norms by facts: terms by hand, and the choice between rules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fomkit.core.machine import Machine
from fomkit.ops.pricing import add_costs
from fomkit.prediction import prior
from fomkit.prediction.prior import BLOCKS, PASSES, TRAFFIC, TURNING
from fomkit.profiles.evidence import with_fits
from fomkit.profiles.machines import load_machine

PEAK, BANDWIDTH, UNITS = 71e12, 936e9, 82


@pytest.fixture(scope="module")
def board() -> Machine:
    return with_fits(load_machine("rtx-3090"))


def conv(pass_name: str = "forward", **sizes: Any) -> dict[str, Any]:
    line = {"depth": 1.0, "kernel_d": 1.0, "stride_d": 1.0, "pad_d": 0.0, "dilation_d": 1.0}
    plane = {"height": 56.0, "width": 56.0}
    for axis in "hw":
        plane |= {f"kernel_{axis}": 3.0, f"stride_{axis}": 1.0, f"pad_{axis}": 1.0, f"dilation_{axis}": 1.0}
    row = {"op": "conv", "kind": "conv", "dtype": "fp16", "engine": "matrix", "pass_name": pass_name, "count": 1.0}
    channels = {"batch": 256.0, "in_channels": 256.0, "out_channels": 256.0, "groups": 1.0, "transposed": 0.0}
    return {**row, **line, **plane, **channels, "layout": "nchw", **sizes}


def seconds(board: Machine, *rows: dict[str, Any]) -> np.ndarray:
    """Return floor over utilisation, the time of kernels without launches."""
    costed = add_costs(pd.DataFrame(list(rows)))
    matrix = costed["engine"] == "matrix"
    floor_s = np.maximum(np.where(matrix, costed["flop"] / PEAK, 0.0), costed["byte"] / BANDWIDTH)
    return floor_s / prior.utilisation_of(costed, board, 0.8).value


def image_byte(row: dict[str, Any]) -> float:
    return float(2 * row["batch"] * row["height"] * row["width"] * (row["in_channels"] + row["out_channels"]))


def test_a_large_convolution_reaches_the_peak_of_an_engine_that_is_held_back(board: Machine) -> None:
    row = conv(layout="nhwc")
    costed = add_costs(pd.DataFrame([row])).iloc[0]
    by_hand = np.hypot(costed["flop"] / PEAK, TRAFFIC * costed["byte"] / BANDWIDTH)
    assert seconds(board, row)[0] == pytest.approx(by_hand, rel=0.03)


def test_images_channel_by_channel_are_turned_less_for_a_kernel_of_one(board: Machine) -> None:
    three, one = conv(), conv(kernel_h=1.0, kernel_w=1.0, pad_h=0.0, pad_w=0.0)
    for row, share in ((three, 1.0), (one, 0.5)):
        lies, turned = seconds(board, {**row, "layout": "nhwc"}, row)
        assert turned - lies == pytest.approx(2 * share * TURNING * image_byte(row) / BANDWIDTH, rel=0.01)


def test_turning_what_the_cache_holds_is_nearly_free(board: Machine) -> None:
    small = conv(batch=1.0, in_channels=64.0, out_channels=64.0)
    lies, turned = seconds(board, {**small, "layout": "nhwc"}, small)
    assert turned - lies < 0.1 * 2 * TURNING * image_byte(small) / BANDWIDTH


def test_the_weights_of_single_channels_each_read_both_images(board: Machine) -> None:
    few, many = (conv("backward_weight", in_channels=c, out_channels=c, groups=c) for c in (16.0, 512.0))
    found = seconds(board, few, many)
    positions = 256 * 56 * 56
    # 16 channels have 144 weights, which keep no 82 processors busy.
    assert found[0] == pytest.approx(4 * positions * BLOCKS * UNITS / BANDWIDTH, rel=1e-6)
    assert found[1] == pytest.approx(4 * positions * 512 * 9 / BANDWIDTH, rel=1e-6)
    assert seconds(board, {**many, "layout": "nhwc"})[0] < found[1] / 4


def test_a_transposed_convolution_is_the_gradient_of_a_plain_one(board: Machine) -> None:
    plain = conv("backward_input", in_channels=64.0, out_channels=256.0, layout="nhwc")
    turned = {**plain, "pass_name": "forward", "in_channels": 256.0, "out_channels": 64.0, "transposed": 1.0}
    one, other = seconds(board, plain, turned)
    assert one == pytest.approx(other, rel=1e-6)


def norm(row: float, pass_name: str = "forward") -> dict[str, Any]:
    numel = 2.0**26
    read = 2 * numel * (1 if pass_name == "forward" else 2)
    return {
        "op": "aten::native_batch_norm", "kind": "norm", "dtype": "fp16", "engine": "vector", "count": 1.0,
        "pass_name": pass_name,
        "numel": numel, "row": row, "inputs": 1.0, "read_byte": read, "write_byte": 2 * numel,
    }  # fmt: skip


def test_rows_that_no_processor_holds_are_read_twice(board: Machine) -> None:
    for pass_name in ("forward", "backward"):
        long = norm(2.0**20, pass_name)
        element = {**long, "kind": "pointwise", "row": np.nan}
        times = PASSES[pass_name == "forward"]
        more = {**element, "read_byte": times * (long["read_byte"] + long["write_byte"]), "write_byte": 0.0}
        found = seconds(board, long)[0]
        assert found == pytest.approx(seconds(board, more)[0], rel=1e-6)
    assert seconds(board, norm(1024.0))[0] < seconds(board, norm(2.0**20))[0]


def test_without_processors_a_convolution_goes_by_what_is_usual(board: Machine) -> None:
    from dataclasses import replace

    blind = replace(board, device=replace(board.device, units=None))
    costed = add_costs(pd.DataFrame([conv()]))
    known, usual = (prior.utilisation_of(costed, one, 0.8) for one in (board, blind))
    assert "tile model of a product" in known.source[0]
    assert "typical of conv/matrix/forward" in usual.source[0]


def test_a_gradient_over_any_depth_is_priced_as_one_over_a_power_of_two(board: Machine) -> None:
    from fomkit.prediction.estimators import as_rows

    row = {
        "op": "mm",
        "kind": "gemm",
        "dtype": "fp16",
        "engine": "matrix",
        "pass_name": "backward_weight",
        "count": 1.0,
    }
    sizes = {"b": 1.0, "m": 3072.0, "n": 768.0, "trans_a": 1.0, "trans_b": 0.0}
    rows = add_costs(pd.DataFrame([{**row, **sizes, "k": depth} for depth in (32768.0, 37824.0)]))
    found = prior.estimate(as_rows(rows), board, 0.8)
    rate = rows["flop"].to_numpy() / found.times[0]
    assert rate[1] == pytest.approx(rate[0], rel=0.05)


@pytest.mark.parametrize("pass_name", ["forward", "backward_input", "backward_weight"])
def test_a_format_that_a_library_may_take_is_no_slower_than_the_one_it_may_keep(
    board: Machine, pass_name: str
) -> None:
    rows = [
        conv(pass_name, in_channels=inside, height=side, width=side)
        for inside in (3.0, 64.0, 512.0)
        for side in (7.0, 56.0)
    ]
    rows += [{**row, "kernel_h": 1.0, "kernel_w": 1.0, "pad_h": 0.0, "pad_w": 0.0} for row in rows]
    costed = add_costs(pd.DataFrame(rows).assign(dtype="tf32"))
    costed.index = costed.index[::-1] + 7
    tf32 = prior.estimate(costed, board, 0.8)
    fp32 = prior.estimate(costed.assign(dtype="fp32", engine="vector"), board, 0.8)
    assert tf32.index.tolist() == fp32.index.tolist() == costed.index.tolist()
    assert (tf32.time_s <= fp32.time_s * 1.0001).all()
    same = np.isclose(tf32.time_s, fp32.time_s)
    assert [tf32.evidence(place).startswith("faster in fp32: ") for place in range(len(rows))] == same.tolist()
    # Whose vector units nobody stated has no other choice.
    peaks = tuple(peak for peak in board.device.peaks if peak.dtype != "fp32")
    alone = prior.estimate(costed, replace(board, device=replace(board.device, peaks=peaks)), 0.8)
    assert alone.index.tolist() == costed.index.tolist()
    assert not any(alone.evidence(place).startswith("sooner") for place in range(len(rows)))
