"""What NeuSight's words for kernels mean as columns of TIMINGS.

What ran was read in ``neusight/Dataset/collect.py`` of that project: ``linear`` is nn.Linear with bias, ``ln``
nn.LayerNorm with gain and bias, ``addu`` and its like take one tensor and a scalar, ``conv`` is nn.Conv2d
without bias, cuDNN choosing by trial. Products are B × (M×N)·(N×K): the reduction is N.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fomkit.dtypes import ITEM_BYTE

if TYPE_CHECKING:
    import pandas as pd

ITEM = ITEM_BYTE["fp32"]
PRODUCTS = ("linear", "bmm")
SIZES = ("B", "M", "N", "K", "H", "Cin", "Cout", "ks", "HW", "stride", "pad")


class Traffic(NamedTuple):
    """An op that is decided by its traffic: its kind, PyTorch's name, and the tensors of full size it reads."""

    kind: str
    op: str
    inputs: int


TRAFFIC: Mapping[str, Traffic] = {
    **{word: Traffic("pointwise", f"aten::{word}", 2) for word in ("add", "mul", "div", "pow")},
    **{f"{word}u": Traffic("pointwise", f"aten::{word}", 1) for word in ("add", "mul", "div", "pow")},
    **{word: Traffic("pointwise", f"aten::{word}", 1) for word in ("relu", "gelu", "tanh")},
    "softmax": Traffic("softmax", "aten::_softmax", 1),
    "ln": Traffic("norm", "aten::native_layer_norm", 1),
}
KINDS: Mapping[str, str] = {
    **dict.fromkeys(PRODUCTS, "gemm"), "conv": "conv", **{word: one.kind for word, one in TRAFFIC.items()},
}  # fmt: skip
"""Their words and our kinds."""
NEEDED: Mapping[str, tuple[str, ...]] = {
    "gemm": ("B", "M", "N", "K"), "conv": ("B", "Cin", "Cout", "ks", "HW", "stride"),
    **dict.fromkeys(("pointwise", "softmax", "norm"), ("B", "H")),
}  # fmt: skip
"""The sizes that a kind must state."""


def _moved(rows: pd.DataFrame) -> tuple[pd.Series[float], pd.Series[float]]:
    """Give bytes read and written; a norm reads gain and bias too, and keeps a mean and a deviation per row."""
    numel = rows["B"] * rows["H"]
    norm = rows["op"] == "ln"
    inputs = rows["op"].map({word: one.inputs for word, one in TRAFFIC.items()})
    return ITEM * (numel * inputs + 2 * rows["H"].where(norm, 0.0)), ITEM * (
        numel + 2 * rows["B"].where(norm, 0.0)
    )


def work_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Give what tells the harness: ``op``, ``seconds``, ``work``, and ``byte`` where traffic decides the time."""
    read, written = _moved(rows)
    byte = read + written
    used = [name for name in SIZES if name not in ("stride", "pad")]
    products = np.prod(rows[used].fillna(1.0).to_numpy(), axis=1)
    work = np.where(byte.notna(), byte, products * rows[["HW", "ks"]].fillna(1.0).prod(axis=1))
    return rows[["op"]].assign(seconds=rows["latency_ms"] / 1e3, work=work, byte=byte)


def product_columns(rows: pd.DataFrame, engine: str) -> dict[str, object]:
    """Give the columns of matrix products."""
    sizes = {"b": rows["B"], "m": rows["M"], "n": rows["K"], "k": rows["N"]}
    stored = {"trans_a": 0.0, "trans_b": (rows["op"] == "linear").astype("float64")}
    return {"kind": "gemm", "engine": engine, **sizes, **stored, "note": "timed as " + rows["op"]}


def conv_columns(rows: pd.DataFrame) -> dict[str, object]:
    """Give the columns of convolutions, all of them square and flat."""
    pairs = (("kernel", "ks"), ("stride", "stride"), ("pad", "pad"))
    square = {f"{name}_{axis}": rows[column] for name, column in pairs for axis in ("h", "w")}
    depth = {"depth": 1.0, "kernel_d": 1.0, "stride_d": 1.0, "pad_d": 0.0}
    plain = {"dilation_d": 1.0, "dilation_h": 1.0, "dilation_w": 1.0, "groups": 1.0, "transposed": 0.0}
    sizes = {"batch": rows["B"], "in_channels": rows["Cin"], "out_channels": rows["Cout"]}
    image = {"height": rows["HW"], "width": rows["HW"], "layout": "nchw"}
    return {
        "kind": "conv",
        "engine": "vector",
        "pass_name": "forward",
        **sizes,
        **image,
        **square,
        **depth,
        **plain,
    }


def traffic_columns(rows: pd.DataFrame) -> dict[str, object]:
    """Give the columns of element-wise ops, norms and softmax, each the timing of its own op."""
    read, written = _moved(rows)
    inputs = rows["op"].map({word: one.inputs + 2.0 * (word == "ln") for word, one in TRAFFIC.items()})
    return {
        "kind": rows["op"].map(KINDS),
        "op": rows["op"].map({word: one.op for word, one in TRAFFIC.items()}),
        "engine": "vector",
        "pass_name": "forward",
        "numel": rows["B"] * rows["H"],
        "row": rows["H"],
        "inputs": inputs,
        "read_byte": read,
        "write_byte": written,
    }
