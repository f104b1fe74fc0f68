"""Read how a ``config.json`` states number formats, and the models that are no row of the table of decoders."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from fomkit.core.errors import FomkitError
from fomkit.core.transformer import Architecture, Attention, Block, Convolution, FeedForward, Stack, Stored
from fomkit.files.documents import Fields

SEQ, SOURCE = "seq", "source"
"""Named sizes: tokens of the stream; tokens of a decoder's source, if it has one."""
_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


def dtype_of(file: Fields) -> str:
    """Return the number format of the weights that a file states."""
    file.asked |= {"dtype", "torch_dtype", "quantization_config"}
    name = file.content.get("dtype") or file.content.get("torch_dtype")
    if name is None:
        file.notes.append("torch_dtype is not in the file: bf16 is assumed")
        return "bf16"
    if not isinstance(name, str) or name not in _DTYPES:
        raise FomkitError(file.where, f"torch_dtype is {name!r:.40}. Give one of {', '.join(_DTYPES)}.")
    return _DTYPES[name]


_FP8 = ("fp8", "fbgemm_fp8")
"""Methods that store weights of linear layers, and compute their activations, in fp8."""
_PACKED = ("gptq", "awq", "bitsandbytes")
"""Methods that pack weights only, which are widened before they are multiplied."""
_MODELOPT = {"FP8": "fp8", "NVFP4": "nvfp4"}
"""Formats of ModelOpt's algorithms, in which weights are stored and activations computed."""
_BLOCK, _SCALE_BYTE = 64, 4
"""Weights per scale in bitsandbytes' 4-bit formats (Dettmers et al., arXiv 2305.14314, section 3); scale bytes."""


def stored_weights(file: Fields) -> Stored | None:
    """Read how weights of linear layers are stored; an unknown method is named in a note."""
    content = file.content.get("quantization_config")
    if content is None:
        return None
    inner = Fields(f"{file.where}: quantization_config", content if isinstance(content, dict) else {})
    method = str(inner.content.get("quant_method", "unnamed"))
    kept = inner.content.get("modules_to_not_convert") or inner.content.get("ignore")
    if method == "mxfp4" and file.count("num_local_experts", absent=0):
        # Numbers of 4 bits, with one scale byte for 32 (OCP Microscaling Formats, version 1.0).
        return Stored(method, "", 0.5 + 1 / 32, experts=True)
    groups = inner.content.get("config_groups")
    if method == "compressed-tensors" and isinstance(groups, dict) and len(groups) == 1:
        return _compressed(next(iter(groups.values())), file, inner.where)
    if method == "modelopt" and (algorithm := str(inner.content.get("quant_algo"))) in _MODELOPT:
        return Stored(method, _MODELOPT[algorithm], 1.0)
    if kept and method in (*_FP8, *_PACKED):
        file.notes.append("modules that quantization_config excludes count as quantised, except the last product")
    if method in _FP8:
        block = inner.content.get("weight_block_size")
        if block not in (None, [128, 128]):
            known = "Blocks of [128, 128] are known: give these, or leave it out for one scale of a tensor"
            raise FomkitError(inner.where, f"weight_block_size is {block!r:.40}. {known}.")
        return Stored(method, "fp8_block" if block else "fp8", 1.0)
    if method not in _PACKED:
        file.notes.append(f"quantization_config ({method}) is not known: weights count as not quantised")
        return None
    if method == "bitsandbytes":
        if inner.flag("load_in_8bit", absent=False):
            return Stored(method, "", 1.0)
        scale = (1 + _SCALE_BYTE / 256) if inner.flag("bnb_4bit_use_double_quant", absent=False) else _SCALE_BYTE
        return Stored(method, "", 0.5 + scale / _BLOCK)
    bits = inner.count("bits", "w_bit")
    group = inner.count("group_size", "q_group_size", least=-1, absent=-1)
    if bits not in (2, 3, 4, 8) or not group:
        what = f"bits is {bits} and group_size {group}"
        raise FomkitError(
            inner.where, f"{what}. Give 2, 3, 4 or 8 bits, and a group of 1 or more, or -1 for none."
        )
    # Each group has a 16-bit scale and a zero point as wide as a weight; without groups each column has them.
    return Stored(method, "", bits / 8 + (2 + bits / 8) / group if group > 0 else bits / 8)


def _compressed(group: object, file: Fields, where: str) -> Stored | None:
    """Read the one group of layers whose weights compressed-tensors stores in a narrow format."""
    parts = {} if not isinstance(group, dict) else group
    content = parts.get("weights")
    weights = Fields(f"{where}.weights", content if isinstance(content, dict) else {})
    bits, kind = weights.count("num_bits"), str(weights.content.get("type"))
    both = (bits, kind) if parts.get("input_activations") else None
    group_size = weights.count("group_size", least=-1, absent=-1)
    if both in ((8, "float"), (8, "int")):
        block = "_block" if weights.content.get("strategy") == "block" and kind == "float" else ""
        return Stored("compressed-tensors", f"fp8{block}" if kind == "float" else "int8", 1.0)
    if both is None and bits in (4, 8):
        file.notes.append("modules that quantization_config excludes count as quantised, except the last product")
        return Stored("compressed-tensors", "", bits / 8 + (2 / group_size if group_size > 0 else 0))
    what = f"compressed-tensors, {bits} bits of {kind:.20}"
    file.notes.append(f"quantization_config ({what}) is not known: weights count as not quantised")
    return None


def check_known(file: Fields, name: str, only: Mapping[str, Any]) -> None:
    """Raise where a field has another value than the one with which a kind is known, or than another field's."""
    for key, known in only.items():
        file.asked.add(key)
        value, wanted = file.content.get(key), file.content.get(known) if isinstance(known, str) else known
        if value is not None and value != wanted:
            what = f"{key} is {json.dumps(value)[:60]}, which is not supported"
            raise FomkitError(file.where, f"{what} of {name}. Expected: {json.dumps(wanted)}, or no such field.")


def model_names(file: Fields) -> list[str]:
    """Return the names of the classes that a file's weights are of."""
    found = file.content.get("architectures") or []
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise FomkitError(file.where, f"architectures is {found!r:.40}. Give a list of names, or leave it out.")
    return found


def _width(file: Fields, hidden: int, heads: int) -> int:
    """Return the width of a head."""
    if hidden % heads:
        raise FomkitError(file.where, f"{heads} heads do not divide a width of {hidden}. Give a divisor.")
    return hidden // heads


def _falcon(file: Fields) -> Architecture:
    hidden, layers, heads = file.counts("hidden_size", "num_hidden_layers", "num_attention_heads")
    new = file.flag("new_decoder_architecture", absent=False)
    kv = file.count("num_kv_heads", absent=heads) if new else 1 if file.flag("multi_query", absent=True) else heads
    bias, beside = file.flag("bias", absent=False), file.flag("parallel_attn", absent=True)
    feed = FeedForward(file.count("ffn_hidden_size", absent=4 * hidden), gated=False, bias=bias)
    norms = file.count("num_ln_in_parallel_attn", absent=1 + new) if beside else 2
    rotary = not file.flag("alibi", absent=False)
    block = Block(
        Attention(heads, kv, _width(file, hidden, heads), (bias, bias), rotary=rotary), feed, norms, beside=beside
    )
    tied = file.flag("tie_word_embeddings", absent=True, why="as falcon is built")
    return Architecture(
        "falcon", hidden, file.count("vocab_size"), "layer", None, Stack(((layers, block),), SEQ), tied,
        dtype_of(file), sizes=((SEQ, 2048),),
    )  # fmt: skip


def _masked(file: Fields, without: str) -> bool:
    """Return whether an encoder has the head that finds masked words; a note says what it is ``without`` one."""
    file.asked.add("tie_word_embeddings")
    masked = any(name.endswith("ForMaskedLM") for name in model_names(file))
    if not masked:
        file.notes.append(f"architectures names no model ForMaskedLM: {without}, without a head")
    else:
        check_known(file, str(file.content["model_type"]), {"tie_word_embeddings": True})
    return masked


def _bert(file: Fields) -> Architecture:
    kind = str(file.content["model_type"])
    check_known(file, kind, {"is_decoder": False})
    hidden, layers, heads = file.counts("hidden_size", "num_hidden_layers", "num_attention_heads")
    feed = FeedForward(file.count("intermediate_size"), gated=False, bias=True)
    block = Block(
        Attention(heads, heads, _width(file, hidden, heads), (True, True), causal=False, rotary=False), feed
    )
    positions, types = file.count("max_position_embeddings"), file.count("type_vocab_size", absent=2)
    # RoBERTa's positions begin after its padding token: two rows of the table are no places of the text.
    longest = positions if kind == "bert" else positions - 2
    masked, transform = _masked(file, "the encoder and its pooler"), hidden * hidden + hidden
    further = (
        ("positions", positions * hidden), ("types", types * hidden), ("norm of words", 2 * hidden),
        *((("head's layer", transform), ("head's norm", 2 * hidden)) if masked else (("pooler", transform),)),
    )  # fmt: skip
    return Architecture(
        kind, hidden, file.count("vocab_size"), "layer", Stack(((layers, block),), SEQ, last_norm=False), None,
        True, dtype_of(file), "words" if masked else "", head_bias=masked, further=further,
        sizes=((SEQ, longest),), longest=longest,
    )  # fmt: skip


def _distilbert(file: Fields) -> Architecture:
    hidden, layers, heads = file.counts("dim", "n_layers", "n_heads")
    feed = FeedForward(file.count("hidden_dim"), gated=False, bias=True)
    block = Block(
        Attention(heads, heads, _width(file, hidden, heads), (True, True), causal=False, rotary=False), feed
    )
    positions, masked = file.count("max_position_embeddings"), _masked(file, "the encoder")
    head = (("head's layer", hidden * hidden + hidden), ("head's norm", 2 * hidden)) * masked
    return Architecture(
        "distilbert", hidden, file.count("vocab_size"), "layer", Stack(((layers, block),), SEQ, last_norm=False),
        None, True, dtype_of(file), "words" if masked else "", head_bias=masked,
        further=(("positions", positions * hidden), ("norm of words", 2 * hidden), *head),
        sizes=((SEQ, positions),), longest=positions,
    )  # fmt: skip


def _t5(file: Fields) -> Architecture:
    hidden, heads, width = file.count("d_model"), file.count("num_heads"), file.count("d_kv")
    file.asked |= {"feed_forward_proj", "dense_act_fn"}
    gated = file.flag("is_gated_act", absent=False)
    gated |= str(file.content.get("feed_forward_proj", "relu")).startswith("gated")
    feed = FeedForward(file.count("d_ff"), gated)
    own = Attention(heads, heads, width, rotary=False)
    layers = file.count("num_layers")
    inner = Block(replace(own, causal=False), feed)
    outer = Block(own, feed, 3, replace(own, causal=False))
    places = file.count("relative_attention_num_buckets", absent=32) * heads
    return Architecture(
        "t5", hidden, file.count("vocab_size"), "rms", Stack(((layers, inner),), SOURCE),
        Stack(((file.count("num_decoder_layers", absent=layers), outer),), SEQ),
        file.flag("tie_word_embeddings", absent=True, why="as t5 is built"), dtype_of(file),
        further=(("positions, of both stacks", 2 * places),), sizes=((SEQ, 512), (SOURCE, 512)),
    )  # fmt: skip


def _vit(file: Fields) -> Architecture:
    hidden, layers, heads = file.counts("hidden_size", "num_hidden_layers", "num_attention_heads")
    image, patch, channels = file.counts("image_size", "patch_size", "num_channels")
    if image % patch:
        raise FomkitError(
            file.where, f"patch_size {patch} does not divide image_size {image}. Give one that does."
        )
    labels = file.content.get("id2label")
    classes = len(labels if isinstance(labels, dict) else {}) or file.count("num_labels", absent=0)
    if not classes:
        raise FomkitError(file.where, "id2label is missing. Add it, or num_labels: the number of classes.")
    tokens = (image // patch) ** 2 + 1
    bias = file.flag("qkv_bias", absent=True)
    feed = FeedForward(file.count("intermediate_size"), gated=False, bias=True)
    block = Block(
        Attention(heads, heads, _width(file, hidden, heads), (bias, True), causal=False, rotary=False), feed
    )
    front = Convolution(channels, hidden, (1, image, image), (1, patch, patch), (1, patch, patch))
    return Architecture(
        "vit", hidden, 0, "layer", Stack(((layers, block),), tokens), None, False, dtype_of(file), "classes",
        classes, head_bias=True, further=(("class token", hidden), ("positions", tokens * hidden)), front=(front,),
    )  # fmt: skip


def _whisper(file: Fields) -> Architecture:
    check_known(file, "whisper", {"tie_word_embeddings": True})
    hidden, mel = file.count("d_model"), file.count("num_mel_bins")
    source, target = file.count("max_source_positions"), file.count("max_target_positions")
    stacks = []
    for side, length, causal in (("encoder", source, False), ("decoder", SEQ, True)):
        heads = file.count(f"{side}_attention_heads")
        own = Attention(
            heads, heads, _width(file, hidden, heads), (True, True), key_bias=False, causal=causal, rotary=False
        )
        feed = FeedForward(file.count(f"{side}_ffn_dim"), gated=False, bias=True)
        cross = replace(own, causal=False) if causal else None
        stacks.append(
            Stack(((file.count(f"{side}_layers"), Block(own, feed, 3 if causal else 2, cross)),), length)
        )
    frames = 2 * source
    sound, three, pad = (1, 1, frames), (1, 1, 3), (0, 0, 1)
    front = (Convolution(mel, hidden, sound, three, (1, 1, 1), pad),
             Convolution(hidden, hidden, sound, three, (1, 1, 2), pad))  # fmt: skip
    return Architecture(
        "whisper", hidden, file.count("vocab_size"), "layer", stacks[0], stacks[1], tied=True,
        dtype=dtype_of(file), further=(("positions", (source + target) * hidden),), front=front,
        sizes=((SEQ, target),), longest=target,
    )  # fmt: skip


_BART = {
    "bart": (2, True, False),
    "mbart": (2, True, True),
    "pegasus": (0, False, True),
    "marian": (0, False, False),
}
"""Of encoders and decoders of BART's names: further positions, whether words have a norm and stacks a last one."""


def _bart(file: Fields) -> Architecture:
    name = str(file.content["model_type"])
    check_known(file, name, {"tie_word_embeddings": True, "share_encoder_decoder_embeddings": True})
    hidden, positions = file.count("d_model"), file.count("max_position_embeddings")
    further, of_words, last = _BART[name]
    stacks = []
    for side, length, causal in (("encoder", SOURCE, False), ("decoder", SEQ, True)):
        heads = file.count(f"{side}_attention_heads")
        own = Attention(heads, heads, _width(file, hidden, heads), (True, True), causal=causal, rotary=False)
        feed = FeedForward(file.count(f"{side}_ffn_dim"), gated=False, bias=True)
        block = Block(own, feed, 3, replace(own, causal=False)) if causal else Block(own, feed)
        stacks.append(Stack(((file.count(f"{side}_layers"), block),), length, last))
    tables = (("positions, of both stacks", 2 * (positions + further) * hidden),)
    norms = (("norms of words, of both stacks", 4 * hidden),) * of_words
    usual = min(positions, 1024)
    return Architecture(
        name, hidden, file.count("vocab_size"), "layer", stacks[0], stacks[1], True, dtype_of(file),
        further=tables + norms, sizes=((SEQ, usual), (SOURCE, usual)),
        longest=positions,
    )  # fmt: skip


OTHERS: dict[str, Callable[[Fields], Architecture]] = {
    "falcon": _falcon, "distilbert": _distilbert, "vit": _vit, "whisper": _whisper, **dict.fromkeys(_BART, _bart),
    **dict.fromkeys(("bert", "roberta", "xlm-roberta", "camembert"), _bert), **dict.fromkeys(("t5", "mt5"), _t5),
}  # fmt: skip
"""How the file of each model type is read."""
