"""The costs stage, from OPS to COSTED tables; and its formulas as text, with column names or with numbers.

`add_costs` is the main function. `split_recurrent` splits recurrent layers into library calls, as timing tables
have them. sympy prints the formulas.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from math import isnan
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fomkit.core.units import ITEM_BYTE, REAL_OF, REAL_PRODUCTS
from fomkit.ops.check import check_table
from fomkit.ops.conv_methods import least_flop
from fomkit.ops.families.costs import GATES
from fomkit.ops.families.formula import DEFAULTS, UNUSUAL, Cost, Formula, Row, Size, Variant, columns_of
from fomkit.ops.kinds import KINDS, PRODUCT_KINDS
from fomkit.ops.tables import COSTS, TIMES, column_names

_WHERE = "add_costs"

FORMULAS: Mapping[str, Formula] = {name: kind.formula for name, kind in KINDS.items() if kind.formula is not None}
"""The priced kinds."""
CHOOSERS = tuple(dict.fromkeys(name for formula in FORMULAS.values() for name in formula.chosen_by))
"""The text columns that select among the formulas of kinds."""


def products_in_one(kind: str, dtype: str) -> float:
    """Return the number of real products in one product of a kind: four if its numbers are complex."""
    return REAL_PRODUCTS if kind in PRODUCT_KINDS and dtype in REAL_OF else 1.0


class CostGroup(NamedTuple):
    """The positions of the rows of one kind and variant, and the number of real products in one of theirs.

    For consecutive rows `rows` is a slice, which avoids copies. `same`: values of the rows that depend on no size,
    kept by `cost_columns`.
    """

    kind: str
    variant: Variant
    rows: NDArray[np.intp] | slice
    products: NDArray[np.float64]
    same: dict[str, Size]


def cost_groups(ops: pd.DataFrame) -> list[CostGroup]:
    """Return the priced rows of a table by kind and variant, which do not depend on sizes."""
    kinds, dtypes = (ops[name].to_numpy(object) for name in ("kind", "dtype"))
    cells = {name: ops[name].to_numpy(object) for name in CHOOSERS if name in ops.columns}
    groups: dict[tuple[str, Variant], list[int]] = {}
    for row, kind in enumerate(kinds.tolist()):
        formula = FORMULAS.get(kind)
        # A missing column counts as empty cells, for which there is no formula.
        if formula is None or not all(name in cells for name in formula.chosen_by):
            continue
        variant = tuple(cells[name][row] for name in formula.chosen_by)
        if not formula.chosen_by or variant in formula.variants:
            groups.setdefault((kind, variant), []).append(row)
    return [
        CostGroup(
            kind,
            variant,
            slice(rows[0], rows[-1] + 1) if rows[-1] - rows[0] < len(rows) else np.array(rows),
            np.array([products_in_one(kind, dtypes[row]) for row in rows], np.float64),
            {},
        )
        for (kind, variant), rows in groups.items()
    ]


def add_costs(ops: pd.DataFrame, *, checked: bool = False) -> pd.DataFrame:
    """Add the cost of one execution of each op.

    `ops`: an OPS table, or a TIMINGS table, which has no ``count``; every dimension is a number (float64);
    `checked`: true where the caller has checked or built the table. Returns the same rows and index with the
    columns flop [flop], byte [byte], launches and least_flop [flop]; NaN (unpriced) where the kind, the pass, the
    optimizer rule or the dtype has no formula. A product of complex numbers is four real ones.

    >>> import pandas as pd
    >>> op = {"op": "mm", "kind": "gemm", "dtype": "fp32", "engine": "vector", "pass_name": "forward"}
    >>> ops = pd.DataFrame([{**op, "count": 1.0, "b": 1.0, "m": 2.0, "n": 3.0, "k": 5.0}])
    >>> add_costs(ops)[["flop", "byte", "launches"]].iloc[0].tolist()
    [60.0, 124.0, 1.0]
    """
    if not checked:
        table = "OPS" if "count" in ops.columns else "TIMINGS"
        later = (*COSTS, *TIMES) if table == "OPS" else COSTS
        check_table(ops.drop(columns=[column.name for column in later], errors="ignore"), table, _WHERE)
    return ops.assign(**cost_columns(ops, [column.name for column in COSTS], {}))


def cost_columns(
    ops: pd.DataFrame, names: Sequence[str], sized: Mapping[str, NDArray[np.float64]], many: tuple[int, ...] = (),
    groups: Sequence[CostGroup] | None = None, changing: Collection[str] | None = None,
) -> dict[str, NDArray[np.float64]]:  # fmt: skip
    """Return some of the columns of `add_costs`, for ops (n) or for many sizes of each (n, many).

    `sized`: columns with a value for each size (n, many), or one for all (n, 1); `groups`: `cost_groups` of these
    ops, if they are known; `changing`: the columns that may differ in another call for these groups.
    """
    columns = {name: np.full((len(ops), *many), np.nan) for name in names}
    read = dict(sized)
    for kind, variant, rows, products, same in cost_groups(ops) if groups is None else groups:
        formula = FORMULAS[kind]
        row = Row(columns_of(ops, rows, read, many), formula.parts, same)
        costs = formula.of(variant, row)._asdict()
        if changing is not None and not same:
            same.update(row.apart_from(changing))
        if "least_flop" in columns:
            flop = np.broadcast_to(costs["flop"], (len(products), *many))
            costs["least_flop"] = least_flop(row, variant[-1], flop) if kind == "conv" else flop
        times = products.reshape(-1, *(1 for _ in many))
        for name in names:
            values = costs[name]
            columns[name][rows] = values * times if name in ("flop", "least_flop") else values
    return columns


_GEMM_COLUMNS = ("b", "m", "n", "k", "trans_a", "trans_b")
_HALVES: Mapping[str, tuple[str, ...]] = {"backward": ("backward_input", "backward_weight")}


def _input_product(row: Mapping[str, Any], half: str, features: float) -> dict[str, Any]:
    """Return the product of all steps with the input of one layer and direction, in row-major storage."""
    tokens, gates = row["batch"] * row["steps"], GATES[row["cell"]] * row["hidden_size"]
    m, n, k, trans_a, trans_b = {
        "forward": (tokens, gates, features, 0.0, 1.0),
        "backward_input": (tokens, features, gates, 0.0, 0.0),
        "backward_weight": (gates, features, tokens, 1.0, 0.0),
    }[half]
    sizes = {"b": 1.0, "m": m, "n": n, "k": k, "trans_a": trans_a, "trans_b": trans_b}
    return {"op": f"{row['op']} input product", "kind": "gemm", **sizes}


def recurrent_calls(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the library calls of one recurrent row; none for an unknown cell or pass.

    Its sizes are numbers or arrays; ``count`` is per execution, 0 where there is no such call.
    """
    if row["cell"] not in GATES or row["pass_name"] not in ("forward", "backward", *_HALVES["backward"]):
        return
    place = {name: row[name] for name in ("op", "dtype", "engine", "module", "code_line") if name in row}
    layers, directions = row["layers"], row["directions"]
    inner = row["hidden_size"] * directions
    alone = {"input_size": 0.0, "layers": 1.0, "directions": 1.0}
    sizes = {name: row[name] for name in ("cell", "batch", "steps", "hidden_size")}
    for half in _HALVES.get(row["pass_name"], (row["pass_name"],)):
        shared = {**place, "pass_name": half}
        yield {**shared, "kind": "rnn", **sizes, **alone, "count": layers * directions}
        for features, count in ((row["input_size"], directions), (inner, (layers - 1) * directions)):
            absent = np.asarray(features) == 0  # in an array of sizes the product stays, with count 0
            yield {**shared, **_input_product(row, half, features + absent), "count": ~absent * count}


def split_recurrent(ops: pd.DataFrame) -> pd.DataFrame:
    """Split recurrent rows into library calls, with their costs.

    Published tables time the recurrence of one layer and direction without its input product. A layer consists of
    a recurrence for each layer and direction, and a product of all steps with the input for each.

    `ops`: an OPS table, with or without costs. Returns COSTED rows with the column ``of``, the position of their
    op in ``ops``; ``count`` is per execution of that op. The flop of the calls add up to the op's. Empty where
    there is no recurrent row of a known cell and pass.
    """
    found = []
    recurrent = np.flatnonzero(ops["kind"] == "rnn")
    for position, record in zip(recurrent.tolist(), ops.iloc[recurrent].to_dict("records"), strict=True):
        row = {str(name): value for name, value in record.items()}
        found += [{**call, "of": float(position)} for call in recurrent_calls(row) if call["count"]]
    later = {column.name for column in (*COSTS, *TIMES)}
    names = [name for name in ops.columns if name not in later]
    if not found:
        empty = {column.name: np.empty(0) for column in COSTS}
        return ops[names].iloc[:0].assign(**empty, of=np.empty(0, np.int64))
    calls = pd.DataFrame(found, columns=[*dict.fromkeys([*names, *_GEMM_COLUMNS]), "of"])
    calls = calls.astype({name: "float64" for name in column_names("OPS", "number") if name in calls.columns})
    costed = add_costs(calls.drop(columns="of"))
    return costed.assign(of=calls["of"].astype("int64"))


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
    """Return the values that select the formula of an op; None if it has none."""
    formula = FORMULAS.get(str(row["kind"]))
    variant = None if formula is None else tuple(str(row.get(name, "")) for name in formula.chosen_by)
    return None if formula is None or variant not in formula.variants else variant


def _symbols_of_columns(stated: tuple[str, ...] = ()) -> Row:
    """Return a symbol for each column (of `UNUSUAL` ones only if stated), and for each part of a formula."""
    import sympy

    left = {name: value for name, value in UNUSUAL.items() if name not in stated}
    return Row(lambda name: left[name] if name in left else sympy.Symbol(name, nonnegative=True))


@lru_cache(maxsize=256)
def print_cost(kind: str, variant: Variant, stated: tuple[str, ...] = ()) -> Cost:
    """Write a kind's formulas as text, in the names of its columns, `UNUSUAL` ones if stated, and of its parts.

    >>> print_cost("gemm", ()).flop
    '2*b*k*m*n'
    """
    return Cost(*map(str, FORMULAS[kind].of(variant, _symbols_of_columns(stated))))


@lru_cache(maxsize=16)
def print_parts(kind: str) -> Mapping[str, str]:
    """Write the named parts of a kind's formulas as text."""
    symbols = _symbols_of_columns()
    return {name: str(symbols.give(part)) for name, part in FORMULAS[kind].parts.items()}


def _number_text(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def work_out(row: Mapping[str, Any]) -> dict[str, WorkedCost]:
    """Write an op's flop, byte and launches, by name, as formula and numbers; nothing if it has no formula.

    >>> row = {"kind": "gemm", "dtype": "fp32", "b": 1.0, "m": 2.0, "n": 3.0, "k": 5.0}
    >>> work_out(row)["flop"]
    WorkedCost(formula='2*b*k*m*n', numbers='2*1*5*2*3', where={})
    """
    kind, variant = str(row["kind"]), variant_of(row)
    if variant is None:
        return {}
    stated_numbers = {name: float(one) for name, one in row.items() if isinstance(one, int | float) and one == one}
    values = {**DEFAULTS, "item_byte": float(ITEM_BYTE[str(row["dtype"])]), **stated_numbers}
    parts = print_parts(kind)
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
    """Return an op's flop and byte as sympy expressions; nan if it has no formula or lacks a dimension of it.

    `row`: one row of an OPS table. ``size`` converts a dimension that is text; numbers are converted exactly,
    decimals to the fraction as written. `size`: returns the expression of a cell's text.

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
