"""Evaluate an op table at other sizes; cells are integers, named sizes, ``+ - * //`` and brackets, no code."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from operator import add, itemgetter, mul, sub
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fomkit.core.errors import FomkitError, nearest_names
from fomkit.ops.check import row_place
from fomkit.ops.tables import HUGE, SIZED, TABLES, TRAFFIC

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

MAX_LENGTH = 200
_SYMBOL = re.compile(r"\d+|[A-Za-z_]\w*|//|[-+*()]")


@lru_cache(maxsize=4096)
def _split(text: str) -> tuple[str, ...]:
    """Return the symbols of a text; raises SyntaxError for other characters or too long a text."""
    if len(text) > MAX_LENGTH or _SYMBOL.sub("", text).strip():
        raise SyntaxError
    return tuple(_SYMBOL.findall(text))


def _no_expression(text: str, where: str) -> FomkitError:
    if len(text) > MAX_LENGTH:
        return FomkitError(where, f"an expression of {len(text)} characters. At most {MAX_LENGTH} are read.")
    return FomkitError(where, f"{text!r} is not an expression of integers, sizes, + - * // and brackets.")


Term = Callable[[Mapping[str, Any]], Any]
"""From the named sizes to a number, or an array of numbers."""


def _whole_quotient(value: Any, divisor: Any) -> Any:
    if not (divisor.all() if hasattr(divisor, "all") else divisor):
        raise ZeroDivisionError
    return value // divisor


_BETWEEN: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: add, ast.Sub: sub, ast.Mult: mul, ast.FloorDiv: _whole_quotient,
}  # fmt: skip
_SIZE = "size_"
"""Prefix of each name while Python parses it: a size may have the name of a keyword."""


def _term_of(node: ast.expr) -> Term:
    """Return the function of a syntax tree; raises SyntaxError for other nodes than those listed here."""
    match node:
        case ast.Constant(value=int(number)):
            return lambda _: number
        case ast.Name(id=name):
            return itemgetter(name.removeprefix(_SIZE))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            value = _term_of(operand)
            return lambda sizes: 0 - value(sizes)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BETWEEN:
            join, first, second = _BETWEEN[type(op)], _term_of(left), _term_of(right)
            return lambda sizes: join(first(sizes), second(sizes))
    raise SyntaxError


@lru_cache(maxsize=4096)
def _term(text: str) -> Term:
    """Return the function of an expression; raises SyntaxError if its symbols are not one."""
    numbers = (str(int(one)) if one.isdigit() else one for one in _split(text))  # Python refuses 08
    words = (f"{_SIZE}{one}" if one.isidentifier() else one for one in numbers)
    return _term_of(ast.parse(" ".join(words), mode="eval").body)


def evaluate(text: str, sizes: Mapping[str, Any], where: str) -> Any:
    """Evaluate an expression in named sizes.

    `text`: at most 200 characters; `sizes`: the value of each named size, or an array of integers (float64) for
    many values at once; `where`: table, row and column, for the error message. Raises FomkitError.

    >>> evaluate("2*(batch + 3)//4", {"batch": 5}, "ops")
    4
    """
    try:
        return _term(text)(sizes)
    except SyntaxError:
        raise _no_expression(text, where) from None
    except ZeroDivisionError:
        raise FomkitError(where, f"{text!r} divides by 0.") from None
    except KeyError as missing:
        name = missing.args[0]
        raise FomkitError(where, f"{text!r} uses the size {name!r}. {nearest_names(name, sizes)}") from None


def names_in(text: str) -> set[str]:
    """Return the named sizes that an expression uses."""
    try:
        return {symbol for symbol in _split(text) if symbol.isidentifier()}
    except SyntaxError:
        raise _no_expression(text, "expression") from None


def sizes_used(ops: pd.DataFrame) -> set[str]:
    """Return the named sizes that the dimensions of an op table depend on."""
    names: set[str] = set()
    for column in SIZED:
        if column in ops.columns and ops[column].dtype.kind != "f":
            for text in dict.fromkeys(ops[column].tolist()):
                names |= names_in(text) if isinstance(text, str) else set()
    return names


def _size(text: str, sizes: Mapping[str, int], place: str) -> float:
    value = evaluate(text, sizes, place)
    if not 0 <= value <= HUGE:
        # Compared as an integer: one of hundreds of digits exceeds a float.
        shown = str(value) if abs(value) <= HUGE else f"a number of {len(str(abs(value)))} digits"
        raise FomkitError(place, f"{text!r} gives {shown}. Expected 0 to {HUGE:g}. Check the sizes and the batch.")
    return float(value)


def many_of(sizes: Mapping[str, Any]) -> int:
    """Return the number of values of each named size; 1 if there are no sizes."""
    return next((len(values) for values in sizes.values()), 1)


def evaluate_many(text: str, sizes: Mapping[str, NDArray[np.float64]], where: str) -> NDArray[np.float64]:
    """Evaluate an expression for many values of the named sizes (s,) at once."""
    value = np.asarray(evaluate(text, sizes, where), np.float64)
    value = np.broadcast_to(value, (many_of(sizes),))
    wrong = np.flatnonzero(~((value >= 0) & (value <= HUGE)))
    if len(wrong):
        raise FomkitError(where, f"{text!r} gives {value[wrong[0]]:g}. Expected 0 to {HUGE:g}.")
    return value


def evaluate_all(
    texts: Sequence[str], sizes: Mapping[str, NDArray[np.float64]], where: str
) -> NDArray[np.float64]:
    """Evaluate some expressions for many values of the named sizes (texts × s)."""
    found = np.empty((len(texts), many_of(sizes)))
    # Numbers are many times as fast as arrays of one element.
    points = {name: float(values[0]) for name, values in sizes.items()} if found.shape[1] == 1 else sizes
    for row, text in enumerate(texts):
        found[row] = evaluate(text, points, where)
    for row in np.flatnonzero(~((found >= 0) & (found <= HUGE)).all(1)).tolist():
        evaluate_many(texts[row], sizes, where)
    return found


Expressions = Mapping[str, Mapping[int, str]]
"""The cells of a table that are expressions of named sizes, by column and row."""


def expressions_in(ops: pd.DataFrame) -> Expressions:
    """Find the cells of a table that are expressions."""
    found = {}
    for name in SIZED:
        if name in ops.columns and ops[name].dtype.kind != "f":
            cells = enumerate(ops[name].tolist())
            found[name] = {
                place: cell for place, cell in cells if isinstance(cell, str) and not cell.strip().isdigit()
            }
    return {name: cells for name, cells in found.items() if cells}


class Cells(NamedTuple):
    """The expressions of a table (e), as columns.

    `columns`: the names of the table's columns that have any; `texts`: the distinct expressions.
    `place`: position among the cells of all these columns, concatenated; `text`: position in ``texts``.
    `least`, `most`, `whole`: what the column allows.
    """

    columns: tuple[str, ...]
    texts: tuple[str, ...]
    place: NDArray[np.intp]
    text: NDArray[np.intp]
    factor: NDArray[np.float64]
    least: NDArray[np.float64]
    most: NDArray[np.float64]
    whole: NDArray[np.bool_]

    def at(self, sizes: Mapping[str, NDArray[np.float64]], where: str) -> tuple[NDArray[np.float64], bool]:
        """Return their values for many values of the named sizes (e, s), and whether a column forbids any.

        Columns allow a range of numbers, or of integers, which expressions preserve; so the smallest and the
        largest value of each expression are checked for all.
        """
        values = evaluate_all(self.texts, sizes, where)
        ends = np.stack([values.min(1), values.max(1)], 1)[self.text] * self.factor[:, None]
        wrong = (ends < self.least[:, None]) | (ends > self.most[:, None])
        wrong |= self.whole[:, None] & (np.floor(ends) != ends)
        return values[self.text] * self.factor[:, None], bool(wrong.any())


def cells_of(expressions: Expressions, factor: NDArray[np.float64]) -> Cells:
    """Collect the expressions of a table, column by column and row by row.

    `factor` (n, 2): factors on the bytes that each row reads and writes, from its number format.
    """
    columns = tuple(expressions)
    listed = [(at, row, text) for at, name in enumerate(columns) for row, text in expressions[name].items()]
    texts = tuple(dict.fromkeys(text for _, _, text in listed))
    column, row = (np.array([one[place] for one in listed], np.intp) for place in (0, 1))
    number = {text: place for place, text in enumerate(texts)}
    side = np.array([TRAFFIC.index(name) if name in TRAFFIC else -1 for name in columns], np.intp)
    known = {one.name: one for one in TABLES["OPS"]}
    # The steps between those of a loop run 0 times if the loop has one step.
    allowed = [replace(known[name], least=0.0) if name == "count" else known[name] for name in columns]
    least, most, whole = (np.array([getattr(one, name) for one in allowed], kind)[column]
                          for name, kind in (("least", float), ("most", float), ("whole", bool)))  # fmt: skip
    return Cells(
        columns, texts, column * len(factor) + row, np.array([number[text] for *_, text in listed], np.intp),
        np.where(side[column] < 0, 1.0, factor[row, side[column]]) if len(row) else np.empty(0),
        least, most, whole,
    )  # fmt: skip


def resize_ops(ops: pd.DataFrame, sizes: Mapping[str, int], where: str) -> pd.DataFrame:
    """Replace the named sizes in the dimensions of an OPS table by numbers (float64); ``where``: for messages."""
    columns: dict[str, NDArray[np.float64]] = {}
    for column in SIZED:
        if column not in ops.columns or ops[column].dtype.kind == "f":
            continue
        cells = ops[column].tolist()
        values = dict(zip(cells, cells, strict=True))
        for text in values:
            if isinstance(text, str):
                place = f"{row_place(where, ops.index, cells.index(text))}, {column}"
                values[text] = _size(text, sizes, place)
        columns[column] = np.array(list(map(values.__getitem__, cells)), np.float64)
    return ops.assign(**columns)
