"""Make the ops of a transformer's step from its architecture: training, a forward pass, or decoding one token.

Kernels are those of current training and serving libraries. Queries, keys and values are one product; so are gate
and up of a gated layer. Attention, a norm, an activation with its gate, rotary positions, and an addition to the
stream are one kernel each. The flop of products and attention equal those of the same model traced layer by layer.
`step_rows` is the entry point.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from fomkit.core.machine import Tier
from fomkit.core.model import BATCH, CACHE
from fomkit.core.transformer import (
    Architecture,
    Attention,
    Block,
    Convolution,
    Experts,
    FeedForward,
    Latent,
    Stack,
)
from fomkit.ops.fusion import EAGER, IMPL, ONE_KERNEL, Fusion
from fomkit.parallel.transformer import update_rows
from fomkit.prediction.exchange import REPLAYED

Mode = Literal["train", "infer", "decode"]
ITEM_BYTE = {"bf16": 2, "fp16": 2, "fp32": 4}


class Many(NamedTuple):
    """A factor times named sizes, as a table's cell has it: ``3 * batch*seq``."""

    factor: int
    of: str = ""

    def times(self, factor: int) -> Many:
        """Multiply by a whole number."""
        return Many(self.factor * factor, self.of)

    def share(self, devices: int) -> Many:
        """Return the largest part of one of some devices; in whole numbers."""
        return self if devices == 1 else Many(1, f"(({self.cell} + {devices - 1})//{devices})")

    @property
    def cell(self) -> int | str:
        """The text or number of the table's cell."""
        if not self.of:
            return self.factor
        return self.of if self.factor == 1 else f"{self.factor}*{self.of}"


class Stream(NamedTuple):
    """Tokens of a step: all of them, and the number per sample."""

    tokens: Many
    length: int | str


class Sharing(NamedTuple):
    """Devices that share a step, and the tier of the links between them."""

    ranks: int = 1
    link: Tier = "node"


ALONE = Sharing()


@dataclass
class Step:
    """A step's ops under construction.

    `norms`: of the stream, ``rms`` or another. `group`: the devices that share it. `apart`: those that share whole
    experts, and exchange their tokens; among them are the group's, each with a part of the group's tokens.
    `count`, `module`: of the ops added next.
    """

    dtype: str
    mode: Mode
    fusion: Fusion = "vendor"
    norms: str = ""
    group: Sharing = ALONE
    apart: Sharing = ALONE
    rows: list[dict[str, Any]] = field(default_factory=list)
    count: int = 1
    module: str = ""

    @property
    def trains(self) -> bool:
        """Whether gradients are computed."""
        return self.mode == "train"

    def add(self, op: str, kind: str, pass_name: str, **cells: Any) -> None:
        """Add one op."""
        fixed = {"dtype": self.dtype, "engine": "matrix", "count": self.count, "module": self.module}
        self.rows.append({"op": op, "kind": kind, "pass_name": pass_name, **fixed, **cells})

    def exchange(self, op: str, collective: str, numel: Many, among: Sharing | None = None) -> None:
        """Add a collective of the group, or ``among`` others, in a replayed graph; ``numel``: of the message."""
        ranks, link = among or self.group
        if ranks > 1:
            self.add(op, "collective", "forward", engine="vector", collective=collective, ranks=ranks, link=link,
                     message_byte=numel.times(ITEM_BYTE[self.dtype]).cell)  # fmt: skip

    def product(self, op: str, tokens: Many, wide: int, reduced: int, *, batches: int = 1, experts: int = 0,
                bias: bool = False) -> None:  # fmt: skip
        """Add (tokens × reduced)·(reduced × wide) and, in training, gradients; or one such product per expert."""
        m, each = tokens.cell, {"b": experts or batches, "experts": experts or None}
        self.add(op, "gemm", "forward", **each, m=m, n=wide, k=reduced, trans_a=0, trans_b=1)
        if not self.trains:
            return
        self.add(f"{op}, by input", "gemm", "backward", **each, m=m, n=reduced, k=wide, trans_a=0, trans_b=0)
        self.add(f"{op}, by weight", "gemm", "backward", **each, m=wide, n=reduced, k=m, trans_a=1, trans_b=0)
        if self.dtype != "fp32":  # as `fomkit.parallel.transformer.linear_backward` says
            numel = (experts or batches) * wide * reduced
            self.add(f"{op}, to the fp32 sum", "pointwise", "backward", dtype="fp32", engine="vector", numel=numel,
                     row=reduced, read_byte=4 * numel, write_byte=2 * numel)  # fmt: skip
        if bias:
            self.stream(f"{op}, by bias", "reduction", "backward", tokens.times(wide), (1, 0), row=wide)

    def stream(self, op: str, kind: str, pass_name: str, numel: Many, moved: tuple[int, int], *,
               row: int | str = 0, dtype: str = "", inputs: int = 1) -> None:  # fmt: skip
        """Add an op that reads and writes ``moved`` numbers per element."""
        dtype = dtype or self.dtype
        item = ITEM_BYTE[dtype]
        read, write = (numel.times(item * each).cell for each in moved)
        sizes = {"numel": numel.cell, "row": row or None, "inputs": inputs, "read_byte": read, "write_byte": write}
        self.add(op, kind, pass_name, dtype=dtype, engine="vector", **sizes)

    def both(self, op: str, kind: str, numel: Many, forward: tuple[int, int], backward: tuple[int, int], *,
             row: int | str = 0, inputs: int = 1) -> None:  # fmt: skip
        """Add an op of the stream, and in training its gradient."""
        self.stream(op, kind, "forward", numel, forward, row=row, inputs=inputs)
        if self.trains:
            self.stream(f"{op}, gradient", kind, "backward", numel, backward, row=row, inputs=inputs + 1)

    def fused(self, op: str, rule: str, kind: str, numel: Many, *, row: int | str = 0, inputs: int = 1) -> None:
        """Add an op of `ONE_KERNEL` as one kernel or, if fusion is eager and `EAGER` has it, op by op."""
        if self.fusion != "eager" or rule not in EAGER:
            self.both(op, kind, numel, *ONE_KERNEL[rule], row=row, inputs=inputs)
            return
        item = ITEM_BYTE[self.dtype]
        for pass_name, parts in list(zip(("forward", "backward"), EAGER[rule], strict=True))[: 1 + self.trains]:
            for part in parts:
                moved, dtype = (part.reads, part.writes), "fp32" if part.reads[1] else self.dtype
                if part.casts and self.dtype == "fp32":
                    continue  # nothing to cast
                some = numel._replace(factor=numel.factor // part.share)
                read, write = (some.times(item * short + 4 * wide).cell for short, wide in moved)
                self.add(f"{op}: {part.op}", part.kind, pass_name, dtype=dtype, engine="vector", numel=some.cell,
                         row=(row or None) if part.sums else None,
                         inputs=max(1, sum(part.reads)), read_byte=read, write_byte=write)  # fmt: skip

    def norm(self, op: str, numel: Many, row: int) -> None:
        """Add a norm; with a mean it is one op of the frameworks."""
        rule = "norm" if self.norms == "rms" else "norm with a mean"
        self.fused(op, rule, "norm", numel, row=row, inputs=2)


def _attend(step: Step, op: str, heads: tuple[int, int, int], lengths: tuple[int | str, int | str], *,
            causal: bool, shared: int = 0) -> None:  # fmt: skip
    cells = {"batch": BATCH, "heads": heads[0], "kv_heads": heads[1], "head_dim": heads[2], "q_len": lengths[0],
             "kv_len": lengths[1], "causal": int(causal), "shared_dim": shared or None}  # fmt: skip
    if step.fusion == "eager":
        _scores(step, op, heads, lengths, masked=causal, shared=shared)
        return
    for pass_name in ("forward", "backward")[: 1 + step.trains]:
        step.add(op, "attention", pass_name, **cells)


def _scores(step: Step, op: str, heads: tuple[int, int, int], lengths: tuple[int | str, int | str], *,
            masked: bool, shared: int = 0) -> None:  # fmt: skip
    """Add attention op by op: keys and values of shared heads are repeated; scores are scaled, masked, normalised.

    A cache that holds keys and values in one tensor is not repeated: a sample's heads are rows of one product.
    """
    many, kv_heads, width = heads
    (queries, keys), b = lengths, Many(many, BATCH)
    of_key, of_value = (2 * width - shared, shared) if shared else (width, width)
    long = f"({keys})" if isinstance(keys, str) and " " in keys else keys
    rows = {"b": BATCH, "m": many, "trans_a": 0} if shared else {"b": b.cell, "m": queries, "trans_a": 0}
    scores = Many(many, f"{BATCH}*{queries}*{long}")
    if kv_heads != many and not shared:
        step.both(
            f"{op}: keys and values repeated", "copy", Many(2 * many * width, f"{BATCH}*{long}"), (1, 1), (1, 1)
        )
    step.add(f"{op}: scores", "gemm", "forward", **rows, n=keys, k=of_key, trans_b=1)
    step.both(f"{op}: scaled", "pointwise", scores, (1, 1), (1, 1))
    if masked:
        step.stream(f"{op}: masked", "pointwise", "forward", scores, (1, 1), inputs=2)
    step.both(f"{op}: softmax", "softmax", scores, (1, 1), (2, 1), row=keys)
    step.add(f"{op}: values", "gemm", "forward", **rows, n=of_value, k=keys, trans_b=0)
    if step.trains:
        step.add(f"{op}: values, by scores", "gemm", "backward", **rows, n=keys, k=width, trans_b=1)
        step.add(f"{op}: values, by values", "gemm", "backward", b=b.cell, trans_a=1, m=keys, n=width, k=queries,
                 trans_b=0)  # fmt: skip
        step.add(f"{op}: scores, by queries", "gemm", "backward", **rows, n=width, k=keys, trans_b=0)
        step.add(f"{op}: scores, by keys", "gemm", "backward", b=b.cell, trans_a=1, m=keys, n=width, k=queries,
                 trans_b=0)  # fmt: skip


def _keys(step: Step, one: Attention, stream: Stream, seen: Mapping[str, int]) -> tuple[int | str, bool]:
    """Return the number of keys that each query sees, at most its window, and whether attention is causal."""
    if step.mode == "decode":
        before = seen[CACHE]
        return (one.window, False) if one.window and one.window <= before else (f"{CACHE} + 1", False)
    length = stream.length if isinstance(stream.length, int) else seen[stream.length]
    return (one.window, False) if one.window and one.window < length else (stream.length, one.causal)


def _latent(
    step: Step, one: Attention, latent: Latent, stream: Stream, hidden: int, seen: Mapping[str, int]
) -> None:
    """Add latent attention; in decoding, queries and values are multiplied with the compressed cache itself."""
    tokens, heads, turned = stream.tokens, one.heads, latent.plain + latent.rotary
    if latent.query_rank:
        step.product("queries down", tokens, latent.query_rank, hidden)
        step.norm("norm of queries", tokens.times(latent.query_rank), latent.query_rank)
    step.product("queries", tokens, heads * turned, latent.query_rank or hidden)
    step.product("keys and values down", tokens, latent.rank + latent.rotary, hidden)
    step.norm("norm of keys and values", tokens.times(latent.rank), latent.rank)
    step.fused("positions", "positions", "pointwise", tokens.times((heads + 1) * latent.rotary))
    keys, causal = _keys(step, one, stream, seen)
    if not step.trains:
        step.stream("to the cache", "copy", "forward", tokens.times(latent.rank + latent.rotary), (1, 1))
    if step.mode == "decode":
        step.product("queries to the cache's width", tokens, latent.rank, latent.plain, batches=heads)
        # Scores use rank and positions, sums the rank only; the cache holds both once for all heads.
        of_heads = (heads, 1, latent.rank + latent.rotary // 2)
        _attend(step, "latent attention", of_heads, (1, keys), causal=False, shared=latent.rank)
        step.product("values from the cache's width", tokens, latent.value, latent.rank, batches=heads)
    else:
        step.product("keys and values up", tokens, heads * (latent.plain + latent.value), latent.rank)
        width = (turned + latent.value) // 2
        _attend(step, "attention", (heads, heads, width), (stream.length, keys), causal=causal)
    step.product("projection", tokens, hidden, heads * latent.value)


def _own_attention(step: Step, one: Attention, stream: Stream, hidden: int, seen: Mapping[str, int]) -> None:
    if one.latent is not None:
        _latent(step, one, one.latent, stream, hidden, seen)
        return
    tokens, width = stream.tokens, one.head_dim
    both = (one.heads + one.kv_heads) * width
    step.product("queries, keys, values", tokens, both + one.kv_heads * width, hidden, bias=one.bias[0])
    if one.head_norm:
        step.norm("norms of queries and keys", tokens.times(both), width)
    if one.rotary:
        step.fused("positions", "positions", "pointwise", tokens.times(both))
    if not step.trains and one.causal:
        step.stream("to the cache", "copy", "forward", tokens.times(2 * one.kv_heads * width), (1, 1))
    keys, causal = _keys(step, one, stream, seen)
    _attend(step, "attention", (one.heads, one.kv_heads, width), (stream.length, keys), causal=causal)
    step.product("projection", tokens, hidden, one.heads * width, bias=one.bias[1])


def _cross(step: Step, one: Attention, stream: Stream, source: Stream, hidden: int) -> None:
    """Add cross-attention to the encoder's output; its keys and values are computed once, before decoding."""
    width = one.head_dim
    step.product("queries for the source", stream.tokens, one.heads * width, hidden, bias=one.bias[0])
    if step.mode != "decode":
        keys = 2 * one.kv_heads * width
        step.product("keys, values of the source", source.tokens, keys, hidden, bias=one.bias[0])
    _attend(step, "attention to the source", (one.heads, one.kv_heads, width), (stream.length, source.length),
            causal=False)  # fmt: skip
    step.product("projection from the source", stream.tokens, hidden, one.heads * width, bias=one.bias[1])


def _feed(step: Step, one: FeedForward, tokens: Many, hidden: int, name: str = "feed-forward",
          experts: int = 0) -> None:  # fmt: skip
    """Add a feed-forward layer, or that of each expert; ``tokens``: of one of them."""
    wide, numel = 1 + one.gated, tokens.times(one.width * (experts or 1))
    step.product(f"{name} in", tokens, wide * one.width, hidden, bias=one.bias, experts=experts)
    if one.gated:
        step.fused("activation", "gated", "pointwise", numel, inputs=2)
    else:
        step.both("activation", "pointwise", numel, (1, 1), (2, 1))
    step.product(f"{name} out", tokens, hidden, one.width, bias=one.bias, experts=experts)


def _mixture(step: Step, one: Experts, tokens: Many, hidden: int) -> None:
    """Add the router, the experts, and the shared expert; ``tokens``: that the device routes.

    Tables time the experts of serving as one op; a training multiplies a product per expert, with even tokens.
    Where other devices hold some of the experts, as many places arrive as leave, each a token of one expert.
    """
    scores, places, own = tokens.times(one.count), tokens.times(one.top_k), tokens.times(hidden)
    step.product("router", tokens, one.count, hidden)
    step.both("router softmax", "softmax", scores, (1, 1), (2, 1), row=one.count)
    if step.trains or one.held:
        step.both("tokens copied for experts", "copy", places.times(hidden), (1, 1), (1, 1), row=hidden)
    if step.trains:
        _feed(step, one.each, places.share(one.count), hidden, "experts", one.count)
    else:
        experts, routed, chosen = (one.held, places, 1) if one.held else (one.count, tokens, one.top_k)
        step.exchange("tokens to experts", "all_to_all", places.times(hidden), step.apart)
        step.add("experts", "experts", "forward", b=experts, m=routed.cell, n=one.each.width, k=hidden,
                 experts=experts, top_k=chosen)  # fmt: skip
        step.exchange("tokens from experts", "all_to_all", places.times(hidden), step.apart)
    if step.trains or one.held:
        step.both("sum of experts", "pointwise", own, (one.top_k, 1), (1, one.top_k), inputs=one.top_k)
    if one.shared is not None:
        _feed(step, one.shared, tokens, hidden, "shared expert")
        step.both("shared expert added", "pointwise", own, (2, 1), (1, 1), inputs=2)


def _block(
    step: Step, block: Block, stream: Stream, source: Stream | None, hidden: int, seen: Mapping[str, int]
) -> None:
    whole = stream.tokens.times(hidden)
    # Where experts are apart, a group's devices have a part of its tokens each, from attention to the block's end.
    parts = step.group.ranks if isinstance(block.feed, Experts) and step.apart.ranks > 1 else 1
    tokens = stream.tokens.share(parts)
    own = tokens.times(hidden)
    joined = step.fusion == "compiled" and block.norms == 2 and not block.beside and block.cross is None
    for place in range(block.norms * (not joined)):
        step.norm(f"norm {place + 1}", own if place else whole, hidden)
    _own_attention(step, block.attention, stream, hidden, seen)
    if parts > 1:
        step.exchange("stream scattered", "reduce_scatter", whole)
    elif not block.beside:  # else both halves are summed at once
        step.exchange(REPLAYED, "all_reduce", whole)
    if block.cross is not None and source is not None:
        _cross(step, block.cross, stream, source, hidden)
        step.both("source added to the stream", "pointwise", whole, (2, 1), (2, 1), inputs=2)
    if isinstance(block.feed, Experts):
        _mixture(step, block.feed, tokens, hidden)
    else:
        _feed(step, block.feed, tokens, hidden)
    if parts == 1:
        step.exchange(REPLAYED, "all_reduce", whole)
    for what in ("both",) if block.beside else ("attention", "feed-forward"):
        read = 3 if block.beside else 2
        if joined:
            step.fused(f"{what} added and normalised", "added and normalised", "norm", own, row=hidden, inputs=3)
            continue
        step.both(f"{what} added to the stream", "pointwise", own, (read, 1), (2, 1), inputs=read)
    if parts > 1:
        step.exchange("stream gathered", "all_gather", whole)


def _stack(step: Step, name: str, stack: Stack, stream: Stream, source: Stream | None, shape: Architecture,
           seen: Mapping[str, int]) -> None:  # fmt: skip
    for place, (many, block) in enumerate(stack.blocks):
        # Blocks of different kinds wait for their host each by itself: the modules of a training tell them apart.
        step.count, step.module = many, f"{name}.block{f'_{place + 1}' * (step.trains and place > 0)}"
        _block(step, block, stream, source, shape.hidden, seen)
    step.count, step.module = 1, name
    if stack.last_norm:
        step.norm("last norm", stream.tokens.times(shape.hidden), shape.hidden)


def _front(step: Step, one: Convolution, *, first: bool) -> None:
    parts = ("kernel", "stride", "pad", "dilation")
    along = {"": ("depth", "height", "width"), **{part: [f"{part}_{axis}" for axis in "dhw"] for part in parts}}
    cells: dict[str, Any] = {"batch": BATCH, "in_channels": one.in_channels, "out_channels": one.out_channels,
                             "groups": 1, "transposed": 0}  # fmt: skip
    values = {"": one.size, "kernel": one.kernel, "stride": one.stride, "pad": one.pad, "dilation": (1, 1, 1)}
    for name, names in along.items():
        cells |= dict(zip(names, values[name], strict=True))
    passes = ("forward", *(() if first else ("backward_input",)), "backward_weight")
    for pass_name in passes if step.trains else ("forward",):
        step.add("convolution", "conv", pass_name, **cells)


def _start(step: Step, shape: Architecture, tokens: Many) -> None:
    numel = tokens.times(shape.hidden)
    step.stream("words", "embedding", "forward", numel, (1, 1), row=shape.hidden, inputs=2)
    step.exchange(REPLAYED, "all_reduce", numel)
    if dict(shape.further).get("positions"):
        step.stream("positions added", "pointwise", "forward", numel, (2, 1), inputs=2)
    if step.trains:
        step.stream("words' gradients to zero", "copy", "backward", Many(shape.vocabulary * shape.hidden), (0, 1))
        step.stream("words, by weight", "embedding", "backward", numel, (2, 1), row=shape.hidden, inputs=2)


def _end(step: Step, shape: Architecture, stream: Stream) -> None:
    """Add output and loss; of a prompt, only the last token's output."""
    wide = shape.classes or shape.vocabulary
    tokens = (
        Many(1, BATCH) if shape.head == "classes" or (step.mode == "infer" and shape.decoder) else stream.tokens
    )
    if "head's layer" in dict(shape.further):
        step.product("head's layer", tokens, shape.hidden, shape.hidden, bias=True)
        step.both("head's activation", "pointwise", tokens.times(shape.hidden), (1, 1), (2, 1))
        step.norm("head's norm", tokens.times(shape.hidden), shape.hidden)
    step.product("output", tokens, wide, shape.hidden, bias=shape.head_bias)
    step.exchange("output gathered", "all_gather", tokens.times(wide * step.group.ranks))
    if step.trains:
        logits = tokens.times(wide)
        short = step.dtype != "fp32"
        if short:
            step.stream("logits to fp32", "copy", "forward", logits, (1, 2))
        step.stream("loss", "softmax", "forward", logits, (1, 1), row=wide, dtype="fp32")
        step.stream("loss, gradient", "softmax", "backward", logits, (2, 1), row=wide, dtype="fp32", inputs=2)
        if short:
            step.stream("logits from fp32", "copy", "backward", logits, (2, 1))


def _update(step: Step, shape: Architecture) -> None:
    # Approximate number of parameter tensors; it sets the launches of an update, and a fused update has few.
    tensors = 3 + sum(many * (block.norms + 5 + 2 * block.attention.bias[0]) for many, block in shape.blocks)
    rows = update_rows(shape.parameters, tensors, clip=False, impl=IMPL[step.fusion], dtype=step.dtype)
    step.rows += [{**row, "count": 1} for row in rows]


def step_rows(
    shape: Architecture, mode: Mode, sizes: Mapping[str, int], fusion: Fusion = "vendor",
    group: Sharing = ALONE, apart: Sharing = ALONE,
) -> list[dict[str, Any]]:  # fmt: skip
    """Return the ops of a step with their counts; cells are numbers or expressions in named sizes.

    `sizes`: values of the named sizes; they only decide whether a window is shorter than the sequence. `group`:
    the devices that share a step without gradients, `apart`: those that share its experts (`Step`); then ``shape``
    is one device's.
    """
    step = Step(shape.dtype, mode, fusion, shape.norm, group, apart)

    def stream(stack: Stack) -> Stream:
        tokens = f"{BATCH}*{stack.length}" if isinstance(stack.length, str) else BATCH
        return Stream(Many(1 if isinstance(stack.length, str) else stack.length, tokens), stack.length)

    source = stream(shape.encoder) if shape.encoder is not None else None
    step.module = "front"
    if mode != "decode":
        for place, one in enumerate(shape.front):
            _front(step, one, first=place == 0)
    target = None
    if shape.encoder is not None and source is not None and mode != "decode":
        if shape.vocabulary and not shape.front:
            _start(step, shape, source.tokens)
        _stack(step, "encoder", shape.encoder, source, None, shape, sizes)
        target = source
    if shape.decoder is not None:
        target = Stream(Many(1, BATCH), 1) if mode == "decode" else stream(shape.decoder)
        step.module = "words"
        _start(step, shape, target.tokens)
        _stack(step, "decoder", shape.decoder, target, source, shape, sizes)
    step.module = "head"
    if shape.head and target is not None:
        _end(step, shape, target)
    step.module = "update"
    if step.trains:
        _update(step, shape)
    return step.rows
