"""Profiling a Keras workload that was made in this process, such as a notebook's."""

from __future__ import annotations

from fomkit.errors import FomkitError
from fomkit.trace.drafting import Request
from fomkit.trace.keras_profile import draft_profile
from fomkit.trace.keras_workload import check_workload
from fomkit.trace.model_file import explain_exception
from fomkit.trace.symbolic import Sizes
from fomkit.workload import ModelProfile, Workload

_WHERE = "profile"


def profile_here(workload: Workload, name: str, mode: str, sizes: Sizes) -> ModelProfile:
    """Trace a workload here; weights keep their values, and a step that is only traced changes none.

    Raises
    ------
    FomkitError
        When the workload lacks something, or its code fails.
    """
    check_workload(workload, _WHERE)
    try:
        return draft_profile(workload, Request(name, _WHERE, mode, sizes)).profile()
    except FomkitError:
        raise
    except Exception as error:  # the user's model may raise anything
        raise explain_exception(error, _WHERE) from error
