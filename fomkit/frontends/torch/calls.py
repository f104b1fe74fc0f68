"""PyTorch's side of a call: tensors as arrays, storages, facts about ops, and inputs without data.

`describe_call` makes a framework-free `Call`, `facts_of` says how to treat an op, `shape_only` lets the user's
code run on tensors without data, and `inputs_and_sizes` makes the inputs.
"""

from __future__ import annotations

import copy
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, partial
from itertools import count
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map

from fomkit.core.errors import FomkitError
from fomkit.core.model import Workload
from fomkit.frontends.drafting import replaced, watched
from fomkit.frontends.lowering.aten import find_rule
from fomkit.frontends.lowering.calls import Array, Call, Rule, alignment_states, format_name, pointwise
from fomkit.frontends.sizes import MakeInputs, Sizes, call_inputs, chosen_sizes, named_sizes
from fomkit.frontends.step import Route

_NUMBERS = count()
_NUMBER = "_fomkit_number"


def tensors_of(values: Any) -> list[torch.Tensor]:
    """Return the tensors in nested lists, tuples, mappings and dataclasses."""
    found = []
    for leaf in tree_leaves(values):
        if isinstance(leaf, torch.Tensor):
            found.append(leaf)
        elif is_dataclass(leaf) and not isinstance(leaf, type):
            found += tensors_of([getattr(leaf, one.name) for one in fields(leaf)])
    return found


def held_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor that holds the memory: of a sparse one its values; inside torch.func, all its samples."""
    inside: Any = torch._C._functorch
    while inside.is_functorch_wrapped_tensor(tensor):
        tensor = inside.get_unwrapped(tensor)
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


def _described(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return as_array(value)
    if isinstance(value, list | tuple):
        return tuple(_described(item) for item in value)
    return value


@dataclass(frozen=True, slots=True)
class OpFacts:
    """What is known of an op before it is called.

    `name`: with its library: ``aten::mm``.
    `state`: priced, zero_work, unsupported, composite (to be decomposed) or framework (PyTorch's own, no work).
    `rule`: of a priced op.
    `parameters`: names of the arguments in order.
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
        packet, overload_name = (
            getattr(getattr(torch.ops, library), name.removesuffix("_"), None),
            op._overloadname,
        )
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


_MOVES = ("cuda", "cpu", "xpu", "npu", "mps", "ipu", "hpu", "pin_memory")
_KEEP = {getattr(torch.Tensor, name) for name in _MOVES if hasattr(torch.Tensor, name)}
_CONSTANTS = (torch.tensor, torch.as_tensor, torch.arange, torch.linspace, torch.logspace, torch.full)
MOST_HALVES = 10_000
"""How often a single random number is 0.5 in the trace of a model."""
CONSTANT_NUMEL = 4096
"""Largest number of elements for which a constant may keep its values."""


class StayShapeOnly(TorchFunctionMode):
    """Keeps every tensor where it is: moves to a device do nothing, and copies of tensors without data have none.

    `route`: with ``constants`` small constants get their values, because models read them back as plain numbers.
      Except with ``meta``, a single random number is 0.5: code compares it with a small rate to leave a layer out.
      Code that draws until a number suits it gets others after `MOST_HALVES`.
    """

    def __init__(self, route: Route) -> None:
        super().__init__()
        self._route, self._has_data, self._halves = route, route == "data", 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a function of the user's code."""
        kwargs = {name: value for name, value in (kwargs or {}).items() if name != "device"}
        if func in _KEEP:
            return args[0]
        if func is torch.Tensor.to:
            return _to_dtype(args[0], args[1:], kwargs)
        if func is torch.from_numpy and not self._has_data:
            return without_data(func(*args, **kwargs))
        keeps = self._route == "constants"
        if func is torch.Tensor.__deepcopy__:  # of a tensor that is neither parameter nor buffer
            keeps_this = keeps and not args[0].requires_grad and args[0].numel() <= CONSTANT_NUMEL
            if not (self._has_data or keeps_this):
                return without_data(args[0], again=True)
            if keeps_this or args[0].layout is not torch.strided:
                return args[0].detach().clone()
        if keeps and func in _CONSTANTS:
            with _disable_current_modes():  # only its size is wanted, so this is no op of the step
                made = func(*args, **kwargs)
            if made.numel() <= CONSTANT_NUMEL and not any(made is one for one in args):
                return func(*args, **kwargs, device="cpu")
        made = func(*args, **kwargs)
        if func is torch.rand and made.numel() == 1 and self._route != "meta":
            self._halves += 1
            place = "cpu" if keeps else None
            if self._halves > MOST_HALVES:
                return made if place is None else func(*args, **kwargs, device=place)
            return torch.tensor(0.5, dtype=made.dtype, device=place).reshape(made.shape)
        return made


def _to_dtype(tensor: torch.Tensor, moves: tuple[Any, ...], kwargs: Mapping[str, Any]) -> torch.Tensor:
    """Apply all changes of ``tensor.to(…)`` except the change of device."""
    changes = {name: value for name, value in kwargs.items() if name != "non_blocking" and value is not None}
    for move in (*moves, changes.pop("other", None)):
        if isinstance(move, torch.dtype | torch.Tensor):
            changes["dtype"] = move.dtype if isinstance(move, torch.Tensor) else move
    return tensor.to(**changes) if changes else tensor


def has_form(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor; raise if it is sparse, since the number of its elements is part of its data."""
    if tensor.layout is not torch.strided:
        raise NotImplementedError(f"a tensor with the layout {tensor.layout} has no form without data")
    return tensor


def without_data(tensor: torch.Tensor, *, again: bool = False) -> torch.Tensor:
    """Return a tensor with the same shape, strides and dtype, but without data.

    A tensor that has no data already is returned itself, unless ``again``.
    """
    if (tensor.is_meta or isinstance(tensor, FakeTensor)) and not again:
        return tensor
    has_form(tensor)
    if is_lazy(tensor):
        kind: Any = type(tensor)
        lazy: torch.Tensor = kind(requires_grad=tensor.requires_grad, dtype=tensor.dtype)
        return lazy
    empty = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype)
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(empty, tensor.requires_grad)
    return empty.requires_grad_(tensor.requires_grad)


def tree_without_data(values: Any) -> Any:
    """Replace every tensor in nested lists, tuples and mappings by one without data."""
    nested = dict(values) if isinstance(values, Mapping) else values
    return tree_map(lambda leaf: without_data(leaf) if isinstance(leaf, torch.Tensor) else leaf, nested)


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
        ready = model if own else copy.deepcopy(model, memo)
        with torch._C.DisableTorchFunction():  # a model on a GPU really moves
            ready.cpu()
        copies = [*ready.parameters(), *ready.buffers()]
        return ready, {id(one): other for one, other in zip(tensors, copies, strict=True)}
    stand_ins = {id(tensor): without_data(tensor, again=not own) for tensor in tensors}
    if not own:
        # Shared parameters stay shared, because deepcopy first looks up every tensor in this memo.
        return copy.deepcopy(model, {**memo, **stand_ins}), stand_ins
    for module in model.modules():
        for held in (module._parameters, module._buffers):
            tensors_held: dict[str, Any] = held
            tensors_held.update({name: stand_ins[id(one)] for name, one in held.items() if one is not None})
    return model, stand_ins


@contextmanager
def _run_without_data() -> Iterator[None]:
    """Let ops run without data inside the block that need data in PyTorch: CTC losses, grouped fp32 products."""
    make: Any = torch.library.Library
    library = make("aten", "IMPL", "Meta")

    def loss(scores: torch.Tensor, targets: torch.Tensor, *_: Any, **__: Any) -> tuple[torch.Tensor, torch.Tensor]:
        frames, batch = scores.shape[:2]
        return scores.new_empty(batch), scores.new_empty(batch, frames, alignment_states(targets.shape, batch))

    def gradient(_: torch.Tensor, scores: torch.Tensor, *__: Any, **___: Any) -> torch.Tensor:
        return torch.empty_like(scores)

    def grouped(own: Any, left: torch.Tensor, right: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if left.dtype in (torch.bfloat16, torch.float8_e4m3fn):
            meta: torch.Tensor = own(left, right, *args, **kwargs)
            return meta
        offsets = kwargs.get("offs", args[2] if len(args) > 2 else None)
        groups = () if left.dim() + right.dim() == 5 else (left.shape[0] if offsets is None else offsets.shape[0],)
        return left.new_empty(*groups, left.shape[-2], right.shape[-1])

    for name, kernel in (("_ctc_loss", loss), ("_ctc_loss_backward", gradient)):
        for overload in ("", ".Tensor"):
            library.impl(f"{name}{overload}", kernel)
    # Earlier versions of PyTorch have no grouped products.
    known = hasattr(torch._meta_registrations, "_meta_grouped_mm_common")
    try:
        with watched(torch._meta_registrations, **{"_meta_grouped_mm_common": grouped} if known else {}):
            yield
    finally:
        library._destroy()


@contextmanager
def shape_only(route: Route) -> Iterator[None]:
    """Create tensors as the route says inside the block, and restore PyTorch's global settings at its end."""
    dtype, seed_state = torch.get_default_dtype(), torch.random.get_rng_state()
    with ExitStack() as stack:
        # Real constants count like any tensor. Creating FakeTensorMode, even unused, takes seconds: it loads the
        # compiler.
        fake = route == "fake"
        stack.enter_context(
            FakeTensorMode(allow_non_fake_inputs=True)
            if fake
            else torch.device("cpu" if route == "data" else "meta")
        )
        stack.enter_context(StayShapeOnly(route))
        stack.enter_context(_run_without_data())
        try:
            yield
        finally:
            torch.set_default_dtype(dtype)
            torch.random.set_rng_state(seed_state)


def _from_function(make: Callable[..., Any], where: str, *, real: bool) -> MakeInputs:
    def inputs(sizes: Sizes) -> Any:
        values = call_inputs(make, sizes)
        values = values if real else tree_without_data(values)
        if not tensors_of(values):
            what = f"inputs({sizes['batch']}) gave no tensor"
            raise FomkitError(where, f"{what}. Let it return a tensor, a tuple or a dict.")
        return values

    return inputs


def _from_tensors(values: Any, given: int, where: str, *, real: bool) -> MakeInputs:
    def at(batch: int, leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor) and leaf.dim() and leaf.shape[0] == given:
            if real:
                return leaf[torch.arange(batch) % given]
            return leaf.new_empty((batch, *leaf.shape[1:]))
        return leaf

    def inputs(sizes: Sizes) -> Any:
        batch = sizes["batch"]
        if batch == given:
            return values
        if not any(tensor.dim() and tensor.shape[0] == given for tensor in tensors_of(values)):
            raise FomkitError(
                where,
                f"no input tensor has the batch size {given} as its first dimension, so batch {batch} cannot be "
                "made. Give inputs as a function of the batch size.",
            )
        return tree_map(lambda leaf: at(batch, leaf), values)

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
            raise FomkitError(
                where,
                "'batch_size' is missing, which inputs as a function needs. Give it, for example: "
                "batch_size = 100, or pass --batch 100.",
            )
        known = {"batch": batch} | own_sizes | {"batch": batch}
        return _from_function(workload.inputs, where, real=real), chosen_sizes(known, wanted, where)
    values = workload.inputs if real else tree_without_data(workload.inputs)
    tensors = tensors_of(values)
    if not tensors:
        raise FomkitError(where, f"inputs is {values!r:.80}, without a tensor. Give a tensor, a tuple or a dict.")
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
