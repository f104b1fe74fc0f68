"""Profiles from a transformer's config.json: parameters as published; parameters and flop as its code has them."""

from __future__ import annotations

import gzip
import importlib.util
import json
import math
import re
import runpy
import sys
from itertools import product
from pathlib import Path
from typing import Any, get_args

import pandas as pd
import pytest
from typer.testing import CliRunner

import fomkit
from fomkit.cli.choices import parse_sizes
from fomkit.cli.main import app
from fomkit.core.errors import FomkitError
from fomkit.core.transformer import Attention, Block, FeedForward
from fomkit.frontends.config import profile_config
from fomkit.frontends.config_file import KNOWN, read_architecture
from fomkit.ops.fusion import NOTES, Fusion
from fomkit.ops.pricing import add_costs
from fomkit.ops.resize import resize_ops
from fomkit.parallel.kernels import Split, as_table, tensors_of
from fomkit.parallel.transformer import TENSORS_OUTSIDE, training_rows
from fomkit.plan.content import token_per_s
from fomkit.plan.memory_of import step_memory
from fomkit.profiles.models import load_model
from fomkit.verbs.suite_content import suite_content

PUBLIC = json.loads((Path(__file__).parent / "data" / "public_configs.json").read_text())
"""Sizes of published models, where they stand, and how many parameters their makers count."""
SMALL = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 128, "head_dim": 16,
}  # fmt: skip
PLAIN = {name: SMALL[name] for name in SMALL if name not in ("num_key_value_heads", "head_dim")}
LATENT = {
    **PLAIN, "num_key_value_heads": 4, "kv_lora_rank": 16, "q_lora_rank": 24, "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8, "v_head_dim": 12, "n_routed_experts": 8, "num_experts_per_tok": 2,
    "moe_intermediate_size": 20, "n_shared_experts": 2, "first_k_dense_replace": 1,
}  # fmt: skip
MIXED = {"num_local_experts": 4, "num_experts_per_tok": 2}
MASKED = {"bert": "BertForMaskedLM", "roberta": "RobertaForMaskedLM", "xlm-roberta": "XLMRobertaForMaskedLM",
          "camembert": "CamembertForMaskedLM"}  # fmt: skip
SHARED = {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 20, "n_shared_experts": 2,
          "first_k_dense_replace": 1}  # fmt: skip
GPT_SMALL = {"n_embd": 64, "n_layer": 3, "n_head": 4, "vocab_size": 128, "n_positions": 32}
BART = {
    "d_model": 64, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 4, "vocab_size": 128,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 96, "decoder_ffn_dim": 80, "max_position_embeddings": 32,
}  # fmt: skip
BARTS = ("bart", "mbart", "pegasus", "marian")
REMOTE = ("chatglm", "exaone", "internlm2", "kimi_k2")
"""Kinds whose code is beside their weights: their published counts are checked."""
T5 = {"d_model": 64, "d_kv": 16, "num_heads": 4, "d_ff": 96, "num_layers": 3, "vocab_size": 128}
SIZES: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text"), SMALL),
    **dict.fromkeys(("phi3", "olmo", "olmo2", "olmo3", "granite", "smollm3", "ernie4_5"), SMALL),
    **dict.fromkeys(("ministral3", "seed_oss"), SMALL),
    **{name: {**SMALL, **MIXED} for name in ("mixtral", "gpt_oss", "granitemoe")},
    "qwen3_moe": {**SMALL, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32},
    "deepseek_v2": LATENT, "deepseek_v3": {**LATENT, "n_group": 2, "topk_group": 1},
    **dict.fromkeys(("exaone4", "hunyuan_v1_dense", "arcee", "nemotron", "cohere2", "glm", "glm4"), SMALL),
    "starcoder2": {name: SMALL[name] for name in SMALL if name != "head_dim"},
    "stablelm": {name: SMALL[name] for name in SMALL if name != "head_dim"},
    "cohere": {name: SMALL[name] for name in SMALL if name != "head_dim"},
    "glm4_moe": {**SMALL, **SHARED, "use_qk_norm": True}, "dots1": {**SMALL, **SHARED},
    "granitemoeshared": {**SMALL, **MIXED, "shared_intermediate_size": 40},
    "phimoe": {**SMALL, **MIXED, "attention_bias": True, "lm_head_bias": True},
    "minimax_m2": {**SMALL, **MIXED}, "olmoe": {**PLAIN, "num_experts": 8, "num_experts_per_tok": 2},
    "qwen2_moe": {**PLAIN, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
                  "num_key_value_heads": 4, "shared_expert_intermediate_size": 40},
    "llama4_text": {**SMALL, **MIXED, "intermediate_size_mlp": 80, "interleave_moe_layer_step": 2},
    "gpt_neox": PLAIN, "opt": {**{name: PLAIN[name] for name in PLAIN if name != "intermediate_size"},
                               "ffn_dim": 96, "max_position_embeddings": 32, "word_embed_proj_dim": 64},
    "gptj": {**GPT_SMALL, "rotary_dim": 8}, "codegen": {**GPT_SMALL, "rotary_dim": 8},
    "bloom": {"hidden_size": 64, "n_layer": 3, "n_head": 4, "vocab_size": 128},
    "mpt": {"d_model": 64, "n_layers": 3, "n_heads": 4, "vocab_size": 128},
    "distilbert": {"dim": 64, "n_layers": 3, "n_heads": 4, "hidden_dim": 96, "vocab_size": 128,
                   "max_position_embeddings": 32, "architectures": ["DistilBertForMaskedLM"]},
    **dict.fromkeys(BARTS, BART),
    "phi": PLAIN, "falcon": {name: PLAIN[name] for name in PLAIN if name != "intermediate_size"},
    "gpt2": GPT_SMALL,
    **{name: {**PLAIN, "max_position_embeddings": 32, "architectures": [one]} for name, one in MASKED.items()},
    **dict.fromkeys(("t5", "mt5"), T5),
    "vit": {**PLAIN, "image_size": 32, "patch_size": 8, "num_labels": 10},
    "whisper": {
        "d_model": 64, "num_mel_bins": 20, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 96, "decoder_ffn_dim": 96, "vocab_size": 128,
        "max_source_positions": 50, "max_target_positions": 30, "bos_token_id": 1, "eos_token_id": 2,
        "decoder_start_token_id": 1,
    },
}  # fmt: skip
CLASSES = {"vit": "ViTForImageClassification", "bart": "BartForConditionalGeneration",
           "mbart": "MBartForConditionalGeneration", "pegasus": "PegasusForConditionalGeneration",
           "marian": "MarianMTModel", "distilbert": "DistilBertForMaskedLM",
           "t5": "T5ForConditionalGeneration", **MASKED,
           "mt5": "MT5ForConditionalGeneration", "whisper": "WhisperForConditionalGeneration"}  # fmt: skip
TRACED = ("llama", "qwen2", "qwen3", "gemma2", "gemma3_text", "phi", "gpt2", "falcon", "bert", "olmo2", "t5",
          "vit", "whisper", "deepseek_v3", "olmo3", "seed_oss", "roberta", "mt5", "granite", "exaone4", "arcee",
          "nemotron", "cohere", "glm4", "stablelm", "starcoder2", "gpt_neox", "opt", "gptj", "bloom", "mpt",
          "distilbert", "bart", "pegasus")  # fmt: skip
BATCH, SEQ, SOURCE = 2, 16, 12


def test_the_optimizer_of_a_rule_has_one_name() -> None:
    """Rows, notes and pages call it as its rule is called: Adam."""
    page = (Path(__file__).parents[1] / "docs" / "frontends.md").read_text(encoding="utf-8")
    assert not [text for text in (page, *NOTES.values(), str(profile_config.__doc__)) if "AdamW" in text]


def write(folder: Path, config: dict[str, Any], name: str = "config.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(config))
    return path


@pytest.mark.parametrize("name", PUBLIC)
def test_parameters_are_those_that_were_published(name: str, tmp_path: Path) -> None:
    assert read_architecture(write(tmp_path, PUBLIC[name]["config"])).parameters == PUBLIC[name]["parameters"]


def test_a_token_meets_only_some_experts(tmp_path: Path) -> None:
    found = read_architecture(write(tmp_path, PUBLIC["deepseek-v3"]["config"]))
    assert found.active_parameters == pytest.approx(37e9, rel=0.02)  # as its report says
    changed = {"model_type": "kimi_k2", "n_routed_experts": 384, "num_attention_heads": 64, "vocab_size": 163840,
               "first_k_dense_replace": 1}  # fmt: skip
    kimi = read_architecture(write(tmp_path, {**PUBLIC["deepseek-v3"]["config"], **changed}))
    assert (kimi.parameters, kimi.active_parameters) == pytest.approx((1.03e12, 32.6e9), rel=0.01)
    dense = read_architecture(write(tmp_path, PUBLIC["llama3-8b"]["config"]))
    assert dense.active_parameters == dense.parameters


def built(name: str, **changed: Any) -> Any:
    """Build a small model of a kind as its own code does."""
    transformers = pytest.importorskip("transformers")
    known = transformers.models.auto.configuration_auto.CONFIG_MAPPING
    config = known[name](**{"pad_token_id": 0, **SIZES[name], **changed})
    config._attn_implementation = "eager"
    maker = CLASSES.get(name)
    return getattr(transformers, maker)(config) if maker else transformers.AutoModelForCausalLM.from_config(config)


def saved(folder: Path, model: Any) -> Path:
    """Write the configuration as its code saves it."""
    model.config.save_pretrained(folder)
    content = json.loads((folder / "config.json").read_text())
    return write(folder, {**content, "dtype": "float32", "torch_dtype": "float32"})


@pytest.mark.parametrize("name", [name for name in KNOWN if name not in REMOTE])
def test_parameters_are_those_of_the_code(name: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    with torch.device("meta"):
        model = built(name)
    model.tie_weights()
    counted = sum(one.numel() for one in model.parameters())
    assert read_architecture(saved(tmp_path, model)).parameters == counted


def called(name: str, model: Any) -> Any:
    torch = pytest.importorskip("torch")
    words = torch.zeros(BATCH, SEQ, dtype=torch.long)
    if name == "vit":
        return model(pixel_values=torch.zeros(BATCH, 3, 32, 32)).logits
    if name.endswith("t5") or name in BARTS:
        source = torch.zeros(BATCH, SOURCE, dtype=torch.long)
        return model(input_ids=source, decoder_input_ids=words, use_cache=False).logits
    if name == "whisper":
        return model(input_features=torch.zeros(BATCH, 20, 100), decoder_input_ids=words, use_cache=False).logits
    return model(input_ids=words, **({} if name in (*MASKED, "distilbert") else {"use_cache": False})).logits


def flop_by_pass(profile: fomkit.ModelProfile) -> dict[str, float]:
    ops = add_costs(resize_ops(profile.ops, profile.sizes, profile.name))
    ops = ops[ops["kind"].isin(["gemm", "attention", "conv"])]
    passes = ops["pass_name"].str.split("_").str[0]
    return (ops["flop"] * ops["count"]).groupby(passes).sum().to_dict()


@pytest.mark.parametrize("name", TRACED)
def test_flop_are_those_that_the_code_runs(name: str, tmp_path: Path) -> None:
    """PyTorch counts the flop of products and attention of the same model as it runs."""
    torch = pytest.importorskip("torch")
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    dense = {"first_k_dense_replace": 4} if name.startswith("deepseek") else {}
    model = built(name, **dense)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as forward:
        given = called(name, model)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as backward:
        torch.autograd.backward(given.sum())
    sizes = (
        {}
        if name == "vit"
        else {"seq": SEQ, **({"source": SOURCE} if name.endswith("t5") or name in BARTS else {})}
    )
    found = flop_by_pass(profile_config(saved(tmp_path, model), batch=BATCH, sizes=sizes))
    assert found == {"forward": forward.get_total_flops(), "backward": backward.get_total_flops()}


def test_sizes_stay_symbols(tmp_path: Path) -> None:
    path = write(tmp_path, PUBLIC["llama3-8b"]["config"])
    one = profile_config(path, batch=1, sizes={"seq": 4096})
    other = profile_config(path, batch=3, sizes={"seq": 1000})
    resized = resize_ops(one.ops, {"batch": 3, "seq": 1000}, "llama3-8b")
    assert resized.equals(resize_ops(other.ops, other.sizes, "llama3-8b"))


def test_decoding_reads_weights_and_cache_once(tmp_path: Path) -> None:
    """A step moves the weights without the embedding, and the keys and values before the token."""
    path = write(tmp_path, {**PUBLIC["llama3-8b"]["config"], "torch_dtype": "bfloat16"})
    profile = profile_config(path, mode="decode", batch=16, sizes={"cache": 4095})
    ops = add_costs(resize_ops(profile.ops, profile.sizes, profile.name))
    moved = ops["byte"] * ops["count"]
    products, attention = (moved[ops["kind"] == kind].sum() for kind in ("gemm", "attention"))
    weights = 2 * (8030261248 - 128256 * 4096)
    cache = 2 * 2 * 32 * 8 * 128 * 16 * 4096
    assert products == pytest.approx(weights, rel=0.01)
    assert attention == pytest.approx(cache, rel=0.01)
    assert step_memory(profile, profile.sizes).peak_byte == pytest.approx(2 * 8030261248 + cache, rel=0.001)
    floor_s = (weights + cache) / 3.35e12
    step = fomkit.estimate(profile, "h100-sxm").step
    assert floor_s < step.value < 2.5 * floor_s


def _step_of_v3(folder: Path, mode: Any, fusion: Any = "vendor") -> Any:
    """Price DeepSeek-V3's step: 128 heads, rank 512, keys of 128 + 64, values of 128."""
    sizes = {"cache": 4095} if mode == "decode" else {"seq": 1024}
    path = write(folder, {**PUBLIC["deepseek-v3"]["config"], "torch_dtype": "bfloat16"})
    made = profile_config(path, mode=mode, batch=16, sizes=sizes, fusion=fusion)
    ops = add_costs(resize_ops(made.ops, made.sizes, made.name))
    assert not any("compressed" in note for note in made.notes)
    return ops


def test_latent_attention_reads_its_compressed_cache_once_for_all_heads(tmp_path: Path) -> None:
    """Absorbed: scores over 512 + 64 numbers of a token, values over 512 of the same; by hand, as kernels do.

    Tables of such kernels (aiconfigurator, ``h100_sxm.generation_mla``, up to 64 heads, caches above 200 MB) read
    it at 0.86 of the bandwidth in the median and 0.92 at most; read twice it would be 1.7 times the bandwidth.
    """
    ops = _step_of_v3(tmp_path, "decode")
    (core,) = ops[ops["kind"] == "attention"].drop_duplicates(["heads", "kv_len"]).to_dict("records")
    assert core["flop"] == 2 * 16 * 128 * 4096 * (576 + 512)
    assert core["byte"] == 2 * (16 * 4096 * 576 + 16 * 128 * (576 + 512))
    up = ops[ops["op"].isin(["queries to the cache's width", "values from the cache's width"])]
    assert set(up["flop"]) == {2 * 128 * 16 * 512 * 128}
    assert set(up["byte"]) == {2 * 128 * (512 * 128 + 16 * (512 + 128))}
    apart = _step_of_v3(tmp_path, "decode", "eager")
    apart = apart[apart["op"].str.startswith("latent attention") & apart["kind"].eq("gemm")]
    assert apart.drop_duplicates("op")["flop"].sum() == core["flop"]


def test_a_prompt_meets_latent_attention_with_keys_and_values_of_each_head(tmp_path: Path) -> None:
    ops = _step_of_v3(tmp_path, "prefill")
    (core,) = ops[ops["kind"] == "attention"].drop_duplicates(["heads", "kv_len"]).to_dict("records")
    assert core["flop"] == 2 * 16 * 128 * 1024 * 1024 * (192 + 128)
    assert core["byte"] == 2 * 16 * 128 * 1024 * (192 + 192 + 128 + 128)
    up = ops[ops["op"] == "keys and values up"]
    assert set(up["flop"]) == {2 * 16 * 1024 * 512 * 128 * (128 + 128)}


def test_a_window_is_what_a_query_sees(tmp_path: Path) -> None:
    config = {**PUBLIC["mistral-7b"]["config"], "sliding_window": 1024}
    seen = profile_config(write(tmp_path, config), sizes={"seq": 4096})
    whole = profile_config(write(tmp_path, PUBLIC["mistral-7b"]["config"]), sizes={"seq": 4096})
    assert set(seen.ops.loc[seen.ops["kind"] == "attention", "kv_len"]) == {1024.0}
    assert set(seen.ops.loc[seen.ops["kind"] == "attention", "causal"]) == {1.0}
    assert set(whole.ops.loc[whole.ops["kind"] == "attention", "kv_len"]) == {"seq"}
    assert any("a window of 1,024 tokens" in note for note in seen.notes)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"model_type": "lama"},
            "model_type is 'lama', whose layers are unknown. The nearest names are 'llama'",
        ),
        ({"model_type": None, "hidden_size": None}, "has no model_type"),
        ({"traceEvents": []}, "is a profiler's trace. Import it: fomkit import "),
        ({"class_name": "Sequential"}, "Load it in a Python file: model = keras.models.model_from_json(…)."),
        ({"hidden_size": None}, "hidden_size is missing. Add it: a whole number of 1 or more."),
        (
            {"hidden_size": None, "vocab_size": None, "num_attention_heads": None},
            "hidden_size, num_attention_heads and vocab_size are missing. Add them: whole numbers of 1 or more.",
        ),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0. Give a whole number from 1 to 1,000,000,000."),
        ({"num_attention_heads": True}, "num_attention_heads is True."),
        ({"num_key_value_heads": 5}, "5 key-value heads, 32 heads and"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings is 'no'. Give true or false."),
        ({"torch_dtype": "float8"}, "torch_dtype is 'float8'. Give one of bfloat16, float16, float32."),
        ({"vocab_size": 1e6}, "vocab_size is 1000000.0."),
        ({"torch_dtype": ["bfloat16"]}, "torch_dtype is ['bfloat16']. Give one of"),
        ({"layer_types": ["linear_attention"] * 32}, "Give full_attention or sliding_attention for each layer."),
        ({"text_config": {}}, "llama has several parts (text_config). Give one of them as a file of its own"),
        ({"use_bidirectional_attention": True}, "use_bidirectional_attention is true, which is not supported"),
        ({"is_causal": False}, "is_causal is false, which is not supported of llama. Expected: true, or no such"),
        ({"model_type": "gpt2", "add_cross_attention": True}, "add_cross_attention is true, which is not"),
        ({"moe_layer_freq": [0, 1]}, "moe_layer_freq is [0, 1], which is not supported"),
        (
            {"model_type": "opt", "word_embed_proj_dim": 512},
            "word_embed_proj_dim is 512, which is not supported of opt. Expected: 4096",
        ),
        ({"model_type": "mpt", "no_bias": False}, "no_bias is false, which is not supported of mpt"),
        ({"model_type": "deepseek_v3", "attention_bias": True}, "attention_bias is true, which is not supported"),
        (
            {
                "model_type": "bert",
                "type_vocab_size": 2,
                "max_position_embeddings": 64,
                "tie_word_embeddings": False,
                "architectures": ["BertForMaskedLM"],
            },
            "tie_word_embeddings is false, which is not supported of bert",
        ),
        (
            {"model_type": "bert", "max_position_embeddings": 64, "num_attention_heads": 7},
            "7 heads do not divide a width of 4096. Give a divisor.",
        ),
        ({"architectures": 7}, "architectures is 7. Give a list of names"),
        ({"model_type": "bert", "is_decoder": True}, "is_decoder is true, which is not supported of bert"),
        (
            {"model_type": None, "_class_name": "FluxTransformer2DModel"},
            "is of 'FluxTransformer2DModel', whose layers",
        ),
        ({"model_type": "mamba2", "time_step_limit": [0.0, math.inf]}, "model_type is 'mamba2', whose layers are"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1,000,000,000. Give at most 10,000."),
        ({"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 9}, "uses 9 of 8 experts"),
        (
            {
                "model_type": "qwen3_moe",
                "num_experts": 8,
                "num_experts_per_tok": 2,
                "moe_intermediate_size": 8,
                "mlp_only_layers": 3,
            },
            "mlp_only_layers is 3. Give a list",
        ),
    ],
)
def test_what_a_file_cannot_say_is_one_message(changed: dict[str, Any], message: str, tmp_path: Path) -> None:
    config = {**PUBLIC["llama3-8b"]["config"], **changed}
    path = write(tmp_path, {name: value for name, value in config.items() if value is not None})
    with pytest.raises(FomkitError) as caught:
        read_architecture(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def test_sizes_and_modes_that_a_step_has_not(tmp_path: Path) -> None:
    path = write(tmp_path, PUBLIC["bert-base"]["config"])
    with pytest.raises(FomkitError, match="does not generate tokens one by one"):
        profile_config(path, mode="decode")
    with pytest.raises(FomkitError, match=r"'cache' is not a size of its step\. It has batch, seq\.$"):
        profile_config(path, sizes={"cache": 8})
    with pytest.raises(FomkitError, match="is for a transformer"):
        fomkit.profile(tmp_path / "model.py", mode="decode")


def test_a_sequence_is_no_longer_than_learnt_positions(tmp_path: Path) -> None:
    """Before, GPT-2 over 4,096 tokens was priced without a word, which its table of 1,024 positions excludes."""
    for name, mode, sizes in (("gpt2-xl", "decode", {"cache": 4096}), ("bert-base", "train", {"seq": 513}),
                              ("bart-large", "infer", {"source": 1025})):  # fmt: skip
        path = write(tmp_path, PUBLIC[name]["config"])
        with pytest.raises(FomkitError, match=r"has learnt positions for [0-9,]+ tokens\. Give at most"):
            profile_config(path, mode=mode, sizes=sizes)
    t5 = write(tmp_path, PUBLIC["t5-base"]["config"])
    assert profile_config(t5, sizes={"seq": 4096}).sizes["seq"] == 4096  # its positions are relative
    # Positions of RoBERTa begin at 2, after its padding token.
    config = {"model_type": "roberta", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
              "intermediate_size": 128, "vocab_size": 100, "max_position_embeddings": 34}  # fmt: skip
    roberta = write(tmp_path, config)
    assert profile_config(roberta).sizes["seq"] == 32
    with pytest.raises(FomkitError, match=r"has learnt positions for 32 tokens"):
        profile_config(roberta, sizes={"seq": 34})


def test_a_batch_is_a_size_of_its_step_and_given_once(tmp_path: Path) -> None:
    """As for any other frontend; before, a batch of 0 was refused only by the price of a product."""
    path = write(tmp_path, PUBLIC["vit-b16"]["config"])
    assert fomkit.profile(path, sizes={"batch": 4}).sizes == fomkit.profile(path, batch=4).sizes == {"batch": 4}
    with pytest.raises(FomkitError, match="batch: is given as 8 and as 4"):
        fomkit.profile(path, batch=8, sizes={"batch": 4})
    with pytest.raises(FomkitError, match="is not a name and a whole number of 1 or more"):
        parse_sizes(["seq=0"])


def test_the_length_of_a_sequence_has_an_option_and_is_given_once(tmp_path: Path) -> None:
    """``--seq 64`` is ``--set seq=64``; it was an unknown option, and 0 was refused by the price of an op."""
    path = write(tmp_path, PUBLIC["bert-base"]["config"])
    assert fomkit.profile(path, seq=64).ops.equals(fomkit.profile(path, sizes={"seq": 64}).ops)
    with pytest.raises(FomkitError, match="seq: is given as 64 and as 32"):
        fomkit.profile(path, seq=64, sizes={"seq": 32})
    with pytest.raises(FomkitError, match=r"seq: is 0\. Give a whole number of 1 or more"):
        fomkit.profile(path, seq=0)
    with pytest.raises(FomkitError, match="'seq' is not a size of its step"):
        fomkit.profile(write(tmp_path, PUBLIC["vit-b16"]["config"]), seq=64)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"model_type": "bitnet"}, "Its sizes have the names of a llama's; biases"),
        (
            {"num_attention_heads": None, "conv_kernel": 4},
            "Sizes of it that a llama does not have: conv_kernel. Or profile",
        ),
    ],
)
def test_an_unknown_kind_says_what_a_llama_has_not_and_what_to_do(
    changed: dict[str, Any], message: str, tmp_path: Path
) -> None:
    """Before, a missing size hid that the later sizes are known."""
    config = {**PUBLIC["llama3-8b"]["config"], "model_type": "mamba", **changed}
    with pytest.raises(FomkitError) as caught:
        read_architecture(write(tmp_path, {name: value for name, value in config.items() if value is not None}))
    assert message in str(caught.value)
    assert str(caught.value).endswith("fomkit profile model.py.")


def test_what_was_read_or_switched_off_is_not_among_the_fields_left_out(tmp_path: Path) -> None:
    gated = {**PUBLIC["t5-base"]["config"], "feed_forward_proj": "gated-gelu", "n_positions": 512}
    off = {"use_sliding_window": False, "max_window_layers": 24, "wings": None, "use_mrope": False}
    for config in (gated, {**PUBLIC["qwen2-0.5b"]["config"], **off}):
        assert not [one for one in read_architecture(write(tmp_path, config)).notes if "that are not used" in one]


def test_parameters_are_said_in_millions_below_a_billion(tmp_path: Path) -> None:
    assert "86.6 million parameters" in profile_config(write(tmp_path, PUBLIC["vit-b16"]["config"])).title
    mixture = profile_config(write(tmp_path, PUBLIC["mixtral-8x7b"]["config"])).title
    assert mixture.endswith("46.7 billion parameters, 12.9 billion of a token")


def test_a_profile_of_a_file_is_written_and_estimated(tmp_path: Path) -> None:
    config = {**PUBLIC["llama3.2-1b"]["config"], "torch_dtype": "bfloat16"}
    made = fomkit.profile(write(tmp_path, config), batch=1, sizes={"seq": 512}, name="small")
    fomkit.save(made, tmp_path / "small.yaml")
    again = fomkit.estimate(tmp_path / "small.yaml", "h100-sxm")
    assert again.step == fomkit.estimate(made, "h100-sxm").step
    assert again.model.parameters_total == 1235814400


def test_a_cache_limits_the_batch() -> None:
    """The memory left by the weights and the reserve is divided by the memory of a sample's tokens."""
    profile = fomkit.model("llama3-8b-decode")
    found = fomkit.memory(profile, "h100-sxm").content["target"]["largest_batch"]
    a_sample = 2 * 2 * 32 * 8 * 128 * 4097 + 2 * 128256  # the cache, and the scores of all words
    assert found == pytest.approx((80 * 2**30 - 1.5 * 2**30 - 2 * 8030261248) / a_sample, abs=1)
    deeper = fomkit.memory(profile, "h100-sxm", sizes={"cache": 8192}).content["target"]["largest_batch"]
    assert deeper == pytest.approx(found / 2, abs=1)


@pytest.mark.parametrize(
    ("name", "tensor"),
    [("llama3-8b", 8), ("qwen2-7b", 4), ("qwen3-8b", 8), ("qwen3-30b-a3b", 4), ("gpt2-xl", 5), ("gpt-oss-20b", 8),
     ("gemma2-2b", 4), ("deepseek-v2-lite", 8), ("deepseek-v3", 8)],
)  # fmt: skip
def test_layouts_share_what_the_sizes_say(tmp_path: Path, name: str, tensor: int) -> None:
    """The block of sizes describes the model's work, and a device of a tensor group does its share of the flop."""
    config = write(tmp_path, PUBLIC[name]["config"], f"{name}.json")
    profile = profile_config(config, sizes={"seq": 1024})
    assert profile.transformer is not None
    # Of GPT-OSS the biases of experts and of the output, and the sinks of attention, are left out.
    left_out = 1e-3 if name == "gpt-oss-20b" else 1e-7 if name == "deepseek-v3" else 0  # its router's biases
    assert profile.transformer.parameters == pytest.approx(profile.parameters_total, rel=left_out, abs=0)
    kinds = profile.transformer.kinds
    whole, split = (
        pd.concat([add_costs(as_table(block)).eval(f"count = count * {many}") for (many, _), block in
                   zip(kinds, training_rows(profile.transformer, Split(1, by, False, "bf16")), strict=False)])
        for by in (1, tensor)
    )  # fmt: skip
    # A tensor group does not split routers and what compresses keys.
    heavy = "kind in ('gemm', 'attention') and not op.str.contains('^router|down')"
    flop = [rows.query(heavy).eval("flop * count").sum() for rows in (whole, split)]
    assert flop[0] == pytest.approx(tensor * flop[1], rel=1e-12)
    # The profile's own ops are these; those of other kernels do the same work.
    of_blocks = whole[whole["kind"].isin(["gemm", "attention"])].eval("flop * count").sum()
    compiled = profile_config(config, sizes={"seq": 1024}, fusion="compiled")
    for ops, module, exact in ((profile.ops, "block", 1e-12), (compiled.ops, "decoder.block", 1e-3)):
        own = add_costs(resize_ops(ops, {**profile.sizes, "batch": 1}, name))
        own = own[own["module"].str.startswith(module) & own["kind"].isin(["gemm", "attention"])]
        rounded = exact if profile.transformer.experts else 1e-12  # places of experts are whole
        assert own.eval("flop * count").sum() == pytest.approx(of_blocks, rel=rounded)
    norms = whole[whole["kind"].eq("norm")].groupby("pass_name", observed=True)["count"].sum()
    each = {"qwen3-8b": 3, "qwen3-30b-a3b": 3, "gemma2-2b": 4, "deepseek-v2-lite": 3, "deepseek-v3": 4}.get(
        name, 2
    )
    assert set(norms) == {each * profile.transformer.blocks}


@pytest.mark.parametrize(
    ("name", "asked"),
    [("llama3-8b", {}), ("gemma2-2b", {"precision": "mixed"}), ("qwen3-30b-a3b", {"sizes": {"seq": 3001}}),
     ("mixtral-8x7b", {"precision": "fp8"}), ("deepseek-v2-lite", {}), ("gpt2-xl", {"sizes": {"seq": 512}})],
)  # fmt: skip
def test_a_training_takes_as_long_with_one_device_as_its_layout(
    tmp_path: Path, name: str, asked: dict[str, Any]
) -> None:
    """The op table of a profile and the layout of one device price one list of kernels, at any length."""
    made = profile_config(write(tmp_path, PUBLIC[name]["config"], f"{name}.json"), batch=16)
    plain, alone = (fomkit.estimate(made, "h100-sxm", **one, **asked) for one in ({}, {"layout": "data=1"}))
    # In fp8, a layout also counts the words among the weights that a step quantises.
    near = 5e-3 if "fp8" in asked.values() else 1e-3
    assert alone.step.value == pytest.approx(plain.step.value, rel=near / 10 if near == 1e-3 else near)
    assert (alone.step.low, alone.step.high) == pytest.approx((plain.step.low, plain.step.high), rel=near)
    # What other lines of a suite, and another board of the chip, have in common with it.
    assert alone.step.shared == pytest.approx(plain.step.shared, rel=0.01)
    assert [share for _, share in alone.step.common] == pytest.approx(
        [share for _, share in plain.step.common], rel=10 * near
    )


def test_a_training_in_fp32_moves_twice_the_bytes_of_one_in_bf16(tmp_path: Path) -> None:
    """Norms, activations and additions go over numbers of 4 bytes, and no gradient is added to a wider sum."""
    found = {}
    for dtype in ("float32", "bfloat16"):
        made = profile_config(write(tmp_path, {**PUBLIC["llama3.2-1b"]["config"], "torch_dtype": dtype}), batch=2)
        ops = resize_ops(made.ops, made.sizes, made.name)
        found[dtype] = ops.set_index(["op", "pass_name"])[["read_byte", "write_byte"]]
    wide, narrow = found["float32"], found["bfloat16"]
    for op in ("norm 1", "SiLU, gate", "attention added to the stream", "positions", "words"):
        assert wide.loc[(op, "forward")].tolist() == (2 * narrow.loc[(op, "forward")]).tolist()
    left_out = {op for op, _ in narrow.index} - {op for op, _ in wide.index}
    casts = {"logits to fp32", "logits from fp32", "parameters to the short format"}
    assert {op for op in left_out if not op.endswith("to the fp32 sum")} >= casts


def test_ops_of_a_training_are_the_same_whatever_runs_their_kernels(tmp_path: Path) -> None:
    """Biases of experts, sums of heads' norms, slots for tokens and tensors are those of the model."""
    for name in ("gpt-oss-20b", "olmo2-7b", "gpt2-xl"):
        config = write(tmp_path, {**PUBLIC[name]["config"], "torch_dtype": "bfloat16"})
        made = {fusion: profile_config(config, batch=2, fusion=fusion) for fusion in get_args(Fusion)}
        ops = {fusion: resize_ops(one.ops, one.sizes, name).set_index("op") for fusion, one in made.items()}
        tensors = {fusion: float(one.loc["Adam", "tensors"]) for fusion, one in ops.items()}
        # Layouts leave out the smallest biases and sinks of GPT-OSS, and so does the profile that they share.
        assert tensors["eager"] == tensors["compiled"] >= tensors["vendor"]
        assert tensors["vendor"] == tensors["eager"] or name == "gpt-oss-20b"
        if name == "gpt-oss-20b":
            places = -(-2 * 4096 * 4 // 32)
            for by, width in (("in", 2 * 2880), ("out", 2880)):
                summed = ops["compiled"].loc[f"feed-forward {by}, by bias"]
                assert set(summed["numel"]) == {32 * places * width}
        if name == "olmo2-7b":  # one norm of all heads, not one of each
            rows = {float(one.loc[["norms of queries and keys"], "row"].iloc[0]) for one in
                    (ops["vendor"], ops["compiled"])}  # fmt: skip
            assert rows == {8192}


def test_an_activation_takes_as_long_in_every_training(tmp_path: Path) -> None:
    config = write(tmp_path, {**PUBLIC["llama3.2-1b"]["config"], "torch_dtype": "bfloat16"})
    found = [
        fomkit.estimate(profile_config(config, batch=4, fusion=one), "h100-sxm").ops
        for one in ("vendor", "compiled")
    ]
    times = [ops.loc[ops["op"].eq("SiLU, gate") & ops["pass_name"].eq("forward"), "time_s"] for ops in found]
    assert times[0].tolist() == times[1].tolist()


def test_the_tensors_of_gpt2_are_those_of_its_code() -> None:
    """The shipped GPT-2 was traced."""
    shipped = fomkit.model("gpt2").ops
    (tensors,) = shipped.loc[shipped["kind"].eq("optimizer"), "tensors"]
    one = Block(Attention(12, 12, 64, (True, True), rotary=False), FeedForward(3072, gated=False, bias=True))
    assert tensors == 12 * tensors_of(one, 2) + TENSORS_OUTSIDE


def test_experts_are_trained_by_a_product_each(tmp_path: Path) -> None:
    """A training does not take the times of a serving library's kernel for its experts."""
    config = write(tmp_path, PUBLIC["mixtral-8x7b"]["config"])
    for fusion in get_args(Fusion):
        ops = profile_config(config, fusion=fusion).ops
        assert set(ops["kind"][ops["experts"].notna()]) == {"gemm"}
    assert "experts" in set(profile_config(config, mode="infer").ops["kind"])
    found = fomkit.estimate(profile_config(config, batch=8, sizes={"seq": 4096}), "h100-sxm")
    flop = (found.ops["flop"] * found.ops["count"])[found.ops["kind"].eq("gemm")].sum()
    assert 0.4 < flop / found.step.value / 989e12 < 0.8


def test_a_training_by_rule_waits_for_its_host(tmp_path: Path) -> None:
    """A small batch of BERT cannot be quicker than its host starts the ops, unless the step is compiled."""
    config = write(tmp_path, PUBLIC["bert-base"]["config"])
    bounds = [fomkit.estimate(profile_config(config, batch=1, fusion=fusion), "h100-sxm").step_time.bound
              for fusion in get_args(Fusion)]  # fmt: skip
    assert dict(zip(get_args(Fusion), bounds, strict=True)) == {
        "vendor": "launch",
        "eager": "launch",
        "compiled": "memory",
    }


GPT = {"model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024, "vocab_size": 50257}


@pytest.mark.parametrize("batch", [1, 8])
def test_a_step_that_waits_for_its_host_is_the_same_with_a_layout_and_without(tmp_path: Path, batch: int) -> None:
    """Blocks wait by themselves, also where the step as a whole has more work than its host (batch 8)."""
    made = profile_config(write(tmp_path, GPT), batch=batch)
    plain, laid = (fomkit.estimate(made, "h100-sxm", batch=batch, **how) for how in ({}, {"layout": "data=1"}))
    assert laid.step.value == pytest.approx(plain.step.value, rel=2e-6)
    assert (laid.step.low, laid.step.high) == pytest.approx((plain.step.low, plain.step.high), rel=1e-3)
    assert dict(laid.coverage) == pytest.approx(dict(plain.coverage), abs=1e-5)
    step = plain.step_time
    assert step.host_launch_s is not None
    assert step.late_s > 0.1 * step.device_s.value
    assert plain.coverage["assumed"] == pytest.approx(step.late_s / plain.step.value)
    assert sum(plain.coverage.values()) == pytest.approx(1)
    # A host that runs ahead takes less, but the update waits for the last gradient. At batch 8 its kernels take
    # 2.1 ms or more and its host 0.2, so nothing is added to the device's low.
    ahead = max(step.device_s.low, step.host_launch_s.low)
    assert plain.step.low == pytest.approx(ahead) if batch == 8 else ahead < plain.step.low
    assert plain.step.low < plain.step.value


def test_an_op_costs_its_host_once_and_each_further_kernel_a_launch(tmp_path: Path) -> None:
    config = write(tmp_path, PUBLIC["llama3.2-1b"]["config"])
    made = fomkit.estimate(profile_config(config, batch=1, fusion="eager"), "h100-sxm")
    launches, count = made.ops["launches"], made.ops["count"]
    ops, more = (count * launches.clip(upper=1)).sum(), (count * (launches - 1).clip(lower=0)).sum()
    assert more > 400
    host = made.step_time.host_launch_s
    assert host is not None
    assert host.value == pytest.approx(51e-6 * ops + 5e-6 * more)
    assert host.low == pytest.approx(18e-6 * ops + 3e-6 * more)  # a part of a written-out op may cost little


def test_inference_and_compiled_steps_start_at_the_launch_cost_on_any_host(tmp_path: Path) -> None:
    slow = fomkit.machine("h100-sxm").with_(host="1 ms")
    config = write(tmp_path, PUBLIC["llama3.2-1b"]["config"])
    for how in ({"mode": "decode"}, {"fusion": "compiled"}):
        made = profile_config(config, batch=1, **how)
        assert fomkit.estimate(made, slow).step == fomkit.estimate(made, "h100-sxm").step
    assert fomkit.estimate(profile_config(config, batch=1), slow).step.value > 0.3


def test_a_host_can_be_varied_and_a_workbook_without_its_formula_is_refused(tmp_path: Path) -> None:
    made = profile_config(write(tmp_path, GPT), batch=8)
    points = fomkit.scenarios(made, "h100-sxm", {"host_op_s": [5e-6, 51e-6, 2e-4], "launch_s": [5e-6, 2e-6, 5e-6]})
    for point in points.to_dict("records"):
        changed = fomkit.machine("h100-sxm").with_({name: point[name] for name in ("host_op_s", "launch_s")})
        assert point["step_s"] == pytest.approx(fomkit.estimate(made, changed).step.value)
    swept = fomkit.sweep(made, "h100-sxm", {"host_op_s": "20 us,51 us"})
    assert swept.table["step_s"].iloc[1] == pytest.approx(points["step_s"].iloc[1], rel=0.01)
    known = {one["parameter"]: one for one in fomkit.sensitivity(made, "h100-sxm").content["parameters"]}
    assert known["host_op_s"]["elasticity"]["sample_per_s"] < -0.3
    with pytest.raises(
        FomkitError, match=r"a host that needs more than launches, which .* larger batch or --fusion compiled"
    ):
        fomkit.write_workbook(fomkit.estimate_all([made], ["h100-sxm"]), tmp_path / "one.xlsx")
    with pytest.raises(
        FomkitError, match=r"its run uses a layout, but a workbook is for a step .* without a layout"
    ):
        fomkit.write_workbook(fomkit.estimate_all([made], ["h100-sxm"], layout="data=1"), tmp_path / "one.xlsx")


def test_a_step_whose_blocks_wait_names_the_device_with_its_host(tmp_path: Path) -> None:
    """The host needs 24 ms, the device 32, and block by block both take 38: neither term alone is the step."""
    made = profile_config(write(tmp_path, GPT), batch=8)
    step = fomkit.estimate(made, "h100-sxm").step_time
    assert step.host_launch_s.value < step.device_s.value < step.paced_s.value == step.wall_s.value
    explained = fomkit.estimate_all([made], ["h100-sxm"]).summary(explain=True)
    assert "device and host 37.62 ms" in " ".join(explained.split())
    assert "parts of the step wait for it" in " ".join(fomkit.advise(made, "h100-sxm").summary().split())


def test_a_step_that_waits_for_its_host_says_so_and_no_sharing_of_its_update_shortens_it() -> None:
    asked = {"batch": 2, "precision": "bf16"}
    alone = fomkit.estimate("bert-large", "h100-sxm", **asked)
    assert any(
        "waits for its host in " in note and "of a step: 51.00 µs per op" in note for note in alone.deviations
    )
    two = {"nodes": 1, "node_devices": 2, **asked, "batch": 4}
    for layout in ("data=2", "data=2,zero=1"):
        assert fomkit.estimate("bert-large", "h100-sxm", layout=layout, **two).step.value >= alone.step.value
    busy = fomkit.estimate("bert-large", "h100-sxm", batch=256, precision="bf16")
    assert not any("waits for its host" in note for note in busy.deviations)
    # A wait of 0.6 % is no news: 12 blocks of 86 million parameters at a batch of 256.
    assert 0 < fomkit.estimate("vit-b16", "h100-sxm", batch=256).step_time.late_s < 0.01 * 0.072
    assert not any("its host" in note for note in fomkit.estimate("vit-b16", "h100-sxm", batch=256).deviations)


def test_a_layout_of_a_file_in_fp32_says_that_it_is_priced_in_bf16(tmp_path: Path) -> None:
    made = profile_config(write(tmp_path, {**PUBLIC["llama3.2-1b"]["config"], "torch_dtype": "float32"}))
    found = fomkit.estimate(made, "h100-sxm", batch=8, layout="data=8")
    assert any("priced in bf16" in note for note in found.deviations)


@pytest.mark.parametrize(("dtype", "named"), [("float16", "fp16"), ("bfloat16", "bf16")])
def test_a_layout_keeps_the_16_bits_of_the_file(tmp_path: Path, dtype: str, named: str) -> None:
    made = profile_config(write(tmp_path, {**PUBLIC["llama3.2-1b"]["config"], "torch_dtype": dtype}))
    asked = {"batch": 8, "layout": "data=8"}
    assert fomkit.estimate(made, "h100-sxm", **asked).precision == named
    assert fomkit.estimate(made, "h100-sxm", precision="bf16", **asked).precision == "bf16"
    assert fomkit.estimate(made, "h100-sxm", precision="mixed", **asked).precision == "fp16"


@pytest.mark.parametrize("block", [[1, 32], "abc", [128]])
def test_blocks_of_other_sizes_are_refused(tmp_path: Path, block: object) -> None:
    config = {**PUBLIC["llama3-8b"]["config"], "torch_dtype": "bfloat16",
              "quantization_config": {"quant_method": "fp8", "weight_block_size": block}}  # fmt: skip
    with pytest.raises(FomkitError, match=r"weight_block_size is .*Blocks of \[128, 128\] are known"):
        profile_config(write(tmp_path, config), mode="infer")


def test_a_layout_says_what_it_leaves_out(tmp_path: Path) -> None:
    """GPT-OSS has biases of experts and of its output, and sinks; Qwen3 has nothing that a layout lacks."""
    for name, said in (("gpt-oss-20b", "layouts leave out 0.03% of its parameters"), ("qwen3-8b", None)):
        config = write(tmp_path, PUBLIC[name]["config"], f"{name}.json")
        found = fomkit.estimate(profile_config(config, sizes={"seq": 1024}), "h100-sxm", batch=8, layout="data=8")
        notes = [note for note in found.deviations if "leave out" in note]
        assert [note[: len(said or "")] for note in notes] == [said] * bool(said)


def test_layouts_of_other_blocks_are_not_known(tmp_path: Path) -> None:
    """Norms without parameters, positions that are not used, attention beside the feed-forward layer."""
    for name in ("olmo-7b", "gpt2-xl", "falcon-7b"):
        config = write(tmp_path, PUBLIC[name]["config"], f"{name}.json")
        assert profile_config(config, sizes={"seq": 512}).transformer is None


@pytest.mark.parametrize("model", ["vit-b16", "bert-large"])
def test_a_layout_is_refused_by_what_the_profile_is(model: str) -> None:
    """Before, these profiles were called traces."""
    for layout, said in (
        ("tensor=8", "cannot be split by tensor: its config.json has blocks that are not split here"),
        ("launch=graphs", "is of a config.json, for which launch is not modelled"),
    ):
        with pytest.raises(FomkitError, match=f"{model}.*{said}"):
            fomkit.estimate(model, "h100-sxm", nodes=1, layout=layout)


def test_a_prompt_is_as_long_as_the_sequence_that_is_trained_on() -> None:
    """Before, training used 8,192 tokens and the forward pass of the same name 4,096."""
    trained = fomkit.estimate("llama3-8b", "h100-sxm")
    for mode in ("infer", "prefill"):
        found = fomkit.estimate("llama3-8b", "h100-sxm", mode=mode)
        assert found.sizes["seq"] == trained.sizes["seq"] == 8192
    assert fomkit.estimate("llama3-8b", "h100-sxm", mode="infer", sizes={"seq": 512}).sizes["seq"] == 512


def test_a_sequence_that_is_asked_for_is_that_of_a_layout() -> None:
    steps = [fomkit.estimate("llama3-8b", "h100-sxm", nodes=1, layout="zero=3,recompute=full", sizes={"seq": seq})
             for seq in (8192, 4096)]  # fmt: skip
    # Attention shrinks fourfold, products twofold, and what is sent of the weights not at all.
    assert 0.4 < steps[1].step.value / steps[0].step.value < 0.6


@pytest.fixture(scope="module")
def today_models(root: Path) -> Any:
    spec = importlib.util.spec_from_file_location("today_models", root / "benchmarks" / "today_models.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # a NamedTuple looks its module up
    spec.loader.exec_module(module)
    return module


def plain(path: Path) -> bytes:
    """Read a file, decompressed: the header of a compressed one depends on the version of Python."""
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def test_shipped_profiles_are_made_from_the_sizes_beside_them(
    today_models: Any, tmp_path: Path, root: Path
) -> None:
    folder = root / "model_profiles" / "today"
    names = {*today_models.PROFILES, *today_models.TRACED, "today.suite"}
    assert {path.stem for path in folder.glob("*.yaml")} == names
    for name, one in today_models.PROFILES.items():
        for path in fomkit.save(today_models.profile(name), tmp_path / f"{name}.yaml"):
            shipped = plain(folder / path.name)
            assert plain(path) == shipped, f"run benchmarks/today_models.py: {path.name}"
        config = json.loads((folder / f"{one.config}.config.json").read_text())
        published = PUBLIC[one.config]["config"]
        assert {key: config[key] for key in published} == published


def test_the_suite_of_today_rates_a_machine() -> None:
    found = fomkit.fom("today", "h100-sxm")
    assert not found.missing
    assert 1.5 < found.merit.value.value < 4
    assert found.merit.value.low < found.merit.value.value < found.merit.value.high


def test_what_was_not_read_is_noted(tmp_path: Path) -> None:
    packed = {"quantization_config": {"quant_method": "mxfp4"}, "wings": 2,
              "architectures": ["LlamaForSequenceClassification"]}  # fmt: skip
    notes = read_architecture(write(tmp_path, {**PUBLIC["llama3-8b"]["config"], **packed})).notes
    assert any("quantization_config (mxfp4) is not known" in note for note in notes)
    assert any("LlamaForSequenceClassification" in note for note in notes)
    assert "fields of the file that are not used: wings" in notes
    odd = {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 3}}}}
    notes = read_architecture(write(tmp_path, {**PUBLIC["llama3-8b"]["config"], "quantization_config": odd})).notes
    assert any("(compressed-tensors, 3 bits of None) is not known" in note for note in notes)
    gemma = {name: value for name, value in PUBLIC["gemma2-2b"]["config"].items() if name != "head_dim"}
    assert read_architecture(write(tmp_path, gemma)).parameters == PUBLIC["gemma2-2b"]["parameters"]


LINEAR = 32 * (4096 * 6144 + 4096 * 4096 + 3 * 4096 * 14336)
"""Weights of Llama 3 8B's blocks: queries, keys and values; projection; gate, up and down."""


@pytest.mark.parametrize(
    ("stored", "byte"),
    [
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, 0.5 + 2.5 / 128),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, 1.0),
        ({"quant_method": "awq", "w_bit": 4, "q_group_size": 64}, 0.5 + 2.5 / 64),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 0.5 + 4 / 64),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True},
         0.5 + (1 + 4 / 256) / 64),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 1.0),
        ({"quant_method": "fp8"}, 1.0),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 1 + 4 / 128**2),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, 1.0),
        ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {
            "weights": {"num_bits": 8, "type": "float"}, "input_activations": {"num_bits": 8}}}}, 1.0),
        ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {
            "weights": {"num_bits": 4, "type": "int", "group_size": 128}, "input_activations": None}}},
         0.5 + 2 / 128),
    ],
)  # fmt: skip
def test_weights_that_are_kept_narrow_take_less_memory_and_traffic(
    stored: dict[str, Any], byte: float, tmp_path: Path
) -> None:
    """Stream, attention, embedding and last product stay in bf16; with fp8, activations also move in one byte."""
    config = {**PUBLIC["llama3-8b"]["config"], "torch_dtype": "bfloat16"}
    plain, narrow = (
        profile_config(write(tmp_path, one), mode="decode", batch=16, sizes={"cache": 4095})
        for one in (config, {**config, "quantization_config": stored})
    )
    moved = []
    for one in (plain, narrow):
        ops = add_costs(resize_ops(one.ops, one.sizes, one.name))
        moved.append((ops["byte"] * ops["count"]).sum())
        assert set(ops["dtype"][ops["kind"] == "attention"]) == {"bf16"}
    activations = 32 * 16 * (4096 + 6144 + 4096 + 4096 + 4096 + 2 * 14336 + 14336 + 4096)
    in_fp8 = byte >= 1 and stored["quant_method"] in ("fp8", "modelopt", "compressed-tensors")
    assert moved[0] - moved[1] == pytest.approx((LINEAR + in_fp8 * activations) * (2 - byte), rel=1e-12)
    rest = [step_memory(one, one.sizes).total("parameter") for one in (plain, narrow)]
    assert rest[0] - rest[1] == pytest.approx(LINEAR * (2 - byte), abs=512)
    assert any(f"quantization_config ({stored['quant_method']})" in note or
               f"quantization_config: {stored['quant_method']}" in note for note in narrow.notes)  # fmt: skip
    found, whole = (fomkit.estimate(one, "h100-sxm").step for one in (narrow, plain))
    assert found.value < 0.9 * whole.value
    trained = profile_config(write(tmp_path, {**config, "quantization_config": stored}))
    assert any("is for inference: a training step counts in bf16" in note for note in trained.notes)


def test_experts_alone_are_stored_in_4_bits(tmp_path: Path) -> None:
    """The weights of GPT-OSS 20B were published in 13.76 GB: experts in MXFP4, all others in bf16."""
    config = {**PUBLIC["gpt-oss-20b"]["config"], "torch_dtype": "bfloat16"}
    stored = write(tmp_path, {**config, "quantization_config": {"quant_method": "mxfp4"}})
    made = profile_config(stored, mode="decode", batch=1, sizes={"cache": 1024})
    assert step_memory(made, made.sizes).total("parameter") == pytest.approx(13.76e9, rel=1e-3)
    assert any(note.startswith("weights of experts are stored in 0.531 byte each") for note in made.notes)


@pytest.mark.parametrize(("more", "precision"), [({}, "fp8"), ({"weight_block_size": [128, 128]}, "fp8_block")])
def test_a_file_in_fp8_is_its_model_with_precision_fp8(
    tmp_path: Path, more: dict[str, Any], precision: str
) -> None:
    config = {**PUBLIC["deepseek-v2-lite"]["config"], "torch_dtype": "bfloat16"}
    given = {"quantization_config": {"quant_method": "fp8", **more}}
    asked = fomkit.estimate(write(tmp_path, config), "h100-sxm", mode="decode", precision=precision, batch=8)
    stored = fomkit.estimate(write(tmp_path, {**config, **given}, "fp8.json"), "h100-sxm", mode="decode", batch=8)
    assert stored.step == asked.step
    peaks = [fomkit.memory(one.model, precision=of).content["peak"]["byte"]
             for one, of in ((stored, None), (asked, precision))]  # fmt: skip
    assert peaks[0] == pytest.approx(peaks[1], abs=512)
    low = stored.ops[stored.ops["dtype"].eq(precision)]
    assert set(low["kind"]) == {"gemm", "experts"}
    if more:  # timed as such
        assert not {"transferred", "roofline"} & set(low["time_source"])


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        (
            {"quant_method": "gptq", "bits": 5, "group_size": 128},
            "quantization_config: bits is 5 and group_size 128.",
        ),
        (
            {"quant_method": "gptq", "bits": 4, "group_size": 0},
            "bits is 4 and group_size 0. Give 2, 3, 4 or 8 bits",
        ),
        ({"quant_method": "awq", "group_size": 64}, "quantization_config: bits is missing. Add it"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": 1}, "load_in_8bit is 1. Give true or false."),
    ],
)
def test_packed_weights_that_cannot_be_are_one_message(
    stored: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = write(tmp_path, {**PUBLIC["llama3-8b"]["config"], "quantization_config": stored})
    with pytest.raises(FomkitError, match=re.escape(message)):
        read_architecture(path)


def test_packed_weights_are_not_packed_again(tmp_path: Path) -> None:
    config = {**PUBLIC["llama3.2-1b"]["config"], "torch_dtype": "bfloat16"}
    stored = {"quantization_config": {"quant_method": "gptq", "bits": 4, "modules_to_not_convert": ["model.norm"]}}
    path = write(tmp_path, {**config, **stored})
    assert any("modules that quantization_config excludes" in note for note in read_architecture(path).notes)
    with pytest.raises(
        FomkitError, match="precision: fp8 applies to linear layers, but the weights of this model are packed"
    ):
        fomkit.estimate(path, "h100-sxm", mode="decode", precision="fp8")
    same = [fomkit.estimate(path, "h100-sxm", mode="decode", precision=one).step for one in (None, "bf16")]
    assert same[0] == same[1]


def test_a_prompt_fills_the_cache_and_windows_keep_what_they_see(tmp_path: Path) -> None:
    path = write(tmp_path, {**PUBLIC["llama3-8b"]["config"], "torch_dtype": "bfloat16"})
    prompt = profile_config(path, mode="infer", batch=16, sizes={"seq": 8192})
    kept = 2 * 2 * 32 * 8 * 128 * 16 * 8192
    assert step_memory(prompt, prompt.sizes).total("buffer") == pytest.approx(kept, rel=1e-6)
    short = write(tmp_path, {**PUBLIC["gpt-oss-20b"]["config"], "torch_dtype": "bfloat16"})
    token = profile_config(short, mode="decode", sizes={"cache": 4095})
    each = 2 * 2 * 8 * 64
    assert step_memory(token, token.sizes).total("buffer") == pytest.approx(each * 12 * (128 + 4096), rel=0.01)


def test_a_mode_is_of_the_profile_of_one_beside_it_or_of_its_sizes(root: Path) -> None:
    trained, decoded, prompt = (
        fomkit.estimate("llama3-8b", "h100-sxm", mode=mode, precision="bf16").model.name
        for mode in ("train", "decode", "prefill")
    )
    assert (trained, decoded, prompt) == ("llama3-8b", "llama3-8b-decode", "llama3-8b-prefill")
    config = root / "model_profiles" / "today" / "llama3-8b.config.json"
    by_name = fomkit.estimate("llama3-8b", "h100-sxm", mode="decode", batch=8, sizes={"cache": 2048})
    by_file = fomkit.estimate(config, "h100-sxm", mode="decode", batch=8, sizes={"cache": 2048})
    assert by_name.step == by_file.step
    for name, mode, message in (
        ("gpt2", "decode", r"gpt2: has no config\.json beside it, which `mode` decode needs"),
        ("vit-b16", "prefill", "does not generate tokens one by one"),
        ("llama3-8b-decode", "train", "which `mode` train needs"),
    ):
        with pytest.raises(FomkitError, match=message):
            fomkit.estimate(name, "h100-sxm", mode=mode)


def test_tokens_are_those_that_a_device_meets_in_a_step() -> None:
    decoded = fomkit.estimate("llama3-8b", "h100-sxm", mode="decode", batch=32)
    prompt = fomkit.estimate("llama3-8b", "h100-sxm", mode="prefill", batch=2, sizes={"seq": 4096})
    spread = fomkit.estimate("llama3-8b", "h100-sxm", batch=64, nodes=1, layout=["zero=3", "microbatch=1"])
    for one, tokens in ((decoded, 32), (prompt, 2 * 4096), (spread, 64 * 8192 / 8)):
        found = token_per_s(one)
        assert found is not None
        assert found.value == pytest.approx(tokens / one.step.value)
        assert found.low == pytest.approx(tokens / one.step.high)
    assert "tokens/s a device" in decoded.summary()


def test_a_unit_of_decoded_tokens_says_that_its_prompts_are_not_in_it(root: Path, tmp_path: Path) -> None:
    for name in ("llama3-8b-decode", "llama3-70b-decode", "deepseek-v3-decode"):
        assert fomkit.model(name).excludes == ("prompt",)
    decoded, prompt = (fomkit.estimate("llama3-8b", "h100-sxm", mode=mode) for mode in ("decode", "prefill"))
    assert "prompt" in decoded.excludes
    assert "prompt" not in prompt.excludes
    assert "without input, validation, start_up, prompt" in decoded.summary().splitlines()[0]
    content = fomkit.cost("llama3-8b-decode", "h100-sxm", price="2 USD/h per device, 2026-01-01").content
    assert "prompt" in content["excludes"]
    suite = suite_content(fomkit.fom("today", "h100-sxm"))
    assert "prompt" in suite["fom"]["excludes"]
    whose = {one["model"] for one in suite["lines"] if "prompt" in one["excludes"]}
    assert whose == {"llama3-8b-decode"}
    profile = profile_config(root / "model_profiles" / "today" / "llama3-8b.config.json", mode="decode")
    fomkit.save(profile, tmp_path / "again.yaml")
    assert fomkit.model(tmp_path / "again.yaml").excludes == profile.excludes == ("prompt",)
    assert token_per_s(fomkit.estimate("gpt2", "h100-sxm")) is None


# name: parameters, multiply-adds of one sample forward in products, and where both are published
TRACED = {
    # Peebles and Xie, arXiv 2212.09748, table 4: 675 M parameters, 118.64 G multiply-adds an image of 256 × 256
    "dit-xl-2": (675_129_632, 118.64e9),
    # The 859.52 M of its authors' code; 339 G multiply-adds in convolutions and linear layers (Kim et al., BK-SDM,
    # arXiv 2305.15798), to which attention's own come, which profilers of modules do not see
    "sd15-unet": (859_520_964, 338_610_585_600 + 63_026_135_040),
    # facebookresearch/dlrm, MLPerf's sizes: 187,767,399 rows of 128; 13-512-256-128; 479-1024-1024-512-256-1
    "dlrm": (187_767_399 * 128 + 171_392 + 2_197_505, 170_496 + 27 * 27 * 128 + 2_194_688),
    # Open Graph Benchmark, leaderboard of ogbn-arxiv: 218,664; two products a layer for each of 169,343 papers
    "graphsage-arxiv": (218_664, 169_343 * 2 * (128 * 256 + 256 * 256 + 256 * 40)),
}


@pytest.mark.parametrize("name", TRACED)
def test_traced_models_of_today_have_the_counts_that_are_published(name: str) -> None:
    model, (parameters, multiply_adds) = fomkit.model(name), TRACED[name]
    assert model.parameters_total == parameters
    one = add_costs(resize_ops(model.ops, {**model.sizes, "batch": 1}, name))
    forward = one[one["pass_name"].eq("forward") & one["kind"].isin(["gemm", "conv", "attention"])]
    counted = (forward["flop"] * forward["count"]).sum() / 2
    assert counted == pytest.approx(multiply_adds, rel=3e-4 if name == "dit-xl-2" else 0)
    assert not model.unsupported


@pytest.mark.parametrize("name", ["dit-xl-2", "sd15-unet"])
def test_traced_models_of_today_have_the_flop_that_their_code_runs(name: str, root: Path) -> None:
    """PyTorch counts the products of both passes, on the meta device."""
    torch = pytest.importorskip("torch")
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    with torch.device("meta"), sdpa_kernel(SDPBackend.MATH):
        made = runpy.run_path(str(root / "model_profiles" / "src" / "today" / f"{name.replace('-', '_')}.py"))
        inputs = made["inputs"](2)
        with FlopCounterMode(display=False) as forward:
            output = made["model"](*inputs)
        with FlopCounterMode(display=False) as backward:
            made["loss_fn"](output, inputs).backward()
    model = fomkit.model(name)
    ops = add_costs(resize_ops(model.ops, {**model.sizes, "batch": 2}, name))
    ops = ops[ops["kind"].isin(["gemm", "conv", "attention"])]
    counted = (ops["flop"] * ops["count"]).groupby(ops["pass_name"].str.split("_").str[0]).sum()
    assert counted.to_dict() == {"forward": forward.get_total_flops(), "backward": backward.get_total_flops()}


def test_blocks_that_differ_in_number_alone_are_one_row(today_models: Any) -> None:
    model = fomkit.model("dit-xl-2")
    attention = model.ops[model.ops["kind"] == "attention"]
    assert attention["count"].tolist() == [28, 28]
    assert set(model.parts["of"]) == set(attention.index)
    again = today_models.folded(model)  # nothing is left to join
    assert again.ops["count"].tolist() == model.ops["count"].tolist()
    assert again.parts["of"].tolist() == model.parts["of"].tolist()
    held = fomkit.memory("dit-xl-2", batch=8).content["totals"]["parameter"]
    assert held == pytest.approx(4 * model.parameters_total, rel=1e-5)  # each tensor in whole blocks of 512 byte


def test_the_graph_is_traced_from_its_source(today_models: Any, tmp_path: Path, root: Path) -> None:
    for path in fomkit.save(today_models.traced("graphsage-arxiv"), tmp_path / "graphsage-arxiv.yaml"):
        shipped = plain(root / "model_profiles" / "today" / path.name)
        assert plain(path) == shipped, f"run benchmarks/today_models.py: {path.name}"


def test_a_new_profile_says_the_length_of_both_sequences(tmp_path: Path, monkeypatch) -> None:
    """Only `estimate` said the source's."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path, PUBLIC["bart-large"]["config"], "bart.json")
    done = CliRunner().invoke(app, ["profile", "bart.json", "--set", "source=512"])
    assert "batch 1, seq 1,024, source 512, made by rule" in done.stdout


def test_what_is_no_object_says_what_was_expected(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(FomkitError, match=r"is a list\. Expected an object, \{…\}: a transformer's config\.json"):
        read_architecture(tmp_path / "config.json")


def test_learnt_positions_limit_a_sequence_in_every_verb(tmp_path: Path, monkeypatch) -> None:
    """Only `profile` of the file itself refused it."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path, PUBLIC["gpt2-xl"]["config"] | {"n_layer": 2}, "gpt2.json")
    fomkit.save(fomkit.profile("gpt2.json"), "saved.yaml")
    refused = "seq is 4,096, and the model has learnt positions for 1,024 tokens. Give at most that many"
    for verb, model in product(("estimate", "memory", "cost"), ("gpt2.json", "saved.yaml")):
        done = CliRunner().invoke(app, [verb, model, "-t", "h100-sxm", "--set", "seq=4096"])
        assert refused in str(done.exception)
        assert CliRunner().invoke(app, [verb, model, "-t", "h100-sxm", "--set", "seq=512"]).exit_code == 0


def test_the_next_command_names_a_machine_that_holds_the_step(tmp_path: Path, monkeypatch) -> None:
    """The machine suggested for training 8 billion parameters was an A100 of 80 GB, which holds no batch."""
    from fomkit.verbs.profiling import _estimate_next

    monkeypatch.chdir(tmp_path)
    write(tmp_path, PUBLIC["llama3-8b"]["config"], "q8.json")
    done = CliRunner().invoke(app, ["profile", "q8.json", "-o", "q8.yaml"])
    command = done.stdout.splitlines()[-1].removeprefix("Next: fomkit ")
    assert command.startswith("estimate q8.yaml --target ")
    assert CliRunner().invoke(app, command.split()).exit_code == 0
    assert _estimate_next(load_model("p1b3")).endswith(" v100")
    # No one device holds it: the next command says which layout fits.
    assert _estimate_next(load_model("today/llama3-70b")) == "fomkit memory {file} --target gb200"


def test_two_profiles_of_a_config_have_names_of_their_own(tmp_path: Path, monkeypatch) -> None:
    """Before, both were named config and could not be estimated together."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path, PUBLIC["qwen2-0.5b"]["config"])
    for name, more in (("one", []), ("two", ["--batch", "4"]), ("three", ["--name", "mine"])):
        done = CliRunner().invoke(app, ["profile", "config.json", "-o", f"{name}.yaml", *more])
        assert done.exit_code == 0, done.output
    assert [load_model(f"{name}.yaml").name for name in ("one", "two", "three")] == ["one", "two", "mine"]
    assert CliRunner().invoke(app, ["estimate", "one.yaml", "two.yaml", "-t", "h100-sxm"]).exit_code == 0
    said = str(CliRunner().invoke(app, ["estimate", "one.yaml", "one.yaml", "-t", "h100-sxm"]).exception)
    assert "one: is given twice among the models. Name each model once; give different" in said
    assert "'fomkit profile --name'" in said


def test_the_folder_of_a_model_is_its_config_and_weights_are_no_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**SIZES["llama"], "model_type": "llama"}))
    folder, file = (fomkit.estimate(one, "h100-sxm", batch=2) for one in (tmp_path, tmp_path / "config.json"))
    assert folder.step == file.step
    assert fomkit.profile(tmp_path).ops.equals(fomkit.profile(tmp_path / "config.json").ops)
    for name, words in (
        ("model.safetensors", "holds weights"),
        ("run.ipynb", "is a notebook"),
        ("net.pt2", "is an exported graph"),
        ("net.tflite", "is a model for TensorFlow Lite"),
        ("saved_model.pb", "is a TensorFlow graph"),
    ):
        (tmp_path / name).write_bytes(b"\x00")
        for verb in (fomkit.memory, fomkit.profile):
            with pytest.raises(FomkitError, match=words):
                verb(tmp_path / name)
    (tmp_path / "config.json").unlink()
    with pytest.raises(FomkitError, match="is a SavedModel"):
        fomkit.profile(tmp_path)
