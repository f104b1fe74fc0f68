"""Layers and functions that are one row each, found at the call: LSTM, GRU, RNN and scaled-dot-product attention.

On the meta device PyTorch takes both apart, into products per time step and into two batched products, while
machines run and time them as one. So the call makes the row, and what is dispatched inside becomes its parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.nn import functional
from torch.nn.utils.rnn import PackedSequence
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_map

from fomkit.frontends.drafting import replaced, watch_made
from fomkit.frontends.lowering.calls import FORWARD, TracedOp, attention_of_shapes, rnn_sizes
from fomkit.frontends.torch.autocast import running_dtype
from fomkit.frontends.torch.calls import dtype_name
from fomkit.frontends.torch.recorder import Recorder


def pack_without_data(
    recorder: Recorder, values: torch.Tensor, lengths: torch.Tensor, batch_first: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Stand for ``aten::_pack_padded_sequence``, which reads the lengths.

    `values`: padded sequences, shape (steps, batch, …), or (batch, steps, …) with ``batch_first``; `lengths`:
    shape (batch,); descending where they have data. Gives a tuple: the packed values, copied, and the samples in
    each step, which have data.
    """
    by_step = values.transpose(0, 1) if batch_first else values
    steps, batch = by_step.shape[:2]
    known = _known_lengths(lengths)
    if known is None:
        recorder.note("packed sequences: lengths are not known without data; every sequence is taken as full")
        known = [steps] * batch
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        samples = torch.tensor([sum(length > step for length in known) for step in range(max(known))])
    packed = by_step.flatten(0, 1)[: sum(known)]
    return packed if batch_first else packed.clone(), samples


def _known_lengths(lengths: torch.Tensor) -> list[int] | None:
    """Give the values of lengths that have any."""
    if type(lengths) is not torch.Tensor or lengths.is_meta:
        return None
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        return [int(length) for length in lengths]


_CELLS = {"LSTM": ("lstm", "aten::lstm"), "GRU": ("gru", "aten::gru"), "RNN_TANH": ("vanilla", "aten::rnn_tanh"),
          "RNN_RELU": ("vanilla", "aten::rnn_relu")}  # fmt: skip


def rnn_row(module: torch.nn.Module, path: str, values: Any) -> TracedOp | None:
    """Describe one forward call of a recurrent layer; None for what `rnn_without_row` names."""
    if not isinstance(module, torch.nn.RNNBase) or module.mode not in _CELLS:
        return None
    lengths = _steps_and_batch(module, values)
    if lengths is None or module.proj_size:
        return None
    cell, op = _CELLS[module.mode]
    values = values.data if isinstance(values, PackedSequence) else values
    widths, directions = (module.input_size, module.hidden_size), 1 + module.bidirectional
    sizes = rnn_sizes(cell, lengths[1], lengths[0], widths, layers=module.num_layers, directions=directions)
    dtype = dtype_name(running_dtype(values))
    return TracedOp(op, "rnn", sizes, dtype, FORWARD, path, input_gradient=values.requires_grad)


def rnn_without_row(module: torch.nn.Module, values: Any) -> str:
    """Say why a recurrent layer's call is no row: what the table's columns cannot say; "" where it is one."""
    if not isinstance(module, torch.nn.RNNBase):
        return ""
    why = "projections" if module.proj_size else "" if _steps_and_batch(module, values) else "unequal sequences"
    return why and f"{module.mode} with {why} has no row of its own: its ops are counted one by one"


def _steps_and_batch(module: torch.nn.RNNBase, values: Any) -> tuple[int, int] | None:
    if isinstance(values, PackedSequence):  # None where its sequences differ in length
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
    """Make a recurrent layer's backward pass walk all steps, as a library's does.

    Library calls give the gradient of the first state whether or not anybody wants it. Taken apart, the layer
    would skip that product, and the parts would fall short of the row.

    Gives a tensor, tuple or None: the first states to call the layer with.
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


def attention_row(
    path: str, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, is_causal: bool
) -> TracedOp:
    """Describe one call of scaled-dot-product attention."""
    op = "aten::scaled_dot_product_attention"
    sizes = attention_of_shapes(query.shape, key.shape, value.shape, causal=is_causal)
    return TracedOp(op, "attention", sizes, dtype_name(running_dtype(query)), FORWARD, path)


class CallWatcher(TorchFunctionMode):
    """Finds attention at its call, and runs dropout as the one op that it is on an accelerator."""

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
            # A function that was overridden runs with the override switched off, so its inner call is led here.
            with replaced(functional, scaled_dot_product_attention=self.attention):
                return func(*args, **kwargs)
        return func(*args, **kwargs)

    def attention(self, query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        """Run scaled-dot-product attention as a row."""
        is_causal = bool(kwargs.get("is_causal", args[2] if len(args) > 2 else False))
        stack = self._recorder.stack
        row = attention_row(stack.top.path, query, key, value, is_causal)
        stack.enter(row.module, (query, key, value, args, kwargs), row)
        result = self._attention(query, key, value, *args, **kwargs)
        stack.leave(result)
        self._recorder.order.note_attention((query, key, value), result)
        return result

    @staticmethod
    def _dropout(input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:  # noqa: A002
        if not training or not 0 < p < 1:
            return functional.dropout(input, p, training, inplace)
        return torch.native_dropout(input, p, True)[0]


_MADE: WeakKeyDictionary[torch.nn.Module, str] = WeakKeyDictionary()


def watch_made_modules() -> AbstractContextManager[None]:
    """Note where the modules are made that are made inside the block."""
    return watch_made(torch.nn.Module, _MADE.__setitem__)


def _watch_module(module: torch.nn.Module, path: str, recorder: Recorder, handles: ExitStack) -> None:
    def before(module: torch.nn.Module, args: Any, kwargs: Any) -> Any:
        values = args[0] if args else kwargs.get("input")
        row = rnn_row(module, path, values)
        if why := rnn_without_row(module, values):
            recorder.note(why)
        recorder.stack.enter(path, (args, kwargs), row)
        if row is None or not isinstance(module, torch.nn.RNNBase):
            return args, kwargs
        states = whole_rnn_states(module, values, args[1] if len(args) > 1 else kwargs.get("hx"))
        return (values, states), {}

    def after(_module: torch.nn.Module, _args: Any, output: Any) -> None:
        recorder.stack.leave(output)

    first = module.register_forward_pre_hook(before, prepend=True, with_kwargs=True)
    handles.callback(first.remove)
    handles.callback(module.register_forward_hook(after, always_call=True).remove)


@contextmanager
def watch_modules(model: torch.nn.Module, recorder: Recorder, prefix: str = "") -> Iterator[None]:
    """Follow every module call of a model inside the block; ``prefix`` names it among several."""
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
