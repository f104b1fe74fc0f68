"""Watching a model's modules: each call is a scope, and recurrent layers are rows."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch

from fomkit.trace.torch_recorder import Recorder
from fomkit.trace.torch_rows import replaced, rnn_row, rnn_without_row, whole_rnn_states
from fomkit.trace.user_code import CodeLines

_MADE: WeakKeyDictionary[torch.nn.Module, str] = WeakKeyDictionary()


@contextmanager
def watch_made_modules() -> Iterator[None]:
    """Note where the modules are made that are made inside the block."""
    make, code = torch.nn.Module.__init__, CodeLines()

    def made(module: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
        make(module, *args, **kwargs)
        _MADE[module] = code.of(sys._getframe(1))

    with replaced(torch.nn.Module, "__init__", made):
        yield


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
