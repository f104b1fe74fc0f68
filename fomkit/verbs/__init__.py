"""The Python interface, a function for each verb; ``import fomkit`` gives all of it.

One module for each thing that a person is at. `fomkit.__init__` lists what is public and loads each module when a
name of it is asked for. Whoever imports a verb also registers how results are shown.
"""

from collections.abc import Mapping

from fomkit.core.errors import View, register_views


def _views() -> Mapping[str, View]:
    from fomkit.verbs.views import VIEWS  # with all that writes and draws

    return VIEWS


register_views(_views)
