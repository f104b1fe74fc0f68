"""Rules on hand-made calls: reads, writes and row lengths. No framework needed."""

from __future__ import annotations

from itertools import count
from math import prod
from typing import Any

import pytest

from fomkit.frontends.lowering.aten import RULES, find_rule, stored_transposed
from fomkit.frontends.lowering.calls import Array, Call, TracedOp, Work, works_of
from fomkit.frontends.lowering.tf import RULES as TF_RULES
from fomkit.ops.kinds import KINDS

_STORAGES = count(1000)


def array(*shape: int, storage: int = 0, dtype: str = "fp32", stride: tuple[int, ...] | None = None) -> Array:
    row_by_row = tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))
    width = {"fp32": 4, "fp16": 2, "int64": 8, "bool": 1, "int8": 1}[dtype]
    return Array(shape, stride or row_by_row, dtype, width, storage or next(_STORAGES))


def work(op: str, results: list[Array], **arguments: Any) -> Work:
    rule = find_rule(f"aten::{op}")[1]
    assert rule is not None
    (only,) = works_of(Call(f"aten::{op}", arguments, tuple(results)), rule)
    return only


def traffic(one: Work) -> tuple[Any, ...]:
    return tuple(one.dimensions.get(name) for name in ("numel", "row", "inputs", "read_byte", "write_byte"))


def test_every_rule_gives_the_dimensions_of_its_kind() -> None:
    grid = array(2, 8, 6, 6)
    arguments: dict[str, dict[str, Any]] = {
        "native_layer_norm": {"input": grid, "normalized_shape": [6]},
        "native_group_norm": {"input": grid, "N": 2, "group": 4},
        "native_batch_norm": {"input": grid},
        "_softmax": {"self": grid, "dim": 1},
        "max_pool2d_with_indices": {"self": grid, "kernel_size": [2]},
        "sum": {"self": grid},
        "clone": {"self": grid},
        "sort": {"self": grid},
        "glu": {"self": grid},
        "embedding": {"weight": array(50, 6), "indices": array(2, 8, 6, dtype="int64")},
        "mm": {"self": array(3, 4), "mat2": array(4, 5)},
    }
    for op, given in arguments.items():
        one = work(op, [grid], **given)
        names = set(one.dimensions)
        assert names >= set(KINDS[one.kind].dimensions), op
        assert names <= set(KINDS[one.kind].columns), op


def test_index_conversions_read_and_write_once() -> None:
    """Rows of 50 edges become the bounds of 9 nodes; 3 counts become the numbers of 12 samples."""
    edges, nodes = array(50, dtype="int64"), array(10, dtype="int64")
    assert traffic(work("_convert_indices_from_coo_to_csr", [nodes], self=edges)) == (50, None, 1, 400, 80)
    assert traffic(work("repeat_interleave", [array(12)], repeats=array(3)))[3:] == (12, 48)


@pytest.mark.parametrize("name", ["upsample_nearest2d", "_upsample_nearest_exact2d", "_upsample_bicubic2d_aa"])
def test_interpolation_costs_the_larger_side_both_ways(name: str) -> None:
    small, large = array(2, 3, 4, 4), array(2, 3, 8, 8)
    for op, read, made in ((name, small, large), (f"{name}_backward", large, small)):
        assert traffic(work(op, [made], grad_output=read)) == (384, None, 1, read.byte, made.byte)


def test_a_ctc_loss_goes_from_frame_to_frame() -> None:
    """50 frames of 4 samples, 20 labels: 41 states each, for each a probability and a sum read, a sum written."""
    scores, rule = array(50, 4, 29), find_rule("aten::_ctc_loss")[1]
    for labels in (array(4, 20, dtype="int64"), array(80, dtype="int64")):
        sizes = {"log_probs": scores, "targets": labels}
        forward = works_of(Call("aten::_ctc_loss", sizes, (array(4), array(4, 50, 41))), rule)
        assert len(forward) == 50
        assert {traffic(one) for one in forward} == {(4 * 41, None, 2, 2 * 4 * 41 * 4, 4 * 41 * 4)}
        backward = works_of(Call("aten::_ctc_loss_backward", {"grad": array(4), **sizes}, (scores,)), rule)
        assert backward[:-1] == forward
        assert traffic(backward[-1]) == (50 * 4 * 29, None, 1, scores.byte, scores.byte)
        for library in ("aten::_cudnn_ctc_loss", "aten::miopen_ctc_loss"):
            both = Call(library, {**sizes, "deterministic": False}, (array(4), scores))
            assert works_of(both, find_rule(library)[1]) == [*forward, *backward]


def test_the_table_names_ops_that_exist(torch: Any) -> None:
    unknown = {name for name in RULES if not hasattr(torch.ops.aten, name)}
    assert not unknown


def test_unknown_ops_are_not_priced() -> None:
    for op in ("aten::linalg_matrix_exp", "mine::matmul", "mine::matrix_copy"):
        assert find_rule(op) == (False, None)
    assert find_rule("aten::view_as_nothing_") == (False, None)
    assert find_rule("aten::cumsum_") == find_rule("aten::cumsum") != (False, None)


def test_ops_of_detection_move_their_boxes_and_maps() -> None:
    boxes, scores, kept = array(1000, 4), array(1000), array(300, dtype="int64")
    suppress, pick = (find_rule(f"torchvision::{op}")[1] for op in ("nms", "roi_align"))
    (one,) = works_of(Call("torchvision::nms", {"dets": boxes, "scores": scores}, (kept,)), suppress)
    assert (one.kind, traffic(one)) == ("other", (4000, None, 2, 16_000 + 4000, 2400))
    features, found = array(2, 256, 50, 50), array(300, 256, 7, 7)
    (one,) = works_of(Call("torchvision::roi_align", {"input": features, "rois": array(300, 5)}, (found,)), pick)
    assert traffic(one) == (300 * 256 * 49, None, 2, features.byte + 6000, found.byte)
    assert find_rule("torchvision::convolve") == (False, None)  # it may multiply


def test_smoothed_interpolation_works_on_the_larger_side_both_ways() -> None:
    small, large = array(1, 3, 8, 8), array(1, 3, 32, 32)
    for op in ("_upsample_bicubic2d_aa", "_upsample_bilinear2d_aa"):
        there, back = work(op, [small], input=large), work(f"{op}_backward", [large], grad_output=small)
        assert (there.kind, traffic(there)) == ("pointwise", (large.numel, None, 1, large.byte, small.byte))
        assert (back.kind, traffic(back)) == ("pointwise", (large.numel, None, 1, small.byte, large.byte))


def test_a_broadcast_tensor_is_read_once_and_the_same_tensor_once() -> None:
    row, whole = array(6, storage=1), array(5, 6, storage=2)
    spread = array(5, 6, storage=1, stride=(0, 1))
    out = array(5, 6, storage=3)
    assert traffic(work("glu", [out], self=spread, other=whole)) == (30, None, 2, 24 + 120, 120)
    assert traffic(work("glu", [out], self=whole, other=whole)) == (30, None, 1, 120, 120)
    assert traffic(work("glu", [whole], self=whole, other=row)) == (30, None, 2, 120 + 24, 120)


def test_overlapping_windows_are_read_once() -> None:
    # unfold: 4 windows of 3 over 6 elements
    assert Array((4, 3), (1, 1), "fp32", 4, 1).byte == 24
    assert Array((0, 3), (3, 1), "fp32", 4, 1).byte == 0


def test_what_is_only_written_is_not_read() -> None:
    one = array(100)
    assert traffic(work("zero_", [one], self=one)) == (100, None, 0, 0, 400)
    assert traffic(work("zeros_like", [array(100)], self=one)) == (100, None, 0, 0, 400)
    half = array(100, dtype="fp16")
    assert traffic(work("copy_", [half], self=half, src=one)) == (100, None, 1, 400, 200)
    assert work("copy_", [half], self=half, src=one).dtype == "fp16"


def test_a_lookup_reads_the_rows_it_finds() -> None:
    table, indices, found = array(50_000, 64), array(2, 3, dtype="int64"), array(2, 3, 64)
    assert traffic(work("embedding", [found], weight=table, indices=indices)) == (384, 64, 2, 48 + 1536, 1536)
    back = work("embedding_dense_backward", [array(50_000, 64)], grad_output=found, indices=indices)
    assert traffic(back) == (384, 64, 2, 1536 + 48, 4 * 50_000 * 64)
    bags = work("_embedding_bag", [array(2, 64)], weight=table, indices=array(6, dtype="int64"))
    assert traffic(bags) == (384, 64, 2, 48 + 1536, 512)
    picked = work("nll_loss_forward", [array(1)], self=array(32, 1000), target=array(32, dtype="int64"))
    assert traffic(picked) == (32, 32, 2, 256 + 128, 4)


def test_a_bags_weights_and_all_pairs_sum_rows() -> None:
    """12 rows of 16 looked up, a number each; the 28 pairs of 8 points of 5 numbers."""
    picked, gradient = array(12, dtype="int64"), array(4, 16)
    op = "_embedding_bag_per_sample_weights_backward"
    one = work(op, [array(12)], grad=gradient, weight=array(1000, 16), indices=picked)
    assert (one.kind, traffic(one)) == ("reduction", (12 * 16, 16, 3, 12 * 16 * 4 + gradient.byte + 96, 48))
    one = work("_pdist_forward", [array(28)], self=array(8, 5), p=2.0)
    assert (one.kind, traffic(one)) == ("reduction", (28 * 5, 5, 1, 160, 112))


def test_scattering_in_place_touches_only_its_places() -> None:
    target, source, places = array(1000, storage=7), array(10), array(10, dtype="int64")
    inside = work("scatter_add_", [target], self=target, index=places, src=source)
    assert traffic(inside) == (10, None, 2, 120, 40)
    apart = work("scatter_add", [array(1000)], self=target, index=places, src=source)
    assert traffic(apart) == (10, None, 3, 4120, 4000)


def test_pooling_counts_windows_and_reads_no_input_on_the_way_back() -> None:
    image, pooled, found = array(2, 3, 8, 8), array(2, 3, 4, 4), array(2, 3, 4, 4, dtype="int64")
    forward = work("max_pool2d_with_indices", [pooled, found], self=image, kernel_size=[3, 3])
    assert traffic(forward) == (96 * 9, 9, 1, 4 * 384, 96 * 12)
    back = work(
        "max_pool2d_with_indices_backward",
        [array(2, 3, 8, 8)],
        grad_output=pooled, self=image, kernel_size=[3, 3], indices=found,
    )  # fmt: skip
    assert traffic(back) == (96 * 9, 9, 2, 96 * 12, 4 * 384)
    average = work("_adaptive_avg_pool2d", [array(2, 3, 2, 2)], self=image)
    assert traffic(average) == (384, 16, 1, 4 * 384, 96)


def test_a_row_is_what_is_normalised() -> None:
    values = array(2, 8, 6, 6)
    assert work("native_batch_norm", [values], input=values).dimensions["row"] == 2 * 36
    assert work("native_layer_norm", [values], input=values, normalized_shape=[6, 6]).dimensions["row"] == 36
    assert work("native_group_norm", [values], input=values, N=2, group=4).dimensions["row"] == 72
    assert work("_log_softmax", [values], self=values, dim=1).dimensions["row"] == 8
    assert work("mean", [array(2, 8)], self=values).dimensions["row"] == 36


@pytest.mark.parametrize(
    ("shape", "stride", "transposed"),
    [
        ((3, 2), (2, 1), 0),
        ((3, 2), (1, 3), 1),
        ((3, 1), (1, 1), 0),
        ((1, 3), (3, 1), 0),
        ((1, 3), (1, 1), 0),
        ((3, 2), (4, 2), 0),  # neither order: copied first
        ((5, 3, 2), (6, 1, 3), 1),
    ],
)
def test_strides_tell_transposition(shape: Any, stride: Any, transposed: int) -> None:
    assert stored_transposed(Array(shape, stride, "fp32", 4, 1)) == transposed


def test_engines_follow_the_frameworks_defaults() -> None:
    def engine(kind: str, dtype: str) -> str:
        return TracedOp("aten::x", kind, {}, dtype, "forward", "").engine

    assert [engine("gemm", dtype) for dtype in ("fp64", "fp32", "fp16", "bf16", "fp8")] == [
        *("vector", "vector", "matrix", "matrix", "matrix")
    ]
    assert [engine(kind, "bf16") for kind in ("conv", "attention", "rnn", "pointwise")] == [
        *("matrix", "matrix", "matrix", "vector")
    ]


def test_no_elements_no_work() -> None:
    rule = RULES["clone"]
    assert rule is not None
    assert works_of(Call("aten::clone", {"self": array(0, 3)}, (array(0, 3),)), rule) == []


@pytest.mark.parametrize(("mode", "kind"), [("train", "norm"), ("infer", "pointwise")])
def test_a_batch_norm_of_stored_statistics_adds_nothing_up(mode: str, kind: str) -> None:
    """Before, it was priced as if it first read its input for mean and spread."""
    import torch

    import fomkit

    module = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8))
    ops = fomkit.profile(module, inputs=torch.zeros(2, 3, 8, 8), mode=mode).ops
    assert ops.loc[ops["op"].eq("aten::native_batch_norm"), "kind"].tolist() == [kind]


def flop_of(op: str, results: list[Array], **arguments: Any) -> float:
    """Return the flop of the products of an op of PyTorch, or of TensorFlow if it has a capital letter."""
    rule = TF_RULES[op] if op[0].isupper() else find_rule(f"aten::{op}")[1]
    assert rule is not None
    works = works_of(Call(op, arguments, tuple(results)), rule)
    sizes = ("b", "m", "n", "k")
    return sum(2.0 * prod(float(one.dimensions[size]) for size in sizes) for one in works if one.kind == "gemm")


N = 60
TALL, SQUARE, SIDES = array(5, 2 * N, N), array(5, N, N), array(5, N, 7)


@pytest.mark.parametrize(
    ("op", "arguments", "in_cubes"),
    [
        ("linalg_cholesky_ex", {"self": SQUARE}, 1 / 3),
        ("Cholesky", {"input": SQUARE}, 1 / 3),
        ("linalg_lu_factor_ex", {"A": TALL}, 2 - 1 / 3),
        ("_linalg_det", {"A": SQUARE}, 2 / 3),
        ("MatrixInverse", {"input": SQUARE}, 2),
        ("linalg_qr", {"A": TALL}, 8 - 4 / 3),
        ("linalg_qr", {"A": TALL, "mode": "r"}, 4 - 2 / 3),
        ("linalg_qr", {"A": TALL, "mode": "complete"}, 16 - 4 + 2 / 3),
        ("linalg_qr", {"A": SQUARE, "mode": "complete"}, 8 / 3),
        ("Qr", {"input": TALL, "full_matrices": True}, 16 - 4 + 2 / 3),
        ("geqrf", {"self": TALL}, 4 - 2 / 3),
        ("_linalg_svd", {"A": TALL}, 28 + 8),
        ("_linalg_svd", {"A": TALL, "full_matrices": True}, 16 + 16 + 9),
        ("_linalg_svd", {"A": TALL, "compute_uv": False}, 8 - 4 / 3),
        ("Svd", {"input": TALL, "compute_uv": True}, 28 + 8),
        ("_linalg_eigh", {"A": SQUARE}, 9),
        ("SelfAdjointEigV2", {"input": SQUARE, "compute_v": False}, 4 / 3),
        ("linalg_eig", {"self": SQUARE}, 25),
        ("_linalg_solve_ex", {"A": SQUARE, "B": SIDES}, 2 / 3 + 2 * 7 / N),
        ("_linalg_solve_ex", {"A": SQUARE, "B": array(5, N)}, 2 / 3 + 2 / N),
        ("_linalg_solve_ex", {"A": SQUARE, "B": array(N, 7)}, 2 / 3 + 2 * 7 / N),
        ("cholesky_solve", {"self": SIDES, "input2": SQUARE}, 2 * 7 / N),
        ("MatrixSolve", {"matrix": SQUARE, "rhs": SIDES}, 2 / 3 + 2 * 7 / N),
        ("MatrixTriangularSolve", {"matrix": SQUARE, "rhs": SIDES}, 7 / N),
    ],
)
def test_solvers_have_the_flop_of_textbooks(op: str, arguments: dict[str, Any], in_cubes: float) -> None:
    """In cubes of the short side, of 5 matrices, to the nearest whole inner size."""
    assert flop_of(op, [SQUARE], **arguments) == pytest.approx(5 * N**3 * in_cubes, rel=0.02)


def test_packed_and_quantised_weights_are_products() -> None:
    """Weights of 64 × 32: 8 bits, or 4 with scales of 2 × 16 bits for each 32; PyTorch's own are unseen."""
    values, made = array(3, 4, 64, dtype="fp16"), array(3, 4, 32, dtype="fp16")
    eight = work("_weight_int8pack_mm", [made], self=values, mat2=array(32, 64, dtype="int8"), scales=array(0))
    assert (eight.dimensions["m"], eight.dimensions["n"], eight.dimensions["k"]) == (12, 32, 64)
    assert (eight.dtype, eight.dimensions["weight_share"]) == ("fp16", 0.5)
    four = {"mat2": array(32, 32, dtype="int8"), "qScaleAndZeros": array(2, 32, 2, dtype="fp16")}
    share = work("_weight_int4pack_mm", [made], self=values, **four).dimensions["weight_share"]
    assert share == (32 * 32 + 2 * 2 * 2 * 32) / (64 * 32 * 2)
    for name, kinds in (("linear", ["gemm"]), ("linear_dynamic", ["pointwise", "gemm"])):
        rule = find_rule(f"quantized::{name}")[1]
        assert rule is not None
        works = rule(Call(f"quantized::{name}", {"X": values, "W_prepack": {}}, (made,)))
        assert [one.kind for one in works] == kinds
        assert (works[-1].dtype, works[-1].dimensions["n"]) == ("int8", 32)
    # The dynamic layer reads inputs and writes results of 2 bytes; the product counts one of each.
    assert (works[0].dimensions["read_byte"], works[0].dimensions["write_byte"]) == (2 * 12 * 64, 12 * 32)


def test_a_deformed_convolution_has_the_flop_of_a_plain_one() -> None:
    """A window of 3 × 3 over 8 channels at 2 × 6 × 6 places, 16 results in 2 groups; twice that backward."""
    given = {"input": array(2, 8, 6, 6), "weight": array(16, 4, 3, 3), "groups": 2, "offset": array(2, 18, 6, 6)}
    made = array(2, 16, 6, 6)
    for name, results, times in (("deform_conv2d", [made], 1), ("_deform_conv2d_backward", [given["input"]], 2)):
        rule = find_rule(f"torchvision::{name}")[1]
        assert rule is not None
        works = rule(Call(name, {**given, **({"grad": made} if times == 2 else {})}, tuple(results)))
        flop = [2 * prod(one.dimensions[size] for size in "bmnk") for one in works if one.kind == "gemm"]
        assert flop == [2 * 16 * (4 * 9) * (2 * 36)] * times
        columns = [one for one in works if one.kind == "pointwise"]
        assert [one.dimensions["write_byte"] for one in columns] == [4 * (8 * 9) * (2 * 36)] * times
