"""Logs of nccl-tests, OSU micro-benchmarks and DeepBench's NCCL programs: ours, after the formats they print."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from fomkit.cli.main import app
from fomkit.core.errors import FomkitError
from fomkit.profiles.machines import load_machine
from fomkit.readers.registry import choose_import, read_timings


@pytest.fixture(scope="session")
def logs(root: Path) -> Path:
    return root / "tests" / "data" / "network"


@pytest.mark.parametrize(
    ("name", "file_format"),
    [
        ("all_reduce_perf_2.13.log", "nccl-tests"),
        ("all_gather_perf_2.0.log", "nccl-tests"),
        ("sendrecv_perf_2.17.log", "nccl-tests"),
        ("osu_latency_5.6.txt", "osu"),
        ("osu_allreduce_7.3.txt", "osu"),
        ("nccl_single_all_reduce.txt", "deepbench-log"),
        ("nccl_mpi_all_reduce.txt", "deepbench-log"),
    ],
)
def test_each_is_known_by_its_content(logs: Path, tmp_path: Path, name: str, file_format: str) -> None:
    copy = tmp_path / "something.out"
    copy.write_bytes((logs / name).read_bytes())
    assert choose_import(copy, None, None) == (file_format, "machine")


def test_nccl_tests_rows_are_read_out_of_place_and_in_place(logs: Path) -> None:
    found = read_timings(logs / "all_reduce_perf_2.13.log")
    rows = found.timings
    assert found.device == "Example GPU 40GB"
    first = rows[rows["message_byte"] == 1048576]
    assert first["time_s"].tolist() == pytest.approx([91.1e-6, 94.9e-6])
    assert [note.split(",")[0] for note in first["note"]] == ["out of place", "in place"]
    assert set(rows["collective"]) == {"all_reduce"}
    assert set(rows["ranks"]) == {4.0}
    assert set(rows["link"]) == {"node"}
    assert set(rows["library_version"]) == {"2.16.5+cuda11.8"}


def test_wrong_results_are_refused_and_counted(logs: Path) -> None:
    found = read_timings(logs / "all_reduce_perf_2.13.log")
    assert len(found.timings[found.timings["message_byte"] == 8388608]) == 1
    skipped = {one.reason: one.skipped for one in found.counts if one.skipped}
    assert skipped == {"wrong results (#wrong above 0)": 1}


def test_a_log_that_is_cut_off_gives_what_is_whole(logs: Path) -> None:
    found = read_timings(logs / "all_reduce_perf_cut.log")
    assert len(found.timings) == 5
    assert any("cut off" in remark for remark in found.remarks)
    assert any(one.reason == "lines that are cut off" for one in found.counts)


def test_older_logs_and_tagged_lines_over_two_nodes(logs: Path) -> None:
    rows = read_timings(logs / "all_gather_perf_2.0.log").timings
    assert rows["link"].unique().tolist() == ["system"]
    assert rows["dtype"].unique().tolist() == ["fp16"]
    assert rows["collective"].unique().tolist() == ["all_gather"]
    assert len(rows) == 6


def test_messages_from_rank_to_rank_give_links(logs: Path) -> None:
    found = read_timings(logs / "sendrecv_perf_2.17.log")
    assert [link.channel for link in found.links] == ["nccl", "nccl"]
    for link in found.links:
        assert link.alpha_s == pytest.approx(12e-6, rel=0.05)
        assert link.byte_per_s == pytest.approx(200e9, rel=0.05)
        assert link.range_byte_per_s[0] < 200e9 < link.range_byte_per_s[1]
    assert set(found.timings["note"]) == {
        "out of place, sum, result not checked",
        "in place, sum, result not checked",
    }


HEADER = """# Using devices
#  Rank  0 Group  0 Pid   1 on     node-a device  0 [0x01] Example GPU
#  Rank  1 Group  0 Pid   1 on     node-a device  1 [0x02] Example GPU
#  size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong
#   (B)    (elements)              (us)  (GB/s)  (GB/s)       (us)  (GB/s)  (GB/s)
"""
ROW = "1048576 262144 float sum -1 100.0 10.49 10.49 0 100.0 10.49 10.49 0\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HEADER + ROW, "no line before this table names the collective"),
        (
            "all_reduce_perf\n" + HEADER.replace("(us)", "(ms)") + ROW,
            "does not state \\(B\\), \\(us\\) and \\(GB/s\\)",
        ),
        ("all_reduce_perf\n" + HEADER.replace("busbw", "speed") + ROW, "the header lacks 'busbw'"),
        (f"all_reduce_perf\n{'al~gbw'.join(HEADER.rsplit('algbw', 1))}{ROW}", "does not have time, algbw, busbw"),
        ("all_reduce_perf\n" + HEADER.replace("Rank  1", "Rank  0") + ROW, "rank 0 is listed more than once"),
        ("all_reduce_perf\n" + "\n".join(HEADER.split("\n")[3:]) + ROW, "lists no ranks"),
        ("all_reduce_perf\n" + HEADER, "has no timing that can be read: it ends before its first result"),
        ("all_reduce_perf\n" + HEADER + ROW.replace("10.49", "99.99"), "size, time and rate that do not agree"),
        (" bytes N type op time algbw busbw res\n 8 1 float sum 0.1 0.0 0.0 0\n", "not a header of nccl-tests 2"),
    ],
)
def test_what_nccl_tests_would_not_print_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "x.log"
    path.write_text(text)
    with pytest.raises(FomkitError, match=said):
        read_timings(path, "nccl-tests")


def test_osu_latency_is_one_way_and_of_two(logs: Path) -> None:
    found = read_timings(logs / "osu_latency_5.6.txt")
    rows = found.timings
    assert rows.loc[rows["message_byte"] == 4096, "time_s"].tolist() == pytest.approx([1.91e-6])
    assert set(rows["ranks"]) == {2.0}
    assert {link.channel for link in found.links} == {"mpi"}
    assert found.links[0].byte_per_s == pytest.approx(10e9, rel=0.05)


def test_osu_bandwidth_becomes_time(logs: Path) -> None:
    rows = read_timings(logs / "osu_bw_5.6.txt").timings
    assert rows["time_s"].iloc[-1] == pytest.approx(4194304 / 12e9)
    assert set(rows["collective"]) == {"send_stream"}


def test_osu_collectives_take_ranks_from_the_command_or_the_user(logs: Path, tmp_path: Path) -> None:
    path = logs / "osu_allreduce_7.3.txt"
    rows = read_timings(path).timings
    assert set(rows["ranks"]) == {16.0}
    gathered = rows[rows["collective"] == "all_gather"]
    assert gathered["message_byte"].tolist() == [1024.0 * 16]
    assert rows.loc[rows["collective"] == "all_reduce", "dtype"].unique().tolist() == ["fp32"]
    assert rows["repeats"].iloc[0] == 1000
    bare = tmp_path / "bare.txt"
    bare.write_text(path.read_text().split("\n", 1)[1])
    with pytest.raises(FomkitError, match="does not state how many ranks ran"):
        read_timings(bare)
    rows = read_timings(bare, sizes={"ranks": 4, "nodes": 2}).timings
    assert (set(rows["ranks"]), set(rows["link"])) == ({4.0}, {"system"})
    with pytest.raises(FomkitError, match="--set batch does not apply to it"):
        read_timings(bare, sizes={"batch": 4})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("# OSU MPI Latency Test v5.6\n# Size Latency (ms)\n8 1.0\n", r"Expected one with \(us\)"),
        ("# OSU MPI Latency Test v5.6\n8 1.0\n", "line of columns of 'Latency' is 'missing'"),
        ("# OSU MPI Multi Latency Test v5.6\n# Size Latency (us)\n8 1.0\n", "not a test that fomkit reads"),
        ("# OSU MPI Latency Test v5.6\n# Size Latency (us)\n", "ends before its first result"),
    ],
)
def test_what_osu_would_not_print_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "x.txt"
    path.write_text(text)
    with pytest.raises(FomkitError, match=said):
        read_timings(path)


def test_deepbench_text(logs: Path, tmp_path: Path) -> None:
    rows = read_timings(logs / "nccl_single_all_reduce.txt").timings
    assert rows["time_s"].tolist() == pytest.approx([91e-6, 1.204e-3, 1.622e-3, 2.511e-3, 6.405e-3])
    assert rows["message_byte"].iloc[0] == 400_000
    assert set(rows["ranks"]) == {4.0}
    cut = read_timings(logs / "nccl_mpi_all_reduce.txt")
    assert len(cut.timings) == 2
    assert cut.counts[0].skipped == 1
    path = tmp_path / "x.txt"
    path.write_text((logs / "nccl_single_all_reduce.txt").read_text().replace("(msec)", "(usec)"))
    with pytest.raises(FomkitError, match="its columns are not"):
        read_timings(path)


def test_the_command_writes_links_and_takes_ranks(logs: Path, tmp_path: Path) -> None:
    out = tmp_path / "net.yaml"
    words = ["import", str(logs / "sendrecv_perf_2.17.log"), "-o", str(out)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert len(load_machine(out).links) == 2
    result = CliRunner().invoke(app, [*words, "--force", "--set", "ranks=2", "--set", "batch=4"])
    assert "--set batch does not apply to it" in str(result.exception)
    result = CliRunner().invoke(app, [*words, "--force", "--epochs", "4"])
    assert "are for a model, not for a machine" in str(result.exception)
