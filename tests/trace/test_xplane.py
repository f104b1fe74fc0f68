"""TensorFlow's traces: read without TensorFlow, joined to a graph, and refused if incomplete."""

from __future__ import annotations

import math
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xplane_files import Node, device, entry, event, host, message, number, plane, real, varint

from fomkit.core.errors import FomkitError, install_hint
from fomkit.frontends.layers import GraphNode, Nodes
from fomkit.readers.profilers.xplane import join_nodes, joined_notes
from fomkit.readers.profilers.xplane_file import open_planes, recognise_xplane
from fomkit.readers.profilers.xplane_times import read_plane_times
from fomkit.readers.registry import choose_import, import_model

TWO = [(0, 4000), (100_000, 6000)]
NODES: list[Node] = [
    ("net/dense/MatMul", "_MklMatMul", TWO),
    ("net/dense/Relu", "Relu", [(5000, 1000), (110_000, 1000)]),
    ("gradient_tape/net/dense/MatMul/MatMul_1", "_MklMatMul", [(7000, 3000), (120_000, 3000)]),
    ("sgd/AssignSubVariableOp", "AssignSubVariableOp", [(11_000, 500), (130_000, 500)]),
    ("net/dense/Cast/ReadVariableOp", "ReadVariableOp", [(12_000, 100), (140_000, 100)]),
]
GRAPH: Nodes = {
    "net/dense/MatMul": GraphNode("MatMul", "forward", 1, [0]),
    "net/dense/Relu": GraphNode("Relu", "forward", 1, [1], "net/dense/MatMul"),
    "gradient_tape/net/dense/MatMul/MatMul_1": GraphNode("MatMul", "backward", 1, [2]),
    "sgd/AssignSubVariableOp": GraphNode("AssignSubVariableOp", "update", 1, [3]),
    "net/dense/Cast/ReadVariableOp": GraphNode("ReadVariableOp", "forward", 1),
}


def write(folder: Path, content: bytes) -> Path:
    path = folder / "vm.xplane.pb"
    path.write_bytes(content)
    return path


def test_a_trace_alone_is_a_table_of_times(tmp_path: Path) -> None:
    path = write(tmp_path, host(NODES))
    assert choose_import(path, None, None) == ("xplane", "model")
    found, notes = import_model(path, file_format="xplane")
    table = found.ops.set_index(["op", "pass_name"])
    assert table.loc[("MatMul", "forward"), ["module", "count"]].tolist() == ["net.dense", 1]
    assert table.loc[("MatMul", "forward"), "traced_time_s"] == pytest.approx(5e-6)
    assert table.loc[("MatMul", "backward"), "module"] == "net.dense"
    assert table.loc[("AssignSubVariableOp", "update"), "traced_time_s"] == pytest.approx(5e-7)
    assert set(found.ops["kind"]) == {"other"}
    assert notes[0].startswith("partial: times of 5 ops without sizes, over 2 steps: ")
    assert "--graph model.py" in notes[0]


def test_reading_needs_no_tensorflow(tmp_path: Path) -> None:
    path = write(tmp_path, host(NODES))
    code = "import sys; from pathlib import Path; " \
           "from fomkit.readers.profilers.xplane_times import read_plane_times; " \
           "print(len(read_plane_times(Path(sys.argv[1])).nodes), 'tensorflow' in sys.modules)"  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["5", "False"]


def test_protobuf_is_loaded_to_read_planes_and_for_nothing_else(tmp_path: Path) -> None:
    path = write(tmp_path, host(NODES))
    code = "import sys; from pathlib import Path; from fomkit.readers.registry import choose_import; " \
           "print(*choose_import(Path(sys.argv[1]), None, None), 'google.protobuf' in sys.modules)"  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["xplane", "model", "False"]


def test_without_protobuf_one_is_told_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.protobuf.message", None)
    path = write(tmp_path, host(NODES))
    assert recognise_xplane(path)
    with pytest.raises(FomkitError) as told:
        import_model(path, file_format="xplane")
    assert str(told.value) == f"{path}: needs protobuf, which is not installed here. Run: {install_hint('xplane')}"


def test_details_are_texts_and_numbers(tmp_path: Path) -> None:
    names = ["half", "most", "minus", "text", "bytes", "same", "none"]
    values = [
        real(2, 0.5), number(3, 2**64 - 1), number(4, -5), message(5, b"a\xffb"),
        message(6, "x"), number(7, 4), b"",
    ]  # fmt: skip
    stats = b"".join(message(4, number(1, at) + value) for at, value in enumerate(values, 1))
    unnamed = message(4, number(1, 99) + number(4, 1))
    content = plane("/host:CPU", [event(1, -2, 3, stats + unnamed)], b"", names)
    with open_planes(write(tmp_path, content)) as found:
        (read,) = found.planes()
        (line,) = read.lines()
        (one,) = line.events
        told = read.stats(one.stats)
    assert (one.metadata_id, one.offset_ps, one.duration_ps) == (1, -2, 3)
    assert told == {"half": 0.5, "most": 2.0**64, "minus": -5.0, "text": "a\ufffdb", "same": "text"}


def test_names_need_not_be_utf_8_and_are_cut(tmp_path: Path) -> None:
    name = b"net/\xff" + b"x" * 3000
    content = plane("/host:CPU", [message(2, b"\xfe")], message(4, number(1, 7) + message(2, message(2, name))))
    with open_planes(write(tmp_path, content)) as found:
        (read,) = found.planes()
        assert [line.name for line in read.lines()] == ["\ufffd"]
    assert read.kinds[7].name == "net/\ufffd" + "x" * 1995


def test_fields_of_a_newer_format_are_passed_over(tmp_path: Path) -> None:
    newer = number(200, 1) + message(201, "x") + b"\xd3\x0c\xd4\x0c"
    content = host(NODES, more=newer + message(4, number(1, 1) + number(3, 5) + newer)) + newer
    times = read_plane_times(write(tmp_path, content))
    assert times.nodes["net/dense/MatMul"].count == 3
    assert times.seen == 11


def test_what_the_profiler_said_is_told(tmp_path: Path) -> None:
    content = host(NODES) + message(3, "some events were dropped") + message(2, "no device")
    assert read_plane_times(write(tmp_path, content)).notes == ["no device", "some events were dropped"]


@pytest.mark.parametrize(
    ("cap", "most", "told"),
    [
        ("MAX_BYTE", len(host(NODES)) - 1, "is longer than {} bytes. Record fewer steps."),
        ("MAX_LINE", 50, "has a line of more than {} bytes. Record fewer steps."),
        ("MAX_PARTS", 1, "has more than {} planes and lines. Record fewer steps."),
        ("MAX_EVENTS", 9, "has more than {} events. Record fewer steps."),
    ],
)
def test_a_file_beyond_a_cap_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cap: str, most: int, told: str
) -> None:
    path = write(tmp_path, host(NODES))
    assert read_plane_times(path).seen == 10
    monkeypatch.setattr(f"fomkit.readers.profilers.xplane_file.{cap}", most)
    with pytest.raises(FomkitError) as refused:
        read_plane_times(path)
    assert str(refused.value) == f"{path}: {told.format(f'{most:,}')}"


def test_times_are_put_on_rows(tmp_path: Path) -> None:
    joined = join_nodes(read_plane_times(write(tmp_path, host(NODES))), GRAPH, 4)
    assert joined.steps == 2
    assert joined.row_s == pytest.approx([5e-6, 1e-6, 3e-6, 5e-7])
    assert [(one.op, one.count, one.why) for one in joined.unjoined] == [("ReadVariableOp", 1, "no work")]
    assert joined.share == pytest.approx(9.5 / 9.6)


def test_marked_steps_and_functions_around_them(tmp_path: Path) -> None:
    named = [(f"StatefulPartitionedCall/{name}", kernel, runs) for name, kernel, runs in NODES]
    times = read_plane_times(write(tmp_path, host(named, steps=2)))
    assert times.steps == 2
    assert set(times.nodes) == set(GRAPH)


def test_a_fused_product_has_the_time_of_all(tmp_path: Path) -> None:
    fused: list[Node] = [("net/dense/Relu", "_MklNativeFusedMatMul", TWO), *NODES[2:]]
    joined = join_nodes(read_plane_times(write(tmp_path, host(fused))), GRAPH, 4)
    assert joined.row_s[0] == pytest.approx(5e-6)
    assert math.isnan(joined.row_s[1])
    assert joined.fused == 1
    assert joined.missed == 0


def test_what_was_not_recorded_of_a_loop_is_said(tmp_path: Path) -> None:
    # Of 3 trips a step 4 of 6 executions of one op are there, and none of another; the condition is no node.
    body = "lstm/while/body/_7/lstm/while/"
    nodes: list[Node] = [
        (f"StatefulPartitionedCall/{body}MatMul", "MatMul", [(10 * at, 6) for at in range(4)]),
        ("StatefulPartitionedCall/lstm/while/cond/_6/lstm/while/Less", "Less", [(100, 3), (200, 3)]),
        ("StatefulPartitionedCall/head/MatMul", "MatMul", [(300, 1), (400, 1)]),
    ]
    inside = "lstm/while/body/lstm/while/"
    graph: Nodes = {
        f"{inside}MatMul": GraphNode("MatMul", "forward", 3, [0]),
        f"{inside}Tanh": GraphNode("Tanh", "forward", 3, [0]),
        "head/MatMul": GraphNode("MatMul", "forward", 1, [1]),
    }
    joined = join_nodes(read_plane_times(write(tmp_path, host(nodes))), graph, 2)
    assert joined.steps == 2
    assert joined.row_s == pytest.approx([(3 * 6 + 3) * 1e-9, 1e-9])
    assert (joined.seen, joined.expected, joined.unseen) == (6, 8, 3)
    assert any(line.startswith("partial: 3 executions a step in loops") for line in joined_notes(joined))


def test_ops_inside_others_count_once(tmp_path: Path) -> None:
    nodes: list[Node] = [("call", "PartitionedCall", [(0, 100)]), ("net/MatMul", "MatMul", [(10, 60)])]
    times = read_plane_times(write(tmp_path, host(nodes)))
    assert times.nodes["call"].time_s == pytest.approx(40e-9)
    assert times.nodes["net/MatMul"].time_s == pytest.approx(60e-9)


def test_kernels_of_a_gpu_name_their_op(tmp_path: Path) -> None:
    kernels = {"sgemm": ("net/dense/MatMul:MatMul", [20_000, 22_000]), "mystery": ("", [2000])}
    path = write(tmp_path, host(NODES) + device(kernels))
    times = read_plane_times(path)
    assert times.device == "GPU:0"
    assert times.nodes["net/dense/MatMul"].time_s == pytest.approx(42e-6)
    joined = join_nodes(times, GRAPH, 4)
    assert joined.row_s[0] == pytest.approx(21e-6)
    found, notes = import_model(path, file_format="xplane")
    assert found.traced_with["device"] == "GPU:0"
    assert any("of the time is of kernels that name no op" in line for line in notes)


@pytest.mark.parametrize(("number_of", "name"), [(1, "GPU:1"), (0, "GPU:0 #2")])
def test_of_several_devices_the_busiest_is_taken_and_the_others_named(
    tmp_path: Path, number_of: int, name: str
) -> None:
    """Two planes with the same name are also two devices, for example of two machines."""
    first = {"sgemm": ("net/dense/MatMul:MatMul", [20_000, 22_000])}
    second = {"sgemm": ("net/dense/MatMul:MatMul", [21_000, 23_000])}
    path = write(tmp_path, host(NODES) + device(first) + device(second, number_of))
    assert join_nodes(read_plane_times(path), GRAPH, 4).row_s[0] == pytest.approx(22e-6)
    found, notes = import_model(path, file_format="xplane")
    assert found.traced_with["device"] == name
    assert (found.ops["count"] * found.ops["traced_time_s"]).sum() == pytest.approx(22e-6)
    told = f"partial: the trace is of 2 devices; the busiest is used, {name} (44.0 µs), and left out: GPU:0 "
    assert f"{told}(42.0 µs)" in notes


def test_of_several_hosts_one_is_taken(tmp_path: Path) -> None:
    found, notes = import_model(write(tmp_path, host(NODES) + host(NODES)), file_format="xplane")
    assert set(found.ops["count"]) == {1}
    assert any("the trace is of 2 hosts; the busiest is used, host:CPU (19.2 µs)" in line for line in notes)


FOUR: list[Node] = [
    ("net/dense/MatMul", "MatMul", [(0, 552_000), (600_000, 104_000), (800_000, 45_000), (900_000, 50_000)]),
    ("net/dense/Relu", "Relu", [(560_000, 10_000), (710_000, 10_000), (850_000, 10_000), (960_000, 10_000)]),
]


@pytest.mark.parametrize("apart", [False, True])
def test_a_cold_first_step_is_left_out_by_name_and_the_median_stands(tmp_path: Path, apart: bool) -> None:
    """This also holds if a node's executions are on several threads, in any order in the file."""
    content = host(FOUR)
    if apart:
        kinds = b"".join(entry(4, at, f"{name}:{kernel}", kernel) for at, (name, kernel, _) in enumerate(FOUR, 1))
        lines = [
            number(3, 1_000_000 * step)
            + b"".join(
                event(at, 600_000_000 * (at - 1), 1000 * runs[step][1]) for at, (_, _, runs) in enumerate(FOUR, 1)
            )
            for step in (2, 0, 3, 1)
        ]
        content = plane("/host:CPU", [message(2, "idle"), *lines], kinds)
    path = write(tmp_path, content)
    found, notes = import_model(path, file_format="xplane")
    times = found.ops.set_index("op")["traced_time_s"]
    assert times.to_dict() == pytest.approx({"MatMul": 50e-6, "Relu": 10e-6})
    cold = "step 1 of 4 was left out as a cold start: its ops took 562 µs, those of the others 60.0 µs ("
    assert any(line.startswith(cold) for line in notes)
    assert any(line.startswith("traced_time_s: median over 3 steps of the mean time of ops on") for line in notes)
    joined = join_nodes(read_plane_times(path), GRAPH, 4)
    assert any(line.startswith("step 1 of 4 was left out") for line in joined_notes(joined))


def test_unknown_formats_and_units_are_told(tmp_path: Path) -> None:
    _, notes = import_model(write(tmp_path, host(NODES)), file_format="xplane")
    assert (
        "partial: the trace states neither number format nor arithmetic unit of an op: fp32 and vector stand in "
        "the op table for unknown ones" in notes
    )


def test_broken_events_are_left_out_and_counted(tmp_path: Path) -> None:
    more = event(1, 5, -3) + event(1, -5, 3) + event(1, 5, 2 * 10**18) + event(77, 0, 1)
    times = read_plane_times(write(tmp_path, host(NODES, more=more)))
    assert times.wrong == Counter({"of negative time": 2, "of more than eleven days": 1, "without a name": 1})
    _, notes = import_model(tmp_path / "vm.xplane.pb", file_format="xplane")
    assert any(line.startswith("partial: of 14 events these were left out: 2 of negative time") for line in notes)


WHOLE = host(NODES)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (WHOLE[:-200], "is cut off"),
        (WHOLE + b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "is cut off"),
        (WHOLE + b"\x0a" + b"\xff" * 11, "is cut off or damaged"),
        (WHOLE + b"\x0b", "is cut off or damaged"),
        (WHOLE + b"\x33", "is cut off or damaged"),
        (WHOLE + message(1, number(2, 5)), "field 2 has the wrong type"),
        (
            message(1, message(2, "/host:CPU") + message(3, message(4, message(1, "x")))),
            "field 1 has the wrong type",
        ),
        (plane("/host:CPU", [], b""), "has no op among its 0 events. Record with host_tracer_level=2"),
        (WHOLE + b"\x00", "is cut off or damaged"),
    ],
)
def test_damage_is_told_in_one_message(tmp_path: Path, content: bytes, told: str) -> None:
    path = write(tmp_path, content)
    assert recognise_xplane(path)
    with pytest.raises(FomkitError, match=told):
        import_model(path, file_format="xplane")


def test_other_files_are_not_taken_for_planes(tmp_path: Path) -> None:
    for content in (b"", b"\x0a", b"\n{}", b"\x0a\x05hello", message(1, message(2, "x")), varint(8) * 30):
        assert not recognise_xplane(write(tmp_path, content))


def test_an_empty_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    for path in (write(tmp_path, b""), tmp_path):
        with pytest.raises(FomkitError, match="cannot be read"):
            import_model(path, file_format="xplane")


@settings(max_examples=150, derandomize=True, database=None)
@given(at=st.integers(0, len(WHOLE) - 1), to=st.binary(max_size=6), drop=st.integers(0, 8))
def test_any_damage_is_refused_or_read(
    tmp_path_factory: pytest.TempPathFactory, at: int, to: bytes, drop: int
) -> None:
    path = write(tmp_path_factory.getbasetemp(), WHOLE[:at] + to + WHOLE[at + drop :])
    with suppress(FomkitError):
        assert len(import_model(path, file_format="xplane")[0].ops)


def test_names_without_end_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fomkit.readers.profilers.xplane_file.MAX_DISTINCT", 10)
    kinds = b"".join(entry(4, place, f"n{place}:Op", "Op") for place in range(12))
    with pytest.raises(FomkitError, match="more than 10 distinct names in one plane"):
        read_plane_times(write(tmp_path, plane("/host:CPU", [], kinds)))
