"""Training on many devices: layouts, collectives on links, pipelines, overlap, and what each device holds."""

from fomkit.network import Group, Network
from fomkit.parallel.layout import Layout, check_layout
from fomkit.parallel.step import ParallelStep

__all__ = ["Group", "Layout", "Network", "ParallelStep", "check_layout"]
