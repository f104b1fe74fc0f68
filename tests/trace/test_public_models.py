"""Public models, by configuration and without weights.

All their work has a cost, their counts are the published ones, their products the weights that tokens meet.
Counts as published: BERT base with its masked-language head, T5 small and ViT base on their authors' pages at
huggingface.co; TinyLlama 1.1B, Zhang and others, arXiv 2401.02385.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from extras import needs
from traced_work import flop, numbers

from fomkit.core.model import ModelProfile
from fomkit.frontends.model_file import run_file, take_workload
from fomkit.frontends.profile import profile_file, profile_workload

pytestmark = needs("transformers", reason="tests of public models need transformers: pip install '.[test]'")

BATCH, TOKENS = 2, 16
TEXT = "{'input_ids': torch.ones(batch, 16, dtype=torch.long), 'labels': torch.ones(batch, 16, dtype=torch.long)}"
PICTURES = "{'pixel_values': torch.ones(batch, 3, 224, 224), 'labels': torch.ones(batch, dtype=torch.long)}"
FILE = """
import torch
from transformers import {config}, {model}

model = {model}({config}({sizes}))


def inputs(batch):
    return {inputs}


def loss_fn(output, inputs):
    return output.loss


optimizer = torch.optim.AdamW(model.parameters())
batch_size = 2
"""

LLAMA = (
    "vocab_size=32000, hidden_size=2048, intermediate_size=5632, num_hidden_layers=22, num_attention_heads=32,"
    " num_key_value_heads=4"
)
T5 = (
    "vocab_size=32128, d_model=512, d_kv=64, d_ff=2048, num_layers=6, num_heads=8, decoder_start_token_id=0,"
    " is_encoder_decoder=True"
)
BERT_WEIGHTS = 12 * (4 * 768**2 + 2 * 768 * 3072) + 768**2 + 768 * 30522
T5_WEIGHTS = 6 * (4 * 512**2 + 2 * 512 * 2048) + 6 * (8 * 512**2 + 2 * 512 * 2048) + 512 * 32128
LLAMA_WEIGHTS = 22 * (2 * 2048**2 + 2 * 2048 * 256 + 3 * 2048 * 5632) + 2048 * 32000
PATCHES = 196
VIT_WEIGHTS = (PATCHES + 1) * 12 * (4 * 768**2 + 2 * 768 * 3072) + 768 * 1000


def profile_here(path: Path) -> ModelProfile:
    """Profile a file's model in this process."""
    import torch

    from fomkit.frontends.torch.profile import check_workload

    with torch.device("meta"):
        return profile_workload(take_workload(run_file(path), path.name, check_workload))


@pytest.mark.parametrize(
    ("config", "model", "sizes", "inputs", "parameters", "products"),
    [
        ("BertConfig", "BertForMaskedLM", "", TEXT, 109_514_298, TOKENS * BERT_WEIGHTS),
        ("T5Config", "T5ForConditionalGeneration", T5, TEXT, 60_506_624, TOKENS * T5_WEIGHTS),
        ("LlamaConfig", "LlamaForCausalLM", LLAMA, TEXT, 1_100_048_384, TOKENS * LLAMA_WEIGHTS),
        ("ViTConfig", "ViTForImageClassification", "num_labels=1000", PICTURES, 86_567_656, VIT_WEIGHTS),
    ],
    ids=["bert", "t5", "tiny-llama", "vit"],
)
def test_all_work_is_priced_and_counts_are_the_published_ones(
    file_of: Callable[[str], Path],
    config: str,
    model: str,
    sizes: str,
    inputs: str,
    parameters: int,
    products: int,
) -> None:
    path = file_of(FILE.format(config=config, model=model, sizes=sizes, inputs=inputs))
    # The package takes seconds to load, so that one of the models alone goes through a process of its own.
    profile = profile_file(path) if model.startswith("T5") else profile_here(path)
    assert profile.unsupported == ()
    assert profile.parameters_total == parameters
    rows = numbers(profile)
    assert flop(rows, "forward", kind="gemm") == 2 * BATCH * products
    assert flop(rows, "backward", kind="gemm") == 4 * BATCH * products
