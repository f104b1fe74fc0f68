"""Record one step of a running program, on its real tensors, from one optimizer step to the next.

`Recording` holds the step; the functions before it observe models, autocast, compilation and DataLoaders.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules import module as hooks
from torch.overrides import _get_current_function_mode_stack
from torch.utils import data
from torch.utils.data import dataloader

from fomkit.core.model import LastBatch
from fomkit.frontends.drafting import replaced, watched
from fomkit.frontends.layers import LayerLog
from fomkit.frontends.lowering.calls import FORWARD, UPDATE, TracedOp
from fomkit.frontends.model_file import CodeLines
from fomkit.frontends.step import Step, Update
from fomkit.frontends.torch.calls import tensors_of
from fomkit.frontends.torch.modes import CallWatcher, watch_modules, watch_sync_norms
from fomkit.frontends.torch.order import has_formula, layer_rows, trace_update, watch_layers
from fomkit.frontends.torch.recorder import Recorder


class OuterCalls:
    """Finds the program's models: modules with parameters that are called while no other module is running.

    `on_begin`: called before each outermost call of a module with parameters.
    `on_end`: called after it with the arguments of the call, by position and by name.
    """

    def __init__(
        self, on_begin: Callable[[torch.nn.Module], None], on_end: Callable[[tuple[Any, Mapping[str, Any]]], None]
    ) -> None:
        self.found: dict[int, torch.nn.Module] = {}
        self._on_begin, self._on_end = on_begin, on_end
        self._depth = 0

    def _before(self, module: torch.nn.Module, _args: Any) -> None:
        if not self._depth and next(module.parameters(), None) is not None:
            self.found.setdefault(id(module), module)
            self._on_begin(module)
        self._depth += 1

    def _given(self, module: torch.nn.Module, args: Any, kwargs: Mapping[str, Any], _output: Any) -> None:
        if self._depth == 1 and id(module) in self.found:
            self._on_end((args, kwargs))

    def _after(self, _module: torch.nn.Module, _args: Any, _output: Any) -> None:
        self._depth -= 1

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Watch all modules inside the block."""
        with ExitStack() as handles:
            handles.callback(hooks.register_module_forward_pre_hook(self._before).remove)
            # A hook that is called after errors, too, gets no named arguments then.
            handles.callback(hooks.register_module_forward_hook(self._given, with_kwargs=True).remove)
            handles.callback(hooks.register_module_forward_hook(self._after, always_call=True).remove)
            yield

    def models(self) -> dict[str, torch.nn.Module]:
        """Return the outermost modules by name: "" for a single one, else by class; inner ones are left out."""
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
def watch_autocast(note: Callable[[str], None]) -> Iterator[None]:
    """Note the effect of autocast regions that are made inside the block."""
    kind: Any = torch.amp.autocast_mode.autocast
    make = kind.__init__

    def made(self: Any, device_type: str, dtype: Any = None, enabled: bool = True, **kwargs: Any) -> None:
        make(self, device_type, dtype, enabled, **kwargs)
        if enabled and self._enabled:
            note(f"autocast for {device_type}: casts are those of a CPU, which casts fewer ops up than a GPU does")
        elif enabled:
            note(
                f"autocast for {device_type} has no effect without such a device: the step has the number formats "
                "without autocast; --precision of an estimate changes them"
            )

    with replaced(kind, __init__=made):
        yield


def watch_compile(note: Callable[[str], None]) -> AbstractContextManager[None]:
    """Add a note if the program compiles inside the block."""

    def compile_nothing(run: Any, *args: Any, **kwargs: Any) -> Any:
        note("compilation is switched off; the eager ops are traced")
        return run(*args, **kwargs)

    return watched(torch, compile=compile_nothing)


def length_of(values: Any) -> int | None:
    """Return the samples of a dataset, or of several by name; None if there is no length, as for streams."""
    try:
        return sum(map(len, values.values())) if isinstance(values, dict) else len(values)
    except (TypeError, NotImplementedError):
        return None


@dataclass(frozen=True)
class LoaderFacts:
    """Facts about a loader; None where unknown."""

    batch: int | None
    samples: int | None
    last_batch: LastBatch


def loader_facts(loader: Any) -> LoaderFacts:
    """Read batch size, samples per epoch and treatment of the last batch."""
    by_batch = getattr(loader, "batch_sampler", None)
    batch = loader.batch_size or getattr(by_batch, "batch_size", None)
    streams = isinstance(loader.dataset, data.IterableDataset)
    samples = length_of(loader.dataset if streams or loader.batch_size is None else loader.sampler)
    drops = loader.drop_last or bool(getattr(by_batch, "drop_last", False))
    return LoaderFacts(batch if isinstance(batch, int) else None, samples, "drop" if drops else "keep")


@dataclass(frozen=True)
class Fetched:
    """One batch that the program fetched."""

    loader: Any
    values: Any
    is_full: bool


@contextmanager
def watch_loaders(
    on_start: Callable[[], None], on_batch: Callable[[Fetched], Any], quietly: Callable[[], Any]
) -> Iterator[None]:
    """Watch every DataLoader of this process inside the block.

    `on_start`: called before an iteration over a loader begins; `on_batch`: returns the values that the program
    gets of a batch; `quietly`: context in which batches are made: this is the host's work, and no op of the step.
    """
    loaders: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    def started(start: Any, loader: Any) -> Any:
        on_start()
        with quietly():
            batches = start(loader)
        loaders[batches] = loader
        return batches

    def fetched(fetch: Any, batches: Any) -> Any:
        with quietly():
            values = fetch(batches)
            if batches not in loaders:
                return values
            loader = loaders[batches]
            facts = loader_facts(loader)
            full = None if facts.samples is None or not facts.batch else facts.samples // facts.batch
            return on_batch(Fetched(loader, values, full is None or batches._num_yielded <= full))

    with watched(data.DataLoader, __iter__=started), watched(dataloader._BaseDataLoaderIter, __next__=fetched):
        yield


Models = Mapping[str, torch.nn.Module]


class PausingRecorder(Recorder):  # type: ignore[no-untyped-call]
    """A recorder that can pause, and that assigns ops after a backward pass to the update."""

    is_paused = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an op, and record it unless paused."""
        if self.is_paused:
            return func(*args, **(kwargs or {}))
        return super().__torch_dispatch__(func, types, args, kwargs)


def shapes_in(values: Any) -> list[tuple[int, ...]]:
    """Return the shapes of the tensors among some values, without those of single numbers."""
    values = {**values} if isinstance(values, Mapping) else values  # torch needs a plain dict
    return [tuple(tensor.shape) for tensor in tensors_of(values) if tensor.dim()]


class Recording:
    """What a program does between two steps of its optimizer.

    `models`: the program's models by name, "" for a single one.
    `trained`: the parameters that its optimizers hold.

    `is_clean`: whether the step is undisturbed: no epoch ended in it, no evaluation ran, its batch was full.
    `has_begun`: whether anything of the training step itself has run.
    `backwards`, `closures`: backward passes, and calls of a function passed to the optimizer's step.
    `batches`: what the program fetched from its loaders.
    `called_with`: shapes of the tensors in the first call of a model, by position or by name.
    `called_lengths`: the first axis of the arguments of models, call by call.
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
        self.called_lengths: list[int] = []
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

    def note(self, text: str) -> None:
        """Add a remark for the profile."""
        self._recorder.note(text)

    def forget(self) -> None:
        """Drop the records so far (an evaluation, or the end of an epoch), unless the training step has begun."""
        if self.has_begun or len(self._recorder.stack.running) > 1:
            return
        self.is_clean = False
        self._recorder.forget()
        for log in self._logs.values():
            log.forget()
        self._begin()

    def model_begins(self, model: torch.nn.Module) -> None:
        """Handle the begin of an outermost call of a module."""
        if self._is_stale:
            self.forget()
        self._recorder.layers = self._logs.get(id(model))
        self._recorder.between = FORWARD
        if torch.is_grad_enabled():
            self.has_begun = True
        elif not model.training and any(id(parameter) in self._trained for parameter in model.parameters()):
            self._is_stale = not self.has_begun

    def model_ends(self, given: tuple[Any, Mapping[str, Any]]) -> None:
        """Record the arguments of an outermost call of a module."""
        shapes = shapes_in(given) if torch.is_grad_enabled() else []
        self.called_with = self.called_with or shapes
        self.called_lengths += [shape[0] for shape in shapes[:1]]

    @contextmanager
    def backward(self, outputs: Any, fills: bool) -> Iterator[None]:
        """Run a backward pass inside; ``fills``: whether it fills the parameters' gradients or returns some."""
        recorder = self._recorder
        if recorder.is_paused or recorder.in_backward:  # in_backward: a pass inside a pass, as checkpointing runs
            yield
            return
        self.has_begun = True
        self.backwards += fills
        with recorder.backward(outputs):
            yield
        recorder.between = UPDATE if fills else recorder.between

    @contextmanager
    def watched_engine(self) -> Iterator[None]:
        """Keep the watcher of calls active inside the block, where the autograd engine runs.

        Tensor.backward runs without function modes; so would the ops that checkpointing repeats.
        """
        modes: list[Any] = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
        with nullcontext() if self._watcher in modes else self._watcher:
            yield

    def pause(self, is_paused: bool) -> bool:
        """Pause or resume; return the previous state."""
        before, self._recorder.is_paused = self._recorder.is_paused, is_paused
        return before

    def update(self, optimizer: torch.optim.Optimizer) -> None:
        """Record a step that an optimizer has just made; without a formula, its ops were recorded as they ran."""
        update = trace_update(optimizer, {})
        if not has_formula(optimizer):
            name = type(optimizer).__name__
            update = Update(notes=[f"optimizer: the update is what {name}'s own code ran, op by op"])
        line = self._code.of(sys._getframe(1))
        for row in update.rows if line else ():
            row.lines = {line: 1}
        self._updates.append(update)
        self.updated_by[id(optimizer)] += 1

    def close(self) -> Step:
        """End the recording and return the step."""
        self._open.close()
        recorder = self._recorder
        step = recorder.finish([*recorder.notes, *recorder.checkpoint_notes])
        for update in self._updates:
            # The profile's head names the first of several optimizers.
            step.add_update(replace(update, optimizer={} if step.optimizer else update.optimizer))
        step.ops.extend(self._layers())
        return replace(step, notes=list(dict.fromkeys(step.notes)))

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
    """Decompose recurrent layers inside the block, for which a CPU has one kernel that shows no sizes."""
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
