"""Floors of convolution methods by hand, the workspace's limit, the best of them, and reasons below floors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from costs.op_tables import conv, table
from predict.machines import device, fact, machine, timings

from fomkit.ops.conv_methods import method_costs
from fomkit.ops.pricing import add_costs
from fomkit.prediction.cascade import add_times
from fomkit.verbs.convolutions import add_floors, add_workspace, best_methods

LAYER = conv(4.0, (64.0, 64.0), 28.0, 3.0, pad_h=1.0, pad_w=1.0)
ONE_ENGINE = machine(device(bandwidth=fact(1e12), fp32_vector=1e13))
TWO_ENGINES = machine(device(bandwidth=fact(1e12), fp16_matrix=1e14, fp32_vector=1e12))
HALF = {"dtype": "fp16", "engine": "matrix"}


def known(row, limit_byte=None, on=ONE_ENGINE):
    ops = add_costs(table(row))
    methods = add_workspace(method_costs(ops), ops["batch"], limit_byte)
    return ops, add_floors(methods, ops, on).set_index("method", drop=False)


def test_arithmetic_of_one_engine_adds_up_and_the_workspace_is_written_and_read():
    ops, found = known(LAYER)
    direct, quick = found.loc["direct"], found.loc["winograd_4"]
    assert direct["floor_s"] == direct["products_s"] == ops.at[0, "flop"] / 1e13
    assert (direct["transforms_s"], direct["workspace_byte"], direct["bound"]) == (0, 0, "compute")
    assert direct["memory_s"] == ops.at[0, "byte"] / 1e12
    # Products are a quarter; 4 samples of 7 × 7 tiles of 36 points for 64 + 64 channels, and 64 · 64 filters.
    assert quick["products_s"] == direct["products_s"] / 4
    assert quick["transforms_s"] == (quick["additions"] + quick["multiplications"]) / 1e13
    assert quick["workspace_byte"] == 4 * 36 * (4 * 49 * 128 + 64 * 64)
    assert quick["memory_s"] == (ops.at[0, "byte"] + 2 * quick["workspace_byte"]) / 1e12
    assert quick["floor_s"] == max(quick["products_s"] + quick["transforms_s"], quick["memory_s"])
    fused = found.loc["winograd_4_fused"]
    assert fused["workspace_byte"] == 4 * 36 * 64 * 64
    assert fused["floor_s"] == fused["products_s"] + fused["transforms_s"]


def test_transforms_run_beside_products_of_another_engine():
    _, found = known({**LAYER, **HALF}, on=TWO_ENGINES)
    fused = found.loc["winograd_2_fused"]
    assert fused["products_s"] == 2 * fused["multiply_adds"] / 1e14
    assert fused["transforms_s"] == (fused["additions"] + fused["multiplications"]) / 1e12
    assert fused["floor_s"] == fused["transforms_s"] > fused["products_s"]


@pytest.mark.parametrize(
    ("on", "lost"),
    [
        (machine(device(bandwidth=fact(1e12))), ["direct", "winograd_4"]),
        (machine(device(fp32_vector=1e13)), ["direct", "winograd_4"]),
        (machine(device(bandwidth=fact(1e12), fp16_matrix=1e14)), ["winograd_4", "fft"]),
    ],
    ids=["no peak", "no bandwidth", "no vector engine"],
)
def test_without_a_rate_there_is_no_floor(on, lost):
    row = {**LAYER, **HALF} if on.device.peak("fp16", "matrix") else LAYER
    _, found = known(row, on=on)
    assert found.loc[lost, "floor_s"].isna().all()
    assert (found.loc[lost, "bound"] == "").all()
    assert (found.loc[lost, "absent"] == "").all()
    if "direct" not in lost:
        assert found.at["direct", "floor_s"] > 0


def test_a_limit_takes_fewer_samples_at_once_and_leaves_out_what_one_sample_exceeds():
    _, free = known(LAYER)
    one = free.loc["winograd_4"]
    assert one["samples_at_once"] == 4
    _, tight = known(LAYER, one["fixed_byte"] + 2.5 * one["sample_byte"])
    assert tight.at["winograd_4", "samples_at_once"] == 2
    assert tight.at["winograd_4", "workspace_byte"] == one["fixed_byte"] + 2 * one["sample_byte"]
    # All samples pass through the workspace, in pieces or at once.
    assert tight.at["winograd_4", "memory_s"] == one["memory_s"]
    _, none = known(LAYER, 0.0)
    assert (none.loc[["direct", "implicit_gemm"], "absent"] == "").all()
    gone = none.drop(index=["direct", "implicit_gemm"])
    assert gone["absent"].str.startswith("more workspace than the limit for one sample: ").all()
    assert gone[["samples_at_once", "workspace_byte", "products_s", "memory_s", "floor_s"]].isna().all(axis=None)
    said = gone.at["winograd_4_fused", "absent"]
    assert said.endswith(f"{4 * 36 * 64 * 64 / 1024**2:.2f} MiB")


def test_the_best_is_the_lowest_and_the_first_of_equal_ones():
    strided = {**LAYER, "stride_h": 2.0, "stride_w": 2.0}
    ops = add_costs(table(LAYER, strided))
    methods = add_workspace(method_costs(ops), ops["batch"], None)
    found = add_floors(methods, ops, ONE_ENGINE)
    assert best_methods(found, "floor_s").tolist() == ["winograd_4_fused", "direct"]
    lowest = found.groupby("of")["floor_s"].min()
    chosen = found.set_index(["of", "method"])["floor_s"]
    assert [chosen[0, "winograd_4_fused"], chosen[1, "direct"]] == lowest.tolist()
    assert best_methods(methods, "flop").tolist() == ["winograd_4", "direct"]
    nothing = add_floors(methods, ops, machine(device()))
    assert best_methods(nothing, "floor_s").tolist() == ["", ""]


LESS = "Winograd or FFT needs less arithmetic, down to"
MORE = "more than boost clocks explain, even with the cheapest known algorithm,"


@pytest.mark.parametrize(
    ("kernel", "share", "reason"),
    [
        (3.0, 0.6, f"60% of the compute floor: {LESS} 25%"),
        (3.0, 0.1, f"10% of the compute floor: {MORE} 25% of the arithmetic"),
        (1.0, 0.95, "95% of the compute floor: boost clocks"),
        (1.0, 0.6, f"60% of the compute floor: {MORE} 100% of the arithmetic"),
    ],
)
def test_a_convolution_below_its_floor_says_whether_an_algorithm_explains_it(kernel, share, reason):
    row = conv(4.0, (512.0, 512.0), 28.0, kernel, pad_h=(kernel - 1) / 2, pad_w=(kernel - 1) / 2)
    costed = add_costs(table(row))
    own = {name: value for name, value in row.items() if name not in ("op", "count")}
    timing = timings({**own, "time_s": share * costed.at[0, "flop"] / 1e13})
    timed = add_times(costed, replace(ONE_ENGINE, timings=timing))
    assert timed.at[0, "evidence"].endswith(reason)


def test_methods_of_no_convolution_have_no_best():
    empty = pd.DataFrame({"of": [], "method": [], "flop": []})
    assert best_methods(empty, "flop").empty
    assert np.isnan(add_costs(table({**LAYER, "pass_name": "update"})).at[0, "least_flop"])
