"""The formulas of one op as people check them: in its columns' names, and with its numbers put in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from fomkit.costs.columns import DEFAULTS
from fomkit.costs.formula import VARIANT_COLUMNS
from fomkit.dtypes import ITEM_BYTE, PRODUCT_KINDS, REAL_OF, REAL_PRODUCTS

_NAME = re.compile(r"\b[a-z_]\w*\b(?!\()")


class WorkedCost(NamedTuple):
    """One quantity of one op.

    Attributes
    ----------
    formula : str
        In the names of the columns and of ``where``.
    numbers : str
        The same with the op's numbers in place of the names.
    where : mapping
        The named parts of the formula, in the columns' names.
    """

    formula: str
    numbers: str
    where: Mapping[str, str]


class _Cells:
    """The numbers of one op by name, as the formulas ask for them."""

    def __init__(self, values: Mapping[str, float]) -> None:
        self._values = values

    def __getattr__(self, column: str) -> float:
        return self._values[column]


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _values(row: Mapping[str, Any]) -> dict[str, float]:
    values = {name: float(cell) for name, cell in row.items() if isinstance(cell, int | float) and cell == cell}
    return {**DEFAULTS, "item_byte": float(ITEM_BYTE[str(row["dtype"])]), **values}


def work_out(row: Mapping[str, Any]) -> dict[str, WorkedCost]:
    """Write what an op's flop, byte and launches come from.

    Parameters
    ----------
    row : mapping
        One row of an OPS table whose dimensions are numbers.

    Returns
    -------
    dict
        By quantity: flop, byte and launches; empty where the op has no formula.

    Examples
    --------
    >>> row = {"kind": "gemm", "dtype": "fp32", "b": 1.0, "m": 2.0, "n": 3.0, "k": 5.0}
    >>> work_out(row)["flop"]
    WorkedCost(formula='2*b*k*m*n', numbers='2*1*5*2*3', where={})
    """
    from fomkit.costs.written import FORMULA_TEXTS, SHORTHANDS

    kind = str(row["kind"])
    variant = tuple(str(row.get(name, "")) for name in VARIANT_COLUMNS.get(kind, ()))
    texts = FORMULA_TEXTS.get(kind, {}).get(variant)
    if texts is None:
        return {}
    values, parts = _values(row), SHORTHANDS.get(kind, {})
    values |= {name: float(part.value(_Cells(values))) for name, part in parts.items()}
    worked = {}
    for quantity, text in texts._asdict().items():
        names = set(_NAME.findall(text))
        if names <= values.keys():
            numbers = _NAME.sub(lambda name: _number(values[name.group()]), text)
            inner = [_NAME.findall(parts[name].text) for name in names & parts.keys()]
            named = names.union(*inner)
            where = {name: part.text for name, part in parts.items() if name in named}
            if quantity == "flop" and kind in PRODUCT_KINDS and str(row["dtype"]) in REAL_OF:
                text, numbers = (f"{REAL_PRODUCTS:g}*({one})" for one in (text, numbers))
            worked[quantity] = WorkedCost(text, numbers, where)
    return worked
