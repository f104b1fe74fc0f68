"""`fomkit predict` and foreign op tables: each row gets a time, and no column or row is lost."""

from __future__ import annotations

import csv
import gzip
import math
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from costs.op_tables import tables
from hypothesis import given, settings
from predict.machines import device, fact, machine, timings
from terminal import in_this_process

import fomkit
from fomkit.core.errors import FomkitError
from fomkit.files.op_csv import read_numbered_table
from fomkit.ops.check import fill_defaults
from fomkit.ops.tables import COSTS, TIMES
from fomkit.plan.op_tables import predict_ops
from fomkit.profiles.evidence import with_fits

MADE = [column.name for column in (*COSTS, *TIMES)]
GEMM = "kind,dtype,m,n,k\ngemm,fp32,64,100,784\n"
FACTS = machine(device(fact(5e-6), fact(9e11), fp32_vector=1.5e13))


def run(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return in_this_process("predict", *map(str, arguments), cwd=cwd)


def written(folder: Path, text: str, name: str = "ops.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def cells(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(text.splitlines()))


def test_a_minimal_table_is_priced_and_every_default_is_said(tmp_path: Path) -> None:
    written(tmp_path, GEMM)
    done = run("ops.csv", "-t", "v100", "-o", "timed.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (row,) = cells((tmp_path / "timed.csv").read_text())
    assert list(row)[:5] == ["kind", "dtype", "m", "n", "k"]
    assert (row["op"], row["engine"], row["pass_name"], row["count"], row["b"]) == (
        "gemm", "vector", "forward", "1", "1",
    )  # fmt: skip
    assert float(row["flop"]) == 2 * 64 * 100 * 784
    assert 0 < float(row["low_s"]) < float(row["time_s"]) < float(row["high_s"])
    for column in ("b", "op", "engine", "pass_name", "count"):
        assert f"ops.csv: {column}: not given in any row; taken as" in done.stderr
    assert "ops.csv on v100: 1 row, 1 priced" in done.stdout
    assert "sum of time × count: " in done.stdout
    assert "(80% interval " in done.stdout


def test_without_an_output_the_table_is_all_that_is_printed(tmp_path: Path) -> None:
    written(tmp_path, GEMM)
    done = run("ops.csv", "-t", "v100", cwd=tmp_path)
    assert done.returncode == 0
    assert len(cells(done.stdout)) == 1
    assert set(MADE) <= set(cells(done.stdout)[0])
    assert "1 row, 1 priced" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["ops.csv"]


def test_rows_stay_in_order_and_twice_is_once(tmp_path: Path, root: Path) -> None:
    source = root / "model_profiles" / "alexnet.ops.csv"
    first = run(source, "-t", "p100", "--set", "batch=32", "-o", "once.csv", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    once = (tmp_path / "once.csv").read_text()
    given_rows, timed_rows = cells(source.read_text()), cells(once)
    assert len(given_rows) == len(timed_rows)
    for before, after in zip(given_rows, timed_rows, strict=True):
        for column, text in before.items():
            assert after[column] == text or "batch" in text
    second = run("once.csv", "-t", "p100", cwd=tmp_path)
    assert second.stdout == once
    assert "recomputed" in second.stderr


def test_the_sum_is_what_the_rows_say(root: Path) -> None:
    source = root / "model_profiles" / "alexnet.ops.csv"
    found = fomkit.predict(source, "v100", sizes={"batch": 64})
    model = fomkit.estimate("alexnet", "v100", batch=64)
    total = found.content["time_s"]
    # Convolutions that the table lacks count by their means.
    rows_s = float((found.ops["time_s"] * found.ops["count"]).sum())
    assert rows_s < total["value"] < 1.02 * rows_s
    assert [line for line in found.said if line.startswith("the sum uses the mean of 4 rows, up to ")]
    device_s = model.step_time.device_s
    assert (total["value"], total["low"], total["high"]) == pytest.approx(
        (device_s.value, device_s.low, device_s.high), rel=1e-12
    )


def test_what_has_no_price_is_empty_listed_and_exit_code_1(tmp_path: Path) -> None:
    written(tmp_path, "kind,dtype,m,n,k,numel,time_s\ngemm,fp32,8,8,8,,\nother,fp32,,,,100,7\nother,fp32,,,,1,7\n")
    done = run("ops.csv", "-t", "v100", "-o", "timed.csv", cwd=tmp_path)
    assert done.returncode == 1
    assert "3 rows, 1 priced" in done.stdout
    assert "unpriced, kind other: 2 (lines 3, 4): its flop or its bytes are not known" in done.stdout
    assert "at least" in done.stdout
    rows = cells((tmp_path / "timed.csv").read_text())
    assert float(rows[0]["time_s"]) > 0
    assert [rows[1][name] for name in ("time_s", "low_s", "high_s", "time_source")] == [""] * 4
    assert rows[1]["evidence"] == "its flop or its bytes are not known"
    allowed = run("ops.csv", "-t", "v100", "-o", "timed.csv", "--force", "--allow-uncovered", cwd=tmp_path)
    assert allowed.returncode == 0


def test_nothing_priced_has_no_sum(tmp_path: Path) -> None:
    written(tmp_path, GEMM)
    written(tmp_path, "schema: fomkit/machine/1\nname: bare\n", "bare.yaml")
    done = run("ops.csv", "-t", "bare.yaml", "-o", "timed.csv", cwd=tmp_path)
    assert done.returncode == 1
    assert "1 row, 0 priced" in done.stdout
    assert "sum of" not in done.stdout


def test_columns_of_their_own_survive_as_they_stand(tmp_path: Path) -> None:
    text = "vendor id,kind,dtype,m,n,k,=SUM(A1)\n-5,gemm,fp32,8,8,8,=cmd()\n 007,gemm,fp32,8,8,8,'kept\n"
    written(tmp_path, text)
    done = run("ops.csv", "-t", "v100", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = cells(done.stdout)
    assert [row["vendor id"] for row in rows] == ["-5", " 007"]
    assert [row["'=SUM(A1)"] for row in rows] == ["'=cmd()", "'kept"]
    assert "vendor id, =SUM(A1): unknown; kept unchanged and ignored." in done.stderr
    written(tmp_path, done.stdout, "again.csv")
    assert run("again.csv", "-t", "v100", cwd=tmp_path).stdout == done.stdout


def test_a_slip_in_a_name_is_no_column_of_their_own(tmp_path: Path) -> None:
    written(tmp_path, GEMM.replace("k\n", "k,tran_b\n").replace("784\n", "784,1\n"))
    done = run("ops.csv", "-t", "v100", cwd=tmp_path)
    assert done.returncode == 2
    assert (
        "ops.csv:1: the column 'tran_b' is not a column of a table of ops. The nearest names are 'trans_b'"
        in done.stderr
    )
    assert "--keep 'tran_b'" in done.stderr
    assert done.stdout == ""
    assert run("ops.csv", "-t", "v100", "--keep", "tran_b", cwd=tmp_path).returncode == 0
    done = run("ops.csv", "-t", "v100", "--keep", "tran_b", "--keep", "trans", cwd=tmp_path)
    assert done.returncode == 2
    assert "--keep trans: is not a column of ops.csv" in done.stderr


def test_times_in_another_unit_are_converted(tmp_path: Path) -> None:
    written(tmp_path, GEMM.replace("k\n", "k,traced_time_MS\n").replace("784\n", "784,1\n"))
    done = run("ops.csv", "-t", "v100", "-o", "out.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert pd.read_csv(tmp_path / "out.csv")["traced_time_s"].tolist() == [0.001]
    written(tmp_path, GEMM.replace("k\n", "k,time_us\n").replace("784\n", "784,10\n"))
    done = run("ops.csv", "-t", "v100", "-o", "out.csv", "--force", "--keep", "time_us", cwd=tmp_path)
    assert pd.read_csv(tmp_path / "out.csv")["time_us"].tolist() == [10], done.stderr


def test_sizes_are_asked_for_by_name(tmp_path: Path) -> None:
    written(tmp_path, GEMM.replace("64", "2*batch"))
    done = run("ops.csv", "-t", "v100", cwd=tmp_path)
    assert done.returncode == 2
    assert "its dimensions use batch. Give values, for example --set batch=64." in done.stderr
    wrong = run("ops.csv", "-t", "v100", "--set", "batch=8", "--set", "bach=9", cwd=tmp_path)
    assert "no dimension uses the size 'bach'. The nearest name is 'batch'" in wrong.stderr
    right = run("ops.csv", "-t", "v100", "--set", "batch=32", cwd=tmp_path)
    assert [row["m"] for row in cells(right.stdout)] == ["64"]


def test_a_packed_table_is_read(tmp_path: Path) -> None:
    (tmp_path / "ops.csv.gz").write_bytes(gzip.compress(GEMM.encode()))
    assert run("ops.csv.gz", "-t", "v100", cwd=tmp_path).returncode == 0


def test_nothing_is_overwritten_without_force(tmp_path: Path) -> None:
    written(tmp_path, GEMM)
    written(tmp_path, "mine", "timed.csv")
    done = run("ops.csv", "-t", "v100", "-o", "timed.csv", cwd=tmp_path)
    assert (done.returncode, "exists already" in done.stderr) == (2, True)
    assert (tmp_path / "timed.csv").read_text() == "mine"
    assert run("ops.csv", "-t", "v100", "-o", "timed.csv", "--force", cwd=tmp_path).returncode == 0
    assert "Use .json or .csv" in run("ops.csv", "-t", "v100", "-o", "t.ods", cwd=tmp_path).stderr


@given(tables)
@settings(max_examples=30, deadline=None)
def test_the_whole_way_obeys_the_laws(ops: pd.DataFrame) -> None:
    ops = ops.assign(mine=[f"={row}" for row in range(len(ops))]).set_axis([f"r{row}" for row in range(len(ops))])
    before = ops.copy(deep=True)
    timed = predict_ops(ops, with_fits(FACTS)).ops
    pd.testing.assert_frame_equal(ops, before)
    assert timed.index.equals(ops.index)
    assert list(timed.columns[: len(ops.columns)]) == list(ops.columns)
    assert timed["mine"].tolist() == ops["mine"].tolist()
    assert set(timed.columns) - set(ops.columns) <= {*MADE, "b", "pass_name", "op", "engine", "count"} | set(
        fill_defaults(ops.drop(columns="mine"))[0].columns
    )
    pd.testing.assert_frame_equal(predict_ops(timed, with_fits(FACTS)).ops, timed)


@given(tables)
@settings(max_examples=30, deadline=None)
def test_defaults_touch_only_what_is_empty(ops: pd.DataFrame) -> None:
    filled, said = fill_defaults(ops)
    for name in ops.columns:
        stated = ops[name].notna() & (ops[name].astype(str) != "")
        assert (filled.loc[stated, name] == ops.loc[stated, name]).all()
    assert filled.index.equals(ops.index)
    again, nothing = fill_defaults(filled)
    assert nothing == ()
    pd.testing.assert_frame_equal(again, filled)
    assert bool(said) == (not filled.equals(ops))


def test_a_convolution_in_two_dimensions_needs_no_third() -> None:
    row = {"kind": "conv", "dtype": "fp16", "batch": 8, "in_channels": 64, "out_channels": 64, "height": 56}
    row |= {"width": 56, "kernel_h": 3, "kernel_w": 3, "stride_h": 1, "stride_w": 1, "pad_h": 1, "pad_w": 1}
    found = fomkit.predict(pd.DataFrame([row]), "v100")
    assert found.ops["flop"].tolist() == [2 * 8 * 64 * 64 * 56 * 56 * 9]
    assert found.ops["engine"].tolist() == ["matrix"]
    with pytest.raises(FomkitError, match="'stride_h' is missing, which kind conv needs"):
        fomkit.predict(pd.DataFrame([row]).drop(columns="stride_h"), "v100")


def test_whole_numbers_of_pandas_do_not_overflow() -> None:
    row = {"kind": "gemm", "dtype": "fp32", "m": 2**31, "n": 2**31, "k": 2**31}
    found = predict_ops(
        pd.DataFrame([row], dtype=object).astype({"m": "int64", "n": "int64", "k": "int64"}), with_fits(FACTS)
    )
    assert found.ops["flop"].tolist() == [2.0**94]
    assert found.ops["time_s"].iloc[0] > 1e14


def test_a_sum_over_unpriced_rows_is_told_as_a_lower_bound() -> None:
    ops = pd.DataFrame(
        {"kind": ["gemm", "other"], "dtype": "fp32", "m": [8, np.nan], "n": [8, np.nan], "k": [8, np.nan]}
    )
    found = predict_ops(ops, with_fits(FACTS))
    content = found.content
    assert content["unpriced"] == {"other": [1]}
    assert math.isnan(found.ops["time_s"].iloc[1])
    assert "sum of time × count: at least" in found.summary()
    assert "unpriced, kind other: 1 (row 1)" in found.summary()


def test_a_row_without_a_time_says_why() -> None:
    rows = {"kind": ["gemm", "collective"], "dtype": ["fp8", "fp32"], "collective": [None, "all_reduce"]}
    sizes = {
        "m": [8, np.nan],
        "n": [8, np.nan],
        "k": [8, np.nan],
        "message_byte": [np.nan, 1e6],
        "ranks": [None, 8],
    }
    found = fomkit.predict(pd.DataFrame({**rows, **sizes, "link": [None, "node"]}), "titan")
    why = ["no rate and no timing in fp8 (matrix)", "no link and no timing of 8 devices"]
    assert found.ops["evidence"].tolist() == why
    assert found.content["why_unpriced"] == {"gemm": why[:1], "collective": why[1:]}
    assert all(f"): {one}" in found.summary() for one in why)


def test_a_vendors_timings_price_a_vendors_table(tmp_path: Path) -> None:
    sizes = {"b": 1.0, "m": 64.0, "n": 100.0, "k": 784.0}
    timed = {"kind": "gemm", "dtype": "fp32", "engine": "vector", "time_s": 21e-6, **sizes}
    known = machine(None, timings({**timed, "source_file": "v.csv", "source_row": 7.0}))
    found = predict_ops(read_numbered_table(written(tmp_path, GEMM), "TIMED", keep=()), with_fits(known))
    assert found.ops["time_s"].tolist() == [21e-6]
    assert found.ops["time_source"].tolist() == ["measured"]
    assert "v.csv row 7" in found.ops["evidence"].iloc[0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"batch": "8"}, "batch: is '8'. Give a whole number"),
        ({"batch": 8.0}, "batch: is 8.0"),
        ({"batch": True}, "batch: is True"),
        ({"batch": 0}, "Give a whole number of 1 or more"),
        ({"interval": "wide"}, "interval: is 'wide'"),
        ({"interval": 80}, "interval: is 80"),
        ({"scope": "rack"}, "scope: is 'rack'. Give device, node or system"),
        ({"sizes": [1]}, "sizes: is"),
        ({"sizes": {"seq": "long"}}, "seq: is 'long'"),
    ],
)
def test_slips_in_python_are_messages(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(FomkitError, match=words):
        fomkit.estimate("resnet50", "v100", **arguments)  # type: ignore[arg-type]


def test_wrong_things_in_python_are_messages() -> None:
    for wrong in (5, None, {"kind": ["gemm"]}):
        with pytest.raises(FomkitError, match="Give a path or a DataFrame"):
            fomkit.predict(wrong, "v100")  # type: ignore[arg-type]
        with pytest.raises(FomkitError, match="Give a name, a path or a loaded model profile"):
            fomkit.estimate(wrong, "v100")  # type: ignore[arg-type]
    with pytest.raises(FomkitError, match="has no rows"):
        fomkit.predict(pd.DataFrame({"kind": []}), "v100")
    with pytest.raises(FomkitError, match="column names must be texts"):
        fomkit.predict(pd.DataFrame([[1]]), "v100")
    with pytest.raises(FomkitError, match="the required column 'dtype' is missing"):
        fomkit.predict(pd.DataFrame({"kind": ["gemm"]}), "v100")


def test_numpy_whole_numbers_are_whole_numbers() -> None:
    assert fomkit.estimate("alexnet", "v100", batch=np.int64(8)).sizes["batch"] == 8  # type: ignore[arg-type]


@pytest.mark.parametrize("side", ["b", "m", "n", "k"])
def test_a_side_of_zero_is_refused_by_name_at_every_door(tmp_path: Path, side: str) -> None:
    """In a table, in a model's ops at some size, and in the parts of an op."""
    sides = {"b": "1", "m": "8", "n": "8", "k": "8", side: "0"}
    refused = f"{side} is 0. Expected a whole number of 1 or more"
    written(tmp_path, f"kind,dtype,{','.join(sides)}\ngemm,fp32,{','.join(sides.values())}\n")
    done = run("ops.csv", "-t", "v100", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"ops.csv:2: {refused}" in done.stderr
    plain, names = "aten::mm,{},fp32,{},forward,1", "op,kind,dtype,engine,pass_name,count"
    product = f"{plain.format('gemm', 'vector')},{','.join({**sides, side: 'seq - 1'}.values())}\n"
    head = "schema: fomkit/model/1\nname: made\ntitle: made up\nsizes: {batch: 1, seq: 8}\nops: made.csv\n"
    written(tmp_path, f"{names},{','.join(sides)}\n{product}", "made.csv")
    model = fomkit.model(written(tmp_path, head, "made.yaml"))
    assert fomkit.estimate(model, "v100").step.value > 0
    with pytest.raises(FomkitError, match=f"made: row 0: {refused}"):
        fomkit.estimate(model, "v100", sizes={"seq": 1})
    attention = f"{plain.format('attention', 'vector')},1,4,4,seq,seq,64,0\n"
    written(tmp_path, f"{names},batch,heads,kv_heads,q_len,kv_len,head_dim,causal\n{attention}", "made.csv")
    written(tmp_path, f"of,{names},{','.join(sides)}\n0,{product}", "made.parts.csv")
    model = fomkit.model(written(tmp_path, f"{head}parts: made.parts.csv\n", "made.yaml"))
    with pytest.raises(FomkitError, match=f"made: row 0: {refused}"):
        fomkit.estimate(model, "v100", sizes={"seq": 1})
