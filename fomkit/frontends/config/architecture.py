"""A transformer as its sizes: attention, feed-forward layers, blocks, stacks; and how many numbers each learns."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal


@dataclass(frozen=True)
class Latent:
    """Attention over a compressed cache (DeepSeek-V2, arXiv 2405.04434, section 2.1).

    `query_rank`: width that queries are compressed to; 0: they are not. `rank`: that of keys and values together.
    `plain`, `rotary`: width of a head's key without and with positions; `value`: of its value.
    """

    query_rank: int
    rank: int
    plain: int
    rotary: int
    value: int


@dataclass(frozen=True)
class Attention:
    """One attention layer.

    `kv_heads`: heads of keys and values, which groups of query heads share.
    `bias`: of queries, keys and values; of the output. `key_bias`: false where keys alone have none (Whisper).
    `head_norm`: numbers that norms of queries and keys learn; `per_head`: others of each head, such as sinks.
    `window`: tokens that each one sees; 0: all. `causal`: only those before it.
    `rotary`: whether positions turn queries and keys.
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
        """Count what it learns in a stream of a width; ``source``: width that keys and values are made from."""
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
    """Two products around an activation; three where it is gated."""

    width: int
    gated: bool
    bias: bool = False

    def parameters(self, hidden: int) -> int:
        """Count what it learns."""
        wide = 1 + self.gated
        return (1 + wide) * hidden * self.width + (wide * self.width + hidden) * self.bias


@dataclass(frozen=True)
class Experts:
    """Feed-forward layers of which each token takes ``top_k``, and one that all take beside them.

    `router_bias`: numbers that the router learns besides its product.
    """

    count: int
    top_k: int
    each: FeedForward
    shared: FeedForward | None = None
    router_bias: int = 0

    def parameters(self, hidden: int, count: int | None = None) -> int:
        """Count what it learns; with ``count`` what so many of its experts do."""
        of_experts = (self.count if count is None else count) * self.each.parameters(hidden)
        shared = self.shared.parameters(hidden) if self.shared else 0
        return of_experts + shared + hidden * self.count + self.router_bias


@dataclass(frozen=True)
class Block:
    """Attention, of a decoder also to what was encoded, and a feed-forward layer, with norms before or after.

    `norms`: how many. `beside`: attention and feed-forward layer take the same input.
    """

    attention: Attention
    feed: FeedForward | Experts
    norms: int = 2
    cross: Attention | None = None
    beside: bool = False


@dataclass(frozen=True)
class Stack:
    """Blocks one after the other, alike ones with how many there are, and a norm at the end where there is one.

    `length`: the named size that its stream's tokens are, or their number.
    """

    blocks: tuple[tuple[int, Block], ...]
    length: str | int
    last_norm: bool = True

    @property
    def depth(self) -> int:
        """How many blocks it has."""
        return sum(count for count, _ in self.blocks)


@dataclass(frozen=True)
class Convolution:
    """How an image or a sound becomes a stream: a convolution that learns ``out × in × kernel`` and a bias.

    `size`: of what it reads; this, `kernel`, `stride` and `pad` along depth, height and width.
    """

    in_channels: int
    out_channels: int
    size: tuple[int, int, int]
    kernel: tuple[int, int, int]
    stride: tuple[int, int, int]
    pad: tuple[int, int, int] = (0, 0, 0)

    @property
    def parameters(self) -> int:
        """How many numbers it learns."""
        return self.out_channels * (self.in_channels * prod(self.kernel) + 1)


@dataclass(frozen=True)
class Stored:
    """How the weights of linear layers are kept.

    `method`: as its file calls it. `precision`: a key of `FORMATS` in which they are multiplied too; "" where they
    are made wide first. `byte`: of one weight with its share of scales. `blocks`: whether blocks have scales.
    """

    method: str
    precision: str
    byte: float
    blocks: bool = False


@dataclass(frozen=True)
class Architecture:
    """A transformer.

    `kind`: its ``model_type``. `hidden`: width of the stream. `vocabulary`: words; 0 without.
    `norm`: ``rms`` learns a number for each element of the stream, ``layer`` two, ``none`` none.
    `encoder`, `decoder`: stacks; one of them may be absent. `tied`: whether words in and out are one table.
    `head`: what comes out: ``words``, ``classes``, or nothing. `head_bias`: of that product.
    `further`: other learned numbers by what they are, positions for example; `front`: convolutions before it.
    `sizes`: values of the named sizes, unless told. `dtype`: of its weights. `notes`: what its file left out.
    `stored`: how weights of linear layers are kept, where they are narrower.
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
        """What one norm of the stream learns."""
        return {"rms": 1, "layer": 2, "none": 0}[self.norm] * self.hidden

    def block_parameters(self, block: Block, experts: int | None = None) -> int:
        """Count what a block learns; with ``experts`` what it does with so many of them."""
        hidden, feed = self.hidden, block.feed
        cross = block.cross.parameters(hidden) if block.cross else 0
        of_feed = feed.parameters(hidden, experts) if isinstance(feed, Experts) else feed.parameters(hidden)
        return block.attention.parameters(hidden) + cross + of_feed + block.norms * self.norm_parameters

    @property
    def stacks(self) -> list[Stack]:
        """Its stacks that are there, the encoder first."""
        return [stack for stack in (self.encoder, self.decoder) if stack is not None]

    @property
    def blocks(self) -> list[tuple[int, Block]]:
        """The blocks of all stacks, alike ones with how many there are."""
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
        """How many numbers it learns."""
        return self._counted(None)

    @property
    def active_parameters(self) -> int:
        """How many of them one token meets: of experts those that it takes."""
        chosen = {block.feed.top_k for _, block in self.blocks if isinstance(block.feed, Experts)}
        return self._counted(chosen.pop()) if chosen else self.parameters
