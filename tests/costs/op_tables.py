"""Builders of OPS tables for the tests of this room."""

from __future__ import annotations

import pandas as pd
from hypothesis import strategies as st

BASE = {"op": "op", "dtype": "fp32", "engine": "vector", "pass_name": "forward", "count": 1.0}
CONV = dict.fromkeys(("depth", "kernel_d", "stride_d", "dilation_d", "dilation_h", "dilation_w"), 1.0)
CONV |= {"stride_h": 1.0, "stride_w": 1.0, "pad_d": 0.0, "pad_h": 0.0, "pad_w": 0.0, "groups": 1.0}


def gemm(m: float, n: float, k: float, b: float = 1.0, **more: object) -> dict[str, object]:
    return {**BASE, "kind": "gemm", "b": float(b), "m": float(m), "n": float(n), "k": float(k), **more}


def conv(
    batch: float, channels: tuple[float, float], size: float, kernel: float, **more: object
) -> dict[str, object]:
    row = {**BASE, **CONV, "kind": "conv", "batch": batch, "height": size, "width": size}
    row |= {"in_channels": channels[0], "out_channels": channels[1], "kernel_h": kernel, "kernel_w": kernel}
    return {**row, **more}


def traffic(kind: str, numel: float, **more: object) -> dict[str, object]:
    return {
        **BASE,
        "kind": kind,
        "numel": numel,
        "row": 1.0,
        "read_byte": 8 * numel,
        "write_byte": 4 * numel,
    } | more


def rnn(cell: str, batch: float, steps: float, hidden: float, **more: object) -> dict[str, object]:
    sizes = {"batch": batch, "steps": steps, "hidden_size": hidden, "input_size": 0.0}
    return {**BASE, "kind": "rnn", "cell": cell, "layers": 1.0, "directions": 1.0, **sizes, **more}


def attention(batch: float, heads: float, length: float, head_dim: float, **more: object) -> dict[str, object]:
    sizes = {"batch": batch, "heads": heads, "kv_heads": heads, "q_len": length, "kv_len": length}
    return {**BASE, "kind": "attention", "head_dim": head_dim, "causal": 1.0, **sizes, **more}


def optimizer(rule: str, impl: str, numel: float, tensors: float) -> dict[str, object]:
    row = {**BASE, "kind": "optimizer", "rule": rule, "impl": impl, "numel": numel, "tensors": tensors}
    return {**row, "pass_name": "update"}


def table(*rows: dict[str, object]) -> pd.DataFrame:
    ops = pd.DataFrame(list(rows))
    numbers = ops.select_dtypes("number").columns
    return ops.astype(dict.fromkeys(numbers, float))


_size = st.integers(1, 2**17).map(float)
_small = st.integers(1, 9).map(float)
rows = st.one_of(
    st.builds(gemm, _size, _size, _size, _size),
    st.builds(conv, _small, st.tuples(_size, _size), st.integers(9, 300).map(float), _small),
    st.builds(traffic, st.sampled_from(["pointwise", "norm", "softmax", "copy", "other", "input"]), _size),
    st.builds(rnn, st.sampled_from(["vanilla", "lstm", "gru", "mgu"]), _small, _small, _size),
    st.builds(attention, _small, _small, _size, _size),
    st.builds(optimizer, st.sampled_from(["adam", "lion"]), st.sampled_from(["fused", "foreach"]), _size, _small),
)
tables = st.lists(rows, min_size=1, max_size=8).map(lambda chosen: table(*chosen))
