"""Communication beside computation: what a link is busy, and what of it a step waits for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fomkit.network import Group

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray


class Bucket(NamedTuple):
    """Gradients sent together: their bytes and when the last of them is made, from the backward's start.

    ``group`` are the devices that add them up; None is all replicas.
    """

    byte: float
    ready_s: float
    group: Group | None = None


class Waited(NamedTuple):
    """What the link is busy and what of it nothing hides [s]."""

    busy_s: float
    exposed_s: float


def buckets_of(
    order: pd.DataFrame, row_s: NDArray[np.float64], backward: NDArray[np.bool_], bucket_byte: float
) -> list[Bucket]:
    """Fill buckets with the gradients of a step in the order in which its backward pass makes them.

    Parameters
    ----------
    order : DataFrame
        An ORDER table whose sizes are numbers.
    row_s : array (rows of the op table,)
        Time of one execution of each op [s]; NaN counts nothing.
    backward : array of bool
        Which rows of the op table are of the backward pass.
    bucket_byte : float
        A bucket is sent once it holds as much.
    """
    ids, rows = order["id"].to_numpy(int), order["row"].to_numpy(np.float64)
    first = np.unique(ids, return_index=True)[1]
    has_row = ~np.isnan(rows[first])
    at = np.where(has_row, rows[first], 0).astype(int)
    spent = np.where(has_row & backward[at], np.nan_to_num(row_s)[at], 0.0)
    done = np.zeros(int(ids.max()) + 1)
    done[ids[first]] = spent
    done = done.cumsum()
    made = order[order["role"] == "gradient"].sort_values("id", kind="stable")
    found: list[Bucket] = []
    held = 0.0
    ready = 0.0
    for one, byte in zip(made["id"].to_numpy(int), made["output_byte"].to_numpy(np.float64), strict=True):
        held, ready = held + float(byte), float(done[one])
        if held >= bucket_byte:
            found.append(Bucket(held, ready))
            held = 0.0
    return [*found, Bucket(held, ready)] if held else found


def stretched(buckets: Sequence[Bucket], factor: float) -> list[Bucket]:
    """Let a backward pass take as many times as long."""
    return [one._replace(ready_s=one.ready_s * factor) for one in buckets]


def overlapped(buckets: Sequence[Bucket], taken: Callable[[Bucket], float], backward_s: float) -> Waited:
    """Send buckets one after the other, each once it is full, while the backward pass goes on.

    Parameters
    ----------
    buckets : sequence of Bucket
    taken : function
        Time that a bucket takes [s].
    backward_s : float
        Time of the backward pass [s].

    Examples
    --------
    >>> overlapped([Bucket(1.0, 1.0), Bucket(1.0, 4.0)], lambda one: 2.0 * one.byte, 4.0)
    Waited(busy_s=4.0, exposed_s=2.0)
    """
    free_s = busy_s = 0.0
    for one in buckets:
        seconds = taken(one)
        free_s = max(free_s, one.ready_s) + seconds
        busy_s += seconds
    return Waited(busy_s, min(busy_s, max(0.0, free_s - backward_s)))
