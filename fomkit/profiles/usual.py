"""What timed machines reached of their floors, as it comes with fomkit: two CSV files beside the machine profiles.

``surfaces.csv`` has a row for each kind of work, machine and number format: how many of its timings tell, their
mean, and as numbers with spaces between them the length of each feature and what like chips missed. ``ops.csv``
has a row for each op that tells: the number of its surface, its weight in thousandths, its features in hundredths.
``benchmarks/usual_utilisation.py`` makes both from the timings in ``machine_profiles``.
"""

from __future__ import annotations

import hashlib
import io
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from fomkit.dtypes import ITEM_BYTE
from fomkit.errors import FomkitError
from fomkit.hardware import Surface, TimedWork, UsualTables
from fomkit.profiles.locate import shipped_folder
from fomkit.tables.text import read_bytes, read_rows

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FOLDER, SURFACES, OPS = "usual_utilisation", "surfaces.csv", "ops.csv"
SURFACE_COLUMNS = (
    "surface", "work", "machine", "architecture", "dtype", "timings", "ops", "balance", "mean",
    "lengths", "errors",
)  # fmt: skip
OP_COLUMNS = ("surface", "weight", *(f"feature_{number}" for number in range(1, 11)))
"""A feature that a kind of work does not have is empty."""


def _read_ops(path: Path) -> list[NDArray[np.int32]]:
    """Read ``ops.csv``: of each surface in turn weights and features, as many as it has.

    Raises
    ------
    FomkitError
        With the line, when it is not that of whole numbers, surface after surface.
    """
    import numpy as np
    import pandas as pd

    try:  # it is long, so no cell is looked at by itself
        table = pd.read_csv(io.BytesIO(read_bytes(path)), index_col=False, dtype=np.float64)
    except ValueError as error:
        raise FomkitError(str(path), f"is not a table of numbers ({error}).") from error
    if tuple(table.columns) != OP_COLUMNS or table.empty:
        raise FomkitError(f"{path}:1", f"expected the columns {', '.join(OP_COLUMNS)}, and rows.")
    values = np.ascontiguousarray(table.to_numpy())
    filled = ~np.isnan(values)
    width, starts = filled.sum(1), np.flatnonzero(np.diff(values[:, 0], prepend=np.nan))
    good = (filled == (np.arange(len(OP_COLUMNS)) < width[:, None])).all(1) & (width > 2)
    good &= (~filled | ((np.abs(values) < 2**31) & (values == np.rint(values)))).all(1)
    good[starts] &= values[starts, 0] == np.arange(len(starts)) + 1
    good &= width == np.repeat(width[starts], np.diff(starts, append=len(values)))
    if not good.all():
        where = f"{path}:{good.argmin() + 2}"
        raise FomkitError(
            where, "expected a surface, those in order, its op's weight and features: whole numbers."
        )
    return [part[:, 1 : np.isfinite(part[0]).sum()].astype(np.int32) for part in np.split(values, starts[1:])]


def _surface(cells: Sequence[str], rows: NDArray[np.int32]) -> tuple[tuple[float, ...], Surface]:
    """Make a surface of its row, from the machine on, and of its ops; with the lengths of its features.

    Raises
    ------
    ValueError
        When something is not as it must be.
    """
    machine, architecture, dtype, _, count, balance, mean, *lists = cells
    length, missed = (tuple(map(float, cell.split())) for cell in lists)
    numbers = (float(balance or "nan"), float(mean))
    if not (machine and architecture and dtype in ITEM_BYTE):
        raise ValueError("expected the name of a machine, an architecture and a number format")
    if not (all(map(math.isfinite, (numbers[1], *length, *missed))) and min(length, default=0.0) > 0):
        raise ValueError("expected a mean, lengths above 0 and errors, all finite")
    if rows.shape != (int(count), 1 + len(length)):
        raise ValueError(f"expected {count} ops in {OPS}, with a feature for each length")
    return length, Surface(machine, architecture, dtype, *numbers, missed, rows)


def load_usual(folder: Path) -> UsualTables:
    """Read what timed machines reached from the two files of a folder.

    Raises
    ------
    FomkitError
        With file and line where one can be named, when a file is absent or damaged, or is not the other's.
    """
    import numpy as np

    path = folder / SURFACES
    lines = list(read_rows(path))
    if not lines or tuple(lines.pop(0)[1]) != SURFACE_COLUMNS:
        raise FomkitError(f"{path}:1", f"expected the columns {', '.join(SURFACE_COLUMNS)}.")
    ops, found = _read_ops(folder / OPS), dict[str, TimedWork]()
    if not lines or len(lines) != len(ops):
        raise FomkitError(str(path), f"has {len(lines)} surfaces, {OPS} the ops of {len(ops)}.")
    for number, ((line, (told, work, *cells)), rows) in enumerate(zip(lines, ops, strict=True), start=1):
        try:
            length, one = _surface(cells, rows)
        except ValueError as error:
            raise FomkitError(f"{path}:{line}", f"{error}.") from error
        so_far = found.get(work, TimedWork(np.array(length), ()))
        if told != str(number) or not work or tuple(so_far.length) != length:
            raise FomkitError(f"{path}:{line}", f"expected surface {number} of a work, its lengths as above.")
        found[work] = so_far._replace(known=(*so_far.known, one))
    key = hashlib.sha256(f"{lines}".encode() + b"".join(rows.tobytes() for rows in ops))
    return UsualTables(key.hexdigest(), found)


@cache
def shipped_usual() -> UsualTables:
    """Read what came with this installation, once.

    Raises
    ------
    FomkitError
        With what to do about it, when the files are not as they came.
    """
    try:
        return load_usual(shipped_folder("machine_profiles") / FOLDER)
    except FomkitError as error:
        do = "It comes with fomkit: install that again. In a checkout, run python benchmarks/usual_utilisation.py."
        raise FomkitError(error.where, f"{error.what} {do}") from error
