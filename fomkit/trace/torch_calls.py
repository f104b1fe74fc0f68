"""PyTorch's side of a call: tensors as arrays, arguments by the schema's names, and what is known of an op."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from fomkit.trace.aten_table import find_rule
from fomkit.trace.calls import Array, Call, Rule
from fomkit.trace.torch_storages import held_tensor, storage_id
from fomkit.trace.traffic import pointwise

_DTYPES: Mapping[torch.dtype, str] = {
    torch.float64: "fp64",
    torch.float32: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.float8_e4m3fn: "fp8",
    torch.float8_e5m2: "fp8",
    torch.complex128: "complex128",
    torch.complex64: "complex64",
    torch.int64: "int64",
    torch.int32: "int32",
    torch.int16: "int16",
    torch.int8: "int8",
    torch.uint8: "uint8",
    torch.bool: "bool",
}
_BY_WIDTH = {1: "uint8", 2: "int16", 4: "int32", 8: "int64", 16: "complex128"}


def dtype_name(dtype: torch.dtype) -> str:
    """Give fomkit's name of a number format; a rare one is named by an integer of its width."""
    return _DTYPES.get(dtype) or _BY_WIDTH[dtype.itemsize]


def as_array(tensor: torch.Tensor) -> Array:
    """Describe a tensor without its data."""
    tensor = held_tensor(tensor)
    return Array(
        tuple(tensor.shape),
        tensor.stride(),
        dtype_name(tensor.dtype),
        tensor.element_size(),
        storage_id(tensor),
        int(tensor.storage_offset()),
    )


def _described(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return as_array(value)
    if isinstance(value, list | tuple):
        return tuple(_described(item) for item in value)
    return value


@dataclass(frozen=True, slots=True)
class OpFacts:
    """What is known of an op before it is called.

    Attributes
    ----------
    name : str
        With its library: ``aten::mm``.
    state : str
        priced, zero_work, unsupported, composite (to be taken apart) or framework (its own questions, not work).
    rule : Rule or None
        Of a priced op.
    parameters : tuple of str
        Names of the arguments in order.
    written : tuple of str
        Arguments that the op writes in place.
    """

    name: str
    state: str
    rule: Rule | None
    parameters: tuple[str, ...]
    written: tuple[str, ...]

    @property
    def written_places(self) -> tuple[int, ...]:
        """Positions of the arguments that the op writes in place."""
        return tuple(self.parameters.index(name) for name in self.written)


def _is_pointwise(op: Any) -> bool:
    if torch.Tag.pointwise in op.tags:
        return True
    # In-place spellings do not all carry the tag of the op they are a spelling of.
    library, _, name = op._schema.name.partition("::")
    if not name.endswith("_"):
        return False
    packet = getattr(getattr(torch.ops, library), name.removesuffix("_"), None)
    overload = getattr(packet, op._overloadname, None)
    return overload is not None and torch.Tag.pointwise in overload.tags


def _is_view(schema: Any) -> bool:
    aliases = [result.alias_info for result in schema.returns]
    return any(alias is not None and not alias.is_write for alias in aliases)


def _state(op: Any, name: str) -> tuple[str, Rule | None]:
    known, rule = find_rule(name)
    if known:
        return ("priced" if rule else "zero_work"), rule
    if _is_pointwise(op):
        return "priced", pointwise
    if torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd"):
        return "composite", None
    if _is_view(op._schema):
        return "zero_work", None
    return "unsupported", None


@cache
def facts_of(op: Any) -> OpFacts:
    """Find out once what is to be done with an op."""
    schema = getattr(op, "_schema", None)
    if schema is None:
        return OpFacts(str(op), "unsupported", None, (), ())
    if schema.name.partition("::")[0] in ("prim", "profiler"):
        return OpFacts(schema.name, "framework", None, (), ())
    state, rule = _state(op, schema.name)
    written = [entry.name for entry in schema.arguments if entry.alias_info and entry.alias_info.is_write]
    return OpFacts(schema.name, state, rule, tuple(entry.name for entry in schema.arguments), tuple(written))


def describe_call(facts: OpFacts, args: Sequence[Any], kwargs: Mapping[str, Any], results: Any) -> Call:
    """Put a call into framework-free words."""
    arguments = {name: _described(value) for name, value in zip(facts.parameters, args, strict=False)}
    arguments.update((name, _described(value)) for name, value in kwargs.items())
    returned = results if isinstance(results, list | tuple) else (results,)
    arrays = [as_array(result) for result in returned if isinstance(result, torch.Tensor)]
    arrays += [array for name in facts.written if isinstance(array := arguments.get(name), Array)]
    return Call(facts.name, arguments, tuple(arrays))
