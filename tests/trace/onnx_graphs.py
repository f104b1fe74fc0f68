"""Small ONNX files, built op by op."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

from fomkit.core.model import ModelProfile
from fomkit.frontends.drafting import Request
from fomkit.frontends.onnx.profile import draft_profile

Shape = Sequence[int | str | None]
FLOAT = TensorProto.FLOAT


def tensor(name: str, shape: Sequence[int], elem_type: int = FLOAT) -> Any:
    """Make a stored tensor of zeros."""
    made = TensorProto(name=name, data_type=elem_type, dims=shape)
    count = 1
    for one in shape:
        count *= one
    made.raw_data = bytes(count * {TensorProto.DOUBLE: 8, TensorProto.INT64: 8, FLOAT: 4}.get(elem_type, 1))
    return made


def numbers_of(name: str, values: Sequence[int]) -> Any:
    return helper.make_tensor(name, TensorProto.INT64, [len(values)], values)


def node(op: str, inputs: str, outputs: str, name: str = "", **attributes: Any) -> Any:
    """Make an op; ``_`` is an omitted input."""
    given = ["" if one == "_" else one for one in inputs.split()]
    return helper.make_node(op, given, outputs.split(), name=name, **attributes)


def graph(
    nodes: Sequence[Any],
    inputs: Mapping[str, Shape],
    stored: Sequence[Any] = (),
    outputs: Sequence[str] = ("y",),
    *,
    types: Mapping[str, int] | None = None,
    opset: int = 23,
    value_info: Sequence[Any] = (),
) -> Any:
    """Make a model of ops, inputs, outputs and stored tensors."""
    types = types or {}
    made = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info(one, types.get(one, FLOAT), at) for one, at in inputs.items()],
        [helper.make_tensor_value_info(one, types.get(one, FLOAT), None) for one in outputs], list(stored),
        value_info=value_info,
    )  # fmt: skip
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("strange", 1)]
    return helper.make_model(made, opset_imports=opsets, ir_version=10)


def saved(model: Any, path: Path) -> Path:
    path.write_bytes(model.SerializeToString())
    return path


def profiled(
    model: Any, folder: Path, mode: str = "train", optimizer: str | None = None, **sizes: int
) -> ModelProfile:
    """Profile a model in this process."""
    path = saved(model, folder / "model.onnx")
    return draft_profile(path, Request("model", str(path), mode, sizes), optimizer, {}).profile()


def perceptron(batch: int | str | None = "batch") -> Any:
    stored = [tensor("a", (10, 20)), tensor("b", (20,)), tensor("c", (3, 20)), tensor("d", (3,))]
    nodes = [node("Gemm", "x a b", "h"), node("Relu", "h", "r"), node("Gemm", "r c d", "y", transB=1)]
    return graph(nodes, {"x": (batch, 10)}, stored)


def elsewhere(name: str, shape: Sequence[int], location: str = "weights.bin") -> Any:
    """Make a stored tensor whose values are declared to be in another file."""
    made = TensorProto(name=name, data_type=FLOAT, dims=shape, data_location=TensorProto.EXTERNAL)
    made.external_data.add(key="location", value=location)
    return made


class Layers:
    """Builds a network layer by layer; its weights are elsewhere."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.stored: list[Any] = []

    def weight(self, *shape: int) -> str:
        self.stored.append(elsewhere(f"w{len(self.stored)}", shape))
        return str(self.stored[-1].name)

    def add(self, op: str, inputs: str, **attributes: Any) -> str:
        self.nodes.append(node(op, inputs, f"t{len(self.nodes)}", **attributes))
        return str(self.nodes[-1].output[0])

    def convolved(self, x: str, into: int, out: int, length: int, stride: int, *, relu: bool = True) -> str:
        pads = [length // 2] * 4
        made = self.add("Conv", f"{x} {self.weight(out, into, length, length)}", strides=[stride] * 2, pads=pads)
        made = self.add("BatchNormalization", " ".join([made, *(self.weight(out) for _ in range(4))]))
        return self.add("Relu", made) if relu else made

    def dense(self, x: str, into: int, out: int) -> str:
        return self.add("Gemm", f"{x} {self.weight(out, into)} {self.weight(out)}", transB=1)


def residual_network() -> Any:
    """Make ResNet-50 with the stride in the 3×3 convolutions, as in PyTorch's model collection."""
    net = Layers()
    x = net.convolved("x", 3, 64, 7, 2)
    x, channels = net.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4), 64
    for width, blocks, first in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            stride = 1 if block else first
            deep = net.convolved(net.convolved(x, channels, width, 1, 1), width, width, 3, stride)
            deep = net.convolved(deep, width, 4 * width, 1, 1, relu=False)
            aside = x if block else net.convolved(x, channels, 4 * width, 1, stride, relu=False)
            x, channels = net.add("Relu", net.add("Add", f"{deep} {aside}")), 4 * width
    x = net.dense(net.add("Flatten", net.add("GlobalAveragePool", x)), channels, 1000)
    return graph(net.nodes, {"x": ("batch", 3, 224, 224)}, net.stored, (x,))


def p1b3() -> Any:
    """Make the lecture's network 29532-1000-500-100-50-1."""
    net, x, widths = Layers(), "x", (29532, 1000, 500, 100, 50, 1)
    for into, out in pairwise(widths):
        x = net.dense(x, into, out)
        x = net.add("Dropout", net.add("Relu", x)) if out > 1 else x
    return graph(net.nodes, {"x": ("batch", widths[0])}, net.stored, (x,))


__all__ = [
    "FLOAT", "TensorProto", "elsewhere", "graph", "helper", "node", "numbers_of", "onnx", "p1b3", "perceptron",
    "profiled", "residual_network", "saved", "tensor",
]  # fmt: skip
