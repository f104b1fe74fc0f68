"""Formulas as people check them, printed by sympy: in the columns' names, and with an op's numbers put in."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from math import isnan
from typing import Any, NamedTuple

from fomkit.core.units import ITEM_BYTE
from fomkit.ops.families.formula import DEFAULTS, UNUSUAL, Cost, Row, Variant
from fomkit.ops.pricing import FORMULAS, products_in_one

_NAME = re.compile(r"\b[a-z_]\w*\b(?!\()")


class WorkedCost(NamedTuple):
    """One quantity of one op.

    `formula`: in the names of the columns and of ``where``.
    `numbers`: the same with the op's numbers in place of the names.
    `where`: the named parts of the formula, in the columns' names.
    """

    formula: str
    numbers: str
    where: Mapping[str, str]


def variant_of(row: Mapping[str, Any]) -> Variant | None:
    """Give what chooses the formula of an op; None where it has none."""
    formula = FORMULAS.get(str(row["kind"]))
    variant = None if formula is None else tuple(str(row.get(name, "")) for name in formula.chosen_by)
    return None if formula is None or variant not in formula.variants else variant


def _symbols_of_columns(stated: tuple[str, ...] = ()) -> Row:
    """Give a symbol for each column, of `UNUSUAL` ones for those stated; parts of a formula are symbols too."""
    import sympy

    left = {name: value for name, value in UNUSUAL.items() if name not in stated}
    return Row(lambda name: left[name] if name in left else sympy.Symbol(name, nonnegative=True))


@lru_cache(maxsize=256)
def print_cost(kind: str, variant: Variant, stated: tuple[str, ...] = ()) -> Cost:
    """Write a kind's formulas as texts, in the names of its columns and of its parts.

    `stated`: which of `UNUSUAL` columns an op has.

    >>> print_cost("gemm", ()).flop
    '2*b*k*m*n'
    """
    return Cost(*map(str, FORMULAS[kind].of(variant, _symbols_of_columns(stated))))


@lru_cache(maxsize=16)
def print_parts(kind: str) -> Mapping[str, str]:
    """Write the named parts of a kind's formulas as texts."""
    symbols = _symbols_of_columns()
    return {name: str(symbols.give(part)) for name, part in FORMULAS[kind].parts.items()}


def _number_text(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _numbers_of(row: Mapping[str, Any]) -> dict[str, float]:
    values = {name: float(cell) for name, cell in row.items() if isinstance(cell, int | float) and cell == cell}
    return {**DEFAULTS, "item_byte": float(ITEM_BYTE[str(row["dtype"])]), **values}


def work_out(row: Mapping[str, Any]) -> dict[str, WorkedCost]:
    """Write what an op's flop, byte and launches come from.

    `row`: one row of an OPS table whose dimensions are numbers. Gives a dict: by quantity: flop, byte and
    launches; empty where the op has no formula.

    >>> row = {"kind": "gemm", "dtype": "fp32", "b": 1.0, "m": 2.0, "n": 3.0, "k": 5.0}
    >>> work_out(row)["flop"]
    WorkedCost(formula='2*b*k*m*n', numbers='2*1*5*2*3', where={})
    """
    kind, variant = str(row["kind"]), variant_of(row)
    if variant is None:
        return {}
    values, parts = _numbers_of(row), print_parts(kind)
    known = Row(values.__getitem__, FORMULAS[kind].parts)
    values |= {name: float(known[name]) for name in parts}
    times, worked = products_in_one(kind, str(row["dtype"])), {}
    stated = tuple(name for name, usual in UNUSUAL.items() if values[name] != usual)
    for quantity, text in print_cost(kind, variant, stated)._asdict().items():
        names = set(_NAME.findall(text))
        if names <= values.keys():
            numbers = _NAME.sub(lambda name: _number_text(values[name.group()]), text)
            named = names.union(*(_NAME.findall(parts[name]) for name in names & parts.keys()))
            where = {name: part for name, part in parts.items() if name in named}
            if quantity == "flop" and times != 1:
                text, numbers = (f"{times:g}*({one})" for one in (text, numbers))
            worked[quantity] = WorkedCost(text, numbers, where)
    return worked


def symbolic_work(row: Mapping[str, Any], size: Callable[[str], Any]) -> dict[str, Any]:
    """Give an op's flop and byte as sympy expressions; nan where it has no formula or lacks a dimension of it.

    `row`: one row of an OPS table. A dimension that is text is worked out by ``size``; numbers are put in exactly,
    one with decimals as the fraction that it was written as. `size`: gives the expression of a cell's text.

    >>> import sympy
    >>> row = {"kind": "gemm", "dtype": "fp32", "b": 1.0, "m": "batch", "n": 3.0, "k": 5.0}
    >>> symbolic_work(row, sympy.Symbol)["flop"]
    30*batch
    """
    import sympy

    kind, dtype, variant = str(row["kind"]), str(row["dtype"]), variant_of(row)
    if variant is None:
        return {"flop": sympy.nan, "byte": sympy.nan}

    def column(name: str) -> Any:
        cell: Any = ITEM_BYTE[dtype] if name == "item_byte" else row.get(name)
        if isinstance(cell, str):
            return size(cell)
        number = float("nan") if cell is None else float(cell)
        number = DEFAULTS.get(name, number) if isnan(number) else number
        return sympy.nan if isnan(number) else sympy.Rational(repr(number))

    formula = FORMULAS[kind]
    cost = formula.of(variant, Row(column, formula.parts))
    return {"flop": int(products_in_one(kind, dtype)) * cost.flop, "byte": cost.byte}
