"""The small language of dimension cells: integers, named sizes, ``+ - * //`` and brackets; nothing runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from fomkit.errors import FomkitError, nearest_names

MAX_LENGTH = 200
_SYMBOL = re.compile(r"\s*(?:(\d+)|([A-Za-z_]\w*)|(//|[-+*()]))")


@lru_cache(maxsize=4096)
def _split(text: str) -> tuple[str, ...] | None:
    """Give the symbols of a text; None where something else stands in it."""
    symbols, position = [], 0
    while text[position:].strip():
        match = _SYMBOL.match(text, position)
        if match is None:
            return None
        symbols.append(match[0].strip())
        position = match.end()
    return tuple(symbols)


def _symbols(text: str, where: str) -> list[str]:
    if len(text) > MAX_LENGTH:
        raise FomkitError(where, f"an expression of {len(text)} characters. At most {MAX_LENGTH} are read.")
    symbols = _split(text)
    if symbols is None:
        raise FomkitError(where, f"{text!r} is not an expression of integers, sizes, + - * // and brackets.")
    return list(symbols)


def _all(value: Any) -> bool:
    """Tell whether a number, or every number of an array, is not 0."""
    return bool(value.all() if hasattr(value, "all") else value)


class _Parser:
    """Recursive descent over ``sum = product (± product)*``, ``product = atom (* // atom)*``."""

    def __init__(self, text: str, sizes: Mapping[str, Any], where: str) -> None:
        self.text, self.sizes, self.where = text, sizes, where
        self.symbols = _symbols(text, where)

    def peek(self) -> str:
        return self.symbols[0] if self.symbols else ""

    def fail(self) -> FomkitError:
        return FomkitError(
            self.where, f"{self.text!r} is not an expression of integers, sizes, + - * // and brackets."
        )

    def sum(self) -> Any:
        value = self.product()
        while self.peek() in ("+", "-"):
            value = value + self.product() if self.symbols.pop(0) == "+" else value - self.product()
        return value

    def product(self) -> Any:
        value = self.atom()
        while self.peek() in ("*", "//"):
            if self.symbols.pop(0) == "*":
                value = value * self.atom()
                continue
            divisor = self.atom()
            if not _all(divisor):
                raise FomkitError(self.where, f"{self.text!r} divides by 0.")
            value = value // divisor
        return value

    def atom(self) -> Any:
        if not self.symbols:
            raise self.fail()
        symbol = self.symbols.pop(0)
        if symbol.isdigit():
            return int(symbol)
        if symbol == "-":
            return -self.atom()
        if symbol == "(":
            value = self.sum()
            if not self.symbols or self.symbols.pop(0) != ")":
                raise self.fail()
            return value
        if symbol in self.sizes:
            return self.sizes[symbol]
        if symbol.isidentifier():
            raise FomkitError(
                self.where, f"{self.text!r} uses the size {symbol!r}. {nearest_names(symbol, self.sizes)}"
            )
        raise self.fail()


def evaluate(text: str, sizes: Mapping[str, Any], where: str) -> Any:
    """Work out an expression in named sizes.

    Parameters
    ----------
    text : str
        At most 200 characters.
    sizes : mapping
        The value of each named size, or an array of whole numbers (float64) for many values at once.
    where : str
        Table, row and column, for the error message.

    Raises
    ------
    FomkitError
        When the text is no such expression, names an unknown size, or divides by 0.

    Examples
    --------
    >>> evaluate("2*(batch + 3)//4", {"batch": 5}, "ops")
    4
    """
    parser = _Parser(text, sizes, where)
    value = parser.sum()
    if parser.symbols:
        raise parser.fail()
    return value


def names_in(text: str) -> set[str]:
    """Give the named sizes that an expression uses."""
    return {symbol for symbol in _symbols(text, "expression") if symbol.isidentifier()}
