"""Read untrusted CSV files safely, with a limit at each step.

Only regular files are opened. Gzip is unpacked up to a size and a ratio. Text is decoded and split into rows.
Cells become numbers by strict rules, or text that no spreadsheet program runs as a formula.
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
"""Content [byte] above which the ratio is checked; smaller contents are harmless."""
_KINDS = {
    stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
}  # fmt: skip
# O_NONBLOCK: do not wait for a writer if the file was replaced by a pipe after it was checked.
_FLAGS = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY"))


def _check_mode(path: Path, mode: int) -> None:
    kind = _KINDS.get(stat.S_IFMT(mode))
    if kind is not None:
        raise FomkitError(
            str(path), f"is {kind}, which may never end. Write its output to a file, and name that file."
        )


def check_file(path: Path) -> None:
    """Raise for a file that may never end or that waits for a writer: a pipe, a socket, a device.

    Raises FomkitError with the path as given. Raises OSError or ValueError when the path does not exist or may not
    be accessed.
    """
    _check_mode(path, path.stat().st_mode)


def check_link(path: Path) -> None:
    """Raise for a link to a file that is not there, or to itself."""
    if path.is_symlink() and not path.exists():
        raise FomkitError(str(path), "is a link that leads to no file. Correct it, or name the file itself.")


def open_file(path: Path) -> BinaryIO:
    """Open an untrusted file for reading.

    Raises FomkitError when it is a pipe, a socket or a device. Raises OSError or ValueError when it cannot be
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
"""Files that a command has read and therefore must not overwrite; None where they are not recorded."""


def note_read(*paths: Path) -> None:
    """Record that these files were read."""
    if (known := READ.get()) is not None:
        known.update(path.resolve() for path in paths)


@contextmanager
def read_errors_reported(path: Path) -> Iterator[None]:
    """Convert an OSError while reading to a FomkitError that names the file."""
    try:
        yield
    except OSError as error:
        raise FomkitError(str(path), f"cannot be read ({error.strerror}). Check the path.") from error


def check_beside(path: Path, owner: Path) -> None:
    """Raise for a table named in a profile that is absent, or a link to a place outside the profile's folder.

    Messages quote a table's words, and the content of other files on this computer must not appear in them.
    """
    folders = {owner.parent.resolve(), owner.resolve().parent}
    if not path.exists():
        raise FomkitError(str(owner), f"its table {path.name} is absent. Put it beside {owner.name}.")
    if not any(path.resolve().is_relative_to(folder) for folder in folders):
        what = f"is a link to a file outside the folder of {owner.name}. Copy the table into that folder."
        raise FomkitError(str(path), what)


class Unpacking:
    """A file's content, unpacked if it is gzip; reading stops with an error at a size limit or an absurd ratio.

    `most_byte`: largest content [byte].
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
        """Return the next bytes; empty at the end."""
        content = self._stream.read(byte)
        self._given += len(content)
        if self._given > self._most:
            raise FomkitError(str(self._path), f"is longer than {self._most:,} bytes. Record fewer steps.")
        if self.packed and self._given > max(RATIO_FROM_BYTE, MAX_RATIO * (packed := self._file.tell())):
            raise FomkitError(
                str(self._path),
                f"unpacks to over {self._given / packed:,.0f} times its size. Up to {MAX_RATIO} times was "
                "expected. Give the file unpacked.",
            )
        return content


MAX_BYTE = 64_000_000
"""Largest table, packed or not [byte]."""
MAX_COLUMNS = 1000
MAX_CELLS = 10_000_000
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_OTHER_SEPARATOR = re.compile(r"\w+\s*([;\t|])")


def _unpacked(path: Path, content: bytes) -> bytes:
    """Unpack gzip up to the size limit."""
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
    """Read the first bytes of a file as stored, without unpacking."""
    try:
        with read_errors_reported(path), open_file(path) as stream:
            content = stream.read(byte)
    except ValueError as error:
        raise FomkitError(str(path), f"cannot be read ({error}). Check the path.") from error
    note_read(path)
    return content


def read_start(path: Path, byte: int = 100_000) -> bytes:
    """Read the first bytes of a file, unpacked if it is gzip, to recognise its format.

    Whether the rest is valid is checked by the format's reader.
    """
    content = _packed_bytes(path, byte)
    if content[:2] != GZIP:
        return content
    try:
        return zlib.decompressobj(wbits=31).decompress(content, byte)
    except zlib.error as error:
        raise FomkitError(str(path), f"is damaged ({error}). Pack it with gzip again.") from error


def read_bytes(path: Path) -> bytes:
    """Read a table's file up to the size limit, unpacked if it is gzip."""
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
        raise FomkitError(f"{path}:{line}", "is not a CSV table: it has a zero byte. Save it as CSV in UTF-8.")
    return text


def read_header(path: Path) -> tuple[str, ...]:
    """Return the words of a file's first line, as a header with any separator or encoding.

    This is for recognition only and refuses nothing, so that the reader can report what is wrong.
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
    """Yield the rows of a table, the header first, each with the line of the file where it begins.

    Empty lines, and lines of empty cells, which spreadsheet programs leave below a table, are skipped.
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
                    f"has {len(row):,} cells where the header has {columns:,}. Quote cells that contain a comma.",
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
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
"""First characters that make a spreadsheet program read a typed text as a formula."""
_HIDDEN = re.compile(r"'*[=+\-@\t\r]")
SHOWN = 60
"""Largest number of a cell's characters that a message quotes."""


def shown(text: str) -> str:
    """Quote a cell for a message, shortened if it is long."""
    return repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}…")


def is_number(text: str) -> bool:
    """Return whether text is a plain decimal number."""
    return _NUMBER.fullmatch(text) is not None


def parse_number(text: str, where: str, column: str, *, expressions: bool = False) -> float | str:
    """Parse a number cell; an empty cell is NaN.

    `text`, `where`, `column`: the cell, its file and line, and its column; `expressions`: whether the cell may be
    an expression in named sizes, which is returned as text.

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
        hint = "Write a decimal point and no thousands separator, for example 1234.5."
    raise FomkitError(where, f"{column} is {shown(text)}. Expected {expected}. {hint}")


def escape_cell(text: str) -> str:
    """Put an apostrophe before text that a spreadsheet program would run; `unescape` removes it.

    >>> escape_cell("=1+1"), escape_cell("'=1"), escape_cell("addmm")
    ("'=1+1", "''=1", 'addmm')
    """
    return f"'{text}" if _HIDDEN.match(text) else text


def unescape(text: str) -> str:
    """Undo `escape_cell`."""
    return text[1:] if text[:1] == "'" and _HIDDEN.match(text) else text


def escape_foreign(text: str) -> str:
    """Disarm a cell from a foreign table: numbers and text that is already harmless stay unchanged.

    >>> escape_foreign("-5.2"), escape_foreign("-x"), escape_foreign("'-x")
    ('-5.2', "'-x", "'-x")
    """
    return f"'{text}" if text[:1] in FORMULA_STARTS and not is_number(text) else text


def number_cell(value: float) -> str:
    """Format a number so that it reads back exactly; NaN is an empty cell."""
    if math.isnan(value):
        return ""
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
