"""Profiling a workload that was made in this process, such as a notebook's."""

from __future__ import annotations

from fomkit.errors import FomkitError
from fomkit.trace.draft import Draft
from fomkit.trace.drafting import Request
from fomkit.trace.model_file import explain_exception
from fomkit.trace.routes import Route, profile_by_routes
from fomkit.trace.symbolic import Sizes
from fomkit.trace.torch_profile import draft_profile
from fomkit.trace.torch_shape_only import shape_only
from fomkit.trace.torch_workload import check_workload
from fomkit.workload import ModelProfile, Workload

_WHERE = "profile"


def profile_here(workload: Workload, name: str, mode: str, sizes: Sizes) -> ModelProfile:
    """Trace a workload here; the model given, and PyTorch's settings, stay as they are.

    Raises
    ------
    FomkitError
        When the workload lacks something, or its code fails.
    """
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
