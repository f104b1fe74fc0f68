"""The sizes of an op as a short text, different for different sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fomkit.schema import KIND_DIMENSIONS, OPTIONAL_DIMENSIONS

Row = Mapping[str, Any]


def _known(value: object) -> bool:
    return value is not None and value == value and value != ""


def _flags(row: Row, names: Mapping[str, str]) -> str:
    return "".join(f" {word}" for name, word in names.items() if row.get(name) == 1)


def _gemm(row: Row) -> str:
    batched = f"{row['b']:.0f}·" if row["b"] != 1 else ""
    dense = f" {row['density']:.0%} dense" if _known(row.get("density")) else ""
    stored = _flags(row, {"trans_a": "Aᵀ", "trans_b": "Bᵀ"})
    return f"{batched}{row['m']:.0f}×{row['n']:.0f}×{row['k']:.0f}{stored}{dense}"


def _axes(row: Row, stem: str, names: tuple[str, ...], usual: float | None = None) -> str:
    sizes = [row[name] for name in names]
    if usual is not None and all(size == usual for size in sizes):
        return ""
    same = stem and len(set(sizes)) == 1
    return f" {stem}" + (f"{sizes[0]:.0f}" if same else "×".join(f"{size:.0f}" for size in sizes))


def _conv(row: Row) -> str:
    solid = row["depth"] != 1 or row["kernel_d"] != 1
    axes = ("_d", "_h", "_w") if solid else ("_h", "_w")
    sizes = ("depth", "height", "width") if solid else ("height", "width")
    text = f"{row['batch']:.0f}× {row['in_channels']:.0f}→{row['out_channels']:.0f}"
    text += _axes(row, "", sizes) + _axes(row, "k", tuple(f"kernel{axis}" for axis in axes))
    for stem, name, usual in (("s", "stride", 1.0), ("p", "pad", 0.0), ("d", "dilation", 1.0)):
        text += _axes(row, stem, tuple(f"{name}{axis}" for axis in axes), usual)
    groups = f" g{row['groups']:.0f}" if row["groups"] != 1 else ""
    layout = f" {row['layout']}" if row.get("layout") not in ("", "nchw", None) else ""
    return f"{text}{groups}{layout}{_flags(row, {'transposed': 'transposed'})}"


def _attention(row: Row) -> str:
    shared = f" ({row['kv_heads']:.0f} of keys)" if row["kv_heads"] != row["heads"] else ""
    sizes = f"{row['batch']:.0f}× {row['heads']:.0f} heads{shared} q{row['q_len']:.0f} kv{row['kv_len']:.0f}"
    return f"{sizes} d{row['head_dim']:g}{_flags(row, {'causal': 'causal'})}"


def _rnn(row: Row) -> str:
    stacked = f", {row['layers']:.0f} layers" if row["layers"] != 1 else ""
    ways = ", both ways" if row["directions"] == 2 else ""
    width = f"{row['input_size']:.0f}→{row['hidden_size']:.0f}"
    return f"{row['cell']} {row['batch']:.0f}× {row['steps']:.0f} steps {width}{stacked}{ways}"


def _any(row: Row) -> str:
    kind = str(row["kind"])
    names = (*KIND_DIMENSIONS[kind], *OPTIONAL_DIMENSIONS.get(kind, ()))
    sizes = {name: row[name] for name in names if name in row and _known(row[name])}
    words = (f"{name} {size:.12g}" if isinstance(size, float) else str(size) for name, size in sizes.items())
    return " ".join(words) or "no sizes"


_WRITERS: Mapping[str, Callable[[Row], str]] = {
    "gemm": _gemm, "sparse_gemm": _gemm, "conv": _conv, "attention": _attention, "rnn": _rnn,
}  # fmt: skip


def shape_label(row: Row) -> str:
    """Write kind and sizes of an op; axes and flags that are as usual are left out.

    Examples
    --------
    >>> shape_label({"kind": "gemm", "b": 1.0, "m": 100.0, "n": 1000.0, "k": 29532.0, "trans_b": 1.0})
    'gemm 100×1000×29532 Bᵀ'
    """
    return f"{row['kind']} {_WRITERS.get(str(row['kind']), _any)(row)}"
