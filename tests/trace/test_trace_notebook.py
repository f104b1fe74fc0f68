"""Workloads made in this process: the user's objects are unchanged, and values are neither needed nor stored."""

from __future__ import annotations

import copy
import functools
import resource
from typing import Any

import pytest

from fomkit.core.errors import FomkitError
from fomkit.core.model import Workload
from fomkit.frontends.profile import profile_workload


def test_the_model_and_the_settings_stay_as_they_are(torch: Any) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5)).eval()
    optimizer = torch.optim.AdamW(model.parameters())
    inputs, before = torch.randn(6, 8), copy.deepcopy(model.state_dict())
    seed = torch.get_rng_state()

    def loss(output: Any, _: Any) -> Any:
        torch.set_default_dtype(torch.float64)
        torch.manual_seed(3)
        return output.mean()

    profile = profile_workload(Workload(model, inputs, loss, optimizer))
    assert torch.get_default_dtype() == torch.float32
    assert torch.equal(torch.get_rng_state(), seed)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None and not parameter.is_meta for parameter in model.parameters())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert not model.training
    assert "the model was in eval mode; it is traced in train mode" in profile.notes
    assert profile.ops["op"].str.contains("dropout").any()
    assert torch.is_grad_enabled()
    assert torch._C._get_mkldnn_enabled()


@pytest.mark.parametrize("reads", [False, True])
def test_functions_that_remember_tensors_forget_those_without_data(torch: Any, reads: bool) -> None:
    @functools.cache
    def roots(count: int) -> Any:
        return torch.arange(count).float().sqrt()

    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(8, 8)

        def forward(self, x: Any) -> Any:
            made = self.layer(x) * roots(8)
            return -made if reads and made.sum() > 0 else made

    model = Scaled()
    found = profile_workload(Workload(model, torch.randn(4, 8)), mode="infer")
    assert found.traced_with["device"] == ("data" if reads else "meta")
    assert model(torch.randn(4, 8)).isfinite().all()


def test_a_model_without_data_is_copied_too(torch: Any) -> None:
    with torch.device("meta"):
        model = torch.nn.Linear(8, 8)
    profile_workload(Workload(model, lambda batch: torch.randn(batch, 8), batch_size=6))
    assert model.weight.grad is None
    assert not model._forward_hooks


def test_plain_tensors_and_constants_in_the_users_code_count_by_shape(torch: Any) -> None:
    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.scale = torch.nn.Linear(8, 3), torch.ones(3)

        def forward(self, x: Any) -> Any:
            return self.layer(x) * self.scale

    weight, target = torch.ones(3), torch.zeros(6, dtype=torch.long)
    workload = Workload(
        Scaled(),
        torch.randn(6, 8),
        lambda output, _: torch.nn.functional.cross_entropy(output, target[: len(output)], weight=weight),
    )
    assert profile_workload(workload).traced_with["device"] == "meta"


def test_large_weights_are_not_copied(torch: Any) -> None:
    model = torch.nn.Linear(8000, 8000)  # 256 MB
    workload = Workload(model, lambda batch: torch.randn(batch, 8000), None, torch.optim.Adam, batch_size=6)
    profile_workload(Workload(torch.nn.Linear(8, 8), torch.randn(6, 8)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    profile_workload(workload)
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < 60e6


def test_what_meta_refuses_may_pass_another_way(torch: Any) -> None:
    class Scaled(torch.nn.Module):
        def __init__(self, scale: Any) -> None:
            super().__init__()
            self.layer = torch.nn.LSTM(8, 8, batch_first=True)
            self.attend = torch.nn.MultiheadAttention(8, 2, batch_first=True)
            self.scale = scale

        def forward(self, x: Any) -> Any:
            x = self.layer(x)[0] * self.scale(x)
            return self.attend(x, x, x, need_weights=False)[0]

    def on_a_device(x: Any) -> float:
        if x.is_meta:
            raise NotImplementedError("only for real devices")
        return 2.0

    def trace(scale: Any) -> Any:
        return profile_workload(Workload(Scaled(scale), lambda batch: torch.randn(batch, 5, 8), batch_size=6))

    plain, constant, faked = (
        trace(lambda _: 2.0),
        trace(lambda _: torch.tensor(1.0).item() + torch.tensor(data=1.0).item()),
        trace(on_a_device),
    )
    assert [one.traced_with["device"] for one in (plain, constant, faked)] == ["meta", "meta", "fake"]
    assert any(note.startswith("small constants kept their values: on the meta") for note in constant.notes)
    assert any(note.endswith("raises NotImplementedError: only for real devices") for note in faked.notes)
    # Three ways, one table.
    assert constant.ops.equals(plain.ops)
    assert faked.ops.equals(plain.ops)


def test_a_lambda_among_the_attributes_calls_the_traced_layers(torch: Any) -> None:
    class Head(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.layer = torch.nn.Linear(8, 8), torch.nn.Linear(8, 4)
            self.head = lambda x, *, twice=False: self.layer(x) if not twice else unknown

            if not self.training:
                unknown = None

        def forward(self, x: Any) -> Any:
            return self.head(self.body(x))

    model = Head()
    profile = profile_workload(Workload(model, torch.randn(6, 8), optimizer=torch.optim.SGD))
    assert profile.traced_with["device"] == "meta"
    assert profile.ops.query("pass_name == 'backward_weight'")["module"].tolist() == ["layer", "body"]
    assert profile.ops.query("kind == 'optimizer'")["numel"].tolist() == [8 * 8 + 8 + 8 * 4 + 4]
    assert all(one.grad is None for one in model.parameters())


def test_weights_that_wrap_others_run_their_own_code(torch: Any) -> None:
    """As quantised weights do: stored in 8 bits, cast to 32 for each product."""

    class Narrow(torch.Tensor):
        @staticmethod
        def __new__(cls, stored: Any) -> Any:
            return torch.Tensor._make_wrapper_subclass(
                cls, stored.shape, dtype=torch.float32, device=stored.device
            )

        def __init__(self, stored: Any) -> None:
            self.stored = stored

        def __tensor_flatten__(self) -> Any:
            return ["stored"], None

        @staticmethod
        def __tensor_unflatten__(inside: Any, *_: Any) -> Any:
            return Narrow(inside["stored"])

        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.ops.aten.detach.default:
                return Narrow(args[0].stored)
            wide = [one.stored.to(torch.float32) if isinstance(one, Narrow) else one for one in args]
            return func(*wide, **(kwargs or {}))

    model = torch.nn.Linear(8, 4)
    model.weight = torch.nn.Parameter(Narrow(torch.zeros(4, 8, dtype=torch.int8)), requires_grad=False)
    profile = profile_workload(Workload(model, torch.randn(6, 8)), mode="infer")
    assert profile.traced_with["device"] == "meta"
    cast = profile.ops.query("op == 'aten::_to_copy'").iloc[0]
    assert (cast["read_byte"], cast["write_byte"]) == (4 * 8, 4 * 8 * 4)
    assert profile.ops.query("kind == 'gemm'")[["n", "k"]].to_numpy().tolist() == [[4, 8]]
    assert any(note.startswith("Narrow: its ops are those that its code runs here") for note in profile.notes)
    assert type(model.weight.data) is Narrow


def test_a_constant_that_a_module_holds_keeps_its_value_and_a_new_one_counts_once(torch: Any) -> None:
    class Strided(torch.nn.Module):
        def __init__(self, *, reads: bool) -> None:
            super().__init__()
            self.layer, self.strides, self.reads = torch.nn.Linear(8, 8), torch.tensor([4, 8]), reads

        def forward(self, x: Any) -> Any:
            stride = int(self.strides[1]) if self.reads else 8
            return self.layer(x) * torch.full((8,), stride) + torch.arange(end=8)

    def trace(*, reads: bool) -> Any:
        inputs = torch.randn(6, 8)
        return profile_workload(Workload(Strided(reads=reads), inputs), mode="infer")

    read, written = trace(reads=True), trace(reads=False)
    assert read.traced_with["device"] == "meta"
    assert read.ops.drop(columns="code_line").equals(written.ops.drop(columns="code_line"))


def test_constants_that_are_parameters_or_are_written_to(torch: Any) -> None:
    class Clip(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rates = [rate.item() for rate in torch.linspace(0, 0.1, 4)]
            self.scale = torch.nn.Parameter(torch.tensor(2.0))
            self.layer = torch.nn.Linear(8, 8)
            self.register_buffer("places", torch.arange(8))

        def forward(self, x: Any) -> Any:
            return self.layer(x) * self.scale + self.places * self.rates[1]

    profile = profile_workload(Workload(Clip(), torch.randn(6, 8), optimizer=torch.optim.SGD))
    assert profile.parameters_total == 73
    assert profile.ops.query("kind == 'optimizer'")["tensors"].tolist() == [3]

    class Overwritten(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(8, 1)

        def forward(self, x: Any) -> Any:
            total = torch.tensor([0.0]) * torch.tensor(1.0).item()
            total += self.layer(x).sum()
            return total

    # The sum would be lost, and its gradient with it; it must not pass for a small step.
    profile = profile_workload(Workload(Overwritten(), torch.randn(6, 8)))
    assert profile.traced_with["device"] == "fake"
    assert "gemm" in set(profile.ops["kind"])


def test_a_loss_that_reaches_for_the_model_leaves_no_gradients_there(torch: Any) -> None:
    model = torch.nn.Linear(8, 8)

    def decayed(output: Any, _: Any) -> Any:
        return output.mean() + sum(parameter.square().sum() for parameter in model.parameters())

    profile_workload(Workload(model, torch.randn(6, 8), decayed))
    assert all(parameter.grad is None for parameter in model.parameters())


def test_both_reasons_are_told(torch: Any) -> None:
    model = torch.nn.Linear(8, 3)
    workload = Workload(model, torch.randn(6, 8), lambda output, _: output[9] if output.sum() < 1e9 else output)
    with pytest.raises(FomkitError) as caught:
        profile_workload(workload)
    assert "meta, constants: profile: raises RuntimeError" in str(caught.value)
    assert "fake: profile: raises DataDependentOutputException" in str(caught.value)
    assert "data: profile: raises IndexError" in str(caught.value)


def test_the_batch_is_the_default_of_inputs_unless_one_is_given(torch: Any) -> None:
    def inputs(batch: int = 512, seq: int = 4) -> Any:
        return torch.randn(batch, seq, 3)

    traced = [profile_workload(Workload(torch.nn.Linear(3, 3), inputs, batch_size=own), batch=asked)
              for own, asked in ((None, None), (64, None), (64, 8))]  # fmt: skip
    assert [dict(one.sizes) for one in traced] == [{"batch": size, "seq": 4} for size in (512, 64, 8)]


def test_what_is_missing_is_named_with_an_example(torch: Any) -> None:
    with pytest.raises(FomkitError, match=r"'inputs' is missing.*inputs = lambda batch: torch.randn"):
        profile_workload(Workload(torch.nn.Linear(3, 3), None))
    with pytest.raises(FomkitError, match="'model' is a class: call it"):
        profile_workload(Workload(torch.nn.Linear, torch.randn(2, 3)))
    with pytest.raises(FomkitError, match=r"'batch_size' is missing.*batch_size = 100"):
        profile_workload(Workload(torch.nn.Linear(3, 3), lambda batch: torch.randn(batch, 3)))
    with pytest.raises(FomkitError, match=r"epochs is 2\.5\. A whole number"):
        profile_workload(Workload(torch.nn.Linear(3, 3), torch.randn(2, 3), epochs=2.5))  # type: ignore[arg-type]
    with pytest.raises(FomkitError, match=r"inputs\(4\) gave no tensor"):
        profile_workload(Workload(torch.nn.Linear(3, 3), lambda _: [], batch_size=4))
    with pytest.raises(FomkitError, match="no input tensor has the batch size 7"):
        profile_workload(Workload(torch.nn.Linear(3, 3), torch.randn(2, 3), batch_size=7), batch=9)
    with pytest.raises(FomkitError, match="the mode is 'learn'"):
        profile_workload(Workload(torch.nn.Linear(3, 3), torch.randn(2, 3)), mode="learn")  # type: ignore[arg-type]
    with pytest.raises(FomkitError, match="the batch is 0"):
        profile_workload(Workload(torch.nn.Linear(3, 3), torch.randn(2, 3)), batch=0)


def test_without_pytorch_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fomkit.frontends.model_file.find_spec", lambda _: None)
    with pytest.raises(FomkitError, match='Run: pip install "torch<'):
        profile_workload(Workload(None, None))


def test_importing_the_room_does_not_import_pytorch() -> None:
    import subprocess
    import sys

    check = "import sys, fomkit.frontends.profile; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
