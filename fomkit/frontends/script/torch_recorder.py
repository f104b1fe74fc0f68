"""Record one step of a running program, on its real tensors, from one optimizer step to the next.

`Recording` holds the step; what stands before it observes models, autocast and compilation. `LargeModel` takes the
values of large parameters, so that their steps need no memory and no arithmetic for them. The program's data stay
real. What is computed from such a parameter has a shape and no values, as under PyTorch's fake tensors; a single
number that the program reads from it, such as a loss for its log, is 1.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from typing import Any
from weakref import WeakSet

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils._python_dispatch import _disable_current_modes

from fomkit.core.model import DOUBTFUL
from fomkit.frontends.drafting import replaced, watched
from fomkit.frontends.layers import LayerLog
from fomkit.frontends.lowering.calls import FORWARD, UPDATE, TracedOp
from fomkit.frontends.model_file import CodeLines
from fomkit.frontends.script.trainers import Fetched
from fomkit.frontends.step import Step, Update
from fomkit.frontends.torch.calls import held_tensor, tensors_of
from fomkit.frontends.torch.forms import maker_without_values, number_of, swap
from fomkit.frontends.torch.modes import CallWatcher, watch_modules, watch_sync_norms
from fomkit.frontends.torch.order import has_formula, layer_rows, trace_update, watch_layers
from fomkit.frontends.torch.recorder import Recorder


class OuterCalls:
    """Finds the program's models: modules with parameters that are called while no other module is running.

    `on_found`: called before the first outermost call of each such module.
    `on_begin`: called before each outermost call of a module with parameters.
    `on_end`: called after it with the arguments of the call, by position and by name.
    """

    def __init__(
        self,
        on_found: Callable[[torch.nn.Module], None],
        on_begin: Callable[[torch.nn.Module], None],
        on_end: Callable[[tuple[Any, Mapping[str, Any]]], None],
    ) -> None:
        self.found: dict[int, torch.nn.Module] = {}
        self._on_found, self._on_begin, self._on_end = on_found, on_begin, on_end
        self._depth = 0

    def _called(self, run: Callable[..., Any], module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        begins = not self._depth and next(module.parameters(), None) is not None
        if begins and id(module) not in self.found:
            self.found[id(module)] = module
            self._on_found(module)
        if begins:
            self._on_begin(module)
        self._depth += 1
        try:
            result = run(module, *args, **kwargs)
        finally:
            self._depth -= 1
        if begins:
            self._on_end((args, kwargs))
        return result

    def watch(self) -> AbstractContextManager[None]:
        """Watch all modules inside the block."""
        # Hooks get no named arguments in the first supported versions of PyTorch.
        return watched(torch.nn.Module, __call__=self._called)

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


MOST_WITH_VALUES = 100_000_000
"""Most parameters, in all models of a program, that are computed with: more make a step on a CPU take minutes."""
_LARGE = 1 << 20
"""Numbers in a parameter from which on filling it takes long enough to leave it out."""
_FILLS = re.compile(r"[a-z]\w*[a-z]_")
"""Names of functions that change a tensor in place."""
_CHANGES = (torch.Tensor.to, torch.Tensor.half, torch.Tensor.bfloat16, torch.Tensor.float, torch.Tensor.double)
"""Functions by which modules change the number format of their parameters."""
_READS = (torch.Tensor.numpy, torch.Tensor.__array__, torch.Tensor.__format__)
"""Functions that read a tensor's values other than one by one."""


class LargeModel(TorchFunctionMode):
    """Takes the values of the parameters of large programs, and leaves out filling them with numbers.

    A program is large once its live modules hold more than `MOST_WITH_VALUES`; it stays large.

    `took`: how many parameters got no values, in all models; 0 if the program computes with all values.
    `is_slow`: whether to take the values of any model, since computing with them takes too long.
    `on_taken`: called once a model's parameters got none.
    """

    def __init__(self, on_taken: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self.took = self._registered = 0
        self.is_slow = False
        self._on_taken = on_taken
        self._modules: WeakSet[torch.nn.Module] = WeakSet()
        self._is_large = False
        self._make: Callable[[torch.Tensor], torch.Tensor] | None = None

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run a function, unless it fills or converts a large parameter before any model has run."""
        first: Any = next(iter((*args, *(kwargs or {}).values())), None)  # PyTorch's own initialisers name it
        fills, changes = _FILLS.fullmatch(getattr(func, "__name__", "")), func in _CHANGES
        if (fills or changes) and self._make is None and self._stays_unfilled(first):
            if fills:
                return first
            if not torch.is_grad_enabled() and "memory_format" not in (kwargs or {}):
                given = first.new_empty(1)
                made = func(given, *args[1:], **(kwargs or {}))
                return first if made is given else torch.empty_like(first, dtype=made.dtype)
        if self._make and func in _READS and hasattr(args[0], "fake_mode"):
            with _disable_current_modes():  # no op of the step
                args = (torch.full(args[0].shape, number_of(args[0]).item()), *args[1:])
        return func(*args, **(kwargs or {}))

    def _stays_unfilled(self, one: Any) -> bool:
        return type(one) is torch.nn.Parameter and one.numel() >= _LARGE and self._found_large()

    def _found_large(self) -> bool:
        """Return whether the program is large: modules that it has dropped do not count."""
        if not self._is_large and self._registered > MOST_WITH_VALUES:
            every: Any = (
                one for module in self._modules for one in module._parameters.values() if one is not None
            )
            held = (one for one in every if not is_lazy(one))
            self._is_large = sum({id(one): one.numel() for one in held}.values()) > MOST_WITH_VALUES
        return self._is_large

    @property
    def notes(self) -> list[str]:
        """A note if parameters got no values."""
        what = "parameters got no values, so a number that the program reads from a result, such as a loss, is 1"
        return [f"the {self.took:,} {what}"] * bool(self.took)

    @property
    def limits(self) -> str:
        """What the program cannot do if its parameters have no values, a sentence; "" if they have."""
        many = "its evaluations" if self.is_slow else f"more than {MOST_WITH_VALUES:,}"
        why = f"Its {self.took:,} parameters have no values here, since {many} would take"
        what = "Its first steps must not save them, nor choose rows or end a loop by values of a result"
        return f" {why} too long. {what}." if self.took else ""

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Count the parameters registered inside the block; wrappers of large models only pass calls on."""

        def counted(register: Callable[..., None], module: Any, name: str, parameter: Any) -> None:
            self._registered += 0 if parameter is None or is_lazy(parameter) else parameter.numel()
            self._modules.add(module)
            register(module, name, parameter)

        def copied(own: Callable[..., Any], one: Any, memo: dict[int, Any]) -> Any:
            if id(one) not in memo and self._stays_unfilled(one):
                memo[id(one)] = torch.nn.Parameter(torch.empty_like(one.data), one.requires_grad)
            return own(one, memo)

        def wrapped(wrap: Callable[..., None], whole: Any, module: Any, *args: Any, **kwargs: Any) -> None:
            if not self._found_large():
                wrap(whole, module, *args, **kwargs)
            else:  # it would hold parameters by their gradients, to exchange them with processes that do not exist
                torch.nn.Module.__init__(whole)
                whole.module, whole.require_backward_grad_sync = module, True
                whole.register_comm_hook = lambda *_args, **_kwargs: None

        def passed(run: Callable[..., Any], whole: Any, *args: Any, **kwargs: Any) -> Any:
            return run(whole, *args, **kwargs) if hasattr(whole, "reducer") else whole.module(*args, **kwargs)

        with ExitStack() as stack:
            stack.enter_context(watched(torch.nn.Module, register_parameter=counted))
            stack.enter_context(watched(torch.nn.Parameter, __deepcopy__=copied))
            stack.enter_context(watched(DistributedDataParallel, __init__=wrapped, forward=passed))
            stack.enter_context(self)
            yield

    def take_values(self, model: torch.nn.Module) -> None:
        """Replace the parameters of a model, which is about to run in a large program, by ones without values.

        Optimizers keep the parameters that they hold. Parameters of a kind of their own, as sharded ones, stay.
        """
        owned = {id(one): one for one in model.parameters() if type(one) is torch.nn.Parameter}
        count = sum(one.numel() for one in owned.values())
        # Copied modules register nothing.
        if count <= MOST_WITH_VALUES and not self.is_slow and not self._found_large():
            return
        self._make, self._is_large = self._make or maker_without_values(), True
        with torch._C.DisableTorchFunction():
            for one in owned.values():
                swap(one, self._make(one))
        self.took += count
        self._on_taken()


@contextmanager
def watch_settings(note: Callable[[str], None]) -> Iterator[None]:
    """Note the effect of autocast regions that the program makes inside the block, and whether it compiles."""
    kind: Any = torch.amp.autocast_mode.autocast
    make = kind.__init__

    def made(self: Any, device_type: str, dtype: Any = None, enabled: bool = True, **kwargs: Any) -> None:
        make(self, device_type, dtype, enabled, **kwargs)
        if enabled and self._enabled:
            note(f"autocast for {device_type}: casts are those of a CPU, which casts fewer ops up than a GPU does")
        elif enabled:
            note(
                f"{DOUBTFUL}: autocast for {device_type} has no effect without such a device: the step has the "
                "number formats without autocast, unless --precision of an estimate changes them, as mixed does"
            )

    def compiled(run: Any, *args: Any, **kwargs: Any) -> Any:
        note("compilation is switched off; the eager ops are traced")
        return run(*args, **kwargs)

    with replaced(kind, __init__=made), watched(torch, compile=compiled):
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
    """Return the shapes of the tensors among some values, without those of single numbers.

    Inside ``torch.func.vmap`` a tensor has the shape of all its samples.
    """
    values = {**values} if isinstance(values, Mapping) else values  # torch needs a plain dict
    tensors = (held_tensor(one) if one.layout is torch.strided else one for one in tensors_of(values))
    return [tuple(tensor.shape) for tensor in tensors if tensor.dim()]


class Recording:
    """What a program does between two steps of its optimizer.

    `models`: the program's models by name, "" for a single one; after `close` those that the step called.
    `trained`: the parameters that its optimizers hold.

    `is_clean`: whether the step is undisturbed: no epoch ended in it, no evaluation ran, its batch was full.
    `has_begun`: whether anything of the training step itself has run.
    `backwards`, `closures`: backward passes, and calls of a function passed to the optimizer's step.
    `without`: outermost calls of models without gradients.
    `batches`: what the program fetched from its loaders; `updated`: ``id`` of each parameter that was updated.
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
        self.backwards = self.closures = self.without = 0
        self.batches: list[Fetched] = []
        self.called: set[int] = set()
        self.called_with: list[tuple[int, ...]] = []
        self.called_lengths: list[int] = []
        self.updated_by, self.updated = Counter[int](), set[int]()
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

    def also_train(self, leaves: Mapping[int, torch.Tensor], nodes: Iterable[Any]) -> None:
        """Take tensors, by ``id``, that a program may make anew as parameters, and watch the nodes before them."""
        stack = self._recorder.stack
        is_known = leaves.keys() <= stack.parameters.keys()
        stack.parameters.update(leaves)
        for node in () if is_known else nodes:
            stack.watch(node, node.next_functions)

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
        self.called.add(id(model))
        self._recorder.layers = self._logs.get(id(model))
        self._recorder.between = FORWARD
        self.without += not torch.is_grad_enabled()
        if torch.is_grad_enabled():
            self.has_begun = True
        elif not model.training and any(id(parameter) in self._trained for parameter in model.parameters()):
            self._is_stale = not self.has_begun

    def model_ends(self, given: tuple[Any, Mapping[str, Any]]) -> None:
        """Record the arguments of an outermost call of a module."""
        shapes = shapes_in(given) if torch.is_grad_enabled() else []
        if not any(len(shape) > 1 for shape in self.called_with):  # a single sample has no axis of samples
            self.called_with = shapes or self.called_with
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

    def update(self, optimizer: Any) -> None:
        """Record a step that an optimizer has just made; without a formula, its ops were recorded as they ran."""
        update = trace_update(optimizer, {})
        if not has_formula(optimizer):
            name = getattr(optimizer, "title", type(optimizer).__name__)
            update = Update(notes=[f"optimizer: the update is what {name}'s own code ran, op by op"])
        line = self._code.of(sys._getframe(1))
        for row in update.rows if line else ():
            row.lines = {line: 1}
        self._updates.append(update)
        self.updated_by[id(optimizer)] += 1
        parameters = (one for group in optimizer.param_groups for one in group["params"])
        self.updated.update(id(one) for one in parameters if one.grad is not None)

    def close(self) -> Step:
        """End the recording and return the step."""
        self._open.close()
        step = self._recorder.finish([*self._recorder.notes, *self._recorder.checkpoint_notes])
        for update in self._updates:
            # The profile's head names the first of several optimizers.
            step.add_update(replace(update, optimizer={} if step.optimizer else update.optimizer))
        if self.called:  # a model that was only called earlier, as when it was made, is none of the step's
            self.models = {name: one for name, one in self.models.items() if id(one) in self.called}
        step.ops.extend(self._layers())
        for op in step.ops if len(self.models) == 1 else ():
            op.module = f"{op.module}.".removeprefix(f"{next(iter(self.models))}.").removesuffix(".")
        return replace(step, notes=list(dict.fromkeys(step.notes)))

    def _layers(self) -> list[TracedOp]:
        found = []
        for name, model in self.models.items():
            for row in layer_rows(self._logs[id(model)], model):
                row.module = ".".join(filter(None, (name, row.module)))
                found.append(row)
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
