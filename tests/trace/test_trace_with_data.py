"""Steps whose ops depend on values of data, and structures of code that have no plain tensors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from traced_work import flop, numbers

import fomkit
from fomkit.core.model import ModelProfile, Workload
from fomkit.frontends.profile import profile_file, profile_workload
from fomkit.frontends.torch.calls import model_to_trace
from fomkit.frontends.torch.forms import shape_only


def module_of(torch: Any, run: Callable[..., Any], **parts: Any) -> Any:
    """Return a module with the given parts, whose forward pass is ``run(module, *inputs)``."""

    class Made(torch.nn.Module):
        def forward(self, *inputs: Any) -> Any:
            return run(self, *inputs)

    made = Made()
    for name, part in parts.items():
        setattr(made, name, part)
    return made


def trace(model: Any, inputs: Any, loss: Any = None, mode: Any = "train") -> ModelProfile:
    return profile_workload(Workload(model, inputs, loss), mode=mode)


def products(profile: ModelProfile) -> list[tuple[float, ...]]:
    rows = numbers(profile)
    return rows[rows["kind"] == "gemm"][["m", "n", "k", "count"]].to_numpy().tolist()


def by_expert(model: Any, x: Any) -> Any:
    made = x.new_zeros(x.shape[0], 4)
    for number, expert in enumerate(model.experts):
        (rows,) = (x[:, 0].gt(0).long() == number).nonzero(as_tuple=True)
        made = made.index_add(0, rows, expert(x[rows]))
    return made


def test_tokens_that_choose_their_expert_count_as_they_choose(torch: Any) -> None:
    """Of 8 rows 3 are positive; twice the batch repeats them."""
    experts = torch.nn.ModuleList(torch.nn.Linear(5, 4) for _ in range(2))
    inputs = torch.ones(8, 5) * torch.tensor([1.0, 1, 1, -1, -1, -1, -1, -1])[:, None]
    model = module_of(torch, by_expert, experts=experts)
    before = [one.clone() for one in model.parameters()]
    profile = trace(model, inputs)
    assert profile.traced_with["device"] == "data"
    assert "with its data, which may decide" in "\n".join(profile.notes)
    assert sorted(products(profile)) == [[3, 4, 5, 1], [4, 5, 3, 1], [4, 5, 5, 1], [5, 4, 5, 1]]
    assert all(torch.equal(one, other) for one, other in zip(model.parameters(), before, strict=True))
    assert all(one.grad is None for one in model.parameters())


@pytest.mark.usefixtures("torch")
def test_a_file_that_reads_values_is_run_with_data(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text("""
import torch
class Halting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
    def forward(self, x):
        for _ in range(5):
            x = self.layer(x)
            if x.abs().max().item() < 1e9:
                return x
model = Halting()
inputs = lambda batch: torch.randn(batch, 4)
batch_size = 6
""")
    profile = profile_file(path)
    work = flop(numbers(profile), "forward", "backward")
    assert (profile.traced_with["device"], work) == ("data", 2 * 2 * 6 * 4 * 4)
    assert "batch" in {*profile.ops["m"]}


def test_layers_left_out_at_random_count(torch: Any) -> None:
    """Whether PyTorch or Python draws the number: a layer left out in one step of twenty is in the step."""
    import random

    def torch_draws(self: Any, x: Any) -> Any:
        return self.layer(x) if torch.rand([]) > 0.05 else x

    def python_draws(self: Any, x: Any) -> Any:
        return self.layer(x) if random.random() > 0.05 else x

    state = random.getstate()
    for run, device in ((torch_draws, "meta"), (python_draws, "meta")):
        profile = trace(module_of(torch, run, layer=torch.nn.Linear(5, 4)), torch.randn(6, 5))
        assert profile.traced_with["device"] == device
        assert {*profile.ops.query("kind == 'gemm' and pass_name == 'forward'")["m"]} == {"batch"}
    assert random.getstate() == state


def test_calls_inside_vmap_count_all_samples(torch: Any) -> None:
    model = module_of(
        torch, lambda self, x: torch.vmap(lambda row: self.layer(row))(x), layer=torch.nn.Linear(5, 4)
    )
    assert products(trace(model, torch.randn(6, 5))) == [[6, 4, 5, 1], [4, 5, 6, 1]]


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_forward_derivatives_have_a_rule_for_every_op(torch: Any) -> None:
    def pushed(self: Any, x: Any) -> Any:
        return torch.func.jvp(self.layer, (x,), (torch.ones_like(x),))[1]

    model = module_of(torch, pushed, layer=torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Tanh()))
    profile = trace(model, torch.randn(6, 5), mode="infer")
    assert not profile.unsupported
    assert not profile.bounded
    assert products(profile)[0] == [6, 4, 5, 1]


def test_an_output_may_be_a_dataclass(torch: Any) -> None:
    @dataclasses.dataclass
    class Output:
        scores: Any
        hidden: Any = None

    model = module_of(torch, lambda self, x: Output(self.inside(x)), inside=torch.nn.Linear(5, 4))
    profile = trace(model, torch.randn(6, 5))
    assert "the sum of the output's first tensor is taken as the loss" in "\n".join(profile.notes)
    assert numbers(profile).query("pass_name == 'backward_weight'")["module"].tolist() == ["inside"]


@pytest.mark.filterwarnings("ignore:Sparse CSR")
@pytest.mark.parametrize("layout", ["to_sparse", "to_sparse_csr"])
def test_a_sparse_matrix_counts_what_it_stores(torch: Any, layout: str) -> None:
    """A 6x6 matrix with 6 numbers, by 6 rows of 4."""
    graph = getattr(torch.eye(6), layout)()
    layer = torch.nn.Linear(5, 4)
    profile = trace(
        module_of(torch, lambda self, x: torch.sparse.mm(graph, self.layer(x)), layer=layer), torch.randn(6, 5)
    )
    rows = numbers(profile).query("kind == 'sparse_gemm'")
    assert rows[["m", "n", "k", "density"]].drop_duplicates().to_numpy().tolist() == [[6, 4, 6, 1 / 6]]
    assert "forward" in {*rows["pass_name"]}
    assert not profile.unsupported


def test_a_product_of_two_sparse_matrices_has_no_price(torch: Any) -> None:
    """The stored numbers of the result depend on where those of both factors are."""
    graph = torch.eye(6).to_sparse()
    layer = torch.nn.Linear(5, 4)
    square = module_of(torch, lambda self, x: (graph @ graph) @ self.layer(x), layer=layer)
    profile = trace(square, torch.randn(6, 5))
    assert profile.unsupported == ("aten::mm of sparse matrices",)
    assert numbers(profile).query("kind == 'sparse_gemm' and pass_name == 'forward'")["n"].tolist() == [4]


def test_grouped_products_of_any_format_have_shapes(torch: Any) -> None:
    """PyTorch's own shapes are for bf16; libraries' mixtures of experts run them in fp32 too."""
    if not hasattr(torch.nn.functional, "grouped_mm"):
        pytest.skip("PyTorch 2.10 and later have it")
    weights = torch.nn.Parameter(torch.randn(3, 8, 4))
    ends = torch.tensor([4, 8, 12], dtype=torch.int32)
    grouped = torch.nn.functional.grouped_mm
    profile = trace(
        module_of(torch, lambda self, x: grouped(x, self.weights, offs=ends), weights=weights), torch.randn(12, 8)
    )
    assert profile.traced_with["device"] == "meta"
    assert numbers(profile).query("kind == 'gemm'")[["b", "m", "n", "k"]].to_numpy().tolist() == [
        [3, 4, 4, 8],
        [3, 8, 4, 4],
    ]


@pytest.mark.parametrize(
    ("rows", "products"),
    [
        (14, [[2, 5, 4, 8], [1, 4, 4, 8], [2, 8, 4, 5], [1, 8, 4, 4]]),
        (2, [[2, 1, 4, 8], [2, 8, 4, 1], [1, 8, 4, 1]]),  # a gradient of all three is written
    ],
)
def test_groups_of_rows_are_as_equal_as_they_can_be(torch: Any, rows: int, products: list[list[float]]) -> None:
    """Before, each had as many rows as the largest: one token that takes 8 of 128 experts read all of them."""
    if not hasattr(torch.nn.functional, "grouped_mm"):
        pytest.skip("PyTorch 2.10 and later have it")
    weights, ends = torch.nn.Parameter(torch.randn(3, 8, 4)), torch.full((3,), rows, dtype=torch.int32)
    run = module_of(
        torch, lambda self, x: torch.nn.functional.grouped_mm(x, self.weights, offs=ends), weights=weights
    )
    found = numbers(trace(run, torch.randn(rows, 8))).query("kind == 'gemm'")
    assert found[["b", "m", "n", "k"]].to_numpy().tolist() == products


def test_distances_and_triangular_systems_have_work(torch: Any) -> None:
    """30 points of 5 numbers to 32: a product with 7 columns; few points one by one; half of a 6x6 matrix."""
    near = module_of(torch, lambda self, x: torch.cdist(self.layer(x), x), layer=torch.nn.Linear(5, 5))
    assert [30, 30, 7, 1] in products(trace(near, torch.randn(30, 5)))
    row = numbers(trace(near, torch.randn(6, 5))).query("op == 'aten::_cdist_forward'").iloc[0]
    assert (row["numel"], row["row"]) == (6 * 6 * 5, 5)
    lower = module_of(
        torch,
        lambda self, x: torch.linalg.solve_triangular(x.mT @ x, self.layer(x).mT, upper=False),
        layer=torch.nn.Linear(6, 6),
    )
    assert [6, 8, 3, 1] in products(trace(lower, torch.randn(8, 6), mode="infer"))


def test_ops_whose_names_look_like_products_are_none(torch: Any) -> None:
    """The cross product has "linalg" in its name, the gamma distribution "mm"."""

    def run(self: Any, x: Any) -> Any:
        drawn = torch.distributions.Gamma(self.layer(x).exp(), x.exp(), validate_args=False).rsample()
        return torch.linalg.cross(drawn, x).sum() + torch.diagonal_copy(drawn).sum()

    found = trace(module_of(torch, run, layer=torch.nn.Linear(3, 3)), torch.randn(4, 3))
    assert (found.unsupported, found.bounded) == ((), ())


@pytest.mark.filterwarnings("ignore")  # PyTorch deprecates its own 8-bit tensors
def test_packed_weights_are_counted(torch: Any) -> None:
    """PyTorch lists the weights of an 8-bit model as no parameters."""
    layers = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Linear(32, 4))
    model = torch.ao.quantization.quantize_dynamic(layers, {torch.nn.Linear}, dtype=torch.qint8)
    profile = profile_workload(Workload(model, lambda batch: torch.randn(batch, 16), batch_size=8), mode="infer")
    assert (profile.parameters_total, profile.parameters_trainable) == (16 * 32 + 32 + 32 * 4 + 4, 0)
    assert products(profile) == [[8, 32, 16, 1], [8, 4, 32, 1]]


@pytest.mark.filterwarnings("ignore")  # TorchScript is deprecated
def test_a_scripted_model_is_traced(torch: Any) -> None:
    scripted = torch.jit.script(torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.ReLU()))
    assert flop(numbers(trace(scripted, torch.randn(6, 5))), "forward", "backward") == 2 * 2 * 6 * 4 * 5


@pytest.mark.filterwarnings("ignore:.*torch.jit", "ignore:The .grad attribute")
def test_a_recorded_convolution_has_its_work(torch: Any) -> None:
    """TorchScript calls ``_convolution``; its tensors cannot be replaced one by one, as a file's model needs."""
    recorded = torch.jit.trace(torch.nn.Conv2d(3, 4, 3), torch.randn(2, 3, 8, 8), check_trace=False)
    profile = trace(recorded, torch.randn(2, 3, 8, 8), mode="infer")
    assert flop(numbers(profile), "forward") == 2 * 2 * 36 * 4 * 27
    assert not profile.unsupported
    with shape_only("meta"):
        ready, _ = model_to_trace(recorded, own=True)
    assert ready(torch.empty(2, 3, 8, 8, device="meta")).shape == (2, 4, 6, 6)


def test_an_exported_graph_has_no_mode_to_change(torch: Any) -> None:
    class Exported(torch.nn.Linear):
        def eval(self) -> Any:
            raise NotImplementedError("Calling eval() is not supported yet.")

    assert flop(numbers(trace(Exported(5, 4), torch.randn(6, 5), mode="infer")), "forward") == 2 * 6 * 5 * 4


def test_code_that_waits_for_a_random_number_ends() -> None:
    class Waits(torch.nn.Linear):
        def forward(self, given: torch.Tensor) -> torch.Tensor:
            while torch.rand(1).item() < 0.7:
                pass
            return super().forward(given)

    found = fomkit.profile(Workload(Waits(4, 4), torch.ones(8, 4), lambda y, _: y.sum(), None), mode="infer")
    assert len(found.ops)


def test_the_weights_are_the_same_in_every_traced_step() -> None:
    """Code that reads a weight decides alike at every size, although an update ran before."""

    class Decides(torch.nn.Linear):
        def forward(self, given: torch.Tensor) -> torch.Tensor:
            out = super().forward(given)
            return out.tanh() if self.weight[0, 0].item() > 0 else out

    class Own(torch.optim.SGD):
        """An optimizer without a formula."""

    model = Decides(4, 4)
    torch.nn.init.constant_(model.weight, 0.5)
    optimizer = Own(model.parameters(), lr=1.0)
    found = fomkit.profile(
        Workload(model, lambda batch: torch.ones(batch, 4), lambda y, _: y.sum(), optimizer), batch=8
    )
    assert "aten::tanh" in set(found.ops["op"])
    assert model.weight[0, 0] == 0.5


def test_a_large_model_is_not_run_with_data_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    from fomkit.frontends.torch import profile

    class Reads(torch.nn.Linear):
        def forward(self, given: torch.Tensor) -> torch.Tensor:
            return super().forward(given) * self.weight.sum().item()

    monkeypatch.setattr(profile, "MOST_WITH_DATA", 10)
    with pytest.raises(fomkit.FomkitError, match=r"too many to run here with data\. Give its file\."):
        fomkit.profile(Workload(Reads(4, 4), torch.ones(8, 4), lambda y, _: y.sum(), None))


def test_a_pytorch_without_grouped_products_traces_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions before them lack the function that is replaced, so that every profile failed there."""
    monkeypatch.delattr(torch._meta_registrations, "_meta_grouped_mm_common", raising=False)
    found = fomkit.profile(Workload(torch.nn.Linear(4, 4), torch.ones(8, 4), lambda y, _: y.sum(), None))
    assert found.traced_with["device"] == "meta"


def test_an_update_that_fails_with_data_leaves_no_state_in_the_memory() -> None:
    class Fails(torch.optim.SGD):
        """Reads a value in every update, and fails in the third."""

        steps = 0

        def step(self) -> None:
            super().step()
            one = self.param_groups[0]["params"][0]
            self.state[one]["kept"] = torch.zeros(1000)
            one.sum().item()
            self.steps += 1
            if self.steps == 3:
                raise ValueError("no more")

    model = torch.nn.Linear(4, 4)
    optimizer = Fails(model.parameters(), lr=0.1)
    found = fomkit.profile(Workload(model, torch.ones(8, 4), lambda y, _: y.sum(), optimizer))
    assert "optimizer Fails" in found.unsupported
    assert found.order is None or not found.order["role"].eq("state").any()


@pytest.mark.parametrize("mode", ["train", "infer"])
def test_flexible_attention_is_attention_over_all_pairs(torch: Any, mode: str) -> None:
    """PyTorch trains it on accelerators only; 2 samples, 4 heads of queries, 2 of keys, 128 tokens of width 8."""
    flex = pytest.importorskip("torch.nn.attention.flex_attention", reason="PyTorch 2.5 and later have it")
    if not hasattr(flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG"):
        pytest.skip("this PyTorch compiles it always")

    def attend(model: Any, x: Any) -> Any:
        heads = model.inside(x).view(2, 128, 8, 8).transpose(1, 2)
        mask = flex.create_block_mask(lambda _, __, q, k: q >= k, None, None, 128, 128, device=x.device)
        parts = heads[:, :4], heads[:, 4:6], heads[:, 6:]
        return flex.flex_attention(*parts, lambda score, *_: score / 2, mask, enable_gqa=True)

    profile = trace(module_of(torch, attend, inside=torch.nn.Linear(5, 64)), torch.randn(2, 128, 5), mode=mode)
    assert "all pairs of queries and keys count" in "\n".join(profile.notes)
    square = 4 * 2 * 4 * 128 * 128 * 8
    assert flop(numbers(profile), "forward", kind="attention") == square
    assert flop(numbers(profile), "backward", kind="attention") == 2 * square * (mode == "train")


def test_forces_are_computed_in_an_inference_too(torch: Any) -> None:
    """The gradient of an energy by the positions is no backward pass of training."""

    def energy_and_forces(model: Any, x: Any) -> Any:
        x = x.requires_grad_()
        energy = model.inside(x).sum()
        return energy, torch.autograd.grad(energy, x)[0]

    profile = trace(
        module_of(torch, energy_and_forces, inside=torch.nn.Linear(5, 4)), torch.randn(6, 5), mode="infer"
    )
    assert "the forward pass computes gradients: it ran with them switched on" in profile.notes
    assert products(profile) == [[6, 4, 5, 1], [6, 5, 4, 1]]


def test_rows_of_a_sparse_gradient_have_a_price(torch: Any) -> None:
    """Of 100 rows of 4 numbers, 3 are picked, as updates of embeddings do: no others are read."""

    def picked(model: Any, x: Any) -> Any:
        rows = torch.sparse_coo_tensor([[1, 7, 9]], model.inside(x).detach(), (100, 4)).coalesce()
        return model.inside(x) + torch.ones(100, 4).sparse_mask(rows)._values()

    profile = trace(module_of(torch, picked, inside=torch.nn.Linear(5, 4)), torch.randn(3, 5))
    rows = numbers(profile).set_index("op")
    assert not profile.unsupported
    assert "lower bound" not in "\n".join(profile.notes)
    assert rows.loc["aten::sparse_mask", ["numel", "write_byte"]].tolist() == [12, 48]
    assert rows.loc["aten::_coalesce", "read_byte"] == 48
