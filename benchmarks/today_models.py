"""Write the profiles of today's transformers from the sizes beside them: ``python benchmarks/today_models.py``.

Sizes are facts of the published ``config.json`` (tests/data/public_configs.json says where); no weights are used.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from fomkit.core.model import Data, ModelProfile, Run
from fomkit.frontends.config.ops import Mode
from fomkit.frontends.config.profile import profile_config
from fomkit.verbs.profiles import save

FOLDER = Path(__file__).resolve().parent.parent / "model_profiles" / "today"


class Made(NamedTuple):
    """One profile: its configuration, the step, and the run where one was published."""

    config: str
    title: str
    mode: Mode
    batch: int
    sizes: dict[str, int]
    samples: int | None = None
    epochs: int | None = None
    note: str = ""


TOKENS_15T = "one epoch of 15e12 tokens, as its model card says (Meta, April 2024), in sequences of 8,192"
PROFILES = {
    "llama3-8b": Made("llama3-8b", "Llama 3, 8 billion parameters: training", "train", 8, {"seq": 8192},
                      1_831_054_688, 1, TOKENS_15T),
    "llama3-8b-decode": Made("llama3-8b", "Llama 3, 8 billion parameters: one token after a cache", "decode", 16,
                             {"cache": 4096}),
    "llama3-70b": Made("llama3-70b", "Llama 3, 70 billion parameters: training", "train", 64, {"seq": 8192},
                       1_831_054_688, 1, TOKENS_15T),
    "llama3-70b-decode": Made("llama3-70b", "Llama 3, 70 billion parameters: one token after a cache", "decode",
                              16, {"cache": 4096}),
    "mixtral-8x7b": Made("mixtral-8x7b", "Mixtral 8x7B: training", "train", 8, {"seq": 4096}),
    "qwen3-30b-a3b": Made("qwen3-30b-a3b", "Qwen 3, 30 billion parameters, 3 of a token: training", "train", 8,
                          {"seq": 4096}),
    "deepseek-v3": Made("deepseek-v3", "DeepSeek-V3, 671 billion parameters, 37 of a token: training", "train", 8,
                        {"seq": 4096}),
    "deepseek-v3-decode": Made("deepseek-v3", "DeepSeek-V3, 671 billion parameters: one token after a cache",
                               "decode", 64, {"cache": 4096}),
    "vit-b16": Made("vit-b16", "Vision transformer, base, 16×16 patches: training", "train", 256, {}, 1_281_167,
                    300, "300 epochs of ImageNet-1k, as in arXiv 2012.12877"),
    "bert-large": Made("bert-large", "BERT large: pretraining by masked words", "train", 32, {"seq": 512}),
}  # fmt: skip


def profile(name: str) -> ModelProfile:
    """Make one of them."""
    one = PROFILES[name]
    path = FOLDER / f"{one.config}.config.json"
    made = profile_config(path, mode=one.mode, batch=one.batch, sizes=one.sizes, name=name)
    run = Run(one.epochs) if one.epochs else made.run
    data = Data(one.samples) if one.samples else made.data
    return replace(made, title=one.title, data=data, run=run, notes=(*made.notes, *([one.note] * bool(one.note))))


if __name__ == "__main__":
    for name in PROFILES:
        print(*save(profile(name), FOLDER / f"{name}.yaml", force=True))
