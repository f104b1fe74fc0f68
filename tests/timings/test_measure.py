"""Packs: the script makes, checks and times ops by itself, and its output becomes a machine profile."""

from __future__ import annotations

import csv
import re
import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fomkit
from fomkit.harness.torch.cases import TOLERANCES, CannotTimeError, Watch
from fomkit.harness.torch.times import MAKERS, Effort, check_case, main, make_case, time_case
from fomkit.workbook.vendor import dominant_ops, make_pack

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


def sizes(kind: str, text: str) -> dict[str, str]:
    return {"kind": kind, **dict(pair.split("=") for pair in text.split())}


CONV = sizes(
    "conv",
    "batch=2 in_channels=4 out_channels=6 depth=1 height=9 width=8 kernel_d=1 kernel_h=3 kernel_w=3 "
    "stride_d=1 stride_h=2 stride_w=1 pad_d=0 pad_h=1 pad_w=1 groups=2",
)
RNN = sizes("rnn", "batch=3 steps=4 input_size=5 hidden_size=6 layers=1")
ATTENTION = sizes("attention", "batch=2 heads=4 kv_heads=2 q_len=8 kv_len=8 head_dim=16 causal=1")
WORK = {"numel": "120", "row": "12", "read_byte": "960", "write_byte": "480"}
CASES: list[dict[str, str]] = [
    {"kind": "gemm", "b": "1", "m": "100", "n": "7", "k": "33", "trans_a": "1", "trans_b": "0"},
    {"kind": "gemm", "b": "3", "m": "10", "n": "7", "k": "33", "trans_a": "0", "trans_b": "1", "dtype": "bf16"},
    *({**CONV, "pass_name": name} for name in ("forward", "backward_input", "backward_weight")),
    {**CONV, "pass_name": "forward", "layout": "nhwc"},
    *({**RNN, "cell": cell, "pass_name": "forward"} for cell in ("lstm", "gru", "vanilla")),
    {**RNN, "cell": "lstm", "pass_name": "backward_input", "directions": "2"},
    {**RNN, "cell": "gru", "pass_name": "backward_weight"},
    {**ATTENTION, "pass_name": "forward"},
    {**ATTENTION, "pass_name": "backward"},
    {"kind": "pointwise", **WORK},
    {"kind": "copy", **WORK, "read_byte": "480"},
    {"kind": "copy", **WORK, "read_byte": "480", "inputs": "3"},
    {"kind": "copy", **WORK, "inputs": "2"},
    {"kind": "copy", "dtype": "bf16", **WORK, "read_byte": "480", "write_byte": "240"},
    {"kind": "copy", "op": "gradient cast", "dtype": "bf16", **WORK, "read_byte": "240"},
    {"kind": "sparse_gemm", "b": "1", "m": "80", "n": "7", "k": "33", "density": "0.2"},
    {
        "kind": "pool",
        "op": "aten::max_pool2d_with_indices",
        "pass_name": "forward",
        "numel": "9000",
        "row": "9",
        "read_byte": "16000",
        "write_byte": "12000",
    },
    {"kind": "embedding", "op": "aten::embedding", "pass_name": "forward", **WORK},
    {"kind": "softmax", **WORK, "pass_name": "forward"},
    {"kind": "norm", **WORK, "pass_name": "forward"},
    {"kind": "reduction", **WORK},
    *(
        {"kind": "optimizer", "rule": rule, "impl": impl, "numel": "100", "tensors": "3", "pass_name": "update"}
        for rule, impl in (("sgd", "foreach"), ("momentum", "per_tensor"), ("adam", "fused"), ("adamw", "foreach"))
    ),
]


def cells(case: dict[str, str]) -> dict[str, str]:
    return {"dtype": "fp32", "engine": "vector", "pass_name": "", **case}


@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: "-".join(list(case.values())[:1]) + case.get("pass_name", "")
)
def test_ops_are_made_and_right(case: dict[str, str]) -> None:
    made = make_case(cells(case), "cpu")
    assert made.check(made.run()) <= TOLERANCES[cells(case)["dtype"]]


def test_both_gradients_of_recurrent_layers_have_half_of_their_time_each_and_a_bare_one_has_a_narrow_input() -> (
    None
):
    passes = [make_case(cells({**RNN, "cell": "gru", "pass_name": name}), "cpu")
              for name in ("forward", "backward_input", "backward_weight")]  # fmt: skip
    assert [one.share for one in passes] == [1.0, 0.5, 0.5]
    assert len(passes[1].run()) == len(passes[2].run()) == 5  # four parameters and the input
    bare = make_case(cells({**RNN, "cell": "lstm", "pass_name": "backward_input", "input_size": "0"}), "cpu")
    assert bare.run()[-1].shape == (4, 3, 4)
    ticks = Watch(lambda run, times: [run() for _ in range(times)] and 0.1 * times, 0.0, lambda: None)
    assert set(time_case(passes[1], ticks, Effort(most=6)).warm) == {0.05}


def test_every_maker_is_tried() -> None:
    assert {case["kind"] for case in CASES} == set(MAKERS)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["kind"] + case.get("pass_name", ""))
def test_a_wrong_result_is_seen(case: dict[str, str]) -> None:
    made = make_case(cells(case), "cpu")
    result = made.run()
    first = result[0] if isinstance(result, tuple) else result
    wrong = first.detach().clone()
    wrong[(0,) * wrong.dim()] += 0.5 * wrong.abs().max() + 0.5
    rest = result[1:] if isinstance(result, tuple) else ()
    # A product checks some rows only, so all of them are made wrong.
    wrong = wrong + 0.5 * wrong.abs().max() if case["kind"] == "gemm" else wrong
    assert made.check((wrong, *rest) if rest else wrong) > TOLERANCES[cells(case)["dtype"]]


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ({"kind": "collective"}, "not timed here"),
        ({"kind": "gemm", "m": "3"}, "missing or no number"),
        ({"kind": "gemm", "b": "1", "m": "2", "n": "2", "k": "2", "dtype": "fp8"}, "format fp8"),
        ({"kind": "pointwise", **WORK, "write_byte": "4"}, "its bytes"),
        ({"kind": "copy", "op": "weight cast", **WORK, "write_byte": "4"}, "those of a cast"),
        ({"kind": "gemm", "b": "1", "m": "2", "n": "2", "k": "2", "layout": "column_major"}, "not row-major"),
        ({**CONV, "pass_name": "forward", "transposed": "1"}, "transposed convolutions"),
        ({"kind": "optimizer", "rule": "newton", "impl": "foreach", "numel": "4", "tensors": "1"}, "rule newton"),
    ],
)
def test_what_cannot_be_timed_says_why(case: dict[str, str], said: str) -> None:
    with pytest.raises(CannotTimeError, match=said):
        make_case(cells(case), "cpu")
    if "missing" not in said:  # sizes are those of a checked table where a pack is planned
        with pytest.raises(CannotTimeError, match=said):
            check_case(cells(case))


def test_a_copy_between_formats_is_a_cast_and_one_of_several_tensors_joins_them() -> None:
    down = {"kind": "copy", "dtype": "bf16", **WORK, "read_byte": "480", "write_byte": "240"}
    assert make_case(cells(down), "cpu").run().dtype == torch.bfloat16
    assert make_case(cells({**down, "op": "gradient cast", "read_byte": "240", "write_byte": "480"}), "cpu").run(
    ).dtype == torch.float32  # fmt: skip
    joined = make_case(cells({"kind": "copy", **WORK, "read_byte": "480", "inputs": "3"}), "cpu").run()
    assert joined.shape == (8, 15)


# --- the pack ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def estimates() -> list[Any]:
    return [fomkit.estimate("p1b3", "v100", batch=4)]


def test_a_pack_asks_for_the_ops_that_carry_the_step(estimates: list[Any]) -> None:
    table = dominant_ops(estimates)
    (one,) = estimates
    timed = one.ops.assign(seconds=one.ops["time_s"] * one.ops["count"])
    longest = timed.sort_values("seconds", ascending=False).iloc[0]
    assert table.iloc[0]["kind"] == longest["kind"]
    assert table["time_s"].isna().all()
    assert len(table) < len(timed)
    assert not table.drop(columns=["note", "shares"]).duplicated().any()


@pytest.mark.slow
def test_the_script_runs_alone_and_what_it_writes_is_used(models: dict[str, Any], tmp_path: Path) -> None:
    model = models["mlp"]  # small: timing an update of P1B3's thirty million weights takes seconds
    for name, text in make_pack([fomkit.estimate(model, "v100", batch=4)]).files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    script = (tmp_path / "time_ops.py").read_text(encoding="utf-8")
    assert not re.search(r"^\s*(from|import) fomkit", script, re.MULTILINE)
    done = subprocess.run(
        [sys.executable, "time_ops.py", "cases.csv", "-o", "timed.csv", "--device", "cpu"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    with (tmp_path / "timed.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    products = [row for row in rows if row["kind"] == "gemm"]
    assert products
    assert all(float(row["p25_s"]) <= float(row["time_s"]) <= float(row["p75_s"]) for row in rows)
    assert all("checked to" in row["note"] and "Python" in row["note"] for row in rows)
    imported = subprocess.run(
        [sys.executable, "-m", "fomkit", "import", "timed.csv", "-o", "delivered.yaml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert imported.returncode == 0, imported.stderr
    machine = fomkit.machine(tmp_path / "delivered.yaml")
    requested = fomkit.estimate(model, machine, batch=4, allow_uncovered=True)
    measured = requested.ops[requested.ops["time_source"] == "measured"]
    assert len(measured[measured["kind"] == "gemm"]) >= len(products)


MLP = """
import torch

model = torch.nn.Sequential(torch.nn.Linear(784, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 10))
batch_size, train_samples, epochs = 64, 60_000, 10
optimizer = torch.optim.Adam(model.parameters())


def inputs(batch):
    return torch.zeros(batch, 784), torch.zeros(batch, dtype=torch.long)


def loss_fn(output, inputs):
    return torch.nn.functional.cross_entropy(output, inputs[1])
"""


GPT2 = "LAYERS, WIDTH, HEADS, POSITIONS, VOCABULARY = 12, 768, 12, 1024, 50257"


@pytest.fixture(scope="module")
def models(root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Models by name; GPT-2 as it ships, but of few weights."""
    folder = tmp_path_factory.mktemp("models")
    gpt2 = (root / "model_profiles" / "src" / "gpt2.py").read_text(encoding="utf-8")
    assert gpt2.count(GPT2) == 1
    small = gpt2.replace(GPT2, "LAYERS, WIDTH, HEADS, POSITIONS, VOCABULARY = 3, 192, 3, 64, 5025")
    (folder / "gpt2.py").write_text(small, encoding="utf-8")
    (folder / "mlp.py").write_text(MLP, encoding="utf-8")
    return {**{name: fomkit.profile(folder / f"{name}.py") for name in ("mlp", "gpt2")}, "resnet50": "resnet50"}


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", ["mlp", "gpt2", "resnet50"])
@pytest.mark.slow
def test_the_script_times_what_its_pack_asks_for(
    name: str, precision: Any, tmp_path: Path, models: dict[str, Any]
) -> None:
    model = models[name]
    sizes = {"seq": 32} if name == "gpt2" else {}
    batch = 64 if name == "mlp" else 1
    pack = make_pack(
        [fomkit.estimate(model, "a100-sxm", batch=batch, sizes=sizes, precision=precision, allow_uncovered=True)]
    )
    for file, text in pack.files.items():
        (tmp_path / file).write_text(text, encoding="utf-8")
    script = runpy.run_path(str(tmp_path / "time_ops.py"))
    rows, _ = script["read_cases"](tmp_path / "cases.csv")
    made = 0.0
    for row in rows:
        numbers = [float(row[column]) for column in ("numel", "row", "read_byte", "write_byte") if row.get(column)]
        assert all(number.is_integer() for number in numbers), row
        script["checked_case"](row, "cpu")  # raises where the script refuses the op or computes it wrongly
        made += float(row["note"].rpartition(" ")[2].rstrip("%")) / 100
    ((share,), (requested,)) = pack.timed.values(), pack.requested.values()
    assert 0.9 <= share == pytest.approx(requested)
    assert made == pytest.approx(share, abs=0.01)
    assert f"time_ops.py can time {share:.1%}" in pack.files["README.txt"]


def test_what_the_script_cannot_time_is_told_with_its_share() -> None:
    (one,) = [fomkit.estimate("p1b3", "v100", batch=4)]
    strange = one.ops.assign(rule=one.ops["rule"].mask(one.ops["kind"] == "optimizer", "newton"))
    pack = make_pack([replace(one, detail=replace(one.detail, ops=lambda: strange))])
    lost = (one.ops["time_s"] * one.ops["count"])[one.ops["kind"] == "optimizer"].sum()
    share = lost / (one.ops["time_s"] * one.ops["count"]).sum()
    assert pack.requested["p1b3"] - pack.timed["p1b3"] == pytest.approx(share)
    assert any("the rule newton is not timed here" in line for line in pack.lines)


@pytest.mark.parametrize(
    "text", [None, "", "a,b\n1,2\n", "kind,dtype,engine,time_s,note\n", b"\xff\xfe\x00garbage"]
)
def test_a_file_that_is_no_table_is_one_message(text: str | bytes | None, tmp_path: Path, capsys) -> None:
    path = tmp_path / "cases.csv"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert main([str(path), "-o", str(tmp_path / "timed.csv"), "--device", "cpu"]) == 2
    told = capsys.readouterr().err
    assert told.startswith(str(path))
    assert told.count("\n") == 1
    assert not (tmp_path / "timed.csv").exists()
