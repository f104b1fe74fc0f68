"""Write the profiles of today's models: ``python benchmarks/today_models.py``.

Transformers are made from the published ``config.json`` in the folder of the profiles
(tests/data/public_configs.json lists the sources); no weights are used. The others are traced from
model_profiles/src/today.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple

import pandas as pd

from fomkit.core.model import Data, ModelProfile, Run, Unit
from fomkit.frontends.config import profile_config
from fomkit.parallel.kernels import Mode
from fomkit.verbs.profiles import save
from fomkit.verbs.profiling import profile as trace

FOLDER = Path(__file__).resolve().parent.parent / "model_profiles" / "today"
SOURCES = FOLDER.parent / "src" / "today"


class Made(NamedTuple):
    """One profile: its configuration, its step, and its run if one was published."""

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
    """Make the profile of a transformer in `PROFILES`."""
    one = PROFILES[name]
    path = FOLDER / f"{one.config}.config.json"
    made = profile_config(path, mode=one.mode, batch=one.batch, sizes=one.sizes, name=name)
    run = Run(one.epochs) if one.epochs else made.run
    data = Data(one.samples) if one.samples else made.data
    return replace(made, title=one.title, data=data, run=run, notes=(*made.notes, *([one.note] * bool(one.note))))


class Traced(NamedTuple):
    """One traced profile: its source, mode and note, and the samples served in a run if its file states none."""

    source: str
    mode: Literal["train", "infer"]
    note: str
    served: int = 0


TRACED = {
    "dit-xl-2": Traced("dit_xl_2", "train", "equal blocks are one row each, with how often it runs"),
    "sd15-unet": Traced("sd15_unet", "train", "equal blocks of a level are one row each, with how often it runs"),
    "dlrm": Traced(
        "dlrm",
        "infer",
        "each look-up is priced by all of its bytes: reuse of popular rows in a cache is not modelled",
        1_000_000,
    ),
    "graphsage-arxiv": Traced(
        "graphsage_arxiv",
        "train",
        "gathering along edges and adding at their ends are priced as copies of their bytes; contention at nodes "
        "that many edges share is not modelled. A sample is the whole graph",
    ),
}


def folded(model: ModelProfile) -> ModelProfile:
    """Join the rows of blocks that differ only in the number of the block."""
    ops = model.ops.assign(module=[re.sub(r"\bblocks\.\d+", "blocks", str(one)) for one in model.ops["module"]])
    keys = [tuple(map(str, row)) for row in ops.drop(columns="count").itertuples(index=False)]
    numbers = pd.Series(list(dict.fromkeys(keys)), dtype=object).reset_index().set_index(0)["index"]
    of = [int(numbers[key]) for key in keys]
    first = ~pd.Series(of).duplicated()
    counts = ops["count"].astype(float).groupby(of).sum().astype(int).tolist()
    parts, order = model.parts, model.order
    if len(parts):
        parts = parts[parts["of"].map(dict(enumerate(first)))]
        parts = parts.assign(of=parts["of"].map(dict(enumerate(of)))).reset_index(drop=True)
    if order is not None:
        order = order.assign(row=order["row"].map(dict(enumerate(of))))
    ops = ops[first.to_numpy()].reset_index(drop=True).assign(count=counts)
    return replace(model, ops=ops, parts=parts, order=order, layers=None)


def traced(name: str) -> ModelProfile:
    """Make the profile of a model in `TRACED`."""
    one = TRACED[name]
    made = folded(trace(SOURCES / f"{one.source}.py", mode=one.mode, name=name))
    if one.served:
        made = replace(made, data=Data(one.served), run=Run(1), unit=Unit("megasample"))
    return replace(made, notes=(*made.notes, one.note))


if __name__ == "__main__":
    for name in (*PROFILES, *TRACED):
        made = profile(name) if name in PROFILES else traced(name)
        print(*save(made, FOLDER / f"{name}.yaml", force=True))
