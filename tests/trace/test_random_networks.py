"""Small random networks by three frontends, compared with a count of every multiplication and addition."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import assume, given, settings
from random_networks import Network, networks
from traced_work import flop, numbers

from fomkit.core.model import ModelProfile, Workload
from fomkit.frontends.profile import profile_workload


def as_torch(torch: Any, network: Network) -> Workload:
    class Drawn(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layers, widths = torch.nn.ModuleDict(), {"x": network.width}
            for one in network.ops:
                if one.op in ("product", "turned"):
                    self.layers[one.name] = torch.nn.Linear(widths[one.reads[0]], one.width, bias=False)
                widths[one.name] = one.width

        def forward(self, values: Any) -> Any:
            made = {"x": values}
            for one in network.ops:
                made[one.name] = self.run(one, *(made[name] for name in one.reads if name in made))
            return made[network.ops[-1].name]

        def run(self, one: Any, first: Any, second: Any = None) -> Any:
            if one.op == "product":
                return self.layers[one.name](first)
            if one.op == "turned":
                return (self.layers[one.name].weight @ first.t()).t()
            if one.op == "square":
                return first @ (first.t() @ first)
            if one.op == "relu":
                return first.relu()
            return first + second if one.op == "add" else torch.cat([first, second], 1)

    return Workload(Drawn(), lambda batch: torch.zeros(batch, network.width), batch_size=network.batch)


def as_keras(keras: Any, network: Network) -> Workload:
    made = {"x": keras.Input((network.width,))}
    for one in network.ops:
        given = [made[name] for name in one.reads]
        layer = {
            "product": lambda one=one: keras.layers.Dense(one.width, use_bias=False),
            "relu": keras.layers.ReLU, "add": keras.layers.Add, "concat": keras.layers.Concatenate,
        }[one.op]()  # fmt: skip
        made[one.name] = layer(given if len(given) > 1 else given[0])
    model = keras.Model(made["x"], made[network.ops[-1].name])
    model.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")
    return Workload(model, None, batch_size=network.batch)


def as_onnx(network: Network) -> Any:
    from onnx_graphs import graph, node, tensor

    nodes, stored, widths = [], [tensor("spare", (2,))], {"x": network.width}
    for one in network.ops:
        name, (first, *more) = one.name, one.reads
        widths[name] = one.width
        if one.op in ("product", "turned"):
            turned = int(one.op == "turned")
            shape = (widths[first], one.width)[:: -1 if turned else 1]
            stored.append(tensor(f"w_{name}", shape))
            nodes.append(node("Gemm", f"{first} w_{name}", name, transB=turned))
        elif one.op == "square":
            nodes.append(node("Transpose", first, f"u_{name}", perm=[1, 0]))
            nodes.append(node("MatMul", f"u_{name} {first}", more[0]))
            nodes.append(node("MatMul", f"{first} {more[0]}", name))
        elif one.op == "relu":
            nodes.append(node("Relu", first, name))
        else:
            told = {"axis": 1} if one.op == "concat" else {}
            nodes.append(node("Concat" if told else "Add", f"{first} {more[0]}", name, **told))
    return graph(nodes, {"x": (network.batch, network.width)}, stored, (network.ops[-1].name,))


def check(found: ModelProfile, flop_by_hand: int) -> None:
    assert not found.unsupported
    assert flop(numbers(found), "forward", "backward") == flop_by_hand


@settings(max_examples=25, deadline=None)
@given(network=networks())
def test_pytorch(torch: Any, network: Network) -> None:
    assume(network.is_trained)
    check(profile_workload(as_torch(torch, network)), network.flop())


@settings(max_examples=5, deadline=None)
@given(network=networks(("product", "relu", "add", "concat")))
def test_keras(keras: Any, network: Network) -> None:
    """A Keras model does not contain layers that no result depends on."""
    assume(network.is_trained)
    check(profile_workload(as_keras(keras, network)), network.flop(runs_all=False))


@settings(max_examples=60, deadline=None)
@given(network=networks())
def test_onnx(network: Network) -> None:
    pytest.importorskip("onnx", reason="reading ONNX files needs onnx: pip install '.[onnx]'")
    from onnx_graphs import profiled

    assume(any(one.has_weight for one in network.products))
    with TemporaryDirectory() as folder:
        check(profiled(as_onnx(network), Path(folder)), network.flop())
