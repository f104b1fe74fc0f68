"""Trace one training step or inference of a Keras model on its PyTorch backend, with shapes only and no data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import keras
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from fomkit.frontends.drafting import no_collection
from fomkit.frontends.keras.inputs import ApplyArgs, Prepared, Values, split_values, watch_update
from fomkit.frontends.keras.layers import LayerCalls, layer_paths, owners_of, placed_layers, watch_calls
from fomkit.frontends.keras.ops import MakeRow, row_of_layer, watch_attention
from fomkit.frontends.keras.profile import rule_of, update_of
from fomkit.frontends.layers import LayerLog
from fomkit.frontends.lowering.calls import UPDATE, TracedOp
from fomkit.frontends.sizes import Sizes
from fomkit.frontends.step import Step
from fomkit.frontends.torch.order import Line, arrays_of, function_word, made_byte, state_lines, update_line
from fomkit.frontends.torch.profile import plain_kernels, watch_backward
from fomkit.frontends.torch.recorder import Recorder


def _byte(variable: Any) -> int:
    return int(variable.value.numel() * variable.value.element_size())


def update_lines(
    model: Any, optimizer: Any, rows: Sequence[TracedOp], updated: Sequence[Any], executed: int
) -> Iterator[Line]:
    """Yield the lines of a foreach update; its temporaries are assumed to be those of torch.optim.

    `optimizer`: one with a rule; `rows`: of the update, one for each number format; `updated`: variables with a
    gradient; `executed`: ops executed before.
    """
    rule = rule_of(optimizer)
    owners = {id(one): path for layer, path in placed_layers(model) for one in layer._trainable_variables}
    yield from state_lines(rule, ((owners.get(id(one), ""), _byte(one)) for one in updated))
    byte = made_byte({}, rule, "foreach", [_byte(one) for one in updated])
    for number, row in enumerate(rows, executed + 1):
        yield update_line(number, row, byte if number == executed + 1 else 0)


def _run_step(prepared: Prepared, data: Values) -> Any:
    """Run the step; the caller holds its result until the end, as a training loop does."""
    model = prepared.model
    if prepared.mode == "infer":
        with torch.no_grad():
            return model(split_values(data)[0], training=False)
    if prepared.has_own_step:
        return model.train_step(data)
    x, given = split_values(data)
    output = model(x, training=True)
    loss = prepared.loss(output, given) if prepared.loss else keras.tree.flatten(output)[0].sum()
    loss = sum((loss, *model.losses))
    model.zero_grad()
    loss.backward()
    variables = model.trainable_variables
    if prepared.optimizer is not None:
        prepared.optimizer.apply([variable.value.grad for variable in variables], variables)
    return output, loss


class _Watched:
    """Reports layers, attention and the backward pass to a recorder."""

    def __init__(self, recorder: Recorder, prepared: Prepared) -> None:
        self._recorder = recorder
        self._paths = layer_paths(prepared.model)
        self.layers = LayerLog(function_word)
        self._calls = LayerCalls(self.layers)

    @contextmanager
    def layer(self, layer: Any, args: Any, kwargs: Any) -> Iterator[Callable[[Any], None]]:
        """Run the call of a layer inside."""
        path = self._paths.get(id(layer), getattr(layer, "name", ""))
        stack = self._recorder.stack
        row = None if stack.top.owner else row_of_layer(layer, args, kwargs, path)
        if row is not None and row.kind == "rnn":
            given = keras.tree.flatten((args, kwargs))
            row.input_gradient = any(one.requires_grad for one in given if isinstance(one, torch.Tensor))
        made: list[Any] = []
        stack.enter(path, (args, kwargs), row)
        self._calls.begin(layer, path, arrays_of((args, kwargs)))
        yield made.append
        self._calls.end(layer, arrays_of(made))
        stack.leave(made)

    @contextmanager
    def attention(self, make: MakeRow, factors: Any) -> Iterator[Callable[[Any], None]]:
        """Run an attention inside, as a row of its own."""
        stack = self._recorder.stack
        made: list[Any] = []
        path = stack.top.path
        stack.enter(path, factors, make(path))
        yield made.append
        stack.leave(made)

    @contextmanager
    def backward(self, outputs: Any, _fills: bool) -> Iterator[None]:
        """Run the backward pass inside."""
        with self._recorder.backward(outputs):
            yield
        self._recorder.between = UPDATE  # metrics, as in PyTorch programs


def trace_step(prepared: Prepared, sizes: Sizes) -> Step:
    """Trace one step at the given sizes; no weight changes."""
    model, optimizer, seen = prepared.model, prepared.optimizer, ApplyArgs()
    trainable = [variable.value for variable in model.trainable_variables]
    recorder = Recorder(trainable, on_meta=False)
    watched = _Watched(recorder, prepared)
    recorder.layers = watched.layers
    for layer, path in placed_layers(model):
        recorder.order.hold([variable.value for variable in layer._trainable_variables], "parameter", path)
        recorder.order.hold([variable.value for variable in layer._non_trainable_variables], "buffer", path)
    with ExitStack() as stack:
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        dtype_of = keras.src.backend.torch.core.to_torch_dtype
        specs = prepared.inputs(sizes)
        data = keras.tree.map_structure(lambda one: torch.zeros(one.shape, dtype=dtype_of(one.dtype)), specs)
        recorder.order.hold(data, "input")
        stack.enter_context(watch_update(optimizer, seen, run=False))
        stack.enter_context(watch_calls(watched.layer))
        stack.enter_context(watch_attention(watched.attention))
        stack.enter_context(watch_backward(watched.backward, nullcontext))
        stack.enter_context(plain_kernels(prepared.mode))
        stack.enter_context(recorder)
        stack.enter_context(no_collection())
        _run_step(prepared, data)
    lines = recorder.order.finish(one.grad for one in trainable if one.grad is not None)
    for one in trainable:
        one.grad = None
    step = recorder.finish(list(recorder.notes))
    update = update_of(prepared, seen.variables, by_ops=False)
    if update.rows:
        lines += update_lines(model, optimizer, update.rows, seen.variables, recorder.order.executed)
    return recorder.with_update(step, update, lines, watched.layers.rows(owners_of(model)))
