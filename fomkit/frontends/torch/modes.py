"""Modes and hooks that a model runs under without data: calls that are one row each, and autocast's casts.

One row each are recurrent layers (`rnn_row`), attention (`CallWatcher`) and the exchanges of SyncBatchNorm
(`watch_sync_norms`); `follow_autocast` makes a GPU's casts act on meta tensors. `same_random_numbers` and
`same_weights` let a step that reads values decide alike whenever it is traced.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache
from traceback import walk_stack
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.nn import functional
from torch.nn.utils.rnn import PackedSequence
from torch.overrides import TorchFunctionMode
from torch.utils import checkpoint
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_map

from fomkit.frontends.drafting import replaced, watch_made, watched
from fomkit.frontends.lowering.calls import BACKWARD, FORWARD, Dimensions, TracedOp, attention_of_shapes, rnn_sizes
from fomkit.frontends.torch.calls import dtype_name, tensors_in
from fomkit.frontends.torch.recorder import Recorder

_KEY: Any = getattr(torch._C.DispatchKey, "AutocastIPU")  # noqa: B009 - not in the stubs
_CARRIER = "cpu"
"""Device whose autocast state is used for all: checkpointing saves and restores it, and meta tensors ignore it."""

_LOWER = """_convolution _convolution.deprecated convolution conv1d conv2d conv3d conv_tbc conv_transpose1d
    conv_transpose2d.input conv_transpose3d.input prelu addmm addmv addr matmul einsum mm mv linalg_vecdot linear
    addbmm baddbmm bmm chain_matmul linalg_multi_dot _thnn_fused_lstm_cell _thnn_fused_gru_cell lstm_cell gru_cell
    rnn_tanh_cell rnn_relu_cell scaled_dot_product_attention"""
LOWER = frozenset(_LOWER.split())
"""Ops that run in the narrow format (torch.amp, "CUDA Ops that can autocast to float16")."""

RECURRENT = frozenset(
    f"{cell}.{form}" for cell in ("lstm", "gru", "rnn_tanh", "rnn_relu") for form in ("input", "data")
)
"""Recurrent layers as one call, which a GPU's library runs in the narrow format too."""

_WIDEST = "addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put scatter_add tensordot"
WIDEST = frozenset(_WIDEST.split())
"""Ops that run in the widest format of their arguments; all others that autocast casts run in fp32."""

_SOFT = {f"{name}.int": getattr(torch.ops.aten, f"_{name}").default for name in ("softmax", "log_softmax")}
"""Ops that read fp16 and write fp32 in one kernel of a GPU (ATen's ``half_to_float``); bf16 is cast before."""

_CASTS: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
"""Parameters and their casts by ``id``, cast once per outermost autocast region."""


def _cast(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Cast a floating-point tensor, except fp64; the cast of a parameter is cached."""
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
                # Read narrow, summed and written wide, in one kernel.
                requested = args[place] if len(args) > place else kwargs.get("dtype")
                dtype = requested or _dtype_for(name, args)
                if name in _SOFT and args[0].dtype == torch.float16 and dtype == torch.float32:
                    return _SOFT[name](args[0], args[1] if len(args) > 1 else kwargs["dim"], True)
                return op(*args[:place], **{**kwargs, "dtype": dtype})
            with torch._C.DisableTorchFunction():
                dtype = _dtype_for(name, args)
                cast = [_cast_all(value, dtype) for value in args]
                named = {key: _cast_all(value, dtype) for key, value in kwargs.items()}
            return op(*cast, **named)

    return run


@cache
def _library() -> Any:
    """Register the casts, once, for every op that a GPU's autocast casts according to PyTorch's own list."""
    make: Any = torch.library.Library
    library, fallback = make("aten", "IMPL", _KEY.name), make("_", "IMPL", _KEY.name)
    fallback.m.fallback_fallthrough(_KEY.name)  # `Library.fallback` came later than 2.4
    listed = torch._C._dispatch_get_registrations_for_dispatch_key("AutocastCUDA")
    for name in sorted({one.partition("::")[2] for one in listed} | RECURRENT):
        packet, _, overload = name.partition(".")
        found = getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)
        if found is not None:
            library.impl(found, _kernel(found, name))
    return library, fallback


def running_dtype(tensor: torch.Tensor) -> torch.dtype:
    """Return the number format in which a recurrent layer or an attention runs here."""
    casts = torch.is_autocast_enabled(_CARRIER) and tensor.is_floating_point() and tensor.dtype != torch.float64
    return torch.get_autocast_dtype(_CARRIER) if casts else tensor.dtype


@contextmanager
def follow_autocast(recorder: Recorder, *, on_meta: bool) -> Iterator[None]:
    """Apply autocast regions inside the block, whatever device they name.

    `recorder`: gets a note of the rules used; `on_meta`: whether tensors are on the meta device; fake tensors
    follow PyTorch's own autocast for a CPU.
    """
    kind: Any = torch.amp.autocast_mode.autocast
    make = kind.__init__

    def made(
        self: Any, device_type: str, dtype: Any = None, enabled: bool = True, cache_enabled: Any = None
    ) -> None:
        # Code that takes the device of its tensors gets "meta", for which PyTorch has no autocast.
        device_type = "cuda" if device_type == "meta" else device_type
        if enabled:
            rules = "of a GPU" if on_meta else "of a CPU, which casts fewer ops up than a GPU does"
            recorder.note(f"autocast for {device_type}: casts are those {rules}")
        narrow = torch.get_autocast_dtype(device_type) if dtype is None else dtype
        make(self, _CARRIER, narrow, enabled, cache_enabled)

    def switched(run: Callable[..., Any], *region_and_error: Any) -> Any:
        given = run(*region_and_error)
        if on_meta:
            enabled = torch.is_autocast_enabled(_CARRIER)
            torch._C._dispatch_tls_set_dispatch_key_included(_KEY, enabled)
            torch._C._dispatch_tls_set_dispatch_key_excluded(_KEY, not enabled)
            if not enabled:
                _CASTS.clear()
        return given

    if on_meta:
        _library()
    with replaced(kind, __init__=made), watched(kind, __enter__=switched, __exit__=switched):
        yield


_UNKNOWN = (
    "SyncBatchNorm counts as a batch norm: without a process group the ranks are not known, so its exchange of "
    "statistics is not counted"
)


def _note_exchange(module: Any, recorder: Recorder) -> None:
    """Record the exchanges of torch.nn.modules._functions.SyncBatchNorm, in fp32 whatever the data's format.

    In the forward pass every rank gathers mean, inverse standard deviation and count; backward, two sums are
    reduced. The tier that the ranks span follows from torchrun's environment.
    """
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        recorder.note(_UNKNOWN)
        return
    ranks, local = distributed.get_world_size(module.process_group), os.environ.get("LOCAL_WORLD_SIZE", "")
    if ranks == 1:
        return
    if not local.isdigit():
        recorder.note(f"SyncBatchNorm: its {ranks} ranks are taken to be one node's; LOCAL_WORLD_SIZE is not set")
    tier = "system" if local.isdigit() and ranks > int(local) else "node"
    exchanges = [("allgather_", "all_gather", 4 * (2 * module.num_features + 1), FORWARD)]
    exchanges += [("allreduce_", "all_reduce", 4 * 2 * module.num_features, BACKWARD)] * torch.is_grad_enabled()
    for op, collective, byte, pass_name in exchanges:
        sizes: Dimensions = {"collective": collective, "message_byte": byte, "ranks": ranks, "link": tier}
        row = TracedOp(f"c10d::{op}", "collective", sizes, "fp32", pass_name, recorder.stack.top.path)
        recorder.ops.append(row)
        recorder.order.note([row], (), row.module, row.pass_name)


def watch_sync_norms(recorder: Recorder) -> AbstractContextManager[None]:
    """Run SyncBatchNorm as a batch norm inside the block, with its exchanges as separate rows."""

    def alone(forward: Any, norm: Any, values: torch.Tensor) -> Any:
        if norm.training or not norm.track_running_stats:
            _note_exchange(norm, recorder)
        with replaced(torch.distributed, is_initialized=lambda: False):
            return forward(norm, values)

    return watched(torch.nn.SyncBatchNorm, forward=alone)


def pack_without_data(
    recorder: Recorder, values: torch.Tensor, lengths: torch.Tensor, batch_first: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Replace ``aten::_pack_padded_sequence``, which reads the lengths.

    `values`: padded sequences, shape (steps, batch, …), or (batch, steps, …) with ``batch_first``; `lengths`:
    shape (batch,); descending if they have data. Returns the packed values, copied, and the samples in each step,
    with data.
    """
    by_step = values.transpose(0, 1) if batch_first else values
    steps, batch = by_step.shape[:2]
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        has_data = type(lengths) is torch.Tensor and not lengths.is_meta
        known = [int(length) for length in lengths] if has_data else [steps] * batch
        samples = torch.tensor([sum(length > step for length in known) for step in range(max(known))])
    if not has_data:
        recorder.note("packed sequences: lengths are unknown without data; every sequence counts as full")
    packed = by_step.flatten(0, 1)[: sum(known)]
    return packed if batch_first else packed.clone(), samples


_CELLS = {"LSTM": ("lstm", "aten::lstm"), "GRU": ("gru", "aten::gru"), "RNN_TANH": ("vanilla", "aten::rnn_tanh"),
          "RNN_RELU": ("vanilla", "aten::rnn_relu")}  # fmt: skip


def rnn_row(module: torch.nn.Module, path: str, values: Any, note: Callable[[str], None]) -> TracedOp | None:
    """Return the row of one forward call of a recurrent layer; None, with a note, if the table has no such row."""
    if not isinstance(module, torch.nn.RNNBase) or module.mode not in _CELLS:
        return None
    lengths = _steps_and_batch(module, values)
    if lengths is None or module.proj_size:
        why = "projections" if module.proj_size else "unequal sequences"
        note(f"{module.mode} with {why} has no row of its own: its ops are counted one by one")
        return None
    cell, op = _CELLS[module.mode]
    values = values.data if isinstance(values, PackedSequence) else values
    widths, directions = (module.input_size, module.hidden_size), 1 + module.bidirectional
    sizes = rnn_sizes(cell, lengths[1], lengths[0], widths, layers=module.num_layers, directions=directions)
    dtype = dtype_name(running_dtype(values))
    return TracedOp(op, "rnn", sizes, dtype, FORWARD, path, input_gradient=values.requires_grad)


def _steps_and_batch(module: torch.nn.RNNBase, values: Any) -> tuple[int, int] | None:
    if isinstance(values, PackedSequence):  # None if its sequences differ in length
        with torch._C.DisableTorchFunction(), _disable_current_modes():
            samples = [int(size) for size in values.batch_sizes]
        return (len(samples), samples[0]) if samples[0] == samples[-1] else None
    if not isinstance(values, torch.Tensor):
        return None
    if values.dim() == 2:  # an unbatched sequence
        return values.shape[0], 1
    first, second = values.shape[:2]
    return (second, first) if module.batch_first else (first, second)


def whole_rnn_states(module: torch.nn.RNNBase, values: Any, states: Any) -> Any:
    """Return first states with which a recurrent layer's backward pass covers all steps, as a library's does.

    Library calls compute the gradient of the first state even if it is not used. The decomposed layer would skip
    that product, and the parts would sum to less than the row. Returns a tensor, a tuple or None.
    """
    data = values.data if isinstance(values, PackedSequence) else values
    wanted = any(tensor.requires_grad for tensor in (data, *module.parameters()))
    lengths = _steps_and_batch(module, values)
    if lengths is None or not (wanted and torch.is_grad_enabled()):
        return states
    if states is None:
        samples = [lengths[1]] if data is not values or data.dim() == 3 else []
        shape = (module.num_layers * (1 + module.bidirectional), *samples, module.hidden_size)
        first = data.new_zeros(shape)
        states = (first, data.new_zeros(shape)) if module.mode == "LSTM" else first
    return tree_map(lambda one: one if one.requires_grad else one.detach().requires_grad_(), states)


def _is_checkpointed() -> bool:
    """Return whether hooks take what the backward pass needs, as those of checkpointing do."""
    hooks: Any = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
    if hooks is not None:
        return hooks(True) is not None
    # The first supported versions of PyTorch do not tell; of what sets hooks, checkpointing itself is found.
    return any(frame.f_code.co_filename == checkpoint.__file__ for frame, _ in walk_stack(None))


class CallWatcher(TorchFunctionMode):
    """Finds attention at its call, and runs dropout as one op, as an accelerator does."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder
        self._attention = functional.scaled_dot_product_attention

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a function of the user's code."""
        kwargs = kwargs or {}
        if func is self._attention:
            return self.attention(*args, **kwargs)
        if getattr(func, "__name__", "") == "_pack_padded_sequence":
            return pack_without_data(self._recorder, *args, **kwargs)
        if func is functional.dropout:
            return self._dropout(*args, **kwargs)
        if func is functional.multi_head_attention_forward:
            # PyTorch runs an overridden function with this mode off, so the inner attention call is replaced
            # directly.
            with replaced(functional, scaled_dot_product_attention=self.attention):
                return func(*args, **kwargs)
        return func(*args, **kwargs)

    def attention(self, query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        """Run scaled-dot-product attention as a row."""
        is_causal = bool(kwargs.get("is_causal", args[2] if len(args) > 2 else False))
        stack = self._recorder.stack
        op = "aten::scaled_dot_product_attention"
        sizes = attention_of_shapes(query.shape, key.shape, value.shape, causal=is_causal)
        row = TracedOp(op, "attention", sizes, dtype_name(running_dtype(query)), FORWARD, stack.top.path)
        stack.enter(row.module, (query, key, value, args, kwargs), row)
        result = self._attention(query, key, value, *args, **kwargs)
        stack.leave(result)
        self._recorder.order.note_attention((query, key, value), result, is_kept=not _is_checkpointed())
        return result

    @staticmethod
    def _dropout(input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:  # noqa: A002
        if not training or not 0 < p < 1:
            return functional.dropout(input, p, training, inplace)
        return torch.native_dropout(input, p, True)[0]


_MADE: WeakKeyDictionary[torch.nn.Module, str] = WeakKeyDictionary()


def watch_made_modules() -> AbstractContextManager[None]:
    """Record the line of code that makes each module inside the block."""
    return watch_made(torch.nn.Module, _MADE.__setitem__)


def _cast_before(module: torch.nn.RNNBase, path: str, recorder: Recorder, values: Any) -> Any:
    """Cast the weights and the input of a recurrent layer, as rows of their own; return the input.

    The layer itself would cast them as parts of its row, whose formula has no casts.
    """
    if not torch._C._dispatch_tls_is_dispatch_key_included(_KEY):
        return values
    recorder.stack.enter(path, values)
    narrow = torch.get_autocast_dtype(_CARRIER)
    weights = [_cast(parameter, narrow) for parameter in module.parameters()]
    values = values.to(narrow) if isinstance(values, PackedSequence) else _cast_all(values, narrow)
    recorder.stack.leave([values, *weights])
    return values


def _watch_module(module: torch.nn.Module, path: str, recorder: Recorder, handles: ExitStack) -> None:
    def before(module: torch.nn.Module, args: Any, kwargs: Any) -> Any:
        values = args[0] if args else kwargs.get("input")
        row = rnn_row(module, path, values, recorder.note)
        if row is None or not isinstance(module, torch.nn.RNNBase):
            recorder.stack.enter(path, (args, kwargs), row)
            return args, kwargs
        values = _cast_before(module, path, recorder, values)
        recorder.stack.enter(path, (values, args[1:], kwargs), row)
        states = whole_rnn_states(module, values, args[1] if len(args) > 1 else kwargs.get("hx"))
        return (values, states), {}

    def after(_module: torch.nn.Module, _args: Any, output: Any) -> None:
        recorder.stack.leave(output)

    first = module.register_forward_pre_hook(before, prepend=True, with_kwargs=True)
    handles.callback(first.remove)
    handles.callback(module.register_forward_hook(after, always_call=True).remove)


@contextmanager
def watch_modules(model: torch.nn.Module, recorder: Recorder, prefix: str = "") -> Iterator[None]:
    """Watch every module call of a model inside the block; ``prefix`` names the model among several."""
    with ExitStack() as handles:
        for path, module in model.named_modules():
            if isinstance(module, torch.jit.ScriptModule):
                continue
            if getattr(module, "_orig_mod", None) is not None or module._compiled_call_impl is not None:
                recorder.note("parts of the model are compiled; their eager ops are traced")
            path = path.replace("_orig_mod.", "").removesuffix("._orig_mod")
            path = ".".join(filter(None, (prefix, path)))
            recorder.made[path] = _MADE.get(module, "")
            _watch_module(module, path, recorder, handles)
        yield


@contextmanager
def same_random_numbers() -> Iterator[None]:
    """Start all random numbers anew inside the block, so that the code decides alike in all steps."""
    numpy = sys.modules.get("numpy")
    python_state, numpy_state = random.getstate(), numpy.random.get_state() if numpy else None
    random.seed(0)
    torch.default_generator.manual_seed(0)  # torch.manual_seed would seed accelerators too
    if numpy:
        numpy.random.seed(0)
    try:
        yield
    finally:
        random.setstate(python_state)
        if numpy:
            numpy.random.set_state(numpy_state)


@contextmanager
def same_weights(model: torch.nn.Module, *, has_data: bool) -> Iterator[None]:
    """Restore weights and buffers with data after the block: an update changes them, and code may read them."""
    kept = [(one, one.detach().clone()) for one in (*model.parameters(), *model.buffers()) if has_data]
    try:
        yield
    finally:
        with torch.no_grad():
            for one, before in kept:
                one.copy_(before)
