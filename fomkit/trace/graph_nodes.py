"""Which rows of the op table each node of a TensorFlow graph belongs to, in plain values."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class GraphNode:
    """One node of the graph of a step.

    Attributes
    ----------
    op : str
        Its type.
    pass_name : str
    count : int
        How often it runs in a step.
    rows : list of int
        Rows of the op table that it is or lies in; its time is theirs in equal parts. Empty for one without work.
    product : str
        The product or convolution that it may be fused to, as a bias or an activation; "" for others.
    """

    op: str
    pass_name: str
    count: int
    rows: list[int] = field(default_factory=list)
    product: str = ""


Nodes = dict[str, GraphNode]
"""Nodes by the name that a profiler has for them, `fomkit.trace.xplane_times.plain_name`."""
