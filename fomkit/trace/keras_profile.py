"""A Keras workload's draft of a profile."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

import keras
import tensorflow as tf

from fomkit.errors import FomkitError
from fomkit.trace.draft import Draft
from fomkit.trace.drafting import Request, Traced, make_draft
from fomkit.trace.explore_sizes import trace_sizes
from fomkit.trace.keras_inputs import inputs_and_sizes
from fomkit.trace.keras_optimizers import rule_of
from fomkit.trace.keras_step import Prepared, trace_step
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
        model(
            keras.tree.map_structure(lambda spec: keras.KerasTensor(spec.shape, spec.dtype.name), inputs(sizes)[0])
        )
    optimizer = workload.optimizer or (model.optimizer if model.compiled else None)
    if request.mode == "train":
        if not model.trainable_variables:
            raise FomkitError(
                where, "the model has no trainable weight, so there is no backward pass. Leave some trainable, or "
                       "profile with --mode infer.")  # fmt: skip
        if optimizer is not None and not rule_of(optimizer) and not optimizer.built:
            optimizer.build(model.trainable_variables)
    return Prepared(model, inputs, loss, optimizer, request.mode), sizes, notes


def draft_profile(workload: Workload, request: Request) -> Draft:
    """Trace a workload.

    Raises
    ------
    FomkitError
        When the workload lacks something.
    Exception
        Whatever the user's code or the framework raises.
    """
    prepared, sizes, notes = _prepare(workload, request)
    sized = trace_sizes(partial(trace_step, prepared), sizes)
    model = workload.model
    traced = Traced(
        type(model).__name__,
        {"framework": "tensorflow", "version": str(tf.__version__), "device": "graph", "mode": request.mode},
        sum(prod(one.shape) for one in model.weights if not _is_seed(one)),
        sum(prod(one.shape) for one in model.trainable_variables),
    )
    return make_draft(workload, request, traced, sized, notes)


def _is_seed(variable: Any) -> bool:
    return "seed_generator" in variable.path
