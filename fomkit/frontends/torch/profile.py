"""A PyTorch workload's draft of a profile, of a user's file in a child process or made in this one."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from fomkit.core.errors import FomkitError, ManyFomkitError
from fomkit.core.model import ModelProfile, Workload
from fomkit.frontends import model_file
from fomkit.frontends.drafting import Request, Traced, make_draft, run_file_request, trace_sizes, traced_with
from fomkit.frontends.model_file import count_errors, explain_exception, model_errors, run_file, take_workload
from fomkit.frontends.sizes import Sizes
from fomkit.frontends.step import Draft, Route, profile_by_routes
from fomkit.frontends.torch.calls import inputs_and_sizes, model_without_data, shape_only
from fomkit.frontends.torch.modules import watch_made_modules
from fomkit.frontends.torch.optimizers import make_optimizer
from fomkit.frontends.torch.step import Prepared, trace_step


def _prepare(workload: Workload, request: Request, *, own: bool) -> tuple[Prepared, dict[str, int], list[str]]:
    notes, where = [], request.where or "profile"
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
        optimizer = make_optimizer(workload.optimizer, model, where)
    inputs, sizes = inputs_and_sizes(workload, request.sizes, where)
    prepared = Prepared(
        model, inputs, workload.loss, optimizer, stand_ins, request.mode, request.route != "fake", where
    )
    return prepared, sizes, notes


def draft_profile(workload: Workload, request: Request, *, own: bool) -> Draft:
    """Trace a workload, inside `shape_only`; a model that is not one's ``own`` is copied first."""
    prepared, sizes, notes = _prepare(workload, request, own=own)
    sized = trace_sizes(partial(trace_step, prepared), sizes)
    # Lazy modules have no sizes before they have run.
    parameters = list(prepared.model.parameters())
    device = "meta" if prepared.on_meta else "fake"
    model = Traced(
        type(prepared.model).__name__, traced_with("torch", torch.__version__, device, request.mode),
        sum(parameter.numel() for parameter in parameters),
        sum(parameter.numel() for parameter in parameters if parameter.requires_grad),
    )  # fmt: skip
    return make_draft(workload, request, model, sized, notes)


def check_workload(workload: Workload, where: str) -> None:
    """Raise unless a workload has a model, inputs and sensible counts."""
    errors = count_errors(workload, where)
    errors += model_errors(workload, where, torch.nn.Module, "torch.nn.Module", "torch.nn.Linear(784, 10)")
    if workload.inputs is None:
        errors.append(
            FomkitError(where, "'inputs' is missing: a tensor, tuple or dict, or a function of the batch size "
                               "giving one. For example: inputs = lambda batch: torch.randn(batch, 784)")
        )  # fmt: skip
    if workload.loss is not None and not callable(workload.loss):
        errors.append(
            FomkitError(where, "the loss is not a function. Give one of (output, inputs), for example: "
                               "loss_fn = lambda output, inputs: output.mean()")
        )  # fmt: skip
    if errors:
        raise ManyFomkitError(errors)


def _profile(path: Path, request: Request) -> dict[str, Any]:
    with shape_only(request.route), watch_made_modules():
        workload = take_workload(run_file(path), request.where, check_workload)
        return {"draft": asdict(draft_profile(workload, request, own=True))}


def main() -> None:
    """Run one request."""
    run_file_request(_profile, lambda error: isinstance(error, model_file.NEVER_MENDED))


_WHERE = "profile"


def profile_here(workload: Workload, name: str, mode: str, sizes: Sizes) -> ModelProfile:
    """Trace a workload here; the model given, and PyTorch's settings, stay as they are."""
    check_workload(workload, _WHERE)

    def trace(route: Route) -> Draft | FomkitError:
        try:
            with shape_only(route):
                return draft_profile(workload, Request(name, _WHERE, mode, sizes, route), own=False)
        except FomkitError:
            raise
        except Exception as error:  # the user's model may raise anything
            return explain_exception(error, _WHERE)

    # A loss that reaches for the given model itself sends gradients there.
    gradients = [(parameter, parameter.grad) for parameter in workload.model.parameters()]
    try:
        return profile_by_routes(trace, _WHERE)
    finally:
        for parameter, gradient in gradients:
            parameter.grad = gradient
