"""Rows of measurements that say a thing twice, or several things of one cell: told, never passed in silence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fomkit.compare.cells import Cell
from fomkit.measurement import Measurement


def _line(row: Measurement) -> str:
    return row.where.rpartition(":")[2]


def counted_once(rows: Sequence[Measurement]) -> tuple[tuple[Measurement, ...], tuple[str, ...]]:
    """Leave out rows that are a copy of an earlier one, and say which.

    Returns
    -------
    rows : tuple of Measurement
    said : tuple of str
        A line for each row that is left out.
    """
    first: dict[Measurement, Measurement] = {}
    said = []
    for row in rows:
        known = first.setdefault(replace(row, where=""), row)
        if known is not row:
            said.append(f"{row.where} is a copy of line {_line(known)} and counts once")
    return tuple(first.values()), tuple(said)


_CONDITIONS: Mapping[str, str] = {
    "precision": "precisions", "devices": "numbers of devices", "framework": "frameworks", "scope": "scopes"
}  # fmt: skip


def said_of_several(cells: Sequence[Cell]) -> tuple[str, ...]:
    """Say of each cell that several rows tell what became of them, and what they differ in besides the figure."""
    said = []
    for cell in cells:
        if len(cell.rows) > 1:
            values = [row.value for row in cell.rows]
            differ = [
                words for name, words in _CONDITIONS.items() if len({getattr(row, name) for row in cell.rows}) > 1
            ]
            said.append(
                f"{cell.model} on {cell.machine}, {cell.quantity}: lines {', '.join(map(_line, cell.rows))} say "
                f"{min(values):g} … {max(values):g}; their median counts, with all their ends as its interval"
                + (f"; they are of different {', '.join(differ)}" if differ else "")
            )
    return tuple(said)
