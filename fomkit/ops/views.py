"""Views of a step: trees of its modules and of the user's code lines, executions in order, layers by type.

In a tree each row belongs to its own place and to every place above it. Layers are counted with multiply-adds,
parameters and bytes, as in the tables of classic networks. A layer counts if it also changes its input at
inference: dropout and flattening do not. Batch normalisation counts as two layers, one that normalises and one
that scales, as in Caffe.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fomkit.ops.kinds import PRODUCT_KINDS, of_role
from fomkit.ops.tables import PASSES, split_code_lines

Matrix = NDArray[np.float64]

BELOW = " > "
"""Separator in a place in the code: file, function, line."""
INSIDE = "/"
"""Separator in a scope."""
BESIDE = "not the device"
"""The part of a step that runs while the device computes; it counts only if it takes longer."""


def scope_labels(ops: pd.DataFrame) -> list[str]:
    """Return the scope of each row: its module's path and the op's name, as graphs write name scopes.

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


def _line_shares(cell: str, count: float) -> list[tuple[str, float]]:
    """Return each line of code that runs a row, as a place, and the executions of the row that it runs."""
    lines = split_code_lines(cell)
    listed = sum(line.times or 0 for line in lines)
    scale = count / listed if listed > count else 1.0
    open_ones = sum(line.times is None for line in lines)
    left = max(count - listed * scale, 0.0)
    shares = []
    for line in lines:
        number = "" if line.line is None else f"line {line.line}"
        parts = (part.replace(BELOW, " ") for part in (line.file, line.function, number))
        own = left / open_ones if line.times is None else line.times * scale
        shares.append((BELOW.join(filter(None, parts)), own))
    return shares if shares and (open_ones or not left) else [*shares, ("", left)]


def has_lines(ops: pd.DataFrame) -> bool:
    """Return whether any op has a line of code."""
    return "code_line" in ops.columns and bool((ops["code_line"].astype("object").fillna("") != "").any())


def split_by_line(ops: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each line of code that runs an op, with the executions of each.

    Where a row's cell does not state how often each of its lines runs, they share its executions equally.

    `ops`: with count and code_line. Returns the same columns; ``code_line`` is a place, file > function > line, ""
    if unknown. The counts of the rows of one op add up to its own.

    >>> rows = pd.DataFrame({"op": ["relu"], "count": [3.0], "code_line": ["net.py:4 f ×2; net.py:9 f ×1"]})
    >>> split_by_line(rows)[["code_line", "count"]].values.tolist()
    [['net.py > f > line 4', 2.0], ['net.py > f > line 9', 1.0]]
    """
    cells = ops["code_line"].astype("object").fillna("").astype("str") if has_lines(ops) else [""] * len(ops)
    shares = [_line_shares(cell, count) for cell, count in zip(cells, ops["count"].tolist(), strict=True)]
    rows = np.repeat(np.arange(len(ops)), [len(row) for row in shares])
    places, counts = zip(*(share for row in shares for share in row), strict=True) if shares else ((), ())
    return ops.iloc[rows].assign(code_line=list(places), count=list(counts)).reset_index(drop=True)


SEPARATORS: Mapping[str, str] = {"module": ".", "pass": "_", "scope": INSIDE, "code": BELOW}
"""Groupings whose names are paths, and the separator of each."""


class Place(NamedTuple):
    """One place of a tree: its path, its depth, and the labels of its own rows and of all rows in it."""

    path: str
    depth: int
    own: frozenset[str]
    inclusive: frozenset[str]


def tree_labels(labels: Iterable[str], separator: str, depth: int | None = None) -> Iterator[Place]:
    """Yield the places of a tree, each before those below it, in order of first appearance.

    `labels`: paths of rows; "" is the root, which is a place only if rows belong to it; `depth`: deepest level
    shown; rows below it count for their ancestor.

    >>> for place in tree_labels(["a.x", "b", "a.y.z"], ".", 2):
    ...     print(place.path, place.depth, sorted(place.own), sorted(place.inclusive))
    a 0 [] ['a.x', 'a.y.z']
    a.x 1 ['a.x'] ['a.x']
    a.y 1 ['a.y.z'] ['a.y.z']
    b 0 ['b'] ['b']
    """
    own: dict[str, set[str]] = {}
    inclusive: dict[str, set[str]] = {}
    children: dict[str, list[str]] = {"": []}
    for label in dict.fromkeys(labels):
        parts = label.split(separator)[:depth] if label else []
        own.setdefault(separator.join(parts), set()).add(label)
        above = ""
        for level in range(1, len(parts) + 1):
            place = separator.join(parts[:level])
            if place not in inclusive:
                children.setdefault(above, []).append(place)
            inclusive.setdefault(place, set()).add(label)
            above = place
    if "" in own:
        yield Place("", 0, frozenset(own[""]), frozenset(own[""]))
    waiting = [(place, 0) for place in reversed(children[""])]
    while waiting:
        place, level = waiting.pop()
        yield Place(place, level, frozenset(own.get(place, ())), frozenset(inclusive[place]))
        waiting += [(child, level + 1) for child in reversed(children.get(place, []))]


class Execution(NamedTuple):
    """One execution of an op, or several that cannot be distinguished.

    `last_id`: the last id of the order that belongs to it; None if the order does not contain it.
    """

    row: int
    times: float
    last_id: int | None


def _runs(order: pd.DataFrame) -> Iterator[tuple[int, list[int]]]:
    """Yield the rows in their order, with the ids of each uninterrupted sequence."""
    lines = order[(order["id"] > 0) & order["row"].notna()].drop_duplicates("id").sort_values("id", kind="stable")
    pairs = zip(lines["row"].astype(int), lines["id"].astype(int), strict=True)
    for row, group in groupby(pairs, key=lambda pair: pair[0]):
        yield row, [number for _, number in group]


def executions(counts: Sequence[float], order: pd.DataFrame | None) -> list[Execution]:
    """Return the executions of a step in order.

    An op that allocates several pieces of memory may have several ids for one execution; an uninterrupted sequence
    of ids is then one. If there are fewer ids than executions, each represents an equal share.

    `counts`: executions of each row of the op table. `order`: an ORDER table; None if it was not recorded. Rows
    that it does not contain come last, in their own order. The times of the executions of a row add up to its
    count.

    >>> order = pd.DataFrame({"id": [0, 1, 2, 3], "row": [None, 0, 1, 0]})
    >>> [(one.row, one.times) for one in executions([2.0, 1.0, 5.0], order)]
    [(0, 1.0), (1, 1.0), (0, 1.0), (2, 5.0)]
    """
    runs = [] if order is None else list(_runs(order))
    ids = Counter[int]()
    for row, numbers in runs:
        ids[row] += len(numbers)
    apart = {row for row, number in ids.items() if number == counts[row]}
    times = Counter(row for row, _ in runs)
    found = []
    for row, numbers in runs:
        if row in apart:
            found += [Execution(row, 1.0, number) for number in numbers]
        else:
            found.append(Execution(row, counts[row] / times[row], numbers[-1]))
    left = (row for row, count in enumerate(counts) if row not in times and count)
    return found + [Execution(row, counts[row], None) for row in left]


WINDOW_KINDS = ("pool", "reduction")
"""Kinds with one operation per element of a window."""

TYPE_COLUMNS = (
    "layers", "multiply_adds", "other_operations", "parameters", "parameter_byte", "output_byte", "im2col_byte",
)  # fmt: skip


class Census(NamedTuple):
    """The layers of one forward pass.

    `types`: one row per type of layer, in order of first appearance, with `TYPE_COLUMNS`: layers that count; their
      multiply-adds; their other operations (an addition per output for a bias, an operation per element of a
      pooling's or local normalisation's window, else one per output); parameters and their bytes; bytes of their
      outputs; bytes of the matrices that convolutions as plain products would gather (im2col).
    `copy_byte`: bytes of a copy per reader of each result that several layers read, as in Caffe's split layers.
    `in_place_byte`: bytes of outputs that replace an input, contained in ``types``.
    `largest_im2col_byte`: the largest of these matrices; a single workspace of this size is enough.
    `idle`: types that do not count, with their number.
    `elsewhere_flop`: arithmetic of the forward pass outside all layers, such as the loss [flop].
    """

    types: pd.DataFrame
    input_byte: float
    copy_byte: float
    in_place_byte: float
    largest_im2col_byte: float
    idle: tuple[str, ...]
    elsewhere_flop: float


def _place_of_ops(ops: pd.DataFrame, layers: pd.DataFrame) -> pd.Series[int]:
    """Return the position of each op's layer: the function of its name in its module, else the module, else -1."""
    functions = {(row.module, row.op): place for place, row in enumerate(layers.itertuples()) if row.op}
    modules = {row.module: place for place, row in enumerate(layers.itertuples()) if not row.op}
    inside = ops["module"] if "module" in ops.columns else pd.Series("", ops.index)
    keys = zip(inside.astype("str").fillna(""), ops["op"], strict=True)
    places = [functions.get(key, modules.get(key[0], -1)) for key in keys]
    return pd.Series(places, ops.index, dtype="int64")


def _sums_by_place(amounts: pd.Series, places: pd.Series[int], count: int) -> Matrix:
    return np.bincount(places, weights=amounts.to_numpy(np.float64), minlength=count).astype(np.float64)


def _work(layers: pd.DataFrame, forward: pd.DataFrame) -> dict[str, Matrix]:
    """Return each layer's multiply-adds, other operations and gathered bytes; rows of one module are one layer."""
    count = len(layers)
    products, windows = forward["kind"].isin(PRODUCT_KINDS), forward["kind"].isin(WINDOW_KINDS)
    flop = forward["flop"] * forward["count"]
    multiply_adds = _sums_by_place(flop[products] / 2, forward["_layer"][products], count)
    in_windows = np.zeros(count)
    if windows.any():
        elements = (forward["numel"] * forward["count"])[windows]
        in_windows = _sums_by_place(elements, forward["_layer"][windows], count)
    working = ~forward["kind"].isin(of_role("moves"))
    works = _sums_by_place(forward["count"][working], forward["_layer"][working], count) > 0
    outputs = (layers["output_numel"] * layers["count"]).to_numpy(np.float64)
    biased = np.where(layers["bias"] > 0, outputs, 0.0)
    plain = np.where(in_windows > 0, in_windows, np.where(works, outputs, 0.0))
    gathered = _sums_by_place(forward["_gathered"] * forward["count"], forward["_layer"], count)
    others = np.where(multiply_adds > 0, biased, plain)
    return {"multiply_adds": multiply_adds, "other_operations": others, "im2col_byte": gathered}


def _with_scales(layers: pd.DataFrame) -> pd.DataFrame:
    """Split batch normalisation into normalising and scaling; the latter has the parameters and the readers."""
    halves = layers[(layers["layer"] == "batch_norm") & (layers["bias"] > 0)]
    scales = halves.assign(layer="scale", in_place=0.0, readers=1.0)
    layers = layers.copy()
    layers.loc[scales.index, ["parameters", "parameter_byte"]] = 0.0
    return pd.concat([layers, scales]).sort_index(kind="stable")


def layer_census(layers: pd.DataFrame, ops: pd.DataFrame, gathered: pd.Series[float]) -> Census:
    """Count the layers of one forward pass by type.

    `layers`: a LAYERS table whose sizes are numbers; `ops`: the COSTED table of the same step; `gathered`: bytes
    that each op would gather as a plain product (im2col), by its index; 0 for all others.
    """
    layers = layers.reset_index(drop=True)
    forward = ops[ops["pass_name"] == PASSES[0]].assign(_gathered=gathered)
    forward = forward.assign(_layer=_place_of_ops(forward, layers))
    outside = forward["_layer"] < 0
    elsewhere = float((forward["flop"] * forward["count"])[outside].sum())
    forward = forward[~outside]
    layers = layers.assign(**_work(layers, forward))
    data = layers[layers["acts"] == "input"]
    acting = _with_scales(layers[layers["acts"] == "always"])
    calls = acting["count"]
    types = acting.assign(layers=calls, output_byte=acting["output_byte"] * calls)
    read = layers[layers["acts"].isin(("always", "input")) & (layers["readers"] > 1)]
    idle = layers[~layers["acts"].isin(("always", "input"))].groupby("layer", sort=False)["count"].sum()
    return Census(
        types=types.groupby("layer", sort=False)[list(TYPE_COLUMNS)].sum(),
        input_byte=float(data["output_byte"].sum()),
        copy_byte=float((read["output_byte"] * read["readers"] * read["count"]).sum()),
        in_place_byte=float((acting["output_byte"] * calls)[acting["in_place"] == 1].sum()),
        largest_im2col_byte=float(layers["im2col_byte"].max()),
        idle=tuple(f"{name} {number:g}" for name, number in idle.items()),
        elsewhere_flop=elsewhere,
    )
