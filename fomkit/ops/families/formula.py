"""The definition of a cost formula: a plain function of columns, and how it gets its arguments.

A formula's arguments are named like the columns. It runs on floats, on arrays and on sympy's symbols, since it
consists of arithmetic and of `floor`, `ceil` and `log2`, which accept all three.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from inspect import signature
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fomkit.core.units import ITEM_BYTE

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

Size = Any
"""A float, an array of floats, or a sympy expression."""
Variant = tuple[str, ...]
"""Values of the text columns that select a formula, for example ("lstm", "forward")."""

PASSES: Mapping[str, int] = {"forward": 1, "backward_input": 1, "backward_weight": 1, "backward": 2}
"""Library calls in each pass of a layer with weights; backward is both gradients."""

UNUSUAL: Mapping[str, int] = {"shared_dim": 0, "weight_share": 1}
"""Columns that a printed formula contains only if they are stated, and their default values."""
DEFAULTS: Mapping[str, float] = {
    **dict.fromkeys(("transposed", "output_pad_d", "output_pad_h", "output_pad_w"), 0.0),
    **{name: float(value) for name, value in UNUSUAL.items()},
}
"""Default values of empty cells, for columns that have one."""


class Cost(NamedTuple):
    """Flop [flop], compulsory traffic [byte] and kernel launches of one execution."""

    flop: Size
    byte: Size
    launches: Size = 1


class Formula(NamedTuple):
    """The cost formula of the ops of one kind.

    `cost`: returns the `Cost` from columns; ``item_byte`` [byte] follows from the dtype.
    `chosen_by`: its arguments that are text.
    `variants`: the allowed values of these; ops with other values are unpriced.
    `parts`: its arguments that are not columns but functions of columns, and of each other.
    """

    cost: Callable[..., Cost]
    chosen_by: tuple[str, ...] = ()
    variants: tuple[Variant, ...] = ((),)
    parts: Mapping[str, Callable[..., Size]] = {}

    def of(self, variant: Variant, row: Row) -> Cost:
        """Price one variant on the values of a row."""
        cost: Cost = row.give(self.cost, **dict(zip(self.chosen_by, variant, strict=True)))
        return cost


@lru_cache(maxsize=512)
def arguments(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of a formula's arguments.

    >>> arguments(lambda b, item_byte: b * item_byte)
    ('b', 'item_byte')
    """
    return tuple(signature(function).parameters)


class Row:
    """The values of one op, of many ops, or their symbols, by name; each is read or computed once.

    `column`: returns the value of a column by its name.

    >>> sizes = {"height": 3.0, "width": 5.0}
    >>> row = Row(sizes.__getitem__, {"area": lambda height, width: height * width})
    >>> row.give(lambda area, height: area / height)
    5.0
    """

    def __init__(
        self, column: Callable[[str], Size], parts: Mapping[str, Callable[..., Size]] | None = None,
        known: Mapping[str, Size] | None = None,
    ) -> None:  # fmt: skip
        self._column, self._parts = column, parts or {}
        self._known: dict[str, Size] = dict(known or {})

    def __getitem__(self, name: str) -> Size:
        if name not in self._known:
            part = self._parts.get(name)
            self._known[name] = self._column(name) if part is None else self.give(part)
        return self._known[name]

    def give(self, function: Callable[..., Any], **chosen: str) -> Any:
        """Call a function with the values that its arguments name."""
        return function(**chosen, **{name: self[name] for name in arguments(function) if name not in chosen})

    def apart_from(self, changing: Collection[str]) -> dict[str, Size]:
        """Return the values read or computed so far that do not depend on some columns."""

        def depends(name: str) -> bool:
            part = self._parts.get(name)
            return name in changing or (part is not None and any(map(depends, arguments(part))))

        return {name: value for name, value in self._known.items() if not depends(name)}


def columns_of(
    ops: pd.DataFrame,
    rows: NDArray[np.intp] | slice,
    read: dict[str, NDArray[np.float64]],
    many: tuple[int, ...] = (),
) -> Callable[[str], NDArray[np.float64]]:
    """Return a function that reads the columns of some rows of a table by name, for `Row`.

    `rows` (n,): positions; `read`: columns of the whole table that were read before, shared among groups of rows;
    `many`: shape of the sizes per row in these columns; a column that does not depend on the size has a single
      one.
    """

    def column(name: str) -> NDArray[np.float64]:
        if name not in read:
            whole = _whole_column(ops, name)
            read[name] = whole.reshape(-1, *(1 for _ in many)) if whole.ndim else whole
        values = read[name]
        return values[rows] if values.ndim else values

    return column


def _whole_column(ops: pd.DataFrame, name: str) -> NDArray[np.float64]:
    if name == "item_byte":
        return np.array([ITEM_BYTE.get(dtype, np.nan) for dtype in ops["dtype"].tolist()])
    default = np.float64(DEFAULTS.get(name, np.nan))
    if name not in ops.columns:
        return np.asarray(default)
    values = ops[name].to_numpy(np.float64)
    return np.where(np.isnan(values), default, values) if name in DEFAULTS else values


def _call(name: str, value: Size) -> Size:
    """Call numpy's function of this name, or sympy's if the value is an expression."""
    if not hasattr(value, "free_symbols"):
        return getattr(np, name)(value)
    import sympy.codegen.cfunctions

    known = {"floor": sympy.floor, "ceil": sympy.ceiling, "log2": sympy.codegen.cfunctions.log2}
    return known[name](value)


def floor(value: Size) -> Size:
    """Return the largest integer that is not above a value.

    >>> float(floor(3.5))
    3.0
    """
    return _call("floor", value)


def ceil(value: Size) -> Size:
    """Return the smallest integer that is not below a value.

    >>> float(ceil(3.5))
    4.0
    """
    return _call("ceil", value)


def log2(value: Size) -> Size:
    """Return the logarithm to base 2.

    >>> float(log2(8))
    3.0
    """
    return _call("log2", value)
