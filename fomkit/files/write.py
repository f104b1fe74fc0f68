"""Write files atomically, alone or as a set: to temporary names in the same folder, which are then renamed."""

from __future__ import annotations

import gzip
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from fomkit.core.errors import FomkitError
from fomkit.files.csv import READ, check_link
from fomkit.files.op_csv import format_table

if TYPE_CHECKING:
    import pandas as pd


def _temporary(path: Path) -> tuple[int, Path]:
    if path.is_dir():
        raise FomkitError(str(path), "is a folder. Choose another name.")
    # Where upper and lower case are one, as on most disks of macOS and Windows, a file has several names.
    if path.exists() and any(one.exists() and path.samefile(one) for one in READ.get() or ()):
        raise FomkitError(str(path), "is an input, and would be overwritten. Name another output.")
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise FomkitError(str(path), f"cannot be written ({error.strerror}). Choose another folder.") from error
    return handle, Path(name)


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Open a stream that becomes the file at ``path`` when it is complete; on any failure the old file stays."""
    handle, temporary = _temporary(path)
    try:
        with _os_errors_reported(path):
            with os.fdopen(handle, "wb") as stream:
                yield stream
            _give_usual_rights(temporary)
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_whole(path: Path, content: str | bytes) -> None:
    """Replace the file at ``path`` by ``content`` in one step, so that a failure leaves the old file unchanged.

    Text is written as UTF-8.
    """
    with whole_file(path) as stream:
        stream.write(_bytes(content))


def _bytes(content: str | bytes) -> bytes:
    return content.encode("utf-8") if isinstance(content, str) else content


def write_set(files: Mapping[Path, str | bytes]) -> list[Path]:
    """Write a profile's files (content by path, text as UTF-8), all of them or none, and return their paths.

    All contents are written before the first file is renamed, and the first file, which refers to the others, is
    renamed last. If a rename fails, the previous ones are undone, so that an older set stays unchanged.
    """
    ready: dict[Path, Path] = {}
    old: dict[Path, Path] = {}
    named: list[Path] = []
    try:
        for path, content in files.items():
            handle, ready[path] = _temporary(path)
            with _os_errors_reported(path), os.fdopen(handle, "wb") as stream:
                stream.write(_bytes(content))
                _give_usual_rights(ready[path])
        for path in files:
            if path.exists():
                with _os_errors_reported(path):
                    handle, old[path] = _temporary(path)
                    os.close(handle)
                    shutil.copyfile(path, old[path])
                    with suppress(PermissionError):
                        shutil.copystat(path, old[path])
        for path in reversed(ready):
            named.append(path)
            with _os_errors_reported(path):
                ready[path].replace(path)
    except BaseException:  # also after an interrupt no half set may remain
        for path in named:
            path.unlink(missing_ok=True)
            if path in old:
                old[path].replace(path)
        raise
    finally:
        for temporary in (*ready.values(), *old.values()):
            temporary.unlink(missing_ok=True)
    return list(files)


@contextmanager
def _os_errors_reported(path: Path) -> Iterator[None]:
    """Convert an OSError while writing to a FomkitError that names the file."""
    try:
        yield
    except OSError as error:
        raise FomkitError(
            str(path), f"cannot be written ({error.strerror or error}). Choose another name."
        ) from error


def write_table(data: pd.DataFrame, path: Path, table: str) -> None:
    """Write a table to a CSV file, whole or not at all."""
    write_whole(path, format_table(data, table))


def packed(data: pd.DataFrame, table: str) -> bytes:
    """Return a table as a CSV file packed with gzip; equal tables give equal bytes."""
    return gzip.compress(format_table(data, table).encode("utf-8"), mtime=0)


def _give_usual_rights(path: Path) -> None:
    """Give a temporary file the rights of any new file; disks without rights, as Windows' in WSL, refuse it."""
    mask = os.umask(0)
    os.umask(mask)
    with suppress(PermissionError):
        path.chmod(0o666 & ~mask)


def check_new_folder(folder: Path) -> None:
    """Raise when a folder exists, or cannot be made below the nearest one that exists."""
    if folder.exists() or folder.is_symlink():
        raise FomkitError(str(folder), "exists already. Name a new folder.")
    above = next(one for one in folder.absolute().parents if one.exists() or one.is_symlink())
    check_link(above)
    if not above.is_dir() or not os.access(above, os.W_OK):
        why = "is read-only" if above.is_dir() else "is a file"
        raise FomkitError(str(folder), f"cannot be made: {above} {why}. Name another folder.")


def check_absent(paths: list[Path], force: bool) -> None:
    """Raise when a file cannot be written, or exists and ``force`` is false."""
    for path in paths:
        check_link(path)
        if path.is_dir():
            raise FomkitError(str(path), "is a folder. Choose another name.")
        if not path.parent.is_dir():
            lacks = f"there is no folder {path.parent}. Create it first."
            wrong = f"{path.parent} is a file. Choose another folder." if path.parent.exists() else lacks
            raise FomkitError(str(path), f"cannot be written: {wrong}")
        if not os.access(path.parent, os.W_OK):
            raise FomkitError(str(path), f"the folder {path.parent} is read-only. Choose another folder.")
    present = [str(path) for path in paths if path.exists()]
    if present and not force:
        exist, it = "exist already" if len(present) > 1 else "exists already", "them" if len(present) > 1 else "it"
        where = " and ".join(filter(None, [", ".join(present[:-1]), present[-1]]))
        raise FomkitError(where, f"{exist}. Choose another name, or pass --force to replace {it}.")
