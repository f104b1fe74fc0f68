"""What an op costs on any machine: arithmetic, compulsory memory traffic and kernel launches.

The formulas live as sympy expressions in one module per family (`gemm`, `sparse_gemm`, `conv`, `rnn`, `attention`,
`elementwise`, `optimizer`), with symbols named like the columns. Running needs no sympy:
``python -m fomkit.costs`` writes them as plain numpy into `compiled` and as words into `written`, and a test
compares them. `conv_methods` prices convolutions by other algorithms, `methods` puts that into tables.
"""

from fomkit.costs.conv_methods import MethodCost
from fomkit.costs.library_calls import split_recurrent
from fomkit.costs.methods import METHODS, im2col_byte, method_costs
from fomkit.costs.pricing import add_costs
from fomkit.costs.worked import WorkedCost, work_out

__all__ = [
    "METHODS", "MethodCost", "WorkedCost", "add_costs", "im2col_byte", "method_costs", "split_recurrent",
    "work_out",
]  # fmt: skip
