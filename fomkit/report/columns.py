"""Columns of a table of entries, of which a narrow screen shows the most important ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

Entry = Mapping[str, Any]


class Column(NamedTuple):
    """A column: header, alignment, how to write a cell, and its rank: a narrow table loses the highest first."""

    header: str
    justify: str
    write: Callable[[Entry], str]
    rank: int = 0


def fitting(columns: list[Column], rows: Sequence[Entry], label: int, width: int) -> list[Column]:
    """Leave out columns until the rest fit beside labels of a width."""
    widths = {id(one): max(len(one.header), *(len(one.write(row)) for row in rows)) for one in columns}
    kept = list(columns)
    while label + sum(widths[id(one)] + 2 for one in kept) > width and any(one.rank for one in kept):
        kept.remove(max(kept, key=lambda one: one.rank))
    return kept
