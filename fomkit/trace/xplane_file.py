"""The file that TensorFlow's, JAX's and XLA's profilers write (``*.xplane.pb``): planes, lines, events.

Format: xplane.proto of openxla/xla (``tsl/profiler/protobuf``). The file is mapped, not loaded; what is kept
is the names, once each.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import NamedTuple

from fomkit.errors import FomkitError
from fomkit.tables.opening import open_file
from fomkit.trace.protobuf_wire import FIXED64, LENGTH, VARINT, Source, WireError, fields, read_varint, signed

MAX_DISTINCT = 500_000
"""Most distinct events of one plane."""
MAX_NAME = 2000
"""Longest name that is kept [byte]; those of XLA hold whole instructions."""
MAX_START = 2**62
"""Latest start of a line [ns], so that the events in it have one too."""
_SPACE = {1: LENGTH, 2: LENGTH, 3: LENGTH, 4: LENGTH}
_PLANE = {2: LENGTH, 3: LENGTH, 4: LENGTH, 5: LENGTH}
_ENTRY = {1: VARINT, 2: LENGTH}
_NAMED = {2: LENGTH, 4: LENGTH, 5: LENGTH}
_STAT_NAMED = {2: LENGTH}
_LINE = {2: LENGTH, 3: VARINT, 4: LENGTH}
_EVENT = {1: VARINT, 2: VARINT, 3: VARINT, 4: LENGTH}
_STAT = {1: VARINT, 2: FIXED64, 3: VARINT, 4: VARINT, 5: LENGTH, 6: LENGTH, 7: VARINT}
_HEAD_BYTE = 4096

Span = tuple[int, int]
Stats = Mapping[str, str | float]


class Named(NamedTuple):
    """What all events of one kind share: name, short name, and where their common details stand."""

    name: str
    display: str
    stats: tuple[Span, ...]


class Event(NamedTuple):
    """One event: its kind's number, start and duration [ps], and where its own details stand."""

    kind: int
    start: int
    duration: int
    stats: tuple[Span, ...]


@dataclass
class Plane:
    """One plane: a host or a device.

    Attributes
    ----------
    kinds : dict
        What events share, by their number.
    details : dict
        Names of details by number.
    lines : list
        Where the lines stand: threads of a host, streams of a device.
    """

    source: Source
    name: str = ""
    kinds: dict[int, Named] = field(default_factory=dict)
    details: dict[int, str] = field(default_factory=dict)
    lines: list[Span] = field(default_factory=list)

    def text(self, start: int, end: int) -> str:
        """Read a name."""
        return self.source[start : min(end, start + MAX_NAME)].decode("utf-8", errors="replace")

    def line_name(self, line: Span) -> str:
        """Give the name of a line."""
        return next((self.text(a, b) for number, a, b in fields(self.source, *line, _LINE) if number == 2), "")

    def line_start(self, line: Span) -> int:
        """Give the time [ns] from which a line's events count; 0 where it is none."""
        found = next((signed(a) for number, a, _ in fields(self.source, *line, _LINE) if number == 3), 0)
        return found if 0 <= found < MAX_START else 0

    def events(self, line: Span) -> Iterator[Event]:
        """Give the events of a line in the order of the file; their times count from the line's start."""
        for number, at, end in fields(self.source, *line, _LINE):
            if number == 4:
                yield self._event(at, end)

    def _event(self, at: int, end: int) -> Event:
        kind = start = duration = 0
        stats: list[Span] = []
        for number, one, other in fields(self.source[at:end], 0, end - at, _EVENT):
            if number == 1:
                kind = signed(one)
            elif number == 2:
                start = signed(one)
            elif number == 3:
                duration = signed(one)
            else:
                stats.append((at + one, at + other))
        return Event(kind, start, duration, tuple(stats))

    def stats(self, spans: tuple[Span, ...]) -> Stats:
        """Read details: texts, and numbers; a reference is the text it refers to."""
        found: dict[str, str | float] = {}
        for span in spans:
            name = ""
            value: str | float | None = None
            for number, one, other in fields(self.source, *span, _STAT):
                if number == 1:
                    name = self.details.get(signed(one), "")
                elif number == 2:
                    value = float(struct.unpack("<d", self.source[one:other])[0])
                elif number in (3, 4):
                    value = float(signed(one) if number == 4 else one)
                elif number == 5:
                    value = self.text(one, other)
                elif number == 7:
                    value = self.details.get(signed(one), "")
            if name and value is not None:
                found[name] = value
        return found


def _read_named(plane: Plane, start: int, end: int, *, of_event: bool) -> None:
    """Take in an entry of one of a plane's two maps from numbers to names."""
    number, name, display = 0, "", ""
    stats: list[Span] = []
    for key, one, other in fields(plane.source, start, end, _ENTRY):
        if key == 1:
            number = signed(one)
            continue
        for inner, at, after in fields(plane.source, one, other, _NAMED if of_event else _STAT_NAMED):
            if inner == 2:
                name = plane.text(at, after)
            elif inner == 4:
                display = plane.text(at, after)
            else:
                stats.append((at, after))
    if of_event:
        plane.kinds[number] = Named(name, display, tuple(stats))
    else:
        plane.details[number] = name
    if len(plane.kinds) > MAX_DISTINCT or len(plane.details) > MAX_DISTINCT:
        raise WireError(f"has more than {MAX_DISTINCT:,} distinct names in one plane. Check the file")


def _read_plane(source: Source, start: int, end: int) -> Plane:
    plane = Plane(source)
    for number, one, other in fields(source, start, end, _PLANE):
        if number == 2:
            plane.name = plane.text(one, other)
        elif number == 3:
            plane.lines.append((one, other))
        else:
            _read_named(plane, one, other, of_event=number == 4)
    return plane


class PlaneFile:
    """An open file: its planes, read one after the other, and what the profiler said of them."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.said: list[str] = []

    def planes(self) -> Iterator[Plane]:
        """Give the planes; afterwards ``said`` holds the profiler's errors and warnings."""
        for number, one, other in fields(self._source, 0, len(self._source), _SPACE):
            if number == 1:
                yield _read_plane(self._source, one, other)
            elif number in (2, 3) and len(self.said) < 5:
                self.said.append(self._source[one : min(other, one + 300)].decode("utf-8", errors="replace"))


@contextmanager
def open_planes(path: Path) -> Iterator[PlaneFile]:
    """Open a file of planes for a block.

    Raises
    ------
    FomkitError
        When it cannot be read; and for what is found to be damaged inside the block.
    """
    try:
        with open_file(path) as stream, mmap(stream.fileno(), 0, access=ACCESS_READ) as source:
            yield PlaneFile(source)
    except WireError as error:
        raise FomkitError(str(path), f"{error}. Copy it, or record it, again.") from error
    except (OSError, ValueError) as error:
        raise FomkitError(str(path), f"cannot be read ({error}). Check the path.") from error


def recognise_xplane(path: Path) -> bool:
    """Tell by its first bytes whether a file is a profiler's planes: one that has the name of a host or device."""
    with suppress(OSError, ValueError), open_file(path) as stream:
        head = stream.read(_HEAD_BYTE)
        if head[:1] != b"\x0a":
            return False
        length, at = read_varint(head, 1, len(head))
        for number, one, other in fields(head, at, min(at + length, len(head)), {1: VARINT, **_PLANE}):
            if number == 2:
                name = head[one:other].decode("utf-8", errors="replace")
                return name.startswith(("/host:", "/device:", "Task Environment"))
    return False
