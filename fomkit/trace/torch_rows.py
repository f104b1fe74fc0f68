"""Layers and functions that are one row each, found at the call: LSTM, GRU, RNN and scaled-dot-product attention.

On the meta device PyTorch takes both apart, into products per time step and into two batched products, while
machines run and time them as one. So the call makes the row, and what is dispatched inside becomes its parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

import torch
from torch.nn import functional
from torch.nn.utils.rnn import PackedSequence
from torch.overrides import TorchFunctionMode

from fomkit.trace.calls import FORWARD, Dimensions, TracedOp
from fomkit.trace.torch_autocast import running_dtype
from fomkit.trace.torch_calls import dtype_name
from fomkit.trace.torch_packed import is_packing, pack_without_data, packed_steps
from fomkit.trace.torch_recorder import Recorder

_CELLS = {"LSTM": ("lstm", "aten::lstm"), "GRU": ("gru", "aten::gru"), "RNN_TANH": ("vanilla", "aten::rnn_tanh"),
          "RNN_RELU": ("vanilla", "aten::rnn_relu")}  # fmt: skip


def rnn_row(module: torch.nn.Module, path: str, values: Any) -> TracedOp | None:
    """Describe one forward call of a recurrent layer.

    Returns
    -------
    TracedOp or None
        None for what `rnn_without_row` names. Its ops are then counted one by one.
    """
    if not isinstance(module, torch.nn.RNNBase) or module.mode not in _CELLS:
        return None
    lengths = _steps_and_batch(module, values)
    if lengths is None or module.proj_size:
        return None
    cell, op = _CELLS[module.mode]
    values = values.data if isinstance(values, PackedSequence) else values
    dimensions: Dimensions = {"cell": cell, "batch": lengths[1], "steps": lengths[0]}
    dimensions |= {"input_size": module.input_size, "hidden_size": module.hidden_size}
    dimensions |= {"layers": module.num_layers, "directions": 1 + module.bidirectional}
    dtype = dtype_name(running_dtype(values))
    return TracedOp(op, "rnn", dimensions, dtype, FORWARD, path, input_gradient=values.requires_grad)


def rnn_without_row(module: torch.nn.Module, values: Any) -> str:
    """Say why a recurrent layer's call is no row: what the table's columns cannot say; "" where it is one."""
    if not isinstance(module, torch.nn.RNNBase):
        return ""
    why = "projections" if module.proj_size else "" if _steps_and_batch(module, values) else "unequal sequences"
    return why and f"{module.mode} with {why} has no row of its own: its ops are counted one by one"


def _steps_and_batch(module: torch.nn.RNNBase, values: Any) -> tuple[int, int] | None:
    if isinstance(values, PackedSequence):
        return packed_steps(values)
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

    Returns
    -------
    tensor, tuple or None
        The first states to call the layer with.
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
    if isinstance(states, tuple):
        return tuple(_with_gradient(state) for state in states)
    return _with_gradient(states)


def _with_gradient(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.requires_grad else tensor.detach().requires_grad_()


def attention_row(
    path: str, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, is_causal: bool
) -> TracedOp:
    """Describe one call of scaled-dot-product attention.

    Flop of a row are 4·batch·heads·q_len·kv_len·head_dim forward and twice that backward, causal or not: PyTorch's
    own products compute the whole square. Where values are wider or narrower than keys, head_dim is the mean of
    both, which keeps the flop right.
    """
    heads = query.shape[-3] if query.dim() > 3 else 1
    kv_heads = key.shape[-3] if key.dim() > 3 else 1
    widths = query.shape[-1] + value.shape[-1]
    dimensions: Dimensions = {"batch": prod(query.shape[:-3]) if query.dim() > 3 else query.shape[:-2].numel()}
    dimensions |= {"heads": heads, "kv_heads": kv_heads, "q_len": query.shape[-2], "kv_len": key.shape[-2]}
    dimensions |= {"head_dim": widths / 2 if widths % 2 else widths // 2, "causal": int(is_causal)}
    op = "aten::scaled_dot_product_attention"
    return TracedOp(op, "attention", dimensions, dtype_name(running_dtype(query)), FORWARD, path)


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
        if is_packing(func):
            return pack_without_data(self._recorder, *args, **kwargs)
        if func is functional.dropout:
            return self._dropout(*args, **kwargs)
        if func is functional.multi_head_attention_forward:
            # A function that was overridden runs with the override switched off, so its inner call is led here.
            with replaced(functional, "scaled_dot_product_attention", self.attention):
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


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Let an attribute be another one inside the block."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)
