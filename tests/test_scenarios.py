"""Many scenarios at once equal a loop of estimates on changed machines, in bounded memory."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from predict.machines import device, fact, timings
from predict.machines import machine as made

import fomkit
from fomkit.core.errors import FomkitError
from fomkit.core.machine import Fact, Machine, Overhead
from fomkit.core.model import OF_A_RUN, ModelProfile
from fomkit.ops.resize import resize_ops
from fomkit.plan.coverage import uses_of
from fomkit.plan.estimate import estimate
from fomkit.plan.op_tables import predict_ops
from fomkit.plan.options import Options, change_machine
from fomkit.plan.scenarios import RESULTS, blocks_of, prepare_study, scenarios
from fomkit.plan.step import _families, _pass_masks
from fomkit.prediction.cascade import time_ratio
from fomkit.profiles.evidence import with_fits


def facts(machine: Machine) -> dict[str, float]:
    """Each parameter's value as the profile states it."""
    device = machine.device
    known = {"byte_per_s": device.byte_per_s, "launch_s": device.launch_s}
    known |= {f"flop_per_s/{peak.dtype}/{peak.engine}": peak.rate for peak in device.peaks}
    assert set(known) == set(machine.parameters)
    return {name: fact.value for name, fact in known.items() if fact is not None}


def varied(machine: Machine, count: int) -> pd.DataFrame:
    random = np.random.default_rng(7)
    changed = {name: value * random.uniform(0.3, 3, count) for name, value in facts(machine).items()}
    return pd.DataFrame({"batch": random.integers(1, 300, count).astype(float), **changed})


# vgg16 has products and convolutions of the table, gpt2 parts of ops, the phone passes that nobody timed, titan
# facts only.
@pytest.mark.parametrize(
    ("model_name", "name"), [("vgg16", "v100"), ("gpt2", "v100"), ("alexnet", "iphone-7"), ("p1b3", "titan")]
)
@pytest.mark.parametrize("columns", ["batch", "machine", "both"])
def test_scenarios_are_a_loop_of_estimates(model_name: str, name: str, columns: str) -> None:
    model, machine = fomkit.model(model_name), fomkit.machine(name)
    # Tables of single kernels are widened by their use in a step, in a sweep as in an estimate.
    assert bool(uses_of(machine)) == (name != "titan")
    table = varied(machine, 4)
    names = [column for column in table.columns if column != "batch"]
    table = {"batch": table[["batch"]], "machine": table[names], "both": table}[columns]
    found = scenarios(prepare_study(model, with_fits(machine), Options(interval=0.7)), table)
    for at, line in table.iterrows():
        batch = int(line["batch"]) if "batch" in line else None
        changed = change_machine(machine, dict(line.drop("batch", errors="ignore"))) if len(line) > 1 else machine
        one = estimate(model, changed, Options(batch=batch, interval=0.7))
        spans = [one.step, one.step.per(one.sizes["batch"]), one.unit_per_day]
        wanted = [end for span in spans if span is not None for end in (span.value, span.low, span.high)]
        here = found.loc[at, list(RESULTS[: len(wanted)])].to_numpy(np.float64)
        np.testing.assert_allclose(here, wanted, rtol=1e-9)
    assert found[list(table.columns)].equals(table)


def test_scenarios_change_runs_scopes_and_overheads_as_estimates_do() -> None:
    model, machine = fomkit.model("p1b3"), fomkit.machine("v100")
    stated = (Overhead("checkpoint", "epoch", Fact(30.0, 20.0, 40.0, "measured", "here"), None),
              Overhead("queue", "run", None, Fact(0.1, 0.1, 0.1, "assumed", "here")),
              Overhead("input", "step", Fact(1e-3, 1e-3, 2e-3, "measured", "here"), None))  # fmt: skip
    machine = replace(machine, overheads=stated, node_devices=8, system_nodes=16, availability=0.9)
    table = pd.DataFrame({
        "batch": [100.0, 100.0, 50.0, 200.0], "epochs": [20.0, 5.0, 20.0, 7.0], "nodes": [16.0, 4.0, 8.0, 16.0],
        "node_devices": [8.0, 8.0, 4.0, 2.0], "availability": [0.9, 1.0, 0.5, 0.9],
        "train_samples": [800_121.0, 10_000.0, 800_121.0, 5_000.0],
        "overhead/epoch/checkpoint": [30.0, 0.0, 60.0, 10.0], "overhead/run/queue": [0.1, 0.2, 0.1, 0.0],
        "overhead/step/input": [1e-3, 0.5, 1e-3, 1e-6], "launch_s": [5e-6, 1e-6, 2e-5, 5e-6],
    })  # fmt: skip
    options = Options(scope="system")
    found = scenarios(prepare_study(model, with_fits(machine), options), table)
    for at, line in table.iterrows():
        of_machine = {name: value for name, value in line.items() if name not in (*OF_A_RUN, "batch")}
        one = estimate(model.with_run(line), change_machine(machine, of_machine),
                       replace(options, batch=int(line["batch"])))  # fmt: skip
        assert one.unit_per_day is not None
        wanted = [*one.step.ends, *one.step.per(one.sizes["batch"]).ends, *one.unit_per_day.ends]
        np.testing.assert_allclose(found.loc[at, list(RESULTS)].to_numpy(np.float64), wanted, rtol=1e-9)


def test_shapes_that_are_timed_some_at_a_time_are_the_same(monkeypatch) -> None:
    points = {"batch": [100.0, 30.0, 100.0, 7.0, 30.0], "epochs": [1.0, 1.0, 3.0, 1.0, 3.0]}
    at_once = fomkit.scenarios("p1b3", "v100", points)
    monkeypatch.setattr("fomkit.plan.scenarios.CELLS", 1)  # one shape, and one scenario, at a time
    pd.testing.assert_frame_equal(fomkit.scenarios("p1b3", "v100", points), at_once)


def test_a_point_that_cannot_be_is_told_and_the_others_are_not_lost() -> None:
    points = {"batch": [100.0, 7.5, 50.0, 1e7, 100.0], "epochs": [1.0, 1.0, 1.0, 1.0, -1.0]}
    found = fomkit.scenarios("p1b3", "v100", points)
    for place, batch in ((0, 100), (2, 50)):
        assert found["step_s"][place] == pytest.approx(fomkit.estimate("p1b3", "v100", batch=batch).step.value)
    assert found["step_s"].isna().tolist() == [False, True, False, True, True]
    assert found["why"][0] == found["why"][2] == ""
    assert "batch is 7.5. Expected a whole number" in found["why"][1]
    assert "a batch of 10,000,000 is more than the" in found["why"][3]
    assert "epochs is -1. Expected 0 or more" in found["why"][4]
    with pytest.raises(FomkitError, match=r"bath: is not a column of a scenario\..*batch"):
        fomkit.scenarios("p1b3", "v100", {"bath": [1.0]})


def test_scenarios_of_a_machine_that_is_a_change_of_another_are_its_estimates() -> None:
    model = fomkit.model("vgg16")
    machine = change_machine(fomkit.machine("v100"), {"byte_per_s": 2e12, "launch_s": 1e-6})
    assert machine.origin is not None
    found = scenarios(
        prepare_study(model, with_fits(machine), Options()),
        pd.DataFrame({"batch": [16.0, 64.0], "byte_per_s": [2e12, 1e12]}),
    )
    for batch, rate, step_s in zip((16, 64), (2e12, 1e12), found["step_s"], strict=True):
        one = estimate(model, change_machine(machine, {"byte_per_s": rate}), Options(batch))
        assert step_s == pytest.approx(one.step.value, rel=1e-9)


@pytest.mark.parametrize("precision", ["mixed", "fp32"])
def test_scenarios_of_a_restated_step(precision: str) -> None:
    model, machine, options = fomkit.model("p1b3"), fomkit.machine("v100"), Options(precision=precision)
    found = scenarios(prepare_study(model, with_fits(machine), options), pd.DataFrame({"batch": [7.0, 100.0]}))
    for batch, step_s in zip((7, 100), found["step_s"], strict=True):
        one = estimate(model, machine, Options(batch=batch, precision=precision))
        assert step_s == pytest.approx(one.step.value, rel=1e-9)


def test_a_machine_twice_as_good_takes_half_the_time_and_one_that_is_the_same_takes_the_same() -> None:
    model, machine = fomkit.model("vgg16"), fomkit.machine("v100")
    stated = facts(machine)
    built = estimate(model, machine, Options())
    same = estimate(model, change_machine(machine, stated), Options())
    twice = {name: value / 2 if name == "launch_s" else value * 2 for name, value in stated.items()}
    better = estimate(model, change_machine(machine, twice), Options())
    assert change_machine(machine, stated) is machine  # a fact restated with its own value changes nothing
    pd.testing.assert_frame_equal(same.ops, built.ops)
    np.testing.assert_allclose(better.ops["time_s"], built.ops["time_s"] / 2, rtol=1e-12)
    # Nobody timed anything on a machine that nobody built.
    of_table = ("measured", "interpolated", "extrapolated")
    assert built.coverage["measured"] > 0
    assert same.coverage == built.coverage
    assert not any(better.coverage[name] for name in of_table)
    assert better.coverage["transferred"] == pytest.approx(sum(built.coverage[name] for name in of_table))
    assert better.ops["evidence"].str.contains("as built").all()


@pytest.mark.parametrize("machine", ["t4", "v100-pcie-32gb"])
def test_a_tiny_change_of_a_machine_changes_an_interval_by_as_little(machine: str) -> None:
    """All times of a changed machine are called transferred, but err together as those of the machine as built."""
    built = fomkit.machine(machine)
    byte_per_s = built.device.byte_per_s.value * 1.0001
    step = fomkit.estimate("googlenet", built, precision="fp32").step
    changed = fomkit.estimate("googlenet", built.with_(bandwidth=byte_per_s), precision="fp32").step
    assert changed.ends == pytest.approx(step.ends, rel=2e-4)
    row = fomkit.scenarios("googlenet", built, {"byte_per_s": [byte_per_s]}, precision="fp32").iloc[0]
    assert [row["step_s"], row["step_s_low"], row["step_s_high"]] == pytest.approx(changed.ends, rel=1e-9)


@pytest.mark.parametrize("name", ["mi300x", "v100", "h100-sxm"])
def test_no_op_takes_longer_with_a_higher_rate(name: str) -> None:
    """By facts, tables and parts: each op keeps its utilisation, and floors fall with each rate."""
    from golden.frozen_ops import ops

    built, table = fomkit.machine(name), ops()[0].iloc[::4].reset_index(drop=True)
    before = predict_ops(table, with_fits(built)).ops["time_s"]
    rates = [one for one in facts(built) if one != "launch_s"]
    for change in (
        *({one: facts(built)[one] * 1.3} for one in rates),
        {one: facts(built)[one] * 2 for one in rates},
    ):
        after = predict_ops(table, with_fits(built.with_(change))).ops["time_s"]
        assert (after / before).max() <= 1 + 1e-9, change


def test_what_was_measured_is_modelled_on_a_changed_machine() -> None:
    machine = fomkit.machine("x86-lecture")
    found = fomkit.scenarios("p1b3-lecture", machine, {"batch": [100.0]})
    assert found["basis"].tolist() == ["measured"]
    machine, model = fomkit.machine("v100"), fomkit.model("p1b3")
    found = scenarios(prepare_study(model, with_fits(machine), Options()), pd.DataFrame({"launch_s": [5e-6]}))
    assert found["basis"].tolist() == ["modelled"]


def test_a_change_of_a_change_starts_from_the_machine_as_built() -> None:
    machine, model = fomkit.machine("v100"), fomkit.model("vgg16")
    once = change_machine(machine, {"byte_per_s": 5e11, "launch_s": 2e-6})
    twice = change_machine(change_machine(machine, {"byte_per_s": 5e11}), {"launch_s": 2e-6})
    assert estimate(model, once, Options()).step == estimate(model, twice, Options()).step


def test_launches_scale_with_their_cost_and_kernels_with_their_floor() -> None:
    time_s, starts_s, floor_s = np.array([10.0, 10.0, 3.0]), np.array([2.0, 20.0, 3.0]), np.array([4.0, 4.0, 4.0])
    # Kernels show two fifths of what their launches cost: 0.8 of 10, 8 of 10, 1.2 of 3.
    np.testing.assert_allclose(time_ratio(time_s, starts_s, floor_s, floor_s / 2, 1.0), [0.54, 0.9, 0.7])
    np.testing.assert_allclose(time_ratio(time_s, starts_s, floor_s, floor_s, 0.0), [0.92, 0.2, 0.6])
    unknown = np.full(3, np.nan)
    np.testing.assert_allclose(time_ratio(time_s, starts_s, unknown, unknown, 2.0), [1.08, 1.8, 1.4])


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"bandwidth": [1e9]}, "'bandwidth' is not a parameter"),
        ({"byte_per_s": [0.0]}, "byte_per_s is 0"),
        ({"byte_per_s": [np.inf]}, "missing or infinite values"),
        ({"batch": [2.5]}, "batch is 2.5. Expected a whole number"),
        ({"batch": [0.0]}, "Expected a whole number of 1 or more"),
        ({"batch": [1e9]}, "more than the"),
    ],
)
def test_what_is_no_scenario_is_refused(columns: dict[str, list[float]], said: str) -> None:
    study = prepare_study(fomkit.model("p1b3"), with_fits(fomkit.machine("v100")), Options())
    with pytest.raises(FomkitError, match=said):
        list(blocks_of(study, pd.DataFrame(columns)))


def test_a_scenario_of_many_in_which_nothing_runs_has_no_step() -> None:
    model = fomkit.model("p1b3")
    idle = replace(model, ops=model.ops.assign(count="batch - 1"))
    found = fomkit.scenarios(idle, "titan", pd.DataFrame({"batch": [8.0, 1.0, 2.0]}))
    assert found["step_s"].isna().tolist() == [False, True, False]


def test_no_scenarios_are_an_empty_table() -> None:
    table = pd.DataFrame({"byte_per_s": np.empty(0)})
    found = fomkit.scenarios("p1b3", "titan", table)
    assert len(found) == 0
    assert {*RESULTS, "basis"} <= set(found.columns)


@pytest.mark.slow
def test_sixty_thousand_scenarios_stay_in_bounded_memory() -> None:
    model, machine = fomkit.model("p1b3"), fomkit.machine("titan")
    table = varied(machine, 60_000).drop(columns="launch_s")
    table["batch"] = 1.0 + np.arange(len(table)) % 100
    tracemalloc.start()
    met = np.zeros(len(table), bool)
    for block in blocks_of(prepare_study(model, with_fits(machine), Options()), table):
        met[block.index] = True
        assert len(block) <= 20_000
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert met.all()
    assert peak < 110e6


def lstm() -> ModelProfile:
    """Two LSTM layers over 16 steps and a head, with what their backward passes do; its sizes are expressions."""
    shared = {"dtype": "fp32", "engine": "vector", "count": 1.0, "module": "", "code_line": ""}
    layer = {"kind": "rnn", "cell": "lstm", "batch": "batch", "steps": "seq", "input_size": 256.0,
             "hidden_size": 512.0, "layers": 2.0, "directions": 1.0}  # fmt: skip
    head = {"kind": "gemm", "op": "mm", "b": 1.0, "n": 1000.0, "k": 512.0, "trans_a": 0.0, "trans_b": 1.0}
    rows = [
        {**layer, "op": "lstm", "pass_name": "forward"},
        {**layer, "op": "lstm_backward", "pass_name": "backward"},
        {**head, "pass_name": "forward", "m": "batch*seq"},
        {"op": "gelu", "kind": "pointwise", "pass_name": "forward", "numel": "512*batch*seq", "inputs": 1.0,
         "read_byte": "2048*batch*seq", "write_byte": "2048*batch*seq"},
        {"kind": "optimizer", "op": "adam", "pass_name": "update", "rule": "adam", "impl": "foreach",
         "numel": 5_000_000.0, "tensors": 10.0},
    ]  # fmt: skip
    base = fomkit.model("p1b3")
    ops = pd.DataFrame([{**shared, **row} for row in rows])
    return replace(base, name="lstm", ops=ops, order=None, layers=None, parts=base.parts.iloc[:0],
                   sizes={"batch": 16, "seq": 16})  # fmt: skip


# The two boards time recurrences, on one their engines are another one; titan has facts only.
@pytest.mark.parametrize(("name", "precision"), [("v100", None), ("p100", "mixed"), ("titan", None)])
def test_scenarios_of_recurrent_layers_are_a_loop_of_estimates(name: str, precision: str | None) -> None:
    model, machine, options = lstm(), fomkit.machine(name), Options(precision=precision, allow_uncovered=True)
    points = pd.DataFrame({"batch": [1.0, 3.0, 16.0, 100.0, 16.0], "seq": [1.0, 25.0, 16.0, 7.0, 64.0]})
    points["launch_s"] = [5e-6, 1e-6, 5e-6, 2e-5, 1e-6] if name == "titan" else 5e-6
    found = scenarios(prepare_study(model, with_fits(machine), options), points)
    for at, line in points.iterrows():
        changed = change_machine(machine, {"launch_s": line["launch_s"]})
        one = estimate(
            model, changed, replace(options, sizes={"batch": int(line["batch"]), "seq": int(line["seq"])})
        )
        assert one.unit_per_day is not None
        wanted = [*one.step.ends, *one.step.per(one.sizes["batch"]).ends, *one.unit_per_day.ends]
        # Ends of intervals hang on distances, which come from products of matrices of other sizes.
        np.testing.assert_allclose(found.loc[at, list(RESULTS)].to_numpy(np.float64), wanted, rtol=1e-11)


def test_many_batches_at_once_take_what_a_few_do_to_the_last_digit() -> None:
    """Many batches are predicted by polynomials; without exact recomputation a step would be off by 1e-11."""
    study = prepare_study(fomkit.model("vgg16"), with_fits(fomkit.machine("p100")), Options())
    points = pd.DataFrame({"batch": np.arange(64.0, 700.0)})
    whole = scenarios(study, points)
    few = pd.concat([scenarios(study, points[start : start + 40]) for start in range(0, len(points), 40)])
    names = ["step_s", "step_s_low", "step_s_high"]
    np.testing.assert_allclose(whole[names], few[names], rtol=1e-12)


@pytest.mark.parametrize(
    ("model", "machine"),
    [("vgg16", "v100"), ("resnet50", "v100"), ("gpt2", "v100"), ("candle/p3b1", "p100"),
     ("llama3-8b-decode", "h100-sxm")],
)  # fmt: skip
def test_a_point_is_the_same_alone_and_among_others(model: str, machine: str) -> None:
    """Where only some variants of a block were compared, intervals of ops that are equal by chance differed."""
    study = prepare_study(fomkit.model(model), with_fits(fomkit.machine(machine)), Options())
    points = pd.DataFrame({"batch": np.arange(1.0, 701.0)})
    whole = scenarios(study, points)
    for part in ([0], [7], [10], [15], [599], [*range(33)], [*range(620, 660)]):
        few = scenarios(study, points.iloc[part])
        for name in (*RESULTS, "shared"):
            np.testing.assert_allclose(few[name], whole[name].iloc[part], rtol=1e-12)


def test_a_launch_cost_varies_on_a_machine_of_whose_rates_nobody_knows_any() -> None:
    """For each launch cost, the step equals an estimate of the machine with that cost and is a number."""
    machine = fomkit.machine("p100")
    products = machine.timings[machine.timings["kind"] == "gemm"]  # a fit of these alone takes a quarter as long
    bare = replace(
        machine,
        device=replace(machine.device, peaks=(), byte_per_s=None),
        timings=products,
        timings_key="",
        fits={},
    )
    model, options = fomkit.model("candle/p1b3"), Options(allow_uncovered=True)
    study = prepare_study(model, with_fits(bare), options)
    found = scenarios(study, pd.DataFrame({"launch_s": [2e-6, 5e-6, 2e-5]}))
    for launch, step in zip(found["launch_s"], found["step_s"], strict=True):
        again = estimate(model, change_machine(bare, {"launch_s": launch}), options).step.value
        assert step == pytest.approx(again, rel=1e-12)


def test_a_timing_of_the_very_op_stays_where_nobody_knows_a_rate() -> None:
    model, options = fomkit.model("candle/p1b3"), Options(allow_uncovered=True)
    products = resize_ops(model.ops.query("kind == 'gemm'"), model.sizes, "p1b3")
    rows = products[["kind", "dtype", "engine", "b", "m", "n", "k"]].drop_duplicates().head(3).to_dict("records")
    lone = made(device(fact(5e-6)), timings(*({**row, "time_s": 1e-3} for row in rows)))
    found = scenarios(prepare_study(model, with_fits(lone), options), pd.DataFrame({"launch_s": [2e-6, 2e-5]}))
    for launch, step in zip(found["launch_s"], found["step_s"], strict=True):
        again = estimate(model, change_machine(lone, {"launch_s": launch}), options).step.value
        assert step == pytest.approx(again, rel=1e-12)


def test_a_model_whose_sizes_are_all_numbers_is_estimated() -> None:
    from fomkit.ops.resize import resize_ops

    model = fomkit.model("alexnet")
    fixed = replace(
        model, ops=resize_ops(model.ops, model.sizes, "alexnet"), sizes={}, order=None, parts=model.parts.iloc[:0]
    )
    one, known = (estimate(each, fomkit.machine("v100"), Options()) for each in (fixed, model))
    assert one.step.value == pytest.approx(known.step.value, rel=1e-12)


def test_a_machine_with_stated_facts_is_the_machine_of_a_scenario_and_says_so() -> None:
    built = fomkit.machine("v100")
    faster = built.with_({"flop_per_s/fp32/vector": "20 TFLOP/s"}, bandwidth="1.2 TB/s", launch=4e-6, name="mine")
    one = fomkit.estimate("resnet50", faster)
    point = {"byte_per_s": [1.2e12], "launch_s": [4e-6], "flop_per_s/fp32/vector": [2e13]}
    found = fomkit.scenarios("resnet50", built, point)
    np.testing.assert_allclose(
        found.loc[0, ["step_s", "step_s_low", "step_s_high"]].to_list(), one.step.ends, 1e-9
    )
    assert one.machine.name == "mine"
    assert one.coverage["measured"] == one.coverage["interpolated"] == 0 < one.coverage["transferred"]
    assert [note for note in one.deviations if note.startswith("stated by you: with_(")] == list(faster.notes[-1:])
    assert "timings of v100 as built are rescaled" in one.deviations[-1]
    assert built == fomkit.machine("v100")
    assert built.device.byte_per_s is not None
    assert built.device.byte_per_s.value == 9e11


def test_what_was_measured_of_a_machine_is_not_joined_to_one_with_stated_facts() -> None:
    built = fomkit.machine("v100")
    faster = built.with_(bandwidth="1.2 TB/s")
    assert (faster.name, faster.with_(launch="4 us").name) == ("v100-as-stated", "v100-as-stated")
    assert (faster.device_of, built.with_(title="ours").name) == ("v100", "v100")


def test_a_fact_stated_with_the_value_that_it_has_changes_nothing() -> None:
    built = fomkit.machine("v100")
    rate = {"flop_per_s/fp32/vector": "15.7 TFLOP/s"}
    assert built.with_(rate, bandwidth="900 GB/s", launch=5e-6, capacity="16 GiB", name="v100") is built
    more = built.with_(bandwidth="900 GB/s", nodes=3)
    assert (more.notes[-1], more.origin, more.device) == ("stated by you: with_(nodes=3)", None, built.device)
    faster = built.with_(bandwidth="1.2 TB/s", capacity="1 GiB")
    assert faster.with_(bandwidth="1.2 TB/s") is faster
    assert faster.origin == built.device


def test_stated_capacity_and_counts_move_no_time() -> None:
    built = fomkit.machine("v100")
    small = built.with_(capacity="1 GiB", node_devices=4, nodes=2, availability="90 %")
    one = fomkit.estimate("resnet50", small, scope="system")
    assert one.step == fomkit.estimate("resnet50", built).step
    assert one.fit.fits is False
    assert (one.runs_at_once, small.availability) == (8, 0.9)


def test_a_stated_machine_survives_its_file(tmp_path) -> None:
    faster = fomkit.machine("v100").with_(bandwidth="1.2 TB/s", name="mine")
    fomkit.save(faster, tmp_path / "mine.yaml")
    again = fomkit.estimate("p1b3", tmp_path / "mine.yaml")
    assert any(note.startswith("stated by you: with_(bandwidth") for note in again.deviations)
    assert again.coverage["measured"] == 0


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        (
            {"bandwith": "1 TB/s"},
            "with_(bandwith=…): is not a fact that can be stated. The nearest name is 'bandwidth'.",
        ),
        ({"bandwidth": "1.2"}, "with_: bandwidth is '1.2', which has no unit. Write, for example, '900 GB/s'."),
        (
            {"bandwidth": 0},
            "with_: bandwidth is 0. Give a value above 0: text such as '900 GB/s', or a number in SI units.",
        ),
        ({"launch": 0}, "with_: launch is 0. Give a value above 0: text such as '5 us', or a number in SI units."),
        (
            {"host": "0 s"},
            "with_: host is '0 s'. Give a value above 0: text such as '5 us', or a number in SI units.",
        ),
        ({"nodes": 1.5}, "with_: nodes is 1.5. Give a whole number of 1 or more."),
        (
            {"launch": True},
            "with_: launch is True. Give a value above 0: text such as '5 us', or a number in SI units.",
        ),
        (
            {"availability": 1.2},
            "with_: availability is 1.2. Give a value above 0 and at most 1: text such as '2 %', "
            "or a number in SI units.",
        ),
        (
            {"availability": 0},
            "with_: availability is 0. Give a value above 0 and at most 1: text such as '2 %', "
            "or a number in SI units.",
        ),
        (
            {"capacity": 0},
            "with_: capacity is 0. Give a value above 0: text such as '16 GiB', or a number in SI units.",
        ),
        ({"name": " "}, "with_: name is ' '. Give a text of one line."),
        ({"title": "a\nb"}, "with_: title is 'a\\nb'. Give a text of one line."),
        ({"nodes": np.True_}, "with_: nodes is np.True_. Give a whole number of 1 or more."),
        (
            {"bandwidth": 1j},
            "with_: bandwidth is 1j. Give a value above 0: text such as '900 GB/s', or a number in SI units.",
        ),
        ({"nodes": np.arange(2)}, "with_: nodes is array([0, 1]). Give a whole number of 1 or more."),
        ({"nodes": 10**400}, "with_: nodes is a number far too large. Give a whole number of 1 or more."),
        ({"nodes": 10**5000}, "with_: nodes is a number far too large. Give a whole number of 1 or more."),
        (
            {"bandwidth": "1 TB/s", "byte_per_s": 2e12},
            "with_: 'bandwidth' and 'byte_per_s' are the same fact. State it once.",
        ),
    ],
)
def test_what_cannot_be_stated_of_a_machine_is_one_message(stated, message) -> None:
    with pytest.raises(FomkitError) as caught:
        fomkit.machine("v100").with_(**stated)
    assert str(caught.value) == message


@pytest.mark.parametrize("noun", ["machine", "model"])
def test_what_is_stated_by_position_is_a_mapping(noun: str) -> None:
    whole = {"machine": fomkit.machine("v100"), "model": fomkit.model("p1b3")}[noun]
    for wrong in ("x", 3, {1: 2}, ["nodes"]):
        with pytest.raises(FomkitError, match="is not a mapping of facts by name"):
            whole.with_(wrong)
    with pytest.raises(FomkitError, match="'title' and 'title' are the same fact"):
        whole.with_({"title": "a"}, title="b")
    assert whole.with_() is whole
    assert whole.with_({"title": "ours"}).title == "ours"


def test_what_is_stated_again_is_one_note_of_all_of_it() -> None:
    built, model = fomkit.machine("v100"), fomkit.model("p1b3")
    mine = built.with_(bandwidth="1 TB/s", name="mine")
    again = mine.with_(launch="4 us", nodes=2).with_(byte_per_s=1.5e12)
    carried = "timings of v100 as built are rescaled, each op at the same utilisation"
    assert again.notes[: len(built.notes)] == built.notes
    assert again.notes[len(built.notes) :] == (
        f"stated by you: with_(byte_per_s=1500000000000.0, launch='4 us', nodes=2); {carried}",
    )
    assert again.device.launch_s is not None
    assert again.device.launch_s.source == "stated by you: with_(launch='4 us')"
    longer = model.with_(epochs=2).with_(train_samples=500).with_(epochs=3)
    assert longer.notes == (*model.notes, "stated by you: with_(epochs=3, train_samples=500)")


def test_a_model_with_another_run_says_so_and_sizes_stay_with_the_estimate() -> None:
    model = fomkit.model("p1b3")
    short = fomkit.estimate(model.with_(epochs=2, validation_samples=0), "v100")
    assert short.deviations[0] == "stated by you: with_(epochs=2, validation_samples=0)"
    assert (short.model.run.epochs, short.model.data.train_samples) == (2, model.data.train_samples)
    wrong = {"batch": 8, "epoch": 8, "epochs": 0}
    told = (
        "is chosen at each estimate",
        "The nearest name is 'epochs'",
        "epochs is 0. Give a whole number of 1",
    )
    for stated, message in zip(wrong.items(), told, strict=True):
        with pytest.raises(FomkitError, match=message):
            model.with_(**dict([stated]))


@pytest.mark.parametrize("name", ["vgg16", "resnet50"])
def test_ops_that_one_formula_prices_stand_beside_each_other(name: str) -> None:
    study = prepare_study(fomkit.model(name), with_fits(fomkit.machine("v100")), Options())
    groups = study.step.ops.groups
    assert len(groups) > 5
    assert {type(group.rows) for group in groups} == {slice}
    assert study.step.rows["kind"].tolist() == list(study.step.kinds_and_passes[0])
    assert sum(len(group.products) for group in groups) == len(study.step.rows)


def test_the_words_of_a_step_are_looked_at_once_for_all_its_sizes() -> None:
    model, machine = fomkit.model("vgg16"), fomkit.machine("v100")
    estimate(model, machine, Options(batch=30))
    before = _pass_masks.cache_info(), _families.cache_info()
    estimate(model, machine, Options(batch=31))
    after = _pass_masks.cache_info(), _families.cache_info()
    assert [one.misses for one in after] == [one.misses for one in before]
    assert all(one.hits > two.hits for one, two in zip(after, before, strict=True))
