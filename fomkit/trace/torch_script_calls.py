"""What a running program does with its modules, seen from outside: its outermost calls and its backward passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any

import torch
from torch.nn.modules import module as hooks

from fomkit.trace.torch_rows import replaced


class OuterCalls:
    """Finds the program's models: modules with parameters that are called while no other one is running.

    Parameters
    ----------
    on_begin : function of the module and its arguments
        Called before each outermost call of a module with parameters.
    """

    def __init__(self, on_begin: Callable[[torch.nn.Module, Any], None]) -> None:
        self.found: dict[int, torch.nn.Module] = {}
        self._on_begin = on_begin
        self._depth = 0

    def _before(self, module: torch.nn.Module, args: Any) -> None:
        if not self._depth and next(module.parameters(), None) is not None:
            self.found.setdefault(id(module), module)
            self._on_begin(module, args)
        self._depth += 1

    def _after(self, _module: torch.nn.Module, _args: Any, _output: Any) -> None:
        self._depth -= 1

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Follow all modules inside the block."""
        with ExitStack() as handles:
            handles.callback(hooks.register_module_forward_pre_hook(self._before).remove)
            handles.callback(hooks.register_module_forward_hook(self._after, always_call=True).remove)
            yield

    def models(self) -> dict[str, torch.nn.Module]:
        """Name the outermost modules: "" for a single one, else by their classes; parts of another are none."""
        inside = {id(part) for root in self.found.values() for part in list(root.modules())[1:]}
        roots = [root for key, root in self.found.items() if key not in inside]
        if len(roots) == 1:
            return {"": roots[0]}
        named: dict[str, torch.nn.Module] = {}
        for root in roots:
            name = type(root).__name__.lower()
            taken = sum(other.rstrip("0123456789") == name for other in named)
            named[f"{name}{taken + 1}" if taken else name] = root
        return named


@contextmanager
def watch_backward(around: Callable[[Any, bool], Any], inside: Callable[[], Any]) -> Iterator[None]:
    """Run every backward pass of the program inside contexts of one's own.

    Parameters
    ----------
    around : function of the tensors that the pass starts from, and of whether it fills gradients, giving a context
    inside : function that gives a context
        In which the engine runs. The functions around it would call themselves for ever if a mode that they are
        led through were switched on again in them.
    """

    def watched(run: Any, context: Callable[[Any], Any]) -> Any:
        @wraps(run)
        def backward(*args: Any, **kwargs: Any) -> Any:
            with context(args[0] if args else next(iter(kwargs.values()), None)):
                return run(*args, **kwargs)

        return backward

    contexts: dict[str, Callable[[Any], Any]] = {
        "backward": lambda outputs: around(outputs, True),
        "grad": lambda outputs: around(outputs, False),
        "_engine_run_backward": lambda _: inside(),
    }
    with ExitStack() as stack:
        for name, context in contexts.items():
            run = getattr(torch.autograd, name)
            stack.enter_context(replaced(torch.autograd, name, watched(run, context)))
        yield


@contextmanager
def watch_autocast(note: Callable[[str], None]) -> Iterator[None]:
    """Have a note left of what autocast regions made inside the block do here."""
    kind: Any = torch.amp.autocast_mode.autocast
    make = kind.__init__

    def made(self: Any, device_type: str, dtype: Any = None, enabled: bool = True, **kwargs: Any) -> None:
        make(self, device_type, dtype, enabled, **kwargs)
        if enabled and self._enabled:
            note(f"autocast for {device_type}: casts are those of a CPU, which casts fewer ops up than a GPU does")
        elif enabled:
            note(
                f"autocast for {device_type} is off where there is no such device: the step is in the formats "
                "without it; --precision of an estimate restates it"
            )

    with replaced(kind, "__init__", made):
        yield


@contextmanager
def watch_compile(note: Callable[[str], None]) -> Iterator[None]:
    """Have a note left where the program compiles, inside the block."""
    run = torch.compile

    @wraps(run)
    def compile_nothing(*args: Any, **kwargs: Any) -> Any:
        note("compilation is switched off; the eager ops are traced")
        return run(*args, **kwargs)

    with replaced(torch, "compile", compile_nothing):
        yield
