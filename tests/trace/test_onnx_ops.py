"""Rules of ONNX's ops: sizes of single ops, named sizes, and random graphs against a brute-force counter."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("onnx", reason="reading ONNX files needs onnx: pip install '.[onnx]'")

from onnx_graphs import TensorProto, elsewhere, graph, helper, node, numbers_of, perceptron, profiled, tensor
from traced_work import flop, numbers, row_flop

import fomkit
from fomkit.core.errors import FomkitError
from fomkit.core.model import ModelProfile
from fomkit.profiles.models import load_model, save_model


def only(profile: ModelProfile, kind: str, pass_name: str = "forward") -> dict[str, Any]:
    (row,) = numbers(profile).query(f"kind == '{kind}' and pass_name == '{pass_name}'").to_dict("records")
    return dict(row)


def test_the_batch_is_a_name_and_a_number_may_be_its_value(tmp_path: Path) -> None:
    for written in ("batch", "N", None, 7):
        found = profiled(perceptron(written), tmp_path)
        assert found.sizes == {"batch": 7 if written == 7 else 1}
        assert found.ops["m"][0] == "batch"
        assert any("leaves the batch open" in note for note in found.notes) == (written != 7)


def test_one_sample_has_the_ops_of_many(tmp_path: Path) -> None:
    one, many = profiled(perceptron(), tmp_path, batch=1), profiled(perceptron(), tmp_path, batch=8)
    assert one.ops.equals(many.ops)
    assert "reduction" in set(one.ops["kind"])


def test_other_open_dimensions_are_sizes(tmp_path: Path) -> None:
    nodes = [node("Shape", "x", "s"), node("MatMul", "x w", "h"), node("Reshape", "h shape", "r"),
             node("ReduceMean", "r axes", "m", keepdims=0), node("Add", "m b", "y")]  # fmt: skip
    stored = [
        tensor("w", (8, 6)),
        numbers_of("shape", [0, -1, 2, 3]),
        numbers_of("axes", [1]),
        tensor("b", (2, 3)),
    ]
    # A shape that the file stores from its own batch is not believed.
    stale = [helper.make_tensor_value_info("h", TensorProto.FLOAT, [1, 5, 6])]
    model = graph(nodes, {"x": ("batch", "seq len", 8)}, stored, value_info=stale)
    found = profiled(model, tmp_path, batch=3, seq_len=5)
    assert found.sizes == {"batch": 3, "seq_len": 5}
    assert found.ops["m"][0] == "batch*seq_len"
    assert only(found, "gemm")["m"] == 15
    assert only(found, "reduction")["row"] == 5
    assert not found.unsupported


def test_a_size_that_the_export_wrote_as_a_number_is_found(tmp_path: Path) -> None:
    """Shape inference accepts a Reshape to a different number of elements."""
    nodes = [node("Reshape", "x shape", "r"), node("MatMul", "r w", "y")]
    stored = [numbers_of("shape", [16, 2, 8]), tensor("w", (8, 6))]
    model = graph(nodes, {"x": ("batch", "seq", 8)}, stored)
    with pytest.raises(FomkitError, match=r"64 elements do not make .16, 2, 8., at batch 1, seq 8. Give sizes"):
        profiled(model, tmp_path, seq=8)
    found = profiled(model, tmp_path, seq=32)
    assert found.ops["m"][0] == 32
    assert any(note.startswith("the sizes hold for batch 1 only") for note in found.notes)


def test_recurrent_layers_take_steps_first(tmp_path: Path) -> None:
    stored = [tensor("w", (1, 32, 9)), tensor("r", (1, 32, 8)), tensor("b", (1, 64))]
    model = graph([node("LSTM", "x w r b", "y h c", hidden_size=8)], {"x": (7, 4, 9)}, stored, ("y",))
    found = profiled(model, tmp_path)
    assert found.sizes == {"batch": 4}
    row = only(found, "rnn")
    assert (row["cell"], row["batch"], row["steps"], row["input_size"], row["hidden_size"]) == ("lstm", 4, 7, 9, 8)
    # Data needs no gradient: nothing of the input's products.
    assert only(found, "rnn", "backward_input")["input_size"] == 0
    for place, one in numbers(found).query("kind == 'rnn'").iterrows():
        inside = numbers(found, "parts").query(f"of == {place}")
        assert flop(inside, "forward", "backward", kind="gemm") == row_flop(one)
    assert found.parameters_trainable == 32 * 9 + 32 * 8 + 64


def test_attention_is_a_row_with_parts(tmp_path: Path) -> None:
    stored = [tensor("w", (12, 36))]
    nodes = [node("MatMul", "x w", "h"), node("Split", "h", "q k v", axis=2, num_outputs=3),
             node("Attention", "q k v", "y", q_num_heads=3, kv_num_heads=3, is_causal=1)]  # fmt: skip
    found = profiled(graph(nodes, {"x": ("batch", 10, 12)}, stored), tmp_path, batch=2)
    row = only(found, "attention")
    assert [row[name] for name in ("batch", "heads", "kv_heads", "q_len", "kv_len", "head_dim", "causal")] == [
        2, 3, 3, 10, 10, 4, 1,
    ]  # fmt: skip
    for place, one in numbers(found).query("kind == 'attention'").iterrows():
        inside = numbers(found, "parts").query(f"of == {place}")
        assert flop(inside, "forward", "backward", kind="gemm") == row_flop(one)


def test_a_convolution_padded_on_one_side_keeps_its_output(tmp_path: Path) -> None:
    for told in ({"pads": [0, 0, 1, 1]}, {"auto_pad": "SAME_UPPER"}):
        nodes = [node("Conv", "x w", "y", strides=[2, 2], **told)]
        found = profiled(graph(nodes, {"x": ("batch", 3, 8, 8)}, [tensor("w", (5, 3, 3, 3))]), tmp_path, batch=2)
        assert row_flop(only(found, "conv")) == 2 * 2 * 5 * 4 * 4 * 3 * 3 * 3


def test_einsum_and_its_gradients_are_products(tmp_path: Path) -> None:
    nodes = [node("Einsum", "x w", "y", equation="bsd,hde->bhse")]
    found = profiled(graph(nodes, {"x": ("batch", 7, 6)}, [tensor("w", (3, 6, 5))]), tmp_path, batch=2)
    assert flop(numbers(found), "forward") == flop(numbers(found), "backward") == 2 * 2 * 7 * 6 * 3 * 5
    assert set(found.ops.query("kind == 'gemm'")["pass_name"]) == {"forward", "backward_weight"}


@pytest.mark.parametrize(
    ("opset", "told", "row"),
    [(11, {}, 60), (11, {"axis": 2}, 15), (12, {"axis": -1}, 5), (13, {}, 5), (13, {"axis": 1}, 4)],
)
def test_a_softmax_before_opset_13_spans_all_axes_from_its_own_on(
    tmp_path: Path, opset: int, told: dict[str, int], row: int
) -> None:
    model = graph([node("LogSoftmax", "x", "y", **told)], {"x": (2, 4, 3, 5)}, opset=opset)
    assert only(profiled(model, tmp_path, "infer"), "softmax")["row"] == row


def body(nodes: list[Any], inputs: str, outputs: str, stored: tuple[Any, ...] = ()) -> Any:
    """Make what runs inside a loop or a branch."""
    ends = [[helper.make_tensor_value_info(one, 1, None) for one in names.split()] for names in (inputs, outputs)]
    return helper.make_graph(nodes, "body", *ends, list(stored))


def test_a_loop_runs_its_ops_once_for_each_trip(tmp_path: Path) -> None:
    """The body stores the weight; each trip makes a product and stacks its result."""
    step = [
        node("MatMul", "s w", "p"),
        node("Tanh", "p", "t"),
        node("Identity", "t", "o"),
        node("Identity", "g", "g2"),
    ]
    loop = node("Loop", "trips _ x", "last all", body=body(step, "i g s", "g2 t o", (tensor("w", (6, 6)),)))
    nodes = [loop, node("ReduceSum", "all first", "sum", keepdims=0), node("Add", "last sum", "y")]
    stored = [helper.make_tensor("trips", TensorProto.INT64, [], [5]), numbers_of("first", [0])]
    found = profiled(graph(nodes, {"x": ("batch", 6)}, stored), tmp_path, batch=4)
    assert not found.unsupported
    assert found.parameters_trainable == 36
    counts = found.ops.query("kind == 'gemm'").groupby("pass_name")["count"].sum()
    assert counts.to_dict() == {"forward": 5, "backward_input": 4, "backward_weight": 5}
    (stack,) = numbers(found).query("op == 'Concat'").to_dict("records")
    assert stack["numel"] == 5 * 4 * 6


def test_a_loop_whose_end_depends_on_data_is_listed(tmp_path: Path) -> None:
    step = [node("Relu", "s", "t"), node("ReduceMax", "t", "m", keepdims=0), node("Less", "m one", "g2")]
    loop = node("Loop", "_ yes h", "u", body=body(step, "i g s", "g2 t"))
    stored = [tensor("yes", (), TensorProto.BOOL), helper.make_tensor("one", 1, [], [1.0])]
    stored[0].raw_data = b"\x01"
    nodes = [node("Gemm", "x w", "h"), loop, node("Gemm", "u v", "y")]
    model = graph(nodes, {"x": ("batch", 6)}, [*stored, tensor("w", (6, 6)), tensor("v", (6, 5))],
                  value_info=[helper.make_tensor_value_info("u", 1, ("batch", 6))])  # fmt: skip
    found = profiled(model, tmp_path, "infer", batch=4)
    assert found.unsupported == ("Loop: a loop whose iterations are unknown",)
    assert sorted(numbers(found)["n"]) == [5, 6]
    assert set(found.ops["op"]) == {"Gemm"}


@pytest.mark.parametrize(
    "broken",
    [node("If", "x", "y"), node("Loop", "_ _ x", "y"), node("Scan", "x", "y", num_scan_inputs=1),
     helper.make_node("GroupQueryAttention", ["x", "x", "x"], ["y"], domain="com.microsoft")],
    ids=["if", "loop", "scan", "heads"],
)  # fmt: skip
def test_control_flow_and_fused_ops_without_their_settings_end_with_one_message(
    tmp_path: Path, broken: Any
) -> None:
    with pytest.raises(FomkitError, match=r"that makes 'y' cannot run: "):
        profiled(graph([broken], {"x": (2, 4, 8)}), tmp_path, "infer")


def test_nested_loops_end_where_they_run_too_many_ops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fomkit.frontends.onnx.shapes.MAX_INSIDE", 200)
    inner = body([node("Relu", "t", "u"), node("Identity", "h", "h2")], "j h t", "h2 u")
    outer = body([node("Loop", "trips _ s", "r", body=inner), node("Identity", "g", "g2")], "i g s", "g2 r")
    stored = [helper.make_tensor("trips", TensorProto.INT64, [], [30])]
    model = graph(
        [node("Relu", "x", "z"), node("Loop", "trips _ z", "y", body=outer)], {"x": ("batch", 6)}, stored
    )
    found = profiled(model, tmp_path, "infer", batch=2)
    assert found.unsupported == ("Loop: a loop that runs more than 20,000 ops",)
    assert found.ops["count"].tolist() == [1]


@pytest.mark.parametrize("trips", [40, 90])
@pytest.mark.parametrize("op", ["Loop", "Scan"])
def test_a_loop_of_too_many_trips_is_listed_and_none_of_its_ops_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, op: str, trips: int
) -> None:
    """An op and the trip itself count, so 40 trips of 80 are within 100 and 90 of 180 are not."""
    monkeypatch.setattr("fomkit.frontends.onnx.shapes.MAX_INSIDE", 100)
    add = [node("Add", "s w", "t")]
    if op == "Loop":
        loop = node("Loop", "trips _ z", "u", body=body(add, "i g s", "g t"))
    else:
        loop = node("Scan", "z n", "u", body=body(add, "s e", "t"), num_scan_inputs=1)
    stored = [tensor("w", (6,)), tensor("n", (trips,)), tensor("v", (6, 5)),
              helper.make_tensor("trips", TensorProto.INT64, [], [trips])]  # fmt: skip
    stated = [helper.make_tensor_value_info("u", 1, ("batch", 6))]
    nodes = [node("Relu", "x", "z"), loop, node("MatMul", "u v", "y")]
    found = profiled(graph(nodes, {"x": ("batch", 6)}, stored, value_info=stated), tmp_path, "infer", batch=2)
    assert only(found, "gemm")["n"] == 5
    if trips == 40:
        assert not found.unsupported
        assert found.ops.query("op == 'Add'")["count"].sum() == 40
    else:
        assert found.unsupported == (f"{op}: a loop that runs more than 20,000 ops",)
        assert set(found.ops["op"]) == {"Relu", "MatMul"}


def test_empty_bodies_end_soon(tmp_path: Path) -> None:
    inner = node("Loop", "trips _ s", "r", body=body([], "j h t", "h t"))
    outer = node("Loop", "trips _ x", "u", body=body([inner], "i g s", "g r"))
    scan = node("Scan", "z n", "v", body=body([], "s e", "s"), num_scan_inputs=1)
    nodes = [node("Relu", "x", "z"), outer, scan, node("Relu", "z", "y")]
    stored = [helper.make_tensor("trips", TensorProto.INT64, [], [19_000]), elsewhere("n", (200_000,))]
    found = profiled(graph(nodes, {"x": ("batch", 6)}, stored), tmp_path, "infer", batch=2)
    assert Counter(found.unsupported) == {
        f"{op}: a loop that runs more than 20,000 ops": 1 for op in ("Loop", "Scan")
    }


def test_a_scan_runs_its_ops_for_each_slice(tmp_path: Path) -> None:
    step = [node("MatMul", "e w", "p"), node("Add", "s p", "t"), node("Identity", "t", "o")]
    scan = node("Scan", "z x", "last all", body=body(step, "s e", "t o"), num_scan_inputs=1, scan_input_axes=[1],
                scan_output_axes=[1])  # fmt: skip
    nodes = [node("ReduceSum", "x axes", "m", keepdims=0), node("MatMul", "m w", "z"), scan,
             node("Identity", "all", "y")]  # fmt: skip
    model = graph(nodes, {"x": ("batch", "seq", 6)}, [tensor("w", (6, 6)), numbers_of("axes", [1])])
    found = profiled(model, tmp_path, "infer", batch=2, seq=7)
    assert not found.unsupported
    assert flop(numbers(found), "forward") == 2 * 2 * 6 * 6 * (1 + 7)
    moved = numbers(found).query("op == 'Split' or op == 'Concat'")
    assert moved["write_byte"].tolist() == [4 * 2 * 7 * 6] * 2


@pytest.mark.parametrize(("known", "products"), [(False, 2), (True, 1), (None, 2)])
def test_a_branch_takes_the_side_that_is_known_or_else_the_longer_one(
    tmp_path: Path, known: bool | None, products: int
) -> None:
    long = body([node("MatMul", "h w", "p"), node("Relu", "p", "q")], "", "q")
    branch = node("If", "c", "i", then_branch=body([node("Relu", "h", "z")], "", "z"), else_branch=long)
    stored = [tensor("w", (6, 6)), tensor("c", (), TensorProto.BOOL)]
    stored[1].raw_data = bytes([bool(known)])
    decided = [] if known is not None else [node("ReduceMax", "x", "m", keepdims=0), node("Cast", "m", "c", to=9)]
    model = graph([*decided, node("MatMul", "x w", "h"), branch, node("Identity", "i", "y")], {"x": ("batch", 6)},
                  stored if known is not None else stored[:1])  # fmt: skip
    found = profiled(model, tmp_path, "infer", batch=4)
    assert not found.unsupported
    assert found.ops.query("kind == 'gemm'")["count"].sum() == products
    assert any(note.startswith("branches that depend on data: 1;") for note in found.notes) == (known is None)


def test_each_side_of_a_branch_stores_its_own_tensors(tmp_path: Path) -> None:
    """Both sides call their weight ``w``; the side taken is the second."""
    sides = [body([node("MatMul", "x w", "p")], "", "p", (tensor("w", (6, width)),)) for width in (8, 16)]
    branch = node("If", "c", "y", then_branch=sides[0], else_branch=sides[1])
    found = profiled(graph([branch], {"x": ("batch", 6)}, [tensor("c", (), TensorProto.BOOL)]), tmp_path, "infer")
    assert only(found, "gemm")["n"] == 16


@pytest.mark.parametrize(
    ("equation", "shape", "rows"),
    [("bd,df,fe->be", (), 1), ("...d,df,fe->...e", (4,), 4), ("b...d,df,fe->be...", (4, 3), 12)],
)
def test_an_einsum_of_three_tensors_is_two_products(
    equation: str, shape: tuple[int, ...], rows: int, tmp_path: Path
) -> None:
    nodes = [node("Einsum", "x w v", "y", equation=equation)]
    model = graph(nodes, {"x": ("batch", *shape, 7)}, [tensor("w", (7, 5)), tensor("v", (5, 3))])
    found = profiled(model, tmp_path, batch=2)
    assert flop(numbers(found), "forward") == rows * (2 * 2 * 7 * 5 + 2 * 2 * 5 * 3)
    assert not found.unsupported
    assert set(found.ops.query("kind == 'gemm'")["pass_name"]) == {"forward", "backward_weight"}


OF_RUNTIME = {
    "FusedMatMul": (node("FusedMatMul", "x w", "y", transB=1), {"w": (5, 8)}, 2 * 2 * 4 * 8 * 5),
    "SkipSimplifiedLayerNormalization": (
        node("SkipSimplifiedLayerNormalization", "x x s", "y _1 _2 z"), {"s": (8,)}, 0,
    ),
    "packed attention": (
        node("Attention", "x w b", "y", num_heads=2), {"w": (8, 24), "b": (24,)},
        2 * 2 * 4 * 8 * 24 + 4 * 2 * 4 * 4 * 8,
    ),
    "packed grouped heads": (
        node("GroupQueryAttention", "x _ _ _ _ l l", "y", num_heads=2, kv_num_heads=1), {"l": (2,)},
        4 * 2 * 4 * 4 * 4,
    ),
    "4 bits": (node("MatMulNBits", "x w s", "y", K=8, N=5, bits=4, block_size=16), {"w": (5, 4), "s": (5,)},
               2 * 2 * 4 * 8 * 5),
    "quantised here": (node("DynamicQuantizeMatMul", "x w s", "y"), {"w": (8, 5), "s": ()}, 2 * 2 * 4 * 8 * 5),
}  # fmt: skip


@pytest.mark.parametrize("case", OF_RUNTIME)
def test_an_op_of_onnxruntime_is_priced_as_what_it_fuses(tmp_path: Path, case: str) -> None:
    one, weights, wanted = OF_RUNTIME[case]
    one.domain = "com.microsoft"
    eight_bit = TensorProto.INT8 if case == "quantised here" else 1
    stored = [tensor(name, shape, eight_bit if name == "w" else 1) for name, shape in weights.items()]
    model = graph([one, node("Relu", "y", "r")], {"x": ("batch", 4, 8)}, stored, ("r",), opset=17)
    found = profiled(model, tmp_path, "infer", batch=2)
    assert not found.unsupported
    assert sum(map(row_flop, numbers(found).query("kind in ['gemm', 'attention']").to_dict("records"))) == wanted


def test_packed_weights_are_counted_unpacked_and_not_trained(tmp_path: Path) -> None:
    """Before, the scales were the parameters, and a training updated them."""
    one = node("MatMulNBits", "x w s", "y", K=64, N=32, bits=4, block_size=32)
    one.domain = "com.microsoft"
    stored = [tensor("w", (32, 2, 16), TensorProto.UINT8), tensor("s", (64,))]
    model = graph([one], {"x": ("batch", 64)}, stored, opset=17)
    assert profiled(model, tmp_path, "infer").parameters_total == 64 * 32
    with pytest.raises(FomkitError, match="has no weight in a floating-point format"):
        profiled(model, tmp_path, "train")


def test_an_op_of_onnxruntime_that_cannot_run_so_is_listed(tmp_path: Path) -> None:
    """The tensors of its sum do not fit; the softmax after it is still read by the rules of the file's version."""
    fused = helper.make_node("SkipLayerNormalization", ["x", "s", "g"], ["h"], domain="com.microsoft")
    nodes = [fused, node("Relu", "h", "r"), node("MatMul", "x v", "m"), node("LogSoftmax", "m", "y")]
    stored = [tensor("s", (2, 5, 8)), tensor("g", (8,)), tensor("v", (8, 6))]
    model = graph(nodes, {"x": ("batch", 3, 8)}, stored, ("y", "r"), opset=11)
    found = profiled(model, tmp_path, "infer", batch=4)
    assert Counter(found.unsupported) == Counter(
        ["com.microsoft::SkipLayerNormalization", "Relu of unknown shape"]
    )
    assert only(found, "softmax")["row"] == 3 * 6
    assert not any("only" in note for note in found.notes)


def test_a_fused_op_made_for_one_batch_is_priced_there(tmp_path: Path) -> None:
    """What failed at another batch does not change by which version's rules the softmax is read."""
    fused = helper.make_node("SkipLayerNormalization", ["h", "s", "g"], ["y"], domain="com.microsoft")
    model = graph([node("LogSoftmax", "x", "h"), fused], {"x": ("batch", 3, 8)},
                  [tensor("s", (3, 3, 8)), tensor("g", (8,))], opset=11)  # fmt: skip
    found = profiled(model, tmp_path, "infer", batch=1)
    assert not found.unsupported
    assert only(found, "softmax")["row"] == 3 * 8
    assert any("hold for batch 1 only" in note for note in found.notes)


def test_a_fused_activation_is_part_of_its_convolution(tmp_path: Path) -> None:
    fused = node("FusedConv", "x w", "y", activation="Relu")
    fused.domain = "com.microsoft"
    found = profiled(graph([fused], {"x": ("batch", 3, 8, 8)}, [tensor("w", (4, 3, 3, 3))]), tmp_path, batch=2)
    assert row_flop(only(found, "conv")) == 2 * 2 * 4 * 6 * 6 * 27
    assert set(found.ops["pass_name"]) == {"forward", "backward_weight", "update"}


def test_integers_are_priced_as_integers_and_not_trained(tmp_path: Path) -> None:
    nodes = [node("MatMulInteger", "x w", "i"), node("Cast", "i", "y", to=TensorProto.FLOAT)]
    stored = [tensor("w", (6, 5), TensorProto.INT8)]
    model = graph(nodes, {"x": ("batch", 6)}, stored, types={"x": TensorProto.UINT8})
    found = profiled(model, tmp_path, "infer", batch=4)
    row = only(found, "gemm")
    assert (row["dtype"], row["engine"], row["m"], row["n"], row["k"]) == ("int8", "matrix", 4, 5, 6)
    assert (found.parameters_total, found.parameters_trainable) == (30, 0)


def test_inference_runs_the_forward_pass_only_and_folds_what_never_changes(tmp_path: Path) -> None:
    stored = [tensor("w", (6, 5)), tensor("scale", (5,))]
    nodes = [node("Mul", "w scale", "v"), node("MatMul", "x v", "h"), node("Dropout", "h", "y")]
    model = graph(nodes, {"x": ("batch", 6)}, stored)
    assert profiled(model, tmp_path, "infer", batch=4).ops["op"].tolist() == ["MatMul"]
    training = profiled(model, tmp_path, batch=4)
    assert training.ops["op"].tolist()[:3] == ["Mul", "MatMul", "Dropout"]
    assert set(training.ops["pass_name"]) == {"forward", "backward", "backward_weight", "update"}


def test_the_optimizer_is_the_one_that_is_named(tmp_path: Path) -> None:
    assert profiled(perceptron(), tmp_path).optimizer == {"rule": "sgd", "impl": "foreach", "impl_from": "default"}
    named = profiled(perceptron(), tmp_path, optimizer="adam")
    assert only(named, "optimizer", "update")["rule"] == "adam"
    assert named.order is not None
    states = named.order.query("role == 'state'")["output_byte"]
    assert sum(map(float, states)) == 2 * 4 * (10 * 20 + 20 + 3 * 20 + 3)
    assert "optimizer" not in set(profiled(perceptron(), tmp_path, optimizer="none").ops["kind"])


def test_what_is_no_weight_is_not_counted(tmp_path: Path) -> None:
    stored = [tensor("w", (4, 3, 1, 1)), *(tensor(one, (4,)) for one in "abmv"), tensor("half", ())]
    nodes = [node("Conv", "x w", "c"), node("BatchNormalization", "c a b m v", "n"), node("Mul", "n half", "y")]
    found = profiled(graph(nodes, {"x": ("batch", 3, 5, 5)}, stored), tmp_path)
    assert found.parameters_trainable == 12 + 4 + 4
    assert found.order is not None
    assert found.order["role"].tolist()[:6] == ["parameter"] * 3 + ["buffer"] * 3


def test_a_weight_used_twice_counts_once_and_its_gradients_add_up(tmp_path: Path) -> None:
    nodes = [node("MatMul", "x w", "h"), node("Transpose", "w", "t", perm=[1, 0]), node("MatMul", "h t", "y")]
    found = profiled(graph(nodes, {"x": ("batch", 6)}, [tensor("w", (6, 5))]), tmp_path, batch=4)
    assert found.parameters_trainable == 30
    assert found.ops.query("kind == 'gemm'")["pass_name"].tolist() == [
        "forward", "forward", "backward_input", "backward_weight", "backward_weight",
    ]  # fmt: skip
    assert found.ops.query("op == 'SumGrad'")["numel"].tolist() == [30]


def test_folded_batch_normalisation_is_told(tmp_path: Path) -> None:
    stored = [tensor("onnx::Conv_7", (4, 3, 1, 1)), tensor("onnx::Conv_8", (4,))]
    model = graph([node("Conv", "x onnx::Conv_7 onnx::Conv_8", "y")], {"x": ("batch", 3, 5, 5)}, stored)
    found = profiled(model, tmp_path)
    assert any(
        one.startswith("partial: the export folded batch normalisation into 1 convolution") for one in found.notes
    )
    assert found.missing == ("loss", "batch normalisation")
    assert not profiled(model, tmp_path, mode="infer").missing


def test_every_figure_of_a_training_step_says_what_is_derived_and_missing(tmp_path: Path) -> None:
    layer, weight = node("MatMul", "x w", "y"), tensor("w", (6, 5))
    found = profiled(graph([layer], {"x": ("batch", 6)}, [weight]), tmp_path, batch=4)
    assert (found.missing, found.derived) == (("loss",), ("backward", "update"))
    save_model(found, tmp_path / "net.yaml")
    again = load_model(tmp_path / "net.yaml")
    assert (again.missing, again.derived) == (found.missing, found.derived)
    one = fomkit.estimate(again, "v100")
    assert "loss" in one.excludes
    assert "derived by rule, not traced: backward, update" in one.summary()
    assert "not in the profile and not counted: loss" in one.summary()
    bare = profiled(graph([layer], {"x": ("batch", 6)}, [weight]), tmp_path, optimizer="none")
    assert (bare.missing, bare.derived) == (("loss", "update"), ("backward",))
    served = profiled(graph([layer], {"x": ("batch", 6)}, [weight]), tmp_path, mode="infer")
    assert (served.missing, served.derived, served.caveats) == ((), (), ())


def test_unknown_ops_are_listed_and_never_free(tmp_path: Path) -> None:
    inside = helper.make_graph([node("Relu", "h", "z")], "then", [], [helper.make_tensor_value_info("z", 1, None)])
    branch = helper.make_node("If", ["c"], ["i"], then_branch=inside, else_branch=inside)
    fancy = helper.make_node("Fancy", ["h"], ["f"], domain="strange")
    # The file's own order is not a running order: Reshape comes late.
    nodes = [node("Gemm", "x w", "h"), fancy, node("DeformConv", "h4 k h4", "d"), node("Reshape", "h s4", "h4"),
             branch, node("Relu", "f", "y")]  # fmt: skip
    stored = [tensor("w", (6, 4)), numbers_of("s4", [-1, 1, 4, 1]), tensor("c", (), TensorProto.BOOL),
              tensor("k", (1, 1, 1, 1))]  # fmt: skip
    model = graph(nodes, {"x": ("batch", 6)}, stored, ("y", "h", "d", "i"))
    found = profiled(model, tmp_path, batch=4)
    assert Counter(found.unsupported) == Counter(["strange::Fancy", "DeformConv", "Relu of unknown shape"])
    assert any("3 unsupported" in note for note in found.notes)
    assert any(
        note.startswith("partial: the gradient of an unsupported op is not counted") for note in found.notes
    )
    assert set(found.ops.query("kind == 'gemm'")["pass_name"]) == {"forward", "backward_weight"}


def test_a_gradient_that_is_not_known_is_listed(tmp_path: Path) -> None:
    nodes = [node("Gemm", "x w", "h"), node("CumProd", "h a", "p"), node("Relu", "p", "y")]
    stored = [tensor("w", (6, 4)), helper.make_tensor("a", TensorProto.INT64, [], [1])]
    found = profiled(graph(nodes, {"x": ("batch", 6)}, stored, opset=26), tmp_path, batch=4)
    assert found.unsupported == ("CumProdGrad",)
    # What comes before it is trained all the same.
    assert found.ops.query("kind == 'gemm'")["pass_name"].tolist() == ["forward", "backward_weight"]
