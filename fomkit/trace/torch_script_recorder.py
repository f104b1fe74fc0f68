"""Recording one step of a running program, on its real tensors, from one step of its optimizer to the next."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import _get_current_function_mode_stack
from torch.utils._pytree import tree_leaves

from fomkit.trace.calls import FORWARD, UPDATE, TracedOp
from fomkit.trace.layer_log import LayerLog
from fomkit.trace.step import Step
from fomkit.trace.torch_layers import layer_rows, watch_layers
from fomkit.trace.torch_modules import watch_modules
from fomkit.trace.torch_optimizers import trace_update
from fomkit.trace.torch_recorder import Recorder
from fomkit.trace.torch_rows import CallWatcher
from fomkit.trace.torch_scopes import Scope
from fomkit.trace.torch_script_loader import Fetched
from fomkit.trace.torch_sync_norm import watch_sync_norms
from fomkit.trace.user_code import CodeLines

Models = Mapping[str, torch.nn.Module]


class PausingRecorder(Recorder):  # type: ignore[no-untyped-call]
    """A recorder that can look away, and that knows what follows a backward pass as part of the update."""

    is_paused = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an op, and record it unless paused."""
        if self.is_paused:
            return func(*args, **(kwargs or {}))
        return super().__torch_dispatch__(func, types, args, kwargs)

    def _place(self) -> tuple[Scope, str]:
        scope, now = super()._place()
        return (Scope(""), now) if now == UPDATE else (scope, now)


def shapes_in(values: Any) -> list[tuple[int, ...]]:
    """Give the shapes of the tensors among some values, those of single numbers left out."""
    return [tuple(leaf.shape) for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor) and leaf.dim()]


class Recording:
    """What a program does between two steps of its optimizer.

    Parameters
    ----------
    models : mapping
        The program's models by name, "" for a single one.
    trained : sequence of Tensor
        The parameters that its optimizers hold.

    Attributes
    ----------
    is_clean : bool
        Whether the step stood alone: no epoch ended in it, no evaluation ran, its batch was full.
    has_begun : bool
        Whether anything of the training step itself has run.
    backwards, closures : int
        Backward passes, and calls of a function given to the optimizer's step.
    batches : list of Fetched
        What the program took from its loaders.
    called_with : list of tuple of int
        Shapes of the tensors that a model was first called with.
    """

    def __init__(self, models: Models, trained: Sequence[torch.Tensor]) -> None:
        self.models = models
        self.is_clean = True
        self._trained = {id(parameter) for parameter in trained}
        self._recorder = PausingRecorder(trained, on_meta=False)
        self._watcher = CallWatcher(self._recorder)
        self._code = CodeLines()
        self._open = ExitStack()
        self._logs: dict[int, LayerLog] = {}
        self._begin()
        self._start()

    def _begin(self) -> None:
        self.has_begun = False
        self.backwards = self.closures = 0
        self.batches: list[Fetched] = []
        self.called_with: list[tuple[int, ...]] = []
        self.updated_by: Counter[int] = Counter()
        self._updates: list[Any] = []
        self._is_stale = False

    def _start(self) -> None:
        enter = self._open.enter_context
        for name, model in self.models.items():
            enter(watch_modules(model, self._recorder, name))
            self._logs[id(model)] = enter(watch_layers(model, once=True))
            enter(_recurrent_layers_apart(model))
        enter(watch_sync_norms(self._recorder))
        enter(sdpa_kernel(SDPBackend.MATH))
        enter(self._recorder)
        enter(self._watcher)

    def forget(self) -> None:
        """Leave out what ran so far, unless the training step has begun: an evaluation, or the end of an epoch."""
        if self.has_begun or len(self._recorder.stack.running) > 1:
            return
        self.is_clean = False
        self._recorder.forget()
        for log in self._logs.values():
            log.forget()
        self._begin()

    def model_begins(self, model: torch.nn.Module, args: Any) -> None:
        """Take note of an outermost call of a module."""
        if self._is_stale:
            self.forget()
        self._recorder.layers = self._logs.get(id(model))
        self._recorder.between = FORWARD
        if torch.is_grad_enabled():
            self.has_begun = True
            if not self.called_with:
                self.called_with = shapes_in(args)
        elif not model.training and any(id(parameter) in self._trained for parameter in model.parameters()):
            self._is_stale = not self.has_begun

    @contextmanager
    def backward(self, outputs: Any, fills: bool) -> Iterator[None]:
        """Run a backward pass inside, which ``fills`` the parameters' gradients or only gives some back."""
        recorder = self._recorder
        if recorder.is_paused or recorder.in_backward:  # the latter: a pass inside one, as checkpointing runs
            yield
            return
        self.has_begun = True
        self.backwards += fills
        recorder.stack.tag(outputs, recorder.stack.top)
        recorder.in_backward = True
        yield
        recorder.in_backward = False
        recorder.between = UPDATE if fills else recorder.between

    @contextmanager
    def watched_engine(self) -> Iterator[None]:
        """Watch calls inside: Tensor.backward runs without the mode, and with it what checkpointing runs again."""
        modes: list[Any] = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
        with nullcontext() if self._watcher in modes else self._watcher:
            yield

    def pause(self, is_paused: bool) -> bool:
        """Look away, or look again; give what was before."""
        before, self._recorder.is_paused = self._recorder.is_paused, is_paused
        return before

    def note(self, text: str) -> None:
        """Keep a remark for the profile."""
        self._recorder.note(text)

    def update(self, optimizer: torch.optim.Optimizer) -> None:
        """Take note of a step that an optimizer just made."""
        update = trace_update(optimizer, {})
        line = self._code.of(sys._getframe(1))
        for row in update.rows if line else ():
            row.lines = {line: 1}
        self._updates.append(update)
        self.updated_by[id(optimizer)] += 1

    def close(self) -> Step:
        """End it and give the step."""
        self._open.close()
        recorder = self._recorder
        ops, states, unsupported = recorder.finish(), recorder.states, recorder.unsupported
        notes = list(recorder.notes)
        if recorder.recomputed:
            notes.append(
                f"{recorder.recomputed} ops of the forward pass run again in the backward pass (checkpointing)"
            )
        for update in self._updates:
            ops += update.rows
            notes += update.notes
            states["priced"] += len(update.rows)
            if update.unsupported:
                unsupported[update.unsupported] += 1
                states["unsupported"] += 1
        optimizer: dict[str, str] = next((update.optimizer for update in self._updates if update.rows), {})
        return Step(ops + self._layers(), states, unsupported, optimizer, list(dict.fromkeys(notes)))

    def _layers(self) -> list[TracedOp]:
        found = []
        for name, model in self.models.items():
            rows = layer_rows(self._logs[id(model)], model)
            for row in rows:
                row.module = ".".join(filter(None, (name, row.module)))
            found += rows
        return found


@contextmanager
def _recurrent_layers_apart(model: torch.nn.Module) -> Iterator[None]:
    """Have recurrent layers taken apart, for which a CPU has one kernel that shows no sizes."""
    getter: Any = torch._C._get_mkldnn_enabled
    setter: Any = torch._C._set_mkldnn_enabled
    before: bool = getter()

    def off(_module: Any, _args: Any) -> None:
        setter(False)

    def on(_module: Any, _args: Any, _output: Any) -> None:
        setter(before)

    with ExitStack() as handles:
        for module in model.modules():
            if isinstance(module, torch.nn.RNNBase):
                handles.callback(module.register_forward_pre_hook(off).remove)
                handles.callback(module.register_forward_hook(on, always_call=True).remove)
        try:
            yield
        finally:
            setter(before)
