"""The kernels that PyTorch's autograd starts for a call of an op graph, and those that add gradients up.

Rules with a reason in the framework's code (derivatives.yaml and the kernels it names), none fitted to a label:

- The gradient of an addition is handed on as it is.
- A linear layer takes one product for its input, one for its weights, and a sum over the rows for its bias.
- ``softmax`` multiplies gradient and result first, in a kernel of its own (ATen/native/cuda/SoftMax.cu).
- Layer norm: one kernel for the input, one for gain and bias; both read gradient and input.
- ``tanh``, ``gelu`` and ``relu`` read the gradient and one saved tensor; a power takes three kernels.
- A batched product takes two; the gradients of its permuted operands are copied where heads are merged again.
- Splitting queries, keys and values in one tensor concatenates their gradients, one copy.
- ``accumulate``: gradient += new gradient, two reads and one write; a second layer's worth for the bias.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

from fomkit.validate.framework_work import ITEM, MASK_BYTE, Work, copy, elementwise, product, traffic
from fomkit.validate.graph_rows import GraphRow

TENSORS: Mapping[str, tuple[tuple[str, int], ...]] = {
    "VECmul": (("aten::mul", 2), ("aten::mul", 2)),
    "VECmulu": (("aten::mul", 1),),
    "VECdiv": (("aten::div", 1),),
    "VECdivu": (("aten::div", 1),),
    "VECpowu": (("aten::pow", 1), ("aten::mul", 1), ("aten::mul", 2)),
    "VECtanh": (("aten::tanh_backward", 2),),
    "VECgelu": (("aten::gelu_backward", 2),),
    "VECrelu": (("aten::threshold_backward", 2),),
}
"""Element-wise calls to the kernels of their gradient, each with the tensors that it reads."""


def _linear(row: GraphRow) -> list[Work]:
    rows, inputs, outputs = row.forward[0][1]
    stored = 0.0 if row.function == "addmm" else 1.0
    works = [product("aten::mm", 1, rows, inputs, outputs, trans_b=1.0 - stored)]
    # The weights' gradient has their own order: outputs × inputs for nn.Linear.
    sides = (outputs, inputs) if stored else (inputs, outputs)
    works.append(product("aten::mm", 1, *sides, rows, trans_a=1.0))
    if len(row.accumulate) > 1:
        works.append(traffic("aten::sum", "reduction", rows * outputs, rows, rows * outputs, outputs, 1))
    return works


def _batched(row: GraphRow) -> list[Work]:
    b, m, k, n = row.forward[0][1]
    # Queries × keys reduces over the head's length and merges both gradients; weights × values has it as n.
    sides = ((b, m, k), (b, k, n)) if k <= n else ((b, m, n), (b, k, n))
    return [
        product("aten::bmm", b, m, k, n, trans_b=1.0),
        product("aten::bmm", b, k, n, m, trans_a=1.0),
        *(copy("aten::clone", side) for side in sides),
    ]


def _softmax(row: GraphRow) -> list[Work]:
    numel, length = row.numel, row.output[-1]
    return [
        elementwise("aten::mul", row.output, 2),
        traffic("aten::_softmax_backward_data", "softmax", numel, length, 2 * numel, numel, 2),
    ]


def _layer_norm(row: GraphRow) -> list[Work]:
    numel, length = row.numel, row.output[-1]
    read = 4 * numel + 4 * numel / length + length
    return [traffic("aten::native_layer_norm_backward", "norm", numel, length, read, numel + 2 * length, 5)]


def _lookup(row: GraphRow) -> list[Work]:
    numel, table = row.numel, sum(prod(sizes) for _, sizes in row.accumulate)
    return [
        traffic("aten::embedding_dense_backward", "embedding", numel, row.output[-1],
                numel + 2 * prod(row.inputs[0]), max(table, numel), 2)
    ]  # fmt: skip


def _dropout(row: GraphRow) -> list[Work]:
    read = row.numel * (1 + MASK_BYTE / ITEM)
    return [traffic("aten::native_dropout_backward", "pointwise", row.numel, row.output[-1], read, row.numel, 2)]


def _where(row: GraphRow) -> list[Work]:
    read = row.numel + prod(row.inputs[0]) * MASK_BYTE / ITEM
    return [traffic("aten::where", "pointwise", row.numel, row.output[-1], read, row.numel, 3)]


def _unnamed(row: GraphRow) -> list[Work]:
    if row.function == "split" and row.inputs:
        return [copy("aten::cat", row.inputs[0])]
    if row.function == "max" and row.numel > 1:
        # Half of the gradient where both are equal, none where the number is larger: two masked kernels.
        return [elementwise("aten::masked_fill", row.output, 2)] * 2
    return []


def _pointwise(row: GraphRow) -> list[Work]:
    return [elementwise(op, row.output, tensors) for op, tensors in TENSORS.get(row.opname, ())]


def _expanded(row: GraphRow) -> list[Work]:
    return [elementwise("aten::div", row.output, 1)] if row.inputs and prod(row.inputs[0]) > 1 else []


_BACKWARD: Mapping[str, Callable[[GraphRow], list[Work]]] = {
    "Linear": _linear,
    "BMM": _batched,
    **dict.fromkeys(TENSORS, _pointwise),
    "VECsoftmax": _softmax,
    "VECln": _layer_norm,
    "EMBEDDING": _lookup,
    "dropout": _dropout,
    "where": _where,
    "mean": _expanded,
    "misc": _unnamed,
}


def backward(row: GraphRow) -> list[Work]:
    """Give the kernels of a call's gradient."""
    return _BACKWARD[row.opname](row) if row.opname in _BACKWARD else []


def accumulate(row: GraphRow) -> list[Work]:
    """Give the kernels that add a call's gradients to those of the step before."""
    return [elementwise("aten::add", tuple(sizes), 2) for _, sizes in row.accumulate]
