"""From traced ops to the OPS table and the table of parts: equal executions become one row with a count."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from fomkit.schema import TABLES, join_lines
from fomkit.trace.calls import TracedOp, add_counts, add_lines

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]


def count_rows(ops: Iterable[TracedOp]) -> tuple[list[Row], list[Row]]:
    """Count equal executions.

    Returns
    -------
    tuple of two lists of dict
        Rows of the OPS table, one per distinct (op, dimensions, dtype, engine, pass, module), in order of first
        execution; and the parts of one execution of the rows that have any, with ``of``, the row's position.
    """
    counted: dict[Any, int] = {}
    rows: list[Row] = []
    parts: list[Row] = []
    lines: list[Mapping[str, int]] = []
    for op in ops:
        key = (op.identity, tuple(op.dimensions.items()))
        if key in counted:
            place = counted[key]
            rows[place]["count"] = add_counts(rows[place]["count"], op.count)
            lines[place] = add_lines(lines[place], op.lines)
            continue
        counted[key] = len(rows)
        rows.append(_row(op))
        lines.append(op.lines)
        inside, _ = count_rows(op.parts)
        parts += [{**part, "of": counted[key], "code_line": ""} for part in inside]  # it is that of their row
    for row, found in zip(rows, lines, strict=True):
        row["code_line"] = join_lines(found, row["count"])
    return rows, parts


def row_places(ops: Iterable[TracedOp]) -> list[int]:
    """Give for each execution its position among the rows of `count_rows`."""
    first: dict[object, int] = {}
    return [first.setdefault((op.identity, tuple(op.dimensions.items())), len(first)) for op in ops]


def _row(op: TracedOp) -> Row:
    place = {"pass_name": op.pass_name, "module": op.module, "count": op.count}
    return {"op": op.op, "kind": op.kind, "dtype": op.dtype, "engine": op.engine, **place, **op.dimensions}


def _column(values: list[Any], is_number: bool) -> pd.Series:
    import pandas as pd

    if not is_number:
        return pd.Series(["" if value is None else value for value in values], dtype=object)
    numbers = [value if isinstance(value, str) else float("nan" if value is None else value) for value in values]
    symbolic = any(isinstance(value, str) for value in numbers)
    return pd.Series(numbers, dtype=object if symbolic else "float64")


def make_table(rows: list[Row], extra: Mapping[str, bool] | None = None, table: str = "OPS") -> pd.DataFrame:
    """Make a DataFrame with a table's columns, before them those of ``extra`` (name to whether it is a number).

    Number columns are float64 with NaN where a kind has no such dimension, or objects where an expression occurs;
    text is "" there.
    """
    import pandas as pd

    columns = {**(extra or {}), **{column.name: column.dtype == "number" for column in TABLES[table]}}
    return pd.DataFrame(
        {name: _column([row.get(name) for row in rows], number) for name, number in columns.items()}
    )
