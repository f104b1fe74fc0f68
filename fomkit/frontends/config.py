"""Make a model profile from a ``config.json``: training, a prompt's forward pass, or decoding one token."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from fomkit.core.errors import FomkitError
from fomkit.core.model import BATCH, CACHE, OF_SIZES, Data, ModelProfile, Run, Unit
from fomkit.core.transformer import Architecture, Block, Experts, FeedForward, Stored, Transformer
from fomkit.core.units import ITEM_BYTE, count_text
from fomkit.frontends.config_file import read_architecture
from fomkit.ops.families.costs import MATRICES
from fomkit.ops.fusion import IMPL, Fusion
from fomkit.ops.fusion import NOTES as NOTES_OF
from fomkit.ops.precision import FORMATS, linear_layers, restate_ops, stored_byte
from fomkit.ops.resize import resize_ops
from fomkit.ops.tables import empty_table, table_of_rows
from fomkit.parallel.kernels import Mode
from fomkit.parallel.transformer import sizes_rows, step_rows
from fomkit.plan.inference import order_rows
from fomkit.plan.options import check_positions
from fomkit.plan.transformer_step import NARROW

MILLION = 1_000_000
"""Tokens of a decoding run, the unit of work that is counted."""
NOTES = (
    "made by rule from the sizes in config.json, not traced: attention, norms, activations and positions are one "
    "kernel each, and so are queries, keys and values (docs/frontends.md)"
)
SEEN = "a window of {:,} tokens counts as that many keys for each query, also at other sizes"
UNSEEN = "a window of {:,} tokens covers the whole sequence: every token counts as a key, also at other sizes"
KEPT_LOW = "weights of linear layers are stored as quantization_config ({}) states: {}"
PACKED = (
    "weights of {} are stored in {:.3g} byte each, scales included (quantization_config: {}), and "
    "multiplied in {}; dequantising is not counted. {} are not quantised"
)
TRAINED_WIDE = "quantization_config ({}) is for inference: a training step counts in {}; --precision changes it"
TOKENS = "tokens choose experts by chance; how they spread is not predicted"


def _sizes_used(
    shape: Architecture, mode: Mode, given: Mapping[str, int], batch: int | None, where: str
) -> dict[str, int]:
    """Return the named sizes of a step; given values take precedence over those of the file."""
    known = {BATCH: batch or 1, **dict(shape.sizes)}
    if mode == "decode":
        known.pop("seq", None)
        known[CACHE] = dict(shape.sizes).get("seq", 1024)
    for name in given:
        if name not in known:
            raise FomkitError(where, f"{name!r} is not a size of its step. It has {', '.join(known)}.")
        check_positions(name, given[name], shape.longest or None, where)
    return known | dict(given)


def _counted(parameters: int) -> str:
    return f"{parameters / 1e6:.3g} million" if parameters < 999.5e6 else f"{parameters / 1e9:.3g} billion"


def _title(shape: Architecture) -> str:
    stack = shape.decoder or shape.encoder
    depth = 0 if stack is None else stack.depth
    all_of_it, of_a_token = shape.parameters, shape.active_parameters
    active = "" if of_a_token == all_of_it else f", {_counted(of_a_token)} of a token"
    blocks = count_text(depth, "block")
    return f"{shape.kind}: {blocks}, {shape.hidden:,} wide, {_counted(all_of_it)} parameters{active}"


def _alike(block: Block) -> Block:
    """Return a block of Llama's style without what a `Transformer` leaves out: small biases."""
    attention = replace(block.attention, bias=(block.attention.bias[0], False), per_head=0)
    feed = replace(block.feed, bias=False) if isinstance(block.feed, FeedForward) else block.feed
    if isinstance(feed, Experts):
        feed = replace(feed, each=replace(feed.each, bias=False), router_bias=0)
    return replace(block, attention=attention, feed=feed)


def _layout_sizes(shape: Architecture, seq: int) -> Transformer | None:
    """Return the sizes by which devices share a decoder of blocks of Llama's or GPT's style; else None.

    A share of the blocks may have a window, and the first of them one layer in place of experts. Biases of
    Llama's style, other than those of queries, keys and values, are left out: at most a thousandth of the
    parameters.
    """
    if shape.decoder is None or shape.encoder is not None:
        return None
    blocks, style = shape.decoder.blocks, dict[str, Any]()
    narrow = [(many, width) for many, block in blocks if (width := block.attention.window)]
    (many, first), (_, block) = blocks[0], blocks[-1]
    one, feed = block.attention, block.feed
    if isinstance(feed, Experts):
        style = {"experts": feed.count, "top_k": feed.top_k, "shared": feed.shared.width if feed.shared else 0}
        feed = feed.each
        if isinstance(first.feed, FeedForward):
            style |= {"dense_blocks": many, "dense_feed_forward": first.feed.width}
    if narrow:
        style |= {"window": narrow[0][1], "window_share": sum(many for many, _ in narrow) / shape.decoder.depth}
    if feed.gated:
        style |= {"style": "llama", "head_norm": one.head_norm, "qkv_bias": one.bias[0], "norms": block.norms,
                  "latent": one.latent}  # fmt: skip
        blocks = tuple((many, _alike(block)) for many, block in blocks)
    found = Transformer(
        shape.hidden, one.heads, shape.decoder.depth, seq, shape.vocabulary, feed.width, "fused",
        kv_heads=one.kv_heads, head_dim=one.head_dim, tied=shape.tied, **style,
    )  # fmt: skip
    made = found.architecture
    wanted, own = ({block: sum(many for many, one in of if one == block) for _, block in of}
                   for of in (blocks, made.blocks))  # fmt: skip
    # Learnt positions that --seq does not use are not in these sizes, nor are other norms, or none.
    plain = replace(shape, decoder=replace(shape.decoder, blocks=blocks))
    return found if wanted == own and made.parameters == plain.parameters else None


def _narrowed(
    shape: Architecture, stored: Stored, ops: pd.DataFrame, sizes: dict[str, int]
) -> tuple[Any, float, str]:
    """Return a gradient-free step's ops with weights as they are stored, the bytes saved, and a note."""
    numbers, item = resize_ops(ops, sizes, shape.kind), ITEM_BYTE[shape.dtype]
    if stored.precision:
        formats = FORMATS[stored.precision]
        made = restate_ops(numbers, formats)
        note = KEPT_LOW.format(stored.method, formats.message)
        return ops.assign(dtype=made["dtype"], engine=made["engine"]), stored_byte(numbers, formats), note
    of_experts = numbers["experts"].notna()
    layers = linear_layers(numbers, numbers["kind"].isin(["gemm", "experts"]), 1)
    layers &= of_experts | (not stored.experts)
    share, each = stored.byte / item, of_experts.map({True: MATRICES, False: 1})
    weights = (numbers["b"] * numbers["n"] * numbers["k"] * each * numbers["count"])[layers].sum()
    which, rest = (
        ("experts", "All others") if stored.experts else ("linear layers", "Embeddings, routers and the head")
    )
    note = PACKED.format(which, stored.byte, stored.method, shape.dtype, rest)
    packed = ops.assign(weight_share=layers.map({True: share, False: math.nan}))
    return packed, float(weights) * (item - stored.byte), note


def profile_config(
    path: Path, *, mode: Mode | Literal["prefill"] = "train", batch: int | None = None,
    sizes: Mapping[str, int] | None = None, name: str | None = None, fusion: Fusion = "vendor",
) -> ModelProfile:  # fmt: skip
    """Make the profile of a transformer's step from its ``config.json``.

    `mode`: ``train``: a training step with Adam; ``infer`` or ``prefill``: the forward pass, for a decoder over a
    prompt up to its first word; ``decode``: one token of each sample after ``cache`` tokens. `sizes`: ``seq``,
    ``source``, ``cache``. `fusion`: which ops are one kernel (`fomkit.ops.fusion`).
    """
    shape = read_architecture(path)
    if mode in ("prefill", "decode") and shape.decoder is None:
        raise FomkitError(
            str(path),
            f"is of {shape.kind}, which does not generate tokens one by one. Leave mode {mode} out, or use infer.",
        )
    if mode == "prefill":
        mode = "infer"
    used = _sizes_used(shape, mode, sizes or {}, batch, str(path))
    blocks = [block for _, block in shape.blocks]
    notes = [NOTES, *shape.notes]
    notes += [f"{NARROW.format(shape.dtype)}; nothing is recomputed"] * (mode == "train")
    most = used.get(CACHE, used.get("seq", 0))
    notes += [(SEEN if one < most or (one == most and mode == "decode") else UNSEEN).format(one)
              for one in sorted({block.attention.window for block in blocks} - {0})]  # fmt: skip
    notes += [TOKENS] * any(isinstance(block.feed, Experts) for block in blocks)
    notes += [NOTES_OF[fusion]] * (fusion != "vendor")
    # Serving splits a step of any length: learnt positions are those of the file.
    positions = used.get("seq", most) if mode == "train" else dict(shape.sizes).get("seq", most)
    splits = (mode == "decode" or "seq" in used) and fusion == "vendor"
    layout_sizes = _layout_sizes(shape, positions) if splits else None
    saved = 0.0
    if layout_sizes is not None and mode == "train":
        rows = sizes_rows(layout_sizes, shape.dtype, shape.parameters, any_seq=True)
    else:
        rows = step_rows(shape, mode, used, fusion)
    ops = table_of_rows(rows, "OPS")
    if shape.stored is not None and mode == "train":
        notes.append(TRAINED_WIDE.format(shape.stored.method, shape.dtype))
    elif shape.stored is not None:
        ops, saved, note = _narrowed(shape, shape.stored, ops, used)
        notes.append(note)
    order = None if mode == "train" else table_of_rows(order_rows(shape, mode, rows, used, saved), "ORDER")
    data, run, unit = (Data(MILLION), Run(1), Unit("megatoken")) if mode == "decode" else (Data(), Run(), Unit())
    return ModelProfile(
        name=name or path.stem.removesuffix(".config"), title=_title(shape),
        ops=ops, parts=empty_table("OPS"), sizes=used,
        traced_with={"framework": "rule", "device": OF_SIZES, "mode": "train" if mode == "train" else "infer",
                     **({} if fusion == "vendor" else {"fusion": fusion})},
        parameters_total=shape.parameters, parameters_trainable=shape.parameters, data=data, run=run, unit=unit,
        optimizer={"rule": "adam", "impl": IMPL[fusion]} if mode == "train" else {}, notes=tuple(notes),
        excludes=("prompt",) * (mode == "decode"), order=order,
        transformer=layout_sizes, learnt_positions=shape.longest or None,
    )  # fmt: skip
