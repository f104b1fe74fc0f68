"""What a stranger's table of ops leaves unsaid and everybody means: filled in, and said."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from fomkit.core.errors import FomkitError
from fomkit.core.units import default_engine
from fomkit.ops.tables import column_names

_NUMBERS = frozenset(column_names("TIMED", "number"))
_PLAIN: Mapping[str, Mapping[str, float]] = {
    "gemm": {"b": 1.0},
    "sparse_gemm": {"b": 1.0},
    "conv": {
        **dict.fromkeys(("depth", "kernel_d", "stride_d"), 1.0),
        "pad_d": 0.0,
        **dict.fromkeys(("dilation_d", "dilation_h", "dilation_w", "groups"), 1.0),
    },
    "rnn": {"layers": 1.0, "directions": 1.0},
}
"""Dimensions that only special cases of a kind have; without them the op is the plain one."""

Filled = tuple["pd.DataFrame", tuple[str, ...]]


class _Filling:
    """A table being filled, and what was filled: the columns by what they were taken as and in how many rows."""

    def __init__(self, data: pd.DataFrame) -> None:
        self.data, self._columns = data, dict[tuple[str, int], list[str]]()

    def fill(self, column: str, rows: pd.Series, values: object, meaning: str) -> None:
        """Put values into the empty cells of a column, or into a new column, where ``rows`` is true."""
        cells = self.data.get(column, pd.Series(None, self.data.index, dtype=object)).astype(object)
        empty = rows & (cells.isna() | (cells == ""))
        if not empty.any():
            return
        filled = cells.mask(empty, values)
        if column not in _NUMBERS:
            filled = filled.fillna("")
        elif not filled.map(lambda cell: isinstance(cell, str)).any():
            filled = filled.astype("float64")
        self.data = self.data.assign(**{column: filled})
        self._columns.setdefault((meaning, int(empty.sum())), []).append(column)

    def _share(self, count: int) -> str:
        return "any row" if count == len(self.data) else f"{count:,} of {len(self.data):,} rows"

    @property
    def notes(self) -> tuple[str, ...]:
        """One line for what was taken alike."""
        return tuple(
            f"{', '.join(columns)}: not given in {self._share(count)}; taken as {meaning}."
            for (meaning, count), columns in self._columns.items()
        )


def fill_dimensions(data: pd.DataFrame) -> Filled:
    """Fill the dimensions that only special cases have: one matrix, two dimensions, no groups, one layer.

    `data`: a table with the column ``kind``. Gives the table with these cells filled, and a line for each value.
    """
    filling = _Filling(data)
    for kind, plain in _PLAIN.items():
        for dimension, value in plain.items():
            filling.fill(dimension, data["kind"] == kind, value, f"{value:g} ({kind})")
    if "heads" in data.columns:
        filling.fill("kv_heads", data["kind"] == "attention", data["heads"], "heads (attention)")
    return filling.data, filling.notes


def fill_defaults(ops: pd.DataFrame, where: str = "fill_defaults") -> Filled:
    """Fill what an op table of somebody else leaves unsaid.

    An absent column or an empty cell means: ``op`` the kind, ``engine`` what the frameworks use by default for the
    kind and dtype, ``pass_name`` forward, ``count`` 1, and the dimensions of `fill_dimensions`. Whatever else is
    needed and missing stays missing.

    `ops`: with the columns ``kind`` and ``dtype``; `where`: file or stage, for the error message.

    Gives the table with these cells filled, new columns last, and a line for each value that was taken.

    >>> import pandas as pd
    >>> ops, said = fill_defaults(pd.DataFrame({"kind": ["gemm"], "dtype": ["fp16"], "b": [1.0]}))
    >>> ops.loc[0, ["op", "engine", "pass_name"]].tolist()
    ['gemm', 'matrix', 'forward']
    >>> said[-1]
    'count: not given in any row; taken as 1.'
    """
    for name in ("kind", "dtype"):
        if name not in ops.columns:
            raise FomkitError(
                where, f"the column {name!r} is missing, without which no row means anything. Add it."
            )
    data, notes = fill_dimensions(ops)
    filling = _Filling(data)
    everywhere = pd.Series(data=True, index=data.index)
    pairs = zip(data["kind"].astype(str), data["dtype"].astype(str), strict=True)
    engines = pd.Series([default_engine(kind, dtype) for kind, dtype in pairs], data.index, dtype=object)
    filling.fill("op", everywhere, data["kind"], "the kind")
    filling.fill("engine", everywhere, engines, "what the frameworks use for the kind and dtype")
    filling.fill("pass_name", everywhere, "forward", "forward")
    filling.fill("count", everywhere, 1.0, "1")
    return filling.data, (*notes, *filling.notes)
