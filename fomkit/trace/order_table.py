"""From the lines of a traced step to the ORDER table: named sizes put in, rows of the op table found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fomkit.trace.calls import TracedOp
from fomkit.trace.symbolic import NoExpression, Sizes, name_sizes

if TYPE_CHECKING:
    from fomkit.trace.op_table import Row

ORDER_LINE = "order"
"""Kind of the rows that are lines of the order, while their sizes get names."""

_PLACES = ("id", "row", "freed_by")


def name_order(orders: Sequence[list[TracedOp]], sizes: Sequence[Sizes], names: Sequence[str]) -> list[TracedOp]:
    """Join the orders of one step at several sizes into one whose bytes are expressions.

    Raises
    ------
    NoExpression
        When ops come in another order at some sizes, or a size in bytes is no short sum of products.
    """
    if len({len(order) for order in orders}) > 1:
        lines = ", ".join(str(len(order)) for order in orders)
        raise NoExpression(f"the number of executed ops changes with {', '.join(names)}: {lines}")
    named = name_sizes(orders, sizes, names)
    for line in named:
        if any(isinstance(line.dimensions.get(name), str) for name in _PLACES):
            raise NoExpression(f"ops come in another order with {', '.join(names)}")
    return named


def places_of(traced: Sequence[TracedOp], named: Sequence[TracedOp]) -> list[int]:
    """Give the place of each traced op among the named ones, of which equal ones may have been joined."""
    if len(traced) == len(named):
        return list(range(len(traced)))
    first: dict[object, int] = {}
    return [first.setdefault((op.identity, tuple(op.dimensions.items())), len(first)) for op in traced]


def order_rows(
    order: Sequence[TracedOp], traced: Sequence[TracedOp], named: Sequence[TracedOp], rows: Sequence[int]
) -> list[Row]:
    """Make the rows of the ORDER table.

    Parameters
    ----------
    order : list of TracedOp
        Lines whose ``row`` is a position in ``traced``.
    traced, named : list of TracedOp
        The ops of the step, and the same with named sizes.
    rows : list of int
        For each named op its row of the op table.
    """
    places = places_of(traced, named)
    found = []
    for line in order:
        row = {"module": line.module, "pass_name": line.pass_name, **line.dimensions}
        if "row" in row:
            row["row"] = rows[places[int(row["row"])]]
        found.append(row)
    return found
