"""One model written in Keras and in PyTorch gives the same matrix products, convolutions and flop."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from keras_twins import PAIRS, Pair
from traced_work import flop, numbers, row_flop

from fomkit.trace import profile_workload
from fomkit.workload import ModelProfile

BATCH = 6


SIZES = {
    "conv": """batch in_channels out_channels depth height width kernel_d kernel_h kernel_w stride_d stride_h
        stride_w groups transposed""",
    "rnn": "cell batch steps input_size hidden_size layers directions",
    "attention": "batch heads kv_heads q_len kv_len head_dim causal",
}


def products(profile: ModelProfile) -> Counter[tuple[Any, ...]]:
    """Count products, convolutions and the rows made of them by size.

    Which factor of a product stands on the left is the library's affair. TensorFlow takes the weight gradient of a
    product on three axes sample by sample and adds these up, which is the same work as PyTorch's one product.
    """
    found: Counter[tuple[Any, ...]] = Counter()
    for _, row in numbers(profile, batch=2 * BATCH).iterrows():
        key = row["kind"], row["pass_name"]
        if row["kind"] == "gemm":
            b, k = (1, row["b"] * row["k"]) if row["pass_name"] == "backward_weight" else (row["b"], row["k"])
            found[*key, b, *sorted((row["m"], row["n"])), k] += row["count"]
        elif row["kind"] in SIZES:
            found[*key, *row[SIZES[row["kind"]].split()]] += row["count"]
    return found


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.__name__)
def test_both_frameworks_run_the_same_products(keras: Any, torch: Any, pair: Pair) -> None:
    in_keras, in_torch = pair(keras, torch, BATCH)
    mine, other = profile_workload(in_keras), profile_workload(in_torch)
    assert not mine.unsupported
    assert mine.parameters_trainable == other.parameters_trainable
    assert products(mine) == products(other)
    for pass_name in ("forward", "backward"):
        assert flop(numbers(mine), pass_name) == flop(numbers(other), pass_name), pass_name
    for place, row in numbers(mine).query("kind in ('rnn', 'attention')").iterrows():
        inside = numbers(mine, "parts").query(f"of == {place}")
        assert flop(inside, "forward", "backward", kind="gemm") == row_flop(row), (row["op"], row["pass_name"])
    assert any("batch" in str(cell) for cell in mine.ops["numel"])
