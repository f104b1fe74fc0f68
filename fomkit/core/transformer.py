"""Describe a transformer by its sizes (attention, feed-forward, blocks, stacks) and count its parameters."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, prod
from typing import Literal

ATTENTION, UPDATE = ".attention", "update"
"""In an op table made from sizes: the end of the module of a block's attention, and the module of the update."""


@dataclass(frozen=True)
class Latent:
    """Attention over a compressed cache (DeepSeek-V2, arXiv 2405.04434, section 2.1).

    `query_rank`: width that queries are compressed to; 0: not compressed. `rank`: that of keys and values
    together. `plain`, `rotary`: width of a head's key without and with positions; `value`: of its value.
    """

    query_rank: int
    rank: int
    plain: int
    rotary: int
    value: int

    @property
    def head_dim(self) -> int:
        """The mean width of a head's key and value, as that of attention's kernel."""
        return (self.plain + self.rotary + self.value) // 2

    def whole_parameters(self, hidden: int) -> int:
        """Count the parameters that no heads share out: what compresses, and the norms after it."""
        queries = self.query_rank * (hidden + 1)
        return queries + hidden * (self.rank + self.rotary) + self.rank

    def parameters(self, hidden: int, heads: int) -> int:
        """Count the parameters for a stream of width ``hidden``."""
        turned, up = heads * (self.plain + self.rotary), heads * (self.plain + self.value)
        of_heads = (self.query_rank or hidden) * turned + self.rank * up + heads * self.value * hidden
        return self.whole_parameters(hidden) + of_heads


@dataclass(frozen=True)
class Attention:
    """One attention layer.

    `kv_heads`: heads of keys and values, which groups of query heads share. `bias`: of queries, keys and values;
    of the output. `key_bias`: false where keys alone have none (Whisper). `head_norm`: parameters of the norms of
    queries and keys; `per_head`: further parameters of each head, such as sinks. `window`: tokens that each token
    sees; 0: all. `causal`: whether a token sees only earlier ones. `rotary`: whether positions are rotary.
    """

    heads: int
    kv_heads: int
    head_dim: int
    bias: tuple[bool, bool] = (False, False)
    key_bias: bool = True
    head_norm: int = 0
    window: int = 0
    causal: bool = True
    per_head: int = 0
    rotary: bool = True
    latent: Latent | None = None

    @property
    def cached(self) -> int:
        """The numbers that a token adds to the cache of keys and values."""
        return self.latent.rank + self.latent.rotary if self.latent else 2 * self.kv_heads * self.head_dim

    def parameters(self, hidden: int, source: int = 0) -> int:
        """Count the parameters for a stream of width ``hidden``; keys and values read ``source`` wide if given."""
        if self.latent is not None:
            return self.latent.parameters(hidden, self.heads) + self.head_norm
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        products = 2 * hidden * queries + 2 * (source or hidden) * keys
        biases = (queries + keys + keys * self.key_bias) * self.bias[0] + hidden * self.bias[1]
        return products + biases + self.head_norm + self.per_head * self.heads


@dataclass(frozen=True)
class FeedForward:
    """A feed-forward layer: two products around an activation, or three if it is gated."""

    width: int
    gated: bool
    bias: bool = False

    def parameters(self, hidden: int) -> int:
        """Count the parameters."""
        wide = 1 + self.gated
        return (1 + wide) * hidden * self.width + (wide * self.width + hidden) * self.bias


@dataclass(frozen=True)
class Experts:
    """Feed-forward experts, of which each token uses ``top_k``, and a shared one that all tokens use.

    `router_bias`: parameters of the router besides its product. `held`: experts on one device; 0: all.
    """

    count: int
    top_k: int
    each: FeedForward
    shared: FeedForward | None = None
    router_bias: int = 0
    held: int = 0

    def slots(self, tokens: int, capacity: float) -> int:
        """Return an expert's slots for some tokens, as many as `capacity` times its even share."""
        # Slightly reduced before rounding up, because factors such as 1.1 are not exact.
        return ceil(tokens * self.top_k * capacity / self.count * (1 - 1e-12))

    def parameters(self, hidden: int, count: int | None = None) -> int:
        """Count the parameters; with ``count``, those of this number of experts only."""
        of_experts = (self.held or self.count if count is None else count) * self.each.parameters(hidden)
        shared = self.shared.parameters(hidden) if self.shared else 0
        return of_experts + shared + hidden * self.count + self.router_bias


@dataclass(frozen=True)
class Block:
    """Attention, in a decoder also cross-attention, and a feed-forward layer, with norms before or after.

    `norms`: their number. `beside`: whether attention and feed-forward layer read the same input.
    """

    attention: Attention
    feed: FeedForward | Experts
    norms: int = 2
    cross: Attention | None = None
    beside: bool = False


@dataclass(frozen=True)
class Stack:
    """Blocks in sequence, equal blocks with their number, and an optional norm at the end.

    `length`: tokens of its stream, as a named size or a number.
    """

    blocks: tuple[tuple[int, Block], ...]
    length: str | int
    last_norm: bool = True

    @property
    def depth(self) -> int:
        """The number of blocks."""
        return sum(count for count, _ in self.blocks)


@dataclass(frozen=True)
class Convolution:
    """A convolution, with bias, that turns an image or a sound into a stream: weight ``out × in × kernel``.

    `size`: of its input; this, `kernel`, `stride` and `pad` along depth, height and width.
    """

    in_channels: int
    out_channels: int
    size: tuple[int, int, int]
    kernel: tuple[int, int, int]
    stride: tuple[int, int, int]
    pad: tuple[int, int, int] = (0, 0, 0)

    @property
    def parameters(self) -> int:
        """The number of parameters."""
        return self.out_channels * (self.in_channels * prod(self.kernel) + 1)


@dataclass(frozen=True)
class Stored:
    """How the weights of linear layers are stored.

    `method`: name in the model's file. `precision`: key of `FORMATS` of a format in which they are multiplied too;
    "" if they are widened first. `byte`: of one weight with its share of scales. `experts`: only theirs.
    """

    method: str
    precision: str
    byte: float
    experts: bool = False


@dataclass(frozen=True)
class Architecture:
    """A transformer.

    `kind`: its ``model_type``. `hidden`: width of the stream. `vocabulary`: words; 0 if it has none. `norm`:
    ``rms`` has one parameter per element of the stream, ``layer`` two, ``none`` none. `encoder`, `decoder`:
    stacks; one of them may be absent. `tied`: whether input and output words share a table. `head`: what the model
    returns: ``words``, ``classes``, or nothing. `head_bias`: of its product. `further`: other parameters by name,
    for example positions; `front`: convolutions before the stacks. `sizes`: default values of the named sizes.
    `longest`: tokens of a stream for which it has learnt positions; 0: any number. `dtype`: of its weights.
    `notes`: on facts missing in its file. `stored`: how linear weights are stored, if narrower.
    """

    kind: str
    hidden: int
    vocabulary: int
    norm: Literal["rms", "layer", "none"]
    encoder: Stack | None
    decoder: Stack | None
    tied: bool
    dtype: str
    head: Literal["words", "classes", ""] = "words"
    classes: int = 0
    head_bias: bool = False
    further: tuple[tuple[str, int], ...] = ()
    front: tuple[Convolution, ...] = ()
    sizes: tuple[tuple[str, int], ...] = ()
    notes: tuple[str, ...] = ()
    stored: Stored | None = None
    longest: int = 0

    @property
    def norm_tensors(self) -> int:
        """The parameter tensors of one norm of the stream."""
        return {"rms": 1, "layer": 2, "none": 0}[self.norm]

    @property
    def norm_parameters(self) -> int:
        """The parameters of one norm of the stream."""
        return self.norm_tensors * self.hidden

    def block_parameters(self, block: Block, experts: int | None = None) -> int:
        """Count the parameters of a block; if ``experts`` is given, with that many of its experts."""
        hidden, feed = self.hidden, block.feed
        cross = block.cross.parameters(hidden) if block.cross else 0
        of_feed = feed.parameters(hidden, experts) if isinstance(feed, Experts) else feed.parameters(hidden)
        return block.attention.parameters(hidden) + cross + of_feed + block.norms * self.norm_parameters

    @property
    def stacks(self) -> list[Stack]:
        """The stacks that exist, the encoder first."""
        return [stack for stack in (self.encoder, self.decoder) if stack is not None]

    @property
    def blocks(self) -> list[tuple[int, Block]]:
        """The blocks of all stacks, equal blocks with their number."""
        return [pair for stack in self.stacks for pair in stack.blocks]

    def _counted(self, experts: int | None) -> int:
        blocks = sum(many * self.block_parameters(block, experts) for many, block in self.blocks)
        return blocks + self.outside_parameters

    @property
    def outside_parameters(self) -> int:
        """The parameters outside all blocks."""
        ends = sum(stack.last_norm for stack in self.stacks) * self.norm_parameters
        biases = self.head_bias * (self.classes or self.vocabulary)
        return ends + self.embedding_parameters + biases + sum(one.parameters for one in self.front)

    @property
    def embedding_parameters(self) -> int:
        """The parameters of words, of an output of its own, and of positions and the like."""
        out = (
            self.classes if self.head == "classes" else self.vocabulary * (self.head == "words" and not self.tied)
        )
        return (self.vocabulary + out) * self.hidden + sum(n for _, n in self.further)

    @property
    def parameters(self) -> int:
        """The number of parameters."""
        return self._counted(None)

    @property
    def active_parameters(self) -> int:
        """The parameters that one token uses: of the experts only those chosen."""
        chosen = {block.feed.top_k for _, block in self.blocks if isinstance(block.feed, Experts)}
        return self._counted(chosen.pop()) if chosen else self.parameters


_LLAMA_ONLY = ("head_norm", "qkv_bias", "norms", "shared", "dense_blocks", "dense_feed_forward", "latent")
_NO_LATENT = ("kv_heads", "head_dim", "head_norm", "qkv_bias", "window")
"""Sizes that only Llama's style has, and those that latent attention lacks."""


@dataclass(frozen=True)
class Transformer:
    """A decoder-only transformer by its sizes, as devices share it: by tensor, pipeline, sequence and experts.

    `feed_forward`: width of the feed-forward layer; default: four times ``hidden``.
    `attention`: ``unfused``: batched products and a softmax that write their scores; ``fused``: one kernel.
    `style`: ``gpt``: biases, dropout, learned positions, layer norms, GELU; ``llama``: none of these, but gated
      feed-forward layers, norms with one parameter per element, and rotary positions.
    `kv_heads`: heads of keys and values; default: ``heads``. `head_dim`: default: ``hidden / heads``.
    `tied`: whether input and output embedding are one table.
    `experts`: feed-forward layers of each block, of which every token uses ``top_k``; 0: one layer for all tokens.
    `capacity_factor`: slots of an expert over its even share of the tokens, as declared: the distribution of
      tokens is not predicted.
    `window`: with fused attention, tokens that each token sees in ``window_share`` of the blocks; 0: all.

    In Llama's style only:

    `head_norm`: parameters of the norms of queries and keys, of each head or of all; 0: none.
    `norms`: of the stream in a block; 4: what attention and the feed-forward layer return is normalised, too.
    `shared`: width of a feed-forward layer for all tokens beside the experts; 0: none.
    `dense_blocks`: first blocks, which have one feed-forward layer of width ``dense_feed_forward``, no experts.
    `latent`: attention over compressed keys and values, in place of ``kv_heads`` and ``head_dim``.
    """

    hidden: int
    heads: int
    blocks: int
    seq: int
    vocabulary: int
    feed_forward: int = 0
    attention: Literal["unfused", "fused"] = "unfused"
    experts: int = 0
    top_k: int = 1
    capacity_factor: float = 1.0
    style: Literal["gpt", "llama"] = "gpt"
    kv_heads: int = 0
    head_dim: int = 0
    tied: bool = True
    head_norm: int = 0
    qkv_bias: bool = False
    window: int = 0
    window_share: float = 1.0
    norms: int = 2
    shared: int = 0
    dense_blocks: int = 0
    dense_feed_forward: int = 0
    latent: Latent | None = None

    def __post_init__(self) -> None:
        """Set the default sizes of the feed-forward layer and the heads where none are stated."""
        width = self.hidden // self.heads if self.latent is None else self.latent.head_dim
        usual = {"feed_forward": 4 * self.hidden, "kv_heads": self.heads, "head_dim": width}
        for name, size in usual.items():
            if not getattr(self, name):
                object.__setattr__(self, name, size)

    @property
    def gated(self) -> bool:
        """Whether a feed-forward layer has a third product, which gates its activation."""
        return self.style == "llama"

    def fault(self, given: Collection[str]) -> str:
        """Say what is wrong with these sizes, of which ``given`` were stated; "" if nothing.

        The text follows the name of the block that holds them.
        """
        experts, most = self.experts, self.experts / self.top_k
        of_llama = [name for name in _LLAMA_ONLY if getattr(self, name) != getattr(type(self), name)]
        if experts == 1:
            return ".experts is 1. Give 2 or more, or leave it out for one layer for all tokens."
        if experts and self.top_k > experts:
            return f".top_k is {self.top_k} and there are {experts} experts. Give at most {experts}."
        if not experts and set(given) & {"top_k", "capacity_factor"}:
            return " has top_k or capacity_factor, but no experts. Add experts, or remove these keys."
        if experts and self.capacity_factor > most:
            full = f"at {most:g} each expert already has a place for every token"
            return f".capacity_factor is {self.capacity_factor:g}, but {full}. Give a smaller value."
        if self.heads % self.kv_heads:
            return f".kv_heads {self.kv_heads} do not divide heads {self.heads}. Choose a divisor."
        if self.style == "gpt" and of_llama:
            return f" has {', '.join(of_llama)}, for 'style: llama' only. Add it, or remove what is not GPT's."
        if not experts and (self.shared or self.dense_blocks):
            return " has shared or dense_blocks, but no experts. Add experts, or remove these keys."
        if bool(self.dense_blocks) != bool(self.dense_feed_forward) or self.dense_blocks >= self.blocks:
            fewer = f"fewer than its {self.blocks} blocks, and dense_feed_forward"
            return f".dense_blocks is {self.dense_blocks}. Expected: {fewer}; or neither of them."
        if self.latent is not None and (self.attention != "fused" or set(given) & {*_NO_LATENT}):
            return (
                f" has latent attention, which is fused. Add 'attention: fused', without {', '.join(_NO_LATENT)}."
            )
        if self.latent is not None and (both := self.latent.plain + self.latent.rotary + self.latent.value) % 2:
            return f".latent.plain, rotary and value add up to {both}. Expected: an even number."
        return ""

    @cached_property
    def kinds(self) -> tuple[tuple[int, Transformer], ...]:
        """The blocks in order, those of one kind with their number and the sizes of a model of such blocks only.

        >>> sizes = {"hidden": 512, "heads": 8, "seq": 256, "vocabulary": 1000, "experts": 8, "style": "llama"}
        >>> two = Transformer(**sizes, blocks=4, dense_blocks=1, dense_feed_forward=2048).kinds
        >>> [(many, of.experts, of.feed_forward) for many, of in two]
        [(1, 0, 2048), (3, 8, 2048)]
        """
        alike = replace(self, dense_blocks=0, dense_feed_forward=0)
        if not self.dense_blocks:
            return ((self.blocks, alike),)
        dense = replace(alike, experts=0, top_k=1, shared=0, feed_forward=self.dense_feed_forward)
        return ((self.dense_blocks, dense), (self.blocks - self.dense_blocks, alike))

    @cached_property
    def block(self) -> Block:
        """The layers of a block, with the window if there is one; of blocks of two kinds the last."""
        plain = self.style == "llama"
        bias = (self.qkv_bias, False) if plain else (True, True)
        attention = Attention(self.heads, self.kv_heads, self.head_dim, bias, head_norm=self.head_norm,
                              window=self.window, rotary=plain, latent=self.latent)  # fmt: skip
        each = FeedForward(self.feed_forward, gated=plain, bias=not plain)
        shared = FeedForward(self.shared, gated=plain) if self.shared else None
        feed = Experts(self.experts, self.top_k, each, shared) if self.experts else each
        return Block(attention, feed, self.norms)

    @property
    def expert_slots(self) -> int:
        """Slots of each expert for the tokens of one sample; 0 without experts.

        >>> sizes = {"hidden": 512, "heads": 8, "blocks": 4, "seq": 256, "vocabulary": 1000}
        >>> Transformer(**sizes, experts=8, top_k=2, capacity_factor=1.25).expert_slots
        80
        """
        feed = self.block.feed
        return feed.slots(self.seq, self.capacity_factor) if isinstance(feed, Experts) else 0

    @cached_property
    def architecture(self) -> Architecture:
        """The architecture that these sizes describe, in bf16."""
        blocks: list[tuple[int, Block]] = []
        for many, of in self.kinds:
            narrow, seen = round(many * of.window_share) if of.window else 0, of.block
            plain = replace(seen, attention=replace(seen.attention, window=0))
            blocks += [(count, block) for count, block in ((narrow, seen), (many - narrow, plain)) if count]
        return Architecture(
            "decoder", self.hidden, self.vocabulary, "rms" if self.gated else "layer", None,
            Stack(tuple(blocks), "seq"), self.tied, "bf16",
            further=() if self.gated else (("positions", self.seq * self.hidden),),
        )  # fmt: skip

    def block_parameters(self, expert: int = 1) -> int:
        """Count a block's parameters on one of ``expert`` devices, which share the experts and copy the rest."""
        return self.architecture.block_parameters(self.block, self.experts // expert)

    @property
    def parameters(self) -> int:
        """Parameters of the whole model."""
        return self.architecture.parameters
