"""One step: module and pass of each op, what is counted once, and what must be reported."""

from __future__ import annotations

from typing import Any

import pytest
from traced_work import flop, numbers

import fomkit
from fomkit.core.errors import FomkitError
from fomkit.core.model import ModelProfile, Workload
from fomkit.frontends.profile import profile_workload
from fomkit.ops.check import check_table


def trace(torch: Any, model: Any, *shape: int, mode: Any = "train", **more: Any) -> ModelProfile:
    workload = Workload(model, lambda batch: torch.randn(batch, *shape), batch_size=6, **more)
    return profile_workload(workload, mode=mode)


def notes(profile: ModelProfile) -> str:
    return "\n".join(profile.notes)


def test_the_tables_are_what_the_schema_says(torch: Any) -> None:
    model = torch.nn.Sequential(torch.nn.GRU(5, 5, batch_first=True))
    profile = trace(torch, model, 7, 5, optimizer=torch.optim.Adam(model.parameters()))
    check_table(numbers(profile), "OPS", "test")
    check_table(numbers(profile, "parts").drop(columns="of"), "OPS", "test")
    assert not profile.ops[["module", "cell", "rule"]].isna().to_numpy().any()
    assert profile.traced_with["device"] == "meta"


def test_backward_ops_stand_with_the_module_that_made_them(torch: Any) -> None:
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.shortcut = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: Any) -> Any:
            return self.two(self.one(x).relu()) + self.shortcut(x)

    class Stack(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.blocks = nn.Linear(8, 8), nn.ModuleList(Block() for _ in range(3))

        def forward(self, *, x: Any) -> Any:
            x = self.first(input=x)
            for block in self.blocks:
                x = block(x)
            return x

    workload = Workload(Stack(), lambda batch: {"x": torch.randn(batch, 8)}, batch_size=6)
    rows = numbers(profile_workload(workload))
    products = rows[rows.kind == "gemm"]
    for module, group in products.groupby("module"):
        wanted = ["backward_weight", "forward"] if module == "first" else [
            *("backward_input", "backward_weight", "forward")
        ]  # fmt: skip
        assert sorted(group["pass_name"]) == wanted, module
        assert set(group["count"]) == {1}
    assert len(products) == 3 * 9 + 2
    relu = rows[rows.op.isin(["aten::relu", "aten::threshold_backward"])]
    assert relu.groupby("op")["module"].apply(sorted).tolist() == [[f"blocks.{place}" for place in range(3)]] * 2


def test_what_the_users_hooks_do_belongs_to_their_module(torch: Any) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
    model[1].register_forward_pre_hook(lambda _module, inputs: (inputs[0].exp(),))
    model[0].register_forward_hook(lambda _module, _inputs, output: output.tanh())
    rows = numbers(trace(torch, model, 8)).set_index("op")
    assert rows.loc[["aten::exp", "aten::tanh", "aten::tanh_backward"], "module"].tolist() == ["1", "0", "0"]


def test_equal_layers_of_one_module_are_counted(torch: Any) -> None:
    class Again(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(8, 8)

        def forward(self, x: Any) -> Any:
            return self.layer(self.layer(self.layer(x)))

    profile = trace(torch, Again(), 8, loss=lambda output, _: output.square().mean())
    rows = numbers(profile).query("kind == 'gemm'")
    assert dict(zip(rows["pass_name"], rows["count"], strict=True)) == {
        "forward": 3,
        "backward_weight": 3,
        "backward_input": 2,
    }


def test_tied_weights_and_the_embeddings_gradient(torch: Any) -> None:
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(50, 8)
            self.head = torch.nn.Linear(8, 50, bias=False)
            self.head.weight = self.table.weight

        def forward(self, x: Any) -> Any:
            return self.head(self.table(x))

    workload = Workload(Tied(), lambda batch: torch.zeros(batch, 7, dtype=torch.long), batch_size=6)
    profile = profile_workload(workload)
    rows = numbers(profile)
    assert profile.parameters_total == 400
    assert rows.query("kind == 'embedding'")["pass_name"].tolist() == ["forward", "backward"]
    # Its two gradients are added once.
    assert rows.query("op == 'aten::add'")[["numel", "pass_name"]].to_numpy().tolist() == [[400, "backward"]]
    assert rows.query("kind == 'gemm'")["pass_name"].tolist() == ["forward", "backward_weight", "backward_input"]


def test_checkpointing_runs_the_forward_pass_again(torch: Any) -> None:
    from torch.utils.checkpoint import checkpoint

    class Checkpointed(torch.nn.Module):
        def __init__(self, reentrant: bool) -> None:
            super().__init__()
            self.first, self.reentrant = torch.nn.Linear(16, 16), reentrant
            self.layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)

        def forward(self, x: Any) -> Any:
            return checkpoint(self.layer, self.first(x), use_reentrant=self.reentrant)

    plain = numbers(trace(torch, torch.nn.Sequential(*Checkpointed(False).children()), 5, 16))
    for reentrant in (False, True):
        profile = trace(torch, Checkpointed(reentrant), 5, 16)
        rows = numbers(profile)
        again = 2 * 30 * (4 * 16 * 16 + 2 * 16 * 32)
        gained = flop(rows, "forward", "backward", kind="gemm") - flop(plain, "forward", "backward", kind="gemm")
        assert gained == again
        assert rows.query("kind == 'attention'")[["pass_name", "count"]].to_numpy().tolist() == [
            ["forward", 2],
            ["backward", 1],
        ]
        assert "run again in the backward pass" in notes(profile)
        assert "of the backward pass count as forward" in notes(profile)


def test_a_gradient_penalty_is_no_checkpointing(torch: Any) -> None:
    class Critic(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))

        def forward(self, x: Any) -> Any:
            score = self.net(x.requires_grad_(True))
            (slope,) = torch.autograd.grad(score.sum(), x, create_graph=True)
            return score.mean() + (slope.norm(2, dim=1) - 1).square().mean()

    x = torch.randn(6, 8)  # as a DataLoader gives it; what it was added to in a step before is no part of this one
    profile = fomkit.profile(Critic(), inputs=x, loss=lambda loss, _: loss)
    products = numbers(profile).query("kind == 'gemm'").groupby(["module", "pass_name"])["count"].sum()
    assert "again" not in notes(profile)
    assert "hold for batch" not in notes(profile)
    # Each layer: forward, the slope's backward, both gradients; and of the slope's products three more.
    assert products["net.0"].to_dict() == {"forward": 1, "backward_input": 2, "backward_weight": 1}
    assert products["net.2"].to_dict() == {"forward": 1, "backward_input": 2, "backward_weight": 1}
    assert products.sum() == 11


def test_a_custom_function_is_seen(torch: Any) -> None:
    class Times(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, x: Any, weight: Any) -> Any:
            context.save_for_backward(x, weight)
            return x @ weight

        @staticmethod
        def backward(context: Any, gradient: Any) -> Any:
            x, weight = context.saved_tensors
            return gradient @ weight.t(), x.t() @ gradient

    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(8, 4))

        def forward(self, x: Any) -> Any:
            return Times.apply(x, self.weight)

    rows = numbers(trace(torch, torch.nn.Sequential(torch.nn.Linear(8, 8), Layer()), 8)).query("module == '1'")
    gemm = rows[rows.kind == "gemm"]
    assert sorted(gemm["pass_name"]) == ["backward_input", "backward_weight", "forward"]


def test_products_of_two_activations_are_simply_backward(torch: Any) -> None:
    class Gram(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(8, 8, bias=False)

        def forward(self, x: Any) -> Any:
            y = self.layer(x)
            return y @ y.transpose(-1, -2)

    rows = numbers(trace(torch, Gram(), 5, 8)).query("kind == 'gemm'")
    assert rows["pass_name"].tolist() == ["forward", "forward", "backward", "backward", "backward_weight"]


def test_dropout_is_one_op_as_on_an_accelerator(torch: Any) -> None:
    rows = numbers(trace(torch, torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.1)), 8))
    dropout = rows[rows.module == "1"]
    assert dropout["op"].tolist() == ["aten::native_dropout", "aten::native_dropout_backward"]
    # 48 values: read 4 B, write 4 B and a mask of 1 B; back: read the gradient's one repeated value and the mask.
    assert dropout[["read_byte", "write_byte"]].to_numpy().tolist() == [[192, 240], [4 + 48, 192]]


def test_unsupported_ops_are_listed_and_stay_out(torch: Any) -> None:
    class Spectrum(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(8, 8)

        def forward(self, x: Any) -> Any:
            y = self.layer(x)
            return torch.fft.rfft(y).abs() + torch.linalg.matrix_exp(y.T @ y)[:6, :5]

    profile = trace(torch, Spectrum(), 8)
    assert set(profile.unsupported) == {"aten::linalg_matrix_exp ×2"}
    assert not profile.ops["op"].str.contains("matrix_exp").any()
    assert profile.ops["op"].str.contains("_fft_r2c").any()
    assert "2 unsupported" in profile.notes[0]


def test_a_ctc_loss_which_pytorch_runs_on_data_alone_is_traced_without(torch: Any) -> None:
    def loss(scores: Any, _: Any) -> Any:
        batch, frames, _ = scores.shape
        targets, lengths = torch.ones(batch, 5, dtype=torch.long), torch.full((batch,), frames)
        return torch.nn.functional.ctc_loss(
            scores.log_softmax(2).transpose(0, 1), targets, lengths, torch.full((batch,), 5)
        )

    profile = trace(torch, torch.nn.Linear(8, 7), 12, 8, loss=loss)
    assert not profile.unsupported
    rows = numbers(profile)
    rows = rows[rows["op"].str.contains("ctc")]
    assert rows[["kind", "pass_name", "count", "numel"]].to_numpy().tolist() == [
        ["other", "forward", 12, 6 * 11], ["other", "backward", 12, 6 * 11],
        ["pointwise", "backward", 1, 12 * 6 * 7],
    ]  # fmt: skip


def test_what_a_trace_lends_pytorch_is_taken_back(torch: Any) -> None:
    """After a profile, a user's own loss on tensors without data fails as it did before."""
    sizes = ((5,), (2,), (2,))
    scores, (targets, *lengths) = (
        torch.zeros(4, 2, 6, device="meta"),
        [torch.zeros(one, device="meta", dtype=torch.long) for one in sizes],
    )
    for _ in range(2):
        test_a_ctc_loss_which_pytorch_runs_on_data_alone_is_traced_without(torch)
        with pytest.raises(NotImplementedError):
            torch.ops.aten._ctc_loss.Tensor(scores, targets, *lengths)


def test_work_under_inference_mode_and_no_grad_is_the_same(torch: Any) -> None:
    class Inference(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution, self.layer = torch.nn.Conv1d(4, 4, 3), torch.nn.Linear(6, 8)

        def forward(self, x: Any) -> Any:
            return self.layer(self.convolution(x))

    class Decorated(Inference):
        @torch.inference_mode()
        def forward(self, x: Any) -> Any:
            return super().forward(x)

    rows = [numbers(trace(torch, kind(), 4, 8, mode="infer")) for kind in (Inference, Decorated)]
    by_hand = 2 * 6 * (4 * 6 * 4 * 3 + 4 * 6 * 8)
    assert [flop(one, "forward") for one in rows] == [by_hand, by_hand]


def test_losses_and_what_goes_to_them(torch: Any) -> None:
    layer = torch.nn.Linear(8, 3)
    assert "sum of the output's first tensor" in notes(trace(torch, layer, 8))

    class WithLoss(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(8, 3)

        def forward(self, x: Any) -> Any:
            from types import SimpleNamespace

            return SimpleNamespace(loss=self.layer(x).mean())

    assert "own .loss" in notes(trace(torch, WithLoss(), 8))
    pair = Workload(
        layer,
        lambda batch: (torch.randn(batch, 8), torch.zeros(batch, dtype=torch.long)),
        lambda output, inputs: torch.nn.functional.cross_entropy(output, inputs[1]),
        batch_size=6,
    )
    assert "the model takes 1 of 2 inputs" in notes(profile_workload(pair))
    named = Workload(
        layer,
        lambda batch: {"input": torch.randn(batch, 8), "target": torch.zeros(batch, 3)},
        lambda output, inputs: torch.nn.functional.mse_loss(output, inputs["target"]),
        batch_size=6,
    )
    assert "'target' are not taken by the model" in notes(profile_workload(named))
    with pytest.raises(FomkitError, match=r"the loss is a tensor of shape \(6, 3\)"):
        trace(torch, layer, 8, loss=lambda output, _: output)
    with pytest.raises(FomkitError, match="the loss is None"):
        trace(torch, layer, 8, loss=lambda _output, _inputs: None)


def test_half_precision_goes_to_the_matrix_units(torch: Any) -> None:
    model = torch.nn.Linear(8, 8).to(torch.bfloat16)
    workload = Workload(model, lambda batch: torch.randn(batch, 8, dtype=torch.bfloat16), batch_size=6)
    rows = profile_workload(workload).ops
    assert set(rows["dtype"]) == {"bf16"}
    assert rows.groupby("kind")["engine"].first().to_dict() == {
        "copy": "vector",
        "gemm": "matrix",
        "reduction": "vector",
    }


def test_channels_last_is_a_layout(torch: Any) -> None:
    def inputs(batch: int) -> Any:
        return torch.randn(batch, 3, 8, 8).to(memory_format=torch.channels_last)

    layer = torch.nn.Conv2d(3, 4, 3)
    assert profile_workload(Workload(layer, inputs, batch_size=2)).ops.loc[0, "layout"] == "nhwc"
    assert trace(torch, layer, 3, 8, 8).ops.loc[0, "layout"] == "nchw"
