"""Files are written whole or not at all: to a temporary name beside the target, then renamed."""

from __future__ import annotations

import gzip
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from fomkit.errors import FomkitError
from fomkit.tables import format_table

if TYPE_CHECKING:
    import pandas as pd


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Open a stream that becomes the file at ``path`` once all is written; on any failure the old file stays.

    Raises
    ------
    FomkitError
        When the file or its folder cannot be written.
    """
    if path.is_dir():
        raise FomkitError(str(path), "is a folder. Choose another name.")
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise FomkitError(str(path), f"cannot be written ({error.strerror}). Choose another folder.") from error
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
        Path(temporary).chmod(0o666 & ~_umask())
        Path(temporary).replace(path)
    except OSError as error:
        why = error.strerror or error
        raise FomkitError(str(path), f"cannot be written ({why}). Choose another name.") from error
    finally:
        Path(temporary).unlink(missing_ok=True)


def write_whole(path: Path, content: str | bytes) -> None:
    """Replace the file at ``path`` by ``content`` in one step, so that a failure leaves the old file as it was.

    Text is written as UTF-8.

    Raises
    ------
    FomkitError
        When the file or its folder cannot be written.
    """
    with whole_file(path) as stream:
        stream.write(content.encode("utf-8") if isinstance(content, str) else content)


def write_table(data: pd.DataFrame, path: Path, table: str, extra: tuple[str, ...] = ()) -> None:
    """Write a table to a CSV file, whole or not at all."""
    write_whole(path, format_table(data, table, extra))


def write_packed(data: pd.DataFrame, path: Path, table: str) -> None:
    """Write a table to a CSV file packed with gzip, the same bytes for the same table."""
    write_whole(path, gzip.compress(format_table(data, table).encode("utf-8"), mtime=0))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def check_absent(paths: list[Path], force: bool) -> None:
    """Raise when a file cannot be written, or is already there, unless ``force``.

    Raises
    ------
    FomkitError
        Naming the files, or a folder that is not there: better before the work than after it.
    """
    folders = [str(path) for path in paths if path.is_dir()]
    if folders:
        raise FomkitError(", ".join(folders), "is a folder. Choose another name.")
    for path in paths:
        if not path.parent.is_dir():
            raise FomkitError(str(path), f"cannot be written: there is no folder {path.parent}. Make it first.")
        if not os.access(path.parent, os.W_OK):
            raise FomkitError(str(path), f"the folder {path.parent} may not be written to. Choose another folder.")
    present = [str(path) for path in paths if path.exists()]
    if present and not force:
        raise FomkitError(", ".join(present), "exists already. Choose another name, or pass --force to replace.")
