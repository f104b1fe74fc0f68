"""ONNX files that are damaged, hostile or incomplete: one clear message each; and the commands that read them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from terminal import in_this_process

pytest.importorskip("onnx", reason="reading ONNX files needs onnx: pip install '.[onnx]'")

from onnx_graphs import TensorProto, elsewhere, graph, helper, node, perceptron, profiled, saved, tensor

import fomkit as fomkit_package
from fomkit.core.errors import FomkitError
from fomkit.frontends.drafting import Request
from fomkit.frontends.onnx.file import recognise_onnx
from fomkit.frontends.onnx.profile import draft_profile
from fomkit.frontends.profile import profile_onnx
from fomkit.profiles.models import load_model

GEMM = node("Gemm", "x w", "y")
WEIGHT = tensor("w", (6, 5))


def run_process(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from fomkit.cli.main import main; main()", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def _twice() -> Any:
    return graph([GEMM, node("Relu", "x", "y")], {"x": (4, 6)}, [WEIGHT])


def _cycle() -> Any:
    return graph([node("Add", "x b", "a"), node("Relu", "a", "b"), GEMM], {"x": (4, 6)}, [WEIGHT])


def _no_tensor() -> Any:
    made = graph([GEMM], {"x": (4, 6)}, [WEIGHT])
    made.graph.input[0].type.CopyFrom(helper.make_sequence_type_proto(helper.make_tensor_type_proto(1, [4, 6])))
    return made


def _negative() -> Any:
    made = graph([GEMM], {"x": (4, 6)}, [WEIGHT])
    made.graph.input[0].type.tensor_type.shape.dim[1].dim_value = -6
    return made


def _opset(version: int) -> Any:
    made = graph([GEMM], {"x": (4, 6)}, [WEIGHT])
    made.opset_import[0].version = version
    return made


BAD = {
    "is of opset 9223372036854775807, and ONNX has those from 1 to": lambda: _opset(2**63 - 1),
    "is of opset -3, and ONNX has those from 1 to": lambda: _opset(-3),
    "makes the tensor 'y' twice": _twice,
    "has a cycle: a Add needs its own result": _cycle,
    "is not a tensor with a shape": _no_tensor,
    "has the input 'x' with a dimension of -6": _negative,
    "reads 'z', which no op computes": lambda: graph([node("Relu", "z", "y")], {"x": (4, 6)}, [WEIGHT]),
    "has no input": lambda: graph([node("Relu", "w", "y")], {}, [WEIGHT]),
    "Dimension mismatch in unification between 6 and 7, at batch 4. Give sizes": lambda: graph(
        [GEMM], {"x": (4, 7)}, [WEIGHT]
    ),
    "Conv that makes 'y' cannot run: Conv takes (4, 6, 5, 5) with a weight of (3, 4, 3, 3)": lambda: graph(
        [node("Conv", "x c", "y")], {"x": (4, 6, 5, 5)}, [tensor("c", (3, 4, 3, 3))]
    ),
    "the tensor 'y' would have the shape": lambda: graph(
        [node("MatMul", "x w", "h"), node("ConstantOfShape", "s", "y")], {"x": (4, 6)},
        [WEIGHT, helper.make_tensor("s", TensorProto.INT64, [3], [10**9, 10**9, 1])],
    ),
    "Gemm that makes nothing cannot run: Node with schema(::Gemm:": lambda: graph(
        [GEMM, helper.make_node("Gemm", ["x", "w"], [])], {"x": (4, 6)}, [WEIGHT]
    ),
    "Shape that makes 's' cannot run: Node with schema(::Shape:": lambda: graph(
        [GEMM, helper.make_node("Shape", [], ["s"])], {"x": (4, 6)}, [WEIGHT]
    ),
    "has no weight in a floating-point format": lambda: graph([node("Relu", "x", "y")], {"x": (4, 6)}),
    "has unsupported type: tensor(bfloat16), at batch 4. Export it with a later opset_version": lambda: graph(
        [node("Conv", "x c", "y")], {"x": (4, 6, 5, 5)}, [tensor("c", (3, 6, 3, 3), TensorProto.BFLOAT16)],
        types={"x": TensorProto.BFLOAT16, "y": TensorProto.BFLOAT16}, opset=17,
    ),
    "has no op of known work: strange::Fancy": lambda: graph(
        [helper.make_node("Fancy", ["x", "w"], ["h"], domain="strange"), node("Relu", "w", "y")], {"x": (4, 6)},
        [tensor("w", (6, 5), TensorProto.INT8), tensor("v", (2,))],
    ),
}  # fmt: skip


@pytest.mark.parametrize("message", BAD)
def test_a_graph_that_cannot_run_is_told_in_one_sentence(message: str, tmp_path: Path) -> None:
    mode = "infer" if "known work" in message else "train"
    with pytest.raises(FomkitError) as told:
        profiled(BAD[message](), tmp_path, mode)
    assert message in told.value.what
    assert told.value.where == str(tmp_path / "model.onnx")
    assert "\n" not in str(told.value)


def test_a_shape_in_a_missing_file_makes_the_profile_partial(tmp_path: Path) -> None:
    """The gradient of the product before it cannot be derived; a step without it would look cheap."""
    shape = TensorProto(name="s", data_type=TensorProto.INT64, dims=[2], data_location=TensorProto.EXTERNAL)
    shape.external_data.add(key="location", value="gone.bin")
    nodes = [node("MatMul", "x w", "h"), node("Reshape", "h s", "y")]
    found = profiled(graph(nodes, {"x": (4, 6)}, [WEIGHT, shape]), tmp_path)
    assert found.unsupported == ("Reshape of unknown shape",)
    assert any(one.startswith("partial: shapes stored in files beside it are unknown") for one in found.notes)
    assert any(one.startswith("partial: the gradient of an unsupported op is not counted") for one in found.notes)


def test_an_empty_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").touch()
    with pytest.raises(FomkitError, match=r"model\.onnx: is empty\. Give an ONNX file"):
        profile_onnx(tmp_path / "model.onnx")


def test_any_damage_is_told(tmp_path: Path) -> None:
    """A file cut at any byte, or with any byte changed, leads to a FomkitError or a profile."""
    whole = perceptron().SerializeToString()
    path = tmp_path / "model.onnx"
    ends = {"read": 0, "told": 0}
    for at in range(0, len(whole), 7):
        for data in (whole[:at], whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :]):
            path.write_bytes(data)
            try:
                draft_profile(path, Request("model", "model.onnx", "train", {}), None, {})
                ends["read"] += 1
            except FomkitError as error:
                ends["told"] += "\n" not in str(error)
    assert ends["told"] > 100
    assert sum(ends.values()) == 2 * len(range(0, len(whole), 7))


def test_weights_in_other_files_are_never_opened(tmp_path: Path) -> None:
    """Opening them would wait for a pipe without a writer, and read a path outside of the folder."""
    os.mkfifo(tmp_path / "weights.bin")
    for location in ("weights.bin", "../../../etc/passwd", "/etc/passwd", "absent.bin"):
        model = graph([GEMM], {"x": ("batch", 6)}, [elsewhere("w", (6, 5), location)])
        found = profiled(model, tmp_path)
        assert found.parameters_trainable == 30
        assert any("1 stored tensors are in files beside it, which were not opened" in one for one in found.notes)


def test_a_long_chain_is_walked(tmp_path: Path) -> None:
    nodes = [GEMM, *(node("Relu", "y" if at == 0 else f"r{at}", f"r{at + 1}") for at in range(3000))]
    found = profiled(graph(nodes, {"x": ("batch", 6)}, [WEIGHT], ("r3000",)), tmp_path)
    assert found.ops.query("op == 'ReluGrad'")["count"].tolist() == [3000]


def test_what_is_no_model_is_not_recognised(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    for data in (
        b"",
        b"\x08",
        b"kind,count\ngemm,1\n",
        b"{}",
        b"\x08\x07",
        b"\x08\x07\xff\xff\xff",
        b"PK\x03\x04",
    ):
        path.write_bytes(data)
        assert not recognise_onnx(path)
    assert recognise_onnx(saved(perceptron(), path))


def test_without_the_package_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(perceptron(), tmp_path / "model.onnx")
    monkeypatch.setattr("fomkit.frontends.model_file.find_spec", lambda _: None)
    with pytest.raises(FomkitError, match=r'package onnx, which is not installed. Run: pip install "onnx>='):
        profile_onnx(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"optimizer": "adm"}, "--optimizer adm: has no formula. The nearest names are 'adam'"),
        ({"optimizer": "adam", "mode": "infer"}, "--optimizer adam: is for training"),
        ({"batch": 0}, "the batch is 0"),
    ],
)
def test_options_that_cannot_be_had_are_refused(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(FomkitError) as told:
        profile_onnx(saved(perceptron(), tmp_path / "model.onnx"), **options)
    assert message in str(told.value)


def test_both_commands_read_it(tmp_path: Path) -> None:
    """The file is recognised by its content, not by its name."""
    layer = node("MatMul", "x w", "y")
    saved(graph([layer], {"x": ("batch", "wide", 6)}, [WEIGHT]), tmp_path / "model.bin")
    sizes = ("--set", "wide=3", "--optimizer", "adam")
    imported = run_process("import", "model.bin", "--set", "batch=4", *sizes, "--epochs", "2", "--samples", "8",
                           "-o", "one.yaml", folder=tmp_path)  # fmt: skip
    assert imported.returncode == 0, imported.stderr
    assert "derived, not traced" in imported.stderr
    made = in_this_process("profile", "model.bin", "--batch", "4", *sizes, "-o", "two.yaml", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    one, two = load_model(tmp_path / "one.yaml"), load_model(tmp_path / "two.yaml")
    assert one.ops.equals(two.ops)
    for made_of in (one, two):
        assert (made_of.missing, made_of.derived) == (("loss",), ("backward", "update"))
    assert (one.sizes, one.run.epochs, one.data.train_samples) == ({"batch": 4, "wide": 3}, 2, 8)
    assert two.optimizer == {"rule": "adam", "impl": "foreach", "impl_from": "default"}
    assert fomkit_package.profile(tmp_path / "model.bin", batch=4, sizes={"wide": 3}).ops["m"][0] == "batch*wide"
    remembered = in_this_process("memory", "one.yaml", "--batch", "8", cwd=tmp_path)
    assert remembered.returncode == 0, remembered.stderr
    assert "state" in remembered.stdout


def test_a_command_tells_what_is_wrong_and_ends_with_2(tmp_path: Path) -> None:
    whole = saved(perceptron(), tmp_path / "model.onnx").read_bytes()
    (tmp_path / "cut.onnx").write_bytes(whole[:-40])
    (tmp_path / "text.onnx").write_text("kind,count\n")
    for name, message in (
        ("cut", "is a damaged or truncated ONNX file"),
        ("text", "damaged"),
        ("no", "is not a file"),
    ):
        ended = in_this_process("profile", f"{name}.onnx", "-o", "out.yaml", cwd=tmp_path)
        assert ended.returncode == 2
        assert message in ended.stderr
        assert "Traceback" not in ended.stderr
    assert not list(tmp_path.glob("out*"))
