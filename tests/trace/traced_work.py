"""Compute the work of a profile by formulas independent of fomkit's."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pandas as pd

from fomkit.core.model import ModelProfile
from fomkit.ops.resize import resize_ops

OTHER_BATCH = 12
"""The batch at which products are counted; it differs from the traced one, so that expressions are tested, too."""
SIZES = {
    "conv": """batch in_channels out_channels depth height width kernel_d kernel_h kernel_w stride_d stride_h
        stride_w groups transposed""",
    "rnn": "cell batch steps input_size hidden_size layers directions",
    "attention": "batch heads kv_heads q_len kv_len head_dim causal",
}


def numbers(profile: ModelProfile, table: str = "ops", batch: int | None = None) -> pd.DataFrame:
    """Return the rows of a profile with numbers for all sizes."""
    sizes = {"batch": batch} if batch else profile.sizes
    return resize_ops(getattr(profile, table), sizes, profile.name)


def _positions(row: Any, axis: str, length: str) -> float:
    reach = row[f"dilation_{axis}"] * (row[f"kernel_{axis}"] - 1) + 1
    if row["transposed"]:
        return float(row[length])
    return float((row[length] + 2 * row[f"pad_{axis}"] - reach) // row[f"stride_{axis}"] + 1)


def row_flop(row: Any) -> float:
    """Return the work of one execution of products, convolutions, recurrent layers and attention; else 0."""
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
    """Sum the work of some passes; "backward" includes its two gradients."""
    wanted = rows if kind is None else rows[rows["kind"] == kind]
    wanted = wanted[[any(str(name).startswith(one) for one in passes) for name in wanted["pass_name"]]]
    return math.fsum(row_flop(row) * row["count"] for _, row in wanted.iterrows())


def _of_a_product(row: Any) -> tuple[Any, ...]:
    """Return the sizes of a product that do not depend on how a library calls it.

    Which factor of a product stands on the left is the library's affair. TensorFlow takes the weight gradient of a
    product on three axes sample by sample and adds these up, which is the same work as PyTorch's one product.
    """
    b, k = (1, row["b"] * row["k"]) if row["pass_name"] == "backward_weight" else (row["b"], row["k"])
    return "gemm", row["pass_name"], b, *sorted((row["m"], row["n"])), k


def products(profile: ModelProfile, *, written_out: tuple[str, ...] = ()) -> Counter[tuple[Any, ...]]:
    """Count products, convolutions and rows made of them by size; some kinds by the products that they contain."""
    found: Counter[tuple[Any, ...]] = Counter()
    parts = numbers(profile, "parts", OTHER_BATCH)
    for place, row in numbers(profile, batch=OTHER_BATCH).iterrows():
        if row["kind"] in written_out:
            for _, part in parts.query(f"of == {place} and kind == 'gemm'").iterrows():
                found[_of_a_product(part)] += row["count"] * part["count"]
        elif row["kind"] == "gemm":
            found[_of_a_product(row)] += row["count"]
        elif row["kind"] in SIZES:
            found[row["kind"], row["pass_name"], *row[SIZES[row["kind"]].split()]] += row["count"]
    return found


def convolutions(profile: ModelProfile) -> Counter[tuple[Any, ...]]:
    """Count products by size, convolutions by channels and work, as padding can be written in several ways."""
    found: Counter[tuple[Any, ...]] = Counter()
    for (kind, *sizes), count in products(profile).items():
        if kind != "conv":
            found[kind, *sizes] += count
    for _, row in numbers(profile, batch=OTHER_BATCH).query("kind == 'conv'").iterrows():
        sides = row[["batch", "in_channels", "out_channels", "groups", "transposed"]]
        found["conv", row["pass_name"], *sides, row_flop(row)] += row["count"]
    return found
