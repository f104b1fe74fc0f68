"""The one way in which a stranger's file is opened: regular files only, and gzip under a cap of size and ratio."""

from __future__ import annotations

import gzip
import os
import stat
from pathlib import Path
from typing import BinaryIO

from fomkit.errors import FomkitError

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

    Raises
    ------
    FomkitError
        With the path as it was given.
    OSError, ValueError
        When it is absent or may not be looked at.
    """
    _check_mode(path, path.stat().st_mode)


def open_file(path: Path) -> BinaryIO:
    """Open a stranger's file for reading.

    Raises
    ------
    FomkitError
        When it is a pipe, a socket or a device.
    OSError, ValueError
        When it cannot be opened.
    """
    check_file(path)
    number = os.open(path, _FLAGS)
    try:
        _check_mode(path, os.fstat(number).st_mode)
        return os.fdopen(number, "rb")
    except BaseException:
        os.close(number)
        raise


def check_beside(path: Path, owner: Path) -> None:
    """Refuse a table that a profile names and that a link leads out of the profile's folder.

    Messages quote a table's words; those of another file of this computer are not for whoever sees them.

    Raises
    ------
    FomkitError
        With the path as the profile names it, without where it leads.
    """
    folders = {owner.parent.resolve(), owner.resolve().parent}
    if not any(path.resolve().is_relative_to(folder) for folder in folders):
        raise FomkitError(
            str(path), f"is a link out of the folder of {owner.name}, which names it. Copy the table there."
        )


class Unpacking:
    """A file's content, unpacked where it is gzip; counts what it gives, and stops where that grows absurd.

    Parameters
    ----------
    path : Path
    most_byte : int
        Longest content [byte].

    Raises
    ------
    FomkitError
        While reading: when the content is longer, or too many times its packed size.
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
        if self.packed:
            check_ratio(self._path, self._given, self._file.tell())
        return content


def check_ratio(path: Path, content_byte: int, packed_byte: int) -> None:
    """Refuse gzip data that unpack to many times what any record does.

    Raises
    ------
    FomkitError
        With the ratio.
    """
    if content_byte > RATIO_FROM_BYTE and content_byte > MAX_RATIO * packed_byte:
        raise FomkitError(
            str(path),
            f"unpacks to over {content_byte / packed_byte:,.0f} times its size. Up to {MAX_RATIO} times was "
            "expected. Give the file as it was before it was packed.",
        )
