"""Ways to look at a table: groups of ops and their sums, trees of them, the lecture's cut, and layers by type."""

from fomkit.views.census import Census, layer_census
from fomkit.views.cut import Cut, fewest
from fomkit.views.groups import GROUPINGS, Grouping, add_up, group_labels, identities
from fomkit.views.places import has_lines, split_by_line
from fomkit.views.sequence import Execution, executions
from fomkit.views.shapes import shape_label
from fomkit.views.tree import tree_labels

__all__ = [
    "GROUPINGS",
    "Census",
    "Cut",
    "Execution",
    "Grouping",
    "add_up",
    "executions",
    "fewest",
    "group_labels",
    "has_lines",
    "identities",
    "layer_census",
    "shape_label",
    "split_by_line",
    "tree_labels",
]
