"""Write xplane files byte by byte, with field numbers of xplane.proto (openxla/xla, tsl/profiler/protobuf)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence

Node = tuple[str, str, Sequence[tuple[int, int]]]
"""Name of a node in the graph, its kernel, and start and duration [ns] of its executions."""


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def message(field: int, content: bytes | str) -> bytes:
    content = content.encode() if isinstance(content, str) else content
    return varint(field << 3 | 2) + varint(len(content)) + content


def real(field: int, value: float) -> bytes:
    return varint(field << 3 | 1) + struct.pack("<d", value)


def event(kind: int, start_ps: int, time_ps: int, stats: bytes = b"") -> bytes:
    return message(4, number(1, kind) + number(2, start_ps) + number(3, time_ps) + stats)


def entry(field: int, key: int, name: str, display: str = "", stats: bytes = b"") -> bytes:
    named = number(1, key) + message(2, name) + (message(4, display) if display else b"") + stats
    return message(field, number(1, key) + message(2, named))


def plane(name: str, lines: Iterable[bytes], kinds: bytes, details: Sequence[str] = ()) -> bytes:
    """Make a plane; the details are numbered from 1 in their order."""
    named = b"".join(entry(5, place, text) for place, text in enumerate(details, 1))
    return message(1, message(2, name) + b"".join(message(3, line) for line in lines) + kinds + named)


def host(nodes: Sequence[Node], steps: int = 0, more: bytes = b"") -> bytes:
    """Make a host's plane of one thread, with marks for its steps, if any."""
    line, kinds = message(2, "tf_Compute") + more, b""
    for place, (name, kernel, runs) in enumerate(nodes, 1):
        kinds += entry(4, place, f"{name}:{kernel}", kernel)
        line += b"".join(event(place, 1000 * start, 1000 * time) for start, time in runs)
    mark = len(nodes) + 1
    kinds += entry(4, mark, "train") if steps else b""
    line += b"".join(event(mark, 0, 10, message(4, number(1, 1) + number(4, step))) for step in range(steps))
    return plane("/host:CPU", [line], kinds, ["step_num"])


def device(kernels: Mapping[str, tuple[str, Sequence[int]]], place_of: int = 0) -> bytes:
    """Make a GPU's plane: kernels by name, each with its op and its times [ns]."""
    line, kinds = message(2, "Stream #7(Compute)"), b""
    for place, (name, (op, times)) in enumerate(kernels.items(), 1):
        kinds += entry(4, place, name)
        told = message(4, number(1, 1) + message(5, op)) if op else b""
        line += b"".join(event(place, 1000 * at, 1000 * time, told) for at, time in enumerate(times))
    summary = message(2, "Steps") + event(1, 0, 10**9)
    return plane(f"/device:GPU:{place_of}", [line, summary], kinds, ["tf_op", "occupancy"])
