"""PyTorch's side of a call: tensors as arrays, storages, facts about ops, and inputs without data.

`describe_call` makes a framework-free `Call`, `facts_of` says how to treat an op, and `inputs_and_sizes` makes the
inputs.
"""

from __future__ import annotations

import copy
import gc
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache, partial
from itertools import count
from types import CellType, FunctionType, ModuleType
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves, tree_map

from fomkit.core.errors import FomkitError
from fomkit.core.model import Workload
from fomkit.frontends.drafting import replaced
from fomkit.frontends.lowering.aten import find_rule
from fomkit.frontends.lowering.calls import Array, Call, Rule, format_name, pointwise
from fomkit.frontends.sizes import NO_BATCH, MakeInputs, Sizes, call_inputs, chosen_sizes, named_sizes
from fomkit.frontends.torch.forms import has_form, without_data

_NUMBERS = count()
_NUMBER = "_fomkit_number"

_NO_VALUES = (type, torch.nn.Module, ModuleType, FunctionType, torch.SymInt)


def tensors_of(values: Any, _seen: frozenset[int] = frozenset()) -> list[torch.Tensor]:
    """Return the tensors in nested lists, tuples and mappings, and in the attributes of other objects."""
    found = []
    for leaf in tree_leaves(values):
        if isinstance(leaf, torch.Tensor):
            found.append(leaf)
        elif hasattr(leaf, "__dict__") and not isinstance(leaf, _NO_VALUES) and id(leaf) not in _seen:
            found += tensors_of(list(vars(leaf).values()), _seen | {id(leaf)})
    return found


def tensors_in(values: Sequence[Any]) -> Iterator[torch.Tensor]:
    """Return the tensors among an op's arguments, which nest no deeper than lists."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from tensors_in(value)


def map_tensors(change: Callable[[torch.Tensor], torch.Tensor], values: Any) -> Any:
    """Change every tensor in nested values and in the attributes of other objects, which are copied."""

    def changed(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return change(leaf)
        inside = {id(one): change(one) for one in tensors_of(leaf)}
        return copy.deepcopy(leaf, inside) if inside else leaf

    return tree_map(changed, dict(values) if isinstance(values, Mapping) else values)


_CACHED = type(cache(len))


def forget_forms() -> None:
    """Empty the caches of functions (`functools.cache`) that hold tensors without data.

    The user's model would get these tensors when it really runs.
    """
    for function in [one for one in gc.get_objects() if type(one) is _CACHED]:
        held = (list(one.values()) if isinstance(one, dict) else one for one in gc.get_referents(function))
        if any(tensor.is_meta or isinstance(tensor, FakeTensor) for tensor in tensors_in(list(held))):
            function.cache_clear()


def unwrapped(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor, with all its samples, for which one inside torch.func stands."""
    inside: Any = torch._C._functorch
    while inside.is_functorch_wrapped_tensor(tensor):
        tensor = inside.get_unwrapped(tensor)
    return tensor


def held_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor that holds the memory: of a sparse one its values; inside torch.func, all its samples."""
    tensor = unwrapped(tensor)
    if tensor.layout is torch.strided:
        return tensor
    values = tensor._values() if tensor.layout is torch.sparse_coo else tensor.values()
    if isinstance(tensor, FakeTensor) and not len(values):
        has_form(tensor)
    return values


def storage_of(tensor: torch.Tensor) -> Any:
    """Return the storage of a tensor; views share it."""
    return held_tensor(tensor).untyped_storage()


def storage_id(tensor: torch.Tensor) -> int:
    """Return the number of a tensor's storage; views share it, and a number is never used again."""
    storage = storage_of(tensor)
    number = getattr(storage, _NUMBER, None)
    if number is None:
        number = next(_NUMBERS)
        setattr(storage, _NUMBER, number)
    return int(number)


class FreedWatch:
    """Calls ``on_freed`` with the number of each watched storage that is freed."""

    def __init__(self, on_freed: Callable[[int], None]) -> None:
        self._on_freed = on_freed
        self._watched: dict[int, weakref.ref[Any]] = {}

    def new_ones(self, tensors: Iterable[torch.Tensor]) -> Iterator[tuple[int, int]]:
        """Watch those storages of some tensors that are not watched yet; yield number and size [byte] of each."""
        for tensor in tensors:
            number = storage_id(tensor)
            if number not in self._watched:
                storage = storage_of(tensor)
                self._watched[number] = weakref.ref(storage, partial(self._gone, number))
                yield number, int(storage.nbytes())

    def _gone(self, number: int, _: object) -> None:
        self._on_freed(number)

    def stop(self) -> None:
        """Stop watching."""
        self._watched.clear()


@cache
def dtype_name(dtype: torch.dtype) -> str:
    """Return fomkit's name of a number format."""
    return format_name(str(dtype).removeprefix("torch."), dtype.itemsize)


def as_array(tensor: torch.Tensor) -> Array:
    """Describe a tensor without its data."""
    tensor = held_tensor(tensor)
    place = storage_id(tensor), int(tensor.storage_offset())
    return Array(tuple(tensor.shape), tensor.stride(), dtype_name(tensor.dtype), tensor.element_size(), *place)


_PACKED = ("weight", "stride", "padding", "dilation", "groups", "transpose")
"""What the packed weights of a quantised convolution state."""


def _described(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return as_array(value)
    if isinstance(value, list | tuple):
        return tuple(_described(item) for item in value)
    if isinstance(value, torch.ScriptObject):  # a layer's packed weights
        return {name: _described(getattr(value, name)()) for name in _PACKED if hasattr(value, name)}
    return value


@dataclass(frozen=True, slots=True)
class OpFacts:
    """What is known of an op before it is called.

    `name`: with its library: ``aten::mm``.
    `state`: priced, zero_work, unsupported, composite (to be decomposed) or framework (PyTorch's own, no work).
    `written`: arguments that the op writes in place.
    """

    name: str
    state: str
    rule: Rule | None
    parameters: tuple[str, ...]
    written: tuple[str, ...]


def _is_pointwise(op: Any) -> bool:
    if torch.Tag.pointwise in op.tags:
        return True
    # Not every in-place spelling carries the tag of its out-of-place op, and no primitive does.
    library, _, name = op._schema.name.partition("::")
    if library == "prims":
        packet, overload_name = getattr(torch.ops.aten, name, None), "Tensor"
    elif name.endswith("_"):
        packet = getattr(getattr(torch.ops, library), name.removesuffix("_"), None)
        overload_name = op._overloadname
    else:
        return False
    overload = getattr(packet, overload_name, None)
    return overload is not None and torch.Tag.pointwise in overload.tags


def _state(op: Any, name: str) -> tuple[str, Rule | None]:
    known, rule = find_rule(name)
    if known:
        return ("priced" if rule else "zero_work"), rule
    if _is_pointwise(op):
        return "priced", pointwise
    if torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd"):
        return "composite", None
    is_view = any(one.alias_info is not None and not one.alias_info.is_write for one in op._schema.returns)
    return ("zero_work" if is_view else "unsupported"), None


@cache
def facts_of(op: Any) -> OpFacts:
    """Return how an op is treated; determined once per op."""
    schema = getattr(op, "_schema", None)
    if schema is None:
        return OpFacts(str(op), "unsupported", None, (), ())
    if schema.name.partition("::")[0] in ("prim", "profiler"):
        return OpFacts(schema.name, "framework", None, (), ())
    state, rule = _state(op, schema.name)
    written = [entry.name for entry in schema.arguments if entry.alias_info and entry.alias_info.is_write]
    return OpFacts(schema.name, state, rule, tuple(entry.name for entry in schema.arguments), tuple(written))


def describe_call(facts: OpFacts, args: Sequence[Any], kwargs: Mapping[str, Any], results: Any) -> Call:
    """Describe a call without the framework."""
    arguments = {name: _described(value) for name, value in zip(facts.parameters, args, strict=False)}
    arguments.update((name, _described(value)) for name, value in kwargs.items())
    returned = results if isinstance(results, list | tuple) else (results,)
    arrays = [as_array(result) for result in returned if isinstance(result, torch.Tensor)]
    arrays += [array for name in facts.written if isinstance(array := arguments.get(name), Array)]
    return Call(facts.name, arguments, tuple(arrays))


def _copied_model(model: torch.nn.Module, memo: dict[int, Any]) -> torch.nn.Module:
    """Copy a model; functions among its attributes, such as a lambda that calls a layer, use the copy's layers."""

    def cell(given: CellType) -> CellType:
        is_empty = given == CellType()
        return given if is_empty else CellType(memo.get(id(given.cell_contents), given.cell_contents))

    found = copy.deepcopy(model, memo)
    for module in found.modules():
        for name, part in vars(module).items():
            if isinstance(part, FunctionType) and part.__closure__:
                cells = tuple(map(cell, part.__closure__))
                made = FunctionType(part.__code__, part.__globals__, name, part.__defaults__, cells)
                made.__kwdefaults__ = part.__kwdefaults__
                vars(module)[name] = made
    return found


def model_to_trace(
    model: torch.nn.Module, *, own: bool, data: bool = False
) -> tuple[torch.nn.Module, dict[int, torch.Tensor]]:
    """Return a model without data, and its stand-in for the ``id`` of each given parameter and buffer.

    `own`: whether the model itself may be changed; otherwise it is copied and stays as it is. `data`: whether the
    model keeps its data.
    """
    tensors = [*model.parameters(), *model.buffers()]
    parts = [part for module in model.modules() for part in vars(module).values()]
    # A copy would set the state of a random generator from a tensor, which has no data here.
    memo: dict[int, Any] = {id(part): part.clone_state() for part in parts if isinstance(part, torch.Generator)}
    if data:
        ready = model if own else _copied_model(model, memo)
        with torch._C.DisableTorchFunction():  # a model on a GPU really moves
            ready.cpu()
        copies = [*ready.parameters(), *ready.buffers()]
        return ready, {id(one): other for one, other in zip(tensors, copies, strict=True)}
    own = own and not isinstance(model, torch.jit.ScriptModule)  # whose tensors cannot be replaced
    stand_ins = {id(tensor): without_data(tensor, again=not own) for tensor in tensors}
    if not own:
        # Shared parameters stay shared, because deepcopy first looks up every tensor in this memo.
        return _copied_model(model, {**memo, **stand_ins}), stand_ins
    for module in model.modules():
        for held in (module._parameters, module._buffers):
            tensors_held: dict[str, Any] = held
            tensors_held.update({name: stand_ins[id(one)] for name, one in held.items() if one is not None})
    return model, stand_ins


def _from_function(make: Callable[..., Any], where: str, *, real: bool) -> MakeInputs:
    def inputs(sizes: Sizes) -> Any:
        values = call_inputs(make, sizes)
        values = values if real else map_tensors(without_data, values)
        if not tensors_of(values):
            what = f"inputs({sizes['batch']}) gave no tensor"
            raise FomkitError(where, f"{what}. Let it return a tensor, a tuple or a dict.")
        return values

    return inputs


def _from_tensors(values: Any, given: int, where: str, *, real: bool) -> MakeInputs:
    def at(batch: int, leaf: torch.Tensor) -> torch.Tensor:
        if batch != given and leaf.dim() and leaf.shape[0] == given:
            if real:
                return leaf[torch.arange(batch) % given]
            return leaf.new_empty((batch, *leaf.shape[1:]))
        return leaf

    def inputs(sizes: Sizes) -> Any:
        batch = sizes["batch"]
        fits = any(tensor.dim() and tensor.shape[0] == given for tensor in tensors_of(values))
        if batch != given and not fits:
            raise FomkitError(
                where,
                f"no input tensor has the batch size {given} as its first dimension, so batch {batch} cannot be "
                "made. Give inputs as a function of the batch size.",
            )
        return map_tensors(partial(at, batch), values)

    return inputs


def inputs_and_sizes(
    workload: Workload, wanted: Sizes, where: str, *, real: bool = False
) -> tuple[MakeInputs, dict[str, int]]:
    """Return the inputs as a function of the named sizes, and the sizes to trace at, the batch first.

    `wanted`: the sizes requested. By default the batch is the workload's own, the default of the inputs function
    or the first dimension of the first input; other sizes are the defaults of the inputs function. `where`: the
    user's file, for messages. `real`: whether inputs keep their data; a larger batch repeats given tensors.
    """
    given = workload.batch_size
    if callable(workload.inputs) and not isinstance(workload.inputs, torch.Tensor):
        own_sizes = named_sizes(workload.inputs, where)
        batch = wanted.get("batch") or given or own_sizes.get("batch")
        if batch is None:
            raise FomkitError(where, NO_BATCH)
        known = {"batch": batch} | own_sizes | {"batch": batch}
        return _from_function(workload.inputs, where, real=real), chosen_sizes(known, wanted, where)
    values = workload.inputs if real else map_tensors(without_data, workload.inputs)
    tensors = tensors_of(values)
    if not tensors:
        sizes = isinstance(values, tuple | list) and all(type(one) is int for one in values)
        do = f" For one of these sizes: torch.zeros{tuple(values)}." if sizes and values else ""
        what = f"inputs is {values!r:.80}, without a tensor. Give a tensor, a tuple or a dict.{do}"
        raise FomkitError(where, what)
    own = given or (tensors[0].shape[0] if tensors[0].dim() else 1)
    return _from_tensors(values, own, where, real=real), chosen_sizes({"batch": own}, wanted, where)


MOST_UPDATED = 100_000_000
"""Most parameters that get data so that an optimizer's code can read their values."""


def with_data(parameters: Mapping[int, torch.Tensor]) -> dict[int, torch.Tensor]:
    """Return parameters like others with data, and with a gradient where those have one; all numbers are 0.01."""
    found = {}
    for key, one in parameters.items():
        found[key] = torch.full(one.shape, 0.01, dtype=one.dtype, requires_grad=one.requires_grad)
        found[key].grad = None if one.grad is None else found[key].detach().clone()
    return found


def all_tensors_at_once() -> AbstractContextManager[None]:
    """Let optimizers update all tensors at once inside the block, their default on accelerators only."""
    module = sys.modules[torch.optim.Optimizer.__module__]
    return replaced(module, _get_foreach_kernels_supported_devices=lambda: ["cpu", "meta"])
