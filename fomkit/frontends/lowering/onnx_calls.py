"""ONNX's side of a call: tensors as arrays, number formats, and ops that are one row with parts.

These are recurrent layers and attention: `recurrent` and `attention` price them, `parts_of` lists the parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

from fomkit.core.units import item_byte
from fomkit.frontends.lowering import calls
from fomkit.frontends.lowering.calls import BACKWARD, FORWARD, Array, Call, Dimensions, TracedOp, Work

_DTYPES: Mapping[int, str] = {
    1: "fp32", 2: "uint8", 3: "int8", 4: "int16", 5: "int16", 6: "int32", 7: "int64", 9: "bool", 10: "fp16",
    11: "fp64", 12: "int32", 13: "int64", 14: "complex64", 15: "complex128", 16: "bf16", 17: "fp8", 18: "fp8",
    19: "fp8", 20: "fp8",
}  # fmt: skip
"""fomkit's names by ONNX's element type numbers; unsigned integers are named as the integer of their width."""

_storages = count(1)


def is_float(array: Array) -> bool:
    """Return whether an array can have a gradient."""
    return array.dtype[:2] in ("fp", "bf")


def dtype_of(elem_type: int) -> str | None:
    """Return fomkit's name of an element type; ``None`` for text and formats below one byte."""
    return _DTYPES.get(elem_type)


def new_array(shape: tuple[int, ...], dtype: str) -> Array:
    """Describe a new tensor, stored row by row in memory of its own.

    >>> new_array((2, 3), "fp32").stride
    (3, 1)
    """
    return reshaped(Array((), (), dtype, int(item_byte(dtype)), next(_storages)), shape)


def reshaped(array: Array, shape: tuple[int, ...]) -> Array:
    """Describe the same memory with another shape."""
    return Array(shape, calls.packed_strides(shape), array.dtype, array.item_byte, array.storage)


def permuted(array: Array, order: tuple[int, ...]) -> Array:
    """Describe the same memory with its axes in another order."""
    shape, stride = tuple(array.shape[at] for at in order), tuple(array.stride[at] for at in order)
    return Array(shape, stride, array.dtype, array.item_byte, array.storage)


def swapped(array: Array) -> Array:
    """Describe the same memory with its last two axes exchanged.

    >>> swapped(new_array((2, 3), "fp32")).shape
    (3, 2)
    """
    axes = len(array.shape)
    return permuted(array, (*range(axes - 2), axes - 1, axes - 2))


@dataclass(frozen=True)
class Executed:
    """One op that runs in the forward pass.

    `inputs`: by position; ``None`` where an input is left out or is a number known to the op.
    `result`: name of its first output in the file.
    `call`: the same for the rules: arguments by the names of the op's definition, with its attributes.
    `saved_for_backward`: further arrays kept for its backward pass; added once the rule is known to apply.
    """

    op: str
    module: str
    inputs: tuple[Array | None, ...]
    outputs: tuple[Array | None, ...]
    result: str
    call: Call
    saved_for_backward: list[Array] = field(default_factory=list)

    @property
    def made(self) -> Array:
        """Its first output."""
        return self.call.results[0]


@dataclass
class Walked:
    """A graph evaluated at given sizes.

    `arrays`: the array of each tensor by its name in the file; views share the memory of their source.
    `views`: for each view the name of its source.
    `branches`: how many branches depend on data.
    `layouts`: memory that holds weights in some order, each with the memory of the weights that it holds.
    """

    ran: list[Executed] = field(default_factory=list)
    arrays: dict[str, Array] = field(default_factory=dict)
    views: dict[str, str] = field(default_factory=dict)
    inputs: list[Array] = field(default_factory=list)
    layouts: dict[int, frozenset[int]] = field(default_factory=dict)
    without_work: int = 0
    branches: int = 0
    unsupported: list[str] = field(default_factory=list)


class Cell(NamedTuple):
    """The work of one kind of recurrent layer.

    `forward`, `backward` (op, times, inputs): pointwise work of one time step, on the elements of the hidden
      state.
    `saved_for_backward`: values that the backward pass needs per element of the hidden state and step.
    """

    name: str
    gates: int
    forward: tuple[tuple[str, int, int], ...]
    backward: tuple[tuple[str, int, int], ...]
    saved_for_backward: int


CELLS: Mapping[str, Cell] = {
    "LSTM": Cell(
        "lstm", 4, (("Add", 5, 2), ("Sigmoid", 3, 1), ("Tanh", 2, 1), ("Mul", 3, 2)),
        (("Mul", 6, 2), ("TanhGrad", 2, 2), ("SigmoidGrad", 3, 2), ("Add", 2, 2)), 6,
    ),
    "GRU": Cell(
        "gru", 3, (("Add", 5, 2), ("Sigmoid", 2, 1), ("Tanh", 1, 1), ("Mul", 2, 2), ("Sub", 1, 2)),
        (("Mul", 4, 2), ("TanhGrad", 1, 2), ("SigmoidGrad", 2, 2), ("Add", 3, 2)), 5,
    ),
    "RNN": Cell("vanilla", 1, (("Add", 1, 2), ("Tanh", 1, 1)), (("TanhGrad", 1, 2), ("Add", 1, 2)), 0),
}  # fmt: skip
"""The cells as PyTorch decomposes them, step by step."""


def _lengths(call: Call) -> tuple[int, int, int]:
    """Return steps, batch and input size."""
    values = call.array("X")
    first, second, features = values.shape
    return (second, first, features) if call.arguments.get("layout") else (first, second, features)


def recurrent(call: Call) -> list[Work]:
    """Price LSTM, GRU and RNN."""
    steps, batch, features = _lengths(call)
    state = call.array("R")
    directions, hidden = state.shape[0], state.shape[-1]
    if call.array("W").shape[-1] != features:
        raise ValueError(f"{call.op} takes {features} values a step with a weight of {call.array('W').shape}")
    sizes = calls.rnn_sizes(CELLS[call.op].name, batch, steps, (features, hidden), directions=directions)
    return [Work("rnn", sizes, call.array("X").dtype)]


def saved_byte(call: Call) -> int:
    """Return the bytes that a recurrent layer keeps for its backward pass besides its input and output [byte]."""
    steps, batch, _ = _lengths(call)
    directions, _, hidden = call.array("R").shape
    return CELLS[call.op].saved_for_backward * steps * batch * directions * hidden * call.array("X").item_byte


def attention_sizes(call: Call) -> Dimensions:
    """Return the dimensions of an attention's row; the tensors have heads as an axis or side by side."""
    query, key, value = (call.array(name) for name in "QKV")
    heads, kv_heads = int(call.arguments.get("q_num_heads", 1)), int(call.arguments.get("kv_num_heads", 1))
    if len(query.shape) == 4:
        heads, kv_heads = query.shape[1], key.shape[1]
    past = call.arguments.get("past_key")
    kv_len = key.shape[-2] + (past.shape[-2] if isinstance(past, Array) else 0)
    width = query.shape[-1] // (1 if len(query.shape) == 4 else heads)
    of_values = value.shape[-1] // (1 if len(value.shape) == 4 else kv_heads)
    causal, lengths = call.arguments.get("is_causal", 0), (query.shape[-2], kv_len)
    return calls.attention_sizes(query.shape[0], (heads, kv_heads), lengths, (width, of_values), causal=causal)


def attention(call: Call) -> list[Work]:
    """Price Attention; if values are wider or narrower than keys, the mean of both widths counts."""
    return [Work("attention", attention_sizes(call), call.array("Q").dtype)]


Part = tuple[str, str, Dimensions]
"""An op with its kind and dimensions."""


def _pointwise_part(op: str, numel: int, inputs: int, item_byte: int, row: int = 0) -> Part:
    byte = numel * item_byte
    found: Dimensions = {"numel": numel, "inputs": inputs, "read_byte": inputs * byte, "write_byte": byte}
    return (op, "softmax", {**found, "row": row}) if row else (op, "pointwise", found)


def _product_part(op: str, *sizes: int) -> Part:
    return op, "gemm", calls.gemm_sizes(*sizes)


def _recurrent_parts(call: Call, backward: bool) -> list[tuple[Part, int, str]]:
    cell, (steps, batch, features) = CELLS[call.op], _lengths(call)
    directions, _, hidden = call.array("R").shape
    item, wide, times = call.array("X").item_byte, cell.gates * hidden, steps * directions
    if not backward:
        parts = [
            (_product_part("Gemm", 1, batch, wide, length, 0, 1), times, FORWARD) for length in (features, hidden)
        ]
        small = [(_pointwise_part(op, batch * hidden, inputs, item), each * times, FORWARD)
                 for op, each, inputs in cell.forward]  # fmt: skip
        return parts + small
    both = (features, hidden)
    parts = [(_product_part("Gemm", 1, batch, length, wide), times, calls.INPUT_GRADIENT) for length in both]
    parts += [(_product_part("Gemm", 1, wide, length, batch, 1), times, calls.WEIGHT_GRADIENT) for length in both]
    small = [(_pointwise_part(op, batch * hidden, inputs, item), each * times, calls.INPUT_GRADIENT)
             for op, each, inputs in cell.backward]  # fmt: skip
    added = [(_pointwise_part("Add", wide * length, 2, item), (steps - 1) * directions, calls.WEIGHT_GRADIENT)
             for length in both if steps > 1]  # fmt: skip
    return parts + small + added


def _attention_parts(call: Call, backward: bool) -> list[tuple[Part, int, str]]:
    sizes = attention_sizes(call)
    outer = int(sizes["batch"]) * int(sizes["heads"])
    rows, columns = int(sizes["q_len"]), int(sizes["kv_len"])
    query, value = call.array("Q"), call.array("V")
    width = query.shape[-1] // (1 if len(query.shape) == 4 else int(sizes["heads"]))
    out = value.shape[-1] // (1 if len(value.shape) == 4 else int(sizes["kv_heads"]))
    numel, item = outer * rows * columns, query.item_byte
    if not backward:
        return [
            (_product_part("MatMul", outer, rows, columns, width, 0, 1), 1, FORWARD),
            (_pointwise_part("Softmax", numel, 1, item, columns), 1, FORWARD),
            (_product_part("MatMul", outer, rows, out, columns), 1, FORWARD),
        ]
    return [
        (_product_part("MatMulGrad", outer, rows, columns, out, 0, 1), 1, BACKWARD),
        (_product_part("MatMulGrad", outer, columns, out, rows, 1, 0), 1, BACKWARD),
        (_pointwise_part("SoftmaxGrad", numel, 2, item, columns), 1, BACKWARD),
        (_product_part("MatMulGrad", outer, rows, width, columns), 1, BACKWARD),
        (_product_part("MatMulGrad", outer, columns, width, rows, 1, 0), 1, BACKWARD),
    ]


def parts_of(
    call: Call, dtype: str, module: str, *, backward: bool, input_gradient: bool = True
) -> list[TracedOp]:
    """Return the parts of a row that is one op, without the gradient of data, which is not computed."""
    made = (_attention_parts if call.op == "Attention" else _recurrent_parts)(call, backward)
    if backward and not input_gradient and call.op != "Attention":
        made = made[1:]
    run = ((*part, times, pass_name) for part, times, pass_name in made if times)
    return [TracedOp(op, kind, sizes, dtype, name, module, count=times) for op, kind, sizes, times, name in run]
