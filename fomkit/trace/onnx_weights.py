"""Which stored tensors of an ONNX graph are weights: the file does not say, so a rule does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from fomkit.trace.onnx_calls import dtype_of
from fomkit.trace.onnx_table import names

RULE = (
    "parameters: the stored tensors in a floating-point format that an op computes with, but running statistics, "
    "factors of quantisation, bounds and single numbers outside of layers"
)

_NO_WEIGHT: Mapping[str, tuple[int, ...]] = {
    "BatchNormalization": (3, 4), "Resize": (1, 2, 3), "Upsample": (1,), "Pad": (1, 2, 3), "Clip": (1, 2),
    "Dropout": (1, 2), "QuantizeLinear": (1, 2), "DequantizeLinear": (1, 2), "QLinearConv": (1, 4, 6),
    "QLinearMatMul": (1, 4, 6), "Range": (0, 1, 2), "OneHot": (1, 2), "RoiAlign": (1, 2), "TopK": (1,),
    "NonMaxSuppression": (3, 4), "LSTM": (4, 5, 6), "GRU": (4, 5), "RNN": (4, 5), "Attention": (3, 4, 5),
}  # fmt: skip
"""By op, the inputs that are told to it or kept by it, and never trained."""

_LAYERS = names(
    """Conv ConvTranspose DeformConv Gemm MatMul Einsum LSTM GRU RNN BatchNormalization InstanceNormalization
    GroupNormalization LayerNormalization RMSNormalization PRelu"""
)
"""Ops whose weights may be a single number."""

_QUANTISED: Mapping[str, tuple[int, ...]] = {
    "QLinearConv": (3, 8), "QLinearMatMul": (3,), "MatMulInteger": (0, 1), "ConvInteger": (1,),
    "DequantizeLinear": (0,),
}  # fmt: skip
_VIEWS = frozenset(["Identity", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Cast"])


@dataclass(frozen=True)
class Weights:
    """The stored tensors of a graph.

    Attributes
    ----------
    trainable, quantised, others : tuple of str
        Names of those that are weights in a floating-point format, weights in integers, and all others.
    external : int
        How many have their values in other files.
    """

    trainable: tuple[str, ...]
    quantised: tuple[str, ...]
    others: tuple[str, ...]
    external: int


def _uses(nodes: Iterable[Any]) -> dict[str, list[tuple[str, int, str]]]:
    """Give for each tensor the ops that read it, each with the input that it is and its first result."""
    uses: dict[str, list[tuple[str, int, str]]] = {}
    for node in nodes:
        for at, name in enumerate(node.input):
            if name:
                uses.setdefault(name, []).append((node.op_type, at, node.output[0] if node.output else ""))
    return uses


def _ends(name: str, uses: Mapping[str, list[tuple[str, int, str]]]) -> list[tuple[str, int]]:
    """Follow a stored tensor through views to the ops that compute with it."""
    waiting, seen, found = [name], {name}, []
    while waiting:
        for op, at, result in uses.get(waiting.pop(), ()):
            if op in _VIEWS and at == 0:
                if result not in seen:
                    seen.add(result)
                    waiting.append(result)
            else:
                found.append((op, at))
    return found


def find_weights(graph: Any, nodes: Iterable[Any]) -> Weights:
    """Sort a graph's stored tensors by what they are.

    Parameters
    ----------
    graph
    nodes : iterable
        Its ops.
    """
    uses = _uses(nodes)
    kinds: dict[str, list[str]] = {"trainable": [], "quantised": [], "others": []}
    external = 0
    for one in graph.initializer:
        external += one.data_location == one.EXTERNAL
        kinds[_kind(one, _ends(one.name, uses))].append(one.name)
    return Weights(tuple(kinds["trainable"]), tuple(kinds["quantised"]), tuple(kinds["others"]), external)


def _kind(tensor: Any, ends: list[tuple[str, int]]) -> str:
    dtype = dtype_of(tensor.data_type) or ""
    if any(at in _QUANTISED.get(op, ()) for op, at in ends) and not dtype.startswith(("fp", "bf")):
        return "quantised"
    if not dtype.startswith(("fp", "bf")) or prod(tensor.dims) < 1:
        return "others"
    computing = [(op, at) for op, at in ends if at not in _NO_WEIGHT.get(op, ())]
    single = prod(tensor.dims) == 1
    return "trainable" if any(not single or op in _LAYERS for op, _ in computing) else "others"
