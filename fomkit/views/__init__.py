"""Ways to look at a table: groups of ops and their sums, trees of them, the lecture's cut, and layers by type."""

from fomkit.views.census import Census, gathered_byte, layer_census
from fomkit.views.cut import Cut, fewest
from fomkit.views.groups import GROUPINGS, Grouping, add_up, group_labels, identities
from fomkit.views.tree import tree_labels

__all__ = [
    "GROUPINGS",
    "Census",
    "Cut",
    "Grouping",
    "add_up",
    "fewest",
    "gathered_byte",
    "group_labels",
    "identities",
    "layer_census",
    "tree_labels",
]
