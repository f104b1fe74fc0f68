"""Derive the kernels that PyTorch's eager mode and autograd start for a call of an op graph, as fp32 rows of OPS.

`FORWARD`, `backward` and `accumulate` apply these rules, which follow PyTorch's code and are not fitted to labels.
Forward:

- Views (transpose, permute, view, expand, slices) and arithmetic of Python numbers start nothing.
- ``matmul`` of four axes reshapes its operands to three; an operand that was permuted before is copied for that,
  unless the batch is 1 (ATen/native/LinearAlgebra.cpp, `_matmul_impl`). ``bmm`` has three axes and copies nothing.
- ``contiguous`` and ``reshape`` copy a tensor that was transposed just before, and no other.
- ``max`` of a tensor and a number is an element-wise op (OPT clamps its attention weights this way).
- A repeated operand is read once if the cache still holds it at its next use, else each time.
- ``masked_fill`` copies the tensor and fills the copy (ATen/native/TensorAdvancedIndexing.cpp).
- Dropout in training also writes a mask of one byte per element (ATen/native/cuda/Dropout.cu). Its gradient is one
  kernel in a step. In a call timed alone, gradients are recorded, and it is three differentiable kernels
  (derivatives.yaml: ``infinitely_differentiable_native_dropout_backward``).

Backward, and accumulation of gradients (derivatives.yaml and the kernels it names):

- The gradient of an addition is passed on without a kernel.
- A linear layer has one product for its input, one for its weights, and a sum over the rows for its bias.
- Layer norm: one kernel for the input, one for gain and bias; both read gradient and input.
- ``tanh``, ``gelu`` and ``relu`` read the gradient and one saved tensor; a power has three kernels.
- A batched product has two products; gradients of its permuted operands are copied where heads are merged again.
- Splitting one tensor into queries, keys and values concatenates their gradients, one copy.
- ``accumulate``: gradient += new gradient, two reads and one write, for the weights and again for the bias.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

from fomkit.readers.tables.neusight import ITEM, TRAFFIC
from fomkit.validation.labels import GraphRow, Shape

Work = dict[str, str | float]
"""Columns of an OPS row but for its pass and count."""

MASK_BYTE = 1.0
"""Byte per element of the mask of a dropout or a condition."""
CACHE_BYTE = 2.0**25
"""Traffic [byte] between two uses of an operand above which no labelled device's cache still holds it (32 MiB)."""


def product(
    op: str, b: float, m: float, n: float, k: float, *, trans_a: float = 0.0, trans_b: float = 0.0
) -> Work:
    """Return the work of b products (m×k)·(k×n)."""
    return {
        "op": op, "kind": "gemm", "b": float(b), "m": float(m), "n": float(n), "k": float(k),
        "trans_a": trans_a, "trans_b": trans_b,
    }  # fmt: skip


def traffic(op: str, kind: str, numel: float, row: float, read: float, written: float, inputs: float) -> Work:
    """Return the work of an op priced by its traffic; reads and writes are counted in elements of 4 bytes."""
    return {
        "op": op, "kind": kind, "numel": float(numel), "row": float(row), "inputs": float(inputs),
        "read_byte": ITEM * read, "write_byte": ITEM * written,
    }  # fmt: skip


def elementwise(op: str, output: Shape, tensors: float) -> Work:
    """Return the work of an element-wise op that reads ``tensors`` tensors of its output's size."""
    numel = prod(output)
    return traffic(op, "pointwise", numel, output[-1], tensors * numel, numel, tensors)


def copy(op: str, shape: Shape) -> Work:
    """Return the work of a copy into new memory."""
    return traffic(op, "copy", prod(shape), shape[-1], prod(shape), prod(shape), 1)


def operand_reads(operand: Shape, output: Shape) -> float:
    """Count the elements that an op reads of an operand that is broadcast over its output.

    The operand is read once if it is still in the cache at its next use, else each time. Between two uses the
    block of the axes after the innermost repeated axis moves three times: read, written, and the operand itself.

    >>> operand_reads((16, 1, 1, 512), (16, 16, 512, 512))
    8192.0
    >>> operand_reads((2, 1, 2048, 2048), (2, 32, 2048, 2048)) == 2 * 32 * 2048 * 2048
    True
    """
    padded = (1,) * (len(output) - len(operand)) + operand
    repeated = [axis for axis, (one, whole) in enumerate(zip(padded, output, strict=True)) if one == 1 < whole]
    if not repeated or prod(operand) == 1:
        return float(prod(operand))
    block = prod(output[repeated[-1] + 1 :])
    times = prod(output[axis] for axis in repeated) if 3 * ITEM * block > CACHE_BYTE else 1
    return float(prod(operand) * times)


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
"""Element-wise calls to the kernels of their gradient, each with the number of tensors that it reads."""


def _backward_linear(row: GraphRow) -> list[Work]:
    rows, inputs, outputs = row.forward[0][1]
    stored = 0.0 if row.function == "addmm" else 1.0
    works = [product("aten::mm", 1, rows, inputs, outputs, trans_b=1.0 - stored)]
    # The weights' gradient has their own order: outputs × inputs for nn.Linear.
    sides = (outputs, inputs) if stored else (inputs, outputs)
    works.append(product("aten::mm", 1, *sides, rows, trans_a=1.0))
    if len(row.accumulate) > 1:
        works.append(traffic("aten::sum", "reduction", rows * outputs, rows, rows * outputs, outputs, 1))
    return works


def _backward_batched(row: GraphRow) -> list[Work]:
    b, m, k, n = row.forward[0][1]
    # Queries × keys has the head's length as k, and both gradients are copied; weights × values has it as n.
    sides = ((b, m, k), (b, k, n)) if k <= n else ((b, m, n), (b, k, n))
    return [
        product("aten::bmm", b, m, k, n, trans_b=1.0),
        product("aten::bmm", b, k, n, m, trans_a=1.0),
        *(copy("aten::clone", side) for side in sides),
    ]


def _backward_softmax(row: GraphRow) -> list[Work]:
    numel, length = row.numel, row.output[-1]
    return [traffic("aten::_softmax_backward_data", "softmax", numel, length, 2 * numel, numel, 2)]


def _backward_layer_norm(row: GraphRow) -> list[Work]:
    numel, length = row.numel, row.output[-1]
    read = 4 * numel + 4 * numel / length + length
    return [traffic("aten::native_layer_norm_backward", "norm", numel, length, read, numel + 2 * length, 5)]


def _backward_lookup(row: GraphRow) -> list[Work]:
    numel, table = row.numel, sum(prod(sizes) for _, sizes in row.accumulate)
    return [
        traffic("aten::embedding_dense_backward", "embedding", numel, row.output[-1],
                numel + 2 * prod(row.inputs[0]), max(table, numel), 2)
    ]  # fmt: skip


def _backward_unnamed(row: GraphRow) -> list[Work]:
    if row.function == "split" and row.inputs:
        return [copy("aten::cat", row.inputs[0])]
    if row.function == "max" and row.numel > 1:
        # Half of the gradient if both are equal, 0 if the number is larger: two masked kernels.
        return [elementwise("aten::masked_fill", row.output, 2)] * 2
    return []


def _pointwise(op: str, row: GraphRow, read: float, inputs: float) -> list[Work]:
    return [traffic(op, "pointwise", row.numel, row.output[-1], read, row.numel, inputs)]


_BACKWARD: Mapping[str, Callable[[GraphRow], list[Work]]] = {
    "Linear": _backward_linear,
    "BMM": _backward_batched,
    **dict.fromkeys(
        TENSORS, lambda row: [elementwise(op, row.output, tensors) for op, tensors in TENSORS[row.opname]]
    ),
    "VECsoftmax": _backward_softmax,
    "VECln": _backward_layer_norm,
    "EMBEDDING": _backward_lookup,
    "dropout": lambda row: _pointwise("aten::native_dropout_backward", row, row.numel * (1 + MASK_BYTE / ITEM), 2),
    "where": lambda row: _pointwise("aten::where", row, row.numel + prod(row.inputs[0]) * MASK_BYTE / ITEM, 3),
    "mean": lambda row: (
        [elementwise("aten::div", row.output, 1)] if row.inputs and prod(row.inputs[0]) > 1 else []
    ),
    "misc": _backward_unnamed,
}


def backward(row: GraphRow) -> list[Work]:
    """Return the kernels of a call's gradient."""
    return _BACKWARD[row.opname](row) if row.opname in _BACKWARD else []


def backward_alone(row: GraphRow) -> list[Work]:
    """Return the kernels of a call's gradient timed by itself, if they differ from those in a step; else none."""
    if row.opname != "dropout":
        return []
    widened = _pointwise("aten::_to_copy", row, row.numel * MASK_BYTE / ITEM, 1)
    return [*widened, elementwise("aten::mul", row.output, 1), elementwise("aten::mul", row.output, 2)]


def accumulate(row: GraphRow) -> list[Work]:
    """Return the kernels that add a call's gradients to those of the step before."""
    return [elementwise("aten::add", tuple(sizes), 2) for _, sizes in row.accumulate]


REORDERED = ("transpose", "permute")
"""Views after which the memory order is no longer the order of the axes."""
FIRST_PRODUCT = "transpose"
"""The call before the product of queries and keys: the graphs transpose the keys there, and before no other."""
LOOKED_UP = ("embed", "embeddings", "embedding", "wpe", "wte", "tokens")


def _forward_linear(row: GraphRow) -> list[Work]:
    rows, inputs, outputs = row.forward[0][1]
    # nn.Linear stores its weights as outputs × inputs, the Conv1D of GPT-2 as inputs × outputs.
    stored = 0.0 if row.function == "addmm" else 1.0
    return [product("aten::addmm", 1, rows, outputs, inputs, trans_b=stored)]


def _copied_operands(row: GraphRow) -> list[Shape]:
    if row.function != "matmul" or len(row.inputs) != 2 or len(row.inputs[0]) != 4 or row.inputs[0][0] == 1:
        return []
    return list(row.inputs) if row.before.startswith(FIRST_PRODUCT) else [row.inputs[1]]


def _forward_batched(row: GraphRow) -> list[Work]:
    b, m, k, n = row.forward[0][1]
    copies = [copy("aten::clone", shape) for shape in _copied_operands(row)]
    return [*copies, product("aten::bmm", b, m, n, k)]


def _forward_pointwise(row: GraphRow) -> list[Work]:
    op = TRAFFIC[row.forward[0][0].removeprefix("VEC")].op
    inputs = row.inputs or (row.output,)
    return _pointwise(op, row, sum(operand_reads(shape, row.output) for shape in inputs), len(inputs))


def _forward_layer_norm(row: GraphRow) -> list[Work]:
    length = row.output[-1]
    written = row.numel + 2 * row.numel / length
    return [traffic(TRAFFIC["ln"].op, "norm", row.numel, length, row.numel + 2 * length, written, 3)]


def _forward_lookup(row: GraphRow) -> list[Work]:
    read = row.numel + 2 * prod(row.inputs[0])
    return [traffic("aten::embedding", "embedding", row.numel, row.output[-1], read, row.numel, 2)]


def _forward_dropout(row: GraphRow) -> list[Work]:
    if not row.forward:
        return []
    written = row.numel * (1 + MASK_BYTE / ITEM)
    return [traffic("aten::native_dropout", "pointwise", row.numel, row.output[-1], row.numel, written, 1)]


def _forward_where(row: GraphRow) -> list[Work]:
    condition, *chosen = row.inputs
    read = operand_reads(condition, row.output) * MASK_BYTE / ITEM
    read += sum(operand_reads(shape, row.output) for shape in chosen)
    return _pointwise("aten::where", row, read, len(row.inputs))


def _mean(row: GraphRow) -> list[Work]:
    numel = prod(row.inputs[0])
    return [traffic("aten::mean", "reduction", numel, numel / max(row.numel, 1), numel, row.numel, 1)]


def _forward_unnamed(row: GraphRow) -> list[Work]:
    """Return the work of calls that NeuSight's graphs classify as free although the framework runs kernels."""
    function, tensor = row.function, row.numel > 1 and bool(row.inputs)
    if function == "reshape" and row.before.startswith(REORDERED):
        return [copy("aten::clone", row.output)]
    if not tensor:
        return []
    if function in ("max", "sub"):
        return [elementwise(f"aten::{'maximum' if function == 'max' else function}", row.output, 1)]
    if function == "masked_fill":
        filled = elementwise("aten::masked_fill_", row.output, 1 + MASK_BYTE / ITEM)
        return [copy("aten::clone", row.output), filled]
    if function in ("masked_fill_", "lt", "gt", "le"):
        return [elementwise(f"aten::{function.rstrip('_')}", row.output, 1)]
    if function.endswith(LOOKED_UP) and len(row.output) == 1 + len(row.inputs[0]):
        return _forward_lookup(row)
    return []


FORWARD: Mapping[str, Callable[[GraphRow], list[Work]]] = {
    "Linear": _forward_linear,
    "BMM": _forward_batched,
    **dict.fromkeys(
        (f"VEC{word}" for word, one in TRAFFIC.items() if one.kind == "pointwise"), _forward_pointwise
    ),
    "VECsoftmax": lambda row: [
        traffic(TRAFFIC["softmax"].op, "softmax", row.numel, row.output[-1], row.numel, row.numel, 1)
    ],
    "VECln": _forward_layer_norm,
    "EMBEDDING": _forward_lookup,
    "contiguous": lambda row: [copy("aten::clone", row.output)] if row.before.startswith(REORDERED) else [],
    "dropout": _forward_dropout,
    "where": _forward_where,
    "mean": _mean,
    **dict.fromkeys(("rsqrt", "cumsum"), lambda row: [elementwise(f"aten::{row.function}", row.output, 1)]),
    "misc": _forward_unnamed,
    **dict.fromkeys(("getitem", "setitem", "count", "output", "Weight"), lambda _row: []),
}
"""Class of a call to the kernels that the framework runs. Slices are views. The data that a mixture of experts
moves between experts by a mask (getitem, setitem, count) depends on the input and is left out."""
