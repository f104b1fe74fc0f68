"""Read a profiler's trace value by value, also gigabytes of it; its events take about 50 bytes each.

`TraceReader` yields the events of the file, and `Events` stores them in columns.
"""

from __future__ import annotations

import codecs
import gzip
import json
import math
import re
import zlib
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fomkit.core.errors import FomkitError
from fomkit.files.csv import Unpacking
from fomkit.frontends.lowering.aten import RULES
from fomkit.frontends.lowering.calls import pointwise

CHUNK_BYTE = 1_000_000
MAX_VALUE = 32_000_000
"""Longest event, or other value of the file's top level [characters]."""
MAX_BYTE = 8_000_000_000
"""Longest trace, unpacked [byte]."""
HEAD_BYTE = 100_000
_SPACE = re.compile(r"[ \t\r\n]*")
_FIRST = re.compile(r'\s*\{.*"(traceEvents|schemaVersion)"\s*:|\s*\[\s*\{.*"ph"\s*:', re.DOTALL)


def recognise_kineto(path: Path) -> bool:
    """Return whether a file is a trace in Chrome's format, gzipped or not, by its first bytes."""
    head = b""
    # A cut or damaged file is recognised by its readable beginning; reading it reports the damage.
    with suppress(OSError, EOFError, zlib.error, ValueError), Unpacking(path, MAX_BYTE) as stream:
        while len(head) < HEAD_BYTE and (piece := stream.read(2000)):
            head += piece
    return _FIRST.match(head.decode("utf-8-sig", errors="replace")) is not None


def _finite_or_nan(text: str) -> float:
    return math.nan if not math.isfinite(value := float(text)) else value


class TraceReader:
    """Yields a trace's events in file order, once; then `head` has the other values of the top level."""

    def __init__(self, path: Path) -> None:
        self.head: dict[str, Any] = {}
        self._path = path
        self._decode = json.JSONDecoder(
            strict=False, parse_constant=_finite_or_nan, parse_float=_finite_or_nan
        ).raw_decode
        self._text, self._at, self._ended = "", 0, False
        self._events = 0
        self._stream: Unpacking | None = None
        self._utf8 = codecs.getincrementaldecoder("utf-8-sig")(errors="replace")

    def __iter__(self) -> Iterator[Any]:
        """Yield the events from first to last."""
        try:
            with Unpacking(self._path, MAX_BYTE) as self._stream:
                yield from self._whole()
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise self._refused("its gzip data is cut off or damaged. Copy it, or export it, again") from error
        except (OSError, ValueError) as error:
            raise FomkitError(str(self._path), f"cannot be read ({error}). Check the path.") from error

    def _refused(self, what: str) -> FomkitError:
        return FomkitError(str(self._path), f"after {self._events:,} events {what}.")

    def _more(self, least: int) -> None:
        """Read more of the file; text that was used is dropped."""
        content = self._stream.read(max(CHUNK_BYTE, least)) if self._stream else b""
        self._ended = not content
        self._text = self._text[self._at :] + self._utf8.decode(content, self._ended)
        self._at = 0

    def _next(self) -> str:
        """Return the next character that is no space, "" at the end."""
        while True:
            found = _SPACE.match(self._text, self._at)
            self._at = found.end() if found else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if self._ended:
                return ""
            self._more(0)

    def _expect(self, allowed: str) -> str:
        letter = self._next()
        if not letter:
            raise self._refused("the file is cut off. Copy it, or export it, again")
        if letter not in allowed:
            raise self._refused(f"{letter!r} was found where {' or '.join(allowed)} was expected. Export it again")
        self._at += 1
        return letter

    def _value(self) -> Any:
        self._next()
        while True:
            try:
                value, end = self._decode(self._text, self._at)
                if end < len(self._text) or self._ended:
                    self._at = end
                    return value
            except json.JSONDecodeError as error:
                self._check_unfinished(error)
            except RecursionError as error:
                raise self._refused("a value is nested too deeply. Events are a few levels deep") from error
            except ValueError as error:
                raise self._refused(f"a value cannot be read ({error})") from error
            self._more(len(self._text) - self._at)

    def _check_unfinished(self, error: json.JSONDecodeError) -> None:
        """Raise if more text cannot complete the value."""
        if self._ended:
            raise self._refused("the file is cut off, or is not JSON. Copy it, or export it, again") from error
        if len(self._text) - self._at > MAX_VALUE:
            what = f"the text is not JSON, or a value is longer than {MAX_VALUE:,} characters ({error.msg})"
            raise self._refused(f"{what}. Export it again") from error

    def _whole(self) -> Iterator[Any]:
        if self._next() == "[":
            yield from self._list()
            return
        self._expect("{")
        separator = "," if self._next() != "}" else self._expect("}")
        while separator == ",":
            key = self._value()
            self._expect(":")
            if key == "traceEvents" and self._next() == "[":
                yield from self._list()
            elif isinstance(key, str) and len(self.head) < 1000:
                self.head[key] = self._value()
            else:
                raise self._refused("its top level has too many values, or one without a name")
            separator = self._expect(",}")

    def _list(self) -> Iterator[Any]:
        self._expect("[")
        separator = "," if self._next() != "]" else self._expect("]")
        while separator == ",":
            event = self._value()
            self._events += 1
            yield event
            separator = self._expect(",]")


HOST = ("cpu_op", "operator", "user_annotation")
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset", "concurrent_kernel")
"""Categories of events, in lower case; those of PyTorch 1.8 to 1.10 began with capitals."""
MAX_DISTINCT = 500_000
"""Most distinct names, and most distinct calls, of one trace."""
_MORE_VALUES = ("add_", "_foreach_add_", "lstm", "gru", "rnn_tanh", "rnn_relu", "scaled_dot_product_attention")
VALUED = frozenset(name for name, rule in RULES.items() if rule not in (None, pointwise)) | set(_MORE_VALUES)
"""Ops whose arguments other than tensors are kept; for other ops they change in every step and are not used."""
_COLLECTIVE = ("Collective name", "In msg nelems", "Out msg nelems", "Group size", "dtype")

Signature = tuple[Any, Any, Any, Any]
"""Dims, types, strides and values of a call's arguments, as in the trace; ``None`` where it has none."""


class Interned:
    """Distinct values by number."""

    def __init__(self, what: str) -> None:
        self.values: list[Any] = []
        self._known: dict[str, int] = {}
        self._what = what

    def number(self, key: str, value: Any) -> int:
        """Return the number of a value, the same for the same key."""
        found = self._known.setdefault(key, len(self._known))
        if found == len(self.values):
            self.values.append(value)
            if found > MAX_DISTINCT:
                raise FomkitError(
                    "trace", f"has more than {MAX_DISTINCT:,} distinct {self._what}. Check the file."
                )
        return found


def _whole_or(value: Any, default: int = -1) -> int:
    return value if type(value) is int and -(2**62) < value < 2**62 else default


def _real(value: Any) -> float | None:
    """Return a number that can be a time; ``None`` for anything else."""
    if type(value) is int or type(value) is float:
        return float(value) if abs(value) < 1e17 else None
    return None


class Events:
    """Columns of events on the host (`HOST`), of launches and of events on a device (`DEVICE`).

    `start`, `end`: of host events [µs].
    `name`, `thread`, `call`: places in ``names``, ``threads`` and ``calls``; -1 for annotations and calls without
      shapes.
    `sequence`, `external`: numbers in the trace; -1 where it has none.
    `forward_thread`: 1 if the call names the thread of its forward pass, as backward calls do.
    `device_*`: of device events, times in µs; ``device_unit`` is the place in ``units`` of their device.
    `processes`: number of PyTorch's ops by process.
    `wrong`: number of events left out, by reason.
    """

    def __init__(self) -> None:
        self.names, self.threads = Interned("names"), Interned("threads")
        self.calls, self.details = Interned("calls"), Interned("messages")
        self.units, self.device_unit = Interned("devices"), array("i")
        self.processes: Counter[str] = Counter()
        self.start, self.end = array("d"), array("d")
        self.name, self.thread, self.call = array("i"), array("i"), array("i")
        self.sequence, self.forward_thread, self.external = array("q"), array("b"), array("q")
        self.launch_correlation, self.launch_start, self.launch_thread = array("q"), array("d"), array("i")
        self.device_correlation, self.device_external = array("q"), array("q")
        self.device_start, self.device_time, self.device_occupancy = array("d"), array("d"), array("d")
        self.device_name, self.device_detail = array("i"), array("i")
        self.wrong: Counter[str] = Counter()
        self.seen = 0

    def add_all(self, events: Iterable[Any]) -> None:
        """Add the events of a trace; those of other categories are ignored, broken ones counted."""
        for event in events:
            self.seen += 1
            if not isinstance(event, dict):
                self.wrong["no objects"] += 1
            elif event.get("ph") == "X":
                category = event.get("cat")
                self._add(event, category.lower() if isinstance(category, str) else "")

    def _add(self, event: Mapping[str, Any], category: str) -> None:
        host, device = category in HOST, category in DEVICE
        if not (host or device or category.endswith(("_runtime", "_driver", "runtime"))):
            return
        start, time, name = _real(event.get("ts")), _real(event.get("dur", 0)), event.get("name")
        if start is None or time is None or start != start or time != time or not isinstance(name, str):
            self.wrong["without a time or a name"] += 1
            return
        if time < 0:
            self.wrong["of negative duration"] += 1
            return
        args = event.get("args")
        args = args if isinstance(args, dict) else {}
        if device:
            self._add_device(name, start, time, args)
            unit = args.get("device", event.get("pid"))
            self.device_unit.append(self.units.number(str(unit)[:80], unit))
            return
        where = repr((event.get("pid"), event.get("tid")))[:200]
        thread = self.threads.number(where, where)
        if host:
            self._add_host(name, start, time, thread, args)
            self.processes[str(event.get("pid"))[:80]] += category != "user_annotation"
        else:
            self.launch_correlation.append(_whole_or(args.get("correlation")))
            self.launch_start.append(start)
            self.launch_thread.append(thread)

    def _add_host(self, name: str, start: float, time: float, thread: int, args: Mapping[str, Any]) -> None:
        self.name.append(self.names.number(name, name))
        self.start.append(start)
        self.end.append(start + time)
        self.thread.append(thread)
        self.sequence.append(_whole_or(args.get("Sequence number")))
        self.forward_thread.append(_whole_or(args.get("Fwd thread id"), 0) > 0)
        self.external.append(_whole_or(args.get("External id", args.get("external id"))))
        dims = args.get("Input Dims", args.get("Input dims"))
        call = -1
        if dims is not None or "Collective name" in args:
            values = args.get("Concrete Inputs") if name.partition("::")[2] in VALUED else None
            signature = (dims, args.get("Input type"), args.get("Input Strides"), values)
            detail = {key: args[key] for key in _COLLECTIVE if key in args}
            call = self.calls.number(repr((signature, detail)), (signature, detail))
        self.call.append(call)

    def _add_device(self, name: str, start: float, time: float, args: Mapping[str, Any]) -> None:
        occupancy = _real(args.get("est. achieved occupancy %"))
        self.device_name.append(self.names.number(name, name))
        self.device_start.append(start)
        self.device_time.append(time)
        self.device_correlation.append(_whole_or(args.get("correlation")))
        self.device_external.append(_whole_or(args.get("External id", args.get("external id"))))
        self.device_occupancy.append(float("nan") if occupancy is None or not 0 <= occupancy <= 100 else occupancy)
        detail = {key: args[key] for key in (*_COLLECTIVE, "bytes") if key in args}
        self.device_detail.append(self.details.number(repr(detail), detail) if detail else -1)
