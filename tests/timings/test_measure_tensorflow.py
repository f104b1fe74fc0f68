"""TensorFlow's ops in a graph: made, checked, timed without the call; unsupported ops have a reason."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from fomkit.bench.libraries import Child
from fomkit.files.child_process import child_command
from fomkit.harness.tensorflow import traffic
from fomkit.harness.tensorflow.worker import MAKERS, OVER, UNSUPPORTED, checked_case, make_case
from fomkit.harness.torch.cases import TOLERANCES, CannotTimeError, Watch
from fomkit.harness.torch.times import Effort


@pytest.fixture(scope="module")
def tf() -> Any:
    return pytest.importorskip("tensorflow", reason="TensorFlow is not installed: pip install '.[tensorflow]'")


pytestmark = pytest.mark.usefixtures("tf")
FLAT = {"numel": "1024", "write_byte": "4096"}
READS = {1: {**FLAT, "read_byte": "4096", "inputs": "1"}, 2: {**FLAT, "read_byte": "8192", "inputs": "2"}}
ROW = {**READS[1], "row": "64"}
CONV = {
    "kind": "conv", "batch": "2", "in_channels": "4", "out_channels": "4", "depth": "1", "height": "9",
    "width": "8", "kernel_d": "1", "kernel_h": "3", "kernel_w": "3", "stride_h": "1", "stride_w": "1",
    "pad_h": "1", "pad_w": "1", "groups": "1", "layout": "nhwc",
}  # fmt: skip
PASSES = ("forward", "backward_input", "backward_weight")
WAYS = (
    {}, {"groups": "4", "out_channels": "8"}, {"stride_h": "2", "stride_w": "2"}, {"pad_h": "0", "pad_w": "0"},
    {"depth": "5", "kernel_d": "3", "pad_d": "1"}, {"groups": "4", "stride_h": "2", "stride_w": "2"},
)  # fmt: skip
PRODUCT = {"kind": "gemm", "b": "1", "m": "70", "n": "8", "k": "9"}
CASES: list[dict[str, str]] = [
    *({**PRODUCT, "trans_a": a, "trans_b": b} for a, b in (("0", "0"), ("0", "1"), ("1", "0"), ("1", "1"))),
    {**PRODUCT, "b": "3", "trans_a": "1", "trans_b": "0", "dtype": "bf16"},
    {**PRODUCT, "dtype": "fp64"},
    *({**CONV, **way, "pass_name": name} for name in PASSES for way in WAYS),
    *(
        {"kind": "pointwise", "op": name, **READS[1 if name in traffic.ONE else 2]}
        for name in traffic.NAMED
        if name != "LogicalNot"
    ),
    {"kind": "pointwise", "op": "LogicalNot", "dtype": "bool", **READS[1]},
    *({"kind": "pointwise", "op": name, **FLAT, "read_byte": str(4096 + 64 * 4)} for name in ("BiasAdd", "AddV2")),
    {"kind": "pointwise", "op": "AddV2", **READS[1]},
    {"kind": "pointwise", "op": traffic.STREAM, **READS[2]},
    *({"kind": "pointwise", **reads} for reads in READS.values()),
    {"kind": "copy", **READS[1]},
    *({"kind": "norm", "op": name, **ROW} for name in OVER),
    {"kind": "reduction", "op": "Sum", **ROW, "pass_name": "backward"},
    {"kind": "softmax", **ROW},
    {"kind": "reduction", **ROW},
]


def cells(case: dict[str, str]) -> dict[str, str]:
    return {"dtype": "fp32", "engine": "vector", "pass_name": "forward", **case}


def test_every_op_is_made_and_right_alone_and_in_a_graph() -> None:
    for case in map(cells, CASES):
        made, error = checked_case(case)
        assert 0 <= error <= TOLERANCES[case["dtype"]], case
        if case.get("op") != traffic.STREAM:  # it adds to what it added to before
            assert made.check(traffic.compiled(made, 3)()) <= TOLERANCES[case["dtype"]], case
    assert {one["kind"] for one in CASES} | {"embedding"} == set(MAKERS)
    assert {*traffic.ONE, *traffic.TWO, *traffic.BACK} <= set(traffic.NAMED)


def test_a_wrong_result_is_seen(tf: Any) -> None:
    for case in map(cells, CASES):
        if case.get("op") == traffic.STREAM:
            continue
        made = make_case(case)
        result = made.op(*made.operands)
        first = result[0] if isinstance(result, tuple | list) else result
        true = first.numpy().astype(np.float64)
        assert made.check(tf.constant(true + 0.5 * np.abs(true).max() + 0.5)) > TOLERANCES[case["dtype"]], case


@pytest.mark.parametrize(
    ("case", "said"),
    [
        *(({"kind": kind}, said) for kind, said in UNSUPPORTED.items()),
        ({"kind": "collective"}, "not timed here"),
        ({"kind": "gemm", "m": "3"}, "a size is missing"),
        ({**PRODUCT, "dtype": "fp8"}, "format fp8"),
        ({**PRODUCT, "layout": "tiled"}, "not row-major"),
        ({**CONV, "layout": "nchw"}, "channels first"),
        ({**CONV, "groups": "2"}, "groups of channels"),
        ({**CONV, "transposed": "1"}, "transposed"),
        ({"kind": "pointwise", "op": "aten::gelu", **READS[1]}, "aten::gelu is not timed here"),
        ({"kind": "pointwise", **READS[1], "write_byte": "4"}, "its bytes"),
        ({"kind": "norm", **ROW}, "the op norm is not timed here"),
        ({"kind": "softmax", **ROW, "pass_name": "backward"}, "only forward"),
        ({"kind": "copy", "op": "Transpose", **READS[1], "numel": "1000"}, "no other order"),
    ],
)
def test_what_cannot_be_timed_says_why(case: dict[str, str], said: str) -> None:
    with pytest.raises(CannotTimeError, match=said):
        make_case(cells(case))


# --- how they are timed ------------------------------------------------------------------------------------------


class Clock:
    """A watch on which a call takes 60 µs and each op in it 2 µs more, or 5 µs with cold operands."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, op_s: float = 2e-6) -> None:
        self.op_s, self.cold, self.now = op_s, False, 0.0
        monkeypatch.setattr("fomkit.harness.tensorflow.traffic.compiled", self.compiled)
        self.watch = Watch(self.measure, 0.0, self.flush)

    def compiled(self, _case: traffic.GraphCase, copies: int) -> Any:
        def run() -> None:
            self.now += 60e-6 + copies * self.op_s + (3e-6 if self.cold and copies else 0.0)
            self.cold = False

        return run

    def measure(self, run: Any, times: int) -> float:
        begun = self.now
        for _ in range(times):
            run()
        return self.now - begun

    def flush(self) -> None:
        self.cold = True


CASE = traffic.GraphCase(lambda: None, (), lambda _result: 0.0)


def test_the_call_is_taken_off_and_short_ops_run_often(monkeypatch: pytest.MonkeyPatch) -> None:
    times = traffic.time_graph(CASE, Clock(monkeypatch).watch, Effort())
    assert times.warm == pytest.approx([2e-6] * len(times.warm))
    assert times.cold == pytest.approx([5e-6] * len(times.cold))
    assert len(times.warm) >= 6


def test_an_op_that_is_lost_in_the_call_is_no_timing(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CannotTimeError, match="too short to be measured"):
        traffic.time_graph(CASE, Clock(monkeypatch, op_s=60e-6 * 0.01 / traffic.COPIES).watch, Effort())


# --- the process -------------------------------------------------------------------------------------------------

LARGER = {**PRODUCT, "m": "256", "n": "256", "k": "256"}
EFFORT = {"target": 1.0, "least": 6, "most": 6, "limit_s": 0.1}


def request_of(case: dict[str, str]) -> dict[str, Any]:
    return {"cells": cells(case), "effort": EFFORT, "cold": True}


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    setup = {"device": "cpu", "threads": 1, "cache_byte": 1e6, "library": "tensorflow"}
    with Child(child_command("fomkit.harness.tensorflow.worker"), setup) as one:
        yield one


def test_the_worker_tells_its_library_and_threads(tf: Any, child: Child) -> None:
    assert child.facts["library_version"] == tf.__version__
    assert child.facts["threads"] == 1


def test_an_op_comes_back_with_repeats_of_both_states_and_its_error(child: Child) -> None:
    answer = child.time_op(request_of(LARGER), 60)
    assert len(answer["warm"]) == len(answer["cold"]) == 6
    assert all(one > 0 for one in (*answer["warm"], *answer["cold"]))
    assert 0 <= answer["error"] < 1e-4


def test_trouble_with_an_op_comes_back_as_its_reason_and_the_next_is_timed(child: Child) -> None:
    refused_cases = {
        "Keras runs recurrent layers as loops": {"kind": "rnn"},
        "a tensor of 38,146,972,656 MiB is larger than this machine's memory": {
            **PRODUCT,
            "m": f"{10**8}",
            "k": f"{10**8}",
        },
        "must be >= 0": {**PRODUCT, "m": "-3"},  # as TensorFlow says it
        "a size is missing": {**PRODUCT, "m": ""},
    }
    for said, case in refused_cases.items():
        reason = child.time_op(request_of(case), 60)["reason"]
        assert said in reason
        assert "\n" not in reason
    assert "warm" in child.time_op(request_of(LARGER), 60)


def test_a_graph_takes_something_for_each_op(child: Child) -> None:
    cost = child.time_op({}, 60)
    assert 0 == cost["host_s"] < cost["op_s"] < 1e-3


def test_what_is_not_measured_with_tensorflow_comes_back_empty(child: Child) -> None:
    assert child.time_op({"ask": "allocator"}, 60) == {}
