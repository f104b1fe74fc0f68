"""Errors of counting tools: a test for each with its true figure; headings have the tools' figures.

Rows about TensorFlow are counted on the same network in PyTorch: the work is the network's, not the framework's.
"""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
from traced_work import flop, numbers

from fomkit.core.model import ModelProfile, Workload
from fomkit.frontends.profile import profile_workload
from fomkit.ops.pricing import add_costs
from fomkit.profiles.machines import load_machine

SOURCES = Path(__file__).resolve().parents[2] / "model_profiles" / "src"


def source(torch: Any, name: str) -> dict[str, Any]:
    with torch.device("meta"):
        return runpy.run_path(str(next(SOURCES.rglob(f"{name}.py"))))


def traced(given: dict[str, Any], batch: int, mode: Any = "train") -> ModelProfile:
    workload = Workload(given["model"], given["inputs"], given["loss_fn"], batch_size=batch)
    return profile_workload(workload, mode=mode)


def step_flop(profile: ModelProfile) -> float:
    return flop(numbers(profile), "forward", "backward")


def forward_flop(model: Any, inputs: Any) -> float:
    """Work forward at batch 1, inputs as PyTorch makes them, without gradients."""
    workload = Workload(model, inputs, batch_size=1)
    return flop(numbers(profile_workload(workload, mode="infer")), "forward")


def gpt(torch: Any, layers: int, width: int, words: int, length: int, heads: int) -> tuple[Any, Any]:
    """Make a GPT and its inputs: blocks of attention and a perceptron of 4 · width, a head without bias."""
    nn, functional = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.into, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            parts = self.into(x).unflatten(-1, (3, heads, width // heads)).permute(2, 0, 3, 1, 4)
            mixed = functional.scaled_dot_product_attention(*parts, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).flatten(2))
            return x + self.down(functional.gelu(self.up(x)))

    with torch.device("meta"):
        blocks = [Block() for _ in range(layers)]
        model = nn.Sequential(nn.Embedding(words, width), *blocks, nn.Linear(width, words, bias=False))
    return model, lambda batch: torch.zeros(batch, length, dtype=torch.long)


# --- depthwise / grouped conv backward: FlopCounterMode multiplies the weight gradient by groups, 514 × forward --


def test_depthwise_convolution_backward_is_twice_its_forward(torch: Any) -> None:
    layer = torch.nn.Conv2d(512, 512, 3, padding=1, groups=512, bias=False)
    model = torch.nn.Sequential(torch.nn.PReLU(), layer)
    rows = numbers(profile_workload(Workload(model, lambda batch: torch.randn(batch, 512, 14, 14), batch_size=2)))
    forward = flop(rows, "forward", kind="conv")
    assert forward == 2 * 2 * 512 * 14 * 14 * 9
    assert flop(rows, "forward", "backward", kind="conv") / forward == 3
    assert add_costs(rows).query("kind == 'conv'")["flop"].sum() / forward == 3


# --- CPU LSTM, SDPA, EmbeddingBag, Bilinear, mv, no-grad transformer encoder: FlopCounterMode counts 0 -----------


def test_cpu_lstm_has_its_work(torch: Any) -> None:
    model = torch.nn.LSTM(32, 64, batch_first=True)
    assert forward_flop(model, lambda batch: torch.randn(batch, 20, 32)) == 2 * 20 * 4 * 64 * (32 + 64)


def test_cpu_attention_has_its_work(torch: Any) -> None:
    class Attention(torch.nn.Module):
        def forward(self, query: Any) -> Any:
            return torch.nn.functional.scaled_dot_product_attention(query, query, query)

    found = forward_flop(Attention(), lambda batch: torch.randn(batch, 8, 128, 64))
    assert found == 2 * 2 * 8 * 128 * 128 * 64


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_embedding_bag_moves_its_rows(torch: Any, mode: str) -> None:
    model = torch.nn.EmbeddingBag(1000, 16, mode=mode)
    inputs, loss = lambda batch: torch.zeros(batch, 5, dtype=torch.long), lambda output, _: output.square().mean()
    workload = Workload(model, inputs, loss, batch_size=4)
    rows = add_costs(numbers(profile_workload(workload))).query("kind == 'embedding'").set_index("pass_name")
    looked_up, bags, indices = 4 * 5 * 16 * 4, 4 * 16 * 4, 4 * 5 * 8
    # Forward reads 20 rows of the table, 20 indices and 4 offsets and writes 4 bags.
    assert rows.loc["forward", "byte"] == looked_up + indices + 4 * 8 + bags
    # Back it writes the gradient of the whole table. Each index has its bag's number, a mean its bag's size too; a
    # maximum has the row it came from.
    assert rows.loc["backward", "write_byte"] == 1000 * 16 * 4
    which = {"sum": 2 * indices, "mean": 2 * indices + 4 * 8, "max": 4 * 16 * 8}[mode]
    assert rows.loc["backward", "read_byte"] == bags + which


def test_bilinear_has_its_work_in_each_pass(torch: Any) -> None:
    class Bilinear(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.layer = torch.nn.Linear(5, 5), torch.nn.Bilinear(5, 6, 3, bias=False)

        def forward(self, x: Any) -> Any:
            return self.layer(self.first(x), x.new_ones(len(x), 6))

    rows = numbers(profile_workload(Workload(Bilinear(), lambda batch: torch.randn(batch, 5), batch_size=4)))
    rows = rows[rows["op"] == "aten::_trilinear"]
    # Forward x1·W, then times x2. The input's gradient is W·g, then times x2; the weight's is x1·g, then times x2.
    assert flop(rows, "forward") == 2 * 4 * (3 * 5 * 6 + 3 * 6)
    assert flop(rows, "backward_input") == 2 * 4 * (3 * 5 * 6 + 5 * 6)
    assert flop(rows, "backward_weight") == 2 * 4 * (3 * 5 + 3 * 5 * 6)


def test_matrix_times_vector_has_its_work(torch: Any) -> None:
    class Times(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.vector = torch.nn.Parameter(torch.randn(7))

        def forward(self, x: Any) -> Any:
            return x @ self.vector

    rows = numbers(profile_workload(Workload(Times(), lambda batch: torch.randn(batch, 7), batch_size=4)))
    assert [flop(rows, one, kind="gemm") for one in ("forward", "backward")] == [2 * 4 * 7] * 2


def test_transformer_encoder_without_gradients_has_its_work(torch: Any) -> None:
    width, length = 64, 32
    layer = torch.nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True)
    by_hand = 2 * length * 12 * width * width + 4 * length * length * width
    assert forward_flop(layer, lambda batch: torch.randn(batch, length, width)) == by_hand


# --- same GPT on meta and on fake CPU: 19.85 and 17.37 TFLOP -----------------------------------------------------


def test_a_gpt_has_the_same_work_on_meta_and_on_a_fake_cpu(torch: Any) -> None:
    model, inputs = gpt(torch, 24, 1024, 50257, 1024, 16)
    plain = profile_workload(Workload(model, inputs, batch_size=8))
    tokens = 8 * 1024
    products = 3 * 2 * tokens * (24 * 12 * 1024**2 + 1024 * 50257)
    attention = 3 * 24 * 4 * 8 * 1024 * 1024 * 1024
    assert step_flop(plain) == products + attention
    assert round(step_flop(plain) / 1e12, 2) == 19.85
    assert round(products / 1e12, 2) == 17.37
    model, inputs = gpt(torch, 4, 1024, 50257, 1024, 16)
    plain = profile_workload(Workload(model, inputs, batch_size=8))

    def insist(_module: Any, given: Any) -> None:
        if given[0].is_meta:
            raise NotImplementedError("only for a CPU")

    model.register_forward_pre_hook(insist)
    faked = profile_workload(Workload(model, inputs, batch_size=8))
    assert (plain.traced_with["device"], faked.traced_with["device"]) == ("meta", "fake")
    assert step_flop(faked) == step_flop(plain)


# --- tf.compat.v1 float_operation: einsum 0; Keras LSTM 49 × under; P1B3 0.515 GFLOP (no batch), 18.235 ----------


def test_an_einsum_has_its_work(torch: Any) -> None:
    class Contract(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.einsum("bij,bjk->bik", x, x)

    found = forward_flop(Contract(), lambda batch: torch.randn(batch, 256, 256))
    assert found == 2 * 256**3 == 33_554_432


def test_every_step_of_an_lstm_is_counted(torch: Any) -> None:
    """The twin is a Keras LSTM of 64 on 16 sequences of 50 × 32; TensorFlow counts its loop body once."""
    model = torch.nn.LSTM(32, 64, batch_first=True)
    profile = profile_workload(Workload(model, torch.randn(16, 50, 32)), mode="infer")
    assert flop(numbers(profile), "forward") == 2 * 16 * 50 * 4 * 64 * (32 + 64) == 39_321_600


def test_p1b3_has_12_146_gflop_at_batch_100_and_a_hundredth_of_it_at_1(torch: Any) -> None:
    profile = traced(source(torch, "p1b3"), 100)
    assert step_flop(profile) == 12_145_830_000
    assert flop(numbers(profile, batch=1), "forward", "backward") == 121_458_300


# --- torchinfo on a 4-layer GPT: 266 × under ---------------------------------------------------------------------


def test_a_four_layer_gpt_has_3_62_gmac(torch: Any) -> None:
    found = forward_flop(*gpt(torch, 4, 512, 1000, 256, 8)) / 2
    assert found == 256 * (4 * 12 * 512**2 + 512 * 1000) + 4 * 2 * 256 * 256 * 512 == 3_620_732_928


# --- fvcore "flops": multiply-adds -------------------------------------------------------------------------------


def test_a_flop_is_half_a_multiply_add(torch: Any) -> None:
    forward = flop(numbers(traced(source(torch, "vgg16"), 1, "infer")), "forward")
    assert forward == 2 * 15_470_264_320


# --- torch's own roofline helper: 469 TFLOP/s on A100, 1484 on H100, above the peak ------------------------------


@pytest.mark.parametrize(("name", "peak"), [("a100", 312), ("h100", 989)])
def test_a_peak_is_the_datasheets(tmp_path: Path, name: str, peak: int) -> None:
    """Peaks come from profiles with a source, never from clock rates and unit counts that a driver reports."""
    path = tmp_path / f"{name}.yaml"
    rate = f"{{dtype: bf16, engine: matrix, accumulate_dtype: fp32, rate: {peak} TFLOP/s, source: datasheet}}"
    path.write_text(f"schema: fomkit/machine/1\nname: {name}\ndevice:\n  peak:\n    - {rate}\n")
    peaks = load_machine(path).device.peaks
    assert [one.rate.value for one in peaks] == [peak * 1e12]


# --- Keras ResNet-50 vs torch: 7.76 vs 8.18 GFLOP, both right ----------------------------------------------------


def test_resnet_50_names_its_variant(torch: Any) -> None:
    """Keras has v1, whose stride is in a block's first product: 7.72 GFLOP, and 0.04 of biases that v1.5 lacks."""
    found = {name: flop(numbers(traced(source(torch, name), 1, "infer")), "forward") for name in (
        "resnet50", "resnet50_caffe")}  # fmt: skip
    assert found == {"resnet50": 8_178_368_512, "resnet50_caffe": 7_715_946_496}
    assert round(found["resnet50"] / 1e9, 2) == 8.18
    titles = {name: (SOURCES / f"{name}.py").read_text(encoding="utf-8").splitlines()[0] for name in found}
    assert "v1.5" in titles["resnet50"]
    assert "v1.5" not in titles["resnet50_caffe"]


# --- first layer, frozen layers: "3 × forward" -------------------------------------------------------------------


def test_the_first_layer_needs_no_input_gradient(torch: Any) -> None:
    profile = traced(source(torch, "p1b3"), 100)
    assert step_flop(profile) / flop(numbers(profile), "forward") == pytest.approx(2.0184, abs=5e-5)
    vgg16 = traced(source(torch, "vgg16"), 2)
    assert step_flop(vgg16) / flop(numbers(vgg16), "forward") == pytest.approx(2.9944, abs=5e-5)


def test_frozen_layers_drop_their_backward_work(torch: Any) -> None:
    given = source(torch, "vgg16")
    layers = [module for module in given["model"].modules() if isinstance(module, torch.nn.Linear)]
    given["model"].requires_grad_(False)
    layers[-1].requires_grad_(True)
    profile = traced(given, 2)
    assert step_flop(profile) / flop(numbers(profile), "forward") == pytest.approx(1.00026, abs=5e-6)
    backward = numbers(profile).query("kind in ('gemm', 'conv') and pass_name != 'forward'")
    assert backward["pass_name"].tolist() == ["backward_weight"]


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning", "ignore:.*script_method:DeprecationWarning")
def test_data_parallel_is_the_module_that_it_copies(torch: Any) -> None:
    """Its forward gets all inputs, also those only for the loss; the module may be compiled, inside or outside."""
    with torch.device("meta"):
        plain = torch.nn.Linear(8, 4)

    def inputs(batch: int) -> tuple[Any, Any]:
        return torch.zeros(batch, 8), torch.zeros(batch, dtype=torch.long)

    def loss(output: Any, given: Any) -> Any:
        return torch.nn.functional.cross_entropy(output, given[1])

    def rows(model: Any) -> Any:
        profile = profile_workload(Workload(model, inputs, loss, batch_size=6))
        return profile.ops.drop(columns="code_line"), profile.notes

    ops, notes = rows(plain)
    copied = torch.nn.DataParallel(plain)
    for model in (copied, torch.compile(copied), torch.nn.DataParallel(torch.compile(plain))):
        same, told = rows(model)
        assert same.equals(ops)
        assert any(note.startswith("DataParallel: one device is taken") for note in {*told} - {*notes})


def test_a_form_that_is_known_is_what_pytorch_would_give(torch: Any) -> None:
    from fomkit.frontends.torch.forms import KnownForms

    aten, forms, ran = torch.ops.aten, KnownForms(), list[Any]()
    whole, wide = torch.empty(3, 4, device="meta", dtype=torch.int64), torch.empty(4, 3, device="meta").t()

    class Counted:
        def __init__(self, op: Any) -> None:
            self.op, self._schema = op, op._schema

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            ran.append(self.op)
            return self.op(*args, **kwargs)

    ops = (aten.mul.Tensor, aten.gt.Tensor, aten._to_copy.default, aten.t.default, aten.cat.default)
    counted = {op: Counted(op) for op in ops}

    def twice(op: Any, *args: Any, **kwargs: Any) -> int:
        before = len(ran)
        for _ in range(2):
            found, wanted = forms.run(counted[op], args, kwargs, in_place=False), op(*args, **kwargs)
            assert (found.shape, found.stride(), found.dtype) == (wanted.shape, wanted.stride(), wanted.dtype)
        return len(ran) - before

    calls = [(aten.mul.Tensor, whole, one) for one in (1, 1.0, True, wide)] + [(aten.gt.Tensor, wide, whole)]
    assert [twice(*call) for call in calls] == [1] * 5
    assert twice(aten._to_copy.default, wide, dtype=torch.float16) == 1
    # Views share memory, and a list of tensors is not looked into.
    assert twice(aten.t.default, whole) == twice(aten.cat.default, [whole, whole]) == 2
    for _ in range(2):
        assert forms.run(aten.sigmoid_.default, (wide,), {}, in_place=True) is wide
