"""Make the tables of ``validation/vision``: ``python benchmarks/vision_steps.py SHARED``.

The tables hold training steps of image networks on an RTX 3090, measured and published with PyTorch Image Models
(commit aa4b5850, Apache-2.0), and the ops of the same networks, traced from our own sources in
``model_profiles/src/vision``. A source is used only if it has as many parameters as the published network. Steps
were measured, according to the program, with autocast to fp16 around forward pass and loss, random images of one
batch, and SGD with Nesterov momentum, one tensor at a time as is PyTorch 1.12's default.

``--keep`` keeps the networks that are in the tables already.
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
from validation_tables import VALIDATION, packed

from fomkit.core.model import Workload
from fomkit.ops.resize import resize_ops
from fomkit.ops.tables import column_names
from fomkit.verbs.profiling import profile

SOURCES = Path(__file__).parent.parent / "model_profiles" / "src" / "vision"
MODULES = ("residual", "plain", "mobile", "tokens")
TARGET = VALIDATION / "vision"
MEASURED, MACHINE = "steps/timm_train_rtx3090_half.csv", "rtx-3090"
SEEN = """
beit_base_patch16_224 beit_large_patch16_224 beit_large_patch16_512 convnext_base_384_in22ft1k convnext_large
convnext_large_384_in22ft1k convnext_nano convnext_small convnext_tiny_384_in22ft1k convnext_tiny_hnf
convnext_xlarge_384_in22ft1k cspdarknet53 deit3_base_patch16_384_in21ft1k deit3_huge_patch14_224
deit3_large_patch16_224_in21ft1k deit3_small_patch16_224 deit_base_patch16_224
deit_small_distilled_patch16_224 deit_small_patch16_224 densenet169 densenet201 densenet264 efficientnet_b1
efficientnet_b2a efficientnet_b4 efficientnet_b6 efficientnet_b7 fbnetc_100 gluon_resnet101_v1s
gluon_resnet18_v1b gluon_resnet50_v1c gluon_resnet50_v1d gluon_resnext50_32x4d hrnet_w32 hrnet_w44 hrnet_w48
hrnet_w64 ig_resnext101_32x16d mixer_b16_224 mixer_s16_224 mixer_s32_224 mnasnet_050 mnasnet_075
mobilenetv2_050 mobilenetv2_140 mobilenetv3_large_075 mobilenetv3_large_100 mobilenetv3_small_050
mobilenetv3_small_075 mobilenetv3_small_100 repvgg_a2 repvgg_b1g4 repvgg_b2 repvgg_b3g4 resmlp_24_224
resnet101d resnet14t resnet152 resnet152d resnet200 resnet200d resnet26 resnet26t resnet34 resnet50_gn
resnet50t resnext101_32x4d resnext101_32x8d resnext50d_32x4d semnasnet_075 spnasnet_100 ssl_resnet50
swin_base_patch4_window12_384 swin_base_patch4_window7_224 swin_tiny_patch4_window7_224 tf_efficientnet_b0
tf_efficientnet_b1_ap tf_efficientnet_b3_ap tf_efficientnet_b5 tf_inception_v3 tf_mobilenetv3_large_100
tf_mobilenetv3_large_minimal_100 tv_resnet101 vgg11 vgg13 vgg13_bn vgg16 vgg16_bn vgg19 vgg19_bn
vit_base_patch32_224_sam vit_base_patch32_384 vit_base_patch8_224 vit_giant_patch14_224 vit_large_patch32_224
vit_small_patch32_384 vit_tiny_patch16_384 wide_resnet50_2 xception
"""
"""Networks by which the rules of `fomkit.prediction.prior` and their figures were chosen."""
FAMILIES = """
vgg=vgg repvgg=repvgg densenet=densenet (tf_)?inception=inception xception=xception cspdark=csp hrnet=hrnet
resnetv2=resnet_v2 res2net=res2net se=se-resnet eca=se-resnet resnetrs=se-resnet (ig_|gluon_)?resnext=resnext
(gluon_|ssl_|tv_|wide_)?resnet=resnet regnetx=regnet_x regnety=regnet_y dpn=dpn (ese_)?vovnet=vovnet
selecsls=selecsls mobilenetv2=mobilenet_v2 (tf_)?mobilenetv3=mobilenet_v3 mnas=mnasnet fbnet=mnasnet
spnas=mnasnet efficientnet_lite=efficientnet_lite (tf_)?efficientnet_e=efficientnet_edge
(tf_)?efficientnetv2=efficientnet_v2 (tf_)?efficientnet=efficientnet tinynet=tinynet (tf_)?mixnet=mixnet
vit=vit deit3=deit_iii deit=vit beit=beit swin=swin mixer|resmlp|gmlp=mlp convmixer=convmixer
poolformer=poolformer convnext=convnext cait=cait
"""
"""Prefix of a network's name and its family; the first match counts; "semnasnet" is matched before "se"."""


def family(name: str) -> str:
    if name.startswith("semnas"):
        return "mnasnet"
    pairs = (one.split("=") for one in FAMILIES.split())
    return next(word.replace("_", " ") for pattern, word in pairs if re.match(pattern, name))


class Cast(torch.nn.Module):
    """A network whose forward pass runs under autocast."""

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", torch.float16):
            found: torch.Tensor = self.network(images)
            return found


def loss(output: torch.Tensor, _: Any) -> torch.Tensor:
    with torch.autocast("cuda", torch.float16):
        return torch.nn.functional.cross_entropy(
            output, torch.zeros(len(output), dtype=torch.int64, device=output.device)
        )


def update(parameters: list[torch.Tensor]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True, foreach=False)


UNREAD = ("module", "code_line", "traced_time_s", "traced_occupancy", "count")


def joined(found: pd.DataFrame, batch: int) -> pd.DataFrame:
    """Return the ops of a step at a batch, equal ops as one row."""
    sized = resize_ops(found, {"batch": batch}, "step")
    alike = [name for name in column_names("OPS") if name in sized and name not in UNREAD]
    return sized.groupby(alike, dropna=False, sort=False)["count"].sum().reset_index()


def ops(make: Callable[[], torch.nn.Module], batch: int, side: int) -> pd.DataFrame:
    """Trace a network and return the ops of one step."""
    with torch.device("meta"):
        network = Cast(make())
    step = Workload(network, lambda batch: torch.zeros(batch, 3, side, side), loss, update, batch)
    return joined(profile(step, name="step").ops, batch)


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
        batch, side = (int(float(str(row[f"train_{size}"]))) for size in ("batch_size", "img_size"))
        kept = done[done["model"] == name]
        found.append(kept if len(kept) else ops(make, batch, side).assign(model=name))
        rows.append({
            "model": name, "family": family(name), "seen": int(name in SEEN.split()), "machine": MACHINE,
            "batch": batch, "side": side, "parameters": count, "step_s": round(row["train_step_time"] / 1e3, 9),
        })  # fmt: skip
        print(name, len(found[-1]), flush=True)
    every = pd.concat(found, ignore_index=True)
    write(every, pd.DataFrame(rows))


def write(every: pd.DataFrame, rows: pd.DataFrame) -> None:
    """Write both tables; the ops without columns that are empty everywhere."""
    TARGET.mkdir(exist_ok=True)
    every = every[["model", *(name for name in every if name != "model")]].dropna(axis=1, how="all")
    every = every.drop(columns=[name for name in every if (every[name] == "").all()])
    (TARGET / "ops.csv.gz").write_bytes(
        packed(every.to_csv(index=False, float_format="%.17g", lineterminator="\n"))
    )
    rows.to_csv(TARGET / "steps.csv", index=False, lineterminator="\n")


if __name__ == "__main__":
    main()
