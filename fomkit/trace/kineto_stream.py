"""A profiler's trace, read value by value: a file of gigabytes takes memory for one event."""

from __future__ import annotations

import codecs
import gzip
import json
import math
import re
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from fomkit.errors import FomkitError
from fomkit.tables.opening import Unpacking

CHUNK_BYTE = 1_000_000
MAX_VALUE = 32_000_000
"""Longest event, or other value of the file's top level [characters]."""
MAX_BYTE = 8_000_000_000
"""Longest trace, unpacked [byte]."""
HEAD_BYTE = 100_000
_SPACE = re.compile(r"[ \t\r\n]*")
_FIRST = re.compile(r'\s*\{.*"(traceEvents|schemaVersion)"\s*:|\s*\[\s*\{.*"ph"\s*:', re.DOTALL)


def recognise_kineto(path: Path) -> bool:
    """Tell by its first bytes whether a file is a trace in Chrome's format, packed by gzip or not."""
    head = b""
    # What a cut or damaged file still shows is enough to know whose it is; reading it tells the rest.
    with suppress(OSError, EOFError, zlib.error, ValueError), Unpacking(path, MAX_BYTE) as stream:
        while len(head) < HEAD_BYTE and (piece := stream.read(2000)):
            head += piece
    return _FIRST.match(head.decode("utf-8-sig", errors="replace")) is not None


def _number(text: str) -> float:
    return math.nan if not math.isfinite(value := float(text)) else value


class TraceReader:
    """Gives the events of a trace in file order, once.

    Parameters
    ----------
    path : Path

    Attributes
    ----------
    head : dict
        The other values of the file's top level, complete after the last event.

    Raises
    ------
    FomkitError
        While reading: when the file is cut off, damaged, no JSON, nested too deeply, or no trace.
    """

    def __init__(self, path: Path) -> None:
        self.head: dict[str, Any] = {}
        self._path = path
        self._decode = json.JSONDecoder(strict=False, parse_constant=_number, parse_float=_number).raw_decode
        self._text, self._at, self._ended = "", 0, False
        self._events = 0
        self._stream: Unpacking | None = None
        self._utf8 = codecs.getincrementaldecoder("utf-8-sig")(errors="replace")

    def __iter__(self) -> Iterator[Any]:
        """Read from the first event to the last."""
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
        """Read on; what was used is forgotten."""
        content = self._stream.read(max(CHUNK_BYTE, least)) if self._stream else b""
        self._ended = not content
        self._text = self._text[self._at :] + self._utf8.decode(content, self._ended)
        self._at = 0

    def _next(self) -> str:
        """Give the next character that is no space, "" at the end."""
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
            raise self._refused(f"stands {letter!r} where {' or '.join(allowed)} was expected. Export it again")
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
                raise self._refused(f"stands a value that cannot be taken ({error})") from error
            self._more(len(self._text) - self._at)

    def _check_unfinished(self, error: json.JSONDecodeError) -> None:
        """Raise where more text would not mend the value."""
        if self._ended:
            raise self._refused("the file is cut off, or no JSON. Copy it, or export it, again") from error
        if len(self._text) - self._at > MAX_VALUE:
            what = f"comes no JSON, or a value longer than {MAX_VALUE:,} characters ({error.msg})"
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
