"""The workloads behind the shipped model profiles compared with known counts, by independent formulas."""

from __future__ import annotations

import runpy
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

torch = pytest.importorskip("torch")
nn = torch.nn

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "model_profiles" / "src"
SOURCES = [*sorted(FOLDER.glob("*.py")), FOLDER / "candle" / "p1b3.py"]  # test_candle.py has the other CANDLE ones
SMALL = [ROOT / "tests" / "data" / f"{name}.py" for name in ("lstm_tagger", "depthwise_cnn")]
WORKLOADS = {path.stem: path for path in (*SOURCES, *SMALL)}
EXPECTED = yaml.safe_load((ROOT / "tests" / "data" / "expected_flop.yaml").read_text(encoding="utf-8"))

# name: parameters, multiply-adds a sample forward (convolutions and linear layers), shape of one sample's output
GOLDEN = {
    "alexnet": (60_965_224, 724_406_816, (1000,)),
    "vgg16": (138_357_544, 15_470_264_320, (1000,)),
    "googlenet": (6_998_552, 1_582_671_872, (1000,)),
    "resnet50_caffe": (25_557_032, 3_857_973_248, (1000,)),
    "resnet50": (25_557_032, 4_089_184_256, (1000,)),
    "p1b3": (30_088_701, 30_087_050, (1,)),
    "gpt2": (124_439_808, 1024 * (12 * 12 * 768**2 + 768 * 50257), (1024, 50257)),
}
CENSUS = {"alexnet": 20, "vgg16": 36, "googlenet": 140, "resnet50_caffe": 227}


@dataclass(frozen=True)
class Call:
    """One execution of a module: its multiply-adds, and whether its input needs a gradient."""

    name: str
    kind: str
    multiply_adds: int
    input_gradient: bool


@pytest.fixture(scope="module")
def workload():
    """Load a workload as `fomkit profile` does: on the meta device, once."""
    loaded: dict[str, dict[str, Any]] = {}

    def load(name: str) -> dict[str, Any]:
        if name not in loaded:
            with torch.device("meta"):
                loaded[name] = runpy.run_path(str(WORKLOADS[name]))
        return loaded[name]

    return load


def multiply_adds(module: nn.Module, output: torch.Tensor) -> int:
    if isinstance(module, nn.Conv2d):
        return output.numel() * module.in_channels // module.groups * module.kernel_size[0] * module.kernel_size[1]
    return output.numel() * module.in_features if isinstance(module, nn.Linear) else 0


def run(workload: dict[str, Any], batch: int) -> tuple[torch.Tensor, torch.Tensor, list[Call]]:
    """Run one forward pass; return inputs, output and every module call."""
    calls: list[Call] = []

    def note(module: nn.Module, args: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        work = multiply_adds(module, output)
        calls.append(Call(names[module], type(module).__name__, work, args[0].requires_grad))

    names = {module: name for name, module in workload["model"].named_modules()}
    hooks = [module.register_forward_hook(note) for module in names if not isinstance(module, nn.LSTM)]
    try:
        with torch.device("meta"):
            inputs = workload["inputs"](batch)
            output = workload["model"](inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return inputs, output, calls


def test_every_source_has_a_golden_number() -> None:
    assert {path.stem for path in SOURCES} == set(GOLDEN)
    assert set(WORKLOADS) == set(EXPECTED)


@pytest.mark.parametrize("name", GOLDEN)
def test_counts_equal_the_goldens(workload, name) -> None:
    parameters, golden, shape = GOLDEN[name]
    assert sum(one.numel() for one in workload(name)["model"].parameters()) == parameters
    for batch in (1, 3):
        _, output, calls = run(workload(name), batch)
        assert output.shape == (batch, *shape)
        assert output.device.type == "meta"
        assert sum(call.multiply_adds for call in calls) == batch * golden


@pytest.mark.parametrize("name", CENSUS)
def test_layer_census_counts_caffe_layers_without_dropout_and_softmax(workload, name) -> None:
    _, _, calls = run(workload(name), 1)
    kinds = Counter(call.kind for call in calls)
    layers = ("Conv2d", "Linear", "ReLU", "LocalResponseNorm", "MaxPool2d", "AvgPool2d")
    joins = ("Inception", "Bottleneck")  # each ends in one concatenation or addition
    assert sum(kinds[kind] for kind in layers + joins) + 2 * kinds["BatchNorm2d"] == CENSUS[name]


@pytest.mark.parametrize("name", WORKLOADS)
def test_expected_flop_follow_from_the_module_calls(workload, name) -> None:
    """Each product has a weight gradient of its own size, and an input gradient where its input needs one."""
    expected = EXPECTED[name]
    assert workload(name)["batch_size"] == expected["batch"]
    assert sum(one.numel() for one in workload(name)["model"].parameters()) == expected["parameters"]
    if name == "lstm_tagger":
        return
    _, _, calls = run(workload(name), expected["batch"])
    assert 2 * sum(call.multiply_adds for call in calls) == expected["forward"] == expected["backward_weight"]
    assert 2 * sum(call.multiply_adds for call in calls if call.input_gradient) == expected["backward_input"]


def test_expected_flop_of_the_lstm_equal_torchs_count_of_its_decomposition(workload) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    tagger, expected = workload("lstm_tagger"), EXPECTED["lstm_tagger"]
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        inputs = tagger["inputs"](expected["batch"])
        output = tagger["model"](inputs)
        assert counter.get_total_flops() == expected["forward"]
        tagger["loss_fn"](output, inputs).backward()
    step = (
        expected["forward"]
        + expected["backward_weight"]
        + expected["backward_input"]
        - expected["never_run_apart"]
    )
    assert counter.get_total_flops() == step


@pytest.mark.parametrize("name", WORKLOADS)
def test_one_training_step_gives_every_parameter_a_gradient(workload, name) -> None:
    model = workload(name)["model"]
    inputs, output, _ = run(workload(name), 2)
    loss = workload(name)["loss_fn"](output, inputs)
    assert loss.shape == ()
    model.zero_grad()
    loss.backward()
    assert all(one.grad is not None and one.grad.shape == one.shape for one in model.parameters())
    workload(name)["optimizer"](model.parameters()).step()


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_run_is_stated(workload, name) -> None:
    for field in ("batch_size", "train_samples", "epochs"):
        assert isinstance(workload(name)[field], int)
        assert workload(name)[field] > 0


@pytest.mark.parametrize("name", ["lstm_tagger", "depthwise_cnn"])
def test_the_small_workloads_also_run_for_real(name) -> None:
    workload = runpy.run_path(str(WORKLOADS[name]))
    inputs = workload["inputs"](2)
    loss = workload["loss_fn"](workload["model"](inputs), inputs)
    assert torch.isfinite(loss)


def test_attention_flop_of_gpt2(workload) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    expected = EXPECTED["gpt2"]
    assert expected["attention_forward"] == 12 * 2 * (2 * 4 * 1024 * 1024 * 768)
    assert expected["attention_backward"] == 2 * expected["attention_forward"]
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        workload("gpt2")["model"](workload("gpt2")["inputs"](expected["batch"]))
    assert counter.get_total_flops() == expected["forward"] + expected["attention_forward"]


def test_lectures_own_convolution_work(workload) -> None:
    _, _, calls = run(workload("vgg16"), 1)
    assert {call.name: call.multiply_adds for call in calls}["conv4_2"] == 1_849_688_064
    forward = sum(call.multiply_adds for call in calls)
    training = 2 * forward + sum(call.multiply_adds for call in calls if call.input_gradient)
    assert round(training / forward, 4) == 2.9944
    _, _, calls = run(workload("alexnet"), 1)
    assert sum(call.multiply_adds for call in calls if call.kind == "Conv2d") == 665_784_864
