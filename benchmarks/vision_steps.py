"""Make the tables of ``validation/vision``: ``python benchmarks/vision_steps.py SHARED``.

Training steps of image networks on an RTX 3090, measured and published with PyTorch Image Models (commit aa4b5850,
Apache-2.0), and the ops of the same networks, traced from our own sources in ``model_profiles/src/vision``. A source
stands for a network only where it has as many parameters as the table says. How a step was measured, as its program
has it: autocast to fp16 around forward pass and loss, random images of one batch, SGD with Nesterov momentum, one
tensor after the other as PyTorch 1.12 does unasked.

``--keep`` leaves the networks that are there already.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import torch.nn.functional as F
from validation_tables import VALIDATION, packed

from fomkit.core.model import Workload
from fomkit.ops.resize import resize_ops
from fomkit.ops.tables import column_names
from fomkit.verbs.profiling import profile

SOURCES = Path(__file__).parent.parent / "model_profiles" / "src" / "vision"
MODULES = ("residual", "plain", "mobile", "tokens")
TARGET = VALIDATION / "vision"
MEASURED = "steps/timm_train_rtx3090_half.csv"
FAMILIES = {
    "vgg": "vgg", "repvgg": "repvgg", "densenet": "densenet", "(tf_)?inception": "inception", "xception": "xception", "cspdark": "csp",
    "hrnet": "hrnet", "resnetv2": "resnet v2", "res2net": "res2net", "se": "se-resnet", "eca": "se-resnet", "resnetrs": "se-resnet",
    "(ig_|gluon_)?resnext": "resnext", "(gluon_|ssl_|tv_|wide_)?resnet": "resnet", "regnetx": "regnet x", "regnety": "regnet y", "dpn": "dpn",
    "(ese_)?vovnet": "vovnet", "selecsls": "selecsls", "mobilenetv2": "mobilenet v2", "(tf_)?mobilenetv3": "mobilenet v3", "mnas": "mnasnet",
    "fbnet": "mnasnet", "spnas": "mnasnet", "efficientnet_lite": "efficientnet lite", "(tf_)?efficientnet_e": "efficientnet edge",
    "(tf_)?efficientnetv2": "efficientnet v2", "(tf_)?efficientnet": "efficientnet", "tinynet": "tinynet", "(tf_)?mixnet": "mixnet",
    "vit": "vit", "deit3": "deit iii", "deit": "vit", "beit": "beit", "swin": "swin", "mixer|resmlp|gmlp": "mlp", "convmixer": "convmixer",
    "poolformer": "poolformer", "convnext": "convnext", "cait": "cait",
}  # fmt: skip
"""How a network's name begins, and its family, the first that fits; "semnasnet" is named before "se"."""


def family(name: str) -> str:
    if name.startswith("semnas"):
        return "mnasnet"
    return next(word for pattern, word in FAMILIES.items() if re.match(pattern, name))


class Cast(torch.nn.Module):
    """A network whose forward pass runs under autocast."""

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", torch.float16):
            return self.network(images)


def loss(output: torch.Tensor, _: Any) -> torch.Tensor:
    with torch.autocast("cuda", torch.float16):
        return F.cross_entropy(output, torch.zeros(len(output), dtype=torch.int64, device=output.device))


def update(parameters: list[torch.Tensor]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True, foreach=False)


def ops(make: Callable[[], torch.nn.Module], batch: int, side: int) -> pd.DataFrame:
    """The ops of one step; equal ones are one row."""
    with torch.device("meta"):
        network = Cast(make())
    step = Workload(network, lambda batch: torch.zeros(batch, 3, side, side), loss, update, batch)
    found = profile(step, name="step").ops
    kept = [name for name in column_names("OPS") if name not in ("module", "code_line", "count")]
    sized = resize_ops(found, {"batch": batch}, "step")
    return sized.groupby([name for name in kept if name in sized], dropna=False, sort=False)["count"].sum().reset_index()


def networks() -> Iterator[tuple[str, Callable[[], torch.nn.Module]]]:
    sys.path.insert(0, str(SOURCES))
    for name in MODULES:
        yield from importlib.import_module(name).MODELS.items()


def parameters(make: Callable[[], torch.nn.Module]) -> float:
    with torch.device("meta"):
        return sum(one.numel() for one in make().parameters())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("shared", type=Path)
    parser.add_argument("--keep", action="store_true")
    given = parser.parse_args()
    measured = pd.read_csv(given.shared / "data" / MEASURED, index_col="model")
    done = pd.read_csv(TARGET / "ops.csv.gz", low_memory=False) if given.keep else pd.DataFrame({"model": []})
    rows, found = [], []
    for name, make in networks():
        row = measured.loc[name]
        count = parameters(make)
        if abs(count / 1e6 - row["param_count"]) > 0.006:
            print(f"{name}: {count / 1e6:.3f} million parameters, measured was one of {row['param_count']}")
            continue
        batch, side = int(row["train_batch_size"]), int(row["train_img_size"])
        kept = done[done["model"] == name]
        found.append(kept if len(kept) else ops(make, batch, side).assign(model=name))
        step_s = round(row["train_step_time"] / 1e3, 9)
        rows.append({"model": name, "family": family(name), "batch": batch, "side": side, "parameters": count, "step_s": step_s})
        print(name, len(found[-1]), flush=True)
    TARGET.mkdir(exist_ok=True)
    every = pd.concat(found, ignore_index=True)
    every = every[["model", *(name for name in every if name != "model")]].dropna(axis=1, how="all")
    every = every.drop(columns=[name for name in every if (every[name] == "").all()])
    (TARGET / "ops.csv.gz").write_bytes(packed(every.to_csv(index=False, float_format="%.17g", lineterminator="\n")))
    pd.DataFrame(rows).to_csv(TARGET / "steps.csv", index=False, lineterminator="\n")


if __name__ == "__main__":
    main()
