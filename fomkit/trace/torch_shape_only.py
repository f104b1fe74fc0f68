"""Tensors with a shape and no data: on PyTorch's meta device, or fake ones where a model needs a real device."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from fomkit.trace.routes import Route

_KEEP = {
    getattr(torch.Tensor, name)
    for name in ("cuda", "cpu", "xpu", "npu", "mps", "ipu", "hpu", "pin_memory")
    if hasattr(torch.Tensor, name)
}


_CONSTANTS = (torch.tensor, torch.as_tensor, torch.arange, torch.linspace, torch.logspace, torch.full)
CONSTANT_NUMEL = 4096
"""Elements up to which a constant may keep its values."""


class StayShapeOnly(TorchFunctionMode):
    """Keeps every tensor without data where it is: moves to a device do nothing, and copies copy no data.

    Parameters
    ----------
    keep_constants : bool
        Whether small constants are made with their values, which models read back as plain numbers.
    """

    def __init__(self, *, keep_constants: bool) -> None:
        super().__init__()
        self._keep_constants = keep_constants

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a function of the user's code."""
        kwargs = {name: value for name, value in (kwargs or {}).items() if name != "device"}
        if func in _KEEP:
            return args[0]
        if func is torch.Tensor.to:
            return _to_dtype(args[0], args[1:], kwargs)
        if func is torch.from_numpy:
            return without_data(func(*args, **kwargs))
        if func is torch.Tensor.__deepcopy__:
            return without_data(args[0], again=True)
        made = func(*args, **kwargs)
        if self._keep_constants and func in _CONSTANTS and made is not args[0] and made.numel() <= CONSTANT_NUMEL:
            return func(*args, **kwargs, device="cpu")
        return made


def _to_dtype(tensor: torch.Tensor, moves: tuple[Any, ...], kwargs: Mapping[str, Any]) -> torch.Tensor:
    """Do of ``tensor.to(…)`` all but the change of device."""
    changes = {name: value for name, value in kwargs.items() if name != "non_blocking" and value is not None}
    for move in moves:
        if isinstance(move, torch.dtype):
            changes["dtype"] = move
        elif isinstance(move, torch.Tensor):
            changes["dtype"] = move.dtype
    other = changes.pop("other", None)
    if other is not None:
        changes["dtype"] = other.dtype
    return tensor.to(**changes) if changes else tensor


def without_data(tensor: torch.Tensor, *, again: bool = False) -> torch.Tensor:
    """Give a tensor of the same shape, strides and dtype without data, inside `shape_only`.

    Parameters
    ----------
    tensor : Tensor
        One without data already is given back, unless ``again``.
    """
    if (tensor.is_meta or isinstance(tensor, FakeTensor)) and not again:
        return tensor
    if is_lazy(tensor):
        kind: Any = type(tensor)
        lazy: torch.Tensor = kind(requires_grad=tensor.requires_grad, dtype=tensor.dtype)
        return lazy
    empty = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype)
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(empty, tensor.requires_grad)
    return empty.requires_grad_(tensor.requires_grad)


def tree_without_data(values: Any) -> Any:
    """Take the data out of every tensor in nested lists, tuples and mappings."""
    nested = dict(values) if isinstance(values, Mapping) else values
    return tree_map(lambda leaf: without_data(leaf) if isinstance(leaf, torch.Tensor) else leaf, nested)


def model_without_data(model: torch.nn.Module, *, own: bool) -> tuple[torch.nn.Module, dict[int, torch.Tensor]]:
    """Take the data out of a model.

    Parameters
    ----------
    model : Module
    own : bool
        Whether the model may be changed itself, or must be copied and stay as it is.

    Returns
    -------
    tuple of Module and dict
        The model without data, and for the ``id`` of each given parameter its stand-in.
    """
    tensors = [*model.parameters(), *model.buffers()]
    stand_ins = {id(tensor): without_data(tensor, again=not own) for tensor in tensors}
    if not own:
        # Shared parameters stay shared, because deepcopy looks every tensor up here first.
        memo: dict[int, Any] = dict(stand_ins)
        return copy.deepcopy(model, memo), stand_ins
    for module in model.modules():
        for held in (module._parameters, module._buffers):
            tensors_held: dict[str, Any] = held
            tensors_held.update({name: stand_ins[id(one)] for name, one in held.items() if one is not None})
    return model, stand_ins


@contextmanager
def shape_only(route: Route) -> Iterator[None]:
    """Create tensors without data inside the block, and leave PyTorch's global settings as they were."""
    dtype, seed_state = torch.get_default_dtype(), torch.random.get_rng_state()
    with ExitStack() as stack:
        # Real constants in the user's code are allowed; they count like any other tensor.
        fake = FakeTensorMode(allow_non_fake_inputs=True)
        stack.enter_context(fake if route == "fake" else torch.device("meta"))
        stack.enter_context(StayShapeOnly(keep_constants=route == "constants"))
        try:
            yield
        finally:
            torch.set_default_dtype(dtype)
            torch.random.set_rng_state(seed_state)
