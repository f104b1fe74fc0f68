"""Figures, one a file: a plain table in, an Altair chart out, the same for the report and for notebooks."""

from fomkit.report.plots.compared import compared
from fomkit.report.plots.composition import composition
from fomkit.report.plots.memory import memory
from fomkit.report.plots.pareto import pareto
from fomkit.report.plots.roofline import roofline
from fomkit.report.plots.scaling import scaling
from fomkit.report.plots.tornado import tornado

__all__ = ["compared", "composition", "memory", "pareto", "roofline", "scaling", "tornado"]
