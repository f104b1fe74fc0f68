"""Recurrent layers: as library calls where the machine timed them, else as their parts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from costs.op_tables import gemm, rnn, table
from predict.machines import device, fact, machine

from fomkit.ops.pricing import add_costs, recurrent_calls, split_recurrent
from fomkit.prediction import interpolate
from fomkit.prediction.calibration import fit_timings
from fomkit.prediction.cascade import add_times
from fomkit.prediction.composed import AT_ONCE, WALKED
from fomkit.prediction.families import FamilyName, training_rows

LAYER = {"input_size": 200.0, "layers": 2.0, "directions": 2.0}


@pytest.mark.parametrize("pass_name", ["forward", "backward", "backward_input", "backward_weight"])
@pytest.mark.parametrize("cell", ["vanilla", "lstm", "gru"])
def test_calls_do_the_work_of_the_layer(cell, pass_name):
    ops = add_costs(table(gemm(2, 2, 2), rnn(cell, 32, 35, 650, pass_name=pass_name, **LAYER)))
    calls = split_recurrent(ops)
    assert set(calls["of"]) == {1}
    assert (calls["flop"] * calls["count"]).sum() == pytest.approx(ops["flop"].iloc[1])
    recurrent = calls[calls["kind"] == "rnn"]
    assert (recurrent["count"] == 4).all()
    assert set(recurrent["pass_name"]) == ({pass_name} if "_" in pass_name or pass_name == "forward" else {
        "backward_input", "backward_weight",
    })  # fmt: skip


def test_a_table_without_recurrent_rows_has_no_calls():
    assert split_recurrent(add_costs(table(gemm(2, 2, 2)))).empty
    assert split_recurrent(add_costs(table(rnn("mgu", 2, 2, 2)))).empty


def test_a_product_that_never_runs_still_has_a_size():
    """A first layer's input gradient has no input product; its row stays in a plan over many sizes."""
    ops = add_costs(table(rnn("lstm", 32, 35, 650, pass_name="backward_input")))
    features = np.array([0.0, 200.0])
    products = [call for call in recurrent_calls({**ops.iloc[0].to_dict(), "input_size": features}) if "m" in call]
    assert [np.asarray(call["count"]).tolist() for call in products] == [[0.0, 1.0], 0.0]
    assert all((np.asarray(call[side]) > 0).all() for call in products for side in ("m", "n", "k"))


def test_a_timed_recurrence_is_used_with_the_products_of_its_input(v100):
    ops = add_costs(table(rnn("lstm", 16, 25, 512, input_size=512.0)))
    calls = split_recurrent(ops)
    timed = add_times(ops, v100, calls=calls)
    alone = add_times(calls.drop(columns="of"), v100)
    assert alone["time_source"].iloc[0] == "measured"
    assert alone["time_source"].iloc[1] in ("interpolated", "extrapolated")
    assert alone["time_s"].iloc[0] == 1.095e-3
    assert timed.at[0, "time_s"] == pytest.approx(alone["time_s"].sum())
    assert timed.at[0, "time_source"] == alone["time_source"].iloc[1]
    assert timed.at[0, "evidence"].startswith("sum of 2 parts; longest part op: DeepBench_NV_V100.xlsx")


def test_the_backward_pass_is_both_gradients(v100):
    ops = add_costs(table(rnn("lstm", 16, 25, 512, pass_name="backward")))
    timed = add_times(ops, v100, calls=split_recurrent(ops))
    assert timed.at[0, "time_s"] == pytest.approx(0.937e-3 + 0.165e-3)
    assert timed.at[0, "time_source"] == "measured"


def test_without_timings_of_recurrences_the_parts_are_added():
    known = machine(device(fact(5e-6), fact(1e12), fp32_vector=1e13))
    ops = add_costs(table(rnn("lstm", 16, 25, 512, input_size=512.0)))
    parts = add_costs(table(gemm(16, 2048, 1024, count=25.0))).assign(of=0)
    calls = split_recurrent(ops)
    timed = add_times(ops, known, parts=parts, calls=calls)
    assert timed.at[0, "evidence"].startswith("sum of 25 parts")
    evidence = add_times(ops, known, calls=calls).at[0, "evidence"]
    assert evidence.endswith("1 launch of 5.0 µs, 2.0 µs of it visible")


LAUNCH_S = 5e-6


def untimed(**more):
    """Return a device with stated processors and without timings."""
    of = device(fact(LAUNCH_S), fact(1e12), fp32_vector=1e13, **more)
    return machine(replace(of, units=fact(80.0), cache_byte=fact(6e6)))


@pytest.mark.parametrize(
    ("pass_name", "product", "runs", "launches"),
    [
        ("forward", gemm(16, 2048, 512, trans_a=0.0, trans_b=1.0), 25, WALKED[0]),
        ("backward_input", gemm(16, 512, 2048, trans_a=0.0, trans_b=0.0), 25, WALKED[0]),
        ("backward_weight", gemm(2048, 512, 16 * 25, trans_a=1.0, trans_b=0.0), 1, AT_ONCE[0]),
    ],
)
def test_a_recurrence_that_nobody_timed_is_its_products_and_launches(pass_name, product, runs, launches):
    """The steps run in sequence; the weights' gradient is one product over all steps."""
    ops = add_costs(table(rnn("lstm", 16, 25, 512, pass_name=pass_name), {**product, "pass_name": pass_name}))
    timed = add_times(ops, untimed())
    assert timed.at[0, "time_s"] == pytest.approx(runs * (timed.at[1, "time_s"] + launches * LAUNCH_S))
    assert timed.at[0, "low_s"] < timed.at[0, "time_s"] < timed.at[0, "high_s"]
    assert timed.at[0, "time_source"] == timed.at[1, "time_source"] == "roofline"
    assert timed.at[0, "evidence"].startswith(f"{runs} × {launches:g} launches and a product (")
    assert timed.at[0, "bound"] == ("launch" if runs > 1 else "compute")


def test_wider_levels_have_wider_intervals_of_recurrences():
    ops = add_costs(table(rnn("gru", 16, 25, 512)))
    narrow, wide = (add_times(ops, untimed(), interval=level).iloc[0] for level in (0.8, 0.95))
    assert narrow["time_s"] == wide["time_s"]
    assert np.log(narrow["high_s"] / narrow["time_s"]) == pytest.approx(WALKED[2])
    assert np.log(narrow["time_s"] / narrow["low_s"]) == pytest.approx(WALKED[1])
    assert wide["low_s"] < narrow["low_s"] < narrow["high_s"] < wide["high_s"]


def test_a_layer_is_library_calls_where_kernels_start_on_processors():
    """The input product is one product over all steps; if processors are not stated, the parts are summed."""
    ops = add_costs(table(rnn("lstm", 16, 25, 512, input_size=512.0)))
    parts = add_costs(table(gemm(16, 2048, 1024, count=25.0))).assign(of=0)
    calls = split_recurrent(ops)
    known = untimed()
    timed, alone = add_times(ops, known, parts=parts, calls=calls), add_times(calls.drop(columns="of"), known)
    assert timed.at[0, "time_s"] == pytest.approx(alone["time_s"].sum())
    bare = replace(known, device=replace(known.device, units=None))
    assert add_times(ops, bare, parts=parts, calls=calls).at[0, "evidence"].startswith("sum of 25 parts")


def test_the_products_of_a_layer_are_in_its_own_format():
    """PyTorch lets cuDNN round fp32 layers to tf32, whatever the products of other ops are."""
    known = untimed(tf32_matrix=1e14)
    wide = rnn("lstm", 128, 25, 4096, input_size=4096.0)
    ops = add_costs(table(wide, {**wide, "dtype": "tf32", "engine": "matrix"}))
    parts = add_costs(table(gemm(128, 16384, 4096, count=50.0))).assign(of=[1])
    timed = add_times(ops, known, parts=parts, calls=split_recurrent(ops))
    assert timed.at[1, "time_s"] < timed.at[0, "time_s"] / 2


@pytest.mark.parametrize("pass_name", ["forward", "backward_input", "backward_weight"])
def test_one_step_is_no_long_call(pass_name, v100):
    """DeepBench's only call of one step, from the calls of 25 steps and more and of other hidden sizes."""
    timings = add_costs(v100.timings[v100.timings["kind"] == "rnn"])
    rows = training_rows(timings, FamilyName("rnn", "fp32", "vector", pass_name))
    one = rows[(rows["steps"] == 1).to_numpy()].reset_index(drop=True)
    known = rows[(rows["hidden_size"] != 512).to_numpy()].reset_index(drop=True)
    knowing = replace(v100, timings=known, fits=fit_timings(known))
    timed = interpolate.estimate(one, knowing, 0.8)[0]
    assert abs(np.log(timed.time_s / one["_time_s"].iloc[0])) < np.log(2.5)
    assert timed.time_source == "extrapolated"


@pytest.mark.parametrize("pass_name", ["forward", "backward_input"])
def test_steps_cost_alike_from_the_first_on(pass_name, v100):
    ops = add_costs(table(*(rnn("gru", 32, steps, 768, pass_name=pass_name) for steps in (1.0, 10.0, 100.0))))
    times = interpolate.estimate(ops, v100, 0.8)
    one, ten, hundred = (times[index].time_s for index in range(3))
    assert one < ten < hundred
    assert one < 4 * hundred / 100
