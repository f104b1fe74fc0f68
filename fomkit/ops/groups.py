"""Group and sum the rows of an op table; work without a figure is counted separately, never as 0."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fomkit.core.errors import FomkitError
from fomkit.ops.kinds import KINDS
from fomkit.ops.tables import DIMENSIONS
from fomkit.ops.views import scope_labels

Array = NDArray[np.float64]


class Cut(NamedTuple):
    """The fewest groups that reach a share of a measure, the largest first, and the share that they reach."""

    groups: tuple[str, ...]
    reached: float


def fewest(amounts: Mapping[str, float], share: float) -> Cut:
    """Return the fewest groups that together reach a share of the total.

    `amounts`: amount of each group, 0 or more; groups with an unknown amount (NaN) are ignored; `share`: above 0
    and at most 1.

    >>> fewest({"Add": 22.0, "MatMul": 115.0, "Fill": 1.0}, 0.95)
    Cut(groups=('MatMul', 'Add'), reached=0.9927536231884058)
    """
    if not 0 < share <= 1:
        raise FomkitError(
            "--top", f"{share:g} ({share:.0%}) is not a share of a total. Give more than 0% and at most 100%."
        )
    known = sorted(
        ((name, amount) for name, amount in amounts.items() if not math.isnan(amount)),
        key=lambda entry: entry[1],
        reverse=True,
    )
    total = math.fsum(amount for _, amount in known)
    if total <= 0:
        raise FomkitError("--top", "no op has a value of this measure. Choose another with --measure.")
    so_far = list(accumulate(amount for _, amount in known))
    # 1e-12: rounding errors of a float sum.
    needed = next(place for place, reached in enumerate(so_far, start=1) if reached >= share * total * (1 - 1e-12))
    return Cut(tuple(name for name, _ in known[:needed]), so_far[needed - 1] / total)


Row = Mapping[str, Any]


def row_dicts(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table, each as a dictionary by column name."""
    return cast("list[dict[str, Any]]", table.to_dict("records"))


def is_known(value: object) -> bool:
    """Whether a cell of a table states something: not None, NaN or empty."""
    return value is not None and value == value and value != ""


def _flags(row: Row, names: Mapping[str, str]) -> str:
    return "".join(f" {word}" for name, word in names.items() if row.get(name) == 1)


def _gemm_text(row: Row) -> str:
    batched = f"{row['b']:.0f}·" if row["b"] != 1 else ""
    dense = f" {row['density']:.0%} dense" if is_known(row.get("density")) else ""
    stored = _flags(row, {"trans_a": "Aᵀ", "trans_b": "Bᵀ"})
    return f"{batched}{row['m']:.0f}×{row['n']:.0f}×{row['k']:.0f}{stored}{dense}"


def _axes(row: Row, stem: str, names: tuple[str, ...], common: float | None = None) -> str:
    sizes = [row[name] for name in names]
    if common is not None and all(size == common for size in sizes):
        return ""
    same = stem and len(set(sizes)) == 1
    return f" {stem}" + (f"{sizes[0]:.0f}" if same else "×".join(f"{size:.0f}" for size in sizes))


def _conv(row: Row) -> str:
    solid = row["depth"] != 1 or row["kernel_d"] != 1
    axes = ("_d", "_h", "_w") if solid else ("_h", "_w")
    sizes = ("depth", "height", "width") if solid else ("height", "width")
    text = f"{row['batch']:.0f}× {row['in_channels']:.0f}→{row['out_channels']:.0f}"
    text += _axes(row, "", sizes) + _axes(row, "k", tuple(f"kernel{axis}" for axis in axes))
    for stem, name, common in (("s", "stride", 1.0), ("p", "pad", 0.0), ("d", "dilation", 1.0)):
        text += _axes(row, stem, tuple(f"{name}{axis}" for axis in axes), common)
    groups = f" g{row['groups']:.0f}" if row["groups"] != 1 else ""
    layout = f" {row['layout']}" if row.get("layout") not in ("", "nchw", None) else ""
    return f"{text}{groups}{layout}{_flags(row, {'transposed': 'transposed'})}"


def _attention_text(row: Row) -> str:
    shared = f" ({row['kv_heads']:.0f} of keys)" if row["kv_heads"] != row["heads"] else ""
    sizes = f"{row['batch']:.0f}× {row['heads']:.0f} heads{shared} q{row['q_len']:.0f} kv{row['kv_len']:.0f}"
    same = f" ({row['shared_dim']:g} shared)" if row.get("shared_dim", 0.0) > 0 else ""
    return f"{sizes} d{row['head_dim']:g}{same}{_flags(row, {'causal': 'causal'})}"


def _rnn_text(row: Row) -> str:
    stacked = f", {row['layers']:.0f} layers" if row["layers"] != 1 else ""
    ways = ", both ways" if row["directions"] == 2 else ""
    width = f"{row['input_size']:.0f}→{row['hidden_size']:.0f}"
    return f"{row['cell']} {row['batch']:.0f}× {row['steps']:.0f} steps {width}{stacked}{ways}"


_COUNTED = {"numel": "elements", "row": "a row", "read_byte": "B read", "write_byte": "B written",
            "message_byte": "B"}  # fmt: skip
"""Units of columns whose names do not say what they count."""


def _any(row: Row) -> str:
    names = KINDS[str(row["kind"])].columns
    sizes = {_COUNTED.get(name, name): row[name] for name in names if name in row and is_known(row[name])}
    words = (f"{size:,.12g} {of}" if isinstance(size, float) else str(size) for of, size in sizes.items())
    return ", ".join(words) or "no sizes"


_WRITERS: Mapping[str, Callable[[Row], str]] = {
    "gemm": _gemm_text, "sparse_gemm": _gemm_text, "conv": _conv, "attention": _attention_text, "rnn": _rnn_text,
}  # fmt: skip


def shape_label(row: Row) -> str:
    """Write kind and sizes of an op, without axes and flags that have the common value.

    >>> shape_label({"kind": "gemm", "b": 1.0, "m": 100.0, "n": 1000.0, "k": 29532.0, "trans_b": 1.0})
    'gemm 100×1000×29532 Bᵀ'
    """
    return f"{row['kind']} {_WRITERS.get(str(row['kind']), _any)(row)}"


Grouping = Literal["kind", "op", "shape", "module", "pass", "scope", "code"]
GROUPINGS: Mapping[Grouping, str] = {
    "kind": "kind of work",
    "op": "the framework's name of the op",
    "shape": "kind and sizes",
    "module": "module that ran the op",
    "pass": "forward, backward (both gradients) and update",
    "scope": "module that ran the op, and the op in it",
    "code": "file, function and line of the user's code",
}
"""The groupings of rows, with their meaning."""

MEASURES = ("flop", "byte", "time_s", "traced_time_s")
IDENTITY = ("op", "kind", "dtype", "engine", "pass_name", *(column.name for column in DIMENSIONS))


def _shapes(ops: pd.DataFrame) -> list[str]:
    formats = ops["dtype"].astype("str") + " " + ops["engine"].astype("str")
    common = formats.mode()
    # Most ops of a step share one format, which is left out of their labels.
    pairs = zip(map(shape_label, row_dicts(ops)), formats, strict=True)
    return [label if form == common.iloc[0] else f"{label}, {form}" for label, form in pairs]


def column_texts(table: pd.DataFrame, column: str) -> pd.Series[str]:
    """Return a text column, with "" for empty cells or an absent column."""
    if column not in table.columns:
        return pd.Series("", table.index, dtype="str")
    return table[column].astype("str").fillna("")


def group_labels(ops: pd.DataFrame, by: Grouping) -> pd.Series[str]:
    """Return the name of each row's group; by code, of a table that was split by line (`views.split_by_line`)."""
    if by == "shape":
        return pd.Series(_shapes(ops), ops.index, dtype="str")
    if by == "scope":
        return pd.Series(scope_labels(ops), ops.index, dtype="str")
    return column_texts(ops, {"pass": "pass_name", "code": "code_line"}.get(by, by))


@dataclass(frozen=True)
class Sums:
    """The work of some ops in one step.

    `count`: executions.
    `distinct`: ops that differ in name, sizes, number format, engine or pass.
    `flop`, `byte`, `time_s`, `traced_s`: sums of the known figures over executions [flop, byte, s, s]; NaN if none
      is known.
    `flop_missing`, `byte_missing`, `time_missing`, `traced_missing`: executions without a figure.
    `intensity`: arithmetic intensity [flop/byte] of the ops for which both are known.
    """

    count: float
    distinct: int
    flop: float
    byte: float
    time_s: float
    traced_s: float
    flop_missing: float
    byte_missing: float
    time_missing: float
    traced_missing: float
    intensity: float


def _intensity(flop: Array, byte: Array) -> float:
    both = ~(np.isnan(flop) | np.isnan(byte))
    moved = float(byte[both].sum())
    return float(flop[both].sum()) / moved if moved > 0 else np.nan


def identities(ops: pd.DataFrame) -> pd.Series[int]:
    """Return a number for each distinct op; ops differ in name, sizes, number format, engine or pass."""
    codes = np.zeros(len(ops), np.int64)
    for name in filter(ops.columns.__contains__, IDENTITY):
        codes = pd.factorize(codes * len(ops) + pd.factorize(ops[name].to_numpy(), use_na_sentinel=False)[0])[0]
    return pd.Series(codes, ops.index)


def add_up(ops: pd.DataFrame, distinct: pd.Series[int] | None = None) -> Sums:
    """Add up some rows of an op table.

    `ops`: with count, flop, byte, and time_s if there are times; `distinct`: `identities` of a table that contains
    these rows, computed once for many groups.

    >>> rows = pd.DataFrame({"op": ["mm", "?"], "count": [2.0, 3.0], "flop": [8.0, None], "byte": [4.0, 1.0]})
    >>> found = add_up(rows)
    >>> found.count, found.flop, found.flop_missing, found.byte, found.intensity
    (5.0, 16.0, 3.0, 11.0, 2.0)
    """
    count = ops["count"].to_numpy(np.float64)
    sums = dict[str, float]()
    amounts = {name: ops[name].to_numpy(np.float64) * count for name in MEASURES if name in ops.columns}
    for measure in MEASURES:
        values = amounts.get(measure, np.full(len(ops), np.nan))
        unknown = np.isnan(values)
        short = measure.replace("traced_time_s", "traced_s")
        sums[short] = np.nan if unknown.all() else float(values[~unknown].sum())
        sums[f"{short.removesuffix('_s')}_missing"] = float(count[unknown].sum())
    numbers = identities(ops) if distinct is None else distinct.loc[ops.index]
    intensity = _intensity(amounts["flop"], amounts["byte"])
    return Sums(float(count.sum()), int(numbers.nunique()), **sums, intensity=intensity)


def _size_text(value: Any) -> str:
    """Write a size; from a million on with all digits."""
    if not isinstance(value, float):
        return str(value)
    return f"{value:,.0f}" if value >= 1e6 else f"{value:g}"


def describe_sizes(row: Mapping[str, Any]) -> str:
    """Write the sizes of an op, without the axes that it does not have.

    >>> describe_sizes({"kind": "gemm", "b": 1.0, "m": 100.0, "n": 1000.0, "k": 29532.0})
    'b 1, m 100, n 1000, k 29532'
    >>> describe_sizes({"kind": "norm", "numel": 25690100.0, "row": 0.5})
    'numel 25,690,100, row 0.5'
    """
    sizes = {name: row[name] for name in KINDS[str(row["kind"])].dimensions if name in row}
    flat = sizes.get("depth") == 1 and sizes.get("kernel_d") == 1
    return ", ".join(
        f"{name} {_size_text(value)}"
        for name, value in sizes.items()
        if not (flat and (name == "depth" or name.endswith("_d"))) and not name.startswith("dilation")
    )
