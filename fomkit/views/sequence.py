"""The executions of a step one after the other, each with its row of the op table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import pandas as pd


class Execution(NamedTuple):
    """One execution of an op, or several that nobody can tell apart.

    Attributes
    ----------
    row : int
        Position in the op table.
    times : float
    last_id : int or None
        The last id of the order that belongs to it; None where the order does not have it.
    """

    row: int
    times: float
    last_id: int | None


def _runs(order: pd.DataFrame) -> Iterator[tuple[int, list[int]]]:
    """Give the rows that follow each other in an order, each with its ids in one go."""
    lines = order[(order["id"] > 0) & order["row"].notna()].drop_duplicates("id").sort_values("id", kind="stable")
    pairs = zip(lines["row"].astype(int), lines["id"].astype(int), strict=True)
    for row, group in groupby(pairs, key=lambda pair: pair[0]):
        yield row, [number for _, number in group]


def executions(counts: Sequence[float], order: pd.DataFrame | None) -> list[Execution]:
    """Give the executions of a step in order.

    An op that makes several pieces of memory may have several ids for one execution; then what follows without
    another op between is one. Where the ids are fewer than the executions, each stands for its share.

    Parameters
    ----------
    counts : sequence of float
        Executions of each row of the op table.
    order : DataFrame or None
        An ORDER table; None where nobody recorded it. Rows that it does not have come last, rows without any order
        in their own.

    Returns
    -------
    list of Execution
        Their counts add up to each row's.

    Examples
    --------
    >>> order = pd.DataFrame({"id": [0, 1, 2, 3], "row": [None, 0, 1, 0]})
    >>> [(one.row, one.times) for one in executions([2.0, 1.0, 5.0], order)]
    [(0, 1.0), (1, 1.0), (0, 1.0), (2, 5.0)]
    """
    runs = [] if order is None else list(_runs(order))
    ids = Counter[int]()
    for row, numbers in runs:
        ids[row] += len(numbers)
    apart = {row for row, number in ids.items() if number == counts[row]}
    times = Counter(row for row, _ in runs)
    found = []
    for row, numbers in runs:
        if row in apart:
            found += [Execution(row, 1.0, number) for number in numbers]
        else:
            found.append(Execution(row, counts[row] / times[row], numbers[-1]))
    left = (row for row, count in enumerate(counts) if row not in times and count)
    return found + [Execution(row, counts[row], None) for row in left]
