"""The work of a profile by formulas of the tests' own."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from fomkit.resize import resize_ops
from fomkit.workload import ModelProfile


def numbers(profile: ModelProfile, table: str = "ops", batch: int | None = None) -> pd.DataFrame:
    """Give the rows of a profile with numbers for all sizes."""
    sizes = {"batch": batch} if batch else profile.sizes
    return resize_ops(getattr(profile, table), sizes, profile.name)


def _positions(row: Any, axis: str, length: str) -> float:
    reach = row[f"dilation_{axis}"] * (row[f"kernel_{axis}"] - 1) + 1
    if row["transposed"]:
        return float(row[length])
    return float((row[length] + 2 * row[f"pad_{axis}"] - reach) // row[f"stride_{axis}"] + 1)


def row_flop(row: Any) -> float:
    """Work of one execution: matrix products, convolutions, recurrent layers and attention; the rest is 0."""
    twice = 2.0 if row["pass_name"] == "backward" else 1.0
    if row["kind"] == "gemm":
        return 2.0 * row["b"] * row["m"] * row["n"] * row["k"]
    if row["kind"] == "conv":
        places = math.prod(_positions(row, a, s) for a, s in zip("dhw", ("depth", "height", "width"), strict=True))
        kernel = row["kernel_d"] * row["kernel_h"] * row["kernel_w"]
        return 2.0 * row["batch"] * row["in_channels"] * row["out_channels"] / row["groups"] * kernel * places
    if row["kind"] == "attention":
        square = row["batch"] * row["heads"] * row["q_len"] * row["kv_len"] * row["head_dim"]
        return 4.0 * square * twice
    if row["kind"] == "rnn":
        gates = {"lstm": 4, "gru": 3, "vanilla": 1}[row["cell"]]
        above = row["hidden_size"] * row["directions"]
        inputs = row["input_size"] + (row["layers"] - 1) * above
        weights = gates * row["hidden_size"] * row["directions"] * (inputs + row["layers"] * row["hidden_size"])
        return 2.0 * row["batch"] * row["steps"] * weights * twice
    return 0.0


def flop(rows: pd.DataFrame, *passes: str, kind: str | None = None) -> float:
    """Add up the work of some passes; "backward" alone takes its two gradients in."""
    wanted = rows if kind is None else rows[rows["kind"] == kind]
    wanted = wanted[[any(str(name).startswith(one) for one in passes) for name in wanted["pass_name"]]]
    return math.fsum(row_flop(row) * row["count"] for _, row in wanted.iterrows())
