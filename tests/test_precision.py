"""Another precision: changed rows, their traffic, the cost of the optimizer's copies, refusals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

import fomkit
from fomkit.core.errors import FomkitError
from fomkit.core.machine import Device, Fact, Machine, Peak
from fomkit.frontends.config import profile_config
from fomkit.ops.precision import (
    FORMATS,
    PRECISIONS,
    choose_formats,
    linear_layers,
    name_precision,
    narrows,
    restate_ops,
    restate_rows,
    stored_byte,
)
from fomkit.ops.tables import empty_table
from fomkit.plan.estimate import estimate
from fomkit.plan.options import Options, change_machine
from fomkit.profiles.facts import with_blocks

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


@pytest.fixture(scope="module")
def llama_prompt(root: Path) -> fomkit.ModelProfile:
    path = root / "model_profiles" / "today" / "llama3-8b.config.json"
    return profile_config(path, mode="infer", batch=1, sizes={"seq": 8192})


def by_op(ops: pd.DataFrame, name: str) -> dict[str, object]:
    return next(iter(ops[ops["op"] == name].to_dict("records")))


@pytest.mark.parametrize(
    ("precision", "gemm", "norm", "norm_byte"),
    [
        ("fp32", ("fp32", "vector"), "fp32", 320.0),
        ("tf32", ("tf32", "matrix"), "fp32", 320.0),
        ("mixed", ("fp16", "matrix"), "fp16", 160.0),
        ("bf16", ("bf16", "matrix"), "bf16", 160.0),
        ("fp8", ("bf16", "matrix"), "bf16", 160.0),  # 10 × 20 weights: no multiples of 16
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


def test_sums_of_gradients_and_the_softmax_inside_an_attention_take_the_format() -> None:
    moved = {"numel": 80.0, "row": 20.0, "read_byte": 320.0, "write_byte": 16.0}
    rows = pd.DataFrame([op("reduction", word, **moved) for word in ("forward", "backward", "backward_input")])
    rows = pd.concat([rows, pd.DataFrame([op("softmax", "backward", **moved)])], ignore_index=True)
    for is_parts, softmax in ((False, "fp32"), (True, "fp16")):
        found = restate_rows(rows, FORMATS["mixed"], is_parts=is_parts)
        assert found["dtype"].tolist() == ["fp32", "fp16", "fp16", softmax]
        assert found["read_byte"].tolist() == [320, 160, 160, 320 if softmax == "fp32" else 160]
        assert restate_rows(rows, FORMATS["tf32"], is_parts=is_parts).equals(rows)


def test_the_parts_of_an_attention_are_restated_as_parts() -> None:
    found = fomkit.estimate("gpt2", "rtx-3090", precision="mixed")
    wide = fomkit.estimate("gpt2", "rtx-3090", precision="tf32")
    attention = [
        one.timed.table.query("kind == 'attention' and pass_name == 'backward'")["time_s"].sum()
        for one in (found, wide)
    ]
    assert attention[0] < 0.6 * attention[1]  # with a softmax in fp32 it takes 0.7 of it


def test_indices_of_pooling_and_masks_of_dropout_keep_their_bytes() -> None:
    """Beside each number PyTorch keeps its place in int64, or in one byte whether it was dropped."""
    beside = {"aten::max_pool2d_with_indices": (0, 8), "aten::max_pool2d_with_indices_backward": (8, 0),
              "aten::native_dropout": (0, 1), "aten::native_dropout_backward": (1, 0),
              "aten::relu": (0, 0)}  # fmt: skip
    rows = [
        {
            **op("pointwise"),
            "op": name,
            "numel": 7.0,
            "read_byte": 7.0 * (4 + read),
            "write_byte": 7.0 * (4 + write),
        }
        for name, (read, write) in beside.items()
    ]
    narrow = restate_ops(pd.DataFrame(rows), FORMATS["bf16"])
    assert (narrow["read_byte"] / 7).tolist() == [2 + read for read, _ in beside.values()]
    assert (narrow["write_byte"] / 7).tolist() == [2 + write for _, write in beside.values()]


def test_masks_that_choose_numbers_keep_their_bytes() -> None:
    """A mask takes a byte per element in every number format."""
    kinds = {"aten::masked_fill": 1, "aten::masked_fill_": 1, "aten::where": 2}
    rows = [
        {**op("pointwise"), "op": name, "numel": 60.0, "read_byte": 60.0 * (4 * read + 1), "write_byte": 240.0}
        for name, read in kinds.items()
    ]
    narrow = restate_ops(pd.DataFrame(rows), FORMATS["bf16"])
    assert narrow["read_byte"].tolist() == pytest.approx([60.0 * (2 * read + 1) for read in kinds.values()])


def test_a_step_and_its_table_agree_on_the_bytes_of_indices() -> None:
    """The step is priced from expressions of its batch, the table from its numbers."""
    one = fomkit.estimate("candle/tc1", "titan", batch=60, precision="fp32")
    half = fomkit.estimate("candle/tc1", "t4", batch=60, precision="mixed")
    for found in (one, half):
        pools = found.ops[found.ops["kind"] == "pool"]
        assert pools["byte"].tolist() == pools.eval("read_byte + write_byte").tolist()
        assert found.step_time.passes["forward"].value == pytest.approx(
            found.ops.query("pass_name == 'forward'").eval("time_s * count").sum(), rel=1e-9
        )


@pytest.mark.parametrize("precision", PRECISIONS)
def test_what_was_chosen_on_purpose_stays(precision) -> None:
    ops = restate_ops(step(), FORMATS[precision])
    assert len(ops[ops["dtype"] == "fp64"]) == 1
    assert by_op(ops, "copy")["dtype"] == "int64"
    assert by_op(ops, "copy")["read_byte"] == 320.0
    assert by_op(ops, "optimizer")["dtype"] == "fp32"


def test_a_format_narrows_a_step_of_which_anything_handed_on_was_wider() -> None:
    """The results of updates are not passed on to later ops."""
    ops = pd.DataFrame([op("gemm", dtype="bf16"), op("norm", dtype="fp32"), op("optimizer", "update")])
    found = [narrows(ops, FORMATS[name]) for name in ("bf16", "fp32")]
    assert [*found, narrows(ops.iloc[[0, 2]], FORMATS["bf16"])] == [True, False, False]


def test_mixed_casts_weights_and_gradients_and_unscales() -> None:
    ops = restate_ops(step(), FORMATS["mixed"])
    moved = {
        name: (row["read_byte"] * row["count"], row["write_byte"] * row["count"], row["pass_name"])
        for name in ("weight cast", "gradient cast", "gradient unscale")
        for row in [by_op(ops, name)]
    }
    # 200 weights: 4 byte down to 2, the gradients back up; then of 210 parameters' read and written once in fp32.
    assert moved == {
        "weight cast": (800.0, 400.0, "forward"),
        "gradient cast": (400.0, 800.0, "backward"),
        "gradient unscale": (840.0, 840.0, "update"),
    }


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


def layers(dtype: str = "bf16", *, trained: bool = True) -> pd.DataFrame:
    """A mixture's block of 4 tokens: two layers, one of an odd width, scores, a router, experts and a head."""

    def gemm(name: str, m: float, n: float, k: float, b: float = 1.0) -> dict[str, object]:
        return {**op("gemm", dtype=dtype, b=b, m=m, n=n, k=k), "op": name, "count": 2.0}

    backward = [
        {**gemm("wide by input", 4.0, 64.0, 96.0), "pass_name": "backward"},
        {**gemm("wide by weight", 96.0, 64.0, 4.0), "pass_name": "backward_weight"},
        {**gemm("head by input", 4.0, 64.0, 320.0), "pass_name": "backward_input"},
    ]
    experts = op("experts", dtype=dtype, b=8.0, m=4.0, n=32.0, k=64.0, experts=32.0, top_k=2.0)
    forward = [
        gemm("wide", 4.0, 96.0, 64.0), gemm("odd", 4.0, 65.0, 64.0), gemm("scores", 4.0, 32.0, 64.0, 12.0),
        gemm("router", 4.0, 32.0, 64.0), experts, gemm("head", 4.0, 320.0, 64.0),
    ]  # fmt: skip
    empty = dict.fromkeys(("numel", "read_byte", "write_byte"), float("nan"))
    return pd.DataFrame([*forward, *(backward if trained else ())]).assign(**empty)


@pytest.mark.parametrize("low", ["fp8", "fp8_block", "mxfp8", "nvfp4", "int8"])
@pytest.mark.parametrize("traced", ["fp32", "bf16"])
def test_linear_layers_alone_take_a_low_format_in_every_pass(low, traced) -> None:
    ops = restate_ops(layers(traced), FORMATS[low])
    named = dict(zip(ops["op"], ops["dtype"], strict=True))
    # 64 divides neither 96 nor the experts' 32.
    narrow = set() if low == "fp8_block" else {"wide", "wide by input", "wide by weight", "experts"}
    assert {name for name in named if named[name] == low} == narrow
    assert {named[name] for name in ("odd", "scores", "router", "head", "head by input")} == {"bf16"}
    assert set(ops["engine"][ops["dtype"] == low]) <= {"matrix"}


@pytest.mark.parametrize(("precision", "dtype"), [("fp32", "fp32"), ("mixed", "fp16"), ("bf16", "bf16")])
def test_experts_have_the_format_of_other_products(precision: str, dtype: str) -> None:
    ops = restate_ops(layers(trained=False), FORMATS[precision])
    assert set(ops["dtype"][ops["kind"].isin(["gemm", "experts"])]) == {dtype}


def test_blocks_of_fp8_need_widths_that_64_divides() -> None:
    """The last of DeepSeek-V3's blocks of 128 is half a block in a layer 576 wide."""
    ops = layers(trained=False)
    ops["n"] = ops["op"].map({"wide": 576.0, "experts": 64.0}).fillna(ops["n"])
    restated = restate_ops(ops, FORMATS["fp8_block"])
    assert set(restated["op"][restated["dtype"] == "fp8_block"]) == {"wide", "experts"}


def test_a_step_without_products_has_no_linear_layers() -> None:
    ops = pd.DataFrame([op("pointwise", numel=8.0), op("norm", numel=8.0)])
    assert linear_layers(ops, ops["kind"].eq("norm"), 16).tolist() == [False, False]


def test_a_trained_step_quantises_its_weights_once_along_rows_and_columns() -> None:
    ops = restate_ops(layers(), FORMATS["nvfp4"])
    rows = ops[ops["op"] == "weight quantised"].set_index("numel")
    # 64 × 96 weights twice, three matrices of 32 × 64 of each of 8 experts: 2 byte read, 9/16 written twice.
    assert rows["count"].to_dict() == {64.0 * 96: 2.0, 3 * 8 * 32.0 * 64: 1.0}
    assert (rows["read_byte"] == 2 * rows.index).all()
    assert (rows["write_byte"] == 2 * 9 / 16 * rows.index).all()
    assert "weight quantised" not in set(restate_ops(layers(trained=False), FORMATS["nvfp4"])["op"])


def test_weights_at_rest_take_the_low_format_where_nothing_is_trained() -> None:
    weights = 2 * 64 * 96 + 3 * 8 * 32 * 64
    assert stored_byte(layers(trained=False), FORMATS["fp8"]) == weights
    assert stored_byte(layers(trained=False), FORMATS["nvfp4"]) == weights * (2 - 9 / 16)
    assert stored_byte(layers(), FORMATS["fp8"]) == stored_byte(layers(trained=False), FORMATS["bf16"]) == 0


def test_a_step_in_short_formats_is_not_widened_and_casts_as_it_was_traced() -> None:
    low = step().assign(dtype=lambda ops: ops["dtype"].replace("fp32", "bf16"))
    low.loc[low["kind"] == "optimizer", "dtype"] = "fp32"
    ops = restate_ops(low, FORMATS["bf16"])
    assert ops["dtype"].tolist() == low["dtype"].tolist()
    assert (ops["read_byte"].dropna() == 320.0).all()


def test_int8_is_of_inference_and_keeps_the_rest_in_what_the_machine_has() -> None:
    wide = {
        name: choose_formats("int8", "torch", machine("int8", "fp32", *more), layers(trained=False)).stream
        for name, more in {"old": (), "turing": ("fp16",), "ampere": ("fp16", "bf16")}.items()
    }
    assert wide == {"old": "fp32", "turing": "fp16", "ampere": "bf16"}
    with pytest.raises(FomkitError, match=r"this step has gradients\. Use fp8"):
        choose_formats("int8", "torch", machine("int8", "fp32", "bf16"), layers())


def test_a_prompt_in_fp8_rests_on_fp8_rows(llama_prompt: fomkit.ModelProfile) -> None:
    found = fomkit.estimate(llama_prompt, "h100-sxm", precision="fp8")
    ops = found.ops
    in_fp8 = ops["dtype"].eq("fp8")
    assert set(ops["op"][in_fp8]) == {"queries, keys, values", "projection", "feed-forward in", "feed-forward out"}
    assert set(ops["time_source"][in_fp8]) <= {"measured", "interpolated"}
    wide = fomkit.estimate(llama_prompt, "h100-sxm", precision="bf16")
    assert 1.3 < wide.step.value / found.step.value < 2.0


def test_formats_of_scaled_blocks_have_rows_of_their_own_or_those_of_fp8(llama_prompt) -> None:
    fp8, mxfp8, nvfp4 = (
        fomkit.estimate(llama_prompt, "b200-sxm", precision=one) for one in ("fp8", "mxfp8", "nvfp4")
    )
    products = nvfp4.ops["dtype"].eq("nvfp4")
    assert set(nvfp4.ops["time_source"][products]) <= {"measured", "interpolated"}
    assert set(mxfp8.ops["time_source"][mxfp8.ops["dtype"].eq("mxfp8")]) == {"transferred"}
    assert mxfp8.step.value == pytest.approx(fp8.step.value, rel=0.01)
    assert mxfp8.step.high / mxfp8.step.low > 1.2 * fp8.step.high / fp8.step.low  # blocks were timed apart

    assert 0.55 < nvfp4.step.value / fp8.step.value < 0.75


def test_scales_of_blocks_align_no_rows(llama_prompt: fomkit.ModelProfile) -> None:
    """By facts only, the time of a block format follows its bytes: scales are stored apart from the numbers."""
    fp8, mxfp8 = (fomkit.estimate(llama_prompt, "b300-sxm", precision=one).step for one in ("fp8", "mxfp8"))
    assert mxfp8.value == pytest.approx(fp8.value, rel=0.04)


def test_experts_in_fp8_are_priced_by_their_rows_in_bf16() -> None:
    wide, low = (
        fomkit.estimate("mixtral-8x7b", "h200-sxm", mode="prefill", precision=one, sizes={"seq": 2048})
        for one in ("bf16", "fp8")
    )
    (at,) = low.ops.index[low.ops["kind"] == "experts"]
    assert low.ops["time_source"][at] == "transferred"
    assert 0.4 < low.ops["time_s"][at] / wide.ops["time_s"][at] < 0.6
    # Timed in fp8 of scaled blocks, eight of ten of the longest took 0.33 to 0.82 of bf16: inside.
    assert low.ops["low_s"][at] < 0.33 * wide.ops["time_s"][at]
    assert low.ops["high_s"][at] > 0.82 * wide.ops["time_s"][at]


MINE = """schema: fomkit/machine/1
name: mine
device:
  peak:
    - {{dtype: bf16, engine: matrix, rate: 900 TFLOP/s, source: x}}
    - {{dtype: {}, engine: matrix, rate: 1800 TFLOP/s, low: 1600 TFLOP/s, source: x}}
  memory: {{capacity: 200 GiB, bandwidth: 3.3 TB/s, source: x}}
  launch: {{per_op: 5 us, low: 3 us, high: 10 us, basis: assumed}}
"""


def test_blocks_of_fp8_have_the_peak_of_fp8_where_none_is_stated_and_wider_bounds(
    llama_prompt: fomkit.ModelProfile, tmp_path: Path
) -> None:
    (path := tmp_path / "mine.yaml").write_text(MINE.format("fp8"), encoding="utf-8")
    taken = fomkit.machine(path)
    peak, own = (taken.device.peak(dtype, "matrix") for dtype in ("fp8_block", "fp8"))
    assert peak is not None
    assert own is not None
    assert (peak.rate.value, peak.rate.low, peak.rate.basis) == (own.rate.value, own.rate.low, "assumed")
    assert "docs/adr/0084" in peak.rate.source
    blocks, plain = (fomkit.estimate(llama_prompt, taken, precision=low) for low in ("fp8_block", "fp8"))
    assert blocks.step.value == pytest.approx(plain.step.value, rel=0.01)
    assert blocks.step.high / blocks.step.low > 1.2 * plain.step.high / plain.step.low
    note = "products in fp8_block have wider bounds: mine states no peak of it, so that of fp8 counts"
    assert note in blocks.formats.message
    assert note not in plain.formats.message
    path.write_text(MINE.format("int8"), encoding="utf-8")
    with pytest.raises(
        FomkitError, match=r"add its rate to device\.peak .*\{dtype: fp8_block, engine: matrix, rate: …"
    ):
        fomkit.estimate(llama_prompt, path, precision="fp8_block")


def test_blocks_of_fp8_follow_a_changed_peak_of_fp8(llama_prompt: fomkit.ModelProfile, tmp_path: Path) -> None:
    """In `with_`, and in scenarios as in estimates of changed machines; a peak of their own stays as it is."""
    (path := tmp_path / "mine.yaml").write_text(MINE.format("fp8"), encoding="utf-8")
    taken, board = fomkit.machine(path), fomkit.machine("h100-sxm")
    name, blocks = (f"flop_per_s/{dtype}/matrix" for dtype in ("fp8", "fp8_block"))

    def rate(machine: fomkit.Machine) -> float:
        peak = machine.device.peak("fp8_block", "matrix")
        assert peak is not None
        return peak.rate.value

    half = rate(taken) / 2
    changed = taken.with_({name: half})
    assert rate(changed) == rate(change_machine(taken, {name: half})) == half
    assert "docs/adr/0084" in changed.device.peak("fp8_block", "matrix").rate.source
    assert rate(changed.with_({name: 2 * half})) == 2 * half
    assert rate(board.with_({name: half})) == rate(board)
    own = {blocks: 2 * half, name: half}
    assert rate(taken.with_(own)) == rate(change_machine(taken, own)) == 2 * half
    points = [{name: half, blocks: 2 * half}, {name: half / 2, blocks: half / 2}, {name: half, blocks: half / 4}]
    both = fomkit.scenarios(llama_prompt, taken, pd.DataFrame(points), precision="fp8_block")["step_s"]
    alone = fomkit.scenarios(llama_prompt, taken, pd.DataFrame({name: [half, half / 2]}), precision="fp8_block")[
        "step_s"
    ]
    steps = [estimate(llama_prompt, change_machine(taken, point), Options(precision="fp8_block")).step.value
             for point in (*points, {name: half})]  # fmt: skip
    assert [*both, alone[0]] == pytest.approx(steps)
    assert alone[1] == pytest.approx(both[1])
    assert alone[0] > 1.5 * both[0]


def test_blocks_of_fp8_without_rows_are_transferred_from_those_of_fp8(llama_prompt: fomkit.ModelProfile) -> None:
    board = fomkit.machine("h100-sxm")
    rows = board.timings[board.timings["dtype"] != "fp8_block"].reset_index(drop=True)
    peaks = tuple(peak for peak in board.device.peaks if peak.dtype != "fp8_block")
    mine = replace(board.with_timings(rows), device=replace(board.device, peaks=with_blocks(peaks)))
    found = fomkit.estimate(llama_prompt, mine, precision="fp8_block")
    in_blocks = found.ops["dtype"].eq("fp8_block")
    assert set(found.ops["time_source"][in_blocks]) == {"transferred"}
    assert "wider bounds" in found.formats.message
    assert "wider bounds" not in fomkit.estimate(llama_prompt, board, precision="fp8_block").formats.message


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


def test_half_precision_asked_for_by_its_format_is_told_its_name() -> None:
    with pytest.raises(FomkitError, match=r"precision: 'fp16' is not a precision\. It is called 'mixed'\.$"):
        fomkit.estimate("alexnet", "v100", precision="fp16")


def test_arithmetic_that_the_machine_lacks_is_refused_by_name() -> None:
    with pytest.raises(
        FomkitError, match=r"made: --precision fp8 needs arithmetic in bf16 and fp8, .* It has fp16, fp32\. Choose"
    ):
        choose_formats("fp8", "torch", machine("fp32", "fp16"))
    with pytest.raises(FomkitError, match="'fp31' is not a precision"):
        choose_formats("fp31", "torch", machine("fp32"))


def test_mixed_is_faster_and_says_so_on_the_v100() -> None:
    plain, mixed = (fomkit.estimate("resnet50", "v100", precision=precision) for precision in (None, "mixed"))
    assert mixed.step.high < plain.step.low
    assert (plain.precision, mixed.precision) == ("fp32", "mixed")
    assert "precision mixed: products in fp16" in mixed.summary()
    assert "as traced, the default of torch\n" in plain.summary()


def test_what_rows_are_called_moves_no_step() -> None:
    model = fomkit.model("resnet50")
    some = model.ops[model.ops["kind"] != "conv"]
    seconds = [
        fomkit.estimate(replace(model, ops=ops, order=None), "v100", precision="mixed").step.value
        for ops in (some, some.reset_index(drop=True), some.set_axis([*reversed(range(len(some)))]))
    ]
    assert seconds == pytest.approx([seconds[1]] * 3, rel=1e-12)
