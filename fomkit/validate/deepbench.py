"""DeepBench's training sheets: shapes left out by whole groups, and devices of which only some rows are known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fomkit.costs import add_costs
from fomkit.predict.families import VIEWS, families, training_rows
from fomkit.predict.fit import FEWEST
from fomkit.predict.storage import row_major
from fomkit.timings.foreign_table import read_columns
from fomkit.validate.left_out import crossed, nested
from fomkit.validate.scores import Cases, constant_band

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from fomkit.hardware import Machine

FOLDS = 10
GROUPS: Mapping[str, tuple[str, ...]] = {
    # The workbooks print column-major products: their m is our n.
    "gemm": ("n", "k"),
    "conv": VIEWS["conv"].groups,
    "rnn": ("hidden_size",),
}
"""Columns that the rows of one group share; group g is left out in fold g mod 10, groups in rising order."""
ONE_STEP = "one step"


class Sheet(NamedTuple):
    """One sheet of a training workbook: a machine in one number format."""

    machine: str
    sheet: str
    dtype: str
    engine: str

    @property
    def title(self) -> str:
        """Machine and number format."""
        return f"{self.machine} {self.dtype}/{self.engine}"


class Part(NamedTuple):
    """The rows of one kind and pass of a sheet, and the fold in which each is left out."""

    what: str
    kind: str
    rows: pd.DataFrame
    fold: NDArray[np.int64]


def read_sheets(path: Path) -> list[Sheet]:
    """Read which sheets there are."""
    rows = read_columns(path, Sheet._fields, ())
    return [Sheet(*(str(row[name]) for name in Sheet._fields)) for row in rows.to_dict("records")]


def group_folds(rows: pd.DataFrame, kind: str) -> NDArray[np.int64]:
    """Give each row the fold in which its group is left out."""
    columns = [name for name in GROUPS[kind] if name in rows.columns]
    groups = rows.groupby(columns, dropna=False, sort=True).ngroup().to_numpy(np.int64)
    return np.asarray(groups % FOLDS, np.int64)


def parts(sheet: Sheet, machine: Machine) -> Iterator[Part]:
    """Split a sheet into kinds and passes that have enough rows for ten folds."""
    timings = machine.timings[
        (machine.timings["source_sheet"] == sheet.sheet) & (machine.timings["dtype"] == sheet.dtype)
    ]
    costed = add_costs(row_major(timings.reset_index(drop=True)))
    for name, _ in families(costed):
        rows = training_rows(costed, name)
        if name.kind not in GROUPS or not len(rows):
            continue
        fold = group_folds(rows, name.kind)
        if len(rows) - np.bincount(fold).max() >= FEWEST:
            yield Part(" ".join(filter(None, (name.kind, name.pass_name))), name.kind, rows, fold)


def _take(cases: Cases, kept: NDArray[np.bool_]) -> Cases:
    return Cases(*(getattr(cases, name)[kept] for name in cases.__dataclass_fields__))


def left_out_cases(part: Part, machine: Machine, level: float, *, full: bool) -> Iterator[tuple[str, Cases]]:
    """Predict every row of a part without its group; recurrent layers of one step come apart from the others."""
    if full:
        found = nested(part.rows, part.fold, machine, level)
    else:
        found = crossed(part.rows, part.kind, part.fold, level)
    found = constant_band(found, level)
    if part.kind != "rnn":
        yield part.what, found
        return
    one = part.rows["steps"].to_numpy() == 1
    for what, kept in ((part.what, ~one), (f"{part.what}, {ONE_STEP}", one)):
        if kept.any():
            yield what, _take(found, kept)
