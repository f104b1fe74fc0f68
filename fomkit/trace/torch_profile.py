"""A workload's draft of a profile: traced at several sizes, the sizes named, the ops counted."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from fomkit.trace.draft import Draft
from fomkit.trace.drafting import Request, Traced, make_draft
from fomkit.trace.explore_sizes import trace_sizes
from fomkit.trace.torch_inputs import inputs_and_sizes
from fomkit.trace.torch_optimizers import make_optimizer
from fomkit.trace.torch_shape_only import model_without_data
from fomkit.trace.torch_step import Prepared, trace_step
from fomkit.workload import Workload


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
    sized = trace_sizes(partial(trace_step, prepared), sizes)
    # Lazy modules have no sizes before they have run.
    parameters = list(prepared.model.parameters())
    model = Traced(
        type(prepared.model).__name__,
        _traced_with(request),
        sum(parameter.numel() for parameter in parameters),
        sum(parameter.numel() for parameter in parameters if parameter.requires_grad),
    )
    return make_draft(workload, request, model, sized, notes)


def _traced_with(request: Request) -> dict[str, str]:
    version: Any = torch.__version__
    device = "fake" if request.route == "fake" else "meta"
    return {"framework": "torch", "version": str(version), "device": device, "mode": request.mode}
