"""Scaled-dot-product attention as one op."""

from __future__ import annotations

from fomkit.costs.formula import Cost, Variant, sizes


def formulas() -> dict[Variant, Cost]:
    """Price softmax(q·kᵀ)·v of all heads.

    Two products of 2·batch·heads·q_len·kv_len·head_dim flop forward; four backward (Dao, arXiv:2307.08691, §4.1,
    whose fused kernel repeats a fifth, which is its own affair and not counted). The full square is counted for
    causal attention too, as unfused kernels compute it and `torch.utils.flop_counter` counts it.

    The row stands for a fused kernel: forward reads q, k and v and writes the output; backward reads those, the
    output and its gradient, and writes three gradients. The quadratic traffic of unfused attention is in the row's
    parts.
    """
    batch, heads, kv_heads, q_len, kv_len, head_dim, item_byte = sizes(
        "batch heads kv_heads q_len kv_len head_dim item_byte"
    )
    product = 2 * batch * heads * q_len * kv_len * head_dim
    query = item_byte * batch * heads * q_len * head_dim
    key = item_byte * batch * kv_heads * kv_len * head_dim
    return {
        ("forward",): Cost(2 * product, 2 * query + 2 * key, 1),
        ("backward",): Cost(4 * product, 4 * query + 4 * key, 1),
    }
