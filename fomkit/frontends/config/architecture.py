"""Describe a transformer by its sizes (attention, feed-forward, blocks, stacks) and count its parameters."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal


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

    def parameters(self, hidden: int, source: int = 0) -> int:
        """Count the parameters for a stream of width ``hidden``; keys and values read ``source`` wide if given."""
        if self.latent is not None:
            return self._latent_parameters(self.latent, hidden) + self.head_norm
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        products = 2 * hidden * queries + 2 * (source or hidden) * keys
        biases = (queries + keys + keys * self.key_bias) * self.bias[0] + hidden * self.bias[1]
        return products + biases + self.head_norm + self.per_head * self.heads

    def _latent_parameters(self, latent: Latent, hidden: int) -> int:
        turned = self.heads * (latent.plain + latent.rotary)
        queries = hidden * turned
        if latent.query_rank:
            queries = latent.query_rank * (hidden + 1 + turned)
        down = hidden * (latent.rank + latent.rotary) + latent.rank
        up = latent.rank * self.heads * (latent.plain + latent.value)
        return queries + down + up + self.heads * latent.value * hidden


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

    `router_bias`: parameters of the router besides its product.
    """

    count: int
    top_k: int
    each: FeedForward
    shared: FeedForward | None = None
    router_bias: int = 0

    def parameters(self, hidden: int, count: int | None = None) -> int:
        """Count the parameters; with ``count``, those of this number of experts only."""
        of_experts = (self.count if count is None else count) * self.each.parameters(hidden)
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
    "" if they are widened first. `byte`: of one weight with its share of scales. `blocks`: whether per block.
    """

    method: str
    precision: str
    byte: float
    blocks: bool = False


@dataclass(frozen=True)
class Architecture:
    """A transformer.

    `kind`: its ``model_type``. `hidden`: width of the stream. `vocabulary`: words; 0 if it has none. `norm`:
    ``rms`` has one parameter per element of the stream, ``layer`` two, ``none`` none. `encoder`, `decoder`:
    stacks; one of them may be absent. `tied`: whether input and output words share a table. `head`: what the model
    returns: ``words``, ``classes``, or nothing. `head_bias`: of its product. `further`: other parameters by name,
    for example positions; `front`: convolutions before the stacks. `sizes`: default values of the named sizes.
    `dtype`: of its weights. `notes`: on facts missing in its file. `stored`: how linear weights are stored, if
    narrower.
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

    @property
    def norm_parameters(self) -> int:
        """The parameters of one norm of the stream."""
        return {"rms": 1, "layer": 2, "none": 0}[self.norm] * self.hidden

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
        ends = sum(stack.last_norm for stack in self.stacks) * self.norm_parameters
        words = self.vocabulary * self.hidden
        out = (
            self.classes if self.head == "classes" else self.vocabulary * (self.head == "words" and not self.tied)
        )
        biases = self.head_bias * (self.classes or self.vocabulary)
        front = sum(one.parameters for one in self.front)
        return blocks + ends + words + out * self.hidden + biases + front + sum(n for _, n in self.further)

    @property
    def parameters(self) -> int:
        """The number of parameters."""
        return self._counted(None)

    @property
    def active_parameters(self) -> int:
        """The parameters that one token uses: of the experts only those chosen."""
        chosen = {block.feed.top_k for _, block in self.blocks if isinstance(block.feed, Experts)}
        return self._counted(chosen.pop()) if chosen else self.parameters
