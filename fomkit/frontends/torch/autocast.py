"""Autocast on tensors without data, which PyTorch knows for real devices only: the casts that a GPU's does.

Casts must happen above autograd, so that gradients are cast back. PyTorch does them in kernels under a dispatch
key of the device; shape-only tensors have no such key. Here the same casts stand under the key of a device that is
no more, and that key is switched on while an autocast region runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch

from fomkit.frontends.drafting import replaced
from fomkit.frontends.lowering.calls import BACKWARD, FORWARD, Dimensions, TracedOp
from fomkit.frontends.torch.recorder import Recorder, tensors_in

_KEY: Any = getattr(torch._C.DispatchKey, "AutocastIPU")  # noqa: B009 - not in the stubs
_CARRIER = "cpu"
"""Device whose autocast state stands for all: checkpointing saves and restores it, and meta tensors ignore it."""

_LOWER = """_convolution _convolution.deprecated convolution conv1d conv2d conv3d conv_tbc conv_transpose1d
    conv_transpose2d.input conv_transpose3d.input prelu addmm addmv addr matmul einsum mm mv linalg_vecdot linear
    addbmm baddbmm bmm chain_matmul linalg_multi_dot _thnn_fused_lstm_cell _thnn_fused_gru_cell lstm_cell gru_cell
    rnn_tanh_cell rnn_relu_cell scaled_dot_product_attention"""
LOWER = frozenset(_LOWER.split())
"""Ops that run in the narrow format (torch.amp, "CUDA Ops that can autocast to float16")."""

_CELLS = ("lstm", "gru", "rnn_tanh", "rnn_relu")
RECURRENT = frozenset(f"{cell}.{form}" for cell in _CELLS for form in ("input", "data"))
"""Recurrent layers as one call, which a GPU's library runs in the narrow format too."""

_WIDEST = "addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put scatter_add tensordot"
WIDEST = frozenset(_WIDEST.split())
"""Ops that run in the widest format of their arguments; all others that autocast casts run in fp32."""

_CASTS: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
"""Parameters and their casts by ``id``, made once in a region and everything inside it."""


def _cast(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Cast a floating tensor; doubles stay."""
    if not tensor.is_floating_point() or tensor.dtype in (dtype, torch.float64):
        return tensor
    if not (tensor.requires_grad and tensor.is_leaf and torch.is_autocast_cache_enabled()):
        return tensor.to(dtype)
    if id(tensor) not in _CASTS or _CASTS[id(tensor)][1].dtype != dtype:
        _CASTS[id(tensor)] = tensor, tensor.to(dtype)
    return _CASTS[id(tensor)][1]


def _cast_all(values: Any, dtype: torch.dtype) -> Any:
    if isinstance(values, torch.Tensor):
        return _cast(values, dtype)
    if isinstance(values, list | tuple):
        return [_cast_all(value, dtype) for value in values]
    return values


def _dtype_for(name: str, args: tuple[Any, ...]) -> torch.dtype:
    narrow = torch.get_autocast_dtype(_CARRIER)
    if name in LOWER or name in RECURRENT:
        return narrow
    if name in WIDEST and all(tensor.dtype == narrow for tensor in tensors_in(args) if tensor.is_floating_point()):
        return narrow
    return torch.float32


def _kernel(op: Any, name: str) -> Callable[..., Any]:
    keys = torch._C.DispatchKeySet(_KEY)
    names = [argument.name for argument in op._schema.arguments]
    sums, place = "dtype" in names, names.index("dtype") if "dtype" in names else len(names)

    def run(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(keys):
            if sums:
                # Read narrow, added up and written wide, in one kernel.
                asked = args[place] if len(args) > place else kwargs.get("dtype")
                return op(*args[:place], **{**kwargs, "dtype": asked or _dtype_for(name, args)})
            with torch._C.DisableTorchFunction():
                dtype = _dtype_for(name, args)
                cast = [_cast_all(value, dtype) for value in args]
                named = {key: _cast_all(value, dtype) for key, value in kwargs.items()}
            return op(*cast, **named)

    return run


@cache
def _library() -> Any:
    """Register the casts, once: of every op that a GPU's autocast casts, as PyTorch itself lists them."""
    make: Any = torch.library.Library
    library, fallback = make("aten", "IMPL", _KEY.name), make("_", "IMPL", _KEY.name)
    fallback.fallback(torch.library.fallthrough_kernel)
    listed = torch._C._dispatch_get_registrations_for_dispatch_key("AutocastCUDA")
    for name in sorted({one.partition("::")[2] for one in listed} | RECURRENT):
        packet, _, overload = name.partition(".")
        found = getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)
        if found is not None:
            library.impl(found, _kernel(found, name))
    return library, fallback


def _switch() -> None:
    """Let the casts follow the carrier's state."""
    enabled = torch.is_autocast_enabled(_CARRIER)
    torch._C._dispatch_tls_set_dispatch_key_included(_KEY, enabled)
    torch._C._dispatch_tls_set_dispatch_key_excluded(_KEY, not enabled)
    if not enabled:
        _CASTS.clear()


def running_dtype(tensor: torch.Tensor) -> torch.dtype:
    """Give the number format in which a recurrent layer or an attention runs here."""
    casts = torch.is_autocast_enabled(_CARRIER) and tensor.is_floating_point() and tensor.dtype != torch.float64
    return torch.get_autocast_dtype(_CARRIER) if casts else tensor.dtype


def _methods(recorder: Recorder, on_meta: bool) -> Mapping[str, Callable[..., Any]]:
    kind: Any = torch.amp.autocast_mode.autocast
    make = kind.__init__

    def made(
        self: Any, device_type: str, dtype: Any = None, enabled: bool = True, cache_enabled: Any = None
    ) -> None:
        if enabled:
            rules = "of a GPU" if on_meta else "of a CPU, which casts fewer ops up than a GPU does"
            recorder.note(f"autocast for {device_type}: casts are those {rules}")
        narrow = torch.get_autocast_dtype(device_type) if dtype is None else dtype
        make(self, _CARRIER, narrow, enabled, cache_enabled)

    def switching(run: Callable[..., Any]) -> Callable[..., Any]:
        def switched(self: Any, *error: Any) -> Any:
            given = run(self, *error)
            if on_meta:
                _switch()
            return given

        return switched

    return {"__init__": made, "__enter__": switching(kind.__enter__), "__exit__": switching(kind.__exit__)}


@contextmanager
def follow_autocast(recorder: Recorder, *, on_meta: bool) -> Iterator[None]:
    """Have autocast regions act inside the block, whatever device they name.

    `recorder`: is told which rules are followed; `on_meta`: whether tensors are on the meta device; fake ones
    follow PyTorch's own autocast of a CPU.
    """
    if on_meta:
        _library()
    with replaced(torch.amp.autocast_mode.autocast, **_methods(recorder, on_meta)):
        yield


_UNKNOWN = (
    "SyncBatchNorm counts as a batch norm: without a process group the ranks are not known, so its exchange of "
    "statistics is not counted"
)


def _tier_of(ranks: int) -> tuple[str, bool]:
    """Name the tier that the ranks span, as torchrun tells it, and whether that is only assumed."""
    local = os.environ.get("LOCAL_WORLD_SIZE", "")
    return ("system", False) if local.isdigit() and ranks > int(local) else ("node", not local.isdigit())


def _exchanges(channels: int, ranks: int, path: str) -> Iterator[TracedOp]:
    """Describe what torch.nn.modules._functions.SyncBatchNorm sends, in fp32 whatever the data's format.

    Forward every rank gathers mean, inverse deviation and count; back two sums are added up.
    """
    shared: Dimensions = {"ranks": ranks, "link": _tier_of(ranks)[0]}
    forward: Dimensions = {"collective": "all_gather", "message_byte": 4 * (2 * channels + 1), **shared}
    backward: Dimensions = {"collective": "all_reduce", "message_byte": 4 * 2 * channels, **shared}
    yield TracedOp("c10d::allgather_", "collective", forward, "fp32", FORWARD, path)
    yield TracedOp("c10d::allreduce_", "collective", backward, "fp32", BACKWARD, path)


def _note_exchange(module: Any, recorder: Recorder) -> None:
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        recorder.note(_UNKNOWN)
        return
    ranks = distributed.get_world_size(module.process_group)
    if ranks == 1:
        return
    if _tier_of(ranks)[1]:
        recorder.note(f"SyncBatchNorm: its {ranks} ranks are taken to be one node's; LOCAL_WORLD_SIZE is not set")
    for row in _exchanges(module.num_features, ranks, recorder.stack.top.path):
        if row.pass_name == FORWARD or torch.is_grad_enabled():
            recorder.ops.append(row)
            recorder.order.note([row], (), row.module, row.pass_name)


@contextmanager
def watch_sync_norms(recorder: Recorder) -> Iterator[None]:
    """Run SyncBatchNorm as a batch norm inside the block, its exchanges as rows of their own."""
    kind: Any = torch.nn.SyncBatchNorm
    forward = kind.forward

    def alone(self: Any, values: torch.Tensor) -> Any:
        if self.training or not self.track_running_stats:
            _note_exchange(self, recorder)
        with replaced(torch.distributed, is_initialized=lambda: False):
            return forward(self, values)

    with replaced(kind, forward=alone):
        yield
