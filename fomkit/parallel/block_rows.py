"""The ops of one transformer block as one device of a tensor group runs them, by rule from its sizes.

The kernels are those of Megatron-LM as published with arXiv 2205.05198 (2022): bias and GELU, bias, dropout and
residual, scale, mask and softmax are one kernel each; products add their weight gradients to sums in fp32
themselves, which costs them traffic that a table of products with short results does not hold;
attention is batched products around a softmax, or one kernel where it is fused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fomkit.workload import Transformer

Row = dict[str, Any]


class Split(NamedTuple):
    """One microbatch as one device of a tensor group sees it.

    ``sequence``: norms, dropouts and residuals are split too; ``dtype``: of activations and products, 2 bytes.
    """

    samples: float
    tensor: int
    sequence: bool
    dtype: str

    def whole(self, shape: Transformer) -> float:
        """Count the elements of the stream between the halves of a block."""
        return shape.seq * self.samples * shape.hidden / (self.tensor if self.sequence else 1)


CORE = "block.attention"
"""Module of what selective recomputation makes again: scores, softmax, its dropout, context."""
BLOCK = "block"


@dataclass
class Rows:
    """Ops under construction, in one number format."""

    dtype: str
    rows: list[Row] = field(default_factory=list)

    def product(
        self, op: str, pass_name: str, size: tuple[float, float, float], module: str = BLOCK, *,
        batches: float = 1.0, stored: tuple[int, int] = (0, 1),
    ) -> None:  # fmt: skip
        """Add (m × k)·(k × n), given as (m, n, k); ``stored`` tells which factors lie transposed."""
        m, n, k = size
        self.rows.append(
            {"op": op, "kind": "gemm", "dtype": self.dtype, "engine": "matrix", "pass_name": pass_name,
             "b": batches, "m": m, "n": n, "k": k, "trans_a": stored[0], "trans_b": stored[1], "module": module}
        )  # fmt: skip

    def stream(
        self, op: str, pass_name: str, kind: str, numel: float, read: float, write: float, row: float,
        module: str = BLOCK, dtype: str = "",
    ) -> None:  # fmt: skip
        """Add an op that reads and writes so many bytes of each element."""
        self.rows.append(
            {"op": op, "kind": kind, "dtype": dtype or self.dtype, "engine": "vector", "pass_name": pass_name,
             "numel": numel, "row": row, "read_byte": read * numel, "write_byte": write * numel, "module": module}
        )  # fmt: skip


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


def _forward(rows: Rows, shape: Transformer, samples: float, tensor: int, whole: float) -> None:
    way, tokens, hidden = "forward", shape.seq * samples, shape.hidden
    wide, split = shape.feed_forward // tensor, hidden // tensor
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
    rows.product("feed-forward in", way, (tokens, wide, hidden))
    rows.stream("bias, GELU", way, "pointwise", tokens * wide, 2, 2, wide)
    rows.product("feed-forward out", way, (tokens, hidden, wide))
    rows.stream("bias, dropout, residual 2", way, "pointwise", whole, 4, 3, hidden)


def linear_backward(rows: Rows, op: str, tokens: float, width: float, reduced: float, module: str = BLOCK) -> None:
    """Add both gradients of (tokens × reduced)·(reduced × width), and what the sum in fp32 adds to the second.

    The sum is read and written in 4 bytes where the timed product writes 2.
    """
    rows.product(f"{op}, by input", "backward", (tokens, reduced, width), module, stored=(0, 0))
    rows.product(f"{op}, by weight", "backward", (width, reduced, tokens), module, stored=(1, 0))
    rows.stream(f"{op}, to the fp32 sum", "backward", "pointwise", width * reduced, 4, 2, reduced, module, "fp32")


def _half_backward(rows: Rows, whole: float, hidden: int) -> None:
    """Add what follows a norm's output: its gradients and that of the residual beside it."""
    rows.stream("norm", "backward", "norm", whole, 4, 2, hidden)
    rows.stream("norm, by weight", "backward", "reduction", whole, 4, 0, hidden)
    rows.stream("residual", "backward", "pointwise", whole, 4, 2, hidden)


def _backward(rows: Rows, shape: Transformer, samples: float, tensor: int, whole: float) -> None:
    way, tokens, hidden = "backward", shape.seq * samples, shape.hidden
    wide, split = shape.feed_forward // tensor, hidden // tensor
    for of in ("2", "1"):
        rows.stream(f"dropout {of}", way, "pointwise", whole, 3, 2, hidden)
        rows.stream(f"bias {of}, by weight", way, "reduction", whole, 2, 0, hidden)
    linear_backward(rows, "feed-forward out", tokens, hidden, wide)
    rows.stream("bias, GELU", way, "pointwise", tokens * wide, 4, 2, wide)
    rows.stream("bias of GELU, by weight", way, "reduction", tokens * wide, 2, 0, wide)
    linear_backward(rows, "feed-forward in", tokens, wide, hidden)
    _half_backward(rows, whole, hidden)
    linear_backward(rows, "projection", tokens, hidden, split)
    if shape.attention == "fused":
        _fused(rows, shape, samples, tensor, way)
    else:
        rows.stream("context in rows", way, "copy", tokens * split, 2, 2, split)
        _core_backward(rows, shape, samples, tensor)
    rows.stream("queries, keys, values joined", way, "copy", 3 * tokens * split, 2, 2, 3 * split)
    rows.stream("bias of these, by weight", way, "reduction", 3 * tokens * split, 2, 0, 3 * split)
    linear_backward(rows, "queries, keys, values", tokens, 3 * split, hidden)
    _half_backward(rows, whole, hidden)


def block_rows(shape: Transformer, split: Split) -> list[Row]:
    """List the ops of one block, forward and backward."""
    rows = Rows(split.dtype)
    whole = split.whole(shape)
    _forward(rows, shape, split.samples, split.tensor, whole)
    _backward(rows, shape, split.samples, split.tensor, whole)
    return rows.rows
