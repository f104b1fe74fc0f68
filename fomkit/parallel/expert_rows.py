"""The ops of a block's experts in place of its feed-forward layer, as one device of those that share them runs.

Every token goes to ``top_k`` experts (Lepikhin et al., "GShard", arXiv 2006.16668, section 2.2; Fedus et al.,
"Switch Transformers", arXiv 2101.03961, section 2.2). Each expert has as many places as the capacity factor says,
which are sent and worked on whether a token is in them or not: how tokens spread is declared, not predicted. A
tensor group splits each expert as it splits a feed-forward layer, and each of its devices routes and sends all
tokens.
"""

from __future__ import annotations

from fomkit.parallel.rows import BLOCK, Rows, Split, linear_backward
from fomkit.workload import Transformer

_SCORE_BYTE, _CHOICE_BYTE = 4, 8
"""A token's share in an expert, in fp32; a chosen expert's number and share."""


def _sizes(shape: Transformer, split: Split) -> tuple[float, float, float, int]:
    """Give the experts of a device, the tokens of each, all its tokens and the width of its share of an expert."""
    experts, slots = shape.experts / split.expert, split.slots(shape)
    return experts, slots / experts, slots, shape.feed_forward // split.tensor


def experts_forward(rows: Rows, shape: Transformer, split: Split) -> None:
    """Add router, places for tokens, the experts' products and the sum of what they give."""
    way, tokens, hidden = "forward", shape.seq * split.samples, shape.hidden
    experts, each, slots, wide = _sizes(shape, split)
    scores = tokens * shape.experts
    rows.product("router", way, (tokens, shape.experts, hidden))
    rows.stream("router softmax", way, "softmax", scores, 2, _SCORE_BYTE, shape.experts)
    chosen = _CHOICE_BYTE * shape.top_k / shape.experts
    rows.stream("router top k", way, "reduction", scores, _SCORE_BYTE, chosen, shape.experts)
    rows.stream("tokens to experts", way, "copy", slots * hidden, 2, 2, hidden)
    rows.product("feed-forward in", way, (each, wide, hidden), batches=experts)
    rows.stream("bias, GELU", way, "pointwise", slots * wide, 2, 2, wide)
    rows.product("feed-forward out", way, (each, hidden, wide), batches=experts)
    rows.stream("tokens from experts", way, "pointwise", tokens * hidden, 2 * shape.top_k, 2, hidden)


def experts_backward(rows: Rows, shape: Transformer, split: Split) -> None:
    """Add the gradients of all that, from the sum back to the router's input."""
    way, tokens, hidden = "backward", shape.seq * split.samples, shape.hidden
    experts, each, slots, wide = _sizes(shape, split)
    scores = tokens * shape.experts
    # Read for every place: the sum's gradient, and what the expert gave, whose product is the share's gradient.
    rows.stream("tokens from experts", way, "pointwise", slots * hidden, 4, 2, hidden)
    linear_backward(rows, "feed-forward out", each, hidden, wide, BLOCK, batches=experts)
    rows.stream("bias, GELU", way, "pointwise", slots * wide, 4, 2, wide)
    rows.stream("bias of GELU, by weight", way, "reduction", slots * wide, 2, 0, wide)
    linear_backward(rows, "feed-forward in", each, wide, hidden, BLOCK, batches=experts)
    rows.stream("tokens to experts", way, "pointwise", tokens * hidden, 2 * shape.top_k, 2, hidden)
    rows.stream("router softmax", way, "softmax", scores, 2 * _SCORE_BYTE, 2, shape.experts)
    linear_backward(rows, "router", tokens, shape.experts, hidden)
    rows.stream("router and experts, by input", way, "pointwise", tokens * hidden, 4, 2, hidden)
