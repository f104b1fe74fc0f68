"""Two ways to run a model without data, tried in order, and what is said when the first or both fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from fomkit.errors import FomkitError
from fomkit.trace.draft import Draft
from fomkit.workload import ModelProfile

Route = Literal["meta", "fake"]
"""``meta`` is neutral between devices; ``fake`` plays a CPU and answers a few questions that meta refuses."""


def profile_by_routes(trace: Callable[[Route], Draft | FomkitError], where: str) -> ModelProfile:
    """Trace on the meta device or, where the user's code does not run there, with fake tensors.

    Parameters
    ----------
    trace : function of the route
        Returns the error of code that failed; raises one that no other route would mend.
    where : str
        The user's file or the stage.

    Raises
    ------
    FomkitError
        With both reasons, or the one they share.
    """
    on_meta = trace("meta")
    if isinstance(on_meta, Draft):
        return on_meta.profile()
    faked = trace("fake")
    if isinstance(faked, Draft):
        return faked.profile(f"fake tensors were used: on the meta device the code {on_meta.what}")
    if str(on_meta) == str(faked):
        raise on_meta
    raise FomkitError(
        where,
        "cannot be run without data, neither on the meta device nor with fake tensors. Values of tensors must not "
        f"decide what the step does (no .item(), no numpy).\n  meta: {on_meta}\n  fake: {faked}",
    )
