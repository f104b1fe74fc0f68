"""Read a ``config.json`` as an architecture: the names of each ``model_type``'s sizes, and its defaults.

`_KINDS` lists the differences between decoders; `_OTHERS` has a function for each other model. A field that is
required is read by name. A field that a kind may omit, because all its models are built one way, gets that
default, and a note says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fomkit.core.errors import FomkitError, nearest_names
from fomkit.core.transformer import (
    Architecture,
    Attention,
    Block,
    Convolution,
    Experts,
    FeedForward,
    Latent,
    Stack,
    Stored,
)
from fomkit.files.documents import Fields, parse_json, read_json_text

_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
SEQ, SOURCE = "seq", "source"
"""Named sizes: tokens of the stream; tokens of a decoder's source, if it has one."""


@dataclass(frozen=True)
class Kind:
    """How decoders of a kind are built.

    `norm`, `norms`: of its blocks. `gated`: feed-forward layers. `tied`: default for the file. `biases`: of
    queries, keys and values; of the output; None: by ``attention_bias``. `head_norm`: parameters of the norms of
    queries and keys, from heads, heads of keys and their width. `windows`: n > 0: of every n blocks all but the
    last have a window; 0: all have; -1: by the file. `per_head`: as in `Attention`. `head_dim`: default width of a
    head; 0: the stream's width over the heads. `experts`: reads them, if the kind has any.
    """

    norm: Any = "rms"
    norms: int = 2
    gated: bool = True
    biases: tuple[bool, bool] | None = None
    tied: bool = False
    head_norm: Callable[[int, int, int], int] = lambda *_: 0
    windows: int = -1
    per_head: int = 0
    head_dim: int = 0
    experts: Callable[[Fields], Experts] | None = None


def _mixtral(file: Fields) -> Experts:
    each = FeedForward(file.count("intermediate_size"), gated=True)
    return Experts(file.count("num_local_experts"), file.count("num_experts_per_tok"), each)


def _qwen_experts(file: Fields) -> Experts:
    each = FeedForward(file.count("moe_intermediate_size"), gated=True)
    return Experts(file.count("num_experts", "num_local_experts"), file.count("num_experts_per_tok"), each)


def _gpt_oss(file: Fields) -> Experts:
    count = file.count("num_local_experts")
    each = FeedForward(file.count("intermediate_size"), gated=True, bias=True)
    return Experts(count, file.count("num_experts_per_tok", "experts_per_token"), each, router_bias=count)


def _deepseek(file: Fields) -> Experts:
    width, shared = file.count("moe_intermediate_size"), file.count("n_shared_experts", least=0, absent=0)
    beside = FeedForward(width * shared, gated=True) if shared else None
    each = FeedForward(width, gated=True)
    return Experts(file.count("n_routed_experts"), file.count("num_experts_per_tok"), each, beside)


def _by_head(_heads: int, _kv: int, width: int) -> int:
    return 2 * width


def _by_all_heads(heads: int, kv: int, width: int) -> int:
    return (heads + kv) * width


_KINDS: dict[str, Kind] = {
    **dict.fromkeys(("llama", "granite"), Kind()),
    **dict.fromkeys(("smollm3", "ernie4_5"), Kind(tied=True)),
    **dict.fromkeys(("mistral", "ministral3"), Kind(biases=(False, False), windows=0)),
    "mixtral": Kind(biases=(False, False), windows=0, experts=_mixtral),
    "granitemoe": Kind(experts=_mixtral),
    **dict.fromkeys(("qwen2", "seed_oss"), Kind(biases=(True, False))),
    "qwen3": Kind(head_dim=128, head_norm=_by_head),
    "qwen3_moe": Kind(head_dim=128, head_norm=_by_head, experts=_qwen_experts),
    "gemma": Kind(tied=True, head_dim=256),
    "gemma2": Kind(tied=True, norms=4, windows=2, head_dim=256),
    "gemma3_text": Kind(tied=True, norms=4, windows=6, head_dim=256, head_norm=_by_head),
    "gpt_oss": Kind(biases=(True, True), windows=2, per_head=1, head_dim=64, experts=_gpt_oss),
    "phi3": Kind(biases=(False, False), windows=0),
    "olmo": Kind(norm="none"),
    "olmo2": Kind(head_norm=_by_all_heads),
    "olmo3": Kind(head_norm=_by_all_heads, windows=4),
    "deepseek_v2": Kind(experts=_deepseek),
    "deepseek_v3": Kind(experts=_deepseek),
}


def _dtype(file: Fields) -> str:
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
_BLOCK, _SCALE_BYTE = 64, 4
"""Weights per scale in bitsandbytes' 4-bit formats (Dettmers et al., arXiv 2305.14314, section 3); scale bytes."""


def _stored_weights(file: Fields) -> Stored | None:
    """Read how weights of linear layers are stored; an unknown method is named in a note."""
    content = file.content.get("quantization_config")
    if content is None:
        return None
    inner = Fields(f"{file.where}: quantization_config", content if isinstance(content, dict) else {})
    method = str(inner.content.get("quant_method", "unnamed"))
    kept = inner.content.get("modules_to_not_convert") or inner.content.get("ignore")
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


def _heads(file: Fields, hidden: int, usual: int = 0) -> tuple[int, int, int]:
    """Read heads, heads of keys and values, and the width of a head (default: ``usual``)."""
    heads = file.count("num_attention_heads")
    kv = file.count("num_key_value_heads", absent=heads)
    width = file.count("head_dim", absent=usual, why="as its kind is built" if usual else "") or hidden // heads
    if heads % kv or (not file.content.get("head_dim") and not usual and hidden % heads):
        what = f"{kv} key-value heads, {heads} heads and a width of {hidden} do not fit"
        raise FomkitError(file.where, f"{what}. Each of them must divide the next.")
    return heads, kv, width


def _latent(file: Fields) -> Latent:
    widths = file.counts("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    return Latent(file.count("q_lora_rank", least=0, absent=0), *widths)


def _layer_types(file: Fields) -> list[str]:
    """Read ``layer_types``; return an empty list if the file has none."""
    file.asked.add("layer_types")
    found = file.content.get("layer_types") or []
    known = ("full_attention", "sliding_attention")
    if not isinstance(found, list) or not all(one in known for one in found):
        what = f"layer_types is {found!r:.60}"
        raise FomkitError(file.where, f"{what}. Give full_attention or sliding_attention for each layer.")
    return found


def _windows(file: Fields, kind: Kind, layers: int) -> list[int]:
    """Return the window of each block; 0: none."""
    window, kinds = file.count("sliding_window", absent=0), _layer_types(file)
    first = file.count("max_window_layers", absent=0, least=0)
    if not window or (kind.windows < 0 and not file.flag("use_sliding_window", absent=False)):
        return [0] * layers
    if kinds:
        if len(kinds) != layers:
            raise FomkitError(file.where, f"layer_types names {len(kinds)} layers, and there are {layers}.")
        return [window if "sliding" in one else 0 for one in kinds]
    if kind.windows < 0:
        return [0 if place < first else window for place in range(layers)]
    every = file.count("sliding_window_pattern", "_sliding_window_pattern", least=0, absent=kind.windows)
    return [window if not every or (place + 1) % every else 0 for place in range(layers)]


def _decoder(file: Fields, name: str) -> Architecture:
    kind, hidden, layers = _KINDS[name], file.count("hidden_size"), file.count("num_hidden_layers")
    attention_bias = file.flag("attention_bias", absent=False)
    latent = _latent(file) if name.startswith("deepseek") else None
    if latent is None:
        heads, kv, width = _heads(file, hidden, kind.head_dim)
    else:
        heads = kv = file.count("num_attention_heads")
        file.asked.add("num_key_value_heads")  # one per head, computed from the cache
        width = latent.head_dim
    attention = Attention(
        heads, kv, width, kind.biases or (attention_bias, attention_bias), per_head=kind.per_head,
        head_norm=kind.head_norm(heads, kv, width), latent=latent,
    )  # fmt: skip
    mlp_bias = file.flag("mlp_bias", absent=False)
    experts = kind.experts(file) if kind.experts else None
    dense = set(range(file.count("first_k_dense_replace", least=0, absent=0))) if latent else set[int]()
    if experts is not None:
        dense |= set(file.places("mlp_only_layers"))
        if experts.top_k > experts.count or file.count("moe_layer_freq", absent=1) != 1:
            what = f"uses {experts.top_k} of {experts.count} experts, or not in every layer"
            raise FomkitError(file.where, f"{what}. Expected at most all of them, and moe_layer_freq 1.")
    every = file.count("decoder_sparse_step", absent=1) if experts else 1
    one_layer = FeedForward(file.count("intermediate_size"), kind.gated, mlp_bias)
    blocks = []
    for place, window in enumerate(_windows(file, kind, layers)):
        sparse = place not in dense and (place + 1) % every == 0
        feed = experts if experts is not None and sparse else one_layer
        blocks.append(Block(replace(attention, window=window), feed, kind.norms))
    why = f"as {name} is built"
    # Equal blocks are joined, adjacent or not: only the number of each matters.
    distinct = tuple((blocks.count(block), block) for block in dict.fromkeys(blocks))
    return Architecture(
        name, hidden, file.count("vocab_size"), kind.norm, None, Stack(distinct, SEQ),
        file.flag("tie_word_embeddings", absent=kind.tied, why=why), _dtype(file),
        sizes=((SEQ, min(file.count("max_position_embeddings", absent=4096), 4096)),),
    )  # fmt: skip


def _phi(file: Fields) -> Architecture:
    hidden, layers = file.count("hidden_size"), file.count("num_hidden_layers")
    heads, kv, width = _heads(file, hidden)
    norm = 4 * width if file.flag("qk_layernorm", absent=False) else 0
    block = Block(
        Attention(heads, kv, width, (True, True), head_norm=norm),
        FeedForward(file.count("intermediate_size"), gated=False, bias=True), 1, beside=True,
    )  # fmt: skip
    tied = file.flag("tie_word_embeddings", absent=False, why="as phi is built")
    return Architecture(
        "phi", hidden, file.count("vocab_size"), "layer", None, Stack(((layers, block),), SEQ), tied, _dtype(file),
        head_bias=True, sizes=((SEQ, file.count("max_position_embeddings")),),
    )  # fmt: skip


def _falcon(file: Fields) -> Architecture:
    hidden, layers, heads = file.counts("hidden_size", "num_hidden_layers", "num_attention_heads")
    new = file.flag("new_decoder_architecture", absent=False)
    kv = file.count("num_kv_heads", absent=heads) if new else 1 if file.flag("multi_query", absent=True) else heads
    bias, beside = file.flag("bias", absent=False), file.flag("parallel_attn", absent=True)
    feed = FeedForward(file.count("ffn_hidden_size", absent=4 * hidden), gated=False, bias=bias)
    norms = 2 if new or not beside else 1
    if new and file.content.get("num_ln_in_parallel_attn") == 1:
        norms = 1
    rotary = not file.flag("alibi", absent=False)
    block = Block(Attention(heads, kv, hidden // heads, (bias, bias), rotary=rotary), feed, norms, beside=beside)
    tied = file.flag("tie_word_embeddings", absent=True, why="as falcon is built")
    return Architecture(
        "falcon", hidden, file.count("vocab_size"), "layer", None, Stack(((layers, block),), SEQ), tied,
        _dtype(file), sizes=((SEQ, 2048),),
    )  # fmt: skip


def _gpt2(file: Fields) -> Architecture:
    hidden, layers, heads = file.count("n_embd"), file.count("n_layer"), file.count("n_head")
    positions = file.count("n_positions", "n_ctx")
    feed = FeedForward(file.count("n_inner", absent=4 * hidden), gated=False, bias=True)
    block = Block(Attention(heads, heads, hidden // heads, (True, True), rotary=False), feed)
    return Architecture(
        "gpt2", hidden, file.count("vocab_size"), "layer", None, Stack(((layers, block),), SEQ),
        file.flag("tie_word_embeddings", absent=True), _dtype(file), further=(("positions", positions * hidden),),
        sizes=((SEQ, positions),),
    )  # fmt: skip


def _bert(file: Fields) -> Architecture:
    hidden, layers, heads = file.counts("hidden_size", "num_hidden_layers", "num_attention_heads")
    feed = FeedForward(file.count("intermediate_size"), gated=False, bias=True)
    block = Block(Attention(heads, heads, hidden // heads, (True, True), causal=False, rotary=False), feed)
    positions, types = file.count("max_position_embeddings"), file.count("type_vocab_size", absent=2)
    masked = any(str(name).endswith("ForMaskedLM") for name in file.content.get("architectures") or [])
    transform = hidden * hidden + hidden
    if not masked:
        file.notes.append("architectures names no model ForMaskedLM: the encoder and its pooler, without a head")
    further = (
        ("positions", positions * hidden), ("types", types * hidden), ("norm of words", 2 * hidden),
        *((("head's layer", transform), ("head's norm", 2 * hidden)) if masked else (("pooler", transform),)),
    )  # fmt: skip
    return Architecture(
        "bert", hidden, file.count("vocab_size"), "layer", Stack(((layers, block),), SEQ, last_norm=False), None,
        True, _dtype(file), "words" if masked else "", head_bias=masked, further=further,
        sizes=((SEQ, positions),),
    )  # fmt: skip


def _t5(file: Fields) -> Architecture:
    hidden, heads, width = file.count("d_model"), file.count("num_heads"), file.count("d_kv")
    file.asked.add("feed_forward_proj")
    gated = str(file.content.get("feed_forward_proj", "relu")).startswith("gated")
    feed = FeedForward(file.count("d_ff"), gated)
    own = Attention(heads, heads, width, rotary=False)
    layers = file.count("num_layers")
    inner = Block(replace(own, causal=False), feed)
    outer = Block(own, feed, 3, replace(own, causal=False))
    places = file.count("relative_attention_num_buckets", absent=32) * heads
    return Architecture(
        "t5", hidden, file.count("vocab_size"), "rms", Stack(((layers, inner),), SOURCE),
        Stack(((file.count("num_decoder_layers", absent=layers), outer),), SEQ),
        file.flag("tie_word_embeddings", absent=True, why="as t5 is built"), _dtype(file),
        further=(("positions, of both stacks", 2 * places),), sizes=((SEQ, 512), (SOURCE, 512)),
    )  # fmt: skip


def _vit(file: Fields) -> Architecture:
    hidden, layers, heads = file.counts("hidden_size", "num_hidden_layers", "num_attention_heads")
    image, patch, channels = file.counts("image_size", "patch_size", "num_channels")
    if image % patch:
        raise FomkitError(
            file.where, f"patch_size {patch} does not divide image_size {image}. Give one that does."
        )
    classes = len(file.content.get("id2label") or {}) or file.count("num_labels", absent=0)
    if not classes:
        raise FomkitError(file.where, "id2label is missing. Add it, or num_labels: the number of classes.")
    tokens = (image // patch) ** 2 + 1
    bias = file.flag("qkv_bias", absent=True)
    feed = FeedForward(file.count("intermediate_size"), gated=False, bias=True)
    block = Block(Attention(heads, heads, hidden // heads, (bias, True), causal=False, rotary=False), feed)
    front = Convolution(channels, hidden, (1, image, image), (1, patch, patch), (1, patch, patch))
    return Architecture(
        "vit", hidden, 0, "layer", Stack(((layers, block),), tokens), None, False, _dtype(file), "classes",
        classes, head_bias=True, further=(("class token", hidden), ("positions", tokens * hidden)), front=(front,),
    )  # fmt: skip


def _whisper(file: Fields) -> Architecture:
    hidden, mel = file.count("d_model"), file.count("num_mel_bins")
    source, target = file.count("max_source_positions"), file.count("max_target_positions")
    stacks = []
    for side, length, causal in (("encoder", source, False), ("decoder", SEQ, True)):
        heads = file.count(f"{side}_attention_heads")
        own = Attention(heads, heads, hidden // heads, (True, True), key_bias=False, causal=causal, rotary=False)
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
        "whisper", hidden, file.count("vocab_size"), "layer", stacks[0], stacks[1], tied=True, dtype=_dtype(file),
        further=(("positions", (source + target) * hidden),), front=front, sizes=((SEQ, target),),
    )  # fmt: skip


_OTHERS: dict[str, Callable[[Fields], Architecture]] = {
    "phi": _phi, "falcon": _falcon, "gpt2": _gpt2,
    **dict.fromkeys(("bert", "roberta", "xlm-roberta", "camembert"), _bert),
    **dict.fromkeys(("t5", "mt5"), _t5), "vit": _vit, "whisper": _whisper,
}  # fmt: skip
KNOWN = (*_KINDS, *_OTHERS)
_NO_WORK = re.compile(
    r"_ids?$|_eps$|epsilon$|drop|^rope|^init|_factor$|_coef$|_std$|^summary_|^model_type$|^architectures$|^_|_act|"
    r"^activation|transformers_version|auto_map|use_cache|pretraining_tp|position_embeddings$|id2label|label2id|"
    r"is_encoder|is_decoder|^head_dim$|num_labels|n_group|topk|scoring|norm_topk|output_|return_|use_bidir|mask_|"
    r"problem_type|scal|chunk_size|max_distance$|^n_positions$|cache_implementation|^ep_size$|^dtype$|task_specific|n_ctx|bias$|encoder_stride|classifier|cross_attention"
)
"""Fields that change no work or are not used here; dropout is ignored everywhere."""


def read_architecture(path: Path) -> Architecture:
    """Read a ``config.json``; raise if a size is missing or its ``model_type`` is unknown."""
    content = parse_json(read_json_text(path), str(path))
    where = str(path)
    if isinstance(content, dict) and "traceEvents" in content:
        raise FomkitError(
            where, f"is a profiler's trace. Import it: fomkit import {where} --set batch=… -o model.yaml"
        )
    if isinstance(content, dict) and "class_name" in content:
        what = "is a model saved by Keras. Load it in a Python file: model = keras.models.model_from_json(…)."
        raise FomkitError(where, what)
    if not isinstance(content, dict) or "model_type" not in content:
        raise FomkitError(where, f"has no model_type. Give a transformer's config.json: {', '.join(KNOWN)}.")
    name = str(content["model_type"])
    if parts := sorted({"text_config", "vision_config", "audio_config"} & content.keys()):
        what = f"{name} has several parts ({', '.join(parts)})"
        raise FomkitError(where, f"{what}. Give one of them as a file of its own, with its model_type.")
    file = Fields(where, content, missing={})
    if name not in KNOWN:
        what = f"model_type is {name!r}, whose layers are unknown."
        raise FomkitError(where, f"{what} {_nearest(name, file)}")
    try:
        found = _OTHERS[name](file) if name in _OTHERS else _decoder(file, name)
    except FomkitError:
        file.check_missing()  # a missing field may be why the others do not fit
        raise
    file.check_missing()
    return _with_unused(found, file)


def _nearest(name: str, file: Fields) -> str:
    """Return known kinds with similar names, and the sizes in the file that a llama does not have."""
    sizes = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size")
    llama = Fields(file.where, dict.fromkeys(sizes, 1))
    _decoder(llama, "llama")
    counts = {key for key, value in file.content.items() if type(value) is int and not key.endswith("_id")}
    unplaced = ", ".join(sorted(counts - llama.asked)[:12])
    what = f"Read as a llama, these of its sizes are not used: {unplaced}." if unplaced else (
        "Its sizes have the names of a llama's; biases, norms and gates may differ."
    )  # fmt: skip
    return f"{nearest_names(name, KNOWN)} {what} Or profile the code of its layers: fomkit profile model.py."


def _with_unused(found: Architecture, file: Fields) -> Architecture:
    """Add a note of the fields that were not used, except those that change no work."""
    if file.content.get("use_bidirectional_attention"):
        raise FomkitError(file.where, "use_bidirectional_attention is true, which is not supported.")
    head = next(iter(file.content.get("architectures") or [""]))
    notes = [*file.notes]
    if found.kind in _KINDS and head and not str(head).endswith("ForCausalLM"):
        notes.append(f"architectures names {head}: a head over the whole vocabulary is counted nevertheless")
    stated = {key for key, value in file.content.items() if value is not None and value is not False}
    unused = sorted(key for key in stated - file.asked if not _NO_WORK.search(key))
    if unused:
        shown = ", ".join(unused[:12]) + (f" and {len(unused) - 12} more" if len(unused) > 12 else "")
        notes.append(f"fields of the file that are not used: {shown}")
    stored = _stored_weights(file)
    notes += [note for note in file.notes if note not in notes]
    return replace(found, notes=tuple(notes), stored=stored)
