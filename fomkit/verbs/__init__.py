"""The Python interface, a function for each verb; ``import fomkit`` gives all of it.

One module for each thing that a person is at. `fomkit.__init__` lists what is public and loads each module when a
name of it is asked for. Whoever imports a verb also registers how results are shown.
"""

from fomkit.core.errors import register_views
from fomkit.verbs.views import VIEWS

register_views(VIEWS)
