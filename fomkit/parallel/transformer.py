"""The op tables of training a transformer, from its sizes: blocks, embedding, head and update on one device.

The kernels are those of Megatron-LM as published with arXiv 2205.05198 (2022). Each of these is one kernel: bias
and GELU; bias, dropout and residual; scale, mask and softmax. Products add their weight gradients to sums in fp32
themselves; this traffic is not in a table of products with short results, so it is a row of its own. Attention is
batched products around a softmax, or one kernel where it is fused. The style of Llama (Touvron et al., arXiv
2302.13971, section 2.2) has no biases and no dropout; positions rotate queries and keys, and the gate of a
feed-forward layer is one kernel with its activation.

With experts, every token goes to ``top_k`` of them (Lepikhin et al., "GShard", arXiv 2006.16668, section 2.2;
Fedus et al., "Switch Transformers", arXiv 2101.03961, section 2.2). The capacity factor sets the slots of each
expert. All slots are sent and computed, also without a token: how tokens spread is declared, not predicted. A
tensor group splits each expert like a feed-forward layer, and each device routes and sends all tokens; of whole
experts each device has some, and routes and sends its own part of the sequence.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fomkit.core.model import TO_SHORT
from fomkit.core.transformer import ATTENTION, UPDATE, Transformer
from fomkit.core.units import ITEM_BYTE
from fomkit.ops.precision import BLOCKS
from fomkit.ops.tables import column_names
from fomkit.parallel.step import words_of_one

Row = dict[str, Any]


class Split(NamedTuple):
    """The part of one microbatch that is on one device of a tensor group.

    ``samples``: its tokens, in whole samples; ``context``: devices that share each sequence;
    ``sequence``: norms, dropouts and residuals are split too; ``dtype``: of activations and products, 2 bytes;
    ``expert``: devices that share the experts, which are ``whole_experts`` or split too;
    ``low``: number format of the linear layers of blocks, "" = dtype.
    """

    samples: float
    tensor: int
    sequence: bool
    dtype: str
    expert: int = 1
    low: str = ""
    context: int = 1
    whole_experts: bool = False

    def whole(self, shape: Transformer) -> float:
        """Return the elements of the stream between the halves of a block."""
        return shape.seq * self.samples * shape.hidden / (self.tensor if self.sequence else 1)

    def slots(self, shape: Transformer) -> float:
        """Return the slots for tokens that a device sends to the experts, and receives for its own experts."""
        return self.routed * shape.experts * shape.expert_slots

    @property
    def routed(self) -> float:
        """The samples whose tokens a device routes."""
        return self.samples / self.tensor if self.whole_experts else self.samples


BLOCK = "block"
CORE = f"{BLOCK}{ATTENTION}"
"""Module that selective recomputation runs again: scores, softmax, its dropout, context."""


@dataclass
class Rows:
    """Ops under construction, in one number format; ``low``: that of linear layers, "" = the same."""

    dtype: str
    low: str = ""
    rows: list[Row] = field(default_factory=list)

    def layer(self, width: float, reduced: float) -> str:
        """Return the format of a linear layer: low if its weights divide into the format's blocks of scales."""
        return self.low if self.low and not (width % BLOCKS[self.low] or reduced % BLOCKS[self.low]) else ""

    def product(
        self, op: str, pass_name: str, size: tuple[float, float, float], module: str = BLOCK, *,
        batches: float = 1.0, stored: tuple[int, int] = (0, 1), dtype: str = "", experts: float = 0.0,
    ) -> None:  # fmt: skip
        """Add the product (m × k)·(k × n) of size (m, n, k), or that of each expert; ``stored``: as transposed."""
        m, n, k = size
        self.rows.append(
            {"op": op, "kind": "gemm", "dtype": dtype or self.dtype, "engine": "matrix", "pass_name": pass_name,
             "b": experts or batches, "m": m, "n": n, "k": k, "trans_a": stored[0], "trans_b": stored[1],
             "experts": experts or np.nan, "module": module}
        )  # fmt: skip

    def stream(
        self, op: str, pass_name: str, kind: str, numel: float, read: float, write: float, row: float,
        module: str = BLOCK, dtype: str = "",
    ) -> None:  # fmt: skip
        """Add an op that reads `read` and writes `write` bytes of each element."""
        self.rows.append(
            {"op": op, "kind": kind, "dtype": dtype or self.dtype, "engine": "vector", "pass_name": pass_name,
             "numel": numel, "row": row, "read_byte": read * numel, "write_byte": write * numel, "module": module}
        )  # fmt: skip

    def residual(self, shape: Transformer, of: str, whole: float) -> None:
        """Add the residual at the end of a half of a block, for GPT with bias and dropout, whose mask is kept.

        With four norms, what the half returns is normalised before.
        """
        if shape.norms > 2:
            self.stream(f"norm after {of}", "forward", "norm", whole, 2, 2, shape.hidden)
        op, write = (f"residual {of}", 2) if shape.gated else (f"bias, dropout, residual {of}", 3)
        self.stream(op, "forward", "pointwise", whole, 4, write, shape.hidden)


def linear_backward(
    rows: Rows, op: str, tokens: float, width: float, reduced: float, module: str = BLOCK, *, experts: float = 0.0,
    wide: bool = False,
) -> None:  # fmt: skip
    """Add both gradients of (tokens × reduced)·(reduced × width), and the traffic of the fp32 sum of the second.

    The sum is read and written in 4 bytes where the timed product writes 2. ``experts``: number of such
    layers; ``wide``: no low format is used.
    """
    way, numel, dtype = "backward", (experts or 1) * width * reduced, "" if wide else rows.layer(width, reduced)
    by_input, by_weight = (tokens, reduced, width), (width, reduced, tokens)
    rows.product(f"{op}, by input", way, by_input, module, experts=experts, stored=(0, 0), dtype=dtype)
    rows.product(f"{op}, by weight", way, by_weight, module, experts=experts, stored=(1, 0), dtype=dtype)
    rows.stream(f"{op}, to the fp32 sum", way, "pointwise", numel, 4, 2, reduced, module, "fp32")


def _norm_backward(rows: Rows, name: str, numel: float, width: int, module: str = BLOCK) -> None:
    rows.stream(name, "backward", "norm", numel, 4, 2, width, module)
    rows.stream(f"{name}, by weight", "backward", "reduction", numel, 4, 0, width, module)


_ACTIVATION = {"gpt": "bias, GELU", "llama": "SiLU, gate"}
_SCORE_BYTE, _CHOICE_BYTE = 4, 8
"""A token's share in an expert, in fp32; a chosen expert's number and share."""


def _expert_sizes(shape: Transformer, split: Split) -> tuple[float, float, float, int]:
    """Return a device's experts, the tokens of each, all its tokens, and the width of its part of an expert."""
    experts, slots = shape.experts / split.expert, split.slots(shape)
    return experts, slots / experts, slots, shape.feed_forward // (1 if split.whole_experts else split.tensor)


def _wide_forward(
    rows: Rows, shape: Transformer, tokens: float, wide: int, *, experts: float = 0.0, name: str = "feed-forward"
) -> None:
    """Add the products of a feed-forward layer and the op between them; ``experts``: number of such layers."""
    hidden, way, sides = shape.hidden, "forward", 1 + shape.gated
    into, out = rows.layer(sides * wide, hidden), rows.layer(hidden, wide)
    rows.product(f"{name} in", way, (tokens, sides * wide, hidden), experts=experts, dtype=into)
    rows.stream(_ACTIVATION[shape.style], way, "pointwise", (experts or 1) * tokens * wide, 2 * sides, 2, wide)
    rows.product(f"{name} out", way, (tokens, hidden, wide), experts=experts, dtype=out)


def _wide_backward(
    rows: Rows, shape: Transformer, tokens: float, wide: int, *, experts: float = 0.0, name: str = "feed-forward"
) -> None:
    hidden, way, sides = shape.hidden, "backward", 1 + shape.gated
    numel = (experts or 1) * tokens * wide
    linear_backward(rows, f"{name} out", tokens, hidden, wide, BLOCK, experts=experts)
    rows.stream(_ACTIVATION[shape.style], way, "pointwise", numel, 2 * (sides + 1), 2 * sides, wide)
    if not shape.gated:
        rows.stream("bias of GELU, by weight", way, "reduction", numel, 2, 0, wide)
    linear_backward(rows, f"{name} in", tokens, sides * wide, hidden, BLOCK, experts=experts)


def experts_forward(rows: Rows, shape: Transformer, split: Split) -> None:
    """Add router, slots for tokens, the experts' products and the sum of their outputs."""
    way, tokens, hidden = "forward", shape.seq * split.routed, shape.hidden
    experts, each, slots, wide = _expert_sizes(shape, split)
    scores = tokens * shape.experts
    rows.product("router", way, (tokens, shape.experts, hidden))
    rows.stream("router softmax", way, "softmax", scores, 2, _SCORE_BYTE, shape.experts)
    chosen = _CHOICE_BYTE * shape.top_k / shape.experts
    rows.stream("router top k", way, "reduction", scores, _SCORE_BYTE, chosen, shape.experts)
    rows.stream("tokens to experts", way, "copy", slots * hidden, 2, 2, hidden)
    _wide_forward(rows, shape, each, wide, experts=experts)
    rows.stream("tokens from experts", way, "pointwise", tokens * hidden, 2 * shape.top_k, 2, hidden)
    if shape.shared:
        everything, part = shape.seq * split.samples, shape.shared // split.tensor
        _wide_forward(rows, shape, everything, part, name="shared expert")
        rows.stream("shared expert added", way, "pointwise", everything * hidden, 4, 2, hidden)


def experts_backward(rows: Rows, shape: Transformer, split: Split) -> None:
    """Add the gradients of `experts_forward`, from the sum back to the router's input."""
    way, tokens, hidden = "backward", shape.seq * split.routed, shape.hidden
    experts, each, slots, wide = _expert_sizes(shape, split)
    scores = tokens * shape.experts
    if shape.shared:
        everything, part = shape.seq * split.samples, shape.shared // split.tensor
        _wide_backward(rows, shape, everything, part, name="shared expert")
        rows.stream("shared expert, by input", way, "pointwise", everything * hidden, 4, 2, hidden)
    # Read for every slot: the sum's gradient, and the expert's output; their product is the share's gradient.
    rows.stream("tokens from experts", way, "pointwise", slots * hidden, 4, 2, hidden)
    _wide_backward(rows, shape, each, wide, experts=experts)
    rows.stream("tokens to experts", way, "pointwise", tokens * hidden, 2 * shape.top_k, 2, hidden)
    rows.stream("router softmax", way, "softmax", scores, 2 * _SCORE_BYTE, 2, shape.experts)
    linear_backward(rows, "router", tokens, shape.experts, hidden, wide=True)
    rows.stream("router and experts, by input", way, "pointwise", tokens * hidden, 4, 2, hidden)


def _core_forward(rows: Rows, shape: Transformer, samples: float, tensor: int) -> None:
    seq, head, group = shape.seq, shape.head_dim, samples * shape.heads / tensor
    scores = group * seq * seq
    rows.product("scores", "forward", (seq, seq, head), CORE, batches=group)
    # A causal kernel reads the lower triangle and writes the whole square.
    rows.stream("scale, mask, softmax", "forward", "softmax", scores, 1, 2, seq, CORE)
    rows.stream("attention dropout", "forward", "pointwise", scores, 2, 3, seq, CORE)
    rows.product("context", "forward", (seq, head, seq), CORE, batches=group, stored=(0, 0))


def _core_backward(rows: Rows, shape: Transformer, samples: float, tensor: int) -> None:
    seq, head, group = shape.seq, shape.head_dim, samples * shape.heads / tensor
    scores, way = group * seq * seq, "backward"
    rows.product("context, by scores", way, (seq, seq, head), BLOCK, batches=group)
    rows.product("context, by values", way, (seq, head, seq), BLOCK, batches=group, stored=(1, 0))
    rows.stream("attention dropout", way, "pointwise", scores, 3, 2, seq)
    rows.stream("scale, mask, softmax", way, "softmax", scores, 4, 2, seq)
    rows.product("scores, by queries", way, (seq, head, seq), BLOCK, batches=group, stored=(0, 0))
    rows.product("scores, by keys", way, (seq, head, seq), BLOCK, batches=group, stored=(1, 0))


def _fused(rows: Rows, shape: Transformer, split: Split, pass_name: str) -> None:
    """Add attention of a device's queries; its parts near the beginning and near the end see half of all keys.

    Where a share of the blocks has a window, both sorts run in part; a window counts as that many keys.
    """
    narrow = shape.window_share if 0 < shape.window < shape.seq else 0.0
    for keys, causal, share in ((shape.seq, 1, 1.0 - narrow), (shape.window, 0, narrow)):
        if share:
            rows.rows.append(
                {"op": "attention", "kind": "attention", "dtype": rows.dtype, "engine": "matrix",
                 "pass_name": pass_name, "batch": split.samples * split.context,
                 "heads": shape.heads / split.tensor, "kv_heads": shape.kv_heads / split.tensor,
                 "q_len": shape.seq / split.context, "kv_len": keys, "head_dim": shape.head_dim, "causal": causal,
                 "module": CORE, "count": share}
            )  # fmt: skip


def _add_rotation(rows: Rows, shape: Transformer, tokens: float, way: str) -> None:
    """Add the norms of queries and keys, if there are any, and their rotation; going backward in reverse."""
    width = (shape.heads + shape.kv_heads) * shape.head_dim
    row, name = (width if shape.head_norm > 2 * shape.head_dim else shape.head_dim), "norm of queries, keys"
    if shape.head_norm and way == "forward":
        rows.stream(name, way, "norm", tokens * width, 2, 2, row)
    rows.stream("positions", way, "pointwise", tokens * width, 2, 2, width)
    if shape.head_norm and way != "forward":
        _norm_backward(rows, name, tokens * width, row)


def _own_layers(shape: Transformer, split: Split) -> list[tuple[str, float, int, int, int]]:
    """List the layers that make queries, keys and values, in order.

    Each with its tokens, width, reduced width, and the width of the norm before it, 0 without one. Layers that
    compress are not split by heads: each device has them whole, with ``sequence`` for its part of the tokens.
    """
    tokens, hidden, latent = shape.seq * split.samples, shape.hidden, shape.latent
    if latent is None:
        return [("queries, keys, values", tokens, shape.attention_width // split.tensor, hidden, 0)]
    own, heads = tokens / (split.tensor if split.sequence else 1), shape.heads // split.tensor
    turned, pair = heads * (latent.plain + latent.rotary), heads * (latent.plain + latent.value)
    ranks = latent.query_rank, latent.rank
    first = [("queries down", own, ranks[0], hidden, 0)] if ranks[0] else []
    return [
        *first, ("queries", tokens, turned, ranks[0] or hidden, ranks[0]),
        ("keys, values down", own, ranks[1] + latent.rotary, hidden, 0),
        ("keys, values", tokens, pair, ranks[1], ranks[1]),
    ]  # fmt: skip


def _keys_joined(rows: Rows, shape: Transformer, tokens: float, way: str) -> None:
    """Add what turns the parts of compressed keys and queries that have positions, and joins keys of all heads."""
    if (latent := shape.latent) is not None:
        heads, wide = shape.heads, latent.plain + latent.rotary
        rows.stream("positions", way, "pointwise", tokens * (heads + 1) * latent.rotary, 2, 2, latent.rotary)
        rows.stream("keys joined", way, "copy", tokens * heads * wide, 2, 2, wide)


def _attention_forward(rows: Rows, shape: Transformer, split: Split, whole: float) -> None:
    samples, tensor = split.samples, split.tensor
    way, tokens, hidden = "forward", shape.seq * samples, shape.hidden
    part, three = shape.context_width // tensor, shape.attention_width // tensor
    rows.stream("norm 1", way, "norm", whole, 2, 2, hidden)
    for name, of, wide, reduced, normed in _own_layers(shape, split):
        if normed:
            rows.stream(f"norm of {name}", way, "norm", of * normed, 2, 2, normed)
        rows.product(name, way, (of, wide, reduced), dtype=rows.layer(wide, reduced))
    if not shape.gated or shape.qkv_bias:
        rows.stream("bias of these", way, "pointwise", tokens * three, 2, 2, three)
    _keys_joined(rows, shape, tokens / tensor, way)
    if shape.gated and shape.latent is None:
        _add_rotation(rows, shape, tokens / tensor, way)
    if shape.attention == "fused":
        _fused(rows, shape, split, way)
    else:
        _core_forward(rows, shape, samples, tensor)
        rows.stream("context in rows", way, "copy", tokens * part, 2, 2, part)
    rows.product("projection", way, (tokens, hidden, part), dtype=rows.layer(hidden, part))
    rows.residual(shape, "1", whole)
    rows.stream("norm 2", way, "norm", whole, 2, 2, hidden)


def _half_backward(rows: Rows, whole: float, hidden: int) -> None:
    """Add the backward ops of a norm: its gradients, and the gradient of the residual parallel to it."""
    _norm_backward(rows, "norm", whole, hidden)
    rows.stream("residual", "backward", "pointwise", whole, 4, 2, hidden)


def _attention_backward(rows: Rows, shape: Transformer, split: Split) -> None:
    samples, tensor = split.samples, split.tensor
    way, tokens, hidden = "backward", shape.seq * samples, shape.hidden
    part, three = shape.context_width // tensor, shape.attention_width // tensor
    linear_backward(rows, "projection", tokens, hidden, part)
    if shape.attention == "fused":
        _fused(rows, shape, split, way)
    else:
        rows.stream("context in rows", way, "copy", tokens * part, 2, 2, part)
        _core_backward(rows, shape, samples, tensor)
    _keys_joined(rows, shape, tokens / tensor, way)
    if shape.latent is None:
        rows.stream("queries, keys, values joined", way, "copy", tokens * three, 2, 2, three)
    if shape.gated and shape.latent is None:
        _add_rotation(rows, shape, tokens / tensor, way)
    if not shape.gated or shape.qkv_bias:
        rows.stream("bias of these, by weight", way, "reduction", tokens * three, 2, 0, three)
    for name, of, wide, reduced, normed in reversed(_own_layers(shape, split)):
        linear_backward(rows, name, of, wide, reduced)
        if normed:
            _norm_backward(rows, f"norm of {name}", of * normed, normed)
    if shape.latent is not None:  # two layers read the stream
        own = tokens / (tensor if split.sequence else 1)
        rows.stream("queries, keys, values, by input", way, "pointwise", own * hidden, 4, 2, hidden)


def block_rows(shape: Transformer, split: Split) -> list[Row]:
    """List the ops of one block, forward and backward."""
    rows, samples, tensor = Rows(split.dtype, split.low), split.samples, split.tensor
    whole, hidden, sent = split.whole(shape), shape.hidden, split.slots(shape) * shape.hidden
    tokens, wide = shape.seq * samples, shape.feed_forward // tensor
    _attention_forward(rows, shape, split, whole)
    if shape.experts:
        experts_forward(rows, shape, split)
    else:
        _wide_forward(rows, shape, tokens, wide)
    rows.residual(shape, "2", whole)
    learned = () if shape.gated else (("2", sent if shape.experts else whole), ("1", whole))
    for of, biased in learned:
        rows.stream(f"dropout {of}", "backward", "pointwise", whole, 3, 2, hidden)
        rows.stream(f"bias {of}, by weight", "backward", "reduction", biased, 2, 0, hidden)
    if shape.norms > 2:
        _norm_backward(rows, "norm after 2", whole, hidden)
    if shape.experts:
        experts_backward(rows, shape, split)
    else:
        _wide_backward(rows, shape, tokens, wide)
    _half_backward(rows, whole, hidden)
    if shape.norms > 2:
        _norm_backward(rows, "norm after 1", whole, hidden)
    _attention_backward(rows, shape, split)
    _half_backward(rows, whole, hidden)
    return rows.rows


HEAD, EMBEDDING = "head", "embedding"


def head_rows(shape: Transformer, split: Split) -> list[Row]:
    """List the ops of the last norm, the output and the loss (cross entropy in fp32, split by words)."""
    rows, tokens = Rows(split.dtype), shape.seq * split.samples
    words, hidden = words_of_one(shape, split.tensor), shape.hidden
    whole, logits = split.whole(shape), tokens * words
    rows.stream("last norm", "forward", "norm", whole, 2, 2, hidden, HEAD)
    rows.product("output", "forward", (tokens, words, hidden), HEAD)
    for op, kind, read, write in (("logits to fp32", "copy", 2, 4), ("largest logit", "reduction", 4, 0),
                                  ("less the largest", "pointwise", 4, 4), ("exponential", "pointwise", 4, 4),
                                  ("sum of these", "reduction", 4, 0),
                                  ("over the sum", "pointwise", 4, 4)):  # fmt: skip
        rows.stream(op, "forward", kind, logits, read, write, words, HEAD, "fp32")
    rows.stream("loss", "backward", "pointwise", logits, 4, 4, words, HEAD, "fp32")
    rows.stream("logits from fp32", "backward", "copy", logits, 4, 2, words, HEAD, "fp32")
    linear_backward(rows, "output", tokens, words, hidden, HEAD, wide=True)
    _norm_backward(rows, "last norm", whole, hidden, HEAD)
    return rows.rows


def embedding_rows(shape: Transformer, split: Split) -> list[Row]:
    """List the ops of words, positions and their dropout."""
    rows, hidden = Rows(split.dtype), shape.hidden
    numel, whole = shape.seq * split.samples * hidden, split.whole(shape)
    rows.stream("words", "forward", "embedding", numel, 2, 2, hidden, EMBEDDING)
    if not shape.gated:
        rows.stream("positions", "forward", "pointwise", whole, 4, 2, hidden, EMBEDDING)
        rows.stream("dropout", "forward", "pointwise", whole, 2, 3, hidden, EMBEDDING)
        rows.stream("dropout", "backward", "pointwise", whole, 3, 2, hidden, EMBEDDING)
    rows.stream("words, by weight", "backward", "embedding", numel, 6, 4, hidden, EMBEDDING)
    return rows.rows


def update_rows(
    parameters: float, tensors: float, *, clip: bool, low: str = "", of_low: float = 0.0, impl: str = "fused",
    dtype: str = "bf16",
) -> list[Row]:  # fmt: skip
    """List the ops of Adam in mixed precision: gradients, moments and a copy of the parameters in fp32.

    Bytes are those of Megatron-LM's optimizer with apex kernels: unscale and check, norm and clip, fused Adam,
    copy to the short format, set the sums of gradients to zero. ``low``: format to which ``of_low`` weights are
    quantised, along rows and columns; ``impl``: how Adam goes over tensors; ``dtype``: in fp32 it is Adam alone.
    """
    rows = Rows("fp32")
    steps: list[tuple[str, float, float]] = [("gradient unscale, check", 4, 4), (TO_SHORT, 4, 2)]
    steps.append(("gradients to zero", 0, 4))
    if clip:
        steps += [("gradient norm", 4, 0), ("gradient clip", 4, 4)]
    for op, read, write in steps:
        kind = "reduction" if not write else "copy" if op == TO_SHORT else "pointwise"
        rows.stream(op, "update", kind, parameters, read, write, parameters, UPDATE)
    if low:
        rows.stream("weights quantised", "update", "copy", of_low, 2, 2 * ITEM_BYTE[low], of_low, UPDATE)
    adam = {"op": "Adam", "kind": "optimizer", "dtype": "fp32", "engine": "vector", "pass_name": "update",
            "rule": "adam", "impl": impl, "numel": parameters, "tensors": tensors,
            "module": UPDATE}  # fmt: skip
    return [adam] if dtype == "fp32" else [*rows.rows, adam]


def tensors_of(shape: Transformer, expert: int = 1) -> int:
    """Count the parameter tensors of a block; `expert` devices share the tensors of experts."""
    if shape.gated:  # two norms, two products of attention, a router, two products of each layer
        more = 2 * (shape.head_norm > 0) + shape.qkv_bias + (shape.norms - 2) + 2 * (shape.shared > 0)
        if shape.latent is not None:  # queries, keys and values come from 3 products and a norm, or 4 and two
            more += 3 + 2 * (shape.latent.query_rank > 0)
        return more + (5 + 2 * (shape.experts // expert) if shape.experts else 6)
    return 12 + 4 * (shape.experts // expert) + 1 if shape.experts else 16


def as_table(rows: list[Row]) -> pd.DataFrame:
    """Make an OPS table of rows that each run once, or in a share of the blocks (``count``)."""
    numbers, names = {*column_names("OPS", "number")}, dict.fromkeys(name for row in rows for name in row)
    filled = {
        name: np.array([row.get(name, np.nan) for row in rows], np.float64)
        if name in numbers
        else np.array([row.get(name, "") for row in rows], object)
        for name in names
    }
    return pd.DataFrame({**filled, "count": [row.get("count", 1.0) for row in rows]})
