"""The ops of one transformer block as one device of a tensor group runs them, by rule from its sizes.

The kernels are those of Megatron-LM as published with arXiv 2205.05198 (2022): bias and GELU, bias, dropout and
residual, scale, mask and softmax are one kernel each; products add their weight gradients to sums in fp32
themselves, which costs them traffic that a table of products with short results does not hold;
attention is batched products around a softmax, or one kernel where it is fused. What experts run in place of the
feed-forward layer is in `fomkit.parallel.expert_rows`.
"""

from __future__ import annotations

from fomkit.parallel.expert_rows import experts_backward, experts_forward
from fomkit.parallel.rows import BLOCK, CORE, Row, Rows, Split, linear_backward
from fomkit.workload import Transformer


def _core_forward(rows: Rows, shape: Transformer, samples: float, tensor: int) -> None:
    seq, head, group = shape.seq, shape.hidden // shape.heads, samples * shape.heads / tensor
    scores = group * seq * seq
    rows.product("scores", "forward", (seq, seq, head), CORE, batches=group)
    # A causal kernel reads the lower triangle and writes all.
    rows.stream("scale, mask, softmax", "forward", "softmax", scores, 1, 2, seq, CORE)
    rows.stream("attention dropout", "forward", "pointwise", scores, 2, 3, seq, CORE)
    rows.product("context", "forward", (seq, head, seq), CORE, batches=group, stored=(0, 0))


def _core_backward(rows: Rows, shape: Transformer, samples: float, tensor: int) -> None:
    seq, head, group = shape.seq, shape.hidden // shape.heads, samples * shape.heads / tensor
    scores, way = group * seq * seq, "backward"
    rows.product("context, by scores", way, (seq, seq, head), BLOCK, batches=group)
    rows.product("context, by values", way, (seq, head, seq), BLOCK, batches=group, stored=(1, 0))
    rows.stream("attention dropout", way, "pointwise", scores, 3, 2, seq)
    rows.stream("scale, mask, softmax", way, "softmax", scores, 4, 2, seq)
    rows.product("scores, by queries", way, (seq, head, seq), BLOCK, batches=group, stored=(0, 0))
    rows.product("scores, by keys", way, (seq, head, seq), BLOCK, batches=group, stored=(1, 0))


def _fused(rows: Rows, shape: Transformer, samples: float, tensor: int, pass_name: str) -> None:
    rows.rows.append(
        {"op": "attention", "kind": "attention", "dtype": rows.dtype, "engine": "matrix", "pass_name": pass_name,
         "batch": samples, "heads": shape.heads / tensor, "kv_heads": shape.heads / tensor, "q_len": shape.seq,
         "kv_len": shape.seq, "head_dim": shape.hidden / shape.heads, "causal": 1, "module": CORE}
    )  # fmt: skip


def _attention_forward(rows: Rows, shape: Transformer, samples: float, tensor: int, whole: float) -> None:
    way, tokens, hidden = "forward", shape.seq * samples, shape.hidden
    split = hidden // tensor
    rows.stream("norm 1", way, "norm", whole, 2, 2, hidden)
    rows.product("queries, keys, values", way, (tokens, 3 * split, hidden))
    rows.stream("bias of these", way, "pointwise", 3 * tokens * split, 2, 2, 3 * split)
    if shape.attention == "fused":
        _fused(rows, shape, samples, tensor, way)
    else:
        _core_forward(rows, shape, samples, tensor)
        rows.stream("context in rows", way, "copy", tokens * split, 2, 2, split)
    rows.product("projection", way, (tokens, hidden, split))
    rows.stream("bias, dropout, residual 1", way, "pointwise", whole, 4, 3, hidden)
    rows.stream("norm 2", way, "norm", whole, 2, 2, hidden)


def _dense_forward(rows: Rows, shape: Transformer, tokens: float, wide: int) -> None:
    hidden, way = shape.hidden, "forward"
    rows.product("feed-forward in", way, (tokens, wide, hidden))
    rows.stream("bias, GELU", way, "pointwise", tokens * wide, 2, 2, wide)
    rows.product("feed-forward out", way, (tokens, hidden, wide))


def _half_backward(rows: Rows, whole: float, hidden: int) -> None:
    """Add what follows a norm's output: its gradients and that of the residual beside it."""
    rows.stream("norm", "backward", "norm", whole, 4, 2, hidden)
    rows.stream("norm, by weight", "backward", "reduction", whole, 4, 0, hidden)
    rows.stream("residual", "backward", "pointwise", whole, 4, 2, hidden)


def _dense_backward(rows: Rows, shape: Transformer, tokens: float, wide: int) -> None:
    way, hidden = "backward", shape.hidden
    linear_backward(rows, "feed-forward out", tokens, hidden, wide)
    rows.stream("bias, GELU", way, "pointwise", tokens * wide, 4, 2, wide)
    rows.stream("bias of GELU, by weight", way, "reduction", tokens * wide, 2, 0, wide)
    linear_backward(rows, "feed-forward in", tokens, wide, hidden)


def _attention_backward(rows: Rows, shape: Transformer, samples: float, tensor: int) -> None:
    way, tokens, hidden = "backward", shape.seq * samples, shape.hidden
    split = hidden // tensor
    linear_backward(rows, "projection", tokens, hidden, split)
    if shape.attention == "fused":
        _fused(rows, shape, samples, tensor, way)
    else:
        rows.stream("context in rows", way, "copy", tokens * split, 2, 2, split)
        _core_backward(rows, shape, samples, tensor)
    rows.stream("queries, keys, values joined", way, "copy", 3 * tokens * split, 2, 2, 3 * split)
    rows.stream("bias of these, by weight", way, "reduction", 3 * tokens * split, 2, 0, 3 * split)
    linear_backward(rows, "queries, keys, values", tokens, 3 * split, hidden)


def block_rows(shape: Transformer, split: Split) -> list[Row]:
    """List the ops of one block, forward and backward."""
    rows, samples, tensor = Rows(split.dtype), split.samples, split.tensor
    whole, hidden, sent = split.whole(shape), shape.hidden, split.slots(shape) * shape.hidden
    tokens, wide = shape.seq * samples, shape.feed_forward // tensor
    _attention_forward(rows, shape, samples, tensor, whole)
    if shape.experts:
        experts_forward(rows, shape, split)
    else:
        _dense_forward(rows, shape, tokens, wide)
    rows.stream("bias, dropout, residual 2", "forward", "pointwise", whole, 4, 3, hidden)
    for of, biased in (("2", sent if shape.experts else whole), ("1", whole)):
        rows.stream(f"dropout {of}", "backward", "pointwise", whole, 3, 2, hidden)
        rows.stream(f"bias {of}, by weight", "backward", "reduction", biased, 2, 0, hidden)
    if shape.experts:
        experts_backward(rows, shape, split)
    else:
        _dense_backward(rows, shape, tokens, wide)
    _half_backward(rows, whole, hidden)
    _attention_backward(rows, shape, samples, tensor)
    _half_backward(rows, whole, hidden)
    return rows.rows
