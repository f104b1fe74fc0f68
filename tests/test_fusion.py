"""Number of kernels of a step: savings of each fusion rule, chains of a recorded step, refusals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pandas as pd
import pytest

import fomkit
from fomkit.core.errors import FomkitError
from fomkit.core.model import ModelProfile
from fomkit.frontends.config import profile_config
from fomkit.ops.fusion import EAGER, ONE_KERNEL, Fusion, Part, join_chains
from fomkit.ops.pricing import add_costs
from fomkit.ops.resize import resize_ops
from fomkit.ops.tables import table_of_rows
from fomkit.verbs import profiling

FUSIONS: tuple[Fusion, ...] = get_args(Fusion)
SHORT = 2


def moved_byte(parts: tuple[Part, ...]) -> float:
    """Return the bytes that kernels read and write for each element of a stream in bf16."""
    return sum(
        (SHORT * (part.reads[0] + part.writes[0]) + 4 * (part.reads[1] + part.writes[1])) / part.share
        for part in parts
    )


def one_kernel(rule: str, gradient: int) -> float:
    return moved_byte(ONE_KERNEL[rule][gradient])


def test_each_rule_counts_what_is_read_and_written_before_and_after() -> None:
    # A root-mean-square norm in bf16: cast up 2 + 4, squared 4 + 4, summed 4, scaled 4 + 4, cast down 4 + 2,
    # weighted 2 + 2; turning: three ops of one tensor, one of half of it, and a sum of two.
    by_op = {rule: [moved_byte(parts) for parts in passes] for rule, passes in EAGER.items()}
    assert by_op["norm"] == [6 + 8 + 4 + 8 + 6 + 4, 68]
    assert by_op["positions"] == [3 * 4 + 2 + 6] * 2
    assert by_op["gated"] == [4 + 6, 3 * 6]
    assert [one_kernel(rule, 0) for rule in by_op] == [4, 4, 6]
    assert all(one_kernel(rule, at) < by_op[rule][at] for rule in by_op for at in (0, 1))
    apart = sum(one_kernel(rule, at) for rule in ("norm", "added") for at in (0, 1))
    assert (apart, sum(one_kernel("added and normalised", at) for at in (0, 1))) == (22, 16)


def costed(root: Path, config: str, fusion: Fusion, **asked: Any) -> pd.DataFrame:
    model = profile_config(root / "model_profiles" / "today" / f"{config}.config.json", fusion=fusion, **asked)
    return add_costs(resize_ops(model.ops, model.sizes, model.name))


@pytest.mark.parametrize(
    ("config", "asked"),
    [
        ("llama3-8b", {"mode": "train", "sizes": {"seq": 512}}),
        ("llama3-8b", {"mode": "decode", "batch": 4}),
        ("vit-b16", {"mode": "train"}),
        ("deepseek-v3", {"mode": "infer", "sizes": {"seq": 512}}),
    ],
)
def test_flop_of_products_are_the_same_and_traffic_falls(root: Path, config: str, asked: dict[str, Any]) -> None:
    steps = {fusion: costed(root, config, fusion, **asked) for fusion in FUSIONS}
    products = ("gemm", "attention", "experts", "conv")
    flop = {
        fusion: (ops["flop"] * ops["count"])[ops["kind"].isin(products)].sum() for fusion, ops in steps.items()
    }
    assert len(set(flop.values())) == 1
    rest = {
        fusion: (ops["byte"] * ops["count"])[~ops["kind"].isin((*products, "optimizer"))].sum()
        for fusion, ops in steps.items()
    }
    assert rest["compiled"] < rest["vendor"] <= rest["eager"]
    assert set(steps["vendor"]["op"]).isdisjoint({"attention: scores", "attention added and normalised"})


def test_a_compiler_joins_both_sums_of_a_block_with_the_norm_after_each(root: Path) -> None:
    ops = costed(root, "llama3-8b", "compiled", mode="infer", sizes={"seq": 512})
    joined = ops[ops["op"].str.endswith("added and normalised")]
    assert joined["count"].tolist() == [32.0, 32.0]
    assert joined["byte"].tolist() == [512 * 4096 * SHORT * 4] * 2  # the stream and what is added; both written
    assert ops[ops["kind"] == "norm"]["count"].sum() == 65  # as many as in the model: the last one stands alone


def traced(*rows: tuple[str, str, str, str, float]) -> ModelProfile:
    """Make a recorded step of ops (op, kind, bytes out, role, freed by); each reads the previous output."""
    ops = [
        {"op": op, "kind": kind, "dtype": "fp32", "engine": "vector", "pass_name": "forward", "count": 1,
         "numel": "9*batch", "row": 9, "read_byte": "36*batch", "write_byte": "36*batch", "module": ""}
        for op, kind, *_ in rows
    ]  # fmt: skip
    order = [
        {"id": at + 1, "row": at, "role": role, "output_byte": byte, "freed_by": freed}
        for at, (_, _, byte, role, freed) in enumerate(rows)
    ]
    table = table_of_rows(ops, "OPS")
    parts = table_of_rows([{**ops[-1], "of": len(rows) - 1}], "OPS", ("of",))
    return ModelProfile("made", "made up", table, parts, {"batch": 2}, {}, order=table_of_rows(order, "ORDER"))


def test_what_the_next_op_frees_is_neither_written_nor_read() -> None:
    out = "36*batch"
    step = traced(
        ("a", "pointwise", out, "temporary", 2), ("b", "pointwise", out, "temporary", 3),
        ("c", "norm", out, "activation", 6), ("d", "pointwise", out, "temporary", 6),
        ("e", "pointwise", out, "temporary", 6), ("f", "gemm", out, "temporary", 7),
    )  # fmt: skip
    found = join_chains(step)
    # c's result is kept, d's is freed two ops on, and a product begins no chain.
    assert found.ops["op"].tolist() == ["d", "e", "f", "a + b + c"]
    sized = resize_ops(found.ops, {"batch": 2}, "made").iloc[-1]
    assert (sized["kind"], sized["read_byte"], sized["write_byte"]) == ("norm", 72, 72)
    assert found.parts["of"].tolist() == [2]
    assert "1 chains" in found.notes[-1]
    assert found.order is None


def test_a_trace_joined_is_faster_by_its_chains_alone() -> None:
    model = fomkit.model("resnet50")
    before, after = (fomkit.estimate(one, "h100-sxm", precision="bf16") for one in (model, join_chains(model)))
    assert 0.9 < after.step.value / before.step.value < 1
    kept = {"conv", "gemm", "optimizer", "pool"}
    times = [(one.ops["time_s"] * one.ops["count"])[one.ops["kind"].isin(kept)].sum() for one in (before, after)]
    assert times[0] == pytest.approx(times[1], rel=1e-12)


def test_a_fusion_is_chosen_where_the_ops_allow_it() -> None:
    steps = [
        fomkit.estimate("llama3-8b", "h100-sxm", mode="decode", fusion=one).step.value for one in FUSIONS[::-1]
    ]
    assert steps[1] < steps[0] < steps[2]
    assert fomkit.estimate("gpt2", "h100-sxm", fusion="eager").step == fomkit.estimate("gpt2", "h100-sxm").step
    for name, fusion, message in (
        ("gpt2", "vendor", "gpt2: was traced as it runs"),
        ("p1b3-lecture", "compiled", "p1b3-lecture: has no order of its ops"),
    ):
        with pytest.raises(FomkitError, match=message):
            fomkit.estimate(name, "h100-sxm", fusion=fusion)
    with pytest.raises(FomkitError, match=r"fusion eager is for a config\.json"):
        fomkit.profile("model_profiles/src/vgg16.py", fusion="eager")
    assert get_args(profiling.Fusion) == FUSIONS
    prompt = replace(fomkit.model("llama3-8b-decode"), name="in memory")
    with pytest.raises(FomkitError, match=r"in memory: has no config\.json"):
        fomkit.estimate(prompt, "h100-sxm", fusion="eager")
