"""How a result is shown: what calculates imports no text, page or figure, but asks for the view of its class.

The views stand in `fomkit.api.views`; `fomkit.api` registers them, so every result that comes from there has one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fomkit.errors import FomkitError


def _in_no_way(result: object) -> Any:
    raise FomkitError(
        type(result).__name__, "is not shown in this way. Add the way to its view, in fomkit.api.views."
    )


class View(NamedTuple):
    """What gives a result's text (also by options), plain content, page for a notebook, and figure or figures."""

    text: Callable[..., str]
    content: Callable[[Any], dict[str, Any]] = _in_no_way
    html: Callable[[Any], str] = _in_no_way
    figure: Callable[[Any], Any] = _in_no_way


_VIEWS: dict[str, View] = {}


class Shown:
    """A result that is shown by the view of its class, or of the class that it derives from."""

    @property
    def _view(self) -> View:
        names = [one.__name__ for one in type(self).__mro__]
        found = next((_VIEWS[name] for name in names if name in _VIEWS), None)
        if found is None:
            raise FomkitError(names[0], "has no view, so it cannot be shown. Views come with 'import fomkit.api'.")
        return found


def register_views(views: Mapping[str, View]) -> None:
    """Let results be shown, each by the view under its class's name: so no class is imported before it is used."""
    _VIEWS.update(views)
