"""Read a ``config.json`` as an architecture: the names of each ``model_type``'s sizes, and its defaults.

`_KINDS` lists the differences between decoders; `OTHERS` of `config_models` has a function for each other model. A
field that is required is read by name. One that a kind may omit, because all its models are built one way, gets
that default, and a note says so. A field whose value would make another model is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fomkit.core.errors import FomkitError, nearest_names
from fomkit.core.transformer import Architecture, Attention, Block, Experts, FeedForward, Latent, Stack
from fomkit.files.documents import Fields, parse_json, read_json_text
from fomkit.frontends.config_models import OTHERS, SEQ, check_known, dtype_of, model_names, stored_weights

Rule = bool | str
"""Whether a decoder has a part: of all its kind, or the name of the field that says so."""


@dataclass(frozen=True)
class Kind:
    """How decoders of a kind are built.

    `names`: its names of a llama's sizes. `norm`, `norms`: of its blocks. `gated`: feed-forward layers. `tied`:
    default for the file. `biases`: of queries, keys and values; of the output. `feed_bias`: of feed-forward
    layers. `head_bias`: of the last product. `usual`: fields among these rules that are true if absent.
    `beside`: whether attention and feed-forward layer read the same input; `beside_norms`: the norms of a block
    then. `head_norm`: parameters of the norms of queries and keys, from heads, heads of keys and their width;
    `head_norm_if`: whether it has them. `windows`: n > 0: of every n blocks all but the last have a window; 0: all
    have; -1: by the file. `per_head`, `rotary`: as in `Attention`. `latent`: whether its attention is latent.
    `positions`: rows of the table of learnt positions beside those that the file states; None: no such table.
    `word_norm`: whether words have a norm. `head_dim`: default width of a head; 0: the stream's width over
    the heads. `wide`: default width of a feed-forward layer over that of the stream. `experts`: reads them, if the
    kind has any. `only`: values of fields besides which the kind is not known, or names of fields that have them.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    norm: Any = "rms"
    norms: int = 2
    gated: bool = True
    biases: tuple[Rule, Rule] = ("attention_bias", "attention_bias")
    feed_bias: Rule = "mlp_bias"
    head_bias: Rule = False
    usual: tuple[str, ...] = ()
    beside: Rule = False
    beside_norms: int = 1
    tied: bool = False
    head_norm: Callable[[int, int, int], int] = lambda *_: 0
    head_norm_if: Rule = True
    windows: int = -1
    per_head: int = 0
    rotary: bool = True
    latent: bool = False
    positions: int | None = None
    word_norm: bool = False
    head_dim: int = 0
    wide: int = 0
    experts: Callable[[Fields], Experts] | None = None
    only: Mapping[str, Any] = field(default_factory=dict)

    def name(self, size: str) -> str:
        """Return the kind's name of a size of a llama."""
        return self.names.get(size, size)

    def holds(self, rule: Rule, file: Fields) -> bool:
        """Return whether a decoder of this file has the part that a rule is of."""
        return file.flag(rule, absent=rule in self.usual) if isinstance(rule, str) else rule


def _mixtral(file: Fields) -> Experts:
    each = FeedForward(file.count("intermediate_size"), gated=True)
    shared = file.count("shared_intermediate_size", least=0, absent=0)
    count = file.count("num_local_experts", "num_experts")
    return Experts(count, file.count("num_experts_per_tok"), each, FeedForward(shared, True) if shared else None)


def _llama4_experts(file: Fields) -> Experts:
    found = _mixtral(file)
    return replace(found, shared=found.each)


def _qwen_experts(file: Fields) -> Experts:
    each = FeedForward(file.count("moe_intermediate_size"), gated=True)
    return Experts(file.count("num_experts", "num_local_experts"), file.count("num_experts_per_tok"), each)


def _qwen2_experts(file: Fields) -> Experts:
    shared = FeedForward(file.count("shared_expert_intermediate_size"), gated=True)
    # One number for each token weighs the shared expert.
    return replace(_qwen_experts(file), shared=shared, router_bias=file.count("hidden_size"))


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


_GPT = {"hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head",
        "intermediate_size": "n_inner", "max_position_embeddings": "n_positions"}  # fmt: skip
_BLOOM = {**_GPT, "hidden_size": "hidden_size", "max_position_embeddings": "seq_length"}
_MPT = {"hidden_size": "d_model", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads",
        "max_position_embeddings": "max_seq_len"}  # fmt: skip
_CHATGLM = {"num_hidden_layers": "num_layers", "num_key_value_heads": "multi_query_group_num",
            "intermediate_size": "ffn_hidden_size", "head_dim": "kv_channels", "vocab_size": "padded_vocab_size",
            "max_position_embeddings": "seq_length"}  # fmt: skip
_LLAMA4 = {"intermediate_size": "intermediate_size_mlp", "sliding_window": "attention_chunk_size",
           "decoder_sparse_step": "interleave_moe_layer_step"}  # fmt: skip
_LATENT_ONLY = {"attention_bias": False, "mlp_bias": False}
_BIASED, _PLAIN = (True, True), (False, False)
_KINDS: dict[str, Kind] = {
    **dict.fromkeys(("llama", "granite"), Kind()),
    "exaone": Kind(names={"num_hidden_layers": "num_layers"}, biases=_PLAIN, feed_bias=False),
    "internlm2": Kind(biases=("bias", "bias"), feed_bias=False),
    "hunyuan_v1_dense": Kind(head_norm=_by_head),
    "smollm3": Kind(tied=True),
    "ernie4_5": Kind(tied=True, biases=("use_bias", "use_bias"), feed_bias="use_bias"),
    **dict.fromkeys(("mistral", "ministral3"), Kind(biases=_PLAIN, windows=0)),
    "mixtral": Kind(biases=_PLAIN, windows=0, experts=_mixtral),
    **dict.fromkeys(("granitemoe", "granitemoeshared"), Kind(experts=_mixtral)),
    "olmoe": Kind(head_norm=_by_all_heads, experts=_mixtral),
    "minimax_m2": Kind(biases=_PLAIN, head_norm=_by_all_heads, experts=_mixtral),
    "phimoe": Kind(norm="layer", head_bias="lm_head_bias", windows=0, experts=_mixtral),
    "llama4_text": Kind(_LLAMA4, windows=4, head_dim=128, experts=_llama4_experts),
    "qwen2": Kind(biases=(True, False)),
    "qwen2_moe": Kind(biases=("qkv_bias", False), usual=("qkv_bias",), experts=_qwen2_experts),
    "seed_oss": Kind(biases=("attention_bias", "attention_out_bias"), usual=("attention_bias",)),
    "qwen3": Kind(head_dim=128, head_norm=_by_head),
    "qwen3_moe": Kind(head_dim=128, head_norm=_by_head, experts=_qwen_experts),
    "glm": Kind(biases=("attention_bias", False), usual=("attention_bias",), head_dim=128),
    "glm4": Kind(biases=("attention_bias", False), usual=("attention_bias",), head_dim=128, norms=4),
    "glm4_moe": Kind(biases=("attention_bias", False), head_norm=_by_head, head_norm_if="use_qk_norm",
                     experts=_deepseek),
    "chatglm": Kind(_CHATGLM, biases=("add_qkv_bias", False), feed_bias=False,
                    only={"add_bias_linear": False, "multi_query_attention": True, "rmsnorm": True}),
    "dots1": Kind(head_norm=_by_head, experts=_deepseek),
    "exaone4": Kind(biases=_PLAIN, head_norm=_by_head, windows=4),
    "gemma": Kind(tied=True, head_dim=256),
    "gemma2": Kind(tied=True, norms=4, windows=2, head_dim=256),
    "gemma3_text": Kind(tied=True, norms=4, windows=6, head_dim=256, head_norm=_by_head),
    "gpt_oss": Kind(usual=("attention_bias",), windows=2, per_head=1, head_dim=64, experts=_gpt_oss),
    "phi3": Kind(biases=_PLAIN, windows=0),
    "olmo": Kind(norm="none"),
    "olmo2": Kind(head_norm=_by_all_heads),
    "olmo3": Kind(head_norm=_by_all_heads, windows=4),
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "kimi_k2"),
                    Kind(latent=True, experts=_deepseek, only=_LATENT_ONLY)),
    # The norms of these have no biases: one parameter of each number of the stream.
    "cohere": Kind(beside=True, tied=True, head_norm=_by_all_heads, head_norm_if="use_qk_norm"),
    "cohere2": Kind(beside=True, tied=True, windows=4),
    "mpt": Kind(_MPT, gated=False, biases=_PLAIN, feed_bias=False, tied=True, rotary=False, wide=4,
                only={"expansion_ratio": 4, "no_bias": True}),
    "arcee": Kind(gated=False),
    "nemotron": Kind(norm="layer", gated=False),
    "starcoder2": Kind(norm="layer", gated=False, biases=("use_bias", "use_bias"), feed_bias="use_bias",
                       usual=("use_bias",), tied=True, windows=0),
    "stablelm": Kind(norm="layer", biases=("use_qkv_bias", False), beside="use_parallel_residual",
                     head_norm=_by_all_heads, head_norm_if="qk_layernorm"),
    "phi": Kind(norm="layer", gated=False, biases=_BIASED, feed_bias=True, head_bias=True, beside=True,
                head_norm=lambda _heads, _kv, width: 4 * width, head_norm_if="qk_layernorm"),
    "gpt_neox": Kind(norm="layer", gated=False, feed_bias=True, beside="use_parallel_residual", beside_norms=2,
                     usual=("attention_bias", "use_parallel_residual")),
    **dict.fromkeys(("gptj", "codegen"),
                    Kind(_GPT, norm="layer", gated=False, biases=_PLAIN, feed_bias=True, head_bias=True,
                         beside=True, wide=4)),
    "gpt2": Kind(_GPT, norm="layer", gated=False, biases=_BIASED, feed_bias=True, tied=True, rotary=False,
                 positions=0, wide=4),
    "opt": Kind({"intermediate_size": "ffn_dim"}, norm="layer", gated=False, biases=("enable_bias", "enable_bias"),
                feed_bias="enable_bias", usual=("enable_bias",), tied=True, rotary=False, positions=2,
                only={"do_layer_norm_before": True, "word_embed_proj_dim": "hidden_size",
                      "_remove_final_layer_norm": False,
                      "layer_norm_elementwise_affine": True}),
    "bloom": Kind(_BLOOM, norm="layer", gated=False, biases=_BIASED, feed_bias=True, tied=True, rotary=False,
                  wide=4, word_norm=True),
}  # fmt: skip
_STACK = 10_000
"""Largest number of blocks, each of which is described."""
_ONLY = {
    "add_cross_attention": False,
    "is_causal": True,
    "moe_layer_freq": 1,
    "use_bidirectional_attention": False,
}
"""Fields of any kind with the one value that is known, which is also that of a file without them."""


def _heads(file: Fields, hidden: int, kind: Kind) -> tuple[int, int, int]:
    """Read heads, heads of keys and values, and the width of a head."""
    usual, own = kind.head_dim, kind.name("head_dim")
    heads = file.count(kind.name("num_attention_heads"))
    kv = file.count(kind.name("num_key_value_heads"), absent=heads)
    width = file.count(own, absent=usual, why="as its kind is built" if usual else "") or hidden // heads
    if heads % kv or (not file.content.get(own) and not usual and hidden % heads):
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
    known = ("full_attention", "sliding_attention", "chunked_attention")
    if not isinstance(found, list) or not all(one in known for one in found):
        what = f"layer_types is {found!r:.60}"
        raise FomkitError(file.where, f"{what}. Give full_attention or sliding_attention for each layer.")
    return found


def _windows(file: Fields, kind: Kind, layers: int) -> list[int]:
    """Return the window of each block; 0: none."""
    window, kinds = file.count(kind.name("sliding_window"), least=0, absent=0), _layer_types(file)
    first = file.count("max_window_layers", absent=0, least=0)
    if not window or (kind.windows < 0 and not file.flag("use_sliding_window", absent=False)):
        return [0] * layers
    if kinds:
        if len(kinds) != layers:
            raise FomkitError(file.where, f"layer_types names {len(kinds)} layers, and there are {layers}.")
        return [0 if one == "full_attention" else window for one in kinds]
    if kind.windows < 0:
        return [0 if place < first else window for place in range(layers)]
    every = file.count("sliding_window_pattern", "_sliding_window_pattern", least=0, absent=kind.windows)
    return [window if not every or (place + 1) % every else 0 for place in range(layers)]


def _feeds(file: Fields, kind: Kind, hidden: int, layers: int) -> list[FeedForward | Experts]:
    """Return the feed-forward layer of each block, or its experts."""
    wide = kind.wide * hidden if kind.wide else None
    bias = kind.holds(kind.feed_bias, file)
    plain = FeedForward(file.count(kind.name("intermediate_size"), absent=wide), kind.gated, bias)
    if kind.experts is None:
        return [plain] * layers
    experts = kind.experts(file)
    if experts.top_k > experts.count:
        what = f"uses {experts.top_k} of {experts.count} experts"
        raise FomkitError(file.where, f"{what}. Expected at most all of them.")
    first = min(file.count("first_k_dense_replace", least=0, absent=0), layers)
    dense = {*range(first), *file.places("mlp_only_layers")}
    every, chosen = file.count(kind.name("decoder_sparse_step"), absent=1), file.places("moe_layers")
    sparse = set(chosen or range(every - 1, layers, every)) - dense
    return [experts if place in sparse else plain for place in range(layers)]


def _decoder(file: Fields, name: str) -> Architecture:
    kind = _KINDS[name]
    check_known(file, name, kind.only)
    hidden, layers = (file.count(kind.name(size)) for size in ("hidden_size", "num_hidden_layers"))
    if layers > _STACK:
        raise FomkitError(file.where, f"{kind.name('num_hidden_layers')} is {layers:,}. Give at most {_STACK:,}.")
    latent = _latent(file) if kind.latent else None
    if latent is None:
        heads, kv, width = _heads(file, hidden, kind)
    else:
        heads = kv = file.count("num_attention_heads")
        file.asked.add("num_key_value_heads")  # one per head, computed from the cache
        width = latent.head_dim
    attention = Attention(
        heads, kv, width, (kind.holds(kind.biases[0], file), kind.holds(kind.biases[1], file)),
        head_norm=kind.head_norm(heads, kv, width) * kind.holds(kind.head_norm_if, file),
        per_head=kind.per_head, rotary=kind.rotary, latent=latent,
    )  # fmt: skip
    beside = kind.holds(kind.beside, file)
    norms = kind.beside_norms if beside else kind.norms
    pairs = zip(_windows(file, kind, layers), _feeds(file, kind, hidden, layers), strict=True)
    blocks = [Block(replace(attention, window=window), feed, norms, beside=beside) for window, feed in pairs]
    # Equal blocks are joined, adjacent or not: only the number of each matters.
    distinct = tuple((blocks.count(block), block) for block in dict.fromkeys(blocks))
    absent = 4096 if kind.positions is None else None
    positions = file.count(kind.name("max_position_embeddings"), "n_ctx", absent=absent)
    tables = (("positions", (positions + (kind.positions or 0)) * hidden),) * (kind.positions is not None)
    return Architecture(
        name, hidden, file.count(kind.name("vocab_size")), kind.norm, None, Stack(distinct, SEQ),
        file.flag("tie_word_embeddings", absent=kind.tied, why=f"as {name} is built"), dtype_of(file),
        head_bias=kind.holds(kind.head_bias, file),
        further=tables + (("norm of words", 2 * hidden),) * kind.word_norm, sizes=((SEQ, min(positions, 4096)),),
        longest=0 if kind.positions is None else positions,
    )  # fmt: skip


KNOWN = (*_KINDS, *OTHERS)
_SOME = "llama, qwen3, bert or t5 (docs/frontends.md lists all)"
_NO_WORK = re.compile(
    r"_ids?$|_eps$|epsilon$|drop|rope|^init|_factor$|_coef$|_std$|^summary_|^model_type$|^architectures$|^_|_act$|"
    r"activation|transformers_version|auto_map|use_cache|pretraining_tp|position_embeddings$|id2label|label2id|"
    r"is_encoder|is_decoder|^head_dim$|num_labels|n_group|^topk|scoring|norm_topk|output_|return_|mask_|multiplier$|"
    r"problem_type|scal|chunk_size|max_distance$|^n_positions$|cache_implementation|^ep_size$|^dtype$|task_specific|"
    r"n_ctx|encoder_stride|classifier|jitter|rotary_dim|sliding_window_pattern"
)
"""Fields that change no work or are not used here; dropout is ignored everywhere."""


def read_architecture(path: Path) -> Architecture:
    """Read a ``config.json``; raise if a size is missing or its ``model_type`` is unknown."""
    parsed, where = parse_json(read_json_text(path), str(path), infinite=True), str(path)
    if not isinstance(parsed, dict):
        is_what = "a list" if isinstance(parsed, list) else "a single value"
        what = f"is {is_what}. Expected an object, {{…}}: a transformer's config.json, with its model_type"
        raise FomkitError(where, f"{what}, such as {_SOME}.")
    content = parsed
    if "traceEvents" in content:
        what = f"is a profiler's trace. Import it: fomkit import {where} --set batch=… -o model.yaml"
        raise FomkitError(where, what)
    if "class_name" in content:
        what = "is a model saved by Keras. Load it in a Python file: model = keras.models.model_from_json(…)."
        raise FomkitError(where, what)
    if "model_type" not in content:
        kind = next((content[key] for key in ("_class_name", "architecture", "peft_type") if content.get(key)), "")
        what = f"is of {str(kind)[:60]!r}, whose layers are unknown. Profile their code: fomkit profile model.py."
        none = f"has no model_type. Give a transformer's config.json, which has one, such as {_SOME}."
        raise FomkitError(where, what if kind else none)
    name = str(content["model_type"])[:60]
    if parts := sorted({"text_config", "vision_config", "audio_config"} & content.keys()):
        what = f"{name} has several parts ({', '.join(parts)})"
        raise FomkitError(where, f"{what}. Give one of them as a file of its own, with its model_type.")
    file = Fields(where, content, missing={})
    if name not in KNOWN:
        what = f"model_type is {name!r}, whose layers are unknown."
        raise FomkitError(where, f"{what} {_nearest(name, file)}")
    check_known(file, name, _ONLY)
    try:
        found = OTHERS[name](file) if name in OTHERS else _decoder(file, name)
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
    what = f"Sizes of it that a llama does not have: {unplaced}." if unplaced else (
        "Its sizes have the names of a llama's; biases, norms and gates may differ."
    )  # fmt: skip
    return f"{nearest_names(name, KNOWN)} {what} Or profile the code of its layers: fomkit profile model.py."


def _with_unused(found: Architecture, file: Fields) -> Architecture:
    """Add a note of the fields that were not used, except those that change no work."""
    head = next(iter(model_names(file)), "")
    notes = [*file.notes]
    if found.kind in _KINDS and head and not head.endswith("ForCausalLM"):
        notes.append(f"architectures names {head}: a head over the whole vocabulary is counted nevertheless")
    stated = {key for key, value in file.content.items() if value is not None and value is not False}
    unused = sorted(key for key in stated - file.asked if not _NO_WORK.search(key))
    if unused:
        shown = ", ".join(unused[:12]) + (f" and {len(unused) - 12} more" if len(unused) > 12 else "")
        notes.append(f"fields of the file that are not used: {shown}")
    stored = stored_weights(file)
    notes += [note for note in file.notes if note not in notes]
    return replace(found, notes=tuple(notes), stored=stored)
