"""Check tables at the entrance of each stage, and fill the defaults of foreign tables.

`check_table` raises errors that name the row. `fill_defaults` fills what a foreign table leaves out, and notes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import compress
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from fomkit.core.errors import FomkitError, ManyFomkitError, nearest_names
from fomkit.core.units import default_engine
from fomkit.ops.kinds import KINDS
from fomkit.ops.tables import HUGE, LAYERS, LINE, PRODUCT_LAYOUTS, TABLES, TINY, Column, column_names

if TYPE_CHECKING:
    import pandas as pd

    from fomkit.ops.columns import Flags, Matrix

_REQUIRED: Mapping[str, tuple[str, ...]] = {
    "OPS": ("op", "kind", "dtype", "engine", "pass_name", "count"),
    "COSTED": ("op", "kind", "dtype", "engine", "pass_name", "count", "flop", "byte", "launches", "least_flop"),
    "TIMED": ("op", "kind", "count", "pass_name", "flop", "byte", "time_s", "low_s", "high_s", "time_source"),
    "TIMINGS": ("kind", "dtype", "engine", "time_s"),
    "LAYERS": tuple(column.name for column in LAYERS),
    "ORDER": ("id", "role", "output_byte"),
    "MEASUREMENTS": ("model", "machine", "quantity", "value", "basis"),
    "EPOCHS": ("batch", "epochs", "metric", "target", "source"),
}
_NEVER_EMPTY: Mapping[str, tuple[str, ...]] = {
    "OPS": ("kind", "dtype", "engine", "pass_name", "count"),
    "COSTED": ("kind", "dtype", "engine", "pass_name", "count"),
    "TIMED": ("kind", "pass_name", "count"),
    "TIMINGS": ("kind", "dtype", "engine", "time_s"),
    "LAYERS": tuple(column.name for column in LAYERS if column.name not in ("module", "op")),
    "ORDER": ("id", "output_byte"),
    "MEASUREMENTS": _REQUIRED["MEASUREMENTS"],
    "EPOCHS": _REQUIRED["EPOCHS"],
}


def row_place(where: str, index: pd.Index, position: int) -> str:
    """Locate a row for an error message: by the line of the file if the index contains lines, else by its index.

    >>> import pandas as pd
    >>> row_place("ops.csv", pd.Index([2, 5], name="line"), 1), row_place("add_costs", pd.RangeIndex(2), 1)
    ('ops.csv:5', 'add_costs: row 1')
    """
    return f"{where}:{index[position]}" if index.name == LINE else f"{where}: row {index[position]}"


def _numbers(data: pd.DataFrame, table: str) -> tuple[list[Column], Matrix]:
    """Return the number columns and their cells (rows × columns), all at once: every stage checks its tables."""
    found, known = data.select_dtypes(np.floating), {column.name: column for column in TABLES[table]}
    columns = [known[name] for name in found.columns]
    kept = [column.dtype == "number" for column in columns]  # an empty text column may be of floats, too
    return [*compress(columns, kept)], found.to_numpy(np.float64)[:, kept]


def _kind_errors(data: pd.DataFrame, where: str, empty: Mapping[str, Flags]) -> Iterable[FomkitError]:
    """Report kinds and their dimensions; `empty`: which cells of the number columns are."""
    if "kind" not in data.columns:
        return
    cells, present = data["kind"].to_numpy(object), data["kind"].dropna().unique()
    for kind in sorted({str(kind) for kind in present} - {"", *KINDS}):
        place = row_place(where, data.index, int((cells == kind).argmax()))
        yield FomkitError(place, f"{kind!r} is not a kind of op. {nearest_names(kind, KINDS)}")
    for kind in filter(KINDS.__contains__, present):
        for name in KINDS[kind].dimensions:
            if name not in data.columns:
                yield FomkitError(where, f"the column {name!r} is missing, which kind {kind} needs. Add it.")
                continue
            is_empty = empty[name] if name in empty else data[name].isna().to_numpy()
            if (bad := (cells == kind) & is_empty).any():
                place = row_place(where, data.index, int(bad.argmax()))
                yield FomkitError(place, f"{name!r} is empty, which kind {kind} needs. Fill it.")


def _layout_errors(data: pd.DataFrame, where: str) -> Iterable[FomkitError]:
    """Report unknown storage orders of products: with these, m and n could be mistaken for each other."""
    import pandas as pd

    if "layout" not in data.columns or "kind" not in data.columns:
        return
    words = dict.fromkeys(data["layout"].tolist())
    strange = [word for word in words if not pd.isna(word) and word not in ("", *PRODUCT_LAYOUTS)]
    products = data["kind"].isin(["gemm", "sparse_gemm"]) if strange else None
    if products is not None and (wrong := np.asarray(products & data["layout"].isin(strange), bool)).any():
        position = int(wrong.argmax())
        place = row_place(where, data.index, position)
        expected = f"Expected {' or '.join(PRODUCT_LAYOUTS)} for a product; empty means row_major."
        yield FomkitError(place, f"layout is {data['layout'].iloc[position]!r}. {expected}")


def _missing_columns(data: pd.DataFrame, table: str, where: str) -> Iterable[FomkitError]:
    known = {column.name: column for column in TABLES[table]}
    for name in _REQUIRED[table]:
        if name not in data.columns:
            yield FomkitError(where, f"the column {name!r} is missing ({known[name].doc}). Add it.")


def check_columns(data: pd.DataFrame, table: str, where: str) -> None:
    """Raise ManyFomkitError unless ``data`` has the required columns of its table, whatever their content."""
    if errors := list(_missing_columns(data, table, where)):
        raise ManyFomkitError(errors)


def _column_errors(data: pd.DataFrame, table: str, where: str) -> Iterable[FomkitError]:
    known = {column.name: column for column in TABLES[table]}
    yield from _missing_columns(data, table, where)
    for name, dtype in zip(data.columns, data.dtypes, strict=True):
        if name not in known:
            yield FomkitError(where, f"{name!r} is not a column of this table. {nearest_names(str(name), known)}")
        elif known[str(name)].dtype == "number" and dtype.kind != "f":
            yield FomkitError(where, f"the column {name!r} must be float64, it is {dtype}.")


def _first_wrong_word(cells: list[str | None], column: Column, never_empty: bool) -> int | None:
    """Return the position of the first cell that the column does not allow."""
    import pandas as pd

    allowed, wrong = {"", *column.words}, set[str | None]()
    for cell in dict.fromkeys(cells):
        empty = not cell if isinstance(cell, str) else pd.isna(cell)
        if never_empty if empty else column.words and cell not in allowed:
            wrong.add(cell)
    return next(place for place, cell in enumerate(cells) if cell in wrong) if wrong else None


def _allowed(column: Column) -> str:
    if column.words:
        return f"one of {', '.join(column.words)}"
    if column.dtype == "text":
        return column.doc
    kind = "a whole number" if column.whole else "a finite number"
    if column.least == TINY:
        return f"{kind} above 0, between {TINY:g} and {HUGE:g}"
    return f"{kind} of {column.least:g} or more" + (f", at most {column.most:g}" if column.most < inf else "")


def _value_errors(
    data: pd.DataFrame, table: str, where: str, numbers: Sequence[Column], cells: Matrix
) -> Iterable[FomkitError]:
    finite = np.finfo(np.float64)  # its bounds exclude infinity; comparisons with an empty cell are false
    wrong = cells < np.maximum([column.least for column in numbers], finite.min)
    wrong |= cells > np.minimum([column.most for column in numbers], finite.max)
    wrong |= (np.floor(cells) < cells) & [column.whole for column in numbers]
    wrong |= np.isnan(cells) & [column.name in _NEVER_EMPTY[table] for column in numbers]
    first = {numbers[at].name: int(wrong[:, at].argmax()) for at in np.flatnonzero(wrong.any(axis=0)).tolist()}
    for column in TABLES[table]:
        if column.name not in data.columns:
            continue
        if column.dtype == "text":
            words = data[column.name].tolist()
            position = _first_wrong_word(words, column, column.name in _NEVER_EMPTY[table])
        else:
            position = first.get(column.name)
        if position is not None:
            cell = data[column.name].iloc[position]
            shown = repr(cell) if column.dtype == "text" else "empty" if cell != cell else f"{float(str(cell)):g}"
            place = row_place(where, data.index, position)
            yield FomkitError(place, f"{column.name} is {shown}. Expected {_allowed(column)}.")


_ROUNDED = 1e-6
"""Share of a time by which rounding may move it past a quartile."""


def check_quartiles(data: pd.DataFrame, where: str) -> None:
    """Raise where a file's timing is no median of its repeats: their quartiles lie on one side of it."""
    if {"time_s", "p25_s", "p75_s"} <= {*data.columns}:
        time_s, low, high = (data[name].to_numpy(float) for name in ("time_s", "p25_s", "p75_s"))
        rows = (low > time_s * (1 + _ROUNDED)) | (high < time_s * (1 - _ROUNDED))
        if rows.any():
            at = int(rows.nonzero()[0][0])
            found = f"time_s is {time_s[at]:g} and its quartiles are p25_s {low[at]:g} and p75_s {high[at]:g}"
            what = f"{found}. Expected p25_s ≤ time_s ≤ p75_s: the time is the median of the repeats."
            raise FomkitError(row_place(where, data.index, at), what)


def check_table(data: pd.DataFrame, table: str, where: str) -> None:
    """Raise ManyFomkitError unless ``data`` has the columns, types and dimensions of a table of `TABLES`."""
    errors = list(_column_errors(data, table, where))
    if not errors:
        numbers, cells = _numbers(data, table)
        empty = {column.name: one for column, one in zip(numbers, np.isnan(cells).T, strict=True)}
        values = _value_errors(data, table, where, numbers, cells)
        errors += [*_kind_errors(data, where, empty), *values, *_layout_errors(data, where)]
    if errors:
        raise ManyFomkitError(errors)


NUMBERS = frozenset(column_names("TIMED", "number"))
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
"""Default values of dimensions that only special cases of a kind have."""

Filled = tuple["pd.DataFrame", tuple[str, ...]]


class _Filling:
    """A table being filled, and the filled columns by default value and number of rows."""

    def __init__(self, data: pd.DataFrame) -> None:
        self.data, self._columns = data, dict[tuple[str, int], list[str]]()

    def fill(self, column: str, rows: pd.Series, values: object, meaning: str) -> None:
        """Put values into the empty cells of a column, or into a new column, where ``rows`` is true."""
        import pandas as pd

        cells = self.data.get(column, pd.Series(None, self.data.index, dtype=object)).astype(object)
        empty = rows & (cells.isna() | (cells == ""))
        if not empty.any():
            return
        filled = cells.mask(empty, values)
        if column not in NUMBERS:
            filled = filled.fillna("")
        elif not filled.map(lambda cell: isinstance(cell, str)).any():
            filled = filled.astype("float64")
        self.data = self.data.assign(**{column: filled})
        self._columns.setdefault((meaning, int(empty.sum())), []).append(column)

    @property
    def notes(self) -> tuple[str, ...]:
        """One line for each default value."""
        rows = len(self.data)
        return tuple(
            f"{', '.join(columns)}: not given in "
            f"{'any row' if count == rows else f'{count:,} of {rows:,} rows'}; taken as {meaning}."
            for (meaning, count), columns in self._columns.items()
        )


def fill_dimensions(data: pd.DataFrame) -> Filled:
    """Fill dimensions that only special cases have (one matrix, no groups, one layer); return a line for each."""
    filling = _Filling(data)
    for kind, plain in _PLAIN.items():
        for dimension, value in plain.items():
            filling.fill(dimension, data["kind"] == kind, value, f"{value:g} ({kind})")
    if "heads" in data.columns:
        filling.fill("kv_heads", data["kind"] == "attention", data["heads"], "heads (attention)")
    return filling.data, filling.notes


def fill_defaults(ops: pd.DataFrame, where: str = "fill_defaults") -> Filled:
    """Fill the defaults of a foreign op table.

    Defaults of absent columns or empty cells: ``op`` the kind, ``engine`` that of the frameworks for the kind and
    dtype, ``pass_name`` forward, ``count`` 1, and the dimensions of `fill_dimensions`. Other missing data stay
    missing.

    `ops`: with the columns ``kind`` and ``dtype``; `where`: file or stage, for the error message.

    Returns the filled table, new columns last, and a line for each default value that was used.

    >>> import pandas as pd
    >>> ops, said = fill_defaults(pd.DataFrame({"kind": ["gemm"], "dtype": ["fp16"], "b": [1.0]}))
    >>> ops.loc[0, ["op", "engine", "pass_name"]].tolist()
    ['gemm', 'matrix', 'forward']
    >>> said[-1]
    'count: not given in any row; taken as 1.'
    """
    import pandas as pd

    for name in ("kind", "dtype"):
        if name not in ops.columns:
            raise FomkitError(where, f"the required column {name!r} is missing. Add it.")
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
