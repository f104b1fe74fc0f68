"""The Python interface, as a person writes it in a notebook; ``import fomkit`` gives all of it.

One module for each thing that a person is at. `fomkit.__init__` lists what is public and loads each module when a
name of it is asked for. No function has the name of a room of the package: once imported, the room would take its
place in ``fomkit``.
"""

from fomkit.api.views import VIEWS
from fomkit.shown import register_views

register_views(VIEWS)
