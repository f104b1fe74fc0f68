"""Public networks: keras.applications by configuration, without weights."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import pytest
from traced_work import flop, numbers

from fomkit.core.model import Workload
from fomkit.frontends import drafting
from fomkit.frontends.profile import profile_workload

BATCH = 8


def _layers(model: Any) -> Iterator[Any]:
    for layer in model.layers:
        yield from _layers(layer) if hasattr(layer, "layers") else [layer]


def counted_flop(keras: Any, model: Any) -> float:
    """Work of one sample forward, layer by layer from shapes: each output is a sum over the kernel's window."""
    total = 0.0
    for layer in _layers(model):
        if isinstance(layer, keras.layers.DepthwiseConv2D):
            total += 2.0 * prod(layer.output.shape[1:]) * prod(layer.kernel.shape[:2])
        elif isinstance(layer, keras.layers.Conv2D):
            total += 2.0 * prod(layer.output.shape[1:]) * prod(layer.kernel.shape[:3])
        elif isinstance(layer, keras.layers.Dense):
            total += 2.0 * prod(layer.output.shape[1:]) * layer.kernel.shape[0]
    return total


@pytest.fixture
def traced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trace a step at its own sizes only: two more take 5 s, and CANDLE's networks test names of sizes."""

    def once(trace: drafting.Trace, sizes: drafting.Sizes) -> drafting.SizedStep:
        step = trace(sizes)
        return drafting.SizedStep(step, sizes, step.ops, step.order, [], [])

    monkeypatch.setattr(drafting, "trace_sizes", once)


@pytest.mark.usefixtures("traced_once")
@pytest.mark.parametrize(
    ("name", "parameters", "multiply_adds"),
    [("MobileNetV2", 3_538_984, 0.300e9), ("ConvNeXtTiny", 28_589_128, 4.46e9)],
)
def test_a_published_network_is_read_in_full(keras: Any, name: str, parameters: int, multiply_adds: float) -> None:
    """Parameters as keras.io/api/applications lists them; multiply-adds as the networks' papers print them."""
    from fomkit.frontends.keras.profile import weights_without_data

    with weights_without_data():
        model = getattr(keras.applications, name)(weights=None)
        model.compile(keras.optimizers.SGD(0.1), "categorical_crossentropy")
        profile = profile_workload(Workload(model, None, batch_size=BATCH))
    assert not profile.unsupported
    assert profile.parameters_total == parameters
    forward = flop(numbers(profile), "forward")
    assert forward == BATCH * counted_flop(keras, model)
    assert forward / 2 / BATCH == pytest.approx(multiply_adds, rel=0.01)
    # Each product and convolution has two gradients, but that of the data.
    assert 1.9 < flop(numbers(profile), "backward") / forward < 2.0
    assert profile.layers is not None
    assert profile.layers["parameters"].sum() == profile.parameters_trainable
