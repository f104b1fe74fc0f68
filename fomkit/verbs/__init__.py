"""The Python interface: one function for each verb, all available from ``import fomkit``.

`fomkit.__init__` lists the public names and loads a module when one of its names is used. Importing a verb also
registers how its results are shown.
"""

from collections.abc import Mapping

from fomkit.core.errors import View, register_views


def _views() -> Mapping[str, View]:
    from fomkit.verbs.views import VIEWS  # imports everything that formats and draws

    return VIEWS


register_views(_views)
