"""ONNX's side of a call: tensors as arrays, number formats, and an op with its arguments by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from math import prod

from fomkit.dtypes import item_byte
from fomkit.trace.calls import Array, Call

_DTYPES: Mapping[int, str] = {
    1: "fp32", 2: "uint8", 3: "int8", 4: "int16", 5: "int16", 6: "int32", 7: "int64", 9: "bool", 10: "fp16",
    11: "fp64", 12: "int32", 13: "int64", 14: "complex64", 15: "complex128", 16: "bf16", 17: "fp8", 18: "fp8",
    19: "fp8", 20: "fp8",
}  # fmt: skip
"""fomkit's names by ONNX's numbers of element types; unsigned ones by the integer of their width."""

_storages = count(1)


def is_float(array: Array) -> bool:
    """Tell whether an array can have a gradient."""
    return array.dtype[:2] in ("fp", "bf")


def dtype_of(elem_type: int) -> str | None:
    """Give fomkit's name of an element type; ``None`` for text and formats below one byte."""
    return _DTYPES.get(elem_type)


def new_array(shape: tuple[int, ...], dtype: str) -> Array:
    """Describe a tensor in memory of its own, row by row.

    Examples
    --------
    >>> new_array((2, 3), "fp32").stride
    (3, 1)
    """
    strides = tuple(prod(shape[at + 1 :]) for at in range(len(shape)))
    return Array(shape, strides, dtype, int(item_byte(dtype)), next(_storages))


def reshaped(array: Array, shape: tuple[int, ...]) -> Array:
    """Describe the same memory in another shape."""
    strides = tuple(prod(shape[at + 1 :]) for at in range(len(shape)))
    return Array(shape, strides, array.dtype, array.item_byte, array.storage)


def permuted(array: Array, order: tuple[int, ...]) -> Array:
    """Describe the same memory with its axes in another order."""
    shape, stride = tuple(array.shape[at] for at in order), tuple(array.stride[at] for at in order)
    return Array(shape, stride, array.dtype, array.item_byte, array.storage)


def swapped(array: Array) -> Array:
    """Describe the same memory with its last two axes exchanged.

    Examples
    --------
    >>> swapped(new_array((2, 3), "fp32")).shape
    (3, 2)
    """
    axes = len(array.shape)
    return permuted(array, (*range(axes - 2), axes - 1, axes - 2))


@dataclass(frozen=True)
class Executed:
    """One op that runs in the forward pass.

    Attributes
    ----------
    op, module : str
    inputs : tuple of Array or None
        By position; ``None`` where one is left out, or is a number that the op is told.
    names, results : tuple of str
        Names of its inputs and of its outputs in the file; "" where one is left out.
    outputs : tuple of Array or None
    call : Call
        The same for the rules: arguments by the names of the op's definition, with its attributes.
    kept : list of Array
        What it keeps for its backward pass besides; put in once its rule is known to hold.
    """

    op: str
    module: str
    inputs: tuple[Array | None, ...]
    names: tuple[str, ...]
    outputs: tuple[Array | None, ...]
    results: tuple[str, ...]
    call: Call
    kept: list[Array] = field(default_factory=list)

    @property
    def made(self) -> Array:
        """Its first output."""
        return self.call.results[0]


@dataclass
class Walked:
    """A graph at given sizes.

    Attributes
    ----------
    ran : list of Executed
        Ops with work, in order.
    arrays : dict
        The array of each tensor by its name in the file, those of views in the memory of their source.
    views : dict
        For each view the name of its source.
    inputs : list of Array
    layouts : dict
        Memory that holds weights in some order, each with the memory of the weights that it holds.
    """

    ran: list[Executed] = field(default_factory=list)
    arrays: dict[str, Array] = field(default_factory=dict)
    views: dict[str, str] = field(default_factory=dict)
    inputs: list[Array] = field(default_factory=list)
    layouts: dict[int, frozenset[int]] = field(default_factory=dict)
    without_work: int = 0
    unsupported: list[str] = field(default_factory=list)
