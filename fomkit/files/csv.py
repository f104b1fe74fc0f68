"""CSV files of strangers, from the open file to the cell, each step under a cap.

Only regular files are opened; gzip is unpacked up to a size and a ratio; text is decoded and split into rows.
Cells become strict numbers, or text that no spreadsheet program runs as a formula.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import os
import re
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import BinaryIO

from fomkit.core.errors import FomkitError

GZIP = b"\x1f\x8b"
MAX_RATIO = 300
"""Largest ratio of content to packed file; tables and traces unpack to 5 to 50 times."""
RATIO_FROM_BYTE = 64_000_000
"""Content [byte] from which the ratio counts; less fills no memory."""
_KINDS = {
    stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
}  # fmt: skip
# Opened without waiting for a writer, should the file have been replaced by a pipe since it was looked at.
_FLAGS = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY"))


def _check_mode(path: Path, mode: int) -> None:
    kind = _KINDS.get(stat.S_IFMT(mode))
    if kind is not None:
        raise FomkitError(
            str(path), f"is {kind}, which may never end. Write what it gives to a file, and name that."
        )


def check_file(path: Path) -> None:
    """Refuse what may never end or waits for a writer: a pipe, a socket, a device.

    Raises FomkitError with the path as it was given. Raises OSError, ValueError when it is absent or may not be
    looked at.
    """
    _check_mode(path, path.stat().st_mode)


def open_file(path: Path) -> BinaryIO:
    """Open a stranger's file for reading.

    Raises FomkitError when it is a pipe, a socket or a device. Raises OSError, ValueError when it cannot be
    opened.
    """
    check_file(path)
    number = os.open(path, _FLAGS)
    try:
        _check_mode(path, os.fstat(number).st_mode)
        return os.fdopen(number, "rb")
    except BaseException:  # an interrupt too must not leave the file open
        os.close(number)
        raise


READ: ContextVar[set[Path] | None] = ContextVar("READ", default=None)
"""Files that a command has read, so that it replaces none of them; None where nobody asks."""


def note_read(*paths: Path) -> None:
    """Keep in mind that these files were read."""
    if (known := READ.get()) is not None:
        known.update(path.resolve() for path in paths)


@contextmanager
def read_errors_reported(path: Path) -> Iterator[None]:
    """Raise what keeps a file from being read as a message that names it."""
    try:
        yield
    except OSError as error:
        raise FomkitError(str(path), f"cannot be read ({error.strerror}). Check the path.") from error


def check_beside(path: Path, owner: Path) -> None:
    """Refuse a table that a profile names and that a link leads out of the profile's folder.

    Messages quote a table's words; those of another file of this computer are not for whoever sees them.
    """
    folders = {owner.parent.resolve(), owner.resolve().parent}
    if not any(path.resolve().is_relative_to(folder) for folder in folders):
        raise FomkitError(
            str(path), f"is a link out of the folder of {owner.name}, which names it. Copy the table there."
        )


class Unpacking:
    """A file's content, unpacked where it is gzip; counts what it gives, and stops where that grows absurd.

    `most_byte`: longest content [byte].
    """

    def __init__(self, path: Path, most_byte: int) -> None:
        self._path, self._most = path, most_byte
        self._file = open_file(path)
        self.packed = self._file.read(2) == GZIP
        self._file.seek(0)
        self._stream = gzip.GzipFile(fileobj=self._file, mode="rb") if self.packed else self._file
        self._given = 0

    def __enter__(self) -> Unpacking:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()
        self._file.close()

    def read(self, byte: int) -> bytes:
        """Give the next bytes, none at the end."""
        content = self._stream.read(byte)
        self._given += len(content)
        if self._given > self._most:
            raise FomkitError(str(self._path), f"is longer than {self._most:,} bytes. Record fewer steps.")
        if self.packed and self._given > max(RATIO_FROM_BYTE, MAX_RATIO * (packed := self._file.tell())):
            raise FomkitError(
                str(self._path),
                f"unpacks to over {self._given / packed:,.0f} times its size. Up to {MAX_RATIO} times was "
                "expected. Give the file as it was before it was packed.",
            )
        return content


MAX_BYTE = 64_000_000
"""Largest table, packed or not [byte]."""
MAX_COLUMNS = 1000
MAX_CELLS = 10_000_000
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_OTHER_SEPARATOR = re.compile(r"\w+\s*([;\t|])")


def _unpacked(path: Path, content: bytes) -> bytes:
    """Unpack gzip, at most as far as the cap allows."""
    unpacker = zlib.decompressobj(wbits=31)
    try:
        text = unpacker.decompress(content, MAX_BYTE + 1)
    except zlib.error as error:
        raise FomkitError(str(path), f"is damaged ({error}). Pack it with gzip again.") from error
    if not unpacker.eof and len(text) <= MAX_BYTE:
        raise FomkitError(str(path), "is cut off: its gzip data has no end. Copy it again.")
    if unpacker.unused_data:
        raise FomkitError(str(path), "holds more than one gzip stream. Pack one table in it.")
    return text


def _packed_bytes(path: Path, byte: int) -> bytes:
    """Read the first bytes of a file as they stand on the disk."""
    try:
        with read_errors_reported(path), open_file(path) as stream:
            content = stream.read(byte)
    except ValueError as error:
        raise FomkitError(str(path), f"cannot be read ({error}). Check the path.") from error
    note_read(path)
    return content


def read_start(path: Path, byte: int = 100_000) -> bytes:
    """Read the first bytes of a file, unpacked where it is gzip: enough to recognise it.

    Whether the rest can be read, its reader says.
    """
    content = _packed_bytes(path, byte)
    if content[:2] != GZIP:
        return content
    try:
        return zlib.decompressobj(wbits=31).decompress(content, byte)
    except zlib.error as error:
        raise FomkitError(str(path), f"is damaged ({error}). Pack it with gzip again.") from error


def read_bytes(path: Path) -> bytes:
    """Read a table's file under the size cap, unpacked where it is gzip."""
    content = _packed_bytes(path, MAX_BYTE + 1)
    if len(content) <= MAX_BYTE and content[:2] == GZIP:
        content = _unpacked(path, content)
    if len(content) > MAX_BYTE:
        raise FomkitError(str(path), f"is larger than {MAX_BYTE:,} bytes. Split it.")
    return content


def _decoded(path: Path, content: bytes) -> str:
    if content[:2] in _UTF16:
        raise FomkitError(str(path), "is UTF-16 text. Save it as CSV in UTF-8.")
    if content[:4] == b"PK\x03\x04":
        raise FomkitError(str(path), "is a zip archive or a workbook, no CSV table. Save the sheet as CSV.")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise FomkitError(f"{path}:{line}", "is not a CSV table in UTF-8. Save it as CSV in UTF-8.") from error
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise FomkitError(f"{path}:{line}", "is not a CSV table: it holds a zero byte. Save it as CSV in UTF-8.")
    return text


def read_header(path: Path) -> tuple[str, ...]:
    """Give the words of a file's first line if it can be a table's header, whatever separates or encodes them.

    Recognition only; nothing is refused here, so that the reader can say what is wrong.
    """
    content = read_start(path)
    text = content.decode("utf-16" if content[:2] in _UTF16 else "utf-8-sig", errors="replace")
    return tuple(word.strip(" '\"\r") for word in re.split(r"[,;\t|]", text.lstrip().partition("\n")[0]))


def _check_header(path: Path, header: list[str]) -> None:
    if len(header) > MAX_COLUMNS:
        raise FomkitError(f"{path}:1", f"has {len(header):,} columns. Up to {MAX_COLUMNS:,} were expected.")
    if len(header) == 1 and (found := _OTHER_SEPARATOR.match(header[0])):
        raise FomkitError(
            f"{path}:1",
            f"its cells are separated by {found[1]!r}. Save it with commas, and with points in the numbers.",
        )


def read_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Give the rows of a table, the header first, each with the line of the file on which it begins.

    Empty lines are skipped, and those of empty cells, as spreadsheet programs leave them below a table.
    """
    reader = csv.reader(io.StringIO(_decoded(path, read_bytes(path)), newline=""), strict=True)
    columns, cells, line = 0, 0, 1
    try:
        for row in reader:
            start, line = line, reader.line_num + 1
            if not any(row):
                continue
            if not columns:
                _check_header(path, row)
                columns = len(row)
            if len(row) != columns:
                raise FomkitError(
                    f"{path}:{start}",
                    f"has {len(row):,} cells where the header has {columns:,}. Quote cells that hold a comma.",
                )
            cells += columns
            if cells > MAX_CELLS:
                raise FomkitError(str(path), f"has more than {MAX_CELLS:,} cells. Split it.")
            yield start, row
    except csv.Error as error:
        raise FomkitError(f"{path}:{line}", f"is not a CSV table ({error}). Close every quote.") from error


_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)
_EXPRESSION = re.compile(r"(?=.*([A-Za-z_]|\d\s*[-+*/]))[0-9A-Za-z_+\-*/() ]{1,200}")
_NO_NUMBER = ("nan", "inf", "infinity", "na", "n/a", "none", "null")
LIVE = ("=", "+", "-", "@", "\t", "\r")
"""Beginnings by which a spreadsheet program takes a typed text for a formula."""
_HIDDEN = re.compile(r"'*[=+\-@\t\r]")
SHOWN = 60
"""Characters of a cell that a message quotes."""


def shown(text: str) -> str:
    """Quote a cell in a message, cut where it is long."""
    return repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}…")


def is_number(text: str) -> bool:
    """Tell whether text is a plain decimal number."""
    return _NUMBER.fullmatch(text) is not None


def parse_number(text: str, where: str, column: str, *, expressions: bool = False) -> float | str:
    """Read a number cell; an empty one is NaN.

    `text`, `where`, `column`: the cell, its file and line, and its column; `expressions`: whether the cell may be
    an expression in named sizes, which is given back as text.

    >>> parse_number("1.5e3", "ops.csv:2", "m"), parse_number("2*batch", "ops.csv:2", "m", expressions=True)
    (1500.0, '2*batch')
    """
    if not text.strip():
        return math.nan
    if is_number(text):
        if math.isinf(value := float(text)):
            raise FomkitError(where, f"{column} is {shown(text)}, which is too large a number.")
        return value
    if expressions and _EXPRESSION.fullmatch(text) and text.strip(" +-").lower() not in _NO_NUMBER:
        return text
    expected = "a number or an expression in named sizes" if expressions else "a number"
    hint = "Leave the cell empty where the value is unknown."
    if re.fullmatch(r"\s*[+-]?\d[\d.,'\s]*", text, re.ASCII):
        hint = "Write a decimal point and nothing between the thousands, for example 1234.5."
    raise FomkitError(where, f"{column} is {shown(text)}. Expected {expected}. {hint}")


def disarm(text: str) -> str:
    """Put an apostrophe before text that a spreadsheet program would run as a formula; `rearm` takes it away.

    >>> disarm("=1+1"), disarm("'=1"), disarm("addmm")
    ("'=1+1", "''=1", 'addmm')
    """
    return f"'{text}" if _HIDDEN.match(text) else text


def rearm(text: str) -> str:
    """Undo `disarm`."""
    return text[1:] if text[:1] == "'" and _HIDDEN.match(text) else text


def disarm_stranger(text: str) -> str:
    """Disarm a cell that is not ours: numbers and what is harmless already stay as they are.

    >>> disarm_stranger("-5.2"), disarm_stranger("-x"), disarm_stranger("'-x")
    ('-5.2', "'-x", "'-x")
    """
    return f"'{text}" if text[:1] in LIVE and not is_number(text) else text


def format_number(value: float) -> str:
    """Write a number that reads back exactly; NaN is an empty cell."""
    if math.isnan(value):
        return ""
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
