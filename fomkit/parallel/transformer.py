"""The ops of a transformer's step: training, a forward pass, or decoding one token; whole, or on one device.

`step_rows` makes those of an architecture. Kernels are those of current training and serving libraries: queries,
keys and values are one product; so are gate and up of a gated layer. `fomkit.ops.fusion` states which of the other
ops are one kernel each.

`training_rows` makes those of a training that devices share, `sizes_rows` the same on one device. Their kernels
are those of Megatron-LM as published with arXiv 2205.05198 (2022): bias, dropout and residual are one kernel; so
are scale, mask and softmax. Attention is batched products around a softmax, or one kernel where it is fused. The
style of Llama (Touvron et al., arXiv 2302.13971, section 2.2) has no biases and no dropout.

With experts, every token goes to ``top_k`` of them (Lepikhin et al., "GShard", arXiv 2006.16668, section 2.2;
Fedus et al., "Switch Transformers", arXiv 2101.03961, section 2.2). The capacity factor sets the slots of each
expert. All slots are sent and computed, also without a token: how tokens spread is declared, not predicted. A
tensor group splits each expert like a feed-forward layer, and each device routes and sends all tokens; of whole
experts each device has some, and routes and sends its own part of the sequence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from fomkit.core.errors import FomkitError
from fomkit.core.job import LAYOUT
from fomkit.core.model import BATCH
from fomkit.core.transformer import Architecture, Attention, Block, Experts, FeedForward, Stack, Transformer
from fomkit.ops.fusion import IMPL, Fusion, Part
from fomkit.parallel.kernels import ALONE, Many, Mode, Row, Sharing, Split, Step, Stream, tensors_of, update_rows
from fomkit.parallel.step import check_shared, words_of_one
from fomkit.prediction.exchange import REPLAYED

NOTHING = Many(0)
BLOCK, HEAD, EMBEDDING = "block", "head", "embedding"
FIRST = f"{BLOCK}_first"
"""Module of blocks without experts before others."""
TENSORS_OUTSIDE = 4
"""Parameter tensors outside blocks: words, positions or an output, and a norm's two. They set launches alone."""


def _latent(step: Step, one: Attention, stream: Stream) -> bool:
    """Add latent attention and return true; in decoding, queries and values meet the compressed cache itself.

    Layers that compress are not split by heads: each device has them whole, for its own tokens of the stream.
    """
    if (latent := one.latent) is None:
        return False
    tokens, own, hidden = stream.tokens, stream.own, step.hidden
    heads, turned = one.heads, latent.plain + latent.rotary
    if step.megatron:  # two layers read the stream
        step.stream("queries, keys, values, by input", "pointwise", own.times(hidden), (2, 1), back=True)
    if latent.query_rank:
        step.product("queries down", own, latent.query_rank, hidden, reads=NOTHING)
        step.norm("norm of queries", own, latent.query_rank)
    compressed = own.times(latent.query_rank)
    step.product("queries", tokens, heads * turned, latent.query_rank or hidden, reads=compressed)
    step.product("keys and values down", own, latent.rank + latent.rotary, hidden)
    step.norm("norm of keys and values", own, latent.rank)
    step.run("positions", "positions", tokens.times((heads + 1) * latent.rotary))
    if not step.trains:
        step.stream("to the cache", "copy", tokens.times(one.cached), (1, 1))
    if step.mode == "decode":
        step.product("queries to the cache's width", tokens, latent.rank, latent.plain, batches=heads)
        # Scores use rank and positions, sums the rank only; the cache holds both once for all heads.
        of_heads = (heads, 1, latent.rank + latent.rotary // 2)
        step.attend("latent attention", one, stream, of_heads, shared=latent.rank)
        step.product("values from the cache's width", tokens, latent.value, latent.rank, batches=heads)
    else:
        wide = heads * (latent.plain + latent.value)
        step.product("keys and values up", tokens, wide, latent.rank, reads=own.times(latent.rank))
        step.keep(own.times(latent.rotary))
        step.keep(tokens.times(heads * (2 * turned + latent.value)))
        if step.megatron:
            step.run("keys joined", "repeated", tokens.times(heads * turned))
        step.attend("attention", one, stream, (heads, heads, latent.head_dim))
    step.product("projection", tokens, hidden, heads * latent.value)
    return True


def _own_attention(step: Step, one: Attention, stream: Stream) -> None:
    if _latent(step, one, stream):
        return
    tokens, width = stream.tokens, one.head_dim
    both = (one.heads + one.kv_heads) * width
    three = both + one.kv_heads * width
    of_stream = stream.own.times(step.hidden)
    step.product("queries, keys, values", tokens, three, step.hidden, bias=one.bias[0], reads=of_stream)
    if step.megatron and one.bias[0]:
        step.stream("bias of these", "pointwise", tokens.times(three), (1, 1))
    if one.head_norm:  # of each head, or of all
        row = one.head_norm if one.head_norm > 2 * width else width
        step.norm("norms of queries and keys", tokens.times(both / row), row)
    if one.rotary:
        step.run("positions", "positions", tokens.times(both))
    if step.megatron:
        step.stream("queries, keys, values joined", "copy", tokens.times(three), (1, 1), back=True)
    if not step.trains and one.causal:
        step.stream("to the cache", "copy", tokens.times(one.cached), (1, 1))
    step.keep(tokens.times(three))
    step.attend("attention", one, stream, (one.heads, one.kv_heads, width))
    if step.megatron and step.unfused:
        step.run("context in rows", "repeated", tokens.times(one.heads * width))
    step.product("projection", tokens, step.hidden, one.heads * width, bias=one.bias[1], own=stream.own)


def _cross(step: Step, one: Attention, stream: Stream, source: Stream) -> None:
    """Add cross-attention to the encoder's output; its keys and values are computed once, before decoding."""
    tokens, hidden, width = stream.tokens, step.hidden, one.heads * one.head_dim
    step.product("queries for the source", tokens, width, hidden, bias=one.bias[0])
    if step.mode != "decode":
        keys = 2 * one.kv_heads * one.head_dim
        step.product("keys, values of the source", source.tokens, keys, hidden, bias=one.bias[0])
    of_heads = (one.heads, one.kv_heads, one.head_dim)
    step.attend("attention to the source", one, stream, of_heads, source=source)
    step.product("projection from the source", tokens, hidden, width, bias=one.bias[1])
    step.run("source added to the stream", "added", tokens.times(hidden))


def _feed(step: Step, one: FeedForward, tokens: Many, name: str = "feed-forward", *, own: Many | None = None,
          experts: int = 0, reads: Many | None = None) -> None:  # fmt: skip
    """Add a feed-forward layer, or that of each expert.

    ``tokens``: of one, ``own``: where its output is added; ``reads``: elements of its input that it keeps.
    """
    inner, wide = tokens.times((experts or 1) * one.width), (1 + one.gated) * one.width
    step.product(f"{name} in", tokens, wide, step.hidden, bias=one.bias, experts=experts, reads=reads)
    step.keep(inner.times(1 + one.gated))
    # The rate of an "activation" with its gate is that of serving engines' own kernels (`prediction.rates`).
    step.run("SiLU, gate" if one.gated and step.trains else "activation", "gated" if one.gated else "activation",
             inner)  # fmt: skip
    step.product(f"{name} out", tokens, step.hidden, one.width, bias=one.bias, own=own, experts=experts)


def _trained_experts(step: Step, one: Experts, stream: Stream) -> None:
    """Add router, slots for tokens, the experts' products and the sum of their outputs, with their gradients."""
    tokens, held, length = stream.routed, one.held or one.count, stream.length
    even = f"(({one.top_k}*{length} + {one.count - 1})//{one.count})"
    routed = stream.samples.times(tokens.factor / stream.tokens.factor)
    each = routed.times(one.count // held)
    each = each.times(even if isinstance(length, str) else one.slots(length, step.capacity))
    whole, slots, scores = tokens.times(step.hidden), each.times(held * step.hidden), tokens.times(one.count)
    step.stream("router and experts, by input", "pointwise", whole, (2, 1), back=True)
    step.product("router", tokens, one.count, step.hidden, reads=stream.own.times(step.hidden), low=False)
    step.run("router softmax", "trained router", scores, one.count)
    step.keep(scores, 4)
    # The scores in fp32; a chosen expert's number and share.
    top_k = Part("router top k", "reduction", (0, 1), (0, 0), mask=(0, 8 * one.top_k / one.count), dtype="stream")
    step.rows.append(step.kernel("", top_k, "forward", scores, one.count))
    step.stream("tokens to experts", "copy", slots, (1, 1))
    step.stream("tokens to experts", "pointwise", whole, (one.top_k, 1), back=True)
    _feed(step, one.each, each, experts=held)
    step.stream("tokens from experts", "pointwise", whole, (one.top_k, 1))
    # Read for every slot: the sum's gradient, and the expert's output; their product is the share's gradient.
    step.stream("tokens from experts", "pointwise", slots, (2, 1), back=True)
    step.keep(slots)


def _served_experts(step: Step, one: Experts, tokens: Many) -> None:
    """Add router and experts without gradients; tables time the experts of serving as one op.

    Where other devices hold some of the experts, as many places arrive as leave, each a token of one expert.
    """
    places = tokens.times(one.top_k)
    sent = places.times(step.hidden)
    step.product("router", tokens, one.count, step.hidden)
    step.run("router softmax", "softmax", tokens.times(one.count), one.count)
    if one.held:
        step.stream("tokens copied for experts", "copy", sent, (1, 1))
    experts, routed, chosen = (one.held, places, 1) if one.held else (one.count, tokens, one.top_k)
    step.exchange("tokens to experts", "all_to_all", sent, step.apart)
    step.add("experts", "experts", b=experts, m=routed.cell, n=one.each.width, k=step.hidden, experts=experts,
             top_k=chosen)  # fmt: skip
    step.exchange("tokens from experts", "all_to_all", sent, step.apart)
    if one.held:
        step.stream("sum of experts", "pointwise", tokens.times(step.hidden), (one.top_k, 1))


def _feed_or_experts(step: Step, block: Block, stream: Stream) -> None:
    """Add a block's second half; in training a tensor group splits the shared expert."""
    one = block.feed
    if isinstance(one, FeedForward):
        _feed(step, one, stream.tokens, own=stream.own, reads=stream.own.times(step.hidden))
        return
    if step.trains:
        _trained_experts(step, one, stream)
    else:
        _served_experts(step, one, stream.routed)
    if one.shared is not None:
        tokens = stream.tokens if step.trains else stream.routed
        _feed(step, one.shared, tokens, "shared expert", reads=NOTHING)  # the router keeps it
        step.run("shared expert added", "added", tokens.times(step.hidden))


def _one_kernel(step: Step, block: Block) -> bool:
    """Return whether additions to the stream and the norms after them are one kernel each."""
    return step.kernels == "compiled" and block.norms == 2 and not block.beside and block.cross is None


def _norm(step: Step, block: Block, place: int, own: Many) -> None:
    if not _one_kernel(step, block):
        step.norm(f"norm {place}", own, step.hidden)


def _added(step: Step, block: Block, what: str, own: Many) -> None:
    """Add what a half of a block returns to the stream; Megatron-LM's GPT has a dropout before."""
    one = block.feed.each if isinstance(block.feed, Experts) else block.feed
    rule = "both added" if block.beside else "added after dropout" if step.megatron and not one.gated else "added"
    if _one_kernel(step, block):
        step.run(f"{what} added and normalised", "added and normalised", own.times(step.hidden), step.hidden)
    else:
        step.run(f"{what} added to the stream", rule, own.times(step.hidden))
    if rule == "added after dropout":
        step.keep(own.times(step.hidden), 1)


def _block(step: Step, block: Block, stream: Stream, source: Stream | None = None) -> None:
    """Add a block. Of four norms, the second and the last are of what its halves return."""
    whole, after = stream.tokens.times(step.hidden), block.norms == 4
    for place in range(1, 1 + (block.norms if block.beside else 1)):
        _norm(step, block, place, stream.own)
    _own_attention(step, block.attention, stream)
    # Where experts are apart, a group's devices have a part of its tokens each, from attention to the block's end.
    parts = step.group.ranks if isinstance(block.feed, Experts) and step.apart.ranks > 1 else 1
    if parts > 1:
        step.exchange("stream scattered", "reduce_scatter", whole)
        stream = stream._replace(own=stream.tokens.share(parts), routed=stream.tokens.share(parts))
    elif not block.beside:  # else both halves are summed at once
        step.exchange(REPLAYED, "all_reduce", whole)
    if after:
        _norm(step, block, 2, stream.own)
    if not block.beside:
        _added(step, block, "attention", stream.own)
    if block.cross is not None and source is not None:
        _norm(step, block, 2, stream.own)
        _cross(step, block.cross, stream, source)
    if not block.beside:
        _norm(step, block, block.norms - after, stream.own)
    _feed_or_experts(step, block, stream)
    if parts == 1:
        step.exchange(REPLAYED, "all_reduce", whole)
    if after:
        _norm(step, block, 4, stream.own)
    _added(step, block, "both" if block.beside else "feed-forward", stream.own)
    if parts > 1:
        step.exchange("stream gathered", "all_gather", whole)
    step.close()


def _stack(step: Step, name: str, stack: Stack, stream: Stream, source: Stream | None = None) -> None:
    for place, (many, block) in enumerate(stack.blocks):
        # Blocks of different kinds wait for their host each by itself: the modules of a training tell them apart.
        step.count, step.module = many, f"{name}.block{f'_{place + 1}' * (step.trains and place > 0)}"
        _block(step, block, stream, source)
    step.count, step.module = 1, name
    if stack.last_norm:
        step.norm("last norm", stream.tokens, step.hidden)


def _front(step: Step, shape: Architecture) -> None:
    """Add the convolutions before the stacks; the first has no gradient of its input."""
    parts = ("kernel", "stride", "pad", "dilation")
    names = {"": ["depth", "height", "width"], **{part: [f"{part}_{axis}" for axis in "dhw"] for part in parts}}
    for place, one in enumerate(shape.front):
        cells: dict[str, Any] = {"batch": BATCH, "in_channels": one.in_channels, "out_channels": one.out_channels,
                                 "groups": 1, "transposed": 0}  # fmt: skip
        values = {"": one.size, "kernel": one.kernel, "stride": one.stride, "pad": one.pad, "dilation": (1, 1, 1)}
        for part, along in names.items():
            cells |= dict(zip(along, values[part], strict=True))
        step.add("convolution", "conv", **cells)
        ways = ("backward_weight",) if not place else ("backward_weight", "backward_input")
        step.gradients += [[step.row("convolution", "conv", way, cells)] for way in ways * step.trains]
    step.close()


def _embed(step: Step, stream: Stream, vocabulary: int, *, positions: bool) -> None:
    numel, own = stream.tokens.times(step.hidden), stream.own.times(step.hidden)
    if not step.megatron:
        step.stream("words' gradients to zero", "copy", Many(vocabulary * step.hidden), (0, 1), back=True)
    step.run("words", "words", numel, step.hidden)
    step.exchange(REPLAYED, "all_reduce", numel)
    if positions:
        step.stream("positions added", "pointwise", own, (2, 1))
        if step.megatron:
            step.run("dropout", "dropout", own)
    step.close()


def _logits(step: Step, tokens: Many, wide: int, *, bias: bool = False, own: Many | None = None) -> None:
    """Add the output and, in training, the loss in fp32."""
    step.product("output", tokens, wide, step.hidden, bias=bias, reads=own, low=False)
    step.exchange("output gathered", "all_gather", tokens.times(wide * step.group.ranks))
    if step.trains:
        step.run("", "loss", tokens.times(wide), wide)
        step.keep(tokens.times(wide), 4)
    step.close()


def _head(step: Step, shape: Architecture, stream: Stream) -> None:
    """Add output and loss; of a prompt, only the last token's output."""
    short = shape.head == "classes" or (step.mode == "infer" and shape.decoder is not None)
    tokens, hidden = stream.samples if short else stream.tokens, shape.hidden
    if "head's layer" in dict(shape.further):
        step.product("head's layer", tokens, hidden, hidden, bias=True)
        step.run("head's activation", "activation", tokens.times(hidden))
        step.norm("head's norm", tokens, hidden)
    _logits(step, tokens, shape.classes or shape.vocabulary, bias=shape.head_bias)


def _tensors(shape: Architecture) -> int:
    return sum(many * tensors_of(block, shape.norm_tensors) for many, block in shape.blocks) + TENSORS_OUTSIDE


def step_rows(
    shape: Architecture, mode: Mode, sizes: Mapping[str, int], fusion: Fusion = "vendor",
    group: Sharing = ALONE, apart: Sharing = ALONE,
) -> list[Row]:  # fmt: skip
    """Return the ops of a step with their counts; cells are numbers or expressions in named sizes.

    `sizes`: values of the named sizes; they only decide whether a window is shorter than the sequence. `group`:
    the devices that share a step without gradients, `apart`: those that share its experts (`Step`); then ``shape``
    is one device's.
    """
    step = Step(shape.dtype, mode, shape.hidden, fusion, sizes, shape.norm, unfused=fusion == "eager", group=group,
                apart=apart)  # fmt: skip
    positions, encoder, decoder = bool(dict(shape.further).get("positions")), shape.encoder, shape.decoder
    source = Stream.whole(Many(1, BATCH), encoder.length) if encoder is not None else None
    target = None
    if mode != "decode":
        step.module = "front"
        _front(step, shape)
    if encoder is not None and source is not None and mode != "decode":
        if shape.vocabulary and not shape.front:
            _embed(step, source, shape.vocabulary, positions=positions)
        _stack(step, "encoder", encoder, source)
        target = source
    if decoder is not None:
        step.close()
        step.module, target = "words", Stream.whole(Many(1, BATCH), 1 if mode == "decode" else decoder.length)
        _embed(step, target, shape.vocabulary, positions=positions)
        _stack(step, "decoder", decoder, target, source)
    step.module = "head"
    if shape.head and target is not None:
        _head(step, shape, target)
    step.close()
    if step.trains:
        impl = IMPL[fusion]
        step.rows += update_rows(shape.parameters, _tensors(shape), clip=False, impl=impl, dtype=step.dtype)
    return step.rows


def one_of_group(
    sizes: Transformer, tensor: int, *, whole_experts: bool = False, trains: bool = False
) -> Transformer:
    """Return the sizes of the part on one of ``tensor`` devices that share each layer, or all but its experts.

    A head of keys and values is on several devices where there are fewer of them than devices. The words are
    padded. Beside whole experts, a training splits the shared one.
    """
    names = ["heads", "dense_feed_forward"]
    names += ["feed_forward"] * (not whole_experts) + ["shared"] * (trains or not whole_experts)
    split = {name: size for name in names if (size := getattr(sizes, name))}
    if sizes.kv_heads > tensor:
        split["kv_heads"] = sizes.kv_heads
    elif tensor % sizes.kv_heads:  # a device's heads would read two heads of keys and values, others' one
        raise FomkitError(
            LAYOUT,
            f"tensor {tensor} is not divisible by kv_heads {sizes.kv_heads}. Choose a divisor or a multiple.",
        )
    check_shared(split, tensor)
    parts = {"kv_heads": 1, **{name: size // tensor for name, size in split.items()}}
    return replace(sizes, vocabulary=-(-sizes.vocabulary // tensor), **parts)


def block_of(one: Block, expert: int) -> Block:
    """Return the part of a block on one of ``expert`` devices that share its experts."""
    if expert == 1 or not isinstance(one.feed, Experts):
        return one
    return replace(one, feed=replace(one.feed, held=one.feed.count // expert))


def _training(shape: Transformer, split: Split, samples: Many | None = None, length: int | str = "") -> list[Step]:
    stream = Stream.whole(samples or Many(split.samples), length or shape.seq)
    own, routed = (stream.tokens.share(split.tensor if of_group else 1)
                   for of_group in (split.sequence, split.whole_experts))  # fmt: skip
    stream = stream._replace(own=own, routed=routed, context=split.context)

    def step(module: str) -> Step:
        return Step(split.dtype, "train", shape.hidden, "megatron", {"seq": shape.seq}, low=split.low,
                    unfused=shape.attention == "unfused", narrow=shape.window_share,
                    capacity=shape.capacity_factor, module=module)  # fmt: skip

    apart = split.whole_experts and shape.experts > 0
    kinds = one_of_group(shape, split.tensor, whole_experts=apart, trains=True).kinds
    steps = [*(step(FIRST) for _ in kinds[1:]), step(BLOCK), step(EMBEDDING), step(HEAD)]
    for made, (_, of) in zip(steps, kinds, strict=False):
        _block(made, block_of(of.block, split.expert), stream)
    *_, words, head = steps
    _embed(words, stream, shape.vocabulary, positions=not shape.gated)
    head.norm("last norm", stream.own, shape.hidden)
    _logits(head, stream.tokens, words_of_one(shape, split.tensor), own=stream.own.times(shape.hidden))
    return steps


def training_rows(
    shape: Transformer, split: Split, samples: Many | None = None, length: int | str = ""
) -> list[list[Row]]:
    """List the ops of one device: of a block of each kind (`Transformer.kinds`), of the words, and of the head.

    `samples`, `length`: of a microbatch and of its sequences, as named sizes in place of the numbers. Blocks of
    two kinds differ in module.
    """
    return [made.rows for made in _training(shape, split, samples, length)]


@lru_cache(256)
def kept_byte(
    shape: Transformer, tensor: int, *, sequence: bool, whole_experts: bool
) -> tuple[list[tuple[float, float]], float]:
    """Return the bytes of a sample that a block of each kind keeps for its gradients, and those of the head.

    Of a block they are those without attention's core, and those of the core. In the style of GPT they are those
    of arXiv 2205.05198, equations 1 to 4 and section 4.3.
    """
    split = Split(1.0, tensor, sequence, "bf16", whole_experts=whole_experts)
    *blocks, _, head = (
        (sum(one.factor for one in made.kept), sum(one.factor for one in made.kept_in_core))
        for made in _training(shape, split)
    )
    return blocks, head[0]


def sizes_rows(shape: Transformer, dtype: str, parameters: int, *, any_seq: bool = False) -> list[Row]:
    """List the ops of one training step on one device, by expressions in ``batch`` and, for `any_seq`, ``seq``."""
    split = Split(1, 1, sequence=False, dtype=dtype)
    *blocks, words, head = training_rows(shape, split, Many(1, BATCH), "seq" if any_seq else shape.seq)
    rows = [{**row, "count": round(many * row["count"], 9)}
            for (many, _), block in zip(shape.kinds, blocks, strict=True) for row in block]  # fmt: skip
    return [*rows, *words, *head, *update_rows(parameters, _tensors(shape.architecture), clip=False, dtype=dtype)]
