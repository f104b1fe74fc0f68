"""Another precision: which rows change, what they then move, what the optimizer's copies cost, what is refused."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

import fomkit
from fomkit.core.errors import FomkitError
from fomkit.core.machine import Device, Fact, Machine, Peak
from fomkit.files.op_csv import empty_table
from fomkit.ops.precision import FORMATS, PRECISIONS, _whole_lengths, choose_formats, name_precision, restate_ops

RATE = Fact(1e12, 1e12, 1e12, "published", "made up")


def machine(*dtypes: str) -> Machine:
    peaks = tuple(Peak(dtype, "vector" if dtype == "fp32" else "matrix", RATE) for dtype in dtypes)
    return Machine("made", "made up", "lab", Device(peaks=peaks, byte_per_s=RATE), empty_table("TIMINGS"))


def op(kind: str, pass_name: str = "forward", dtype: str = "fp32", **sizes: object) -> dict[str, object]:
    shared = {"op": kind, "kind": kind, "dtype": dtype, "engine": "vector", "pass_name": pass_name, "count": 1.0}
    return {**shared, "module": "", **sizes}


def step() -> pd.DataFrame:
    """One layer of 10 × 20 weights at batch 4 with a norm, a softmax and an Adam update of 210 parameters."""
    moved = {"numel": 80.0, "read_byte": 320.0, "write_byte": 320.0}
    return pd.DataFrame(
        [
            op("gemm", b=1.0, m=4.0, n=20.0, k=10.0),
            op("gemm", "backward_weight", b=1.0, m=10.0, n=20.0, k=4.0),
            op("norm", row=20.0, **moved),
            op("softmax", row=20.0, **moved),
            op("copy", dtype="int64", **moved),
            op("optimizer", "update", rule="adam", impl="foreach", numel=210.0, tensors=2.0),
            op("gemm", dtype="fp64", b=1.0, m=4.0, n=20.0, k=10.0),
        ]
    )


def by_op(ops: pd.DataFrame, name: str) -> dict[str, object]:
    return next(iter(ops[ops["op"] == name].to_dict("records")))


@pytest.mark.parametrize(
    ("precision", "gemm", "norm", "norm_byte"),
    [
        ("fp32", ("fp32", "vector"), "fp32", 320.0),
        ("tf32", ("tf32", "matrix"), "fp32", 320.0),
        ("mixed", ("fp16", "matrix"), "fp16", 160.0),
        ("bf16", ("bf16", "matrix"), "bf16", 160.0),
        ("fp8", ("fp8", "matrix"), "bf16", 160.0),
    ],
)
def test_products_and_activations_take_the_format(precision, gemm, norm, norm_byte) -> None:
    ops = restate_ops(step(), FORMATS[precision])
    products = ops[(ops["kind"] == "gemm") & (ops["dtype"] != "fp64")]
    assert {tuple(pair) for pair in products[["dtype", "engine"]].values} == {gemm}
    assert len(products) == 2
    assert by_op(ops, "norm")["dtype"] == norm
    assert by_op(ops, "norm")["read_byte"] == by_op(ops, "norm")["write_byte"] == norm_byte
    assert by_op(ops, "softmax")["dtype"] == "fp32"
    assert by_op(ops, "softmax")["read_byte"] == 320.0


@pytest.mark.parametrize("precision", PRECISIONS)
def test_what_was_chosen_on_purpose_stays(precision) -> None:
    ops = restate_ops(step(), FORMATS[precision])
    assert len(ops[ops["dtype"] == "fp64"]) == 1
    assert by_op(ops, "copy")["dtype"] == "int64"
    assert by_op(ops, "copy")["read_byte"] == 320.0
    assert by_op(ops, "optimizer")["dtype"] == "fp32"


def test_mixed_casts_weights_and_gradients_and_unscales() -> None:
    ops = restate_ops(step(), FORMATS["mixed"])
    moved = {
        name: (row["read_byte"] * row["count"], row["write_byte"] * row["count"], row["pass_name"])
        for name in ("weight cast", "gradient cast", "gradient unscale")
        for row in [by_op(ops, name)]
    }
    # 210 parameters: 4 byte down to 2, the gradients back up, then read and written once in fp32.
    assert moved == {
        "weight cast": (840.0, 420.0, "forward"),
        "gradient cast": (420.0, 840.0, "backward"),
        "gradient unscale": (840.0, 840.0, "update"),
    }


def test_cast_tensors_have_whole_lengths_that_add_up_to_the_parameters() -> None:
    before = step()
    uneven = before.assign(numel=before["numel"].mask(before["kind"] == "optimizer", 3_008_871.0))
    tensors = float(by_op(uneven, "optimizer")["tensors"])
    assert 3_008_871 % tensors
    assert _whole_lengths(3_008_871.0, 1.0) == _whole_lengths(3_008_871.0, 0.4) == [(3_008_871, 1)]
    ops = restate_ops(uneven, FORMATS["mixed"])
    for name, read in (("weight cast", 4), ("gradient cast", 2)):
        rows = ops[ops["op"] == name]
        assert (rows["numel"] % 1 == 0).all()
        assert (rows["numel"] * rows["count"]).sum() == 3_008_871
        assert rows["count"].sum() == tensors
        assert (rows["read_byte"] == read * rows["numel"]).all()


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", ["alexnet", "gpt2", "resnet50", "vgg16", "p1b3-lecture"])
def test_no_op_has_a_fraction_of_an_element_or_byte(name, precision) -> None:
    from fomkit.ops.resize import resize_ops
    from fomkit.profiles.models import load_model

    model = load_model(name)
    ops = restate_ops(resize_ops(model.ops, model.sizes, name), FORMATS[precision])
    columns = [name for name in ("numel", "row", "tensors", "read_byte", "write_byte") if name in ops]
    assert ((ops[columns] % 1 == 0) | ops[columns].isna()).all(axis=None)


@pytest.mark.parametrize(
    ("dtype", "kind", "known", "shown"),
    [
        ("bf16", "gemm", ("fp32", "tf32", "bf16"), "bf16"),  # a model traced in bf16, where tf32 is the default
        ("fp32", "gemm", ("fp32", "tf32"), "fp32"),  # PyTorch's products stay in fp32
        ("fp32", "conv", ("fp32", "tf32"), "fp32/tf32"),
        ("fp32", "conv", ("fp32",), "fp32"),
        ("fp64", "gemm", ("fp32", "tf32"), "fp64"),
    ],
)
def test_unasked_the_precision_is_what_the_products_are_priced_in(dtype, kind, known, shown) -> None:
    traced = pd.DataFrame([op(kind, dtype=dtype), op("gemm", dtype=dtype), op("softmax")])
    formats = choose_formats(None, "torch", machine(*known), traced)
    costed = restate_ops(traced, formats).assign(flop=[8.0, 2.0, 90.0])
    assert name_precision(formats, costed) == shown
    assert ("tf32" in formats.message) == ("tf32" in shown)


def test_an_estimate_of_a_model_in_bf16_says_bf16() -> None:
    model = fomkit.model("gpt2")
    low = replace(model, ops=model.ops.assign(dtype=model.ops["dtype"].replace("fp32", "bf16")))
    assert fomkit.estimate(low, "h200-sxm", allow_uncovered=True).precision == "bf16"
    assert fomkit.estimate(low, "h200-sxm", precision="bf16", allow_uncovered=True).precision == "bf16"


def test_bf16_casts_and_needs_no_scale() -> None:
    ops = restate_ops(step(), FORMATS["bf16"])
    assert {"weight cast", "gradient cast"} <= set(ops["op"])
    assert "gradient unscale" not in set(ops["op"])


def test_a_step_traced_in_bf16_comes_back_to_fp32() -> None:
    low = step().assign(dtype=lambda ops: ops["dtype"].replace("fp32", "bf16"))
    ops = restate_ops(low, FORMATS["fp32"])
    assert set(ops["dtype"]) == {"fp32", "fp64", "int64"}
    assert by_op(ops, "softmax")["read_byte"] == 640.0


@pytest.mark.parametrize("precision", PRECISIONS)
def test_restating_twice_changes_no_row_again(precision) -> None:
    once = restate_ops(step(), FORMATS[precision])
    again = restate_ops(once, replace(FORMATS[precision], casts_weights=False))
    assert again.equals(once)


def test_the_input_stays_as_it_is() -> None:
    ops = step()
    before = ops.copy(deep=True)
    restate_ops(ops, FORMATS["fp8"])
    assert ops.equals(before)


@pytest.mark.parametrize(
    ("framework", "dtypes", "conv", "gemm"),
    [
        ("torch", ("fp32", "tf32"), "tf32", "fp32"),
        ("tensorflow", ("fp32", "tf32"), "tf32", "tf32"),
        ("torch", ("fp32",), "fp32", "fp32"),
        ("paper", ("fp32", "tf32"), "fp32", "fp32"),
    ],
)
def test_unasked_a_framework_keeps_its_habit(framework, dtypes, conv, gemm) -> None:
    formats = choose_formats(None, framework, machine(*dtypes))
    ops = restate_ops(pd.DataFrame([op("conv"), op("gemm")]), formats)
    assert ops["dtype"].tolist() == [conv, gemm]
    assert formats.message


def test_arithmetic_that_the_machine_lacks_is_refused_by_name() -> None:
    with pytest.raises(
        FomkitError, match=r"made: --precision fp8 needs arithmetic in bf16 and fp8, .* It has fp16, fp32\. Choose"
    ):
        choose_formats("fp8", "torch", machine("fp32", "fp16"))
    with pytest.raises(FomkitError, match="'fp31' is not one"):
        choose_formats("fp31", "torch", machine("fp32"))


def test_mixed_is_faster_and_says_so_on_the_v100() -> None:
    plain, mixed = (fomkit.estimate("resnet50", "v100", precision=precision) for precision in (None, "mixed"))
    assert mixed.step.high < plain.step.low
    assert (plain.precision, mixed.precision) == ("fp32", "mixed")
    assert "precision mixed: products in fp16" in mixed.summary()
    assert "torch's default there" in plain.summary()
