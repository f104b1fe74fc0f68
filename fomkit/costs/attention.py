"""Scaled-dot-product attention as one op."""

from __future__ import annotations

from collections.abc import Mapping

from fomkit.costs.formula import Cost, Size

PRODUCTS: Mapping[str, int] = {"forward": 2, "backward": 4}
"""Matrix products of one pass: q·kᵀ and weights·v; of their gradients twice as many."""


def attention(
    pass_name: str,
    batch: Size,
    heads: Size,
    kv_heads: Size,
    q_len: Size,
    kv_len: Size,
    head_dim: Size,
    item_byte: Size,
) -> Cost:
    """Price softmax(q·kᵀ)·v of all heads.

    Two products of 2·batch·heads·q_len·kv_len·head_dim flop forward; four backward (Dao, arXiv:2307.08691, §4.1,
    whose fused kernel repeats a fifth, which is its own affair and not counted). The full square is counted for
    causal attention too, as unfused kernels compute it and `torch.utils.flop_counter` counts it.

    The row stands for a fused kernel: forward reads q, k and v and writes the output; backward reads those, the
    output and its gradient, and writes three gradients. The quadratic traffic of unfused attention is in the row's
    parts.

    Examples
    --------
    >>> attention("forward", batch=1, heads=2, kv_heads=2, q_len=3, kv_len=5, head_dim=7, item_byte=2)
    Cost(flop=840, byte=448, launches=1)
    """
    products = PRODUCTS[pass_name]
    product = 2 * batch * heads * q_len * kv_len * head_dim
    query = item_byte * batch * heads * q_len * head_dim
    key = item_byte * batch * kv_heads * kv_len * head_dim
    return Cost(products * product, products * query + products * key)
