"""The text of a stranger's CSV file as rows of cells: decoded, unpacked and split under caps."""

from __future__ import annotations

import csv
import io
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

from fomkit.errors import FomkitError
from fomkit.tables.opening import GZIP, open_file

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


def read_bytes(path: Path) -> bytes:
    """Read a table's file under the size cap, unpacked where it is gzip.

    Raises
    ------
    FomkitError
        When it is absent, no regular file, too large or damaged.
    """
    try:
        with open_file(path) as stream:
            content = stream.read(MAX_BYTE + 1)
    except OSError as error:
        raise FomkitError(str(path), f"cannot be read ({error.strerror}). Check the path.") from error
    except ValueError as error:
        raise FomkitError(str(path), f"cannot be read ({error}). Check the path.") from error
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
    content = read_bytes(path)[:100_000]
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

    Empty lines are skipped.

    Raises
    ------
    FomkitError
        When the file is no CSV table in UTF-8, is ragged, or is larger than the caps of this module.
    """
    reader = csv.reader(io.StringIO(_decoded(path, read_bytes(path)), newline=""), strict=True)
    columns, cells, line = 0, 0, 1
    try:
        for row in reader:
            start, line = line, reader.line_num + 1
            if not row:
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
