"""Ops to time, as cells and as tables: what is asked of the process that times, and what is predicted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from fomkit.schema import DIMENSIONS, KIND_DIMENSIONS, column_names

if TYPE_CHECKING:
    import pandas as pd

Cells = Mapping[str, str]
IDENTITY = ("kind", "op", "dtype", "engine", "pass_name", *(column.name for column in DIMENSIONS))
"""Cells that make an op another op."""
_NUMBERS = frozenset(column_names("OPS", "number"))
_TEXTS = ("op", "kind", "dtype", "engine", "pass_name")


class Wanted(NamedTuple):
    """An op to time.

    Attributes
    ----------
    cells : mapping
        Cells of a row of timings by column, as text; ``lengths`` besides them tells an update's tensors.
    weight : float
        What a second of its error is worth, against that of others.
    models : str
        Whose it is; "" for one of the design.
    """

    cells: Cells
    weight: float
    models: str = ""


def cell(value: float | str) -> str:
    """Write a cell as the process that times reads it.

    Examples
    --------
    >>> cell(64.0), cell(0.25), cell("relu")
    ('64', '0.25', 'relu')
    """
    return value if isinstance(value, str) else f"{value:.12g}"


def key_of(cells: Cells) -> tuple[str, ...]:
    """Give what makes an op itself."""
    return tuple(cells.get(name, "") for name in IDENTITY)


def shape_of(cells: Cells) -> tuple[str, ...]:
    """Give the kind and its sizes alone, which ops may share that differ in pass, name or storage."""
    return (cells["kind"], *(cells.get(name, "") for name in KIND_DIMENSIONS[cells["kind"]]))


def cells_of(row: Mapping[str, object]) -> dict[str, str]:
    """Give the cells of a row of a table; empty ones are left out."""
    found = {}
    for name in IDENTITY:
        value = row.get(name)
        if value is not None and value == value and value != "":
            found[name] = cell(value if isinstance(value, str) else float(str(value)))
    return found


def distinct(ops: Iterable[Wanted]) -> list[Wanted]:
    """Give each op once, with the weights and the models of all."""
    found: dict[tuple[str, ...], Wanted] = {}
    for one in ops:
        key = key_of(one.cells)
        other = found.get(key)
        if other is None:
            found[key] = one
            continue
        models = ", ".join(dict.fromkeys(filter(None, (other.models, one.models))))
        found[key] = other._replace(weight=other.weight + one.weight, models=models)
    return list(found.values())


def as_table(ops: Sequence[Cells]) -> pd.DataFrame:
    """Make a table of ops, each run once, of their cells."""
    import pandas as pd

    columns: dict[str, list[object]] = {}
    for name in (*_TEXTS, *(name for name in IDENTITY if name not in _TEXTS)):
        texts = [one.get(name, "") for one in ops]
        if name not in _NUMBERS:
            columns[name] = list(texts)
        elif any(texts):
            columns[name] = [float(text) if text else float("nan") for text in texts]
    table = pd.DataFrame(columns)
    passes = table["pass_name"].where(table["pass_name"] != "", "forward")
    return table.assign(count=1.0, pass_name=passes)
