"""A Keras workload's draft of a profile, of a user's file in a child process or made in this one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module
from math import prod
from pathlib import Path
from typing import Any

import keras

from fomkit.core.errors import FomkitError, ManyFomkitError
from fomkit.core.model import ModelProfile, Workload
from fomkit.frontends import drafting
from fomkit.frontends.detect import BACKENDS, other_backend
from fomkit.frontends.drafting import Request, SizedStep, Traced, make_draft, replaced, run_file_request
from fomkit.frontends.keras.inputs import Prepared, inputs_and_sizes
from fomkit.frontends.keras.layers import watch_made_layers
from fomkit.frontends.keras.step import rule_of
from fomkit.frontends.model_file import count_errors, explain_exception, model_errors, run_file, take_workload
from fomkit.frontends.sizes import Sizes
from fomkit.frontends.step import Draft, Step


def _compile(workload: Workload, notes: list[str]) -> Any:
    """Give the step's own loss, or None where the model's training step has one.

    A loss in Keras's own words compiles the model; a function of (output, inputs) is called as in PyTorch's files.
    """
    model, loss = workload.model, workload.loss
    if isinstance(loss, str | keras.losses.Loss):
        model.compile(optimizer=workload.optimizer, loss=loss)
        return None
    if loss is None and not model.compiled:
        notes.append("no loss is given: the sum of the output's first tensor is taken as the loss")
    return loss


def _prepare(workload: Workload, request: Request) -> tuple[Prepared, dict[str, int], list[str]]:
    notes: list[str] = []
    where = request.where or "profile"
    model = workload.model
    loss = _compile(workload, notes) if request.mode == "train" else None
    inputs, sizes = inputs_and_sizes(workload, request.sizes, where)
    if not model.built:
        model(inputs(sizes)[0])
    optimizer = workload.optimizer or (model.optimizer if model.compiled else None)
    if request.mode == "train":
        if not model.trainable_variables:
            raise FomkitError(
                where, "the model has no trainable weight, so there is no backward pass. Leave some trainable, or "
                       "profile with --mode infer.")  # fmt: skip
        if optimizer is not None and not rule_of(optimizer) and not optimizer.built:
            optimizer.build(model.trainable_variables)
    return Prepared(model, inputs, loss, optimizer, request.mode), sizes, notes


@dataclass(frozen=True)
class TracedWorkload:
    """A workload, its step at several sizes, and the draft made of it."""

    workload: Workload
    prepared: Prepared
    sized: SizedStep
    draft: Draft


def trace_workload(workload: Workload, request: Request) -> TracedWorkload:
    """Trace a workload."""
    prepared, sizes, notes = _prepare(workload, request)
    sized = drafting.trace_sizes(partial(step_tracer(), prepared), sizes)
    model = describe_model(workload.model, request.mode)
    return TracedWorkload(workload, prepared, sized, make_draft(workload, request, model, sized, notes))


def step_tracer() -> Callable[[Prepared, Sizes], Step]:
    """Give what traces a step on the backend at hand."""
    backend = "torch_step" if keras.backend.backend() == "torch" else "step"
    trace: Callable[[Prepared, Sizes], Step] = import_module(f"fomkit.frontends.keras.{backend}").trace_step
    return trace


def describe_model(model: Any, mode: str) -> Traced:
    """Say what was traced."""
    framework = keras.backend.backend()
    device = "fake" if framework == "torch" else "graph"
    return Traced(
        type(model).__name__, drafting.traced_with(framework, sys.modules[framework].__version__, device, mode),
        sum(prod(weight.shape) for weight in model.weights if "seed_generator" not in weight.path),
        sum(prod(variable.shape) for variable in model.trainable_variables),
    )  # fmt: skip


def check_workload(workload: Workload, where: str) -> None:
    """Raise unless a workload has a Keras model and sensible counts; inputs may be the model's own."""
    errors = count_errors(workload, where)
    if keras.backend.backend() not in BACKENDS:
        errors.append(other_backend(where, keras.backend.backend()))
    example = "keras.Sequential([keras.Input((784,)), keras.layers.Dense(10)])"
    errors += model_errors(workload, where, keras.Model, "keras.Model", example)
    if workload.optimizer is not None and not isinstance(workload.optimizer, keras.optimizers.Optimizer):
        errors.append(
            FomkitError(where, f"the optimizer is a {type(workload.optimizer).__name__}. A keras.optimizers "
                               "optimizer was expected, for example: optimizer = keras.optimizers.SGD(0.1)")
        )  # fmt: skip
    if errors:
        raise ManyFomkitError(errors)


def _nodes(traced: TracedWorkload) -> dict[str, dict[str, Any]]:
    from fomkit.frontends.keras.step import nodes_of_step, whole_step_of

    step = whole_step_of(traced.prepared, traced.sized.sizes)
    return {name: asdict(node) for name, node in nodes_of_step(traced.prepared, step, traced.sized).items()}


def _profile(path: Path, request: Request) -> dict[str, Any]:
    on_tensorflow = keras.backend.backend() == "tensorflow"
    with weights_without_data() if on_tensorflow else nullcontext(), watch_made_layers():
        traced = trace_workload(take_workload(run_file(path), request.where, check_workload), request)
        return {"draft": asdict(traced.draft), **({"nodes": _nodes(traced)} if request.nodes else {})}


def main() -> None:
    """Run one request."""
    run_file_request(_profile)


_WHERE = "profile"


def profile_here(workload: Workload, name: str, mode: str, sizes: Sizes) -> ModelProfile:
    """Trace a workload here; weights keep their values, and a step that is only traced changes none."""
    check_workload(workload, _WHERE)
    try:
        return trace_workload(workload, Request(name, _WHERE, mode, sizes)).draft.profile()
    except FomkitError:
        raise
    except Exception as error:  # the user's model may raise anything
        raise explain_exception(error, _WHERE) from error


LARGE_NUMEL = 100_000
"""Weights of this many elements or more get memory that is never written to, which takes none."""


@contextmanager
def weights_without_data() -> Iterator[None]:
    """Leave large weights unwritten inside the block, so that they take no memory and no time."""
    import tensorflow as tf
    from keras.src.backend.tensorflow import core

    kind: Any = core.Variable
    before = kind._initialize_with_initializer

    def initialize(self: Any, initializer: Any) -> None:
        dtype = tf.as_dtype(self._dtype)
        if not dtype.is_floating or prod(self._shape) < LARGE_NUMEL:
            before(self, initializer)
            return
        self._initialize(lambda: tf.raw_ops.Empty(shape=self._shape, dtype=dtype, init=False))

    with replaced(kind, _initialize_with_initializer=initialize):
        yield
