"""The kernels that PyTorch's eager mode starts for a call of an op graph in its forward pass.

Rules with a reason in the framework's code, none of them fitted to a label:

- Views (transpose, permute, view, expand, slices) and arithmetic of Python numbers start nothing.
- ``matmul`` of four axes reshapes its operands to three; an operand that was permuted before is copied for that,
  unless the batch is 1 (ATen/native/LinearAlgebra.cpp, `_matmul_impl`). ``bmm`` takes three and copies nothing.
- ``contiguous`` and ``reshape`` copy what was transposed just before, and nothing else.
- ``max`` of a tensor and a number is an element-wise op (OPT clamps its attention weights so).
- A repeated operand is read once if the cache holds it until its next use, else each time.
- ``masked_fill`` copies the tensor and fills the copy (ATen/native/TensorAdvancedIndexing.cpp).
- Dropout in training writes a mask of a byte per element beside its result (ATen/native/cuda/Dropout.cu).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

from fomkit.timings.neusight_ops import TRAFFIC
from fomkit.validate.framework_work import (
    ITEM,
    MASK_BYTE,
    Work,
    copy,
    elementwise,
    operand_reads,
    product,
    traffic,
)
from fomkit.validate.graph_rows import GraphRow, Shape

REORDERED = ("transpose", "permute")
"""Views after which the memory is no longer in the order of the axes."""
FIRST_PRODUCT = "transpose"
"""In the graphs the keys are transposed just before the product of queries and keys, and before that one only."""
LOOKED_UP = ("embed", "embeddings", "embedding", "wpe", "wte", "tokens")
_MASKS = ("masked_fill_", "lt", "gt", "le")


def _linear(row: GraphRow) -> list[Work]:
    rows, inputs, outputs = row.forward[0][1]
    # nn.Linear keeps its weights as outputs × inputs, the Conv1D of GPT-2 as inputs × outputs.
    stored = 0.0 if row.function == "addmm" else 1.0
    return [product("aten::addmm", 1, rows, outputs, inputs, trans_b=stored)]


def _copied_operands(row: GraphRow) -> list[Shape]:
    if row.function != "matmul" or len(row.inputs) != 2 or len(row.inputs[0]) != 4 or row.inputs[0][0] == 1:
        return []
    return list(row.inputs) if row.before.startswith(FIRST_PRODUCT) else [row.inputs[1]]


def _batched(row: GraphRow) -> list[Work]:
    b, m, k, n = row.forward[0][1]
    return [
        *(copy("aten::clone", shape) for shape in _copied_operands(row)),
        product("aten::bmm", b, m, n, k),
    ]


def _pointwise(row: GraphRow) -> list[Work]:
    op = TRAFFIC[row.forward[0][0].removeprefix("VEC")].op
    inputs = row.inputs or (row.output,)
    read = sum(operand_reads(shape, row.output) for shape in inputs)
    return [traffic(op, "pointwise", row.numel, row.output[-1], read, row.numel, len(inputs))]


def _softmax(row: GraphRow) -> list[Work]:
    return [traffic(TRAFFIC["softmax"].op, "softmax", row.numel, row.output[-1], row.numel, row.numel, 1)]


def _layer_norm(row: GraphRow) -> list[Work]:
    length = row.output[-1]
    written = row.numel + 2 * row.numel / length
    return [traffic(TRAFFIC["ln"].op, "norm", row.numel, length, row.numel + 2 * length, written, 3)]


def _lookup(row: GraphRow) -> list[Work]:
    read = row.numel + 2 * prod(row.inputs[0])
    return [traffic("aten::embedding", "embedding", row.numel, row.output[-1], read, row.numel, 2)]


def _contiguous(row: GraphRow) -> list[Work]:
    return [copy("aten::clone", row.output)] if row.before.startswith(REORDERED) else []


def _dropout(row: GraphRow) -> list[Work]:
    if not row.forward:
        return []
    written = row.numel * (1 + MASK_BYTE / ITEM)
    return [traffic("aten::native_dropout", "pointwise", row.numel, row.output[-1], row.numel, written, 1)]


def _where(row: GraphRow) -> list[Work]:
    condition, *chosen = row.inputs
    read = operand_reads(condition, row.output) * MASK_BYTE / ITEM
    read += sum(operand_reads(shape, row.output) for shape in chosen)
    return [traffic("aten::where", "pointwise", row.numel, row.output[-1], read, row.numel, len(row.inputs))]


def _mean(row: GraphRow) -> list[Work]:
    numel = prod(row.inputs[0])
    return [traffic("aten::mean", "reduction", numel, numel / max(row.numel, 1), numel, row.numel, 1)]


def _unnamed(row: GraphRow) -> list[Work]:
    """Give the work of calls that NeuSight's graphs class as free and the framework does not."""
    function, tensor = row.function, row.numel > 1 and bool(row.inputs)
    if function == "reshape" and row.before.startswith(REORDERED):
        return [copy("aten::clone", row.output)]
    if not tensor:
        return []
    if function in ("max", "sub"):
        return [elementwise(f"aten::{'maximum' if function == 'max' else function}", row.output, 1)]
    if function == "masked_fill":
        return [
            copy("aten::clone", row.output),
            elementwise("aten::masked_fill_", row.output, 1 + MASK_BYTE / ITEM),
        ]
    if function in _MASKS:
        return [elementwise(f"aten::{function.rstrip('_')}", row.output, 1)]
    if function.endswith(LOOKED_UP) and len(row.output) == 1 + len(row.inputs[0]):
        return _lookup(row)
    return []


def _nothing(_row: GraphRow) -> list[Work]:
    return []


def _small(row: GraphRow) -> list[Work]:
    return [elementwise(f"aten::{row.function}", row.output, 1)]


FORWARD: Mapping[str, Callable[[GraphRow], list[Work]]] = {
    "Linear": _linear,
    "BMM": _batched,
    **dict.fromkeys((f"VEC{word}" for word, one in TRAFFIC.items() if one.kind == "pointwise"), _pointwise),
    "VECsoftmax": _softmax,
    "VECln": _layer_norm,
    "EMBEDDING": _lookup,
    "contiguous": _contiguous,
    "dropout": _dropout,
    "where": _where,
    "mean": _mean,
    "rsqrt": _small,
    "cumsum": _small,
    "misc": _unnamed,
    **dict.fromkeys(("getitem", "setitem", "count", "output", "Weight"), _nothing),
}
"""Class of a call to what the framework runs. Slices are views; what a mixture of experts moves between its
experts by a mask (getitem, setitem, count) depends on the data and is left out."""
