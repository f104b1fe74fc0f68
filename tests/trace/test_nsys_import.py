"""Exports of Nsight Systems become op tables if NVTX states sizes; other databases are refused."""

from __future__ import annotations

import math
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from nsys_files import Export, change, linear_steps

from fomkit.core.errors import FomkitError
from fomkit.readers.registry import choose_import, import_model


@pytest.fixture
def report(tmp_path: Path) -> Path:
    export = Export(tmp_path / "report.sqlite")
    linear_steps(export)
    return export.close()


def test_ranges_with_sizes_become_rows(report: Path) -> None:
    assert choose_import(report, None, None) == ("nsys", "model")
    found, said = import_model(report, file_format="nsys", sizes={"batch": 8})
    table = found.ops.set_index("op")
    assert table.loc["aten::addmm", ["m", "n", "k", "count"]].tolist() == [8, 4, 16, 1]
    assert table.loc["aten::addmm", "pass_name"] == "forward"
    assert table.loc["aten::mm", ["m", "n", "k"]].tolist() == [4, 16, 8]
    assert table.loc["aten::mm", "pass_name"] == "backward"
    times = [(op, round(time * 1e6, 6)) for op, time in table["traced_time_s"].items()]
    assert times == [
        ("aten::addmm", 20),
        ("aten::mm", 30),
        ("aten::add_", 3),
        ("aten::add_", 1),
        ("Memcpy HtoD", 5),
    ]
    assert set(table.loc["aten::add_", "pass_name"]) == {"update"}
    assert table.loc["aten::add_", "numel"].tolist() == [64, 4]
    assert table.loc["Memcpy HtoD", "read_byte"] == 512
    assert math.isnan(table.loc["aten::mm", "trans_a"])
    assert found.traced_with["device"] == "NVIDIA A100-SXM4-80GB"
    assert said[0].startswith("partial: NVTX ranges state the sizes of tensors only: fp32 is assumed")


def test_without_sizes_it_is_a_table_of_kernels(tmp_path: Path) -> None:
    export = Export(tmp_path / "report.sqlite")
    linear_steps(export, sized=False)
    found, said = import_model(export.close(), file_format="nsys")
    assert set(found.ops["kind"]) == {"other", "copy"}
    assert found.ops["traced_time_s"].sum() > 0
    assert "emit_nvtx(record_shapes=True)" in said[0]
    assert said[0].startswith(
        "partial: a table of kernels by name, without sizes; fp32 stands for unknown number formats. "
        "Record it with sizes: "
    )


def test_kernels_alone_are_named(tmp_path: Path) -> None:
    export = Export(tmp_path / "report.sqlite")
    for time_us in (2, 4):
        export.kernel("gemm_kernel<float>", time_us)
    path = export.close()
    change(path, "DROP TABLE NVTX_EVENTS; DROP TABLE CUPTI_ACTIVITY_KIND_MEMCPY")
    found, _ = import_model(path, file_format="nsys")
    assert found.ops[["op", "count"]].values.tolist() == [["gemm_kernel<float>", 2.0]]
    assert found.ops["traced_time_s"][0] == pytest.approx(3e-6)


def test_the_same_number_in_two_processes_is_not_one_launch(report: Path) -> None:
    foreign = (
        "start, end, deviceId, contextId, streamId, correlationId, 16777508 << 24, demangledName, shortName, 32"
    )
    change(
        report,
        f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL SELECT {foreign} FROM CUPTI_ACTIVITY_KIND_KERNEL LIMIT 1",
    )
    found, _ = import_model(report, file_format="nsys")
    times = found.ops.set_index("op")["traced_time_s"]
    assert times["aten::addmm"] == pytest.approx(20e-6)


TABLES = {
    "CUPTI_ACTIVITY_KIND_KERNEL": "start, {end}, {device}, contextId, streamId, correlationId, {pid}, "
    "demangledName, shortName, 32",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start, end, {device}, contextId, streamId, correlationId, {pid}, "
    "bytes, copyKind",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start, end, eventClass, globalTid + {other}, correlationId, nameId, 0",
    "NVTX_EVENTS": "start, end, eventType, rangeId, text, globalTid + {other}, textId, domainId",
}  # fmt: skip


def test_of_several_processes_the_busiest_is_taken_and_the_others_named(report: Path) -> None:
    other = 1 << 24
    said = {"end": "end + 1000", "device": "deviceId", "pid": f"globalPid + {other}", "other": other}
    change(
        report,
        ";".join(f"INSERT INTO {name} SELECT {one.format(**said)} FROM {name}" for name, one in TABLES.items()),
    )
    found, said_of_it = import_model(report, file_format="nsys")
    table = found.ops.set_index("op")
    assert set(table["count"]) == {1}
    assert [round(time * 1e6, 6) for time in table.loc[["aten::addmm", "aten::mm"], "traced_time_s"]] == [21, 31]
    assert said_of_it[1] == (
        "partial: the trace is of 2 processes; the busiest is used, process 292 (174 µs), and left out: process "
        "291 (162 µs)"
    )


def test_of_several_devices_of_a_process_the_busiest_is_taken(report: Path) -> None:
    """The other device runs kernels of its own calls, and is named by the file."""
    change(
        report,
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET deviceId = 1 WHERE correlationId % 5 = 2; "
        "INSERT INTO TARGET_INFO_GPU VALUES (0, 1, 'NVIDIA H100', 132, 85000000000)",
    )
    found, said = import_model(report, file_format="nsys")
    assert found.traced_with["device"] == "NVIDIA A100-SXM4-80GB"
    assert "aten::addmm" not in set(found.ops["op"])
    assert any("left out: device 1 (60.0 µs)" in line for line in said)


REFUSED = {
    "DROP TABLE META_DATA_EXPORT": "is an SQLite database, not an export of Nsight Systems",
    "UPDATE META_DATA_EXPORT SET value = '4.0.0'": "its export schema has version '4.0.0'; fomkit knows 3.x",
    "DELETE FROM META_DATA_EXPORT": "its export schema has no version; fomkit knows 3.x",
    "DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL": "has no table CUPTI_ACTIVITY_KIND_KERNEL. Record with CUDA",
    "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL RENAME COLUMN end TO until": "has no column end: a schema that fomkit",
    "DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL; DELETE FROM CUPTI_ACTIVITY_KIND_MEMCPY": "has no kernel among its",
    "ALTER TABLE StringIds RENAME TO s; CREATE VIEW StringIds AS SELECT * FROM s": "is not a plain table",
    "DROP TABLE TARGET_INFO_GPU; CREATE TABLE TARGET_INFO_GPU (id INT, name TEXT AS (hex(id)))":
        "TARGET_INFO_GPU is not a plain table",
}  # fmt: skip


@pytest.mark.parametrize("script", list(REFUSED))
def test_an_unknown_schema_is_refused_by_name(report: Path, script: str) -> None:
    change(report, script)
    with pytest.raises(FomkitError) as refused:
        import_model(report, file_format="nsys")
    assert REFUSED[script] in str(refused.value)
    assert "\n" not in str(refused.value)


def test_triggers_never_run_and_nothing_is_written(report: Path) -> None:
    change(report, "CREATE TRIGGER t AFTER INSERT ON StringIds BEGIN DELETE FROM NVTX_EVENTS; END")
    before = report.read_bytes()
    import_model(report, file_format="nsys")
    assert report.read_bytes() == before
    assert [one.name for one in report.parent.iterdir()] == [report.name]


def test_a_locked_file_is_read(report: Path) -> None:
    with closing(sqlite3.connect(report)) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        found, _ = import_model(report, file_format="nsys")
    assert len(found.ops)


def test_a_file_with_a_journal_is_refused(report: Path) -> None:
    report.with_name(report.name + "-wal").write_bytes(b"x")
    with pytest.raises(FomkitError, match="is still being written, or was not closed"):
        import_model(report, file_format="nsys")


def test_broken_rows_are_counted(report: Path) -> None:
    kernels, copies = "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET", "UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET"
    huge = "text || ', sizes = [[999999999999999999999, 4]]'"
    change(
        report,
        f"{kernels} end = start - 5 WHERE correlationId = 2; {copies} start = 'soon' WHERE correlationId = 1; "
        f"UPDATE NVTX_EVENTS SET text = {huge} WHERE text = 'aten::linear'",
    )
    _, said = import_model(report, file_format="nsys")
    left = next(line for line in said if "were left out" in line)
    assert "1 of negative duration" in left
    assert "1 without a time or a name" in left


@pytest.mark.parametrize("cut", [20, 1000, 5000, 20_000])
def test_a_cut_file_is_refused(report: Path, cut: int) -> None:
    report.write_bytes(report.read_bytes()[:cut])
    with pytest.raises(FomkitError, match="cannot be read as an SQLite database"):
        import_model(report, file_format="nsys")


def test_a_damaged_table_of_which_the_database_complains_in_no_text_is_refused(report: Path) -> None:
    whole = report.read_bytes()
    report.write_bytes(whole.replace(b"StringIds (id", b"StringIds \xa6id"))
    with pytest.raises(FomkitError, match=r"cannot be read as an SQLite database \(malformed .*\)\. Copy") as told:
        import_model(report, file_format="nsys")
    assert str(told.value).isprintable()


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "report.sqlite"
    path.write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    with pytest.raises(FomkitError, match="cannot be read as an SQLite database"):
        import_model(path, file_format="nsys")
