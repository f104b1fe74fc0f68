"""Ways to run a model without data, tried in order, and what is said when the first or all of them fail."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from fomkit.errors import FomkitError
from fomkit.trace.draft import Draft
from fomkit.workload import ModelProfile

Route = Literal["meta", "constants", "fake"]
ROUTES: Mapping[Route, str] = {
    "meta": "",
    "constants": "small constants kept their values",
    "fake": "fake tensors were used",
}
"""Each way and the note it leaves in a profile.

``meta`` is neutral between devices. ``constants`` is the same but for small constants, which models turn into
plain numbers while they are built. ``fake`` plays a CPU, which some code insists on.
"""


def profile_by_routes(trace: Callable[[Route], Draft | FomkitError], where: str) -> ModelProfile:
    """Trace by the first route on which the user's code runs.

    Parameters
    ----------
    trace : function of the route
        Returns the error of code that failed; raises one that no other route would mend.
    where : str
        The user's file or the stage.

    Raises
    ------
    FomkitError
        With the reason of each route, or the one they share.
    """
    failed: dict[Route, FomkitError] = {}
    for route, note in ROUTES.items():
        told = trace(route)
        if isinstance(told, Draft):
            notes = [f"{note}: on the meta device the code {error.what}" for error in list(failed.values())[:1]]
            return told.profile(*notes)
        failed[route] = told
    routes_of: dict[str, list[str]] = {}
    for route, error in failed.items():
        routes_of.setdefault(str(error), []).append(route)
    if len(routes_of) == 1:
        raise failed["meta"]
    reasons = "\n".join(f"  {', '.join(routes)}: {reason}" for reason, routes in routes_of.items())
    raise FomkitError(
        where,
        "cannot be run without data. Values of tensors must not decide what the step does: no .item(), no numpy, "
        f"no branch on a tensor.\n{reasons}",
    )
