"""Rows of NeuSight's op graphs: what a traced model does, a line per distinct call, before any machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from fomkit.errors import FomkitError
from fomkit.tables.text import read_rows

Shape = tuple[int, ...]
Called = tuple[tuple[str, Any], ...]
"""Words of the graph with their sizes: ``("Linear", [rows, in, out])``, ``("MEM", [shape, …])``."""
COLUMNS = ("graph", "name", "opname", "count", "fw_ops", "bw_ops", "acc_ops", "in_shapes", "out_shape")


class GraphRow(NamedTuple):
    """One call of a model.

    Attributes
    ----------
    name : str
        Name of the call in the traced model; calls of one function differ in their last number.
    opname : str
        NeuSight's class of it; ``misc`` is what that project takes as free.
    runs : float
        Times that it runs: layers of one shape are listed once.
    forward, backward, accumulate : Called
        What it does in each pass.
    inputs : tuple of Shape
    output : Shape
    before : str
        Name of the call before it, "" for the first.
    """

    name: str
    opname: str
    runs: float
    forward: Called
    backward: Called
    accumulate: Called
    inputs: tuple[Shape, ...]
    output: Shape
    before: str

    @property
    def function(self) -> str:
        """The name without its running number: ``transpose`` of ``transpose_3``."""
        return function_of(self.name)

    @property
    def numel(self) -> int:
        """Elements of the output."""
        return prod(self.output)


def function_of(name: str) -> str:
    """Strip the running number of a call.

    Examples
    --------
    >>> function_of("transpose_3"), function_of("masked_fill_")
    ('transpose', 'masked_fill_')
    """
    stem, _, number = name.rpartition("_")
    return stem if stem and number.isdigit() else name


def _shape(content: Any) -> Shape:
    """Give a shape; of several results the first, which carries the size."""
    while content and isinstance(content[0], list):
        content = content[0]
    return tuple(int(size) for size in content)


def _called(text: str) -> Called:
    return tuple((str(word), sizes) for word, sizes in json.loads(text))


def _row(cells: dict[str, str], before: str) -> GraphRow:
    return GraphRow(
        name=cells["name"],
        opname=cells["opname"],
        runs=float(cells["count"]),
        forward=_called(cells["fw_ops"]),
        backward=_called(cells["bw_ops"]),
        accumulate=_called(cells["acc_ops"]),
        inputs=tuple(_shape(shape) for shape in json.loads(cells["in_shapes"])),
        output=_shape(json.loads(cells["out_shape"])),
        before=before,
    )


def read_graphs(path: Path) -> Iterator[tuple[str, GraphRow]]:
    """Read op graphs, packed by gzip or not: the name of a graph with each of its rows, in order.

    Raises
    ------
    FomkitError
        With file and line, when a column is missing or a cell is not what it should be.
    """
    lines = read_rows(path)
    _, header = next(lines, (1, []))
    if missing := [name for name in COLUMNS if name not in header]:
        raise FomkitError(f"{path}:1", f"has no column {', '.join(missing)}. Expected NeuSight's opgraphs.csv.")
    last = ("", "")
    for line, row in lines:
        cells = dict(zip(header, row, strict=True))
        graph = cells["graph"]
        try:
            found = _row(cells, last[1] if last[0] == graph else "")
        except (ValueError, TypeError, IndexError) as error:
            raise FomkitError(f"{path}:{line}", f"is no row of an op graph ({error}). Check the file.") from error
        last = (graph, found.name)
        yield graph, found
