"""Projected beside measured: which figures a device model may claim, and how they compare."""

from fomkit.compare.cells import Cell, make_cells
from fomkit.compare.judged import Judged, judge

__all__ = ["Cell", "Judged", "judge", "make_cells"]
