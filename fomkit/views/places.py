"""Where ops stand, as paths of a tree: modules with the ops in them, and the lines of the user's code."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from fomkit.schema import split_code_lines

BELOW = " > "
"""Stands between the parts of a place in the code: file, function, line."""
INSIDE = "/"
"""Stands between the parts of a scope."""


def scope_labels(ops: pd.DataFrame) -> list[str]:
    """Give the scope of each row: its module's path with the op's name below, as graphs write name scopes.

    Examples
    --------
    >>> scope_labels(pd.DataFrame({"op": ["aten::mm", "AdamW.step"], "module": ["blocks.0.project", None]}))
    ['blocks/0/project/aten::mm', 'AdamW.step']
    """
    names = ops["op"].astype("str").str.replace(INSIDE, "∕")
    if "module" not in ops.columns:
        return names.tolist()
    modules = ops["module"].astype("object").fillna("").astype("str").str.replace(INSIDE, "∕")
    return [
        INSIDE.join([*filter(None, module.split(".")), name]) for module, name in zip(modules, names, strict=True)
    ]


class _Share(NamedTuple):
    """The part of a row's executions that one line of code runs."""

    place: str
    times: float


def _shares(cell: str, count: float) -> list[_Share]:
    lines = split_code_lines(cell)
    told = sum(line.times or 0 for line in lines)
    scale = count / told if told > count else 1.0
    open_ones = sum(line.times is None for line in lines)
    left = max(count - told * scale, 0.0)
    shares = []
    for line in lines:
        number = "" if line.line is None else f"line {line.line}"
        parts = (part.replace(BELOW, " ") for part in (line.file, line.function, number))
        own = left / open_ones if line.times is None else line.times * scale
        shares.append(_Share(BELOW.join(filter(None, parts)), own))
    return shares if shares and (open_ones or not left) else [*shares, _Share("", left)]


def has_lines(ops: pd.DataFrame) -> bool:
    """Tell whether any op has a line of code."""
    return "code_line" in ops.columns and bool((ops["code_line"].astype("object").fillna("") != "").any())


def split_by_line(ops: pd.DataFrame) -> pd.DataFrame:
    """Give one row for each line of code that runs an op, with the executions of each.

    Where a row's cell does not say how often each of its lines runs, they share its executions equally.

    Parameters
    ----------
    ops : DataFrame
        With count and code_line.

    Returns
    -------
    DataFrame
        With the same columns; ``code_line`` is a place, file > function > line, "" where nobody says. Counts of
        the rows of one op add up to its own.

    Examples
    --------
    >>> rows = pd.DataFrame({"op": ["relu"], "count": [3.0], "code_line": ["net.py:4 f ×2; net.py:9 f ×1"]})
    >>> split_by_line(rows)[["code_line", "count"]].values.tolist()
    [['net.py > f > line 4', 2.0], ['net.py > f > line 9', 1.0]]
    """
    cells = ops["code_line"].astype("object").fillna("").astype("str") if has_lines(ops) else [""] * len(ops)
    shares = [_shares(cell, count) for cell, count in zip(cells, ops["count"].tolist(), strict=True)]
    rows = np.repeat(np.arange(len(ops)), [len(row) for row in shares])
    flat = [share for row in shares for share in row]
    return (
        ops.iloc[rows]
        .assign(code_line=[share.place for share in flat], count=[share.times for share in flat])
        .reset_index(drop=True)
    )
