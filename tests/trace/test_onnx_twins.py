"""A model in PyTorch and the ONNX file that its exporter makes run the same products, forward and back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("onnx", reason="reading ONNX files needs onnx: pip install '.[onnx]'")

from onnx_graphs import p1b3, profiled, residual_network
from onnx_twins import TWINS, Twin
from traced_work import flop, numbers, products, row_flop

from fomkit.core.model import ModelProfile
from fomkit.frontends.drafting import Request
from fomkit.frontends.onnx.profile import draft_profile
from fomkit.frontends.profile import profile_workload
from fomkit.plan.memory_of import step_memory

BATCH = 6


def read(path: Path, mode: str = "train", optimizer: str | None = None, **sizes: int) -> ModelProfile:
    return draft_profile(path, Request(path.stem, str(path), mode, sizes), optimizer, {}).profile()


@pytest.mark.parametrize("make", TWINS, ids=lambda make: make.__name__)
def test_the_file_runs_the_products_of_the_model(torch: Any, make: Callable[[Any], Twin], tmp_path: Path) -> None:
    twin = make(torch)
    mine = read(twin.export(torch, tmp_path / "model.onnx", 2), batch=BATCH)
    other = profile_workload(twin.workload(torch, BATCH))
    assert not mine.unsupported
    assert mine.parameters_trainable == other.parameters_trainable
    assert products(mine) == products(other)
    for pass_name in ("forward", "backward"):
        assert flop(numbers(mine), pass_name) == flop(numbers(other), pass_name), pass_name
    for place, row in numbers(mine).query("kind in ('rnn', 'attention')").iterrows():
        inside = numbers(mine, "parts").query(f"of == {place}")
        assert flop(inside, "forward", "backward", kind="gemm") == row_flop(row), (row["op"], row["pass_name"])
    updates = [one.query("kind == 'optimizer'")[["numel", "tensors"]].to_numpy() for one in (mine.ops, other.ops)]
    assert updates[0].tolist() == updates[1].tolist()
    # What is kept for the backward pass follows from what the derived gradients read.
    uses = [step_memory(one, {"batch": 256}) for one in (mine, other)]
    peaks = [use.peak_byte for use in uses if use is not None]
    assert peaks[0] == pytest.approx(peaks[1], rel=0.04)
    assert {"norm", "softmax", "pool", "embedding"} & set(other.ops["kind"]) <= set(mine.ops["kind"])


def test_p1b3_has_five_products_forward_and_nine_back(tmp_path: Path) -> None:
    """The lecture's table: 5 forward, 4 input and 5 weight gradients; none for the data's gradient."""
    mine = profiled(p1b3(), tmp_path, batch=100)
    gemms = mine.ops.query("kind == 'gemm'")
    assert gemms.groupby("pass_name")["count"].sum().to_dict() == {
        "backward_input": 4, "backward_weight": 5, "forward": 5,
    }  # fmt: skip
    assert mine.parameters_trainable == 30_088_701
    assert flop(numbers(mine), "forward") == 6_017_410_000
    assert flop(numbers(mine), "forward", "backward") == 12_145_830_000
    update = mine.ops.query("kind == 'optimizer'")
    assert update["numel"].tolist() == [30_088_701]


def test_resnet_50_has_the_flop_that_torch_counts(tmp_path: Path) -> None:
    mine = profiled(residual_network(), tmp_path, batch=32)
    assert mine.parameters_trainable == 25_557_032
    assert flop(numbers(mine), "forward") / 1e9 == pytest.approx(261.7, abs=0.05)
    assert flop(numbers(mine), "backward") / 1e9 == pytest.approx(515.9, abs=0.05)
    assert not mine.unsupported
    assert any(note.startswith("the values of 267 stored tensors are in files beside it") for note in mine.notes)
