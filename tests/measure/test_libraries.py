"""The choice of library, the design in its names, and a profile really measured with TensorFlow."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from simple_machine import Simple

import fomkit
from fomkit.bench import libraries
from fomkit.bench.design import design
from fomkit.bench.libraries import LIBRARIES, Cells, Wanted, choose_library, in_words_of
from fomkit.bench.run import MeasureSpec, measure
from fomkit.core.errors import FomkitError
from fomkit.harness.tensorflow import worker

RATES = {("fp32", "vector"): 1e11, ("bf16", "vector"): 2e11}
TENSORFLOW = LIBRARIES["tensorflow"]


def installed(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    monkeypatch.setattr(libraries, "find_spec", lambda name: object() if name in names else None)


def test_pytorch_is_usual_and_tensorflow_where_only_that_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, "torch", "tensorflow")
    assert choose_library("", "cpu") == (LIBRARIES["torch"], "")
    assert choose_library("tensorflow", "cpu") == (TENSORFLOW, "")
    installed(monkeypatch, "tensorflow")
    assert choose_library("", "cpu") == (TENSORFLOW, "library: TensorFlow, because PyTorch is not installed")
    assert choose_library("", "cuda")[0].name == "torch"
    installed(monkeypatch)
    assert choose_library("", "cpu")[0].name == "torch"  # whose absence is told as ever


def test_what_cannot_be_chosen_says_why() -> None:
    with pytest.raises(FomkitError, match=r"--library: 'jax' is not one\. .*tensorflow"):
        choose_library("jax", "cpu")
    with pytest.raises(FomkitError, match=r"--device cuda: .* Use --library torch"):
        choose_library("tensorflow", "cuda")


def test_the_design_is_told_in_tensorflows_words_and_what_it_lacks_has_a_reason() -> None:
    ours = design(list(RATES), 12, 0.02, RATES, 1e10)
    ops, said = in_words_of(TENSORFLOW, ours)
    assert all(worker.knows_op(one.cells) for one in ops if one.cells.get("op"))
    assert {one.cells["kind"] for one in ops} == set(worker.MAKERS)
    assert {one.cells["layout"] for one in ops if one.cells["kind"] == "conv"} == {"nhwc"}
    assert not any("aten" in one.cells.get("op", "") for one in ops)
    for kind, why in TENSORFLOW.unsupported.items():
        assert sum(f"{kind} of the design, {why}" in line for line in said) == 1
    assert any("no op that does what aten::native_dropout does" in line for line in said)
    counted = sum(int(line.split()[2]) for line in said)
    assert counted + len(ops) == len(ours)
    assert in_words_of(LIBRARIES["torch"], ours) == (ours, [])


def test_a_profile_says_what_ran_its_ops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fomkit.bench.run.design", lambda *requested: design(*requested)[::40])
    timer = Simple()
    measure(MeasureSpec(tmp_path / "here.yaml", "quick", library="tensorflow"), start=lambda _setup: timer)
    machine = fomkit.machine(tmp_path / "here.yaml")
    assert set(machine.timings["library"]) == {"tensorflow"}
    assert machine.device.byte_per_s is not None
    assert machine.device.byte_per_s.source == "measured here, tensorflow 9.9"
    assert machine.device.byte_per_s.value == pytest.approx(1e10 / 1.1, rel=0.01)
    assert not any("aten::" in one.get("op", "") for one in timer.requested)
    for words in ("library: ops run in compiled graphs", "fresh pages: not measured", "not timed: "):
        assert any(note.startswith(words) for note in machine.notes), words


def test_a_run_goes_on_with_its_own_library_only(tmp_path: Path) -> None:
    def interrupt(number: int, _cells: Cells) -> None:
        if number == 3:
            raise KeyboardInterrupt

    requested = MeasureSpec(tmp_path / "here.yaml", "quick", library="tensorflow")
    measure(requested, start=lambda _setup: Simple(interrupt))
    other = MeasureSpec(tmp_path / "here.yaml", "quick", resume=True)
    with pytest.raises(FomkitError, match=r"tensorflow 9\.9, and this is .* torch 9\.9\. Measure again"):
        measure(other, start=lambda _setup: Simple())


def one_of_each(*requested: Any) -> list[Wanted]:
    """Take one op of each kind from the design, neither tiny nor long."""
    found: dict[str, Wanted] = {}
    for one in design(*requested):
        if one.cells["dtype"] == "fp32" and 1e5 < float(one.cells.get("numel", 2e5)) < 1e6:
            found.setdefault(one.cells["kind"], one)
    return list(found.values())


@pytest.mark.slow
def test_a_machine_is_measured_with_tensorflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    monkeypatch.setattr("fomkit.bench.run.design", one_of_each)
    monkeypatch.setattr("fomkit.bench.run.FIT_S", {"quick": 0.0})
    monkeypatch.setattr("fomkit.bench.run.SQUARES", (256,))
    # What shows the bandwidth, and what makes operands cold: here neither need be larger than a host's cache.
    stream = {**TENSORFLOW.stream, "numel": f"{2**22}", "read_byte": f"{8 * 2**22}", "write_byte": f"{4 * 2**22}"}
    monkeypatch.setitem(LIBRARIES, "tensorflow", replace(TENSORFLOW, stream=stream))
    monkeypatch.setattr("fomkit.bench.run.FLUSH_FACTOR", 0.0)
    found = measure(MeasureSpec(tmp_path / "here.yaml", "quick", library="tensorflow", budget_s=300.0))
    assert not found.interrupted
    machine = fomkit.machine(tmp_path / "here.yaml")
    assert set(machine.timings["library"]) == {"tensorflow"}
    assert machine.timings["library_version"].str.startswith("2.").all()
    assert (machine.timings["time_s"] > 0).all()
    # On a busy machine an op of a fraction of a millisecond may not stand out from the call of its function: then
    # it has no time, and the profile says so.
    refused = [
        note
        for note in machine.notes
        if note.startswith("not timed: ") and note.endswith("too short to be measured")
    ]
    timed = {*machine.timings["kind"], *(note.split()[3] for note in refused)}
    assert {"gemm", "conv", "pointwise", "softmax", "embedding"} <= timed, "\n".join(machine.notes)
    assert len(refused) <= 1
    assert machine.device.peak("fp32", "vector") is not None
    assert machine.device.byte_per_s is not None
    untimed = [note for note in machine.notes if note.startswith("launch cost: not timed, ")]
    assert (machine.device.launch_s is None) == bool(untimed), machine.notes
