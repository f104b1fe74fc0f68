"""Foreign records as measurements: DAWNBench entries, the benchmarker's records (and back), MLPerf logs."""

from __future__ import annotations

import contextlib
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_cli import fail, succeed

from fomkit.core.errors import FomkitError
from fomkit.core.measurement import Measurement
from fomkit.files.write import write_table
from fomkit.readers.measurements import import_measurements, read_measurements
from fomkit.readers.records import IMPORTERS, format_benchmarker
from fomkit.readers.registry import choose_import

ENTRY = {
    "version": "v1.0", "author": "Stanford DAWN", "authorEmail": "", "framework": "MXNet 0.11.0",
    "model": "ResNet152", "hardware": "8 K80 / 488 GB / 32 CPU (Amazon EC2 [p2.8xlarge])",
    "costPerHour": 4.56, "timestamp": "2017-10-27", "misc": "",
}  # fmt: skip
LOG = """hours\tepoch\ttop1Accuracy\ttop5Accuracy
2.2974002777777778\t1\t15.828299999999999\t36.581199999999995
241.72017361111114\t106\t76.37119999999999\t92.94879999999999
243.99949777777786\t107\t76.421\t93.0046
246.2796822222223\t108\t76.3154\t92.9767
"""
RECORD: dict[str, Any] = {
    "batch_size": 32, "batch_size_per_device": 32, "device": "Tesla V100-SXM2-16GB", "framework": "pytorch",
    "framework_full": "PyTorch-1.8.1+cu102", "gpus": [0], "mode": "training", "nb_epoch": 10, "nb_gpus": 1,
    "platform": {"cpu": {"brand": "A  CPU @ 2.40GHz", "cache": {"1": 32768}}, "ram": {"total": None}},
    "power": {"joules_total": 6390.089641553024},
    "problem": {"cnt_batches_per_epoch": 16, "cnt_samples": 512, "name": "resnet50", "precision": "FP32"},
    "samples_per_second": 321.24497559041674, "time_epoch": 1.5937992463819683,
}  # fmt: skip
OLDER: dict[str, Any] = {
    "batch_size": 32, "device": "Tesla V100-SXM2-16GB", "framework": "tensorflow", "misc": None, "gpus": [0],
    "nb_gpus": 1, "problem": {"name": "resnet50", "shape_x_train": [2048, 224, 224, 3]}, "time": 37.598225,
}  # fmt: skip


def line(key: str, time_ms: Any, value: Any = None, **metadata: Any) -> str:
    event = {
        "namespace": "",
        "time_ms": time_ms,
        "event_type": "X",
        "key": key,
        "value": value,
        "metadata": metadata,
    }
    return f"0: :::MLLOG {json.dumps(event)}"


HEAD = [
    line("submission_benchmark", 0, "resnet"), line("submission_platform", 0, "8xA100"),
    line("submission_org", 0, "Somebody"), line("global_batch_size", 0, 3264),
]  # fmt: skip
MLLOG = [
    "some other line", *HEAD, line("run_start", 1_600_000_000_000),
    line("eval_accuracy", 1_600_000_900_000, 0.7591), line("run_stop", 1_600_001_700_500, status="success"),
]  # fmt: skip


def write(path: Path, content: Any) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def rows(path: Path, tmp_path: Path, **named: str) -> tuple[tuple[Measurement, ...], tuple[str, ...]]:
    """Import a file, write the table and read it back, as a user does."""
    found = import_measurements(path, choose_import(path, None, None)[0], **named)
    write_table(found.table, tmp_path / "measured.csv", "MEASUREMENTS")
    return read_measurements(tmp_path / "measured.csv"), found.messages


def test_a_dawnbench_entry_is_a_run_to_its_quality(tmp_path: Path) -> None:
    write(tmp_path / "entry.tsv", LOG)
    (row,), said = rows(write(tmp_path / "entry.json", ENTRY), tmp_path)
    assert (row.quantity, row.basis, row.party) == ("run_s", "measured", "published")
    assert row.value / 3600 == pytest.approx(243.9995, abs=1e-4)
    assert "top5Accuracy 93.0046 in epoch 107; 4.56 USD/h, 1112.64 USD" in row.note
    assert (row.framework, row.framework_version, row.date) == ("MXNet", "0.11.0", "2017-10-27")
    assert (row.batch, row.devices, row.precision) == (None, None, "")
    assert any("--model names its profile" in one for one in said)


def test_a_dawnbench_latency_is_of_one_sample(tmp_path: Path) -> None:
    entry = {**ENTRY, "latency": 4.218, "cost": 1.54e-06, "top5Accuracy": 93.16}
    (row,), _ = rows(write(tmp_path / "entry.json", entry), tmp_path, model="resnet50", machine="p4")
    assert (row.quantity, row.value, row.batch) == ("latency_s", pytest.approx(4.218e-3), 1)
    assert (row.model, row.machine) == ("resnet50", "p4")
    assert "model 'ResNet152' in the file" in row.note


def test_a_record_as_the_benchmarker_s_paper_prints_it_comes_in_and_back(tmp_path: Path) -> None:
    record = {name: value for name, value in RECORD.items() if name not in ("platform", "power")}
    printed = {**record, "problem": "resnet50"}
    (row,), _ = rows(write(tmp_path / "record.json", printed), tmp_path)
    assert (row.model, row.quantity, row.batch) == ("resnet50", "sample_per_s", 32)
    assert row.value == pytest.approx(321.245, rel=1e-5)
    assert json.loads(format_benchmarker([row])) == printed
    with pytest.raises(FomkitError, match=r"(model|name) is missing"):
        rows(write(tmp_path / "none.json", {**record, "problem": ""}), tmp_path)


def test_a_record_of_the_benchmarker(tmp_path: Path) -> None:
    (row,), _ = rows(write(tmp_path / "a.json", RECORD), tmp_path)
    assert (row.model, row.machine, row.quantity) == ("resnet50", "Tesla V100-SXM2-16GB", "sample_per_s")
    assert (row.value, row.batch, row.precision, row.devices) == (RECORD["samples_per_second"], 32, "fp32", 1)
    assert (row.repeats, row.scope, row.framework_version) == (10, "device", "PyTorch-1.8.1+cu102")


def test_an_older_record_states_a_time_in_the_place_of_a_rate(tmp_path: Path) -> None:
    (row,), _ = rows(write(tmp_path / "a.json", OLDER), tmp_path)
    assert row.value == pytest.approx(54.4707, abs=5e-5)


def test_inference_is_no_training(tmp_path: Path) -> None:
    record = {**RECORD, "mode": "inference", "time_batch": 0.0996}
    (row,), _ = rows(write(tmp_path / "a.json", record), tmp_path)
    assert (row.quantity, row.value) == ("latency_s", 0.0996)
    assert json.loads(format_benchmarker([row])) == record


@pytest.mark.parametrize("record", [RECORD, OLDER, [RECORD, OLDER]], ids=["new", "old", "both"])
def test_unknown_fields_come_back_unchanged(record: Any, tmp_path: Path) -> None:
    source = write(tmp_path / "a.json", record)
    found, _ = rows(source, tmp_path)
    assert json.loads(format_benchmarker(found)) == record
    succeed("import", "a.json", "-o", "b.csv", cwd=tmp_path)
    assert "Written: back.json" in succeed("export", "b.csv", "-o", "back.json", cwd=tmp_path)
    assert json.loads((tmp_path / "back.json").read_text()) == record
    assert "exists already" in fail("export", "b.csv", "-o", "back.json", cwd=tmp_path)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.floats(-1e9, 1e9) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(extra=st.dictionaries(st.text(min_size=1, max_size=8).filter(lambda key: key not in RECORD), VALUES))
def test_whatever_else_a_record_says_comes_back(extra: dict[str, Any], tmp_path_factory: Any) -> None:
    extra.pop("time", None)
    extra.pop("time_batch", None)
    folder = tmp_path_factory.mktemp("extra")
    found, _ = rows(write(folder / "a.json", {**RECORD, **extra}), folder)
    assert json.loads(format_benchmarker(found)) == {**RECORD, **extra}


def test_rows_that_were_never_records_become_some() -> None:
    row = Measurement(
        "x:1", "tc1", "v100", "sample_per_s", 98.2, 98.2, 98.2, False, "measured", batch=20, precision="fp32"
    )
    made = json.loads(format_benchmarker([row]))
    assert made["problem"] == {"name": "tc1", "precision": "FP32"}
    assert (made["samples_per_second"], made["batch_size"], made["device"]) == (98.2, 20, "v100")
    epoch = Measurement("x:1", "tc1", "v100", "epoch_s", 44, 44, 44, False, "measured")
    with pytest.raises(FomkitError, match="epoch_s has no field"):
        format_benchmarker([epoch])


def test_an_mlperf_log_is_a_run(tmp_path: Path) -> None:
    (row,), _ = rows(write(tmp_path / "log.txt", "\n".join(MLLOG)), tmp_path)
    assert (row.model, row.machine, row.quantity, row.value) == ("resnet", "8xA100", "run_s", 1700.5)
    assert (row.batch, row.scope, row.date, row.note) == (3264, "system", "2020-09-13", "eval_accuracy 0.7591")
    assert row.source == "MLPerf log log.txt:6, Somebody"


def test_a_run_that_was_aborted_is_told_and_left_out(tmp_path: Path) -> None:
    aborted = [line("run_start", 1_600_002_000_000), line("run_stop", 1_600_002_500_000, status="aborted")]
    found, said = rows(write(tmp_path / "log.txt", "\n".join([*MLLOG, *aborted])), tmp_path)
    assert [row.value for row in found] == [1700.5]
    assert any("log.txt:9: the run is left out, its status is aborted" in one for one in said)


DEEP = "[" * 100_000
BROKEN: list[tuple[str, str, Any, str]] = [
    ("benchmarker", "a.json", "{", "a.json: is not valid JSON"),
    ("benchmarker", "a.json", '{\n"a": 1\n"b": 2}', "a.json:3: is not valid JSON"),
    ("benchmarker", "a.json", DEEP, "nested too deeply"),
    ("benchmarker", "a.json", '{"device": 1, "device": 2}', "the key 'device' is given twice"),
    ("benchmarker", "a.json", '{"time": NaN}', "NaN is not a finite number"),
    ("benchmarker", "a.json", '{"time": 1e999}', "1e999 is not a finite number"),
    ("benchmarker", "a.json", '{"time": %s}' % ("9" * 5000), "cannot be read"),
    ("benchmarker", "a.json", "[]", "JSON without a record"),
    ("benchmarker", "a.json", "[1]", "JSON without a record"),
    ("benchmarker", "a.json", {**RECORD, "problem": 50}, "problem is neither a name nor an object"),
    ("benchmarker", "a.json", {**RECORD, "batch_size": 2.5}, "batch_size is '2.5'. A whole number"),
    ("benchmarker", "a.json", {**RECORD, "batch_size": True}, "batch_size is 'True'"),
    ("benchmarker", "a.json", {**RECORD, "samples_per_second": -1}, "samples_per_second is '-1'"),
    ("benchmarker", "a.json", {**RECORD, "samples_per_second": 400.0}, "512 samples in 1.5938 s are 321.245"),
    ("benchmarker", "a.json", {**RECORD, "device": ""}, "device is missing"),
    ("benchmarker", "a.json", {**RECORD, "device": "\ud800"}, "device must be a printable text"),
    ("benchmarker", "a.json", {**RECORD, "x": "y" * 40_000}, "a cell holds 32,000"),
    ("benchmarker", "a.json", {"problem": {"name": "a"}, "framework": "b", "device": "c"}, "states no time"),
    ("benchmarker", "a.json", {**RECORD, "mode": "inference"}, "time_batch is missing"),
    ("dawnbench", "a.json", ENTRY, "its log a.tsv is not beside it"),
    ("dawnbench", "a.json", {**ENTRY, "logFilename": "../../etc/passwd"}, "its log a.tsv is not beside it"),
    ("dawnbench", "a.json", {**ENTRY, "latency": "fast"}, "latency is 'fast'. A number above 0"),
    ("dawnbench", "a.json", {**ENTRY, "latency": 1.0, "model": ["x"]}, "model is \"['x']\". A text was expected"),
    ("mllog", "log.txt", ":::MLLOG {", "log.txt:1: is not valid JSON"),
    ("mllog", "log.txt", ":::MLLOG [1]", "log.txt:1: is an MLLOG line without an event"),
    ("mllog", "log.txt", "\n".join(HEAD), "no run in it succeeded (0 ended)"),
    ("mllog", "log.txt", "\n".join(MLLOG[5:]), "submission_benchmark is missing"),
    ("mllog", "log.txt", MLLOG[7], "log.txt:1: a run ends that has not started"),
    ("mllog", "log.txt", "\n".join([MLLOG[5], MLLOG[5]]), "log.txt:2: a run starts before that of"),
    ("mllog", "log.txt", "\n".join([line("run_start", 9), line("run_stop", 8)]), "log.txt:2: a run ends before"),
    ("mllog", "log.txt", line("run_start", "soon"), "time_ms is 'soon'"),
    ("mllog", "log.txt", line("run_start", -1), "time_ms is '-1'"),
]  # fmt: skip


@pytest.mark.parametrize(("file_format", "name", "content", "words"), BROKEN)
def test_what_is_broken_is_refused_with_one_message(
    file_format: str, name: str, content: Any, words: str, tmp_path: Path
) -> None:
    path = write(tmp_path / name, content)
    with pytest.raises(FomkitError) as caught:
        import_measurements(path, file_format)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("", "a.tsv:1: is not a DAWNBench log"),
        ("epoch\thours\n1\t2", "a.tsv:1: is not a DAWNBench log"),
        ("epoch\thours\ttop5Accuracy\n1\t2", "a.tsv:2: has 2 cells where the header has 3"),
        ("epoch\thours\ttop5Accuracy\n1\t2\tmany", "a.tsv:2: a cell is not a number"),
        ("epoch\thours\ttop5Accuracy\n1\t-2\t99", "a.tsv:2: hours is '-2.0'"),
        ("epoch\thours\ttop5Accuracy\n1\tinf\t99", "a.tsv:2: hours is 'inf'"),
        ("epoch\thours\ttop5Accuracy\n1\t2\t92.99", "never reaches top5Accuracy 93"),
    ],
)
def test_a_log_that_states_no_time_is_refused(log: str, words: str, tmp_path: Path) -> None:
    write(tmp_path / "a.tsv", log)
    with pytest.raises(FomkitError) as caught:
        import_measurements(write(tmp_path / "a.json", ENTRY), "dawnbench")
    assert words in str(caught.value)


@given(content=st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_no_file_breaks_a_recogniser_or_a_reader(content: bytes, tmp_path_factory: Any) -> None:
    path = tmp_path_factory.mktemp("any") / "any.json"
    path.write_bytes(content)
    for name, importer in IMPORTERS.items():
        with contextlib.suppress(FomkitError):  # a file that cannot be read at all
            importer.recognise(path)
        with pytest.raises(FomkitError):
            import_measurements(path, name)


def test_the_content_decides_and_one_says_what_is_meant(tmp_path: Path) -> None:
    path = write(tmp_path / "anything.csv", RECORD)
    assert choose_import(path, None, None) == ("benchmarker", "measurements")
    assert choose_import(path, "measurements", None) == ("benchmarker", "measurements")
    assert "a profile" not in fail("import", str(path), "-o", str(tmp_path / "x.yaml"), cwd=tmp_path)
    told = fail("import", str(path), "-o", str(tmp_path / "x.csv"), "--epochs", "3", cwd=tmp_path)
    assert "--epochs: is not for a record of a run" in told
    assert not (tmp_path / "x.csv").exists()
    broken = write(tmp_path / "z.json", json.dumps(RECORD)[:-1])
    assert "z.json: is not valid JSON" in fail("import", str(broken), "-o", "x.csv", cwd=tmp_path)
    assert "not of a known format" in fail("import", str(write(tmp_path / "y", "{}")), "-o", "x.csv", cwd=tmp_path)


def test_an_imported_record_serves_as_a_measured_baseline(tmp_path: Path) -> None:
    write(tmp_path / "a.json", RECORD)
    named = ("--model", "resnet50", "--machine", "v100")
    succeed("import", "a.json", *named, "-o", "measured.csv", cwd=tmp_path)
    arguments = ("estimate", "resnet50", "-t", "p100", "--baseline", "v100", "--from", "measured.csv", "--json")
    (baseline,) = json.loads(succeed(*arguments, cwd=tmp_path))["from_measurements"]["baselines"]
    assert baseline["measured_step_s"]["value"] == pytest.approx(32 / RECORD["samples_per_second"])
    assert math.isclose(baseline["measured_step_s"]["value"], 0.0996, rel_tol=1e-3)


def test_what_has_no_field_in_a_record_comes_back_too(tmp_path: Path) -> None:
    row = Measurement(
        "x:1", "tc1", "v100", "sample_per_s", 98.2, 95.5, 101.0, True, "estimated", batch=20, precision="fp32",
        repeats=7, devices=1, scope="device", framework="pytorch", party="vendor", date="2024-05-01",
        source="their slides", note="by hand", holds="validation",
    )  # fmt: skip
    path = tmp_path / "made.json"
    path.write_text(format_benchmarker([row]), encoding="utf-8")
    assert json.loads(path.read_text())["fomkit"]["party"] == "vendor"
    (back,), _ = rows(path, tmp_path)
    assert replace(back, where="", record="") == replace(row, where="")
    assert json.loads(format_benchmarker([back])) == json.loads(path.read_text())


@pytest.mark.parametrize("stranger", [3, {"low": "x"}, {"colour": 1}, {"party": None}])
def test_a_stranger_s_field_of_our_name_stays_as_it_is(stranger: Any, tmp_path: Path) -> None:
    found, _ = rows(write(tmp_path / "a.json", {**RECORD, "fomkit": stranger}), tmp_path)
    assert json.loads(format_benchmarker(found)) == {**RECORD, "fomkit": stranger}
