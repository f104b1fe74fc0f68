"""Read files of TensorFlow's, JAX's and XLA's profilers (``*.xplane.pb``): planes, lines, events.

Format: xplane.proto of openxla/xla (``tsl/profiler/protobuf``); `_FORMAT` states the part that is read. protobuf
decodes it. Planes, lines, names and details are declared as bytes, so that each is decoded on demand and only one
line at a time is in memory as events; names are bytes too, because names of kernels need not be UTF-8.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from fomkit.core.errors import FomkitError, install_hint
from fomkit.files.csv import open_file

MAX_BYTE = 500_000_000
"""Longest file [byte]; a file of empty planes takes up to 22 times as much memory."""
MAX_LINE = 100_000_000
"""Longest line [byte]; its events take up to 32 times as much memory while they are read."""
MAX_EVENTS = 20_000_000
"""Most events of the lines that are read."""
MAX_PARTS = 1_000_000
"""Most planes and lines of a file."""
MAX_DISTINCT = 500_000
"""Most distinct events of one plane."""
MAX_NAME = 2000
"""Longest name that is kept [byte]; XLA's names hold whole instructions."""
MAX_START = 2**62
"""Latest start of a line [ns], so that its events cannot overflow."""
_AGAIN = "Copy it, or record it, again."
_HEAD_BYTE = 4096
_NUMBER = rb"[\x80-\xff]{0,9}[\x00-\x7f]"
_HEAD = re.compile(
    rb"\x0a%b(?:\x08%b)?\x12%b(?:/host:|/device:|Task Environment)" % (_NUMBER, _NUMBER, _NUMBER), re.DOTALL
)
"""A plane, with or without its number, and the name of a host or device."""

_FORMAT = """
Space: planes 1 bytes*, errors 2 bytes*, warnings 3 bytes*, hostnames 4 bytes*
Plane: name 2 bytes, lines 3 bytes*, event_metadata 4 bytes*, stat_metadata 5 bytes*
Kind: key 1 int64, value 2 KindValue
KindValue: name 2 bytes, display_name 4 bytes, stats 5 bytes*
Detail: key 1 int64, value 2 DetailValue
DetailValue: name 2 bytes
Line: id 1 int64, name 2 bytes, timestamp_ns 3 int64, events 4 Event*, duration_ps 9 int64, display_id 10 int64, \
display_name 11 bytes
Event: metadata_id 1 int64, offset_ps 2 int64, duration_ps 3 int64, stats 4 bytes*, num_occurrences 5 int64
Stat: metadata_id 1 int64 | double_value 2 double, uint64_value 3 uint64, int64_value 4 int64, str_value 5 bytes, \
bytes_value 6 bytes, ref_value 7 int64
"""
"""Messages, a line each: name, number, type of each field; * marks repeated fields, | the fields of a choice."""


class PlanesError(ValueError):
    """What is wrong with a file of planes, and what to do, as the end of a sentence about the file."""


class Named(NamedTuple):
    """Common data of all events of one kind: name, short name, and details, not yet decoded."""

    name: str
    display: str
    stats: Sequence[bytes]


class Event(Protocol):
    """One event: its kind's number, start and duration [ps], and its own details, not yet decoded."""

    metadata_id: int
    offset_ps: int
    duration_ps: int
    stats: Sequence[bytes]


class Line(NamedTuple):
    """A thread of a host or a stream of a device: its name, its start [ns], and events with offsets from it."""

    name: str
    start: int
    events: Sequence[Event]


@cache
def _decoders() -> Mapping[str, Callable[[bytes], Any]]:
    """Make protobuf's classes of `_FORMAT`; return the decoder of each, by name."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kind = descriptor_pb2.FieldDescriptorProto
    types = {name: getattr(kind, f"TYPE_{name.upper()}") for name in ("int64", "uint64", "double", "bytes")}
    file = descriptor_pb2.FileDescriptorProto(name="fomkit/planes.proto", package="fomkit", syntax="proto3")
    for line in _FORMAT.strip().splitlines():
        name, _, content = line.partition(": ")
        made = file.message_type.add(name=name)
        common, _, choice = content.partition(" | ")
        for part, of_choice in ((common, False), (choice, True)):
            for stated in part.split(", ") if part else ():
                label, number, type_name = stated.split()
                plain = type_name.removesuffix("*")
                added = made.field.add(name=label, number=int(number), type=types.get(plain, kind.TYPE_MESSAGE))
                added.label = kind.LABEL_REPEATED if plain != type_name else kind.LABEL_OPTIONAL
                if plain not in types:
                    added.type_name = f".fomkit.{plain}"
                if of_choice:
                    added.oneof_index = 0
        if choice:
            made.oneof_decl.add(name="value")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = (pool.FindMessageTypeByName(f"fomkit.{message.name}") for message in file.message_type)
    return {one.name: message_factory.GetMessageClass(one).FromString for one in found}


@cache
def _unknown_fields() -> Any:
    from google.protobuf.unknown_fields import UnknownFieldSet

    return UnknownFieldSet


def _check_kinds(message: Any) -> None:
    """Raise if a known field has another type, which protobuf ignores like an unknown field."""
    for unknown in _unknown_fields()(message):
        if unknown.field_number in message.DESCRIPTOR.fields_by_number:
            raise PlanesError(f"is damaged: field {unknown.field_number} has the wrong type. {_AGAIN}")


def _decode(name: str, content: bytes) -> Any:
    message = _decoders()[name](content)
    _check_kinds(message)
    return message


def _decode_entry(name: str, content: bytes) -> Any:
    """Decode an entry of a map from numbers to names."""
    entry = _decode(name, content)
    _check_kinds(entry.value)
    return entry


def _decode_line(content: bytes) -> Any:
    """Decode a line; its events are checked one by one only if it has an unknown field."""
    if len(content) > MAX_LINE:
        raise PlanesError(f"has a line of more than {MAX_LINE:,} bytes. Record fewer steps.")
    line = _decode("Line", content)
    byte = line.ByteSize()
    line.DiscardUnknownFields()
    if line.ByteSize() != byte:
        for event in _decoders()["Line"](content).events:
            _check_kinds(event)
    return line


def _name_of(content: bytes, most_byte: int = MAX_NAME) -> str:
    return content[:most_byte].decode("utf-8", errors="replace")


@dataclass
class Plane:
    """One plane: a host or a device.

    `kinds`: common data of events, by the kind's number.
    `details`: names of details by number.
    `encoded`: its lines, not yet decoded.
    """

    file: PlaneFile
    name: str
    kinds: dict[int, Named] = field(default_factory=dict)
    details: dict[int, str] = field(default_factory=dict)
    encoded: Sequence[bytes] = ()

    def lines(self) -> Iterator[Line]:
        """Yield the lines in the order of the file, one at a time; an invalid start becomes 0."""
        for content in self.encoded:
            line = _decode_line(content)
            self.file.count("events", len(line.events), MAX_EVENTS)
            start = line.timestamp_ns if 0 <= line.timestamp_ns < MAX_START else 0
            yield Line(_name_of(line.name), start, line.events)

    def stats(self, encoded: Sequence[bytes]) -> Mapping[str, str | float]:
        """Decode details: texts and numbers; a reference becomes the text it refers to."""
        found: dict[str, str | float] = {}
        for content in encoded:
            stat = _decode("Stat", content)
            name, kind = self.details.get(stat.metadata_id, ""), stat.WhichOneof("value")
            if not name or kind in (None, "bytes_value"):
                continue
            value = getattr(stat, kind)
            if kind == "ref_value":
                found[name] = self.details.get(value, "")
            else:
                found[name] = _name_of(value) if kind == "str_value" else float(value)
        return found


class PlaneFile:
    """A file: its planes, decoded one after the other, and the first errors and warnings of the profiler."""

    def __init__(self, content: bytes) -> None:
        space = _decode("Space", content)
        self._planes: Sequence[bytes] = space.planes
        self._counted: Counter[str] = Counter()
        self.count("planes and lines", len(space.planes), MAX_PARTS)
        self.notes = [_name_of(error, 300) for error in (*space.errors[:5], *space.warnings[:5])][:5]

    def count(self, what: str, many: int, most: int) -> None:
        """Count items to be read, and raise if there are too many."""
        self._counted[what] += many
        if self._counted[what] > most:
            raise PlanesError(f"has more than {most:,} {what}. Record fewer steps.")

    def planes(self) -> Iterator[Plane]:
        """Yield the planes, in the order of the file."""
        for content in self._planes:
            plane = _decode("Plane", content)
            self.count("planes and lines", len(plane.lines), MAX_PARTS)
            if max(len(plane.event_metadata), len(plane.stat_metadata)) > MAX_DISTINCT:
                raise PlanesError(f"has more than {MAX_DISTINCT:,} distinct names in one plane. Check the file.")
            kinds = (_decode_entry("Kind", one) for one in plane.event_metadata)
            details = (_decode_entry("Detail", one) for one in plane.stat_metadata)
            yield Plane(
                self,
                _name_of(plane.name),
                {
                    kind.key: Named(_name_of(kind.value.name), _name_of(kind.value.display_name), kind.value.stats)
                    for kind in kinds
                },
                {detail.key: _name_of(detail.value.name) for detail in details},
                plane.lines,
            )


def _content_of(path: Path) -> bytes:
    with open_file(path) as stream:
        content = stream.read(MAX_BYTE + 1)
    if len(content) > MAX_BYTE:
        raise PlanesError(f"is longer than {MAX_BYTE:,} bytes. Record fewer steps.")
    if not content:
        raise OSError("it is empty")
    return content


@contextmanager
def open_planes(path: Path) -> Iterator[PlaneFile]:
    """Open a file of planes for a block."""
    try:
        from google.protobuf.message import DecodeError
    except ImportError as error:
        raise FomkitError(
            str(path), f"needs protobuf, which is not installed here. Run: {install_hint('xplane')}"
        ) from error
    try:
        yield PlaneFile(_content_of(path))
    except (DecodeError, RecursionError) as error:
        raise FomkitError(str(path), f"is cut off or damaged. {_AGAIN}") from error
    except PlanesError as error:
        raise FomkitError(str(path), str(error)) from error
    except (OSError, ValueError) as error:
        raise FomkitError(str(path), f"cannot be read ({error}). Check the path.") from error


def recognise_xplane(path: Path) -> bool:
    """Return whether a file holds a profiler's planes: its first bytes contain the name of a host or device."""
    with suppress(OSError, ValueError), open_file(path) as stream:
        return _HEAD.match(stream.read(_HEAD_BYTE)) is not None
    return False
