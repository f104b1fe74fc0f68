"""Shipped model profiles: made from their sources, and equal to independently computed numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from fomkit.core.model import ModelProfile
from fomkit.files.op_csv import format_table
from fomkit.ops.pricing import add_costs
from fomkit.ops.resize import resize_ops
from fomkit.profiles.models import load_model

PARAMETERS = {
    "p1b3": 30_088_701,
    "alexnet": 60_965_224,
    "vgg16": 138_357_544,
    "googlenet": 6_998_552,
    "resnet50-caffe": 25_557_032,
    "resnet50": 25_557_032,
    "gpt2": 124_439_808,
}
CANDLE = ("p1b1", "p1b2", "tc1", "nt3", "uno", "combo", "p2b1", "p3b1", "p3b2", "p3b3")
FORWARD_MAC = {
    "alexnet": 724_406_816,
    "vgg16": 15_470_264_320,
    "googlenet": 1_582_671_872,
    "resnet50-caffe": 3_857_973_248,
}
PRODUCTS = ("gemm", "conv", "rnn")


def costed(model: ModelProfile, batch: int | None = None) -> pd.DataFrame:
    sizes = {**model.sizes, "batch": batch or model.sizes["batch"]}
    return add_costs(resize_ops(model.ops, sizes, model.name))


def product_flop(ops: pd.DataFrame, pass_names: list[str] | None = None) -> float:
    rows = ops["kind"].isin(PRODUCTS)
    if pass_names:
        rows &= ops["pass_name"].isin(pass_names)
    return float((ops["flop"] * ops["count"])[rows].sum())


@pytest.fixture(scope="module")
def expected(root: Path) -> dict[str, Any]:
    return yaml.safe_load((root / "tests" / "data" / "expected_flop.yaml").read_text())


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_are_the_known_ones(name: str) -> None:
    model = load_model(name)
    assert model.parameters_total == model.parameters_trainable == PARAMETERS[name]
    assert model.unsupported == ()


@pytest.mark.parametrize("name", FORWARD_MAC)
def test_forward_multiply_adds_are_the_lectures(name: str) -> None:
    assert product_flop(costed(load_model(name), 1), ["forward"]) == 2 * FORWARD_MAC[name]


@pytest.mark.parametrize("name", PARAMETERS)
def test_step_flop_by_pass_as_worked_out_from_the_layers(name: str, expected: dict[str, Any]) -> None:
    ops, truth = costed(load_model(name)), expected[name.replace("-", "_")]
    for pass_name in ("forward", "backward_input", "backward_weight"):
        assert product_flop(ops, [pass_name]) == pytest.approx(truth[pass_name], rel=1e-12), pass_name


@pytest.mark.parametrize("name", ["lstm_tagger", "depthwise_cnn"])
def test_other_models_match_work_counted_by_hand(name: str, root: Path, expected: dict[str, Any]) -> None:
    pytest.importorskip("torch", reason="needs the extra [torch]")
    from fomkit.frontends.profile import profile_file

    ops, truth = costed(profile_file(root / "tests" / "data" / f"{name}.py")), expected[name]
    for pass_name in ("forward", "backward_input", "backward_weight"):
        assert product_flop(ops, [pass_name]) == pytest.approx(truth[pass_name], rel=1e-3), pass_name


def test_p1b3_is_the_lectures_step() -> None:
    ops = costed(load_model("p1b3"))
    products = ops[ops["kind"] == "gemm"]
    assert product_flop(ops) == 12_145_830_000
    assert product_flop(ops, ["forward"]) == 6_017_410_000
    assert products.groupby("pass_name")["count"].sum().to_dict() == {
        "forward": 5, "backward_input": 4, "backward_weight": 5,
    }  # fmt: skip
    # torch writes the weight gradient transposed to TensorFlow's: (n, m, k) for (m, n, k).
    lecture = load_model("p1b3-lecture").ops
    sizes = ["m", "n", "k", "pass_name"]
    ours = sorted(
        (n, m, k) if name == "backward_weight" else (m, n, k) for m, n, k, name in products[sizes].to_numpy()
    )
    assert ours == sorted(map(tuple, lecture.loc[lecture["kind"] == "gemm", ["m", "n", "k"]].to_numpy()))


def test_vgg16_training_over_forward() -> None:
    ops = costed(load_model("vgg16"))
    assert product_flop(ops) / product_flop(ops, ["forward"]) == pytest.approx(2.9944, abs=5e-5)


def test_gpt2_attention_is_one_row_with_parts_of_the_same_work() -> None:
    model = load_model("gpt2")
    ops = costed(model)
    attention = ops[ops["kind"] == "attention"]
    assert attention.groupby("pass_name")["count"].sum().to_dict() == {"forward": 12, "backward": 12}
    parts = add_costs(resize_ops(model.parts.drop(columns="of"), model.sizes, "gpt2")).assign(of=model.parts["of"])
    products = parts[parts["kind"] == "gemm"]
    work = (products["flop"] * products["count"]).groupby(products["of"]).sum()
    for row, flop in work.items():
        assert flop == pytest.approx(ops["flop"].iloc[int(row)], rel=1e-12)
    assert set(work.index) == set(range(len(ops))) & set(ops.reset_index().index[ops["kind"] == "attention"])


@pytest.mark.parametrize("name", [*PARAMETERS, *CANDLE])
def test_profiles_are_what_their_sources_give(name: str, root: Path) -> None:
    pytest.importorskip("torch", reason="needs the extra [torch]")
    from fomkit.frontends.profile import profile_file

    source = next((root / "model_profiles" / "src").rglob(f"{name.replace('-', '_')}.py"))
    fresh, shipped = profile_file(source, name=name), load_model(name)
    assert format_table(fresh.ops, "OPS") == format_table(shipped.ops, "OPS")
    assert format_table(fresh.parts, "OPS", ("of",)) == format_table(shipped.parts, "OPS", ("of",))
    assert format_table(fresh.layers, "LAYERS") == format_table(shipped.layers, "LAYERS")
    assert format_table(fresh.order, "ORDER") == format_table(shipped.order, "ORDER")
    assert shipped.layers["parameters"].sum() == shipped.parameters_total
    said = ("data", "run", "unit", "sizes", "parameters_total", "unsupported", "missing")
    assert [getattr(fresh, name) for name in said] == [getattr(shipped, name) for name in said]
