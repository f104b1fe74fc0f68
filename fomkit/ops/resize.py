"""An op table at another size: its cells are integers, named sizes, ``+ - * //`` and brackets; nothing runs."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from operator import add, itemgetter, mul, sub
from typing import TYPE_CHECKING, Any

import numpy as np

from fomkit.core.errors import FomkitError, nearest_names
from fomkit.ops.check import row_place
from fomkit.ops.tables import HUGE, SIZED

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray


MAX_LENGTH = 200
_SYMBOL = re.compile(r"\d+|[A-Za-z_]\w*|//|[-+*()]")


@lru_cache(maxsize=4096)
def _split(text: str) -> tuple[str, ...] | None:
    """Give the symbols of a text; None where something else stands in it."""
    return None if _SYMBOL.sub("", text).strip() else tuple(_SYMBOL.findall(text))


def _symbols(text: str, where: str) -> tuple[str, ...]:
    if len(text) > MAX_LENGTH:
        raise FomkitError(where, f"an expression of {len(text)} characters. At most {MAX_LENGTH} are read.")
    symbols = _split(text)
    if symbols is None:
        raise _no_expression(text, where)
    return symbols


def _no_expression(text: str, where: str) -> FomkitError:
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
"""Before each name while Python parses it: a size may be called as a word of the language is."""


def _term_of(node: ast.expr) -> Term:
    """Make the function of a syntax tree; nothing but what is listed here is one."""
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
def _term(symbols: tuple[str, ...]) -> Term:
    """Make the function of an expression; raises SyntaxError where its symbols make none."""
    numbers = (str(int(one)) if one.isdigit() else one for one in symbols)  # 08 is no number of Python's
    words = (f"{_SIZE}{one}" if one.isidentifier() else one for one in numbers)
    return _term_of(ast.parse(" ".join(words), mode="eval").body)


def evaluate(text: str, sizes: Mapping[str, Any], where: str) -> Any:
    """Work out an expression in named sizes.

    `text`: at most 200 characters; `sizes`: the value of each named size, or an array of whole numbers (float64)
    for many values at once; `where`: table, row and column, for the error message.

    >>> evaluate("2*(batch + 3)//4", {"batch": 5}, "ops")
    4
    """
    try:
        return _term(_symbols(text, where))(sizes)
    except SyntaxError:
        raise _no_expression(text, where) from None
    except ZeroDivisionError:
        raise FomkitError(where, f"{text!r} divides by 0.") from None
    except KeyError as missing:
        name = missing.args[0]
        raise FomkitError(where, f"{text!r} uses the size {name!r}. {nearest_names(name, sizes)}") from None


def names_in(text: str) -> set[str]:
    """Give the named sizes that an expression uses."""
    return {symbol for symbol in _symbols(text, "expression") if symbol.isidentifier()}


def sizes_used(ops: pd.DataFrame) -> set[str]:
    """Give the named sizes that the dimensions of an op table depend on."""
    names: set[str] = set()
    for column in SIZED:
        if column in ops.columns and ops[column].dtype.kind != "f":
            for text in dict.fromkeys(ops[column].tolist()):
                names |= names_in(text) if isinstance(text, str) else set()
    return names


def _size(text: str, sizes: Mapping[str, int], place: str) -> float:
    value = evaluate(text, sizes, place)
    if not 0 <= value <= HUGE:
        # Compared as an integer: one of hundreds of digits is no float.
        shown = str(value) if abs(value) <= HUGE else f"a number of {len(str(abs(value)))} digits"
        raise FomkitError(place, f"{text!r} gives {shown}. Expected 0 to {HUGE:g}.")
    return float(value)


def many_of(sizes: Mapping[str, Any]) -> int:
    """Count the values that each named size has; one where nothing is named."""
    return next((len(values) for values in sizes.values()), 1)


def evaluate_many(text: str, sizes: Mapping[str, NDArray[np.float64]], where: str) -> NDArray[np.float64]:
    """Work out an expression for many values of the named sizes (s,) at once."""
    value = np.asarray(evaluate(text, sizes, where), np.float64)
    value = np.broadcast_to(value, (many_of(sizes),))
    wrong = np.flatnonzero(~((value >= 0) & (value <= HUGE)))
    if len(wrong):
        raise FomkitError(where, f"{text!r} gives {value[wrong[0]]:g}. Expected 0 to {HUGE:g}.")
    return value


def evaluate_all(
    texts: Sequence[str], sizes: Mapping[str, NDArray[np.float64]], where: str
) -> NDArray[np.float64]:
    """Work out some expressions for many values of the named sizes (texts × s)."""
    found = np.empty((len(texts), many_of(sizes)))
    # Numbers are many times as quick as arrays of one.
    points = {name: float(values[0]) for name, values in sizes.items()} if found.shape[1] == 1 else sizes
    for row, text in enumerate(texts):
        found[row] = evaluate(text, points, where)
    for row in np.flatnonzero(~((found >= 0) & (found <= HUGE)).all(1)).tolist():
        evaluate_many(texts[row], sizes, where)
    return found


def resize_ops(ops: pd.DataFrame, sizes: Mapping[str, int], where: str) -> pd.DataFrame:
    """Put numbers for the named sizes.

    `ops`: an OPS table whose dimension cells are numbers or expressions; `sizes`: the value of each named size;
    `where`: name of the profile, for error messages. Gives a DataFrame: the same rows with float64 dimensions.
    """
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
