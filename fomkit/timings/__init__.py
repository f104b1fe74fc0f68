"""Foreign files of measured op timings, read into TIMINGS; recognised by what they hold, not by their name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fomkit.errors import FomkitError, nearest_names
from fomkit.timings.as_machine import as_machine
from fomkit.timings.deepbench import read_deepbench, recognise_deepbench
from fomkit.timings.imported import ImportedTimings, SectionCount

__all__ = [
    "READERS",
    "ImportedTimings",
    "Reader",
    "SectionCount",
    "as_machine",
    "read_deepbench",
    "read_timings",
]


@dataclass(frozen=True)
class Reader:
    """One foreign format: what it is, whether a file has it, and how to read it."""

    title: str
    recognise: Callable[[Path], bool]
    read: Callable[[Path], ImportedTimings]


READERS: Mapping[str, Reader] = {
    "deepbench": Reader("DeepBench result workbook (.xlsx)", recognise_deepbench, read_deepbench),
}


def read_timings(
    path: Path, file_format: str | None = None, readers: Mapping[str, Reader] = READERS
) -> ImportedTimings:
    """Read measured timings from a file of any known format.

    Parameters
    ----------
    path : Path
    file_format : str, optional
        A key of ``readers``; without it the file's content decides.

    Raises
    ------
    FomkitError
        When no format or more than one fits, with the list of formats, or when the reader refuses the file.
    """
    if file_format is not None:
        if file_format not in readers:
            raise FomkitError(
                str(path), f"{file_format!r} is no known format. {nearest_names(file_format, readers)}"
            )
        return readers[file_format].read(path)
    found = [name for name, reader in readers.items() if reader.recognise(path)]
    if len(found) != 1:
        what = f"fits more than one format: {', '.join(found)}" if found else "is of no known format"
        listed = "; ".join(f"{name}: {reader.title}" for name, reader in readers.items())
        raise FomkitError(str(path), f"{what}. The formats are: {listed}. Name one, or check the file.")
    return readers[found[0]].read(path)
