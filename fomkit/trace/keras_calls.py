"""TensorFlow's side of a call: tensors as arrays, and an op of a graph with its arguments by name."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from math import prod
from typing import Any

from fomkit.trace.calls import Array, Call
from fomkit.trace.keras_graph import Operation, Place, Ran, Tensor

_DTYPES: Mapping[str, str] = {
    "float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8", "complex128": "complex128", "complex64": "complex64", "int64": "int64", "int32": "int32",
    "int16": "int16", "int8": "int8", "uint8": "uint8", "bool": "bool",
}  # fmt: skip
_BY_WIDTH = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}
_OTHERS = ("resource", "variant", "string")
"""Number formats of tensors that hold no numbers: handles, lists and texts."""


_ALIASES = frozenset(
    ["EnsureShape", "ExpandDims", "Identity", "IdentityN", "PreventGradient", "Reshape", "Squeeze", "StopGradient"]
)
"""Ops that give back the memory of their input."""


_STATISTICS = 2
"""Place of the last result of a fused normalisation that means something: values, mean and variance."""


class ShapeUnknown(Exception):  # noqa: N818 - a verdict, not a fault
    """A tensor's shape depends on data."""


def dtype_name(dtype: Any) -> str:
    """Give fomkit's name of a number format; a rare one is named by an integer of its width."""
    name = str(getattr(dtype, "name", dtype))
    return _DTYPES.get(name) or _BY_WIDTH[dtype.size]


def _is_known(tensor: Tensor) -> bool:
    return tensor.shape.rank is not None and None not in tensor.shape.as_list()


def _is_scratch(tensor: Tensor) -> bool:
    """Tell what a fused op keeps for its own gradient, whose size is the device's affair."""
    return str(tensor.op.type).startswith("FusedBatchNorm") and int(tensor.value_index) > _STATISTICS


def _shape(tensor: Tensor, place: Place) -> tuple[int, ...]:
    """Give a shape: the tensor's own, what a function was called with, or what it is reshaped to next."""
    source, _ = place.source(tensor)
    reshaped = (op.outputs[0] for op in tensor.consumers() if op.type == "Reshape")
    for one in (tensor, source, *reshaped):
        if _is_known(one):
            return tuple(one.shape.as_list())
    raise ShapeUnknown(f"{tensor.op.type}: the shape of {tensor.name} depends on data")


def _origin(tensor: Tensor) -> Tensor:
    """Follow a tensor to the one whose memory it shares."""
    while tensor.op.type in _ALIASES:
        tensor = tensor.op.inputs[tensor.value_index if tensor.op.type == "IdentityN" else 0]
    return tensor


def as_array(tensor: Tensor, place: Place) -> Array | None:
    """Describe a tensor, rows one after the other; None for what holds no numbers.

    Raises
    ------
    ShapeUnknown
        Where its shape depends on data.
    """
    if tensor.dtype.name in _OTHERS:
        return None
    shape = _shape(tensor, place)
    stride = tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))
    origin = _origin(tensor)
    return Array(shape, stride, dtype_name(tensor.dtype), tensor.dtype.size, id(origin.op) + origin.value_index)


def _inputs(op: Operation, arrays: Sequence[Array | None]) -> dict[str, Any]:
    """Give the arguments their names; what the op takes any number of becomes a tuple."""
    found: dict[str, Any] = {}
    at = 0
    for argument in op.op_def.input_arg:
        if argument.number_attr or argument.type_list_attr:
            many = op.get_attr(argument.number_attr) if argument.number_attr else len(
                op.get_attr(argument.type_list_attr))  # fmt: skip
            found[argument.name] = tuple(arrays[at : at + many])
            at += many
        else:
            found[argument.name] = arrays[at]
            at += 1
    return found


def describe_call(ran: Ran, folded: Container[Operation], *, in_backward: bool, of_transposed: bool) -> Call:
    """Put an op of a graph into framework-free words.

    Parameters
    ----------
    ran : Ran
    folded : container of Operation
        Those whose results are worked out once; lists of axes among them may have any length, and cost nothing.
    in_backward : bool
    of_transposed : bool
        Whether it is a gradient of a transposed convolution.

    Raises
    ------
    ShapeUnknown
        Where a shape depends on data.
    """
    op, place = ran.op, ran.place
    spared = [not _is_known(tensor) and (tensor.op in folded or _is_scratch(tensor)) for tensor in op.inputs]
    given = zip(op.inputs, spared, strict=True)
    arguments = _inputs(op, [None if is_spared else as_array(tensor, place) for tensor, is_spared in given])
    for attribute in op.op_def.attr:
        if attribute.type in ("bool", "int", "string", "list(int)", "float"):
            value = op.get_attr(attribute.name)
            arguments[attribute.name] = value.decode() if isinstance(value, bytes) else value
    arguments |= {"in_backward": in_backward, "of_transposed": of_transposed}
    made = [tensor for tensor in op.outputs if _is_known(tensor) or not _is_scratch(tensor)]
    results = [array for tensor in made if (array := as_array(tensor, place)) is not None]
    return Call(op.type, arguments, tuple(results))
