"""What the formula modules are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol


class Cost(NamedTuple):
    """Flop [flop], traffic [byte] and launches of one execution, as sympy expressions in the columns' names."""

    flop: Any
    byte: Any
    launches: Any


class Row(Protocol):
    """Gives the values of a column by its name, as an array; item_byte [byte] follows from the dtype."""

    def __getattr__(self, column: str) -> Any: ...


Formula = Callable[[Row], Any]


class CompiledCost(NamedTuple):
    """A `Cost` as functions of the columns, ready for numpy."""

    flop: Formula
    byte: Formula
    launches: Formula


class CostText(NamedTuple):
    """A `Cost` as people read it: expressions of the columns and of the kind's `Shorthand`."""

    flop: str
    byte: str
    launches: str


class Shorthand(NamedTuple):
    """A part of a formula that has a name of its own: its text, and the function that gives its value."""

    text: str
    value: Formula


Variant = tuple[str, ...]
"""Values of a kind's variant columns, for example ("lstm", "forward"); empty where one formula serves all."""

VARIANT_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "conv": ("pass_name",),
    "rnn": ("cell", "pass_name"),
    "attention": ("pass_name",),
    "norm": ("pass_name",),
    "softmax": ("pass_name",),
    "optimizer": ("rule", "impl"),
}
"""The text columns that choose among a kind's formulas; a kind that is absent has only one."""


def sizes(names: str) -> Any:
    """Make symbols for columns that hold positive sizes.

    Examples
    --------
    >>> b, m = sizes("b m")
    >>> b.name, m.is_positive
    ('b', True)
    """
    import sympy

    return sympy.symbols(names, positive=True)


def counts(names: str) -> Any:
    """Make symbols for columns that may be 0, for example a padding."""
    import sympy

    return sympy.symbols(names, nonnegative=True)
