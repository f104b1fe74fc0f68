"""A Keras workload's draft of a profile."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from math import prod
from typing import Any

import keras

from fomkit.errors import FomkitError
from fomkit.trace.draft import Draft
from fomkit.trace.drafting import Request, Traced, make_draft
from fomkit.trace.explore_sizes import SizedStep, trace_sizes
from fomkit.trace.keras_inputs import inputs_and_sizes
from fomkit.trace.keras_optimizers import rule_of
from fomkit.trace.keras_prepared import Prepared
from fomkit.trace.step import Step
from fomkit.trace.symbolic import Sizes
from fomkit.workload import Workload


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


def draft_profile(workload: Workload, request: Request) -> Draft:
    """Trace a workload; see `trace_workload`."""
    return trace_workload(workload, request).draft


def trace_workload(workload: Workload, request: Request) -> TracedWorkload:
    """Trace a workload.

    Raises
    ------
    FomkitError
        When the workload lacks something.
    Exception
        Whatever the user's code or the framework raises.
    """
    prepared, sizes, notes = _prepare(workload, request)
    sized = trace_sizes(partial(step_tracer(), prepared), sizes)
    model = describe_model(workload.model, request.mode)
    return TracedWorkload(workload, prepared, sized, make_draft(workload, request, model, sized, notes))


def step_tracer() -> Callable[[Prepared, Sizes], Step]:
    """Give what traces a step on the backend at hand."""
    backend = "keras_torch_step" if keras.backend.backend() == "torch" else "keras_step"
    trace: Callable[[Prepared, Sizes], Step] = import_module(f"fomkit.trace.{backend}").trace_step
    return trace


def describe_model(model: Any, mode: str) -> Traced:
    """Say what was traced."""
    framework = keras.backend.backend()
    device = "fake" if framework == "torch" else "graph"
    version = str(sys.modules[framework].__version__)
    return Traced(
        type(model).__name__,
        {"framework": framework, "version": version, "device": device, "mode": mode},
        sum(prod(one.shape) for one in model.weights if not _is_seed(one)),
        sum(prod(one.shape) for one in model.trainable_variables),
    )


def _is_seed(variable: Any) -> bool:
    return "seed_generator" in variable.path
