"""What an op costs on any machine: arithmetic, compulsory memory traffic and kernel launches.

Formulas are plain functions, one module for each family (`gemm`, `conv`, `recurrent`, `attention`, `elementwise`,
`optimizer`), with arguments named like the columns: they run on arrays in `pricing`, and on sympy's symbols where
`printed` writes them for people. `conv_methods` prices convolutions by other algorithms, `methods` puts that into
tables.
"""

from fomkit.costs.conv_methods import MethodCost
from fomkit.costs.library_calls import split_recurrent
from fomkit.costs.methods import METHODS, im2col_byte, method_costs
from fomkit.costs.pricing import add_costs
from fomkit.costs.printed import WorkedCost, symbolic_work, work_out

__all__ = [
    "METHODS", "MethodCost", "WorkedCost", "add_costs", "im2col_byte", "method_costs", "split_recurrent",
    "symbolic_work", "work_out",
]  # fmt: skip
