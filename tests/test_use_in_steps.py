"""The error that use in a step adds to single kernels: where it applies, and what it is fitted to."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import fomkit
from fomkit.core.machine import Device, Machine
from fomkit.plan.coverage import (
    OTHER_MAKER,
    OTHER_MAKER_USES,
    SAME_SOFTWARE,
    STEP,
    USES,
    VERSIONS_SPREAD,
    Spread,
    Use,
    uses_of,
    widen_calls,
)
from fomkit.plan.evidence import steps_if_timed
from fomkit.plan.op_tables import predict_ops
from fomkit.plan.step import device_time, roll_up_step
from fomkit.profiles.evidence import with_fits
from fomkit.profiles.machines import load_machine
from fomkit.validation.graphs import LabelFolder, shipped_labels
from fomkit.validation.labels import whole_over_calls
from fomkit.validation.neusight import OWN, compare_labels, fit_uses, known_calls, known_wholes
from fomkit.workbook.from_studies import sheet_model_of_comparison
from fomkit.workbook.records import evaluate

Z = 1.2815515655446004
USE = {"library": Use(Spread(0.1, 0.2), Spread(0.05, 0.1))}


def timed(source: str = "interpolated", kind: str = "gemm") -> pd.DataFrame:
    common = {
        "op": "mm",
        "kind": kind,
        "pass_name": "forward",
        "launches": 1.0,
        "bound": "compute",
        "dtype": "fp32",
    }
    return pd.DataFrame(
        {"count": [2.0, 3.0], "time_s": [1.0, 2.0], "low_s": [1.0, 2.0], "high_s": [1.0, 2.0]}
    ).assign(**common, time_source=source)


def machine(*harnesses: str) -> Machine:
    return Machine("m", "m", "lab", Device(), pd.DataFrame({"harness": pd.Series(harnesses, dtype="str")}))


def test_a_call_is_as_wide_as_one_call_and_a_sum_as_all_of_them():
    call = widen_calls(timed(), USE, 0.8).iloc[1]
    assert (call["low_s"], call["high_s"]) == pytest.approx((2 * math.exp(-Z * 0.1), 2 * math.exp(Z * 0.2)))
    whole = device_time(timed(), 0.8, USE)
    assert (whole.value, whole.low, whole.high) == pytest.approx(
        (8.0, 8 * math.exp(-Z * 0.05), 8 * math.exp(Z * 0.1))
    )


@pytest.mark.parametrize(("source", "kind"), [("roofline", "gemm"), ("interpolated", "collective")])
def test_what_rests_on_no_table_or_on_links_stays_as_it_is(source, kind):
    rows = timed(source, kind)
    pd.testing.assert_frame_equal(widen_calls(rows, USE, 0.8), rows)
    assert device_time(rows, 0.8, USE) == device_time(rows, 0.8)


@pytest.mark.parametrize("seconds", [0.0, math.nan])
def test_what_takes_no_time_or_has_none_stays_as_it_is(seconds):
    rows = timed().assign(time_s=seconds, low_s=seconds, high_s=seconds)
    pd.testing.assert_frame_equal(widen_calls(rows, USE, 0.8), rows)


def test_a_step_as_a_whole_is_widened_where_any_of_it_rests_on_a_table():
    """This includes the part predicted from facts; steps from facts alone and exchanges are not widened."""
    use = {**USE, STEP: Use(Spread(0.0, 0.0), Spread(0.03, 0.04))}
    mixed = pd.concat([timed(), timed("roofline", "norm")], ignore_index=True)
    whole = device_time(mixed, 0.8, use)
    below = math.hypot(8 * (1 - math.exp(-Z * 0.05)), 16 * (1 - math.exp(-Z * 0.03)))
    above = math.hypot(8 * (math.exp(Z * 0.1) - 1), 16 * (math.exp(Z * 0.04) - 1))
    assert (whole.value, whole.low, whole.high) == pytest.approx((16.0, 16 - below, 16 + above))
    assert whole.shared == 0.0  # lines of a suite do not share it
    for source, kind in (("roofline", "gemm"), ("interpolated", "collective")):
        assert device_time(timed(source, kind), 0.8, use) == device_time(timed(source, kind), 0.8)


def test_only_tables_of_benchmarks_are_widened():
    assert uses_of(machine("DeepBench", "DeepBench all-reduce")) is USES
    assert uses_of(machine("aiconfigurator", "nccl-tests")) is USES
    for harnesses in (("tfprof",), ("DeepBench", "own"), ()):
        assert uses_of(machine(*harnesses)) == {}


def test_a_step_with_the_tables_software_has_no_error_between_versions():
    columns = {"kind": "gemm", "harness": "DeepBench", "library": ["cuBLAS", "cuDNN"]}
    rows = pd.DataFrame({**columns, "library_version": ["CUDA 10.1", "7.6; CUDA 10.1"]})
    known = replace(machine(), timings=rows)
    for software, uses in (("CUDA 10.1", SAME_SOFTWARE), ("CUDA 10.2", USES), ("cuDNN 7.6", USES), ("", USES)):
        assert uses_of(replace(known, software=software)) is uses
    links = pd.DataFrame({**columns, "kind": ["gemm", "collective"], "library_version": ["10.1", "NCCL 2"]})
    assert uses_of(replace(known, timings=links, software="cuBLAS 10.1")) is SAME_SOFTWARE
    for side in ("faster", "slower"):
        same, other = (getattr(uses[STEP].whole, side) for uses in (SAME_SOFTWARE, USES))
        assert other == pytest.approx(math.hypot(same, VERSIONS_SPREAD))


def test_a_stated_software_that_not_every_timed_kernel_ran_is_said_in_text() -> None:
    known = fomkit.machine("v100-pcie-32gb")
    said = "ran PyTorch 99, which the machine states: intervals of steps include 4% for other versions"
    for software, is_said in (("PyTorch 99", True), ("PyTorch 2.1", False), ("", False)):
        stated = replace(known, software=software)
        for text in (fomkit.estimate("alexnet", stated).summary(), fomkit.show(stated).summary()):
            assert (f"not every kernel of {known.name}'s table {said}" in text) == is_said
    assert said in fomkit.explain("alexnet", replace(known, software="PyTorch 99")).summary()


def test_products_on_an_engine_of_an_untimed_maker_have_one_error_of_its_library() -> None:
    """Of 10 s of products and 1 s of norms by facts, the products alone are wider, and by one error."""
    rows = pd.concat([timed("roofline"), timed("roofline", "norm").assign(time_s=0.2, low_s=0.2, high_s=0.2)])
    plain, whole = device_time(rows, 0.8), device_time(rows, 0.8, OTHER_MAKER_USES)
    assert (plain.low, plain.value, plain.high) == pytest.approx((9.0, 9.0, 9.0))
    spread = OTHER_MAKER_USES[OTHER_MAKER].whole
    ends = 9 - 8 * (1 - math.exp(-Z * spread.faster)), 9 + 8 * (math.exp(Z * spread.slower) - 1)
    assert (whole.low, whole.value, whole.high) == pytest.approx((ends[0], 9.0, ends[1]))
    assert whole.shared == pytest.approx(1.0), "it is common to all work on the machine"
    assert device_time(timed("interpolated"), 0.8, OTHER_MAKER_USES) == device_time(timed("interpolated"), 0.8)


@pytest.mark.parametrize(
    ("name", "maker"),
    [("mi300x", "AMD"), ("gaudi-3", "Intel"), ("tpu-v5p", "Google"), ("trainium-2", "AWS"), ("b300-sxm", ""),
     ("rtx-4090", ""), ("mi25", ""), ("titan", ""), ("epyc-9654", ""), ("xeon-8480", "")],
)  # fmt: skip
def test_a_maker_whose_engines_nobody_timed_is_named(name: str, maker: str) -> None:
    """Machines without a matrix engine, and those of a maker that has a timed one, have no such error."""
    shown = fomkit.show(fomkit.machine(name)).summary()
    assert (f"no matrix engine of {maker} is timed: products and attention of {name} are" in shown) == bool(maker)
    assert (OTHER_MAKER in uses_of(with_fits(load_machine(name)))) == bool(maker)


def test_timings_of_an_engine_end_the_doubt_about_its_library() -> None:
    built = with_fits(load_machine("mi300x"))
    rows = pd.DataFrame({"engine": ["matrix"], "harness": ["of a vendor"]})
    assert OTHER_MAKER in uses_of(built)
    assert uses_of(replace(built, timings=rows)) == {}
    assert OTHER_MAKER in uses_of(replace(built, timings=rows.assign(engine="vector")))


def test_jobs_suites_workbooks_and_tables_of_ops_say_and_have_the_error_of_an_untimed_library() -> None:
    said = "no matrix engine of AMD is timed"
    job = fomkit.estimate("llama3-8b", "mi300x", layout="data=8,zero=3", precision="bf16", batch=8)
    assert said in job.summary()
    assert job.step.high / job.step.value > 1.3 > job.step.value / job.step.low
    compared = fomkit.estimate_all(["resnet50"], ["mi300x"], precision="bf16")
    made, (one,) = sheet_model_of_comparison(compared), compared.estimates
    step = evaluate(made).cases["resnet50", "mi300x"].step
    assert step.wall_s.ends == pytest.approx(one.step.ends)
    assert step.device_s.shared == pytest.approx(one.step_time.device_s.shared)
    ops = pd.DataFrame({"kind": ["gemm"], "dtype": ["bf16"], "m": [4096], "n": [4096], "k": [4096]})
    predicted = predict_ops(ops, with_fits(load_machine("mi300x")))
    assert any(text.startswith(said) for text in predicted.said)
    assert predicted.totals["time_s"]["high"] > predicted.ops["high_s"].iloc[0]


def test_a_step_is_widened_and_a_timing_of_the_op_does_not_tell_of_its_use():
    step = roll_up_step(timed(), machine("DeepBench"), 0.8)
    plain = roll_up_step(timed(), machine("tfprof"), 0.8)
    assert plain.wall_s.low == plain.wall_s.high == 8.0
    assert step.wall_s.low < 8.0 < step.wall_s.high
    assert step.passes["forward"] == step.device_s
    groups = pd.Series([1, 1], dtype="int64")
    assert steps_if_timed(timed(), groups, machine("DeepBench"), 0.8)[1] == step.wall_s


def calls(factors: list[float], own: float = 1.0) -> pd.DataFrame:
    """Make calls predicted as 1 ms that took the given factors of it, two for each model."""
    frame = pd.DataFrame({"seconds": factors}) * 1e-3
    names = {"graph": [f"g{at // 2}" for at in range(len(factors))], "label": "fw", "group": "library"}
    kernel = {"kind": "gemm", "time_source": "interpolated"}
    return frame.assign(**names, **kernel, count=1.0, time_s=1e-3, low_s=1e-3 / own, high_s=1e-3 * own)


def test_a_spread_is_what_the_intervals_lack():
    errors = np.exp(np.random.default_rng(1).normal(0.0, 0.2, 4000)).tolist()
    found = fit_uses({"a": calls(errors), "b": calls(errors)})["library"]
    assert found.call == pytest.approx((0.2, 0.2), rel=0.05)
    # Two independent calls of a model cancel in part.
    assert found.whole == pytest.approx((0.2 / math.sqrt(2), 0.2 / math.sqrt(2)), rel=0.08)
    wide = fit_uses({"a": calls(errors, own=3.0), "b": calls(errors, own=3.0)})["library"]
    assert wide == Use(Spread(0.0, 0.0), Spread(0.0, 0.0))


def test_the_spread_of_a_sum_is_beside_the_interval_that_a_step_gives_it():
    """Ops' own errors cancel in a sum, so its interval is narrower than the sum of the ops' intervals."""
    errors = np.exp(np.random.default_rng(1).normal(0.0, 0.2, 4000)).tolist()
    own = math.exp(Z * 0.1)
    found = fit_uses({"a": calls(errors, own), "b": calls(errors, own)})["library"].whole
    ends = device_time(calls(errors, own).iloc[:1].assign(pass_name=""), 0.8)
    assert ends.high == pytest.approx(1e-3 * own)
    assert found.slower == pytest.approx(math.sqrt(0.02 - 0.01), rel=0.1)  # two like calls are one op


def test_whole_passes_over_their_calls_leave_out_what_short_calls_decide():
    whole = pd.DataFrame({"device": "d", "graph": ["a", "b", "c"], "option": "", "flag": ["", "", "doubtful"],
                          "forward": [1.1, 1.0, 9.0], "backward": np.nan})  # fmt: skip
    call = pd.DataFrame({"device": "d", "graph": ["a", "a", "b", "b", "c"], "label": "fw", "flag": "", "count": 2,
                         "seconds": [0.5, -0.001, 0.4, 0.1, 0.5], "harness_s": 0.004})  # fmt: skip
    found = whole_over_calls(whole, call)
    assert list(found) == ["d"]
    assert found["d"] == pytest.approx([math.log(1.1)])
    told = fit_uses({"m": calls([1.0, 1.0]), "n": calls([1.0, 1.0])}, {"d": found["d"], "e": -found["d"]})[STEP]
    assert told.whole == pytest.approx((math.log(1.1) / Z, math.log(1.1) / Z))


def test_each_machine_has_one_weight():
    few, many = calls([1.5] * 4), calls([1.0] * 400)
    assert fit_uses({"a": few, "b": many})["library"].call.slower == pytest.approx(math.log(1.5) / Z)


def test_one_machine_alone_tells_nothing():
    assert fit_uses({"a": calls([2.0, 2.0])}) is SAME_SOFTWARE


def test_a_device_is_never_judged_by_intervals_from_its_own_labels():
    """Doubling the labels of one device changes the intervals of the others, not its own; one model shows it."""
    folder, device, other = LabelFolder(shipped_labels()), "A100-PCIe-40GB", "P100-PCIe-16GB"
    ops, labels, whole = (
        table[table["graph"].str.startswith("gpt2_large-inf")]
        for table in (folder.ops, folder.single_calls, folder.whole_models)
    )
    chosen = labels["device"].isin([device, other, "V100-PCIe-32GB"])
    wrong = LabelFolder(shipped_labels())
    scale = labels["seconds"].where(labels["device"] != device, labels["seconds"] * 2)
    for one, table in ((folder, labels[chosen]), (wrong, labels.assign(seconds=scale)[chosen])):
        one.__dict__["ops"] = ops
        one.__dict__["single_calls"] = table
        one.__dict__["whole_models"] = whole[whole["device"].isin([device, other])]
    true, doubled = (compare_labels(one, 0.8).outcomes[OWN] for one in (folder, wrong))
    assert [one.spans for one in true[device]] == [one.spans for one in doubled[device]]
    assert [one.spans for one in true[other]] != [one.spans for one in doubled[other]]


def test_the_stated_spreads_are_those_that_the_labels_tell():
    folder = LabelFolder(shipped_labels())
    machines = {name: folder.own_machine(name) for name in folder.devices}
    told = fit_uses(known_calls(folder, machines), known_wholes(folder, machines))
    assert told.keys() == SAME_SOFTWARE.keys()
    for group, use in told.items():
        for found, stated in zip(use, SAME_SOFTWARE[group], strict=True):
            assert found == pytest.approx(stated, abs=0.02), f"{group}: run benchmarks/use_in_steps.py"
