"""Fresh pages: measured, separated from the op's own time, added where needed; transfers from the host."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from simple_machine import FACTS, HOST, Simple

import fomkit
from fomkit.bench.journal import Journal, timings_table, without_fresh
from fomkit.bench.libraries import as_table
from fomkit.bench.record import Subject, device_of
from fomkit.core.machine import Device, Fact
from fomkit.harness.torch.cases import Watch
from fomkit.harness.torch.worker import HOST_BYTE, to_device
from fomkit.ops.pricing import add_costs
from fomkit.plan.memory_of import own_byte
from fomkit.prediction.rates import fresh_seconds, result_byte, with_fresh
from fomkit.profiles.machine_record import save_machine
from fomkit.profiles.machines import load_machine

RATE = 2e9
DEVICE = Device(fresh_byte_per_s=Fact(RATE, RATE, RATE, "measured", "here"), fresh_above_byte=2.0**25)
PRODUCT = {"kind": "gemm", "dtype": "fp32", "engine": "vector", "b": "1", "n": "4096", "k": "8", "trans_a": "1",
           "trans_b": "0"}  # fmt: skip
LARGE, SMALL = {**PRODUCT, "m": "4096"}, {**PRODUCT, "m": "1024"}
CONV = {
    "kind": "conv", "dtype": "fp32", "engine": "vector", "batch": "2", "in_channels": "3", "out_channels": "8",
    "depth": "1", "height": "10", "width": "12", "kernel_d": "1", "kernel_h": "3", "kernel_w": "3",
    "groups": "1", "stride_d": "1", "stride_h": "1", "stride_w": "1", "pad_d": "0", "pad_h": "1", "pad_w": "1",
    "dilation_d": "1", "dilation_h": "1", "dilation_w": "1",
}  # fmt: skip


def timings(*cells: dict[str, str]) -> Any:
    answer = {"state": "warm", "warm": [0.1] * 6, "cold": [0.1] * 6, "error": 0.0}
    return timings_table([(one, answer) for one in cells], {"library": "torch", "library_version": "9.9"})


def test_bytes_of_results_by_hand() -> None:
    relu = {"kind": "pointwise", "dtype": "fp32", "engine": "vector", "numel": "100", "read_byte": "400",
            "write_byte": "400", "pass_name": "forward"}  # fmt: skip
    table = as_table([
        LARGE, {**CONV, "pass_name": "backward_input"}, {**CONV, "pass_name": "backward_weight"},
        {**relu, "op": "aten::relu"}, {**relu, "op": "aten::relu_"},
    ])  # fmt: skip
    found = result_byte(table).tolist()
    assert found == [4 * 4096 * 4096, 4 * 2 * 3 * 10 * 12, 4 * 8 * 3 * 9, 400, 0]


def test_only_large_results_cost_pages_and_a_timing_is_whole_again_after_both_steps() -> None:
    table = timings(LARGE, SMALL)
    pages_s = 4 * 4096 * 4096 / RATE
    assert fresh_seconds(table, DEVICE).tolist() == [pytest.approx(pages_s), 0.0]
    kept = without_fresh(table, DEVICE)
    assert kept["harness_s"].tolist() == [pytest.approx(pages_s), 0.0]
    assert kept["time_s"].tolist() == table["time_s"].tolist()
    assert without_fresh(table, Device()) is table
    own_s = kept["time_s"] - kept["harness_s"]
    timed = add_costs(as_table([LARGE, SMALL])).assign(time_s=own_s, low_s=own_s, high_s=own_s, evidence="a row")
    again = with_fresh(timed, DEVICE)
    assert again["time_s"].tolist() == pytest.approx([0.1, 0.1])
    assert "fresh memory pages of its result" in again["evidence"].iloc[0]
    assert again["evidence"].iloc[1] == "a row"


def test_a_timing_never_becomes_all_pages() -> None:
    slow = replace(DEVICE, fresh_byte_per_s=Fact(1e6, 1e6, 1e6, "measured", "here"))
    kept = without_fresh(timings(LARGE), slow)
    assert kept["harness_s"].iloc[0] == pytest.approx(0.8 * 0.1)


def test_both_figures_come_of_the_journal_and_survive_a_file(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "here.measuring.jsonl", {})
    journal.begin()
    journal.mark("allocator", above_byte=2.0**25, s_per_byte=5e-10)
    journal.mark("from_host", pinned=2.5e10, pageable=1e10)
    device = device_of(journal, Subject("here", "cpu", HOST, FACTS))
    assert device.fresh_byte_per_s is not None
    assert device.fresh_byte_per_s.value == pytest.approx(2e9)
    assert device.host_byte_per_s is not None
    assert "pageable 1e+10 byte/s" in device.host_byte_per_s.source
    from fomkit.bench.record import machine_of

    machine = machine_of(journal, Subject("here", "cpu", HOST, FACTS))
    save_machine(machine, tmp_path / "here.yaml")
    assert load_machine(tmp_path / "here.yaml").device == device


def test_a_device_of_which_nothing_comes_back_has_no_figure(tmp_path: Path) -> None:
    from simple_machine import make_session

    session = make_session(tmp_path, Simple())
    session.memory()
    assert not session.journal.marked("allocator")
    assert device_of(session.journal, session.subject).fresh_byte_per_s is None


def test_many_scenarios_at_once_have_them_too() -> None:
    v100 = fomkit.machine("v100")
    known = replace(v100.device, fresh_byte_per_s=DEVICE.fresh_byte_per_s, fresh_above_byte=2.0**25)
    machine, model = replace(v100, device=known), fomkit.model("candle/p1b3")
    one, plain = (fomkit.estimate(model, it, batch=4).step.value for it in (machine, v100))
    own = own_byte(model, {"batch": 4}, 2.0**25)
    assert own is not None
    assert one - plain == pytest.approx((4 * 1000 * 29532 + own / 2) / RATE)
    many = fomkit.scenarios(model, machine, {"batch": [4, 8]})
    assert many["step_s"].iloc[0] == pytest.approx(one)


def test_the_way_from_the_host_is_timed_pinned_and_pageable() -> None:
    seen: list[Any] = []

    class Tensor(SimpleNamespace):
        def copy_(self, other: Any, *, non_blocking: bool) -> None:
            seen.append((other.pin_memory, non_blocking))

    def empty(numel: int, device: str = "", pin_memory: bool = False) -> Tensor:
        assert numel == HOST_BYTE // 4
        return Tensor(device=device, pin_memory=pin_memory)

    def measure(run: Any, _times: int) -> float:
        run()
        return 0.01 if seen[-1][0] else 0.02

    found = to_device(Watch(measure, 0.0, lambda: None), SimpleNamespace(empty=empty))
    assert found == {"pinned": HOST_BYTE / 0.01, "pageable": HOST_BYTE / 0.02}
    assert {one for one, _ in seen} == {True, False}


def test_new_tensors_that_are_large_take_longer_here() -> None:
    torch = pytest.importorskip("torch")
    from fomkit.harness.torch.cases import make_watch
    from fomkit.harness.torch.worker import fresh_pages

    assert torch.zeros(1).numel() == 1
    found = fresh_pages(make_watch("cpu"), range(24, 27))
    assert not found or (found["above_byte"] >= 2**24 and found["s_per_byte"] > 0)
