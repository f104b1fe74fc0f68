"""Work of traced steps against sums made by hand; one fused multiply-add is 2 flop."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from traced_work import flop, numbers, row_flop

from fomkit.core.errors import FomkitError
from fomkit.core.model import ModelProfile, Workload
from fomkit.frontends.profile import profile_workload
from fomkit.profiles.models import load_model

ROOT = Path(__file__).resolve().parents[2]
EXPECTED = yaml.safe_load((ROOT / "tests" / "data" / "expected_flop.yaml").read_text(encoding="utf-8"))
HAND = 1e-3
"""What "by hand" allows; the sums here are exact, and only shipped sources are held to it."""


def trace(torch: Any, model: Any, *shape: int, mode: Any = "train", **more: Any) -> ModelProfile:
    """Profile a model on float inputs of ``shape`` behind the batch."""
    workload = Workload(model, lambda batch: torch.randn(batch, *shape), batch_size=more.pop("batch", 6), **more)
    return profile_workload(workload, mode=mode)


def work(profile: ModelProfile) -> tuple[float, float, float]:
    rows = numbers(profile)
    return tuple(flop(rows, name) for name in ("forward", "backward_weight", "backward_input"))


# --- matrix products -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def p1b3(torch: Any) -> ModelProfile:
    widths = (29532, 1000, 500, 100, 50, 1)
    with torch.device("meta"):
        layers = [
            layer
            for one, next_one in pairwise(widths)
            for layer in (torch.nn.Linear(one, next_one), torch.nn.ReLU())
        ]
        model = torch.nn.Sequential(*layers[:-1])
    loss = torch.nn.functional.mse_loss
    return profile_workload(
        Workload(
            model,
            lambda batch: torch.randn(batch, 29532),
            lambda output, _: loss(output, torch.zeros_like(output)),
            lambda parameters: torch.optim.SGD(parameters, lr=0.1),
            batch_size=100,
        )
    )


def test_p1b3_has_the_lectures_work(p1b3: ModelProfile) -> None:
    rows = numbers(p1b3)
    assert p1b3.parameters_total == 30_088_701
    assert flop(rows, "forward", "backward", kind="gemm") == 12_145_830_000
    assert flop(rows, "forward", kind="gemm") == 6_017_410_000
    assert flop(rows, "backward_weight", kind="gemm") == 6_017_410_000


def test_p1b3_runs_fourteen_products_and_no_input_gradient_of_the_first_layer(p1b3: ModelProfile) -> None:
    gemm = numbers(p1b3).query("kind == 'gemm'")
    assert gemm["count"].sum() == 14
    # The lecture has xᵀ·g where PyTorch has gᵀ·x; there dense4's weight gradient looks like its forward product.
    turned = gemm["pass_name"] == "backward_weight"
    m, n = gemm["m"].where(~turned, gemm["n"]), gemm["n"].where(~turned, gemm["m"])
    assert len(set(zip(m, n, gemm["k"], strict=True))) == 13
    assert gemm.groupby("pass_name")["count"].sum().to_dict() == {
        "forward": 5,
        "backward_weight": 5,
        "backward_input": 4,
    }
    assert list(gemm[gemm.module == "0"].pass_name) == ["forward", "backward_weight"]


def test_p1b3_says_which_factors_are_stored_transposed(p1b3: ModelProfile) -> None:
    gemm = numbers(p1b3).query("kind == 'gemm' and module == '2'").set_index("pass_name")
    # y = x·Wᵀ with W as (out, in); dW = gᵀ·x; dx = g·W.
    assert gemm.loc["forward", ["m", "n", "k", "trans_a", "trans_b"]].tolist() == [100, 500, 1000, 0, 1]
    assert gemm.loc["backward_weight", ["m", "n", "k", "trans_a", "trans_b"]].tolist() == [500, 1000, 100, 1, 0]
    assert gemm.loc["backward_input", ["m", "n", "k", "trans_a", "trans_b"]].tolist() == [100, 1000, 500, 0, 0]


def test_p1b3_at_another_batch(p1b3: ModelProfile) -> None:
    gemm = p1b3.ops[p1b3.ops.kind == "gemm"]
    assert gemm["m"].tolist()[:2] == ["batch", "batch"]
    assert flop(numbers(p1b3, batch=1), "forward", "backward", kind="gemm") == 121_458_300


def test_vectors_and_batches_are_matrix_products(torch: Any) -> None:
    class Products(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.matrix = torch.nn.Parameter(torch.randn(7, 5))
            self.bilinear = torch.nn.Bilinear(5, 5, 3, bias=False)

        def forward(self, x: Any) -> Any:
            column = self.matrix @ x[0]
            inner = column @ column
            outer = torch.einsum("bi,bj->ij", x, x)
            stacked = torch.bmm(x[None].expand(4, -1, -1), x.t()[None].expand(4, -1, -1))
            return inner + outer.sum() + stacked.sum() + self.bilinear(x, x).sum()

    forward = flop(numbers(trace(torch, Products(), 5, mode="infer")), "forward")
    by_hand = {
        "column": 7 * 5,
        "inner": 7,
        "outer": 5 * 5 * 6,
        "stacked": 4 * 6 * 6 * 5,
        "bilinear": 6 * 3 * (25 + 5),
    }
    assert forward == 2 * sum(by_hand.values())


# --- convolutions ----------------------------------------------------------------------------------------------


CONVOLUTIONS = (
    *("plain", "grouped", "depthwise", "dilated, uneven", "pointwise", "1-D", "3-D"),
    *("transposed", "transposed, grouped"),
)


def convolution_cases(torch: Any) -> dict[str, tuple[Any, tuple[int, ...], int]]:
    """Name: a second layer, the shape behind the batch, multiply-adds of one sample's pass."""
    nn = torch.nn
    return {
        "plain": (nn.Conv2d(4, 8, 3, stride=2, padding=1), (4, 9, 9), 8 * 5 * 5 * 4 * 9),
        "grouped": (nn.Conv2d(4, 8, 3, groups=2), (4, 9, 9), 8 * 7 * 7 * 2 * 9),
        "depthwise": (nn.Conv2d(4, 4, 3, padding=1, groups=4), (4, 9, 9), 4 * 9 * 9 * 9),
        "dilated, uneven": (nn.Conv2d(4, 8, (3, 1), dilation=(2, 1)), (4, 9, 5), 8 * 5 * 5 * 4 * 3),
        "pointwise": (nn.Conv2d(4, 8, 1), (4, 9, 9), 8 * 81 * 4),
        "1-D": (nn.Conv1d(4, 8, 5), (4, 20), 8 * 16 * 4 * 5),
        "3-D": (nn.Conv3d(4, 2, 3), (4, 5, 6, 7), 2 * 3 * 4 * 5 * 4 * 27),
        # A transposed convolution's kernel slides over the input.
        "transposed": (nn.ConvTranspose2d(4, 8, 4, stride=2, padding=1), (4, 9, 9), 8 * 81 * 4 * 16),
        "transposed, grouped": (nn.ConvTranspose1d(4, 6, 3, stride=2, groups=2), (4, 10), 6 * 10 * 2 * 3),
    }


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_each_pass_of_a_convolution(torch: Any, name: str) -> None:
    layer, shape, multiply_adds = convolution_cases(torch)[name]
    # A learned scale before it makes its input gradient wanted, as behind any other layer.
    first = torch.nn.PReLU()
    model = torch.nn.Sequential(first, layer)
    rows = numbers(trace(torch, model, *shape, loss=lambda output, _: output.square().mean()))
    once = 2.0 * 6 * multiply_adds
    convolutions = rows[rows.kind == "conv"].set_index("pass_name")
    assert sorted(convolutions.index) == ["backward_input", "backward_weight", "forward"]
    assert [row_flop(convolutions.reset_index().iloc[place]) for place in range(3)] == [once] * 3
    bias = rows[(rows.op == "aten::convolution_backward") & (rows.kind == "reduction")].iloc[0]
    assert bias["write_byte"] == 4 * layer.out_channels
    assert bias["read_byte"] == 4 * bias["numel"] == 4 * bias["row"] * layer.out_channels


def test_the_first_layer_has_no_input_gradient_and_frozen_ones_have_none_at_all(torch: Any) -> None:
    nn = torch.nn
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 3))
    first, second, third = 4 * 49 * 27, 4 * 25 * 36, 4 * 9 * 36
    assert work(trace(torch, model, 3, 9, 9)) == tuple(
        12.0 * one for one in (first + second + third, first + second + third, second + third)
    )
    model[0].requires_grad_(False)
    model[2].requires_grad_(False)
    # Below the lowest trainable layer nothing runs; above it gradients pass through frozen layers.
    assert work(trace(torch, model, 3, 9, 9)) == tuple(
        12.0 * one for one in (first + second + third, second, third)
    )


def test_nothing_to_train_is_an_error(torch: Any) -> None:
    with pytest.raises(FomkitError, match="depends on no trainable parameter"):
        trace(torch, torch.nn.Linear(3, 3).requires_grad_(False), 3)


# --- shipped sources -------------------------------------------------------------------------------------------


def load(torch: Any, path: Path, monkeypatch: pytest.MonkeyPatch) -> Workload:
    from fomkit.frontends.model_file import run_file, take_workload
    from fomkit.frontends.torch.profile import check_workload

    monkeypatch.setattr(sys, "path", list(sys.path))
    with torch.device("meta"):
        return take_workload(run_file(path), path.name, check_workload)


@pytest.mark.parametrize("name", sorted(set(EXPECTED) - {"lstm_tagger"}))
def test_shipped_sources_match_the_sums_made_by_hand(
    torch: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, is_shipped = EXPECTED[name], any((ROOT / "model_profiles" / "src").rglob(f"{name}.py"))
    if is_shipped:  # test_model_profiles.py traces each of these sources, and compares it with its profile
        profile = load_model(name.replace("_", "-"))
    else:
        profile = profile_workload(load(torch, ROOT / "tests" / "data" / f"{name}.py", monkeypatch))
    rows = numbers(profile)
    assert (profile.batch, profile.parameters_total) == (expected["batch"], expected["parameters"])
    assert not profile.unsupported
    plain = rows[rows.kind != "attention"]
    for one in ("forward", "backward_weight", "backward_input"):
        assert flop(plain, one) == pytest.approx(expected[one], rel=HAND), one
    for one in ("forward", "backward"):
        assert flop(rows, one, kind="attention") == pytest.approx(expected.get(f"attention_{one}", 0), rel=HAND)
