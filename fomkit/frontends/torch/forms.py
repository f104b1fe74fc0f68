"""Tensors without data: the user's code runs on them, and an op's result has a form only.

`shape_only` makes the tensors of a route, `without_data` takes the data of one, and `KnownForms` runs an op.
`dense_attention` runs attention here that PyTorch compiles for accelerators.
`WithNumbers` runs the ops of a training program whose parameters have no values.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nested._internal.nested_tensor import NestedTensor
from torch.nn import functional
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode
from torch.utils import _foreach_utils, checkpoint
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map_only

from fomkit.frontends.drafting import replaced, watched
from fomkit.frontends.lowering.calls import alignment_states
from fomkit.frontends.step import Route

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


def wraps_tensors(kind: type) -> bool:
    """Return whether a class of tensors holds others and runs code of its own on them; nested tensors are ops."""
    return (
        kind is not NestedTensor and hasattr(kind, "__tensor_flatten__") and hasattr(kind, "__tensor_unflatten__")
    )


def without_data(tensor: torch.Tensor, *, again: bool = False) -> torch.Tensor:
    """Return a tensor with the same shape, strides and dtype, but without data.

    A tensor that has no data already is returned itself, unless ``again``.
    """
    if (tensor.is_meta or isinstance(tensor, FakeTensor)) and not again:
        return tensor
    has_form(tensor)
    kind: Any = type(tensor)
    if is_lazy(tensor):
        lazy: torch.Tensor = kind(requires_grad=tensor.requires_grad, dtype=tensor.dtype)
        return lazy
    if wraps_tensors(kind):  # such as quantised weights: their own code runs on the tensors inside
        names, context = kind.__tensor_flatten__(tensor)
        inside = {name: without_data(getattr(tensor, name), again=again) for name in names}
        empty: torch.Tensor = kind.__tensor_unflatten__(inside, context, tensor.size(), tensor.stride())
    else:
        empty = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype)
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(empty, tensor.requires_grad)
    return empty.requires_grad_(tensor.requires_grad)


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

    def device_of(own: Any, *args: Any) -> Any:
        found = own(*args)
        return "cpu" if found == "meta" else found

    # PyTorch 2.4 has no grouped products, and its checkpointing knows no meta device.
    known = hasattr(torch._meta_registrations, "_meta_grouped_mm_common")
    try:
        with (
            watched(torch._meta_registrations, **{"_meta_grouped_mm_common": grouped} if known else {}),
            watched(checkpoint, _infer_device_type=device_of),
        ):
            yield
    finally:
        library._destroy()


def dense_attention(note: Callable[[str], object]) -> AbstractContextManager[None]:
    """Run FlexAttention over all pairs inside the block, and note it: PyTorch trains it on accelerators only."""

    def dense(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any) -> tuple[torch.Tensor, ...]:
        note("flex_attention: all pairs of queries and keys count, though its block mask may leave some out")
        sums = query.new_zeros(query.shape[:-1])
        return functional.scaled_dot_product_attention(query, key, value, enable_gqa=True), sums, sums

    with suppress(ImportError):  # PyTorch 2.4 has no such module
        importlib.import_module("torch.nn.attention.flex_attention")
    flex = getattr(torch.nn.attention, "flex_attention", None)
    others: dict[str, Any] = {"flex_attention_hop": dense, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG": True}
    others["_validate_device"] = lambda *_: None
    return replaced(flex, **others) if all(hasattr(flex, name) for name in others) else nullcontext()


@contextmanager
def shape_only(route: Route) -> Iterator[None]:
    """Create tensors as the route says inside the block, and restore PyTorch's global settings at its end."""
    dtype, seed_state = torch.get_default_dtype(), torch.random.get_rng_state()
    with ExitStack() as stack:
        # It prints the traceback of an error that is raised, too.
        stack.enter_context(replaced(logging.getLogger("torch._subclasses.fake_tensor"), disabled=True))
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


class KnownForms:
    """Runs ops on tensors without data; one that ran before on equal forms gives its result's form again.

    PyTorch takes up to 0.2 ms for the form of a result, and a recurrent layer runs the same few ops in each step.
    """

    def __init__(self) -> None:
        self._known: dict[object, tuple[Any, ...]] = {}

    def run(self, op: Any, args: Sequence[Any], kwargs: Mapping[str, Any], *, in_place: bool) -> Any:
        """Run an op; `in_place`: whether it may write its result into its first argument, whose form stays."""
        forms = [_form_of_argument(value) for value in (*args, *kwargs.values())]
        if None in forms:
            return op(*args, **kwargs)
        known = self._known.get(key := (op, len(args), *kwargs, *forms))
        if known is not None:
            return torch.empty_strided(*known[:2], dtype=known[2], device="meta") if known else args[0]
        result = op(*args, **kwargs)
        made = _form_of_argument(result) if isinstance(result, torch.Tensor) else None
        if made and not any(one.alias_info for one in op._schema.returns):
            self._known[key] = made
        elif in_place and args and result is args[0]:
            self._known[key] = ()
        return result


_ATOMS = (bool, int, float, str, type(None), torch.dtype, torch.layout, torch.device, torch.memory_format)


def _form_of_argument(value: Any) -> tuple[Any, ...] | None:
    """Return what an argument contributes to the form of a result; None for a list, or a tensor with more."""
    if type(value) in _ATOMS:
        return type(value), value
    plain = type(value) in (torch.Tensor, torch.nn.Parameter) and value.is_meta and value.layout is torch.strided
    if not plain or torch._C._functorch.is_functorch_wrapped_tensor(value):
        return None
    return value.size(), value.stride(), value.dtype


_NUMBER = "number_here"
"""Attribute of a tensor without values that holds one element, if that follows from other single numbers."""


def number_of(tensor: Any) -> torch.Tensor:
    """Return the number that stands for the elements of a tensor without values: 1, or False."""
    if not hasattr(tensor, "fake_mode"):
        return tensor  # type: ignore[no-any-return]
    known: torch.Tensor | None = getattr(tensor, _NUMBER, None)
    return torch.full((), tensor.dtype != torch.bool, dtype=tensor.dtype) if known is None else known


def _real_indices(func: Any, args: Any) -> Any:
    """Turn masks with data, by which elements of a tensor are chosen, into places: the result has their number."""
    if func is not torch.ops.aten.index.Tensor:
        return args
    places: list[Any] = []
    for one in args[1]:
        is_mask = one is not None and one.dtype is torch.bool and not hasattr(one, "fake_mode")
        places += one.nonzero(as_tuple=True) if is_mask else [one]
    return (args[0], places)


class WithNumbers(FakeTensorMode):  # type: ignore[no-untyped-call]
    """Computes shapes, and what becomes of a single number, such as whether a loss is finite."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an op."""
        if func is torch.ops.aten._local_scalar_dense.default:
            return number_of(args[0]).item()
        if func in (torch.ops.aten.allclose.default, torch.ops.aten.equal.default):  # as `all` of comparisons
            return args[0].shape == args[1].shape or func is torch.ops.aten.allclose.default
        made: Any = super().__torch_dispatch__(func, types, _real_indices(func, args), kwargs)
        given = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
        is_single = bool(given) and all(one.numel() == 1 for one in given)
        numbers, named = tree_map_only(torch.Tensor, number_of, (args, kwargs or {})) if is_single else ((), {})
        if func._schema.is_mutable and isinstance(made, FakeTensor):
            written = (kwargs or {}).get("out", args[0])
            if is_single and not hasattr(written, "fake_mode"):  # such as the sum of losses
                func(*numbers, **named)
            return written if written.shape == made.shape else made  # with data, it stays the one written
        if type(made) is FakeTensor and made.numel() == 1 and not func._schema.is_mutable:
            if is_single:
                setattr(made, _NUMBER, func(*numbers, **named))
            elif func.overloadpacket is torch.ops.aten.all:
                setattr(made, _NUMBER, torch.tensor(True))
        return made


def maker_without_values() -> Callable[[torch.Tensor], torch.Tensor]:
    """Return the function that makes a parameter without values; making the mode takes seconds."""
    mode = WithNumbers(allow_non_fake_inputs=True)
    supported = _foreach_utils._foreach_supported_types
    if FakeTensor not in supported:  # so that gradients are clipped all at once, as others are
        supported.append(FakeTensor)

    def listed(tensor: Any) -> Any:
        with _disable_current_modes():  # no op of the step
            return number_of(tensor).expand(tensor.shape).tolist()

    FakeTensor.tolist = listed  # type: ignore[assignment]  # PyTorch 2.4 has none for several elements

    def made(like: torch.Tensor) -> torch.Tensor:
        # Not in the mode: it would remember the tensor, and only one that nobody remembers can be swapped.
        form = torch.empty_strided(like.size(), like.stride(), dtype=like.dtype, device="meta")
        fake: Any = FakeTensor(mode, form, like.device)
        fake._is_param = True
        return fake.requires_grad_(like.requires_grad)  # type: ignore[no-any-return]

    return made


def swap(one: Any, other: Any) -> None:
    """Give a parameter the content of another tensor; its hooks and attributes stay.

    `torch.utils.swap_tensors` refuses parameters with weak references, as recurrent layers make, or in a graph.
    """
    hooks = {name: getattr(one, name) for name in ("_backward_hooks", "_post_accumulate_grad_hooks")}
    for name in hooks:
        setattr(one, name, None)
    one.__class__, other.__class__ = other.__class__, one.__class__
    one.__dict__.update(other.__dict__)
    torch._C._swap_tensor_impl(one, other)
    for name, held in hooks.items():
        setattr(one, name, held)
