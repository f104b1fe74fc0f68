"""Write the sympy formulas as plain numpy and as words: the texts of `compiled` and `written`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fomkit.costs import attention, conv, elementwise, gemm, optimizer, rnn, sparse_gemm
from fomkit.costs.formula import Cost, Variant

FORMULAS: Mapping[str, Callable[[], dict[Variant, Cost]]] = {
    "gemm": gemm.formulas,
    "sparse_gemm": sparse_gemm.formulas,
    "conv": conv.formulas,
    "rnn": rnn.formulas,
    "attention": attention.formulas,
    "pointwise": elementwise.per_element,
    "reduction": elementwise.per_element,
    "norm": elementwise.norm,
    "softmax": elementwise.softmax,
    "pool": elementwise.per_element,
    "embedding": elementwise.moved,
    "copy": elementwise.moved,
    "optimizer": optimizer.formulas,
    "other": elementwise.per_element,
}
"""The priced kinds. A kind that is not here stays unpriced: NaN, never 0. A collective has no place here: it waits
for links, so device memory and arithmetic set no floor of its time."""

SHORTHANDS: Mapping[str, Callable[[], dict[str, Any]]] = {"conv": conv.shorthands}
"""Kinds whose formulas have parts that are easier read by a name."""

HEAD = '''"""Generated from the sympy formulas by ``python -m fomkit.costs``; do not edit, run that instead."""
# ruff: noqa: ARG001, D103, E501
# fmt: off

from __future__ import annotations

from typing import Any

import numpy

from fomkit.costs.formula import CompiledCost, Row, Variant
'''


def text_of(expression: Any) -> str:
    """Write an expression of the columns as one of the attributes of ``op``."""
    import sympy
    from sympy.printing.numpy import NumPyPrinter

    expression = sympy.sympify(expression)
    attributes = {symbol: sympy.Symbol(f"op.{symbol.name}") for symbol in expression.free_symbols}
    return str(NumPyPrinter().doprint(expression.xreplace(attributes)))


_WRITTEN_HEAD = HEAD.replace("CompiledCost, Row, Variant", "CostText, Row, Shorthand, Variant").replace(
    "ARG001, ", ""
)


def _named(expression: Any, names: Mapping[Any, Any]) -> str:
    import sympy

    return str(sympy.sympify(expression).xreplace(names))


def _written_shorthands() -> tuple[list[str], list[str]]:
    """Give the functions of all shorthands, and the lines of their table."""
    import sympy

    functions, lines = [], []
    for kind, parts in SHORTHANDS.items():
        lines.append(f'    "{kind}": {{\n')
        names = {expression: sympy.Symbol(name) for name, expression in parts().items()}
        for name, expression in parts().items():
            others = {whole: symbol for whole, symbol in names.items() if symbol.name != name}
            functions.append(f"\ndef {kind}_{name}(op: Row) -> Any:\n    return {text_of(expression)}\n")
            lines.append(f'        "{name}": Shorthand("{_named(expression, others)}", {kind}_{name}),\n')
        lines.append("    },\n")
    return functions, lines


def _written_formulas() -> list[str]:
    import sympy

    lines = []
    for kind, formulas in FORMULAS.items():
        parts = SHORTHANDS[kind]() if kind in SHORTHANDS else {}
        names = {expression: sympy.Symbol(name) for name, expression in parts.items()}
        lines.append(f'    "{kind}": {{\n')
        for variant, cost in formulas().items():
            texts = ", ".join(f'"{_named(expression, names)}"' for expression in cost)
            key = repr(variant).replace("'", '"')
            lines.append(f"        {key}: CostText({texts}),\n")
        lines.append("    },\n")
    return lines


def generate_written() -> str:
    """Give the source text of `fomkit.costs.written`, from the formulas as they are now."""
    functions, shorthands = _written_shorthands()
    parts = [_WRITTEN_HEAD, "\n", *functions, "\n\nSHORTHANDS: dict[str, dict[str, Shorthand]] = {\n", *shorthands]
    table = "}\n\nFORMULA_TEXTS: dict[str, dict[Variant, CostText]] = {\n"
    return "".join([*parts, table, *_written_formulas(), "}\n"])


def generate() -> str:
    """Give the source text of `fomkit.costs.compiled`, from the formulas as they are now.

    Equal expressions become one function, named after the first op that has it.
    """
    names: dict[str, str] = {}
    table = []
    for kind, formulas in FORMULAS.items():
        table.append(f'    "{kind}": {{\n')
        for variant, cost in formulas().items():
            chosen = []
            for quantity, expression in cost._asdict().items():
                chosen.append(names.setdefault(text_of(expression), "_".join((kind, *variant, quantity))))
            key = repr(variant).replace("'", '"')
            table.append(f"        {key}: CompiledCost({', '.join(chosen)}),\n")
        table.append("    },\n")
    functions = [f"\ndef {name}(op: Row) -> Any:\n    return {text}\n" for text, name in names.items()]
    head = "\n\nCOMPILED: dict[str, dict[Variant, CompiledCost]] = {\n"
    return "".join([HEAD, "\n", *functions, head, *table, "}\n"])
