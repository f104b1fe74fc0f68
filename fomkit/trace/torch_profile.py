"""A workload's draft of a profile: traced at several sizes, the sizes named, the ops counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fomkit.errors import FomkitError
from fomkit.trace.calls import TracedOp
from fomkit.trace.draft import Draft
from fomkit.trace.layer_table import count_layers, split_layers
from fomkit.trace.op_table import count_rows, row_places
from fomkit.trace.order_table import order_rows
from fomkit.trace.routes import Route
from fomkit.trace.symbolic import Sizes
from fomkit.trace.torch_inputs import inputs_and_sizes
from fomkit.trace.torch_optimizers import make_optimizer
from fomkit.trace.torch_shape_only import model_without_data
from fomkit.trace.torch_sizes import trace_sizes
from fomkit.trace.torch_step import Prepared
from fomkit.workload import Workload


@dataclass(frozen=True)
class Request:
    """What is asked of a trace.

    Attributes
    ----------
    name : str
        Of the profile.
    where : str
        The user's file, "" in a notebook.
    mode : str
        train or infer.
    sizes : mapping
        Values of named sizes that were asked for; the workload's own where absent.
    route : str
        How tensors are made without data, `Route`.
    """

    name: str
    where: str
    mode: str
    sizes: Sizes
    route: Route


def _prepare(workload: Workload, request: Request, *, own: bool) -> tuple[Prepared, dict[str, int], list[str]]:
    notes = []
    given = getattr(workload.model, "_orig_mod", workload.model)
    if given is not workload.model:
        notes.append("the model is compiled; its eager ops are traced")
    model, stand_ins = model_without_data(given, own=own)
    optimizer = None
    if request.mode == "infer":
        model.eval()
    else:
        if not model.training:
            notes.append("the model was in eval mode; it is traced in train mode")
            model.train()
        optimizer = make_optimizer(workload.optimizer, model, request.where or "profile")
    inputs, sizes = inputs_and_sizes(workload, request.sizes, request.where or "profile")
    prepared = Prepared(
        model=model,
        inputs=inputs,
        loss=workload.loss,
        optimizer=optimizer,
        stand_ins=stand_ins,
        mode=request.mode,
        on_meta=request.route != "fake",
        where=request.where or "profile",
    )
    return prepared, sizes, notes


def draft_profile(workload: Workload, request: Request, *, own: bool) -> Draft:
    """Trace a workload, inside `shape_only`.

    Parameters
    ----------
    workload : Workload
    request : Request
    own : bool
        Whether the model may be changed (this process exists for it) or must be copied first.

    Raises
    ------
    FomkitError
        When the workload lacks something.
    Exception
        Whatever the user's code or the framework raises.
    """
    prepared, sizes, notes = _prepare(workload, request, own=own)
    sized = trace_sizes(prepared, sizes)
    step, fixed = sized.step, sized.fixed
    ops, layers = split_layers(sized.ops)
    notes += _deaf_to_the_batch(ops, sizes, request, fixed)
    rows, parts = count_rows(ops)
    parameters = list(prepared.model.parameters())
    return Draft(
        name=request.name,
        title=f"{type(prepared.model).__name__}, {'inference' if request.mode == 'infer' else 'training step'}",
        rows=rows,
        parts=parts,
        layers=count_layers(layers),
        order=order_rows(sized.order, step.ops, sized.ops, row_places(sized.ops)),
        sizes=sizes,
        traced_with=_traced_with(request),
        parameters_total=sum(parameter.numel() for parameter in parameters),
        parameters_trainable=sum(parameter.numel() for parameter in parameters if parameter.requires_grad),
        # An inference step is no part of a training run, so it is not rolled up to one.
        train_samples=None if request.mode == "infer" else workload.train_samples,
        validation_samples=None if request.mode == "infer" else workload.validation_samples,
        last_batch=workload.last_batch,
        epochs=None if request.mode == "infer" else workload.epochs,
        optimizer=step.optimizer,
        unsupported=step.listed_unsupported,
        notes=[step.shares, *notes, *step.notes, *fixed, *sized.notes, *workload.notes],
    )


def _deaf_to_the_batch(ops: Sequence[TracedOp], sizes: Sizes, request: Request, fixed: Sequence[str]) -> list[str]:
    """Say where inputs gives one size whatever batch it is asked for.

    Raises
    ------
    FomkitError
        When a batch was asked for, which would then be another number of samples for the same work.
    """
    if fixed or any("batch" in str(value) for op in ops for value in op.dimensions.values()):
        return []
    if "batch" in request.sizes:
        raise FomkitError(
            request.where or "profile",
            f"no op depends on the batch, so {request.sizes['batch']} samples cannot be made. "
            "Let inputs(batch) use its batch.",
        )
    return [f"no op depends on the batch: its work is taken to be that of {sizes['batch']} samples"]


def _traced_with(request: Request) -> dict[str, str]:
    version: Any = torch.__version__
    device = "fake" if request.route == "fake" else "meta"
    return {"framework": "torch", "version": str(version), "device": device, "mode": request.mode}
