"""Traces as files: read in pieces, and each damage reported once."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kineto_traces import Recording, linear_step

from fomkit.core.errors import FomkitError
from fomkit.readers.profilers import kineto_stream
from fomkit.readers.profilers.kineto import read_trace, trace_table
from fomkit.readers.profilers.kineto_stream import TraceReader, recognise_kineto


def trace_text(steps: int = 2, **head: Any) -> str:
    recording = Recording()
    for number in range(steps):
        linear_step(recording, number)
    return recording.text(**head)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.json"


def events_of(path: Path) -> list[Any]:
    return list(TraceReader(path))


@pytest.mark.parametrize("piece", [1, 2, 7, 64, 1000])
def test_pieces_of_any_length_give_the_same_events(
    path: Path, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kineto_stream, "CHUNK_BYTE", piece)
    monkeypatch.setattr(TraceReader, "_more", lambda self, _least, more=TraceReader._more: more(self, 0))
    content = {"numbers": [1.5e3, -2, 'µ\n\\"'], "traceEvents": [{"ts": 12345.678, "ph": "X"}, {}], "end": 12}
    path.write_text("\ufeff" + json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")
    reader = TraceReader(path)
    assert list(reader) == content["traceEvents"]
    assert reader.head == {"numbers": content["numbers"], "end": 12}


def test_packed_and_plain_are_the_same(path: Path) -> None:
    text = trace_text()
    path.write_text(text)
    packed = path.with_name("packed")
    packed.write_bytes(gzip.compress(text.encode()))
    assert recognise_kineto(path)
    assert recognise_kineto(packed)
    plain, other = (trace_table(read_trace(one).rows) for one in (path, packed))
    assert plain.equals(other)


def test_a_list_of_events_is_a_trace_too(path: Path) -> None:
    path.write_text(json.dumps(json.loads(trace_text())["traceEvents"]))
    assert recognise_kineto(path)
    assert len(read_trace(path).rows) == 5


@pytest.mark.parametrize("text", ['{"benchmark": "x", "n": 1}', "kind,count\ngemm,1\n", "", "[1, 2]", "{"])
def test_other_files_are_no_traces(path: Path, text: str) -> None:
    path.write_text(text)
    assert not recognise_kineto(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (trace_text()[:-3000], "the file is cut off"),
        (trace_text()[:-1], "the file is cut off"),
        ('{"traceEvents": [{"ph": "X"} {"ph": "X"}]}', "after 1 events '{' was found where , or ] was expected"),
        ('{"traceEvents": [nonsense]}', "cut off, or is not JSON"),
        ('{"traceEvents": [' + '{"a":' * 100_000, "nested too deeply"),
        ('{"traceEvents": []}', "has no event. Check that the profiler ran. Record it with shapes"),
        ('{"traceEvents": [1, "x", null, [], {}]}', "among its 5 events (4 no objects were left out)"),
        ('{"traceEvents": {"ph": "X"}, "x": 1}', "has no event"),
        ('{"a": 1, 2: 3, "traceEvents": []}', "one without a name"),
    ],
)  # fmt: skip
def test_damage_is_told_in_one_message(path: Path, text: str, words: str) -> None:
    path.write_text(text)
    with pytest.raises(FomkitError) as error:
        read_trace(path)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_cut_gzip_is_told(path: Path, share: float) -> None:
    content = gzip.compress(trace_text(20).encode())
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(FomkitError, match="gzip data is cut off or damaged"):
        read_trace(path)


def test_damaged_gzip_is_told(path: Path) -> None:
    content = bytearray(gzip.compress(trace_text(20).encode()))
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(FomkitError, match=r"gzip data is cut off or damaged|no JSON|was expected"):
        read_trace(path)


def test_one_endless_value_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kineto_stream, "MAX_VALUE", 10_000)
    monkeypatch.setattr(kineto_stream, "CHUNK_BYTE", 1000)
    path.write_text('{"traceEvents": [{"name": "' + "x" * 100_000 + '"}]}')
    with pytest.raises(FomkitError, match="a value is longer than 10,000 characters"):
        read_trace(path)


def test_too_many_bytes_are_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kineto_stream, "MAX_BYTE", 1000)
    path.write_text(trace_text())
    with pytest.raises(FomkitError, match="longer than 1,000 bytes"):
        read_trace(path)


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ({"dur": -5}, "1 of negative duration"),
        ({"dur": float("nan")}, "1 without a time or a name"),
        ({"ts": "soon"}, "1 without a time or a name"),
        ({"ts": 1e300}, "1 without a time or a name"),
        ({"name": ["x"]}, "1 without a time or a name"),
    ],
)
def test_a_broken_event_is_left_out_and_the_result_marked_partial(path: Path, broken: Any, words: str) -> None:
    document = json.loads(trace_text())
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 1, "args": {}}
    document["traceEvents"].append({**event, **broken})
    path.write_text(json.dumps(document))
    found = read_trace(path)
    assert any(note.startswith("partial: ") and words in note for note in found.notes)
    assert len(found.rows) == 5


HOSTILE: list[Any] = [
    None, 1, "x", [], {}, [[-1]], [[1e300]], [[2**70]], [["8", 16]], [[8] * 100], [[[8]]], [None] * 3,
    float("nan"),
]  # fmt: skip


@pytest.mark.parametrize(
    "key", ["Input Dims", "Input type", "Input Strides", "Concrete Inputs", "Sequence number"]
)
@pytest.mark.parametrize("value", HOSTILE, ids=repr)
def test_hostile_arguments_never_break(path: Path, key: str, value: Any) -> None:
    document = json.loads(trace_text())
    for event in document["traceEvents"]:
        if event["name"] in ("aten::mm", "aten::add_"):
            event["args"][key] = value
    path.write_text(json.dumps(document))
    found = read_trace(path)
    table = trace_table(found.rows)
    if key == "Input Dims":
        assert any("aten::mm" in one for one in found.unsupported)
        assert table.loc[table["op"] == "aten::mm", "kind"].tolist() == ["other"]


MEMORY = """
import resource, sys
from pathlib import Path
import numpy, pandas
from fomkit.readers.profilers.kineto import read_trace, trace_table
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
rows = len(trace_table(read_trace(Path(sys.argv[1])).rows))
print(rows, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


def test_memory_is_half_the_file_at_most(path: Path) -> None:
    """2 GB must be read in under 1 GB, tested at a fortieth of it, without the memory of Python and pandas."""
    recording = Recording()
    with path.open("w") as stream:
        stream.write('{"record_shapes": 1, "traceEvents": [{}')
        for number in range(10_000):
            recording.events.clear()
            linear_step(recording, number)
            stream.writelines(f",\n{json.dumps(event)}" for event in recording.events)
        stream.write("]}")
    size = path.stat().st_size
    assert size > 50e6
    done = subprocess.run([sys.executable, "-c", MEMORY, str(path)], capture_output=True, text=True, check=True)
    rows, used = map(int, done.stdout.split())
    assert rows == 5
    assert used < size / 2
