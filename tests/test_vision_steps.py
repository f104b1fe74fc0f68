"""Training steps of image networks on a board known by facts: the shipped tables."""

from __future__ import annotations

import pandas as pd

from fomkit.profiles.locate import shipped_folder
from fomkit.validation.published_steps import parts_of

FOLDER = shipped_folder("validation") / "vision"


def test_every_measured_step_has_its_ops_and_no_network_counts_twice() -> None:
    steps = pd.read_csv(FOLDER / "steps.csv")
    ops = pd.read_csv(FOLDER / "ops.csv.gz", low_memory=False)
    assert len(steps) >= 60
    assert set(ops["model"]) == set(steps["model"])
    # The same network at another size or padding is another step; the same step by two names is one.
    assert not steps.duplicated(["family", "parameters", "batch", "side", "step_s"]).any()
    assert ops.loc[ops["model"] == "vgg16", "kind"].isin(["conv", "optimizer"]).any()
    updates = ops[ops["kind"] == "optimizer"].groupby("model")["numel"].sum()
    assert updates.to_dict() == steps.set_index("model")["parameters"].to_dict()


def test_parts_of_a_step_are_told_by_kind_and_groups() -> None:
    ops = pd.DataFrame(
        {"kind": ["gemm", "conv", "conv", "copy"], "groups": [float("nan"), 1.0, 32.0, float("nan")]}
    )
    assert parts_of(ops).tolist() == ["products", "convolutions", "grouped convolutions", "traffic"]
